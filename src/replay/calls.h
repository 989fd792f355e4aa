/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The Python trace of one run: records of entering and leaving become slices of time, one row each, given when the slice ends;
 * so inner ones come before outer ones. Memory grows with the depth of calls and with threads, never with events.
 *
 * A call of a C function is two slices: the place that calls it, and the function. Functions that were open when tracing began
 * are marked "start: "; those open when it ended have no end, and a row marked "stop: " tells when that was. Ranges of the
 * program's own are apart from all this: they need no tracing, and end by their name.
 */
#ifndef MSCOPE_REPLAY_CALLS_H
#define MSCOPE_REPLAY_CALLS_H

#include "replay/python.h"
#include "replay/replay.h"
#include "replay/texts.h"
#include "trace/run.h"

typedef int calls_row(void *arg, const struct call_row *row);

struct call_slice;

/* What is open on one writer. */
struct call_thread {
	struct call_slice *open; /* outermost first */
	size_t open_count, open_room;
	struct call_slice *ranges; /* oldest first */
	size_t range_count, range_room;
	uint32_t tid;
};

struct calls {
	const struct strbuf *texts; /* of the run; borrowed, as the next two */
	struct codes *codes;
	const struct map *code_ids;  /* writer, id -> index */
	struct call_thread *threads; /* by writer number */
	size_t thread_room;
	calls_row *row; /* NULL: nobody wants rows */
	void *row_arg;
};

void calls_fini(struct calls *calls);

/* What is open keeps its texts in a sweep. */
void calls_keep_texts(struct calls *calls, struct texts_sweep *sweep);

/* `text` is the offset of this record's text + 1, 0: it has none. 0, -ENOMEM, or what the row function returned. */
int calls_take(struct calls *calls, const struct trace_event *event, uint64_t text);

/* Another thread took over the writer, or the trace ends: what is open stays without an end. */
int calls_end_thread(struct calls *calls, uint32_t writer);
int calls_end(struct calls *calls);

#endif
