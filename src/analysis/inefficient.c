/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory that is allocated while it is not used, and what of the peak it costs. Time is counted in ticks: each operator is one, and
 * so is each memory event outside of operators. What happens inside an operator happens at its tick. Threads share the count; an
 * event belongs to the operator that its own thread is in. Operators of PyTorch and of ATB count alike: models of one run on memory
 * of the other.
 *
 *     early_allocation     something was freed after the block was allocated and before its first use, which is in another
 *                          operator than its allocation: had it been allocated when it was needed, that memory could have been used
 *     late_deallocation    something was allocated after the block was last used and before it was freed
 *     temporary_idleness   more than so many ticks between two uses, IDLE_TICKS unless --inefficient says otherwise
 *
 * "Something was freed" looks at whole operators: the latest one that has ended and freed anything. Only blocks whose
 * allocation was seen are judged. What is found goes to the block's MALLOC row (replay/facts.h) and into the report.
 *
 * Mended, such a block would be allocated when the operator that first uses it begins, be freed when the one that last uses it
 * ends, and be away between two uses that lie far apart. For each place in the program and for all of them together an account
 * (account.h) knows what the peak of the pool would be then.
 */
#include "analysis/inefficient.h"

#include <errno.h>
#include <stdlib.h>

#include "base/array.h"
#include "replay/facts.h"
#include "trace/session.h"

#define IDLE_TICKS  3000u
#define WRITERS_MAX 65536u
#define TRIM_AT	    4096u
#define EMPTY_STEPS 65536u

/* ---- places, pools, threads ---- */

struct waste_pool *waste_pool_at(struct inefficient *s, size_t index)
{
	while (index >= s->pool_count) {
		struct waste_pool *pool = calloc(1, sizeof(*pool));

		if (pool == NULL || ARRAY_RESERVE(s->pools, s->pool_room, s->pool_count + 1) < 0) {
			free(pool);
			return NULL;
		}
		pool->trim_at = TRIM_AT;
		s->pools[s->pool_count++] = pool;
	}
	return s->pools[index];
}

struct waste_place *waste_place_at(struct inefficient *s, uint32_t pool, uint32_t stack,
				   uint16_t size_class)
{
	struct map_key key = {(uint64_t)pool << 32 | stack, size_class};
	const uint64_t *known;
	struct waste_place *place;

	if (MSCOPE_LIKELY(s->place_count > 0)) {
		place = &s->places[s->recent[stack % WASTE_RECENT]];
		if (place->stack == stack && place->pool == pool && place->size_class == size_class)
			return place;
	}
	known = map_get(&s->place_ids, key);
	if (known != NULL) {
		s->recent[stack % WASTE_RECENT] = (uint32_t)*known;
		return &s->places[*known];
	}
	if (s->place_count >= UINT32_MAX - 1 ||
	    ARRAY_RESERVE(s->places, s->place_room, s->place_count + 1) < 0)
		return NULL;
	place = &s->places[s->place_count];
	*place = (struct waste_place){.pool = pool,
				      .stack = stack,
				      .size_class = size_class,
				      .operator_at = NO_SEGMENT,
				      .first = UINT64_MAX};
	if (account_init(&place->account, &s->pools[pool]->tide, &s->segments) < 0 ||
	    map_put(&s->place_ids, key, s->place_count) < 0)
		return NULL;
	s->place_count++;
	return place;
}

struct waste_thread *waste_thread_at(struct inefficient *s, uint32_t writer)
{
	size_t before = s->thread_room, i;

	if (MSCOPE_LIKELY(writer < before))
		return &s->threads[writer];
	if (writer > WRITERS_MAX ||
	    ARRAY_RESERVE(s->threads, s->thread_room, (size_t)writer + 1) < 0)
		return NULL;
	for (i = before; i < s->thread_room; i++)
		s->threads[i] = (struct waste_thread){0};
	return &s->threads[writer];
}

int waste_trail_new(struct inefficient *s, size_t *out)
{
	if (s->free_count > 0) {
		*out = s->free_trails[--s->free_count];
		return 0;
	}
	/* Room for giving every trail back, so that a free cannot fail. */
	if (s->trail_count >= UINT32_MAX - 1 ||
	    ARRAY_RESERVE(s->trails, s->trail_room, s->trail_count + 1) < 0 ||
	    ARRAY_RESERVE(s->free_trails, s->free_room, s->trail_count + 1) < 0)
		return -ENOMEM;
	*out = s->trail_count++;
	return 0;
}

