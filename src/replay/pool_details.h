/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a framework's pool tells about itself, where it does: for which stream and private pool each block is, its segments, and the
 * blocks that the program has freed and other streams still use. Where no calls of the driver are recorded, segments make the rows of
 * the driver's memory.
 */
#ifndef MSCOPE_REPLAY_POOL_DETAILS_H
#define MSCOPE_REPLAY_POOL_DETAILS_H

#include "replay/replay.h"

struct checkpoint;
struct live_entry;

/* A free that waits. */
struct waiting_block {
	uint64_t address, size_bytes, requested_bytes;
	uint32_t usage; /* index + 1 */
	uint32_t place;
};

struct pool_details {
	struct pool_place *places; /* distinct ones, numbered from 1 */
	size_t place_count, place_room;
	struct pool_segment *segments; /* by address */
	size_t segment_count, segment_room;
	struct waiting_block *waiting;
	size_t waiting_count, waiting_room;
	bool driver_calls; /* calls of CUDA's driver are recorded at present */
	bool unseen;	   /* a framework has a pool whose blocks are not recorded */
};

void pool_details_fini(struct replay *replay);

/* The number of a stream and private pool; 0: nothing is known, or no memory. */
uint32_t pool_details_place(struct replay *replay, uint64_t stream, uint64_t private_first,
			    uint64_t private_second);

/* A block whose requested size is known counts in its usage, or not any more. */
void pool_details_count(const struct replay *replay, const struct block *block, struct usage *usage,
			bool more);

/* The driver gave memory, as a record of its call says. */
void pool_details_take_driver(struct replay *replay, const struct context *context);

/*
 * Calls of the driver are not recorded any more. Whether this block of it is a segment, which the pool itself will tell the end of.
 */
bool pool_details_keeps(struct replay *replay, const struct block *block, uint8_t space);

/* The pool hands out memory at an address: nothing waits there any more. */
void pool_details_take_alloc(struct replay *replay, uint64_t address);

/* Behind the blocks. */
void pool_details_save(const struct replay *replay, struct checkpoint *cp);

#endif
