/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Verdicts about refused requests. Each possible cause has a number of bytes that would not be in use without it; those are asked
 * for whether the request would then have fitted:
 *
 *     growth          what places or pools gained since the program settled, and go on gaining
 *     fragmentation   what pools reserved and do not use, in pieces smaller than the request; what blocks leave of the driver's pages
 *     outside         memory of the driver beside the pools
 *     others          what is neither free nor this process's
 *     waiting         what the program freed and other streams still use
 *     private         what private pools reserved and do not use
 *     spike           this request, or this step, beyond all that was in use before; also the last of steps that work on more and more
 *
 * Of those that explain the refusal the largest is the cause. Where none does, the program simply needs more than there is.
 */
#include "analysis/oom.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/oom_levels.h"
#include "base/array.h"
#include "base/word_list.h"
#include "replay/ooms.h"
#include "trace/session.h"

/* More requests that were refused are counted, and have no verdict of their own. */
#define VERDICTS_MAX 64u

/* A refusal of the same request again, at most so much later, is a repetition. */
#define REPEAT_NS UINT64_C(2000000000)

struct oom_state {
	struct levels levels;
	struct oom_verdict *verdicts;
	size_t count, room;
	uint64_t numbered, recovered;
};

/* A pool that may not have more has no use for what others have of the device, or for what is free. */
static bool is_pool_limited(const struct oom_verdict *verdict)
{
	return verdict->device != DEVICE_HOST && oom_is_limited(verdict);
}

/* ---- what there is on the device ---- */

struct range {
	uint64_t start, end;
	bool has_regions;
};

/* The device at the moment of the refusal. */
struct survey {
	struct replay *replay;
	uint32_t device;
	bool pooled;	      /* a framework's pool has memory there */
	struct range *ranges; /* blocks of the driver, by address */
	size_t range_count, range_room;
	uint64_t driver_bytes; /* in all blocks of the driver */
	uint64_t paged_bytes;  /* the same in whole pages */
	uint64_t pool_live, pool_reserved, pool_unused;
	uint64_t waiting, private_unused;
	uint64_t hole_bytes; /* the largest gap between regions of pools; UINT64_MAX: unknown */
	uint64_t asked_reserved, asked_most; /* by the pool that was asked, now and at most */
};

static int by_start(const void *a, const void *b)
{
	const struct range *x = a, *y = b;

	return ORDER_UP(x->start, y->start);
}

/* The driver's block that an address lies in; NULL if there is none. */
static struct range *range_at(const struct survey *survey, uint64_t address)
{
	size_t low = COUNT_FRONT(at, survey->range_count, survey->ranges[at].end <= address);

	return low < survey->range_count && survey->ranges[low].start <= address
		       ? &survey->ranges[low]
		       : NULL;
}

static bool is_driver_block(const struct survey *survey, const struct context *context)
{
	return context->device == survey->device && context->pool == POOL_hal &&
	       context->kind != BLOCK_CREATE;
}

static int add_range(struct range **ranges, size_t *count, size_t *room, const struct block *block)
{
	if (ARRAY_RESERVE(*ranges, *room, *count + 1) < 0)
		return -ENOMEM;
	(*ranges)[(*count)++] =
		(struct range){.start = block->address, .end = block->address + block->size_bytes};
	return 0;
}

/* The largest gap between regions, and between them and the ends of the driver's blocks that they lie in. */
static uint64_t largest_hole(const struct survey *survey, const struct range *regions, size_t count)
{
	const struct range *inside = NULL;
	uint64_t hole = 0, at = 0;
	size_t i;

	for (i = 0; i <= count; i++) {
		const struct range *range = i == count ? NULL : range_at(survey, regions[i].start);

		if (range != inside || i == count) {
			if (inside != NULL && inside->end > at && inside->end - at > hole)
				hole = inside->end - at;
			inside = range;
			at = range == NULL ? 0 : range->start;
		}
		if (inside == NULL)
			continue;
		if (regions[i].start > at && regions[i].start - at > hole)
			hole = regions[i].start - at;
		if (regions[i].end > at)
			at = regions[i].end;
	}
	return hole;
}

/* Finds the driver's blocks that pools have regions in, and the holes. */
static int survey_holes(struct survey *survey)
{
	struct range *regions = NULL, *range;
	size_t count = 0, room = 0, cursor = 0, i, found = 0;
	const struct block *block;
	int r = 0;

	while (r == 0 && (block = replay_next_block(survey->replay, &cursor)) != NULL) {
		const struct context *context = replay_context(survey->replay, block->context);

		if (is_driver_block(survey, context))
			r = add_range(&survey->ranges, &survey->range_count, &survey->range_room,
				      block);
		else if (context->device == survey->device && !pool_is_driver(context->pool))
			r = add_range(&regions, &count, &room, block);
	}
	if (survey->range_count > 0)
		qsort(survey->ranges, survey->range_count, sizeof(*survey->ranges), by_start);
	if (count > 0)
		qsort(regions, count, sizeof(*regions), by_start);
	for (i = 0; i < count; i++) {
		range = range_at(survey, regions[i].start);
		if (range != NULL)
			range->has_regions = true;
		found += range != NULL;
	}
	survey->hole_bytes = r == 0 && found > 0 && found == count
				     ? largest_hole(survey, regions, count)
				     : UINT64_MAX;
	free(regions);
	return r;
}

