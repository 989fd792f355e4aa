/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The changes of memory between two calls of a device, and during the second: each change belongs to exactly one of them, so their
 * sums are those of the run. Pools that compare_counts_pool() names.
 */
#ifndef MSCOPE_ANALYSIS_SEGMENTS_H
#define MSCOPE_ANALYSIS_SEGMENTS_H

#include "analysis/compare.h"

struct segment {
	int64_t left;	   /* bytes that stayed; less than 0: that went */
	int64_t outside;   /* of these, while no operator was in progress */
	int64_t peak;	   /* most bytes above what was there before */
	int64_t allocated; /* sum of its blocks */
	size_t from;	   /* entry of the ledger behind the call before */
};

struct segment_lane {
	uint32_t device;
	struct segment tail; /* behind the last call */
};

struct segments {
	struct segment *all; /* of each call of the side */
	struct segment_lane *lanes;
	size_t lane_count;
	size_t *lane_of_pool;
};

/* 0 or -ENOMEM. */
int segments_find(const struct compare *compare, int side, struct segments *out);
void segments_fini(struct segments *segments);

/* What happened on a device behind its last call. */
const struct segment *segments_tail(const struct segments *segments, uint32_t device);

#endif
