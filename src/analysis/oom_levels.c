/* SPDX-License-Identifier: Apache-2.0 */
#include "analysis/oom_levels.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "replay/ooms.h"

void levels_fini(struct levels *levels)
{
	enum level_series kind;
	enum level_width width;

	for (kind = 0; kind < LEVEL_SERIES; kind++) {
		for (width = 0; width < LEVEL_WIDTHS; width++)
			free(levels->pasts[kind][width].all);
	}
	free(levels->places);
	free(levels->bytes);
	free(levels->blocks);
	free(levels->pools);
	by_stack_fini(&levels->by_stack);
}

/* ---- places and pools ---- */

static int pool_at(struct levels *levels, size_t usage, struct level_pool **out)
{
	int r = ARRAY_RESERVE(levels->pools, levels->pool_room, usage + 1);

	if (r < 0)
		return r;
	while (levels->pool_count <= usage)
		levels->pools[levels->pool_count++] = (struct level_pool){0};
	*out = &levels->pools[usage];
	return 0;
}

/* Room for what one more place holds. */
static int reserve_holds(struct levels *levels, size_t count, bool blocks)
{
	int r = ARRAY_RESERVE(levels->bytes, levels->byte_room, count);

	return r < 0 || !blocks ? r : ARRAY_RESERVE(levels->blocks, levels->block_room, count);
}

static void drop_holds(struct levels *levels)
{
	free(levels->bytes);
	free(levels->blocks);
	levels->bytes = NULL;
	levels->blocks = NULL;
	levels->byte_room = levels->block_room = 0;
}

/* The index of the place of a block, new or known. 0 or -ENOMEM. */
static int place_at(struct levels *levels, uint32_t usage, const struct block *block, bool blocks,
		    uint32_t *out)
{
	uint64_t size = block->stack == 0 ? block->size_bytes : 0;
	uint64_t hash = ((uint64_t)usage << 32 | block->stack) * UINT64_C(0x9e3779b97f4a7c15) +
			size * UINT64_C(0xd6e8feb86659fd93);
	struct by_stack_search search = by_stack_search(&levels->by_stack, block->stack, hash);
	size_t count = levels->place_count;

	while (by_stack_next(&levels->by_stack, &search, out)) {
		const struct level_place *place = &levels->places[*out];

		if (place->usage == usage && place->stack == block->stack &&
		    place->size_bytes == size)
			return 0;
	}
	if (ARRAY_RESERVE(levels->places, levels->place_room, count + 1) < 0 ||
	    reserve_holds(levels, count + 1, blocks) < 0 ||
	    by_stack_add(&levels->by_stack, block->stack, hash, count) < 0)
		return -ENOMEM;
	levels->bytes[count] = 0;
	if (blocks)
		levels->blocks[count] = (struct level_blocks){0};
	levels->places[count] =
		(struct level_place){.usage = usage, .stack = block->stack, .size_bytes = size};
	levels->place_count++;
	*out = (uint32_t)count;
	return 0;
}

/* levels_walk(), or without `blocks` the bytes alone. */
static int walk(struct levels *levels, struct replay *replay, bool blocks,
		bool (*skip)(void *arg, const struct block *block), void *arg)
{
	size_t usage_count, cursor = 0;
	const struct usage *usages = replay_usages(replay, &usage_count);
	const struct block *block;
	uint32_t place;
	int r;

	drop_holds(levels);
	r = reserve_holds(levels, levels->place_count, blocks);
	if (r == 0 && levels->place_count > 0)
		memset(levels->bytes, 0, levels->place_count * sizeof(*levels->bytes));
	if (r == 0 && levels->place_count > 0 && blocks)
		memset(levels->blocks, 0, levels->place_count * sizeof(*levels->blocks));
	while (r == 0 && (block = replay_next_block(replay, &cursor)) != NULL) {
		const struct usage *usage = replay_usage(replay, block);

		if (usage == NULL || (skip != NULL && skip(arg, block)))
			continue;
		r = place_at(levels, (uint32_t)(usage - usages), block, blocks, &place);
		if (r < 0)
			break;
		levels->bytes[place] += block->size_bytes;
		if (!blocks)
			continue;
		levels->blocks[place].count++;
		if (block->size_bytes > levels->blocks[place].largest)
			levels->blocks[place].largest = block->size_bytes;
	}
	return r;
}

