/* SPDX-License-Identifier: Apache-2.0 */
#include "replay/replay.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "replay/state.h"
#include "trace/pack.h"
#include "trace/session.h"

#define RECENT_FREES 4

/*
 * Frees whose undo may still come: a free and its undo are neighbours but for events of a signal handler between them. A free
 * of an address that nobody had stands here too, with allocation_id 0: its undo must not bring back an older block.
 */
struct replay_writer {
	struct block recent[RECENT_FREES];
	uint8_t recent_space[RECENT_FREES]; /* 0: empty slot */
	uint8_t next;
	uint32_t tid;
	uint32_t device;	      /* first one that the thread used, + 1; 0: none so far */
	struct operations operations; /* that its thread is inside of */
	struct strbuf once[TEXT_ONCE_SLOTS]; /* texts that are not kept, by number */
};

static void remember_free(struct replay_writer *writer, uint8_t space, const struct block *block)
{
	int i;

	for (i = 0; i < RECENT_FREES; i++) {
		if (writer->recent_space[i] == space && writer->recent[i].address == block->address)
			writer->recent_space[i] = 0;
	}
	writer->recent[writer->next] = *block;
	writer->recent_space[writer->next] = space;
	writer->next = (uint8_t)((writer->next + 1) % RECENT_FREES);
}

static int publish_call(void *arg, const struct call_row *row)
{
	struct replay *replay = arg;

	return replay->setup.call(replay->setup.arg, replay, row);
}

int replay_new(const struct replay_setup *setup, struct replay **out)
{
	struct replay *replay = calloc(1, sizeof(*replay));
	const void *frames;
	size_t bytes;

	if (replay == NULL)
		return -ENOMEM;
	replay->setup = *setup;
	replay->state = run_header(setup->run)->first_state;
	if (replay->state == 0)
		replay->state = RECORDING_ON;
	replay->calls = (struct calls){.texts = &replay->texts.bytes,
				       .codes = &replay->codes,
				       .code_ids = &replay->code_ids,
				       .row = setup->call == NULL ? NULL : publish_call,
				       .row_arg = replay};
	modules_init(&replay->modules, setup->elves);
	stacks_init(&replay->stacks, &replay->modules, setup->root);
	frames = run_frames(setup->run, &bytes);
	stacks_load(&replay->stacks, frames, bytes);
	*out = replay;
	return 0;
}

void replay_free(struct replay *replay)
{
	size_t i, slot;

	if (replay == NULL)
		return;
	for (i = 0; i < replay->note_count; i++)
		free(replay->notes[i]);
	free(replay->notes);
	calls_fini(&replay->calls);
	stacks_fini(&replay->stacks);
	modules_fini(&replay->modules);
	map_fini(&replay->context_ids);
	map_fini(&replay->stack_ids);
	codes_fini(&replay->codes);
	map_fini(&replay->code_ids);
	free(replay->places);
	map_fini(&replay->live);
	free(replay->contexts);
	free(replay->blocks);
	free(replay->free_slots);
	free(replay->usages);
	free(replay->drivers);
	free(replay->clocks);
	texts_fini(&replay->texts);
	map_fini(&replay->text_ids);
	map_fini(&replay->launches);
	map_fini(&replay->launch_steps);
	owners_fini(&replay->owners);
	free(replay->open_steps);
	for (i = 0; i < replay->writer_room; i++) {
		operations_fini(&replay->writers[i].operations);
		for (slot = 0; slot < TEXT_ONCE_SLOTS; slot++)
			strbuf_fini(&replay->writers[i].once[slot]);
	}
	watches_fini(&replay->watches);
	free(replay->writers);
	ranges_fini(&replay->ranges);
	free(replay);
}

void replay_set_facts(struct replay *replay, struct facts *facts)
{
	replay->setup.facts = facts;
}

void replay_observe(struct replay *replay, const struct replay_observer *observer, void *arg)
{
	replay->observer = observer;
	replay->observer_arg = arg;
}

void replay_show_owners(struct replay *replay, bool show)
{
	replay->show_owners = show;
}

const struct context *replay_context(const struct replay *replay, uint32_t context)
{
	static const struct context unknown = {.device = DEVICE_UNKNOWN, .module = MODULE_UNKNOWN};

	return context < replay->context_count ? &replay->contexts[context] : &unknown;
}

/* ---- definitions ---- */

static struct replay_writer *writer_at(struct replay *replay, uint32_t writer)
{
	size_t before = replay->writer_room;

	/* Writer numbers are dense in a real trace; a damaged one must not make us allocate for them all. */
	if (writer > 65536)
		return NULL;
	if (array_reserve(&replay->writers, &replay->writer_room, (size_t)writer + 1,
			  sizeof(*replay->writers)) < 0)
		return NULL;
	if (replay->writer_room > before)
		memset(replay->writers + before, 0,
		       (replay->writer_room - before) * sizeof(*replay->writers));
	return &replay->writers[writer];
}

/* Whose numbers a definition is about. */
static uint32_t definer(const struct replay *replay, const struct trace_event *event)
{
	return event->writer == CHECKPOINT_WRITER && replay->as_writer != 0 ? replay->as_writer
									    : event->writer;
}

static int define_context(struct replay *replay, const struct trace_event *event)
{
	struct event_context_def def;
	struct context context;
	size_t i;
	int r;

	event_context_def_decode(event->words, &def);
	if (replay->context_count == 0) {
		r = array_reserve(&replay->contexts, &replay->context_room, 1,
				  sizeof(*replay->contexts));
		if (r < 0)
			return r;
		replay->contexts[replay->context_count++] = *replay_context(replay, UINT32_MAX);
	}
	memset(&context, 0, sizeof(context));
	context.pool = def.pool < POOL_END ? (uint8_t)def.pool : POOL_UNKNOWN;
	context.kind = (uint8_t)def.kind;
	context.page = (uint8_t)def.page;
	context.vendor = (uint8_t)def.vendor;
	context.device = (uint32_t)def.device;
	context.module = (uint32_t)def.module;
	context.flags = def.flags;
	for (i = 1; i < replay->context_count; i++) {
		if (memcmp(&replay->contexts[i], &context, sizeof(context)) == 0)
			break;
	}
	if (i == replay->context_count) {
		r = array_reserve(&replay->contexts, &replay->context_room, i + 1,
				  sizeof(*replay->contexts));
		if (r < 0)
			return r;
		replay->contexts[replay->context_count++] = context;
	}
	return map_put(&replay->context_ids, (struct map_key){definer(replay, event), def.id}, i);
}

static int define_code(struct replay *replay, const struct trace_event *event)
{
	struct event_code_def def;
	struct code code;
	uint32_t index;
	int r;

	event_code_def_decode(event->words, &def);
	if (def.file_bytes + def.name_bytes + def.table_bytes > event->payload_bytes) {
		replay->totals.oddities.bad_definitions++;
		return 0;
	}
	code = (struct code){.minor = (uint32_t)def.minor,
			     .first_line = (uint32_t)def.first_line,
			     .file = event->payload,
			     .name = event->payload + def.file_bytes,
			     .table = event->payload + def.file_bytes + def.name_bytes,
			     .file_bytes = (uint32_t)def.file_bytes,
			     .name_bytes = (uint32_t)def.name_bytes,
			     .table_bytes = (uint32_t)def.table_bytes};
	r = codes_intern(&replay->codes, &code, &index);
	if (r < 0)
		return r;
	return map_put(&replay->code_ids, (struct map_key){definer(replay, event), def.id}, index);
}

static int define_stack(struct replay *replay, const struct trace_event *event)
{
	struct event_stack_def def;
	size_t i, places = 0;
	uint32_t stack;
	int r;

	event_stack_def_decode(event->words, &def);
	if ((def.c_frames + def.python_frames) * 8 > event->payload_bytes) {
		replay->totals.oddities.bad_definitions++;
		return 0;
	}
	r = array_reserve(&replay->places, &replay->place_room, def.python_frames,
			  sizeof(*replay->places));
	if (r < 0)
		return r;
	for (i = 0; i < def.python_frames; i++) {
		const uint64_t *code;
		uint64_t word;

		memcpy(&word, event->payload + (def.c_frames + i) * 8, 8);
		/* Inside a checkpoint too, functions are numbered by the one who wrote this. */
		code = map_get(&replay->code_ids,
			       (struct map_key){event->writer, word & UINT32_MAX});
		if (code == NULL) {
			replay->totals.oddities.bad_definitions++;
			continue;
		}
		replay->places[places++] = (struct python_place){.code = (uint32_t)*code,
								 .offset = (uint32_t)(word >> 32)};
	}
	r = stacks_intern(&replay->stacks, event->payload, def.c_frames, replay->places, places,
			  &stack);
	if (r < 0)
		return r;
	return map_put(&replay->stack_ids, (struct map_key){definer(replay, event), def.id}, stack);
}

