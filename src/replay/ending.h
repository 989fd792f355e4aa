/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The end of the program's own code: main() returned, exit() was called, or the Python interpreter that runs the program begins to
 * end. What follows frees globals and caches, so "at the end" means this moment: blocks that are freed behind it count as alive at
 * the end, blocks that are allocated behind it do not. Rows, usage and peaks go on as the events tell.
 *
 * It is one moment for all threads: what another thread freed before it was freed, what it frees later was alive. A program that
 * is killed, or leaves by _exit(), has no such record; its end is the last event.
 *
 * A block that is freed behind the end keeps its slot, marked `after_end`. So nothing is copied, and memory stays that of the
 * blocks that lived at a time.
 *
 * stop() is such an end too, until the next start(): figures and rows are those of the windows. What happens to blocks behind it
 * changes no usage, no peak and no analysis, and makes no row. When a window begins, ending_resume() catches up: blocks that were
 * freed meanwhile go, with a row of that moment, and those that came and live are added; what came and went was never there.
 */
#ifndef MSCOPE_REPLAY_ENDING_H
#define MSCOPE_REPLAY_ENDING_H

#include "replay/replay.h"

struct checkpoint;

struct ending {
	uint8_t kind; /* enum end_kind; 0: the program's own code runs */
	uint64_t time_ns;
	uint64_t allocations; /* allocation ids given until then */
};

/* Once the end has come: a block stops to live, or lives on because its free failed. */
void ending_take_freed(struct replay *replay, struct block *block);
void ending_take_restored(struct replay *replay, struct block *block, struct usage *usage);

/* stop() ended a window. */
void ending_take_stop(struct replay *replay, const struct trace_event *event);

/* Another window begins. 0, or the code of the consumer. */
int ending_resume(struct replay *replay, const struct trace_event *event);

/* True for a block that came behind stop(), or was freed there: the window knows it otherwise. */
bool ending_is_outside(const struct replay *replay, const struct block *block);

/* A block that a checkpoint has: lives, or was freed behind the end. */
void ending_load_block(struct replay *replay, const struct block *block, struct usage *usage);

/* Saves blocks that were freed behind the end and that no undo record can bring back. */
void ending_save_blocks(const struct replay *replay, struct checkpoint *cp);

#endif
