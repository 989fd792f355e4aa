/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The Python trace of one run: records of entering and leaving become slices of time, one row each, published when the slice
 * ends; so inner ones come before outer ones. Memory grows with the depth of calls and with threads, never with events.
 *
 * A call of a C function is two slices: the place that calls it, and the function. Functions that were open when tracing began
 * are marked "start: "; those open when it ended have no end, and a row marked "stop: " tells when that was. Ranges of the
 * program's own are apart from all this: they need no tracing, and end by their name.
 */
#ifndef MSCOPE_REPLAY_PYTHON_CALLS_H
#define MSCOPE_REPLAY_PYTHON_CALLS_H

#include "replay/python.h"
#include "replay/replay.h"
#include "replay/texts.h"

enum slice_kind {
	SLICE_PYTHON,
	SLICE_MODULE, /* a Python function that is shown by its module's class */
	SLICE_PLACE,  /* where a C function is called */
	SLICE_C,
};

struct call_slice {
	uint64_t start_ns;
	uint32_t text; /* offset + 1 of its text, of all that is no place in a Python function */
	uint32_t code; /* of those, and of modules: index of the function + 1, 0: unknown */
	uint32_t at;   /* byte offset in it */
	uint8_t kind;  /* enum slice_kind */
	bool open_at_start;
};

/* What is open on one writer. */
struct call_thread {
	struct call_slice *open; /* outermost first */
	size_t open_count, open_room;
	struct call_slice *ranges; /* oldest first */
	size_t range_count, range_room;
	uint32_t tid;
};

typedef int python_calls_row(void *arg, const struct call_row *row);

struct python_calls {
	const struct texts *texts; /* of the run; borrowed, as the next one */
	struct codes *codes;
	struct call_thread *threads; /* by writer number */
	size_t thread_room;
	python_calls_row *row; /* consumer of rows; NULL: none */
	void *row_arg;
};

int python_calls_init(struct replay *replay);
void python_calls_fini(struct replay *replay);

/* Drops what is open, without rows. */
void python_calls_reset(struct python_calls *calls);

/* What is open keeps its texts in a sweep. */
void python_calls_keep_texts(struct python_calls *calls, struct texts_sweep *sweep);

/*
 * Takes a call record. `text` is the offset of its text + 1, `code` the index of its function + 1, 0 where it has none. 0,
 * -ENOMEM, or the code of the consumer.
 */
int python_calls_take(struct python_calls *calls, const struct trace_event *event, uint32_t text,
		      uint32_t code);

/* Another thread took over the writer, or the trace ends: what is open stays without an end. */
int python_calls_end_thread(struct python_calls *calls, uint32_t writer);
int python_calls_end(struct python_calls *calls);

#endif
