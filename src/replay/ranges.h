/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which live block an address lies in. Blocks of one pool on one device do not overlap, so each such pair has a lane of its own:
 * its blocks ordered by address, in leaves of a hundred and a sorted list of the leaves. Finding, adding and removing cost two
 * binary searches and a short move; a block takes 12 bytes in a full leaf and about 33 at worst, as leaves that run low are
 * joined with their neighbours.
 *
 * It knows addresses and slot numbers only; the caller has the blocks.
 */
#ifndef MSCOPE_REPLAY_RANGES_H
#define MSCOPE_REPLAY_RANGES_H

#include <stdbool.h>

#include "base/compiler.h"

struct leaf;

struct leaf_entry {
	uint64_t first; /* at most the lowest address in the leaf, at least the highest before it */
	struct leaf *leaf;
};

struct lane {
	uint8_t pool;
	uint32_t device;
	struct leaf_entry *leaves; /* none is empty */
	size_t leaf_count, leaf_room;
};

struct ranges {
	struct lane *lanes;
	size_t lane_count, lane_room;
};

void ranges_fini(struct ranges *ranges);

/* 0 or -ENOMEM. An address may be there already: the newest is found first. */
int ranges_insert(struct ranges *ranges, uint8_t pool, uint32_t device, uint64_t address,
		  uint32_t slot);

/* Does nothing if it is not there. */
void ranges_remove(struct ranges *ranges, uint8_t pool, uint32_t device, uint64_t address,
		   uint32_t slot);

/* The slot with the greatest address that is not above `address`; false when there is none. */
bool lane_below(const struct lane *lane, uint64_t address, uint32_t *out_slot);

#endif
