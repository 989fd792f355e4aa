/* SPDX-License-Identifier: Apache-2.0 */
#include "viewer/gauge.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/map.h"
#include "findings/findings.h"
#include "findings/site.h"
#include "sink/digest.h"
#include "symbols/elf_cache.h"
#include "trace/settings.h"

#define JUDGE_EVERY_NS UINT64_C(1000000000)
#define JUDGE_SHARE    4u /* the child may work a fifth of the time */

/* ---- steps ---- */

static int pools_reserve(struct gauge *gauge, size_t count)
{
	if (ARRAY_RESERVE(gauge->pools, gauge->pool_room, count) < 0)
		return -ENOMEM;
	while (gauge->pool_count < count)
		gauge->pools[gauge->pool_count++] = (struct gauge_pool){0};
	return 0;
}

static int take_levels(struct gauge *gauge, struct replay *replay)
{
	const struct usage *usages;
	size_t count, i;

	usages = replay_usages(replay, &count);
	if (pools_reserve(gauge, count) < 0)
		return -ENOMEM;
	for (i = 0; i < count; i++) {
		struct gauge_pool *pool = &gauge->pools[i];

		if (pool->level_count == GAUGE_LEVELS)
			memmove(pool->levels, pool->levels + 1,
				--pool->level_count * sizeof(pool->levels[0]));
		pool->levels[pool->level_count++] = gauge_used(&usages[i]);
	}
	return 0;
}

/* The begin of a step is a moment at which pools are compared. The first has everything that is made once. */
static int on_event(void *arg, struct replay *replay, const struct trace_event *event)
{
	struct gauge *gauge = arg;
	uint32_t open = replay_open_step(replay, 0), begun = replay_steps(replay);
	uint32_t step = open > begun ? open : begun;
	size_t i;

	(void)event;
	if (step == gauge->step)
		return 0;
	/* The program marked a step after others were counted: those have never been. */
	if (step < gauge->step) {
		for (i = 0; i < gauge->pool_count; i++)
			gauge->pools[i].level_count = 0;
	}
	gauge->step = step;
	return step < 2 ? 0 : take_levels(gauge, replay);
}

uint64_t gauge_used(const struct usage *usage)
{
	int64_t used = (int64_t)usage->live_bytes + usage->outside_bytes;

	return used > 0 ? (uint64_t)used : 0;
}

uint64_t gauge_peak(const struct usage *usage)
{
	return usage->highest_bytes > usage->peak_bytes ? usage->highest_bytes : usage->peak_bytes;
}

bool gauge_growth(const struct gauge *gauge, size_t usage, double *out)
{
	const struct gauge_pool *pool = usage < gauge->pool_count ? &gauge->pools[usage] : NULL;

	if (pool == NULL || pool->level_count < 2)
		return false;
	*out = ((double)pool->levels[pool->level_count - 1] - (double)pool->levels[0]) /
	       (pool->level_count - 1);
	return true;
}

/* ---- reading ---- */

static int open_pass(struct gauge *gauge, struct mscope_error *err)
{
	struct pass_setup setup = {
		.run = gauge->live.run,
		.elves = &gauge->elves,
		.root = gauge->live.root,
		.analysis = SESSION_LEAKS,
		.settings = gauge->settings,
		.choice = gauge->choice,
		.follow_choice = true,
		.event = on_event,
		.event_arg = gauge,
	};

	return pass_open(&gauge->pass, &setup, err);
}

int gauge_open(struct gauge *gauge, const char *files, const char *name,
	       const struct session *session, struct mscope_error *err)
{
	char path[PATH_MAX];
	int r;

	*gauge = (struct gauge){.settings = settings_of_session(session),
				.choice = pass_choice(session),
				.rank = -1};
	if (snprintf(path, sizeof(path), "%s/%s", files, name) >= (int)sizeof(path))
		return error_set(err, -ENAMETOOLONG, "the path %s is too long", files);
	r = live_run_open(&gauge->live, path, err);
	if (r < 0)
		return r;
	gauge->pid = run_header(gauge->live.run)->pid;
	gauge->rank = digest_rank(gauge->live.run, false);
	gauge->name = digest_run_name(gauge->live.run);
	return open_pass(gauge, err);
}

static void stop_judge(struct gauge *gauge)
{
	if (gauge->judge > 0) {
		(void)kill(gauge->judge, SIGKILL);
		(void)waitpid(gauge->judge, NULL, 0);
	}
	gauge->judge = 0;
}

void gauge_close(struct gauge *gauge)
{
	stop_judge(gauge);
	if (gauge->asked != NULL)
		(void)munmap(gauge->asked, sizeof(*gauge->asked));
	pass_close(&gauge->pass);
	elf_cache_fini(&gauge->elves);
	live_run_close(&gauge->live);
	free(gauge->name);
	free(gauge->pools);
	free(gauge->rates);
	free(gauge->drifts);
	free(gauge->latest);
	*gauge = (struct gauge){0};
}

