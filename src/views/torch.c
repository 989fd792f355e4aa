/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A memory snapshot of PyTorch, for pytorch.org/memory_viz: the history of each device and the segments at its end, which is when the
 * program's own code ends. The viewer goes back from these segments through the history, so the two fit.
 *
 * Memory of the driver is a segment, memory of a pool an allocation. Driver memory that no pool took is both, because the viewer shows
 * nothing else. What has no address of its own (handles of expandable segments as we record them) is left out.
 *
 * CPU tensors of a run that has no memory of a device are those of device 0, each a segment and an allocation: no pool has them. In a
 * run with memory of devices they are left out, because the viewer knows no device without a number.
 */
#include "replay/facts.h"
#include "replay/figures.h"
#include "replay/ooms.h"
#include "views/torch_view.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/array.h"
#include "base/io.h"

static bool is_tensor(const struct torch_view *state, const struct context *context)
{
	return state->host_alone && context->pool == POOL_host;
}

uint32_t torch_device_of(const struct torch_view *state, const struct context *context)
{
	return is_tensor(state, context) ? 0 : context->device;
}

bool torch_is_segment(const struct torch_view *state, const struct context *context)
{
	return is_tensor(state, context) ||
	       (context->pool == POOL_hal && (state->is_snapshot || context->kind == BLOCK_ALLOC));
}

uint64_t torch_stream(const struct torch_view *state, const struct context *context)
{
	return state->is_snapshot ? context->flags : 0;
}

bool torch_is_raw(const struct torch_view *state, const struct context *context,
		  const struct block *block)
{
	uint64_t id = block->allocation_id;

	if (is_tensor(state, context))
		return true;
	return id / 8 < state->raw_bytes && (state->raw[id / 8] >> id % 8 & 1) != 0;
}

static int set_raw(struct torch_view *state, uint64_t id)
{
	size_t byte = id / 8;

	if (byte >= state->raw_bytes) {
		if (array_reserve(&state->raw, &state->raw_room, byte + 1, 1) < 0)
			return -ENOMEM;
		memset(state->raw + state->raw_bytes, 0, byte + 1 - state->raw_bytes);
		state->raw_bytes = byte + 1;
	}
	state->raw[byte] |= (uint8_t)(1u << id % 8);
	return 0;
}

/* Which of the two there is: a run of CPU tensors alone is shown as one of a device. */
static void see(struct torch_view *state, const struct context *context)
{
	if (context->device < TORCH_DEVICES_MAX)
		state->has_device = true;
	else if (context->pool == POOL_host)
		state->has_host = true;
}

static int torch_first_row(struct view *view, const struct row *row)
{
	if (row->kind == ROW_MALLOC || row->kind == ROW_FREE)
		see(view->state, row->context);
	if (row->kind != ROW_FREE || row->context->pool != POOL_hal || row->block->segment_of != 0)
		return 0;
	return set_raw(view->state, row->block->allocation_id);
}

/* ---- entries ---- */

static void put_key_int(struct pickle_part *part, const char *key, uint64_t value)
{
	pickle_put_text(part, key);
	pickle_put_int(part, value);
}

static void put_frame(struct pickle_part *part, const struct stack_line *line, struct strbuf *key)
{
	struct strbuf name = {0};
	const char *file = line->file != NULL	  ? line->file
			   : line->module != NULL ? line->module
						  : "??";
	uint32_t number = 0;

	/* What a snapshot has comes back as it is, also a frame without a name. */
	if (line->function == NULL || line->function[0] != '\0')
		view_frame_name(line, &name);
	strbuf_reset(key);
	strbuf_addf(key, "f%u\n%s\n%s", line->line, file, strbuf_str(&name));
	if (strbuf_failed(key) || strbuf_failed(&name)) {
		part->error = -ENOMEM;
	} else if (!pickle_recall(part, key->data, key->length, &number)) {
		pickle_begin_dict(part);
		pickle_put_text(part, "name");
		pickle_put_text(part, strbuf_str(&name));
		pickle_put_text(part, "filename");
		pickle_put_text(part, file);
		put_key_int(part, "line", line->line);
		pickle_end_dict(part);
		pickle_remember(part, number);
	}
	strbuf_fini(&name);
}

