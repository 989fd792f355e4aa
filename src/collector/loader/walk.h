/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The loader's list of objects: the one way to walk it, safe around forks. Any thread, any time; slow paths only.
 */
#ifndef MSCOPE_COLLECTOR_LOADER_H
#define MSCOPE_COLLECTOR_LOADER_H

#include <link.h>
#include <stdbool.h>

typedef int loader_visit(struct dl_phdr_info *info, size_t size, void *arg);

/* dl_iterate_phdr(), which never waits for a thread that is not there: see loader.c. */
int loader_walk(loader_visit *visit, void *arg);

/*
 * True in a process that was forked while a thread of its parent had the loader's lock: whoever wants that lock here waits for
 * ever. Walks of ours do not want it then.
 */
bool loader_is_stuck(void);

/* Around fork(), in the parent: no walk of ours is under way at the fork, if that can be had within a moment. */
void loader_before_fork(void);
void loader_after_fork(void);

#endif
