/* SPDX-License-Identifier: Apache-2.0 */
#include "analysis/leaks.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/analyses.h"
#include "analysis/leaks_state.h"
#include "base/array.h"
#include "replay/ooms.h"
#include "trace/session.h"

/* Parts of time: their first length, and how many there may be before two become one. */
#define PART_NS	  UINT64_C(10000000)
#define PARTS_MAX 128u

/* Places without a stack are told apart by size; beyond so many of a pool, by classes of 16 an octave. */
#define SIZES_MAX 4096u

uint32_t last_ended_step(const struct replay *replay)
{
	uint32_t step = replay_steps(replay);

	while (step > 0 && !step_has_ended(replay, step))
		step--;
	return step;
}

/* ---- groups, devices, places ---- */

static struct device_state *device_at(struct leaks *leaks, uint32_t device)
{
	size_t i;

	for (i = 0; i < leaks->device_count; i++) {
		if (leaks->devices[i].device == device)
			return &leaks->devices[i];
	}
	if (ARRAY_RESERVE(leaks->devices, leaks->device_room, i + 1) < 0)
		return NULL;
	leaks->devices[i] = (struct device_state){.device = device};
	leaks->device_count++;
	return &leaks->devices[i];
}

/* Driver memory by handles, which has no address. */
static bool is_by_handles(const struct context *context)
{
	return context->pool == POOL_hal && context->kind == BLOCK_CREATE;
}

/* Index of the group of a context; group_count: there is none. */
static uint32_t group_known(const struct leaks *leaks, const struct context *context)
{
	uint32_t i;

	for (i = 0; i < leaks->group_count; i++) {
		const struct group *group = &leaks->groups[i];

		if (group->pool == context->pool && group->device == context->device &&
		    group->handles == is_by_handles(context))
			break;
	}
	return i;
}

/* Index of a group, new or known; UINT32_MAX: no memory. */
static uint32_t group_at(struct leaks *leaks, const struct context *context)
{
	uint32_t i = group_known(leaks, context);
	const struct device_state *on;

	if (i < leaks->group_count)
		return i;
	on = device_at(leaks, context->device);
	if (on == NULL || ARRAY_RESERVE(leaks->groups, leaks->group_room, i + 1) < 0)
		return UINT32_MAX;
	leaks->groups[i] = (struct group){.pool = context->pool,
					  .device = context->device,
					  .on = (uint32_t)(on - leaks->devices),
					  .handles = is_by_handles(context),
					  .framework = !pool_is_driver(context->pool)};
	leaks->group_count++;
	return i;
}

static MSCOPE_COLD uint32_t group_slow(struct leaks *leaks, const struct replay *replay,
				       uint32_t context)
{
	size_t before = leaks->context_room;
	uint32_t group;

	if (ARRAY_RESERVE(leaks->by_context, leaks->context_room, (size_t)context + 1) < 0)
		return UINT32_MAX;
	memset(leaks->by_context + before, 0,
	       (leaks->context_room - before) * sizeof(*leaks->by_context));
	group = group_at(leaks, replay_context(replay, context));
	if (group != UINT32_MAX)
		leaks->by_context[context] = group + 1;
	return group;
}

static inline uint32_t group_of(struct leaks *leaks, const struct replay *replay, uint32_t context)
{
	return MSCOPE_LIKELY(context < leaks->context_room && leaks->by_context[context] != 0)
		       ? leaks->by_context[context] - 1
		       : group_slow(leaks, replay, context);
}

/* Lower end of the class of a size. */
static uint64_t size_class(uint64_t size)
{
	int bits = size < 32 ? 0 : 59 - __builtin_clzll(size);

	return size >> bits << bits;
}

static inline uint32_t cache_slot(uint32_t group, uint32_t stack, uint64_t size)
{
	uint64_t hash = ((uint64_t)group << 32 | stack) + (stack != 0 ? 0 : size << 8);

	return (uint32_t)(hash * UINT64_C(0x9e3779b97f4a7c15) >> 40) & (LEAKS_CACHE - 1);
}

