/* SPDX-License-Identifier: Apache-2.0 */
#include "replay/pool_details.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "replay/state.h"

void pool_details_fini(struct replay *replay)
{
	free(replay->pool_details.places);
	free(replay->pool_details.segments);
	free(replay->pool_details.waiting);
}

/* ---- places ---- */

uint32_t pool_details_place(struct replay *replay, uint64_t stream, uint64_t private_first,
			    uint64_t private_second)
{
	struct pool_details *details = &replay->pool_details;
	struct pool_place place = {.stream = stream,
				   .private_first = (uint32_t)private_first,
				   .private_second = (uint32_t)private_second};
	size_t i;

	/* A program has few of them. */
	for (i = details->place_count; i > 0; i--) {
		const struct pool_place *known = &details->places[i - 1];

		if (known->stream == stream && known->private_first == place.private_first &&
		    known->private_second == place.private_second)
			return (uint32_t)i;
	}
	if (ARRAY_RESERVE(details->places, details->place_room, details->place_count + 1) < 0)
		return 0;
	details->places[details->place_count++] = place;
	return (uint32_t)details->place_count;
}

const struct pool_place *replay_place(const struct replay *replay, uint32_t place)
{
	return place == 0 || place > replay->pool_details.place_count
		       ? NULL
		       : &replay->pool_details.places[place - 1];
}

bool pool_place_is_private(const struct pool_place *place)
{
	return place != NULL && place->private_first != POOL_PRIVATE_UNKNOWN &&
	       (place->private_first != 0 || place->private_second != 0);
}

void pool_details_count(const struct replay *replay, const struct block *block, struct usage *usage,
			bool more)
{
	usage->requested_bytes += more ? block->requested_bytes : -block->requested_bytes;
	if (usage->requested_bytes > usage->requested_peak_bytes && more)
		usage->requested_peak_bytes = usage->requested_bytes;
	usage->detailed_bytes += more ? block->size_bytes : -block->size_bytes;
	if (pool_place_is_private(replay_place(replay, block->place)))
		usage->private_live_bytes += more ? block->size_bytes : -block->size_bytes;
}

/* ---- frees that wait ---- */

static void stop_waiting(struct replay *replay, size_t at)
{
	struct pool_details *details = &replay->pool_details;
	const struct waiting_block *block = &details->waiting[at];
	struct usage *usage = &replay->usages.all[block->usage - 1];

	usage->waiting_bytes -= block->size_bytes;
	usage->waiting_requested_bytes -= block->requested_bytes;
	usage->waiting_blocks--;
	details->waiting[at] = details->waiting[--details->waiting_count];
}

/* Drops what waits between two addresses. */
static void stop_waiting_in(struct replay *replay, uint64_t start, uint64_t end)
{
	struct pool_details *details = &replay->pool_details;
	size_t i;

	for (i = details->waiting_count; i > 0; i--) {
		if (details->waiting[i - 1].address >= start &&
		    details->waiting[i - 1].address < end)
			stop_waiting(replay, i - 1);
	}
}

void pool_details_take_alloc(struct replay *replay, uint64_t address)
{
	if (MSCOPE_UNLIKELY(replay->pool_details.waiting_count != 0))
		stop_waiting_in(replay, address, address + 1);
}

static int start_waiting(struct replay *replay, const struct event_pool_block *event,
			 uint32_t context)
{
	struct pool_details *details = &replay->pool_details;
	struct usage *usage = usages_of(replay, context);

	if (usage == NULL ||
	    ARRAY_RESERVE(details->waiting, details->waiting_room, details->waiting_count + 1) < 0)
		return -ENOMEM;
	stop_waiting_in(replay, event->address, event->address + 1);
	usage->detailed = true;
	usage->waiting_bytes += event->size_bytes;
	usage->waiting_requested_bytes += event->requested_bytes;
	usage->waiting_blocks++;
	details->waiting[details->waiting_count++] = (struct waiting_block){
		.address = event->address,
		.size_bytes = event->size_bytes,
		.requested_bytes = event->requested_bytes,
		.usage = (uint32_t)(usage - replay->usages.all) + 1,
		.place = pool_details_place(replay, event->stream, event->private_first,
					    event->private_second),
	};
	return 0;
}

