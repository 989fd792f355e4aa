/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The process model of a launch without the rest of the command: `supervise_driver [-o DIR] -- PROG ARGS` runs PROG beside an
 * engine that does nothing but wait for its end.
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/status.h"
#include "cli/preflight.h"
#include "cli/supervisor.h"

static int wait_for_end(void *arg, int control_fd)
{
	struct pollfd fd = {.fd = control_fd, .events = POLLIN};
	struct supervisor_message message;
	int r;

	(void)arg;
	do {
		(void)poll(&fd, 1, -1);
		r = supervisor_receive(control_fd, &message);
	} while (r == -EAGAIN || (r == 0 && message.event == SUPERVISOR_STARTED));
	return 0;
}

int main(int argc, char **argv)
{
	struct supervisor_launch launch = {.envp = environ, .engine = wait_for_end};
	struct supervisor_result result;
	struct mscope_error err = {0};
	char path[4096];
	int i = 1, r;

	argv = supervisor_prepare(argc, argv);
	while (i < argc && strcmp(argv[i], "--") != 0)
		i++;
	if (i + 1 >= argc)
		return MSCOPE_EXIT_USAGE;
	launch.argv = &argv[i + 1];
	launch.path = path;
	r = preflight_resolve(launch.argv[0], path, sizeof(path), &err);
	if (r != 0) {
		fprintf(stderr, "%s\n", err.message);
		return preflight_exit_code(r);
	}
	r = supervisor_run(&launch, &result);
	if (r != 0) {
		fprintf(stderr, "%s\n", mscope_status_str(r));
		return MSCOPE_EXIT_FAILED;
	}
	if (result.exec_errno != 0)
		fprintf(stderr, "%s: %s\n", path, strerror(result.exec_errno));
	supervisor_exit_like(&result);
}
