/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Events of a process that could not be attached to its session: counted where the command sees them (trace/unrecorded.h).
 */
#ifndef MSCOPE_COLLECTOR_UNRECORDED_COUNT_H
#define MSCOPE_COLLECTOR_UNRECORDED_COUNT_H

#include <stdbool.h>

#include "trace/unrecorded.h"

/* Remembers the segment that the session names; a child forked later may not be able to read the session. */
void unrecorded_know(int32_t number, uint64_t cookie);

/*
 * For the thread that attaches and failed: from now on unrecorded_count() counts. False when there is no segment to count in. errno
 * stays as it was.
 */
bool unrecorded_begin(enum unrecorded_cause cause, int error);

/* One more event is not recorded. The first one enters this process into the segment. Any thread. */
void unrecorded_count(void);

#endif
