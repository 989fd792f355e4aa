/* SPDX-License-Identifier: Apache-2.0 */
/* The clock that never goes back, in nanoseconds: for times between two moments of this machine. */
#ifndef MSCOPE_BASE_CLOCK_H
#define MSCOPE_BASE_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline uint64_t clock_monotonic_ns(void)
{
	struct timespec now;

	(void)clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

#endif
