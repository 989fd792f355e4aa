/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory by place: for each pool, device and call stack (by functions and lines) how much it held at the peak of its pool, when the
 * program ended, as leaks, and how much it allocated in all. What flame graphs show; collapsed stacks, speedscope and pprof are three
 * spellings of it.
 *
 * The peak is the analysis peak's, the leaks are what the analysis leaks calls so (no suspects), the end is that of the program's own
 * code. Bytes of a kind add up to what `info` says of the pool.
 */
#ifndef MSCOPE_VIEWS_PROFILE_H
#define MSCOPE_VIEWS_PROFILE_H

#include "base/map.h"
#include "views/view.h"

/* PROFILE(symbol, word, meaning) */
#define PROFILES(PROFILE)                                                                          \
	PROFILE(PEAK, "peak", "live at the peak of the pool")                                      \
	PROFILE(END, "end", "live at the end")                                                     \
	PROFILE(LEAKED, "leaked", "leaked")                                                        \
	PROFILE(TOTAL, "total", "allocated in all")

enum profile_kind {
#define PROFILE(symbol, word, meaning) PROFILE_##symbol,
	PROFILES(PROFILE)
#undef PROFILE
		PROFILE_KINDS
};

extern const char *const profile_meanings[PROFILE_KINDS];

struct profile_place {
	uint8_t pool;
	uint32_t device;
	uint32_t site; /* a stack, see view_lines(); 0: none was recorded */
	uint64_t bytes[PROFILE_KINDS];
	uint64_t blocks[PROFILE_KINDS];
};

/* Zeroed it is an empty one. */
struct profile {
	struct profile_place *places; /* after profile_end() by pool, device and site, each once */
	size_t count, room;
	struct map index; /* pool and device, stack -> place */
};

void profile_fini(struct profile *profile);

/* Takes a row, for what is allocated in all. 0 or -ENOMEM. */
int profile_row(struct profile *profile, const struct row *row);

/* Adds the rest from the first pass, and sorts the places. 0 or -ENOMEM. */
int profile_end(struct profile *profile, const struct view *view);

/* The text of a place that has no stack. */
#define PROFILE_NO_STACK "[no call stack]"

#endif