/* Blocks of other devices, and those of the driver that a pool has cut up: the pool's own blocks stand for them. */
static bool is_beside(void *arg, const struct block *block)
{
	struct survey *survey = arg;
	const struct context *context = replay_context(survey->replay, block->context);
	const struct range *range;

	if (context->device != survey->device)
		return true;
	if (!survey->pooled || context->pool != POOL_hal)
		return false;
	if (context->kind == BLOCK_CREATE)
		return true;
	range = range_at(survey, block->address);
	return range != NULL && range->has_regions;
}

/* ---- pools and places ---- */

static int most_first(const void *a, const void *b)
{
	const struct finding_oom_pool *x = a, *y = b;

	return ORDER_DOWN(x->reserved_bytes, y->reserved_bytes);
}

/* Totals of pools may be old: a pool that emptied its cache tells so only with its next block. No pool has more than the driver gave. */
static void clamp_pools(struct survey *survey, struct oom_verdict *verdict)
{
	uint64_t over = survey->driver_bytes == 0
				? 0
				: less_u64(survey->pool_reserved, survey->driver_bytes);
	uint32_t i;

	for (i = 0; i < verdict->pool_count && over > 0; i++) {
		struct finding_oom_pool *pool = &verdict->pools[i];
		uint64_t cut = less_u64(pool->reserved_bytes, pool->live_bytes);

		if (pool_is_driver(pool->pool))
			continue;
		if (cut > over)
			cut = over;
		pool->reserved_bytes -= cut;
		survey->pool_reserved -= cut;
		survey->pool_unused -= cut;
		over -= cut;
	}
}

/* The pools of the device; also sums them up. `oom` knows what its pool gave back since the last total. */
static void list_pools(struct survey *survey, const struct oom *oom, struct oom_verdict *verdict)
{
	size_t count, i;
	const struct usage *usages = replay_usages(survey->replay, &count);

	for (i = 0; i < count; i++) {
		const struct usage *usage = &usages[i];
		bool driver = pool_is_driver(usage->pool);
		struct finding_oom_pool pool = {.pool = usage->pool,
						.live_bytes = usage->live_bytes,
						.live_blocks = usage->live_blocks,
						.reserved_bytes = usage->live_bytes,
						.waiting_bytes = usage->waiting_bytes,
						.private_bytes = usage->private_bytes};

		if (usage->device != survey->device ||
		    (usage->live_bytes == 0 && (driver || usage->reserved_bytes == 0)))
			continue;
		if (!driver) {
			if (usage->pool == oom->pool) {
				pool.reserved_bytes = oom->after.reserved_bytes;
				survey->asked_reserved = pool.reserved_bytes;
				survey->asked_most = usage->peak_reserved_bytes;
			} else if (usage->reserved_bytes > usage->live_bytes)
				pool.reserved_bytes = usage->reserved_bytes;
			survey->pooled = true;
			survey->pool_live += pool.live_bytes;
			survey->pool_reserved += pool.reserved_bytes;
			survey->pool_unused += less_u64(pool.reserved_bytes, pool.live_bytes);
			survey->waiting += usage->waiting_bytes;
			survey->private_unused +=
				less_u64(usage->private_bytes, usage->private_live_bytes);
		} else if (usage->pool == POOL_hal) {
			survey->driver_bytes = usage->live_bytes;
			survey->paged_bytes = driver_pages_taken(&usage->pages);
			/* Managed memory is in no pages of its own. */
			if (survey->paged_bytes < survey->driver_bytes)
				survey->paged_bytes = survey->driver_bytes;
		}
		if (verdict->pool_count < OOM_POOLS)
			verdict->pools[verdict->pool_count++] = pool;
	}
	qsort(verdict->pools, verdict->pool_count, sizeof(*verdict->pools), most_first);
	clamp_pools(survey, verdict);
}

static void list_place(struct oom_verdict *verdict, const struct oom_place *place)
{
	uint32_t at = verdict->place_count, i;

	if (at == OOM_PLACES) {
		at--;
		if (verdict->places[at].bytes >= place->bytes)
			return;
	} else {
		verdict->place_count++;
	}
	for (i = at; i > 0 && verdict->places[i - 1].bytes < place->bytes; i--)
		verdict->places[i] = verdict->places[i - 1];
	verdict->places[i] = *place;
}

