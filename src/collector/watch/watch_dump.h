/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Dumps of watched memory. The adapters report operators and kernels; what watch_plan.h plans is read in pieces, summed up, kept in
 * a file when full-content was asked for, and recorded. This is the one place where the collector does more than write: it waits
 * for the device and copies its memory, because the user asked for it.
 *
 * While nothing is watched, all of it is one load and a branch.
 */
#ifndef MSCOPE_COLLECTOR_WATCH_DUMP_H
#define MSCOPE_COLLECTOR_WATCH_DUMP_H

#include "collector/record/hot.h"
#include "collector/watch/watch_plan.h"

extern MSCOPE_HIDDEN struct watch collector_watch;

/* True when operators are to be reported. */
MSCOPE_INLINE bool watch_is_active(void)
{
	return atomic_load_explicit(&collector_watch.active, memory_order_relaxed) != 0 &&
	       recording_now() == RECORDING_ON;
}

/* Takes the settings of the session. Called while attaching. */
void watch_setup(const struct session *session);

/* In a forked child, before watch_setup(). */
void watch_reset(void);

/* An operator or kernel begins; `call` has what it writes, as far as that is known. Returns the number of the call, for its end. */
uint64_t watch_begin(struct watch_call *call);

/* The operator that this thread is in writes these, too; `lasting`: it may do so after its end. */
void watch_writes(const struct watch_output *outputs, uint32_t count, bool lasting);

/* It has ended; `call` has what it wrote and gives. */
void watch_end(struct watch_call *call);

/*
 * A kernel whose name is known only after its launch: what is watched is read before the launch and recorded after it. NULL when
 * nothing is watched. `ran` false: it was not launched after all.
 */
struct watch_room;
struct watch_room *watch_launch_begin(struct watch_call *call);
void watch_launch_end(struct watch_room *before, struct watch_call *call, bool ran);

/* A block of a pool was allocated; a block is about to be freed, `bytes` 0: as many as were allocated. */
void watch_allocated_slow(uint8_t pool, uint64_t address, uint64_t bytes);
void watch_freed_slow(uint8_t pool, uint64_t address, uint64_t bytes);

MSCOPE_INLINE void watch_allocated(uint8_t pool, uint64_t address, uint64_t bytes)
{
	if (MSCOPE_UNLIKELY(atomic_load_explicit(&collector_watch.active, memory_order_relaxed) !=
			    0))
		watch_allocated_slow(pool, address, bytes);
}

MSCOPE_INLINE void watch_freed(uint8_t pool, uint64_t address, uint64_t bytes)
{
	if (MSCOPE_UNLIKELY(atomic_load_explicit(&collector_watch.active, memory_order_relaxed) !=
			    0))
		watch_freed_slow(pool, address, bytes);
}

/* watch_blocks.c */

/* Removes a block and returns its size; 0: it is not known. */
uint64_t watch_block_take(uint8_t pool, uint64_t address);
void watch_blocks_reset(void);

#endif
