/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The changes of memory between two calls of a device, and during the second: each change belongs to exactly one of them, so their
 * sums are those of the run. Pools that compare_counts_pool() names.
 *
 *     segments_begin(&walk, compare, side, device)
 *     segments_next(&walk, end)      for each call of that device in its order, with segment_end(); at last for what is behind them
 *     segments_end(&walk)
 */
#ifndef MSCOPE_ANALYSIS_SEGMENTS_H
#define MSCOPE_ANALYSIS_SEGMENTS_H

#include "analysis/compare.h"

struct segment {
	int64_t left;	   /* bytes that stayed; less than 0: that went */
	int64_t outside;   /* of these, while no operator was in progress */
	int64_t peak;	   /* most bytes above what was there before */
	int64_t allocated; /* sum of its blocks */
	size_t from, to;   /* entries of the ledger */
};

struct segments {
	const struct ledger *ledger;
	bool *counts; /* by place of the ledger */
	size_t at;    /* entry behind the last segment */
};

/* 0 or -ENOMEM. */
int segments_begin(struct segments *walk, const struct compare *compare, int side, uint32_t device);
struct segment segments_next(struct segments *walk, size_t end);
void segments_end(struct segments *walk);

/* The entries until a call has ended, COMPARE_ABSENT: until the end. */
size_t segment_end(const struct compare_side *side, size_t call);

#endif