/* ---- growth ---- */

struct growth {
	uint64_t bytes; /* of the pool that grew most */
	struct rise rise;
	uint8_t pool;
	struct oom_place place; /* that grew most; no bytes: none did */
	enum level_series kind;
	bool scales; /* steps work on more and more, and keep nothing of it, which is not growth */
};

/* Blocks of a program that does nothing but allocate, from which it is growth; and those of one place in a row. */
#define GROWTH_BLOCKS 8u
#define ROW_BLOCKS    4u

/*
 * A place that the refused request is one more block of: of a size like theirs, and none was freed as far as can be seen. Where other
 * blocks came and went before, they may be those of one long batch.
 */
static bool is_row(const struct oom_state *state, struct replay *replay, const struct oom *oom,
		   size_t place, const struct usage *usage)
{
	const struct level_hold hold = levels_hold(&state->levels, place);

	return hold.blocks > 0 &&
	       (state->levels.steps != 0 ||
		usage->frees * 8 <= usage->allocations - usage->frees) &&
	       oom->requested_bytes / 2 <= hold.largest &&
	       hold.largest / 2 <= oom->requested_bytes &&
	       levels_never_fell(&state->levels, place) &&
	       levels_is_of(replay, &state->levels.places[place], oom);
}

/*
 * A program that has freed nothing and ended no step may be filling the device as it means to. It grows only if what it asks for is
 * more of the same: at the place of many blocks, or of a size like theirs. `place` may be NULL.
 */
static bool is_filling(const struct oom_state *state, struct replay *replay, const struct oom *oom,
		       const struct level_place *place, const struct usage *usage, size_t index)
{
	if (state->levels.steps != 0 || usage->frees != 0)
		return false;
	if (usage->live_blocks < GROWTH_BLOCKS)
		return true;
	if (place != NULL && levels_is_of(replay, place, oom))
		return false;
	return usage->live_blocks < 2 * GROWTH_BLOCKS ||
	       oom->requested_bytes / 2 > state->levels.pools[index].largest_request;
}

/* Without steps, a rise in which nothing was freed is no growth but one peak. */
static bool is_burst(const struct oom_state *state, const struct usage *usage, size_t index,
		     const struct growth *growth, const struct rise *rise)
{
	return growth->kind == BY_ALLOCATIONS &&
	       levels_is_burst(&state->levels, usage, index, rise->middle);
}

/* Whether what a pool has gained is missing where the request was refused. */
static bool matters(const struct survey *survey, const struct oom_verdict *verdict,
		    const struct usage *usage)
{
	return usage->device == survey->device &&
	       !(is_pool_limited(verdict) && pool_is_driver(usage->pool));
}

/* The place has blocks that the device of the survey is short of. */
static void grow_by_place(const struct oom_state *state, const struct survey *survey,
			  const struct oom *oom, const struct oom_verdict *verdict,
			  struct growth *growth, uint64_t *sums, uint64_t *scaled)
{
	const struct levels *levels = &state->levels;
	size_t usage_count, i;
	const struct usage *usages = replay_usages(survey->replay, &usage_count);
	uint64_t past[SAMPLES];
	struct rise rise;

	for (i = 0; i < levels->place_count; i++) {
		const struct level_place *place = &levels->places[i];
		const struct level_hold hold = levels_hold(levels, i);
		const struct usage *usage = &usages[place->usage];

		if (!matters(survey, verdict, usage))
			continue;
		/* Of a driver's place that is now mostly the pool's, little is left. */
		levels_of_place(levels, place, growth->kind, past);
		rise = levels_rise(&levels->series[growth->kind], growth->kind, past, hold.bytes);
		if (rise.bytes == 0 ||
		    is_filling(state, survey->replay, oom, place, usage, place->usage) ||
		    is_burst(state, usage, place->usage, growth, &rise))
			continue;
		if (growth->kind == BY_STEPS && levels_place_scales(levels, i, past)) {
			scaled[place->usage] += rise.bytes;
			growth->scales = true;
			continue;
		}
		sums[place->usage] += rise.bytes;
		if (rise.bytes > growth->place.grown_bytes) {
			growth->place = (struct oom_place){.stack = place->stack,
							   .pool = usage->pool,
							   .bytes = hold.bytes,
							   .blocks = hold.blocks,
							   .size_bytes = hold.largest,
							   .grown_bytes = rise.bytes};
			growth->rise = rise;
		}
	}
}

/*
 * Samples may be too few to see blocks come one by one, and a line of Python has several stacks. Then the blocks in a row that the
 * refused request is one more of have grown, but for the first; where there are steps, earlier ones must have brought them.
 */
