/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The end of the analysis of leaks: what lives is given to its places, places with the same functions and lines become one, and each
 * place and each pool is judged.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/analyses.h"
#include "analysis/leaks_judge.h"
#include "analysis/whole_device.h"
#include "findings/site.h"
#include "base/array.h"
#include "base/index.h"
#include "base/vendors.h"

/* So many places that have grown and stopped, one after the other, may be a pool that grows. */
#define POOL_GROWN 6u
/* Least number of steps in which a pool that may be growing rose: two are a coincidence, as for a call site. */
#define POOL_RISES 3u

/* By time: the fewest parts that are judged. */
#define PARTS_MIN 50u

/* Without a stack: a place that left blocks in fewer than one of so many steps may be a part of one of many sizes. */
#define LOOSE_SHARE 16u

void leaks_findings_free(struct leaks_findings *findings)
{
	struct leaks_result *found = (struct leaks_result *)(void *)findings;
	size_t i;

	if (found == NULL)
		return;
	for (i = 0; i < found->told.place_count; i++)
		free(found->places[i].list);
	free(found->places);
	free(found->pools);
	free(found->unjudged);
	free(found->forecasts);
	free(found);
}

/* ---- places that are one ---- */

static uint64_t hash_merged(uint32_t group, uint32_t site, uint64_t size)
{
	return (((uint64_t)group << 32 | site) + size * UINT64_C(0xd6e8feb86659fd93)) *
	       UINT64_C(0x9fb21c651e98df25);
}

/* The merged place of a group, site and size, new or known; UINT32_MAX: no memory. */
static uint32_t merged_at(struct judge *j, struct index *index, const struct place *place,
			  uint32_t site)
{
	uint64_t hash = hash_merged(place->group, site, place->size);
	struct index_search search = index_search(hash);
	uint32_t at;

	while (index_next(index, &search, &at)) {
		const struct place *other = merged_place(j, &j->merged[at]);

		if (other->group == place->group && other->size == place->size &&
		    (other->stack == 0 ? 0 : site_of(j->replay, other->stack)) == site)
			return at;
	}
	if (index_add(index, hash, j->merged_count) < 0)
		return UINT32_MAX;
	return (uint32_t)j->merged_count++;
}

/* Adds a place to a merged one. */
static int join(struct judge *j, struct merged *merged, uint32_t place, bool is_new)
{
	const struct place *from = &j->leaks->places[place];

	if (is_new)
		*merged = (struct merged){.first = place};
	else
		j->next[merged->at] = place + 1;
	merged->at = place;
	j->groups[from->group].freed += (uint64_t)from->growth.instep + from->growth.late;
	if (from->stack != 0)
		return 0;
	if (merged->growth == NULL)
		merged->growth = calloc(1, sizeof(*merged->growth));
	return merged->growth == NULL ? -ENOMEM : growth_merge(merged->growth, &from->growth);
}

static int merge_places(struct judge *j)
{
	const struct leaks *leaks = j->leaks;
	struct index index = {0};
	size_t i;
	int r = 0;

	for (i = 0; i < leaks->place_count && r == 0; i++) {
		const struct place *place = &leaks->places[i];
		size_t before = j->merged_count;
		uint32_t site = place->stack == 0 ? 0 : site_of(j->replay, place->stack);

		j->canon[i] = merged_at(j, &index, place, site);
		if (j->canon[i] == UINT32_MAX)
			r = -ENOMEM;
		else
			r = join(j, &j->merged[j->canon[i]], (uint32_t)i, j->merged_count > before);
	}
	index_fini(&index);
	return r;
}

/* The history of all that a merged place is made of. */
static int growth_of(const struct judge *j, const struct merged *merged, struct growth *out)
{
	uint32_t at = merged->first + 1;
	int r = 0;

	for (; at != 0 && r == 0; at = j->next[at - 1])
		r = growth_merge(out, &j->leaks->places[at - 1].growth);
	return r;
}

/* ---- what lives ---- */

