/* SPDX-License-Identifier: Apache-2.0 */
/*
 * crash_target TRUTH LANES EVENTS SPREAD_MS: LANES threads make EVENTS driver calls each, spread evenly over SPREAD_MS (0: as
 * fast as they can), and hand some blocks to their neighbour to be freed there. To be killed at any moment: what a thread has
 * done stands in the file TRUTH, which is mapped, before it does the next thing.
 *
 *     0      magic, lanes, events of each, pid: 4 words of 64 bits
 *     4096   lane 0, lane 1, ...: thread id, published; then EVENTS entries of what, block, address, size
 *
 * Everything is little-endian words of 64 bits. Entries below `published` are calls that have returned, so their events are
 * committed; the entry at `published` is the call that is going on, its address 0 as long as the driver has not told it. A
 * block is named by the lane and the entry that allocated it: lane << 32 | entry.
 */
#include <pthread.h>
#include <time.h>

#include "target.h"

#define MAGIC	  0x31757274u
#define LANES_AT  4096u
#define LIVE_MAX  24u
#define INBOX_MAX 64u

enum { DID_ALLOC = 1, DID_FREE = 2 };

struct entry {
	uint64_t what;
	uint64_t block;
	uint64_t address;
	uint64_t size;
};

struct lane {
	uint64_t tid;
	_Atomic uint64_t published;
	struct entry entries[];
};

struct worker {
	pthread_t thread;
	uint64_t number;
	struct lane *lane;
	struct entry live[LIVE_MAX]; /* allocations of this thread that it still has */
	unsigned live_count;
	pthread_mutex_t lock; /* of the inbox */
	struct entry inbox[INBOX_MAX];
	unsigned inbox_count;
};

static struct worker *workers;
static uint64_t lanes_count, events_count, spread_ns;

static uint64_t now_ns(void)
{
	struct timespec now;

	(void)clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* The entry of the call that comes now. */
static struct entry *intend(struct worker *w, struct entry entry)
{
	struct entry *at = &w->lane->entries[atomic_load(&w->lane->published)];

	*at = entry;
	return at;
}

static void publish(struct worker *w)
{
	atomic_fetch_add_explicit(&w->lane->published, 1, memory_order_release);
}

static void allocate(struct worker *w, uint64_t *seed)
{
	uint64_t n = atomic_load(&w->lane->published);
	struct entry *at = intend(
		w, (struct entry){DID_ALLOC, w->number << 32 | n, 0, target_random_size(seed)});
	void *address = NULL;

	target_check(halMemAlloc(&address, at->size,
				 target_random(seed) % 8 == 0 ? FLAG_HOST
							      : FLAG_NORMAL | (w->number & 1)) == 0,
		     "halMemAlloc failed");
	at->address = (uint64_t)(uintptr_t)address;
	publish(w);
	w->live[w->live_count++] = *at;
}

/* False when the driver refused: then nothing has happened, and nothing is published. */
static bool give_back(struct worker *w, struct entry block)
{
	block.what = DID_FREE;
	(void)intend(w, block);
	if (halMemFree((void *)(uintptr_t)block.address) != 0)
		return false;
	publish(w);
	return true;
}

static bool take_inbox(struct worker *w, struct entry *out)
{
	bool found;

	(void)pthread_mutex_lock(&w->lock);
	found = w->inbox_count > 0;
	if (found)
		*out = w->inbox[--w->inbox_count];
	(void)pthread_mutex_unlock(&w->lock);
	return found;
}

static void hand_over(struct worker *to, const struct entry *block)
{
	(void)pthread_mutex_lock(&to->lock);
	if (to->inbox_count < INBOX_MAX)
		to->inbox[to->inbox_count++] = *block; /* else it stays alive for good */
	(void)pthread_mutex_unlock(&to->lock);
}

static void keep_pace(uint64_t start, uint64_t done)
{
	uint64_t due = start + spread_ns / events_count * done, now = now_ns();
	struct timespec pause = {.tv_nsec = (long)((due - now) % 1000000000u)};

	if (spread_ns != 0 && due > now)
		(void)nanosleep(&pause, NULL);
}

static void *work(void *argument)
{
	struct worker *w = argument;
	uint64_t seed = 88172645463325252ull + w->number, start = now_ns(), done;
	struct entry block;

	w->lane->tid = (uint64_t)target_tid();
	while ((done = atomic_load(&w->lane->published)) < events_count) {
		uint64_t choice = target_random(&seed) % 16;

		if (done % 64 == 0)
			keep_pace(start, done);
		if (choice == 0 && w->live_count > 0)
			hand_over(&workers[(w->number + 1) % lanes_count],
				  &w->live[--w->live_count]);
		else if (choice == 1 && take_inbox(w, &block))
			(void)give_back(w, block); /* refused: stays alive for good */
		else if (w->live_count == LIVE_MAX || (choice < 8 && w->live_count > 0))
			/* Last first: addresses come back at once. */
			w->live_count -= give_back(w, w->live[w->live_count - 1]);
		else
			allocate(w, &seed);
	}
	return NULL;
}

int main(int argc, char **argv)
{
	uint64_t lane_bytes, bytes, *head;
	char *map;
	int fd;

	target_check(argc == 5, "usage: crash_target TRUTH LANES EVENTS SPREAD_MS");
	lanes_count = strtoull(argv[2], NULL, 10);
	events_count = strtoull(argv[3], NULL, 10);
	spread_ns = strtoull(argv[4], NULL, 10) * 1000000u;
	target_check(lanes_count > 0 && events_count > 0, "nothing to do");
	lane_bytes = sizeof(struct lane) + events_count * sizeof(struct entry);
	bytes = LANES_AT + lanes_count * lane_bytes;
	fd = open(argv[1], O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	target_check(fd >= 0 && ftruncate(fd, (off_t)bytes) == 0, "cannot make the truth file");
	map = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	target_check(map != MAP_FAILED, "cannot map the truth file");
	head = (uint64_t *)(void *)map;
	head[1] = lanes_count;
	head[2] = events_count;
	head[3] = (uint64_t)getpid();
	head[0] = MAGIC;
	workers = target_map(lanes_count * sizeof(*workers));
	for (uint64_t i = 0; i < lanes_count; i++) {
		workers[i].number = i;
		workers[i].lane = (struct lane *)(void *)(map + LANES_AT + i * lane_bytes);
		(void)pthread_mutex_init(&workers[i].lock, NULL);
	}
	for (uint64_t i = 0; i < lanes_count; i++)
		target_check(pthread_create(&workers[i].thread, NULL, work, &workers[i]) == 0,
			     "pthread_create failed");
	for (uint64_t i = 0; i < lanes_count; i++)
		(void)pthread_join(workers[i].thread, NULL);
	return 0;
}
