/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory of the host: what the process and those that it has started have resident, which of them grow without end (host_growth.h), and
 * whether the kernel has killed any because the container's limit was reached. All of it was asked for by the engine (engine/host_memory.h).
 *
 * The series of a process is kept while it runs; then its verdict is. Memory grows with the processes that run at a time, about 16 KiB
 * each.
 */
#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/analyses.h"
#include "analysis/host_growth.h"
#include "base/array.h"
#include "base/shown.h"
#include "base/word_list.h"
#include "replay/facts.h"

#define KNOWN_MAX 1024u
#define NAME_MAX_ 17u

struct known {
	uint32_t pid, parent;
	char name[NAME_MAX_];
	bool own, ended;
	uint64_t first_bytes, peak_bytes, last_bytes, share_bytes;
	uint64_t ended_ns;
	struct host_series *series; /* NULL: it has ended */
	bool grew;
	struct host_growth growth; /* of one that has ended */
};

struct limits {
	struct event_host_limit first, last;
	uint64_t before_ns; /* of the last record without a kill more */
	uint64_t killed_ns; /* when a kill more was seen first, 0: never */
	bool known;
};

struct host_state {
	struct known *all; /* in the order in which they were seen; the process itself first */
	size_t count, room;
	uint64_t left_out;
	uint64_t now_bytes, peak_bytes; /* of all that run, together */
	uint64_t last_ns;
	struct limits limits;
};

/* ---- while the run is replayed ---- */

/* What frameworks and the driver have in use of the host. */
static uint64_t held_by_pools(const struct replay *replay)
{
	const struct usage *usages;
	uint64_t held = 0;
	size_t count, i;

	usages = replay_usages(replay, &count);
	for (i = 0; i < count; i++) {
		if (usages[i].device == DEVICE_HOST)
			held += usages[i].live_bytes;
	}
	return held;
}

static uint64_t steps_of(const struct replay *replay)
{
	return replay_steps(replay);
}

/* The latest with this number that runs, new or known; NULL: there are too many, or no memory. */
static struct known *known_at(struct host_state *s, uint32_t pid)
{
	struct known *known;
	size_t i;

	for (i = s->count; i > 0; i--) {
		if (s->all[i - 1].pid == pid && !s->all[i - 1].ended)
			return &s->all[i - 1];
	}
	if (s->count == KNOWN_MAX) {
		s->left_out++;
		return NULL;
	}
	if (ARRAY_RESERVE(s->all, s->room, s->count + 1) < 0)
		return NULL;
	known = &s->all[s->count];
	*known = (struct known){.pid = pid, .share_bytes = UINT64_MAX};
	known->series = calloc(1, sizeof(*known->series));
	if (known->series == NULL)
		return NULL;
	s->count++;
	return known;
}

static void judge_now(const struct host_state *s, const struct known *known,
		      const struct replay *replay, bool *out_grows, struct host_growth *out)
{
	*out = known->growth;
	*out_grows = known->grew;
	if (known->series != NULL)
		*out_grows = host_growth_judge(known->series, s->last_ns, steps_of(replay),
					       known->own ? held_by_pools(replay) : 0, out);
}

static void take_level(struct host_state *s, const struct replay *replay, struct known *known,
		       uint64_t bytes, uint64_t time_ns)
{
	if (known->first_bytes == 0)
		known->first_bytes = bytes;
	s->now_bytes = s->now_bytes + bytes - known->last_bytes;
	known->last_bytes = bytes;
	if (bytes > known->peak_bytes)
		known->peak_bytes = bytes;
	if (s->now_bytes > s->peak_bytes)
		s->peak_bytes = s->now_bytes;
	host_series_add(known->series, time_ns, bytes, steps_of(replay),
			known->own ? held_by_pools(replay) : 0);
}

static void end_known(struct host_state *s, const struct replay *replay, struct known *known,
		      uint64_t time_ns)
{
	judge_now(s, known, replay, &known->grew, &known->growth);
	known->ended = true;
	known->ended_ns = time_ns;
	s->now_bytes -= known->last_bytes;
	free(known->series);
	known->series = NULL;
}