void torch_put_frames(const struct view *view, struct pickle_part *part, uint32_t stack)
{
	struct strbuf key = {0};
	uint32_t count, i, number = 0;
	const struct stack_line *lines = replay_stack_lines(view->first, stack, &count);

	strbuf_addf(&key, "l%u", count == 0 ? 0 : stack);
	if (!pickle_recall(part, strbuf_str(&key), key.length, &number)) {
		pickle_begin_list(part);
		for (i = 0; i < count; i++)
			put_frame(part, &lines[i], &key);
		pickle_end_list(part);
		pickle_remember(part, number);
	}
	strbuf_fini(&key);
}

/* The list of a device, made when the first entry comes. */
static struct torch_device *device_of(struct view *view, uint32_t number)
{
	struct torch_view *state = view->state;
	struct torch_device *d = &state->devices[number];

	if (!d->begun) {
		d->begun = true;
		d->part.spool = io_unnamed(state->directory);
		pickle_begin_part(&d->part);
	}
	if (number >= state->device_count)
		state->device_count = number + 1;
	return d;
}

static void put_entry(struct view *view, struct torch_device *d, const struct torch_pending *entry,
		      const char *address_key)
{
	struct pickle_part *part = &d->part;

	d->entries++;
	pickle_next(part);
	pickle_begin_dict(part);
	pickle_put_text(part, "action");
	pickle_put_text(part, entry->action);
	put_key_int(part, address_key, entry->address);
	put_key_int(part, "size", entry->size);
	put_key_int(part, "stream", entry->stream);
	put_key_int(part, "time_us", entry->time_us);
	if (entry->stack != 0) {
		pickle_put_text(part, "frames");
		torch_put_frames(view, part, entry->stack);
	}
	pickle_end_dict(part);
}

static void flush_pending(struct view *view, struct torch_device *d)
{
	if (d->pending.action == NULL)
		return;
	put_entry(view, d, &d->pending, "addr");
	d->pending.action = NULL;
}

static void add_entry(struct view *view, struct torch_device *d, struct torch_pending entry)
{
	flush_pending(view, d);
	put_entry(view, d, &entry, "addr");
}

/* A part of an expandable segment: one entry has all that come and go together. */
static void add_part(struct view *view, struct torch_device *d, struct torch_pending entry)
{
	struct torch_pending *p = &d->pending;

	if (p->action == entry.action && p->time_us == entry.time_us && p->stack == entry.stack &&
	    p->stream == entry.stream && p->address + p->size == entry.address) {
		p->size += entry.size;
		return;
	}
	flush_pending(view, d);
	*p = entry;
}

static void put_block(struct view *view, const struct row *row)
{
	struct torch_view *state = view->state;
	bool alloc = row->kind == ROW_MALLOC;
	struct torch_device *d;
	struct torch_pending entry = {.address = row->block->address,
				      .size = row->block->size_bytes,
				      .stream = torch_stream(state, row->context),
				      .time_us = row->time_ns / 1000,
				      .stack = row->stack};
	bool segment = torch_is_segment(state, row->context);
	bool raw = segment && torch_is_raw(state, row->context, row->block);
	uint32_t device = torch_device_of(state, row->context);

	/* What is older than the history is in the segments alone. */
	if (device >= TORCH_DEVICES_MAX || (row->context->pool == POOL_hal && !segment) ||
	    (alloc && row->shadow) ||
	    (is_tensor(state, row->context) && row->block->size_bytes == 0))
		return;
	d = device_of(view, device);
	if (segment && alloc) {
		entry.action = row->context->kind == BLOCK_CREATE ? "segment_map" : "segment_alloc";
		if (row->context->kind == BLOCK_CREATE)
			add_part(view, d, entry);
		else
			add_entry(view, d, entry);
	}
	if ((!segment || raw) && alloc) {
		entry.action = "alloc";
		add_entry(view, d, entry);
	} else if (!segment || raw) {
		entry.action = "free_requested";
		add_entry(view, d, entry);
		entry.action = "free_completed";
		add_entry(view, d, entry);
	}
	if (segment && !alloc) {
		entry.action =
			row->context->kind == BLOCK_CREATE ? "segment_unmap" : "segment_free";
		if (row->context->kind == BLOCK_CREATE)
			add_part(view, d, entry);
		else
			add_entry(view, d, entry);
	}
}