/* What is told later of a block that lives. */
static int complete_block(struct replay *replay, const struct event_pool_block *event,
			  uint32_t context)
{
	const struct live_entry *entry =
		live_get(&replay->blocks, replay->definitions.uses[context].space, event->address);
	struct usage *usage = usages_of(replay, context);
	struct block *block;

	if (usage == NULL)
		return -ENOMEM;
	/* Behind stop() it may count, or not. */
	if (entry == NULL || replay->ending.kind == END_STOP)
		return 0;
	block = &replay->blocks.all[entry->slot];
	if (block->requested_bytes != 0 || event->requested_bytes == 0 ||
	    event->requested_bytes > block->size_bytes)
		return 0;
	usage->detailed = true;
	block->requested_bytes = event->requested_bytes;
	block->place = pool_details_place(replay, event->stream, event->private_first,
					  event->private_second);
	pool_details_count(replay, block, usage, true);
	return 0;
}

int pool_details_take_pool_block(struct replay *replay, const struct trace_event *event)
{
	uint32_t context = definitions_context(replay, event);
	struct event_pool_block block;

	event_pool_block_decode(event->words, &block);
	switch (block.kind) {
	case POOL_BLOCK_WAITS:
		return start_waiting(replay, &block, context);
	case POOL_BLOCK_DONE:
		stop_waiting_in(replay, block.address, block.address + 1);
		return 0;
	case POOL_BLOCK_EXISTS:
		return complete_block(replay, &block, context);
	default:
		return 0;
	}
}

/* ---- segments ---- */

/* The first segment that begins at an address or behind it. */
static size_t segment_from(const struct pool_details *details, uint64_t address)
{
	return COUNT_FRONT(at, details->segment_count, details->segments[at].address < address);
}

static void count_segment(struct replay *replay, const struct pool_segment *segment, bool more)
{
	struct usage *usage = &replay->usages.all[segment->usage - 1];
	const struct pool_place *place = replay_place(replay, segment->place);
	bool is_private = pool_place_is_private(place);

	usage->private_unknown = usage->private_unknown ||
				 (place != NULL && place->private_first == POOL_PRIVATE_UNKNOWN);
	usage->segment_bytes += more ? segment->size_bytes : -segment->size_bytes;
	if (is_private)
		usage->private_bytes += more ? segment->size_bytes : -segment->size_bytes;
}

static int insert_segment(struct replay *replay, const struct pool_segment *segment)
{
	struct pool_details *details = &replay->pool_details;
	size_t at = segment_from(details, segment->address);

	if (ARRAY_RESERVE(details->segments, details->segment_room, details->segment_count + 1) < 0)
		return -ENOMEM;
	memmove(&details->segments[at + 1], &details->segments[at],
		(details->segment_count - at) * sizeof(*details->segments));
	details->segments[at] = *segment;
	details->segment_count++;
	count_segment(replay, segment, true);
	return 0;
}

static void remove_segment(struct replay *replay, size_t at)
{
	struct pool_details *details = &replay->pool_details;

	count_segment(replay, &details->segments[at], false);
	details->segment_count--;
	memmove(&details->segments[at], &details->segments[at + 1],
		(details->segment_count - at) * sizeof(*details->segments));
}

/* The driver's block that a segment is, where nothing else tells of the driver. */
static int add_driver_block(struct replay *replay, const struct trace_event *event,
			    struct pool_segment *segment)
{
	const struct usage *usage = &replay->usages.all[segment->usage - 1];
	struct context context = {.pool = POOL_hal,
				  .kind = BLOCK_ALLOC,
				  .vendor = usage->vendor,
				  .device = usage->device,
				  .module = MODULE_UNKNOWN,
				  .flags = (uint64_t)CUDA_MEMORY_DEVICE << 56};
	struct new_block asked = {.key = segment->address,
				  .address = segment->address,
				  .size_bytes = segment->size_bytes,
				  .segment_of = usage->pool};
	uint32_t number = definitions_add_context(replay, &context);

