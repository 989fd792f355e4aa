/* SPDX-License-Identifier: Apache-2.0 */
/* The analysis of inefficient memory in a checkpoint. Segments have numbers by their order in their account. */
#include <errno.h>
#include <stdlib.h>

#include "analysis/inefficient.h"
#include "base/array.h"

/* Larger numbers in a trace are damage. */
#define BYTES_MAX (INT64_C(1) << 56)

/* ---- saving ---- */

static void save_pool(const struct waste_pool *pool, struct strbuf *out)
{
	size_t i;

	words_add(out, pool->all);
	words_add(out, pool->tide.highest);
	for (i = 0; i < WASTE_GROUPS; i++)
		words_add(out, pool->tops[i]);
	words_add(out, pool->tide.count);
	for (i = 0; i < pool->tide.count; i++) {
		words_add(out, pool->tide.crests[i].until);
		words_add(out, pool->tide.crests[i].bytes);
	}
}

/* `numbers` gets those of its segments, from 1. */
static void save_place(const struct inefficient *s, const struct waste_place *place,
		       uint32_t *numbers, struct strbuf *out)
{
	const struct segment *at = s->segments.at;
	uint32_t i, count = 0;

	for (i = place->account.first; i != NO_SEGMENT; i = at[i].next)
		numbers[i] = ++count;
	words_add(out, (uint64_t)place->pool << 32 | place->stack);
	words_add(out, (uint64_t)place->size_class << 16 | place->found);
	words_add(out, place->operator_since);
	words_add(out, place->operator_at == NO_SEGMENT ? 0 : numbers[place->operator_at]);
	words_add(out, place->account.since);
	words_add(out, place->account.group);
	for (i = 0; i < WASTE_KINDS; i++)
		words_add(out, place->blocks[i]);
	words_add(out, place->any_blocks);
	words_add(out, place->bytes);
	words_add(out, place->first);
	words_add(out, count);
	for (i = place->account.first; i != NO_SEGMENT; i = at[i].next) {
		words_add(out, (uint64_t)at[i].raw);
		words_add(out, (uint64_t)at[i].add);
		words_add(out, at[i].group);
	}
}

static void save_threads(const struct inefficient *s, struct strbuf *out)
{
	size_t i, k;

	words_add(out, s->thread_room);
	for (i = 0; i < s->thread_room; i++) {
		const struct waste_thread *thread = &s->threads[i];

		words_add(out, thread->tick << 3 | (uint64_t)thread->inside << 2 |
				       (uint64_t)thread->allocates << 1 | thread->frees);
		words_add(out, thread->since);
		words_add(out, thread->use_count);
		for (k = 0; k < thread->use_count; k++)
			words_add(out, thread->uses[k].allocation_id);
	}
}

void inefficient_save(void *state, struct strbuf *out)
{
	const struct inefficient *s = state;
	const struct map_slot *slot;
	size_t i, cursor = 0;
	uint32_t *numbers = calloc(s->segments.count + 1, sizeof(*numbers));

	if (numbers == NULL)
		return; /* what is loaded is then too short, and refused */
	words_add(out, s->tick);
	words_add(out, s->moment);
	words_add(out, s->last_alloc);
	words_add(out, s->last_free);
	words_add(out, (uint64_t)s->steps_restarted << 1 | s->saw_access);
	words_add(out, s->steps);
	words_add(out, (uint64_t)s->group_steps << 32 | s->group);
	words_add(out, s->group_since);
	words_add(out, s->pool_count);
	for (i = 0; i < s->pool_count; i++)
		save_pool(s->pools[i], out);
	words_add(out, s->place_count);
	for (i = 0; i < s->place_count; i++)
		save_place(s, &s->places[i], numbers, out);
	words_add(out, s->live.count);
	while ((slot = map_next(&s->live, &cursor)) != NULL) {
		const struct waste_trail *trail = &s->trails[slot->value];

		words_add(out, trail->allocation_id);
		words_add(out, trail->allocated);
		words_add(out, trail->used);
		words_add(out, (uint64_t)trail->place << 32 | trail->found);
		words_add(out, trail->at == NO_SEGMENT ? 0 : numbers[trail->at]);
		words_add(out, trail->at_all == NO_SEGMENT ? 0 : numbers[trail->at_all]);
	}
	save_threads(s, out);
	free(numbers);
}