/* Looks a place up; UINT32_MAX if it is not there. */
static uint32_t place_known(const struct leaks *leaks, uint32_t group, uint32_t stack,
			    uint64_t size)
{
	const struct place *known = leaks_place_at(leaks, group, stack, size);

	if (known == NULL && stack == 0)
		known = leaks_place_at(leaks, group, stack, size_class(size) | LEAKS_CLASS);
	return known == NULL ? UINT32_MAX : (uint32_t)(known - leaks->places);
}

static MSCOPE_COLD uint32_t place_new(struct leaks *leaks, uint32_t group, uint32_t stack,
				      uint64_t size)
{
	bool class = stack == 0 && leaks->groups[group].sizes >= SIZES_MAX;
	uint64_t key = class ? size_class(size) | LEAKS_CLASS : size;
	size_t at = leaks->place_count;

	if (ARRAY_RESERVE(leaks->places, leaks->place_room, at + 1) < 0 ||
	    by_stack_add(&leaks->by_stack, stack, leaks_place_hash(group, stack, key), at) < 0)
		return UINT32_MAX;
	leaks->places[at] = (struct place){
		.size = stack != 0 ? 0 : key, .stack = stack, .group = group & INT32_MAX};
	leaks->groups[group].sizes += stack == 0 && !class;
	leaks->place_count++;
	return (uint32_t)at;
}

static MSCOPE_COLD uint32_t place_slow(struct leaks *leaks, uint32_t group, uint32_t stack,
				       uint64_t size)
{
	struct place_cache *cache = &leaks->cache[cache_slot(group, stack, size)];
	uint32_t place = place_known(leaks, group, stack, size);

	if (place == UINT32_MAX)
		place = place_new(leaks, group, stack, size);
	if (place != UINT32_MAX)
		*cache = (struct place_cache){
			.size = size, .stack = stack, .group = group, .place = place + 1};
	return place;
}

static inline uint32_t place_at(struct leaks *leaks, uint32_t group, uint32_t stack, uint64_t size)
{
	const struct place_cache *cache = &leaks->cache[cache_slot(group, stack, size)];

	return MSCOPE_LIKELY(cache->place != 0 && cache->stack == stack && cache->group == group &&
			     (stack != 0 || cache->size == size))
		       ? cache->place - 1
		       : place_slow(leaks, group, stack, size);
}

uint32_t leaks_place_of(const struct leaks *leaks, const struct replay *replay,
			const struct block *block)
{
	uint32_t group =
		block->context < leaks->context_room ? leaks->by_context[block->context] : 0;

	group = group != 0 ? group - 1 : group_known(leaks, replay_context(replay, block->context));
	return group == leaks->group_count
		       ? UINT32_MAX
		       : place_known(leaks, group, block->stack, block->size_bytes);
}

static inline int touch(struct leaks *leaks, uint32_t place)
{
	if (MSCOPE_LIKELY(leaks->places[place].touched))
		return 0;
	if (ARRAY_RESERVE(leaks->touched, leaks->touched_room, leaks->touched_count + 1) < 0)
		return -ENOMEM;
	leaks->touched[leaks->touched_count++] = place;
	leaks->places[place].touched = true;
	return 0;
}

/* ---- driver memory beside a pool ---- */

/* Index of the first unclaimed block above an address. */
static size_t unclaimed_above(const struct device_state *d, uint64_t address)
{
	return COUNT_FRONT(at, d->unclaimed_count, d->unclaimed[at].address <= address);
}

static int unclaimed_add(struct device_state *d, const struct block *block, uint32_t place,
			 uint32_t step)
{
	size_t at = unclaimed_above(d, block->address);

	if (ARRAY_RESERVE(d->unclaimed, d->unclaimed_room, d->unclaimed_count + 1) < 0)
		return -ENOMEM;
	memmove(d->unclaimed + at + 1, d->unclaimed + at,
		(d->unclaimed_count - at) * sizeof(*d->unclaimed));
	d->unclaimed[at] = (struct unclaimed){.address = block->address,
					      .end = block->address + block->size_bytes,
					      .allocation_id = block->allocation_id,
					      .place = place,
					      .step = step};
	d->unclaimed_count++;
	return 0;
}

static void unclaimed_drop(struct device_state *d, size_t at)
{
	d->unclaimed_count--;
	memmove(d->unclaimed + at, d->unclaimed + at + 1,
		(d->unclaimed_count - at) * sizeof(*d->unclaimed));
}