/* Begins anew: the engine has dropped what was not read, and left a checkpoint in its place. */
static int start_again(struct gauge *gauge)
{
	struct run *old = NULL;
	int r = live_run_again(&gauge->live, &old);

	if (r < 0)
		return r;
	pass_close(&gauge->pass);
	run_close(old);
	gauge->pool_count = gauge->rate_count = 0;
	gauge->step = gauge->mark_step = 0;
	gauge->mark_ns = 0;
	gauge->caught_up = false;
	return open_pass(gauge, NULL);
}

bool gauge_poll(struct gauge *gauge, uint64_t now_ns, uint64_t most)
{
	uint64_t taken = 0;
	int r;

	if (gauge->state == GAUGE_ENDED || gauge->state == GAUGE_LOST)
		return false;
	r = live_run_poll(&gauge->live, now_ns);
	if (!live_run_is_readable(&gauge->live)) {
		gauge->state = GAUGE_BLIND;
		return false;
	}
	if (r == -ESTALE && !gauge->live.ended && start_again(gauge) == 0)
		return true;
	if (r == 0)
		r = pass_read(&gauge->pass, most, &taken);
	gauge->events_left = run_left_events(gauge->live.run);
	if (r < 0) {
		gauge->state = GAUGE_LOST;
		return false;
	}
	if (run_is_stale(gauge->live.run) && !gauge->live.ended)
		return true; /* the next call begins again */
	if (taken < most) {
		uint32_t recording = replay_state(gauge->pass.replay);

		gauge->caught_up = true;
		gauge->state = gauge->live.ended ? GAUGE_ENDED
			       : recording == RECORDING_SHADOW || recording == RECORDING_OFF
				       ? GAUGE_WAITS
				       : GAUGE_RUNS;
	}
	return taken == most;
}

/* ---- rates ---- */

void gauge_mark(struct gauge *gauge, uint64_t now_ns)
{
	const struct usage *usages;
	size_t count, i;
	uint64_t events;

	if (gauge->pass.replay == NULL)
		return;
	events = replay_totals(gauge->pass.replay)->events;
	usages = replay_usages(gauge->pass.replay, &count);
	if (pools_reserve(gauge, count) < 0)
		return;
	if (count > gauge->rate_count) {
		double *rates = realloc(gauge->rates, count * sizeof(*rates)), *drifts;

		if (rates == NULL)
			return;
		gauge->rates = rates;
		drifts = realloc(gauge->drifts, count * sizeof(*drifts));
		if (drifts == NULL)
			return;
		gauge->drifts = drifts;
		for (; gauge->rate_count < count; gauge->rate_count++)
			rates[gauge->rate_count] = drifts[gauge->rate_count] = 0;
	}
	gauge->seconds = gauge->mark_ns == 0 || !gauge->caught_up
				 ? 0
				 : (double)(now_ns - gauge->mark_ns) / 1e9;
	gauge->events_rate = gauge->steps_rate = 0;
	if (gauge->seconds > 0) {
		gauge->events_rate = (double)(events - gauge->mark_events) / gauge->seconds;
		if (gauge->step > gauge->mark_step)
			gauge->steps_rate = (gauge->step - gauge->mark_step) / gauge->seconds;
	}
	for (i = 0; i < count; i++) {
		struct gauge_pool *pool = &gauge->pools[i];

		gauge->rates[i] = gauge->drifts[i] = 0;
		if (gauge->seconds > 0) {
			gauge->rates[i] = (double)(usages[i].allocations - pool->allocations) /
					  gauge->seconds;
			gauge->drifts[i] = ((double)gauge_used(&usages[i]) - (double)pool->bytes) /
					   gauge->seconds;
		}
		pool->allocations = usages[i].allocations;
		pool->bytes = gauge_used(&usages[i]);
	}
	gauge->mark_ns = gauge->caught_up ? now_ns : 0;
	gauge->mark_events = events;
	gauge->mark_step = gauge->step;
}

uint64_t gauge_resident(const struct gauge *gauge)
{
	const struct driver_usage *host =
		gauge->pass.replay == NULL || gauge->state == GAUGE_ENDED
			? NULL
			: replay_driver_usage(gauge->pass.replay, DEVICE_HOST);

	return host == NULL || host->process_bytes == UINT64_MAX ? 0 : host->process_bytes;
}

uint64_t gauge_lost(const struct gauge *gauge)
{
	const struct trace_header *h = run_header(gauge->live.run);
	uint64_t lost = 0;
	uint32_t i;

	for (i = 0; i < TRACE_LOSSES_MAX; i++)
		lost += atomic_load(&h->loss[i]);
	return lost;
}