static int define_module(struct replay *replay, const struct trace_event *event)
{
	struct event_module_load def;
	struct module_info info = {0};
	struct module *module;
	char path[65536];
	int r;

	event_module_load_decode(event->words, &def);
	if (def.build_id_bytes + def.path_bytes > event->payload_bytes) {
		replay->totals.oddities.bad_definitions++;
		return 0;
	}
	memcpy(path, event->payload + def.build_id_bytes, def.path_bytes);
	path[def.path_bytes] = '\0';
	info = (struct module_info){.id = def.id,
				    .base = def.start,
				    .end = def.end,
				    .bias = def.bias,
				    .path = path,
				    .build_id = event->payload,
				    .build_id_length = def.build_id_bytes};
	r = modules_load(&replay->modules, &info, event->time_ns, &module);
	if (r == -ENOMEM)
		return r;
	if (r < 0)
		replay->totals.oddities.bad_definitions++;
	else if (replay->stacks.root != NULL)
		(void)module_pin(module, replay->stacks.root);
	return 0;
}

static int take_note(struct replay *replay, const struct trace_event *event)
{
	struct event_note note;
	char *text;
	int r;

	event_note_decode(event->words, &note);
	if (note.text_bytes > event->payload_bytes) {
		replay->totals.oddities.bad_definitions++;
		return 0;
	}
	r = array_reserve(&replay->notes, &replay->note_room, replay->note_count + 1,
			  sizeof(*replay->notes));
	if (r < 0)
		return r;
	text = strndup((const char *)event->payload, note.text_bytes);
	if (text == NULL)
		return -ENOMEM;
	replay->notes[replay->note_count++] = text;
	return 0;
}

static int add_note(struct replay *replay, const char *format, ...) MSCOPE_PRINTF(2, 3);
static int add_note(struct replay *replay, const char *format, ...)
{
	char text[256];
	va_list args;
	int r;

	r = array_reserve(&replay->notes, &replay->note_room, replay->note_count + 1,
			  sizeof(*replay->notes));
	if (r < 0)
		return r;
	va_start(args, format);
	(void)vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	replay->notes[replay->note_count] = strdup(text);
	if (replay->notes[replay->note_count] == NULL)
		return -ENOMEM;
	replay->note_count++;
	return 0;
}

/* ---- blocks ---- */

/*
 * Which blocks an address can be confused with: a driver's block and a framework's may share it, a handle and an address too.
 * The driver's pools are one space, because a free does not say which of them it means.
 */
static uint8_t space_of(const struct context *context)
{
	uint8_t pool = context->pool == POOL_host_pinned ? POOL_hal : context->pool;

	return (uint8_t)(pool << 4 | (context->kind & 0xf));
}

static uint32_t find_context(struct replay *replay, const struct trace_event *event)
{
	uint64_t *known =
		map_get(&replay->context_ids, (struct map_key){event->writer, event->context});

	if (known == NULL) {
		replay->totals.oddities.contexts_unknown++;
		return 0;
	}
	if (event->writer < replay->writer_room && replay->writers[event->writer].device == 0 &&
	    replay->contexts[*known].device < DEVICE_HOST)
		replay->writers[event->writer].device = replay->contexts[*known].device + 1;
	return (uint32_t)*known;
}

static uint32_t find_stack(struct replay *replay, const struct trace_event *event, uint64_t id)
{
	uint64_t *known;

	if (id == 0)
		return 0;
	known = map_get(&replay->stack_ids, (struct map_key){event->writer, id});
	if (known == NULL) {
		replay->totals.oddities.stacks_unknown++;
		return 0;
	}
	return (uint32_t)*known;
}

/* The driver's memory is a total itself; a framework's pool has one, which is 0 until it says more. */
bool pool_is_driver(uint8_t pool)
{
	return pool == POOL_hal || pool == POOL_host_pinned || pool == POOL_host ||
	       pool == POOL_UNKNOWN;
}

static struct usage *usage_at(struct replay *replay, const struct context *context)
{
	size_t i;

	for (i = 0; i < replay->usage_count; i++) {
		if (replay->usages[i].pool == context->pool &&
		    replay->usages[i].device == context->device)
			return &replay->usages[i];
	}
	if (array_reserve(&replay->usages, &replay->usage_room, i + 1, sizeof(*replay->usages)) < 0)
		return NULL;
	replay->usages[i] =
		(struct usage){.pool = context->pool,
			       .device = context->device,
			       .reserved_bytes = pool_is_driver(context->pool) ? UINT64_MAX : 0};
	replay->usage_count++;
	return &replay->usages[i];
}

static int slot_take(struct replay *replay, uint32_t *out_slot)
{
	int r;

	if (replay->free_count > 0) {
		*out_slot = replay->free_slots[--replay->free_count];
		return 0;
	}
	r = array_reserve(&replay->blocks, &replay->block_room, replay->block_count + 1,
			  sizeof(*replay->blocks));
	/* Room to give every slot back is made now, so that giving back cannot fail. */
	if (r == 0)
		r = array_reserve(&replay->free_slots, &replay->free_room, replay->block_count + 1,
				  sizeof(*replay->free_slots));
	if (r == 0)
		*out_slot = (uint32_t)replay->block_count++;
	return r;
}

static struct driver_usage *driver_at(struct replay *replay, uint32_t device)
{
	size_t i;

	for (i = 0; i < replay->driver_count; i++) {
		if (replay->drivers[i].device == device)
			return &replay->drivers[i];
	}
	return NULL;
}

/* The step that what happens now lies in, 0: in none. */
static uint32_t step_now(const struct replay *replay)
{
	return replay->open_step_count == 0 ? 0
					    : replay->open_steps[replay->open_step_count - 1].step;
}

/* The step that began last; the one that is open may not be counted yet, because nobody said that it began. */
static uint32_t step_of_now(const struct replay *replay)
{
	uint32_t open = step_now(replay);

	return open > replay->steps ? open : replay->steps;
}

static void tell_step(struct replay *replay, uint32_t step, bool begins)
{
	if (replay->observer != NULL && replay->observer->step != NULL)
		replay->observer->step(replay->observer_arg, replay, step, begins);
}

/* Hands out a row that is filled but for what all rows have. */
static int give(struct replay *replay, const struct trace_event *event, struct row *row)
{
	row->id = replay->totals.rows++;
	if (row->time_ns == 0)
		row->time_ns = run_wall_ns(replay->setup.run, event->time_ns);
	row->pid = run_header(replay->setup.run)->pid;
	row->tid = event->tid;
	row->writer = event->writer;
	if (row->step == 0 && !row->late)
		row->step = step_now(replay);
	if (replay->observer != NULL && replay->observer->row != NULL)
		replay->observer->row(replay->observer_arg, replay, row);
	return replay->setup.row == NULL ? 0 : replay->setup.row(replay->setup.arg, replay, row);
}

/* What an earlier pass learned about the owner counts more than what is known when the block comes. */
static const char *owner_text(const struct replay *replay, const struct block *block)
{
	uint32_t later = replay->setup.known == NULL
				 ? 0
				 : facts_get(replay->setup.known, block->allocation_id).owner;
	const char *text;

	if (!replay->show_owners)
		return NULL;
	text = later != 0 && replay->setup.known->owners != NULL
		       ? owners_text(replay->setup.known->owners, later)
		       : owners_text(&replay->owners, block->owner);
	return text[0] == '\0' ? NULL : text;
}

static struct row block_row(struct replay *replay, enum row_kind kind, const struct block *block,
			    const struct usage *usage, uint32_t stack, bool shadow)
{
	const struct driver_usage *driver = driver_at(replay, usage->device);

	return (struct row){
		.kind = kind,
		.context = replay_context(replay, block->context),
		.block = block,
		.address = block->address,
		.owner = kind == ROW_MALLOC ? owner_text(replay, block) : NULL,
		.inefficient =
			kind == ROW_MALLOC && replay->setup.known != NULL
				? facts_get(replay->setup.known, block->allocation_id).inefficient
				: 0,
		.used_bytes = usage->live_bytes,
		.reserved_bytes = usage->reserved_bytes,
		.process_bytes = driver == NULL ? UINT64_MAX : driver->process_bytes,
		.device_bytes = driver == NULL ? UINT64_MAX : driver->device_bytes,
		.stack = stack,
		.shadow = shadow,
	};
}

