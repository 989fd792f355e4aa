/* SPDX-License-Identifier: Apache-2.0 */
#include "replay/checkpoint.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "replay/state.h"
#include "trace/pack.h"
#include "trace/session.h"

#define CHUNK_BYTES	(1u << 20) /* of records in one chunk of a checkpoint */
#define KEPT_BYTES_MAX	(1u << 20) /* of a state in one record */
#define KEPT_NAME_MAX	32u
#define CHECKPOINT_FORM 1u

/* ---- writing ---- */

void checkpoint_as_writer(struct checkpoint *cp, uint32_t writer)
{
	if (cp->as_writer == writer)
		return;
	cp->as_writer = writer;
	BUILDER_PUT(&cp->builder, as_writer, 0, .writer = writer);
}

uint32_t checkpoint_text(struct checkpoint *cp, const char *text)
{
	size_t length;

	if (text == NULL)
		return 0;
	length = strlen(text);
	BUILDER_BEGIN(&cp->builder, kept_text, 0, .id = ++cp->next_text, .text_bytes = length);
	builder_payload(&cp->builder, text, length);
	builder_end(&cp->builder);
	return cp->next_text;
}

uint32_t checkpoint_text_at(struct checkpoint *cp, const struct replay *replay, uint32_t offset)
{
	const uint64_t *known = map_get(&cp->texts, (struct map_key){offset, 0});
	uint32_t number;

	if (offset == 0 || known != NULL)
		return known == NULL ? 0 : (uint32_t)*known;
	number = checkpoint_text(cp, texts_at(&replay->texts, offset));
	if (map_put(&cp->texts, (struct map_key){offset, 0}, number) < 0)
		builder_fail(&cp->builder, -ENOMEM);
	return number;
}

void checkpoint_put_kept(struct checkpoint *cp, const char *name, uint32_t version,
			 const struct strbuf *state)
{
	size_t length = strlen(name), at = 0, bytes;
	char padded[KEPT_NAME_MAX] = "";

	(void)snprintf(padded, sizeof(padded), "%s", name);
	do {
		bytes = min_u64(state->length - at, KEPT_BYTES_MAX);
		BUILDER_BEGIN(&cp->builder, kept_part, 0, .name_bytes = length, .version = version,
			      .more = at + bytes < state->length);
		builder_payload(&cp->builder, padded, round_up_u64(length, 8));
		builder_payload(&cp->builder, strbuf_str(state) + at, bytes);
		builder_end(&cp->builder);
		at += bytes;
	} while (at < state->length);
}

/* The parts in order: some have records of their own, `save`; some have words, `keep`. */
static const struct part {
	void (*save)(const struct replay *replay, struct checkpoint *cp);
	int (*keep)(struct replay *replay, struct keeping *k);
	const char *name;
	uint32_t version;
} parts[] = {
#define PART(init, fini, save_) {.save = save_},
#define KEPT(part, version_)	{.keep = part##_keep, .name = #part, .version = version_},
#include "replay/parts.def"
#undef PART
#undef KEPT
};

static void save(struct replay *replay, struct checkpoint *cp)
{
	struct strbuf state = {0};
	size_t i;

	BUILDER_PUT(&cp->builder, checkpoint, 0, .rows = replay->totals.rows,
		    .allocations = replay->totals.allocations, .dropped = replay->totals.events,
		    .time_ns = replay->at.time_ns + 1, .steps = replay->steps.begun,
		    .launches = replay->totals.launches, .step_source = replay->steps.source,
		    .last_writer = replay->at.writer, .last_events = replay->at.events,
		    .other_noted = replay->steps.other_noted,
		    .last_sequence = replay->at.sequence + UINT64_C(1), .form = CHECKPOINT_FORM);
	for (i = 0; i < MSCOPE_COUNT(parts); i++) {
		struct keeping k = {.words = {.out = &state}, .cp = cp};

		if (parts[i].save != NULL)
			parts[i].save(replay, cp);
		if (parts[i].keep == NULL)
			continue;
		strbuf_reset(&state);
		builder_fail(&cp->builder, parts[i].keep(replay, &k));
		builder_fail(&cp->builder, strbuf_failed(&state) ? -ENOMEM : 0);
		checkpoint_put_kept(cp, parts[i].name, parts[i].version, &state);
	}
	if (replay->observer->save != NULL)
		replay->observer->save(replay->observer_arg, replay, cp);
	strbuf_fini(&state);
	builder_flush(&cp->builder);
}

int replay_checkpoint(struct replay *replay, const char *path, struct pack_writer **pack,
		      struct mscope_error *err)
{
	struct checkpoint cp = {
		.builder = {.writer = CHECKPOINT_WRITER, .chunk_bytes = CHUNK_BYTES}};
	char temporary[SESSION_PATH_MAX + 80];
	uint32_t bytes;
	int r;