uint64_t gauge_refused(const struct gauge *gauge)
{
	return replay_totals(gauge->pass.replay)->events_by_type[EVENT_oom];
}

/* ---- call sites and verdicts ---- */

/* What a call site holds now; those with one name are one. */
struct holding {
	uint64_t usage;
	const char *name;
	bool frames; /* a stack was recorded */
	uint64_t bytes, blocks;
	enum growth_verdict verdict;
	enum severity severity;
	double growth_bytes;
};

struct holdings {
	struct replay *replay;
	struct findings *found; /* has their names */
	struct holding *all;
	size_t count, room;
	struct map by_site, by_name; /* index of `all` */
	struct strbuf text;
};

static const char *name_of(struct holdings *holdings, uint32_t stack)
{
	const char *name = site_name(&holdings->found->names, holdings->replay, stack);

	if (name != NULL)
		return name;
	strbuf_reset(&holdings->text);
	if (!site_line(holdings->replay, stack, &holdings->text))
		return "no stack was recorded";
	return findings_text(holdings->found, strbuf_str(&holdings->text));
}

/* The holding of a call site in a pool, made if it is new; NULL: no memory. */
static struct holding *holding_of(struct holdings *holdings, uint64_t usage, uint32_t stack)
{
	struct map_key site = {usage, site_of(holdings->replay, stack)}, named = {usage, 0};
	const uint64_t *known = map_get(&holdings->by_site, site);
	const char *name;
	uint64_t at;

	if (known != NULL)
		return &holdings->all[*known];
	name = name_of(holdings, stack);
	named.b = hash_text(name);
	known = map_get(&holdings->by_name, named);
	at = known == NULL ? holdings->count : *known;
	if (map_put(&holdings->by_site, site, at) < 0)
		return NULL;
	if (known != NULL)
		return &holdings->all[at];
	if (ARRAY_RESERVE(holdings->all, holdings->room, holdings->count + 1) < 0 ||
	    map_put(&holdings->by_name, named, at) < 0)
		return NULL;
	holdings->all[holdings->count] = (struct holding){
		.usage = usage, .name = name, .frames = stack != 0, .verdict = GROWTH_KEPT};
	return &holdings->all[holdings->count++];
}

static void take_blocks(struct holdings *out)
{
	const struct usage *usages;
	const struct block *block;
	size_t cursor = 0, count;

	usages = replay_usages(out->replay, &count);
	while ((block = replay_next_block(out->replay, &cursor)) != NULL) {
		const struct usage *usage = replay_usage(out->replay, block);
		struct holding *holding;

		if (usage->hidden)
			continue;
		holding = holding_of(out, (uint64_t)(usage - usages), block->stack);
		if (holding == NULL)
			return;
		holding->bytes += block->size_bytes;
		holding->blocks++;
	}
}

static int sooner(const void *a, const void *b)
{
	const struct finding_forecast *x = &((const struct gauge_forecast *)a)->found;
	const struct finding_forecast *y = &((const struct gauge_forecast *)b)->found;

	return ORDER_UP(x->full_step, y->full_step) ?: ORDER_UP(x->device, y->device);
}

static void take_forecasts(const struct findings *found, struct gauge_judgement *to)
{
	struct strbuf text = {0};

	FINDINGS_EACH (found, forecast, forecast) {
		struct gauge_forecast *taken = &to->forecasts[to->forecast_count];

		if (to->forecast_count == GAUGE_FORECASTS || !forecast_is_told(found, forecast))
			continue;
		strbuf_reset(&text);
		forecast_sentence(found, forecast, &text);
		taken->found = *forecast;
		(void)snprintf(taken->sentence, sizeof(taken->sentence), "%s", strbuf_str(&text));
		to->forecast_count++;
	}
	strbuf_fini(&text);
	qsort(to->forecasts, to->forecast_count, sizeof(to->forecasts[0]), sooner);
}

static void take_findings(struct holdings *out, struct gauge_judgement *to)
{
	const struct findings *found = out->found;
	const struct usage *usages;
	size_t count, k;

	to->judged = found->judgement.judged;
	to->by_time = found->judgement.by_time;
	to->leaks = found->judgement.leaks;
	to->suspects = found->judgement.suspects;
	take_forecasts(found, to);
	usages = replay_usages(out->replay, &count);
	FINDINGS_EACH (found, place, place) {
		struct holding *holding;

		for (k = 0; k < count &&
			    (usages[k].pool != place->pool || usages[k].device != place->device);
		     k++)
			;
		if (place->verdict == GROWTH_KEPT || k == count)
			continue;
		holding = holding_of(out, k, place->stack);
		if (holding == NULL)
			break;
		/* Of several findings with one name, such as sizes without a stack, the worst is its verdict. */
		if (holding->verdict != GROWTH_LEAK)
			holding->verdict = place->verdict;
		if (holding->severity < place->severity)
			holding->severity = place->severity;
		holding->growth_bytes += place->bytes_per_step;
	}
}

