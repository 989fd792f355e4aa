/* SPDX-License-Identifier: Apache-2.0 */
/* What the analysis of leaks found: findings of each call site and pool, and JSON of every block. */
#include <errno.h>

#include "analysis/leaks_judge.h"
#include "analysis/analyses.h"
#include "analysis/leaks_state.h"
#include "findings/say.h"
#include "base/whole.h"
#include "findings/site.h"
#include "trace/session.h"

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
	to->listed_blocks = from->listed_blocks;
	to->listed_bytes = from->listed_bytes;
	to->late_blocks = from->late_blocks;
	/* What the driver gave by handles has no list. */
	if (from->listed_blocks == 0)
		to->listed_bytes = from->bytes;
	if (from->verdict == GROWTH_LEAK) {
		to->leaked_blocks = to->listed_blocks;
		to->leaked_bytes = to->listed_bytes;
	}
}

/* An answer with a name, else the later one: several stacks may mean one call site. */
static bool is_better(const struct keeper *k, const struct keeper *than)
{
	bool named = k->texts[KEEPER_PATH][0] != '\0';

	if (named != (than->texts[KEEPER_PATH][0] != '\0'))
		return named;
	return k->tenths != than->tenths ? k->tenths > than->tenths : k->held > than->held;
}

const struct keeper *leaks_keeper(struct replay *replay, const struct leaks_place *place)
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
		if (best == NULL || is_better(k, best))
			best = k;
	}
	return best;
}

static void add_keeper(struct findings *out, struct finding_place *to, struct replay *replay,
		       const struct leaks_place *from)
{
	const struct keeper *k = from->verdict == GROWTH_KEPT ? NULL : leaks_keeper(replay, from);
	size_t first = FINDINGS_COUNT(out, keeper);
	struct finding_keeper *added = k == NULL ? NULL : FINDINGS_ADD(out, keeper);
	double seconds = (double)(replay_end_ns(replay) - replay_totals(replay)->first_ns) / 1e9;

	if (added == NULL)
		return;
	*added = (struct finding_keeper){
		.kind = findings_text(out, k->texts[KEEPER_KIND]),
		.type = findings_text(out, k->texts[KEEPER_WHAT]),
		.name = findings_text(out, k->texts[KEEPER_NAME]),
		.root = findings_text(out, k->texts[KEEPER_ROOT]),
		.items = k->items,
		.most = k->most,
		.newest_step = k->newest_step,
		.step = k->step,
		.seconds = k->tenths / 10.0,
		.earlier = seconds > k->tenths / 10.0 + 1,
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
		.call_sites = from->call_sites == 0 ? 1 : from->call_sites,
		.rest = from->call_sites != 0,
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
		.bytes_per_step_low = from->bytes_per_step_low,
		.bytes_per_step_high = from->bytes_per_step_high,
		.blocks_per_step = from->blocks_per_step,
		.bound_per_step = from->bound_per_step,
		.first_step = from->first_step,
		.last_step = from->last_step,
		.rises = from->rises,
		.rise_steps = from->rise_steps,
		.quiet = from->quiet,
		.pause = from->pause,
		.every = from->every,
		.more_steps = from->missing.steps,
		.by_quiet = from->missing.by_quiet,
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
						     .first_rise = pool->first_rise,
						     .last_rise = pool->last_rise,
						     .grown_bytes = pool->grown_bytes,
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

/* Why nothing was judged. */
static void add_not_judged(const struct replay *replay, struct strbuf *out)
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
	/* Those of an optimizer go on by themselves. */
	if (replay_steps(replay) != 0 && replay_steps_are_automatic(replay)) {
		strbuf_add_str(out,
			       "Leaks are not judged: no step after the first has ended. Run 10 "
			       "steps or more.\n");
		return;
	}
	strbuf_addf(out,
		    "Leaks are not judged: %s. msmemscope.step() or a range named \"" STEP_MESSAGE
		    "\" (%s) marks a step.\n",
		    replay_steps(replay) == 0
			    ? "no step was marked, and what was recorded is too short to be judged "
			      "by time"
			    : "no step after the first has ended",
		    uses_gpus(replay) ? "NVTX: torch.cuda.nvtx.range_push, range_pop"
				      : "mstxRangeStartA, mstxRangeEnd");
}

int leaks_report(const void *state, struct replay *replay, struct findings *out)
{
	struct leaks_findings *f = leaks_judge(state, replay,
					       (const size_t[]){[GROWTH_KEPT] = LEAKS_PLACES,
								[GROWTH_SUSPECT] = LEAKS_PLACES,
								[GROWTH_LEAK] = LEAKS_PLACES});
	struct strbuf why = {0};
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
	if (!f->judged) {
		add_not_judged(replay, &why);
		out->judgement.not_judged = findings_text(out, strbuf_str(&why));
		strbuf_fini(&why);
	}
	add_forecasts(out, replay, f);
	leaks_findings_free(f);
	return 0;
}

/* ---- as an analysis ---- */

int leaks_say(void *state, const struct analysis_view *view, struct strbuf *out)
{
	(void)state;
	if (!replay_has_allocated(view->replay))
		return 0;
	if (!view->found->judgement.asked)
		return -ENOMEM;
	leaks_text(view->found, view->replay, view->lines, view->frames, out);
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
	FINDINGS_EACH (f, trend, trend) {
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
	struct leaks_findings *f = leaks_judge(leaks, replay,
					       (const size_t[]){[GROWTH_KEPT] = 0,
								[GROWTH_SUSPECT] = SIZE_MAX / 2,
								[GROWTH_LEAK] = SIZE_MAX / 2});
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
