/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owners of memory: for each device and pool the bytes of each owner at the peak of the pool, at the end, when memory ran out, and
 * in the steps that were asked for. The sum is what struct usage counts. When the analysis begins in the middle of a run, the peak
 * is that of the time from then on. decompose_state.h tells how.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/decompose_state.h"
#include "base/array.h"
#include "base/word_list.h"
#include "replay/ooms.h"
#include "trace/session.h"

#define FIRST_STEP (INSTANT_OOM + 1) /* index of the first instant of a step */

/* ---- shares ---- */

static struct share *share_at(struct decompose *d, uint32_t usage, uint32_t owner)
{
	struct map_key key = {usage, owner};
	const uint64_t *known = map_get(&d->index, key);

	if (known != NULL)
		return &d->shares[*known];
	if (ARRAY_RESERVE(d->shares, d->share_room, d->share_count + 1) < 0 ||
	    map_put(&d->index, key, d->share_count) < 0)
		return NULL;
	d->shares[d->share_count] = (struct share){.usage = usage, .owner = owner};
	return &d->shares[d->share_count++];
}

static uint64_t *live_at(struct decompose *d, uint32_t usage)
{
	if (ARRAY_RESERVE(d->live_bytes, d->live_room, (size_t)usage + 1) < 0)
		return NULL;
	while (d->live_count <= usage)
		d->live_bytes[d->live_count++] = 0;
	return &d->live_bytes[usage];
}

/* ---- instants ---- */

/* Makes room for all usages and shares of now. 0 or -ENOMEM. */
static int instant_grow(struct instant *instant, size_t usages, size_t shares)
{
	if (ARRAY_RESERVE(instant->usages, instant->usage_room, usages) < 0 ||
	    ARRAY_RESERVE(instant->bytes, instant->share_room, shares) < 0)
		return -ENOMEM;
	while (instant->usage_count < usages)
		instant->usages[instant->usage_count++] = (struct instant_usage){0};
	while (instant->share_count < shares)
		instant->bytes[instant->share_count++] = 0;
	return 0;
}

static void instant_clear(struct instant *instant)
{
	instant->usage_count = instant->share_count = 0;
	instant->open = instant->taken = false;
}

uint64_t instant_share(const struct instant *instant, size_t share)
{
	return share < instant->share_count ? instant->bytes[share] : 0;
}

uint64_t instant_total(const struct instant *instant, size_t usage)
{
	return usage < instant->usage_count ? instant->usages[usage].most_bytes : 0;
}

/* Allocations after a new high make newer ones, so the shares of a high are copied at the next free. */
static int instant_keep(struct decompose *d, struct instant *instant, const struct replay *replay,
			uint32_t usage)
{
	struct instant_usage *high;
	size_t i;

	if (instant_grow(instant, (size_t)usage + 1, d->share_count) < 0)
		return -ENOMEM;
	high = &instant->usages[usage];
	if (high->bytes == high->most_bytes)
		return 0;
	high->bytes = high->most_bytes;
	high->allocation = replay_totals(replay)->allocations;
	high->change = d->changes;
	for (i = 0; i < d->share_count; i++) {
		if (d->shares[i].usage == usage)
			instant->bytes[i] = d->shares[i].live_bytes;
	}
	return 0;
}

/* The instant begins: what is held now is the most so far. */
static int instant_begin(struct decompose *d, struct instant *instant)
{
	size_t i;

	instant_clear(instant);
	if (instant_grow(instant, d->live_count, d->share_count) < 0)
		return -ENOMEM;
	for (i = 0; i < d->live_count; i++)
		instant->usages[i].most_bytes = d->live_bytes[i];
	instant->open = true;
	return 0;
}

static int instant_keep_all(struct decompose *d, struct instant *instant,
			    const struct replay *replay)
{
	uint32_t usage;

	for (usage = 0; usage < d->live_count; usage++) {
		if (instant_keep(d, instant, replay, usage) < 0)
			return -ENOMEM;
	}
	instant->taken = true;
	return 0;
}

