/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which operators a thread is inside of. Operators nest: a framework's runs another library's, and that one its kernels. An end
 * ends the innermost open operation of its layer and name, and with it whatever was left open inside.
 */
#ifndef MSCOPE_REPLAY_OPERATIONS_H
#define MSCOPE_REPLAY_OPERATIONS_H

#include "replay/replay.h"

/* Of one thread, outermost first. A zeroed struct is that of a thread that is in none. */
struct operations {
	struct open_operation *open;
	size_t count, room;
};

void operations_fini(struct operations *operations);

/* 0 or -ENOMEM. Nesting beyond any program's is not kept. */
int operations_begin(struct operations *operations, const struct open_operation *operation);

/* How many open operations this ends, 0: it had no begin; more than one: ends of inner ones were not seen. */
size_t operations_end(struct operations *operations, uint8_t layer, uint64_t name);

/* The innermost open one of a layer, NULL when there is none. Borrowed until the next begin or end. */
const struct open_operation *operations_innermost(const struct operations *operations,
						  enum layer layer);

#endif