static void grow_by_row(const struct oom_state *state, const struct survey *survey,
			const struct oom *oom, const struct oom_verdict *verdict,
			struct growth *growth, uint64_t *sums)
{
	const struct levels *levels = &state->levels;
	size_t usage_count, i;
	const struct usage *usages = replay_usages(survey->replay, &usage_count);
	struct oom_place row = {0};
	uint64_t largest = 0;
	uint32_t index = 0;
	bool rose = levels->steps == 0;

	for (i = 0; i < levels->place_count; i++) {
		const struct level_place *place = &levels->places[i];
		const struct level_hold hold = levels_hold(levels, i);
		const struct usage *usage = &usages[place->usage];

		if (usage->pool != oom->pool || !matters(survey, verdict, usage) ||
		    !is_row(state, survey->replay, oom, i, usage))
			continue;
		row.bytes += hold.bytes;
		row.blocks += hold.blocks;
		if (hold.largest > row.size_bytes)
			row.size_bytes = hold.largest;
		if (hold.bytes > largest) {
			largest = hold.bytes;
			row.stack = place->stack;
			index = place->usage;
		}
		rose = rose || levels_rose_by_steps(levels, place);
	}
	if (row.blocks < ROW_BLOCKS || !rose ||
	    (levels->steps != 0 && levels_usual(levels, index) < row.bytes))
		return;
	row.pool = oom->pool;
	row.grown_bytes = row.bytes - row.size_bytes;
	growth->place = row;
	sums[index] = row.grown_bytes;
}

static struct growth growth_of(const struct oom_state *state, const struct survey *survey,
			       const struct oom *oom, const struct oom_verdict *verdict)
{
	const struct levels *levels = &state->levels;
	struct growth growth = {.kind = BY_ALLOCATIONS};
	size_t usage_count, i;
	const struct usage *usages = replay_usages(survey->replay, &usage_count);
	uint64_t *sums = calloc(2 * usage_count + 1, sizeof(*sums)), *scaled;
	struct rise rise;

	if (sums == NULL)
		return growth;
	scaled = sums + usage_count;
	if (levels->series[BY_STEPS].count >= 4)
		growth.kind = BY_STEPS;
	grow_by_place(state, survey, oom, verdict, &growth, sums, scaled);
	if (growth.place.bytes == 0)
		grow_by_row(state, survey, oom, verdict, &growth, sums);
	for (i = 0; i < usage_count && i < levels->pool_count; i++) {
		if (!matters(survey, verdict, &usages[i]))
			continue;
		rise = levels_rise(&levels->series[growth.kind], growth.kind,
				   levels->pools[i].levels[growth.kind],
				   levels_now(usages, usage_count, &usages[i]));
		if (is_filling(state, survey->replay, oom, NULL, &usages[i], i) ||
		    is_burst(state, &usages[i], i, &growth, &rise))
			rise.bytes = 0;
		if (rise.bytes > 0 && growth.kind == BY_STEPS && levels_pool_scales(levels, i)) {
			growth.scales = true;
			rise.bytes = 0;
		}
		rise.bytes = less_u64(rise.bytes, scaled[i]);
		if (rise.bytes > sums[i])
			sums[i] = rise.bytes;
		if (sums[i] <= growth.bytes)
			continue;
		growth.bytes = sums[i];
		growth.pool = usages[i].pool;
		if (growth.place.bytes == 0)
			growth.rise = rise;
	}
	free(sums);
	return growth;
}

/* ---- the verdict ---- */

/* What the device has in all, for comparison; where that is not known, what the program has shown that there is. */
static uint64_t scale_of(const struct oom_verdict *verdict)
{
	uint64_t scale = is_pool_limited(verdict) ? verdict->limit_bytes : verdict->process_bytes;

	if (!oom_is_limited(verdict) && verdict->total_bytes != UINT64_MAX &&
	    verdict->total_bytes != 0)
		return verdict->total_bytes;
	return scale > verdict->requested_bytes ? scale : verdict->requested_bytes;
}

/* Whether the request had fitted with so many bytes more. */
static bool explains(const struct oom_verdict *verdict, uint64_t bytes)
{
	uint64_t left = is_pool_limited(verdict)	    ? verdict->room_bytes
			: verdict->free_bytes == UINT64_MAX ? 0
							    : verdict->free_bytes;

	return bytes > 0 && left + bytes >= verdict->requested_bytes;
}

