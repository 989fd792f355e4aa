/* SPDX-License-Identifier: Apache-2.0 */
#include "twin/twin.h"

#include <errno.h>
#include <stdlib.h>

#include "base/array.h"
#include "twin/block_sizes.h"
#include "twin/shelves.h"

#define ALIGNED_LEAST ((uint64_t)2 << 20) /* smaller blocks begin anywhere */

int twin_new(const struct twin_conditions *conditions, struct twin **out)
{
	struct twin *twin = calloc(1, sizeof(*twin));

	if (twin == NULL)
		return -ENOMEM;
	twin->conditions = *conditions;
	*out = twin;
	return 0;
}

void twin_free(struct twin *twin)
{
	if (twin == NULL)
		return;
	free(twin->blocks);
	free(twin->shelves);
	free(twin->arenas);
	free(twin);
}

int twin_lane(struct twin *twin, uint32_t lane, bool private_pool)
{
	size_t wanted = 2 * ((size_t)lane + 1);

	if (ARRAY_RESERVE(twin->shelves, twin->shelf_room, wanted) != 0)
		return -ENOMEM;
	for (; twin->shelf_count < wanted; twin->shelf_count++)
		twin->shelves[twin->shelf_count] =
			(struct shelf){.small = twin->shelf_count % 2 == 1};
	twin->shelves[2 * lane].private_pool = private_pool;
	twin->shelves[2 * lane + 1].private_pool = private_pool;
	return 0;
}

void twin_pool_unused(struct twin *twin, uint32_t lane)
{
	twin->shelves[2 * lane].unused = true;
	twin->shelves[2 * lane + 1].unused = true;
}

void twin_capturing(struct twin *twin, bool begins)
{
	twin->captures += begins ? 1 : -1;
}

/* ---- figures ---- */

static void add_up(uint64_t *figure, uint64_t *peak, uint64_t bytes)
{
	*figure += bytes;
	if (*figure > *peak)
		*peak = *figure;
}

void reserved_add(struct twin *twin, uint64_t bytes)
{
	add_up(&twin->figures.reserved, &twin->figures.reserved_peak, bytes);
	twin->figures.device_allocs++;
	twin->driver_bytes += bytes;
}

void reserved_subtract(struct twin *twin, uint64_t bytes)
{
	twin->figures.reserved -= bytes;
	twin->figures.device_frees++;
	twin->driver_bytes -= bytes;
}

void figures_take(struct twin *twin, uint32_t block)
{
	const struct block *b = block_at(twin, block);

	add_up(&twin->figures.active, &twin->figures.active_peak, b->size);
	add_up(&twin->figures.in_use, &twin->figures.in_use_peak, b->size);
	add_up(&twin->figures.requested, &twin->figures.requested_peak, b->requested);
}

bool driver_has(const struct twin *twin, uint64_t bytes)
{
	return bytes <= less_u64(twin->conditions.capacity_bytes, twin->driver_bytes);
}

/* ---- malloc ---- */

struct request {
	uint64_t size;
	uint64_t segment;
	uint32_t shelf;
};

static bool limited(const struct twin *twin)
{
	return twin->conditions.limit_bytes != UINT64_MAX;
}

static uint64_t expanded_size(const struct twin *twin, uint32_t block)
{
	const struct block *b = block_at(twin, block);
	const struct block *next = block_at(twin, b->next);

	return b->size + (b->next != 0 && !next->mapped ? next->size : 0);
}

/* Of the free blocks in order, an expandable one gives way to the next as long as that one can grow less. */
static uint32_t prefer_less_room(const struct twin *twin, uint32_t block)
{
	uint32_t next = shelf_after(twin, block);

	while (block_at(twin, block)->arena != 0 && next != 0 &&
	       expanded_size(twin, next) < expanded_size(twin, block)) {
		block = next;
		next = shelf_after(twin, block);
	}
	return block;
}

/*
 * Equal free blocks that are older than the record come in the order in which their objects were made, which is unknown: the one that
 * the record has is taken.
 */
static uint32_t prefer_recorded(const struct twin *twin, uint32_t block)
{
	uint32_t other = block;

	if (twin->recorded == 0 || block_at(twin, block)->object > twin->older_objects)
		return block;
	while (other != 0 && block_at(twin, other)->size == block_at(twin, block)->size &&
	       block_at(twin, other)->object <= twin->older_objects) {
		if (block_at(twin, other)->address == twin->recorded)
			return other;
		other = shelf_after(twin, other);
	}
	return block;
}