/* ---- loading ---- */

static int load_pool(struct inefficient *s, size_t index, struct words *words)
{
	struct waste_pool *pool = waste_pool_at(s, index);
	size_t i, count;

	if (pool == NULL)
		return -ENOMEM;
	pool->all = (uint32_t)words_next(words);
	pool->tide.highest = words_next(words);
	for (i = 0; i < WASTE_GROUPS; i++)
		pool->tops[i] = words_next(words);
	count = words_count(words);
	if (array_reserve(&pool->tide.crests, &pool->tide.room, count + 1,
			  sizeof(*pool->tide.crests)) < 0)
		return -ENOMEM;
	for (i = 0; i < count; i++) {
		pool->tide.crests[i].until = words_next(words);
		pool->tide.crests[i].bytes = words_next(words);
	}
	pool->tide.count = count;
	return 0;
}

static bool is_sound(int64_t bytes)
{
	return bytes > -BYTES_MAX && bytes < BYTES_MAX;
}

static int load_segments(struct account *account, struct words *words)
{
	struct segment *segment = &account->segments->at[account->first];
	size_t count = words_count(words), i;
	uint32_t group = 0;

	if (count == 0)
		return MSCOPE_E_DAMAGED;
	for (i = 0; i < count; i++) {
		uint32_t at = i == 0 ? account->first : account_append(account);

		if (at == NO_SEGMENT)
			return -ENOMEM;
		segment = &account->segments->at[at];
		segment->raw = (int64_t)words_next(words);
		segment->add = (int64_t)words_next(words);
		segment->group = (uint32_t)words_next(words);
		if ((segment->raw != NO_VALUE && !is_sound(segment->raw)) ||
		    !is_sound(segment->add) || segment->group >= WASTE_GROUPS)
			return MSCOPE_E_DAMAGED;
		/* The first segment of each group is kept. */
		segment->refs = i > 0 && segment->group != group;
		group = segment->group;
	}
	return 0;
}

/* The segment of an account with a number, referenced; 0 has none. */
static bool segment_of(struct account *account, uint64_t number, uint32_t *out)
{
	*out = NO_SEGMENT;
	if (number == 0)
		return true;
	/* They were made one after another. */
	if (number > (uint64_t)account->last - account->first + 1)
		return false;
	*out = account->first + (uint32_t)number - 1;
	account_ref(account, *out);
	return true;
}

static int load_place(struct inefficient *s, const struct replay *replay, struct words *words)
{
	uint64_t where = words_next(words), what = words_next(words), at;
	uint32_t stack = (uint32_t)where;
	size_t i, before = s->place_count;
	struct waste_place *place;
	int r;

	if (where >> 32 >= s->pool_count ||
	    (stack != WASTE_POOL && stack >= replay_stack_count(replay)) || what >> 32 != 0)
		return MSCOPE_E_DAMAGED;
	place = waste_place_at(s, (uint32_t)(where >> 32), stack, (uint16_t)(what >> 16));
	if (place == NULL)
		return -ENOMEM;
	if (s->place_count == before)
		return MSCOPE_E_DAMAGED;
	place->found = (uint16_t)(what & 7);
	place->operator_since = words_next(words);
	at = words_next(words);
	place->account.since = words_next(words);
	place->account.group = (uint32_t)words_next(words);
	for (i = 0; i < WASTE_KINDS; i++)
		place->blocks[i] = words_next(words);
	place->any_blocks = words_next(words);
	place->bytes = words_next(words);
	place->first = words_next(words);
	r = load_segments(&place->account, words);
	if (r == 0 && (place->account.group >= WASTE_GROUPS || place->account.since > s->moment ||
		       !segment_of(&place->account, at, &place->operator_at)))
		r = MSCOPE_E_DAMAGED;
	return r;
}

