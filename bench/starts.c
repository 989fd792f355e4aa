/* SPDX-License-Identifier: Apache-2.0 */
/*
 * starts COUNT PROGRAM: how long PROGRAM takes from start to end, with the environment as it is and without LD_PRELOAD in it,
 * turn and turn about. Prints one line of JSON with the medians.
 */
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>

extern char **environ;

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static uint64_t start(char **command, char **environment)
{
	uint64_t from = now_ns();
	int status = 0;
	pid_t pid;

	if (posix_spawn(&pid, command[0], NULL, NULL, command, environment) != 0 ||
	    waitpid(pid, &status, 0) != pid || status != 0) {
		fprintf(stderr, "starts: %s failed\n", command[0]);
		exit(1);
	}
	return now_ns() - from;
}

static int compare(const void *a, const void *b)
{
	const uint64_t *x = a, *y = b;

	return *x < *y ? -1 : *x > *y;
}

int main(int argc, char **argv)
{
	size_t count = argc > 2 ? strtoul(argv[1], NULL, 10) : 0, kept = 0, i;
	uint64_t *with = calloc(count + 1, sizeof(*with)),
		 *without = calloc(count + 1, sizeof(*without));
	char **plain;

	for (i = 0; environ[i] != NULL; i++)
		;
	plain = calloc(i + 1, sizeof(*plain));
	if (count == 0 || with == NULL || without == NULL || plain == NULL) {
		fprintf(stderr, "usage: starts COUNT PROGRAM\n");
		return 2;
	}
	for (i = 0; environ[i] != NULL; i++) {
		if (strncmp(environ[i], "LD_PRELOAD=", 11) != 0)
			plain[kept++] = environ[i];
	}
	for (i = 0; i < count; i++) {
		without[i] = start(argv + 2, plain);
		with[i] = start(argv + 2, environ);
	}
	qsort(with, count, sizeof(*with), compare);
	qsort(without, count, sizeof(*without), compare);
	printf("{\"preloaded\": %s, \"plain_ns\": %llu, \"preloaded_ns\": %llu}\n",
	       getenv("LD_PRELOAD") != NULL ? "true" : "false",
	       (unsigned long long)without[count / 2], (unsigned long long)with[count / 2]);
	return 0;
}
