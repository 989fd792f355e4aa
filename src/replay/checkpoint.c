/* SPDX-License-Identifier: Apache-2.0 */
#include "replay/checkpoint.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/array.h"
#include "replay/state.h"
#include "trace/record.h"
#include "trace/session.h"

#define BLOCK_BYTES (1u << 20)

struct record_builder {
	struct pack_writer *pack;
	struct strbuf records;
	uint32_t sequence;
	int error;
};

static void send(struct record_builder *b)
{
	struct pack_block meta = {.kind = PACK_CHUNK,
				  .raw_bytes = (uint32_t)b->records.length,
				  .writer = CHECKPOINT_WRITER,
				  .sequence = b->sequence++};

	if (b->error == 0 && strbuf_failed(&b->records))
		b->error = -ENOMEM;
	if (b->error == 0)
		b->error = pack_writer_put(b->pack, &meta, b->records.data);
	strbuf_reset(&b->records);
}

static void put(struct record_builder *b, uint32_t type, uint32_t context, uint64_t *words,
		uint32_t count)
{
	words[0] = record_word0(type, context, 0);
	strbuf_add(&b->records, words, count * 8);
}

/* Pads a variable record that begins at `at` and writes its length. */
static void close_variable(struct record_builder *b, size_t at)
{
	uint32_t bytes;

	while (b->records.length % 8 != 0)
		strbuf_add_char(&b->records, '\0');
	bytes = (uint32_t)(b->records.length - at);
	if (!strbuf_failed(&b->records))
		memcpy(b->records.data + at + 8, &bytes, sizeof(bytes));
	if (b->records.length >= BLOCK_BYTES)
		send(b);
}

static void put_modules(struct record_builder *b, const struct replay *replay)
{
	size_t i;

	for (i = 0; i < replay->definitions.modules.loaded_count; i++) {
		const struct module_info *info = &replay->definitions.modules.loaded[i]->info;
		struct event_module_load event = {.id = info->id,
						  .bias = info->bias,
						  .start = info->base,
						  .end = info->end,
						  .build_id_bytes = info->build_id_length,
						  .path_bytes = strlen(info->path)};
		uint64_t words[EVENT_BYTES_module_load / 8];
		size_t at = b->records.length;

		event_module_load_encode(words, &event);
		put(b, EVENT_module_load, 0, words, MSCOPE_COUNT(words));
		strbuf_add(&b->records, info->build_id, info->build_id_length);
		strbuf_add_str(&b->records, info->path);
		close_variable(b, at);
	}
}

static void put_as_writer(struct record_builder *b, uint32_t writer)
{
	struct event_as_writer event = {.writer = writer};
	uint64_t words[EVENT_BYTES_as_writer / 8];

	event_as_writer_encode(words, &event);
	put(b, EVENT_as_writer, 0, words, MSCOPE_COUNT(words));
}

static void put_context(struct record_builder *b, const struct context *context, uint64_t id)
{
	struct event_context_def event = {.id = id,
					  .pool = context->pool,
					  .kind = context->kind,
					  .page = context->page,
					  .vendor = context->vendor,
					  .device = context->device,
					  .module = context->module,
					  .flags = context->flags};
	uint64_t words[EVENT_BYTES_context_def / 8];

	event_context_def_encode(words, &event);
	put(b, EVENT_context_def, 0, words, MSCOPE_COUNT(words));
}

/* Functions of all stacks here have numbers of the checkpoint's own. */
static uint64_t code_number(uint32_t code)
{
	return (uint64_t)code + 1;
}

static void put_code(struct record_builder *b, const struct replay *replay, uint32_t index,
		     uint64_t id)
{
	struct code code = codes_get(&replay->definitions.codes, index);
	struct event_code_def event = {.id = id,
				       .first_line = code.first_line,
				       .minor = code.minor,
				       .file_bytes = code.file_bytes,
				       .name_bytes = code.name_bytes,
				       .table_bytes = code.table_bytes};
	uint64_t words[EVENT_BYTES_code_def / 8];
	size_t at = b->records.length;

	event_code_def_encode(words, &event);
	put(b, EVENT_code_def, 0, words, MSCOPE_COUNT(words));
	strbuf_add(&b->records, code.file, code.file_bytes);
	strbuf_add(&b->records, code.name, code.name_bytes);
	strbuf_add(&b->records, code.table, code.table_bytes);
	close_variable(b, at);
}

