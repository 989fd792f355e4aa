/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What inefficient memory costs: by pool, the call sites that would lower its peak first. Those that would not are counted in a line, and
 * listed where everything is asked for.
 */
#include "findings/findings.h"
#include "findings/site.h"

static void pool_name(const struct finding_waste *waste, struct strbuf *out)
{
	char device[16];

	device_text(waste->device, device);
	strbuf_addf(out, "%s on %s%s", pool_event_type(waste->event_type),
		    waste->device == DEVICE_HOST || waste->device == DEVICE_UNKNOWN ? ""
										    : "device ",
		    device);
}

static void steps_words(uint64_t first, uint64_t last, struct strbuf *out)
{
	if (last == 0)
		strbuf_add_str(out, "the time before step 1");
	else if (first >= last)
		strbuf_addf(out, "step %llu", (unsigned long long)last);
	else
		strbuf_addf(out, "steps %llu to %llu", (unsigned long long)(first == 0 ? 1 : first),
			    (unsigned long long)last);
}

/* "3 blocks allocated too early: allocate at the first use"; of several kinds without what to do. */
static void advice(const struct finding_waste_site *site, struct strbuf *out)
{
	const struct {
		uint64_t blocks;
		const char *what, *todo;
	} kinds[] = {
		{site->early_blocks, "allocated too early", "allocate at the first use"},
		{site->late_blocks, "freed too late", "free after the last use"},
		{site->idle_blocks, "idle for long between two uses", "free or offload meanwhile"},
	};
	size_t k, named = 0, last = 0;

	for (k = 0; k < MSCOPE_COUNT(kinds); k++) {
		if (kinds[k].blocks == 0)
			continue;
		if (named++ > 0)
			strbuf_addf(out, ", %llu", (unsigned long long)kinds[k].blocks);
		else
			strbuf_add_count(out, kinds[k].blocks, "block", "blocks");
		strbuf_addf(out, " %s", kinds[k].what);
		last = k;
	}
	if (named == 1)
		strbuf_addf(out, ": %s", kinds[last].todo);
}

/* With `frames` there is room for more. */
static void site_lines(struct replay *replay, const struct finding_waste_site *site,
		       uint32_t frames, struct strbuf *out)
{
	strbuf_add_str(out, "  ");
	if (site->saved_bytes > 0) {
		strbuf_add_str(out, site->several ? "at least " : "");
		strbuf_add_size(out, site->saved_bytes);
		strbuf_add_str(out, " less: ");
	} else {
		strbuf_add_str(out, "no less: ");
	}
	strbuf_add_str(out, site->text);
	strbuf_add_str(out, "\n    ");
	advice(site, out);
	strbuf_add_char(out, '\n');
	if (frames == 0)
		return;
	strbuf_add_str(out, "    ");
	strbuf_add_size(out, site->bytes);
	strbuf_add_str(out, " in ");
	strbuf_add_count(out, site->blocks, "block", "blocks");
	strbuf_addf(out, ", first is allocation_id %llu",
		    (unsigned long long)site->first_allocation_id);
	if (site->step_saved_bytes > 0) {
		strbuf_add_str(out, "; peak of ");
		steps_words(site->step, site->last_step, out);
		strbuf_add_str(out, " ");
		strbuf_add_size(out, site->step_saved_bytes);
		strbuf_add_str(out, " less");
	}
	strbuf_add_char(out, '\n');
	site_text(replay, site->stack, frames, out);
}

static void head_line(const struct finding_waste *waste, struct strbuf *out)
{
	strbuf_add_str(out, "Inefficient memory: ");
	pool_name(waste, out);
	strbuf_add_str(out, " peaks at ");
	strbuf_add_size(out, waste->peak_bytes);
	if (waste->saved_bytes == 0) {
		strbuf_add_str(out, ", and would if all of it were mended\n");
		return;
	}
	strbuf_add_str(out, "; with all of it mended at ");
	strbuf_add_size(out, waste->peak_bytes - waste->saved_bytes);
	strbuf_addf(out, ", %.0f %% less\n",
		    100.0 * (double)waste->saved_bytes / (double)waste->peak_bytes);
}

/* What each step would gain if all were mended. */
static void steps_lines(const struct findings *found, const struct finding_waste *waste,
			struct strbuf *out)
{
	size_t i;

	for (i = 0; i < waste->steps.count; i++) {
		const struct finding_waste_steps *steps =
			&FINDINGS(found, waste_steps)[waste->steps.first + i];

		if (steps->saved_bytes == 0)
			continue;
		strbuf_add_str(out, "  peak of ");
		steps_words(steps->first, steps->last, out);
		strbuf_add_str(out, ": ");
		strbuf_add_size(out, steps->peak_bytes);
		strbuf_add_str(out, ", all mended ");
		strbuf_add_size(out, steps->peak_bytes - steps->saved_bytes);
		strbuf_add_char(out, '\n');
	}
}

static void pool_lines(const struct findings *found, struct replay *replay,
		       const struct finding_waste *waste, uint32_t lines, uint32_t frames,
		       struct strbuf *out)
{
	const struct finding_waste_site *sites = FINDINGS(found, waste_site) + waste->places.first;
	bool all = lines == UINT32_MAX;
	uint32_t most = all ? lines : lines / 2;
	size_t count = waste->places.count, useful = 0, idle = 0, i, shown;

	while (useful < count && sites[useful].saved_bytes > 0)
		useful++;
	for (i = useful; i < count; i++)
		idle += sites[i].rest ? sites[i].call_sites : 1;
	shown = all ? count : useful;
	head_line(waste, out);
	if (all)
		steps_lines(found, waste, out);
	for (i = 0; i < shown && i < most; i++)
		site_lines(replay, &sites[i], all ? frames : 0, out);
	if (shown > i)
		strbuf_addf(out, "  ... %zu more %s; report.txt has all of them\n", shown - i,
			    shown - i == 1 ? "call site" : "call sites");
	if (!all && idle > 0) {
		strbuf_add_str(out, "  ");
		strbuf_add_count(out, idle, "call site", "call sites");
		strbuf_addf(out, " would not lower the peak alone: report.txt has %s\n",
			    idle == 1 ? "it" : "them");
	}
}

void wastes_text(const struct findings *found, struct replay *replay, uint32_t lines,
		 uint32_t frames, struct strbuf *out)
{
	size_t i;

	if (!found->unused_asked)
		return;
	if (!found->unused_seen) {
		strbuf_add_str(out, "Inefficient memory: cannot be judged, no operator told which "
				    "memory it uses.\n");
		return;
	}
	for (i = 0; i < FINDINGS_COUNT(found, waste); i++)
		pool_lines(found, replay, &FINDINGS(found, waste)[i], lines, frames, out);
	if (FINDINGS_COUNT(found, waste) == 0)
		strbuf_add_str(out, "Inefficient memory: none found.\n");
}
