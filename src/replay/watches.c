/* SPDX-License-Identifier: Apache-2.0 */
#include "replay/watches.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "replay/state.h"

void watches_fini(struct replay *replay)
{
	struct watches *watches = &replay->watches;
	size_t i;

	for (i = 0; i < watches->count; i++) {
		free(watches->items[i].name);
		free(watches->items[i].last.operation);
		free(watches->items[i].from.operation);
		free(watches->items[i].to.operation);
	}
	free(watches->items);
}

static struct watched *find(struct watches *watches, const struct dump *dump)
{
	size_t i;

	for (i = 0; i < watches->count; i++) {
		struct watched *watched = &watches->items[i];

		if (watched->output == dump->output && watched->device == dump->context->device &&
		    strcmp(watched->name, dump->watched) == 0)
			return watched;
	}
	return NULL;
}

static int moment_set(struct moment *moment, const struct dump *dump)
{
	/* Often the same operator comes twice, with its begin and its end. */
	if (moment->operation == NULL || strcmp(moment->operation, dump->operation) != 0) {
		char *copy = strdup(dump->operation);

		if (copy == NULL)
			return -ENOMEM;
		free(moment->operation);
		moment->operation = copy;
	}
	moment->number = dump->number;
	moment->tid = dump->tid;
	moment->after = dump->after;
	return 0;
}

static int moment_copy(struct moment *to, const struct moment *from)
{
	*to = *from;
	to->operation = strdup(from->operation);
	return to->operation == NULL ? -ENOMEM : 0;
}

static int add(struct watches *watches, const struct dump *dump, struct watched **out)
{
	struct watched *watched;

	if (watches->count == WATCHES_MAX) {
		watches->more++;
		return 0;
	}
	if (array_reserve(&watches->items, &watches->room, watches->count + 1,
			  sizeof(*watches->items)) < 0)
		return -ENOMEM;
	watched = &watches->items[watches->count];
	*watched = (struct watched){.name = strdup(dump->watched),
				    .output = dump->output,
				    .device = dump->context->device};
	if (watched->name == NULL)
		return -ENOMEM;
	watches->count++;
	*out = watched;
	return 0;
}

/* 0 or -ENOMEM. */
static int add_dump(struct watches *watches, const struct dump *dump)
{
	struct watched *watched = find(watches, dump);
	int r = 0;

	watches->dumps++;
	if (watched == NULL) {
		r = add(watches, dump, &watched);
		if (watched == NULL)
			return r;
	} else if (!dump->first && watched->checksum != dump->checksum) {
		if (watched->changes++ == 0) {
			r = moment_copy(&watched->from, &watched->last);
			if (r == 0)
				r = moment_set(&watched->to, dump);
		}
	}
	watched->dumps++;
	watched->checksum = dump->checksum;
	watched->size_bytes = dump->size_bytes;
	return r < 0 ? r : moment_set(&watched->last, dump);
}

bool watched_changed_during(const struct watched *watched)
{
	const struct moment *from = &watched->from, *to = &watched->to;

	return !from->after && to->after && from->tid == to->tid && from->number == to->number &&
	       strcmp(from->operation, to->operation) == 0;
}

int watches_take_watch_dump(struct replay *replay, const struct trace_event *event)
{
	struct event_watch_dump record;
	struct dump dump;
	int r;

	event_watch_dump_decode(event->words, &record);
	dump = (struct dump){
		.time_ns = run_wall_ns(replay->setup.run, event->time_ns),
		.tid = event->tid,
		.context = replay_context(replay, definitions_context(replay, event)),
		.operation = texts_find(replay, event, record.name),
		.number = record.number,
		.after = (record.flags & DUMP_AFTER) != 0,
		.first = (record.flags & DUMP_FIRST) != 0,
		.in_file = (record.flags & DUMP_IN_FILE) != 0,
		.watched = texts_find(replay, event, record.watched),
		.output = (uint32_t)record.output,
		.checksum = record.checksum,
		.size_bytes = record.size_bytes,
	};
	if (dump.operation == NULL || dump.watched == NULL) {
		replay->totals.oddities.bad_definitions++;
		return 0;
	}
	r = add_dump(&replay->watches, &dump);
	return r < 0 || replay->setup.dump == NULL
		       ? r
		       : replay->setup.dump(replay->setup.arg, replay, &dump);
}

