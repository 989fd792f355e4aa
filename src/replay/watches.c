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
