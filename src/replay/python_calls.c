/* SPDX-License-Identifier: Apache-2.0 */
#include "replay/python_calls.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "replay/state.h"
#include "trace/context.h"

/* Of one thread, deeper than any interpreter goes: memory does not grow with begins whose ends are missing. */
#define OPEN_MAX 65536u

void python_calls_reset(struct python_calls *calls)
{
	size_t i;

	for (i = 0; i < calls->thread_room; i++) {
		free(calls->threads[i].open);
		free(calls->threads[i].ranges);
	}
	free(calls->threads);
	calls->threads = NULL;
	calls->thread_room = 0;
}

static struct call_thread *thread_at(struct python_calls *calls, uint32_t writer)
{
	size_t before = calls->thread_room;

	if (writer > WRITERS_MAX ||
	    ARRAY_RESERVE(calls->threads, calls->thread_room, (size_t)writer + 1) < 0)
		return NULL;
	if (calls->thread_room > before)
		memset(calls->threads + before, 0,
		       (calls->thread_room - before) * sizeof(*calls->threads));
	return &calls->threads[writer];
}

static const char *text_of(const struct python_calls *calls, const struct call_slice *slice)
{
	bool is_place = slice->kind == SLICE_PYTHON || slice->kind == SLICE_PLACE;

	if (is_place && slice->code != 0)
		return codes_text(calls->codes, slice->code - 1, slice->at);
	return is_place || slice->text == 0 ? "unknown" : texts_at(calls->texts, slice->text);
}

static int publish(struct python_calls *calls, uint32_t writer, const struct call_slice *slice,
		   uint64_t end_ns)
{
	struct call_row row = {
		.prefix = slice->open_at_start ? "start: " : "",
		.text = text_of(calls, slice),
		.start_ns = slice->start_ns,
		.end_ns = end_ns,
		.writer = writer,
		.tid = calls->threads[writer].tid,
	};

	return calls->row == NULL ? 0 : calls->row(calls->row_arg, &row);
}

static void keep_texts(struct call_slice *slices, size_t count, struct texts_sweep *sweep)
{
	size_t i;

	for (i = 0; i < count; i++)
		slices[i].text = texts_keep(sweep, slices[i].text);
}

void python_calls_keep_texts(struct python_calls *calls, struct texts_sweep *sweep)
{
	size_t i;

	for (i = 0; i < calls->thread_room; i++) {
		keep_texts(calls->threads[i].open, calls->threads[i].open_count, sweep);
		keep_texts(calls->threads[i].ranges, calls->threads[i].range_count, sweep);
	}
}

static int push(struct call_thread *thread, const struct call_slice *slice)
{
	int r = thread->open_count == OPEN_MAX
			? 0
			: ARRAY_RESERVE(thread->open, thread->open_room, thread->open_count + 1);

	if (r == 0 && thread->open_count < OPEN_MAX)
		thread->open[thread->open_count++] = *slice;
	return r;
}

/* Ends C functions that are still open when a function around them ends, and their places. */
static int end_c(struct python_calls *calls, uint32_t writer, uint64_t end_ns, bool all)
{
	struct call_thread *thread = &calls->threads[writer];
	int r = 0;

	while (r == 0 && thread->open_count > 0 &&
	       thread->open[thread->open_count - 1].kind >= SLICE_PLACE) {
		struct call_slice slice = thread->open[--thread->open_count];

		r = publish(calls, writer, &slice, end_ns);
		if (slice.kind == SLICE_PLACE && !all)
			break;
	}
	return r;
}

/*
 * The innermost function is the one that is left, but where functions take turns on one thread (greenlets) it may be further
 * out; then the others stay open.
 */
static int leave(struct python_calls *calls, uint32_t writer, uint32_t code, uint64_t end_ns)
{
	struct call_thread *thread = &calls->threads[writer];
	struct call_slice slice;
	size_t i;
	int r = end_c(calls, writer, end_ns, true);

	if (r < 0)
		return r;
	for (i = thread->open_count; i > 0; i--) {
		slice = thread->open[i - 1];
		if (slice.kind < SLICE_PLACE && slice.code == code)
			break;
	}
	if (i == 0)
		return 0; /* entered before the trace begins */
	memmove(thread->open + i - 1, thread->open + i,
		(thread->open_count - i) * sizeof(*thread->open));
	thread->open_count--;
	return publish(calls, writer, &slice, end_ns);
}

/* Publishes everything open without an end, inner ones first. */
static int abandon(struct python_calls *calls, uint32_t writer)
{
	struct call_thread *thread = &calls->threads[writer];
	int r = 0;

	while (r == 0 && thread->open_count > 0) {
		struct call_slice slice = thread->open[--thread->open_count];

		r = publish(calls, writer, &slice, 0);
	}
	return r;
}

