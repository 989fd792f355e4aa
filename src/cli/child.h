/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Short programs that verbs run to see whether something works: with a changed environment, their output collected, never longer
 * than a limit. A launch does not come this way (cli/supervisor.h).
 */
#ifndef MSCOPE_CLI_CHILD_H
#define MSCOPE_CLI_CHILD_H

#include <sys/types.h>

#include "base/strbuf.h"

struct child_variable {
	const char *name;  /* NULL ends a list */
	const char *value; /* NULL: not set */
};

struct child {
	pid_t pid; /* and process group; 0: none */
	int fd;	   /* its stdout and stderr */
};

/* Starts argv[0], without a search along PATH; stdin is /dev/null. What cannot be executed says so and ends with 127. */
int child_start(struct child *child, const char *const argv[],
		const struct child_variable *changes);

/*
 * Waits for the end, and adds what was written to `output`. -ETIMEDOUT: it had to be killed, with its group. `out_status` is
 * that of waitpid().
 */
int child_finish(struct child *child, int timeout_ms, struct strbuf *output, int *out_status);

/* True when it is over and child_finish() would not wait. */
bool child_ended(const struct child *child);

/* SIGKILL to the whole group; child_finish() is still to be called. */
void child_kill(const struct child *child);

/* Both in one: 0 when the program ended with exit code 0, its exit code or 128 + signal, or a negative code. */
int child_run(const char *const argv[], const struct child_variable *changes, int timeout_ms,
	      struct strbuf *output);

#endif
