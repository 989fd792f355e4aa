/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The collector's one lock, for short spans on slow paths. No thread waits for ever, because the holder may be
 *
 *     - the waiting thread itself, interrupted by a signal handler: it is refused at once;
 *     - a thread that waits for the caller, who is inside the loader or holds a lock of the program: the wait ends in time;
 *     - a thread of the parent process, which does not exist in a forked child: the lock counts as free.
 *
 * A caller that is refused goes on without what the lock guards. The word is the holder's thread id. A zeroed struct is free.
 */
#ifndef MSCOPE_COLLECTOR_LOCK_H
#define MSCOPE_COLLECTOR_LOCK_H

#include <stdatomic.h>
#include <stdbool.h>

#include "base/compiler.h"

struct lock {
	_Atomic uint32_t holder; /* thread id, 0: free */
};

/* Longer than a busy machine keeps a holder from running. */
#define LOCK_WAIT_NS UINT64_C(5000000000)

/*
 * For a lock whose holder waits for nothing: it only reads and writes memory. True when the lock is this thread's now; false after
 * LOCK_WAIT_NS at most. errno stays as it was.
 */
bool lock_take(struct lock *lock);

/*
 * For a lock that is held while foreign code runs, which may wait for the caller: the same with a shorter limit; 0 does not wait.
 */
bool lock_take_within(struct lock *lock, uint64_t wait_ns);

/* By the holder alone. */
void lock_release(struct lock *lock);

/* True when no thread of this process has this id: whatever it held will not be released here. */
bool lock_holder_is_gone(uint32_t thread);

#endif