/* Tracing ended: publishes what is open with its begin, and once more with the time of the end. */
static int stop(struct python_calls *calls, uint32_t writer, uint64_t now_ns)
{
	struct call_thread *thread = &calls->threads[writer];
	size_t i, count = thread->open_count;
	int r = abandon(calls, writer);

	for (i = count; i > 0 && r == 0; i--) {
		const struct call_slice *slice = &thread->open[i - 1];
		struct call_row row = {
			.prefix = "stop: ",
			.text = text_of(calls, slice),
			.end_ns = now_ns,
			.writer = writer,
			.tid = thread->tid,
		};

		if (slice->kind < SLICE_PLACE && calls->row != NULL)
			r = calls->row(calls->row_arg, &row);
	}
	return r;
}

/* The same for all threads. */
static int stop_all(struct python_calls *calls, uint64_t now_ns)
{
	uint32_t writer;
	int r = 0;

	for (writer = 0; writer < calls->thread_room && r == 0; writer++)
		r = stop(calls, writer, now_ns);
	return r;
}

static int range_end(struct python_calls *calls, uint32_t writer, uint32_t text, uint64_t end_ns)
{
	struct call_thread *thread = &calls->threads[writer];
	struct call_slice slice;
	size_t i;

	for (i = thread->range_count; i > 0 && thread->ranges[i - 1].text != text; i--)
		;
	if (i == 0)
		return 0;
	slice = thread->ranges[i - 1];
	memmove(thread->ranges + i - 1, thread->ranges + i,
		(thread->range_count - i) * sizeof(*thread->ranges));
	thread->range_count--;
	return publish(calls, writer, &slice, end_ns);
}

static int range_begin(struct call_thread *thread, const struct call_slice *slice)
{
	int r;

	if (thread->range_count == OPEN_MAX) {
		/* A program that never ends its ranges: the oldest are dropped. */
		memmove(thread->ranges, thread->ranges + OPEN_MAX / 2,
			(OPEN_MAX - OPEN_MAX / 2) * sizeof(*thread->ranges));
		thread->range_count = OPEN_MAX - OPEN_MAX / 2;
	}
	r = ARRAY_RESERVE(thread->ranges, thread->range_room, thread->range_count + 1);
	if (r == 0)
		thread->ranges[thread->range_count++] = *slice;
	return r;
}

/* The place of a C function is in the innermost Python function. */
static int enter_c(struct call_thread *thread, const struct call_slice *c, uint32_t at)
{
	struct call_slice place = {.start_ns = c->start_ns, .kind = SLICE_PLACE, .at = at};
	size_t i;
	int r;

	for (i = thread->open_count; i > 0 && thread->open[i - 1].kind >= SLICE_PLACE; i--)
		;
	if (i > 0)
		place.code = thread->open[i - 1].code;
	r = push(thread, &place);
	return r < 0 ? r : push(thread, c);
}

int python_calls_take(struct python_calls *calls, const struct trace_event *event, uint32_t text,
		      uint32_t code)
{
	struct call_thread *thread = thread_at(calls, event->writer);
	struct call_slice slice = {.start_ns = event->time_ns, .text = text, .code = code};
	struct event_call call;

	if (thread == NULL)
		return event->writer > WRITERS_MAX ? 0 : -ENOMEM;
	thread->tid = event->tid;
	event_call_decode(event->words, &call);
	switch (call.kind) {
	case CALL_ENTER:
	case CALL_OPEN_AT_START:
		slice.kind = SLICE_PYTHON;
		slice.open_at_start = call.kind == CALL_OPEN_AT_START;
		slice.at = CODE_NOT_BEGUN;
		return push(thread, &slice);
	case CALL_LEAVE:
		return leave(calls, event->writer, code, event->time_ns);
	case CALL_MODULE_ENTER:
		slice.kind = SLICE_MODULE;
		return push(thread, &slice);
	case CALL_C_ENTER:
		slice.kind = SLICE_C;
		return enter_c(thread, &slice, (uint32_t)call.at);
	case CALL_C_LEAVE:
		return end_c(calls, event->writer, event->time_ns, false);
	case CALL_RANGE_BEGIN:
		slice.kind = SLICE_C;
		return range_begin(thread, &slice);
	case CALL_RANGE_END:
		return range_end(calls, event->writer, text, event->time_ns);
	case CALL_STOP:
		return stop(calls, event->writer, event->time_ns);
	case CALL_STOP_ALL:
		return stop_all(calls, event->time_ns);
	default:
		return 0;
	}
}

