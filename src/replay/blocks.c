/* SPDX-License-Identifier: Apache-2.0 */
#include "replay/blocks.h"

#include <errno.h>
#include <stdlib.h>

#include "base/array.h"
#include "replay/facts.h"
#include "replay/state.h"
#include "trace/session.h"

void blocks_fini(struct replay *replay)
{
	struct blocks *blocks = &replay->blocks;

	free(blocks->all);
	free(blocks->free_slots);
	live_fini(&blocks->live);
	ranges_fini(&blocks->ranges);
}

uint8_t context_space(const struct context *context)
{
	uint8_t pool = context->pool == POOL_host_pinned ? POOL_hal : context->pool;

	return (uint8_t)(pool << 4 | (context->kind & 0xf));
}

bool free_is_odd(const struct replay *replay, uint32_t context)
{
	return replay_context(replay, context)->kind != BLOCK_REGISTER && !replay->blocks.late;
}

/* What a block can count. */
#define LAUNCHES_MAX ((UINT64_C(1) << 48) - 1)

/* ---- slots ---- */

static int slot_take(struct blocks *blocks, uint32_t *out_slot)
{
	int r;

	if (blocks->free_count > 0) {
		*out_slot = blocks->free_slots[--blocks->free_count];
		return 0;
	}
	r = ARRAY_RESERVE(blocks->all, blocks->room, blocks->count + 1);
	/* Room to give every slot back is made now, so that giving back cannot fail. */
	if (r == 0)
		r = ARRAY_RESERVE(blocks->free_slots, blocks->free_room, blocks->count + 1);
	if (r == 0)
		*out_slot = (uint32_t)blocks->count++;
	return r;
}

void blocks_release(struct blocks *blocks, uint32_t slot)
{
	/* What lived at the end of the program's own code is still asked for. */
	if (MSCOPE_UNLIKELY(blocks->all[slot].after_end))
		return;
	/* Who remembers the slot (holdings.c) sees that the block is gone before another takes it. */
	blocks->all[slot].allocation_id = 0;
	blocks->free_slots[blocks->free_count++] = slot;
}

/* ---- by address ---- */

/* A handle is not an address: nothing can be found inside such a block. */
static bool has_address(const struct context *context)
{
	return context->kind != BLOCK_CREATE;
}

static int range_add(struct replay *replay, uint32_t slot)
{
	const struct block *block = &replay->blocks.all[slot];
	const struct context *context = replay_context(replay, block->context);

	return has_address(context) ? ranges_insert(&replay->blocks.ranges, context->pool,
						    context->device, block->address, slot)
				    : 0;
}

static void range_drop(struct replay *replay, uint32_t slot)
{
	const struct block *block = &replay->blocks.all[slot];
	const struct context *context = replay_context(replay, block->context);

	if (has_address(context))
		ranges_remove(&replay->blocks.ranges, context->pool, context->device,
			      block->address, slot);
}

/* Sorts the blocks that live now; from then on blocks_insert() and remove_entry() keep them sorted. */
static int sort_blocks(struct replay *replay)
{
	struct blocks *blocks = &replay->blocks;
	const struct live_entry *entry;
	size_t cursor = 0;
	int r = 0;

	while (r == 0 && (entry = live_next(&blocks->live, &cursor)) != NULL)
		r = range_add(replay, entry->slot);
	if (r < 0)
		ranges_fini(&blocks->ranges);
	else
		blocks->ranged = true;
	return r;
}

/* Of two blocks that have the address: the smaller, or of the same size the newer. The order of lanes does not come back from a checkpoint. */
static bool is_closer(const struct block *block, const struct block *than)
{
	return block->size_bytes != than->size_bytes ? block->size_bytes < than->size_bytes
						     : block->allocation_id > than->allocation_id;
}

