/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The operators that a thread is in. Operators nest: a framework's runs another library's, and that one its kernels. An end ends
 * the innermost open operation of its layer and name, and with it whatever was left open inside. Also the accesses to memory
 * that operators report.
 */
#ifndef MSCOPE_REPLAY_OPERATIONS_H
#define MSCOPE_REPLAY_OPERATIONS_H

#include "replay/replay.h"
#include "replay/texts.h"

struct keeping;

/* Of one thread, outermost first. A zeroed struct is that of a thread that is in none. */
struct operations {
	struct open_operation *open;
	size_t count, room;
};

void operations_fini(struct operations *operations);

/* Operations in progress keep their names in a sweep. */
void operations_keep_texts(struct operations *operations, struct texts_sweep *sweep);

/* A window ends: ends of operators outside of windows are not recorded. */
void operations_end_window(struct replay *replay);

/* Those of one writer, in a checkpoint. 0 or -ENOMEM. */
int operations_keep(struct replay *replay, struct keeping *k, struct operations *operations);

#endif