int python_calls_end_thread(struct python_calls *calls, uint32_t writer)
{
	struct call_thread *thread;
	int r;

	if (writer >= calls->thread_room)
		return 0;
	thread = &calls->threads[writer];
	r = abandon(calls, writer);
	while (r == 0 && thread->range_count > 0) {
		struct call_slice slice = thread->ranges[--thread->range_count];

		r = publish(calls, writer, &slice, 0);
	}
	return r;
}

int python_calls_end(struct python_calls *calls)
{
	size_t i;
	int r = 0;

	for (i = 0; i < calls->thread_room && r == 0; i++)
		r = python_calls_end_thread(calls, (uint32_t)i);
	return r;
}

static int publish_call(void *arg, const struct call_row *row)
{
	struct replay *replay = arg;

	return replay->setup.call(replay->setup.arg, replay, row);
}

int python_calls_init(struct replay *replay)
{
	replay->calls =
		(struct python_calls){.texts = &replay->texts,
				      .codes = &replay->definitions.codes,
				      .row = replay->setup.call == NULL ? NULL : publish_call,
				      .row_arg = replay};
	return 0;
}

void python_calls_fini(struct replay *replay)
{
	python_calls_reset(&replay->calls);
}

/* The text, and the function, that a call record means. */
static void find_what(const struct replay *replay, const struct trace_event *event,
		      uint32_t *out_text, uint32_t *out_code)
{
	const struct writer *writer = writers_get(&replay->writers, event->writer);
	uint32_t text = 0, code = 0;
	struct event_call call;

	event_call_decode(event->words, &call);
	switch (call.kind) {
	case CALL_ENTER:
	case CALL_OPEN_AT_START:
	case CALL_LEAVE:
		code = writer == NULL ? 0 : numbers_get(&writer->codes, call.what);
		break;
	case CALL_MODULE_ENTER:
		code = writer == NULL ? 0 : numbers_get(&writer->codes, call.at);
		text = texts_offset(replay, event, call.what);
		break;
	case CALL_C_ENTER:
	case CALL_RANGE_BEGIN:
	case CALL_RANGE_END:
		text = texts_offset(replay, event, call.what);
		break;
	default:
		break;
	}
	*out_text = text;
	*out_code = code;
}

int python_calls_take_call(struct replay *replay, const struct trace_event *event)
{
	uint32_t text, code;

	find_what(replay, event, &text, &code);
	return python_calls_take(&replay->calls, event, text, code);
}

const char *replay_event_call(struct replay *replay, const struct trace_event *event)
{
	struct call_slice slice = {.kind = SLICE_C, .at = CODE_NOT_BEGUN};
	struct event_call call;

	event_call_decode(event->words, &call);
	if (call.kind == CALL_ENTER || call.kind == CALL_OPEN_AT_START)
		slice.kind = SLICE_PYTHON;
	else if (call.kind == CALL_LEAVE || call.kind == CALL_C_LEAVE || call.kind == CALL_STOP)
		return NULL;
	find_what(replay, event, &slice.text, &slice.code);
	return text_of(&replay->calls, &slice);
}

/* ---- in a checkpoint ---- */

static int keep_slices(struct replay *replay, struct keeping *k, struct call_slice **slices,
		       size_t *count, size_t *room)
{
	size_t i;

	if (words_array(&k->words, slices, count, room, sizeof(**slices)) < 0)
		return -ENOMEM;
	for (i = 0; i < *count; i++) {
		struct call_slice *slice = &(*slices)[i];

		slice->text = keeping_text(replay, k, slice->text);
		KEEP(&k->words, slice->code);
		KEEP(&k->words, slice->start_ns);
		KEEP(&k->words, slice->at);
		KEEP(&k->words, slice->kind);
		KEEP(&k->words, slice->open_at_start);
		if (words_load(&k->words))
			slice->code = numbers_get(&replay->writers.checkpoint->codes, slice->code);
	}
	if (*count > OPEN_MAX) {
		k->words.failed = true;
		*count = 0;
	}
	return 0;
}

int python_calls_keep(struct replay *replay, struct keeping *k)
{
	size_t count = words_count(&k->words, replay->calls.thread_room);
	uint32_t writer;

	for (writer = 0; writer < count; writer++) {
		struct call_thread *thread = thread_at(&replay->calls, writer);

		if (thread == NULL)
			return writer > WRITERS_MAX ? 0 : -ENOMEM;
		if (keep_slices(replay, k, &thread->open, &thread->open_count, &thread->open_room) <
			    0 ||
		    keep_slices(replay, k, &thread->ranges, &thread->range_count,
				&thread->range_room) < 0)
			return -ENOMEM;
		if (words_load(&k->words))
			thread->tid = replay_writer_tid(replay, writer);
	}
	return 0;
}
