/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rlimit WHAT VALUE: sets the limit (as, fsize, nofile, stack) and starts itself again under it, so that a collector lives
 * with it from the first moment. Then takes memory in two threads. The truth goes to stdout: a pipe knows no file size.
 */
#include <pthread.h>
#include <sys/resource.h>

#include "target.h"

#define PAIRS 2000

static void *work(void *argument)
{
	(void)argument;
	truth_live(truth_new(2 * PAIRS), PAIRS, 0);
	return NULL;
}

static void set_limit(const char *what, const char *value)
{
	struct rlimit limit = {strtoull(value, NULL, 10), strtoull(value, NULL, 10)};
	int resource = strcmp(what, "as") == 0	     ? RLIMIT_AS
		       : strcmp(what, "fsize") == 0  ? RLIMIT_FSIZE
		       : strcmp(what, "nofile") == 0 ? RLIMIT_NOFILE
						     : RLIMIT_STACK;

	target_check(setrlimit(resource, &limit) == 0, "setrlimit failed");
}

int main(int argc, char **argv)
{
	pthread_t thread;

	if (argc == 3) {
		set_limit(argv[1], argv[2]);
		execl(argv[0], argv[0], (char *)NULL);
		target_fail("exec failed");
	}
	pthread_create(&thread, NULL, work, NULL);
	work(NULL);
	pthread_join(thread, NULL);
	truth_write_to(NULL);
	return 0;
}