/* An equal block of another segment would be taken if the driver had put the segments in another order. */
static void note_tie(struct twin *twin, uint32_t block)
{
	uint32_t next;

	if (twin->ties || (twin->conditions.release.rules & TWIN_OBJECT_ORDER) != 0)
		return;
	next = shelf_after(twin, block);
	if (next != 0 && block_at(twin, next)->size == block_at(twin, block)->size &&
	    block_at(twin, next)->segment != block_at(twin, block)->segment)
		twin->ties = true;
}

/* A free block for the request, taken off its shelf; TWIN_NONE if there is none. */
static uint32_t find_free(struct twin *twin, const struct request *request)
{
	const struct twin_settings *s = &twin->conditions.settings;
	const struct shelf *shelf = &twin->shelves[request->shelf];
	uint32_t block;
	uint64_t size;

	if (!shelf->small && !shelf->private_pool && s->gc_threshold > 0 && limited(twin))
		twin->searches++;
	block = shelf_find(twin, request->shelf, request->size);
	if (block == 0)
		return TWIN_NONE;
	if (s->expandable)
		block = prefer_less_room(twin, block);
	block = prefer_recorded(twin, block);
	size = block_at(twin, block)->size;
	if (request->size < s->max_split_bytes && size >= s->max_split_bytes)
		return TWIN_NONE;
	if (request->size >= s->max_split_bytes &&
	    size >= request->size + s->non_split_rounding_bytes)
		return TWIN_NONE;
	note_tie(twin, block);
	shelf_take(twin, block);
	return block;
}

static int new_segment(struct twin *twin, const struct request *request, uint32_t *out_block)
{
	uint64_t address;
	uint32_t block;

	*out_block = TWIN_NONE;
	if (request->segment > less_u64(twin->conditions.limit_bytes, twin->figures.reserved))
		return 0;
	if (twin->conditions.settings.expandable &&
	    (!twin->shelves[request->shelf].private_pool ||
	     (twin->conditions.release.rules & TWIN_PRIVATE_ARENAS) != 0))
		return arena_request(twin, request->shelf, request->size, out_block);
	if (!driver_has(twin, request->segment))
		return 0;
	address = place_segment(twin, request->shelf / 2, request->segment);
	if (address == 0)
		return 0;
	block = block_make(twin, request->shelf, address, request->segment);
	if (block == 0)
		return -ENOMEM;
	block_at(twin, block)->segment = ++twin->segment_count;
	reserved_add(twin, request->segment);
	*out_block = block;
	return 0;
}

/* No block is free: everything that the allocator tries before it gives up. */
static int find_more_slow(struct twin *twin, const struct request *request, uint32_t *out_block)
{
	int status;

	if (limited(twin) && twin->conditions.settings.gc_threshold > 0)
		collect_garbage(twin);
	status = new_segment(twin, request, out_block);
	if (status != 0 || *out_block != TWIN_NONE || twin->left_record)
		return status;
	if (release_available(twin, request->shelf, request->size)) {
		status = new_segment(twin, request, out_block);
		if (status != 0 || *out_block != TWIN_NONE || twin->left_record)
			return status;
	}
	if ((twin->captures > 0 || twin->shelves[request->shelf].private_pool) &&
	    (twin->conditions.release.rules & TWIN_CAPTURE_RETRIES) == 0)
		return 0;
	if ((status = release_all(twin)) != 0)
		return status;
	twin->figures.retries++;
	return new_segment(twin, request, out_block);
}

static bool should_split(const struct twin *twin, uint32_t block, const struct request *request)
{
	const struct twin_settings *s = &twin->conditions.settings;
	uint64_t rest = block_at(twin, block)->size - request->size;

	if (twin->shelves[request->shelf].small || s->expandable)
		return rest >= TWIN_BLOCK_LEAST;
	return request->size < s->max_split_bytes && rest > TWIN_SMALL_MOST;
}

/* Makes a block of the first `size` bytes of one that is on no shelf; the rest keeps the object. 0: no memory. */
static uint32_t cut_front(struct twin *twin, uint32_t block, uint64_t size)
{
	uint32_t front = block_make(twin, block_at(twin, block)->shelf,
				    block_at(twin, block)->address, size);
	struct block *rest = block_at(twin, block);

	if (front == 0)
		return 0;
	block_at(twin, front)->arena = rest->arena;
	block_at(twin, front)->segment = rest->segment;
	rest->address += size;
	rest->size -= size;
	block_link_before(twin, front, block);
	return front;
}

