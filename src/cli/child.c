/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/child.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"

#define OUTPUT_MAX (256u << 10) /* more is read and dropped */
#define POLL_MS	   20		/* between two checks whether it has ended */
#define END_MS	   1		/* the same once its output is closed: it is about to end */

static int64_t now_ms(void)
{
	return (int64_t)(clock_monotonic_ns() / 1000000);
}

_Noreturn static void become(const char *const argv[], const struct child_variable *changes,
			     int out)
{
	int null = open("/dev/null", O_RDONLY);
	sigset_t none;

	(void)sigemptyset(&none);
	(void)sigprocmask(SIG_SETMASK, &none, NULL);
	(void)setpgid(0, 0);
	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (null >= 0)
		(void)dup2(null, STDIN_FILENO);
	(void)dup2(out, STDOUT_FILENO);
	(void)dup2(out, STDERR_FILENO);
	for (; changes->name != NULL; changes++) {
		if (changes->value == NULL)
			(void)unsetenv(changes->name);
		else
			(void)setenv(changes->name, changes->value, 1);
	}
	(void)execv(argv[0], (char *const *)(uintptr_t)argv);
	(void)fprintf(stderr, "cannot run %s: %s\n", argv[0], strerror(errno));
	_exit(127);
}

int child_start(struct child *child, const char *const argv[], const struct child_variable *changes)
{
	int ends[2];
	pid_t pid;

	*child = (struct child){.fd = -1};
	if (pipe2(ends, O_CLOEXEC) < 0)
		return -errno;
	pid = fork();
	if (pid == 0)
		become(argv, changes, ends[1]);
	(void)close(ends[1]);
	if (pid < 0) {
		int error = errno;

		(void)close(ends[0]);
		return -error;
	}
	/* The child does the same. Whichever comes first, the group exists when this function returns. */
	(void)setpgid(pid, pid);
	(void)fcntl(ends[0], F_SETFL, O_NONBLOCK);
	*child = (struct child){.pid = pid, .fd = ends[0]};
	return 0;
}

bool child_ended(const struct child *child)
{
	siginfo_t info = {0};

	return waitid(P_PID, (id_t)child->pid, &info, WEXITED | WNOHANG | WNOWAIT) < 0 ||
	       info.si_pid != 0;
}

void child_kill(const struct child *child)
{
	if (child->pid > 0)
		(void)kill(-child->pid, SIGKILL);
}

static void read_output(const struct child *child, struct strbuf *output)
{
	char part[4096];
	ssize_t got;

	while ((got = read(child->fd, part, sizeof(part))) > 0 || (got < 0 && errno == EINTR)) {
		if (got > 0 && output->length < OUTPUT_MAX)
			strbuf_add(output, part, (size_t)got);
	}
}

int child_finish(struct child *child, int timeout_ms, struct strbuf *output, int *out_status)
{
	int64_t end = now_ms() + timeout_ms;
	struct pollfd out = {.fd = child->fd, .events = POLLIN};
	pid_t ended;
	int r = 0;

	/* Its end counts, not that of its output: a process that it left behind may still hold the pipe. */
	while ((ended = waitpid(child->pid, out_status, WNOHANG)) == 0 ||
	       (ended < 0 && errno == EINTR)) {
		if (now_ms() >= end && r == 0) {
			child_kill(child);
			r = -ETIMEDOUT;
		}
		if (poll(&out, 1, out.fd < 0 ? END_MS : POLL_MS) > 0) {
			read_output(child, output);
			if (out.revents & (POLLHUP | POLLERR))
				out.fd = -1;
		}
	}
	read_output(child, output);
	(void)close(child->fd);
	*child = (struct child){.fd = -1};
	return r;
}

int child_run(const char *const argv[], const struct child_variable *changes, int timeout_ms,
	      struct strbuf *output)
{
	struct child child;
	int status = 0, r = child_start(&child, argv, changes);

	if (r == 0)
		r = child_finish(&child, timeout_ms, output, &status);
	if (r < 0)
		return r;
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
