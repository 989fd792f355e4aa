/* SPDX-License-Identifier: Apache-2.0 */
#include "replay/ending.h"

#include <errno.h>
#include <stdlib.h>

#include "replay/state.h"

/* The first one counts: an interpreter ends before the main() that it returns to. */
static void end(struct replay *replay, const struct trace_event *event, enum end_kind kind)
{
	size_t i;

	if (replay->ending.kind != 0)
		return;
	replay->ending = (struct ending){.kind = (uint8_t)kind,
					 .time_ns = event->time_ns,
					 .allocations = replay->totals.allocations};
	for (i = 0; i < replay->usages.count; i++) {
		struct usage *usage = &replay->usages.all[i];

		usage->end_bytes = usage->live_bytes;
		usage->end_blocks = usage->live_blocks;
	}
}

int ending_take_ended(struct replay *replay, const struct trace_event *event)
{
	struct event_ended ended;

	event_ended_decode(event->words, &ended);
	/* Anything else is a record that the program wrote over. */
	if (ended.kind != 0 && event->words[1] == ended.kind)
		end(replay, event, (enum end_kind)ended.kind);
	return 0;
}

void ending_take_stop(struct replay *replay, const struct trace_event *event)
{
	end(replay, event, END_STOP);
}

/* Whether the block was allocated before the end. */
static bool is_older(const struct replay *replay, const struct block *block)
{
	return block->allocation_id <= replay->ending.allocations;
}

bool ending_is_outside(const struct replay *replay, const struct block *block)
{
	return replay->ending.kind == END_STOP && (block->after_end || !is_older(replay, block));
}

/* Ends the blocks that were freed since stop(), with rows of this moment, in the order of allocation. */
static int catch_up_frees(struct replay *replay, const struct trace_event *event)
{
	struct blocks *blocks = &replay->blocks;
	struct block **freed = calloc(blocks->count + 1, sizeof(*freed));
	uint8_t *remembered = calloc(blocks->count + 1, 1);
	size_t i, count = 0;
	int r = freed == NULL || remembered == NULL ? -ENOMEM : 0;

	for (i = 0; r == 0 && i < blocks->count; i++) {
		if (blocks->all[i].after_end)
			freed[count++] = &blocks->all[i];
	}
	if (r == 0) {
		undo_mark_slots(replay, remembered);
		qsort(freed, count, sizeof(*freed), block_order);
	}
	for (i = 0; r == 0 && i < count; i++) {
		struct usage *usage = usages_of(replay, freed[i]->context);

		if (usage == NULL) {
			r = -ENOMEM;
			break;
		}
		blocks_uncount(replay, freed[i], usage);
		usage->frees++;
		r = blocks_publish(replay, ROW_FREE, event, freed[i], usage, 0, true);
		freed[i]->after_end = false;
		/* What an undo can bring back is released by it. */
		if (!remembered[freed[i] - blocks->all])
			blocks_release(blocks, (uint32_t)(freed[i] - blocks->all));
	}
	free(freed);
	free(remembered);
	return r;
}

/* Adds the blocks that came since stop() and live. They are shown as all that is older than a window. */
static int catch_up_allocations(struct replay *replay, uint64_t known)
{
	size_t count, i;
	struct block **blocks = blocks_sorted(&replay->blocks, &count);

	if (blocks == NULL)
		return -ENOMEM;
	for (i = 0; i < count; i++) {
		struct usage *usage = usages_of(replay, blocks[i]->context);

		if (usage == NULL || blocks[i]->allocation_id <= known)
			continue;
		usage->allocations++;
		usage->allocated_bytes += blocks[i]->size_bytes;
		blocks_count(replay, blocks[i], usage, BLOCK_ADDED);
	}
	free(blocks);
	return 0;
}

int ending_resume(struct replay *replay, const struct trace_event *event)
{
	uint64_t known = replay->ending.allocations;
	size_t i;
	int r;

	if (replay->ending.kind != END_STOP)
		return 0;
	replay->ending = (struct ending){0};
	r = catch_up_frees(replay, event);
	if (r == 0)
		r = catch_up_allocations(replay, known);
	for (i = 0; i < replay->usages.count; i++) {
		struct usage *usage = &replay->usages.all[i];

		usage->outside_bytes = 0;
		if (usage->reserved_bytes != UINT64_MAX &&
		    usage->reserved_bytes > usage->peak_reserved_bytes)
			usage->peak_reserved_bytes = usage->reserved_bytes;
	}
	return r;
}