static bool unclaimed_find(const struct device_state *d, const struct block *block, size_t *out_at)
{
	size_t at = unclaimed_above(d, block->address);

	*out_at = at - 1;
	return at > 0 && d->unclaimed[at - 1].allocation_id == block->allocation_id;
}

/* The driver's blocks of a device that a pool may use. */
static bool is_driver_block(const struct group *group)
{
	return group->pool == POOL_hal && !group->handles;
}

bool leaks_is_claimed(const struct leaks *leaks, const struct group *group,
		      const struct block *block)
{
	const struct device_state *d = &leaks->devices[group->on];
	size_t at;

	return is_driver_block(group) && d->pooled && !unclaimed_find(d, block, &at);
}

/*
 * The first block of a pool on a device: the driver's blocks there, which are older, are told apart from now on. An analysis that
 * begins in the middle of a run hears of newer ones later.
 */
static MSCOPE_COLD int begin_claims(struct leaks *leaks, struct replay *replay, uint32_t on,
				    const struct block *first)
{
	const struct block *block;
	size_t cursor = 0;
	int r = 0;

	leaks->devices[on].pooled = true;
	while (r == 0 && (block = replay_next_observed(replay, &cursor)) != NULL) {
		uint32_t group = group_of(leaks, replay, block->context), place;

		if (group == UINT32_MAX)
			return -ENOMEM;
		if (block->outside_window || block->allocation_id > first->allocation_id ||
		    leaks->groups[group].on != on || !is_driver_block(&leaks->groups[group]))
			continue;
		place = place_at(leaks, group, block->stack, block->size_bytes);
		r = place == UINT32_MAX ? -ENOMEM
					: unclaimed_add(&leaks->devices[on], block, place,
							leaks_step_of(leaks, block));
	}
	return r;
}

/* A pool's block lies in a block of the driver: that one is the pool's cache, and not judged. */
static int claim(struct leaks *leaks, struct replay *replay, uint32_t on, const struct block *block)
{
	uint64_t address = block->address;
	struct device_state *d = &leaks->devices[on];
	struct unclaimed found;
	size_t at;
	int r;

	if (MSCOPE_UNLIKELY(!d->pooled)) {
		r = begin_claims(leaks, replay, on, block);
		if (r < 0)
			return r;
		d = &leaks->devices[on];
	}
	if (d->unclaimed_count == 0)
		return 0;
	at = unclaimed_above(d, address);
	if (at == 0 || address >= d->unclaimed[at - 1].end)
		return 0;
	found = d->unclaimed[at - 1];
	unclaimed_drop(d, at - 1);
	d->claimed_bytes += found.end - found.address;
	growth_forget(&leaks->places[found.place].growth, found.end - found.address,
		      found.step < leaks->now);
	return touch(leaks, found.place);
}

uint64_t leaks_reserved(const struct replay *replay, uint32_t device)
{
	size_t count, i;
	const struct usage *usages = replay_usages(replay, &count);
	uint64_t sum = 0;

	for (i = 0; i < count; i++) {
		if (usages[i].device == device && !pool_is_driver(usages[i].pool) &&
		    usages[i].reserved_bytes != UINT64_MAX)
			sum += usages[i].reserved_bytes;
	}
	return sum;
}

/* ---- owners ---- */

bool leaks_owner_holds(const struct replay *replay, uint32_t owner)
{
	return replay_owner_class(replay, owner) == CLASS_optimizer_state;
}

static MSCOPE_COLD bool owner_is_held(struct leaks *leaks, const struct replay *replay,
				      uint32_t owner)
{
	size_t before = leaks->holds_room;

	if (owner >= before) {
		if (array_reserve(&leaks->holds, &leaks->holds_room, (size_t)owner + 1, 1) < 0)
			return leaks_owner_holds(replay, owner);
		memset(leaks->holds + before, 0, leaks->holds_room - before);
	}
	if (leaks->holds[owner] == 0)
		leaks->holds[owner] = leaks_owner_holds(replay, owner) ? 2 : 1;
	return leaks->holds[owner] == 2;
}

