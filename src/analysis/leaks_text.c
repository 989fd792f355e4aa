/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the analysis of leaks tells a person: one sentence per place, below it the line that other tools read ("Direct ... leak of
 * ..."), and what was not judged. A screen gets one such line per place, a file at most DIRECT_LINES.
 */
#include <errno.h>

#include "analysis/analyses.h"
#include "analysis/leaks_state.h"
#include "analysis/site.h"
#include "base/whole.h"
#include "trace/session.h"

#define MIB	     (1024.0 * 1024.0)
#define DIRECT_LINES 100u
#define SUSPECTS     5u /* on a screen */
#define KEPT	     3u
#define SHORT_STEPS  20u

/* ---- words ---- */

static void add_number(struct strbuf *out, uint64_t number)
{
	if (number >= 1000) {
		add_number(out, number / 1000);
		strbuf_addf(out, ",%03u", (unsigned int)(number % 1000));
	} else {
		strbuf_add_u64(out, number);
	}
}

static void add_count(struct strbuf *out, uint64_t count, const char *noun)
{
	add_number(out, count);
	strbuf_addf(out, " %s%s", noun, count == 1 ? "" : "s");
}

static void add_where(struct strbuf *out, uint8_t pool, uint32_t device)
{
	char text[16];

	device_text(device, text);
	strbuf_addf(out, "%s on %s%s", pool_event_type(pool),
		    device == DEVICE_HOST ? "" : "device ",
		    device == DEVICE_HOST ? "the host" : text);
}

static void add_duration(struct strbuf *out, double seconds)
{
	if (seconds < 120)
		strbuf_addf(out, "%.0f s", seconds);
	else if (seconds < 2 * 3600)
		strbuf_addf(out, "%.0f min", seconds / 60);
	else if (seconds < 72 * 3600)
		strbuf_addf(out, "%.0f h", seconds / 3600);
	else
		strbuf_addf(out, "%.0f days", seconds / 86400);
}

static const char *step_word(const struct leaks_findings *f)
{
	return f->by_time ? "part" : "step";
}

/* "about 1.0 MiB per step (0.9 to 1.1)"; by time per second. */
static void add_rate(struct strbuf *out, const struct leaks_findings *f, const char *sign,
		     double rate, double low, double high)
{
	static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
	double scale = f->by_time && f->step_seconds > 0 ? 1 / f->step_seconds : 1;
	size_t unit = 0;

	while (rate * scale >= 1000 && unit + 1 < MSCOPE_COUNT(units)) {
		scale /= 1024;
		unit++;
	}
	strbuf_addf(out, "%s%s%.1f %s per %s", f->last_step < SHORT_STEPS ? "about " : "", sign,
		    rate * scale, units[unit], f->by_time ? "second" : "step");
	if (high > low)
		strbuf_addf(out, " (%.1f to %.1f)", low * scale, high * scale);
}

static void add_blocks(struct strbuf *out, uint64_t blocks, uint64_t bytes)
{
	add_count(out, blocks, "block");
	strbuf_add_str(out, ", ");
	strbuf_add_size(out, bytes);
}

static const char *pool_name(uint8_t pool)
{
	const char *name = pool_long_name(pool);

	if (name != NULL)
		return name;
	return pool == POOL_hal		    ? "Hal memory"
	       : pool == POOL_pta_workspace ? "Pytorch workspace memory pool"
	       : pool == POOL_host_pinned   ? "Pinned host memory"
					    : "memory";
}

/* ---- sentences ---- */

static void leak_sentence(const struct leaks_findings *f, const struct leaks_place *p,
			  struct strbuf *out)
{
	if (p->by_handles)
		strbuf_add_str(out, "driver memory beside the pools grows: ");
	else if (p->reason == GROWTH_CLIMBS)
		strbuf_add_str(out,
			       p->blocks <= 2 ? "grows by reallocation: " : "its level climbs: ");
	add_rate(out, f, "", p->bytes_per_step, p->bytes_low, p->bytes_high);
	if (p->reason == GROWTH_CLIMBS) {
		strbuf_addf(out, " in %u of %u %ss", p->rises, p->rise_steps, step_word(f));
		strbuf_add_str(out, p->by_handles    ? "."
				    : p->blocks <= 2 ? "; each block replaces a smaller one."
						     : ", although it frees blocks.");
	} else if (p->usual_age < 0 || p->reason == GROWTH_SIZES) {
		strbuf_add_str(out, ", ");
		add_blocks(out, p->overdue_blocks, p->overdue_bytes);
		strbuf_addf(out, " since %s %u.%s", step_word(f), p->first_step,
			    p->freed == 0 ? " Nothing of it was freed." : "");
	} else {
		strbuf_add_str(out, ": ");
		add_count(out, p->overdue_blocks, "block");
		strbuf_add_str(out, " older than ");
		add_count(out, 2 * (uint64_t)p->usual_age + 1, step_word(f));
		strbuf_add_str(out, "; this place frees its blocks within ");
		if (p->usual_age == 0)
			strbuf_addf(out, "their %s", step_word(f));
		else
			add_count(out, (uint64_t)p->usual_age, step_word(f));
		strbuf_add_str(out, " (");
		add_number(out, p->freed_usual);
		strbuf_add_str(out, " of ");
		add_number(out, p->freed + p->overdue_blocks);
		strbuf_add_str(out, " did).");
	}
	if (p->reason == GROWTH_SIZES)
		strbuf_add_str(out, " Its blocks have many sizes: run again with --call-stack=c to "
				    "see where they come from.");
	if (p->reason != GROWTH_CLIMBS && p->reason != GROWTH_SIZES && p->young_blocks > 0) {
		strbuf_add_char(out, ' ');
		add_count(out, p->young_blocks, "younger block");
		strbuf_add_str(out, p->young_blocks == 1 ? " is in use." : " are in use.");
	}
	if (p->full_steps > 0) {
		strbuf_addf(out, " Device %u is full in about ", p->device);
		if (!f->by_time) {
			add_count(out, p->full_steps, "step");
			strbuf_add_str(out, p->full_seconds > 0 ? " (" : "");
		}
		if (p->full_seconds > 0)
			add_duration(out, p->full_seconds);
		strbuf_add_str(out, f->by_time || p->full_seconds <= 0 ? "." : ").");
	}
}

static void suspect_sentence(const struct leaks_findings *f, const struct leaks_place *p,
			     struct strbuf *out)
{
	uint64_t blocks = p->overdue_blocks + p->young_blocks;

	if (p->reason == GROWTH_ONCE) {
		add_blocks(out, p->overdue_blocks, p->overdue_bytes);
		strbuf_addf(out, " stayed; its other ");
		add_count(out, p->freed, "block");
		strbuf_addf(out,
			    " %s freed within their %s. Forgotten, or made once to be kept: that "
			    "cannot be told.",
			    p->freed == 1 ? "was" : "were", step_word(f));
		return;
	}
	strbuf_addf(out, "grew in %u of %u %ss, ", p->rises, p->rise_steps, step_word(f));
	if (p->by_handles)
		strbuf_add_size(out, p->bytes);
	else
		add_blocks(out, blocks,
			   p->list_count > 0 ? p->overdue_bytes + p->young_bytes : p->bytes);
	strbuf_add_str(out, ". ");
	if (p->reason == GROWTH_SIZES)
		strbuf_add_str(
			out,
			"Blocks of many sizes grow together: run again with --call-stack=c to see "
			"which place they come from.");
	else if (f->by_time)
		strbuf_add_str(
			out,
			"No step was marked, so a leak cannot be told from a program that starts: "
			"mark steps.");
	else if (f->last_step < 10)
		strbuf_add_str(
			out,
			"Too short to tell a leak from a cache that fills: run 10 steps or more.");
	else if (p->usual_age >= 0 && p->overdue_blocks == 0)
		strbuf_add_str(out, "All of it may still be in use: run longer to tell.");
	else if (p->quiet > 0)
		strbuf_addf(
			out,
			"It was quiet for the last %u %ss: run longer to tell a leak from a cache "
			"that has filled.",
			p->quiet, step_word(f));
	else
		strbuf_add_str(out, "It may be a cache that fills: run longer to tell.");
}

static void kept_sentence(const struct leaks_findings *f, const struct leaks_place *p,
			  struct strbuf *out)
{
	add_blocks(out, p->blocks, p->bytes);
	switch (p->reason) {
	case GROWTH_OWNED:
		strbuf_add_str(out, ", held as weights or state of an optimizer.");
		break;
	case GROWTH_IN_USE:
		strbuf_add_str(out, ", in use: this place frees its blocks within ");
		add_count(out, (uint64_t)p->usual_age, step_word(f));
		strbuf_add_char(out, '.');
		break;
	case GROWTH_STOPPED:
		if (p->first_step == p->last_step)
			strbuf_addf(out, ", made in %s %u", step_word(f), p->first_step);
		else
			strbuf_addf(out, ", made in %ss %u to %u", step_word(f), p->first_step,
				    p->last_step);
		strbuf_addf(out, "; nothing in the %u %ss since", p->quiet, step_word(f));
		if (p->bound_per_step > 0) {
			strbuf_add_str(out, " (if it grows again, then by less than ");
			strbuf_add_size(out, whole(p->bound_per_step) + 1);
			strbuf_addf(out, " per %s)", step_word(f));
		}
		strbuf_add_char(out, '.');
		break;
	default:
		strbuf_addf(out, ", and does not grow after the first %s.", step_word(f));
	}
}

void leaks_place_sentence(const struct leaks_findings *findings, const struct leaks_place *place,
			  struct strbuf *out)
{
	if (place->verdict == GROWTH_LEAK)
		leak_sentence(findings, place, out);
	else if (place->verdict == GROWTH_SUSPECT)
		suspect_sentence(findings, place, out);
	else
		kept_sentence(findings, place, out);
}

void leaks_pool_sentence(const struct leaks_findings *findings, const struct leaks_pool *pool,
			 struct strbuf *out)
{
	add_where(out, pool->pool, pool->device);
	if (pool->verdict == GROWTH_KEPT) {
		strbuf_add_str(out, ": steady");
	} else {
		strbuf_add_str(out, pool->verdict == GROWTH_LEAK ? ": " : " may be growing: ");
		if (pool->bytes_per_step >= 1) {
			add_rate(out, findings, "+", pool->bytes_per_step, pool->bytes_low,
				 pool->bytes_high);
			strbuf_add_str(out, ", ");
		}
		strbuf_addf(out, "rose in %u of %u %ss", pool->rises, pool->rise_steps,
			    step_word(findings));
	}
	strbuf_add_str(out, "; peak ");
	strbuf_add_size(out, pool->peak_bytes);
	strbuf_add_str(out, ", end ");
	strbuf_add_size(out, pool->end_bytes);
	strbuf_add_char(out, '.');
	if (pool->verdict == GROWTH_LEAK)
		strbuf_addf(out, " Places called leaks explain %.0f %% of it.",
			    100 * pool->explained);
}

void leaks_unjudged_sentence(const struct leaks_unjudged *unjudged, struct strbuf *out)
{
	static const char *const why[LEAKS_UNJUDGED_END] = {
		[LEAKS_NO_STEP] = "no step after the first has ended",
		[LEAKS_OUTSIDE_WINDOW] = "allocated while recording was off",
		[LEAKS_POOL_CACHE] = "a framework's pool took it, and the pool is judged",
		[LEAKS_HANDLES] = "taken by handles, and no pool says how much of it it holds",
		[LEAKS_AFTER_LAST] = "allocated after the last step ended",
	};

	strbuf_add_str(out, "Not judged: ");
	add_blocks(out, unjudged->blocks, unjudged->bytes);
	strbuf_add_str(out, " of ");
	add_where(out, unjudged->pool, unjudged->device);
	strbuf_addf(out, "; %s.", why[unjudged->reason]);
}

/* ---- the text ---- */

void leaks_kernel_text(const struct leaks_place *place, const struct leaks_block *block,
		       struct strbuf *out)
{
	if (!place->on_gpu || block->kernel != 0)
		strbuf_addf(out, " in kernel_%llu", (unsigned long long)block->kernel);
}

/* The line that other tools read. */
static void text_block(const struct leaks_place *place, const struct leaks_block *block,
		       struct strbuf *out)
{
	if (place->verdict == GROWTH_KEPT) {
		strbuf_add_str(out, "  ");
		strbuf_add_size(out, block->size_bytes);
		strbuf_addf(out, " at 0x%llx", (unsigned long long)block->address);
		leaks_kernel_text(place, block, out);
		strbuf_addf(out, " at step %u\n", block->step);
		return;
	}
	strbuf_addf(out, "Direct %s leak of %f Mb(s) at 0x%llx", pool_name(place->pool),
		    (double)block->size_bytes / MIB, (unsigned long long)block->address);
	leaks_kernel_text(place, block, out);
	strbuf_addf(out, " at step %u.\n", block->step);
}

static void text_place(const struct leaks_findings *f, const struct analysis_view *view,
		       const struct leaks_place *place, const char *verdict, struct strbuf *out)
{
	bool whole = view->lines == UINT32_MAX;
	size_t i, lines = whole ? DIRECT_LINES : place->verdict != GROWTH_KEPT;
	size_t all = place->verdict == GROWTH_KEPT ? place->blocks : place->list_count;

	strbuf_addf(out, "%s: ", verdict);
	if (!site_line(view->replay, place->stack, out)) {
		add_where(out, place->pool, place->device);
		if (place->size_max > 0) {
			strbuf_add_str(out, ", blocks of ");
			strbuf_add_size(out, place->size_min);
		}
		if (place->size_max > place->size_min) {
			strbuf_add_str(out, " to ");
			strbuf_add_size(out, place->size_max);
		}
	}
	strbuf_add_str(out, "  ");
	leaks_place_sentence(f, place, out);
	strbuf_add_char(out, '\n');
	for (i = 0; i < place->list_count && i < lines; i++) {
		text_block(place, &place->list[i], out);
		/* The stack stands once. */
		if (i == 0)
			site_text(view->replay, place->stack, view->frames, out);
	}
	if (whole && all > lines)
		strbuf_addf(out, "... %zu more of this place\n", all - lines);
}

static size_t count_late(const struct leaks_place *place)
{
	size_t i, late = 0;

	for (i = 0; i < place->list_count; i++)
		late += place->list[i].freed_late;
	return late;
}

/* All places of a device with one verdict, under the header that other tools look for. */
static void text_device(const struct leaks_findings *f, const struct analysis_view *view,
			uint32_t device, enum growth_verdict verdict, struct strbuf *out)
{
	bool leak = verdict == GROWTH_LEAK;
	size_t i, shown = 0, count = 0, late = 0,
		  lines = view->lines == UINT32_MAX ? SIZE_MAX
			  : leak		    ? view->lines
						    : SUSPECTS;
	uint64_t bytes = 0, blocks = 0, b;
	char text[16];

	device_text(device, text);
	for (i = 0; i < f->place_count; i++) {
		const struct leaks_place *place = &f->places[i];

		if (place->device != device || place->verdict != verdict)
			continue;
		if (count++ == 0)
			strbuf_addf(out, "====== %s memory leaks on device %s ======\n",
				    leak ? "ERROR: Detected" : "WARNING: Suspected", text);
		for (b = 0; b < place->list_count; b++)
			bytes += place->list[b].size_bytes;
		blocks += place->list_count;
		late += count_late(place);
		if (shown >= lines)
			continue;
		text_place(f, view, place, leak ? "leak" : "suspect", out);
		shown++;
	}
	if (count == 0)
		return;
	if (count > shown)
		strbuf_addf(out, "... %zu more %s; report.txt has all of them\n", count - shown,
			    count - shown == 1 ? "place" : "places");
	strbuf_addf(out, "====== SUMMARY: %g Mb(s) %s in %llu allocation(s) ======\n",
		    (double)bytes / MIB, leak ? "leaked" : "may have leaked",
		    (unsigned long long)blocks);
	if (late > 0)
		strbuf_addf(out,
			    "%zu of them %s freed only after the last %s, as a program does that "
			    "ends.\n",
			    late, late == 1 ? "was" : "were", step_word(f));
}

static void text_verdicts(const struct leaks_findings *f, const struct analysis_view *view,
			  enum growth_verdict verdict, struct strbuf *out)
{
	uint32_t device = 0, next;
	bool more = true, any = false;
	size_t i;

	while (more) {
		more = false;
		next = UINT32_MAX;
		for (i = 0; i < f->place_count; i++) {
			uint32_t d = f->places[i].device;

			if (f->places[i].verdict == verdict && (!any || d > device) &&
			    (!more || d < next)) {
				next = d;
				more = true;
			}
		}
		if (more)
			text_device(f, view, next, verdict, out);
		device = next;
		any = true;
	}
}

static void text_kept(const struct leaks_findings *f, const struct analysis_view *view,
		      struct strbuf *out)
{
	size_t i, shown = 0, lines = view->lines == UINT32_MAX ? SIZE_MAX : KEPT;

	for (i = 0; i < f->place_count && shown < lines; i++) {
		if (f->places[i].verdict != GROWTH_KEPT)
			continue;
		text_place(f, view, &f->places[i], "kept", out);
		shown++;
	}
	if (f->kept > shown)
		strbuf_addf(out, "kept: %zu more %s; report.txt has all of them\n", f->kept - shown,
			    f->kept - shown == 1 ? "place" : "places");
}

static bool uses_gpus(const struct replay *replay)
{
	size_t count, i;
	const struct usage *usages = replay_usages(replay, &count);

	for (i = 0; i < count; i++) {
		if (usages[i].vendor == VENDOR_CUDA && usages[i].device < DEVICE_HOST)
			return true;
	}
	return false;
}

static void text_not_judged(const struct replay *replay, struct strbuf *out)
{
	if (replay_state(replay) == RECORDING_SHADOW && replay_totals(replay)->windows == 0 &&
	    replay_ended(replay) != END_STOP) {
		/* A program that only takes snapshots asked for nothing more. */
		if (replay_totals(replay)->events_by_type[EVENT_snapshot] != 0)
			return;
		strbuf_add_str(out, "Leaks are not judged: collection was never started. In "
				    "deferred mode it begins when the program calls start() of "
				    "the Python module msmemscope.\n");
		return;
	}
	if (run_is_snapshot(replay_run(replay)) && replay_steps(replay) == 0) {
		uint64_t rounds = run_rounds(replay_run(replay));

		strbuf_addf(out,
			    "Leaks are not judged: the snapshot has no steps, and its call sites "
			    "repeat %llu time%s; at least %u are needed.\n",
			    (unsigned long long)rounds, rounds == 1 ? "" : "s", RUN_ROUNDS_MIN);
		return;
	}
	strbuf_addf(out,
		    "Leaks are not judged: %s. A range named \"" STEP_MESSAGE
		    "\" (%s) or msmemscope.step() marks a step.\n",
		    replay_steps(replay) == 0 ? "no step was marked"
					      : "no step after the first has ended",
		    uses_gpus(replay) ? "NVTX: torch.cuda.nvtx.range_push, range_pop"
				      : "mstxRangeStartA, mstxRangeEnd");
}

static bool has_stack(const struct leaks_findings *f)
{
	size_t i;

	for (i = 0; i < f->place_count; i++) {
		if (f->places[i].stack != 0)
			return true;
	}
	return false;
}

static void text_pools(const struct leaks_findings *f, struct strbuf *out)
{
	size_t i;

	for (i = 0; i < f->pool_count; i++) {
		leaks_pool_sentence(f, &f->pools[i], out);
		strbuf_add_char(out, '\n');
	}
	for (i = 0; i < f->unjudged_count; i++) {
		leaks_unjudged_sentence(&f->unjudged[i], out);
		strbuf_add_char(out, '\n');
	}
}

int leaks_text(void *state, const struct analysis_view *view, struct strbuf *out)
{
	const struct leaks_findings *f;

	if (replay_totals(view->replay)->allocations == 0)
		return 0;
	f = leaks_judge(state, view->replay);
	if (f == NULL)
		return -ENOMEM;
	if (!f->judged) {
		text_not_judged(view->replay, out);
		return 0;
	}
	if (f->by_time)
		strbuf_addf(out,
			    "No step was marked: growth is judged over %u equal parts of the run, "
			    "%.2f s each.\n",
			    f->last_step, f->step_seconds);
	text_verdicts(f, view, GROWTH_LEAK, out);
	text_verdicts(f, view, GROWTH_SUSPECT, out);
	if (f->leaks + f->suspects > 0 && !has_stack(f))
		strbuf_add_str(out,
			       "(run again with --call-stack=c to see where they come from)\n");
	text_pools(f, out);
	text_kept(f, view, out);
	if (f->clean && f->last_step == LEAKS_FIRST_STEP)
		strbuf_addf(out, "No leak was found in %s %u. The first %s is never judged.\n",
			    step_word(f), f->last_step, step_word(f));
	else if (f->clean)
		strbuf_addf(out,
			    "No leak was found in %ss %u to %u. The first %s is never judged.\n",
			    step_word(f), LEAKS_FIRST_STEP, f->last_step, step_word(f));
	else
		strbuf_addf(out, "Judged: %ss %u to %u. The first %s is never judged.\n",
			    step_word(f), LEAKS_FIRST_STEP, f->last_step, step_word(f));
	return 0;
}

/* ---- JSON ---- */

static const char *const verdicts[] = {
	[GROWTH_KEPT] = "kept", [GROWTH_SUSPECT] = "suspect", [GROWTH_LEAK] = "leak"};

static void json_block(const struct leaks_place *place, const struct leaks_block *block,
		       struct replay *replay, struct json *json)
{
	struct strbuf address = {0};
	char device[16];

	device_text(place->device, device);
	strbuf_add_hex(&address, block->address, 16);
	json_object(json, NULL);
	json_string(json, "device", device);
	json_string(json, "event_type", pool_event_type(place->pool));
	json_string(json, "verdict", verdicts[place->verdict]);
	json_string(json, "address", strbuf_str(&address));
	json_u64(json, "size", block->size_bytes);
	json_u64(json, "step", block->step);
	json_u64(json, "kernel", block->kernel);
	json_u64(json, "allocation_id", block->allocation_id);
	site_json(replay, block->stack, "site", json);
	json_end(json);
	strbuf_fini(&address);
}

static void json_place(const struct leaks_findings *f, const struct leaks_place *place,
		       struct replay *replay, struct json *json)
{
	struct strbuf sentence = {0};
	char device[16];

	device_text(place->device, device);
	leaks_place_sentence(f, place, &sentence);
	json_object(json, NULL);
	json_string(json, "verdict", verdicts[place->verdict]);
	json_string(json, "device", device);
	json_string(json, "event_type", pool_event_type(place->pool));
	json_string(json, "owner",
		    place->owner == 0 ? "" : replay_owner_text(replay, place->owner));
	json_u64(json, "blocks", place->blocks);
	json_u64(json, "bytes", place->bytes);
	json_u64(json, "overdue_blocks", place->overdue_blocks);
	json_u64(json, "overdue_bytes", place->overdue_bytes);
	json_u64(json, "bytes_per_step", whole(place->bytes_per_step));
	json_u64(json, "bytes_per_step_low", whole(place->bytes_low));
	json_u64(json, "bytes_per_step_high", whole(place->bytes_high));
	json_u64(json, "first_step", place->first_step);
	json_u64(json, "last_step", place->last_step);
	json_string(json, "sentence", strbuf_str(&sentence));
	site_json(replay, place->stack, "site", json);
	json_end(json);
	strbuf_fini(&sentence);
}

static void json_pools(const struct leaks_findings *f, struct json *json)
{
	char device[16];
	size_t i;

	json_array(json, "pools");
	for (i = 0; i < f->pool_count; i++) {
		device_text(f->pools[i].device, device);
		json_object(json, NULL);
		json_string(json, "device", device);
		json_string(json, "event_type", pool_event_type(f->pools[i].pool));
		json_string(json, "trend",
			    f->pools[i].verdict == GROWTH_LEAK	    ? "grows"
			    : f->pools[i].verdict == GROWTH_SUSPECT ? "may be growing"
								    : "steady");
		json_u64(json, "bytes_per_step", whole(f->pools[i].bytes_per_step));
		json_u64(json, "rises", f->pools[i].rises);
		json_u64(json, "steps", f->pools[i].rise_steps);
		json_u64(json, "peak_bytes", f->pools[i].peak_bytes);
		json_u64(json, "end_bytes", f->pools[i].end_bytes);
		json_end(json);
	}
	json_end(json);
}

int leaks_json(void *state, const struct analysis_view *view, struct json *json)
{
	const struct leaks_findings *f = leaks_judge(state, view->replay);
	size_t i, k;

	if (f == NULL)
		return -ENOMEM;
	json_object(json, "leaks");
	json_bool(json, "judged", f->judged);
	json_bool(json, "by_time", f->by_time);
	json_bool(json, "clean", f->clean);
	json_u64(json, "last_step", f->last_step);
	json_array(json, "blocks");
	for (i = 0; i < f->place_count; i++) {
		for (k = 0; k < f->places[i].list_count && f->places[i].verdict != GROWTH_KEPT; k++)
			json_block(&f->places[i], &f->places[i].list[k], view->replay, json);
	}
	json_end(json);
	json_array(json, "places");
	for (i = 0; i < f->place_count; i++)
		json_place(f, &f->places[i], view->replay, json);
	json_end(json);
	json_pools(f, json);
	json_array(json, "not_judged");
	for (i = 0; i < f->unjudged_count; i++) {
		struct strbuf sentence = {0};

		leaks_unjudged_sentence(&f->unjudged[i], &sentence);
		json_string(json, NULL, strbuf_str(&sentence));
		strbuf_fini(&sentence);
	}
	json_end(json);
	json_end(json);
	return 0;
}
