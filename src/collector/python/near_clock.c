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

/* `known` if it was not interrupted. */
struct reading {
	uint64_t ns, ticks;
	bool known;
};

/* The reading that the counter is measured from. */
static struct reading measured_from;

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

static void measure(const struct reading *now)
{
	uint64_t ns = now->ns - measured_from.ns, ticks = now->ticks - measured_from.ticks, scale;

	if (ns < MEASURED_NS || ns >= FORGOTTEN_NS || ticks <= UINT16_MAX)
		return;
	scale = ns > UINT32_MAX ? (ns << 16) / (ticks >> 16) : (ns << 32) / ticks;
	/* A counter slower than a nanosecond gains nothing. */
	if (scale != 0 && scale <= UINT32_MAX)
		atomic_store_explicit(&near_scale, scale, memory_order_relaxed);
}

static struct reading read_both(void)
{
	uint64_t before = near_ticks();
	struct reading now = {.ns = clock_ns()};

	now.ticks = near_ticks();
	now.known = now.ticks - before < READING_TICKS;
	return now;
}

uint32_t near_clock_read(struct near_clock *near, struct writer *w)
{
	struct reading now = read_both();
	uint64_t scale = atomic_load_explicit(&near_scale, memory_order_relaxed);
	uint32_t delta = record_since(w, now.ns);

	if (scale == 0 && now.known && measured_from.known)
		measure(&now);
	near->ticks = now.ticks;
	near->since_ns = delta;
	near->scale = scale;
	/* So that neither the product nor the sum overflows. */
	near->most = scale != 0 && now.known && delta < UINT32_MAX - NEAR_NS
			     ? ((uint64_t)NEAR_NS << 32) / scale
			     : 0;
	return delta;
}

void near_clock_begin(void)
{
	int tries;

	if (measured_from.known || !kernel_trusts_ticks())
		return;
	for (tries = 0; tries < 16 && !measured_from.known; tries++)
		measured_from = read_both();
}
