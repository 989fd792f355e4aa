/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fork_storm FORKS EVERY: two threads take and give back memory without a pause while the first thread forks FORKS children, eight at
 * a time. Every EVERY-th child does the same 2 times, the others end at once. Prints how many pairs this process made and how many
 * children made theirs.
 */
#include <pthread.h>
#include <stdio.h>
#include <sys/wait.h>

#include "target.h"

#define THREADS	  2
#define AT_A_TIME 8
#define PAUSE	  64 /* pairs between two checks and yields: forks come amid calls all the same */

static atomic_bool stopping;
static atomic_ulong made;

static void pair(void)
{
	void *address = NULL;

	target_check(halMemAlloc(&address, 4096, FLAG_NORMAL) == 0 && halMemFree(address) == 0,
		     "the driver failed");
}

static void *work(void *argument)
{
	(void)argument;
	while (!atomic_load(&stopping)) {
		for (unsigned i = 0; i < PAUSE; i++)
			pair();
		atomic_fetch_add(&made, PAUSE);
		usleep(1000);
	}
	return NULL;
}

int main(int argc, char **argv)
{
	unsigned long forks, every, living = 0, recorded = 0, well = 0;
	pthread_t threads[THREADS];
	int status;

	target_check(argc == 3, "fork_storm FORKS EVERY");
	forks = strtoul(argv[1], NULL, 10);
	every = strtoul(argv[2], NULL, 10);
	for (unsigned i = 0; i < THREADS; i++)
		target_check(pthread_create(&threads[i], NULL, work, NULL) == 0, "no thread");
	for (unsigned long i = 0; i < forks; i++) {
		pid_t pid = fork();

		target_check(pid >= 0, "fork failed");
		if (pid == 0) {
			if (i % every == 0) {
				pair();
				pair();
			}
			_exit(0);
		}
		recorded += i % every == 0;
		if (++living == AT_A_TIME) {
			well += wait(&status) > 0 && status == 0;
			living--;
		}
	}
	while (living-- > 0)
		well += wait(&status) > 0 && status == 0;
	atomic_store(&stopping, true);
	for (unsigned i = 0; i < THREADS; i++)
		(void)pthread_join(threads[i], NULL);
	printf("{\"pairs\":%lu,\"children\":%lu}\n", atomic_load(&made), recorded);
	return well == forks ? 0 : 1;
}