static int instant_end(struct decompose *d, struct instant *instant, const struct replay *replay)
{
	instant->open = false;
	return instant_keep_all(d, instant, replay);
}

static int instant_now(struct decompose *d, struct instant *instant, const struct replay *replay)
{
	int r = instant_begin(d, instant);

	return r < 0 ? r : instant_end(d, instant, replay);
}

static int instant_copy(struct instant *to, const struct instant *from)
{
	instant_clear(to);
	if (instant_grow(to, from->usage_count, from->share_count) < 0)
		return -ENOMEM;
	if (from->usage_count > 0)
		memcpy(to->usages, from->usages, from->usage_count * sizeof(*to->usages));
	if (from->share_count > 0)
		memcpy(to->bytes, from->bytes, from->share_count * sizeof(*to->bytes));
	to->taken = from->taken;
	return 0;
}

/* The instants that are wanted, once. 0 or -ENOMEM. */
static int begin_instants(struct decompose *d, const struct replay *replay)
{
	size_t steps, i;
	const uint32_t *wanted = replay_wanted_steps(replay, &steps);

	if (d->instants != NULL)
		return 0;
	d->instants = calloc(FIRST_STEP + 2 * steps, sizeof(*d->instants));
	if (d->instants == NULL)
		return -ENOMEM;
	d->instant_count = FIRST_STEP + 2 * steps;
	for (i = 0; i < FIRST_STEP; i++)
		d->instants[i].kind = (enum instant_kind)i;
	d->instants[INSTANT_PEAK].open = d->instants[INSTANT_PEAK].taken = true;
	for (i = 0; i < steps; i++) {
		struct instant *instant = &d->instants[FIRST_STEP + 2 * i];

		instant[0].kind = INSTANT_STEP_PEAK;
		instant[1].kind = INSTANT_STEP_END;
		instant[0].step = instant[1].step = wanted[i];
	}
	return 0;
}

/* ---- what happens ---- */

/* Whether the shares of an instant were copied when the block was among those in use. */
static bool includes(const struct decompose *d, const struct instant *instant, uint32_t usage,
		     uint64_t allocation)
{
	const struct instant_usage *high =
		usage < instant->usage_count ? &instant->usages[usage] : NULL;
	const uint64_t *joined;

	if (high == NULL || high->bytes == 0 || allocation > high->allocation)
		return false;
	joined = d->joined.count == 0 ? NULL : map_get(&d->joined, (struct map_key){allocation, 0});
	return joined == NULL || *joined <= high->change;
}

/*
 * A block is in use again, or counted later than its number was given out: instants before that do not include it. Even the newest
 * allocation may be such a block: shares may have been copied after its free, or, at the end of a step, just before it is counted.
 */
static int join_late(struct decompose *d, uint32_t usage, uint64_t allocation)
{
	size_t i;

	for (i = 0; i < d->instant_count; i++) {
		if (includes(d, &d->instants[i], usage, allocation))
			return map_put(&d->joined, (struct map_key){allocation, 0}, d->changes);
	}
	return 0;
}

/* A block goes from one share to another, also in the instants that include it. */
static int relabel(struct decompose *d, const struct block *block, uint32_t usage, uint32_t from)
{
	struct share *share = share_at(d, usage, block->owner);
	size_t to, i;

	if (share == NULL)
		return -ENOMEM;
	share->live_bytes += block->size_bytes;
	share->live_blocks++;
	to = (size_t)(share - d->shares);
	for (i = 0; i < d->instant_count; i++) {
		struct instant *instant = &d->instants[i];

		if (from >= instant->share_count ||
		    !includes(d, instant, usage, block->allocation_id))
			continue;
		if (instant_grow(instant, instant->usage_count, d->share_count) < 0)
			return -ENOMEM;
		instant->bytes[from] -= block->size_bytes;
		instant->bytes[to] += block->size_bytes;
	}
	return 0;
}

/*
 * A step begins or has ended since the last change of a block. Not by .step: that would begin this analysis again once the program
 * marks a step itself, and the peak so far would be lost.
 */
