/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Walks the calling thread's stack. No lock, no allocation, no call of the loader: any thread, any time, in a signal handler, in any
 * kind of forked child. errno stays as it was.
 *
 * What is known of an object's frames comes from frame_tables.h. An address that lies in none of these objects (code made at run time,
 * an object that came after the list was made) is walked by its frame pointer as far as that makes sense.
 */
#ifndef MSCOPE_COLLECTOR_UNWIND_H
#define MSCOPE_COLLECTOR_UNWIND_H

#include <stdatomic.h>

#include "collector/unwind/frame_tables.h"
#include "collector/unwind/known_walks.h"

/* Around a dlclose(): what is learned meanwhile is not kept. */
void unwind_unload_begin(void);
void unwind_unload_end(void);

/* An object has gone unseen. */
void unwind_forget(void);

/* In a forked child: no thread of it is in dlclose(). */
void unwind_reset(void);

/*
 * Return addresses from the caller of this function outwards, `max` at most. Returns how many. The outermost may be missing where no
 * table tells how to go on; an address that is not a caller's is never among them as long as the tables are right.
 *
 * `walks`: NULL, or walks that were made before. If this is one of them, `walks->found` is it, and `frames` are not written.
 */
uint32_t unwind_frames(struct own_stack *own, struct known_walks *walks, void **frames,
		       uint32_t max);

#endif
