/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Dropping the oldest part of a packed trace that has reached --max-disk. What was known at that moment is written as ordinary
 * records of a writer of its own (CHECKPOINT_WRITER) that sorts before all others: definitions by all writers, then the live
 * blocks. A reader needs nothing new but to pass over block events that the checkpoint already counts.
 */
#ifndef MSCOPE_REPLAY_CHECKPOINT_H
#define MSCOPE_REPLAY_CHECKPOINT_H

#include "replay/replay.h"
#include "trace/pack.h"

/*
 * Replaces the packed trace at `path` by a new one that begins with the state of `replay`, and `*pack` by its writer. On failure
 * both stay as they were.
 */
int checkpoint_write(const char *path, const struct run *run, const struct replay *replay,
		     struct pack_writer **pack, struct mscope_error *err);

int checkpoint_load_checkpoint(struct replay *replay, const struct trace_event *event);

#endif