static void note_time(struct host_state *s, const struct replay *replay)
{
	if (replay_ended(replay) != END_STOP)
		s->last_ns = replay_totals(replay)->last_ns;
}

static int host_sample(void *state, struct replay *replay, const struct driver_usage *driver)
{
	struct host_state *s = state;
	struct known *known;

	if (driver->device != DEVICE_HOST)
		return 0;
	note_time(s, replay);
	if (driver->process_bytes == UINT64_MAX)
		return 0;
	known = known_at(s, run_header(replay_run(replay))->pid);
	if (known == NULL)
		return 0;
	known->own = true;
	take_level(s, replay, known, driver->process_bytes, s->last_ns);
	return 0;
}

static void take_process(struct host_state *s, const struct replay *replay,
			 const struct event_host_process *event)
{
	struct known *known = known_at(s, (uint32_t)event->pid);

	if (known == NULL)
		return;
	known->parent = (uint32_t)event->parent;
	known->own = known->own || event->pid == run_header(replay_run(replay))->pid;
	memcpy(known->name, &event->name_low, 8);
	memcpy(known->name + 8, &event->name_high, 8);
	if (event->share_bytes != UINT64_MAX) {
		known->share_bytes = event->share_bytes;
		return;
	}
	note_time(s, replay);
	take_level(s, replay, known, event->resident_bytes, s->last_ns);
	if (event->state == HOST_PROCESS_ENDED)
		end_known(s, replay, known, s->last_ns);
}

static void take_limit(struct host_state *s, const struct replay *replay,
		       const struct event_host_limit *event)
{
	struct limits *limits = &s->limits;

	note_time(s, replay);
	if (!limits->known)
		limits->first = *event;
	limits->known = true;
	limits->last = *event;
	if (event->kills != UINT64_MAX && limits->first.kills != UINT64_MAX &&
	    event->kills > limits->first.kills && limits->killed_ns == 0)
		limits->killed_ns = s->last_ns;
	if (limits->killed_ns == 0)
		limits->before_ns = s->last_ns;
}

static int host_event(void *state, struct replay *replay, const struct trace_event *event)
{
	struct event_host_process process;
	struct event_host_limit limit;

	if (event->type == EVENT_host_process) {
		event_host_process_decode(event->words, &process);
		take_process(state, replay, &process);
	} else {
		event_host_limit_decode(event->words, &limit);
		take_limit(state, replay, &limit);
	}
	return 0;
}

/* ---- in a checkpoint ---- */

static void keep_series(struct words *words, struct host_series *series)
{
	KEEP(words, series->count);
	KEEP(words, series->start_ns);
	KEEP(words, series->span_ns);
	KEEP(words, series->last_bytes);
	KEEP(words, series->last_ns);
	KEEP(words, series->steps);
	KEEP(words, series->held);
	if (series->count > HOST_SPANS) {
		words->failed = true;
		series->count = 0;
	}
	words_memory(words, series->spans, series->count * sizeof(series->spans[0]));
	/* Spans are doubled until the time of a level fits. */
	words->failed |= series->count != 0 &&
			 (series->span_ns < HOST_SPAN_NS || series->span_ns > UINT64_MAX / 4 ||
			  series->last_ns < series->start_ns ||
			  (series->last_ns - series->start_ns) / series->span_ns >= HOST_SPANS);
}

static int keep_known(struct words *words, struct known *known)
{
	KEEP(words, known->pid);
	KEEP(words, known->parent);
	words_memory(words, known->name, (NAME_MAX_ - 1) & ~7u);
	KEEP(words, known->own);
	KEEP(words, known->ended);
	KEEP(words, known->grew);
	KEEP(words, known->first_bytes);
	KEEP(words, known->peak_bytes);
	KEEP(words, known->last_bytes);
	KEEP(words, known->share_bytes);
	KEEP(words, known->ended_ns);
	if (words_load(words) && !known->ended) {
		known->series = calloc(1, sizeof(*known->series));
		if (known->series == NULL)
			return -ENOMEM;
	}
	if (known->series != NULL) {
		keep_series(words, known->series);
		return 0;
	}
	words_memory(words, &known->growth, sizeof(known->growth));
	words->failed |= !isfinite(known->growth.bytes_per_second) ||
			 !isfinite(known->growth.bytes_per_step);
	return 0;
}

