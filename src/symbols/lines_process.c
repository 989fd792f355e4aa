/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The side of the caller. One process reads all modules; when it dies or takes too long, what it was at is given up and another
 * one goes on behind it. Names that keep the demangler busy are skipped one by one, a few times.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/io.h"
#include "symbols/demangle.h"
#include "symbols/lines_work.h"

/* A name takes microseconds. By the clock more may pass, on a machine that has other things to do. */
#define NAME_MS	      500
#define NAME_CLOCK_MS 10000

/* How long a killed process may take to be gone. One that hangs in the kernel is left to init. */
#define KILLED_MS 1000

/* Processes beyond one for each module that fails: names that fail, and full boards. */
#define MORE_PROCESSES 16

#define NO_MODULE SIZE_MAX

/* How often a process is looked at that does not end. */
#define LOOK_MS 10

/* A process that answers. */
struct answerer {
	pid_t pid;
	int fd; /* of a pipe that closes when it ends */
	struct lines_board *board;
	uint64_t taken; /* bytes of the board */
	size_t module;	/* that it reads; NO_MODULE while it demangles names */
	/* When it was last seen to name something or begin with a module: by its own time on a processor, and by the clock. */
	uint64_t progress_ms;
	uint64_t progress_clock_ms;
	uint64_t used_ms; /* its time on a processor, when last looked at */
	bool full;	  /* it stopped for want of room */
};