/* Memory that is held by right is not part of its place. */
static inline bool is_held(struct leaks *leaks, const struct replay *replay, uint32_t owner)
{
	return owner != 0 && owner_is_held(leaks, replay, owner);
}

/* ---- steps, and parts of time ---- */

/* The program's own time: without the pauses in which it looked for what keeps its memory. A part of them is not one of silence. */
static inline uint64_t own_time(const struct leaks *leaks, uint64_t time_ns)
{
	uint64_t paused = 0;
	uint32_t i;

	for (i = 0; i < leaks->pause_count && time_ns > leaks->pauses[i].from_ns; i++) {
		uint64_t since = time_ns - leaks->pauses[i].from_ns;

		paused += since < leaks->pauses[i].ns ? since : leaks->pauses[i].ns;
	}
	return time_ns - paused;
}

uint32_t leaks_step_of(const struct leaks *leaks, const struct block *block)
{
	uint64_t time_ns;

	if (leaks->by_step) {
		uint32_t step =
			block->latest_step > leaks->offset ? block->latest_step - leaks->offset : 1;

		/* Between two steps it is the next one's; before the second, the first's. */
		return step + (block->alloc_step == 0 && step > 1 && !leaks->contiguous);
	}
	time_ns = own_time(leaks, block->time_ns);
	if (leaks->part_ns == 0 || time_ns <= leaks->start_ns)
		return 1;
	return (uint32_t)((time_ns - leaks->start_ns) / leaks->part_ns) + 1;
}

/* Whether that step, or part of time, is still going on. */
static inline bool is_new(const struct leaks *leaks, const struct block *block)
{
	if (leaks->by_step)
		return leaks_step_of(leaks, block) >= leaks->now;
	/* The same without a division. */
	return leaks->now <= 1 || own_time(leaks, block->time_ns) >=
					  leaks->start_ns + (leaks->now - 1) * leaks->part_ns;
}

/* What was freed since a step ended last leaves its places. */
static int settle_freed(struct leaks *leaks, uint32_t step)
{
	size_t i;
	int r = 0;

	for (i = 0; i < leaks->freed_count && r == 0; i++) {
		const struct freed *freed = &leaks->freed[i];
		uint32_t age = step > freed->step ? step - freed->step : 0;

		r = growth_free(&leaks->places[freed->place].growth,
				freed->block.size_bytes - freed->unused, age);
		if (r == 0)
			r = touch(leaks, freed->place);
	}
	leaks->freed_count = 0;
	return r;
}

/* What the driver gave by handles, less what pools hold of it. */
static int step_handles(struct leaks *leaks, const struct replay *replay, uint32_t step)
{
	size_t i;
	int r = 0;

	for (i = 0; i < leaks->group_count && r == 0; i++) {
		const struct group *group = &leaks->groups[i];
		struct device_state *d = &leaks->devices[group->on];
		uint64_t given = group->growth.live + d->claimed_bytes, held;

		if (!group->handles || !d->pooled)
			continue;
		held = leaks_reserved(replay, group->device);
		d->handles.live = given > held ? given - held : 0;
		r = growth_step(&d->handles, step);
	}
	return r;
}

static int note_usage(struct leaks *leaks, const struct replay *replay, uint32_t step)
{
	size_t count, i, k;
	const struct usage *usages = replay_usages(replay, &count);
	int r = 0;

	for (i = 0; i < leaks->group_count; i++) {
		struct group *group = &leaks->groups[i];

		for (k = 0; k < count; k++) {
			if (usages[k].pool == group->pool && usages[k].device == group->device)
				group->end_bytes = usages[k].live_bytes;
		}
	}
	for (i = 0; i < leaks->device_count && r == 0; i++)
		r = device_level_step(&leaks->devices[i].level, replay, leaks->devices[i].device,
				      step);
	return r;
}