static int emit(struct replay *replay, enum row_kind kind, const struct trace_event *event,
		const struct block *block, const struct usage *usage, uint32_t stack, bool shadow)
{
	struct row row = block_row(replay, kind, block, usage, stack, shadow);

	return give(replay, event, &row);
}

/* A handle is no address: nothing can be found inside such a block. */
static bool block_has_address(const struct context *context)
{
	return context->kind != BLOCK_CREATE;
}

static int range_add(struct replay *replay, uint32_t slot)
{
	const struct block *block = &replay->blocks[slot];
	const struct context *context = replay_context(replay, block->context);

	return block_has_address(context) ? ranges_insert(&replay->ranges, context->pool,
							  context->device, block->address, slot)
					  : 0;
}

static void range_drop(struct replay *replay, uint32_t slot)
{
	const struct block *block = &replay->blocks[slot];
	const struct context *context = replay_context(replay, block->context);

	if (block_has_address(context))
		ranges_remove(&replay->ranges, context->pool, context->device, block->address,
			      slot);
}

/* Sorts the blocks that live now; from then on block_insert() and block_remove() keep them sorted. */
static int sort_blocks(struct replay *replay)
{
	const struct map_slot *slot;
	size_t cursor = 0;
	int r = 0;

	while (r == 0 && (slot = map_next(&replay->live, &cursor)) != NULL)
		r = range_add(replay, (uint32_t)slot->value);
	if (r < 0)
		ranges_fini(&replay->ranges);
	else
		replay->ranged = true;
	return r;
}

const struct block *replay_block_at(struct replay *replay, uint32_t device, uint64_t address)
{
	const struct block *best = NULL;
	bool best_is_driver = true;
	size_t i;

	if (!replay->ranged && sort_blocks(replay) < 0)
		return NULL;
	for (i = 0; i < replay->ranges.lane_count; i++) {
		const struct lane *lane = &replay->ranges.lanes[i];
		bool driver = lane->pool == POOL_hal || lane->pool == POOL_host_pinned;
		const struct block *block;
		uint32_t slot;

		if (device != DEVICE_UNKNOWN && lane->device != device)
			continue;
		if (!lane_below(lane, address, &slot))
			continue;
		block = &replay->blocks[slot];
		/* A block without a size has at least its first byte. */
		if (address != block->address && address - block->address >= block->size_bytes)
			continue;
		if (best == NULL || driver < best_is_driver ||
		    (driver == best_is_driver && block->size_bytes < best->size_bytes)) {
			best = block;
			best_is_driver = driver;
		}
	}
	return best;
}

static void tell_block(struct replay *replay, enum block_change change, const struct block *block,
		       const struct usage *usage, uint32_t owner)
{
	if (replay->observer != NULL && replay->observer->block != NULL)
		replay->observer->block(replay->observer_arg, replay, change, block, usage, owner);
}

/* Adds a block that lives from now on, found by `key`: its address, or its handle. Emits nothing. */
static int block_insert(struct replay *replay, uint8_t space, uint64_t key,
			const struct block *block, struct usage *usage)
{
	uint32_t slot = 0;
	int r = slot_take(replay, &slot);

	if (r == 0)
		r = map_put(&replay->live, (struct map_key){space, key}, slot);
	if (r < 0)
		return r;
	replay->blocks[slot] = *block;
	if (MSCOPE_UNLIKELY(replay->ranged) && range_add(replay, slot) < 0)
		return -ENOMEM;
	usage->live_bytes += block->size_bytes;
	usage->live_blocks++;
	if (usage->live_bytes > usage->peak_bytes) {
		usage->peak_bytes = usage->live_bytes;
		usage->peak_time_ns = block->time_ns;
	}
	tell_block(replay, BLOCK_ADDED, block, usage, block->owner);
	return 0;
}

/* Takes a block out of the live ones; false when there is none. */
static bool block_remove(struct replay *replay, uint8_t space, uint64_t address, struct block *out)
{
	uint64_t slot;

	if (!map_remove(&replay->live, (struct map_key){space, address}, &slot))
		return false;
	if (MSCOPE_UNLIKELY(replay->ranged))
		range_drop(replay, (uint32_t)slot);
	*out = replay->blocks[slot];
	replay->free_slots[replay->free_count++] = (uint32_t)slot;
	return true;
}

static void usage_release(struct replay *replay, struct usage *usage, const struct block *block)
{
	tell_block(replay, BLOCK_REMOVED, block, usage, block->owner);
	usage->live_bytes -=
		block->size_bytes < usage->live_bytes ? block->size_bytes : usage->live_bytes;
	usage->live_blocks -= usage->live_blocks > 0;
}

static int take_alloc(struct replay *replay, const struct trace_event *event, uint64_t key,
		      uint64_t address, uint64_t size_bytes, uint64_t stack)
{
	struct block old, block = {
				  .address = address,
				  .size_bytes = size_bytes,
				  .time_ns = event->time_ns,
				  .context = find_context(replay, event),
				  .stack = find_stack(replay, event, stack),
				  .tid = event->tid,
				  .latest_step = step_of_now(replay),
				  .alloc_step = step_now(replay),
				  .launches = replay->totals.launches,
				  .hidden = replay->state != RECORDING_ON,
				  .outside_window = replay->state != RECORDING_ON,
			  };
	const struct context *context = replay_context(replay, block.context);
	uint8_t space = space_of(context);
	struct usage *usage = usage_at(replay, context);
	int r;

	if (usage == NULL)
		return -ENOMEM;
	if (replay->decompose) {
		r = owners_of(&replay->owners, context, event->tid,
			      replay_operation(replay, event->writer, LAYER_ATEN) != NULL,
			      &block.owner);
		if (r < 0)
			return r;
	}
	if (MSCOPE_UNLIKELY(block_remove(replay, space, key, &old))) {
		/* The address is handed out again, so it was given back in a way that nobody could see. */
		struct usage *before = usage_at(replay, replay_context(replay, old.context));

		replay->totals.oddities.allocs_over++;
		if (before == NULL)
			return -ENOMEM;
		usage_release(replay, before, &old);
		r = old.hidden ? 0 : emit(replay, ROW_FREE, event, &old, before, 0, true);
		if (r < 0)
			return r;
		usage = usage_at(replay, context);
	}
	block.allocation_id = ++replay->totals.allocations;
	r = block_insert(replay, space, key, &block, usage);
	if (r < 0)
		return r;
	usage->allocations++;
	usage->allocated_bytes += size_bytes;
	return block.hidden ? 0
			    : emit(replay, ROW_MALLOC, event, &block, usage, block.stack, false);
}

/* Whether it is odd that a free finds no block. Host memory that was registered and not pinned has none. */
static bool free_is_odd(const struct context *context)
{
	return context->kind != BLOCK_REGISTER;
}

static int take_free(struct replay *replay, const struct trace_event *event, uint64_t address,
		     uint64_t stack)
{
	const struct context *context = replay_context(replay, find_context(replay, event));
	struct replay_writer *writer = writer_at(replay, event->writer);
	uint8_t space = space_of(context);
	struct usage *usage;
	struct block block;

	if (writer == NULL)
		return 0;
	if (!block_remove(replay, space, address, &block)) {
		replay->totals.oddities.frees_unknown += free_is_odd(context);
		remember_free(writer, space, &(struct block){.address = address});
		return 0;
	}
	usage = usage_at(replay, replay_context(replay, block.context));
	if (usage == NULL)
		return -ENOMEM;
	if (replay->setup.known != NULL &&
	    block.undone < facts_get(replay->setup.known, block.allocation_id).undone_frees) {
		/* An earlier pass saw this free fail: it did not happen. The undo that follows finds nothing to do. */
		block.undone++;
		replay->totals.oddities.undone_frees++;
		usage_release(replay, usage, &block);
		return block_insert(replay, space, address, &block, usage);
	}
	remember_free(writer, space, &block);
	usage_release(replay, usage, &block);
	usage->frees++;
	/* Outside of windows a block that a window has shown still ends when it ends. */
	return block.hidden ? 0
			    : emit(replay, ROW_FREE, event, &block, usage,
				   find_stack(replay, event, stack), replay->state != RECORDING_ON);
}

