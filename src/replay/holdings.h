/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which of the driver's blocks a framework's pool has taken. A pool says what it has reserved only when it hands out memory or takes
 * it back: when it gives whole segments back to the driver (`empty_cache()`), the frees of these blocks tell what is left.
 */
#ifndef MSCOPE_REPLAY_HOLDINGS_H
#define MSCOPE_REPLAY_HOLDINGS_H

#include "replay/replay.h"

struct checkpoint;

/* Programs without a pool fill it again and again: half of it goes at a time. */
#define HOLDINGS_FRESH 128u

/* Levels that are remembered, for samples that come a little later than what they show. */
#define HOLDINGS_LEVELS 64u

/* Driver blocks, the newest last, that no growth of a pool has explained yet; the oldest are forgotten. */
struct holdings {
	struct fresh_block {
		uint64_t allocation_id; /* a slot may have another block by now */
		uint32_t slot;
	} fresh[HOLDINGS_FRESH];
	size_t count;
	/* The latest levels of driver memory, a ring: what was held from that time on. */
	struct driver_level {
		uint64_t time_ns;
		uint64_t bytes;
		uint64_t pools_bytes; /* of it, what pools of frameworks have reserved */
		uint32_t device;
	} levels[HOLDINGS_LEVELS];
	uint64_t level_count; /* of all times */
};

/* The driver gave the block in this slot, or a checkpoint says that it was fresh. */
void holdings_take_alloc(struct replay *replay, uint32_t slot);

/* Whether no growth of a pool has explained this block of the driver yet. */
bool holdings_is_fresh(const struct replay *replay, const struct block *block);

/* A pool has reserved this much more: the newest driver blocks that make up the sum are its segments. */
void holdings_take_growth(struct replay *replay, const struct usage *usage, uint64_t bytes);

/* What the driver has given on a device has changed to what its usage says now. */
void holdings_note_level(struct replay *replay, const struct usage *usage);

/* A pool has told what it has reserved: so it was when the level was noted last. */
void holdings_note_pools(struct replay *replay, const struct usage *usage);

/* A segment of a pool goes back to the driver; and does not, because the free failed. */
void holdings_take_free(struct replay *replay, const struct block *block);
void holdings_undo_free(struct replay *replay, const struct block *block);

/* A pool that gave segments back hands out memory or takes it back, and has told no other total. */
void holdings_take_region(struct replay *replay, struct usage *usage);

/* What the pool that holds, or held, this block has reserved; UINT64_MAX if none is known to. */
uint64_t holdings_reserved(const struct replay *replay, const struct block *block);

#endif
