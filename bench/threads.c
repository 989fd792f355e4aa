/* SPDX-License-Identifier: Apache-2.0 */
/*
 * threads THREADS EVENTS_PER_SECOND EVENTS: CPU time of an event when many threads record at one pace.
 *
 * EVENTS_PER_SECOND and EVENTS are of all threads together; pace 0 is as fast as they can. A thread makes its events in batches of 256
 * (128 allocations, their frees) and spins on the clock between batches, so that every thread keeps its core. Only the batches count: the
 * clock of the thread's CPU time is read around each, and what reading it costs is subtracted. The plain function, found through a
 * handle of the driver, is measured by a batch after each and subtracted as well. Prints one line of JSON: nanoseconds of CPU time per
 * event, those of the plain function (they tell how much slower the cores became, two of which may be one), how much of it the kernel
 * took (rusage: the spinning is user time), and page faults per thousand events.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>

#include "ascend_hal.h"

#define HALF	128u /* allocations of a batch, and as many frees */
#define BATCH	(2 * HALF)
#define THREADS 256u
#define FLAG	(MEM_DEV | MEM_PAGE_HUGE)

struct driver {
	drvError_t (*alloc)(void **pp, unsigned long long size, unsigned long long flag);
	drvError_t (*free)(void *pp);
};

struct worker {
	pthread_t thread;
	unsigned number;
	uint64_t batches;
	uint64_t period_ns; /* of a batch, 0: no pause */
	uint64_t cpu_ns, plain_ns, longest_ns;
	uint64_t system_ns, faults;
};

static struct driver plain, hooked;
static pthread_barrier_t start;
static uint64_t clock_cost_ns;

static void fail(const char *what)
{
	fprintf(stderr, "threads: %s\n", what);
	exit(1);
}

static uint64_t clock_ns(clockid_t clock)
{
	struct timespec now;

	clock_gettime(clock, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* CPU time of one batch, the clock's own cost included. */
static uint64_t batch(const struct driver *d)
{
	void *blocks[HALF];
	uint64_t from = clock_ns(CLOCK_THREAD_CPUTIME_ID);

	for (unsigned i = 0; i < HALF; i++)
		d->alloc(&blocks[i], 4096, FLAG);
	for (unsigned i = 0; i < HALF; i++)
		d->free(blocks[i]);
	return clock_ns(CLOCK_THREAD_CPUTIME_ID) - from;
}

static void measure_clock(void)
{
	uint64_t best = UINT64_MAX;

	for (int i = 0; i < 10000; i++) {
		uint64_t from = clock_ns(CLOCK_THREAD_CPUTIME_ID);
		uint64_t cost = clock_ns(CLOCK_THREAD_CPUTIME_ID) - from;

		if (cost < best)
			best = cost;
	}
	clock_cost_ns = best;
}

static uint64_t less(uint64_t a, uint64_t b)
{
	return a > b ? a - b : 0;
}

static void *work(void *argument)
{
	struct worker *w = argument;
	struct rusage before, after;
	uint64_t begin, due;

	(void)batch(&hooked); /* sets the thread up */
	(void)batch(&plain);
	pthread_barrier_wait(&start);
	getrusage(RUSAGE_THREAD, &before);
	begin = clock_ns(CLOCK_MONOTONIC);
	/* Threads do not make their batches at the same moments. */
	due = begin + w->period_ns * w->number / 16;
	for (uint64_t i = 0; i < w->batches; i++, due += w->period_ns) {
		uint64_t cost;

		while (w->period_ns != 0 && clock_ns(CLOCK_MONOTONIC) < due)
			;
		cost = less(batch(&hooked), clock_cost_ns);
		w->cpu_ns += cost;
		if (cost > w->longest_ns)
			w->longest_ns = cost;
		w->plain_ns += less(batch(&plain), clock_cost_ns);
	}
	getrusage(RUSAGE_THREAD, &after);
	w->system_ns = (uint64_t)(after.ru_stime.tv_sec - before.ru_stime.tv_sec) * 1000000000u +
		       (uint64_t)(after.ru_stime.tv_usec - before.ru_stime.tv_usec) * 1000u;
	w->faults = (uint64_t)(after.ru_minflt - before.ru_minflt);
	return NULL;
}

int main(int argc, char **argv)
{
	unsigned threads = argc == 4 ? (unsigned)atoi(argv[1]) : 0;
	uint64_t pace = argc == 4 ? strtoull(argv[2], NULL, 10) : 0;
	uint64_t events = argc == 4 ? strtoull(argv[3], NULL, 10) : 0;
	void *handle = dlopen("libascend_hal.so", RTLD_NOW | RTLD_NOLOAD);
	struct worker *workers, all = {0};
	uint64_t begin, made = 0;
	double count;

	if (threads == 0 || threads > THREADS || events == 0)
		fail("usage: threads THREADS EVENTS_PER_SECOND EVENTS");
	if (handle == NULL)
		fail("the driver is not loaded");
	*(void **)&plain.alloc = dlsym(handle, "halMemAlloc");
	*(void **)&plain.free = dlsym(handle, "halMemFree");
	*(void **)&hooked.alloc = dlsym(RTLD_DEFAULT, "halMemAlloc");
	*(void **)&hooked.free = dlsym(RTLD_DEFAULT, "halMemFree");
	measure_clock();
	pthread_barrier_init(&start, NULL, threads);
	workers = calloc(threads, sizeof(*workers));
	if (workers == NULL)
		fail("no memory");
	begin = clock_ns(CLOCK_MONOTONIC);
	for (unsigned i = 0; i < threads; i++) {
		workers[i].number = i;
		workers[i].batches = events / BATCH / threads + 1;
		workers[i].period_ns =
			pace == 0 ? 0 : UINT64_C(1000000000) * BATCH * threads / pace;
		if (pthread_create(&workers[i].thread, NULL, work, &workers[i]) != 0)
			fail("no thread");
	}
	for (unsigned i = 0; i < threads; i++) {
		const struct worker *w = &workers[i];

		pthread_join(w->thread, NULL);
		made += w->batches * BATCH;
		all.cpu_ns += w->cpu_ns;
		all.plain_ns += w->plain_ns;
		all.system_ns += w->system_ns;
		all.faults += w->faults;
		if (w->longest_ns > all.longest_ns)
			all.longest_ns = w->longest_ns;
	}
	count = (double)made;
	printf("{\"threads\": %u, \"pace\": %llu, \"events\": %llu, \"preloaded\": %s, \"cpu_ns\": "
	       "%.2f, \"plain_ns\": %.2f, "
	       "\"system_ns\": %.2f, \"faults_per_1000\": %.3f, \"longest_batch_us\": %.1f, "
	       "\"wall_s\": %.3f}\n",
	       threads, (unsigned long long)pace, (unsigned long long)made,
	       plain.alloc == hooked.alloc ? "false" : "true",
	       ((double)all.cpu_ns - (double)all.plain_ns) / count, (double)all.plain_ns / count,
	       (double)all.system_ns / count, (double)all.faults * 1000 / count,
	       (double)all.longest_ns / 1000, (double)(clock_ns(CLOCK_MONOTONIC) - begin) / 1e9);
	return 0;
}