const struct block *replay_block_at(struct replay *replay, uint32_t device, uint64_t address)
{
	struct blocks *blocks = &replay->blocks;
	const struct block *best = NULL;
	bool best_is_driver = true;
	size_t i;

	if (!blocks->ranged && sort_blocks(replay) < 0)
		return NULL;
	for (i = 0; i < blocks->ranges.lane_count; i++) {
		const struct lane *lane = &blocks->ranges.lanes[i];
		bool driver = lane->pool == POOL_hal || lane->pool == POOL_host_pinned;
		const struct block *block;
		uint32_t slot;

		if (device != DEVICE_UNKNOWN && lane->device != device)
			continue;
		if (!lane_below(lane, address, &slot))
			continue;
		block = &blocks->all[slot];
		/* A block without a size has at least its first byte. */
		if (address != block->address && address - block->address >= block->size_bytes)
			continue;
		if (best == NULL || driver < best_is_driver ||
		    (driver == best_is_driver && is_closer(block, best))) {
			best = block;
			best_is_driver = driver;
		}
	}
	return best;
}

/* ---- coming and going ---- */

static void fill_row(const struct replay *replay, enum row_kind kind, const struct block *block,
		     const struct usage *usage, uint32_t stack, bool shadow, struct row *row)
{
	uint64_t process_bytes, device_bytes;

	usages_figures(&replay->usages, usage, &process_bytes, &device_bytes);
	*row = (struct row){
		.kind = kind,
		.context = &replay->definitions.contexts[block->context],
		.block = block,
		.address = block->address,
		.used_bytes = usage->live_bytes,
		.reserved_bytes = usage->pool == POOL_hal && kind == ROW_FREE
					  ? holdings_reserved(replay, block)
					  : usage->reserved_bytes,
		.process_bytes = process_bytes,
		.device_bytes = device_bytes,
		.stack = stack,
		.shadow = shadow,
	};
	if (kind != ROW_MALLOC)
		return;
	row->owner = labels_row_text(replay, block);
	row->place = replay_place(replay, block->place);
	if (replay->setup.known != NULL) {
		struct fact fact = facts_get(replay->setup.known, block->allocation_id);

		row->inefficient = fact.inefficient;
		if (fact.reserved_bytes != 0)
			row->reserved_bytes = fact.reserved_bytes;
	}
}

int blocks_publish(struct replay *replay, enum row_kind kind, const struct trace_event *event,
		   const struct block *block, const struct usage *usage, uint32_t stack,
		   bool shadow)
{
	struct row row;

	if (!replay_wants_row(replay, kind))
		return 0;
	fill_row(replay, kind, block, usage, stack, shadow, &row);
	return replay_publish(replay, event, &row);
}

/* The part of the usage that has the block as well; NULL: none. */
static uint64_t *special_part(const struct replay *replay, const struct block *block,
			      struct usage *usage)
{
	uint32_t memory;

	if (MSCOPE_LIKELY(usage->pool != POOL_hal || usage->vendor != VENDOR_CUDA))
		return NULL;
	memory = CUDA_FLAGS_MEMORY(replay->definitions.contexts[block->context].flags);
	return memory == CUDA_MEMORY_ASYNC     ? &usage->async_bytes
	       : memory == CUDA_MEMORY_MANAGED ? &usage->managed_bytes
					       : NULL;
}

/* The pool has more in use than ever before. */
static void note_peak(const struct replay *replay, struct usage *usage)
{
	const struct usages *usages = &replay->usages;
	const struct driver_usage *driver =
		usage->driver == 0 ? NULL : &usages->drivers[usage->driver - 1];
	bool known = driver != NULL && driver->hal != 0;

	usage->at_peak = (struct usage_peak){
		.reserved_bytes = usage_reserved(usage),
		.requested_bytes = usage_requested(usage),
		.waiting_bytes = usage->waiting_bytes,
		.private_bytes = usage->private_bytes,
		.driver_bytes = known ? driver_pages_taken(&usages->all[driver->hal - 1].pages)
				      : UINT64_MAX,
		.kept_bytes = known ? replay_driver_kept(replay, usage->device) : 0};
}