/* A step has ended: levels are what lives now. */
static int end_step(struct leaks *leaks, struct replay *replay, uint32_t step)
{
	int r = settle_freed(leaks, step);
	size_t i;

	leaks->refused = false;
	for (i = 0; i < leaks->touched_count && r == 0; i++) {
		struct place *place = &leaks->places[leaks->touched[i]];
		struct growth *group = &leaks->groups[place->group].growth;

		group->live += place->growth.live - place->growth.before;
		r = growth_step(&place->growth, step);
		place->touched = false;
	}
	leaks->touched_count = 0;
	for (i = 0; i < leaks->group_count && r == 0; i++)
		r = growth_step(&leaks->groups[i].growth, step);
	if (r == 0)
		r = note_usage(leaks, replay, step);
	return r < 0 ? r : step_handles(leaks, replay, step);
}

/* From here on steps count, not parts of time. What lives is where they begin: the first step's. */
static int begin_steps(struct leaks *leaks, struct replay *replay)
{
	size_t i;
	int r = settle_freed(leaks, leaks->now);

	for (i = 0; i < leaks->place_count && r == 0; i++) {
		growth_restart(&leaks->places[i].growth);
		r = touch(leaks, (uint32_t)i);
	}
	for (i = 0; i < leaks->group_count; i++) {
		growth_fini(&leaks->groups[i].growth);
	}
	for (i = 0; i < leaks->device_count; i++) {
		growth_restart(&leaks->devices[i].handles);
		device_level_restart(&leaks->devices[i].level);
	}
	leaks->by_step = true;
	leaks->length_count = leaks->length_skipped = 0;
	return r < 0 ? r : end_step(leaks, replay, 1);
}

/* Two parts become one. */
static void coarsen(struct leaks *leaks)
{
	size_t i;

	leaks->part_ns *= 2;
	leaks->now = (leaks->now + 1) / 2;
	for (i = 0; i < leaks->place_count; i++)
		growth_coarsen(&leaks->places[i].growth);
	for (i = 0; i < leaks->group_count; i++)
		growth_coarsen(&leaks->groups[i].growth);
	for (i = 0; i < leaks->device_count; i++) {
		struct device_state *d = &leaks->devices[i];
		size_t k;

		growth_coarsen(&d->handles);
		device_level_coarsen(&d->level);
		for (k = 0; k < d->unclaimed_count; k++)
			d->unclaimed[k].step = (d->unclaimed[k].step + 1) / 2;
	}
}

/* From the last allocation to the answer: had another thread gone on, it would have allocated. */
static void note_pause(struct leaks *leaks, const struct replay *replay, uint64_t time_ns)
{
	uint64_t end_ns = replay_keeper_ns(replay);

	if (end_ns > leaks->latest_ns && end_ns <= time_ns && leaks->pause_count < LEAKS_PAUSES)
		leaks->pauses[leaks->pause_count++] = (struct leaks_pause){
			.from_ns = leaks->latest_ns, .ns = end_ns - leaks->latest_ns};
}

/*
 * No step was marked so far: parts of time end as it passes. Only allocations end them, so a program that only frees any more has
 * ended.
 */
static int pass_time(struct leaks *leaks, struct replay *replay, uint64_t real_ns)
{
	uint64_t part, time_ns;
	int r;

	if (MSCOPE_UNLIKELY(leaks->part_ns == 0)) {
		leaks->start_ns = leaks->latest_ns = real_ns;
		leaks->part_ns = PART_NS;
		leaks->now = 1;
	}
	if (MSCOPE_UNLIKELY(replay_keeper_ns(replay) > leaks->latest_ns))
		note_pause(leaks, replay, real_ns);
	leaks->latest_ns = real_ns;
	time_ns = own_time(leaks, real_ns);
	/* Behind the end of the program's own code no part ends: what is freed there lived until the end. */
	if (MSCOPE_LIKELY(time_ns < leaks->start_ns + leaks->now * leaks->part_ns) ||
	    replay_ended(replay) != 0)
		return 0;
	r = end_step(leaks, replay, leaks->now);
	part = (time_ns - leaks->start_ns) / leaks->part_ns + 1;
	/* After a long pause, parts grow before they are counted. */
	leaks->now = part > UINT32_MAX / 2 ? UINT32_MAX / 2 : (uint32_t)part;
	while (leaks->now > PARTS_MAX)
		coarsen(leaks);
	leaks->ended = leaks->now - 1;
	return r;
}

