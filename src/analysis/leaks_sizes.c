/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Blocks of many sizes without stacks. A place is known by its size then, so that a line that allocates another size each time has
 * many places with a block or two each: loose ones. Those of a pool are looked at as one pile:
 *
 *     leak      so many blocks stay in each step, or in each k-th: those of just these steps. In other steps a block more may
 *               have come from elsewhere, and they are suspects
 *     leak      the pool climbs, and nearly all of that is one block, or some of one size, that came last: each replaces a smaller one
 *     leak      a block is the last of a chain of sizes, each of which took the place of the one before
 *     kept      all are younger than the age at which the pool frees such blocks, and the pool held as much before
 *     suspect   they stay, but not by such a beat: some of them may have nothing to do with it
 *
 * else each is told for itself.
 */
#include <errno.h>
#include <stdlib.h>

#include "analysis/leaks_judge.h"

/* Fewer sizes than this are no stream of many sizes. */
#define LOOSE_PLACES 3u

/* Beats that make a leak; and how many of ten have just the least number of blocks. */
#define BEATS_MIN   8u
#define BEATS_CLEAR 6u

/* Sizes that make a chain of reallocations, and loose places of a pool beyond which none is looked for. */
#define CHAIN_MIN    20u
#define CHAIN_EVEN   8u /* if each is larger by the same */
#define CHAINS_TRIED 64u

struct pile {
	struct survivor *all; /* by age */
	size_t count, places;
	struct growth growth;
	bool alone; /* nearly all that the pool has grown by */
	struct growth_judgement judgement;
};

static int by_age(const void *a, const void *b)
{
	const struct survivor *x = a, *y = b;

	if (x->step != y->step)
		return x->step < y->step ? -1 : 1;
	return survivor_id(x) < survivor_id(y) ? -1 : 1;
}

static bool is_of(const struct judge *j, const struct loose *loose, uint32_t group)
{
	return merged_place(j, &j->merged[loose->merged])->group == group;
}

/* The history of all loose places of a group: that of the pool where they are nearly all of its growth, else the sum of their own. */
static int pile_growth(const struct judge *j, uint32_t group, struct pile *pile)
{
	const struct growth *pool = &j->leaks->groups[group].growth;
	size_t i;
	int r;

	pile->alone = 10 * j->groups[group].growth_of <= (double)growth_since_first(pool);
	r = pile->alone ? growth_merge(&pile->growth, pool) : 0;
	for (i = 0; i < j->merged_count && r == 0; i++) {
		const struct merged *merged = &j->merged[i];

		if (merged->growth == NULL || merged_place(j, merged)->group != group)
			continue;
		if (pile->alone || !merged->loose)
			r = growth_merge_ages(&pile->growth, merged->growth);
		else
			r = growth_merge(&pile->growth, merged->growth);
	}
	return r;
}

/* The blocks of all loose places of a group, or of those that are suspects by themselves. */
static int pile_blocks(const struct judge *j, uint32_t group, bool suspects, struct pile *pile)
{
	size_t i, k, room = 0;

	for (i = 0; i < j->loose_count; i++)
		room += is_of(j, &j->loose[i], group) ? j->loose[i].count : 0;
	free(pile->all);
	pile->count = pile->places = 0;
	pile->all = calloc(room + 1, sizeof(*pile->all));
	if (pile->all == NULL)
		return -ENOMEM;
	for (i = 0; i < j->loose_count; i++) {
		const struct loose *loose = &j->loose[i];

		if (!is_of(j, loose, group) || (suspects && loose->place.verdict != GROWTH_SUSPECT))
			continue;
		pile->places++;
		for (k = 0; k < loose->count; k++)
			pile->all[pile->count++] = loose->survivors[k];
	}
	qsort(pile->all, pile->count, sizeof(*pile->all), by_age);
	return 0;
}

static struct growth_facts facts_of(struct judge *j, const struct survivor *all, size_t count)
{
	size_t i;

	for (i = 0; i < count; i++)
		j->few[i] = (struct growth_survivor){.step = all[i].step,
						     .bytes = survivor_bytes(&all[i])};
	return (struct growth_facts){.steps = j->leaks->ended,
				     .whole_pool = true,
				     .survivors = j->few,
				     .survivor_count = count};
}