void blocks_count(struct replay *replay, struct block *block, struct usage *usage,
		  enum block_change change)
{
	uint64_t *part = special_part(replay, block, usage);

	usage->live_bytes += block->size_bytes;
	usage->live_blocks++;
	if (usage->pool == POOL_hal)
		driver_pages_add(&usage->pages, replay_context(replay, block->context),
				 block->address, block->size_bytes);
	if (part != NULL)
		*part += block->size_bytes;
	if (block->requested_bytes != 0)
		pool_details_count(replay, block, usage, true);
	if (usage->live_bytes > usage->peak_bytes) {
		usage->peak_bytes = usage->live_bytes;
		usage->peak_time_ns = block->time_ns;
		if (usage->live_bytes > usage->highest_bytes)
			usage->highest_bytes = usage->live_bytes;
		if (usage->device < DEVICE_HOST)
			note_peak(replay, usage);
	}
	replay_notify_block(replay, change, block, usage, block->owner);
}

void blocks_uncount(struct replay *replay, struct block *block, struct usage *usage)
{
	uint64_t *part = special_part(replay, block, usage);

	replay_notify_block(replay, BLOCK_REMOVED, block, usage, block->owner);
	usage->live_bytes -=
		block->size_bytes < usage->live_bytes ? block->size_bytes : usage->live_bytes;
	usage->live_blocks -= usage->live_blocks > 0;
	if (usage->pool == POOL_hal)
		driver_pages_remove(&usage->pages, replay_context(replay, block->context),
				    block->address, block->size_bytes);
	if (part != NULL)
		*part -= block->size_bytes < *part ? block->size_bytes : *part;
	if (block->requested_bytes != 0)
		pool_details_count(replay, block, usage, false);
}

int blocks_insert(struct replay *replay, uint8_t space, uint64_t key, uint32_t slot,
		  struct usage *usage, enum block_change change)
{
	struct block *block = &replay->blocks.all[slot];

	if (live_put(&replay->blocks, space, key, slot) < 0)
		return -ENOMEM;
	if (MSCOPE_UNLIKELY(replay->blocks.ranged) && range_add(replay, slot) < 0)
		return -ENOMEM;
	if (MSCOPE_UNLIKELY(change == BLOCK_RESTORED && block->segment_of != 0))
		holdings_undo_free(replay, block);
	if (MSCOPE_UNLIKELY(replay->ending.kind != 0) && ending_is_outside(replay, block)) {
		block->after_end = false;
		usage->outside_bytes += (int64_t)block->size_bytes;
		if (usage->live_bytes + (uint64_t)usage->outside_bytes > usage->highest_bytes)
			usage->highest_bytes = usage->live_bytes + (uint64_t)usage->outside_bytes;
		return 0;
	}
	if (MSCOPE_UNLIKELY(change == BLOCK_RESTORED && replay->ending.kind != 0))
		ending_take_restored(replay, block, usage);
	blocks_count(replay, block, usage, change);
	return 0;
}

/* Takes a block out of the live ones and out of its usage. Its slot stays taken. */
static void remove_entry(struct replay *replay, const struct live_entry *entry, struct usage *usage)
{
	struct block *block = &replay->blocks.all[entry->slot];

	if (MSCOPE_UNLIKELY(replay->blocks.ranged))
		range_drop(replay, entry->slot);
	if (MSCOPE_UNLIKELY(replay->ending.kind != 0))
		ending_take_freed(replay, block);
	live_remove(&replay->blocks, entry);
	if (MSCOPE_UNLIKELY(replay->ending.kind == END_STOP))
		usage->outside_bytes -= (int64_t)block->size_bytes;
	else
		blocks_uncount(replay, block, usage);
}

