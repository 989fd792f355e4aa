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
	if (text == NULL || ARRAY_RESERVE(notes->all, notes->room, notes->count + 1) < 0) {
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

_Static_assert(sizeof(struct replay_totals) % sizeof(uint64_t) == 0, "counts are whole words");

/* Loading the other parts counts, too; what was dropped is the checkpoint's own. */
int totals_keep(struct replay *replay, struct keeping *k)
{
	uint64_t dropped = replay->totals.dropped_events;

	words_memory(&k->words, &replay->totals, sizeof(replay->totals));
	replay->totals.dropped_events = dropped;
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
