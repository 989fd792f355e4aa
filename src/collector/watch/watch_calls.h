/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who may write watched memory now: operators and kernels in progress, and what each declared to write. A change of watched
 * memory is expected where a call in progress declared it; of calls inside one another on a thread the innermost decides, because
 * it tells more exactly.
 *
 * A call that ends where nothing is dumped, as operators do at kernel level, counts until the next dump: nobody has seen yet what
 * it wrote. If there are many of these, the oldest become one entry that allows what each declared. Any thread may call any function; one lock, held for a walk over the table.
 */
#ifndef MSCOPE_COLLECTOR_WATCH_CALLS_H
#define MSCOPE_COLLECTOR_WATCH_CALLS_H

#include <stdbool.h>

#include "collector/lock.h"

#define WATCH_CALLS 128u /* in progress at a time */
#define WATCH_SHOWN 256u /* bytes of the name of one, with the NUL; of a longer one the first */
#define WATCH_SPANS 256u /* that one of them declares, in watched memory */
#define WATCH_LASTS 64u	 /* dumps behind its end for which a call counts whose work goes on */

/* Addresses from `first` up to `end`, which is not in it. */
struct watch_span {
	uint64_t first, end;
};

struct watch_open_call {
	uint32_t tid;	/* 0: the entry is free */
	bool ended;	/* and nothing was dumped since, or its work goes on */
	uint32_t lasts; /* dumps for which it counts behind its end */
	uint64_t name;	/* hash */
	uint64_t order;
	uintptr_t frame;
	char shown[WATCH_SHOWN];
	uint32_t count;
	struct watch_span spans[WATCH_SPANS];
};

struct watch_calls {
	struct lock lock;
	uint64_t order;	    /* of the latest; not 0: operators tell what they write */
	uint32_t room_used; /* entries from here on were never used */
	struct watch_open_call calls[WATCH_CALLS];
};

/*
 * A call of this thread begins. `frame` is where the stack is at it, 0: unknown: a call from there or deeper whose end did not come,
 * because an exception left it, is over. False: WATCH_CALLS others are in progress.
 */
bool watch_calls_open(struct watch_calls *calls, uint32_t tid, const char *name, uintptr_t frame);

/*
 * What the innermost call of the thread writes, if it has that name; NULL: whatever its name. `lasting`: its work goes on behind
 * its end, as that of collectives does.
 */
void watch_calls_declare(struct watch_calls *calls, uint32_t tid, const char *name,
			 const struct watch_span *spans, uint32_t count, bool lasting);

/* The innermost call of the thread that has this name ends, with all inside it. `seen`: watched memory was dumped at its end. */
void watch_calls_close(struct watch_calls *calls, uint32_t tid, const char *name, bool seen);

/* Watched memory was dumped: calls that had ended before are over. */
void watch_calls_seen(struct watch_calls *calls);

/* What may be written in `within` now: sorted, without overlaps, at most `room` of them. Returns how many. */
uint32_t watch_calls_allowed(struct watch_calls *calls, struct watch_span within,
			     struct watch_span *out, uint32_t room);

/*
 * The call that something happens inside of now: the innermost of the thread, else the latest of any, but never one of the name
 * `but`. False: there is none.
 */
bool watch_calls_inside(struct watch_calls *calls, uint32_t tid, const char *but,
			char out[WATCH_SHOWN]);

/* Adds a span to a sorted list without overlaps. Returns how many the list has then; without room the nearest one grows. */
uint32_t watch_span_add(struct watch_span *list, uint32_t count, uint32_t room,
			struct watch_span span);

/* In a forked child. */
void watch_calls_reset(struct watch_calls *calls);

#endif