/* Tells some blocks of a pile as one place. */
static int tell(struct judge *j, uint32_t group, const struct pile *pile,
		const struct survivor *all, size_t count, const struct growth_judgement *judgement)
{
	const struct group *from = &j->leaks->groups[group];
	struct leaks_place place = {.pool = from->pool,
				    .device = from->device,
				    .beside_pool = from->pool == POOL_hal &&
						   j->leaks->devices[from->on].pooled};

	leaks_take_judgement(j, &place, &pile->growth, judgement);
	(void)leaks_describe(j, &place, all, count);
	place.share = judgement->verdict == GROWTH_KEPT ? 0 : (double)judgement->grown_bytes;
	return leaks_add_place(j, &place, all, count, group);
}

/* Tells each loose place of a group for itself; those whose blocks a pile has told of are left out. */
static int tell_each(struct judge *j, uint32_t group, bool kept_only)
{
	size_t i;
	int r = 0;

	for (i = 0; i < j->loose_count && r == 0; i++) {
		struct loose *loose = &j->loose[i];

		if (is_of(j, loose, group) && (!kept_only || loose->place.verdict == GROWTH_KEPT))
			r = leaks_add_place(j, &loose->place, loose->survivors, loose->count,
					    group);
	}
	return r;
}

/* ---- a beat ---- */

/* Steps first, first + period, ... have blocks that stay, each `blocks` or more. */
struct beat {
	uint32_t first, period, blocks;
	uint32_t count, clear; /* beats, and those with just so many blocks */
};

static size_t blocks_of(const struct pile *pile, uint32_t step, size_t *at)
{
	size_t count = 0;

	while (*at > 0 && pile->all[*at - 1].step > step)
		(*at)--;
	while (count < *at && pile->all[*at - 1 - count].step == step)
		count++;
	return count;
}

/* Goes back from the last step, as far as there are blocks in each `period`-th. Those behind `end` may be in use: no beat is clear there. */
static struct beat beat_of(const struct pile *pile, uint32_t steps, uint32_t end, uint32_t period)
{
	struct beat beat = {.period = period};
	uint32_t step = steps;
	size_t at = pile->count, count;

	while (step > 1 && steps - step < period && blocks_of(pile, step, &at) == 0)
		step--;
	if (steps - step >= period)
		return beat;
	while (step >= LEAKS_FIRST_STEP && (count = blocks_of(pile, step, &at)) > 0) {
		if (beat.blocks == 0 || count < beat.blocks) {
			beat.clear = 0;
			beat.blocks = (uint32_t)count;
		}
		beat.clear += step <= end && count == beat.blocks;
		beat.count += step <= end;
		beat.first = step;
		step = step > period ? step - period : 0;
	}
	return beat;
}

/* By chance any blocks have some beat; most of them have to be on it. */
static bool is_beat(const struct pile *pile, const struct beat *beat, uint32_t end)
{
	uint32_t first = pile->judgement.first;

	return beat->count >= BEATS_MIN && 10 * beat->clear >= BEATS_CLEAR * beat->count &&
	       beat->first < end && 2 * (end - beat->first) >= end - first &&
	       2ull * beat->count * beat->blocks >= pile->judgement.overdue;
}

static bool find_beat(const struct pile *pile, uint32_t steps, struct beat *out)
{
	int32_t end = (int32_t)steps - 2 * pile->judgement.usual_age - 2;
	uint32_t period;

	for (period = 1; (int32_t)(period * BEATS_MIN) <= end; period++) {
		*out = beat_of(pile, steps, (uint32_t)end, period);
		if (is_beat(pile, out, (uint32_t)end))
			return true;
	}
	return false;
}

/* Parts the blocks: those of clear beats come first. Returns how many these are. */
static size_t part_beats(struct pile *pile, const struct beat *beat)
{
	struct survivor *rest = calloc(pile->count + 1, sizeof(*rest));
	size_t from = 0, next, kept = 0, rests = 0, i;

	for (; rest != NULL && from < pile->count; from = next) {
		uint32_t step = pile->all[from].step;
		bool on_beat;

		for (next = from + 1; next < pile->count && pile->all[next].step == step;)
			next++;
		on_beat = step >= beat->first && (step - beat->first) % beat->period == 0 &&
			  next - from == beat->blocks;
		for (i = from; i < next; i++) {
			if (on_beat)
				pile->all[kept++] = pile->all[i];
			else
				rest[rests++] = pile->all[i];
		}
	}
	for (i = 0; i < rests; i++)
		pile->all[kept + i] = rest[i];
	free(rest);
	return rest == NULL ? pile->count : kept;
}