/* The place that stands for all of the pool of another. */
static struct waste_place *all_of(struct inefficient *s, const struct waste_place *place)
{
	return &s->places[s->pools[place->pool]->all - 1];
}

/* ---- what a pool holds ---- */

/* Nobody will ask for most of what the pool held once. */
static int trim(struct inefficient *s, struct waste_pool *pool)
{
	uint64_t *since = calloc(s->place_count + s->thread_room + 1, sizeof(*since));
	size_t i, count = 0;

	if (since == NULL)
		return -ENOMEM;
	for (i = 0; i < s->place_count; i++) {
		if (s->pools[s->places[i].pool] == pool)
			since[count++] = s->places[i].account.since;
	}
	for (i = 0; i < s->thread_room; i++) {
		if (s->threads[i].inside)
			since[count++] = s->threads[i].since;
	}
	since[count++] = s->group_since;
	qsort(since, count, sizeof(*since), order_u64);
	tide_trim(&pool->tide, since, count);
	free(since);
	pool->trim_at = 2 * pool->tide.count + s->place_count + TRIM_AT;
	return 0;
}

static int set_used(struct inefficient *s, struct waste_pool *pool, uint64_t bytes)
{
	if (bytes > pool->tops[s->group])
		pool->tops[s->group] = bytes;
	if (MSCOPE_UNLIKELY(pool->tide.count >= pool->trim_at) && trim(s, pool) < 0)
		return -ENOMEM;
	return tide_set(&pool->tide, s->moment, bytes);
}

/* ---- steps ---- */

static void halve(struct inefficient *s)
{
	size_t i, k;

	for (i = 0; i < s->place_count; i++)
		account_halve(&s->places[i].account);
	for (i = 0; i < s->pool_count; i++) {
		uint64_t *tops = s->pools[i]->tops;

		for (k = 0; k < WASTE_GROUPS; k++) {
			uint64_t a = 2 * k < WASTE_GROUPS ? tops[2 * k] : 0;
			uint64_t b = 2 * k < WASTE_GROUPS ? tops[2 * k + 1] : 0;

			tops[k] = a > b ? a : b;
		}
	}
	s->group /= 2;
	s->group_steps *= 2;
}

/* Another step has begun. */
static int take_step(struct inefficient *s, uint32_t steps)
{
	size_t i;
	int r = 0;

	s->steps = steps;
	s->group_steps += s->group_steps == 0;
	while (steps / s->group_steps >= WASTE_GROUPS)
		halve(s);
	if (steps / s->group_steps == s->group)
		return 0;
	s->group = steps / s->group_steps;
	s->group_since = s->moment;
	for (i = 0; i < s->pool_count; i++)
		s->pools[i]->tops[s->group] = tide_most(&s->pools[i]->tide, UINT64_MAX - 1);
	/* A place with neither has wasted nothing so far, and learns of the steps when it has a block. */
	for (i = 0; i < s->place_count && r == 0; i++) {
		struct waste_place *place = &s->places[i];

		if (place->live > 0 || place->found != 0 || place->stack == WASTE_POOL)
			r = account_group(&place->account, s->group, s->moment, s->moment);
	}
	s->moment++; /* the row that follows is later than the step's begin */
	return r;
}

static MSCOPE_COLD int take_steps(struct inefficient *s, uint32_t steps)
{
	int r = 0;

	s->steps_restarted |= steps < s->steps;
	if (s->steps_restarted)
		s->steps = steps;
	/* Also those in which nothing happened, within reason. */
	if (steps - s->steps > EMPTY_STEPS)
		s->steps = steps - EMPTY_STEPS;
	while (s->steps < steps && r == 0)
		r = take_step(s, s->steps + 1);
	return r;
}

/* ---- accounts ---- */

/* Makes the begin of the step and of the operator in progress known to the account, before it is cut. */
static int settle(struct inefficient *s, struct waste_place *place,
		  const struct waste_thread *thread)
{
	struct account *account = &place->account;
	uint32_t segment;

	if (MSCOPE_UNLIKELY(account->group != s->group) &&
	    account_group(account, s->group, s->group_since, s->moment) < 0)
		return -ENOMEM;
	/* In the last case another thread came between. */
	if (!thread->inside || place->operator_since == thread->since ||
	    thread->since < account->since)
		return 0;
	segment = account_cut(account, thread->since, s->moment);
	if (segment == NO_SEGMENT)
		return -ENOMEM;
	account_ref(account, segment);
	if (place->operator_at != NO_SEGMENT)
		account_unref(account, place->operator_at);
	place->operator_at = segment;
	place->operator_since = thread->since;
	return 0;
}