int blocks_end(struct replay *replay, const struct live_entry *entry)
{
	uint32_t slot = entry->slot;
	struct usage *usage = usages_of(replay, replay->blocks.all[slot].context);

	if (usage == NULL)
		return -ENOMEM;
	remove_entry(replay, entry, usage);
	usage->frees += replay->ending.kind != END_STOP;
	if (usage->pool == POOL_hal)
		holdings_note_level(replay, usage);
	blocks_release(&replay->blocks, slot);
	return 0;
}

int blocks_free(struct replay *replay, const struct trace_event *event,
		const struct live_entry *entry)
{
	uint32_t slot = entry->slot;
	const struct block *block = &replay->blocks.all[slot];
	struct usage *usage = usages_of(replay, block->context);
	bool is_published = !block->hidden && replay->ending.kind != END_STOP;
	int r = 0;

	if (usage == NULL)
		return -ENOMEM;
	remove_entry(replay, entry, usage);
	usage->frees += replay->ending.kind != END_STOP;
	if (usage->pool == POOL_hal) {
		holdings_take_free(replay, block);
		holdings_note_level(replay, usage);
	}
	if (is_published)
		r = blocks_publish(replay, ROW_FREE, event, block, usage, 0,
				   replay->windows.state != RECORDING_ON);
	blocks_release(&replay->blocks, slot);
	return r;
}

/* The address is handed out again, so it was given back without a record of it. */
static MSCOPE_COLD int replace(struct replay *replay, const struct trace_event *event,
			       const struct live_entry *entry)
{
	uint32_t slot = entry->slot;
	const struct block *block = &replay->blocks.all[slot];
	struct usage *usage = usages_of(replay, block->context);
	int r = 0;

	replay->totals.oddities.allocs_over++;
	if (usage == NULL)
		return -ENOMEM;
	remove_entry(replay, entry, usage);
	if (!block->hidden && replay->ending.kind != END_STOP)
		r = blocks_publish(replay, ROW_FREE, event, block, usage, 0, true);
	blocks_release(&replay->blocks, slot);
	return r;
}

int blocks_allocate(struct replay *replay, const struct trace_event *event, struct writer *writer,
		    uint32_t context, const struct new_block *asked)
{
	uint32_t slot = 0, owner = 0;
	uint8_t space = replay->definitions.uses[context].space;
	bool outside = replay->windows.state != RECORDING_ON;
	struct usage *usage = usages_of(replay, context);
	const struct live_entry *old;
	struct block *block;
	int r;

	if (usage == NULL)
		return -ENOMEM;
	r = labels_owner(replay, context, event, &owner);
	if (r < 0)
		return r;
	old = live_get(&replay->blocks, space, asked->key);
	if (MSCOPE_UNLIKELY(old != NULL)) {
		r = replace(replay, event, old);
		if (r < 0)
			return r;
	}
	r = slot_take(&replay->blocks, &slot);
	if (r < 0)
		return r;
	block = &replay->blocks.all[slot];
	*block = (struct block){
		.address = asked->address,
		.size_bytes = asked->size_bytes,
		.allocation_id = ++replay->totals.allocations,
		.time_ns = event->time_ns,
		.context = context,
		.stack = asked->stack,
		.tid = event->tid,
		.latest_step = steps_latest(&replay->steps),
		.alloc_step = steps_current(&replay->steps),
		.launches = replay->totals.launches & LAUNCHES_MAX,
		.owner = owner,
		.hidden = outside,
		.outside_window = outside,
		.segment_of = asked->segment_of,
		.place = asked->place,
		.requested_bytes = asked->requested_bytes,
	};
	r = blocks_insert(replay, space, asked->key, slot, usage, BLOCK_ADDED);
	if (r < 0)
		return r;
	if (MSCOPE_LIKELY(replay->ending.kind != END_STOP)) {
		usage->allocations++;
		usage->allocated_bytes += asked->size_bytes;
	}
	if (MSCOPE_UNLIKELY(usage->returned_bytes != 0))
		holdings_take_region(replay, usage);
	if (writer != NULL)
		writer->latest = block->allocation_id;
	if (usage->pool == POOL_hal) {
		if (asked->segment_of == 0) {
			holdings_take_alloc(replay, slot);
			pool_details_take_driver(replay, replay_context(replay, context));
		}
		holdings_note_level(replay, usage);
	}
	return outside ? 0
		       : blocks_publish(replay, ROW_MALLOC, event, block, usage, asked->stack,
					false);
}

