/* SPDX-License-Identifier: Apache-2.0 */
/*
 * State at the start of a record that began in the middle of a program: segments, and the blocks in use in them. What lies between
 * them is free.
 */
#include <errno.h>

#include "twin/block_sizes.h"
#include "twin/shelves.h"

int twin_add_segment(struct twin *twin, uint32_t lane, uint64_t address, uint64_t bytes, bool small)
{
	uint32_t block = block_make(twin, 2 * lane + small, address, bytes);

	if (block == 0)
		return -ENOMEM;
	block_at(twin, block)->segment = ++twin->segment_count;
	shelf_put(twin, block);
	reserved_add(twin, bytes);
	twin->figures.device_allocs--; /* it was before */
	return 0;
}

static bool covers(const struct twin *twin, uint32_t block, uint64_t address)
{
	const struct block *b = block_at(twin, block);

	return address >= b->address && address - b->address < b->size;
}

/* The free block that covers an address. Blocks come by address, so it is nearly always what the last one left. */
static uint32_t covering(const struct twin *twin, uint64_t address)
{
	if (twin->older_rest != 0 && block_at(twin, twin->older_rest)->mapped &&
	    covers(twin, twin->older_rest, address))
		return twin->older_rest;
	for (uint32_t shelf = 0; shelf < twin->shelf_count; shelf++)
		for (uint32_t block = shelf_first(twin, shelf); block != 0;
		     block = shelf_after(twin, block))
			if (covers(twin, block, address))
				return block;
	return 0;
}

/* Cuts a block that is on no shelf at `bytes` from its start; the second part is on its shelf. */
static int cut(struct twin *twin, uint32_t block, uint64_t bytes)
{
	const struct block *b = block_at(twin, block);
	uint32_t rest = block_make(twin, b->shelf, b->address + bytes, b->size - bytes);

	if (rest == 0)
		return -ENOMEM;
	b = block_at(twin, block); /* the table may have moved */
	block_at(twin, rest)->segment = b->segment;
	block_at(twin, rest)->arena = b->arena;
	block_at(twin, rest)->mapped = b->mapped;
	block_at(twin, block)->size = bytes;
	block_link_after(twin, rest, block);
	shelf_put(twin, rest);
	return 0;
}

/* Cuts what lies before `address` off a block that is on its shelf; the rest is on no shelf, in `block`. */
static int cut_before(struct twin *twin, uint32_t *block, uint64_t address)
{
	uint32_t front = *block;
	int status = 0;

	shelf_take(twin, front);
	if (address == block_at(twin, front)->address)
		return 0;
	status = cut(twin, front, address - block_at(twin, front)->address);
	if (status != 0)
		return status;
	*block = block_at(twin, front)->next;
	shelf_take(twin, *block);
	shelf_put(twin, front);
	return 0;
}

int twin_add_arena(struct twin *twin, uint32_t lane, bool small, uint64_t address)
{
	uint32_t shelf = 2 * lane + small;

	return arena_make(twin, shelf, address, arena_bytes(twin, shelf), &twin->older_rest);
}

int twin_add_mapped(struct twin *twin, uint64_t address, uint64_t bytes)
{
	uint32_t block = twin->older_rest;
	int status;

	/* Ranges that overlap, or that are larger than the device, are left to the replay to be noticed. */
	if (block == 0 || !covers(twin, block, address) ||
	    bytes > block_at(twin, block)->address + block_at(twin, block)->size - address)
		return 0;
	status = cut_before(twin, &block, address);
	twin->older_rest = 0;
	if (status == 0 && block_at(twin, block)->size > bytes) {
		status = cut(twin, block, bytes);
		twin->older_rest = status == 0 ? block_at(twin, block)->next : 0;
	}
	if (status != 0)
		return status;
	block_at(twin, block)->mapped = true;
	block_join(twin, block);
	shelf_put(twin, block);
	reserved_add(twin, bytes);
	twin->figures.device_allocs--; /* it was before */
	return 0;
}

int twin_add_block(struct twin *twin, uint64_t address, uint64_t bytes, uint64_t requested,
		   uint32_t *out_block)
{
	uint64_t size = bytes != 0 ? bytes
				   : block_size_of(&twin->conditions.settings,
						   &twin->conditions.release, requested);
	uint32_t block = covering(twin, address);
	int status = 0;

	*out_block = TWIN_NONE;
	if (block == 0 ||
	    size > block_at(twin, block)->address + block_at(twin, block)->size - address)
		return 0;
	status = cut_before(twin, &block, address);
	if (status != 0)
		return status;
	twin->older_rest = 0;
	if (block_at(twin, block)->size > size) {
		status = cut(twin, block, size);
		twin->older_rest = status == 0 ? block_at(twin, block)->next : 0;
	}
	if (status != 0)
		return status;
	block_at(twin, block)->used = true;
	block_at(twin, block)->requested = requested;
	*out_block = block;
	figures_take(twin, block);
	return 0;
}
