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
	uint64_t bytes;
	uint32_t blocks;
	uint32_t at; /* where its blocks begin in `grouped` */
};

struct alive {
	const struct block **blocks;  /* all of them, by allocation_id */
	const struct block **grouped; /* group by group, in each by allocation_id */
	size_t block_count;
	struct alive_group *groups;
	size_t group_count;
	uint64_t bytes;
	/* What `each_byte_once` left out. */
	uint64_t taken_blocks, taken_bytes;
};

/* Which blocks count, and the order of the groups. NULL members: all, and most bytes first. */
struct alive_choice {
	bool (*wants)(const void *arg, const struct replay *replay, const struct block *block);
	int (*order)(const struct alive_group *a, const struct alive_group *b);
	const void *arg;
	/* Leaves out blocks of the driver that a framework's pool took: the pool's own blocks lie in them. */
	bool each_byte_once;
};

/* Borrows from `replay`, which must not take more events while the result is used. `choice` may be NULL. 0 or -ENOMEM. */
int alive_find(const struct replay *replay, const struct alive_choice *choice, struct alive *out);
void alive_fini(struct alive *alive);

#endif
