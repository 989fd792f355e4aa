/* SPDX-License-Identifier: Apache-2.0 */
/* Memory per operator and launch, as a table for people and as JSON. */
#include "base/json.h"
#include "base/shown.h"
#include "base/whole.h"
#include "findings/findings.h"

#include <string.h>

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

static void add_line(const struct finding_calls *calls, const struct finding_call *call,
		     struct strbuf *out)
{
	char device[16];

	if (call->outside)
		strbuf_addf(out, "%9s", "-");
	else
		strbuf_addf(out, "%9llu", (unsigned long long)call->calls);
	add_cell(out, (double)call->left_bytes, false, 11);
	add_cell(out, (double)call->largest_bytes, false, 11);
	if (calls->steps >= 2)
		add_cell(out, call->bytes_per_step, true, 12);
	add_cell(out, (double)call->end_bytes, false, 11);
	device_text(call->device, device);
	strbuf_addf(out, "  %-6s", device);
	strbuf_addf(out, " %-13s ",
		    call->event_type == POOL_UNKNOWN ? "-" : pool_event_type(call->event_type));
	strbuf_add_shown(out, call->name, strlen(call->name));
	strbuf_add_char(out, '\n');
}

static void add_table(const struct findings *found, const struct finding_calls *calls, bool kernels,
		      uint32_t lines, struct strbuf *out)
{
	const struct finding_call *all = FINDINGS(found, call) + calls->entries.first;
	uint64_t shown = 0, rest = 0;
	size_t i;

	strbuf_add_str(out, kernels ? "Memory that kernels left allocated when the next one was "
				      "launched"
				    : "Memory that operators left allocated when they ended");
	if (calls->steps >= 2)
		strbuf_addf(out, ", the fastest growing first (%llu steps)",
			    (unsigned long long)calls->steps);
	strbuf_add_str(out, ":\n");
	strbuf_addf(out, "%9s%11s%11s", "calls", "left", "largest");
	if (calls->steps >= 2)
		strbuf_addf(out, "%12s", "per step");
	strbuf_addf(out, "%11s  %-6s %-13s %s\n", "at the end", "device", "memory",
		    kernels ? "kernel" : "operator");
	for (i = 0; i < calls->entries.count; i++) {
		if (all[i].kernel != kernels)
			continue;
		if (shown < lines) {
			add_line(calls, &all[i], out);
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

void calls_text(const struct findings *found, uint32_t lines, struct strbuf *out)
{
	const struct finding_calls *calls = FINDINGS(found, calls);

	if (FINDINGS_COUNT(found, calls) == 0)
		return;
	if (calls->operators)
		add_table(found, calls, false, lines, out);
	if (calls->kernels)
		add_table(found, calls, true, lines, out);
	if (!calls->operators && !calls->kernels)
		strbuf_add_str(out, "No operator and no kernel is in this run. Record with "
				    "--events=alloc,free,launch and with --level=op, or "
				    "--level=kernel for the names of kernels.\n");
	else if (!calls->kernels)
		strbuf_add_str(out, "Kernels have no names in this run; record with "
				    "--level=op,kernel to see them too.\n");
}

void calls_json(const struct findings *found, uint32_t lines, struct json *json)
{
	const struct finding_calls *calls = FINDINGS(found, calls);
	uint32_t shown[2] = {0};
	size_t i;

	if (FINDINGS_COUNT(found, calls) == 0)
		return;
	json_object(json, "launches");
	json_u64(json, "steps", calls->steps);
	json_bool(json, "operators", calls->operators);
	json_bool(json, "kernels", calls->kernels);
	json_u64(json, "names", calls->entries.count);
	json_array(json, "entries");
	for (i = 0; i < calls->entries.count; i++) {
		const struct finding_call *call = &FINDINGS(found, call)[calls->entries.first + i];

		if (shown[call->kernel]++ < lines)
			finding_json(found, FINDING_call, call, NULL, SIZE_MAX, json);
	}
	json_end(json);
	json_end(json);
}