/* The blocks of clear beats are a leak, others of these steps are suspects. */
static int tell_beat(struct judge *j, uint32_t group, struct pile *pile, const struct beat *beat)
{
	size_t kept = part_beats(pile, beat);
	struct growth_facts facts = facts_of(j, pile->all, kept);
	struct growth_judgement judgement;
	/* Beats that are not clear have blocks of it, too. */
	double scale = (double)beat->count / beat->clear;
	int r;

	growth_judge(&pile->growth, &facts, &judgement);
	judgement.verdict = GROWTH_LEAK;
	judgement.reason = GROWTH_SIZES;
	judgement.rate *= scale;
	judgement.rate_low *= scale;
	judgement.rate_high *= scale;
	r = tell(j, group, pile, pile->all, kept, &judgement);
	if (r < 0 || kept == pile->count)
		return r;
	facts = facts_of(j, pile->all + kept, pile->count - kept);
	growth_judge(&pile->growth, &facts, &judgement);
	judgement.verdict = GROWTH_SUSPECT;
	judgement.reason = GROWTH_SIZES;
	judgement.grown_bytes = 0;
	return tell(j, group, pile, pile->all + kept, pile->count - kept, &judgement);
}

/* ---- growth by reallocation ---- */

/* Sizes of blocks that took each other's place, each a little larger than the one before, and each after as many steps. */
struct chain {
	uint32_t count, first, pause;
	uint64_t size; /* the first of them */
};

/* Whether the blocks of a place, which has none any more, were all freed when those of the next place came. */
static bool gave_way(const struct growth *g, uint32_t next)
{
	int32_t age = (int32_t)(next - g->high_step);

	return age > 0 && g->before == 0 && g->instep == 0 && g->late > 0 &&
	       growth_freed_within(g, age) == g->late && growth_freed_within(g, age - 1) == 0;
}

/* Adds the place in front of a chain: of a size that is smaller by at most `step`, the only one that gave way. */
static bool lengthen(const struct judge *j, uint32_t group, uint64_t step, struct chain *chain)
{
	const struct merged *found = NULL;
	size_t i;

	for (i = 0; i < j->merged_count; i++) {
		const struct merged *m = &j->merged[i];

		if (m->growth != NULL && merged_place(j, m)->group == group &&
		    merged_place(j, m)->size < chain->size &&
		    chain->size - merged_place(j, m)->size <= step &&
		    m->growth->high_step + chain->pause == chain->first &&
		    gave_way(m->growth, chain->first)) {
			if (found != NULL)
				return false;
			found = m;
		}
	}
	if (found == NULL)
		return false;
	chain->first = found->growth->high_step;
	chain->size = merged_place(j, found)->size;
	chain->count++;
	return true;
}

/* The chain whose sizes differ by just as much as those of `last` and `before`: no other one can be meant. */
static struct chain even_chain(const struct judge *j, uint32_t group, const struct merged *last,
			       const struct merged *before)
{
	uint64_t rise = merged_place(j, last)->size - merged_place(j, before)->size;
	struct chain chain = {.count = 1,
			      .first = last->growth->high_step,
			      .pause = last->growth->high_step - before->growth->high_step,
			      .size = merged_place(j, last)->size};

	while (rise < chain.size && chain.pause < chain.first) {
		const struct place *known = leaks_place_at(j->leaks, group, 0, chain.size - rise);
		const struct growth *g = known == NULL ? NULL : &known->growth;

		if (g == NULL || g->high_step + chain.pause != chain.first ||
		    !gave_way(g, chain.first))
			break;
		chain.first = g->high_step;
		chain.size -= rise;
		chain.count++;
	}
	return chain;
}

static bool find_even_chain(const struct judge *j, uint32_t group, const struct merged *last,
			    struct chain *out)
{
	size_t i;

	for (i = 0; i < j->merged_count; i++) {
		const struct merged *m = &j->merged[i];

		if (m->growth == NULL || merged_place(j, m)->group != group ||
		    merged_place(j, m)->size >= merged_place(j, last)->size ||
		    !gave_way(m->growth, last->growth->high_step))
			continue;
		*out = even_chain(j, group, last, m);
		if (out->count >= CHAIN_EVEN &&
		    j->leaks->ended - last->growth->high_step <= out->pause)
			return true;
	}
	return false;
}