static int take_undo(struct replay *replay, const struct trace_event *event)
{
	const struct context *context = replay_context(replay, find_context(replay, event));
	struct replay_writer *writer = writer_at(replay, event->writer);
	struct event_block_free_undo undo;
	uint8_t space = space_of(context);
	int i;

	event_block_free_undo_decode(event->words, &undo);
	for (i = 0; writer != NULL && i < RECENT_FREES; i++) {
		struct block *block = &writer->recent[i];
		struct usage *usage;
		struct fact *fact;

		if (block->address != undo.address || writer->recent_space[i] != space)
			continue;
		writer->recent_space[i] = 0;
		replay->totals.oddities.undone_frees++;
		if (block->allocation_id == 0) {
			/* The driver did not know the address either. */
			replay->totals.oddities.frees_unknown -= free_is_odd(context);
			return 0;
		}
		usage = usage_at(replay, replay_context(replay, block->context));
		if (usage == NULL)
			return -ENOMEM;
		block->undone++;
		usage->frees -= usage->frees > 0;
		if (replay->setup.facts != NULL) {
			fact = facts_at(replay->setup.facts, block->allocation_id);
			if (fact != NULL) {
				fact->undone_frees = block->undone;
				replay->setup.facts->changed = true;
			}
		}
		return block_insert(replay, space, block->address, block, usage);
	}
	replay->totals.oddities.undone_unknown++;
	return 0;
}

/* A block that lived when older records were dropped: it comes back as it was, without a row. */
static int take_live_block(struct replay *replay, const struct trace_event *event)
{
	struct trace_event own = *event;
	struct event_live_block live;
	struct block block;
	const struct context *context;
	struct usage *usage;

	/* Contexts and stacks are named by the numbers of the writer that the block came from. */
	own.writer = definer(replay, event);
	event_live_block_decode(event->words, &live);
	block = (struct block){
		.address = live.address,
		.size_bytes = live.size_bytes,
		.allocation_id = live.allocation_id,
		.time_ns = live.time_ns,
		.context = find_context(replay, &own),
		.stack = find_stack(replay, &own, live.stack),
		.tid = (uint32_t)live.tid,
		.latest_step = (uint32_t)live.step,
		.alloc_step = (uint32_t)live.inside,
		.launches = live.launches,
		.hidden = replay->state != RECORDING_ON,
		.outside_window = live.outside != 0,
	};
	context = replay_context(replay, block.context);
	if (replay->decompose && owners_of(&replay->owners, context, 0, false, &block.owner) < 0)
		return -ENOMEM;
	usage = usage_at(replay, context);
	if (usage == NULL)
		return -ENOMEM;
	if (map_get(&replay->live, (struct map_key){space_of(context), live.key}) != NULL)
		return 0;
	usage->allocations++;
	usage->allocated_bytes += block.size_bytes;
	return block_insert(replay, space_of(context), live.key, &block, usage);
}

/* ---- everything that is no block ---- */

/* The place of a text that is not kept, NULL when the number is none of these. */
static struct strbuf *text_once(const struct replay *replay, uint32_t writer, uint64_t id)
{
	if (!(id & TEXT_ONCE) || (id & ~(uint64_t)TEXT_ONCE) >= TEXT_ONCE_SLOTS ||
	    writer >= replay->writer_room)
		return NULL;
	return &replay->writers[writer].once[id & ~(uint64_t)TEXT_ONCE];
}

const char *replay_text_once(const struct replay *replay, uint32_t writer, uint64_t id)
{
	const struct strbuf *text = text_once(replay, writer, id);

	return text == NULL ? NULL : text->data;
}

/* Memory does not grow with such texts. */
static int define_text_once(struct replay *replay, const struct trace_event *event,
			    const struct event_text_def *def)
{
	uint32_t writer = definer(replay, event);
	struct strbuf *text;

	(void)writer_at(replay, writer);
	text = text_once(replay, writer, def->id);
	if (text == NULL) {
		replay->totals.oddities.bad_definitions++;
		return 0;
	}
	strbuf_reset(text);
	strbuf_add(text, event->payload, def->text_bytes);
	return strbuf_failed(text) ? -ENOMEM : 0;
}

/* Keeps the texts that something to come may name: by a number that a writer gave, or because it has begun and not ended. */
static int sweep_texts(struct replay *replay)
{
	const struct map_slot *slot;
	struct texts_sweep sweep;
	size_t cursor = 0, i, k;

	texts_sweep_begin(&sweep, &replay->texts);
	while ((slot = map_next(&replay->text_ids, &cursor)) != NULL)
		*map_get(&replay->text_ids, slot->key) = texts_keep(&sweep, slot->value);
	cursor = 0;
	while ((slot = map_next(&replay->launches, &cursor)) != NULL)
		*map_get(&replay->launches, slot->key) =
			(texts_keep(&sweep, (slot->value >> 32) - 1) + 1) << 32 |
			(uint32_t)slot->value;
	for (i = 0; i < replay->writer_room; i++) {
		struct operations *operations = &replay->writers[i].operations;

		for (k = 0; k < operations->count; k++) {
			uint64_t *name = &operations->open[k].name;

			*name = *name == 0 ? 0 : texts_keep(&sweep, *name - 1) + 1;
		}
	}
	calls_keep_texts(&replay->calls, &sweep);
	return texts_sweep_end(&sweep);
}

static int define_text(struct replay *replay, const struct trace_event *event)
{
	struct event_text_def def;
	uint64_t offset;
	int r;

	event_text_def_decode(event->words, &def);
	if (def.text_bytes > event->payload_bytes) {
		replay->totals.oddities.bad_definitions++;
		return 0;
	}
	if (def.id & TEXT_ONCE)
		return define_text_once(replay, event, &def);
	r = texts_want_sweep(&replay->texts) ? sweep_texts(replay) : 0;
	if (r == 0)
		r = texts_intern(&replay->texts, event->payload, def.text_bytes, &offset);
	if (r < 0)
		return r;
	return map_put(&replay->text_ids, (struct map_key){definer(replay, event), def.id}, offset);
}

/* Offset of a text + 1; 0 when the record has none. */
static uint64_t find_text(const struct replay *replay, const struct trace_event *event, uint64_t id)
{
	uint64_t *known =
		id == 0 ? NULL : map_get(&replay->text_ids, (struct map_key){event->writer, id});

	return known == NULL ? 0 : *known + 1;
}

static const char *text_at(const struct replay *replay, uint64_t offset)
{
	return offset == 0 ? NULL : replay->texts.bytes.data + offset - 1;
}

static int open_step(struct replay *replay, uint64_t range, uint32_t step)
{
	int r = array_reserve(&replay->open_steps, &replay->open_step_room,
			      replay->open_step_count + 1, sizeof(*replay->open_steps));

	if (r < 0)
		return r;
	replay->open_steps[replay->open_step_count++] =
		(struct open_step){.range = range, .step = step};
	tell_step(replay, step, true);
	return 0;
}

/*
 * Steps have one source, the first that tells of one; the other is ignored, with a note. True when `source` is it. What was given
 * before by a wrong guess is given again when rows depend on it.
 */
static bool step_source_is(struct replay *replay, enum step_source source)
{
	static const char *const names[] = {
		[STEPS_RANGES] = "ranges named '" STEP_MESSAGE "'", [STEPS_API] = "step()"};
	size_t i;

	if (replay->step_source == STEPS_UNKNOWN) {
		bool guessed_api = replay->open_step_count > 0;

		replay->step_source = (uint8_t)source;
		if (source == STEPS_RANGES) {
			replay->open_step_count = 0;
			/* All of them came before the first step, then. */
			for (i = 0; i < replay->block_count; i++)
				replay->blocks[i].latest_step = replay->blocks[i].alloc_step = 0;
		}
		if (replay->setup.facts != NULL) {
			replay->setup.facts->step_source = (uint8_t)source;
			if (replay->setup.steps_matter && replay->totals.rows > 0 &&
			    guessed_api != (source == STEPS_API))
				replay->setup.facts->changed = true;
		}
	}
	if (replay->step_source == source)
		return true;
	if (!replay->step_other) {
		replay->step_other = true;
		(void)add_note(replay, "steps are told by %s; those by %s are ignored",
			       names[replay->step_source], names[source]);
	}
	return false;
}

static int step_begin(struct replay *replay, uint64_t range)
{
	int r;

	if (!step_source_is(replay, STEPS_RANGES))
		return 0;
	r = open_step(replay, range, replay->steps + 1);
	replay->steps += r == 0;
	return r;
}

/* A window of the API, or the run, begins: so does a step, unless steps turn out to be ranges. */
static int step_guess(struct replay *replay)
{
	if (replay->step_source == STEPS_RANGES || replay->open_step_count > 0)
		return 0;
	return open_step(replay, STEP_NO_RANGE, replay->steps + 1);
}