static int not_judged_all(struct judge *j, enum leaks_unjudged_reason reason,
			  const struct group *group, uint64_t blocks, uint64_t bytes)
{
	struct leaks_result *found = j->found;
	struct leaks_unjudged *u;
	size_t i;

	for (i = 0; i < found->told.unjudged_count; i++) {
		u = &found->unjudged[i];
		if (u->reason == reason && u->pool == group->pool && u->device == group->device) {
			u->blocks += blocks;
			u->bytes += bytes;
			return 0;
		}
	}
	if (ARRAY_RESERVE(found->unjudged, found->unjudged_room, i + 1) < 0)
		return -ENOMEM;
	found->unjudged[found->told.unjudged_count++] =
		(struct leaks_unjudged){.reason = reason,
					.pool = group->pool,
					.device = group->device,
					.blocks = blocks,
					.bytes = bytes};
	return 0;
}

static int not_judged(struct judge *j, enum leaks_unjudged_reason reason, const struct group *group,
		      uint64_t bytes)
{
	return not_judged_all(j, reason, group, 1, bytes);
}

/* A block that its owner holds by right. */
static int hold(struct judge *j, struct merged *merged, const struct block *block)
{
	struct held *held;

	if (merged->held == 0) {
		if (ARRAY_RESERVE(j->held, j->held_room, j->held_count + 1) < 0)
			return -ENOMEM;
		j->held[j->held_count++] = (struct held){0};
		merged->held = (uint32_t)j->held_count;
	}
	held = &j->held[merged->held - 1];
	held->blocks++;
	held->bytes += block->size_bytes;
	held->owner = block->owner;
	return 0;
}

/* True if a live block is judged as a part of its place; else it is noted why not. */
static bool is_judged(struct judge *j, const struct block *block, uint32_t place, uint32_t step,
		      int *out_error)
{
	const struct context *context = replay_context(j->replay, block->context);
	struct group group = {.pool = context->pool, .device = context->device};
	bool pooled;

	*out_error = 0;
	if (block->outside_window || place == UINT32_MAX) {
		*out_error = not_judged(j, LEAKS_OUTSIDE_WINDOW, &group, block->size_bytes);
		return false;
	}
	group = j->leaks->groups[j->leaks->places[place].group];
	pooled = j->leaks->devices[group.on].pooled;
	if (leaks_owner_holds(j->replay, block->owner)) {
		*out_error = hold(j, &j->merged[j->canon[place]], block);
		return false;
	}
	if (leaks_is_claimed(j->leaks, &group, block))
		*out_error = not_judged(j, LEAKS_POOL_CACHE, &group, block->size_bytes);
	else if (!j->found->told.judged)
		*out_error = not_judged(j, LEAKS_NO_STEP, &group, block->size_bytes);
	else if (step > j->leaks->ended)
		*out_error = not_judged(j, LEAKS_AFTER_LAST, &group, block->size_bytes);
	else if (group.pool == POOL_hal && device_stack_is_pooled(j->replay, block->stack))
		*out_error = not_judged(j, LEAKS_POOL_FOREIGN, &group, block->size_bytes);
	else if (group.handles && pooled && leaks_reserved(j->replay, group.device) == 0)
		*out_error = not_judged(j, LEAKS_HANDLES, &group, block->size_bytes);
	else
		return !(group.handles && pooled);
	return false;
}

static void add_survivor(struct judge *j, uint32_t place, struct survivor survivor)
{
	survivor.place = j->canon[place] & INT32_MAX;
	j->survivors[j->merged[survivor.place].at++] = survivor;
}

/* Each place has room for all of its blocks: what is not judged leaves a gap there. */
static int gather(struct judge *j)
{
	const struct block *block;
	size_t cursor = 0, i;
	int r = 0;

	leaks_make_room(j);
	while (r == 0 && (block = replay_next_observed(j->replay, &cursor)) != NULL) {
		uint32_t place = leaks_place_of(j->leaks, j->replay, block);
		uint32_t step = leaks_step_of(j->leaks, block);

		if (is_judged(j, block, place, step, &r))
			add_survivor(j, place, (struct survivor){.of = block, .step = step});
	}
	for (i = 0; i < j->leaks->freed_count && j->found->told.judged; i++) {
		const struct freed *freed = &j->leaks->freed[i];
		const struct place *place = &j->leaks->places[freed->place];
		const struct group *group = &j->leaks->groups[place->group];

		if (r < 0 || freed->step > j->leaks->ended ||
		    (group->handles && j->leaks->devices[group->on].pooled))
			continue;
		if (group->pool == POOL_hal && device_stack_is_pooled(j->replay, place->stack))
			r = not_judged(j, LEAKS_POOL_FOREIGN, group, freed->block.size_bytes);
		else
			add_survivor(
				j, freed->place,
				(struct survivor){.of = freed, .freed = 1, .step = freed->step});
	}
	leaks_sort_survivors(j);
	return r;
}

