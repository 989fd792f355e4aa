/* SPDX-License-Identifier: Apache-2.0 */
/*
 * calls batch|each|cpu THREADS EVENTS FRAMES: what one call of the driver costs, plain and through whatever is preloaded.
 *
 * Both are measured in the same thread, turn and turn about, so that the machine's moods hit both: the plain function is found
 * through a handle of the driver, which passes a preload by, the other through the global scope. Without a preload they are the
 * same function and the difference is the error of the measurement.
 *
 *     batch  median over batches of 256 calls, allocations and frees apart; the clock is read once a batch
 *     each   every call by itself: percentiles up to the 99.99th; the clock's own cost is in both and cancels
 *     cpu    CPU time of the threads per event, all slow paths included
 *
 * EVENTS are per thread. The calls come from FRAMES frames below the thread's first, by 64 different ways when there are
 * enough frames for it. Prints one line of JSON.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "ascend_hal.h"

#define BATCH	256u
#define WAYS	64u
#define FLAG	(MEM_DEV | MEM_PAGE_HUGE)
#define THREADS 64u

enum { PLAIN, HOOKED, BOTH };
enum { ALLOC, FREE, KINDS };

struct driver {
	drvError_t (*alloc)(void **pp, unsigned long long size, unsigned long long flag);
	drvError_t (*free)(void *pp);
};

/* Nanoseconds, or ticks in `each`; grows as samples come. */
struct samples {
	uint32_t *values;
	size_t count, room;
};

struct worker;
typedef void leaf(struct worker *worker);

struct worker {
	pthread_t thread;
	uint64_t events;
	unsigned frames;
	leaf *leaf;
	struct samples samples[BOTH][KINDS];
	double cpu_ns[BOTH];
	uint64_t counted;
	void *blocks[BATCH];
};

static struct driver drivers[BOTH];
static double ns_per_tick;
static pthread_barrier_t start;

static void fail(const char *what)
{
	fprintf(stderr, "calls: %s\n", what);
	exit(1);
}

