/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the analysis of leaks found: findings of each call site and pool, and the text about them. Below each sentence are the lines that
 * other tools read ("Direct ... leak of ..."): one for a screen, at most DIRECT_LINES in a file.
 */
#include <errno.h>

#include "analysis/analyses.h"
#include "analysis/leaks_state.h"
#include "base/whole.h"
#include "findings/site.h"
#include "trace/session.h"

#define MIB	     (1024.0 * 1024.0)
#define DIRECT_LINES 100u
#define SUSPECTS     5u /* on a screen */
#define KEPT	     3u

/* Once a document has this many blocks, each further call site has few of them. */
#define EXAMPLES_ALL 200000u

/* ---- findings ---- */

static void add_blocks(struct findings *out, struct finding_place *to,
		       const struct leaks_place *from)
{
	size_t first = FINDINGS_COUNT(out, block), i;
	size_t most = first < EXAMPLES_ALL ? DIRECT_LINES : LEAKS_EXAMPLES;

	for (i = 0; i < from->list_count && i < most; i++) {
		const struct leaks_block *block = &from->list[i];
		struct finding_block *added = FINDINGS_ADD(out, block);

		if (added == NULL)
			break;
		*added = (struct finding_block){.address = block->address,
						.size = block->size_bytes,
						.step = block->step,
						.kernel = block->kernel,
						.allocation_id = block->allocation_id};
	}
	to->examples = (struct finding_range){first, i};
	if (from->verdict == GROWTH_KEPT)
		return;
	to->listed_blocks = from->list_count;
	for (i = 0; i < from->list_count; i++) {
		to->listed_bytes += from->list[i].size_bytes;
		to->late_blocks += from->list[i].freed_late;
	}
	/* What the driver gave by handles has no list. */
	if (from->list_count == 0)
		to->listed_bytes = from->bytes;
	if (from->verdict == GROWTH_LEAK) {
		to->leaked_blocks = to->listed_blocks;
		to->leaked_bytes = to->listed_bytes;
	}
}

/* The latest answer of the process about a call site. */
static const struct keeper *keeper_of(struct replay *replay, const struct leaks_place *place)
{
	size_t count, i;
	const struct keeper *all = replay_keepers(replay, &count), *best = NULL;

	for (i = 0; i < count; i++) {
		const struct keeper *k = &all[i];

		if (k->pool != place->pool || k->device != place->device ||
		    (k->stack == 0) != (place->stack == 0) ||
		    (k->stack == 0
			     ? k->size_bytes < place->size_min || k->size_bytes > place->size_max
			     : site_of(replay, k->stack) != site_of(replay, place->stack)))
			continue;
		if (best == NULL || k->step > best->step)
			best = k;
	}
	return best;
}

static void add_keeper(struct findings *out, struct finding_place *to, struct replay *replay,
		       const struct leaks_place *from)
{
	const struct keeper *k = from->verdict == GROWTH_KEPT ? NULL : keeper_of(replay, from);
	size_t first = FINDINGS_COUNT(out, keeper);
	struct finding_keeper *added = k == NULL ? NULL : FINDINGS_ADD(out, keeper);

	if (added == NULL)
		return;
	*added = (struct finding_keeper){
		.kind = findings_text(out, k->texts[KEEPER_KIND]),
		.type = findings_text(out, k->texts[KEEPER_WHAT]),
		.name = findings_text(out, k->texts[KEEPER_NAME]),
		.root = findings_text(out, k->texts[KEEPER_ROOT]),
		.items = k->items,
		.newest_step = k->newest_step,
		.step = k->step,
		.holds = findings_text(out, k->texts[KEEPER_HOLDS]),
		.held = k->held,
		.looked = k->looked,
		.path = findings_text(out, k->texts[KEEPER_PATH]),
		.cure = findings_text(out, k->texts[KEEPER_CURE]),
	};
	to->keepers = (struct finding_range){first, 1};
}

