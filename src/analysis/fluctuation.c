/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How much of what a memory pool has in use comes and goes within a step: smallest over largest use, of each step from the
 * second on, for each device and pool. The steps with the smallest and the largest share are shown. A share that is far from
 * 100 % and differs from step to step is memory that could be planned better.
 */
#include <errno.h>
#include <stdlib.h>

#include "analysis/analyses.h"
#include "analysis/leaks.h"
#include "base/word_list.h"
#include "findings/say.h"
#include "base/array.h"
#include "trace/session.h"

/* What one pool had in use on one device during a step that is open. */
struct span {
	uint32_t step;
	uint32_t device;
	uint8_t pool;
	uint64_t min_bytes;
	uint64_t max_bytes;
};

struct extreme {
	uint32_t step; /* 0: none yet */
	uint64_t min_bytes;
	uint64_t max_bytes;
};

struct pool_range {
	uint32_t device;
	uint8_t pool;
	struct extreme least, most;
};

struct fluctuation {
	struct span *spans; /* of open steps */
	size_t span_count, span_room;
	struct pool_range *ranges;
	size_t range_count, range_room;
};

static int note_use(struct fluctuation *f, uint32_t step, const struct usage *usage, uint64_t bytes)
{
	struct span *span;
	size_t i;
	int r;

	for (i = 0; i < f->span_count; i++) {
		span = &f->spans[i];
		if (span->step == step && span->device == usage->device &&
		    span->pool == usage->pool) {
			if (bytes < span->min_bytes)
				span->min_bytes = bytes;
			if (bytes > span->max_bytes)
				span->max_bytes = bytes;
			return 0;
		}
	}
	r = ARRAY_RESERVE(f->spans, f->span_room, i + 1);
	if (r < 0)
		return r;
	f->spans[f->span_count++] = (struct span){.step = step,
						  .device = usage->device,
						  .pool = usage->pool,
						  .min_bytes = bytes,
						  .max_bytes = bytes};
	return 0;
}

/* Looks at what rows show: a free that is undone later was one. */
static int fluctuation_block(void *state, struct replay *replay, enum block_change change,
			     const struct block *block, const struct usage *usage, uint32_t owner)
{
	uint64_t bytes = usage->live_bytes;
	uint32_t step;
	size_t i;
	int r = 0;

	(void)owner;
	if (pool_long_name(usage->pool) == NULL || block->hidden)
		return 0;
	if (change == BLOCK_REMOVED)
		bytes -= block->size_bytes < bytes ? block->size_bytes : bytes;
	for (i = 0; r == 0 && (step = replay_open_step(replay, i)) != 0; i++) {
		if (step >= LEAKS_FIRST_STEP)
			r = note_use(state, step, usage, bytes);
	}
	return r;
}

/* Whether a share is smaller than another; multiplied out, so that equal ones are equal. */
static bool is_less(uint64_t min_a, uint64_t max_a, const struct extreme *b)
{
	return (unsigned __int128)min_a * b->max_bytes < (unsigned __int128)b->min_bytes * max_a;
}

static bool is_more(uint64_t min_a, uint64_t max_a, const struct extreme *b)
{
	return (unsigned __int128)min_a * b->max_bytes > (unsigned __int128)b->min_bytes * max_a;
}

static int judge(struct fluctuation *f, const struct span *span)
{
	struct extreme now = {
		.step = span->step, .min_bytes = span->min_bytes, .max_bytes = span->max_bytes};
	struct pool_range *range;
	size_t i;
	int r;

	if (span->max_bytes == 0)
		return 0; /* nothing of the pool was in use */
	for (i = 0; i < f->range_count; i++) {
		if (f->ranges[i].device == span->device && f->ranges[i].pool == span->pool)
			break;
	}
	if (i == f->range_count) {
		r = ARRAY_RESERVE(f->ranges, f->range_room, i + 1);
		if (r < 0)
			return r;
		f->ranges[f->range_count++] = (struct pool_range){
			.device = span->device, .pool = span->pool, .least = now, .most = now};
		return 0;
	}
	range = &f->ranges[i];
	if (is_less(now.min_bytes, now.max_bytes, &range->least))
		range->least = now;
	if (is_more(now.min_bytes, now.max_bytes, &range->most))
		range->most = now;
	return 0;
}

