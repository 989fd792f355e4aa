/* SPDX-License-Identifier: Apache-2.0 */
/*
 * handoff N M: N threads fight for the only slot of a driver (BARE_SLOTS=1), so every block has the same address. A thread
 * that got it gives it back itself or leaves it to whoever comes first; M pairs in all. The hardest case for the order of a
 * free and the next allocation of its address.
 */
#include <pthread.h>
#include <sched.h>

#include "target.h"

static _Atomic(struct block *) offered;
static atomic_int pairs_left; /* below 0 when two threads took the last one */
static unsigned events_most;

static void *work(void *argument)
{
	struct truth *truth = truth_new(events_most);
	uint64_t size = (uint64_t)target_tid() * 1000;
	(void)argument;

	while (atomic_load(&pairs_left) > 0 || atomic_load(&offered) != NULL) {
		struct block *block = atomic_exchange(&offered, NULL);
		void *address = NULL;

		if (block != NULL) {
			truth_free(truth, block);
			atomic_fetch_sub(&pairs_left, 1);
			continue;
		}
		if (atomic_load(&pairs_left) <= 0)
			break;
		if (halMemAlloc(&address, ++size, FLAG_NORMAL) != 0) {
			sched_yield();
			continue;
		}
		block = truth_add_flag(truth, address, size, FLAG_NORMAL);
		if (size % 2 == 0) {
			truth_free(truth, block);
			atomic_fetch_sub(&pairs_left, 1);
		} else {
			atomic_store(&offered, block);
		}
	}
	return NULL;
}

int main(int argc, char **argv)
{
	pthread_t threads[64];
	unsigned count;

	target_check(argc == 3, "usage: handoff N M");
	count = (unsigned)atoi(argv[1]);
	target_check(count <= 64, "too many threads");
	atomic_store(&pairs_left, atoi(argv[2]));
	events_most = 4 * (unsigned)atoi(argv[2]) + 64;
	for (unsigned i = 0; i < count; i++)
		pthread_create(&threads[i], NULL, work, NULL);
	for (unsigned i = 0; i < count; i++)
		pthread_join(threads[i], NULL);
	truth_write();
	return 0;
}