void ending_take_freed(struct replay *replay, struct block *block)
{
	block->after_end = is_older(replay, block);
}

void ending_take_restored(struct replay *replay, struct block *block, struct usage *usage)
{
	/* The free came before the end, and it failed. */
	if (!block->after_end && is_older(replay, block)) {
		usage->end_bytes += block->size_bytes;
		usage->end_blocks++;
	}
	block->after_end = false;
}

/* ---- queries ---- */

enum end_kind replay_ended(const struct replay *replay)
{
	return (enum end_kind)replay->ending.kind;
}

uint64_t replay_end_ns(const struct replay *replay)
{
	return replay->ending.kind != 0 ? replay->ending.time_ns : replay->totals.last_ns;
}

void replay_usage_at_end(const struct replay *replay, const struct usage *usage,
			 uint64_t *out_bytes, uint64_t *out_blocks)
{
	bool ended = replay->ending.kind != 0;

	*out_bytes = ended ? usage->end_bytes : usage->live_bytes;
	*out_blocks = ended ? usage->end_blocks : usage->live_blocks;
}

static const struct block *next_at_end(const struct replay *replay, size_t *cursor)
{
	const struct blocks *blocks = &replay->blocks;
	size_t live = blocks->live.entries == NULL ? 0 : blocks->live.mask + 1, slot;
	const struct live_entry *entry;

	if (replay->ending.kind == 0)
		return replay_next_block(replay, cursor);
	while (*cursor < live && (entry = live_next(&blocks->live, cursor)) != NULL) {
		if (is_older(replay, &blocks->all[entry->slot]))
			return &blocks->all[entry->slot];
	}
	/* Behind the table, the cursor counts slots. */
	if (*cursor < live)
		*cursor = live;
	while ((slot = *cursor - live) < blocks->count) {
		(*cursor)++;
		if (blocks->all[slot].after_end)
			return &blocks->all[slot];
	}
	return NULL;
}

const struct block *replay_next_observed(const struct replay *replay, size_t *cursor)
{
	return replay->ending.kind == END_STOP ? replay_next_at_end(replay, cursor)
					       : replay_next_block(replay, cursor);
}

size_t replay_count_observed(const struct replay *replay)
{
	return replay->ending.kind == END_STOP ? replay_count_at_end(replay)
					       : replay_block_count(replay);
}

const struct block *replay_next_at_end(const struct replay *replay, size_t *cursor)
{
	const struct block *block;

	do {
		block = next_at_end(replay, cursor);
	} while (block != NULL && blocks_hide(replay, block));
	return block;
}

size_t replay_count_at_end(const struct replay *replay)
{
	size_t count = 0, cursor = 0;

	if (replay->ending.kind == 0)
		return replay_block_count(replay);
	while (replay_next_at_end(replay, &cursor) != NULL)
		count++;
	return count;
}

/* ---- in a checkpoint ---- */

int ending_keep(struct replay *replay, struct keeping *k)
{
	KEEP(&k->words, replay->ending.kind);
	KEEP(&k->words, replay->ending.time_ns);
	KEEP(&k->words, replay->ending.allocations);
	return 0;
}

void ending_load_block(struct replay *replay, const struct block *block, struct usage *usage)
{
	if (!is_older(replay, block))
		return;
	usage->end_bytes += block->size_bytes;
	usage->end_blocks++;
	/* The window still has it. */
	if (replay->ending.kind == END_STOP && block->after_end) {
		usage->live_bytes += block->size_bytes;
		usage->live_blocks++;
		usage->outside_bytes -= (int64_t)block->size_bytes;
		if (usage->pool == POOL_hal)
			driver_pages_add(&usage->pages, replay_context(replay, block->context),
					 block->address, block->size_bytes);
		if (block->requested_bytes != 0)
			pool_details_count(replay, block, usage, true);
	}
}

void ending_save_blocks(const struct replay *replay, struct checkpoint *cp)
{
	const struct blocks *blocks = &replay->blocks;
	uint8_t *remembered;
	size_t i;

	if (replay->ending.kind == 0)
		return;
	remembered = calloc(blocks->count + 1, 1);
	if (remembered == NULL) {
		builder_fail(&cp->builder, -ENOMEM);
		return;
	}
	undo_mark_slots(replay, remembered);
	for (i = 0; i < blocks->count; i++) {
		if (blocks->all[i].after_end && !remembered[i])
			blocks_save_block(replay, cp, &blocks->all[i], 0, FREED_FOR_GOOD);
	}
	free(remembered);
}
