/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the supervisor does between the start of the program and the end of the engine: passes on signals, mirrors stops, reaps.
 * cli/supervisor.h has the rules.
 *
 * The arrival of a signal at the supervisor is only known to lie between two readings of its signalfd, which are far apart if it
 * was stopped meanwhile; the group's copy may be as old as the earlier one.
 *
 * When the program stops, the supervisor stops itself by the same signal, so that a shell sees what it would have seen
 * ("mirroring").
 */
#ifndef MSCOPE_CLI_SUPERVISE_H
#define MSCOPE_CLI_SUPERVISE_H

#include <sys/signalfd.h>

#include "cli/sentinel.h"
#include "cli/supervisor.h"

enum { SUPERVISE_HELD_MAX = 64 };

/* A signal that was sent to us by a process and may have to be passed on. */
struct held {
	struct signalfd_siginfo info;
	int64_t since_ns; /* it arrived later than this */
	int64_t due_ns; /* when to ask the sentinel; once asked, when to decide without an answer */
	uint32_t question; /* number of the question put to the sentinel, 0 before */
};

/* Times are of CLOCK_MONOTONIC. */
struct supervisor {
	struct supervisor_result *result;
	struct sentinel_page *page;
	pid_t program; /* 0 once reaped */
	pid_t engine;  /* 0 once reaped */
	/* Go-ahead to the program; then its errno, or the end of file when execve() succeeds. */
	int start_fd;
	int control_fd;
	int sentinel_fd; /* questions and answers, -1 when the sentinel is gone */
	int signal_fd;
	sigset_t ignored; /* dispositions that we were started with */
	bool session_leader;
	int64_t drained_ns; /* when the signalfd was last read until empty */
	int64_t recheck_ns; /* when to read it again although nothing happens, 0: never */
	int64_t ended_ns;   /* when the program's end was seen */
	int64_t interrupted_ns;
	int64_t kill_ns; /* when to kill an engine that was told to return, 0: never */
	uint32_t asked;
	uint32_t answered;
	struct held held[SUPERVISE_HELD_MAX];
	size_t held_count;
	/* What was decided in this turn about a SIGCONT: 0 there was none, 1 passed on, -1 dropped. */
	int sigcont;
};

/*
 * Returns when program and engine are both gone. `program`, `engine`, the descriptors, `page`, `result`, `ignored`,
 * `session_leader` and `drained_ns` are set by the caller, who also closes what is still open of the descriptors.
 */
void supervise(struct supervisor *s);

#endif