static void add_place(struct findings *out, struct replay *replay, const struct leaks_place *from)
{
	const char *owner = from->owner == 0 ? "" : replay_owner_text(replay, from->owner);
	const struct driver_usage *driver = replay_driver_usage(replay, from->device);
	struct finding_place *to = FINDINGS_ADD(out, place);
	struct finding_place place = {
		.verdict = from->verdict,
		.reason = from->reason,
		.device = from->device,
		.pool = from->pool,
		.owner = findings_text(out, owner),
		.call_sites = 1,
		.blocks = from->blocks,
		.bytes = from->bytes,
		.overdue_blocks = from->overdue_blocks,
		.overdue_bytes = from->overdue_bytes,
		.young_blocks = from->young_blocks,
		.young_bytes = from->young_bytes,
		.usual_age = from->usual_age,
		.freed = from->freed,
		.freed_usual = from->freed_usual,
		.bytes_per_step = from->bytes_per_step,
		.bytes_per_step_low = from->bytes_low,
		.bytes_per_step_high = from->bytes_high,
		.blocks_per_step = from->blocks_per_step,
		.bound_per_step = from->bound_per_step,
		.first_step = from->first_step,
		.last_step = from->last_step,
		.rises = from->rises,
		.rise_steps = from->rise_steps,
		.quiet = from->quiet,
		.share = from->share,
		.capacity_bytes = driver == NULL ? 0 : driver->total_bytes,
		.steps_until_full = from->full_steps,
		.seconds_until_full = from->full_seconds,
		.size_min = from->size_min,
		.size_max = from->size_max,
		.beside_pool = from->beside_pool,
		.by_handles = from->by_handles,
		.on_gpu = from->on_gpu,
		.stack = from->stack,
	};

	if (to == NULL)
		return;
	*to = place;
	add_blocks(out, to, from);
	add_keeper(out, to, replay, from);
}

static void add_pools(struct findings *out, const struct leaks_findings *f)
{
	size_t i;

	for (i = 0; i < f->pool_count; i++) {
		const struct leaks_pool *pool = &f->pools[i];
		struct finding_trend *to = FINDINGS_ADD(out, trend);

		if (to != NULL)
			*to = (struct finding_trend){.device = pool->device,
						     .pool = pool->pool,
						     .trend = pool->verdict,
						     .bytes_per_step = pool->bytes_per_step,
						     .bytes_per_step_low = pool->bytes_low,
						     .bytes_per_step_high = pool->bytes_high,
						     .rises = pool->rises,
						     .steps = pool->rise_steps,
						     .peak_bytes = pool->peak_bytes,
						     .end_bytes = pool->end_bytes,
						     .explained = pool->explained};
	}
	for (i = 0; i < f->unjudged_count; i++) {
		const struct leaks_unjudged *unjudged = &f->unjudged[i];
		struct finding_unjudged *to = FINDINGS_ADD(out, unjudged);

		if (to != NULL)
			*to = (struct finding_unjudged){.reason = unjudged->reason,
							.device = unjudged->device,
							.pool = unjudged->pool,
							.blocks = unjudged->blocks,
							.bytes = unjudged->bytes};
	}
}

static void add_forecasts(struct findings *out, const struct replay *replay,
			  const struct leaks_findings *f)
{
	size_t i;

	for (i = 0; i < f->forecast_count && !f->by_time; i++) {
		struct finding_forecast *to = FINDINGS_ADD(out, forecast);

		if (to != NULL)
			*to = forecast_finding(&f->forecasts[i], replay, f->last_step,
					       f->step_seconds);
	}
}

int leaks_report(const void *state, struct replay *replay, struct findings *out)
{
	struct leaks_findings *f = leaks_judge(state, replay);
	size_t i;

	if (f == NULL)
		return -ENOMEM;
	out->judgement = (struct findings_judgement){.asked = true,
						     .judged = f->judged,
						     .by_time = f->by_time,
						     .clean = f->clean,
						     .step_seconds = f->step_seconds,
						     .first_step = LEAKS_FIRST_STEP,
						     .last_step = f->last_step,
						     .leaks = f->leaks,
						     .suspects = f->suspects,
						     .kept = f->kept};
	for (i = 0; i < f->place_count; i++) {
		add_place(out, replay, &f->places[i]);
		out->judgement.has_stacks =
			out->judgement.has_stacks ||
			(f->places[i].stack != 0 && f->places[i].verdict != GROWTH_KEPT);
	}
	add_pools(out, f);
	add_forecasts(out, replay, f);
	leaks_findings_free(f);
	return 0;
}

