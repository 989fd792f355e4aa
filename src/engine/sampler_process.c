/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/sampler_process.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"

#define HOST_PROGRAM "/bin/true"

/* In the child: becomes the host program with the sampler inside. */
static void become(const char *library, int fd)
{
	char number[16];

	(void)snprintf(number, sizeof(number), "%d", fd);
	if (fcntl(fd, F_SETFD, 0) == 0 && setenv("LD_PRELOAD", library, 1) == 0 &&
	    setenv(SAMPLER_ENV, number, 1) == 0)
		(void)execl(HOST_PROGRAM, "msmemscope-sampler", (char *)NULL);
	_exit(127);
}

void sampler_start(struct sampler *sampler, const char *library)
{
	int ends[2], asks[2], null;

	*sampler = (struct sampler){.fd = -1, .ask_fd = -1};
	if (access(library, R_OK) < 0 || pipe2(ends, O_CLOEXEC) < 0)
		return;
	if (pipe2(asks, O_CLOEXEC | O_NONBLOCK) < 0) {
		(void)close(ends[0]);
		(void)close(ends[1]);
		return;
	}
	sampler->pid = fork();
	if (sampler->pid == 0) {
		null = open("/dev/null", O_RDWR);
		if (null >= 0)
			(void)dup2(
				null,
				STDERR_FILENO); /* loader messages of a foreign library are not the user's concern */
		(void)dup2(asks[0], STDIN_FILENO);
		become(library, ends[1]);
	}
	(void)close(ends[1]);
	(void)close(asks[0]);
	if (sampler->pid < 0) {
		(void)close(ends[0]);
		(void)close(asks[1]);
		return;
	}
	(void)fcntl(ends[0], F_SETFL, O_NONBLOCK);
	sampler->fd = ends[0];
	sampler->ask_fd = asks[1];
}

bool sampler_read(struct sampler *sampler, sampler_take *take, void *arg)
{
	bool ended = false;
	char buffer[64 * sizeof(struct sampler_record)];
	struct sampler_record record;
	size_t have, at;
	ssize_t got;

	while (sampler->fd >= 0) {
		have = sampler->pending_bytes;
		memcpy(buffer, sampler->pending, have);
		got = read(sampler->fd, buffer + have, sizeof(buffer) - have);
		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0) {
			if (got == 0)
				sampler_stop(sampler);
			return ended;
		}
		have += (size_t)got;
		for (at = 0; have - at >= sizeof(record); at += sizeof(record)) {
			memcpy(&record, buffer + at, sizeof(record));
			if (record.device == SAMPLER_ROUND_ENDS)
				ended = true;
			else
				take(arg, &record);
		}
		sampler->pending_bytes = have - at;
		memcpy(sampler->pending, buffer + at, have - at);
	}
	return ended;
}

bool sampler_wait(struct sampler *sampler, int timeout_ms, sampler_take *take, void *arg)
{
	uint64_t end = clock_monotonic_ns() + (uint64_t)timeout_ms * 1000000;
	uint64_t now;

	while (sampler->fd >= 0 && (now = clock_monotonic_ns()) < end) {
		struct pollfd news = {.fd = sampler->fd, .events = POLLIN};

		if (poll(&news, 1, (int)((end - now) / 1000000) + 1) > 0 &&
		    sampler_read(sampler, take, arg))
			return true;
	}
	return false;
}

void sampler_ask(const struct sampler *sampler)
{
	/* A full pipe has asked already. */
	if (sampler->fd >= 0)
		(void)!write(sampler->ask_fd, "", 1);
}

void sampler_stop(struct sampler *sampler)
{
	if (sampler->fd < 0)
		return;
	(void)close(sampler->fd);
	(void)close(sampler->ask_fd);
	sampler->fd = sampler->ask_fd = -1;
	(void)kill(sampler->pid, SIGKILL);
	(void)waitpid(sampler->pid, NULL, 0);
}