/* Whether the size of a loose place is the last of a chain that goes on. */
static bool find_chain(const struct judge *j, uint32_t group, const struct loose *loose,
		       struct chain *out)
{
	const struct merged *last = &j->merged[loose->merged];
	uint64_t size = merged_place(j, last)->size;
	uint32_t at = last->growth->high_step, pause;

	if (find_even_chain(j, group, last, out))
		return true;
	for (pause = 1; pause * (CHAIN_MIN - 1) < at; pause++) {
		*out = (struct chain){.count = 1, .first = at, .pause = pause, .size = size};
		if (j->leaks->ended - at > pause)
			continue;
		while (lengthen(j, group, size / (CHAIN_MIN / 2), out))
			;
		if (out->count >= CHAIN_MIN)
			return true;
	}
	return false;
}

/* Takes the loose places out that are the ends of chains, and tells of them. */
static int tell_chains(struct judge *j, uint32_t group, const struct pile *pile)
{
	struct pile one = *pile;
	size_t i, from = 0, to = 0;
	int r = 0;

	for (i = 0; i < j->loose_count; i++)
		from += is_of(j, &j->loose[i], group);
	if (from > CHAINS_TRIED)
		return 0;
	for (i = 0; i < j->loose_count; i++) {
		struct loose *loose = &j->loose[i];
		struct chain chain;

		if (r == 0 && is_of(j, loose, group) && find_chain(j, group, loose, &chain)) {
			const struct merged *last = &j->merged[loose->merged];
			double steps = last->growth->high_step - chain.first;
			uint64_t grown = (merged_place(j, last)->size - chain.size) * loose->count;
			struct growth_judgement judgement = {.verdict = GROWTH_LEAK,
							     .reason = GROWTH_CLIMBS,
							     .usual_age = (int32_t)chain.pause,
							     .first = chain.first,
							     .last = last->growth->high_step,
							     .rises = chain.count - 1,
							     .grown_bytes = grown,
							     .rate = (double)grown / steps};

			judgement.rate_low = judgement.rate * (1 - 1 / steps);
			judgement.rate_high = judgement.rate * (1 + 1 / steps);
			one.growth.rose = chain.count - 1;
			r = tell(j, group, &one, loose->survivors, loose->count, &judgement);
		} else {
			j->loose[to++] = *loose;
		}
	}
	j->loose_count = to;
	return r;
}

static uint64_t later_bytes(const struct survivor *all, size_t count)
{
	uint64_t bytes = 0;
	size_t i;

	for (i = 0; i < count; i++)
		bytes += all[i].step >= LEAKS_FIRST_STEP ? survivor_bytes(&all[i]) : 0;
	return bytes;
}

/*
 * The pool climbs, and one loose place has nearly all of what it has grown by, and came when it had grown by the most of it: so it
 * took the place of something smaller. Returns that place, or NULL.
 */
static struct loose *find_replacement(struct judge *j, uint32_t group, struct pile *pile)
{
	const struct growth *pool = &j->leaks->groups[group].growth;
	uint64_t base = growth_permanent(pool, 1), grown = pool->before - base, others = 0;
	struct growth_facts facts = facts_of(j, NULL, 0);
	struct loose *found = NULL;
	uint64_t most = 0;
	size_t i;

	if (!pile->alone || pool->before <= base)
		return NULL;
	for (i = 0; i < j->loose_count; i++) {
		uint64_t bytes = later_bytes(j->loose[i].survivors, j->loose[i].count);

		if (!is_of(j, &j->loose[i], group) || bytes <= most)
			continue;
		most = bytes;
		found = &j->loose[i];
	}
	for (i = 0; i < j->survivor_count; i++) {
		if (merged_place(j, &j->merged[j->survivors[i].place])->group == group)
			others += later_bytes(&j->survivors[i], 1);
	}
	if (found == NULL || 10 * (others - most) > grown ||
	    2 * (growth_permanent(pool, found->survivors[0].step - 1) - base) < grown)
		return NULL;
	growth_judge(&pile->growth, &facts, &pile->judgement);
	/* A vector that doubles jumps. */
	return pile->judgement.verdict == GROWTH_LEAK && 4 * pile->judgement.rise_bytes <= grown
		       ? found
		       : NULL;
}