static void host_fini(void *state)
{
	struct host_state *s = state;
	size_t i;

	for (i = 0; i < s->count; i++)
		free(s->all[i].series);
	free(s->all);
	*s = (struct host_state){0};
}

static int host_keep(void *state, const struct replay *replay, struct words *words)
{
	struct host_state *s = state;
	size_t i;

	(void)replay;
	if (words_load(words))
		host_fini(s);
	KEEP(words, s->left_out);
	KEEP(words, s->now_bytes);
	KEEP(words, s->peak_bytes);
	KEEP(words, s->last_ns);
	KEEP(words, s->limits.known);
	KEEP(words, s->limits.before_ns);
	KEEP(words, s->limits.killed_ns);
	words_memory(words, &s->limits.first, sizeof(s->limits.first));
	words_memory(words, &s->limits.last, sizeof(s->limits.last));
	if (words_array(words, &s->all, &s->count, &s->room, sizeof(*s->all)) < 0)
		return -ENOMEM;
	if (s->count > KNOWN_MAX)
		return -EINVAL;
	for (i = 0; i < s->count && !words->failed; i++) {
		if (keep_known(words, &s->all[i]) < 0)
			return -ENOMEM;
	}
	return 0;
}

/* ---- what was found ---- */

static void add_process(const struct host_state *s, const struct known *known,
			struct replay *replay, struct findings *out)
{
	struct finding_host_process *process = FINDINGS_ADD(out, host_process);
	struct host_growth growth;
	const struct usage *usages;
	size_t count, i;
	bool grows;

	if (process == NULL)
		return;
	judge_now(s, known, replay, &grows, &growth);
	process->pid = known->pid;
	process->parent = known->own ? 0 : known->parent;
	process->name = findings_text(out, known->name);
	process->own = known->own;
	process->first_bytes = known->first_bytes;
	process->peak_bytes = known->peak_bytes;
	process->end_bytes = known->last_bytes;
	process->share_bytes = known->share_bytes;
	process->ended = known->ended;
	process->grows = grows;
	usages = replay_usages(replay, &count);
	for (i = 0; i < count && known->own; i++) {
		if (usages[i].pool == POOL_host_pinned)
			process->pinned_peak_bytes += usages[i].peak_bytes;
	}
}

/* The growth of processes of one name, as one; those of this name before `first` have none. */
static void add_growth(const struct host_state *s, size_t first, struct replay *replay,
		       struct findings *out)
{
	struct finding_host_growth *found = FINDINGS_ADD(out, host_growth);
	const struct known *named = &s->all[first];
	struct strbuf pids = {0};
	double held = 0;
	uint64_t start_ns = UINT64_MAX, end_ns = 0;
	size_t i;

	if (found == NULL)
		return;
	for (i = first; i < s->count; i++) {
		const struct known *known = &s->all[i];
		struct host_growth growth;
		bool grows;

		if (known->own != named->own || strcmp(known->name, named->name) != 0)
			continue;
		judge_now(s, known, replay, &grows, &growth);
		if (!grows)
			continue;
		found->processes++;
		found->bytes += growth.bytes;
		found->bytes_per_step += growth.bytes_per_step;
		found->bytes_per_second += growth.bytes_per_second;
		found->steps = growth.steps > found->steps ? growth.steps : found->steps;
		held += (double)growth.held_bytes;
		start_ns = growth.from_ns < start_ns ? growth.from_ns : start_ns;
		end_ns = growth.to_ns > end_ns ? growth.to_ns : end_ns;
		if (found->processes <= 4)
			strbuf_addf(&pids, "%s%u", found->processes > 1 ? ", " : "", known->pid);
	}
	if (found->processes > 4)
		strbuf_addf(&pids, ", ... %llu more", (unsigned long long)found->processes - 4);
	found->own = named->own;
	found->name = findings_text(out, named->name);
	found->pids = findings_text(out, strbuf_str(&pids));
	found->seconds = (double)(end_ns - start_ns) / 1e9;
	found->explained = held / (double)found->bytes;
	found->explained = found->explained > 1 ? 1 : found->explained;
	strbuf_fini(&pids);
}

