/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The sentinel: a thread of the engine that tells the supervisor which signals went to the whole process group, and watches
 * whether the supervisor is stopped.
 *
 * Who got a signal. The sentinel stores the time of each signal it reads into a shared page. The supervisor holds a signal
 * for 50 ms, then asks the sentinel to empty its queue, and decides when it has answered: a loaded machine delays the
 * decision instead of spoiling it.
 *
 * Stops. A process that is stopped by SIGSTOP cannot notice it, so the sentinel checks ten times a second whether the
 * supervisor is stopped, and stops the program on its behalf; the supervisor undoes that as soon as it runs. The same check
 * wakes a supervisor that was mirroring a stop when the program was continued or killed by itself.
 */
#ifndef MSCOPE_CLI_SENTINEL_H
#define MSCOPE_CLI_SENTINEL_H

#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* Whether the program is stopped because the sentinel did it. */
enum on_behalf {
	BEHALF_NONE,
	BEHALF_STOPPING, /* it is about to send SIGSTOP: the program's state means nothing now */
	BEHALF_STOPPED,	 /* it has sent it */
};

/* One page that supervisor and sentinel share. Times are of CLOCK_MONOTONIC. */
struct sentinel_page {
	/* Pid while it can be signalled, else 0. Written by the supervisor, before it reaps. */
	_Atomic int program;
	/* 1 while the supervisor is stopped because the program was. Written by the supervisor. */
	_Atomic int mirroring;
	/* enum on_behalf. Set by the sentinel, cleared by the supervisor. */
	_Atomic int on_behalf;
	/* When the sentinel last read the signal. Written by the sentinel. */
	_Atomic int64_t seen_ns[NSIG];
};

struct sentinel {
	struct sentinel_page *page;
	pid_t supervisor; /* 0: not visible from here */
	int ask_fd;	  /* questions come, answers go; 0 as an answer wakes the supervisor */
	int signal_fd;	  /* its own; set by sentinel_start() */
	bool stopped;	  /* the last check found the supervisor stopped; its own */
};

/*
 * Starts the thread, which goes on until the other end of `ask_fd` closes. `sentinel` must outlive it. When it cannot be started,
 * `ask_fd` is closed, and the supervisor passes on every signal.
 */
void sentinel_start(struct sentinel *sentinel);

#endif
