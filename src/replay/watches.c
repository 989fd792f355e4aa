/* SPDX-License-Identifier: Apache-2.0 */
#include "replay/watches.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/strbuf.h"
#include "replay/state.h"
#include "symbols/demangle.h"

static void watched_fini(struct watched *watched)
{
	size_t i;

	free(watched->name);
	free(watched->last.operation);
	free(watched->from.operation);
	free(watched->to.operation);
	for (i = 0; i < watched->stray_count; i++) {
		free(watched->strays[i].from.operation);
		free(watched->strays[i].to.operation);
		free(watched->strays[i].inside);
	}
	free(watched->strays);
	for (i = 0; i < watched->expected_count; i++)
		free(watched->expected[i].operation);
}

void watches_fini(struct replay *replay)
{
	struct watches *watches = &replay->watches;
	size_t i;

	for (i = 0; i < watches->count; i++)
		watched_fini(&watches->items[i]);
	free(watches->items);
	for (i = 0; i < watches->seen_count; i++)
		free(watches->seen[i]);
	free(watches->seen);
}

/* Outputs of an operator are others at each of its calls; what a program named lies where it is. */
static struct watched *find(struct watches *watches, const struct dump *dump)
{
	size_t i;

	for (i = 0; i < watches->count; i++) {
		struct watched *watched = &watches->items[i];

		if (watched->output == dump->output && watched->device == dump->context->device &&
		    (!dump->named || watched->address == dump->address) &&
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
	moment->stack = dump->stack;
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
	if (ARRAY_RESERVE(watches->items, watches->room, watches->count + 1) < 0)
		return -ENOMEM;
	watched = &watches->items[watches->count];
	*watched = (struct watched){.name = strdup(dump->watched),
				    .output = dump->output,
				    .device = dump->context->device,
				    .address = dump->named ? dump->address : 0};
	if (watched->name == NULL)
		return -ENOMEM;
	watches->count++;
	*out = watched;
	return 0;
}

static bool same_moment(const struct moment *a, const struct moment *b)
{
	return a->after == b->after && a->stack == b->stack &&
	       strcmp(a->operation, b->operation) == 0;
}

/* Adds a change that nobody declared, or counts it with the same one before. 0 or -ENOMEM. */
static int add_stray(struct replay *replay, struct watched *watched, const struct dump *dump)
{
	/* Which of the two counts is known at the end: a program may mark its first step late. What is before it is of step 1. */
	uint32_t marked = replay->steps.automatic ? 0 : replay_marked_step(replay, 0);
	uint32_t latest = steps_latest(&replay->steps);
	uint32_t step = marked == 0 && (replay->steps.automatic || latest == 0) ? 1 : marked;
	uint32_t automatic = replay->steps.automatic && latest > 0 ? latest : 1;
	/* Inside of an operator that declares other memory a kernel has no business here, whatever it was handed. */
	struct change change = {.handed = dump->handed && dump->inside == NULL,
				.bytes = dump->compared ? dump->stray_bytes : BYTES_SOME,
				.first = dump->first_stray,
				.last = dump->last_stray,
				.step = step,
				.last_step = step,
				.automatic = automatic,
				.last_automatic = automatic,
				.at = replay->watches.dumps,
				.times = 1};
	struct moment to = {.after = dump->after, .stack = dump->stack};
	size_t i;
	int r;

	/* Borrowed for the comparison. */
	to.operation = (char *)(uintptr_t)dump->operation;
	watched->unexpected++;
	for (i = 0; i < watched->stray_count; i++) {
		struct change *known = &watched->strays[i];

		if (known->handed == change.handed && same_moment(&known->from, &watched->last) &&
		    same_moment(&known->to, &to)) {
			known->times++;
			known->last_step = step;
			known->last_automatic = automatic;
			return 0;
		}
	}
	if (watched->stray_count == CHANGES_MAX)
		return 0;
	if (array_reserve(&watched->strays, &watched->stray_room, watched->stray_count + 1,
			  sizeof(change)) < 0)
		return -ENOMEM;
	r = moment_copy(&change.from, &watched->last);
	if (r == 0)
		r = moment_set(&change.to, dump);
	if (r == 0 && dump->inside != NULL && (change.inside = strdup(dump->inside)) == NULL)
		r = -ENOMEM;
	if (r < 0) {
		free(change.from.operation);
		free(change.to.operation);
		return r;
	}
	watched->strays[watched->stray_count++] = change;
	return 0;
}

static int add_expected(struct watched *watched, const char *operation, uint64_t times)
{
	size_t i;

	for (i = 0; i < watched->expected_count; i++) {
		if (strcmp(watched->expected[i].operation, operation) == 0) {
			watched->expected[i].times += times;
			return 0;
		}
	}
	if (watched->expected_count == EXPECTED_MAX)
		return 0;
	watched->expected[watched->expected_count].operation = strdup(operation);
	if (watched->expected[watched->expected_count].operation == NULL)
		return -ENOMEM;
	watched->expected[watched->expected_count++].times = times;
	return 0;
}

static int add_change(struct replay *replay, struct watched *watched, const struct dump *dump)
{
	int r = 0;

	if (watched->changes++ == 0) {
		r = moment_copy(&watched->from, &watched->last);
		if (r == 0)
			r = moment_set(&watched->to, dump);
	}
	if (r < 0)
		return r;
	if (!dump->compared || dump->stray_bytes > 0)
		return add_stray(replay, watched, dump);
	/* At the begin of a call it was who it is inside of, or one before it whose work went on. */
	return add_expected(watched,
			    dump->after		   ? dump->operation
			    : dump->inside != NULL ? dump->inside
						   : watched->last.operation,
			    1);
}

/* 0 or -ENOMEM. */
static int add_dump(struct replay *replay, const struct dump *dump)
{
	struct watches *watches = &replay->watches;
	struct watched *watched = find(watches, dump);
	int r = 0;

	watches->dumps++;
	if (watched == NULL) {
		r = add(watches, dump, &watched);
		if (watched == NULL)
			return r;
	} else if (!dump->first && (dump->compared ? dump->changed_bytes > 0
						   : watched->checksum != dump->checksum)) {
		r = add_change(replay, watched, dump);
	}
	watched->dumps++;
	watched->checksum = dump->checksum;
	watched->size_bytes = dump->size_bytes;
	return r < 0 ? r : moment_set(&watched->last, dump);
}

bool moments_are_one_call(const struct moment *from, const struct moment *to)
{
	return !from->after && to->after && from->tid == to->tid && from->number == to->number &&
	       strcmp(from->operation, to->operation) == 0;
}

/* Names of CUDA's kernels come as the compiler made them. */
static const char *readable(struct replay *replay, const char *name)
{
	struct strbuf text = {0};
	uint32_t offset = 0;
	int r;

	if (name == NULL || strncmp(name, "_Z", 2) != 0)
		return name;
	demangle_qualified(name, &text);
	r = strbuf_failed(&text) ? -ENOMEM
				 : texts_intern(&replay->texts, text.data, text.length, &offset);
	strbuf_fini(&text);
	return r < 0 ? name : texts_at(&replay->texts, offset + 1);
}

int watches_take_watch_dump(struct replay *replay, const struct trace_event *event)
{
	struct writer *writer = writers_get(&replay->writers, event->writer);
	struct event_watch_dump record;
	const char *operation;
	struct dump dump;
	int r;

	event_watch_dump_decode(event->words, &record);
	/* Before other texts are looked up, since these may move when one is added. */
	operation = readable(replay, texts_find(replay, event, record.name));
	dump = (struct dump){
		.time_ns = run_wall_ns(replay->setup.run, event->time_ns),
		.tid = event->tid,
		.context = replay_context(replay, definitions_context(replay, event)),
		.operation = operation,
		.number = record.number,
		.after = (record.flags & DUMP_AFTER) != 0,
		.first = (record.flags & DUMP_FIRST) != 0,
		.in_file = (record.flags & DUMP_IN_FILE) != 0,
		.watched = texts_find(replay, event, record.watched),
		.output = (uint32_t)record.output,
		.checksum = record.checksum,
		.size_bytes = record.size_bytes,
		.address = record.address,
		.stack = definitions_stack(replay, writer, record.stack),
		.named = (record.flags & DUMP_NAMED) != 0,
		.compared = (record.flags & DUMP_COMPARED) != 0,
		.handed = (record.flags & DUMP_HANDED) != 0,
		.changed_bytes = record.changed_bytes,
		.stray_bytes = record.stray_bytes,
		.first_stray = record.first_stray,
		.last_stray = record.last_stray,
		.inside = record.inside == 0 ? NULL : texts_find(replay, event, record.inside),
	};
	if (dump.operation == NULL || dump.watched == NULL) {
		replay->totals.oddities.bad_definitions++;
		return 0;
	}
	r = add_dump(replay, &dump);
	return r < 0 || replay->setup.dump == NULL
		       ? r
		       : replay->setup.dump(replay->setup.arg, replay, &dump);
}

int watches_take_watch_seen(struct replay *replay, const struct trace_event *event)
{
	struct watches *watches = &replay->watches;
	struct event_watch_seen seen;
	const char *name;
	size_t i;

	event_watch_seen_decode(event->words, &seen);
	name = texts_find(replay, event, seen.name);
	watches->start_ran = watches->start_ran || (seen.flags & SEEN_START) != 0;
	watches->end_ran = watches->end_ran || (seen.flags & SEEN_END) != 0;
	for (i = 0; name != NULL && i < watches->seen_count; i++) {
		if (strcmp(watches->seen[i], name) == 0)
			return 0;
	}
	if (name == NULL || watches->seen_count == SEEN_MAX)
		return 0;
	if (ARRAY_RESERVE(watches->seen, watches->seen_room, watches->seen_count + 1) < 0)
		return -ENOMEM;
	watches->seen[watches->seen_count] = strdup(name);
	if (watches->seen[watches->seen_count] == NULL)
		return -ENOMEM;
	watches->seen_count++;
	return 0;
}

const struct watches *replay_watches(const struct replay *replay)
{
	return &replay->watches;
}

/* ---- in a checkpoint ---- */

static int keep_moment(struct replay *replay, struct keeping *k, struct moment *moment)
{
	int r = keeping_string(replay, k, &moment->operation);

	KEEP(&k->words, moment->number);
	KEEP(&k->words, moment->tid);
	KEEP(&k->words, moment->after);
	moment->stack = keeping_stack(replay, k, moment->stack);
	return r;
}

static int keep_change(struct replay *replay, struct keeping *k, struct change *change)
{
	KEEP(&k->words, change->handed);
	KEEP(&k->words, change->bytes);
	KEEP(&k->words, change->first);
	KEEP(&k->words, change->last);
	KEEP(&k->words, change->step);
	KEEP(&k->words, change->automatic);
	KEEP(&k->words, change->at);
	KEEP(&k->words, change->times);
	KEEP(&k->words, change->last_step);
	KEEP(&k->words, change->last_automatic);
	if (keep_moment(replay, k, &change->from) < 0 || keep_moment(replay, k, &change->to) < 0 ||
	    keeping_string(replay, k, &change->inside) < 0)
		return -ENOMEM;
	k->words.failed |= change->from.operation == NULL || change->to.operation == NULL;
	return 0;
}

static int keep_changes(struct replay *replay, struct keeping *k, struct watched *w)
{
	size_t i;

	if (words_array(&k->words, &w->strays, &w->stray_count, &w->stray_room,
			sizeof(*w->strays)) < 0)
		return -ENOMEM;
	k->words.failed |= w->stray_count > CHANGES_MAX;
	for (i = 0; i < w->stray_count; i++) {
		if (keep_change(replay, k, &w->strays[i]) < 0)
			return -ENOMEM;
	}
	KEEP(&k->words, w->expected_count);
	if (w->expected_count > EXPECTED_MAX) {
		k->words.failed = true;
		w->expected_count = 0;
	}
	for (i = 0; i < w->expected_count; i++) {
		KEEP(&k->words, w->expected[i].times);
		if (keeping_string(replay, k, &w->expected[i].operation) < 0)
			return -ENOMEM;
		k->words.failed |= w->expected[i].operation == NULL;
	}
	return 0;
}

static int keep_watched(struct replay *replay, struct keeping *k, struct watched *w)
{
	KEEP(&k->words, w->output);
	KEEP(&k->words, w->device);
	KEEP(&k->words, w->size_bytes);
	KEEP(&k->words, w->address);
	KEEP(&k->words, w->dumps);
	KEEP(&k->words, w->changes);
	KEEP(&k->words, w->checksum);
	KEEP(&k->words, w->unexpected);
	if (keeping_string(replay, k, &w->name) < 0 || keep_moment(replay, k, &w->last) < 0 ||
	    keep_moment(replay, k, &w->from) < 0 || keep_moment(replay, k, &w->to) < 0)
		return -ENOMEM;
	k->words.failed |=
		w->name == NULL || w->last.operation == NULL ||
		(w->changes > 0 && (w->from.operation == NULL || w->to.operation == NULL));
	return keep_changes(replay, k, w);
}

static int keep_seen(struct replay *replay, struct keeping *k, struct watches *watches)
{
	size_t i;

	KEEP(&k->words, watches->start_ran);
	KEEP(&k->words, watches->end_ran);
	if (words_array(&k->words, &watches->seen, &watches->seen_count, &watches->seen_room,
			sizeof(*watches->seen)) < 0)
		return -ENOMEM;
	k->words.failed |= watches->seen_count > SEEN_MAX;
	for (i = 0; i < watches->seen_count; i++) {
		if (keeping_string(replay, k, &watches->seen[i]) < 0)
			return -ENOMEM;
		k->words.failed |= watches->seen[i] == NULL;
	}
	return 0;
}

int watches_keep(struct replay *replay, struct keeping *k)
{
	struct watches *watches = &replay->watches;
	size_t i;

	if (words_load(&k->words)) {
		watches_fini(replay);
		*watches = (struct watches){0};
	}
	KEEP(&k->words, watches->dumps);
	KEEP(&k->words, watches->more);
	if (keep_seen(replay, k, watches) < 0 ||
	    words_array(&k->words, &watches->items, &watches->count, &watches->room,
			sizeof(*watches->items)) < 0)
		return -ENOMEM;
	k->words.failed |= watches->count > WATCHES_MAX;
	for (i = 0; i < watches->count; i++) {
		if (keep_watched(replay, k, &watches->items[i]) < 0)
			return -ENOMEM;
	}
	if (k->words.failed) {
		watches_fini(replay);
		*watches = (struct watches){0};
	}
	return 0;
}
