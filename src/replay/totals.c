/* SPDX-License-Identifier: Apache-2.0 */
#include "replay/totals.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "replay/state.h"

void notes_fini(struct replay *replay)
{
	struct notes *notes = &replay->notes;
	size_t i;

	for (i = 0; i < notes->count; i++)
		free(notes->all[i]);
	free(notes->all);
}

/* Keeps a text that was just copied; NULL: the copy failed. */
static int keep(struct notes *notes, char *text)
{
	if (text == NULL ||
	    array_reserve(&notes->all, &notes->room, notes->count + 1, sizeof(*notes->all)) < 0) {
		free(text);
		return -ENOMEM;
	}
	notes->all[notes->count++] = text;
	return 0;
}

int notes_add(struct replay *replay, const char *format, ...)
{
	char text[256];
	va_list args;

	va_start(args, format);
	(void)vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	return keep(&replay->notes, strdup(text));
}

int notes_add_item(struct replay *replay, const char *start, const char *item)
{
	struct notes *notes = &replay->notes;
	char *longer;
	size_t i;

	for (i = 0; i < notes->count; i++) {
		if (strncmp(notes->all[i], start, strlen(start)) == 0)
			break;
	}
	if (i == notes->count)
		return notes_add(replay, "%s%s", start, item);
	if (strstr(notes->all[i], item) != NULL)
		return 0;
	longer = realloc(notes->all[i], strlen(notes->all[i]) + strlen(item) + sizeof(", "));
	if (longer == NULL)
		return -ENOMEM;
	notes->all[i] = longer;
	(void)strcat(strcat(longer, ", "), item);
	return 0;
}

int notes_take_note(struct replay *replay, const struct trace_event *event)
{
	struct event_note note;

	event_note_decode(event->words, &note);
	if (note.text_bytes > event->payload_bytes) {
		replay->totals.oddities.bad_definitions++;
		return 0;
	}
	return keep(&replay->notes, strndup((const char *)event->payload, note.text_bytes));
}

const char *replay_note(const struct replay *replay, size_t index)
{
	return index < replay->notes.count ? replay->notes.all[index] : NULL;
}

const struct replay_totals *replay_totals(const struct replay *replay)
{
	return &replay->totals;
}

int totals_take_system(struct replay *replay, const struct trace_event *event)
{
	struct row row = {.context = replay_context(replay, definitions_context(replay, event))};
	struct event_system system;

	event_system_decode(event->words, &system);
	if (system.kind < 1 || system.kind > 2)
		return 0;
	row.kind = system.kind == 1 ? ROW_ACL_INIT : ROW_ACL_FINI;
	return replay_publish(replay, event, &row);
}

/* ---- in a checkpoint ---- */

/* The counts by their number in a checkpoint, which never changes. */
static const struct {
	size_t at; /* of the first value in struct replay_totals */
	uint32_t count;
} counts[] = {
#define COUNT(number, member)                                                                      \
	[number] = {offsetof(struct replay_totals, member),                                        \
		    sizeof(((struct replay_totals *)NULL)->member) / sizeof(uint64_t)}
	COUNT(1, events),
	COUNT(2, events_by_type),
	COUNT(3, rows),
	COUNT(4, allocations),
	COUNT(5, launches),
	COUNT(6, threads),
	COUNT(7, operations),
	COUNT(8, first_ns),
	COUNT(9, last_ns),
	COUNT(10, windows),
	COUNT(11, oddities.frees_unknown),
	COUNT(12, oddities.allocs_over),
	COUNT(13, oddities.undone_frees),
	COUNT(14, oddities.undone_unknown),
	COUNT(15, oddities.contexts_unknown),
	COUNT(16, oddities.stacks_unknown),
	COUNT(17, oddities.kernels_unknown),
	COUNT(18, oddities.bad_definitions),
	COUNT(19, oddities.operations_unpaired),
#undef COUNT
};

/* What is not here is not kept; dropped_events is the checkpoint's own. */
_Static_assert(sizeof(struct replay_totals) ==
		       sizeof(uint64_t) * (256 + LAYER_END + 1 + MSCOPE_COUNT(counts) - 3),
	       "every count has a number in a checkpoint");

void totals_save(const struct replay *replay, struct checkpoint *cp)
{
	size_t what, i;

	for (what = 1; what < MSCOPE_COUNT(counts); what++) {
		const uint64_t *values =
			(const uint64_t *)(const void *)((const char *)&replay->totals +
							 counts[what].at);

		/* Loading the other parts may have counted, so a single count of 0 is saved as well. */
		for (i = 0; i < counts[what].count; i++) {
			if (values[i] != 0 || counts[what].count == 1)
				BUILDER_PUT(&cp->builder, kept_total, 0, .what = what, .index = i,
					    .value = values[i]);
		}
	}
}

int totals_load_kept_total(struct replay *replay, const struct trace_event *event)
{
	struct event_kept_total total;

	event_kept_total_decode(event->words, &total);
	if (total.what < MSCOPE_COUNT(counts) && total.index < counts[total.what].count)
		((uint64_t *)(void *)((char *)&replay->totals +
				      counts[total.what].at))[total.index] = total.value;
	return 0;
}

void notes_save(const struct replay *replay, struct checkpoint *cp)
{
	size_t i;

	for (i = 0; i < replay->notes.count; i++) {
		size_t length = strlen(replay->notes.all[i]);

		BUILDER_BEGIN(&cp->builder, note, 0, .text_bytes = length);
		builder_payload(&cp->builder, replay->notes.all[i], length);
		builder_end(&cp->builder);
	}
}