/* Leaks by growth, then what may leak, then what holds most. */
static int worse(const void *a, const void *b)
{
	const struct holding *x = a, *y = b;
	int rank_x = x->verdict == GROWTH_LEAK ? 2 : x->verdict != GROWTH_KEPT;
	int rank_y = y->verdict == GROWTH_LEAK ? 2 : y->verdict != GROWTH_KEPT;

	if (rank_x != rank_y)
		return rank_y - rank_x;
	if (x->severity != y->severity)
		return x->severity > y->severity ? -1 : 1;
	if (rank_x > 0 && x->growth_bytes != y->growth_bytes)
		return x->growth_bytes > y->growth_bytes ? -1 : 1;
	if (x->bytes != y->bytes)
		return x->bytes > y->bytes ? -1 : 1;
	return strcmp(x->name, y->name);
}

/* In the child. */
static void judge(struct gauge *gauge, struct gauge_judgement *to)
{
	struct findings found = {0};
	struct holdings holdings = {.replay = gauge->pass.replay, .found = &found};
	const struct usage *usages;
	size_t count, i;

	to->steps = gauge->step;
	analyses_judge(&gauge->pass.analyses, gauge->pass.replay, 0, &found);
	take_blocks(&holdings);
	take_findings(&holdings, to);
	to->place_count = holdings.count;
	if (holdings.count > 0)
		qsort(holdings.all, holdings.count, sizeof(*holdings.all), worse);
	usages = replay_usages(gauge->pass.replay, &count);
	for (i = 0; i < holdings.count && i < GAUGE_PLACES; i++) {
		const struct holding *holding = &holdings.all[i];
		struct gauge_place *place = &to->places[i];

		*place = (struct gauge_place){.verdict = holding->verdict,
					      .severity = holding->severity,
					      .pool = usages[holding->usage].pool,
					      .device = usages[holding->usage].device,
					      .bytes = holding->bytes,
					      .blocks = holding->blocks,
					      .growth_bytes = holding->growth_bytes,
					      .frames = holding->frames};
		(void)snprintf(place->where, sizeof(place->where), "%s", holding->name);
		to->kept++;
	}
}

void gauge_findings(struct gauge *gauge, size_t frames, struct findings *out)
{
	(void)pass_end(&gauge->pass);
	analyses_judge(&gauge->pass.analyses, gauge->pass.replay, frames, out);
}

/* Takes over what the child has written. */
static void take_answer(struct gauge *gauge, int status)
{
	gauge->judge = 0;
	gauge->judge_ended_ns = clock_monotonic_ns();
	gauge->judge_took_ns = gauge->judge_ended_ns - gauge->judge_began_ns;
	if (status != 0)
		return;
	if (gauge->latest == NULL)
		gauge->latest = malloc(sizeof(*gauge->latest));
	if (gauge->latest != NULL)
		memcpy(gauge->latest, gauge->asked, sizeof(*gauge->latest));
}

static void start_judge(struct gauge *gauge)
{
	if (gauge->asked == NULL) {
		void *p = mmap(NULL, sizeof(*gauge->asked), PROT_READ | PROT_WRITE,
			       MAP_SHARED | MAP_ANONYMOUS, -1, 0);

		if (p == MAP_FAILED)
			return;
		gauge->asked = p;
	}
	memset(gauge->asked, 0, sizeof(*gauge->asked));
	gauge->judge_began_ns = clock_monotonic_ns();
	gauge->judged_events = replay_totals(gauge->pass.replay)->events;
	gauge->judge = fork();
	if (gauge->judge == 0) {
		judge(gauge, gauge->asked);
		_exit(0);
	}
}

void gauge_judge(struct gauge *gauge, bool wait)
{
	uint64_t now = clock_monotonic_ns(), pause;
	int status = 0;

	if (gauge->pass.replay == NULL)
		return;
	pause = gauge->judge_took_ns * JUDGE_SHARE;
	if (pause < JUDGE_EVERY_NS)
		pause = JUDGE_EVERY_NS;
	if (gauge->judge > 0 && waitpid(gauge->judge, &status, WNOHANG) == gauge->judge)
		take_answer(gauge, status);
	if (gauge->judge <= 0 &&
	    (gauge->latest == NULL ||
	     gauge->judged_events != replay_totals(gauge->pass.replay)->events) &&
	    (wait || gauge->judge_ended_ns == 0 || now - gauge->judge_ended_ns > pause))
		start_judge(gauge);
	if (wait && gauge->judge > 0) {
		while (waitpid(gauge->judge, &status, 0) < 0 && errno == EINTR)
			;
		take_answer(gauge, status);
	}
}