	if (number == 0)
		return -ENOMEM;
	segment->driver_space = replay->definitions.uses[number].space;
	return blocks_allocate(replay, event, NULL, number, &asked);
}

static int end_driver_block(struct replay *replay, const struct trace_event *event,
			    const struct pool_segment *segment)
{
	const struct live_entry *entry =
		segment->driver_space == 0
			? NULL
			: live_get(&replay->blocks, segment->driver_space, segment->address);

	return entry == NULL ? 0 : blocks_free(replay, event, entry);
}

/* Takes the memory between two addresses out of the segments; what a mapping has beside it stays. */
static int cut_segments(struct replay *replay, const struct trace_event *event, uint64_t start,
			uint64_t end)
{
	struct pool_details *details = &replay->pool_details;
	size_t at = segment_from(details, start);
	int r = 0;

	at -= at > 0 &&
	      details->segments[at - 1].address + details->segments[at - 1].size_bytes > start;
	while (r == 0 && at < details->segment_count && details->segments[at].address < end) {
		struct pool_segment old = details->segments[at], rest[2] = {old, old};
		uint64_t old_end = old.address + old.size_bytes;
		size_t i;

		rest[0].size_bytes = old.address < start ? start - old.address : 0;
		rest[1].size_bytes = old_end > end ? old_end - end : 0;
		rest[1].address = end;
		remove_segment(replay, at);
		r = end_driver_block(replay, event, &old);
		for (i = 0; i < 2 && r == 0; i++) {
			if (rest[i].size_bytes == 0)
				continue;
			if (old.driver_space != 0)
				r = add_driver_block(replay, event, &rest[i]);
			if (r == 0)
				r = insert_segment(replay, &rest[i]);
		}
		at = segment_from(details, start);
	}
	return r;
}

static struct pool_segment segment_of(struct replay *replay, const struct usage *usage,
				      const struct event_pool_segment *said)
{
	return (struct pool_segment){
		.address = said->address,
		.size_bytes = said->size_bytes,
		.usage = (uint32_t)(usage - replay->usages.all) + 1,
		.place = pool_details_place(replay, said->stream, said->private_first,
					    said->private_second),
	};
}

/* The segment that has an address; NULL if none is known. */
static const struct pool_segment *segment_at(const struct replay *replay, uint64_t address)
{
	const struct pool_details *details = &replay->pool_details;
	size_t at = segment_from(details, address + 1);

	return at > 0 && address - details->segments[at - 1].address <
				       details->segments[at - 1].size_bytes
		       ? &details->segments[at - 1]
		       : NULL;
}

int pool_details_take_pool_segment(struct replay *replay, const struct trace_event *event)
{
	struct usage *usage = usages_of(replay, definitions_context(replay, event));
	struct event_pool_segment said;
	struct pool_segment segment;
	uint64_t end;
	int r;

	if (usage == NULL)
		return -ENOMEM;
	event_pool_segment_decode(event->words, &said);
	end = said.address + said.size_bytes;
	if (end <= said.address ||
	    (said.kind == SEGMENT_EXISTS && segment_at(replay, said.address) != NULL))
		return 0;
	usage->detailed = true;
	segment = segment_of(replay, usage, &said);
	/* What a pool gets, it has not; what it gives back, nothing waits in. */
	r = cut_segments(replay, event, said.address, end);
	stop_waiting_in(replay, said.address, end);
	if (r < 0 || said.kind == SEGMENT_FREE || said.kind == SEGMENT_UNMAP)
		return r;
	if (!replay->pool_details.driver_calls && said.kind != SEGMENT_EXISTS)
		r = add_driver_block(replay, event, &segment);
	return r < 0 ? r : insert_segment(replay, &segment);
}

/* A segment in a checkpoint: a block of the driver's that it made is among the blocks. */
int pool_details_load_pool_segment(struct replay *replay, const struct trace_event *event)
{
	struct usage *usage = usages_of(replay, definitions_context(replay, event));
	struct event_pool_segment said;
	struct pool_segment segment;

	if (usage == NULL)
		return -ENOMEM;
	event_pool_segment_decode(event->words, &said);
	usage->detailed = true;
	segment = segment_of(replay, usage, &said);
	if (said.kind == SEGMENT_ALLOC)
		segment.driver_space = POOL_hal << 4 | BLOCK_ALLOC;
	return insert_segment(replay, &segment);
}

