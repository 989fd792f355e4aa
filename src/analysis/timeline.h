/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What each pool held over the whole run, in at most TIMELINE_POINTS equal spans of time, and the snapshots that the program asked
 * for. Memory is fixed: when the run grows past the last span, spans are joined in pairs. Asked for by SESSION_TIMELINE.
 */
#ifndef MSCOPE_ANALYSIS_TIMELINE_H
#define MSCOPE_ANALYSIS_TIMELINE_H

#include "analysis/analyses.h"

#define TIMELINE_POINTS	   256u
#define TIMELINE_SNAPSHOTS 1000u

struct timeline_pool {
	uint8_t pool;
	uint32_t device;
	uint32_t count;			/* spans up to the last change */
	uint64_t last_bytes;		/* after it */
	uint64_t most[TIMELINE_POINTS]; /* bytes at most, in each span */
};

struct timeline_snapshot {
	uint64_t time_ns; /* wall clock */
	uint32_t device;
	char name[64];
	/* As in struct figures: reserved, allocated, total, free; UINT64_MAX: unknown. */
	uint64_t bytes[4];
};

struct timeline {
	uint64_t begin_ns; /* monotonic; 0: nothing happened */
	uint64_t span_ns;
	struct timeline_pool **pools;
	size_t pool_count, pool_room;
	struct timeline_snapshot *snapshots;
	size_t snapshot_count, snapshot_room;
};

/* NULL if it was not asked for. */
const struct timeline *analyses_timeline(const struct analyses *analyses);

#endif