static int follow_steps(struct decompose *d, struct replay *replay)
{
	size_t i;
	int r = 0;

	for (i = FIRST_STEP; r == 0 && i < d->instant_count; i += 2) {
		struct instant *peak = &d->instants[i], *end = peak + 1;
		bool is_open = replay_step_is_open(replay, peak->step);

		if (is_open && !peak->open) {
			r = instant_begin(d, peak);
		} else if (!is_open && peak->open) {
			r = instant_end(d, peak, replay);
			if (r == 0)
				r = instant_now(d, end, replay);
		} else if (!is_open && !peak->taken && peak->step <= replay_steps(replay)) {
			/* Nothing changed in it. */
			r = instant_now(d, peak, replay);
			if (r == 0)
				r = instant_now(d, end, replay);
		}
	}
	return r;
}

static int decompose_block(void *state, struct replay *replay, enum block_change change,
			   const struct block *block, const struct usage *usage, uint32_t owner)
{
	struct decompose *d = state;
	size_t count, i;
	uint32_t number = (uint32_t)(usage - replay_usages(replay, &count));
	struct share *share;
	uint64_t *live;

	if (begin_instants(d, replay) < 0 || follow_steps(d, replay) < 0)
		return -ENOMEM;
	for (i = 0; change == BLOCK_REMOVED && i < d->instant_count; i++) {
		if (d->instants[i].open && instant_keep(d, &d->instants[i], replay, number) < 0)
			return -ENOMEM;
	}
	share = share_at(d, number, owner);
	live = live_at(d, number);
	if (share == NULL || live == NULL)
		return -ENOMEM;
	d->changes++;
	if (change == BLOCK_ADDED || change == BLOCK_RESTORED) {
		if (join_late(d, number, block->allocation_id) < 0)
			return -ENOMEM;
		share->live_bytes += block->size_bytes;
		share->live_blocks++;
		*live += block->size_bytes;
		for (i = 0; i < d->instant_count; i++) {
			struct instant *instant = &d->instants[i];

			if (!instant->open)
				continue;
			if (instant_grow(instant, (size_t)number + 1, 0) < 0)
				return -ENOMEM;
			if (instant->usages[number].most_bytes < *live)
				instant->usages[number].most_bytes = *live;
		}
		return 0;
	}
	share->live_bytes -= block->size_bytes;
	share->live_blocks--;
	if (change == BLOCK_RELABELLED)
		return relabel(d, block, number, (uint32_t)(share - d->shares));
	*live -= block->size_bytes;
	if (d->joined.count > 0)
		(void)map_remove(&d->joined, (struct map_key){block->allocation_id, 0}, NULL);
	return 0;
}

static int decompose_row(void *state, struct replay *replay, const struct row *row)
{
	struct decompose *d = state;
	int r;

	if (row->oom == NULL)
		return 0;
	r = begin_instants(d, replay);
	if (r < 0)
		return r;
	if (!row->oom->ended)
		return instant_now(d, &d->instants[INSTANT_REFUSED], replay);
	if (row->oom->recovered)
		return 0;
	if (!d->instants[INSTANT_REFUSED].taken)
		r = instant_now(d, &d->instants[INSTANT_REFUSED], replay);
	return r < 0 ? r : instant_copy(&d->instants[INSTANT_OOM], &d->instants[INSTANT_REFUSED]);
}

/* ---- in a checkpoint ---- */

/* The instant that a checkpoint tells of; `none` if it is not wanted here. */
static struct instant *instant_of(struct decompose *d, struct instant *none)
{
	size_t i;

	for (i = 0; i < d->instant_count; i++) {
		if (d->instants[i].kind == none->kind && d->instants[i].step == none->step)
			return &d->instants[i];
	}
	return none;
}