static void put_oom(struct view *view, const struct row *row)
{
	struct torch_view *state = view->state;
	struct torch_pending entry = {
		.action = "oom",
		.address = row->figures->free_bytes == UINT64_MAX ? 0 : row->figures->free_bytes,
		.size = row->oom->requested_bytes,
		.stream = torch_stream(state, row->context),
		.time_us = row->time_ns / 1000,
		.stack = row->oom->stack};
	struct torch_device *d;

	/* A request has two rows, one as it was first refused. */
	if (row->context->device >= TORCH_DEVICES_MAX || row->name == NULL ||
	    strcmp(row->name, OOM_SNAPSHOT_BEFORE) != 0)
		return;
	d = device_of(view, row->context->device);
	flush_pending(view, d);
	put_entry(view, d, &entry, "device_free");
}

/* ---- annotations ---- */

static void put_annotation(struct view *view, const struct row *row, const char *name, bool begins)
{
	struct torch_view *state = view->state;
	struct pickle_part *part = &state->annotations;

	pickle_next(part);
	pickle_begin_dict(part);
	pickle_put_text(part, "name");
	pickle_put_text(part, name);
	pickle_put_text(part, "stage");
	pickle_put_text(part, begins ? "START" : "END");
	put_key_int(part, "device",
		    row->context->device < TORCH_DEVICES_MAX ? row->context->device : 0);
	put_key_int(part, "time_us", row->time_ns / 1000);
	pickle_end_dict(part);
}

static int put_range(struct view *view, const struct row *row)
{
	struct torch_view *state = view->state;
	const char *text = row->name == NULL ? "" : row->name;
	uint64_t at;
	uint32_t number;
	bool new;
	int r = 0;

	if (row->kind == ROW_RANGE_START) {
		at = state->names.texts.length;
		r = interned_number(&state->names, text, strlen(text), &number, &new);
		if (r == 0 && !new)
			at = *map_get(&state->ranges, (struct map_key){number, 1});
		if (r == 0 && (map_put(&state->ranges, (struct map_key){number, 1}, at) < 0 ||
			       map_put(&state->ranges, (struct map_key){row->range, 0}, at) < 0))
			r = -ENOMEM;
		put_annotation(view, row, text, true);
	} else if (map_remove(&state->ranges, (struct map_key){row->range, 0}, &at)) {
		put_annotation(view, row, state->names.texts.data + at, false);
	}
	return r == 0 ? state->annotations.error : r;
}

/* ---- rows ---- */

static int torch_row(struct view *view, const struct row *row)
{
	struct torch_view *state = view->state;
	uint32_t device = torch_device_of(state, row->context);

	if (state->ended)
		return 0;
	if (row->kind == ROW_MALLOC || row->kind == ROW_FREE)
		put_block(view, row);
	else if (row->kind == ROW_SNAPSHOT && row->oom != NULL && row->figures != NULL)
		put_oom(view, row);
	else if ((row->kind == ROW_RANGE_START || row->kind == ROW_RANGE_END) && !state->ended)
		return put_range(view, row);
	if (device >= TORCH_DEVICES_MAX || !state->devices[device].begun)
		return 0;
	return state->devices[device].part.error;
}