static void find_others(const struct survey *survey, struct oom_verdict *verdict)
{
	const struct driver_usage *driver = replay_driver_usage(survey->replay, survey->device);
	uint64_t sampled = 0;

	verdict->process_bytes =
		survey->driver_bytes > 0 ? survey->driver_bytes : survey->pool_reserved;
	if (verdict->process_bytes == 0 && verdict->pool_count > 0)
		verdict->process_bytes = verdict->pools[0].live_bytes;
	verdict->pages_bytes = survey->paged_bytes - survey->driver_bytes;
	verdict->others_bytes = UINT64_MAX;
	/* Of the host, other processes are not counted one by one. */
	if (survey->device >= DEVICE_HOST)
		return;
	if (driver != NULL && driver->process_bytes != UINT64_MAX &&
	    driver->device_bytes != UINT64_MAX)
		sampled = less_u64(driver->device_bytes, driver->process_bytes);
	if (verdict->total_bytes != UINT64_MAX && verdict->free_bytes != UINT64_MAX) {
		uint64_t rest = less_u64(verdict->total_bytes,
					 verdict->free_bytes + verdict->process_bytes);

		/* No more is lost than is missing. */
		if (verdict->pages_bytes > rest)
			verdict->pages_bytes = rest;
		verdict->others_bytes = rest - verdict->pages_bytes;
	}
	if (sampled > 0 && (verdict->others_bytes == UINT64_MAX || sampled > verdict->others_bytes))
		verdict->others_bytes = sampled;
}

struct candidate {
	enum oom_cause cause;
	uint64_t bytes;
};

static void consider(struct candidate *best, enum oom_cause cause, uint64_t bytes)
{
	if (bytes > best->bytes)
		*best = (struct candidate){cause, bytes};
}

/*
 * Whether what is beyond the usual are a few large blocks, and the refused request is one more like them: then no batch became larger,
 * the program holds more of the same than fits. Where steps are known, they say what is usual: then it is one that an earlier step had at
 * the same place and kept, and the request is all that is beyond the usual.
 */
static bool is_one_more(const struct oom_state *state, const struct survey *survey,
			const struct oom *oom, uint64_t usual, uint64_t beyond)
{
	uint64_t bytes = 0, blocks = 0;
	bool kept = false;
	size_t count, i;
	const struct usage *usages = replay_usages(survey->replay, &count);

	for (i = 0; i < state->levels.place_count; i++) {
		const struct level_place *place = &state->levels.places[i];
		const struct level_hold hold = levels_hold(&state->levels, i);
		const struct usage *usage = &usages[place->usage];

		if (hold.blocks == 0 || usage->pool != oom->pool ||
		    usage->device != survey->device ||
		    hold.largest / 5 * 4 > oom->requested_bytes ||
		    hold.largest < oom->requested_bytes / 5 * 4)
			continue;
		bytes += hold.bytes;
		blocks += hold.blocks;
		kept |= levels_is_of(survey->replay, place, oom);
	}
	if (state->levels.steps > 0)
		return kept && beyond <= oom->requested_bytes;
	return blocks > 0 && blocks < ROW_BLOCKS && bytes > usual &&
	       bytes >= less_u64(beyond, oom->requested_bytes) / 2;
}

/* How far this request goes beyond all that was in use before; 0: not far. */
static uint64_t spike_of(const struct oom_state *state, const struct survey *survey,
			 const struct oom *oom, struct oom_verdict *verdict)
{
	const struct levels *levels = &state->levels;
	uint64_t scale = scale_of(verdict), usual = 0, live = 0, largest = 0, beyond = 0, left;
	size_t count, i;
	const struct usage *usages = replay_usages(survey->replay, &count);

	for (i = 0; i < count && i < levels->pool_count; i++) {
		if (usages[i].device != survey->device)
			continue;
		if (usages[i].pool == oom->pool) {
			usual = levels_usual(levels, i);
			live = usages[i].live_bytes;
			verdict->most_bytes = usages[i].peak_bytes;
		}
		if (levels->pools[i].largest_request > largest)
			largest = levels->pools[i].largest_request;
	}
	verdict->usual_bytes = usual;
	verdict->largest_bytes = largest;
	if (verdict->requested_bytes > scale)
		return verdict->requested_bytes;
	if (usual > 0)
		beyond = less_u64(live + verdict->requested_bytes, usual);
	if (is_one_more(state, survey, oom, usual, beyond))
		beyond = 0;
	/* Far larger than any before, or most of the device at once and not one more of the same. */
	if ((verdict->requested_bytes / 4 >= largest ||
	     (verdict->requested_bytes >= scale / 2 && verdict->requested_bytes / 2 >= largest)) &&
	    verdict->requested_bytes > beyond)
		beyond = verdict->requested_bytes;
	left = less_u64(scale, verdict->others_bytes == UINT64_MAX || is_pool_limited(verdict)
				       ? 0
				       : verdict->others_bytes);
	/* The device was nearly full all the time: a little more is no spike. */
	if (usual >= left / 20 * 17 && verdict->requested_bytes < scale / 4)
		return 0;
	return beyond >= scale / 8 && beyond >= usual / 4 ? beyond : 0;
}

/* Enough is reserved and not in use, in pieces that are too small. */
static bool is_fragmented(const struct oom_verdict *verdict, uint64_t scale)
{
	uint64_t requested = verdict->requested_bytes, unused = verdict->unused_bytes;

	/* A little is wasted always. */
	return unused >= requested / 2 && (unused >= scale / 10 || unused / 4 >= requested) &&
	       explains(verdict, unused) &&
	       (verdict->hole_bytes == UINT64_MAX || verdict->hole_bytes < requested);
}

