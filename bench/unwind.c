/* SPDX-License-Identifier: Apache-2.0 */
/*
 * unwind [stacks]: walks stacks of 20 frames with the collector's unwinder and with libunwind's unw_backtrace(), which take turns, and
 * prints the medians as JSON. Each stack is another sequence of functions with frames of different shapes.
 */
#include <alloca.h>
#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "collector/unwind/frame_tables.h"
#include "collector/unwind/unwind.h"

#define FRAMES	20
#define WALKS	100
#define ROUNDS	20
#define WAYS	3
#define NOTHING "{\"skipped\": \"no libunwind.so.8\"}\n"

typedef int walker(void **frames, int count);

static struct own_stack own;
static walker *theirs;
static uint32_t shape;	    /* of the stack that is built now */
static double *times[WAYS]; /* ns of a walk, each stack's median */
static uint32_t measured;
static unsigned long sink; /* keeps calls from becoming jumps */

static int ours(void **frames, int count)
{
	return (int)unwind_frames(&own, NULL, frames, (uint32_t)count);
}

/* As the recorder walks: what it has seen before it only compares. */
static int known(void **frames, int count)
{
	static struct walk_store store;
	static struct known_walks walks = {.store = &store};
	uint32_t got = unwind_frames(&own, &walks, frames, (uint32_t)count);

	if (walks.found == NULL)
		walk_keep(&walks, &own, frames, got, (uint32_t)count, 0,
			  (uintptr_t)frames[1] << 20);
	return (int)got;
}

static double now_ns(void)
{
	struct timespec now;

	(void)clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

static int compare(const void *a, const void *b)
{
	const double *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

static double walk_many(walker *walk)
{
	void *frames[FRAMES];
	double start = now_ns();
	int i;

	for (i = 0; i < WALKS; i++) {
		if (walk(frames, FRAMES) != FRAMES)
			abort();
		__asm__ volatile("" : : "r"(frames) : "memory");
	}
	return (now_ns() - start) / WALKS;
}

static void __attribute__((noinline)) measure(void)
{
	walker *const ways[WAYS] = {ours, theirs, known};
	double samples[WAYS][ROUNDS];
	int round, i;

	for (round = 0; round < ROUNDS; round++) {
		for (i = 0; i < WAYS; i++)
			samples[(i + round) % WAYS][round] = walk_many(ways[(i + round) % WAYS]);
	}
	for (round = 0; round < WAYS; round++) {
		qsort(samples[round], ROUNDS, sizeof(double), compare);
		times[round][measured] = samples[round][ROUNDS / 2];
	}
	measured++;
}

static void __attribute__((noinline)) call_next(uint32_t depth);

/* Functions as programs have them: small and large frames, frames that grow, many registers in use. */
static void __attribute__((noinline)) small(uint32_t depth)
{
	call_next(depth);
	sink++;
}

static void __attribute__((noinline)) large(uint32_t depth)
{
	volatile char room[3000];

	room[depth] = 1;
	call_next(depth);
	sink += (unsigned long)room[depth];
}

static void __attribute__((noinline)) growing(uint32_t depth)
{
	volatile char *room = alloca(depth * 16 + 16);

	room[depth] = 1;
	call_next(depth);
	sink += (unsigned long)room[depth];
}

static void __attribute__((noinline)) busy(uint32_t depth)
{
	unsigned long a = sink, b = a * 3, c = b ^ depth, d = c + a, e = d * b;

	call_next(depth);
	sink += a + b * c + d * e;
	call_next(UINT32_MAX);
	sink += a ^ b ^ c ^ d ^ e;
}

static void call_next(uint32_t depth)
{
	static void (*const functions[])(uint32_t) = {small, large, growing, busy};

	if (depth == UINT32_MAX)
		return;
	if (depth > 12)
		measure();
	else
		functions[shape >> 2 * depth & 3](depth + 1);
	sink++;
}

static int add(struct dl_phdr_info *info, size_t size, void *arg)
{
	(void)size;
	(void)arg;
	tables_add(info);
	return 0;
}

int main(int argc, char **argv)
{
	uint32_t stacks = argc > 1 ? (uint32_t)atoi(argv[1]) : 64, i;
	void *library = dlopen("libunwind.so.8", RTLD_NOW), *function = NULL;

	if (library != NULL)
		function = dlsym(library, "unw_backtrace");
	if (function == NULL) {
		(void)fputs(NOTHING, stdout);
		return 0;
	}
	memcpy(&theirs, &function, sizeof(function));
	tables_begin();
	(void)dl_iterate_phdr(add, NULL);
	tables_end();
	for (i = 0; i < WAYS; i++) {
		times[i] = calloc(stacks, sizeof(double));
		if (times[i] == NULL)
			return 1;
	}
	for (i = 0; i < stacks; i++) {
		shape = i * 2654435761u;
		call_next(0);
	}
	for (i = 0; i < WAYS; i++)
		qsort(times[i], measured, sizeof(double), compare);
	(void)printf("{\"own_ns\": %.2f, \"libunwind_ns\": %.2f, \"known_ns\": %.2f}\n",
		     times[0][measured / 2], times[1][measured / 2], times[2][measured / 2]);
	return 0;
}