/* Every `stride`-th length of a step is kept; when there are too many, every second goes. */
static void note_length(struct leaks *leaks, uint64_t length_ns)
{
	uint32_t i;

	if (leaks->stride == 0)
		leaks->stride = 1;
	if (++leaks->length_skipped < leaks->stride)
		return;
	leaks->length_skipped = 0;
	if (leaks->length_count == MSCOPE_COUNT(leaks->lengths)) {
		leaks->stride *= 2;
		leaks->length_count /= 2;
		for (i = 0; i < leaks->length_count; i++)
			leaks->lengths[i] = leaks->lengths[2 * i];
	}
	leaks->lengths[leaks->length_count++] = length_ns;
}

static int take_end(struct leaks *leaks, struct replay *replay, uint32_t step, uint64_t time_ns)
{
	int r;

	if (step > leaks->offset + leaks->ended)
		leaks->ended = step - leaks->offset;
	r = end_step(leaks, replay, leaks->ended);
	note_length(leaks, time_ns - leaks->last_end_ns);
	leaks->last_end_ns = time_ns;
	leaks->left = 0;
	return r;
}

static int leaks_step(void *state, struct replay *replay, uint32_t step, bool begins)
{
	struct leaks *leaks = state;
	uint64_t time_ns = replay_totals(replay)->last_ns;
	int r = 0;

	leaks->contiguous = replay_steps_are_automatic(replay);
	if (leaks->left != 0) {
		r = take_end(leaks, replay, leaks->left, leaks->left_ns);
		if (r < 0)
			return r;
	}
	if (!leaks->by_step && begins && step < LEAKS_FIRST_STEP)
		return 0; /* the first step has begun, or one is guessed */
	if (!leaks->by_step) {
		r = begin_steps(leaks, replay);
		leaks->offset = step - 1 - begins;
		leaks->ended = 1;
		leaks->last_end_ns = time_ns;
	} else if (!begins && leaks->refused) {
		leaks->left = step;
		leaks->left_ns = time_ns;
		return 0;
	} else if (!begins) {
		r = take_end(leaks, replay, step, time_ns);
	}
	if (begins && r == 0 && leaks->ended == 1 && step - leaks->offset == LEAKS_FIRST_STEP)
		r = end_step(leaks, replay,
			     1); /* what came behind the first step is the first step's */
	if (begins)
		leaks->now = step - leaks->offset;
	else if (replay_open_step(replay, 0) == 0 && leaks->ended > 1)
		leaks->now = replay_steps(replay) + 1 - leaks->offset;
	else if (leaks->ended == 1)
		leaks->now = 1;
	return r;
}

/* ---- blocks ---- */

static int add(struct leaks *leaks, struct replay *replay, const struct block *block)
{
	uint32_t group = group_of(leaks, replay, block->context), place;
	const struct group *g;
	struct device_state *d;

	if (group == UINT32_MAX)
		return -ENOMEM;
	place = place_at(leaks, group, block->stack, block->size_bytes);
	if (place == UINT32_MAX)
		return -ENOMEM;
	growth_alloc(&leaks->places[place].growth, judged_bytes(block));
	if (touch(leaks, place) < 0)
		return -ENOMEM;
	g = &leaks->groups[group];
	d = &leaks->devices[g->on];
	if (g->framework && (!d->pooled || d->unclaimed_count > 0))
		return claim(leaks, replay, g->on, block);
	if (MSCOPE_UNLIKELY(d->pooled) && is_driver_block(g))
		return unclaimed_add(d, block, place, leaks_step_of(leaks, block));
	return 0;
}

static struct leaks_block block_of(const struct leaks *leaks, const struct block *block)
{
	return (struct leaks_block){.address = block->address,
				    .size_bytes = block->size_bytes,
				    .allocation_id = block->allocation_id,
				    .kernel = block->launches,
				    .step = leaks->by_step ? block->latest_step
							   : leaks_step_of(leaks, block),
				    .stack = block->stack};
}