static void put_codes(struct record_builder *b, const struct replay *replay)
{
	uint32_t number, value, writer;
	uint32_t i;

	put_as_writer(b, 0);
	for (i = 0; i < replay->definitions.codes.count; i++)
		put_code(b, replay, i, code_number(i));
	for (writer = 1; writer < replay->writers.room; writer++) {
		const struct writer *w = replay->writers.all[writer];
		size_t cursor = 0;

		while (w != NULL && numbers_next(&w->codes, &cursor, &number, &value)) {
			put_as_writer(b, writer);
			put_code(b, replay, value, number);
		}
	}
}

static void put_stack(struct record_builder *b, const struct replay *replay, uint32_t stack,
		      uint64_t id)
{
	uint32_t count, i;
	const struct frame *frames = stacks_frames(&replay->definitions.stacks, stack, &count);
	uint32_t place_count;
	const struct python_place *places =
		stacks_places(&replay->definitions.stacks, stack, &place_count);
	struct event_stack_def event = {.id = id, .c_frames = count, .python_frames = place_count};
	uint64_t words[EVENT_BYTES_stack_def / 8];
	size_t at = b->records.length;

	event_stack_def_encode(words, &event);
	put(b, EVENT_stack_def, 0, words, MSCOPE_COUNT(words));
	for (i = 0; i < count; i++)
		strbuf_add(&b->records, &frames[i].address, 8);
	for (i = 0; i < place_count; i++) {
		uint64_t word = code_number(places[i].code) | (uint64_t)places[i].offset << 32;

		strbuf_add(&b->records, &word, 8);
	}
	close_variable(b, at);
}

static void put_text(struct record_builder *b, const char *text, uint64_t id)
{
	struct event_text_def event = {.id = id, .text_bytes = strlen(text)};
	uint64_t words[EVENT_BYTES_text_def / 8];
	size_t at = b->records.length;

	event_text_def_encode(words, &event);
	put(b, EVENT_text_def, 0, words, MSCOPE_COUNT(words));
	strbuf_add(&b->records, text, event.text_bytes);
	close_variable(b, at);
}

/* The threads and numbers that living writers go on using. */
static void put_numbers(struct record_builder *b, const struct replay *replay)
{
	uint32_t writer, number, value, i;

	for (writer = 1; writer < replay->writers.room; writer++) {
		struct event_thread event = {.tid = replay_writer_tid(replay, writer)};
		uint64_t words[EVENT_BYTES_thread / 8];

		if (event.tid == 0)
			continue;
		put_as_writer(b, writer);
		event_thread_encode(words, &event);
		put(b, EVENT_thread, 0, words, MSCOPE_COUNT(words));
		for (i = 0; i < TEXT_ONCE_SLOTS; i++) {
			const char *text = replay_text_once(replay, writer, TEXT_ONCE | i);

			if (text != NULL)
				put_text(b, text, TEXT_ONCE | i);
		}
	}
	for (writer = 1; writer < replay->writers.room; writer++) {
		const struct writer *w = replay->writers.all[writer];
		size_t cursor = 0;

		if (w == NULL)
			continue;
		put_as_writer(b, writer);
		while (numbers_next(&w->contexts, &cursor, &number, &value))
			put_context(b, replay_context(replay, value), number);
		cursor = 0;
		while (numbers_next(&w->texts, &cursor, &number, &value))
			put_text(b, texts_at(&replay->texts, value + 1), number);
		cursor = 0;
		while (numbers_next(&w->stacks, &cursor, &number, &value))
			put_stack(b, replay, value, number);
	}
}

/* What a pool had reserved, under the context that names the pool. */
static void put_total(struct record_builder *b, const struct replay *replay, uint32_t context)
{
	const struct context *wanted = &replay->definitions.contexts[context];
	uint64_t words[EVENT_BYTES_pool_total / 8];
	size_t i;

	for (i = 0; i < replay->usages.count; i++) {
		const struct usage *usage = &replay->usages.all[i];
		struct event_pool_total event = {.reserved_bytes = usage->reserved_bytes};

		if (usage->pool != wanted->pool || usage->device != wanted->device ||
		    usage->reserved_bytes == UINT64_MAX)
			continue;
		event_pool_total_encode(words, &event);
		put(b, EVENT_pool_total, context, words, MSCOPE_COUNT(words));
	}
}

