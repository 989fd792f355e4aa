/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the driver puts segments. Only the order of the addresses matters to the allocator, since it prefers the lower one
 * of two free blocks of equal size. No address is given twice.
 */
#include "twin/shelves.h"

#define SEGMENTS_FROM  UINT64_C(0x7f0000000000)
#define ARENAS_FROM    UINT64_C(0x300000000000)
#define RANDOM_SPACING 38u /* bits: a segment is smaller than 256 GiB, an arena begins alone */
#define RANDOM_SLOTS   24u /* bits */
#define ARENA_SPACING  ((uint64_t)1 << 30)
#define DRIVER_PIECE   ((uint64_t)32 << 20)
#define DRIVER_TOP     ((uint64_t)1 << 62)

/* A permutation of the numbers below 2^24, another one for each seed. */
static uint64_t shuffled(uint64_t number, uint64_t seed)
{
	uint64_t mask = ((uint64_t)1 << RANDOM_SLOTS) - 1;

	for (uint32_t round = 0; round < 4; round++) {
		number = (number * ((seed * 0x9e3779b97f4a7c15u >> (8 * round)) | 1)) & mask;
		number ^= number >> (RANDOM_SLOTS / 2);
		number = (number + seed) & mask;
	}
	return number;
}

/*
 * As CUDA's driver on Linux does it, measured on an H200: from the top downwards in pieces of 32 MiB, and what is left of a piece
 * goes to later segments that fit there.
 */
static uint64_t place_like_driver(struct twin *twin, uint64_t bytes)
{
	uint64_t piece = (bytes + DRIVER_PIECE - 1) / DRIVER_PIECE * DRIVER_PIECE;
	struct driver_rest *rests = twin->driver_rests;

	for (uint32_t i = 0; i < DRIVER_RESTS; i++) {
		struct driver_rest *rest =
			&rests[(twin->driver_rest_last + DRIVER_RESTS - i) % DRIVER_RESTS];

		if (rest->bytes < bytes)
			continue;
		rest->address += bytes;
		rest->bytes -= bytes;
		return rest->address - bytes;
	}
	twin->next_high += piece;
	twin->driver_rest_last = (twin->driver_rest_last + 1) % DRIVER_RESTS;
	rests[twin->driver_rest_last] = (struct driver_rest){
		.address = DRIVER_TOP - twin->next_high + bytes, .bytes = piece - bytes};
	return DRIVER_TOP - twin->next_high;
}

void place_back(struct twin *twin, uint64_t address, uint64_t bytes)
{
	if (twin->conditions.order != TWIN_LIKE_DRIVER || twin->conditions.places != NULL)
		return;
	twin->driver_rest_last = (twin->driver_rest_last + 1) % DRIVER_RESTS;
	twin->driver_rests[twin->driver_rest_last] = (struct driver_rest){address, bytes};
}

static uint64_t place(struct twin *twin, uint64_t *low, uint64_t base, uint64_t bytes)
{
	uint64_t address;

	switch (twin->conditions.order) {
	case TWIN_LIKE_DRIVER:
		return place_like_driver(twin, bytes);
	case TWIN_DESCENDING:
		twin->next_high += bytes;
		return base + ((uint64_t)1 << 61) - twin->next_high;
	case TWIN_RANDOM:
		return (shuffled(twin->placed++, twin->conditions.seed) + 1) << RANDOM_SPACING;
	case TWIN_ASCENDING:
	default:
		address = base + *low;
		*low += bytes;
		return address;
	}
}

static uint64_t recorded(struct twin *twin, uint32_t lane, uint64_t bytes, bool arena)
{
	const struct twin_places *places = twin->conditions.places;
	uint64_t address = places->place(places->context, lane, bytes, arena);

	if (address == 0)
		twin->left_record = true;
	return address;
}

uint64_t place_segment(struct twin *twin, uint32_t lane, uint64_t bytes)
{
	if (twin->conditions.places != NULL)
		return recorded(twin, lane, bytes, false);
	return place(twin, &twin->next_low, SEGMENTS_FROM, bytes);
}

uint64_t place_arena(struct twin *twin, uint32_t lane, uint64_t bytes, uint64_t first_bytes)
{
	if (twin->conditions.places != NULL)
		return recorded(twin, lane, first_bytes, true);
	bytes = (bytes / ARENA_SPACING + 1) * ARENA_SPACING;
	return place(twin, &twin->next_arena, ARENAS_FROM, bytes);
}