void pool_details_take_driver(struct replay *replay, const struct context *context)
{
	if (context->vendor == VENDOR_CUDA)
		replay->pool_details.driver_calls = true;
}

int pool_details_take_pool_source(struct replay *replay, const struct trace_event *event)
{
	struct event_pool_source source;
	struct usage *usage;

	event_pool_source_decode(event->words, &source);
	if (source.state == POOL_SOURCE_DRIVER) {
		replay->pool_details.driver_calls = true;
		return 0;
	}
	if (source.state == POOL_SOURCE_UNSEEN) {
		replay->pool_details.unseen = true;
		return 0;
	}
	usage = usages_of(replay, definitions_context(replay, event));
	if (usage == NULL)
		return -ENOMEM;
	usage->detailed = usage->detailed || source.state != POOL_SOURCE_STRANGE;
	usage->all_segments = usage->all_segments || source.state == POOL_SOURCE_BEGINS;
	return 0;
}

bool replay_has_unseen_pool(const struct replay *replay)
{
	return replay->pool_details.unseen;
}

bool pool_details_keeps(struct replay *replay, const struct block *block, uint8_t space)
{
	struct pool_details *details = &replay->pool_details;
	size_t at = segment_from(details, block->address);

	if (space != (POOL_hal << 4 | BLOCK_ALLOC) || at == details->segment_count ||
	    details->segments[at].address != block->address ||
	    details->segments[at].size_bytes != block->size_bytes)
		return false;
	details->segments[at].driver_space = space;
	return true;
}

/* ---- in a checkpoint ---- */

/* A context of that usage, to name it by. */
static uint32_t context_of(const struct replay *replay, uint32_t usage)
{
	size_t i;

	for (i = 1; i < replay->definitions.context_count; i++) {
		if (replay->definitions.uses[i].usage == usage)
			return (uint32_t)i;
	}
	return 0;
}

void pool_details_save(const struct replay *replay, struct checkpoint *cp)
{
	const struct pool_details *details = &replay->pool_details;
	size_t i;

	if (details->driver_calls)
		BUILDER_PUT(&cp->builder, pool_source, 0, .state = POOL_SOURCE_DRIVER);
	if (details->unseen)
		BUILDER_PUT(&cp->builder, pool_source, 0, .state = POOL_SOURCE_UNSEEN);
	for (i = 0; i < replay->usages.count; i++) {
		const struct usage *usage = &replay->usages.all[i];

		if (usage->detailed)
			BUILDER_PUT(&cp->builder, pool_source, context_of(replay, (uint32_t)i + 1),
				    .state = usage->all_segments ? POOL_SOURCE_BEGINS
								 : POOL_SOURCE_LATE);
	}
	for (i = 0; i < details->segment_count; i++) {
		const struct pool_segment *segment = &details->segments[i];
		const struct pool_place *place = replay_place(replay, segment->place);

		if (place == NULL)
			continue;
		BUILDER_PUT(&cp->builder, pool_segment, context_of(replay, segment->usage),
			    .address = segment->address, .size_bytes = segment->size_bytes,
			    .stream = place->stream, .private_first = place->private_first,
			    .private_second = place->private_second,
			    .kind = segment->driver_space != 0 ? SEGMENT_ALLOC : SEGMENT_EXISTS);
	}
	for (i = 0; i < details->waiting_count; i++) {
		const struct waiting_block *block = &details->waiting[i];
		const struct pool_place *place = replay_place(replay, block->place);

		if (place != NULL)
			BUILDER_PUT(&cp->builder, pool_block, context_of(replay, block->usage),
				    .address = block->address, .size_bytes = block->size_bytes,
				    .requested_bytes = block->requested_bytes,
				    .stream = place->stream, .private_first = place->private_first,
				    .private_second = place->private_second,
				    .kind = POOL_BLOCK_WAITS);
	}
}