static void put_label(struct record_builder *b, uint32_t context, uint64_t address, uint32_t text,
		      enum label_kind kind)
{
	struct event_label event = {.address = address, .text = text, .kind = kind};
	uint64_t words[EVENT_BYTES_label / 8];

	if (text == 0)
		return;
	event_label_encode(words, &event);
	put(b, EVENT_label, context, words, MSCOPE_COUNT(words));
}

/*
 * What makes owners of blocks, in the words of labels. A joined text is a label as good as its parts were. Texts have the
 * numbers that `owners` gave them, defined for the checkpoint's own writer.
 */
static void put_label_texts(struct record_builder *b, const struct replay *replay)
{
	const struct owners *owners = &replay->labels.owners;
	size_t at, i;
	struct strbuf joined = {0};

	put_as_writer(b, 0);
	for (at = 0; at < owners->texts.length; at += strlen(owners->texts.data + at) + 1)
		put_text(b, owners->texts.data + at, at + 1);
	for (i = 1; i < owners->count; i++) {
		if (owners->all[i].rest == 0)
			continue;
		strbuf_reset(&joined);
		strbuf_addf(&joined, "%s@%s", owners_part(owners, owners->all[i].user),
			    owners_part(owners, owners->all[i].rest));
		put_text(b, strbuf_str(&joined), owners->texts.length + 1 + i);
	}
	if (strbuf_failed(&joined))
		b->error = -ENOMEM;
	strbuf_fini(&joined);
}

static void put_open_labels(struct record_builder *b, const struct replay *replay)
{
	const struct owners *owners = &replay->labels.owners;
	uint32_t writer, depth;
	size_t i, label;

	for (i = 0; i < owners->thread_count; i++) {
		const struct owner_thread *thread = &owners->threads[i];

		for (writer = 1; writer < replay->writers.room; writer++) {
			if (replay_writer_tid(replay, writer) == thread->tid)
				break;
		}
		if (thread->label_count == 0 || writer >= replay->writers.room)
			continue;
		put_as_writer(b, writer);
		for (label = 0; label < thread->label_count; label++) {
			for (depth = 0; depth < thread->depths[label]; depth++)
				put_label(b, 0, 0, thread->labels[label], LABEL_PUSH);
		}
	}
}

static void put_owner(struct record_builder *b, const struct replay *replay,
		      const struct block *block, uint64_t key)
{
	const struct owners *owners = &replay->labels.owners;
	struct owner owner = {0};

	if (block->owner < owners->count)
		owner = owners->all[block->owner];
	put_label(b, block->context, key, owner.class, LABEL_MODEL);
	put_label(b, block->context, key,
		  owner.rest == 0 ? owner.user : (uint32_t)owners->texts.length + 1 + block->owner,
		  LABEL_TENSOR);
}

static void put_state(struct record_builder *b, uint32_t state)
{
	struct event_state event = {.state = state};
	uint64_t words[EVENT_BYTES_state / 8];

	event_state_encode(words, &event);
	put(b, EVENT_state, 0, words, MSCOPE_COUNT(words));
}

static void put_settings(struct record_builder *b, const struct replay *replay)
{
	uint64_t words[EVENT_BYTES_settings / 8];

	if (replay->windows.settings_count == 0)
		return;
	event_settings_encode(words, &replay->windows.settings);
	put(b, EVENT_settings, 0, words, MSCOPE_COUNT(words));
}

static void put_contexts(struct record_builder *b, const struct replay *replay)
{
	size_t i;

	put_as_writer(b, 0);
	for (i = 1; i < replay->definitions.context_count; i++) {
		put_context(b, &replay->definitions.contexts[i], i);
		put_total(b, replay, (uint32_t)i);
	}
}