/* ---- the text ---- */

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

void leaks_direct_line(const struct findings *found, const struct finding_place *place,
		       const struct finding_block *block, struct strbuf *out)
{
	strbuf_addf(out, "Direct %s leak of %f Mb(s) at 0x%llx", pool_name(place->pool),
		    (double)block->size / MIB, (unsigned long long)block->address);
	kernel_words(place, block->kernel, out);
	/* A run without steps has none to name. */
	if (!found->judgement.by_time)
		strbuf_addf(out, " at step %llu", (unsigned long long)block->step);
	strbuf_add_char(out, '.');
}

static void text_block(const struct findings *found, const struct finding_place *place,
		       const struct finding_block *block, struct strbuf *out)
{
	if (place->verdict != GROWTH_KEPT) {
		leaks_direct_line(found, place, block, out);
		strbuf_add_char(out, '\n');
		return;
	}
	strbuf_add_str(out, "  ");
	strbuf_add_size(out, block->size);
	strbuf_addf(out, " at 0x%llx", (unsigned long long)block->address);
	kernel_words(place, block->kernel, out);
	if (!found->judgement.by_time)
		strbuf_addf(out, " at step %llu", (unsigned long long)block->step);
	strbuf_add_char(out, '\n');
}

static void text_place(const struct analysis_view *view, const struct finding_place *place,
		       struct strbuf *out)
{
	const struct findings *f = view->found;
	bool whole = view->lines == UINT32_MAX;
	size_t i, lines = whole ? DIRECT_LINES : place->verdict != GROWTH_KEPT;
	uint64_t all = place->verdict == GROWTH_KEPT ? place->blocks : place->listed_blocks;

	strbuf_addf(out, "%s: ", verdict_word(place->verdict));
	place_line(f, place, out);
	strbuf_add_char(out, '\n');
	keeper_lines(f, place, "  ", out);
	for (i = 0; i < place->examples.count && i < lines; i++) {
		text_block(f, place, &FINDINGS(f, block)[place->examples.first + i], out);
		/* The stack is shown once. */
		if (i == 0)
			site_text(view->replay, place->stack, view->frames, out);
	}
	if (whole && all > i)
		strbuf_addf(out, "... %llu more of this place\n", (unsigned long long)(all - i));
}

/* All call sites of a device with one verdict, under the header that other tools look for. */
static void text_device(const struct analysis_view *view, uint32_t device,
			enum growth_verdict verdict, struct strbuf *out)
{
	const struct findings *f = view->found;
	bool leak = verdict == GROWTH_LEAK;
	size_t i, shown = 0, count = 0,
		  lines = view->lines == UINT32_MAX ? SIZE_MAX
			  : leak		    ? view->lines
						    : SUSPECTS;
	uint64_t bytes = 0, blocks = 0, late = 0;
	char text[16];

	device_text(device, text);
	for (i = 0; i < FINDINGS_COUNT(f, place); i++) {
		const struct finding_place *place = &FINDINGS(f, place)[i];

		if (place->device != device || place->verdict != verdict)
			continue;
		if (count++ == 0)
			strbuf_addf(out, "====== %s memory leaks on device %s ======\n",
				    leak ? "ERROR: Detected" : "WARNING: Suspected", text);
		bytes += place->listed_bytes;
		blocks += place->listed_blocks;
		late += place->late_blocks;
		if (shown >= lines)
			continue;
		text_place(view, place, out);
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
			    "%llu of them %s freed only after the last %s, as a program does that "
			    "ends.\n",
			    (unsigned long long)late, late == 1 ? "was" : "were", step_word(f));
}

