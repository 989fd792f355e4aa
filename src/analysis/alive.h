/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which blocks were alive at the end, grouped by where they were allocated: the same pool, device, size and stack make one
 * group. Largest total first; ties by first allocation, so that the order is a function of the trace.
 */
#ifndef MSCOPE_ANALYSIS_ALIVE_H
#define MSCOPE_ANALYSIS_ALIVE_H

#include "replay/replay.h"

struct alive_group {
	const struct block *first; /* the block of the group with the lowest allocation_id */
	uint64_t blocks;
	uint64_t bytes;
};

struct alive {
	const struct block **blocks; /* all of them, by allocation_id */
	size_t block_count;
	struct alive_group *groups;
	size_t group_count;
	uint64_t bytes;
};

/* Borrows from `replay`, which must not take more events while the result is used. 0 or -ENOMEM. */
int alive_find(const struct replay *replay, struct alive *out);
void alive_fini(struct alive *alive);

#endif
