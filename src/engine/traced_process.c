/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/traced_process.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/descriptors.h"
#include "base/io.h"

#define NR_pidfd_open 434 /* the same on every architecture */

static uint32_t pidfds; /* that are open */

/* What the file system says about a process that it does not show: hidepid hides also what lives. */
static enum process_life life_of_number(uint32_t pid)
{
	return kill((pid_t)pid, 0) < 0 && errno == ESRCH ? PROCESS_GONE : PROCESS_UNKNOWN;
}

/* The text of a file in /proc/PID. PROCESS_ALIVE when it was read. */
static enum process_life read_file(uint32_t pid, const char *name, char *out, size_t bytes)
{
	char path[64];
	ssize_t got;
	int fd;

	(void)snprintf(path, sizeof(path), "/proc/%u/%s", pid, name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return errno == ENOENT || errno == ESRCH ? life_of_number(pid) : PROCESS_UNKNOWN;
	got = read(fd, out, bytes - 1);
	if (got <= 0) {
		bool gone = got < 0 && errno == ESRCH;

		(void)close(fd);
		return gone ? life_of_number(pid) : PROCESS_UNKNOWN;
	}
	(void)close(fd);
	out[got] = '\0';
	return PROCESS_ALIVE;
}

static enum process_life read_stat(uint32_t pid, struct process_stat *out)
{
	enum process_life life;
	char buffer[1024], *at, *name;
	int field;

	life = read_file(pid, "stat", buffer, sizeof(buffer));
	if (life != PROCESS_ALIVE)
		return life;
	/* The name may hold anything, so count from the last parenthesis: the state is the 3rd field. */
	at = strrchr(buffer, ')');
	if (at == NULL || at[1] != ' ')
		return PROCESS_UNKNOWN;
	*out = (struct process_stat){.state = at[2]};
	name = strchr(buffer, '(');
	if (name != NULL && name < at)
		(void)snprintf(out->name, sizeof(out->name), "%.*s", (int)(at - name - 1),
			       name + 1);
	for (field = 3, at++; field < 22 && at != NULL; field++) {
		at = strchr(at + 1, ' ');
		if (at != NULL && field == 3)
			out->parent = (uint32_t)strtoul(at, NULL, 10);
		if (at != NULL && field == 8)
			out->flags = (uint32_t)strtoul(at, NULL, 10);
		if (at != NULL && field == 19)
			out->threads = (uint32_t)strtoul(at, NULL, 10);
	}
	if (at == NULL)
		return PROCESS_UNKNOWN;
	out->start_ticks = strtoull(at, NULL, 10);
	return PROCESS_ALIVE;
}

bool process_stat(uint32_t pid, struct process_stat *out)
{
	return read_stat(pid, out) == PROCESS_ALIVE;
}

char process_state(uint32_t pid)
{
	struct process_stat line;

	return read_stat(pid, &line) == PROCESS_ALIVE ? line.state : 0;
}

/* A process whose first thread has ended looks like a dead one, but for its other threads. */
static bool has_ended(const struct process_stat *line)
{
	return (line->state == 'Z' || line->state == 'X') && line->threads <= 1;
}

static enum process_life life_in_proc(const struct process *process)
{
	struct process_stat line;
	enum process_life life;

	errno = 0;
	while ((life = read_stat(process->pid, &line)) == PROCESS_UNKNOWN &&
	       (errno == EMFILE || errno == ENFILE) && descriptors_close_oldest(NULL))
		errno = 0;
	if (life == PROCESS_ALIVE && (line.start_ticks != process->start_ticks || has_ended(&line)))
		return PROCESS_GONE;
	return life;
}

/* ---- finding it ---- */

static bool read_namespace(const char *path, char out[64])
{
	ssize_t length = readlink(path, out, 63);

	out[length > 0 ? length : 0] = '\0';
	return length > 0;
}

uint32_t process_inner_pid(uint32_t pid)
{
	char buffer[4096], *at, *end;

	if (read_file(pid, "status", buffer, sizeof(buffer)) != PROCESS_ALIVE)
		return 0;
	at = strstr(buffer, "\nNSpid:");
	if (at == NULL)
		return 0;
	at += strlen("\nNSpid:");
	end = at + strcspn(at, "\n");
	*end = '\0';
	at = strrchr(at, '\t');
	return at == NULL ? 0 : (uint32_t)strtoul(at, NULL, 10);
}

/* Whether the process with this number of ours is the one that the trace tells of. */
static bool is_meant(uint32_t pid, const struct trace_header *header, const char *namespace,
		     struct process_stat *out_line)
{
	char path[64], theirs[64];
	bool readable;

