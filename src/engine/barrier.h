/* SPDX-License-Identifier: Apache-2.0 */
/* Makes all threads of processes that registered for it pass a memory barrier: see follow.c. */
#ifndef MSCOPE_ENGINE_BARRIER_H
#define MSCOPE_ENGINE_BARRIER_H

#include <stdbool.h>
#include <sys/syscall.h>
#include <unistd.h>

#define MEMBARRIER_GLOBAL_EXPEDITED 2
#if defined(__x86_64__)
#define NR_membarrier 324
#else
#define NR_membarrier 283
#endif

/* False: the kernel has no such call. */
static inline bool barrier_all(void)
{
	return syscall(NR_membarrier, MEMBARRIER_GLOBAL_EXPEDITED, 0) == 0;
}

#endif