static int load_trail(struct inefficient *s, struct words *words)
{
	uint64_t allocation_id = words_next(words), where;
	struct waste_trail *trail;
	struct waste_place *place;
	uint32_t all;
	size_t at;

	if (waste_trail_new(s, &at) < 0 ||
	    map_put(&s->live, (struct map_key){allocation_id, 0}, at) < 0)
		return -ENOMEM;
	trail = &s->trails[at];
	*trail = (struct waste_trail){
		.allocation_id = allocation_id, .at = NO_SEGMENT, .at_all = NO_SEGMENT};
	trail->allocated = words_next(words);
	trail->used = words_next(words);
	where = words_next(words);
	trail->found = (uint16_t)(where & 7);
	trail->place = (uint32_t)(where >> 32);
	if (trail->place >= s->place_count)
		return MSCOPE_E_DAMAGED;
	place = &s->places[trail->place];
	all = s->pools[place->pool]->all;
	if (all == 0 || all > s->place_count || s->places[all - 1].pool != place->pool)
		return MSCOPE_E_DAMAGED;
	place->live++;
	if (!segment_of(&place->account, words_next(words), &trail->at) ||
	    !segment_of(&s->places[all - 1].account, words_next(words), &trail->at_all))
		return MSCOPE_E_DAMAGED;
	return 0;
}

static int load_thread(struct inefficient *s, uint32_t writer, struct words *words)
{
	struct waste_thread *thread = waste_thread_at(s, writer);
	uint64_t word = words_next(words);
	size_t i, count;

	if (thread == NULL)
		return -ENOMEM;
	thread->tick = word >> 3;
	thread->inside = (word & 4) != 0;
	thread->allocates = (word & 2) != 0;
	thread->frees = (word & 1) != 0;
	thread->since = words_next(words);
	count = words_count(words);
	if (array_reserve(&thread->uses, &thread->use_room, count, sizeof(*thread->uses)) < 0)
		return -ENOMEM;
	for (i = 0; i < count; i++) {
		uint64_t allocation_id = words_next(words);
		const uint64_t *at = map_get(&s->live, (struct map_key){allocation_id, 0});

		if (at == NULL)
			continue; /* freed since */
		s->trails[*at].users++;
		thread->uses[thread->use_count++] =
			(struct waste_use){.trail = (uint32_t)*at, .allocation_id = allocation_id};
	}
	return 0;
}

/* Blocks are judged against the place of all of their pool. */
static bool pools_are_sound(const struct inefficient *s)
{
	size_t i;

	for (i = 0; i < s->pool_count; i++) {
		uint32_t all = s->pools[i]->all;

		if (all > s->place_count || (all != 0 && (s->places[all - 1].pool != i ||
							  s->places[all - 1].stack != WASTE_POOL)))
			return false;
	}
	return true;
}

int inefficient_load(void *state, const struct replay *replay, struct words *words)
{
	struct inefficient *s = state;
	size_t count, i, usages;
	uint64_t word;
	int r = 0;

	(void)replay_usages(replay, &usages);
	inefficient_fini(s);
	*s = (struct inefficient){.tick = words_next(words)};
	s->moment = words_next(words);
	s->last_alloc = words_next(words);
	s->last_free = words_next(words);
	word = words_next(words);
	s->saw_access = word & 1;
	s->steps_restarted = (word & 2) != 0;
	s->steps = (uint32_t)words_next(words);
	word = words_next(words);
	s->group_steps = (uint32_t)(word >> 32);
	s->group = (uint32_t)word;
	s->group_since = words_next(words);
	count = words_count(words);
	if (s->group >= WASTE_GROUPS || count > usages)
		return MSCOPE_E_DAMAGED;
	for (i = 0; i < count && r == 0; i++)
		r = load_pool(s, i, words);
	count = words_count(words);
	for (i = 0; i < count && r == 0; i++)
		r = load_place(s, replay, words);
	if (r == 0 && !pools_are_sound(s))
		r = MSCOPE_E_DAMAGED;
	count = r == 0 ? words_count(words) : 0;
	for (i = 0; i < count && r == 0; i++)
		r = load_trail(s, words);
	count = r == 0 ? words_count(words) : 0;
	for (i = 0; i < count && r == 0; i++)
		r = load_thread(s, (uint32_t)i, words);
	return r;
}
