/* SPDX-License-Identifier: Apache-2.0 */
/*
 * exec_self: takes memory, replaces itself by itself in each of the ways there are, and takes memory again each time. One
 * pid, one part of the truth per image; blocks alive at an exec stay without a free.
 */
#include "target.h"

#define PAIRS 100

extern char **environ;

static const char *const ways[] = {"execv", "execve", "execvp", "execl", "fexecve", "execveat"};
#define WAYS (sizeof(ways) / sizeof(*ways))

static void exec_self(const char *way, char *program, char *next)
{
	char *const argv[] = {program, next, NULL};

	if (strcmp(way, "execv") == 0) {
		execv(program, argv);
	} else if (strcmp(way, "execve") == 0) {
		execve(program, argv, environ);
	} else if (strcmp(way, "execvp") == 0) {
		execvp(program, argv);
	} else if (strcmp(way, "execl") == 0) {
		execl(program, program, next, (char *)NULL);
	} else if (strcmp(way, "fexecve") == 0) {
		fexecve(open(program, O_RDONLY | O_CLOEXEC), argv, environ);
	} else {
		syscall(SYS_execveat, AT_FDCWD, program, argv, environ, 0);
	}
	target_fail(way);
}

int main(int argc, char **argv)
{
	char next[2] = {0};

	if (argc > 1)
		truth_part = (unsigned)(argv[1][0] - '0');
	truth_live(truth_new(2 * PAIRS), PAIRS, 0);
	truth_write();
	if (truth_part < WAYS) {
		next[0] = (char)('0' + truth_part + 1);
		exec_self(ways[truth_part], argv[0], next);
	}
	return 0;
}