/* Blocks of one call site may be of many layers. */
static uint32_t survivor_owner(const struct replay *replay, const struct survivor *s)
{
	return replay_owner_plain(replay,
				  s->freed ? survivor_freed(s)->owner : survivor_block(s)->owner);
}

/* ---- a place ---- */

static struct leaks_block listed_block(const struct judge *j, const struct survivor *s)
{
	const struct block *block = survivor_block(s);

	if (block == NULL)
		return survivor_freed(s)->block;
	return (struct leaks_block){.address = block->address,
				    .size_bytes = block->size_bytes,
				    .allocation_id = block->allocation_id,
				    .kernel = block->launches,
				    .step = j->leaks->by_step ? block->latest_step : s->step,
				    .stack = block->stack};
}

/* Lists the overdue blocks, or all of later steps if none is overdue; of kept places the first, for there may be millions. */
static int list_blocks(const struct judge *j, struct leaks_place *place, const struct survivor *all,
		       size_t count)
{
	size_t i, most = place->verdict == GROWTH_KEPT && count > LEAKS_KEPT ? LEAKS_KEPT : count;
	struct leaks_block *list = most == 0 ? NULL : calloc(most, sizeof(*list));

	if (most > 0 && list == NULL)
		return -ENOMEM;
	place->list = list;
	for (i = 0; i < count && place->list_count < most; i++) {
		bool overdue = growth_is_overdue(all[i].step, j->leaks->ended, place->usual_age);
		struct leaks_block *listed = &list[place->list_count];

		if (place->verdict != GROWTH_KEPT &&
		    !(place->overdue_blocks > 0 && (place->reason != GROWTH_SIZES ||
						    place->verdict == GROWTH_LEAK)
			      ? overdue
			      : all[i].step >= LEAKS_FIRST_STEP))
			continue;
		*listed = listed_block(j, &all[i]);
		place->listed_bytes += listed->size_bytes;
		place->late_blocks += listed->freed_late;
		place->list_count++;
	}
	place->listed_blocks = place->list_count;
	place->example_count =
		place->list_count < LEAKS_EXAMPLES ? (uint32_t)place->list_count : LEAKS_EXAMPLES;
	return 0;
}

bool leaks_describe(const struct judge *j, struct leaks_place *place, const struct survivor *all,
		    size_t count)
{
	bool weights = count > 0;
	size_t i;

	for (i = 0; i < count; i++) {
		uint64_t bytes = survivor_bytes(&all[i]);
		uint32_t owner = survivor_owner(j->replay, &all[i]);

		place->blocks++;
		place->bytes += bytes;
		if (i == 0 || bytes < place->size_min)
			place->size_min = bytes;
		if (bytes > place->size_max)
			place->size_max = bytes;
		if (i == 0)
			place->owner = owner;
		else if (place->owner != owner)
			place->owner = 0;
		if (all[i].step < LEAKS_FIRST_STEP)
			continue;
		weights = weights && replay_owner_class(j->replay, owner) == CLASS_weight;
		if (!growth_is_overdue(all[i].step, j->leaks->ended, place->usual_age)) {
			place->young_blocks++;
			place->young_bytes += bytes;
		}
	}
	return weights;
}