/* empty_cache() lies between two entries of each device. */
static int put_empty_cache(struct view *view)
{
	struct torch_view *state = view->state;

	for (uint32_t i = 0; i < state->device_count; i++) {
		if (!state->devices[i].begun)
			continue;
		flush_pending(view, &state->devices[i]);
		if (ARRAY_RESERVE(state->empties, state->empty_room, state->empty_count + 1) < 0)
			return -ENOMEM;
		state->empties[state->empty_count++] =
			(struct torch_empty){i, state->devices[i].entries};
	}
	return 0;
}

static int torch_event(struct view *view, const struct trace_event *event)
{
	struct torch_view *state = view->state;
	struct event_pool_fact fact;

	if (event->type == EVENT_pool_fact && !state->ended) {
		event_pool_fact_decode(event->words, &fact);
		return fact.kind == POOL_FACT_EMPTY_CACHE ? put_empty_cache(view) : 0;
	}
	if (event->type == EVENT_ended)
		state->ended = replay_ended(view->replay) != END_NONE;
	return 0;
}

/* ---- the whole ---- */

static int torch_begin(struct view *view)
{
	struct torch_view *state = view->state;
	char *slash = strrchr(view->files[0].path, '/');
	const struct block *block;
	size_t cursor = 0, i;
	int r = 0;

	memcpy(state->directory, view->files[0].path, (size_t)(slash - view->files[0].path));
	state->is_snapshot = run_is_snapshot(replay_run(view->first));
	for (i = 0; i < TORCH_DEVICES_MAX; i++)
		state->devices[i].part = (struct pickle_part){.spool = -1, .memo = &state->memo};
	state->rest = state->annotations = (struct pickle_part){.spool = -1, .memo = &state->memo};
	state->annotations.spool = io_unnamed(state->directory);
	pickle_begin_part(&state->annotations);
	while (r == 0 && (block = replay_next_at_end(view->first, &cursor)) != NULL) {
		const struct context *context = replay_context(view->first, block->context);

		see(state, context);
		if (context->pool == POOL_hal && block->segment_of == 0)
			r = set_raw(state, block->allocation_id);
	}
	state->host_alone = state->has_host && !state->has_device;
	return r == 0 && !state->has_host && !state->has_device ? -ENODATA : r;
}

/* Appends a part to the file: what was spooled, then what is in memory. */
static int join(struct view *view, struct pickle_part *part)
{
	struct view_file *file = &view->files[0];
	char buffer[65536];
	uint64_t at;
	int r = part->error;

	for (at = 0; at < part->spooled && r == 0;) {
		size_t bytes = part->spooled - at < sizeof(buffer) ? (size_t)(part->spooled - at)
								   : sizeof(buffer);

		r = io_read_at(part->spool, buffer, bytes, at);
		if (r == 0)
			strbuf_add(&file->text, buffer, bytes);
		at += bytes;
		if (r == 0)
			r = view_flush(file);
	}
	strbuf_add(&file->text, strbuf_str(&part->text), part->text.length);
	strbuf_reset(&part->text);
	return r == 0 ? view_flush(file) : r;
}