static void text_verdicts(const struct analysis_view *view, enum growth_verdict verdict,
			  struct strbuf *out)
{
	const struct findings *f = view->found;
	uint32_t device = 0, next;
	bool more = true, any = false;
	size_t i;

	while (more) {
		more = false;
		next = UINT32_MAX;
		for (i = 0; i < FINDINGS_COUNT(f, place); i++) {
			uint32_t d = FINDINGS(f, place)[i].device;

			if (FINDINGS(f, place)[i].verdict == verdict && (!any || d > device) &&
			    (!more || d < next)) {
				next = d;
				more = true;
			}
		}
		if (more)
			text_device(view, next, verdict, out);
		device = next;
		any = true;
	}
}

static void text_kept(const struct analysis_view *view, struct strbuf *out)
{
	const struct findings *f = view->found;
	size_t i, shown = 0, kept = 0, lines = view->lines == UINT32_MAX ? SIZE_MAX : KEPT;

	for (i = 0; i < FINDINGS_COUNT(f, place); i++) {
		if (FINDINGS(f, place)[i].verdict != GROWTH_KEPT)
			continue;
		if (kept++ < lines) {
			text_place(view, &FINDINGS(f, place)[i], out);
			shown++;
		}
	}
	if (kept > shown)
		strbuf_addf(out, "kept: %zu more %s; report.txt has all of them\n", kept - shown,
			    kept - shown == 1 ? "place" : "places");
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

static void text_pools(const struct findings *f, struct strbuf *out)
{
	size_t i;

	for (i = 0; i < FINDINGS_COUNT(f, trend); i++) {
		trend_sentence(f, &FINDINGS(f, trend)[i], out);
		strbuf_add_char(out, '\n');
	}
	for (i = 0; i < FINDINGS_COUNT(f, unjudged); i++) {
		unjudged_sentence(f, &FINDINGS(f, unjudged)[i], out);
		strbuf_add_char(out, '\n');
	}
}

int leaks_text(void *state, const struct analysis_view *view, struct strbuf *out)
{
	const struct findings *f = view->found;
	const struct findings_judgement *judgement = &f->judgement;

	(void)state;
	if (replay_totals(view->replay)->allocations == 0)
		return 0;
	if (!judgement->asked)
		return -ENOMEM;
	if (!judgement->judged) {
		text_not_judged(view->replay, out);
		return 0;
	}
	if (judgement->by_time)
		strbuf_addf(out,
			    "No step was marked: growth is judged over %u equal parts of the run, "
			    "%.2f s each.\n",
			    judgement->last_step, judgement->step_seconds);
	text_verdicts(view, GROWTH_LEAK, out);
	text_verdicts(view, GROWTH_SUSPECT, out);
	if (judgement->leaks + judgement->suspects > 0 && !judgement->has_stacks)
		strbuf_add_str(out,
			       "(run again with --call-stack=c to see where they come from)\n");
	text_pools(f, out);
	text_kept(view, out);
	strbuf_add_str(out, judgement->clean ? "No leak was found in " : "Judged: ");
	if (judgement->last_step == judgement->first_step && judgement->clean)
		strbuf_addf(out, "%s %u", step_word(f), judgement->last_step);
	else
		strbuf_addf(out, "%ss %u to %u", step_word(f), judgement->first_step,
			    judgement->last_step);
	strbuf_addf(out, ". The first %s is never judged.\n", step_word(f));
	return 0;
}

/* ---- JSON: every block ---- */

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
	json_string(json, "verdict", verdict_word(place->verdict));
	json_string(json, "address", strbuf_str(&address));
	json_u64(json, "size", block->size_bytes);
	json_u64(json, "step", block->step);
	json_u64(json, "kernel", block->kernel);
	json_u64(json, "allocation_id", block->allocation_id);
	site_json(replay, block->stack, "site", json);
	json_end(json);
	strbuf_fini(&address);
}

