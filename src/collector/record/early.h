/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Blocks that live before there is a trace. A program that only has the collector preloaded may call start() at any time, and then
 * wants to know what it has; so until then each block is kept in a table, from its allocation to its free. Memory is bounded by the
 * blocks that live at one time, and nothing is written. When the session comes, early_write() writes what lives as the first
 * records of the trace.
 *
 * Any thread, at any time, in signal handlers and in children of fork(), which go on with their copy. There are no locks and no system
 * calls but the mmap() that makes the table larger. The functions that take a block are called in the state RECORDING_EARLY; if
 * that ends meanwhile, they record the event instead, unless early_write() has seen it.
 */
#ifndef MSCOPE_COLLECTOR_RECORD_EARLY_H
#define MSCOPE_COLLECTOR_RECORD_EARLY_H

#include "collector/record/writer.h"

/* The table is used from now on. Returns the state that this is, RECORDING_EARLY. Any number of times. */
uint32_t early_begin(void);

/* True when it was ever used in this process or in one that it was forked from. */
bool early_is_used(void);

/* As event_alloc(), event_free() and event_free_undo_slow(). `name`: by which the block is given back, its address or a handle. */
void early_alloc(uint32_t source, uint64_t key, context_decode *decode, uint64_t name,
		 uint64_t address, uint64_t size_bytes);
void early_free(uint32_t source, uint64_t key, context_decode *decode, uint64_t name);
void early_free_undo(uint64_t key, context_decode *decode, uint64_t name);

/* Before it is quiet (quiet.h): takes room for more blocks. What finds none from then on is counted. */
void early_become_quiet(void);

/* By the thread that attaches, when there is a trace: writes the blocks that live, in the order of their allocation. */
void early_write(void);

/* Changes while early_write() runs: a thread that waits for it goes on waiting. */
uint32_t early_progress(void);

/* Gives the memory back. Not while a thread may still be on its way from the state RECORDING_EARLY. */
void early_forget(void);

#endif
