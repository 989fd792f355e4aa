/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The whole state of a replay as text, part by part, so that tests can compare two of them. What has no order of its own is
 * sorted; numbers that only mean something inside a replay (slots, offsets of texts) are shown by what they stand for.
 *
 * Only for tests: without memory the process ends.
 */
#ifndef MSCOPE_TESTS_REPLAY_TEXT_H
#define MSCOPE_TESTS_REPLAY_TEXT_H

#include <stdlib.h>
#include <string.h>

#include "replay/state.h"

/* Lines that are sorted before they are added. */
struct text_lines {
	struct strbuf text;
};

static inline int text_compare(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Appends the lines of `lines` in order, and empties it. */
static inline void text_add_sorted(struct strbuf *out, struct text_lines *lines)
{
	size_t count = 0, room = lines->text.length + 1, i;
	char **all = calloc(room, sizeof(*all));
	char *rest = NULL, *line;

	if (all == NULL)
		abort();
	for (line = lines->text.length == 0 ? NULL : strtok_r(lines->text.data, "\n", &rest);
	     line != NULL; line = strtok_r(NULL, "\n", &rest))
		all[count++] = line;
	qsort(all, count, sizeof(*all), text_compare);
	for (i = 0; i < count; i++)
		strbuf_addf(out, "%s\n", all[i]);
	free(all);
	strbuf_fini(&lines->text);
}

#define U(value) ((unsigned long long)(value))

static inline const char *text_or_none(const char *text)
{
	return text == NULL ? "(none)" : text;
}

static inline void text_totals(const struct replay *replay, struct strbuf *out)
{
	const struct replay_totals *t = &replay->totals;
	const struct replay_oddities *o = &t->oddities;
	size_t i;

	strbuf_addf(out,
		    "totals: events %llu rows %llu allocations %llu launches %llu threads %llu "
		    "first %llu last %llu windows %llu\n",
		    U(t->events), U(t->rows), U(t->allocations), U(t->launches), U(t->threads),
		    U(t->first_ns), U(t->last_ns), U(t->windows));
	for (i = 0; i < 256; i++) {
		if (t->events_by_type[i] != 0)
			strbuf_addf(out, "events of type %zu: %llu\n", i, U(t->events_by_type[i]));
	}
	for (i = 0; i < LAYER_END; i++)
		strbuf_addf(out, "operations of layer %zu: %llu\n", i, U(t->operations[i]));
	strbuf_addf(out, "oddities: %llu %llu %llu %llu %llu %llu %llu %llu %llu\n",
		    U(o->frees_unknown), U(o->allocs_over), U(o->undone_frees),
		    U(o->undone_unknown), U(o->contexts_unknown), U(o->stacks_unknown),
		    U(o->kernels_unknown), U(o->bad_definitions), U(o->operations_unpaired));
	for (i = 0; i < replay->notes.count; i++)
		strbuf_addf(out, "note: %s\n", replay->notes.all[i]);
	strbuf_addf(out, "at: %llu writer %u events %u\n", U(replay->at.time_ns), replay->at.writer,
		    replay->at.events);
}

static inline void text_windows(const struct replay *replay, struct strbuf *out)
{
	const struct event_settings *s = &replay->windows.settings;
	uint64_t words[EVENT_BYTES_settings / 8] = {0};
	size_t i;

	strbuf_addf(out, "state: %u, settings", replay->windows.state);
	event_settings_encode(words, s);
	for (i = 1; i < MSCOPE_COUNT(words); i++)
		strbuf_addf(out, " %llx", U(words[i]));
	strbuf_addf(out, "%s\n", replay->windows.settings_count > 0 ? "" : " (never)");
}

static inline void text_definitions(const struct replay *replay, struct strbuf *out)
{
	const struct definitions *d = &replay->definitions;
	const struct module *module;
	struct text_lines lines = {0};
	uint32_t i, k, count;
	size_t cursor = 0;

	for (i = 0; i < d->context_count; i++) {
		const struct context *c = &d->contexts[i];

		strbuf_addf(out, "context %u: %u %u %u %u %u %u %llx\n", i, c->pool, c->kind,
			    c->page, c->vendor, c->device, c->module, U(c->flags));
	}
	while ((module = replay_next_module(replay, &cursor)) != NULL)
		strbuf_addf(&lines.text, "module %llu: %llx-%llx %llx %s %zu %s\n",
			    U(module->info.id), U(module->info.base), U(module->info.end),
			    U(module->info.bias), module->info.path, module->info.build_id_length,
			    module->unloaded_ns == UINT64_MAX ? "loaded" : "gone");
	text_add_sorted(out, &lines);
	for (i = 0; i < d->codes.count; i++) {
		struct code code = codes_get(&d->codes, i);

		strbuf_addf(out, "code %u: 3.%u %.*s %.*s %u %u\n", i, code.minor,
			    (int)code.file_bytes, (const char *)code.file, (int)code.name_bytes,
			    (const char *)code.name, code.first_line, code.table_bytes);
	}
	for (i = 1; i < d->stacks.count; i++) {
		const uint32_t *frames = stacks_frames(&d->stacks, i, &count);
		const struct python_place *places;

		strbuf_addf(out, "stack %u:", i);
		for (k = 0; k < count; k++) {
			const struct frame *frame = stacks_frame(&d->stacks, frames[k]);

			strbuf_addf(out, " %llx@%llu", U(frame->address), U(frame->module));
		}
		places = stacks_places(&d->stacks, i, &count);
		for (k = 0; k < count; k++)
			strbuf_addf(out, " %u+%u", places[k].code, places[k].offset);
		strbuf_add_char(out, '\n');
	}
}

static inline void text_block(const struct replay *replay, const struct block *b,
			      struct strbuf *out)
{
	strbuf_addf(out,
		    "id %llu at %llx size %llu time %llu launches %llu context %u stack %u tid %u "
		    "steps %u %u owner %s undone %u%s%s%s",
		    U(b->allocation_id), U(b->address), U(b->size_bytes), U(b->time_ns),
		    U(b->launches), b->context, b->stack, b->tid, b->latest_step, b->alloc_step,
		    replay_owner_text(replay, b->owner), b->undone, b->hidden ? " hidden" : "",
		    b->outside_window ? " outside" : "", b->after_end ? " after the end" : "");
	if (b->requested_bytes != 0) {
		const struct pool_place *place = replay_place(replay, b->place);

		strbuf_addf(out, " asked %llu stream %llu private %u-%u", U(b->requested_bytes),
			    U(place->stream), place->private_first, place->private_second);
	}
}

static inline void text_numbers(const char *what, const struct numbers *numbers,
				const struct texts *texts, struct strbuf *out)
{
	struct text_lines lines = {0};
	uint32_t number, value;
	size_t cursor = 0;

	while (numbers_next(numbers, &cursor, &number, &value)) {
		if (texts != NULL)
			strbuf_addf(&lines.text, "  %s %u: %s\n", what, number,
				    texts_at(texts, value + 1));
		else
			strbuf_addf(&lines.text, "  %s %u: %u\n", what, number, value);
	}
	text_add_sorted(out, &lines);
}

static inline void text_writer(const struct replay *replay, const struct writer *w,
			       struct strbuf *out)
{
	size_t i;

	if (w->tid != 0 || w->device != 0)
		strbuf_addf(out, "  thread %u device %u\n", w->tid, w->device);
	text_numbers("context", &w->contexts, NULL, out);
	text_numbers("stack", &w->stacks, NULL, out);
	text_numbers("code", &w->codes, NULL, out);
	text_numbers("text", &w->texts, &replay->texts, out);
	for (i = 0; i < TEXT_ONCE_SLOTS; i++) {
		if (w->once[i].data != NULL)
			strbuf_addf(out, "  once %zu: %s\n", i, w->once[i].data);
	}
	for (i = 0; i < w->recent.count; i++) {
		const struct recent_free *f = &w->recent.all[(w->recent.first + i) % RECENT_FREES];

		strbuf_addf(out, "  freed %llx space %u ", U(f->key), f->space);
		if (f->slot != UNDO_NO_BLOCK)
			text_block(replay, &replay->blocks.all[f->slot], out);
		strbuf_add_char(out, '\n');
	}
	for (i = 0; i < w->operations.count; i++) {
		const struct open_operation *o = &w->operations.open[i];

		strbuf_addf(out, "  operation %u %llu %s %llu\n", o->layer, U(o->number),
			    text_or_none(texts_at(&replay->texts, o->name)), U(o->time_ns));
	}
}

static inline const struct owner_thread *text_owner_thread(const struct owners *owners,
							   uint32_t tid)
{
	const uint64_t *known = map_get(&owners->by_tid, (struct map_key){tid, 0});

	return known == NULL ? NULL : &owners->threads[*known];
}

static inline void text_writers(const struct replay *replay, struct strbuf *out)
{
	const struct owner_thread *thread;
	struct strbuf one = {0};
	size_t i, k;

	for (i = 1; i < replay->writers.room; i++) {
		const struct writer *w = replay->writers.all[i];

		strbuf_reset(&one);
		if (w != NULL)
			text_writer(replay, w, &one);
		thread = w == NULL ? NULL : text_owner_thread(&replay->labels.owners, w->tid);
		for (k = 0; thread != NULL && k < thread->label_count; k++)
			strbuf_addf(&one, "  label %s %u\n",
				    owners_part(&replay->labels.owners, thread->labels[k]),
				    thread->depths[k]);
		/* One that was only asked for is as good as none. */
		if (one.length > 0)
			strbuf_addf(out, "writer %zu\n%s", i, one.data);
	}
	strbuf_fini(&one);
}

static inline void text_memory(const struct replay *replay, struct strbuf *out)
{
	struct text_lines lines = {0};
	const struct live_entry *entry;
	size_t i, cursor = 0;

	for (i = 0; i < replay->usages.count; i++) {
		const struct usage *u = &replay->usages.all[i];

		strbuf_addf(out,
			    "usage of pool %u device %u: live %llu in %llu peak %llu at %llu "
			    "allocated %llu in %llu freed %llu reserved %llx at most %llx "
			    "vendor %u highest %llu\n",
			    u->pool, u->device, U(u->live_bytes), U(u->live_blocks),
			    U(u->peak_bytes), U(u->peak_time_ns), U(u->allocated_bytes),
			    U(u->allocations), U(u->frees), U(u->reserved_bytes),
			    U(u->peak_reserved_bytes), u->vendor, U(u->highest_bytes));
		strbuf_addf(out,
			    "told %u %u %u: %llu of %llu asked for, waiting %llu in %llu, %llu; "
			    "segments %llu, private %llu %llu\n",
			    u->detailed, u->all_segments, u->private_unknown, U(u->requested_bytes),
			    U(u->detailed_bytes), U(u->waiting_bytes), U(u->waiting_blocks),
			    U(u->waiting_requested_bytes), U(u->segment_bytes), U(u->private_bytes),
			    U(u->private_live_bytes));
	}
	for (i = 0; i < replay->pool_details.segment_count; i++) {
		const struct pool_segment *segment = &replay->pool_details.segments[i];
		const struct pool_place *place = replay_place(replay, segment->place);

		strbuf_addf(out, "segment %llx size %llu usage %u stream %llu private %u-%u%s\n",
			    U(segment->address), U(segment->size_bytes), segment->usage,
			    U(place->stream), place->private_first, place->private_second,
			    segment->driver_space != 0 ? " driver" : "");
	}
	for (i = 0; i < replay->usages.driver_count; i++) {
		const struct driver_usage *d = &replay->usages.drivers[i];

		strbuf_addf(out, "driver of device %u: %llx %llx %llx\n", d->device,
			    U(d->process_bytes), U(d->device_bytes), U(d->total_bytes));
	}
	for (i = 0; i < replay->labels.owners.count; i++)
		strbuf_addf(out, "owner %zu: %s of %s\n", i, replay_owner_text(replay, (uint32_t)i),
			    replay_owner_layer(replay, (uint32_t)i));
	while ((entry = live_next(&replay->blocks.live, &cursor)) != NULL) {
		strbuf_addf(&lines.text, "block %llx space %u ",
			    U(live_key(&replay->blocks, entry->slot)),
			    replay->blocks.all[entry->slot].space);
		text_block(replay, &replay->blocks.all[entry->slot], &lines.text);
		strbuf_add_char(&lines.text, '\n');
	}
	text_add_sorted(out, &lines);
}

/* What lived when the program's own code ended. */
static inline void text_ending(const struct replay *replay, struct strbuf *out)
{
	struct text_lines lines = {0};
	const struct block *block;
	size_t cursor = 0, count = 0, i;

	strbuf_addf(out, "end: %u at %llu behind %llu allocations\n", replay->ending.kind,
		    U(replay->ending.time_ns), U(replay->ending.allocations));
	for (i = 0; i < replay->usages.count && replay->ending.kind != 0; i++)
		strbuf_addf(out, "usage %zu at the end: %llu in %llu\n", i,
			    U(replay->usages.all[i].end_bytes),
			    U(replay->usages.all[i].end_blocks));
	while ((block = replay_next_at_end(replay, &cursor)) != NULL) {
		count++;
		strbuf_add_str(&lines.text, "at the end ");
		text_block(replay, block, &lines.text);
		strbuf_add_char(&lines.text, '\n');
	}
	if (count != replay_count_at_end(replay))
		abort();
	text_add_sorted(out, &lines);
}

static inline void text_progress(const struct replay *replay, struct strbuf *out)
{
	const struct steps *steps = &replay->steps;
	const struct kernels *k = &replay->kernels;
	struct text_lines lines = {0};
	const struct map_slot *slot;
	size_t i, cursor = 0;

	strbuf_addf(out, "steps: %u begun, source %u%s\n", steps->begun, steps->source,
		    steps->other_noted ? ", other noted" : "");
	if (steps->automatic)
		strbuf_addf(out, "steps of optimizers: %u begun, %u open\n", steps->automatic_begun,
			    steps->automatic_open);
	for (i = 0; i < steps->open_count; i++)
		strbuf_addf(out, "step %u range %llx\n", steps->open[i].step,
			    U(steps->open[i].range));
	while ((slot = map_next(&k->launches, &cursor)) != NULL)
		strbuf_addf(&lines.text, "launch %llx %llx: %s %u\n", U(slot->key.a),
			    U(slot->key.b),
			    text_or_none(texts_at(&replay->texts, (uint32_t)(slot->value >> 32))),
			    (uint32_t)slot->value);
	cursor = 0;
	while ((slot = map_next(&k->steps, &cursor)) != NULL)
		strbuf_addf(&lines.text, "launch %llx %llx in step %llu\n", U(slot->key.a),
			    U(slot->key.b), U(slot->value));
	text_add_sorted(out, &lines);
	for (i = 0; i < k->older_count; i++)
		strbuf_addf(
			out, "older launch %llx %llx: %s %u until %llu in step %u\n",
			U(k->older[i].key.a), U(k->older[i].key.b),
			text_or_none(texts_at(&replay->texts, (uint32_t)(k->older[i].value >> 32))),
			(uint32_t)k->older[i].value, U(k->older[i].replaced_ns), k->older[i].step);
	for (i = 0; i < k->clock_count; i++) {
		const struct device_clock *clock = &k->clocks[i];

		strbuf_addf(
			out,
			"clock %u at %llu is %llu at %llu Hz, before %llu %llu, first %llu %llu\n",
			clock->device, U(clock->latest.time_ns), U(clock->latest.counter),
			U(clock->frequency_hz), U(clock->before.time_ns), U(clock->before.counter),
			U(clock->first.time_ns), U(clock->first.counter));
	}
}

static inline void text_slices(const struct replay *replay, const char *what,
			       const struct call_slice *slices, size_t count, struct strbuf *out)
{
	size_t i;

	for (i = 0; i < count; i++)
		strbuf_addf(out, "  %s %llu %s %u %u %u %u\n", what, U(slices[i].start_ns),
			    text_or_none(texts_at(&replay->texts, slices[i].text)), slices[i].code,
			    slices[i].at, slices[i].kind, slices[i].open_at_start);
}

static inline void text_calls(const struct replay *replay, struct strbuf *out)
{
	size_t i;

	for (i = 1; i < replay->calls.thread_room; i++) {
		const struct call_thread *t = &replay->calls.threads[i];

		if (t->open_count + t->range_count == 0)
			continue;
		strbuf_addf(out, "calls of writer %zu, thread %u\n", i, t->tid);
		text_slices(replay, "call", t->open, t->open_count, out);
		text_slices(replay, "range", t->ranges, t->range_count, out);
	}
}

static inline void text_moment(const char *what, const struct moment *m, struct strbuf *out)
{
	strbuf_addf(out, "  %s %s %llu %u %u\n", what, text_or_none(m->operation), U(m->number),
		    m->tid, m->after);
}

static inline void text_changes(const struct watched *w, struct strbuf *out)
{
	size_t i;

	strbuf_addf(out, "  at %llx, unexpected %llu, last stack %u\n", U(w->address),
		    U(w->unexpected), w->last.stack);
	for (i = 0; i < w->stray_count; i++) {
		const struct change *c = &w->strays[i];

		strbuf_addf(
			out,
			"  change %llu at %llu: %llu bytes %llu-%llu, step %u-%u, %u %u %u %s\n",
			U(c->times), U(c->at), U(c->bytes), U(c->first), U(c->last), c->step,
			c->last_step, c->handed, c->from.stack, c->to.stack,
			text_or_none(c->inside));
		text_moment("from", &c->from, out);
		text_moment("to", &c->to, out);
	}
	for (i = 0; i < w->expected_count; i++)
		strbuf_addf(out, "  expected %s %llu\n", w->expected[i].operation,
			    U(w->expected[i].times));
}

static inline void text_watches(const struct replay *replay, struct strbuf *out)
{
	size_t i;

	strbuf_addf(out, "dumps: %llu, %llu more, %zu seen, %u %u\n", U(replay->watches.dumps),
		    U(replay->watches.more), replay->watches.seen_count, replay->watches.start_ran,
		    replay->watches.end_ran);
	for (i = 0; i < replay->watches.seen_count; i++)
		strbuf_addf(out, "  seen %s\n", replay->watches.seen[i]);
	for (i = 0; i < replay->watches.count; i++) {
		const struct watched *w = &replay->watches.items[i];

		strbuf_addf(out, "watched %s %u %u: %llu %llu %llu %llx\n", w->name, w->output,
			    w->device, U(w->size_bytes), U(w->dumps), U(w->changes),
			    U(w->checksum));
		text_moment("last", &w->last, out);
		text_moment("from", &w->from, out);
		text_moment("to", &w->to, out);
		text_changes(w, out);
	}
}

static inline void text_pool_facts(const struct replay *replay, struct strbuf *out)
{
	const struct pool_facts *facts = &replay->pool_facts;

	strbuf_addf(out, "pool facts: %llx %u '%s' %u %u\n", U(facts->release),
		    facts->settings_known, facts->settings, facts->changed, facts->watched);
	for (size_t i = 0; i < facts->share_count; i++)
		strbuf_addf(out, "  share %u %g %llu %u\n", facts->shares[i].device,
			    facts->shares[i].fraction, U(facts->shares[i].device_bytes),
			    facts->shares[i].late);
}

static inline void text_keepers(const struct replay *replay, struct strbuf *out)
{
	size_t i, k;

	for (i = 0; i < replay->keepers.count; i++) {
		const struct keeper *keeper = &replay->keepers.all[i];

		strbuf_addf(out, "keeper %llx %llu stack %u on %u:%u steps %u %u: %llu %u %u",
			    U(keeper->address), U(keeper->size_bytes), keeper->stack, keeper->pool,
			    keeper->device, keeper->newest_step, keeper->step, U(keeper->items),
			    keeper->held, keeper->looked);
		for (k = 0; k < KEEPER_TEXTS; k++)
			strbuf_addf(out, " '%s'", keeper->texts[k]);
		strbuf_add_char(out, '\n');
	}
}

static inline void replay_text(const struct replay *replay, struct strbuf *out)
{
	text_totals(replay, out);
	text_windows(replay, out);
	text_definitions(replay, out);
	text_writers(replay, out);
	text_memory(replay, out);
	text_pool_facts(replay, out);
	text_ending(replay, out);
	text_progress(replay, out);
	text_calls(replay, out);
	text_watches(replay, out);
	text_keepers(replay, out);
	if (strbuf_failed(out))
		abort();
}

#undef U

#endif