static void json_place(const struct findings *f, const struct finding_place *place,
		       struct replay *replay, struct json *json)
{
	struct strbuf sentence = {0};
	char device[16];

	device_text(place->device, device);
	place_sentence(f, place, &sentence);
	json_object(json, NULL);
	json_string(json, "verdict", verdict_word(place->verdict));
	json_string(json, "device", device);
	json_string(json, "event_type", pool_event_type(place->pool));
	json_string(json, "name", place->name);
	json_string(json, "owner", place->owner);
	json_u64(json, "blocks", place->blocks);
	json_u64(json, "bytes", place->bytes);
	json_u64(json, "overdue_blocks", place->overdue_blocks);
	json_u64(json, "overdue_bytes", place->overdue_bytes);
	json_u64(json, "bytes_per_step", whole(place->bytes_per_step));
	json_u64(json, "bytes_per_step_low", whole(place->bytes_per_step_low));
	json_u64(json, "bytes_per_step_high", whole(place->bytes_per_step_high));
	json_u64(json, "first_step", place->first_step);
	json_u64(json, "last_step", place->last_step);
	json_string(json, "sentence", strbuf_str(&sentence));
	if (place->keepers.count > 0)
		finding_json(f, FINDING_keeper, &FINDINGS(f, keeper)[place->keepers.first],
			     "keeper", 1, json);
	site_json(replay, place->stack, "site", json);
	json_end(json);
	strbuf_fini(&sentence);
}

static void json_pools(const struct findings *f, struct json *json)
{
	char device[16];
	size_t i;

	json_array(json, "pools");
	for (i = 0; i < FINDINGS_COUNT(f, trend); i++) {
		const struct finding_trend *trend = &FINDINGS(f, trend)[i];

		device_text(trend->device, device);
		json_object(json, NULL);
		json_string(json, "device", device);
		json_string(json, "event_type", pool_event_type(trend->pool));
		json_string(json, "trend", trend_word(trend->trend));
		json_u64(json, "bytes_per_step", whole(trend->bytes_per_step));
		json_u64(json, "rises", trend->rises);
		json_u64(json, "steps", trend->steps);
		json_u64(json, "peak_bytes", trend->peak_bytes);
		json_u64(json, "end_bytes", trend->end_bytes);
		json_end(json);
	}
	json_end(json);
	json_array(json, "not_judged");
	for (i = 0; i < FINDINGS_COUNT(f, unjudged); i++) {
		struct strbuf sentence = {0};

		unjudged_sentence(f, &FINDINGS(f, unjudged)[i], &sentence);
		json_string(json, NULL, strbuf_str(&sentence));
		strbuf_fini(&sentence);
	}
	json_end(json);
}

static int json_blocks(const struct leaks *leaks, struct replay *replay, struct json *json)
{
	struct leaks_findings *f = leaks_judge(leaks, replay);
	size_t i, k;

	if (f == NULL)
		return -ENOMEM;
	json_array(json, "blocks");
	for (i = 0; i < f->place_count; i++) {
		for (k = 0; k < f->places[i].list_count && f->places[i].verdict != GROWTH_KEPT; k++)
			json_block(&f->places[i], &f->places[i].list[k], replay, json);
	}
	json_end(json);
	leaks_findings_free(f);
	return 0;
}

int leaks_json(void *state, const struct analysis_view *view, struct json *json)
{
	const struct findings *f = view->found;
	size_t i;
	int r;

	json_object(json, "leaks");
	json_bool(json, "judged", f->judgement.judged);
	json_bool(json, "by_time", f->judgement.by_time);
	json_bool(json, "clean", f->judgement.clean);
	json_u64(json, "last_step", f->judgement.last_step);
	r = json_blocks(state, view->replay, json);
	json_array(json, "places");
	for (i = 0; i < FINDINGS_COUNT(f, place); i++)
		json_place(f, &FINDINGS(f, place)[i], view->replay, json);
	json_end(json);
	json_pools(f, json);
	json_end(json);
	return r;
}