/* The step that this range was, 0 when it was none. Only its own end ends a step, whatever ranges lie inside. */
static uint32_t step_end(struct replay *replay, uint64_t range)
{
	size_t i;

	for (i = 0; i < replay->open_step_count; i++) {
		uint32_t step = replay->open_steps[i].step;

		if (replay->open_steps[i].range != range)
			continue;
		memmove(replay->open_steps + i, replay->open_steps + i + 1,
			(replay->open_step_count - i - 1) * sizeof(*replay->open_steps));
		replay->open_step_count--;
		tell_step(replay, step, false);
		return step;
	}
	return 0;
}

static int take_mark(struct replay *replay, const struct trace_event *event)
{
	static const enum row_kind kinds[] = {ROW_MARK, ROW_RANGE_START, ROW_RANGE_END};
	struct row row = {.context = replay_context(replay, find_context(replay, event))};
	struct event_mark mark;
	char end[64];

	event_mark_decode(event->words, &mark);
	if (mark.kind < 1 || mark.kind > 3)
		return 0;
	row.kind = kinds[mark.kind - 1];
	row.name = text_at(replay, find_text(replay, event, mark.text));
	if (row.kind == ROW_RANGE_START && row.name != NULL &&
	    strcmp(row.name, STEP_MESSAGE) == 0 && step_begin(replay, mark.range) < 0)
		return -ENOMEM;
	if (row.kind == ROW_RANGE_END) {
		row.step = step_end(replay, mark.range);
		(void)snprintf(end, sizeof(end), RANGE_ENDS "%llu", (unsigned long long)mark.range);
		row.name = end;
	}
	return give(replay, event, &row);
}

/* step(): the step that is open ends, the next one begins. */
static int take_step(struct replay *replay, const struct trace_event *event)
{
	struct row row = {.kind = ROW_STEP,
			  .context = replay_context(replay, find_context(replay, event))};
	char number[16];
	int r;

	if (!step_source_is(replay, STEPS_API))
		return 0;
	row.step = ++replay->steps;
	(void)snprintf(number, sizeof(number), "%u", replay->steps);
	row.name = number;
	r = give(replay, event, &row);
	/* Alone or not at all: a window opens one, and ranges are not listened to. */
	(void)step_end(replay, STEP_NO_RANGE);
	return r < 0 ? r : step_guess(replay);
}

/* ---- windows ---- */

static int by_allocation(const void *a, const void *b)
{
	const struct block *x = *(const struct block *const *)a,
			   *y = *(const struct block *const *)b;

	return x->allocation_id < y->allocation_id ? -1 : x->allocation_id > y->allocation_id;
}

/* Blocks that were allocated outside of windows and live when one begins: they are shown from there on. */
static int show_shadows(struct replay *replay, const struct trace_event *event)
{
	struct block **blocks = calloc(replay->live.count + 1, sizeof(*blocks));
	const struct map_slot *slot;
	size_t cursor = 0, count = 0, i;
	int r = 0;

	if (blocks == NULL)
		return -ENOMEM;
	while ((slot = map_next(&replay->live, &cursor)) != NULL) {
		if (replay->blocks[slot->value].hidden)
			blocks[count++] = &replay->blocks[slot->value];
	}
	qsort(blocks, count, sizeof(*blocks), by_allocation);
	for (i = 0; i < count && r == 0; i++) {
		struct trace_event now = {.time_ns = event->time_ns, .tid = blocks[i]->tid};
		struct usage *usage = usage_at(replay, replay_context(replay, blocks[i]->context));

		blocks[i]->hidden = false;
		r = usage == NULL ? -ENOMEM
				  : emit(replay, ROW_MALLOC, &now, blocks[i], usage, 0, true);
	}
	free(blocks);
	return r;
}

/* What the device has free when a window begins: that of the thread that began it, or the only one there is. */
static void device_figures(struct replay *replay, const struct trace_event *event, struct row *row)
{
	const struct driver_usage *found = NULL;
	uint32_t device = DEVICE_UNKNOWN;
	size_t i;

	if (event->context != 0)
		device = replay_context(replay, find_context(replay, event))->device;
	for (i = 0; i < replay->driver_count; i++) {
		const struct driver_usage *driver = &replay->drivers[i];

		if (driver->total_bytes == 0 || driver->device_bytes > driver->total_bytes ||
		    (device != DEVICE_UNKNOWN && driver->device != device))
			continue;
		if (found != NULL)
			return;
		found = driver;
	}
	if (found == NULL)
		return;
	row->device_bytes = found->device_bytes;
	row->total_bytes = found->total_bytes;
}

static int take_state(struct replay *replay, const struct trace_event *event)
{
	struct row row = {.context = replay_context(replay, UINT32_MAX)};
	struct event_state state;
	size_t i;
	int r;

	event_state_decode(event->words, &state);
	if (state.quiet) {
		replay->state = (uint32_t)state.state;
		return 0;
	}
	if (state.state == RECORDING_ON) {
		replay->state = RECORDING_ON;
		replay->totals.windows++;
		r = step_guess(replay);
		row.kind = ROW_START_TRACE;
		device_figures(replay, event, &row);
		if (r == 0)
			r = give(replay, event, &row);
		return r < 0 ? r : show_shadows(replay, event);
	}
	row.kind = ROW_STOP_TRACE;
	r = replay->state == RECORDING_ON ? give(replay, event, &row) : 0;
	replay->state = (uint32_t)state.state;
	/* Ends of steps and operators outside of windows are not recorded. */
	replay->open_step_count = 0;
	for (i = 0; i < replay->writer_room; i++)
		replay->writers[i].operations.count = 0;
	return r;
}

static void take_settings(struct replay *replay, const struct trace_event *event)
{
	event_settings_decode(event->words, &replay->settings);
	replay->settings_count++;
	if (replay->observer != NULL && replay->observer->settings != NULL)
		replay->observer->settings(replay->observer_arg, replay);
}

/* What is left out when it comes from a thread that had not yet noticed the end of a window. */
static bool is_of_windows(uint32_t type)
{
	return type == EVENT_mark || type == EVENT_kernel_launch || type == EVENT_system ||
	       type == EVENT_step || type == EVENT_operation || type == EVENT_access;
}

#define LAUNCHES_MAX 262144u

/* Launches that have not ended are kept by stream and task, and by task alone for devices that do not tell the stream. */
static struct map_key launch_key(uint32_t device, uint64_t stream, uint64_t task)
{
	return (struct map_key){(uint64_t)device << 32 | (uint32_t)stream, task};
}

static int take_launch(struct replay *replay, const struct trace_event *event)
{
	const struct context *context = replay_context(replay, find_context(replay, event));
	struct event_kernel_launch launch;
	struct map_key key;
	uint64_t name;
	struct row row;
	int r;

	event_kernel_launch_decode(event->words, &launch);
	replay->totals.launches++;
	name = find_text(replay, event, launch.name);
	if (name == 0)
		return 0; /* counted; whoever wants rows of kernels asks for their names */
	key = launch_key(context->device, launch.stream, launch.task);
	/* Without execution records nothing takes launches out again; memory must not grow with events. */
	if (replay->launches.count > LAUNCHES_MAX) {
		map_fini(&replay->launches);
		map_fini(&replay->launch_steps);
	}
	r = map_put(&replay->launches, key, name << 32 | launch.stream);
	if (r == 0)
		r = map_put(&replay->launches, launch_key(context->device, UINT32_MAX, launch.task),
			    name << 32 | launch.stream);
	/* It may run when the step is over; what ran still belongs to the step that asked for it. */
	if (r == 0 && replay->open_step_count > 0)
		r = map_put(&replay->launch_steps, key, step_now(replay));
	else
		(void)map_remove(&replay->launch_steps, key, NULL);
	if (r < 0)
		return r;
	row = (struct row){.kind = ROW_KERNEL_LAUNCH,
			   .context = context,
			   .name = text_at(replay, name),
			   .stream = (uint32_t)launch.stream,
			   .task = (uint32_t)launch.task};
	return give(replay, event, &row);
}

/* A device's counter in our time; the record's own time when the device's clock is not known. */
static uint64_t device_time(const struct replay *replay, uint32_t device, uint64_t counter,
			    uint64_t otherwise_ns)
{
	size_t i;

	for (i = 0; i < replay->clock_count; i++) {
		const struct device_clock *clock = &replay->clocks[i];
		__int128 ticks;

		if (clock->device != device)
			continue;
		ticks = (__int128)counter - clock->counter;
		return clock->time_ns +
		       (uint64_t)(ticks * 1000000000 / (__int128)clock->frequency_hz);
	}
	return otherwise_ns;
}