int levels_walk(struct levels *levels, struct replay *replay,
		bool (*skip)(void *arg, const struct block *block), void *arg)
{
	return walk(levels, replay, true, skip, arg);
}

/* ---- samples ---- */

/* One number of a past. */
static uint32_t past_get(const unsigned char *past, enum level_width width, uint32_t sample)
{
	uint16_t narrow;
	uint32_t wide;

	if (width == LEVEL_BYTES)
		return past[sample];
	if (width == LEVEL_NARROW) {
		memcpy(&narrow, past + sample * sizeof(narrow), sizeof(narrow));
		return narrow;
	}
	memcpy(&wide, past + sample * sizeof(wide), sizeof(wide));
	return wide;
}

static void past_set(unsigned char *past, enum level_width width, uint32_t sample, uint32_t number)
{
	uint16_t narrow = (uint16_t)number;

	if (width == LEVEL_BYTES)
		past[sample] = (uint8_t)number;
	else if (width == LEVEL_NARROW)
		memcpy(past + sample * sizeof(narrow), &narrow, sizeof(narrow));
	else
		memcpy(past + sample * sizeof(number), &number, sizeof(number));
}

static size_t past_bytes(enum level_width width)
{
	return (size_t)SAMPLES << width;
}

static unsigned char *past_at(const struct levels *levels, const struct level_place *place,
			      enum level_series kind)
{
	enum level_width width = place->width[kind];

	return levels->pasts[kind][width].all + (place->past[kind] - 1) * past_bytes(width);
}

