/* SPDX-License-Identifier: Apache-2.0 */
/* The analysis of inefficient memory in a checkpoint. Segments have numbers by their order in their account. */
#include <errno.h>
#include <stdlib.h>

#include "analysis/inefficient.h"
#include "base/array.h"
#include "base/word_list.h"

/* Larger numbers in a trace are damage. */
#define BYTES_MAX (INT64_C(1) << 56)

static int keep_pool(struct waste_pool *pool, struct words *words)
{
	size_t i;

	if (pool == NULL)
		return -ENOMEM;
	KEEP(words, pool->all);
	KEEP(words, pool->tide.highest);
	words_memory(words, pool->tops, sizeof(pool->tops));
	if (words_array(words, &pool->tide.crests, &pool->tide.count, &pool->tide.room,
			sizeof(*pool->tide.crests)) < 0)
		return -ENOMEM;
	for (i = 0; i < pool->tide.count; i++)
		words_memory(words, &pool->tide.crests[i], sizeof(pool->tide.crests[i]));
	return 0;
}

static bool is_sound(int64_t bytes)
{
	return bytes > -BYTES_MAX && bytes < BYTES_MAX;
}

/* Segments have numbers from 1 by their order in their account; `numbers` gets them. */
static int keep_segments(struct account *account, uint32_t *numbers, struct words *words)
{
	uint32_t i = account->first, group = 0;
	size_t count = 0, at;

	for (at = i; !words_load(words) && at != NO_SEGMENT; at = account->segments->at[at].next)
		numbers[at] = (uint32_t)++count;
	count = words_count(words, count);
	if (count == 0)
		return MSCOPE_E_DAMAGED;
	for (at = 0; at < count; at++) {
		struct segment *segment;

		if (at > 0)
			i = words_load(words) ? account_append(account)
					      : account->segments->at[i].next;
		if (i == NO_SEGMENT)
			return -ENOMEM;
		segment = &account->segments->at[i];
		KEEP(words, segment->raw);
		KEEP(words, segment->add);
		KEEP(words, segment->group);
		if (!words_load(words))
			continue;
		if ((segment->raw != NO_VALUE && !is_sound(segment->raw)) ||
		    !is_sound(segment->add) || segment->group >= WASTE_GROUPS)
			return MSCOPE_E_DAMAGED;
		/* The first segment of each group is kept. */
		segment->refs = at > 0 && segment->group != group;
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

/* The number of a segment that something refers to. */
static uint64_t keep_reference(uint32_t segment, const uint32_t *numbers, struct words *words)
{
	return words_next(words, words_load(words) || segment == NO_SEGMENT ? 0 : numbers[segment]);
}

static int keep_place(struct inefficient *s, size_t index, const struct replay *replay,
		      uint32_t *numbers, struct words *words)
{
	struct waste_place empty = {.operator_at = NO_SEGMENT};
	struct waste_place *place = words_load(words) ? &empty : &s->places[index];
	uint64_t at;
	int r;

	KEEP(words, place->pool);
	KEEP(words, place->stack);
	KEEP(words, place->size_class);
	if (words_load(words)) {
		if (empty.pool >= s->pool_count || empty.size_class > 64 ||
		    (empty.stack != WASTE_POOL && empty.stack >= replay_stack_count(replay)))
			return MSCOPE_E_DAMAGED;
		place = waste_place_at(s, empty.pool, empty.stack, empty.size_class);
		if (place == NULL)
			return -ENOMEM;
		if (s->place_count == index)
			return MSCOPE_E_DAMAGED;
	}
	KEEP(words, place->found);
	place->found &= 7;
	KEEP(words, place->operator_since);
	r = keep_segments(&place->account, numbers, words);
	if (r < 0)
		return r;
	at = keep_reference(place->operator_at, numbers, words);
	KEEP(words, place->account.since);
	KEEP(words, place->account.group);
	words_memory(words, place->blocks, sizeof(place->blocks));
	KEEP(words, place->any_blocks);
	KEEP(words, place->bytes);
	KEEP(words, place->first);
	if (words_load(words) &&
	    (place->account.group >= WASTE_GROUPS || place->account.since > s->moment ||
	     !segment_of(&place->account, at, &place->operator_at)))
		return MSCOPE_E_DAMAGED;
	return 0;
}

static int keep_trail(struct inefficient *s, size_t at, const uint32_t *numbers,
		      struct words *words)
{
	struct waste_trail *trail = &s->trails[at];
	struct waste_place *place;
	uint64_t first, first_of_all;
	uint32_t all;

	KEEP(words, trail->allocated);
	KEEP(words, trail->used);
	KEEP(words, trail->found);
	trail->found &= 7;
	KEEP(words, trail->place);
	first = keep_reference(trail->at, numbers, words);
	first_of_all = keep_reference(trail->at_all, numbers, words);
	if (!words_load(words))
		return 0;
	if (trail->place >= s->place_count)
		return MSCOPE_E_DAMAGED;
	place = &s->places[trail->place];
	all = s->pools[place->pool]->all;
	if (all == 0 || all > s->place_count || s->places[all - 1].pool != place->pool)
		return MSCOPE_E_DAMAGED;
	place->live++;
	if (!segment_of(&place->account, first, &trail->at) ||
	    !segment_of(&s->places[all - 1].account, first_of_all, &trail->at_all))
		return MSCOPE_E_DAMAGED;
	return 0;
}

static int keep_trails(struct inefficient *s, const uint32_t *numbers, struct words *words)
{
	size_t count = words_count(words, s->live.count), cursor = 0, i;
	int r = 0;

	for (i = 0; i < count && r == 0; i++) {
		const struct map_slot *slot =
			words_load(words) ? NULL : map_next(&s->live, &cursor);
		uint64_t allocation_id =
			words_next(words, slot == NULL ? 0 : s->trails[slot->value].allocation_id);
		size_t at = slot == NULL ? 0 : slot->value;

		if (words_load(words)) {
			if (waste_trail_new(s, &at) < 0 ||
			    map_put(&s->live, (struct map_key){allocation_id, 0}, at) < 0)
				return -ENOMEM;
			s->trails[at] = (struct waste_trail){.allocation_id = allocation_id,
							     .at = NO_SEGMENT,
							     .at_all = NO_SEGMENT};
		}
		r = keep_trail(s, at, numbers, words);
	}
	return r;
}

static int keep_thread(struct inefficient *s, uint32_t writer, struct words *words)
{
	struct waste_thread *thread = waste_thread_at(s, writer);
	size_t i, count;

	if (thread == NULL)
		return -ENOMEM;
	KEEP(words, thread->tick);
	KEEP(words, thread->inside);
	KEEP(words, thread->allocates);
	KEEP(words, thread->frees);
	KEEP(words, thread->since);
	count = thread->use_count;
	if (words_array(words, &thread->uses, &count, &thread->use_room, sizeof(*thread->uses)) < 0)
		return -ENOMEM;
	for (i = 0; i < count; i++) {
		uint64_t allocation_id = words_next(words, thread->uses[i].allocation_id);
		const uint64_t *at = map_get(&s->live, (struct map_key){allocation_id, 0});

		if (at == NULL || !words_load(words))
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

static int keep(struct inefficient *s, const struct replay *replay, uint32_t *numbers,
		struct words *words)
{
	size_t count, i, usages;
	int r = 0;

	(void)replay_usages(replay, &usages);
	KEEP(words, s->tick);
	KEEP(words, s->moment);
	KEEP(words, s->last_alloc);
	KEEP(words, s->last_free);
	KEEP(words, s->saw_access);
	KEEP(words, s->steps_restarted);
	KEEP(words, s->steps);
	KEEP(words, s->group_steps);
	KEEP(words, s->group);
	KEEP(words, s->group_since);
	count = words_count(words, s->pool_count);
	if (s->group >= WASTE_GROUPS || count > usages)
		return MSCOPE_E_DAMAGED;
	for (i = 0; i < count && r == 0; i++)
		r = keep_pool(waste_pool_at(s, i), words);
	count = r == 0 ? words_count(words, s->place_count) : 0;
	for (i = 0; i < count && r == 0; i++)
		r = keep_place(s, i, replay, numbers, words);
	if (r == 0 && !pools_are_sound(s))
		r = MSCOPE_E_DAMAGED;
	if (r == 0)
		r = keep_trails(s, numbers, words);
	count = r == 0 ? words_count(words, s->thread_room) : 0;
	for (i = 0; i < count && r == 0; i++)
		r = keep_thread(s, (uint32_t)i, words);
	return r;
}

int inefficient_keep(void *state, const struct replay *replay, struct words *words)
{
	struct inefficient *s = state;
	uint32_t *numbers = NULL;
	int r;

	if (words_load(words)) {
		inefficient_fini(s);
		*s = (struct inefficient){0};
	} else {
		numbers = calloc(s->segments.count + 1, sizeof(*numbers));
		if (numbers == NULL)
			return -ENOMEM;
	}
	r = keep(s, replay, numbers, words);
	free(numbers);
	return r;
}