/* The segment that begins now, referenced; NO_SEGMENT: no memory. */
static uint32_t begin_wait(struct inefficient *s, struct waste_place *place,
			   const struct waste_thread *thread)
{
	uint32_t segment = settle(s, place, thread) < 0
				   ? NO_SEGMENT
				   : account_cut(&place->account, s->moment, s->moment);

	if (segment != NO_SEGMENT)
		account_ref(&place->account, segment);
	return segment;
}

/* From here on the block may turn out to be wasted. */
static int begin_waits(struct inefficient *s, struct waste_trail *trail,
		       const struct waste_thread *thread)
{
	struct waste_place *place = &s->places[trail->place];

	trail->at = begin_wait(s, place, thread);
	trail->at_all = begin_wait(s, all_of(s, place), thread);
	return trail->at == NO_SEGMENT || trail->at_all == NO_SEGMENT ? -ENOMEM : 0;
}

static void end_waits(struct inefficient *s, struct waste_trail *trail)
{
	struct waste_place *place = &s->places[trail->place];

	if (trail->at != NO_SEGMENT)
		account_unref(&place->account, trail->at);
	if (trail->at_all != NO_SEGMENT)
		account_unref(&all_of(s, place)->account, trail->at_all);
	trail->at = trail->at_all = NO_SEGMENT;
}

/* It was wasted until now; or, with `of_operator`, until the operator in progress began. */
static int waste(struct inefficient *s, struct waste_place *place, uint32_t from,
		 const struct waste_thread *thread, bool of_operator, uint64_t bytes)
{
	uint32_t to;

	if (from == NO_SEGMENT)
		return 0;
	if (settle(s, place, thread) < 0)
		return -ENOMEM;
	if (of_operator && thread->inside && place->operator_since == thread->since)
		to = place->operator_at;
	else
		to = account_cut(&place->account, s->moment, s->moment);
	if (to == NO_SEGMENT)
		return -ENOMEM;
	account_waste(&place->account, from, to, bytes);
	return 0;
}

/* ---- findings ---- */

static void count(struct waste_place *place, const struct block *block, bool known,
		  enum inefficiency found)
{
	place->found = (uint16_t)(place->found | found);
	place->blocks[__builtin_ctz(found)]++;
	if (known)
		return;
	place->any_blocks++;
	place->bytes += block->size_bytes;
	if (block->allocation_id < place->first)
		place->first = block->allocation_id;
}

/* A block was not used well until now, in one way. */
static int add_finding(struct inefficient *s, struct replay *replay, const struct block *block,
		       struct waste_trail *trail, const struct waste_thread *thread,
		       enum inefficiency found)
{
	struct waste_place *place = &s->places[trail->place], *all = all_of(s, place);
	bool until_operator = found != INEFFICIENT_LATE;

	if (!(s->kinds & found) || block->size_bytes < s->least_bytes)
		return 0;
	if (!(trail->found & found)) {
		count(place, block, trail->found != 0, found);
		count(all, block, trail->found != 0, found);
		trail->found = (uint16_t)(trail->found | found);
		replay_learn_inefficient(replay, block, trail->found);
	}
	if (waste(s, place, trail->at, thread, until_operator, block->size_bytes) < 0)
		return -ENOMEM;
	return waste(s, all, trail->at_all, thread, until_operator, block->size_bytes);
}

/* ---- events ---- */

static uint16_t size_class(uint64_t bytes)
{
	return bytes == 0 ? 0 : (uint16_t)(64 - __builtin_clzll(bytes));
}

/* A block that is judged from here on. */
static int watch(struct inefficient *s, const struct block *block, uint32_t pool,
		 const struct waste_thread *thread)
{
	struct waste_place *place = waste_place_at(
		s, pool, block->stack, block->stack != 0 ? 0 : size_class(block->size_bytes));
	struct waste_trail *trail;
	size_t at;

	if (place == NULL || waste_trail_new(s, &at) < 0)
		return -ENOMEM;
	trail = &s->trails[at];
	*trail = (struct waste_trail){.allocation_id = block->allocation_id,
				      .allocated = thread->tick,
				      .place = (uint32_t)(place - s->places)};
	if (begin_waits(s, trail, thread) < 0)
		return -ENOMEM;
	place->live++;
	return map_put(&s->live, (struct map_key){block->allocation_id, 0}, at);
}

