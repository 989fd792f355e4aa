/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests that were refused because memory was short. Nothing here waits, calls into a framework or takes the interpreter's lock:
 * the event is recorded, and the engine does the rest.
 */
#ifndef MSCOPE_COLLECTOR_RECORD_REFUSED_H
#define MSCOPE_COLLECTOR_RECORD_REFUSED_H

#include "collector/record/writer.h"

/* Frames of the stack of such an event, whatever the settings say. */
#define REFUSED_FRAMES 50u

struct refusal {
	uint32_t call; /* enum oom_call */
	uint64_t requested_bytes;
	uint64_t flag;		  /* of the driver's call; 0: it has none */
	uint64_t allocated_bytes; /* what the pool says about itself; UINT64_MAX: it does not */
	uint64_t reserved_bytes;
};

/*
 * Records that a request was refused, with what the driver says about the device, and with the stack from `caller` outwards. Hooks
 * call it directly: a stack has room for so many frames of our own and no more.
 */
void event_oom_slow(uint32_t source, uint64_t key, context_decode *decode,
		    const struct refusal *refusal, const void *caller);

/* Whether the latest was less than two seconds ago: the program may still be dealing with it. */
bool refused_lately(void);

#endif
