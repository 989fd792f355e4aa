/* SPDX-License-Identifier: Apache-2.0 */
#include "analysis/oom_levels.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"

void levels_fini(struct levels *levels)
{
	enum level_series kind;

	for (kind = 0; kind < LEVEL_SERIES; kind++) {
		free(levels->narrow[kind]);
		free(levels->wide[kind]);
	}
	free(levels->places);
	free(levels->pools);
	index_fini(&levels->index);
}

/* ---- places and pools ---- */

static int pool_at(struct levels *levels, size_t usage, struct level_pool **out)
{
	int r = array_reserve(&levels->pools, &levels->pool_room, usage + 1,
			      sizeof(*levels->pools));

	if (r < 0)
		return r;
	while (levels->pool_count <= usage)
		levels->pools[levels->pool_count++] = (struct level_pool){0};
	*out = &levels->pools[usage];
	return 0;
}

static int place_at(struct levels *levels, uint32_t usage, const struct block *block,
		    struct level_place **out)
{
	uint64_t size = block->stack == 0 ? block->size_bytes : 0;
	uint64_t hash = ((uint64_t)usage << 32 | block->stack) * UINT64_C(0x9e3779b97f4a7c15) +
			size * UINT64_C(0xd6e8feb86659fd93);
	struct index_search search = index_search(hash);
	uint32_t at;

	while (index_next(&levels->index, &search, &at)) {
		*out = &levels->places[at];
		if ((*out)->usage == usage && (*out)->stack == block->stack &&
		    (*out)->size_bytes == size)
			return 0;
	}
	if (array_reserve(&levels->places, &levels->place_room, levels->place_count + 1,
			  sizeof(*levels->places)) < 0 ||
	    index_add(&levels->index, hash, levels->place_count) < 0)
		return -ENOMEM;
	*out = &levels->places[levels->place_count++];
	**out = (struct level_place){.usage = usage, .stack = block->stack, .size_bytes = size};
	return 0;
}

int levels_walk(struct levels *levels, struct replay *replay,
		bool (*skip)(void *arg, const struct block *block), void *arg)
{
	size_t usage_count, cursor = 0, i;
	const struct usage *usages = replay_usages(replay, &usage_count);
	const struct block *block;
	struct level_place *place;
	int r = 0;

	for (i = 0; i < levels->place_count; i++)
		levels->places[i].bytes = levels->places[i].largest = levels->places[i].blocks = 0;
	while (r == 0 && (block = replay_next_block(replay, &cursor)) != NULL) {
		const struct usage *usage = replay_usage(replay, block);

		if (usage == NULL || (skip != NULL && skip(arg, block)))
			continue;
		r = place_at(levels, (uint32_t)(usage - usages), block, &place);
		if (r < 0)
			break;
		place->bytes += block->size_bytes;
		place->blocks++;
		if (block->size_bytes > place->largest)
			place->largest = block->size_bytes;
	}
	return r;
}

/* ---- samples ---- */

/* Every other sample goes; of two peaks the higher one stays. */
static void thin(struct levels *levels, enum level_series kind)
{
	struct series *series = &levels->series[kind];
	size_t i, k;

	for (k = 0; k < SAMPLES / 2; k++)
		series->at[k] = series->at[2 * k + 1];
	for (i = 0; i < levels->narrow_count[kind]; i++) {
		uint16_t *at = levels->narrow[kind][i].at;

		for (k = 0; k < SAMPLES / 2; k++)
			at[k] = at[2 * k + 1];
		memset(&at[SAMPLES / 2], 0, SAMPLES / 2 * sizeof(*at));
	}
	for (i = 0; i < levels->wide_count[kind]; i++) {
		uint32_t *at = levels->wide[kind][i].at;

		for (k = 0; k < SAMPLES / 2; k++)
			at[k] = at[2 * k + 1];
		memset(&at[SAMPLES / 2], 0, SAMPLES / 2 * sizeof(*at));
	}
	for (i = 0; i < levels->pool_count; i++) {
		struct level_pool *pool = &levels->pools[i];

		for (k = 0; k < SAMPLES / 2; k++) {
			pool->levels[kind][k] = pool->levels[kind][2 * k + 1];
			if (kind != BY_ALLOCATIONS)
				continue;
			pool->frees[k] = pool->frees[2 * k + 1];
			pool->allocations[k] = pool->allocations[2 * k + 1];
			pool->peaks[k] = pool->peaks[2 * k] > pool->peaks[2 * k + 1]
						 ? pool->peaks[2 * k]
						 : pool->peaks[2 * k + 1];
		}
	}
	series->count = SAMPLES / 2;
	series->interval *= 2;
}