static int allocate(struct replay *replay, const struct trace_event *event, uint64_t key,
		    uint64_t address, uint64_t size_bytes, uint64_t stack)
{
	struct writer *writer = writers_get(&replay->writers, event->writer);
	struct new_block asked = {.key = key, .address = address, .size_bytes = size_bytes};
	uint32_t context = definitions_context_of(replay, writer, event->context);

	asked.stack = definitions_stack(replay, writer, stack);
	return blocks_allocate(replay, event, writer, context, &asked);
}

int blocks_take_block_alloc(struct replay *replay, const struct trace_event *event)
{
	struct event_block_alloc alloc;

	event_block_alloc_decode(event->words, &alloc);
	return allocate(replay, event, alloc.address, alloc.address, alloc.size_bytes, alloc.stack);
}

int blocks_take_block_alloc_wide(struct replay *replay, const struct trace_event *event)
{
	struct event_block_alloc_wide alloc;

	event_block_alloc_wide_decode(event->words, &alloc);
	return allocate(replay, event, alloc.address, alloc.address, alloc.size_bytes, alloc.stack);
}

int blocks_take_block_alloc_pool(struct replay *replay, const struct trace_event *event)
{
	struct writer *writer = writers_get(&replay->writers, event->writer);
	struct event_block_alloc_pool alloc;
	uint32_t context = definitions_context_of(replay, writer, event->context);
	struct new_block asked;

	event_block_alloc_pool_decode(event->words, &alloc);
	pool_details_take_alloc(replay, alloc.address);
	asked = (struct new_block){
		.key = alloc.address,
		.address = alloc.address,
		.size_bytes = alloc.size_bytes,
		.requested_bytes =
			alloc.requested_bytes <= alloc.size_bytes ? alloc.requested_bytes : 0,
		.place = pool_details_place(replay, alloc.stream, alloc.private_first,
					    alloc.private_second),
		.stack = definitions_stack(replay, writer, alloc.stack),
	};
	return blocks_allocate(replay, event, writer, context, &asked);
}

int blocks_take_region_alloc(struct replay *replay, const struct trace_event *event)
{
	struct event_region_alloc region;

	event_region_alloc_decode(event->words, &region);
	return allocate(replay, event, region.handle, region.address, region.size_bytes,
			region.stack);
}

int blocks_take_block_before(struct replay *replay, const struct trace_event *event)
{
	struct trace_event of_thread = *event;
	struct event_block_before block;

	event_block_before_decode(event->words, &block);
	of_thread.tid = (uint32_t)block.tid;
	return allocate(replay, &of_thread, block.key, block.address, block.size_bytes, 0);
}

/*
 * The hooks are there from here on. What is known so far comes from calls that were still under way in the hooks of an earlier run:
 * nobody may have seen the frees of such blocks, and no window has shown them.
 */
static int forget_hidden(struct replay *replay)
{
	const struct live_entry *entry;
	size_t cursor = 0;
	int r = 0;

	while (r == 0 && (entry = live_next(&replay->blocks.live, &cursor)) != NULL) {
		if (!replay->blocks.all[entry->slot].hidden)
			continue;
		r = blocks_end(replay, entry);
		cursor--; /* another entry may have taken its place */
	}
	return r;
}

int blocks_take_late_hooks(struct replay *replay, const struct trace_event *event)
{
	struct event_late_hooks hooks;

	event_late_hooks_decode(event->words, &hooks);
	replay->blocks.late = true;
	replay->totals.oddities.frees_unknown = 0;
	return hooks.slots == 0 ? 0 : forget_hidden(replay);
}