static int take_away(struct leaks *leaks, struct replay *replay, const struct block *block)
{
	uint32_t group = group_of(leaks, replay, block->context), place;
	struct device_state *d;
	const struct group *g;
	size_t at;

	if (group == UINT32_MAX)
		return -ENOMEM;
	g = &leaks->groups[group];
	d = &leaks->devices[g->on];
	if (MSCOPE_UNLIKELY(d->pooled) && is_driver_block(g)) {
		if (!unclaimed_find(d, block, &at)) {
			d->claimed_bytes -= block->size_bytes < d->claimed_bytes ? block->size_bytes
										 : d->claimed_bytes;
			return 0;
		}
		unclaimed_drop(d, at);
	}
	place = place_at(leaks, group, block->stack, block->size_bytes);
	if (place == UINT32_MAX)
		return -ENOMEM;
	if (is_new(leaks, block)) {
		growth_free_new(&leaks->places[place].growth, judged_bytes(block));
		return touch(leaks, place);
	}
	if (ARRAY_RESERVE(leaks->freed, leaks->freed_room, leaks->freed_count + 1) < 0)
		return -ENOMEM;
	leaks->freed[leaks->freed_count] = (struct freed){.block = block_of(leaks, block),
							  .place = place,
							  .step = leaks_step_of(leaks, block),
							  .owner = block->owner,
							  .unused = unused_of(block)};
	leaks->freed[leaks->freed_count++].block.freed_late = true;
	return 0;
}

/* Its free failed: it lives on. */
static MSCOPE_COLD int restore(struct leaks *leaks, struct replay *replay,
			       const struct block *block)
{
	uint32_t group = group_of(leaks, replay, block->context), place;
	struct device_state *d;
	bool driver, known;
	size_t i = leaks->freed_count;

	if (group == UINT32_MAX)
		return -ENOMEM;
	place = place_at(leaks, group, block->stack, block->size_bytes);
	if (place == UINT32_MAX)
		return -ENOMEM;
	d = &leaks->devices[leaks->groups[group].on];
	driver = d->pooled && is_driver_block(&leaks->groups[group]);
	known = is_new(leaks, block);
	if (known) {
		leaks->places[place].growth.instep -= leaks->places[place].growth.instep > 0;
		growth_alloc(&leaks->places[place].growth, judged_bytes(block));
		if (touch(leaks, place) < 0)
			return -ENOMEM;
	}
	while (!known && i > 0) {
		if (leaks->freed[--i].block.allocation_id != block->allocation_id)
			continue;
		leaks->freed[i] = leaks->freed[--leaks->freed_count];
		known = true;
	}
	if (driver && known)
		return unclaimed_add(d, block, place, leaks_step_of(leaks, block));
	if (driver)
		d->claimed_bytes += block->size_bytes;
	return 0;
}

/* Memory whose owner is known from the start, and holds it by right: its place has no level, only a name. */
static int name_place(struct leaks *leaks, const struct replay *replay, const struct block *block)
{
	uint32_t group = group_of(leaks, replay, block->context);

	return group == UINT32_MAX ||
			       place_at(leaks, group, block->stack, block->size_bytes) == UINT32_MAX
		       ? -ENOMEM
		       : 0;
}

/* The owner became known: memory that is held by right leaves its place, other memory comes back. */
static int relabel(struct leaks *leaks, struct replay *replay, const struct block *block,
		   uint32_t before)
{
	bool was_held = is_held(leaks, replay, before);
	uint32_t group, place;

	if (was_held == is_held(leaks, replay, block->owner))
		return 0;
	group = group_of(leaks, replay, block->context);
	place = group == UINT32_MAX ? UINT32_MAX
				    : place_at(leaks, group, block->stack, block->size_bytes);
	if (place == UINT32_MAX)
		return -ENOMEM;
	if (was_held)
		growth_alloc(&leaks->places[place].growth, judged_bytes(block));
	else
		growth_forget(&leaks->places[place].growth, judged_bytes(block),
			      leaks_step_of(leaks, block) < leaks->now);
	return touch(leaks, place);
}

static int leaks_block(void *state, struct replay *replay, enum block_change change,
		       const struct block *block, const struct usage *usage, uint32_t owner)
{
	struct leaks *leaks = state;
	int r;

	(void)usage;
	if (block->outside_window)
		return 0;
	if (!leaks->by_step && change == BLOCK_ADDED) {
		r = pass_time(leaks, replay, block->time_ns);
		if (r < 0)
			return r;
	}
	if (change == BLOCK_RELABELLED)
		return relabel(leaks, replay, block, owner);
	if (is_held(leaks, replay, block->owner))
		return change == BLOCK_ADDED ? name_place(leaks, replay, block) : 0;
	if (change == BLOCK_ADDED)
		return add(leaks, replay, block);
	return change == BLOCK_REMOVED ? take_away(leaks, replay, block)
				       : restore(leaks, replay, block);
}