static int take_execute(struct replay *replay, const struct trace_event *event)
{
	const struct context *context = replay_context(replay, find_context(replay, event));
	struct event_kernel_execute execute;
	struct map_key key;
	uint64_t *known, launch;
	struct row row;

	event_kernel_execute_decode(event->words, &execute);
	key = launch_key(context->device, execute.stream, execute.task);
	known = map_get(&replay->launches, key);
	if (known == NULL || execute.kind < 1 || execute.kind > 2) {
		replay->totals.oddities.kernels_unknown++;
		return 0;
	}
	launch = *known;
	known = map_get(&replay->launch_steps,
			launch_key(context->device, (uint32_t)launch, execute.task));
	row = (struct row){
		.kind = execute.kind == 1 ? ROW_KERNEL_BEGIN : ROW_KERNEL_END,
		.late = true,
		.step = known == NULL ? 0 : (uint32_t)*known,
		.time_ns = run_wall_ns(
			replay->setup.run,
			device_time(replay, context->device, execute.counter, event->time_ns)),
		.context = context,
		.name = text_at(replay, launch >> 32),
		.stream = (uint32_t)launch,
		.task = (uint32_t)execute.task,
	};
	if (execute.kind == 2) {
		(void)map_remove(&replay->launches,
				 launch_key(context->device, (uint32_t)launch, execute.task), NULL);
		(void)map_remove(&replay->launches,
				 launch_key(context->device, UINT32_MAX, execute.task), NULL);
		(void)map_remove(&replay->launch_steps,
				 launch_key(context->device, (uint32_t)launch, execute.task), NULL);
	}
	return give(replay, event, &row);
}

static int take_operation(struct replay *replay, const struct trace_event *event)
{
	static const enum row_kind kinds[LAYER_END][2] = {
		[LAYER_ATEN] = {ROW_ATEN_START, ROW_ATEN_END},
		[LAYER_ATB] = {ROW_ATB_START, ROW_ATB_END},
		[LAYER_ATB_KERNEL] = {ROW_ATB_KERNEL_START, ROW_ATB_KERNEL_END},
	};
	struct row row = {.context = replay_context(replay, find_context(replay, event))};
	struct replay_writer *writer = writer_at(replay, event->writer);
	struct event_operation operation;
	uint64_t name;
	size_t ended;

	event_operation_decode(event->words, &operation);
	if (writer == NULL || operation.kind < OPERATION_BEGINS ||
	    operation.kind > OPERATION_ENDED || operation.layer < LAYER_ATEN ||
	    operation.layer >= LAYER_END)
		return 0;
	name = find_text(replay, event, operation.name);
	if (operation.kind == OPERATION_BEGINS) {
		struct open_operation begun = {.layer = (uint8_t)operation.layer,
					       .number =
						       ++replay->totals.operations[operation.layer],
					       .name = name,
					       .time_ns = event->time_ns};

		if (operations_begin(&writer->operations, &begun) < 0)
			return -ENOMEM;
	} else {
		ended = operations_end(&writer->operations, (uint8_t)operation.layer, name);
		replay->totals.oddities.operations_unpaired += ended == 0 ? 1 : ended - 1;
	}
	/* An end whose begin was before recording is still something that happened. */
	row.kind = kinds[operation.layer][operation.kind - OPERATION_BEGINS];
	row.name = text_at(replay, name);
	row.layer = (enum layer)operation.layer;
	row.path = operation.path & TEXT_ONCE
			   ? replay_text_once(replay, event->writer, operation.path)
			   : text_at(replay, find_text(replay, event, operation.path));
	row.stack = find_stack(replay, event, operation.stack);
	row.workspace = operation.workspace;
	row.size_bytes = operation.workspace_bytes;
	return give(replay, event, &row);
}

const struct open_operation *replay_operation(const struct replay *replay, uint32_t writer,
					      enum layer layer)
{
	return writer < replay->writer_room
		       ? operations_innermost(&replay->writers[writer].operations, layer)
		       : NULL;
}

static int take_access(struct replay *replay, const struct trace_event *event)
{
	static const enum row_kind kinds[] = {ROW_READ, ROW_WRITE, ROW_ACCESS};
	const struct context *context = replay_context(replay, find_context(replay, event));
	struct event_access access;
	struct row row;

	event_access_decode(event->words, &access);
	if (access.kind < ACCESS_READ || access.kind > ACCESS_UNKNOWN ||
	    access.layer < LAYER_ATEN || access.layer >= LAYER_END)
		return 0;
	row = (struct row){
		.kind = kinds[access.kind - ACCESS_READ],
		.context = context,
		.block = replay_block_at(replay, context->device, access.address),
		.address = access.address,
		.name = text_at(replay, find_text(replay, event, access.name)),
		.stack = find_stack(replay, event, access.stack),
		.layer = (enum layer)access.layer,
		.size_bytes = access.size_bytes,
		.dtype = text_at(replay, find_text(replay, event, access.dtype)),
		.shape = text_at(replay, find_text(replay, event, access.shape)),
		.format = text_at(replay, find_text(replay, event, access.format)),
	};
	/* Memory knows its device where the operator did not. */
	if (context->device == DEVICE_UNKNOWN && row.block != NULL)
		row.context = replay_context(replay, row.block->context);
	return give(replay, event, &row);
}

static int take_clock(struct replay *replay, const struct trace_event *event)
{
	const struct context *context = replay_context(replay, find_context(replay, event));
	struct event_device_clock clock;
	size_t i;

	event_device_clock_decode(event->words, &clock);
	if (clock.frequency_hz == 0)
		return 0;
	for (i = 0; i < replay->clock_count && replay->clocks[i].device != context->device; i++)
		;
	if (i == replay->clock_count) {
		if (array_reserve(&replay->clocks, &replay->clock_room, i + 1,
				  sizeof(*replay->clocks)) < 0)
			return -ENOMEM;
		replay->clock_count++;
	}
	replay->clocks[i] = (struct device_clock){.device = context->device,
						  .time_ns = event->time_ns,
						  .counter = clock.counter,
						  .frequency_hz = clock.frequency_hz};
	return 0;
}

static int take_system(struct replay *replay, const struct trace_event *event)
{
	struct row row = {.context = replay_context(replay, find_context(replay, event))};
	struct event_system system;

	event_system_decode(event->words, &system);
	if (system.kind < 1 || system.kind > 2)
		return 0;
	row.kind = system.kind == 1 ? ROW_ACL_INIT : ROW_ACL_FINI;
	return give(replay, event, &row);
}

static int take_total(struct replay *replay, const struct trace_event *event)
{
	struct usage *usage = usage_at(replay, replay_context(replay, find_context(replay, event)));
	struct event_pool_total total;

	if (usage == NULL)
		return -ENOMEM;
	event_pool_total_decode(event->words, &total);
	usage->reserved_bytes = total.reserved_bytes;
	return 0;
}

static int take_sample(struct replay *replay, const struct trace_event *event)
{
	struct event_usage_sample sample;
	struct driver_usage *driver;

	event_usage_sample_decode(event->words, &sample);
	driver = driver_at(replay, (uint32_t)sample.device);
	if (driver == NULL) {
		if (array_reserve(&replay->drivers, &replay->driver_room, replay->driver_count + 1,
				  sizeof(*driver)) < 0)
			return -ENOMEM;
		driver = &replay->drivers[replay->driver_count++];
	}
	*driver = (struct driver_usage){.device = (uint32_t)sample.device,
					.process_bytes = sample.process_bytes,
					.device_bytes = sample.device_bytes,
					.total_bytes = sample.total_mib << 20};
	return 0;
}

static int take_dump(struct replay *replay, const struct trace_event *event)
{
	struct event_watch_dump record;
	struct dump dump;
	int r;

	event_watch_dump_decode(event->words, &record);
	dump = (struct dump){
		.time_ns = run_wall_ns(replay->setup.run, event->time_ns),
		.tid = event->tid,
		.context = replay_context(replay, find_context(replay, event)),
		.operation = record.name & TEXT_ONCE
				     ? replay_text_once(replay, event->writer, record.name)
				     : text_at(replay, find_text(replay, event, record.name)),
		.number = record.number,
		.after = (record.flags & DUMP_AFTER) != 0,
		.first = (record.flags & DUMP_FIRST) != 0,
		.in_file = (record.flags & DUMP_IN_FILE) != 0,
		.watched = text_at(replay, find_text(replay, event, record.watched)),
		.output = (uint32_t)record.output,
		.checksum = record.checksum,
		.size_bytes = record.size_bytes,
	};
	if (dump.operation == NULL || dump.watched == NULL) {
		replay->totals.oddities.bad_definitions++;
		return 0;
	}
	r = watches_add(&replay->watches, &dump);
	return r < 0 || replay->setup.dump == NULL
		       ? r
		       : replay->setup.dump(replay->setup.arg, replay, &dump);
}