static int release(struct replay *replay, const struct trace_event *event, uint64_t key,
		   uint64_t stack)
{
	struct writer *writer = writers_at(&replay->writers, event->writer);
	uint32_t context = definitions_context_of(replay, writer, event->context);
	uint8_t space = replay->definitions.uses[context].space;
	struct recent_free free = {.key = key, .slot = UNDO_NO_BLOCK, .space = space};
	const struct live_entry *entry;
	struct usage *usage;
	struct block *block;

	if (writer == NULL)
		return 0;
	writer->latest = 0;
	entry = live_get(&replay->blocks, space, key);
	if (MSCOPE_UNLIKELY(entry == NULL)) {
		replay->totals.oddities.frees_unknown += free_is_odd(replay, context);
		undo_remember_later(replay, event->writer, &free);
		return 0;
	}
	free.slot = entry->slot;
	block = &replay->blocks.all[free.slot];
	if (replay->setup.known != NULL &&
	    block->undone < facts_get(replay->setup.known, block->allocation_id).undone_frees) {
		/* An earlier pass saw this free fail: it did not happen. The undo that follows finds nothing to do. */
		block->undone++;
		replay->totals.oddities.undone_frees++;
		return 0;
	}
	usage = usages_of(replay, block->context);
	if (usage == NULL)
		return -ENOMEM;
	remove_entry(replay, entry, usage);
	undo_remember(replay, &writer->recent, &free);
	usage->frees += replay->ending.kind != END_STOP;
	if (MSCOPE_UNLIKELY(usage->returned_bytes != 0))
		holdings_take_region(replay, usage);
	if (usage->pool == POOL_hal) {
		holdings_take_free(replay, block);
		holdings_note_level(replay, usage);
	}
	/* What is freed behind stop() has its row when a window begins, see ending_resume(). */
	if (block->hidden || replay->ending.kind == END_STOP)
		return 0;
	return blocks_publish(replay, ROW_FREE, event, block, usage,
			      definitions_stack(replay, writer, stack),
			      replay->windows.state != RECORDING_ON);
}

int blocks_take_block_free(struct replay *replay, const struct trace_event *event)
{
	struct event_block_free free;

	event_block_free_decode(event->words, &free);
	return release(replay, event, free.address, 0);
}

int blocks_take_block_free_traced(struct replay *replay, const struct trace_event *event)
{
	struct event_block_free_traced free;

	event_block_free_traced_decode(event->words, &free);
	return release(replay, event, free.address, free.stack);
}

/* ---- in a checkpoint ---- */

void blocks_save_block(const struct replay *replay, struct checkpoint *cp,
		       const struct block *block, uint64_t key, uint32_t freed_by)
{
	const struct pool_place *place = replay_place(replay, block->place);

	BUILDER_PUT(&cp->builder, live_block, block->context, .address = block->address,
		    .size_bytes = block->size_bytes, .stack = block->stack, .tid = block->tid,
		    .allocation_id = block->allocation_id, .time_ns = block->time_ns, .key = key,
		    .step = block->latest_step, .inside = block->alloc_step,
		    .launches = block->launches, .outside = block->outside_window,
		    .owner = block->owner, .freed_by = freed_by, .undone = block->undone,
		    .hidden = block->hidden, .after_end = block->after_end,
		    .segment_of = block->segment_of, .fresh = holdings_is_fresh(replay, block),
		    .requested_bytes = place == NULL ? 0 : block->requested_bytes,
		    .stream = place == NULL ? 0 : place->stream,
		    .private_first = place == NULL ? 0 : place->private_first,
		    .private_second = place == NULL ? 0 : place->private_second);
}