static uint64_t clock_ns(clockid_t clock)
{
	struct timespec now;

	clock_gettime(clock, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* The cheapest clock of the machine. */
static inline uint64_t ticks(void)
{
#if defined(__x86_64__)
	return __builtin_ia32_rdtsc();
#elif defined(__aarch64__)
	uint64_t value;

	__asm__ volatile("isb; mrs %0, cntvct_el0" : "=r"(value));
	return value;
#else
	return clock_ns(CLOCK_MONOTONIC);
#endif
}

static void calibrate(void)
{
	uint64_t from = ticks(), from_ns = clock_ns(CLOCK_MONOTONIC), now_ns;

	do
		now_ns = clock_ns(CLOCK_MONOTONIC);
	while (now_ns - from_ns < 20000000);
	ns_per_tick = (double)(now_ns - from_ns) / (double)(ticks() - from);
}

/* Room is taken and touched beforehand: a page fault here would count as the collector's. */
static void samples_reserve(struct samples *s, size_t room)
{
	s->values = malloc(room * sizeof(*s->values));
	if (s->values == NULL)
		fail("no memory");
	memset(s->values, 1, room * sizeof(*s->values));
	s->room = room;
}

static inline void samples_add(struct samples *s, uint64_t value)
{
	if (s->count < s->room)
		s->values[s->count++] = value < UINT32_MAX ? (uint32_t)value : UINT32_MAX;
}

static int compare(const void *a, const void *b)
{
	const uint32_t *x = a, *y = b;

	return *x < *y ? -1 : *x > *y;
}

static double percentile(const struct samples *sorted, double p)
{
	size_t at = (size_t)((double)sorted->count * p / 100.0);

	return sorted->count == 0 ? 0 : sorted->values[at < sorted->count ? at : sorted->count - 1];
}

/* ---- what is measured; each leaf makes BATCH allocations and BATCH frees, plain and hooked ---- */

static void leaf_batch(struct worker *w)
{
	for (int which = 0; which < BOTH; which++) {
		const struct driver d = drivers[which];
		uint64_t t0, t1, t2;

		t0 = ticks();
		for (unsigned i = 0; i < BATCH; i++)
			d.alloc(&w->blocks[i], 4096, FLAG);
		t1 = ticks();
		for (unsigned i = 0; i < BATCH; i++)
			d.free(w->blocks[i]);
		t2 = ticks();
		samples_add(&w->samples[which][ALLOC], t1 - t0);
		samples_add(&w->samples[which][FREE], t2 - t1);
	}
}

static void leaf_each(struct worker *w)
{
	for (int which = 0; which < BOTH; which++) {
		const struct driver d = drivers[which];

		for (unsigned i = 0; i < BATCH; i++) {
			uint64_t t = ticks();

			d.alloc(&w->blocks[i], 4096, FLAG);
			samples_add(&w->samples[which][ALLOC], ticks() - t);
		}
		for (unsigned i = 0; i < BATCH; i++) {
			uint64_t t = ticks();

			d.free(w->blocks[i]);
			samples_add(&w->samples[which][FREE], ticks() - t);
		}
	}
}

/* The clock of a thread's CPU time is a system call, so it is read once in 64 batches. */
static void leaf_cpu(struct worker *w)
{
	for (int which = 0; which < BOTH; which++) {
		const struct driver d = drivers[which];
		uint64_t from = clock_ns(CLOCK_THREAD_CPUTIME_ID);

		for (unsigned n = 0; n < 64; n++) {
			for (unsigned i = 0; i < BATCH; i++)
				d.alloc(&w->blocks[i], 4096, FLAG);
			for (unsigned i = 0; i < BATCH; i++)
				d.free(w->blocks[i]);
		}
		w->cpu_ns[which] += (double)(clock_ns(CLOCK_THREAD_CPUTIME_ID) - from);
	}
	w->counted += UINT64_C(64) * 2 * BATCH;
}

/* ---- ways down: at each of the last six levels one of two functions, by a bit of `way` ---- */

static void descend(struct worker *w, unsigned depth, unsigned way);

static __attribute__((noinline)) void left(struct worker *w, unsigned depth, unsigned way)
{
	descend(w, depth, way);
	__asm__ volatile("" ::: "memory"); /* no tail call: the frame must be there */
}

static __attribute__((noinline)) void right(struct worker *w, unsigned depth, unsigned way)
{
	descend(w, depth, way);
	__asm__ volatile("" ::: "memory");
}

static __attribute__((noinline)) void descend(struct worker *w, unsigned depth, unsigned way)
{
	unsigned left_to_go = (w->frames - depth) /
			      2; /* a level is two frames: this function's and the one chosen */

	if (left_to_go == 0)
		w->leaf(w);
	else if (way >> (left_to_go - 1) % 32 & 1)
		left(w, depth + 2, way);
	else
		right(w, depth + 2, way);
	__asm__ volatile("" ::: "memory");
}

static void *work(void *argument)
{
	struct worker *w = argument;
	unsigned way = 0;
	uint64_t done, step = w->leaf == leaf_cpu ? UINT64_C(64) * 2 * BATCH : 2 * BATCH;

	/* The first calls set things up and are nobody's figure. */
	for (int which = 0; which < BOTH; which++) {
		drivers[which].alloc(&w->blocks[0], 4096, FLAG);
		drivers[which].free(w->blocks[0]);
	}
	pthread_barrier_wait(&start);
	for (done = 0; done < w->events; done += step)
		descend(w, 0, way++ % WAYS);
	return NULL;
}

/* ---- results ---- */

static void join(struct samples *to, struct samples *from)
{
	uint32_t *values = realloc(to->values, (to->count + from->count) * sizeof(*values));

	if (values == NULL)
		fail("no memory");
	memcpy(values + to->count, from->values, from->count * sizeof(*values));
	to->values = values;
	to->count += from->count;
	to->room = to->count;
}

static void print_samples(struct worker *workers, unsigned threads, double scale)
{
	static const char *const names[BOTH][KINDS] = {{"plain_alloc", "plain_free"},
						       {"alloc", "free"}};

	for (int which = 0; which < BOTH; which++) {
		for (int kind = 0; kind < KINDS; kind++) {
			struct samples all = {0};

			for (unsigned i = 0; i < threads; i++)
				join(&all, &workers[i].samples[which][kind]);
			qsort(all.values, all.count, sizeof(*all.values), compare);
			printf(", \"%s_ns\": {\"p50\": %.2f, \"p99\": %.2f, \"p99.99\": %.2f, "
			       "\"max\": %.2f}",
			       names[which][kind], percentile(&all, 50) * scale,
			       percentile(&all, 99) * scale, percentile(&all, 99.99) * scale,
			       percentile(&all, 100) * scale);
			free(all.values);
		}
	}
}

/* Call stacks of a thread's hooked calls: an allocation and a free at the end of each way it had time for, and the first two. */
static unsigned stacks_made(const struct worker *w)
{
	uint64_t ways = WAYS, batches = (w->events + 2 * BATCH - 1) / (2 * BATCH);

	if (w->frames / 2 < 6)
		ways = UINT64_C(1) << w->frames / 2;
	return 2 * ((unsigned)(ways < batches ? ways : batches) + 1);
}

int main(int argc, char **argv)
{
	unsigned threads = argc == 5 ? (unsigned)atoi(argv[2]) : 0;
	void *handle = dlopen("libascend_hal.so", RTLD_NOW | RTLD_NOLOAD);
	struct worker *workers;
	double cpu[BOTH] = {0};
	uint64_t counted = 0;
	leaf *chosen = NULL;

	if (argc == 5 && strcmp(argv[1], "batch") == 0)
		chosen = leaf_batch;
	else if (argc == 5 && strcmp(argv[1], "each") == 0)
		chosen = leaf_each;
	else if (argc == 5 && strcmp(argv[1], "cpu") == 0)
		chosen = leaf_cpu;
	if (chosen == NULL || threads == 0 || threads > THREADS)
		fail("usage: calls batch|each|cpu THREADS EVENTS FRAMES");
	if (handle == NULL)
		fail("the driver is not loaded");
	*(void **)&drivers[PLAIN].alloc = dlsym(handle, "halMemAlloc");
	*(void **)&drivers[PLAIN].free = dlsym(handle, "halMemFree");
	*(void **)&drivers[HOOKED].alloc = dlsym(RTLD_DEFAULT, "halMemAlloc");
	*(void **)&drivers[HOOKED].free = dlsym(RTLD_DEFAULT, "halMemFree");
	calibrate();
	pthread_barrier_init(&start, NULL, threads);
	workers = calloc(threads, sizeof(*workers));
	if (workers == NULL)
		fail("no memory");
	for (unsigned i = 0; i < threads; i++) {
		struct worker *w = &workers[i];
		size_t room;

		w->events = strtoull(argv[3], NULL, 10);
		w->frames = (unsigned)atoi(argv[4]);
		w->leaf = chosen;
		room = (size_t)(chosen == leaf_each ? w->events / KINDS + BATCH
						    : w->events / KINDS / BATCH + 1);
		for (int which = 0; which < BOTH && chosen != leaf_cpu; which++) {
			for (int kind = 0; kind < KINDS; kind++)
				samples_reserve(&w->samples[which][kind], room);
		}
	}
	/* The first is this one, which may be an interpreter's own (frames.py). */
	for (unsigned i = 1; i < threads; i++) {
		if (pthread_create(&workers[i].thread, NULL, work, &workers[i]) != 0)
			fail("no thread");
	}
	(void)work(&workers[0]);
	for (unsigned i = 1; i < threads; i++)
		pthread_join(workers[i].thread, NULL);
	printf("{\"what\": \"%s\", \"threads\": %u, \"preloaded\": %s", argv[1], threads,
	       drivers[PLAIN].alloc == drivers[HOOKED].alloc ? "false" : "true");
	if (chosen == leaf_cpu) {
		for (unsigned i = 0; i < threads; i++) {
			cpu[PLAIN] += workers[i].cpu_ns[PLAIN];
			cpu[HOOKED] += workers[i].cpu_ns[HOOKED];
			counted += workers[i].counted;
		}
		printf(", \"plain_cpu_ns\": %.2f, \"cpu_ns\": %.2f", cpu[PLAIN] / (double)counted,
		       cpu[HOOKED] / (double)counted);
	} else {
		print_samples(workers, threads,
			      chosen == leaf_each ? ns_per_tick : ns_per_tick / BATCH);
	}
	printf(", \"stacks\": %u}\n", threads * stacks_made(&workers[0]));
	return 0;
}
