/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests that were refused because memory was short. What a framework or a runtime tries again by itself is one of them: the
 * runtime asks for huge pages, then for normal ones; a pool gives back its cache, and asks again. It ends with the next thing that
 * the thread does. While the thread does nothing, a record of the engine makes its rows known; a try that comes later still belongs
 * to it, because an allocator may wait for the device first, for any time. Each has two rows SNAPSHOT: as the first refusal found the
 * pool and the device, and as the last one left them; and, where analysis oom is asked for, rows OOM_DETAIL.
 */
#ifndef MSCOPE_REPLAY_OOMS_H
#define MSCOPE_REPLAY_OOMS_H

#include <stdbool.h>

#include "replay/figures.h"
#include "trace/context.h"

struct replay;
struct trace_event;

#define OOM_SNAPSHOT_BEFORE "OOM_Snapshot Before"
#define OOM_SNAPSHOT_AFTER  "OOM_Snapshot After"

/* Frames of a stack that a row of these shows, whatever the settings say. */
#define OOM_FRAMES 50u

/* One request that was refused, however often it was tried. */
struct oom {
	uint64_t time_ns, last_ns;     /* monotonic: of the first and of the last refusal */
	const struct context *context; /* of the first refusal; borrowed for the call */
	uint32_t context_number;       /* see replay_context() */
	uint8_t pool;		       /* that the request came from, as far as is known */
	uint8_t call;		       /* enum oom_call */
	uint64_t requested_bytes;      /* size and flag of the first refusal */
	uint64_t flag;
	uint64_t given_back_bytes; /* driver's memory that the thread gave back between tries */
	uint32_t tries;		   /* refusals */
	uint32_t stack;		   /* of the first refusal */
	uint32_t step;		   /* the step in progress that the program marked; 0 if none */
	uint32_t seen_step;	   /* as analyses see it: also one that an optimizer ends */
	uint32_t tid, writer;
	bool told;	/* its rows are out; it is kept to recognise another try */
	bool ended;	/* it will not be tried again, as far as is known */
	bool recovered; /* the last try succeeded: the program has not noticed */
	struct figures before, after;
};

struct ooms {
	struct oom *open; /* in progress, at most one of each writer */
	size_t count, room;
	uint64_t details_ns; /* when blocks were listed last; 0: never */
};

void ooms_fini(struct replay *replay);

/* An event comes while there are open ones: it may end that of its thread. 0, or the code of the consumer. */
int ooms_before_event(struct replay *replay, const struct trace_event *event);

/* No event follows. */
int ooms_end(struct replay *replay);

/* Name of an enum oom_call, as in the key func. */
const char *oom_call_text(uint8_t call);

#endif