void blocks_save(const struct replay *replay, struct checkpoint *cp)
{
	const struct live_entry *entry;
	size_t cursor = 0;

	if (replay->blocks.late)
		BUILDER_PUT(&cp->builder, late_hooks, 0, .slots = 0);
	while ((entry = live_next(&replay->blocks.live, &cursor)) != NULL)
		blocks_save_block(replay, cp, &replay->blocks.all[entry->slot],
				  live_key(&replay->blocks, entry->slot), 0);
	ending_save_blocks(replay, cp);
}

/* The block that a checkpoint has, in a slot that it is given. 0 or -ENOMEM. */
static int load_block(struct replay *replay, const struct trace_event *event,
		      const struct event_live_block *live, uint32_t *out_slot)
{
	struct writer *own = writers_get(&replay->writers, event->writer);

	if (slot_take(&replay->blocks, out_slot) < 0)
		return -ENOMEM;
	replay->blocks.all[*out_slot] = (struct block){
		.address = live->address,
		.size_bytes = live->size_bytes,
		.allocation_id = live->allocation_id,
		.time_ns = live->time_ns,
		.context = definitions_context_of(replay, own, event->context),
		.stack = definitions_stack(replay, own, live->stack),
		.tid = (uint32_t)live->tid,
		.latest_step = (uint32_t)live->step,
		.alloc_step = (uint32_t)live->inside,
		.launches = live->launches & LAUNCHES_MAX,
		.owner = (uint32_t)live->owner,
		.undone = (uint16_t)live->undone,
		.hidden = live->hidden != 0,
		.outside_window = live->outside != 0,
		.after_end = live->after_end != 0 && live->freed_by != 0,
		.segment_of = (uint8_t)live->segment_of,
		.requested_bytes = live->requested_bytes,
		.place = live->requested_bytes == 0
				 ? 0
				 : pool_details_place(replay, live->stream, live->private_first,
						      live->private_second),
	};
	if (live->fresh)
		holdings_take_alloc(replay, *out_slot);
	return 0;
}

/* A block that was freed behind the end of the program's own code. */
static int load_gone(struct replay *replay, const struct trace_event *event,
		     const struct event_live_block *live)
{
	struct usage *usage;
	uint32_t slot = 0;

	if (live->allocation_id == 0 || !live->after_end)
		return 0;
	if (load_block(replay, event, live, &slot) < 0 ||
	    labels_load_owner(replay, &replay->blocks.all[slot]) < 0)
		return -ENOMEM;
	usage = usages_of(replay, replay->blocks.all[slot].context);
	if (usage == NULL)
		return -ENOMEM;
	ending_load_block(replay, &replay->blocks.all[slot], usage);
	return 0;
}

/* A block comes back as it was, without a row. */
int blocks_load_live_block(struct replay *replay, const struct trace_event *event)
{
	bool failed = false;
	struct event_live_block live;
	struct recent_free free;
	struct writer *writer;
	struct usage *usage;
	uint32_t slot = 0;
	struct block *block;

	event_live_block_decode(event->words, &live);
	free = (struct recent_free){
		.key = live.key, .slot = UNDO_NO_BLOCK, .space = (uint8_t)live.space};
	if (live.freed_by == FREED_FOR_GOOD)
		return load_gone(replay, event, &live);
	writer = live.freed_by == 0 ? NULL : writers_at(&replay->writers, (uint32_t)live.freed_by);
	if (live.freed_by != 0 && writer == NULL)
		return 0;
	if (live.freed_by != 0 && live.allocation_id == 0 && live.size_bytes != 0)
		return undo_load_contest(replay, &live);
	if (live.freed_by != 0 && live.allocation_id == 0) {
		undo_remember(replay, &writer->recent, &free);
		return 0;
	}
	if (load_block(replay, event, &live, &slot) < 0)
		return -ENOMEM;
	block = &replay->blocks.all[slot];
	free.space = replay->definitions.uses[block->context].space;
	free.slot = slot;
	if (writer != NULL && replay->setup.known != NULL &&
	    block->undone < facts_get(replay->setup.known, block->allocation_id).undone_frees) {
		/* An earlier pass saw this free fail behind the checkpoint. */
		block->undone++;
		block->after_end = false;
		failed = true;
		writer = NULL;
	}
	if (writer == NULL && live_get(&replay->blocks, free.space, live.key) != NULL) {
		blocks_release(&replay->blocks, slot);
		return 0;
	}
	usage = usages_of(replay, block->context);
	if (labels_load_owner(replay, block) < 0 || usage == NULL)
		return -ENOMEM;
	if (!replay->loaded.complete) { /* counts begin at the cut */
		usage->allocations++;
		usage->allocated_bytes += block->size_bytes;
	}
	usage->frees -= failed && usage->frees > 0;
	if (replay->ending.kind != 0 && (writer == NULL || block->after_end))
		ending_load_block(replay, block, usage);
	if (writer == NULL)
		return blocks_insert(replay, free.space, live.key, slot, usage, BLOCK_ADDED);
	undo_remember(replay, &writer->recent, &free);
	return 0;
}

