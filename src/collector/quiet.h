/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Quiet: the program has installed a seccomp filter, or is about to, and a system call that it does not make itself may end it. From
 * then on the record path takes only what others have made ready: chunks from the engine, memory from a pool that is mapped before, the
 * thread's number from the thread's own descriptor. What cannot be had so is a counted loss. process/sandbox.c notices the filter.
 *
 * What remains: what the user asks for (call stacks, watching, the API), and rt_sigprocmask(2) for new Python functions.
 */
#ifndef MSCOPE_COLLECTOR_QUIET_H
#define MSCOPE_COLLECTOR_QUIET_H

#include <stdatomic.h>
#include <stdbool.h>

#include "base/compiler.h"

struct quiet {
	/* 1 from the filter on. A forked child inherits it, as it inherits the filter. */
	_Atomic uint32_t on;
	uint32_t pid; /* of the process that became quiet */
	/* Where the thread library keeps a thread's number in its descriptor, 0: unknown. */
	uint32_t tid_at;
};

extern MSCOPE_HIDDEN struct quiet quiet;

MSCOPE_INLINE bool quiet_is_on(void)
{
	return MSCOPE_UNLIKELY(atomic_load_explicit(&quiet.on, memory_order_relaxed) != 0);
}

/* Before the filter: maps the pool and learns what cannot be asked later. Then quiet_begin(). One thread at a time. */
void quiet_prepare(void);
void quiet_begin(void);

/* The program itself asks for what takes system calls. */
void quiet_end(void);

/* Learns where the thread library keeps a thread's number, if it is not known yet. */
void quiet_learn_tid(void);

/* Number of the calling thread without a system call; unique while the thread lives, though not the kernel's if that is unknown. */
uint32_t quiet_tid(void);

/* Zeroed memory that is never given back: fresh, or from the pool once it is quiet. NULL: none. */
void *quiet_map(size_t bytes);

#endif
