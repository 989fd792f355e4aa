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
#include "analysis/host.h"
#include "analysis/host_growth.h"
#include "base/array.h"
#include "base/shown.h"
#include "base/word_list.h"
#include "replay/facts.h"
#include "trace/asked.h"

#define KNOWN_MAX 1024u
#define NAME_MAX_ 17u

/* With less, a process is not asked. */
#define RISE_LEAST (UINT64_C(4) << 20)

#define MIB (UINT64_C(1) << 20)

/* Texts of a container, in this order. */
enum container_text {
	CONTAINER_TYPE,
	CONTAINER_NAME,
	CONTAINER_OWNER,
	CONTAINER_FILLED,
	CONTAINER_HOLDS,
	CONTAINER_CURE,
	CONTAINER_TEXTS
};

/* Containers that grow, as the process said last. */
struct containers {
	uint64_t count;
	struct container {
		uint64_t milliseconds, items, gained, gained_bytes, resident_bytes;
		char texts[ASKED_TEXT_MAX]; /* ends with NUL */
	} all[ASKED_CONTAINERS];
};

struct known {
	uint32_t pid, parent;
	char name[NAME_MAX_];
	bool own, ended;
	uint64_t first_bytes, peak_bytes, last_bytes, share_bytes;
	uint64_t ended_ns;
	struct host_series *series; /* NULL: it has ended */
	bool grew;
	struct host_growth growth; /* of one that has ended */
	/*
	 * What looking took of the process and its growth has not taken since (bytes, at a time): where the level rises less than by the
	 * pace of the time before, the rest was taken of it.
	 */
	uint64_t excess_bytes, excess_most, excess_ns, pace;
	struct containers *containers; /* NULL: it was not asked, or did not answer */
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

static uint64_t excess_at(const struct known *known, uint64_t time_ns)
{
	double used;

	if (known->excess_bytes == 0 || time_ns <= known->excess_ns)
		return known->excess_bytes;
	used = (double)known->pace * (double)(time_ns - known->excess_ns) / 1e9;
	return used < (double)known->excess_bytes ? known->excess_bytes - (uint64_t)used : 0;
}

/* Levels rise in jumps: what seemed to be taken may come back, as far as this. */
#define EXCESS_SWING MIB

/* A level at `time_ns`: what the process grew by and its level did not, it took of the excess. */
static void use_excess(struct known *known, uint64_t bytes, uint64_t time_ns)
{
	double left = (double)known->excess_bytes;

	if (known->excess_bytes > 0 && time_ns > known->excess_ns)
		left += (double)bytes - (double)known->last_bytes -
			(double)known->pace * (double)(time_ns - known->excess_ns) / 1e9;
	if (left > (double)known->excess_most)
		left = (double)known->excess_most;
	known->excess_bytes = left > 0 ? (uint64_t)left : 0;
	known->excess_ns = time_ns;
	if (known->excess_bytes == 0)
		known->excess_most = 0;
	else if (known->excess_most > known->excess_bytes + EXCESS_SWING)
		known->excess_most = known->excess_bytes + EXCESS_SWING;
}

/* Levels that are filled in between two samples at most. */
#define FILLED 64u

/* The level up to `time_ns`: without what looking took, which falls while the level of the process stays. */
static void fill(const struct known *known, struct host_series *series, uint64_t time_ns)
{
	uint64_t step, before = series->last_ns, at;

	if (series->count == 0 || known->excess_bytes == 0 || known->pace == 0 ||
	    time_ns <= before || known->last_bytes <= known->excess_bytes)
		return;
	step = (time_ns - before) / FILLED;
	step = step < series->span_ns ? series->span_ns : step;
	for (at = before + step; at < time_ns && excess_at(known, at - step) > 0; at += step)
		host_series_add(series, at, known->last_bytes - excess_at(known, at), series->steps,
				series->held);
}

static void judge_now(const struct host_state *s, const struct known *known,
		      const struct replay *replay, bool *out_grows, struct host_growth *out)
{
	struct host_series whole;

	*out = known->growth;
	*out_grows = known->grew;
	if (known->series == NULL)
		return;
	whole = *known->series;
	fill(known, &whole, s->last_ns);
	*out_grows = host_growth_judge(&whole, s->last_ns, steps_of(replay),
				       known->own ? held_by_pools(replay) : 0, out);
}

static void take_level(struct host_state *s, const struct replay *replay, struct known *known,
		       uint64_t bytes, uint64_t time_ns)
{
	if (known->first_bytes == 0)
		known->first_bytes = bytes;
	fill(known, known->series, time_ns);
	use_excess(known, bytes, time_ns);
	s->now_bytes = s->now_bytes + bytes - known->last_bytes;
	known->last_bytes = bytes;
	if (bytes > known->peak_bytes)
		known->peak_bytes = bytes;
	if (s->now_bytes > s->peak_bytes)
		s->peak_bytes = s->now_bytes;
	host_series_add(known->series, time_ns,
			bytes > known->excess_bytes ? bytes - known->excess_bytes : bytes,
			steps_of(replay), known->own ? held_by_pools(replay) : 0);
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

/* The process has looked, and has more resident by that. */
static void take_look(struct host_state *s, const struct replay *replay, struct known *known,
		      const struct event_host_container *look)
{
	uint64_t took_ns = look->look_milliseconds * UINT64_C(1000000) + HOST_SPAN_NS;
	uint64_t left;

	note_time(s, replay);
	left = excess_at(known, s->last_ns);
	if (look->level_bytes <= look->look_bytes + left)
		return;
	host_series_cap(known->series, s->last_ns > took_ns ? s->last_ns - took_ns : 0,
			look->level_bytes - look->look_bytes - left);
	known->pace = host_series_pace(known->series);
	known->excess_bytes = known->excess_most = look->look_bytes + left;
	known->excess_ns = s->last_ns;
	take_level(s, replay, known, look->level_bytes, s->last_ns);
}

/* What it said before is replaced by the first one of an answer. */
static void take_container(struct host_state *s, const struct replay *replay,
			   const struct trace_event *event)
{
	struct event_host_container record;
	struct known *known = NULL;
	struct container *to;
	size_t i;

	event_host_container_decode(event->words, &record);
	for (i = 0; i < s->count; i++) {
		if (s->all[i].pid == record.pid && !s->all[i].ended)
			known = &s->all[i];
	}
	if (known == NULL || record.rank >= ASKED_CONTAINERS ||
	    record.text_bytes > event->payload_bytes || record.text_bytes > ASKED_TEXT_MAX)
		return;
	/* What looking took, and no answer. */
	if (record.milliseconds == 0) {
		take_look(s, replay, known, &record);
		return;
	}
	if (known->containers == NULL)
		known->containers = calloc(1, sizeof(*known->containers));
	if (known->containers == NULL)
		return;
	if (record.rank == 0)
		known->containers->count = 0;
	if (record.rank != known->containers->count || record.text_bytes == 0)
		return;
	to = &known->containers->all[known->containers->count++];
	*to = (struct container){.milliseconds = record.milliseconds,
				 .items = record.items,
				 .gained = record.gained,
				 .gained_bytes = record.gained_bytes,
				 .resident_bytes = record.resident_bytes};
	memcpy(to->texts, event->payload, record.text_bytes);
	to->texts[ASKED_TEXT_MAX - 1] = '\0';
}

static int host_event(void *state, struct replay *replay, const struct trace_event *event)
{
	struct event_host_process process;
	struct event_host_limit limit;

	if (event->type == EVENT_host_container) {
		take_container(state, replay, event);
	} else if (event->type == EVENT_host_process) {
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

static int keep_containers(struct words *words, struct known *known)
{
	bool has = known->containers != NULL;
	size_t i;

	KEEP(words, has);
	if (words_load(words))
		known->containers = has ? calloc(1, sizeof(*known->containers)) : NULL;
	if (!has)
		return 0;
	if (known->containers == NULL)
		return -ENOMEM;
	words_memory(words, known->containers, sizeof(*known->containers));
	words->failed |= known->containers->count > ASKED_CONTAINERS;
	for (i = 0; i < ASKED_CONTAINERS; i++)
		known->containers->all[i].texts[ASKED_TEXT_MAX - 1] = '\0';
	return 0;
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
	KEEP(words, known->excess_bytes);
	KEEP(words, known->excess_most);
	KEEP(words, known->excess_ns);
	KEEP(words, known->pace);
	if (keep_containers(words, known) < 0)
		return -ENOMEM;
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

	for (i = 0; i < s->count; i++) {
		free(s->all[i].series);
		free(s->all[i].containers);
	}
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

/* A text of a container; empty: it is malformed. */
static const char *container_text(const struct container *container, enum container_text which)
{
	const char *at = container->texts, *end = at + ASKED_TEXT_MAX;
	unsigned int i;

	for (i = 0; i < which && at < end; i++)
		at += strlen(at) + 1;
	return at < end ? at : "";
}

static void add_container(struct findings *out, struct finding_host_growth *to,
			  const struct known *known, const struct container *from)
{
	size_t first = FINDINGS_COUNT(out, host_container);
	struct finding_host_container *added = FINDINGS_ADD(out, host_container);
	double seconds = (double)from->milliseconds / 1e3;

	if (added == NULL || seconds <= 0)
		return;
	*added = (struct finding_host_container){
		.pid = known->pid,
		.type = findings_text(out, container_text(from, CONTAINER_TYPE)),
		.name = findings_text(out, container_text(from, CONTAINER_NAME)),
		.owner = findings_text(out, container_text(from, CONTAINER_OWNER)),
		.filled = findings_text(out, container_text(from, CONTAINER_FILLED)),
		.holds = findings_text(out, container_text(from, CONTAINER_HOLDS)),
		.cure = findings_text(out, container_text(from, CONTAINER_CURE)),
		.items = from->items,
		.items_per_second = (double)from->gained / seconds,
		.bytes_per_second = (double)from->gained_bytes / seconds,
	};
	/* Steps are of about the same length. */
	if (to->bytes_per_second > 0)
		added->items_per_step =
			added->items_per_second * to->bytes_per_step / to->bytes_per_second;
	if (from->resident_bytes != 0)
		added->share = (double)from->gained_bytes / (double)from->resident_bytes;
	added->share = added->share > 1 ? 1 : added->share;
	if (to->containers.count == 0)
		to->containers.first = first;
	to->containers.count++;
}

/* Of processes of one name one was asked. */
static void add_containers(struct findings *out, struct finding_host_growth *to,
			   const struct known *known)
{
	const struct finding_host_container *most;
	struct strbuf text = {0};
	uint64_t i;

	for (i = 0; i < known->containers->count; i++)
		add_container(out, to, known, &known->containers->all[i]);
	if (to->containers.count == 0)
		return;
	most = &FINDINGS(out, host_container)[to->containers.first];
	host_container_sentence(out, most, &text);
	to->growing = findings_text(out, strbuf_str(&text));
	to->cure = most->cure;
	strbuf_fini(&text);
}

/* The growth of processes of one name, as one; those of this name before `first` have none. */
static void add_growth(const struct host_state *s, size_t first, struct replay *replay,
		       struct findings *out)
{
	struct finding_host_growth *found = FINDINGS_ADD(out, host_growth);
	const struct known *named = &s->all[first], *asked = NULL;
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
		if (known->containers != NULL && known->containers->count > 0)
			asked = known;
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
	found->growing = found->cure = "";
	if (asked != NULL)
		add_containers(out, found, asked);
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
	.version = 3,
	.keep = host_keep,
	.judge = host_judge,
	.text = host_text,
	.fini = host_fini,
};

size_t host_growing(const struct analyses *analyses, const struct replay *replay,
		    struct host_growing *out, size_t most)
{
	const struct host_state *s = analyses->state[ANALYSIS_ID_host];
	size_t count = 0, i, k;

	if (s == NULL || analyses->failed[ANALYSIS_ID_host])
		return 0;
	for (i = 0; i < s->count && count < most; i++) {
		const struct known *known = &s->all[i];
		struct host_series whole;

		/* Most rise by far too little, which takes no copy to see. */
		if (known->ended || known->series->count == 0 ||
		    known->last_bytes <
			    known->series->spans[known->series->count / 4].low + RISE_LEAST)
			continue;
		whole = *known->series;
		fill(known, &whole, s->last_ns);
		if (!host_growth_may(&whole, s->last_ns, steps_of(replay)))
			continue;
		out[count] = (struct host_growing){.pid = known->pid, .group = count};
		for (k = 0; k < count && out[count].group == count; k++) {
			if (out[k].own == known->own && strcmp(out[k].name, known->name) == 0)
				out[count].group = k;
		}
		out[count].own = known->own;
		out[count++].name = known->name;
	}
	return count;
}
