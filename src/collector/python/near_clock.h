/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The clock of calls and returns, which come in such numbers that two readings of the clock are a third of their cost: between readings,
 * the processor's counter of ticks tells how much later it is. Half of the time, as it needs no barrier.
 *
 * A reading counts for NEAR_NS at most, and only while nothing but calls is recorded by this thread: whatever pairs with events of other
 * threads (allocations, frees) has its own reading. Without a barrier a call may seem some nanoseconds earlier than it was, never
 * earlier than the reading before it. What a live reader relies on holds: membarrier() makes a processor forget what it did ahead.
 *
 * Only where the kernel itself keeps its time by this counter; elsewhere each call reads the clock.
 */
#ifndef MSCOPE_COLLECTOR_PYTHON_NEAR_CLOCK_H
#define MSCOPE_COLLECTOR_PYTHON_NEAR_CLOCK_H

#include "collector/record/hot.h"

#define NEAR_NS 15000u

/* The last reading of a thread, from which the next times are reckoned, as what a record needs: nanoseconds since its time base. */
struct near_clock {
	/* The end of the call that was recorded last: a record elsewhere has others before it. */
	const uint8_t *next;
	uint64_t ticks;
	uint64_t most; /* ticks that it counts for, 0: it does not */
	uint64_t scale;
	uint64_t since_ns;
};

/* Of the process: nanoseconds of 2^32 ticks; 0: not known yet, or the counter is of no use. */
extern MSCOPE_HIDDEN _Atomic uint64_t near_scale;

/* Begins to measure the counter. The interpreter's lock is held. */
MSCOPE_HIDDEN void near_clock_begin(void);
/* Reads the clock itself; it ends the measurement, too, when that has lasted. May write a time base. */
MSCOPE_HIDDEN uint32_t near_clock_read(struct near_clock *near, struct writer *w);

MSCOPE_INLINE uint64_t near_ticks(void)
{
#if defined(__x86_64__)
	return __builtin_ia32_rdtsc();
#else
	return 0;
#endif
}

/*
 * The delta of a call that this writer is about to record at *at, its next byte; it may be another one then. The writer is marked busy.
 */
MSCOPE_INLINE uint32_t near_clock_delta(struct near_clock *near, struct writer *w, uint8_t **at)
{
	uint32_t delta;

	if (MSCOPE_LIKELY(near->next == *at)) {
		uint64_t later = near_ticks() - near->ticks;

		if (MSCOPE_LIKELY(later < near->most))
			return (uint32_t)(near->since_ns + (later * near->scale >> 32));
	}
	delta = near_clock_read(near, w);
	*at = w->chunk + w->used;
	return delta;
}

#endif
