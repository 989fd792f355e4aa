/* SPDX-License-Identifier: Apache-2.0 */
#include "replay/writers.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "replay/state.h"

static void writer_fini(struct writer *writer)
{
	size_t i;

	numbers_fini(&writer->contexts);
	numbers_fini(&writer->stacks);
	numbers_fini(&writer->codes);
	numbers_fini(&writer->texts);
	operations_fini(&writer->operations);
	for (i = 0; i < TEXT_ONCE_SLOTS; i++)
		strbuf_fini(&writer->once[i]);
	*writer = (struct writer){0};
}

int writers_init(struct replay *replay)
{
	replay->writers.checkpoint = calloc(1, sizeof(struct writer));
	return replay->writers.checkpoint == NULL ? -ENOMEM : 0;
}

void writers_fini(struct replay *replay)
{
	struct writers *writers = &replay->writers;
	size_t i;

	for (i = 0; i < writers->room; i++) {
		if (writers->all[i] != NULL)
			writer_fini(writers->all[i]);
		free(writers->all[i]);
	}
	free(writers->all);
	if (writers->checkpoint != NULL)
		writer_fini(writers->checkpoint);
	free(writers->checkpoint);
}

struct writer *writers_at(struct writers *writers, uint32_t number)
{
	struct writer *writer = writers_get(writers, number);
	size_t before = writers->room;

	if (writer != NULL)
		return writer;
	if (number > WRITERS_MAX || array_reserve(&writers->all, &writers->room, (size_t)number + 1,
						  sizeof(struct writer *)) < 0)
		return NULL;
	memset((void *)(writers->all + before), 0,
	       (writers->room - before) * sizeof(struct writer *));
	writers->all[number] = calloc(1, sizeof(struct writer));
	return writers->all[number];
}

uint32_t writers_definer(const struct writers *writers, const struct trace_event *event)
{
	return event->writer == CHECKPOINT_WRITER && writers->as_writer != 0 ? writers->as_writer
									     : event->writer;
}

void writers_end_checkpoint(struct writers *writers)
{
	writer_fini(writers->checkpoint);
}

int writers_take_thread(struct replay *replay, const struct trace_event *event)
{
	uint32_t number = writers_definer(&replay->writers, event);
	struct writer *writer = writers_at(&replay->writers, number);
	struct event_thread thread;

	if (writer == NULL)
		return 0;
	event_thread_decode(event->words, &thread);
	if (writer->tid != thread.tid) {
		replay->totals.threads++;
		writer->operations.count = 0; /* the thread before it is gone */
		owners_forget(&replay->labels.owners, (uint32_t)thread.tid);
	}
	writer->tid = (uint32_t)thread.tid;
	writer->device = 0;
	return python_calls_end_thread(&replay->calls, number);
}

/* ---- in a checkpoint ---- */

/* Numbers of kept_number.kind. */
enum kept_kind {
	KEPT_CONTEXT = 1,
	KEPT_STACK = 2,
	KEPT_CODE = 3,
	KEPT_TEXT = 4,
};

static struct numbers *numbers_of(struct writer *writer, uint64_t kind)
{
	switch (kind) {
	case KEPT_CONTEXT:
		return &writer->contexts;
	case KEPT_STACK:
		return &writer->stacks;
	case KEPT_CODE:
		return &writer->codes;
	case KEPT_TEXT:
		return &writer->texts;
	default:
		return NULL;
	}
}

static void save_numbers(const struct replay *replay, struct checkpoint *cp, struct writer *writer,
			 enum kept_kind kind)
{
	uint32_t number, value;
	size_t cursor = 0;

	while (numbers_next(numbers_of(writer, kind), &cursor, &number, &value)) {
		uint32_t id = kind == KEPT_TEXT	  ? checkpoint_text_at(cp, replay, value + 1)
			      : kind == KEPT_CODE ? value + 1
						  : value;

		BUILDER_PUT(&cp->builder, kept_number, 0, .kind = kind, .number = number, .id = id);
	}
}