void leaks_take_judgement(const struct judge *j, struct leaks_place *place, const struct growth *g,
			  const struct growth_judgement *judgement)
{
	uint32_t offset = j->leaks->by_step ? j->leaks->offset : 0;

	place->verdict = judgement->verdict;
	place->reason = judgement->reason;
	place->usual_age = judgement->usual_age;
	place->freed = (uint64_t)g->instep + g->late;
	place->freed_usual = growth_freed_within(g, judgement->usual_age);
	place->overdue_blocks = judgement->overdue;
	place->overdue_bytes = judgement->overdue_bytes;
	place->first_step = judgement->first == 0 ? 0 : judgement->first + offset;
	place->last_step = judgement->last == 0 ? 0 : judgement->last + offset;
	place->rises = g->rose;
	place->rise_steps = judgement->first == 0 ? 0 : j->leaks->ended - judgement->first + 1;
	if (place->rises > place->rise_steps)
		place->rises = place->rise_steps;
	place->quiet = judgement->quiet;
	place->pause = judgement->longest_pause;
	if (judgement->verdict == GROWTH_KEPT) {
		place->bound_per_step = judgement->quiet == 0
						? 0
						: (double)judgement->rise_bytes / judgement->quiet;
		return;
	}
	place->bytes_per_step = judgement->rate;
	place->bytes_per_step_low = judgement->rate_low;
	place->bytes_per_step_high = judgement->rate_high;
	place->blocks_per_step = judgement->block_rate;
}

/*
 * By time a program that only starts looks like one that leaks. A loop is known by what it frees: without as many frees in the pool
 * as blocks that stay, nothing is called a leak.
 */
static bool has_loop(const struct judge *j, uint32_t group, uint64_t blocks)
{
	return j->groups[group].freed >= blocks;
}

/* Counts a place that is not kept into the growth of its pool. */
static void count_growth(struct judge *j, const struct leaks_place *place, uint32_t group)
{
	if (place->verdict != GROWTH_KEPT)
		j->groups[group].growth_of += place->share;
	if (place->verdict == GROWTH_LEAK)
		j->groups[group].leaking += place->bytes_per_step;
}

int leaks_add_place(struct judge *j, struct leaks_place *place, const struct survivor *all,
		    size_t count, uint32_t group)
{
	int r = list_blocks(j, place, all, count);

	count_growth(j, place, group);
	return r < 0 ? r : leaks_take_place(j, place);
}

/* Of so many sizes that one of them comes again in few steps only. */
static bool is_loose(const struct judge *j, const struct leaks_place *place,
		     const struct survivor *all, size_t count)
{
	size_t i, steps = 0, most = j->leaks->ended / LOOSE_SHARE;

	if (most < 2)
		most = 2;
	for (i = 0; i < count && steps <= most; i++)
		steps += all[i].step >= LEAKS_FIRST_STEP &&
			 (i == 0 || all[i].step != all[i - 1].step);
	return place->stack == 0 && place->verdict != GROWTH_LEAK && steps > 0 && steps <= most;
}

static int judge_growth(struct judge *j, const struct merged *merged, const struct growth *g,
			const struct survivor *all, size_t count)
{
	uint32_t stack = merged_place(j, merged)->stack, in = merged_place(j, merged)->group;
	const struct group *group = &j->leaks->groups[in];
	struct growth_facts facts = {.steps = j->leaks->ended,
				     .stacks_known = stack != 0,
				     .survivors = j->few,
				     .survivor_count = count};
	struct leaks_place place = {.pool = group->pool,
				    .device = group->device,
				    .stack = stack,
				    .beside_pool = group->pool == POOL_hal &&
						   j->leaks->devices[group->on].pooled};
	struct growth_judgement judgement;
	size_t i;

	for (i = 0; i < count; i++)
		j->few[i] = (struct growth_survivor){.step = all[i].step,
						     .bytes = survivor_judged(&all[i])};
	growth_judge(g, &facts, &judgement);
	leaks_take_judgement(j, &place, g, &judgement);
	if (place.verdict == GROWTH_LEAK && j->found->told.by_time &&
	    leaks_first_is_apart(all, count)) {
		if (place.overdue_blocks > 0 &&
		    growth_is_overdue(all[0].step, j->leaks->ended, place.usual_age)) {
			place.overdue_blocks--;
			place.overdue_bytes -= survivor_bytes(&all[0]);
		}
		all++;
		count--;
	}
	leaks_take_known(j, &place, all, count, judgement.rises);
	if (place.verdict == GROWTH_LEAK && j->found->told.by_time &&
	    !has_loop(j, in, place.overdue_blocks)) {
		place.verdict = GROWTH_SUSPECT;
		place.reason = GROWTH_TOO_SHORT;
	}
	place.share = (double)judgement.grown_bytes;
	if (place.verdict == GROWTH_SUSPECT && place.reason == GROWTH_TOO_SHORT &&
	    !j->found->told.by_time)
		place.missing = growth_missing(g, &facts, &judgement);
	place.every = place.verdict == GROWTH_LEAK && !j->found->told.by_time
			      ? growth_rhythm(&facts, judgement.usual_age)
			      : place.missing.every;
	if (is_loose(j, &place, all, count)) {
		if (ARRAY_RESERVE(j->loose, j->loose_room, j->loose_count + 1) < 0)
			return -ENOMEM;
		j->loose[j->loose_count++] =
			(struct loose){.place = place,
				       .survivors = all,
				       .count = count,
				       .merged = (uint32_t)(merged - j->merged)};
		return 0;
	}
	return leaks_add_place(j, &place, all, count, in);
}

