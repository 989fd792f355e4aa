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

/*
 * The last reading of a thread, from which the next ones are reckoned; `known` until one was interrupted. `base_ns` is the writer's:
 * another one means another chunk. `made` are the records of that chunk when a call was recorded last.
 */
struct near_clock {
	uint64_t ns, ticks;
	uint64_t base_ns;
	uint32_t made;
	bool known;
};

/* Of the process: nanoseconds of 2^32 ticks; 0: not known yet, or the counter is of no use. */
extern MSCOPE_HIDDEN _Atomic uint64_t near_scale;

/* Begins to measure the counter. The interpreter's lock is held. */
MSCOPE_HIDDEN void near_clock_begin(void);
/* Reads the clock itself; it ends the measurement, too, when that has lasted. */
MSCOPE_HIDDEN uint64_t near_clock_read(struct near_clock *near);

MSCOPE_INLINE uint64_t near_ticks(void)
{
#if defined(__x86_64__)
	return __builtin_ia32_rdtsc();
#else
	return 0;
#endif
}

/* The time of a call that this writer is about to record. It is marked busy. */
MSCOPE_INLINE uint64_t near_clock_ns(struct near_clock *near, const struct writer *w)
{
	uint64_t scale = atomic_load_explicit(&near_scale, memory_order_relaxed), later;

	if (MSCOPE_LIKELY(scale != 0 && near->known && near->made == w->made &&
			  near->base_ns == w->base_ns)) {
		later = near_ticks() - near->ticks;
		/* Both factors have 32 bits. */
		later = later > UINT32_MAX ? UINT64_MAX : later * scale >> 32;
		if (MSCOPE_LIKELY(later <= NEAR_NS))
			return near->ns + later;
	}
	return near_clock_read(near);
}

/* The call is recorded. */
MSCOPE_INLINE void near_clock_used(struct near_clock *near, const struct writer *w)
{
	near->made = w->made;
	near->base_ns = w->base_ns;
}

#endif