/* Blocks that do not fill the driver's pages leave enough of them. */
static bool is_in_pages(const struct oom_verdict *verdict, uint64_t scale)
{
	return !is_pool_limited(verdict) && verdict->pages_bytes >= scale / 10 &&
	       explains(verdict, verdict->pages_bytes);
}

/* The driver's memory beside the pools, unless its growth says more. */
static bool is_outside(const struct survey *survey, const struct oom_verdict *verdict,
		       const struct growth *growth, uint64_t scale)
{
	uint64_t outside = verdict->outside_bytes;

	if (is_pool_limited(verdict))
		return false;
	if (pool_is_driver(growth->pool) && explains(verdict, growth->bytes) &&
	    growth->bytes >= outside / 2)
		return false;
	return explains(verdict, outside) && (outside >= scale / 4 || outside > survey->pool_live);
}

static bool is_others(const struct oom_verdict *verdict, uint64_t scale)
{
	return !is_pool_limited(verdict) && verdict->others_bytes != UINT64_MAX &&
	       verdict->others_bytes >= scale / 5 && explains(verdict, verdict->others_bytes);
}

/* Of what private pools keep, a little is wasted always. */
static bool is_private(const struct oom_verdict *verdict, uint64_t scale)
{
	uint64_t kept = verdict->private_bytes;

	return (kept >= scale / 10 || kept / 4 >= verdict->requested_bytes) &&
	       explains(verdict, kept);
}

/*
 * A program that has ended no step is still making its model, its gradients, its optimizer's state: that rises, too. It grows only where a
 * call site does; without call stacks that cannot be seen.
 */
static bool is_beginning(const struct oom_state *state, const struct growth *growth,
			 const struct oom_verdict *verdict)
{
	return state->levels.steps == 0 && growth->place.bytes == 0 && verdict->stack != 0;
}

static void tell_growth(const struct growth *growth, struct oom_verdict *verdict)
{
	verdict->grown_pool = growth->pool;
	verdict->grown_place = growth->place;
	verdict->by_steps = growth->kind == BY_STEPS;
	if (!verdict->by_steps || growth->rise.to <= growth->rise.from)
		return;
	verdict->grown_steps = (uint32_t)(growth->rise.to - growth->rise.from);
	verdict->per_step_bytes =
		(growth->place.bytes != 0 ? growth->place.grown_bytes : growth->bytes) /
		verdict->grown_steps;
}

/* Whether the level at which the device is full is one that the program has long been at. */
static void tell_full(const struct oom_state *state, const struct usage *asked, size_t index,
		      struct oom_verdict *verdict)
{
	verdict->held_bytes = asked->live_bytes;
	verdict->held_blocks = asked->live_blocks;
	verdict->freed_blocks = asked->frees;
	verdict->steady = levels_are_steady(&state->levels, index, asked->live_bytes);
}

static void tell_spike(const struct oom_state *state, struct oom_verdict *verdict)
{
	verdict->by_steps = state->levels.steps > 0 && verdict->step != 0;
}

/* The pool that was asked; NULL: it never had a block. */
static const struct usage *asked_pool(const struct survey *survey, const struct oom *oom,
				      size_t *out_index)
{
	size_t count, i;
	const struct usage *usages = replay_usages(survey->replay, &count);

	for (i = 0; i < count; i++) {
		if (usages[i].device == survey->device && usages[i].pool == oom->pool) {
			*out_index = i;
			return &usages[i];
		}
	}
	return NULL;
}

static void judge(const struct oom_state *state, const struct survey *survey, const struct oom *oom,
		  struct oom_verdict *verdict)
{
	uint64_t scale = scale_of(verdict), spike;
	struct growth growth = growth_of(state, survey, oom, verdict);
	struct candidate best = {.cause = OOM_CAUSE_FULL};
	size_t index = 0;
	const struct usage *asked = asked_pool(survey, oom, &index);