/* Hands out the front of a block. */
static int split(struct twin *twin, uint32_t block, uint64_t size, uint32_t *out_block)
{
	uint32_t front = cut_front(twin, block, size);

	if (front == 0)
		return -ENOMEM;
	shelf_put(twin, block);
	*out_block = front;
	return 0;
}

/* Where large blocks begin at a multiple of a size, the front of a found block stays free, if the rest is large enough. */
static int align(struct twin *twin, uint32_t block, const struct request *request)
{
	const struct twin_settings *s = &twin->conditions.settings;
	const struct block *b = block_at(twin, block);
	uint32_t front;
	uint64_t bytes;

	if (!s->expandable || s->align_bytes == 0 || request->size < ALIGNED_LEAST)
		return 0;
	bytes = (s->align_bytes - b->address % s->align_bytes) % s->align_bytes;
	if (bytes == 0 || bytes + request->size > b->size)
		return 0;
	front = cut_front(twin, block, bytes);
	if (front == 0)
		return -ENOMEM;
	shelf_put(twin, front);
	return 0;
}

int twin_request(struct twin *twin, uint32_t lane, uint64_t bytes, uint32_t *out_block)
{
	struct request request;
	uint32_t block;
	int status;

	request.size = block_size_of(&twin->conditions.settings, &twin->conditions.release, bytes);
	request.segment = segment_size_of(&twin->conditions.settings, request.size);
	request.shelf = 2 * lane + (request.size <= TWIN_SMALL_MOST);
	if (twin->shelves[2 * lane].unused) /* another graph has taken its number */
		twin->shelves[2 * lane].unused = twin->shelves[2 * lane + 1].unused = false;
	block = find_free(twin, &request);
	if (block == TWIN_NONE && (status = find_more_slow(twin, &request, &block)) != 0)
		return status;
	if (block == TWIN_NONE) {
		twin->figures.refusals++;
		*out_block = TWIN_NONE;
		return 0;
	}
	if ((status = align(twin, block, &request)) != 0)
		return status;
	twin->split = should_split(twin, block, &request);
	if (twin->split && (status = split(twin, block, request.size, &block)) != 0)
		return status;
	block_at(twin, block)->used = true;
	block_at(twin, block)->asked = false;
	block_at(twin, block)->requested = bytes;
	figures_take(twin, block);
	*out_block = block;
	return 0;
}

/* ---- free ---- */

void twin_ask_free(struct twin *twin, uint32_t block)
{
	struct block *b = block_at(twin, block);

	if (b->asked)
		return;
	b->asked = true;
	twin->figures.in_use -= b->size;
	twin->figures.requested -= b->requested;
}

int twin_release(struct twin *twin, uint32_t block)
{
	twin_ask_free(twin, block);
	twin->figures.active -= block_at(twin, block)->size;
	block_at(twin, block)->used = false;
	block_join(twin, block);
	shelf_put(twin, block);
	return 0;
}

int twin_empty_cache(struct twin *twin)
{
	return release_all(twin);
}

/* ---- what is there ---- */

uint64_t twin_address(const struct twin *twin, uint32_t block)
{
	return block_at(twin, block)->address;
}

uint64_t twin_size(const struct twin *twin, uint32_t block)
{
	return block_at(twin, block)->size;
}

const struct twin_figures *twin_figures(const struct twin *twin)
{
	return &twin->figures;
}

bool twin_had_ties(const struct twin *twin)
{
	return twin->ties;
}

bool twin_was_split(const struct twin *twin)
{
	return twin->split;
}

void twin_older_done(struct twin *twin)
{
	if ((twin->conditions.release.rules & TWIN_OBJECT_ORDER) != 0)
		twin->older_objects = twin->objects;
}

void twin_expect(struct twin *twin, uint64_t address)
{
	twin->recorded = address;
}

bool twin_left_record(const struct twin *twin)
{
	return twin->left_record;
}

uint64_t twin_limit_of_fraction(const struct twin_release *release, double fraction,
				uint64_t device_bytes)
{
	if (fraction < 0 || ((release->rules & TWIN_WHOLE_FRACTION) != 0 && fraction >= 1))
		return UINT64_MAX;
	return (uint64_t)(fraction * (double)device_bytes);
}