/* `rows`: the block's row came already, in this pass. */
static int label_block(struct replay *replay, struct block *block, enum label_kind kind,
		       const char *label, bool rows)
{
	uint32_t owner, before = block->owner;
	struct usage *usage;
	struct fact *fact;
	int r = owners_label(&replay->owners, before, kind, label, &owner);

	if (r < 0 || owner == before)
		return r;
	usage = usage_at(replay, replay_context(replay, block->context));
	if (usage == NULL)
		return -ENOMEM;
	block->owner = owner;
	tell_block(replay, BLOCK_RELABELLED, block, usage, before);
	if (replay->setup.facts == NULL || block->hidden || !rows)
		return 0;
	fact = facts_at(replay->setup.facts, block->allocation_id);
	if (fact != NULL) {
		fact->owner = owner;
		replay->setup.facts->owners = &replay->owners;
		replay->setup.facts->changed = true;
	}
	return 0;
}

static int take_label(struct replay *replay, const struct trace_event *event)
{
	struct event_label label;
	const struct block *block;
	const char *text;
	uint32_t device;

	event_label_decode(event->words, &label);
	text = text_at(replay, find_text(replay, event, label.text));
	if (!replay->decompose || text == NULL)
		return 0;
	switch (label.kind) {
	case LABEL_MODEL:
	case LABEL_TENSOR:
		/* Its first byte or one inside: a tensor may be a part of what was allocated. */
		device = event->context == 0
				 ? DEVICE_UNKNOWN
				 : replay_context(replay, find_context(replay, event))->device;
		block = replay_block_at(replay, device, label.address);
		return block == NULL ? 0
				     : label_block(replay, &replay->blocks[block - replay->blocks],
						   (enum label_kind)label.kind, text, true);
	case LABEL_PUSH:
		return owners_push(&replay->owners, event->tid, text);
	case LABEL_POP:
		owners_pop(&replay->owners, event->tid, text);
		return 0;
	default:
		return 0;
	}
}

/*
 * A label in a checkpoint: of the live block that the context and the key name, or open on the thread of the writer that was
 * named last. Texts are the checkpoint's own.
 */
static int take_kept_label(struct replay *replay, const struct trace_event *event)
{
	struct event_label label;
	const uint64_t *slot;
	const char *text;

	event_label_decode(event->words, &label);
	text = text_at(replay, find_text(replay, event, label.text));
	if (!replay->decompose || text == NULL)
		return 0;
	if (label.kind == LABEL_PUSH)
		return owners_push(&replay->owners, replay_writer_tid(replay, replay->as_writer),
				   text);
	slot = map_get(
		&replay->live,
		(struct map_key){space_of(replay_context(replay, find_context(replay, event))),
				 label.address});
	return slot == NULL ? 0
			    : label_block(replay, &replay->blocks[*slot],
					  (enum label_kind)label.kind, text, false);
}

static void take_checkpoint(struct replay *replay, const struct trace_event *event)
{
	struct event_checkpoint checkpoint;

	event_checkpoint_decode(event->words, &checkpoint);
	if (checkpoint.allocations > replay->totals.allocations)
		replay->totals.allocations = checkpoint.allocations;
	if (checkpoint.rows > replay->totals.rows)
		replay->totals.rows = checkpoint.rows;
	replay->totals.dropped_events = checkpoint.dropped;
	replay->checkpoint_ns = checkpoint.time_ns;
	replay->totals.launches = checkpoint.launches;
	replay->steps = (uint32_t)checkpoint.steps;
	replay->step_source = (uint8_t)checkpoint.step_source;
	replay->open_step_count = 0;
	if (checkpoint.open_step != 0 && array_reserve(&replay->open_steps, &replay->open_step_room,
						       1, sizeof(*replay->open_steps)) == 0) {
		replay->open_steps[0] = (struct open_step){.range = checkpoint.open_range,
							   .step = (uint32_t)checkpoint.open_step};
		replay->open_step_count = 1;
	}
}

static int take_thread(struct replay *replay, const struct trace_event *event)
{
	struct replay_writer *writer = writer_at(replay, definer(replay, event));
	struct event_thread thread;

	if (writer == NULL)
		return 0;
	event_thread_decode(event->words, &thread);
	if (writer->tid != thread.tid) {
		replay->totals.threads++;
		writer->operations.count = 0; /* the thread before it is gone */
		owners_forget(&replay->owners, (uint32_t)thread.tid);
	}
	writer->tid = (uint32_t)thread.tid;
	writer->device = 0;
	return calls_end_thread(&replay->calls, definer(replay, event));
}

static int take_call(struct replay *replay, const struct trace_event *event)
{
	struct event_call call;
	uint64_t text = 0;

	event_call_decode(event->words, &call);
	if (call.kind == CALL_C_ENTER || call.kind == CALL_RANGE_BEGIN ||
	    call.kind == CALL_RANGE_END || call.kind == CALL_MODULE_ENTER)
		text = find_text(replay, event, call.what);
	return calls_take(&replay->calls, event, text);
}

int replay_end(struct replay *replay)
{
	return calls_end(&replay->calls);
}

uint32_t replay_writer_device(const struct replay *replay, uint32_t writer)
{
	return writer < replay->writer_room ? replay->writers[writer].device - 1 : DEVICE_UNKNOWN;
}

uint8_t replay_vendor(const struct replay *replay)
{
	return replay->context_count > 1 ? replay->contexts[1].vendor : VENDOR_UNKNOWN;
}

uint32_t replay_writer_tid(const struct replay *replay, uint32_t writer)
{
	return writer < replay->writer_room ? replay->writers[writer].tid : 0;
}

/* What a record says about others, and what therefore counts however old it is. */
static bool is_definition(uint32_t type)
{
	return type == EVENT_context_def || type == EVENT_stack_def || type == EVENT_text_def ||
	       type == EVENT_code_def || type == EVENT_module_load || type == EVENT_module_unload ||
	       type == EVENT_thread || type == EVENT_device_clock;
}

