/* SPDX-License-Identifier: Apache-2.0 */
/*
 * peaks SEED EVENTS THREADS [PAUSE]: takes and gives back device memory at random, at eight lines of this file and on two devices,
 * and keeps book of what each line holds. Sleeps PAUSE milliseconds ten times on the way. Prints for each device what each line held when the device's use was at its highest:
 *
 *     {"device":0,"peak":4096,"lines":[[41,4096,1],...]}        line, bytes, blocks
 *
 * Threads take turns under a lock, so that the order of events is the order of the book.
 */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "ascend_hal.h"

#define FLAGS	((unsigned long long)33 << 56 | 0x904400)
#define PLACES	8
#define DEVICES 2
#define BLOCKS	512

struct hold {
	uint64_t bytes, blocks;
};

struct book {
	struct hold now[PLACES], at_peak[PLACES];
	uint64_t live, peak;
};

static struct {
	void *address;
	uint64_t size;
	int place, device;
} blocks[BLOCKS];

static struct book books[DEVICES];
static int lines[PLACES];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t state, left, tenth;
static useconds_t pause_us;

static uint64_t random_below(uint64_t bound)
{
	state = state * UINT64_C(6364136223846793005) + 1442695040888963407u;
	return (state >> 33) % bound;
}

#define TAKE(index, size, device)                                                                  \
	(lines[index] = __LINE__, halMemAlloc(&address, size, FLAGS | (unsigned)(device)))

static void *take(int place, uint64_t size, int device)
{
	void *address = NULL;
	int r = -1;

	/* clang-format off */
	switch (place) {
	case 0: r = TAKE(0, size, device); break;
	case 1: r = TAKE(1, size, device); break;
	case 2: r = TAKE(2, size, device); break;
	case 3: r = TAKE(3, size, device); break;
	case 4: r = TAKE(4, size, device); break;
	case 5: r = TAKE(5, size, device); break;
	case 6: r = TAKE(6, size, device); break;
	default: r = TAKE(7, size, device); break;
	}
	/* clang-format on */
	if (r != 0)
		abort();
	return address;
}

static void one_event(void)
{
	size_t i = random_below(BLOCKS);
	struct book *book;
	int k;

	if (blocks[i].address != NULL) {
		book = &books[blocks[i].device];
		if (halMemFree(blocks[i].address) != 0)
			abort();
		book->now[blocks[i].place].bytes -= blocks[i].size;
		book->now[blocks[i].place].blocks--;
		book->live -= blocks[i].size;
		blocks[i].address = NULL;
		return;
	}
	blocks[i].place = (int)random_below(PLACES);
	blocks[i].device = (int)random_below(DEVICES);
	blocks[i].size = 4096 * (1 + random_below(64));
	blocks[i].address = take(blocks[i].place, blocks[i].size, blocks[i].device);
	book = &books[blocks[i].device];
	book->now[blocks[i].place].bytes += blocks[i].size;
	book->now[blocks[i].place].blocks++;
	book->live += blocks[i].size;
	if (book->live <= book->peak)
		return;
	book->peak = book->live;
	for (k = 0; k < PLACES; k++)
		book->at_peak[k] = book->now[k];
}

static void *work(void *arg)
{
	(void)arg;
	for (;;) {
		pthread_mutex_lock(&lock);
		if (left == 0)
			break;
		if (--left % tenth == 0 && pause_us > 0)
			usleep(pause_us);
		one_event();
		pthread_mutex_unlock(&lock);
	}
	pthread_mutex_unlock(&lock);
	return NULL;
}

int main(int argc, char **argv)
{
	pthread_t threads[8];
	int i, k, count;

	if (argc < 4)
		return 2;
	state = strtoull(argv[1], NULL, 10);
	left = strtoull(argv[2], NULL, 10);
	count = atoi(argv[3]);
	tenth = left / 10 + 1;
	pause_us = argc > 4 ? (useconds_t)atoi(argv[4]) * 1000 : 0;
	for (i = 0; i < count && i < 8; i++)
		pthread_create(&threads[i], NULL, work, NULL);
	for (i = 0; i < count && i < 8; i++)
		pthread_join(threads[i], NULL);
	for (i = 0; i < DEVICES; i++) {
		const char *comma = "";

		printf("{\"device\":%d,\"peak\":%llu,\"lines\":[", i,
		       (unsigned long long)books[i].peak);
		for (k = 0; k < PLACES; k++) {
			if (books[i].at_peak[k].blocks == 0)
				continue;
			printf("%s[%d,%llu,%llu]", comma, lines[k],
			       (unsigned long long)books[i].at_peak[k].bytes,
			       (unsigned long long)books[i].at_peak[k].blocks);
			comma = ",";
		}
		printf("]}\n");
	}
	return 0;
}
