/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which Python objects keep the blocks of a call site, as the process has found out itself (python/msmemscope/_keeper.py). The
 * latest answer for a call site counts: while a function runs its variables are known, and after it they are not, so an answer that
 * names nothing does not replace one that names something.
 */
#ifndef MSCOPE_REPLAY_KEEPERS_H
#define MSCOPE_REPLAY_KEEPERS_H

#include <stddef.h>
#include <stdint.h>

struct checkpoint;
struct keeper;
struct replay;

struct keepers {
	struct keeper *all;
	size_t count, room;
	uint64_t latest_ns; /* when the process answered last */
};

void keepers_fini(struct replay *replay);
void keepers_save(const struct replay *replay, struct checkpoint *cp);

#endif