static int instant_keep_words(struct decompose *d, size_t index, struct words *words)
{
	struct instant none = {0};
	struct instant *instant = words_load(words) ? &none : &d->instants[index];
	size_t count, i;
	int r = 0;

	KEEP(words, instant->kind);
	KEEP(words, instant->step);
	if (words_load(words)) {
		instant = instant_of(d, &none);
		instant_clear(instant);
	}
	KEEP(words, instant->taken);
	KEEP(words, instant->open);
	/* Shares and usages are never fewer later on. */
	count = words_count(words, instant->usage_count);
	r = count > d->live_count ? MSCOPE_E_DAMAGED : instant_grow(instant, count, 0);
	for (i = 0; r == 0 && i < count; i++)
		words_memory(words, &instant->usages[i], sizeof(instant->usages[i]));
	count = r == 0 ? words_count(words, instant->share_count) : 0;
	if (r == 0)
		r = count > d->share_count ? MSCOPE_E_DAMAGED : instant_grow(instant, 0, count);
	for (i = 0; r == 0 && i < count; i++)
		KEEP(words, instant->bytes[i]);
	free(none.usages);
	free(none.bytes);
	return r;
}

static int keep_joined(struct decompose *d, struct words *words)
{
	size_t count = words_count(words, d->joined.count), cursor = 0, i;

	for (i = 0; i < count && !words->failed; i++) {
		const struct map_slot *slot =
			words_load(words) ? NULL : map_next(&d->joined, &cursor);
		uint64_t allocation = words_next(words, slot == NULL ? 0 : slot->key.a);
		uint64_t change = words_next(words, slot == NULL ? 0 : slot->value);

		if (words_load(words) &&
		    map_put(&d->joined, (struct map_key){allocation, 0}, change) < 0)
			return -ENOMEM;
	}
	return 0;
}

static void decompose_fini(void *state)
{
	struct decompose *d = state;
	size_t i;

	for (i = 0; i < d->instant_count; i++) {
		free(d->instants[i].usages);
		free(d->instants[i].bytes);
	}
	free(d->instants);
	free(d->shares);
	free(d->live_bytes);
	map_fini(&d->index);
	map_fini(&d->joined);
	*d = (struct decompose){0};
}

static int keep_share(struct decompose *d, size_t index, struct words *words)
{
	struct share read = {0};
	struct share *share = words_load(words) ? &read : &d->shares[index];

	KEEP(words, share->owner);
	KEEP(words, share->usage);
	if (words_load(words)) {
		if (read.usage >= d->live_count)
			return MSCOPE_E_DAMAGED;
		share = share_at(d, read.usage, read.owner);
		if (share == NULL)
			return -ENOMEM;
	}
	KEEP(words, share->live_bytes);
	KEEP(words, share->live_blocks);
	return 0;
}

static int decompose_keep(void *state, const struct replay *replay, struct words *words)
{
	struct decompose *d = state;
	size_t usages, count, i;
	int r = 0;

	if (words_load(words)) {
		decompose_fini(d);
		if (begin_instants(d, replay) < 0)
			return -ENOMEM;
	}
	(void)replay_usages(replay, &usages);
	count = words_count(words, d->live_count);
	if (count > usages)
		return MSCOPE_E_DAMAGED;
	for (i = 0; i < count; i++) {
		uint64_t *live = live_at(d, (uint32_t)i);

		if (live == NULL)
			return -ENOMEM;
		KEEP(words, *live);
	}
	count = words_count(words, d->share_count);
	for (i = 0; i < count && r == 0 && !words->failed; i++)
		r = keep_share(d, i, words);
	count = r == 0 ? words_count(words, d->instant_count) : 0;
	for (i = 0; i < count && r == 0 && !words->failed; i++)
		r = instant_keep_words(d, i, words);
	KEEP(words, d->changes);
	return r < 0 ? r : keep_joined(d, words);
}

/* ---- the end ---- */

/* The share of a block in a copy, whose index is that of the original. */
static struct share *share_of_copy(struct decompose *copy, size_t *room, size_t original,
				   uint32_t usage, uint32_t owner)
{
	const uint64_t *known = map_get(&copy->index, (struct map_key){usage, owner});
	size_t i;

	if (known != NULL)
		return &copy->shares[*known];
	for (i = original; i < copy->share_count; i++) {
		if (copy->shares[i].usage == usage && copy->shares[i].owner == owner)
			return &copy->shares[i];
	}
	if (ARRAY_RESERVE(copy->shares, *room, i + 1) < 0)
		return NULL;
	copy->shares[copy->share_count++] = (struct share){.usage = usage, .owner = owner};
	return &copy->shares[i];
}