static int fluctuation_step(void *state, struct replay *replay, uint32_t step, bool begins)
{
	struct fluctuation *f = state;
	size_t i, kept = 0;
	int r = 0;

	for (i = 0; i < f->span_count; i++) {
		uint32_t of = f->spans[i].step;

		/* Steps that a window interrupted never end. */
		if (begins ? replay_step_is_open(replay, of) : of != step)
			f->spans[kept++] = f->spans[i];
		else if (!begins && r == 0)
			r = judge(f, &f->spans[i]);
	}
	f->span_count = kept;
	return r;
}

static void keep_extreme(struct words *words, struct extreme *extreme)
{
	KEEP(words, extreme->step);
	KEEP(words, extreme->min_bytes);
	KEEP(words, extreme->max_bytes);
}

static int fluctuation_keep(void *state, const struct replay *replay, struct words *words)
{
	struct fluctuation *f = state;
	size_t i;

	(void)replay;
	if (words_array(words, &f->spans, &f->span_count, &f->span_room, sizeof(*f->spans)) < 0)
		return -ENOMEM;
	for (i = 0; i < f->span_count; i++) {
		KEEP(words, f->spans[i].step);
		KEEP(words, f->spans[i].device);
		KEEP(words, f->spans[i].pool);
		KEEP(words, f->spans[i].min_bytes);
		KEEP(words, f->spans[i].max_bytes);
	}
	if (words_array(words, &f->ranges, &f->range_count, &f->range_room, sizeof(*f->ranges)) < 0)
		return -ENOMEM;
	for (i = 0; i < f->range_count; i++) {
		KEEP(words, f->ranges[i].device);
		KEEP(words, f->ranges[i].pool);
		keep_extreme(words, &f->ranges[i].least);
		keep_extreme(words, &f->ranges[i].most);
		words->failed |= pool_long_name(f->ranges[i].pool) == NULL;
	}
	return 0;
}

static int by_device(const void *a, const void *b)
{
	const struct finding_fluctuation *x = a, *y = b;

	return ORDER_UP(x->device, y->device) ?: ORDER_UP(x->event_type, y->event_type);
}

static void add_share(const struct extreme *extreme, struct findings *found,
		      struct finding_range *range)
{
	struct finding_step_share *to = FINDINGS_ADD_TO(found, step_share, range);

	if (to != NULL)
		*to = (struct finding_step_share){extreme->step, extreme->min_bytes,
						  extreme->max_bytes};
}

static int fluctuation_find(const void *state, struct replay *replay, struct findings *out)
{
	const struct fluctuation *f = state;
	size_t i;

	(void)replay;
	for (i = 0; i < f->range_count; i++) {
		struct finding_fluctuation *to = FINDINGS_ADD(out, fluctuation);

		if (to == NULL)
			return -ENOMEM;
		to->device = f->ranges[i].device;
		to->event_type = f->ranges[i].pool;
		add_share(&f->ranges[i].least, out, &to->least);
		add_share(&f->ranges[i].most, out, &to->most);
	}
	if (f->range_count > 1)
		qsort(FINDINGS(out, fluctuation), f->range_count,
		      sizeof(struct finding_fluctuation), by_device);
	return out->failed ? -ENOMEM : 0;
}

static int fluctuation_text(void *state, const struct analysis_view *view, struct strbuf *out)
{
	(void)state;
	fluctuations_text(view->found, out);
	return 0;
}

static int fluctuation_json(void *state, const struct analysis_view *view, struct json *json)
{
	(void)state;
	findings_json(view->found, FINDING_fluctuation, "fluctuation", SIZE_MAX, json);
	return 0;
}

static void fluctuation_fini(void *state)
{
	struct fluctuation *f = state;

	free(f->spans);
	free(f->ranges);
}

const struct analysis analysis_fluctuation = {
	.name = "fluctuation",
	.word = "leaks",
	.nothing = "",
	.bits = SESSION_LEAKS,
	.state_bytes = sizeof(struct fluctuation),
	.blocks_in_step = 1u << BLOCK_ADDED | 1u << BLOCK_REMOVED | 1u << BLOCK_SHOWN,
	.step = fluctuation_step,
	.block = fluctuation_block,
	.version = 2,
	.keep = fluctuation_keep,
	.judge = fluctuation_find,
	.text = fluctuation_text,
	.json = fluctuation_json,
	.fini = fluctuation_fini,
};
