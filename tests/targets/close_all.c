/* SPDX-License-Identifier: Apache-2.0 */
/*
 * close_all: closes all descriptors it does not know, as daemons do, before its first call of the driver, between calls and
 * in a loop beside them; opens files of its own in the numbers that became free and finds in them what it wrote itself.
 */
#include <pthread.h>

#include "target.h"

#define PAIRS 4000

static atomic_bool stopping;
static atomic_uint rounds;

static void close_others(void)
{
	for (int fd = 3; fd < 1024; fd++)
		close(fd);
}

static void *keep_closing(void *argument)
{
	(void)argument;
	while (!atomic_load(&stopping)) {
		close_others();
		atomic_fetch_add(&rounds, 1);
	}
	return NULL;
}

static void check_own_file(void)
{
	char text[] = "nobody else writes here";
	char seen[64] = {0};
	int fd = memfd_create("own", MFD_CLOEXEC);

	target_check(fd >= 3, "memfd_create failed");
	target_check(write(fd, text, sizeof(text)) == sizeof(text), "write failed");
	target_check(lseek(fd, 0, SEEK_END) == sizeof(text), "somebody wrote to our descriptor");
	target_check(pread(fd, seen, sizeof(seen), 0) == sizeof(text) && strcmp(seen, text) == 0,
		     "somebody changed our file");
	close(fd);
}

int main(void)
{
	struct truth *truth = truth_new(8 * PAIRS);
	struct truth *last;
	pthread_t thread;

	close_others();
	truth_live(truth, PAIRS, 0);
	close_others();
	check_own_file();
	truth_live(truth, PAIRS, 1);
	check_own_file();
	pthread_create(&thread, NULL, keep_closing, NULL);
	/* Until the closing has met every way of the collector's own, at least some hundred times. */
	last = truth_new(8 * PAIRS);
	while (atomic_load(&rounds) < 100 && last->events_count + 2 <= last->capacity) {
		truth_free(last, truth_alloc(last, 4096, FLAG_NORMAL));
		usleep(100);
	}
	atomic_store(&stopping, true);
	pthread_join(thread, NULL);
	truth_write();
	return 0;
}