static int on_malloc(struct inefficient *s, const struct row *row, uint32_t index,
		     struct waste_thread *thread)
{
	struct waste_pool *pool = waste_pool_at(s, index);
	int r = 0;

	if (thread->inside)
		thread->allocates = true;
	else
		s->last_alloc = s->tick;
	if (pool == NULL)
		return -ENOMEM;
	if (pool->all == 0) {
		const struct waste_place *all = waste_place_at(s, index, WASTE_POOL, 0);

		if (all == NULL)
			return -ENOMEM;
		pool->all = (uint32_t)(all - s->places) + 1;
	}
	if (row->block->size_bytes >= s->least_bytes)
		r = watch(s, row->block, index, thread);
	return r < 0 ? r : set_used(s, pool, row->used_bytes);
}

/* The operator in progress uses the block, until it ends. */
static int hold(struct inefficient *s, struct waste_trail *trail, struct waste_thread *thread)
{
	if (MSCOPE_UNLIKELY(thread->use_count == thread->use_room) &&
	    ARRAY_RESERVE(thread->uses, thread->use_room, thread->use_count + 1) < 0)
		return -ENOMEM;
	thread->uses[thread->use_count++] = (struct waste_use){
		.trail = (uint32_t)(trail - s->trails), .allocation_id = trail->allocation_id};
	trail->users++;
	return 0;
}

static int on_access(struct inefficient *s, struct replay *replay, const struct block *block,
		     struct waste_thread *thread)
{
	const uint64_t *at = map_get(&s->live, (struct map_key){block->allocation_id, 0});
	uint64_t tick = thread->tick;
	struct waste_trail *trail;
	int r = 0;

	s->saw_access = true;
	if (at == NULL)
		return 0;
	trail = &s->trails[*at];
	if (trail->used == tick)
		return 0; /* the operator has used it before */
	if (trail->used == 0 && trail->allocated < s->last_free && s->last_free < tick)
		r = add_finding(s, replay, block, trail, thread, INEFFICIENT_EARLY);
	else if (trail->used != 0 && tick > trail->used && tick - trail->used > s->idle_ticks)
		r = add_finding(s, replay, block, trail, thread, INEFFICIENT_IDLE);
	if (tick > trail->used)
		trail->used = tick;
	end_waits(s, trail);
	if (r == 0 && thread->inside)
		r = hold(s, trail, thread);
	else if (r == 0 && trail->users == 0)
		r = begin_waits(s, trail, thread);
	return r;
}

static void drop(struct inefficient *s, size_t at)
{
	struct waste_trail *trail = &s->trails[at];

	end_waits(s, trail);
	s->places[trail->place].live--;
	trail->allocation_id = 0;
	trail->users = 0;
	s->free_trails[s->free_count++] = (uint32_t)at;
}

static int on_free(struct inefficient *s, struct replay *replay, const struct row *row,
		   uint32_t index, struct waste_thread *thread)
{
	struct waste_pool *pool = waste_pool_at(s, index);
	uint64_t at;
	int r = 0;

	if (pool == NULL)
		return -ENOMEM;
	if (map_remove(&s->live, (struct map_key){row->block->allocation_id, 0}, &at)) {
		struct waste_trail *trail = &s->trails[at];

		if (trail->used != 0 && trail->users == 0 && trail->used < s->last_alloc &&
		    s->last_alloc < thread->tick)
			r = add_finding(s, replay, row->block, trail, thread, INEFFICIENT_LATE);
		drop(s, at);
	}
	if (thread->inside)
		thread->frees = true;
	else
		s->last_free = s->tick;
	return r < 0 ? r : set_used(s, pool, row->used_bytes);
}

/* Drops a block whose end says nothing about its use. */
static void forget(struct inefficient *s, const struct block *block)
{
	uint64_t at;

	if (map_remove(&s->live, (struct map_key){block->allocation_id, 0}, &at))
		drop(s, at);
}

/* The outermost operator has ended: what it used may be wasted from here on. */
static int end_operator(struct inefficient *s, struct waste_thread *thread)
{
	size_t i;
	int r = 0;

	/* Operators of other threads that began later may have ended before. */
	if (thread->allocates && thread->tick > s->last_alloc)
		s->last_alloc = thread->tick;
	if (thread->frees && thread->tick > s->last_free)
		s->last_free = thread->tick;
	for (i = 0; i < thread->use_count; i++) {
		struct waste_trail *trail = &s->trails[thread->uses[i].trail];

		if (trail->allocation_id == thread->uses[i].allocation_id && trail->users > 0 &&
		    --trail->users == 0 && begin_waits(s, trail, thread) < 0)
			r = -ENOMEM;
	}
	thread->use_count = 0;
	return r;
}

