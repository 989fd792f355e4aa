/* SPDX-License-Identifier: Apache-2.0 */
/*
 * threads N M [DEVICES]: N threads make M events each, on DEVICES devices (2) and the host. Every thread frees what it took
 * last first, so that addresses come back at once, and hands some of its blocks to another thread, which frees them there.
 * What arrives after its receiver ended is freed by the main thread or stays alive.
 */
#include <pthread.h>

#include "target.h"

struct worker {
	pthread_t thread;
	unsigned number;
	struct truth *truth;
	struct block *mine; /* last taken first */
	unsigned mine_count;
	/* Blocks handed over. Any thread pushes, the owner takes the whole list: no ABA. */
	_Atomic(struct block *) inbox;
};

static struct worker *workers;
static unsigned workers_count;
static unsigned events_count;
static unsigned devices_count = 2;

static struct block *take_mine(struct worker *worker)
{
	struct block *block = worker->mine;

	if (block != NULL) {
		worker->mine = block->next;
		worker->mine_count--;
	}
	return block;
}

static void hand_over(struct worker *to, struct block *block)
{
	struct block *head = atomic_load(&to->inbox);

	do {
		block->next = head;
	} while (!atomic_compare_exchange_weak(&to->inbox, &head, block));
}

static void allocate(struct worker *worker, uint64_t *seed)
{
	unsigned device = (unsigned)(target_random(seed) % devices_count);
	struct block *block;

	switch (target_random(seed) % 16) {
	case 0:
		block = truth_create(worker->truth, 1 + target_random(seed) % 2, (int)device);
		break;
	case 1:
	case 2:
		block = truth_alloc(worker->truth, target_random_size(seed), FLAG_HOST);
		break;
	case 3:
		block = truth_alloc(worker->truth, target_random_size(seed), FLAG_HUGE | device);
		break;
	default:
		block = truth_alloc(worker->truth, target_random_size(seed), FLAG_NORMAL | device);
	}
	block->next = worker->mine;
	worker->mine = block;
	worker->mine_count++;
}

static void free_inbox(struct worker *worker)
{
	struct block *block = atomic_exchange(&worker->inbox, NULL);

	while (block != NULL && worker->truth->events_count < worker->truth->capacity) {
		struct block *next = block->next;

		truth_free(worker->truth, block);
		block = next;
	}
	while (block != NULL) {
		struct block *next = block->next;

		hand_over(&workers[(worker->number + 1) % workers_count], block);
		block = next;
	}
}

static void *work(void *argument)
{
	struct worker *worker = argument;
	uint64_t seed = 88172645463325252ull + worker->number;
	struct block *block;

	worker->truth = truth_new(events_count);
	while (worker->truth->events_count < events_count) {
		switch (target_random(&seed) % 8) {
		default:
			if (worker->mine_count < 32) {
				allocate(worker, &seed);
				break;
			} /* fall through */
		case 4:
		case 5:
			block = take_mine(worker);
			if (block != NULL)
				truth_free(worker->truth, block);
			break;
		case 6:
			block = take_mine(worker);
			if (block != NULL)
				hand_over(&workers[target_random(&seed) % workers_count], block);
			break;
		case 7:
			free_inbox(worker);
		}
	}
	return NULL;
}

int main(int argc, char **argv)
{
	struct truth *truth;

	target_check(argc >= 3, "usage: threads N M [DEVICES]");
	workers_count = (unsigned)atoi(argv[1]);
	events_count = (unsigned)atoi(argv[2]);
	if (argc > 3)
		devices_count = (unsigned)atoi(argv[3]);
	workers = target_map(workers_count * sizeof(*workers));
	truth = truth_new((size_t)workers_count * events_count);
	for (unsigned i = 0; i < workers_count; i++) {
		workers[i].number = i;
		target_check(pthread_create(&workers[i].thread, NULL, work, &workers[i]) == 0,
			     "pthread_create failed");
	}
	for (unsigned i = 0; i < workers_count; i++)
		pthread_join(workers[i].thread, NULL);
	for (unsigned i = 0; i < workers_count; i++) {
		struct block *block = atomic_exchange(&workers[i].inbox, NULL);

		for (unsigned n = 0; block != NULL; n++) {
			struct block *next = block->next;

			if (n % 4 != 3)
				truth_free(truth, block);
			block = next;
		}
	}
	truth_write();
	return 0;
}
