/* SPDX-License-Identifier: Apache-2.0 */
#include "viewer/history.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/hash.h"
#include "trace/record.h"

#define RANGE_START 2u
#define RANGE_END   3u

/* The number of a text. 0 or -ENOMEM. */
static int name_of(struct history *history, const char *text, uint32_t *out)
{
	struct map_key key;
	const uint64_t *known;

	*out = 0;
	if (text == NULL || text[0] == '\0')
		return 0;
	key = (struct map_key){hash_text(text), strlen(text)};
	known = map_get(&history->name_ids, key);
	if (known != NULL) {
		*out = (uint32_t)*known;
		return 0;
	}
	if (ARRAY_RESERVE(history->names, history->name_room, history->name_count + 1) < 0)
		return -ENOMEM;
	history->names[history->name_count] = strdup(text);
	if (history->names[history->name_count] == NULL ||
	    map_put(&history->name_ids, key, history->name_count) < 0) {
		free(history->names[history->name_count]);
		return -ENOMEM;
	}
	*out = (uint32_t)history->name_count++;
	return 0;
}

int history_init(struct history *history, const char *directory, struct mscope_error *err)
{
	int r = spool_init(&history->events, directory, sizeof(struct history_event), err);

	if (r == 0 && ARRAY_RESERVE(history->names, history->name_room, 1) == 0)
		history->names[0] = strdup("");
	if (r == 0 && (history->names == NULL || history->names[0] == NULL))
		r = error_set(err, -ENOMEM, "no memory");
	if (r == 0)
		history->name_count = 1;
	return r;
}

void history_fini(struct history *history)
{
	size_t i;

	for (i = 0; i < history->name_count; i++)
		free(history->names[i]);
	for (i = 0; i < history->thread_room; i++)
		free(history->threads[i].names);
	free(history->names);
	free(history->ranges);
	free(history->threads);
	map_fini(&history->name_ids);
	map_fini(&history->open_ranges);
	spool_fini(&history->events);
	*history = (struct history){0};
}

/* An operator begins or ends on the thread of a writer. 0 or -ENOMEM. */
static int take_operator(struct history *history, uint32_t writer, uint32_t name, bool begins)
{
	struct history_thread *thread;
	size_t before = history->thread_room, i;

	if (ARRAY_RESERVE(history->threads, history->thread_room, (size_t)writer + 1) < 0)
		return -ENOMEM;
	for (i = before; i < history->thread_room; i++)
		history->threads[i] = (struct history_thread){0};
	thread = &history->threads[writer];
	if (begins) {
		if (ARRAY_RESERVE(thread->names, thread->room, thread->count + 1) < 0)
			return -ENOMEM;
		thread->names[thread->count++] = name;
		return 0;
	}
	/* An end takes with it what was left open inside. */
	for (i = thread->count; i > 0 && thread->names[i - 1] != name; i--)
		;
	if (i > 0)
		thread->count = i - 1;
	return 0;
}

/* Steps are shown as such. */
static int take_range(struct history *history, const struct row *row, uint32_t name)
{
	const struct map_key key = {row->range, 0};
	uint64_t index;

	if (row->kind == ROW_RANGE_END) {
		if (map_remove(&history->open_ranges, key, &index))
			history->ranges[index].to_ns = row->time_ns;
		return 0;
	}
	if (history->range_count == HISTORY_RANGES || row->name == NULL ||
	    strcmp(row->name, STEP_MESSAGE) == 0)
		return 0;
	if (ARRAY_RESERVE(history->ranges, history->range_room, history->range_count + 1) < 0 ||
	    map_put(&history->open_ranges, key, history->range_count) < 0)
		return -ENOMEM;
	history->ranges[history->range_count++] = (struct history_range){
		.from_ns = row->time_ns, .to_ns = UINT64_MAX, .name = name, .tid = row->tid};
	return 0;
}

int history_row(struct history *history, const struct row *row)
{
	struct history_event *event;
	uint32_t name;
	int r = name_of(history, row->name, &name);

	if (r < 0)
		return r;
	event = spool_at(&history->events, history->count);
	if (event == NULL)
		return -ENOSPC;
	*event = (struct history_event){.time_ns = row->time_ns,
					.block = row->block == NULL ? HISTORY_NO_BLOCK
								    : row->block->allocation_id &
									      HISTORY_NO_BLOCK,
					.kind = (uint8_t)row->kind,
					.name = name,
					.tid = row->tid};
	history->count++;
	if (row->kind == ROW_ATEN_START || row->kind == ROW_ATB_START)
		r = take_operator(history, row->writer, name, true);
	else if (row->kind == ROW_ATEN_END || row->kind == ROW_ATB_END)
		r = take_operator(history, row->writer, name, false);
	else if (row->kind == ROW_RANGE_START || row->kind == ROW_RANGE_END)
		r = take_range(history, row, name);
	return r;
}

uint32_t history_operator(const struct history *history, uint32_t writer)
{
	return writer < history->thread_room && history->threads[writer].count > 0
		       ? history->threads[writer].names[0]
		       : 0;
}
