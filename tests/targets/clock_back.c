/* SPDX-License-Identifier: Apache-2.0 */
/* To be preloaded: each time that the program asks for the time of day it is an hour earlier. Clocks that only grow are as they are. */
#include <stdatomic.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define HOUR 3600

static atomic_long readings;

__attribute__((visibility("default"))) int clock_gettime(clockid_t clock, struct timespec *out)
{
	int r = (int)syscall(SYS_clock_gettime, clock, out);

	if (r == 0 && clock == CLOCK_REALTIME)
		out->tv_sec -= HOUR * (atomic_fetch_add(&readings, 1) + 1);
	return r;
}

__attribute__((visibility("default"))) int gettimeofday(struct timeval *restrict out,
							void *restrict zone)
{
	struct timespec now;

	(void)zone;
	(void)clock_gettime(CLOCK_REALTIME, &now);
	*out = (struct timeval){.tv_sec = now.tv_sec, .tv_usec = now.tv_nsec / 1000};
	return 0;
}

__attribute__((visibility("default"))) time_t time(time_t *out)
{
	struct timespec now;

	(void)clock_gettime(CLOCK_REALTIME, &now);
	if (out != NULL)
		*out = now.tv_sec;
	return now.tv_sec;
}