static uint64_t larger(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

/* Every other sample goes; of two peaks the higher one stays. */
static void thin(struct levels *levels, enum level_series kind)
{
	struct series *series = &levels->series[kind];
	enum level_width width;
	size_t i;
	uint32_t k;

	for (k = 0; k < SAMPLES / 2; k++)
		series->at[k] = series->at[2 * k + 1];
	for (width = 0; width < LEVEL_WIDTHS; width++) {
		for (i = 0; i < levels->pasts[kind][width].count; i++) {
			unsigned char *past =
				levels->pasts[kind][width].all + i * past_bytes(width);

			for (k = 0; k < SAMPLES / 2; k++)
				past_set(past, width, k, past_get(past, width, 2 * k + 1));
			memset(past + past_bytes(width) / 2, 0, past_bytes(width) / 2);
		}
	}
	for (i = 0; i < levels->pool_count; i++) {
		struct level_pool *pool = &levels->pools[i];

		for (k = 0; k < SAMPLES / 2; k++) {
			pool->levels[kind][k] = pool->levels[kind][2 * k + 1];
			if (kind == BY_STEPS) {
				pool->step_peaks[k] = larger(pool->step_peaks[2 * k],
							     pool->step_peaks[2 * k + 1]);
				continue;
			}
			pool->frees[k] = pool->frees[2 * k + 1];
			pool->allocations[k] = pool->allocations[2 * k + 1];
			pool->peaks[k] = larger(pool->peaks[2 * k], pool->peaks[2 * k + 1]);
		}
	}
	series->count = SAMPLES / 2;
	series->interval *= 2;
}

/* A place gets a past of this width, all zero. */
static int add_past(struct levels *levels, enum level_series kind, enum level_width width,
		    struct level_place *place)
{
	struct level_pasts *pasts = &levels->pasts[kind][width];

	if (pasts->count >= UINT32_MAX - 1 ||
	    array_reserve(&pasts->all, &pasts->room, pasts->count + 1, past_bytes(width)) < 0)
		return -ENOMEM;
	memset(pasts->all + pasts->count * past_bytes(width), 0, past_bytes(width));
	place->past[kind] = (uint32_t)++pasts->count;
	place->width[kind] = (uint8_t)width;
	return 0;
}

/* Numbers of a past that has just become wide: with as small a shift as they allow. */
static void unshift(unsigned char *past, uint8_t *shift)
{
	uint32_t k, less = *shift;

	for (k = 0; k < SAMPLES; k++) {
		while (less > 0 && (uint64_t)past_get(past, LEVEL_WIDE, k) << less > UINT32_MAX)
			less--;
	}
	for (k = 0; k < SAMPLES; k++)
		past_set(past, LEVEL_WIDE, k,
			 (uint32_t)((uint64_t)past_get(past, LEVEL_WIDE, k) << less));
	*shift = (uint8_t)(*shift - less);
}

/* A past becomes wider, of the same numbers; its room is not used again. */
static int widen(struct levels *levels, enum level_series kind, struct level_place *place)
{
	enum level_width width = place->width[kind];
	uint64_t at = place->past[kind] - 1;
	uint32_t k;
	int r = add_past(levels, kind, width + 1, place);

	for (k = 0; k < SAMPLES && r == 0; k++)
		past_set(past_at(levels, place, kind), width + 1, k,
			 past_get(levels->pasts[kind][width].all + at * past_bytes(width), width,
				  k));
	if (r == 0 && width + 1 == LEVEL_WIDE)
		unshift(past_at(levels, place, kind), &place->shift[kind]);
	return r;
}

/* Keeps what a place holds as a sample of a past that is not wide. False: that does not fit. */
static bool keep_exact(unsigned char *past, enum level_width width, uint8_t *shift, uint64_t bytes,
		       uint32_t sample)
{
	uint32_t zeros = bytes == 0 ? 63 : (uint32_t)__builtin_ctzll(bytes), k, all = 0;
	uint32_t most = width == LEVEL_BYTES ? UINT8_MAX : UINT16_MAX;

	for (k = 0; k < sample; k++)
		all |= past_get(past, width, k);
	if (all == 0) {
		*shift = (uint8_t)zeros;
	} else if (zeros < *shift) {
		uint32_t less = *shift - zeros;

		if (less > 15 || all << less > most)
			return false;
		for (k = 0; k < sample; k++)
			past_set(past, width, k, past_get(past, width, k) << less);
		*shift = (uint8_t)zeros;
	}
	if (bytes >> *shift > most)
		return false;
	past_set(past, width, sample, (uint32_t)(bytes >> *shift));
	return true;
}

static void keep_wide(unsigned char *past, uint8_t *shift, uint64_t bytes, uint32_t sample)
{
	uint32_t k;

	while (bytes >> *shift > UINT32_MAX) {
		(*shift)++;
		for (k = 0; k < sample; k++)
			past_set(past, LEVEL_WIDE, k, past_get(past, LEVEL_WIDE, k) >> 1);
	}
	past_set(past, LEVEL_WIDE, sample, (uint32_t)(bytes >> *shift));
}

int levels_keep(struct levels *levels, enum level_series kind, uint32_t sample)
{
	size_t i;
	int r = 0;

	for (i = 0; i < levels->place_count && r == 0; i++) {
		struct level_place *place = &levels->places[i];
		uint64_t bytes = levels->bytes[i];

		if (place->past[kind] == 0 && bytes == 0)
			continue;
		if (place->past[kind] == 0)
			r = add_past(levels, kind, LEVEL_BYTES, place);
		while (r == 0 && place->width[kind] != LEVEL_WIDE &&
		       !keep_exact(past_at(levels, place, kind), place->width[kind],
				   &place->shift[kind], bytes, sample))
			r = widen(levels, kind, place);
		if (r == 0 && place->width[kind] == LEVEL_WIDE)
			keep_wide(past_at(levels, place, kind), &place->shift[kind], bytes, sample);
	}
	return r;
}

void levels_of_place(const struct levels *levels, const struct level_place *place,
		     enum level_series kind, uint64_t *out_levels)
{
	uint32_t k;

	for (k = 0; k < SAMPLES; k++)
		out_levels[k] = place->past[kind] == 0
					? 0
					: (uint64_t)past_get(past_at(levels, place, kind),
							     place->width[kind], k)
						  << place->shift[kind];
}

struct level_hold levels_hold(const struct levels *levels, size_t place)
{
	return (struct level_hold){.bytes = levels->bytes[place],
				   .largest = levels->blocks[place].largest,
				   .blocks = levels->blocks[place].count};
}

uint64_t levels_now(const struct usage *usages, size_t count, const struct usage *usage)
{
	uint64_t level = usage->live_bytes;
	size_t i;

	for (i = 0; i < count && usage->pool == POOL_hal; i++) {
		if (usages[i].device == usage->device && !pool_is_driver(usages[i].pool))
			level -=
				usages[i].reserved_bytes < level ? usages[i].reserved_bytes : level;
	}
	return level;
}

static int sample(struct levels *levels, struct replay *replay, enum level_series kind, uint64_t at)
{
	struct series *series = &levels->series[kind];
	size_t usage_count, i;
	const struct usage *usages = replay_usages(replay, &usage_count);
	int r;

	if (series->count == SAMPLES)
		thin(levels, kind);
	r = walk(levels, replay, false, NULL, NULL);
	if (r < 0)
		return r;
	series->walked_at = levels->allocations;
	series->at[series->count] = at;
	r = levels_keep(levels, kind, series->count);
	drop_holds(levels);
	if (r < 0)
		return r;
	for (i = 0; i < levels->pool_count && i < usage_count; i++) {
		struct level_pool *pool = &levels->pools[i];

		pool->levels[kind][series->count] = levels_now(usages, usage_count, &usages[i]);
		if (kind == BY_ALLOCATIONS) {
			pool->frees[series->count] = usages[i].frees;
			pool->allocations[series->count] = usages[i].allocations;
			pool->peaks[series->count] = pool->window_peak;
			pool->window_peak = usages[i].live_bytes;
		} else {
			pool->step_peaks[series->count] = pool->latest_step_peak;
			pool->latest_step_peak = 0;
		}
	}
	series->count++;
	return 0;
}

/* Allocations that have to come before another walk is worth it. */
static uint64_t walk_distance(const struct replay *replay)
{
	size_t live = replay_block_count(replay);

	return live < LEVELS_FEW ? live / LEVELS_VISITS : live / 2;
}

int levels_allocated(struct levels *levels, struct replay *replay, const struct block *block,
		     const struct usage *usage)
{
	size_t count;
	const struct usage *usages = replay_usages(replay, &count);
	struct series *series = &levels->series[BY_ALLOCATIONS];
	struct level_pool *pool;
	uint64_t distance;
	int r = pool_at(levels, (size_t)(usage - usages), &pool);

	if (r < 0)
		return r;
	if (usage->live_bytes > pool->window_peak)
		pool->window_peak = usage->live_bytes;
	if (usage->live_bytes > pool->step_peak)
		pool->step_peak = usage->live_bytes;
	if (block->size_bytes > pool->largest_request)
		pool->largest_request = block->size_bytes;
	series->end = ++levels->allocations;
	if (MSCOPE_LIKELY(levels->allocations < levels->next_sample))
		return 0;
	distance = walk_distance(replay);
	if (levels->allocations < series->walked_at + distance) {
		levels->next_sample = series->walked_at + distance;
		return 0;
	}
	if (series->interval == 0)
		series->interval = 1;
	r = sample(levels, replay, BY_ALLOCATIONS, levels->allocations);
	levels->next_sample = levels->allocations + series->interval;
	return r;
}

int levels_step_ended(struct levels *levels, struct replay *replay, uint32_t step)
{
	struct series *series = &levels->series[BY_STEPS];
	size_t count, i;
	const struct usage *usages = replay_usages(replay, &count);

	if (step <= levels->steps)
		return 0; /* steps may overlap; later ones count */
	levels->steps = step;
	/* What comes before the end of the first step is how a program begins. */
	if (levels->series[BY_ALLOCATIONS].settled_at == 0)
		levels->series[BY_ALLOCATIONS].settled_at = levels->allocations;
	for (i = 0; i < levels->pool_count && i < count; i++) {
		struct level_pool *pool = &levels->pools[i];

		if (pool->step_peak > pool->usual_step_peak)
			pool->usual_step_peak = pool->step_peak;
		pool->latest_step_peak = larger(pool->latest_step_peak, pool->step_peak);
		pool->step_peak = usages[i].live_bytes;
	}
	if (series->interval == 0)
		series->interval = 1;
	if (step % series->interval != 0 ||
	    (series->count > 0 && levels->allocations < series->walked_at + walk_distance(replay)))
		return 0;
	return sample(levels, replay, BY_STEPS, step);
}

/* ---- questions ---- */

/* Samples of a series that grows, at least. */
#define RISE_SAMPLES 4u
#define RISES_MIN    3u

/*
 * By steps any rise counts, if it did not slow down. Allocations come in bursts: their level must rise in each later quarter of the
 * time until the present (`end`).
 */
static bool is_steady(const struct series *series, enum level_series kind, const uint64_t *floors,
		      uint32_t from, uint64_t end, struct rise *rise)
{
	uint64_t begin = series->at[from], at_quarter[5];
	uint32_t i, quarter;

	for (quarter = 0; quarter < 5; quarter++) {
		at_quarter[quarter] = floors[from];
		for (i = from; i < series->count; i++) {
			if (series->at[i] > begin + (end - begin) * quarter / 4 && quarter < 4)
				break;
			at_quarter[quarter] = floors[i];
			if (quarter == 2)
				rise->middle = i;
		}
	}
	rise->bytes = at_quarter[4] - at_quarter[0];
	if ((at_quarter[4] - at_quarter[2]) * 2 < at_quarter[2] - at_quarter[0])
		return false;
	for (quarter = 1; quarter < 4 && kind == BY_ALLOCATIONS; quarter++) {
		if ((at_quarter[quarter + 1] - at_quarter[quarter]) * 16 < rise->bytes)
			return false;
	}
	return true;
}

static struct rise rise_from(const struct series *series, enum level_series kind,
			     const uint64_t *levels, uint64_t now, uint32_t from)
{
	uint64_t floors[SAMPLES], end;
	struct rise rise = {0};
	uint32_t i, rises = 0;

	if (series->count < from + RISE_SAMPLES)
		return rise;
	/* What is never undercut again. */
	floors[series->count - 1] =
		levels[series->count - 1] < now ? levels[series->count - 1] : now;
	for (i = series->count - 1; i-- > from;)
		floors[i] = levels[i] < floors[i + 1] ? levels[i] : floors[i + 1];
	for (i = from + 1; i < series->count; i++) {
		if (floors[i] == floors[i - 1])
			continue;
		if (rises++ == 0)
			rise.from = series->at[i - 1];
		rise.to = series->at[i];
	}
	end = kind == BY_ALLOCATIONS ? series->end : series->at[series->count - 1];
	return rises >= RISES_MIN && is_steady(series, kind, floors, from, end, &rise)
		       ? rise
		       : (struct rise){0};
}

struct rise levels_rise(const struct series *series, enum level_series kind, const uint64_t *levels,
			uint64_t now)
{
	struct rise rise;
	uint32_t from = 0;

	while (from < series->count && series->at[from] < series->settled_at)
		from++;
	rise = rise_from(series, kind, levels, now, from);
	/* A run that settles late may hide its growth behind its beginning. */
	return rise.bytes != 0
		       ? rise
		       : rise_from(series, kind, levels, now, from + (series->count - from) / 4);
}

/* Blocks of a place that holds nothing from step to step, at most: the newest, and the one before it. */
#define SCALED_BLOCKS 2u

/* Rises in a row, each of them larger by a half than the one before. */
#define SCALED_TIMES 3u

/* How much more than the blocks the needs of steps rise: the old one, its copy and a result of it are no more than this. */
#define SCALED_NEEDS 4u

/* What a step needed beside all that other places held at its end. */
static uint64_t need_of(const struct level_pool *pool, const uint64_t *past, uint32_t sample)
{
	return less_u64(pool->step_peaks[sample] + past[sample], pool->levels[BY_STEPS][sample]);
}

/* Whether the needs of steps rose far more than a place did between two samples. */
static bool needs_rise(const struct level_pool *pool, const uint64_t *past, uint32_t from,
		       uint32_t to)
{
	return past[to] > past[from] &&
	       less_u64(need_of(pool, past, to), need_of(pool, past, from)) >=
		       SCALED_NEEDS * (past[to] - past[from]);
}

bool levels_place_scales(const struct levels *levels, size_t place, const uint64_t *past)
{
	uint32_t usage = levels->places[place].usage;
	const struct level_pool *pool;
	uint32_t count = levels->series[BY_STEPS].count, first = 0, i, times = 0;

	if (count < SCALED_TIMES + 1 || usage >= levels->pool_count ||
	    levels_hold(levels, place).blocks > SCALED_BLOCKS)
		return false;
	pool = &levels->pools[usage];
	for (i = count - SCALED_TIMES; i < count; i++)
		times += past[i - 1] > 0 && past[i] / 3 * 2 >= past[i - 1];
	if (times == SCALED_TIMES)
		return true;
	while (first + 1 < count && past[first] == 0)
		first++;
	i = first + (count - 1 - first) / 2;
	return past[count - 1] / 2 >= past[first] && needs_rise(pool, past, first, i) &&
	       needs_rise(pool, past, i, count - 1);
}

bool levels_pool_scales(const struct levels *levels, size_t usage)
{
	const uint64_t *level = levels->pools[usage].levels[BY_STEPS];
	uint32_t count = levels->series[BY_STEPS].count, i;

	if (count < SCALED_TIMES + 2)
		return false;
	for (i = count - SCALED_TIMES; i < count; i++) {
		uint64_t before = less_u64(level[i - 1], level[i - 2]);

		if (before == 0 || less_u64(level[i], level[i - 1]) / 3 * 2 < before)
			return false;
	}
	return true;
}

bool levels_needs_rise(const struct levels *levels, size_t usage, uint32_t *out_steps)
{
	const struct series *series = &levels->series[BY_STEPS];
	const uint64_t *peaks;
	uint32_t records = 0, steps = 0, i;
	uint64_t most = 0;

	*out_steps = 0;
	if (usage >= levels->pool_count)
		return false;
	peaks = levels->pools[usage].step_peaks;
	for (i = 0; i < series->count; i++) {
		bool next = i > 0 && series->at[i] == series->at[i - 1] + 1;

		records = peaks[i] > most && i > 0 ? records + 1 : 0;
		steps = records > 0 && next ? steps + 1 : 0;
		most = larger(most, peaks[i]);
	}
	*out_steps = steps == records ? steps : 0;
	return records >= SCALED_TIMES;
}

/* A pool that handed out and took back blocks by then, so that its level is one of work and not of filling up. */
static bool is_working(const struct level_pool *pool, uint32_t sample)
{
	return pool->allocations[sample] >= 8 &&
	       pool->frees[sample] * 8 >= pool->allocations[sample];
}

bool levels_is_burst(const struct levels *levels, const struct usage *usage, size_t index,
		     uint32_t middle)
{
	const struct level_pool *pool = &levels->pools[index];
	uint64_t allocations = usage->allocations - pool->allocations[middle];
	uint64_t frees = usage->frees - pool->frees[middle];

	return is_working(pool, middle) && frees * 8 < allocations;
}

bool levels_never_fell(const struct levels *levels, size_t place)
{
	uint64_t level[SAMPLES], before = 0;
	uint32_t i;

	levels_of_place(levels, &levels->places[place], BY_ALLOCATIONS, level);
	for (i = 0; i < levels->series[BY_ALLOCATIONS].count; i++) {
		if (level[i] < before)
			return false;
		before = level[i];
	}
	return levels->bytes[place] >= before;
}

bool levels_rose_by_steps(const struct levels *levels, const struct level_place *place)
{
	uint64_t past[SAMPLES];

	levels_of_place(levels, place, BY_STEPS, past);
	for (uint32_t i = 1; i < levels->series[BY_STEPS].count; i++)
		if (past[i] > past[i - 1])
			return true;
	return false;
}

bool levels_are_steady(const struct levels *levels, size_t usage, uint64_t now)
{
	const struct series *series = &levels->series[BY_ALLOCATIONS];
	uint64_t early = 0;
	uint32_t i;

	for (i = 0; i < series->count && usage < levels->pool_count; i++) {
		if (series->at[i] <= levels->allocations / 2 &&
		    levels->pools[usage].peaks[i] > early)
			early = levels->pools[usage].peaks[i];
	}
	return early >= now / 4 * 3;
}

uint64_t levels_usual(const struct levels *levels, size_t usage)
{
	const struct series *series = &levels->series[BY_ALLOCATIONS];
	const struct level_pool *pool;
	uint64_t early = 0, usual = 0;
	uint32_t i, middle = 0;

	if (usage >= levels->pool_count)
		return 0;
	pool = &levels->pools[usage];
	if (levels->steps > 0)
		return pool->usual_step_peak;
	for (i = 0; i < series->count && series->at[i] <= levels->allocations / 4 * 3; i++) {
		if (series->at[i] <= levels->allocations / 2) {
			middle = i;
			if (pool->peaks[i] > early)
				early = pool->peaks[i];
		}
		if (pool->peaks[i] > usual)
			usual = pool->peaks[i];
	}
	/* While it still rises, nothing is usual. */
	return usual > early + early / 4 || !is_working(pool, middle) ? 0 : usual;
}

/* Whether two instructions are of one line: the condition of a loop is compiled twice. */
static bool is_one_line(struct replay *replay, const struct python_place *a,
			const struct python_place *b)
{
	char *line;
	bool same;

	if (a->code != b->code || a->offset == b->offset)
		return a->code == b->code;
	line = strdup(replay_place_text(replay, a));
	same = line != NULL && strcmp(line, replay_place_text(replay, b)) == 0;
	free(line);
	return same;
}

bool levels_is_of(struct replay *replay, const struct level_place *place, const struct oom *oom)
{
	uint32_t n, m, i;
	const struct python_place *x, *y;
	const uint32_t *a, *b;

	if (place->stack == 0)
		return place->size_bytes == oom->requested_bytes;
	x = replay_places(replay, place->stack, &n);
	y = replay_places(replay, oom->stack, &m);
	if (n > 0 && m > 0)
		return is_one_line(replay, &x[0], &y[0]);
	a = replay_frames(replay, place->stack, &n);
	b = replay_frames(replay, oom->stack, &m);
	for (i = 0; i < n && i < m; i++) {
		if (replay_frame(replay, a[i])->address != replay_frame(replay, b[i])->address)
			return false;
	}
	return n > 0 && m > 0;
}