static int judge_place(struct judge *j, const struct merged *merged, const struct survivor *all,
		       size_t count)
{
	struct growth g = {0};
	int r;

	if (merged->growth != NULL)
		return judge_growth(j, merged, merged->growth, all, count);
	r = growth_of(j, merged, &g);
	if (r == 0)
		r = judge_growth(j, merged, &g, all, count);
	growth_fini(&g);
	return r;
}

static int tell_held(struct judge *j, const struct merged *merged)
{
	const struct place *place = merged_place(j, merged);
	const struct group *group = &j->leaks->groups[place->group];
	const struct held *held = &j->held[merged->held - 1];

	return leaks_take_place(j, &(struct leaks_place){.verdict = GROWTH_KEPT,
							 .reason = GROWTH_OWNED,
							 .pool = group->pool,
							 .device = group->device,
							 .owner = held->owner,
							 .stack = place->stack,
							 .usual_age = -1,
							 .blocks = held->blocks,
							 .bytes = held->bytes});
}

static int judge_places(struct judge *j)
{
	size_t i, first = 0, next;
	int r = 0;

	for (i = 0; i < j->merged_count && r == 0; i++) {
		const struct merged *merged = &j->merged[i];

		for (next = first; next < j->survivor_count && j->survivors[next].place == i;)
			next++;
		if (next > first)
			r = judge_place(j, merged, j->survivors + first, next - first);
		first = next;
		if (merged->held != 0 && r == 0)
			r = tell_held(j, merged);
	}
	if (r == 0)
		r = leaks_settle_loose(j);
	leaks_forget_places(j);
	return r;
}

/* What the driver gave by handles, less what pools hold: one place, known by its level alone. */
static int judge_handles(struct judge *j)
{
	size_t i;
	int r = 0;

	for (i = 0; i < j->leaks->group_count && r == 0; i++) {
		const struct group *group = &j->leaks->groups[i];
		const struct growth *g = &j->leaks->devices[group->on].handles;
		struct growth_facts facts = {.steps = j->leaks->ended};
		struct leaks_place place = {.pool = group->pool,
					    .device = group->device,
					    .beside_pool = true,
					    .by_handles = true,
					    .bytes = g->before};
		struct growth_judgement judgement;

		if (!group->handles || !j->leaks->devices[group->on].pooled || g->before == 0 ||
		    leaks_reserved(j->replay, group->device) == 0)
			continue;
		growth_judge(g, &facts, &judgement);
		leaks_take_judgement(j, &place, g, &judgement);
		place.share = (double)judgement.grown_bytes;
		count_growth(j, &place, (uint32_t)i);
		r = leaks_take_place(j, &place);
	}
	return r;
}

/* ---- a pool ---- */

/* History and survivors of all places of a pool; those by handles may be judged by their level alone. */
static int pool_growth(struct judge *j, const struct group *group, struct growth *g,
		       size_t *out_count)
{
	const struct leaks *leaks = j->leaks;
	size_t i;
	int r = 0;

	*out_count = 0;
	for (i = 0; i < leaks->group_count && r == 0; i++) {
		const struct group *other = &leaks->groups[i];
		bool by_level = other->handles && leaks->devices[other->on].pooled;

		if (leaks_same_pool(other, group))
			r = growth_merge(g, by_level ? &leaks->devices[other->on].handles
						     : &other->growth);
	}
	for (i = 0; i < leaks->place_count && r == 0; i++) {
		if (leaks_same_pool(&leaks->groups[leaks->places[i].group], group))
			r = growth_merge_ages(g, &leaks->places[i].growth);
	}
	return r < 0 ? r : leaks_pool_survivors(j, group, out_count);
}

