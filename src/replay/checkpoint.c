/* SPDX-License-Identifier: Apache-2.0 */
#include "replay/checkpoint.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "replay/state.h"
#include "trace/pack.h"
#include "trace/session.h"

#define CHUNK_BYTES (1u << 20) /* of records in one chunk of a checkpoint */

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

static void save(const struct replay *replay, struct checkpoint *cp)
{
	static void (*const saves[])(const struct replay *replay, struct checkpoint *cp) = {
#define PART(init, fini, save) save,
#include "replay/parts.def"
#undef PART
	};
	size_t i;

	BUILDER_PUT(&cp->builder, checkpoint, 0, .rows = replay->totals.rows,
		    .allocations = replay->totals.allocations, .dropped = replay->totals.events,
		    .time_ns = replay->at.time_ns + 1, .steps = replay->steps.begun,
		    .launches = replay->totals.launches, .step_source = replay->steps.source,
		    .last_writer = replay->at.writer, .last_events = replay->at.events,
		    .other_noted = replay->steps.other_noted,
		    .last_sequence = replay->at.sequence + UINT64_C(1));
	for (i = 0; i < MSCOPE_COUNT(saves); i++) {
		if (saves[i] != NULL)
			saves[i](replay, cp);
	}
	if (replay->observer->save != NULL)
		replay->observer->save(replay->observer_arg, replay, &cp->builder);
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
	replay->loaded =
		(struct loaded){.time_ns = record.time_ns, .complete = record.last_events != 0};
	replay->steps.begun = (uint32_t)record.steps;
	replay->steps.source = (uint8_t)record.step_source;
	replay->steps.other_noted = record.other_noted != 0;
	if (replay->loaded.complete) {
		replay->at = (struct position){.time_ns = record.time_ns - 1,
					       .writer = (uint32_t)record.last_writer,
					       .events = (uint32_t)record.last_events,
					       .sequence = (uint32_t)record.last_sequence - 1};
		replay->loaded.at = replay->at;
		replay->loaded.has_sequence = record.last_sequence != 0;
	}
	/* An older form has the newest of the steps in progress alone. */
	return record.open_step == 0 || replay->loaded.complete
		       ? 0
		       : steps_open(replay, record.open_range, (uint32_t)record.open_step);
}

bool checkpoint_includes(struct loaded *loaded, const struct trace_event *event, bool definition)
{
	const struct position *at = &loaded->at;

	/* An older form does not have all definitions; those in chunks behind it are taken again. */
	if (!loaded->complete)
		return !definition;
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
