/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cold WAYS KIB MILLISECONDS [ROUNDS]: what a call of the driver costs in a program that uses its caches for itself.
 *
 * Calls come from WAYS different stacks of 24 frames, one after the other, always in the same order, as those of a training step do; before
 * each one KIB of other memory are read. Plain and hooked calls take turns. Each call is timed by itself; prints one line of JSON: by how many
 * nanoseconds the median and the 90th percentile of the hooked calls are above the plain ones'. With ROUNDS it makes so many calls for each
 * way and no more, to count instructions and cache misses by: valgrind --tool=callgrind --cache-sim=yes.
 */
#include <dlfcn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "ascend_hal.h"

#define LEVELS 11u
#define FLAG   (MEM_DEV | MEM_PAGE_HUGE)
#define OTHER  (UINT64_C(64) << 20) /* bytes of the other memory: more than caches have */
#define ROOM   4000000u

enum { PLAIN, HOOKED, BOTH };

static struct {
	drvError_t (*alloc)(void **pp, unsigned long long size, unsigned long long flag);
	drvError_t (*free)(void *pp);
	uint32_t *times;
	size_t count;
} drivers[BOTH];
static char *other;
static uint64_t at, lines;
static volatile uint64_t sink;
static void *block;

static void fail(const char *what)
{
	fprintf(stderr, "cold: %s\n", what);
	exit(1);
}

static uint64_t clock_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* Nothing before it ends later, nothing after it begins earlier. */
static inline uint64_t ticks(void)
{
#if defined(__x86_64__)
	uint64_t now;

	__builtin_ia32_lfence();
	now = __builtin_ia32_rdtsc();
	__builtin_ia32_lfence();
	return now;
#elif defined(__aarch64__)
	uint64_t now;

	__asm__ volatile("isb; mrs %0, cntvct_el0; isb" : "=r"(now));
	return now;
#else
	return clock_ns();
#endif
}

static void use_caches(void)
{
	uint64_t sum = 0;

	for (uint64_t i = 0; i < lines; i++) {
		uint64_t word;

		at += 7 * 64;
		memcpy(&word, other + at % OTHER, sizeof(word));
		sum += word;
	}
	sink = sum;
}

static void call(int which, int frees)
{
	uint64_t from;

	use_caches();
	from = ticks();
	if (frees)
		drivers[which].free(block);
	else
		drivers[which].alloc(&block, 4096, FLAG);
	from = ticks() - from;
	if (drivers[which].count < ROOM)
		drivers[which].times[drivers[which].count++] =
			from < UINT32_MAX ? (uint32_t)from : UINT32_MAX;
}

static void descend(unsigned levels, unsigned way, int which, int frees);

static __attribute__((noinline)) void left(unsigned levels, unsigned way, int which, int frees)
{
	descend(levels, way, which, frees);
	__asm__ volatile("" ::: "memory"); /* no tail call: the frame must be there */
}

static __attribute__((noinline)) void right(unsigned levels, unsigned way, int which, int frees)
{
	descend(levels, way, which, frees);
	__asm__ volatile("" ::: "memory");
}

static __attribute__((noinline)) void descend(unsigned levels, unsigned way, int which, int frees)
{
	if (levels == 0)
		call(which, frees);
	else if ((way & 1) != 0)
		left(levels - 1, way >> 1, which, frees);
	else
		right(levels - 1, way >> 1, which, frees);
	__asm__ volatile("" ::: "memory");
}

static void one_round(unsigned ways)
{
	for (unsigned i = 1; i <= ways; i++) {
		/* A way by chance, the same in each round. */
		uint64_t way = i * UINT64_C(0x9e3779b97f4a7c15);

		way = (way ^ way >> 29) * UINT64_C(0xbf58476d1ce4e5b9) >> 40;
		for (int which = 0; which < BOTH; which++) {
			descend(LEVELS, (unsigned)way, which, 0);
			descend(LEVELS, (unsigned)way, which, 1);
		}
	}
}

static int compare(const void *a, const void *b)
{
	const uint32_t *x = a, *y = b;

	return *x < *y ? -1 : *x > *y;
}

static double above_plain(unsigned percent, double ns_per_tick)
{
	double found[BOTH];

	for (int which = 0; which < BOTH; which++)
		found[which] = drivers[which].times[drivers[which].count * percent / 100];
	return (found[HOOKED] - found[PLAIN]) * ns_per_tick;
}

int main(int argc, char **argv)
{
	bool counted = argc == 5;
	unsigned ways = argc == 4 || counted ? (unsigned)atoi(argv[1]) : 0;
	uint64_t limit = ways != 0 ? strtoull(argv[3], NULL, 10) * 1000000 : 0, start, from;
	uint64_t rounds = counted ? strtoull(argv[4], NULL, 10) : UINT64_MAX;
	void *handle = dlopen("libascend_hal.so", RTLD_NOW | RTLD_NOLOAD);
	double ns_per_tick;

	if (ways == 0 || limit == 0)
		fail("usage: cold WAYS KIB MILLISECONDS [ROUNDS]");
	if (handle == NULL)
		fail("the driver is not loaded");
	lines = strtoull(argv[2], NULL, 10) * 16;
	*(void **)&drivers[PLAIN].alloc = dlsym(handle, "halMemAlloc");
	*(void **)&drivers[PLAIN].free = dlsym(handle, "halMemFree");
	*(void **)&drivers[HOOKED].alloc = dlsym(RTLD_DEFAULT, "halMemAlloc");
	*(void **)&drivers[HOOKED].free = dlsym(RTLD_DEFAULT, "halMemFree");
	other = malloc(OTHER);
	if (other == NULL)
		fail("no memory");
	memset(other, 1, OTHER);
	for (int which = 0; which < BOTH; which++) {
		drivers[which].times = malloc(ROOM * sizeof(uint32_t));
		if (drivers[which].times == NULL)
			fail("no memory");
		memset(drivers[which].times, 1, ROOM * sizeof(uint32_t));
	}
	/* Stacks become known. */
	for (int i = 0; i < 4; i++)
		one_round(ways);
	drivers[PLAIN].count = drivers[HOOKED].count = 0;
	start = clock_ns();
	from = ticks();
	do
		one_round(ways);
	while (--rounds > 0 && (counted || clock_ns() - start < limit));
	ns_per_tick = (double)(clock_ns() - start) / (double)(ticks() - from);
	for (int which = 0; which < BOTH; which++)
		qsort(drivers[which].times, drivers[which].count, sizeof(uint32_t), compare);
	printf("{\"ways\": %u, \"kib\": %s, \"preloaded\": %s, \"calls\": %zu, \"median_ns\": %.1f, "
	       "\"p90_ns\": %.1f}\n",
	       ways, argv[2], drivers[PLAIN].alloc == drivers[HOOKED].alloc ? "false" : "true",
	       drivers[HOOKED].count, above_plain(50, ns_per_tick), above_plain(90, ns_per_tick));
	return 0;
}