	/* Each step needs more than the one before, and this one too much; it may have only started. */
	if (growth.scales && asked != NULL)
		verdict->scales = levels_needs_rise(&state->levels, index, &verdict->record_steps);
	if (explains(verdict, growth.bytes) && growth.bytes >= scale / 20 &&
	    !is_beginning(state, &growth, verdict))
		consider(&best, OOM_CAUSE_GROWTH, growth.bytes);
	if (is_fragmented(verdict, scale))
		consider(&best, OOM_CAUSE_FRAGMENTATION, verdict->unused_bytes);
	if (is_outside(survey, verdict, &growth, scale))
		consider(&best, OOM_CAUSE_OUTSIDE, verdict->outside_bytes);
	if (is_others(verdict, scale))
		consider(&best, OOM_CAUSE_OTHERS, verdict->others_bytes);
	if (verdict->waiting_bytes >= verdict->requested_bytes / 2 &&
	    explains(verdict, verdict->waiting_bytes))
		consider(&best, OOM_CAUSE_WAITING, verdict->waiting_bytes);
	if (is_private(verdict, scale))
		consider(&best, OOM_CAUSE_PRIVATE, verdict->private_bytes);
	/* What grows takes its pages with it. */
	if (best.cause != OOM_CAUSE_GROWTH && is_in_pages(verdict, scale))
		consider(&best, OOM_CAUSE_FRAGMENTATION, verdict->pages_bytes);
	spike = spike_of(state, survey, oom, verdict);
	if (spike / 2 >= best.bytes)
		consider(&best, OOM_CAUSE_SPIKE, spike);
	if (best.cause == OOM_CAUSE_FULL && verdict->scales)
		consider(&best, OOM_CAUSE_SPIKE, verdict->requested_bytes);
	/* The driver had enough and refused: its own memory is in pieces. */
	if (verdict->free_bytes != UINT64_MAX && verdict->free_bytes >= verdict->requested_bytes &&
	    verdict->device < DEVICE_HOST && !oom_is_limited(verdict))
		best = (struct candidate){OOM_CAUSE_FRAGMENTATION, verdict->free_bytes};
	verdict->cause = best.cause;
	verdict->cause_bytes = best.bytes;
	verdict->grown_bytes = growth.bytes;
	if (best.cause == OOM_CAUSE_GROWTH)
		tell_growth(&growth, verdict);
	if (best.cause == OOM_CAUSE_FULL && asked != NULL)
		tell_full(state, asked, index, verdict);
	if (best.cause == OOM_CAUSE_SPIKE)
		tell_spike(state, verdict);
}

static int survey_device(struct oom_state *state, struct survey *survey, const struct oom *oom,
			 struct oom_verdict *verdict)
{
	size_t usage_count, i;
	const struct usage *usages;
	int r = 0;

	list_pools(survey, oom, verdict);
	survey->hole_bytes = UINT64_MAX;
	if (survey->pooled)
		r = survey_holes(survey);
	if (r == 0)
		r = levels_walk(&state->levels, survey->replay, is_beside, survey);
	if (r < 0)
		return r;
	usages = replay_usages(survey->replay, &usage_count);
	for (i = 0; i < state->levels.place_count; i++) {
		const struct level_place *place = &state->levels.places[i];
		const struct level_hold hold = levels_hold(&state->levels, i);

		if (hold.bytes > 0)
			list_place(verdict, &(struct oom_place){.stack = place->stack,
								.pool = usages[place->usage].pool,
								.bytes = hold.bytes,
								.blocks = hold.blocks,
								.size_bytes = hold.largest});
	}
	if (is_pool_limited(verdict)) {
		verdict->limit_bytes = survey->asked_most > survey->asked_reserved
					       ? survey->asked_most
					       : survey->asked_reserved;
		verdict->room_bytes = verdict->limit_bytes - survey->asked_reserved;
	}
	verdict->waiting_bytes = survey->waiting;
	verdict->private_bytes = survey->private_unused;
	verdict->unused_bytes =
		less_u64(survey->pool_unused, survey->waiting + survey->private_unused);
	verdict->hole_bytes = survey->hole_bytes;
	verdict->outside_bytes =
		survey->pooled ? less_u64(survey->driver_bytes, survey->pool_reserved) : 0;
	find_others(survey, verdict);
	return 0;
}

bool oom_repeats(const struct oom *oom, uint64_t requested_bytes, uint32_t stack, uint64_t last_ns)
{
	return oom->requested_bytes == requested_bytes && oom->stack == stack &&
	       oom->time_ns - last_ns < REPEAT_NS;
}

/* The same request again: a program that tries until it succeeds. */
static bool is_repetition(const struct oom_verdict *last, const struct oom *oom, uint32_t device)
{
	return last->device == device &&
	       oom_repeats(oom, last->requested_bytes, last->stack, last->last_ns);
}