/* What PyTorch's own snapshots lack and a replay of the pool needs (import/torch_history.c); only what is known. */
static void put_facts(const struct view *view, struct pickle_part *rest)
{
	const struct pool_facts *facts = replay_pool_facts(view->first);
	const struct torch_view *state = view->state;
	char text[64];

	if (facts->release != 0) {
		snprintf(text, sizeof(text), "%u.%u.%u", (unsigned)(facts->release >> 32),
			 (unsigned)(facts->release >> 16 & 0xffff),
			 (unsigned)(facts->release & 0xffff));
		pickle_put_text(rest, TORCH_KEY_RELEASE);
		pickle_put_text(rest, text);
	}
	if (facts->changed) {
		pickle_put_text(rest, TORCH_KEY_CHANGED);
		pickle_put_bool(rest, true);
	}
	if (facts->share_count > 0) {
		pickle_put_text(rest, TORCH_KEY_SHARES);
		pickle_begin_list(rest);
		for (size_t i = 0; i < facts->share_count; i++) {
			const struct pool_share *share = &facts->shares[i];

			snprintf(text, sizeof(text), "%.17g", share->fraction);
			pickle_begin_dict(rest);
			put_key_int(rest, "device", share->device);
			put_key_int(rest, "device_bytes", share->device_bytes);
			pickle_put_text(rest, "fraction");
			pickle_put_text(rest, share->fraction < 0 ? "" : text);
			pickle_put_text(rest, "late");
			pickle_put_bool(rest, share->late);
			pickle_end_dict(rest);
		}
		pickle_end_list(rest);
	}
	if (!facts->watched)
		return;
	pickle_put_text(rest, TORCH_KEY_EMPTY_CACHE);
	pickle_begin_list(rest);
	for (size_t i = 0; i < state->empty_count; i++) {
		pickle_begin_dict(rest);
		put_key_int(rest, "device", state->empties[i].device);
		put_key_int(rest, "entry", state->empties[i].entry);
		pickle_end_dict(rest);
	}
	pickle_end_list(rest);
}

static void put_settings(const struct view *view, struct pickle_part *rest)
{
	const struct pool_facts *facts = replay_pool_facts(view->first);
	bool npu = replay_vendor(view->first) == VENDOR_ASCEND;
	const char *settings = facts->settings_known || facts->settings[0] != '\0'
				       ? facts->settings
				       : run_torch_settings(replay_run(view->first), npu);

	pickle_put_text(rest, "allocator_settings");
	pickle_begin_dict(rest);
	pickle_put_text(rest, npu ? "PYTORCH_NPU_ALLOC_CONF" : "PYTORCH_CUDA_ALLOC_CONF");
	pickle_put_text(rest, settings);
	pickle_put_text(rest, "expandable_segments");
	pickle_put_bool(rest, strstr(settings, "expandable_segments:True") != NULL);
	put_facts(view, rest);
	pickle_end_dict(rest);
}

static int torch_end(struct view *view)
{
	struct torch_view *state = view->state;
	struct pickle_part *rest = &state->rest;
	uint32_t i;
	int r;

	strbuf_add(&rest->text, "\x80\x04", 2);
	pickle_begin_dict(rest);
	pickle_put_text(rest, "segments");
	r = torch_put_segments(view, rest);
	put_settings(view, rest);
	pickle_put_text(rest, "device_traces");
	pickle_begin_list(rest);
	if (r == 0)
		r = join(view, rest);
	for (i = 0; i < state->device_count && r == 0; i++) {
		flush_pending(view, device_of(view, i));
		pickle_end_part(&state->devices[i].part);
		r = join(view, &state->devices[i].part);
	}
	pickle_end_list(rest);
	pickle_put_text(rest, "external_annotations");
	if (r == 0)
		r = join(view, rest);
	pickle_end_part(&state->annotations);
	if (r == 0)
		r = join(view, &state->annotations);
	pickle_end_dict(rest);
	strbuf_add_char(&rest->text, '.');
	return r == 0 ? join(view, rest) : r;
}

static void torch_fini(struct view *view)
{
	struct torch_view *state = view->state;
	size_t i;

	/* Before torch_begin() descriptors are 0, and none of ours. */
	for (i = 0; i < TORCH_DEVICES_MAX && state->annotations.memo != NULL; i++)
		pickle_part_fini(&state->devices[i].part);
	if (state->annotations.memo != NULL) {
		pickle_part_fini(&state->annotations);
		pickle_part_fini(&state->rest);
	}
	free(state->raw);
	free(state->empties);
	map_fini(&state->ranges);
	interned_fini(&state->names);
}

const struct view_form view_torch = {
	.suffixes = {".pickle"},
	.state_bytes = sizeof(struct torch_view),
	.first_row = torch_first_row,
	.begin = torch_begin,
	.row = torch_row,
	.event = torch_event,
	.end = torch_end,
	.fini = torch_fini,
};