/* Moves a thread to where the replay has it: windows and threads may end inside of operators. */
static int move(struct inefficient *s, const struct replay *replay, uint32_t writer,
		struct waste_thread *thread)
{
	bool inside = replay_in_operation(replay, writer, 1u << LAYER_ATEN | 1u << LAYER_ATB);
	bool ends = !inside && thread->inside;

	if (inside && !thread->inside) {
		thread->tick = ++s->tick;
		thread->since = s->moment;
		thread->allocates = thread->frees = false;
	}
	thread->inside = inside;
	return ends ? end_operator(s, thread) : 0;
}

static bool is_framework(uint8_t pool)
{
	return pool == POOL_pta || pool == POOL_pta_workspace || pool == POOL_atb ||
	       pool == POOL_mindspore || pool == POOL_host;
}

static int inefficient_row(void *state, struct replay *replay, const struct row *row)
{
	struct inefficient *s = state;
	enum row_group group = row_group(row->kind);
	struct waste_thread *thread;
	uint32_t index = 0, steps = replay_steps(replay);

	if (group != ROW_GROUP_OP &&
	    (row->block == NULL || row->block->hidden ||
	     !is_framework(replay_context(replay, row->block->context)->pool)))
		return 0;
	if (row->shadow) {
		if (row->kind == ROW_FREE)
			forget(s, row->block);
		return 0;
	}
	s->moment++;
	if (MSCOPE_UNLIKELY(steps != s->steps) && take_steps(s, steps) < 0)
		return -ENOMEM;
	thread = waste_thread_at(s, row->writer);
	if (thread == NULL || move(s, replay, row->writer, thread) < 0)
		return -ENOMEM;
	if (group == ROW_GROUP_OP)
		return 0;
	if (!thread->inside)
		thread->tick = ++s->tick;
	if (row->kind == ROW_MALLOC || row->kind == ROW_FREE) {
		size_t usages;

		index = (uint32_t)(replay_usage(replay, row->block) -
				   replay_usages(replay, &usages));
	}
	if (row->kind == ROW_MALLOC)
		return on_malloc(s, row, index, thread);
	if (row->kind == ROW_FREE)
		return on_free(s, replay, row, index, thread);
	return group == ROW_GROUP_ACCESS ? on_access(s, replay, row->block, thread) : 0;
}

static void inefficient_settings(void *state, const struct event_settings *settings)
{
	struct inefficient *s = state;

	s->kinds = (uint32_t)settings->waste_kinds;
	if (s->kinds == 0)
		s->kinds = SESSION_WASTE_ALL;
	s->least_bytes = settings->waste_bytes;
	s->idle_ticks = settings->waste_idle == 0 ? IDLE_TICKS : settings->waste_idle;
}

void inefficient_fini(void *state)
{
	struct inefficient *s = state;
	size_t i;

	for (i = 0; i < s->thread_room; i++)
		free(s->threads[i].uses);
	free(s->threads);
	for (i = 0; i < s->pool_count; i++) {
		free(s->pools[i]->tide.crests);
		free(s->pools[i]);
	}
	free(s->pools);
	free(s->places);
	map_fini(&s->place_ids);
	free(s->segments.at);
	map_fini(&s->live);
	free(s->trails);
	free(s->free_trails);
}

const struct analysis analysis_inefficient = {
	.name = "inefficient",
	.section = "inefficient memory",
	.own_view = true,
	.word = "inefficient",
	.nothing = "No block was allocated too early, freed too late or idle for long.\n",
	.bits = SESSION_INEFFICIENT,
	.state_bytes = sizeof(struct inefficient),
	.rows = 1u << ROW_MALLOC | 1u << ROW_FREE | 1u << ROW_READ | 1u << ROW_WRITE |
		1u << ROW_ACCESS | 1u << ROW_ATEN_START | 1u << ROW_ATEN_END | 1u << ROW_ATB_START |
		1u << ROW_ATB_END,
	.settings = inefficient_settings,
	.row = inefficient_row,
	.version = 3,
	.keep = inefficient_keep,
	.judge = inefficient_judge,
	.text = inefficient_text,
	.json = inefficient_json,
	.fini = inefficient_fini,
};