/* Whether an earlier process of this name grows too. */
static bool is_counted(const struct host_state *s, size_t at, struct replay *replay)
{
	struct host_growth growth;
	bool grows;
	size_t i;

	for (i = 0; i < at; i++) {
		if (s->all[i].own != s->all[at].own || strcmp(s->all[i].name, s->all[at].name) != 0)
			continue;
		judge_now(s, &s->all[i], replay, &grows, &growth);
		if (grows)
			return true;
	}
	return false;
}

/* The kernel killed processes of the container while this one ran; which ones it does not say, but who ended then. */
static void add_kill(const struct host_state *s, struct replay *replay, struct findings *out)
{
	const struct limits *limits = &s->limits;
	bool killed = run_header(replay_run(replay))->signal == SIGKILL;
	struct finding_host_kill *kill;
	struct strbuf who = {0};
	size_t i;

	if (limits->killed_ns == 0)
		return;
	kill = FINDINGS_ADD(out, host_kill);
	if (kill == NULL)
		return;
	kill->kills = limits->last.kills - limits->first.kills;
	kill->own = killed;
	/* Without a limit that was reached, the machine's memory ran out. */
	kill->limit_bytes =
		limits->last.hits != UINT64_MAX && limits->last.hits > limits->first.hits
			? limits->last.limit_bytes
			: UINT64_MAX;
	kill->total_bytes = limits->last.total_bytes;
	kill->resident_bytes = s->peak_bytes;
	for (i = 0; i < s->count; i++) {
		const struct known *known = &s->all[i];

		if (known->own || !known->ended || known->ended_ns < limits->before_ns ||
		    known->ended_ns > limits->killed_ns)
			continue;
		strbuf_addf(&who, "%s%s (pid %u, ", who.length > 0 ? ", " : "", known->name,
			    known->pid);
		strbuf_add_size(&who, known->last_bytes);
		strbuf_add_str(&who, ")");
	}
	kill->ended = findings_text(out, killed ? "" : strbuf_str(&who));
	for (i = 0; i < s->count; i++)
		kill->processes += !s->all[i].ended;
	strbuf_fini(&who);
}

static int host_judge(const void *state, struct replay *replay, struct findings *out)
{
	const struct host_state *s = state;
	struct host_growth growth;
	struct finding_host_memory *all = FINDINGS_ADD(out, host_memory);
	bool grows;
	size_t i;

	if (all == NULL)
		return -ENOMEM;
	all->peak_bytes = s->peak_bytes;
	all->limit_bytes = s->limits.known ? s->limits.last.limit_bytes : UINT64_MAX;
	all->left_out = s->left_out;
	for (i = 0; i < s->count; i++)
		add_process(s, &s->all[i], replay, out);
	for (i = 0; i < s->count; i++) {
		judge_now(s, &s->all[i], replay, &grows, &growth);
		if (grows && !is_counted(s, i, replay))
			add_growth(s, i, replay, out);
	}
	add_kill(s, replay, out);
	return out->failed ? -ENOMEM : 0;
}

static int host_text(void *state, const struct analysis_view *view, struct strbuf *out)
{
	(void)state;
	hosts_text(view->found, view->lines, out);
	return strbuf_failed(out) ? -ENOMEM : 0;
}

const struct analysis analysis_host = {
	.name = "host",
	.always = true,
	.state_bytes = sizeof(struct host_state),
	.sample = host_sample,
	.host = host_event,
	.version = 2,
	.keep = host_keep,
	.judge = host_judge,
	.text = host_text,
	.fini = host_fini,
};