static const struct usage *usage_of(const struct judge *j, const struct group *group)
{
	size_t count, i;
	const struct usage *usages = replay_usages(j->replay, &count);

	for (i = 0; i < count; i++) {
		if (usages[i].pool == group->pool && usages[i].device == group->device)
			return &usages[i];
	}
	return NULL;
}

static void fill_pool(const struct judge *j, const struct group *group, struct leaks_pool *pool)
{
	const struct driver_usage *driver = replay_driver_usage(j->replay, group->device);
	const struct usage *usage = usage_of(j, group);
	uint64_t blocks;
	double leaking = 0;
	size_t i;

	for (i = 0; i < j->leaks->group_count; i++) {
		if (leaks_same_pool(&j->leaks->groups[i], group))
			leaking += j->groups[i].leaking;
	}
	pool->peak_bytes = usage == NULL ? 0 : usage->peak_bytes;
	if (usage != NULL)
		replay_usage_at_end(j->replay, usage, &pool->end_bytes, &blocks);
	pool->capacity_bytes = driver == NULL ? 0 : driver->total_bytes;
	pool->rise_steps = j->leaks->ended > 0 ? j->leaks->ended - 1 : 0;
	if (pool->rises > pool->rise_steps)
		pool->rises = pool->rise_steps;
	if (pool->verdict != GROWTH_KEPT && pool->bytes_per_step > 0)
		pool->explained =
			leaking < pool->bytes_per_step ? leaking / pool->bytes_per_step : 1;
}

/*
 * A pool is the sum of its places: if all are kept, and few of them have ever grown, so is the pool; or many, if all grew in the same
 * step or two, as where a second network takes its first.
 */
static bool all_kept(const struct judge *j, const struct group *group, uint64_t rises)
{
	size_t i, stopped = 0;

	for (i = 0; i < j->leaks->group_count; i++) {
		if (!leaks_same_pool(&j->leaks->groups[i], group))
			continue;
		if (j->groups[i].unkept)
			return false;
		stopped += j->groups[i].stopped;
	}
	return stopped < POOL_GROWN || rises < POOL_RISES;
}

/* A pool that grew until shortly before the end has stopped by the rule, but nobody would call it steady. */
static void note_late_stop(const struct growth_judgement *judgement, struct leaks_pool *pool)
{
	if (judgement->rises < POOL_RISES || judgement->grown_bytes == 0 ||
	    judgement->last - judgement->first <= judgement->quiet)
		return;
	pool->first_rise = judgement->first;
	pool->last_rise = judgement->last;
	pool->grown_bytes = judgement->grown_bytes;
}

static int judge_pool(struct judge *j, const struct group *group)
{
	struct leaks_pool pool = {.pool = group->pool, .device = group->device};
	struct leaks_result *found = j->found;
	struct growth_judgement judgement = {0};
	struct growth g = {0};
	size_t count;
	int r = pool_growth(j, group, &g, &count);

	if (r == 0 && found->told.judged) {
		struct growth_facts facts = {.steps = j->leaks->ended,
					     .whole_pool = true,
					     .survivors = j->few,
					     .survivor_count = count};

		growth_judge(&g, &facts, &judgement);
		pool.verdict = judgement.verdict;
		pool.reason = judgement.reason;
		pool.rises = g.rose;
		if (pool.verdict == GROWTH_SUSPECT && all_kept(j, group, pool.rises)) {
			pool.verdict = GROWTH_KEPT;
			pool.reason = GROWTH_STOPPED;
		}
		if (pool.verdict == GROWTH_KEPT)
			note_late_stop(&judgement, &pool);
		if (pool.verdict != GROWTH_KEPT) {
			pool.bytes_per_step = judgement.rate;
			pool.bytes_low = judgement.rate_low;
			pool.bytes_high = judgement.rate_high;
		}
	}
	growth_fini(&g);
	fill_pool(j, group, &pool);
	if (r == 0)
		r = ARRAY_RESERVE(found->pools, found->pool_room, found->told.pool_count + 1);
	if (r == 0)
		found->pools[found->told.pool_count++] = pool;
	return r;
}

