/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether what a process has resident grows without end. A series keeps the lowest and the highest level of equal spans of time, at most
 * HOST_SPANS, which are joined in pairs when there are too many; host_growth_judge() reads it at any moment.
 *
 * What is resident says little about what a program keeps: allocators keep what was freed, libraries warm up, caches fill. So the verdict
 * is given only where nothing else looks like it; there is no "suspect". After a warm-up of a quarter of the time, the rest is cut into
 * 16 equal parts, and all of this must hold:
 *
 *     the lowest level of each part is above that of the part before, but once; and so are the highest levels
 *     it rose in each quarter of this time by at least 0.7 of an equal share, in the later half by at least 0.9 of what it rose before
 *     no part fell by more than the rise of one part, and the level swings within a part by less than the whole rise
 *     it rose by 8 MiB and by 2 % of the level in all
 *     it took 8 s or more, and with steps, 12 or more started in it
 *
 * tests/judge/host.c has the shapes that this was tried on, and counts.
 */
#ifndef MSCOPE_ANALYSIS_HOST_GROWTH_H
#define MSCOPE_ANALYSIS_HOST_GROWTH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HOST_SPANS   512u
#define HOST_SPAN_NS UINT64_C(100000000)

struct host_span {
	uint64_t low, high;
	/* When it ended: steps that had started, and what the pools of the host had in use. */
	uint64_t steps, held;
};

struct host_series {
	uint64_t start_ns, span_ns;
	uint64_t last_bytes;
	uint64_t last_ns;
	uint64_t steps, held;
	uint32_t count;
	struct host_span spans[HOST_SPANS];
};

struct host_growth {
	double bytes_per_second;
	double bytes_per_step; /* 0: there are no steps */
	uint64_t bytes;	       /* in all, from the end of the warm-up on */
	uint64_t from_ns, to_ns;
	uint64_t steps;	     /* that started in this time */
	uint64_t held_bytes; /* of it: what pools of the host have more in use */
};

/* The level from `time_ns` on, with the steps so far and what pools of the host have in use. Times do not fall. */
void host_series_add(struct host_series *series, uint64_t time_ns, uint64_t bytes, uint64_t steps,
		     uint64_t held);

/* Levels from `from_ns` on were at most this. */
void host_series_cap(struct host_series *series, uint64_t from_ns, uint64_t bytes);

/* What it rose by in a second, on average and without the warm-up; 0: it did not. */
uint64_t host_series_pace(const struct host_series *series);

/* With the last level up to `end_ns`. True: it grows, and `out` says how. */
bool host_growth_judge(const struct host_series *series, uint64_t end_ns, uint64_t end_steps,
		       uint64_t end_held, struct host_growth *out);

/* The same rule with half of the time, the bytes and the steps: reason enough to ask the process, and no verdict. */
bool host_growth_may(const struct host_series *series, uint64_t end_ns, uint64_t end_steps);

#endif
