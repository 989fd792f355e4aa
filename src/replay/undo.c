/* SPDX-License-Identifier: Apache-2.0 */
#include "replay/undo.h"

#include <errno.h>
#include <string.h>

#include "replay/state.h"

static void drop(struct recent_frees *recent, uint32_t at)
{
	recent->count--;
	memmove(recent->all + at, recent->all + at + 1,
		(recent->count - at) * sizeof(*recent->all));
}

/* Drops a remembered free whose block will not come back. */
static void forget(struct replay *replay, struct recent_frees *recent, uint32_t at)
{
	if (recent->all[at].slot != UNDO_NO_BLOCK)
		blocks_release(&replay->blocks, recent->all[at].slot);
	drop(recent, at);
}

void undo_remember(struct replay *replay, struct recent_frees *recent,
		   const struct recent_free *free)
{
	uint32_t i;

	for (i = 0; i < recent->count; i++) {
		if (recent->all[i].space == free->space && recent->all[i].key == free->key)
			break;
	}
	if (i < recent->count)
		forget(replay, recent, i);
	else if (recent->count == RECENT_FREES)
		forget(replay, recent, 0);
	recent->all[recent->count++] = *free;
}

/* Brings a block back. Later passes over the trace are told that its free failed. */
static int restore(struct replay *replay, const struct recent_free *free)
{
	struct block *block = &replay->blocks.all[free->slot];
	struct usage *usage = usages_at(replay, block->context);
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
	return blocks_insert(replay, free->space, free->key, free->slot, BLOCK_RESTORED);
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
	uint32_t context, i;
	uint8_t space;

	/* A later pass knows which frees failed, and did not take them. */
	if (replay->setup.known != NULL)
		return 0;
	context = definitions_context(replay, event);
	space = replay->definitions.uses[context].space;
	event_block_free_undo_decode(event->words, &record);
	for (i = 0; writer != NULL && i < writer->recent.count; i++) {
		struct recent_free free = writer->recent.all[i];

		if (free.key != record.address || free.space != space)
			continue;
		drop(&writer->recent, i);
		replay->totals.oddities.undone_frees++;
		return undo(replay, context, &free);
	}
	replay->totals.oddities.undone_unknown++;
	return 0;
}
