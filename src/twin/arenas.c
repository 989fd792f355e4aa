/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Expandable segments. An arena is a range of addresses, a little larger than the device, of which the driver maps whole
 * units as they are needed. It is one list of blocks: in use, free, or not mapped.
 */
#include <errno.h>

#include "base/array.h"
#include "twin/block_sizes.h"
#include "twin/shelves.h"

static uint64_t unit_of(const struct twin *twin, uint32_t shelf)
{
	const struct twin_settings *s = &twin->conditions.settings;

	if (twin->shelves[shelf].small)
		return TWIN_SMALL_SEGMENT;
	return s->unit_bytes != 0 ? s->unit_bytes : s->large_segment_bytes;
}

static uint64_t round_up(uint64_t value, uint64_t unit)
{
	return (value + unit - 1) / unit * unit;
}

uint64_t arena_bytes(const struct twin *twin, uint32_t shelf)
{
	return round_up(twin->conditions.device_bytes + twin->conditions.device_bytes / 8,
			unit_of(twin, shelf));
}

int arena_make(struct twin *twin, uint32_t shelf, uint64_t address, uint64_t bytes,
	       uint32_t *out_block)
{
	uint32_t block;

	if (ARRAY_RESERVE(twin->arenas, twin->arena_room, twin->arena_count + 1) != 0)
		return -ENOMEM;
	block = block_make(twin, shelf, address, bytes);
	if (block == 0)
		return -ENOMEM;
	twin->arenas[twin->arena_count++] = (struct arena){address, bytes, unit_of(twin, shelf)};
	block_at(twin, block)->arena = (uint32_t)twin->arena_count;
	block_at(twin, block)->segment = ++twin->segment_count;
	block_at(twin, block)->mapped = false;
	shelf_put(twin, block);
	*out_block = block;
	return 0;
}

static int arena_place(struct twin *twin, uint32_t shelf, uint64_t size, uint32_t *out_block)
{
	uint64_t bytes = arena_bytes(twin, shelf);
	uint64_t address =
		place_arena(twin, shelf / 2, bytes, round_up(size, unit_of(twin, shelf)));

	if (address == 0 || size > bytes)
		return 0;
	return arena_make(twin, shelf, address, bytes, out_block);
}

/* Whether the blocks from `block` on that are not in use reach `size` bytes. */
static bool has_room(const struct twin *twin, uint32_t block, uint64_t size)
{
	uint64_t bytes = 0;

	for (; bytes < size && block != 0 && !block_at(twin, block)->used;
	     block = block_at(twin, block)->next)
		bytes += block_at(twin, block)->size;
	return bytes >= size;
}

/* Where a run of free and unmapped blocks of `size` bytes begins: the lowest one, or a new arena. TWIN_NONE: nowhere. */
static int find_run(struct twin *twin, uint32_t shelf, uint64_t size, uint32_t *out_block)
{
	uint32_t block = shelf_unmapped(twin, shelf, 0);

	while (block != 0) {
		uint32_t start = block, prev = block_at(twin, block)->prev;

		if (prev != 0 && !block_at(twin, prev)->used)
			start = prev;
		if (has_room(twin, start, size)) {
			*out_block = start;
			return 0;
		}
		block = shelf_unmapped(twin, shelf, block_at(twin, block)->address + 1);
	}
	return arena_place(twin, shelf, size, out_block);
}

/* Maps the first `bytes` of a block that is not mapped, in whole units. False when the driver has no more. */
static int map_front(struct twin *twin, uint32_t block, uint64_t bytes, bool *out_mapped)
{
	struct block *b = block_at(twin, block);
	uint64_t mapped = round_up(bytes, twin->arenas[b->arena - 1].unit);

	*out_mapped = false;
	if (!driver_has(twin, mapped))
		return 0;
	if (mapped < b->size) {
		uint32_t rest = block_make(twin, b->shelf, b->address + mapped, b->size - mapped);

		if (rest == 0)
			return -ENOMEM;
		b = block_at(twin, block); /* the table may have moved */
		shelf_take(twin, block);
		block_at(twin, rest)->arena = b->arena;
		block_at(twin, rest)->segment = b->segment;
		block_at(twin, rest)->mapped = false;
		block_link_after(twin, rest, block);
		b->size = mapped;
		shelf_put(twin, rest);
	} else {
		shelf_take(twin, block);
	}
	b->mapped = true;
	block_join(twin, block);
	shelf_put(twin, block);
	reserved_add(twin, mapped);
	*out_mapped = true;
	return 0;
}