int replay_event(struct replay *replay, const struct trace_event *event)
{
	struct event_block_alloc alloc;
	struct event_block_alloc_wide wide;
	struct event_region_alloc region;
	struct event_block_free release;
	struct event_block_free_traced traced;
	struct event_module_unload unload;
	struct event_as_writer as;
	struct event_state state;

	if (event->writer == CHECKPOINT_WRITER) {
		/* What the engine wrote in the place of dropped records; only there do the first three mean anything. */
		switch (event->type) {
		case EVENT_checkpoint:
			take_checkpoint(replay, event);
			return 0;
		case EVENT_as_writer:
			event_as_writer_decode(event->words, &as);
			replay->as_writer = (uint32_t)as.writer;
			return 0;
		case EVENT_live_block:
			return take_live_block(replay, event);
		case EVENT_state:
			event_state_decode(event->words, &state);
			replay->state = (uint32_t)state.state;
			return 0;
		case EVENT_settings:
			take_settings(replay, event);
			return 0;
		case EVENT_context_def:
			return define_context(replay, event);
		case EVENT_stack_def:
			return define_stack(replay, event);
		case EVENT_code_def:
			return define_code(replay, event);
		case EVENT_text_def:
			return define_text(replay, event);
		case EVENT_module_load:
			return define_module(replay, event);
		case EVENT_thread:
			return take_thread(replay, event);
		case EVENT_label:
			return take_kept_label(replay, event);
		default:
			return 0;
		}
	}
	if (event->time_ns < replay->checkpoint_ns && !is_definition(event->type))
		return 0;
	replay->totals.events++;
	replay->totals.events_by_type[event->type & 0xff]++;
	if (replay->totals.first_ns == 0) {
		replay->totals.first_ns = event->time_ns;
		if (replay->setup.known != NULL)
			replay->step_source = replay->setup.known->step_source;
		if (replay->step_source == STEPS_API && replay->state == RECORDING_ON &&
		    step_guess(replay) < 0)
			return -ENOMEM;
	}
	if (event->time_ns > replay->totals.last_ns)
		replay->totals.last_ns = event->time_ns;
	if (replay->state != RECORDING_ON && is_of_windows(event->type))
		return 0;
	switch (event->type) {
	case EVENT_block_alloc:
		event_block_alloc_decode(event->words, &alloc);
		return take_alloc(replay, event, alloc.address, alloc.address, alloc.size_bytes,
				  alloc.stack);
	case EVENT_block_alloc_wide:
		event_block_alloc_wide_decode(event->words, &wide);
		return take_alloc(replay, event, wide.address, wide.address, wide.size_bytes,
				  wide.stack);
	case EVENT_block_free:
		event_block_free_decode(event->words, &release);
		return take_free(replay, event, release.address, 0);
	case EVENT_block_free_traced:
		event_block_free_traced_decode(event->words, &traced);
		return take_free(replay, event, traced.address, traced.stack);
	case EVENT_block_free_undo:
		if (replay->setup.known != NULL)
			return 0;
		return take_undo(replay, event);
	case EVENT_context_def:
		return define_context(replay, event);
	case EVENT_stack_def:
		return define_stack(replay, event);
	case EVENT_code_def:
		return define_code(replay, event);
	case EVENT_module_load:
		return define_module(replay, event);
	case EVENT_module_unload:
		event_module_unload_decode(event->words, &unload);
		if (modules_unload(&replay->modules, unload.id, event->time_ns) < 0)
			replay->totals.oddities.bad_definitions++;
		return 0;
	case EVENT_thread:
		return take_thread(replay, event);
	case EVENT_call:
		return take_call(replay, event);
	case EVENT_state:
		return take_state(replay, event);
	case EVENT_settings:
		take_settings(replay, event);
		return 0;
	case EVENT_step:
		return take_step(replay, event);
	case EVENT_note:
		return take_note(replay, event);
	case EVENT_text_def:
		return define_text(replay, event);
	case EVENT_mark:
		return take_mark(replay, event);
	case EVENT_kernel_launch:
		return take_launch(replay, event);
	case EVENT_kernel_execute:
		return take_execute(replay, event);
	case EVENT_device_clock:
		return take_clock(replay, event);
	case EVENT_system:
		return take_system(replay, event);
	case EVENT_pool_total:
		return take_total(replay, event);
	case EVENT_region_alloc:
		event_region_alloc_decode(event->words, &region);
		return take_alloc(replay, event, region.handle, region.address, region.size_bytes,
				  region.stack);
	case EVENT_usage_sample:
		return take_sample(replay, event);
	case EVENT_operation:
		return take_operation(replay, event);
	case EVENT_access:
		return take_access(replay, event);
	case EVENT_watch_dump:
		return take_dump(replay, event);
	case EVENT_label:
		return take_label(replay, event);
	default:
		return 0; /* of a newer version: its length was known, its meaning is not */
	}
}

int replay_decompose(struct replay *replay)
{
	const struct map_slot *slot;
	size_t cursor = 0;
	int r = 0;

	if (replay->decompose)
		return 0;
	replay->decompose = true;
	while (r == 0 && (slot = map_next(&replay->live, &cursor)) != NULL) {
		struct block *block = &replay->blocks[slot->value];

		r = owners_of(&replay->owners, replay_context(replay, block->context), 0, false,
			      &block->owner);
	}
	return r;
}

const struct usage *replay_usage(const struct replay *replay, const struct block *block)
{
	const struct context *context = replay_context(replay, block->context);
	size_t i;

	for (i = 0; i < replay->usage_count; i++) {
		if (replay->usages[i].pool == context->pool &&
		    replay->usages[i].device == context->device)
			return &replay->usages[i];
	}
	return NULL;
}

bool replay_step_is_open(const struct replay *replay, uint32_t step)
{
	size_t i;

	for (i = 0; i < replay->open_step_count; i++) {
		if (replay->open_steps[i].step == step)
			return true;
	}
	return false;
}

const struct block *replay_next_block(const struct replay *replay, size_t *cursor)
{
	const struct map_slot *slot = map_next(&replay->live, cursor);

	return slot == NULL ? NULL : &replay->blocks[slot->value];
}

int replay_close_live(struct replay *replay)
{
	const struct block **blocks = calloc(replay->live.count + 1, sizeof(*blocks));
	const struct block *block;
	size_t cursor = 0, count = 0, i;
	int r = 0;

	if (blocks == NULL)
		return -ENOMEM;
	while ((block = replay_next_block(replay, &cursor)) != NULL) {
		if (!block->hidden)
			blocks[count++] = block;
	}
	qsort(blocks, count, sizeof(*blocks), by_allocation);
	for (i = 0; i < count && r == 0; i++) {
		struct trace_event event = {.time_ns = replay->totals.last_ns + 1,
					    .tid = blocks[i]->tid};
		struct usage *usage = usage_at(replay, replay_context(replay, blocks[i]->context));

		struct row row;

		if (usage == NULL) {
			r = -ENOMEM;
			break;
		}
		/* It is written where the allocation is: whoever chooses steps chooses whole blocks. */
		row = block_row(replay, ROW_FREE, blocks[i], usage, 0, true);
		row.step = blocks[i]->alloc_step;
		row.late = true;
		r = give(replay, &event, &row);
	}
	free(blocks);
	return r;
}

void replay_learn_inefficient(struct replay *replay, const struct block *block, uint16_t bits)
{
	struct fact *fact = replay->setup.facts == NULL
				    ? NULL
				    : facts_at(replay->setup.facts, block->allocation_id);

	if (fact == NULL)
		return;
	fact->inefficient = bits;
	replay->setup.facts->changed = true;
}

/* ---- queries ---- */

const struct run *replay_run(const struct replay *replay)
{
	return replay->setup.run;
}

const struct replay_totals *replay_totals(const struct replay *replay)
{
	return &replay->totals;
}

const char *replay_note(const struct replay *replay, size_t index)
{
	return index < replay->note_count ? replay->notes[index] : NULL;
}

uint32_t replay_state(const struct replay *replay)
{
	return replay->state;
}

const struct event_settings *replay_settings(const struct replay *replay)
{
	return &replay->settings;
}

uint32_t replay_settings_count(const struct replay *replay)
{
	return replay->settings_count;
}

const struct context *replay_contexts(const struct replay *replay, size_t *out_count)
{
	*out_count = replay->context_count;
	return replay->contexts;
}

const struct context *replay_event_context(const struct replay *replay,
					   const struct trace_event *event)
{
	const uint64_t *known =
		map_get(&replay->context_ids, (struct map_key){event->writer, event->context});

	return replay_context(replay, known == NULL ? UINT32_MAX : (uint32_t)*known);
}

const char *replay_event_text(const struct replay *replay, const struct trace_event *event,
			      uint64_t id)
{
	return text_at(replay, find_text(replay, event, id));
}

size_t replay_block_count(const struct replay *replay)
{
	return replay->live.count;
}

const struct usage *replay_usages(const struct replay *replay, size_t *out_count)
{
	*out_count = replay->usage_count;
	return replay->usages;
}

const char *replay_owner_text(const struct replay *replay, uint32_t owner)
{
	return owners_text(&replay->owners, owner);
}

bool replay_is_decomposed(const struct replay *replay)
{
	return replay->decompose;
}

uint32_t replay_steps(const struct replay *replay)
{
	return replay->steps;
}

uint32_t replay_open_step(const struct replay *replay, size_t index)
{
	return index < replay->open_step_count ? replay->open_steps[index].step : 0;
}

const struct frame *replay_frames(const struct replay *replay, uint32_t stack, uint32_t *out_count)
{
	return stacks_frames(&replay->stacks, stack, out_count);
}

const struct python_place *replay_places(const struct replay *replay, uint32_t stack,
					 uint32_t *out_count)
{
	return stacks_places(&replay->stacks, stack, out_count);
}

const char *replay_frame_text(struct replay *replay, const struct frame *frame)
{
	return stacks_frame_text(&replay->stacks, frame);
}

const char *replay_place_text(struct replay *replay, const struct python_place *place)
{
	return codes_text(&replay->codes, place->code, place->offset);
}

void replay_save_frames(struct replay *replay, struct strbuf *out)
{
	stacks_save(&replay->stacks, out);
}

const struct module *replay_next_module(const struct replay *replay, size_t *cursor)
{
	const struct map_slot *slot = map_next(&replay->modules.by_id, cursor);

	return slot == NULL ? NULL : modules_get(&replay->modules, slot->key.a);
}

const struct module *replay_module(const struct replay *replay, uint64_t id)
{
	return modules_get(&replay->modules, id);
}

const struct watches *replay_watches(const struct replay *replay)
{
	return &replay->watches;
}