/* ---- all of them ---- */

struct block **blocks_sorted(const struct blocks *blocks, size_t *out_count)
{
	struct block **list = calloc(blocks->live.count + 1, sizeof(*list));
	const struct live_entry *entry;
	size_t cursor = 0, count = 0;

	while (list != NULL && (entry = live_next(&blocks->live, &cursor)) != NULL)
		list[count++] = &blocks->all[entry->slot];
	if (list != NULL)
		qsort(list, count, sizeof(*list), block_order);
	*out_count = count;
	return list;
}

/* Blocks whose free no row shows: those that live, behind stop() those that lived then. */
static struct block **unfreed(const struct replay *replay, size_t *out_count)
{
	struct block **list;
	size_t cursor, count = 0;

	if (replay->ending.kind != END_STOP)
		return blocks_sorted(&replay->blocks, out_count);
	list = calloc(replay_count_at_end(replay) + 1, sizeof(*list));
	for (cursor = 0; list != NULL;) {
		const struct block *block = replay_next_at_end(replay, &cursor);

		if (block == NULL)
			break;
		list[count++] = &replay->blocks.all[block - replay->blocks.all];
	}
	if (list != NULL)
		qsort(list, count, sizeof(*list), block_order);
	*out_count = count;
	return list;
}

int replay_close_live(struct replay *replay)
{
	size_t count, i;
	struct block **blocks = unfreed(replay, &count);
	int r = 0;

	if (blocks == NULL)
		return -ENOMEM;
	for (i = 0; i < count && r == 0; i++) {
		struct trace_event event = {.time_ns = replay->totals.last_ns + 1,
					    .tid = blocks[i]->tid};
		const struct usage *usage = usages_of(replay, blocks[i]->context);
		struct row row;

		if (blocks[i]->hidden)
			continue;
		if (usage == NULL) {
			r = -ENOMEM;
			break;
		}
		/* It belongs to the step of the allocation: a choice of steps chooses whole blocks. */
		fill_row(replay, ROW_FREE, blocks[i], usage, 0, true, &row);
		row.step = blocks[i]->alloc_step;
		row.late = true;
		r = replay_publish(replay, &event, &row);
	}
	free(blocks);
	return r;
}

bool blocks_hide(const struct replay *replay, const struct block *block)
{
	const struct usage *usage = replay->usages.any_hidden ? replay_usage(replay, block) : NULL;

	return usage != NULL && usage->hidden;
}

const struct block *replay_next_block(const struct replay *replay, size_t *cursor)
{
	const struct live_entry *entry;

	while ((entry = live_next(&replay->blocks.live, cursor)) != NULL) {
		if (!blocks_hide(replay, &replay->blocks.all[entry->slot]))
			return &replay->blocks.all[entry->slot];
	}
	return NULL;
}

size_t replay_block_count(const struct replay *replay)
{
	return replay->blocks.live.count;
}
