/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who held what when a pool was at its peak: for each pool and device the places whose blocks lived at that moment, with exactly
 * the bytes that they had. Their bytes add up to the peak.
 *
 * A place is a call stack by functions and lines (site_of()) and an owner; blocks without a stack are told apart by their size
 * class, and blocks from outside of recording windows are one place.
 */
#ifndef MSCOPE_ANALYSIS_PEAK_H
#define MSCOPE_ANALYSIS_PEAK_H

#include "analysis/analyses.h"

struct peak_place {
	uint32_t site;	/* as site_of() gives it; 0: no stack was recorded */
	uint32_t owner; /* see replay_owner_text() */
	uint8_t size_class; /* without a stack: blocks of at least 1 << (size_class - 1) bytes, and less than twice that */
	bool outside; /* allocated while recording was off */
	uint64_t bytes;
	uint64_t blocks;
	uint64_t call_sites; /* of the rest; 0: it is one place */
};

/* So many places of a peak are findings one by one. */
#define PEAK_PLACES 10000u

/* The peak of one pool on one device. */
struct peak {
	uint8_t pool;
	uint32_t device;
	uint64_t bytes; /* sum of its places */
	/* The pool's own peak; more than `bytes` if that was before the analysis began. */
	uint64_t highest;
	uint64_t blocks;
	uint64_t reserved_bytes; /* what the pool had from the driver then; 0: unknown */
	uint64_t time_ns;	 /* monotonic */
	uint32_t step;		 /* the step in progress; 0 if none */
	/* Largest first, and the rest last. */
	struct peak_place *places;
	size_t place_count;
};

struct peaks {
	struct peak *all; /* largest first */
	size_t count;
};

/*
 * What the analysis has found so far; none if it did not run. Of more than `most` places of a peak the least are the rest, one for each
 * owner. 0 or -ENOMEM.
 */
int peaks_find(const struct analyses *analyses, struct replay *replay, size_t most,
	       struct peaks *out);
void peaks_fini(struct peaks *peaks);

#endif