void writers_save(const struct replay *replay, struct checkpoint *cp)
{
	uint32_t number, i;

	for (number = 1; number < replay->writers.room; number++) {
		struct writer *writer = replay->writers.all[number];

		if (writer == NULL)
			continue;
		checkpoint_as_writer(cp, number);
		/* The reader of a run takes the threads of its streams from here. */
		if (writer->tid != 0)
			BUILDER_PUT(&cp->builder, thread, 0, .tid = writer->tid);
		save_numbers(replay, cp, writer, KEPT_CONTEXT);
		save_numbers(replay, cp, writer, KEPT_STACK);
		save_numbers(replay, cp, writer, KEPT_CODE);
		save_numbers(replay, cp, writer, KEPT_TEXT);
		for (i = 0; i < TEXT_ONCE_SLOTS; i++) {
			if (writer->once[i].data != NULL)
				builder_put_text(&cp->builder, TEXT_ONCE | i, writer->once[i].data,
						 writer->once[i].length);
		}
	}
	checkpoint_as_writer(cp, 0);
}

/* The device and the operators of each writer that there is. */
int writers_keep(struct replay *replay, struct keeping *k)
{
	struct writers *writers = &replay->writers;
	size_t count = words_count(&k->words, writers->room), number;

	for (number = 0; number < count; number++) {
		bool is = !words_load(&k->words) && writers->all[number] != NULL;
		struct writer *writer;

		KEEP(&k->words, is);
		writer = is ? writers_at(writers, (uint32_t)number) : NULL;
		if (is && writer == NULL)
			return number > WRITERS_MAX ? 0 : -ENOMEM;
		if (!is)
			continue;
		KEEP(&k->words, writer->device);
		if (operations_keep(replay, k, &writer->operations) < 0)
			return -ENOMEM;
	}
	return 0;
}

/* The writer that records are about at present; NULL: none. */
static struct writer *writers_kept(struct writers *writers)
{
	return writers->as_writer == 0 ? NULL : writers_at(writers, writers->as_writer);
}

int writers_load_thread(struct replay *replay, const struct trace_event *event)
{
	struct writer *writer = writers_kept(&replay->writers);
	struct event_thread thread;

	if (writer == NULL)
		return 0;
	event_thread_decode(event->words, &thread);
	writer->tid = (uint32_t)thread.tid;
	replay->totals.threads++; /* for older forms, which do not have the count */
	return 0;
}

int writers_load_kept_number(struct replay *replay, const struct trace_event *event)
{
	struct writer *writer = writers_kept(&replay->writers);
	struct event_kept_number kept;
	struct numbers *to, *from;
	uint32_t value;

	event_kept_number_decode(event->words, &kept);
	to = writer == NULL ? NULL : numbers_of(writer, kept.kind);
	from = numbers_of(replay->writers.checkpoint, kept.kind);
	/* The empty stack is 0 everywhere. */
	value = from == NULL				  ? 0
		: kept.kind == KEPT_STACK && kept.id == 0 ? 1
							  : numbers_get(from, kept.id);
	if (to == NULL || value == 0) {
		replay->totals.oddities.bad_definitions++;
		return 0;
	}
	return numbers_put(to, (uint32_t)kept.number, value - 1);
}

int writers_load_as_writer(struct replay *replay, const struct trace_event *event)
{
	struct event_as_writer as;

	event_as_writer_decode(event->words, &as);
	replay->writers.as_writer = (uint32_t)as.writer;
	return 0;
}

/* ---- queries ---- */

uint32_t replay_writer_tid(const struct replay *replay, uint32_t writer)
{
	const struct writer *found = writers_get(&replay->writers, writer);

	return found == NULL ? 0 : found->tid;
}

uint32_t replay_writer_device(const struct replay *replay, uint32_t writer)
{
	const struct writer *found = writers_get(&replay->writers, writer);

	return found == NULL ? DEVICE_UNKNOWN : found->device - 1;
}