/* Live blocks name contexts and stacks by our own indices, defined here for the checkpoint's own writer. */
static void put_blocks(struct record_builder *b, const struct replay *replay, bool shadows)
{
	struct map stacks_put = {0};
	const struct live_entry *slot;
	size_t cursor = 0;

	put_state(b, shadows ? RECORDING_SHADOW : RECORDING_ON);
	while ((slot = live_next(&replay->blocks.live, &cursor)) != NULL) {
		const struct block *block = &replay->blocks.all[slot->slot];
		struct event_live_block event = {.address = block->address,
						 .size_bytes = block->size_bytes,
						 .stack = block->stack,
						 .tid = block->tid,
						 .allocation_id = block->allocation_id,
						 .time_ns = block->time_ns,
						 .key = slot->key,
						 .step = block->latest_step,
						 .inside = block->alloc_step,
						 .launches = block->launches,
						 .outside = block->outside_window};
		uint64_t words[EVENT_BYTES_live_block / 8];
		struct map_key key = {block->stack, 0};

		if (block->hidden != shadows)
			continue;
		if (block->stack != 0 && map_get(&stacks_put, key) == NULL) {
			put_stack(b, replay, block->stack, block->stack);
			if (map_put(&stacks_put, key, 1) < 0)
				b->error = -ENOMEM;
		}
		event_live_block_encode(words, &event);
		put(b, EVENT_live_block, block->context, words, MSCOPE_COUNT(words));
		put_owner(b, replay, block, slot->key);
		if (b->records.length >= BLOCK_BYTES)
			send(b);
	}
	map_fini(&stacks_put);
}

int checkpoint_write(const char *path, const struct run *run, const struct replay *replay,
		     struct pack_writer **pack, struct mscope_error *err)
{
	struct event_checkpoint event = {.rows = replay->totals.rows,
					 .allocations = replay->totals.allocations,
					 .dropped = replay->totals.dropped_events +
						    replay->totals.events,
					 .time_ns = replay->totals.last_ns + 1,
					 .steps = replay->steps.begun,
					 .launches = replay->totals.launches,
					 .step_source = replay->steps.source};
	uint64_t words[EVENT_BYTES_checkpoint / 8];
	char temporary[SESSION_PATH_MAX + 80];
	struct record_builder b = {0};
	uint32_t bytes;
	const void *preamble = run_preamble(run, &bytes);
	int r;

	(void)snprintf(temporary, sizeof(temporary), "%s.new", path);
	(void)unlink(temporary);
	r = pack_writer_open(temporary, &b.pack, err);
	if (r < 0)
		return r;
	b.error = pack_writer_put(
		b.pack, &(struct pack_block){.kind = PACK_HEADER, .raw_bytes = bytes}, preamble);
	if (replay->steps.open_count > 0) {
		const struct open_step *open = &replay->steps.open[replay->steps.open_count - 1];

		event.open_step = open->step;
		event.open_range = open->range;
	}
	event_checkpoint_encode(words, &event);
	put(&b, EVENT_checkpoint, 0, words, MSCOPE_COUNT(words));
	put_modules(&b, replay);
	put_codes(&b, replay);
	put_numbers(&b, replay);
	put_label_texts(&b, replay);
	put_open_labels(&b, replay);
	put_contexts(&b, replay);
	put_blocks(&b, replay, true);
	put_blocks(&b, replay, false);
	put_state(&b, replay->windows.state);
	put_settings(&b, replay);
	send(&b);
	r = b.error;
	if (r == 0)
		r = pack_writer_renamed(b.pack, path);
	if (r == 0 && rename(temporary, path) < 0)
		r = -errno;
	strbuf_fini(&b.records);
	if (r < 0) {
		pack_writer_close(b.pack);
		(void)unlink(temporary);
		return error_set(err, r, "cannot write %s: %s", temporary, mscope_status_str(r));
	}
	pack_writer_close(*pack);
	*pack = b.pack;
	return 0;
}

int checkpoint_load_checkpoint(struct replay *replay, const struct trace_event *event)
{
	struct event_checkpoint checkpoint;
	struct steps *steps = &replay->steps;

	event_checkpoint_decode(event->words, &checkpoint);
	if (checkpoint.allocations > replay->totals.allocations)
		replay->totals.allocations = checkpoint.allocations;
	if (checkpoint.rows > replay->totals.rows)
		replay->totals.rows = checkpoint.rows;
	replay->totals.dropped_events = checkpoint.dropped;
	replay->checkpoint_ns = checkpoint.time_ns;
	replay->totals.launches = checkpoint.launches;
	steps->begun = (uint32_t)checkpoint.steps;
	steps->source = (uint8_t)checkpoint.step_source;
	steps->open_count = 0;
	if (checkpoint.open_step != 0 &&
	    array_reserve(&steps->open, &steps->open_room, 1, sizeof(*steps->open)) == 0) {
		steps->open[0] = (struct open_step){.range = checkpoint.open_range,
						    .step = (uint32_t)checkpoint.open_step};
		steps->open_count = 1;
	}
	return 0;
}
