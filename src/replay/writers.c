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
