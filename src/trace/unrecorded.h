/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Processes that have the collector and cannot reach the session: another user, another root directory, no descriptor left. They
 * say so in a System V segment, which needs none of these. The command makes it, marks it for removal at once, so that it goes with
 * the last process that has it, and passes its number on: in the session, and as "NUMBER:COOKIE" in the environment.
 *
 * Any user may write into it. So a reader trusts nothing of it.
 */
#ifndef MSCOPE_TRACE_UNRECORDED_H
#define MSCOPE_TRACE_UNRECORDED_H

#include <stdatomic.h>

#include "base/compiler.h"

#define UNRECORDED_ENV "MSMEMSCOPE_UNRECORDED"
#define UNRECORDED_MAX 1023u

/* What failed. */
enum unrecorded_cause {
	UNRECORDED_SESSION = 1, /* the session file could not be opened */
	UNRECORDED_TRACE = 2,	/* the session could be, but no trace was made in it */
};

struct unrecorded_process {
	_Atomic uint64_t events; /* that were not recorded so far */
	_Atomic uint32_t pid;	 /* as the process sees itself; stored after what follows */
	uint32_t cause;		 /* enum unrecorded_cause */
	uint32_t error;		 /* errno of it */
	uint32_t user;		 /* effective user id */
	char command[40];	 /* name of the program or thread, cut */
};

struct unrecorded {
	uint64_t cookie; /* random: tells that the number still means this segment */
	/* Processes that wanted an entry, which may be more than there are. */
	_Atomic uint32_t count;
	uint32_t reserved_1[11];
	_Atomic uint64_t more_events; /* of processes that got none */
	struct unrecorded_process processes[UNRECORDED_MAX];
};

_Static_assert(sizeof(struct unrecorded_process) == 64, "an entry is one cache line");
_Static_assert(sizeof(struct unrecorded) == 65536, "the segment is 64 KiB");

#endif