int twin_map_part(struct twin *twin, uint32_t lane, uint64_t request, uint64_t address,
		  uint64_t bytes, bool *out_done)
{
	const struct twin_conditions *c = &twin->conditions;
	uint32_t shelf =
		2 * lane + (block_size_of(&c->settings, &c->release, request) <= TWIN_SMALL_MOST);
	uint32_t block = shelf_unmapped(twin, shelf, address);
	int status = 0;

	*out_done = false;
	if (block == 0 || block_at(twin, block)->address != address) {
		uint32_t other = shelf_unmapped(twin, shelf, 0);

		/* There is one arena, which has its lowest unmapped part elsewhere, unless none is left. */
		if (other != 0)
			return 0;
		status = arena_make(twin, shelf, address, arena_bytes(twin, shelf), &block);
	}
	if (status != 0 || bytes > block_at(twin, block)->size)
		return status;
	return map_front(twin, block, bytes, out_done);
}

static uint64_t least(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

int arena_request(struct twin *twin, uint32_t shelf, uint64_t size, uint32_t *out_block)
{
	uint32_t block = TWIN_NONE;
	bool mapped = true;
	int status = find_run(twin, shelf, size, &block);

	*out_block = TWIN_NONE;
	if (status != 0 || block == TWIN_NONE)
		return status;
	if (!block_at(twin, block)->mapped) {
		status = map_front(twin, block, least(block_at(twin, block)->size, size), &mapped);
		if (status != 0 || !mapped)
			return status;
	}
	while (block_at(twin, block)->size < size) {
		uint32_t next = block_at(twin, block)->next;
		uint64_t missing = size - block_at(twin, block)->size;

		status = map_front(twin, next, least(missing, block_at(twin, next)->size), &mapped);
		if (status != 0 || !mapped)
			return status;
		block = next; /* what was free before it joined it */
	}
	shelf_take(twin, block);
	*out_block = block;
	return 0;
}

/* The part of a free block outside of whole units stays mapped and free. */
static int keep_part(struct twin *twin, uint32_t block, uint64_t address, uint64_t bytes,
		     bool before)
{
	uint32_t part = block_make(twin, block_at(twin, block)->shelf, address, bytes);

	if (part == 0)
		return -ENOMEM;
	block_at(twin, part)->arena = block_at(twin, block)->arena;
	block_at(twin, part)->segment = block_at(twin, block)->segment;
	if (before)
		block_link_before(twin, part, block);
	else
		block_link_after(twin, part, block);
	shelf_put(twin, part);
	return 0;
}

int arena_unmap(struct twin *twin, uint32_t block)
{
	const struct arena *arena = &twin->arenas[block_at(twin, block)->arena - 1];
	uint64_t from = block_at(twin, block)->address - arena->address;
	uint64_t to = from + block_at(twin, block)->size;
	uint64_t first = round_up(from, arena->unit), last = to / arena->unit * arena->unit;
	int status = 0;

	if (first >= last)
		return 0;
	shelf_take(twin, block);
	if (first > from)
		status = keep_part(twin, block, arena->address + from, first - from, true);
	if (status == 0 && last < to)
		status = keep_part(twin, block, arena->address + last, to - last, false);
	if (status != 0)
		return status;
	block_at(twin, block)->address = arena->address + first;
	block_at(twin, block)->size = last - first;
	block_at(twin, block)->mapped = false;
	block_join(twin, block);
	if (block_at(twin, block)->prev == 0 && block_at(twin, block)->next == 0)
		block_drop(twin, block); /* the arena goes */
	else
		shelf_put(twin, block);
	reserved_subtract(twin, last - first);
	return 0;
}