	(void)snprintf(path, sizeof(path), "/proc/%u/ns/pid", pid);
	readable = read_namespace(path, theirs);
	if (readable && strcmp(theirs, namespace) != 0)
		return false;
	/* Where /proc was not its own, it could not read its start time. The link then has to tell. */
	if (!readable && header->start_ticks == 0)
		return false;
	return process_inner_pid(pid) == header->pid && read_stat(pid, out_line) == PROCESS_ALIVE &&
	       (header->start_ticks == 0 || header->start_ticks == out_line->start_ticks);
}

/* Looks for a process of another namespace among those that we see. */
static void find_foreign(struct process *process, const struct trace_header *header,
			 const char *namespace)
{
	DIR *dir = opendir("/proc");
	const struct dirent *entry;
	struct process_stat line;

	while (dir != NULL && process->pid == 0 && (entry = readdir(dir)) != NULL) {
		uint32_t pid = (uint32_t)strtoul(entry->d_name, NULL, 10);

		if (pid != 0 && is_meant(pid, header, namespace, &line)) {
			process->pid = pid;
			process->start_ticks = line.start_ticks;
		}
	}
	if (dir != NULL)
		(void)closedir(dir);
}

/* Makes sure that the number stays with the process, where descriptors allow it. */
static void hold(struct process *process)
{
	if (pidfds >= descriptors_limit() / 4)
		return;
	process->pidfd = (int)syscall(NR_pidfd_open, process->pid, 0);
	if (process->pidfd < 0)
		return;
	pidfds++;
	/* Only now is the number known to stay with one process; is it the right one? */
	if (life_in_proc(process) != PROCESS_ALIVE)
		process_unwatch(process);
}

/*
 * Whether the number belongs to a process that began at another time than the header says. That one is gone, or the program wrote over
 * its header: the lock on its trace tells.
 */
static bool looks_reused(const struct trace_header *header)
{
	struct process_stat line;

	return (header->compatible & TRACE_FEATURE_LOCKED) != 0 &&
	       read_stat(header->pid, &line) == PROCESS_ALIVE &&
	       line.start_ticks != header->start_ticks;
}

void process_watch(struct process *process, const struct trace_header *header,
		   const char *namespace)
{
	char own[64];

	*process = (struct process){.start_ticks = header->start_ticks, .pidfd = -1};
	if (namespace == NULL || !read_namespace("/proc/self/ns/pid", own))
		return;
	if (strcmp(own, namespace) != 0)
		find_foreign(process, header, namespace);
	else if (header->start_ticks != 0 && !looks_reused(header))
		process->pid = header->pid;
	if (process->pid != 0)
		hold(process);
}

bool process_watch_pid(struct process *process, uint32_t pid)
{
	struct process_stat line;

	*process = (struct process){.pid = pid, .pidfd = -1};
	if (read_stat(pid, &line) != PROCESS_ALIVE || has_ended(&line))
		return false;
	process->start_ticks = line.start_ticks;
	hold(process);
	return true;
}

enum process_life process_life(const struct process *process)
{
	struct pollfd wait = {.fd = process->pidfd, .events = POLLIN};

	if (process->pid == 0)
		return PROCESS_UNKNOWN;
	if (process->pidfd < 0)
		return life_in_proc(process);
	return poll(&wait, 1, 0) > 0 ? PROCESS_GONE : PROCESS_ALIVE;
}

#define FLAG_EXITING 4u /* PF_EXITING of the kernel */

bool process_ends_soon(const struct process *process)
{
	struct process_stat line;
	int tries;

	for (tries = 0; tries < 200 && process_life(process) == PROCESS_ALIVE; tries++) {
		if (read_stat(process->pid, &line) == PROCESS_ALIVE &&
		    (line.flags & FLAG_EXITING) == 0 && line.state != 'Z')
			return false;
		(void)usleep(5000);
	}
	return process_life(process) == PROCESS_GONE;
}

uint64_t process_resident_bytes(uint32_t pid)
{
	char buffer[256], *end;

	if (pid == 0 || read_file(pid, "statm", buffer, sizeof(buffer)) != PROCESS_ALIVE)
		return UINT64_MAX;
	/* Pages in all, then pages resident. */
	(void)strtoull(buffer, &end, 10);
	return strtoull(end, NULL, 10) * (uint64_t)sysconf(_SC_PAGESIZE);
}

uint64_t process_share_bytes(uint32_t pid)
{
	char buffer[1024], *at;

	if (pid == 0 || read_file(pid, "smaps_rollup", buffer, sizeof(buffer)) != PROCESS_ALIVE)
		return UINT64_MAX;
	at = strstr(buffer, "\nPss:");
	return at == NULL ? UINT64_MAX : strtoull(at + strlen("\nPss:"), NULL, 10) * 1024;
}

void process_unwatch(struct process *process)
{
	if (process->pidfd < 0)
		return;
	io_close(&process->pidfd);
	pidfds--;
}