static int tell_replacement(struct judge *j, uint32_t group, const struct pile *pile,
			    struct loose *found)
{
	int r = tell(j, group, pile, found->survivors, found->count, &pile->judgement);
	size_t i;

	for (i = 0; i < j->loose_count && r == 0; i++) {
		struct loose *loose = &j->loose[i];

		if (is_of(j, loose, group) && loose != found)
			r = leaks_add_place(j, &loose->place, loose->survivors, loose->count,
					    group);
	}
	return r;
}

/* ---- all together ---- */

/* A block that is larger than all that were freed before may be one that grows. */
static bool has_record(const struct judge *j, uint32_t group, const struct pile *pile)
{
	uint64_t freed = 0, lives = 0;
	size_t i;

	for (i = 0; i < j->merged_count; i++) {
		const struct merged *merged = &j->merged[i];

		if (merged->growth != NULL && merged_place(j, merged)->group == group &&
		    merged_place(j, merged)->size > freed && merged->growth->late > 0)
			freed = merged_place(j, merged)->size;
	}
	for (i = 0; i < pile->count; i++) {
		if (survivor_bytes(&pile->all[i]) > lives)
			lives = survivor_bytes(&pile->all[i]);
	}
	return lives > freed;
}

/* Whether more than some few of a group's loose places came long ago, and stay. */
static bool has_old_ones(const struct judge *j, uint32_t group)
{
	size_t i, old = 0;

	for (i = 0; i < j->loose_count; i++)
		old += is_of(j, &j->loose[i], group) && j->loose[i].place.verdict == GROWTH_KEPT;
	return old >= LOOSE_PLACES;
}

/* Those that are suspects by themselves may be in use together. */
static int tell_in_use(struct judge *j, uint32_t group, struct pile *pile)
{
	struct growth_judgement kept = {.verdict = GROWTH_KEPT, .reason = GROWTH_IN_USE};
	struct growth_facts facts;
	int r = pile_blocks(j, group, true, pile);

	if (r < 0)
		return r;
	facts = facts_of(j, pile->all, pile->count);
	if (!pile->alone || pile->places == 0 || has_old_ones(j, group) ||
	    has_record(j, group, pile) || !growth_in_use(&pile->growth, &facts, &kept.usual_age) ||
	    (int32_t)facts.steps < 3 * kept.usual_age)
		return tell_each(j, group, false);
	r = tell(j, group, pile, pile->all, pile->count, &kept);
	return r < 0 ? r : tell_each(j, group, true);
}

static int settle_group(struct judge *j, uint32_t group)
{
	struct pile pile = {0};
	struct growth_facts facts;
	struct loose *replacement;
	struct beat beat;
	int r = pile_growth(j, group, &pile);

	if (r == 0 && !j->found->told.by_time)
		r = tell_chains(j, group, &pile);
	if (r == 0)
		r = pile_blocks(j, group, false, &pile);
	if (r < 0 || pile.places == 0 || j->found->told.by_time) {
		r = r < 0 ? r : tell_each(j, group, false);
	} else {
		facts = facts_of(j, pile.all, pile.count);
		growth_judge(&pile.growth, &facts, &pile.judgement);
		if (pile.places >= LOOSE_PLACES && pile.judgement.verdict == GROWTH_LEAK) {
			if (pile.judgement.reason == GROWTH_STAYS &&
			    find_beat(&pile, j->leaks->ended, &beat)) {
				r = tell_beat(j, group, &pile, &beat);
			} else {
				pile.judgement.verdict = GROWTH_SUSPECT;
				pile.judgement.reason = GROWTH_SIZES;
				r = tell(j, group, &pile, pile.all, pile.count, &pile.judgement);
			}
		} else if ((replacement = find_replacement(j, group, &pile)) != NULL) {
			r = tell_replacement(j, group, &pile, replacement);
		} else {
			r = tell_in_use(j, group, &pile);
		}
	}
	growth_fini(&pile.growth);
	free(pile.all);
	return r;
}

int leaks_settle_loose(struct judge *j)
{
	uint32_t group;
	size_t i;
	int r = 0;

	for (i = 0; i < j->loose_count; i++)
		j->merged[j->loose[i].merged].loose = true;
	for (group = 0; group < j->leaks->group_count && r == 0; group++)
		r = settle_group(j, group);
	return r;
}