	if (replay->at.events == 0)
		return 0; /* there is nothing to drop yet */
	/* Records must be as the event table in the trace says. */
	if (!run_adopt_layout(replay->setup.run))
		return error_set(err, MSCOPE_E_VERSION, "the trace is of another version");
	(void)snprintf(temporary, sizeof(temporary), "%s.new", path);
	(void)unlink(temporary);
	r = pack_writer_open(temporary, &cp.builder.pack, err);
	if (r < 0)
		return r;
	builder_fail(&cp.builder,
		     preamble_put(cp.builder.pack, run_preamble(replay->setup.run, &bytes)));
	save(replay, &cp);
	r = cp.builder.error;
	if (r == 0)
		r = pack_writer_renamed(cp.builder.pack, path);
	if (r == 0 && rename(temporary, path) < 0)
		r = -errno;
	if (r < 0) {
		pack_writer_close(cp.builder.pack);
		(void)unlink(temporary);
		(void)error_set(err, r, "cannot write %s: %s", temporary, mscope_status_str(r));
	} else {
		pack_writer_close(*pack);
		*pack = cp.builder.pack;
		replay->totals.dropped_events = replay->totals.events;
	}
	map_fini(&cp.texts);
	builder_fini(&cp.builder);
	return r;
}

/* ---- what parts refer to ---- */

uint32_t keeping_text(struct replay *replay, struct keeping *k, uint32_t offset)
{
	uint64_t id = words_next(
		&k->words, words_load(&k->words) ? 0 : checkpoint_text_at(k->cp, replay, offset));

	return words_load(&k->words) ? texts_offset(replay, k->event, id) : offset;
}

uint32_t keeping_stack(struct replay *replay, struct keeping *k, uint32_t stack)
{
	uint64_t id = words_next(&k->words, stack);

	return words_load(&k->words) ? definitions_stack(replay, replay->writers.checkpoint, id)
				     : stack;
}

int keeping_string(struct replay *replay, struct keeping *k, char **text)
{
	uint64_t id =
		words_next(&k->words, words_load(&k->words) ? 0 : checkpoint_text(k->cp, *text));
	const char *found;

	if (!words_load(&k->words))
		return 0;
	found = texts_find(replay, k->event, id);
	*text = found == NULL ? NULL : strdup(found);
	return found != NULL && *text == NULL ? -ENOMEM : 0;
}

/* ---- loading ---- */

int checkpoint_load_checkpoint(struct replay *replay, const struct trace_event *event)
{
	struct replay_totals *totals = &replay->totals;
	struct event_checkpoint record;

	event_checkpoint_decode(event->words, &record);
	if (record.allocations > totals->allocations)
		totals->allocations = record.allocations;
	if (record.rows > totals->rows)
		totals->rows = record.rows;
	totals->dropped_events = record.dropped;
	totals->launches = record.launches;
	replay->loaded.time_ns = record.time_ns;
	replay->loaded.complete = record.form == CHECKPOINT_FORM;
	replay->steps.begun = (uint32_t)record.steps;
	replay->steps.source = (uint8_t)record.step_source;
	replay->steps.other_noted = record.other_noted != 0;
	replay->at = (struct position){.time_ns = record.time_ns - 1,
				       .writer = (uint32_t)record.last_writer,
				       .events = (uint32_t)record.last_events,
				       .sequence = (uint32_t)record.last_sequence - 1};
	replay->loaded.at = replay->at;
	replay->loaded.has_sequence = record.last_sequence != 0;
	if (replay->loaded.complete)
		return 0;
	return notes_add(replay, "An older version cut this trace; figures count from the cut on.");
}

static int load_part(struct replay *replay, const struct trace_event *event,
		     const struct event_kept_part *kept, const char *name, struct words words)
{
	struct keeping k = {.words = words, .event = event};
	size_t i;
	int r;

	for (i = 0; i < MSCOPE_COUNT(parts); i++) {
		if (parts[i].name != NULL && strcmp(parts[i].name, name) == 0)
			break;
	}
	if (i == MSCOPE_COUNT(parts))
		return replay->observer->load == NULL
			       ? 0
			       : replay->observer->load(replay->observer_arg, replay, name,
							(uint32_t)kept->version, &words);
	r = parts[i].version == kept->version ? parts[i].keep(replay, &k) : 0;
	replay->totals.oddities.bad_definitions += k.words.failed;
	return r;
}

int checkpoint_load_kept_part(struct replay *replay, const struct trace_event *event)
{
	struct strbuf *before = &replay->loaded.kept;
	struct words words = {.at = event->payload};
	struct event_kept_part kept;
	char name[KEPT_NAME_MAX];
	size_t padded;
	int r;

	event_kept_part_decode(event->words, &kept);
	padded = round_up_u64(kept.name_bytes, 8);
	if (kept.name_bytes >= sizeof(name) || padded > event->payload_bytes) {
		replay->totals.oddities.bad_definitions++;
		return 0;
	}
	(void)snprintf(name, sizeof(name), "%.*s", (int)kept.name_bytes,
		       (const char *)event->payload);
	words.at += padded;
	words.left = event->payload_bytes - padded;
	if (kept.more || before->length > 0) {
		strbuf_add(before, words.at, words.left);
		words.at = (const uint8_t *)strbuf_str(before);
		words.left = before->length;
	}
	words.left /= sizeof(uint64_t);
	if (kept.more || strbuf_failed(before))
		return strbuf_failed(before) ? -ENOMEM : 0;
	r = load_part(replay, event, &kept, name, words);
	strbuf_fini(before);
	return r;
}

bool checkpoint_includes(struct loaded *loaded, const struct trace_event *event)
{
	const struct position *at = &loaded->at;

	if (event->time_ns != at->time_ns || event->writer != at->writer)
		return event->time_ns < at->time_ns || event->writer < at->writer;
	/* Chunks before that one may be gone or come once more. */
	if (loaded->has_sequence && event->sequence != at->sequence)
		return event->sequence < at->sequence;
	if (loaded->at.events == 0)
		return false;
	loaded->at.events--;
	return true;
}
