/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sleepers N: N children of two events each that live until the end of stdin. Says "ready" on stdout when all have made theirs.
 */
#include <stdio.h>
#include <sys/wait.h>

#include "target.h"

static void child(int ready, int wait_for)
{
	struct truth *truth = truth_new(2);
	char byte = 0;

	truth_free(truth, truth_alloc(truth, 4096, FLAG_NORMAL));
	truth_write();
	target_check(write(ready, &byte, 1) == 1, "no pipe");
	while (read(wait_for, &byte, 1) > 0)
		;
	_exit(0);
}

int main(int argc, char **argv)
{
	unsigned count = argc > 1 ? (unsigned)atoi(argv[1]) : 10;
	int ready[2], end[2];
	char byte;

	target_check(pipe(ready) == 0 && pipe(end) == 0, "no pipe");
	for (unsigned i = 0; i < count; i++) {
		pid_t pid = fork();

		target_check(pid >= 0, "no child");
		if (pid == 0) {
			close(end[1]);
			child(ready[1], end[0]);
		}
	}
	for (unsigned i = 0; i < count; i++)
		target_check(read(ready[0], &byte, 1) == 1, "a child is gone");
	puts("ready");
	fflush(stdout);
	while (read(STDIN_FILENO, &byte, 1) > 0)
		;
	close(end[1]);
	while (wait(NULL) > 0)
		;
	return 0;
}