/* `otherwise` when there is no such clock, because the process has ended. */
static uint64_t read_clock(clockid_t clock, uint64_t otherwise)
{
	struct timespec now;

	if (clock_gettime(clock, &now) < 0)
		return otherwise;
	return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static uint64_t now_ms(void)
{
	return read_clock(CLOCK_MONOTONIC, 0);
}

/* The first symbol that is to be demangled, or want_count. */
static size_t next_name(const struct lines *lines)
{
	size_t i;

	for (i = lines->named_count; i < lines->want_count; i++) {
		if (lines->wants[i].symbol != NULL && demangle_wanted(lines->wants[i].symbol))
			break;
	}
	return i;
}

/* How many addresses there are whose modules are to be read. */
static size_t open_count(const struct lines *lines)
{
	size_t i, count = 0;

	for (i = lines->settled_count; i < lines->want_count; i++) {
		const struct lines_want *want = &lines->wants[i];

		count += !want->settled && lines->modules[want->module].state == LINES_READABLE;
	}
	return count;
}

static bool has_work(const struct lines *lines)
{
	return next_name(lines) < lines->want_count ||
	       (!lines->names_only && open_count(lines) > 0);
}

static void stop(struct answerer *a)
{
	struct pollfd end = {.fd = a->fd};

	if (a->pid > 0) {
		(void)kill(a->pid, SIGKILL);
		(void)poll(&end, 1, KILLED_MS);
		while (waitpid(a->pid, NULL, end.revents != 0 ? 0 : WNOHANG) < 0 && errno == EINTR)
			;
	}
	if (a->fd >= 0)
		(void)close(a->fd);
	if (a->board != MAP_FAILED)
		(void)munmap(a->board, sizeof(*a->board));
}

/* In the child: a lock of its parent must not live on in it when the parent is killed. Files of modules stay open. */
static void drop_locks(void)
{
	DIR *dir = opendir("/proc/self/fd");
	const struct dirent *entry;

	while (dir != NULL && (entry = readdir(dir)) != NULL) {
		char path[64], text[512];
		int fd = (int)strtol(entry->d_name, NULL, 10);

		(void)snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", fd);
		if (fd > 2 && fd != dirfd(dir) && io_read_text(path, text, sizeof(text)) &&
		    strstr(text, "\nlock:") != NULL)
			(void)close(fd);
	}
	if (dir != NULL)
		(void)closedir(dir);
}

/* Signals stay blocked in the child, which ends when it is done, when it crashes and when it is killed. */
static int start(struct answerer *a, const struct lines *lines)
{
	pid_t parent = getpid();
	sigset_t all, before;
	int ends[2], r = 0, fd;

	*a = (struct answerer){.fd = -1, .module = NO_MODULE, .progress_clock_ms = now_ms()};
	a->board = mmap(NULL, sizeof(*a->board), PROT_READ | PROT_WRITE,
			MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (a->board == MAP_FAILED || pipe2(ends, O_CLOEXEC) < 0) {
		r = -errno;
		stop(a);
		return r;
	}
	a->fd = ends[0];
	/* The child puts something else into the first three descriptors. */
	fd = fcntl(ends[1], F_DUPFD_CLOEXEC, 3);
	(void)close(ends[1]);
	if (fd < 0) {
		r = -errno;
		stop(a);
		return r;
	}
	(void)sigfillset(&all);
	(void)sigprocmask(SIG_BLOCK, &all, &before);
	a->pid = fork();
	if (a->pid == 0) {
		drop_locks();
		_exit(lines_answer(lines, a->board, parent));
	}
	if (a->pid < 0)
		r = -errno;
	(void)sigprocmask(SIG_SETMASK, &before, NULL);
	(void)close(fd);
	if (r < 0)
		stop(a);
	return r;
}

/* Charges a module for the time since it was begun. */
static void charge_module(struct answerer *a, struct lines *lines)
{
	if (a->module != NO_MODULE)
		lines->modules[a->module].spent_ms += a->used_ms - a->progress_ms;
	a->progress_ms = a->used_ms;
	a->progress_clock_ms = now_ms();
}

static void note_progress(struct answerer *a, struct lines *lines,
			  const struct lines_record *record)
{
	if (record->kind == RECORD_FRAMES || record->kind == RECORD_DWARF)
		return;
	charge_module(a, lines);
	if (record->kind == RECORD_FULL) {
		a->full = true;
		return;
	}
	if (a->module != NO_MODULE && !lines->modules[a->module].has_dwarf)
		lines->modules[a->module].state = LINES_ABSENT;
	a->module = record->kind == RECORD_MODULE ? record->index : NO_MODULE;
}

/*
 * Takes what was answered since the last time; false when a record is not well formed. The acquire pairs with the release in
 * send_record(). The head of a record is copied: the other side might change it meanwhile.
 */
static bool take_records(struct answerer *a, struct lines *lines)
{
	uint64_t end = atomic_load_explicit(&a->board->committed, memory_order_acquire);

	if (end > sizeof(a->board->data))
		return false;
	while (a->taken < end) {
		struct lines_record record;

		if (end - a->taken < sizeof(record))
			return false;
		memcpy(&record, a->board->data + a->taken, sizeof(record));
		a->taken += sizeof(record);
		if (record.bytes > end - a->taken || record.bytes > LINES_RECORD_BYTES_MAX ||
		    !lines_take_record(lines, &record, a->board->data + a->taken))
			return false;
		a->taken += record.bytes;
		note_progress(a, lines, &record);
	}
	return true;
}

/* Whether the process has had its time. `until` is the end of all time for modules. */
static bool is_late(const struct answerer *a, const struct lines *lines, uint64_t until)
{
	uint64_t used = a->used_ms - a->progress_ms, now = now_ms();

	if (a->module == NO_MODULE)
		return used >= NAME_MS || now >= a->progress_clock_ms + NAME_CLOCK_MS;
	return now >= until || lines->modules[a->module].spent_ms + used >= lines->limits.module_ms;
}

enum outcome { OUTCOME_ENDED, OUTCOME_LATE, OUTCOME_FAILED };

/* Listens until the process is done, dead or late. */
static enum outcome listen_to(struct answerer *a, struct lines *lines, uint64_t until)
{
	bool ended = false;
	clockid_t clock;

	if (clock_getcpuclockid(a->pid, &clock) != 0)
		clock = CLOCK_MONOTONIC; /* it has ended already */
	while (!ended) {
		struct pollfd end = {.fd = a->fd};

		ended = poll(&end, 1, LOOK_MS) > 0;
		if (!ended)
			a->used_ms = read_clock(clock, a->used_ms);
		if (!take_records(a, lines))
			return OUTCOME_FAILED;
		if (!ended && is_late(a, lines, until))
			return OUTCOME_LATE;
	}
	return has_work(lines) && !a->full ? OUTCOME_FAILED : OUTCOME_ENDED;
}

/* What follows from the end of a process that did not answer everything. */
static void give_up(struct answerer *a, struct lines *lines, bool late)
{
	size_t name = next_name(lines);

	if (a->module != NO_MODULE) {
		struct lines_module *module = &lines->modules[a->module];

		charge_module(a, lines);
		if (!late)
			module->state = LINES_DAMAGED;
		else if (module->spent_ms >= lines->limits.module_ms)
			module->state = LINES_TOO_SLOW;
	} else if (name < lines->want_count) {
		if (lines->endless_count < LINES_ENDLESS_MAX)
			lines->endless[lines->endless_count++] = lines->wants[name].symbol;
		lines->named_count =
			lines->endless_count < LINES_ENDLESS_MAX ? name + 1 : lines->want_count;
	}
}

/* Time that was used up in an earlier call is not there for new addresses. */
static void close_slow_modules(struct lines *lines)
{
	size_t i;

	for (i = 0; i < lines->module_count; i++) {
		struct lines_module *module = &lines->modules[i];

		if (module->state == LINES_READABLE && module->spent_ms >= lines->limits.module_ms)
			module->state = LINES_TOO_SLOW;
	}
}

int lines_run(struct lines *lines)
{
	uint64_t until = now_ms() + lines->limits.total_ms;
	size_t rounds = lines->module_count + MORE_PROCESSES;
	int r = 0;

	close_slow_modules(lines);
	for (;;) {
		enum outcome outcome;
		struct answerer a;

		lines->names_only = now_ms() >= until;
		if (!has_work(lines) || rounds-- == 0)
			break;
		r = start(&a, lines);
		if (r < 0)
			break;
		outcome = listen_to(&a, lines, until);
		stop(&a);
		if (outcome != OUTCOME_ENDED)
			give_up(&a, lines, outcome == OUTCOME_LATE);
	}
	if (lines->names_only)
		lines->unread_count += open_count(lines);
	return r;
}
