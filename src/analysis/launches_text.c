/* SPDX-License-Identifier: Apache-2.0 */
/* Memory per operator and launch, as a table for people and as JSON. */
#include "analysis/launches.h"
#include "base/shown.h"
#include "base/whole.h"

#include <string.h>

static const char *const level_words[LAUNCHES_LEVELS] = {
	[LAUNCHES_OPERATOR] = "operator", [LAUNCHES_KERNEL] = "kernel"};

/* A size in a column of its own, to the right; with a sign if it is a change. */
static void add_cell(struct strbuf *out, double bytes, bool change, int width)
{
	struct strbuf cell = {0};

	if (change && bytes != 0)
		strbuf_add_char(&cell, bytes < 0 ? '-' : '+');
	if (bytes < 0)
		bytes = -bytes;
	strbuf_add_size(&cell, whole(bytes));
	strbuf_addf(out, "%*s", width, strbuf_str(&cell));
	strbuf_fini(&cell);
}

static void add_line(const struct launches *launches, const struct launches_entry *entry,
		     struct strbuf *out)
{
	char device[16];

	if (entry->outside)
		strbuf_addf(out, "%9s", "-");
	else
		strbuf_addf(out, "%9llu", (unsigned long long)entry->calls);
	add_cell(out, (double)entry->left_bytes, false, 11);
	add_cell(out, (double)entry->largest_bytes, false, 11);
	if (launches->steps >= 2)
		add_cell(out, entry->growth_bytes, true, 12);
	add_cell(out, (double)entry->held_bytes, false, 11);
	device_text(entry->device, device);
	strbuf_addf(out, "  %-6s", device);
	strbuf_addf(out, " %-13s ",
		    entry->pool == POOL_UNKNOWN ? "-" : pool_event_type(entry->pool));
	strbuf_add_shown(out, entry->name, strlen(entry->name));
	strbuf_add_char(out, '\n');
}

static void add_level(const struct launches *launches, enum launches_level level, uint32_t lines,
		      struct strbuf *out)
{
	static const char *const titles[LAUNCHES_LEVELS] = {
		[LAUNCHES_OPERATOR] = "Memory that operators left allocated when they ended",
		[LAUNCHES_KERNEL] = "Memory that kernels left allocated when the next one was "
				    "launched",
	};
	uint64_t shown = 0, rest = 0;
	size_t i;

	strbuf_addf(out, "%s", titles[level]);
	if (launches->steps >= 2)
		strbuf_addf(out, ", the fastest growing first (%u steps)", launches->steps);
	strbuf_add_str(out, ":\n");
	strbuf_addf(out, "%9s%11s%11s", "calls", "left", "largest");
	if (launches->steps >= 2)
		strbuf_addf(out, "%12s", "per step");
	strbuf_addf(out, "%11s  %-6s %-13s %s\n", "at the end", "device", "memory",
		    level_words[level]);
	for (i = 0; i < launches->count; i++) {
		if (launches->entries[i].level != level)
			continue;
		if (shown < lines) {
			add_line(launches, &launches->entries[i], out);
			shown++;
		} else {
			rest++;
		}
	}
	if (rest > 0) {
		strbuf_add_str(out, "  and ");
		strbuf_add_count(out, rest, "more line", "more lines");
		strbuf_add_str(out, "; --top=N or --all shows them\n");
	}
}

void launches_add_text(const struct launches *launches, uint32_t lines, struct strbuf *out)
{
	int level;

	for (level = 0; level < LAUNCHES_LEVELS; level++) {
		if (launches->known[level])
			add_level(launches, (enum launches_level)level, lines, out);
	}
	if (!launches->known[LAUNCHES_OPERATOR] && !launches->known[LAUNCHES_KERNEL])
		strbuf_add_str(out, "No operator and no kernel is in this run. Record with "
				    "--events=alloc,free,launch and with --level=op, or "
				    "--level=kernel for the names of kernels.\n");
	else if (!launches->known[LAUNCHES_KERNEL])
		strbuf_add_str(out, "Kernels have no names in this run; record with "
				    "--level=op,kernel to see them too.\n");
}

void launches_add_json(const struct launches *launches, uint32_t lines, struct json *json)
{
	uint32_t shown[LAUNCHES_LEVELS] = {0};
	char device[16];
	size_t i;

	json_object(json, "launches");
	json_u64(json, "steps", launches->steps);
	json_bool(json, "operators", launches->known[LAUNCHES_OPERATOR]);
	json_bool(json, "kernels", launches->known[LAUNCHES_KERNEL]);
	json_u64(json, "names", launches->count);
	json_array(json, "entries");
	for (i = 0; i < launches->count; i++) {
		const struct launches_entry *entry = &launches->entries[i];

		if (shown[entry->level]++ >= lines)
			continue;
		device_text(entry->device, device);
		json_object(json, NULL);
		json_string(json, "kind", level_words[entry->level]);
		json_string(json, "name", entry->name);
		json_bool(json, "outside", entry->outside);
		json_string(json, "device", device);
		if (entry->pool == POOL_UNKNOWN)
			json_null(json, "event_type");
		else
			json_string(json, "event_type", pool_event_type(entry->pool));
		json_u64(json, "calls", entry->calls);
		json_u64(json, "left_bytes", entry->left_bytes);
		json_u64(json, "largest_bytes", entry->largest_bytes);
		json_u64(json, "freed_bytes", entry->freed_bytes);
		json_u64(json, "end_bytes", entry->held_bytes);
		json_u64(json, "end_blocks", entry->held_blocks);
		json_u64(json, "first_step_bytes", entry->first_bytes);
		json_u64(json, "last_step_bytes", entry->last_bytes);
		json_f64(json, "bytes_per_step", entry->growth_bytes, 1);
		json_end(json);
	}
	json_end(json);
	json_end(json);
}
