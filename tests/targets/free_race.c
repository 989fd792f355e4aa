/* SPDX-License-Identifier: Apache-2.0 */
/*
 * free_race N: N times, two threads free one block. The driver (bare_hal) holds the first free until the second has the block,
 * and then refuses the first.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>

#include "target.h"

static _Atomic int *waits;
static _Atomic(struct block *) offered;
static atomic_int done;

static void *free_second(void *argument)
{
	struct truth *truth = truth_new(2 * (size_t)(uintptr_t)argument + 64);

	for (uintptr_t i = 0; i < (uintptr_t)argument; i++) {
		struct block *block;

		while ((block = atomic_exchange(&offered, NULL)) == NULL ||
		       atomic_load(waits) != 2) {
			if (block != NULL)
				atomic_store(&offered, block);
			sched_yield();
		}
		truth_free(truth, block);
		atomic_fetch_add(&done, 1);
	}
	return NULL;
}

int main(int argc, char **argv)
{
	struct truth *truth = truth_new(65536);
	pthread_t thread;
	int count;

	target_check(argc == 2, "usage: free_race N");
	count = atoi(argv[1]);
	waits = dlsym(RTLD_DEFAULT, "bare_free_waits");
	target_check(waits != NULL, "this is another driver");
	pthread_create(&thread, NULL, free_second, (void *)(uintptr_t)count);
	for (int i = 0; i < count; i++) {
		struct block *block = truth_alloc(truth, 8192 + (unsigned)i, FLAG_NORMAL);
		void *address = (void *)(uintptr_t)block->address;

		atomic_store(waits, 1);
		atomic_store(&offered, block);
		target_check(halMemFree(address) != 0, "the first free had the block");
		while (atomic_load(&done) <= i)
			sched_yield();
	}
	pthread_join(thread, NULL);
	truth_write();
	return 0;
}
