/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/traced_process.h"

#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/io.h"

#define NR_pidfd_open 434 /* the same on every architecture */

/* State letter and start time of a process; false when it is gone. */
static bool read_stat(uint32_t pid, char *out_state, uint64_t *out_start)
{
	char path[64], buffer[1024], *at;
	int field;

	(void)snprintf(path, sizeof(path), "/proc/%u/stat", pid);
	if (!io_read_text(path, buffer, sizeof(buffer)))
		return false;
	/* The name may hold anything, so count from the last parenthesis: the state is the 3rd field, the start time the 22nd. */
	at = strrchr(buffer, ')');
	if (at == NULL || at[1] != ' ')
		return false;
	*out_state = at[2];
	for (field = 3, at++; field < 22 && at != NULL; field++)
		at = strchr(at + 1, ' ');
	*out_start = at == NULL ? 0 : strtoull(at, NULL, 10);
	return true;
}

char process_state(uint32_t pid)
{
	uint64_t start;
	char state;

	return read_stat(pid, &state, &start) ? state : 0;
}

static bool is_same(const struct process *process)
{
	uint64_t start;
	char state;

	return read_stat(process->pid, &state, &start) && start == process->start_ticks &&
	       state != 'Z' && state != 'X';
}

void process_watch(struct process *process, const struct trace_header *header,
		   const char *namespace)
{
	char own[64];
	ssize_t length = readlink("/proc/self/ns/pid", own, sizeof(own) - 1);

	*process = (struct process){
		.pid = header->pid, .start_ticks = header->start_ticks, .pidfd = -1};
	if (length > 0 && namespace != NULL) {
		own[length] = '\0';
		process->foreign = strcmp(own, namespace) != 0;
	}
	if (process->foreign)
		return;
	process->pidfd = (int)syscall(NR_pidfd_open, process->pid, 0);
	/* Only now is the number known to stay with one process; is it the right one? */
	if (process->pidfd >= 0 && !is_same(process)) {
		(void)close(process->pidfd);
		process->pidfd = -1;
	}
}

bool process_watch_pid(struct process *process, uint32_t pid)
{
	struct trace_header header = {.pid = pid};
	char state;

	if (!read_stat(pid, &state, &header.start_ticks) || state == 'Z' || state == 'X')
		return false;
	process_watch(process, &header, NULL);
	return true;
}

bool process_is_alive(const struct process *process)
{
	struct pollfd wait = {.fd = process->pidfd, .events = POLLIN};

	if (process->foreign)
		return true;
	if (process->pidfd >= 0)
		return poll(&wait, 1, 0) == 0;
	return is_same(process);
}

uint64_t process_resident_bytes(const struct process *process)
{
	char path[64], buffer[256], *end;

	if (process->foreign)
		return UINT64_MAX;
	(void)snprintf(path, sizeof(path), "/proc/%u/statm", process->pid);
	if (!io_read_text(path, buffer, sizeof(buffer)))
		return UINT64_MAX;
	/* Pages in all, then pages resident. */
	(void)strtoull(buffer, &end, 10);
	return strtoull(end, NULL, 10) * (uint64_t)sysconf(_SC_PAGESIZE);
}

void process_unwatch(struct process *process)
{
	if (process->pidfd >= 0)
		(void)close(process->pidfd);
	process->pidfd = -1;
}
