/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The loader's list of objects: the one way to walk it, safe around forks. Any thread, any time; slow paths only.
 */
#ifndef MSCOPE_COLLECTOR_LOADER_H
#define MSCOPE_COLLECTOR_LOADER_H

#include <link.h>
#include <stdbool.h>
#include <stdint.h>

/* How long a thread waits at most for one that is in the loader, or that forks. */
#define LOADER_WAIT_NS UINT64_C(100000000)

typedef int loader_visit(struct dl_phdr_info *info, size_t size, void *arg);

/* dl_iterate_phdr(), which never waits for a thread that does not exist: see walk.c. */
int loader_walk(loader_visit *visit, void *arg);

/* Around fork(), in the parent: no walk of ours is under way at the fork, unless one takes longer than 0.1 s. */
void loader_before_fork(void);
void loader_after_fork(void);

#endif