static int take_oom(struct oom_state *state, struct replay *replay, const struct oom *oom)
{
	struct survey survey = {.replay = replay, .device = oom->context->device};
	struct oom_verdict *last = state->count > 0 ? &state->verdicts[state->count - 1] : NULL;
	struct oom_verdict *verdict;
	int r;

	state->numbered++;
	if (last != NULL &&
	    (is_repetition(last, oom, survey.device) || state->count == VERDICTS_MAX)) {
		last->repeats++;
		last->last_ns = oom->last_ns;
		return 0;
	}
	r = ARRAY_RESERVE(state->verdicts, state->room, state->count + 1);
	if (r < 0)
		return r;
	verdict = &state->verdicts[state->count];
	*verdict = (struct oom_verdict){.number = state->numbered,
					.time_ns = oom->time_ns,
					.last_ns = oom->last_ns,
					.device = survey.device,
					.tid = oom->tid,
					.step = oom->seen_step,
					.pool = oom->pool,
					.call = oom->call,
					.vendor = oom->context->vendor,
					.tries = oom->tries,
					.stack = oom->stack,
					.requested_bytes = oom->requested_bytes,
					.free_bytes = oom->after.free_bytes,
					.total_bytes = oom->after.total_bytes,
					.given_back_bytes = oom->given_back_bytes};
	r = survey_device(state, &survey, oom, verdict);
	if (r == 0)
		judge(state, &survey, oom, verdict);
	free(survey.ranges);
	if (r == 0)
		state->count++;
	return r;
}

/* ---- as an analysis ---- */

static int on_row(void *arg, struct replay *replay, const struct row *row)
{
	struct oom_state *state = arg;

	if (row->oom == NULL || !row->oom->ended)
		return 0;
	if (row->oom->recovered) {
		state->recovered++;
		return 0;
	}
	return take_oom(state, replay, row->oom);
}

static int on_block(void *arg, struct replay *replay, enum block_change change,
		    const struct block *block, const struct usage *usage, uint32_t owner)
{
	struct oom_state *state = arg;

	(void)change;
	(void)owner;
	return usage == NULL ? 0 : levels_allocated(&state->levels, replay, block, usage);
}

static int on_step(void *arg, struct replay *replay, uint32_t step, bool begins)
{
	struct oom_state *state = arg;

	return begins ? 0 : levels_step_ended(&state->levels, replay, step);
}

/* In a checkpoint. Verdicts are plain words. Samples of earlier moments are not kept: they begin again. */
_Static_assert(sizeof(struct oom_verdict) % 8 == 0, "a verdict is whole words");

static int keep(void *arg, const struct replay *replay, struct words *words)
{
	struct oom_state *state = arg;
	size_t i;

	(void)replay;
	KEEP(words, state->numbered);
	KEEP(words, state->recovered);
	if (words_array(words, &state->verdicts, &state->count, &state->room,
			sizeof(*state->verdicts)) < 0)
		return -ENOMEM;
	words->failed |= state->count > VERDICTS_MAX;
	for (i = 0; i < state->count; i++) {
		words_memory(words, &state->verdicts[i], sizeof(state->verdicts[i]));
		words->failed |= state->verdicts[i].pool_count > OOM_POOLS ||
				 state->verdicts[i].place_count > OOM_PLACES ||
				 state->verdicts[i].cause >= OOM_CAUSES;
	}
	if (words->failed)
		state->count = 0;
	return 0;
}

static int text(void *arg, const struct analysis_view *view, struct strbuf *out)
{
	(void)arg;
	ooms_text(view->found, view->replay, view->lines != UINT32_MAX, view->frames, out);
	return strbuf_failed(out) ? -ENOMEM : 0;
}

static int json(void *arg, const struct analysis_view *view, struct json *json)
{
	(void)arg;
	findings_json(view->found, FINDING_oom, "oom", SIZE_MAX, json);
	return 0;
}

static int find(const void *arg, struct replay *replay, struct findings *out)
{
	const struct oom_state *state = arg;
	size_t i;

	for (i = 0; i < state->count; i++)
		oom_find(&state->verdicts[i], replay, out);
	out->ooms_recovered = state->recovered;
	return out->failed ? -ENOMEM : 0;
}

/* Verdicts were found when requests were refused. */
static void end(void *arg)
{
	struct oom_state *state = arg;

	levels_fini(&state->levels);
	state->levels = (struct levels){0};
}

static void fini(void *arg)
{
	struct oom_state *state = arg;

	end(state);
	free(state->verdicts);
}

const struct analysis analysis_oom = {
	.name = "oom",
	.word = "oom",
	.nothing = "No out-of-memory error in this run.\n",
	.bits = SESSION_OOM,
	.always = true,
	.state_bytes = sizeof(struct oom_state),
	.rows = 1u << ROW_SNAPSHOT,
	.blocks = 1u << BLOCK_ADDED,
	.row = on_row,
	.step = on_step,
	.block = on_block,
	.version = 5,
	.keep = keep,
	.end = end,
	.judge = find,
	.text = text,
	.json = json,
	.fini = fini,
};

size_t analyses_oom_count(const struct analyses *analyses)
{
	const struct oom_state *state = analyses->state[ANALYSIS_ID_oom];

	return state == NULL ? 0 : state->count;
}

void analyses_find_ooms(const struct analyses *analyses, struct replay *replay,
			struct findings *found)
{
	if (analyses->state[ANALYSIS_ID_oom] != NULL)
		(void)find(analyses->state[ANALYSIS_ID_oom], replay, found);
}