static int judge_pools(struct judge *j)
{
	size_t i, k;
	int r = 0;

	for (i = 0; i < j->leaks->group_count && r == 0; i++) {
		for (k = 0; k < i && !leaks_same_pool(&j->leaks->groups[k], &j->leaks->groups[i]);
		     k++)
			;
		if (k == i)
			r = judge_pool(j, &j->leaks->groups[i]);
	}
	return r;
}

/* ---- all together ---- */

static double median_seconds(const struct leaks *leaks)
{
	uint64_t lengths[MSCOPE_COUNT(leaks->lengths)];

	if (!leaks->by_step)
		return (double)leaks->part_ns / 1e9;
	if (leaks->length_count == 0)
		return 0;
	memcpy(lengths, leaks->lengths, leaks->length_count * sizeof(lengths[0]));
	qsort(lengths, leaks->length_count, sizeof(lengths[0]), order_u64);
	return (double)lengths[leaks->length_count / 2] / 1e9;
}

static struct device_growth growth_on(const struct judge *j, uint32_t device)
{
	struct device_growth growth = {0};
	size_t i;

	for (i = 0; i < j->leaks->group_count; i++)
		growth.leaking += j->leaks->groups[i].device == device ? j->groups[i].leaking : 0;
	for (i = 0; i < j->leaks->device_count; i++) {
		if (j->leaks->devices[i].device == device) {
			growth.copied = j->devices[i].copied;
			growth.copied_bytes = j->devices[i].copied_bytes;
		}
	}
	return growth;
}

static void forecast_device(struct judge *j, const struct device_state *d)
{
	struct leaks_result *found = j->found;
	struct leaks_findings *told = &found->told;
	struct device_growth growth = growth_on(j, d->device);
	struct device_forecast forecast;
	size_t i;

	if (!told->judged || !device_level_forecast(&d->level, j->replay, d->device,
						    j->leaks->ended, &growth, &forecast))
		return;
	for (i = 0; i < told->place_count; i++) {
		struct leaks_place *place = &found->places[i];

		if (place->device != d->device || place->verdict != GROWTH_LEAK)
			continue;
		place->full_steps = forecast.steps;
		place->full_seconds = (double)forecast.steps * told->step_seconds;
	}
	if (ARRAY_RESERVE(found->forecasts, found->forecast_room, told->forecast_count + 1) == 0)
		found->forecasts[told->forecast_count++] = forecast;
}

/* Every leak of a device is given the steps until all growth there has filled it. */
static void forecast(struct judge *j)
{
	struct leaks_result *found = j->found;
	size_t i, k;

	for (i = 0; i < found->told.place_count; i++) {
		struct leaks_place *place = &found->places[i];
		double total = 0;

		for (k = 0; k < j->leaks->group_count; k++) {
			const struct group *group = &j->leaks->groups[k];

			if (group->pool == place->pool && group->device == place->device)
				total += j->groups[k].growth_of;
		}
		place->share =
			total > 0 && place->verdict != GROWTH_KEPT ? place->share / total : 0;
	}
	/* Where memory has run out, nothing will be full. */
	for (i = 0; i < j->leaks->device_count && !j->leaks->refused; i++)
		forecast_device(j, &j->leaks->devices[i]);
}

static int by_reason(const void *a, const void *b)
{
	const struct leaks_unjudged *x = a, *y = b;

	if (x->device != y->device)
		return x->device < y->device ? -1 : 1;
	return x->pool != y->pool ? (int)x->pool - (int)y->pool : (int)x->reason - (int)y->reason;
}

static int by_device(const void *a, const void *b)
{
	const struct leaks_pool *x = a, *y = b;

	return ORDER_UP(x->device, y->device) ?: ORDER_UP(x->pool, y->pool);
}