const struct watches *replay_watches(const struct replay *replay)
{
	return &replay->watches;
}

/* ---- in a checkpoint ---- */

void watches_save(const struct replay *replay, struct checkpoint *cp)
{
	const struct watches *watches = &replay->watches;
	size_t i;

	for (i = 0; i < watches->count; i++) {
		const struct watched *w = &watches->items[i];
		uint32_t name = checkpoint_text(cp, w->name);
		uint32_t last = checkpoint_text(cp, w->last.operation);
		uint32_t from = checkpoint_text(cp, w->from.operation);
		uint32_t to = checkpoint_text(cp, w->to.operation);

		BUILDER_PUT(&cp->builder, kept_watched, 0, .name = name, .output = w->output,
			    .device = w->device, .size_bytes = w->size_bytes, .dumps = w->dumps,
			    .changes = w->changes, .checksum = w->checksum, .last_name = last,
			    .last_tid = w->last.tid, .last_call = w->last.number,
			    .last_after = w->last.after, .from_name = from, .from_tid = w->from.tid,
			    .from_call = w->from.number, .from_after = w->from.after, .to_name = to,
			    .to_tid = w->to.tid, .to_call = w->to.number, .to_after = w->to.after);
	}
	if (watches->dumps > 0)
		BUILDER_PUT(&cp->builder, kept_dumps, 0, .dumps = watches->dumps,
			    .more = watches->more);
}

/* A copy of a text of the checkpoint, NULL: it has none. False: no memory. */
static bool load_text(const struct replay *replay, const struct trace_event *event, uint64_t id,
		      char **out)
{
	const char *text = texts_find(replay, event, id);

	*out = text == NULL ? NULL : strdup(text);
	return text == NULL || *out != NULL;
}

int watches_load_kept_watched(struct replay *replay, const struct trace_event *event)
{
	struct watches *watches = &replay->watches;
	struct event_kept_watched kept;
	struct watched *w;

	event_kept_watched_decode(event->words, &kept);
	if (watches->count == WATCHES_MAX || texts_find(replay, event, kept.name) == NULL ||
	    texts_find(replay, event, kept.last_name) == NULL ||
	    (kept.changes > 0 && (texts_find(replay, event, kept.from_name) == NULL ||
				  texts_find(replay, event, kept.to_name) == NULL))) {
		replay->totals.oddities.bad_definitions++;
		return 0;
	}
	if (array_reserve(&watches->items, &watches->room, watches->count + 1,
			  sizeof(*watches->items)) < 0)
		return -ENOMEM;
	w = &watches->items[watches->count++];
	*w = (struct watched){
		.output = (uint32_t)kept.output,
		.device = (uint32_t)kept.device,
		.size_bytes = kept.size_bytes,
		.dumps = kept.dumps,
		.changes = kept.changes,
		.checksum = kept.checksum,
		.last = {.number = kept.last_call,
			 .tid = (uint32_t)kept.last_tid,
			 .after = kept.last_after != 0},
		.from = {.number = kept.from_call,
			 .tid = (uint32_t)kept.from_tid,
			 .after = kept.from_after != 0},
		.to = {.number = kept.to_call,
		       .tid = (uint32_t)kept.to_tid,
		       .after = kept.to_after != 0},
	};
	return load_text(replay, event, kept.name, &w->name) &&
			       load_text(replay, event, kept.last_name, &w->last.operation) &&
			       load_text(replay, event, kept.from_name, &w->from.operation) &&
			       load_text(replay, event, kept.to_name, &w->to.operation)
		       ? 0
		       : -ENOMEM;
}

int watches_load_kept_dumps(struct replay *replay, const struct trace_event *event)
{
	struct event_kept_dumps kept;

	event_kept_dumps_decode(event->words, &kept);
	replay->watches.dumps = kept.dumps;
	replay->watches.more = kept.more;
	return 0;
}
