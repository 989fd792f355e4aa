/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <string.h>

#include "collector/python/near_clock.h"

/* More ticks than reading the clock takes: the thread was interrupted in between. */
#define READING_TICKS 400u
/* Which is how far off a reading may be, so the counter is measured for 20,000 times as long. */
#define MEASURED_NS 4000000u
/* With more the division below would overflow. */
#define FORGOTTEN_NS ((uint64_t)1 << 47)

_Atomic uint64_t near_scale;
/* The reading that the counter is measured from. */
static struct near_clock measured_from;

/* Whether the kernel keeps its time by the counter: the same on all processors, and at one pace. */
static bool kernel_trusts_ticks(void)
{
	static const char path[] =
		"/sys/devices/system/clocksource/clocksource0/current_clocksource";
	char name[8] = "";
	int fd;

#if !defined(__x86_64__)
	return false;
#endif
	fd = sys_open(path, O_RDONLY | O_CLOEXEC, 0);
	if (fd < 0)
		return false;
	if (sys_read(fd, name, sizeof(name) - 1) < 0)
		name[0] = '\0';
	sys_close(fd);
	return strcmp(name, "tsc\n") == 0;
}

static void measure(const struct near_clock *now)
{
	uint64_t ns = now->ns - measured_from.ns, ticks = now->ticks - measured_from.ticks, scale;

	if (ns < MEASURED_NS || ns >= FORGOTTEN_NS || ticks <= UINT16_MAX)
		return;
	scale = ns > UINT32_MAX ? (ns << 16) / (ticks >> 16) : (ns << 32) / ticks;
	/* A counter slower than a nanosecond gains nothing, and the product must fit. */
	if (scale <= UINT32_MAX)
		atomic_store_explicit(&near_scale, scale, memory_order_relaxed);
}

uint64_t near_clock_read(struct near_clock *near)
{
	uint64_t before = near_ticks();

	near->ns = clock_ns();
	near->ticks = near_ticks();
	near->known = near->ticks - before < READING_TICKS;
	if (near->known && measured_from.known &&
	    atomic_load_explicit(&near_scale, memory_order_relaxed) == 0)
		measure(near);
	return near->ns;
}

void near_clock_begin(void)
{
	int tries;

	if (measured_from.known || !kernel_trusts_ticks())
		return;
	for (tries = 0; tries < 16 && !measured_from.known; tries++)
		(void)near_clock_read(&measured_from);
}