/* A window begins: blocks that were freed outside of windows tell nothing about lifetimes. */
static int begin_window(struct leaks *leaks)
{
	size_t i;
	int r = 0;

	for (i = 0; i < leaks->freed_count && r == 0; i++) {
		growth_forget(&leaks->places[leaks->freed[i].place].growth,
			      leaks->freed[i].block.size_bytes - leaks->freed[i].unused, true);
		r = touch(leaks, leaks->freed[i].place);
	}
	leaks->freed_count = 0;
	return r;
}

static int leaks_row(void *state, struct replay *replay, const struct row *row)
{
	struct leaks *leaks = state;

	(void)replay;
	if (row->kind == ROW_START_TRACE)
		return begin_window(leaks);
	leaks->refused |= row->oom != NULL && row->oom->ended && !row->oom->recovered;
	return 0;
}

static int leaks_sample(void *state, struct replay *replay, const struct driver_usage *driver)
{
	struct device_state *d = device_at(state, driver->device);

	if (d == NULL)
		return -ENOMEM;
	device_level_sample(&d->level, replay, driver);
	return 0;
}

static void leaks_end(void *state)
{
	struct leaks *leaks = state;

	free(leaks->touched);
	leaks->touched = NULL;
	leaks->touched_count = leaks->touched_room = 0;
}

static void leaks_fini(void *state)
{
	leaks_clear(state);
}

const struct analysis analysis_leaks = {
	.name = "leaks",
	.word = "leaks",
	.nothing = "Nothing to judge: the run has no allocations and frees.\n",
	.bits = SESSION_LEAKS,
	.state_bytes = sizeof(struct leaks),
	.rows = 1u << ROW_START_TRACE | 1u << ROW_SNAPSHOT,
	.blocks = BLOCK_CHANGES_ALL,
	.row = leaks_row,
	.step = leaks_step,
	.sample = leaks_sample,
	.block = leaks_block,
	.version = 7,
	.keep = leaks_keep,
	.end = leaks_end,
	.judge = leaks_report,
	.text = leaks_say,
	.long_json = true,
	.json = leaks_json,
	.fini = leaks_fini,
};

struct leaks_findings *leaks_findings(const struct analyses *analyses, struct replay *replay)
{
	const struct leaks *leaks = analyses->state[ANALYSIS_ID_leaks];

	if (leaks == NULL || analyses->failed[ANALYSIS_ID_leaks] ||
	    !(analyses->bits & SESSION_LEAKS))
		return NULL;
	return leaks_judge(leaks, replay,
			   (const size_t[]){[GROWTH_KEPT] = LEAKS_PLACES,
					    [GROWTH_SUSPECT] = LEAKS_PLACES,
					    [GROWTH_LEAK] = SIZE_MAX / 2});
}

size_t leaks_climbing(const struct analyses *analyses, const struct replay *replay,
		      struct device_forecast *out, size_t most, uint32_t *out_step,
		      uint32_t *out_ended)
{
	const struct leaks *leaks = analyses->state[ANALYSIS_ID_leaks];
	struct device_growth none = {0};
	size_t count = 0, i;

	*out_step = *out_ended = 0;
	if (leaks == NULL || analyses->failed[ANALYSIS_ID_leaks] ||
	    !(analyses->bits & SESSION_LEAKS) || !leaks->by_step || leaks->refused)
		return 0;
	*out_ended = leaks->ended;
	*out_step = leaks->ended + leaks->offset;
	for (i = 0; i < leaks->device_count && count < most; i++) {
		const struct device_state *d = &leaks->devices[i];

		if (device_level_forecast(&d->level, replay, d->device, leaks->ended, &none,
					  &out[count])) {
			count++;
		} else if (device_level_rises(&d->level, leaks->ended)) {
			out[count++] =
				(struct device_forecast){.device = d->device, .steady = true};
		}
	}
	return count;
}