/* Copies shares, with what each owner had at the end. 0 or -ENOMEM. */
static int copy_shares(const struct decompose *d, const struct replay *replay,
		       struct decompose *out)
{
	const struct block *block;
	size_t cursor = 0, room = 0, count, i;
	const struct usage *usages = replay_usages(replay, &count);

	if (ARRAY_RESERVE(out->shares, room, d->share_count + 1) < 0)
		return -ENOMEM;
	for (i = 0; i < d->share_count; i++) {
		out->shares[i] = d->shares[i];
		out->shares[i].end_bytes = 0;
	}
	while ((block = replay_next_at_end(replay, &cursor)) != NULL) {
		const struct usage *usage = replay_usage(replay, block);
		struct share *share;

		/* The state of a damaged trace may lack a usage. */
		if (usage != NULL && (size_t)(usage - usages) >= d->live_count)
			continue;
		share = usage == NULL ? NULL
				      : share_of_copy(out, &room, d->share_count,
						      (uint32_t)(usage - usages), block->owner);
		if (share == NULL)
			return -ENOMEM;
		share->end_bytes += block->size_bytes;
	}
	return 0;
}

static int copy_instants(const struct decompose *d, const struct replay *replay,
			 struct decompose *out)
{
	size_t i;
	int r = 0;

	out->instants = NULL;
	if (d->instants == NULL)
		return begin_instants(out, replay);
	out->instants = calloc(d->instant_count, sizeof(*out->instants));
	if (out->instants == NULL)
		return -ENOMEM;
	for (i = 0; r == 0 && i < d->instant_count; i++) {
		out->instants[i].kind = d->instants[i].kind;
		out->instants[i].step = d->instants[i].step;
		r = instant_copy(&out->instants[i], &d->instants[i]);
		out->instants[i].open = d->instants[i].open;
	}
	return r;
}

static void copy_fini(struct decompose *copy)
{
	size_t i;

	for (i = 0; copy->instants != NULL && i < copy->instant_count; i++) {
		free(copy->instants[i].usages);
		free(copy->instants[i].bytes);
	}
	free(copy->instants);
	free(copy->shares);
}

/* Instants that are open are closed in a copy, as if the run ended here. */
static int decompose_judge(const void *state, struct replay *replay, struct findings *out)
{
	const struct decompose *d = state;
	struct decompose copy = *d;
	size_t i;
	int r = copy_instants(d, replay, &copy);

	copy.shares = NULL;
	if (r == 0)
		r = copy_shares(d, replay, &copy);
	if (r == 0)
		r = follow_steps(&copy, replay);
	for (i = 0; i < copy.instant_count && r == 0; i++) {
		if (copy.instants[i].open)
			r = instant_keep_all(&copy, &copy.instants[i], replay);
	}
	if (r == 0)
		r = owners_judge(&copy, replay, out);
	if (r == 0)
		r = layers_judge(&copy, replay, out);
	copy_fini(&copy);
	return r;
}

static int decompose_text(void *state, const struct analysis_view *view, struct strbuf *out)
{
	(void)state;
	owned_text(view->found, view->lines, out);
	layers_text(view, out);
	return 0;
}

static int decompose_json(void *state, const struct analysis_view *view, struct json *json)
{
	(void)state;
	findings_json(view->found, FINDING_owned_pool, "decompose", SIZE_MAX, json);
	return 0;
}

const struct analysis analysis_decompose = {
	.name = "decompose",
	.word = "decompose",
	.nothing = "No memory was in use.\n",
	.bits = SESSION_DECOMPOSE,
	.state_bytes = sizeof(struct decompose),
	.rows = 1u << ROW_SNAPSHOT,
	.blocks = BLOCK_CHANGES_ALL,
	.row = decompose_row,
	.block = decompose_block,
	.version = 3,
	.keep = decompose_keep,
	.judge = decompose_judge,
	.text = decompose_text,
	.json = decompose_json,
	.fini = decompose_fini,
};
