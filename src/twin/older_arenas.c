/* SPDX-License-Identifier: Apache-2.0 */
#include "twin/older_arenas.h"

#include <errno.h>
#include <stdlib.h>

#include "base/array.h"
#include "twin/block_sizes.h"

/* An expandable segment that had mapped ranges when the record began. */
struct older_arena {
	uint64_t address; /* the lowest one that the record has */
	uint64_t mapped;  /* bytes, while events are passed */
	uint64_t stream, private_pool;
	uint32_t lane;
	bool small;
};

struct older_arenas {
	const struct program *program;
	const struct twin_conditions *conditions;
	struct history_segment *ranges; /* by ascending address */
	size_t range_count;
	uint32_t *arena_of; /* of each range */
	struct older_arena *all;
	size_t count, room;
};

static int by_address(const void *a, const void *b)
{
	const struct history_segment *x = a, *y = b;

	return ORDER_UP(x->address, y->address);
}

static bool is_small(const struct older_arenas *a, uint64_t bytes)
{
	return block_size_of(&a->conditions->settings, &a->conditions->release, bytes) <=
	       TWIN_SMALL_MOST;
}

/* A block in a range whose kind is unknown tells it. */
static void tell_kind(struct older_arenas *a, uint64_t address, uint64_t bytes)
{
	size_t low = COUNT_FRONT(at, a->range_count, a->ranges[at].address <= address);
	struct history_segment *range;

	if (low == 0)
		return;
	range = &a->ranges[low - 1];
	if (!range->kind_unknown || address - range->address >= range->bytes)
		return;
	range->kind_unknown = false;
	range->small = is_small(a, bytes);
}

static int take_ranges(struct older_arenas *a)
{
	const struct pool_history *h = a->program->history;

	a->ranges = calloc(h->segment_count + 1, sizeof(*a->ranges));
	a->arena_of = calloc(h->segment_count + 1, sizeof(*a->arena_of));
	if (a->ranges == NULL || a->arena_of == NULL)
		return -ENOMEM;
	for (size_t i = 0; i < h->segment_count; i++)
		if (h->segments[i].expandable)
			a->ranges[a->range_count++] = h->segments[i];
	if (a->range_count == 0)
		return 0;
	qsort(a->ranges, a->range_count, sizeof(*a->ranges), by_address);
	for (size_t i = 0; i < h->block_count; i++) {
		const struct history_block *b = &h->blocks[i];

		tell_kind(a, b->address, b->requested != 0 ? b->requested : b->bytes);
	}
	for (size_t i = 0; i < h->event_count; i++)
		if (h->events[i].kind == HISTORY_ALLOC)
			tell_kind(a, h->events[i].address, h->events[i].bytes);
	/* Without a block: whole units of the large pool are likely to be of that. */
	for (size_t i = 0; i < a->range_count; i++)
		if (a->ranges[i].kind_unknown)
			a->ranges[i].small =
				a->ranges[i].bytes % a->conditions->settings.large_segment_bytes !=
				0;
	return 0;
}

static bool reaches(const struct older_arenas *a, const struct older_arena *arena, uint64_t address)
{
	uint64_t bytes = a->conditions->device_bytes + a->conditions->device_bytes / 8;

	return address >= arena->address ? address - arena->address < bytes
					 : arena->address - address < bytes;
}

static int group_ranges(struct older_arenas *a)
{
	for (size_t i = 0; i < a->range_count; i++) {
		const struct history_segment *range = &a->ranges[i];
		size_t k = a->count;

		while (k > 0 && (a->all[k - 1].stream != range->stream ||
				 a->all[k - 1].small != range->small ||
				 a->all[k - 1].private_pool != range->private_pool ||
				 !reaches(a, &a->all[k - 1], range->address + range->bytes)))
			k--;
		if (k == 0) {
			if (ARRAY_RESERVE(a->all, a->room, a->count + 1) != 0)
				return -ENOMEM;
			a->all[a->count++] = (struct older_arena){
				.address = range->address,
				.stream = range->stream,
				.private_pool = range->private_pool,
				.lane = program_lane_of(a->program, range->stream,
							range->private_pool),
				.small = range->small};
			k = a->count;
		}
		a->all[k - 1].mapped += range->bytes;
		a->arena_of[i] = (uint32_t)(k - 1);
	}
	return 0;
}

/* Whether the request that led to the event is one of the small pool. */
static bool maps_small(const struct older_arenas *a, size_t event)
{
	const struct pool_history *h = a->program->history;

	for (; event < h->event_count; event++)
		if (h->events[event].kind == HISTORY_ALLOC ||
		    h->events[event].kind == HISTORY_REFUSED)
			return is_small(a, h->events[event].bytes);
	return false;
}

/* The arena that an event is about; NULL: one that came later. */
static struct older_arena *find_arena(struct older_arenas *a, size_t event)
{
	const struct history_event *e = &a->program->history->events[event];
	bool grows = e->kind == HISTORY_MAP;
	bool small = grows && maps_small(a, event);
	struct older_arena *found = NULL;

	for (size_t i = 0; i < a->count; i++) {
		struct older_arena *arena = &a->all[i];

		if (arena->mapped == 0 || arena->stream != e->stream ||
		    arena->private_pool != e->private_pool || !reaches(a, arena, e->address) ||
		    (grows && arena->small != small) || (!grows && e->address < arena->address))
			continue;
		/* The nearest one that begins at or before it, else the first after it. */
		if (found == NULL || arena->address <= e->address)
			found = arena;
	}
	return found;
}

/* The front of an arena may not have been mapped at the start, and be mapped later. An arena that is not mapped at all goes. */
static void find_fronts(struct older_arenas *a)
{
	const struct pool_history *h = a->program->history;

	for (size_t i = 0; i < h->event_count && a->count > 0; i++) {
		const struct history_event *e = &h->events[i];
		struct older_arena *arena;

		if (e->kind != HISTORY_MAP && e->kind != HISTORY_UNMAP)
			continue;
		arena = find_arena(a, i);
		if (arena == NULL)
			continue;
		if (e->kind == HISTORY_UNMAP) {
			arena->mapped = less_u64(arena->mapped, e->bytes);
			continue;
		}
		arena->mapped += e->bytes;
		if (e->address < arena->address)
			arena->address = e->address;
	}
}

static int give(struct older_arenas *a, struct twin *twin)
{
	int status = 0;

	for (size_t k = 0; k < a->count && status == 0; k++) {
		const struct older_arena *arena = &a->all[k];

		status = twin_add_arena(twin, arena->lane, arena->small, arena->address);
		for (size_t i = 0; i < a->range_count && status == 0; i++)
			if (a->arena_of[i] == k)
				status = twin_add_mapped(twin, a->ranges[i].address,
							 a->ranges[i].bytes);
	}
	return status;
}

int older_arenas_add(const struct program *program, const struct twin_conditions *conditions,
		     struct twin *twin)
{
	struct older_arenas a = {.program = program, .conditions = conditions};
	int status = take_ranges(&a);

	if (status == 0)
		status = group_ranges(&a);
	if (status == 0) {
		find_fronts(&a);
		status = give(&a, twin);
	}
	free(a.ranges);
	free(a.arena_of);
	free(a.all);
	return status;
}