static int add_narrow(struct levels *levels, enum level_series kind, struct level_place *place)
{
	size_t at = levels->narrow_count[kind];

	if (at >= LEVEL_WIDE - 1 || array_reserve(&levels->narrow[kind], &levels->narrow_room[kind],
						  at + 1, sizeof(*levels->narrow[kind])) < 0)
		return -ENOMEM;
	levels->narrow[kind][at] = (struct level_narrow){0};
	place->past[kind] = (uint32_t)++levels->narrow_count[kind];
	return 0;
}

/* A narrow past becomes a wide one; its room is not used again. */
static int make_wide(struct levels *levels, enum level_series kind, struct level_place *place)
{
	size_t at = levels->wide_count[kind], k;
	uint64_t past[SAMPLES];

	levels_of_place(levels, place, kind, past);
	if (at >= LEVEL_WIDE - 1 || array_reserve(&levels->wide[kind], &levels->wide_room[kind],
						  at + 1, sizeof(*levels->wide[kind])) < 0)
		return -ENOMEM;
	place->shift[kind] = 0;
	for (k = 0; k < SAMPLES; k++) {
		while (past[k] >> place->shift[kind] > UINT32_MAX)
			place->shift[kind]++;
	}
	for (k = 0; k < SAMPLES; k++)
		levels->wide[kind][at].at[k] = (uint32_t)(past[k] >> place->shift[kind]);
	place->past[kind] = (uint32_t)++levels->wide_count[kind] | LEVEL_WIDE;
	return 0;
}

/* Keeps what a place holds as a sample of its narrow past. False: that does not fit. */
static bool keep_narrow(uint16_t *at, struct level_place *place, enum level_series kind,
			uint32_t sample)
{
	uint32_t zeros = place->bytes == 0 ? 63 : (uint32_t)__builtin_ctzll(place->bytes), k;
	uint16_t all = 0;

	for (k = 0; k < sample; k++)
		all |= at[k];
	if (all == 0) {
		place->shift[kind] = (uint8_t)zeros;
	} else if (zeros < place->shift[kind]) {
		uint32_t less = place->shift[kind] - zeros;

		if (less > 15 || (uint32_t)all << less > UINT16_MAX)
			return false;
		for (k = 0; k < sample; k++)
			at[k] = (uint16_t)(at[k] << less);
		place->shift[kind] = (uint8_t)zeros;
	}
	if (place->bytes >> place->shift[kind] > UINT16_MAX)
		return false;
	at[sample] = (uint16_t)(place->bytes >> place->shift[kind]);
	return true;
}

static void keep_wide(uint32_t *at, struct level_place *place, enum level_series kind,
		      uint32_t sample)
{
	uint32_t k;

	while (place->bytes >> place->shift[kind] > UINT32_MAX) {
		place->shift[kind]++;
		for (k = 0; k < sample; k++)
			at[k] >>= 1;
	}
	at[sample] = (uint32_t)(place->bytes >> place->shift[kind]);
}

int levels_keep(struct levels *levels, enum level_series kind, uint32_t sample)
{
	size_t i;
	int r = 0;

	for (i = 0; i < levels->place_count && r == 0; i++) {
		struct level_place *place = &levels->places[i];
		uint32_t *past = &place->past[kind];

		if (*past == 0 && place->bytes == 0)
			continue;
		if (*past == 0)
			r = add_narrow(levels, kind, place);
		if (r == 0 && !(*past & LEVEL_WIDE) &&
		    !keep_narrow(levels->narrow[kind][*past - 1].at, place, kind, sample))
			r = make_wide(levels, kind, place);
		if (r == 0 && (*past & LEVEL_WIDE))
			keep_wide(levels->wide[kind][(*past & ~LEVEL_WIDE) - 1].at, place, kind,
				  sample);
	}
	return r;
}

void levels_of_place(const struct levels *levels, const struct level_place *place,
		     enum level_series kind, uint64_t *out_levels)
{
	uint32_t past = place->past[kind], k;

	for (k = 0; k < SAMPLES; k++) {
		uint64_t level = past == 0 ? 0
				 : past & LEVEL_WIDE
					 ? levels->wide[kind][(past & ~LEVEL_WIDE) - 1].at[k]
					 : levels->narrow[kind][past - 1].at[k];

		out_levels[k] = level << place->shift[kind];
	}
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
	r = levels_walk(levels, replay, NULL, NULL);
	if (r < 0)
		return r;
	series->walked_at = levels->allocations;
	series->at[series->count] = at;
	r = levels_keep(levels, kind, series->count);
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

bool levels_never_fell(const struct levels *levels, const struct level_place *place)
{
	uint64_t level[SAMPLES], before = 0;
	uint32_t i;

	levels_of_place(levels, place, BY_ALLOCATIONS, level);
	for (i = 0; i < levels->series[BY_ALLOCATIONS].count; i++) {
		if (level[i] < before)
			return false;
		before = level[i];
	}
	return place->bytes >= before;
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
