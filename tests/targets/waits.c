/* SPDX-License-Identifier: Apache-2.0 */
/*
 * waits FILE: takes and gives back 3 blocks, makes FILE.ready, waits until FILE is there, does the same again, makes FILE.done and ends.
 */
#include <stdio.h>
#include <sys/stat.h>
#include <time.h>

#include "target.h"

static void pairs(void)
{
	for (unsigned i = 0; i < 3; i++) {
		void *address = NULL;

		target_check(halMemAlloc(&address, 4096 + i, FLAG_NORMAL) == 0 &&
				     halMemFree(address) == 0,
			     "the driver failed");
	}
}

static void make(const char *path, const char *tail)
{
	char name[4096];
	int fd;

	(void)snprintf(name, sizeof(name), "%s%s", path, tail);
	fd = open(name, O_WRONLY | O_CREAT, 0600);
	target_check(fd >= 0, "cannot make a file");
	close(fd);
}

int main(int argc, char **argv)
{
	struct stat st;

	target_check(argc == 2, "waits FILE");
	pairs();
	make(argv[1], ".ready");
	while (stat(argv[1], &st) < 0)
		nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
	pairs();
	make(argv[1], ".done");
	return 0;
}