static int finish(struct judge *j)
{
	struct leaks_result *found = j->found;
	struct leaks_findings *told = &found->told;
	int r = leaks_sort_places(j);
	size_t i;

	if (r < 0)
		return r;
	forecast(j);
	if (told->pool_count > 0)
		qsort(found->pools, told->pool_count, sizeof(*found->pools), by_device);
	if (told->unjudged_count > 0)
		qsort(found->unjudged, told->unjudged_count, sizeof(*found->unjudged), by_reason);
	told->clean = told->judged && told->leaks + told->suspects == 0;
	for (i = 0; i < told->pool_count; i++)
		told->clean &= found->pools[i].verdict == GROWTH_KEPT;
	for (i = 0; i < told->unjudged_count; i++)
		told->clean &= found->unjudged[i].reason == LEAKS_POOL_CACHE ||
			       found->unjudged[i].reason == LEAKS_AFTER_LAST;
	told->places = found->places;
	told->pools = found->pools;
	told->unjudged = found->unjudged;
	told->forecasts = found->forecasts;
	return 0;
}

/*
 * Where a framework's pool is not recorded, memory of the driver that stays says nothing about what the program keeps in the pool.
 * What leaks by itself leaks all the same.
 */
static int note_unseen_pool(struct judge *j)
{
	size_t count, i;
	const struct usage *usages = replay_usages(j->replay, &count);
	int r = 0;

	for (i = 0; i < count && r == 0 && replay_has_unseen_pool(j->replay); i++) {
		struct group group = {.pool = usages[i].pool, .device = usages[i].device};
		uint64_t bytes, blocks;

		replay_usage_at_end(j->replay, &usages[i], &bytes, &blocks);
		if (usages[i].pool == POOL_hal && !usages[i].hidden && blocks > 0)
			r = not_judged_all(j, LEAKS_POOL_UNSEEN, &group, blocks, bytes);
	}
	return r;
}

static int judge_all(struct judge *j)
{
	size_t room = replay_count_observed(j->replay) + j->leaks->freed_count + 1;
	size_t places = j->leaks->place_count + 1;
	int r;

	j->canon = calloc(places, sizeof(*j->canon));
	j->next = calloc(places, sizeof(*j->next));
	j->merged = calloc(places, sizeof(*j->merged));
	j->survivors = calloc(room, sizeof(*j->survivors));
	j->few = calloc(room, sizeof(*j->few));
	j->groups = calloc(j->leaks->group_count + 1, sizeof(*j->groups));
	j->devices = calloc(j->leaks->device_count + 1, sizeof(*j->devices));
	if (j->canon == NULL || j->next == NULL || j->merged == NULL || j->survivors == NULL ||
	    j->few == NULL || j->groups == NULL || j->devices == NULL)
		return -ENOMEM;
	r = merge_places(j);
	if (r == 0)
		r = gather(j);
	if (r == 0)
		r = judge_places(j);
	if (r == 0 && j->found->told.judged)
		r = judge_handles(j);
	if (r == 0)
		r = note_unseen_pool(j);
	if (r == 0)
		r = judge_pools(j);
	return r < 0 ? r : finish(j);
}

static void judge_fini(struct judge *j)
{
	leaks_forget_places(j);
	free(j->held);
	free(j->survivors);
	free(j->few);
	free(j->loose);
	free(j->rest);
	free(j->groups);
	free(j->devices);
}

struct leaks_findings *leaks_judge(const struct leaks *leaks, struct replay *replay,
				   const size_t most[3])
{
	struct judge j = {.leaks = leaks, .replay = replay};
	int r;

	memcpy(j.most, most, sizeof(j.most));
	j.found = calloc(1, sizeof(*j.found));
	if (j.found == NULL)
		return NULL;
	j.found->told.by_time = !leaks->by_step;
	j.found->told.judged = leaks->ended >= (leaks->by_step ? LEAKS_FIRST_STEP : PARTS_MIN) &&
			       (leaks->by_step || !run_is_snapshot(replay_run(replay)) ||
				run_rounds(replay_run(replay)) >= RUN_ROUNDS_MIN);
	j.found->told.last_step = leaks->ended + (leaks->by_step ? leaks->offset : 0);
	j.found->told.step_seconds = median_seconds(leaks);
	r = judge_all(&j);
	judge_fini(&j);
	if (r < 0) {
		leaks_findings_free(&j.found->told);
		return NULL;
	}
	return &j.found->told;
}
