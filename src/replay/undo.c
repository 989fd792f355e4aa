/* SPDX-License-Identifier: Apache-2.0 */
#include "replay/undo.h"

#include <errno.h>
#include "replay/state.h"

/* Place of the i-th oldest. */
static uint32_t place(const struct recent_frees *recent, uint32_t i)
{
	return (recent->first + i) % RECENT_FREES;
}

/* Takes out the i-th oldest. */
static void drop(struct recent_frees *recent, uint32_t i)
{
	if (i == 0)
		recent->first = (uint8_t)place(recent, 1);
	for (; i > 0 && i + 1 < recent->count; i++)
		recent->all[place(recent, i)] = recent->all[place(recent, i + 1)];
	recent->count--;
}

/* Drops a remembered free whose block will not come back. */
static void forget(struct replay *replay, struct recent_frees *recent, uint32_t i)
{
	uint32_t slot = recent->all[place(recent, i)].slot;

	if (slot != UNDO_NO_BLOCK)
		blocks_release(&replay->blocks, slot);
	drop(recent, i);
}

/* The i of a remembered free, or how many there are. */
static uint32_t find(const struct recent_frees *recent, uint8_t space, uint64_t key)
{
	uint32_t i;

	for (i = 0; i < recent->count; i++) {
		const struct recent_free *free = &recent->all[place(recent, i)];

		if (free->key == key && free->space == space)
			break;
	}
	return i;
}

void undo_remember(struct replay *replay, struct recent_frees *recent,
		   const struct recent_free *free)
{
	uint32_t i = find(recent, free->space, free->key);

	if (MSCOPE_UNLIKELY(i < recent->count))
		forget(replay, recent, i);
	else if (recent->count == RECENT_FREES)
		forget(replay, recent, 0);
	recent->all[place(recent, recent->count++)] = *free;
}

/* Brings a block back. A fact tells later passes over the trace that the free failed. */
static int restore(struct replay *replay, const struct recent_free *free)
{
	struct block *block = &replay->blocks.all[free->slot];
	struct usage *usage = usages_of(replay, block->context);
	struct facts *facts = replay->setup.facts;
	struct fact *fact;

	if (usage == NULL)
		return -ENOMEM;
	block->undone++;
	usage->frees -= usage->frees > 0;
	fact = facts == NULL ? NULL : facts_at(facts, block->allocation_id);
	if (fact != NULL) {
		fact->undone_frees = block->undone;
		facts->changed = true;
	}
	return blocks_insert(replay, free->space, free->key, free->slot, usage, BLOCK_RESTORED);
}

static int undo(struct replay *replay, uint32_t context, const struct recent_free *free)
{
	if (free->slot == UNDO_NO_BLOCK) {
		/* The driver did not know the address either. */
		replay->totals.oddities.frees_unknown -=
			free_is_odd(replay_context(replay, context));
	} else if (live_get(&replay->blocks.live, free->space, free->key) == NULL) {
		return restore(replay, free);
	} else {
		/* The address was handed out again since, so the free cannot have failed. */
		blocks_release(&replay->blocks, free->slot);
		replay->totals.oddities.undone_unknown++;
	}
	return 0;
}

int undo_take_block_free_undo(struct replay *replay, const struct trace_event *event)
{
	struct writer *writer = writers_get(&replay->writers, event->writer);
	struct event_block_free_undo record;
	struct recent_free free;
	uint32_t context, i;
	uint8_t space;

	/* A later pass knows which frees failed, and did not take them. */
	if (replay->setup.known != NULL)
		return 0;
	context = definitions_context(replay, event);
	space = replay->definitions.uses[context].space;
	event_block_free_undo_decode(event->words, &record);
	i = writer == NULL ? 0 : find(&writer->recent, space, record.address);
	if (writer == NULL || i == writer->recent.count) {
		replay->totals.oddities.undone_unknown++;
		return 0;
	}
	free = writer->recent.all[place(&writer->recent, i)];
	drop(&writer->recent, i);
	replay->totals.oddities.undone_frees++;
	return undo(replay, context, &free);
}

/* ---- in a checkpoint ---- */

/* Loaded with the blocks. */
void undo_save(const struct replay *replay, struct checkpoint *cp)
{
	uint32_t number, i;

	for (number = 1; number < replay->writers.room; number++) {
		const struct writer *writer = replay->writers.all[number];

		for (i = 0; writer != NULL && i < writer->recent.count; i++) {
			const struct recent_free *free =
				&writer->recent.all[place(&writer->recent, i)];

			if (free->slot != UNDO_NO_BLOCK)
				blocks_save_block(cp, &replay->blocks.all[free->slot], free->key,
						  number);
			else
				BUILDER_PUT(&cp->builder, live_block, 0, .key = free->key,
					    .freed_by = number, .space = free->space);
		}
	}
}
