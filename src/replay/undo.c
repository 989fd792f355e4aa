/* SPDX-License-Identifier: Apache-2.0 */
#include "replay/undo.h"

#include <errno.h>
#include <string.h>

#include "replay/facts.h"
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

/* ---- contests ---- */

static struct contest *contest_of(struct contests *contests, uint32_t slot)
{
	uint32_t i;

	for (i = 0; i < contests->count; i++) {
		if (contests->all[i].slot == slot)
			return &contests->all[i];
	}
	return NULL;
}

/* What this writer remembers of a later free in a contest; NULL: nothing any more. */
static struct recent_free *later_free(const struct replay *replay, uint32_t number, uint32_t slot)
{
	struct writer *writer = writers_get(&replay->writers, number);
	uint32_t i;

	for (i = 0; writer != NULL && i < writer->recent.count; i++) {
		struct recent_free *free = &writer->recent.all[place(&writer->recent, i)];

		if (free->later && free->slot == slot)
			return free;
	}
	return NULL;
}

/* The frees that are left are frees of nothing. */
static void contest_end(struct replay *replay, struct contest *contest)
{
	struct contests *contests = &replay->contests;
	struct contest *last = &contests->all[--contests->count];
	uint32_t i;

	for (i = 1; i < contest->count; i++) {
		struct recent_free *free =
			later_free(replay, contest->frees[i].writer, contest->slot);

		if (free == NULL)
			continue;
		free->slot = UNDO_NO_BLOCK;
		free->later = false;
	}
	memmove(contest, contest + 1, (size_t)(last - contest) * sizeof(*contest));
}

static struct contest *contest_begin(struct replay *replay, const struct recent_free *free,
				     uint32_t writer)
{
	struct contests *contests = &replay->contests;
	struct contest *contest;

	if (contests->count == CONTESTS)
		contest_end(replay, &contests->all[0]);
	contest = &contests->all[contests->count++];
	*contest = (struct contest){
		.key = free->key, .slot = free->slot, .count = 1, .space = free->space};
	contest->frees[0].writer = writer;
	return contest;
}

/* Takes the i-th free out, which failed: it counts as a failed one behind the free before it. */
static void contest_drop(struct contest *contest, uint32_t i)
{
	if (i > 0)
		contest->frees[i - 1].failed += contest->frees[i].failed + 1;
	contest->count--;
	memmove(&contest->frees[i], &contest->frees[i + 1],
		(contest->count - i) * sizeof(contest->frees[0]));
}

/* ---- remembered frees ---- */

/* The slot of a remembered free whose block will not come back is free. */
static void give_back(struct replay *replay, const struct recent_free *free)
{
	struct contest *contest;

	if (free->slot == UNDO_NO_BLOCK || free->later)
		return;
	contest = contest_of(&replay->contests, free->slot);
	if (MSCOPE_UNLIKELY(contest != NULL))
		contest_end(replay, contest);
	blocks_release(&replay->blocks, free->slot);
}

static void forget(struct replay *replay, struct recent_frees *recent, uint32_t i)
{
	give_back(replay, &recent->all[place(recent, i)]);
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

/* The writer whose remembered free has the youngest block of this key, 0: none has. */
static uint32_t holder(const struct replay *replay, uint8_t space, uint64_t key,
		       struct recent_free *out_free)
{
	uint64_t youngest = 0;
	uint32_t number, result = 0;

	for (number = 1; number < replay->writers.room; number++) {
		const struct writer *writer = replay->writers.all[number];
		uint32_t i = writer == NULL ? 0 : find(&writer->recent, space, key);
		const struct recent_free *free;

		if (writer == NULL || i == writer->recent.count)
			continue;
		free = &writer->recent.all[place(&writer->recent, i)];
		if (free->slot == UNDO_NO_BLOCK || free->later ||
		    replay->blocks.all[free->slot].allocation_id < youngest)
			continue;
		youngest = replay->blocks.all[free->slot].allocation_id;
		*out_free = *free;
		result = number;
	}
	return result;
}

void undo_remember_later(struct replay *replay, uint32_t number, const struct recent_free *free)
{
	struct writer *writer = writers_get(&replay->writers, number);
	struct recent_free later = *free;
	struct recent_free has = {0};
	struct contest *contest = NULL;
	uint32_t first;

	/* A later pass knows which free it was. */
	first = replay->setup.known == NULL ? holder(replay, free->space, free->key, &has) : 0;
	if (first != 0 && first != number) {
		contest = contest_of(&replay->contests, has.slot);
		if (contest == NULL)
			contest = contest_begin(replay, &has, first);
	}
	/* A second free of the same thread without an undo: the one before did happen. */
	if (contest != NULL && contest->count < CONTEST_FREES &&
	    later_free(replay, number, has.slot) == NULL) {
		contest->frees[contest->count].writer = number;
		contest->frees[contest->count++].failed = 0;
		later.slot = has.slot;
		later.later = true;
	}
	undo_remember(replay, &writer->recent, &later);
}

/* These many more frees of a block failed. A fact tells later passes over the trace. */
static void count_failed(struct replay *replay, struct block *block, uint32_t failed)
{
	struct facts *facts = replay->setup.facts;
	struct fact *fact;

	block->undone = (uint16_t)(block->undone + failed);
	fact = facts == NULL ? NULL : facts_at(facts, block->allocation_id);
	if (fact != NULL) {
		fact->undone_frees = block->undone;
		facts->changed = true;
	}
}

/* Brings a block back. */
static int restore(struct replay *replay, const struct recent_free *free)
{
	struct usage *usage = usages_of(replay, replay->blocks.all[free->slot].context);

	if (usage == NULL)
		return -ENOMEM;
	usage->frees -=
		usage->frees > 0 && !ending_is_outside(replay, &replay->blocks.all[free->slot]);
	return blocks_insert(replay, free->space, free->key, free->slot, usage, BLOCK_RESTORED);
}

/* The free that had the block failed: the next one has it. False: there is none. */
static bool pass_on(struct replay *replay, struct contest *contest)
{
	struct block *block = &replay->blocks.all[contest->slot];
	struct recent_free *next;

	count_failed(replay, block, 1 + contest->frees[0].failed);
	contest_drop(contest, 0);
	if (contest->count == 0) {
		contest_end(replay, contest);
		return false;
	}
	replay->totals.oddities.frees_unknown -= free_is_odd(replay, block->context);
	next = later_free(replay, contest->frees[0].writer, contest->slot);
	if (next != NULL) {
		next->later = false;
	} else {
		/* Too old for an undo: it did happen. */
		uint32_t slot = contest->slot;

		contest_end(replay, contest);
		blocks_release(&replay->blocks, slot);
	}
	return true;
}

static int undo(struct replay *replay, uint32_t writer, uint32_t context,
		const struct recent_free *free)
{
	struct contest *contest =
		free->slot == UNDO_NO_BLOCK ? NULL : contest_of(&replay->contests, free->slot);

	if (free->slot == UNDO_NO_BLOCK || free->later) {
		uint32_t i = contest == NULL ? 0 : contest->count - 1;

		/* The driver did not know the address either. */
		replay->totals.oddities.frees_unknown -= free_is_odd(replay, context);
		while (i > 0 && contest->frees[i].writer != writer)
			i--;
		if (i > 0)
			contest_drop(contest, i);
	} else if (contest != NULL && pass_on(replay, contest)) {
		return 0;
	} else if (live_get(&replay->blocks, free->space, free->key) == NULL) {
		if (contest == NULL)
			count_failed(replay, &replay->blocks.all[free->slot], 1);
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
	return undo(replay, event->writer, context, &free);
}

/* ---- in a checkpoint ---- */

/*
 * A free of nothing; with an allocation in place of the size it is one of a contest, hidden if its writer does not remember it any
 * more: another free of the same address has taken its place.
 */
static void save_free(struct checkpoint *cp, uint32_t writer, uint8_t space, uint64_t key)
{
	BUILDER_PUT(&cp->builder, live_block, 0, .key = key, .freed_by = writer, .space = space);
}

static void save_contest(const struct replay *replay, struct checkpoint *cp,
			 const struct contest *contest)
{
	const struct block *block = &replay->blocks.all[contest->slot];
	uint32_t i;

	for (i = 0; i < contest->count; i++)
		BUILDER_PUT(&cp->builder, live_block, 0, .freed_by = contest->frees[i].writer,
			    .address = contest->key, .space = contest->space, .inside = i,
			    .size_bytes = block->allocation_id, .undone = contest->frees[i].failed,
			    .hidden = i > 0 && later_free(replay, contest->frees[i].writer,
							  contest->slot) == NULL);
}

/* A later pass knows which of the frees it was. */
static int load_known(struct replay *replay, const struct event_live_block *saved)
{
	const struct live_entry *entry =
		live_get(&replay->blocks, (uint8_t)saved->space, saved->address);
	struct block *block = entry == NULL ? NULL : &replay->blocks.all[entry->slot];

	if (block == NULL || block->allocation_id != saved->size_bytes)
		return 0;
	if (saved->inside != 0 &&
	    block->undone == facts_get(replay->setup.known, block->allocation_id).undone_frees)
		return blocks_end(replay, entry);
	block->undone = (uint16_t)(block->undone + saved->undone + (saved->inside != 0 ? 1u : 0u));
	return 0;
}

int undo_load_contest(struct replay *replay, const struct event_live_block *saved)
{
	uint32_t writer = (uint32_t)saved->freed_by, first, i;
	struct recent_free has = {0};
	struct recent_frees *recent = &writers_get(&replay->writers, writer)->recent;
	uint8_t space = (uint8_t)saved->space;
	struct contest *contest;

	if (replay->setup.known != NULL)
		return load_known(replay, saved);
	first = holder(replay, space, saved->address, &has);
	if (first == 0 || replay->blocks.all[has.slot].allocation_id != saved->size_bytes)
		return 0;
	contest = contest_of(&replay->contests, has.slot);
	if (contest == NULL)
		contest = contest_begin(replay, &has, first);
	if (saved->inside != 0 && contest->count < CONTEST_FREES) {
		contest->frees[contest->count++].writer = writer;
		i = find(recent, space, saved->address);
		if (!saved->hidden && i < recent->count &&
		    recent->all[place(recent, i)].slot == UNDO_NO_BLOCK) {
			recent->all[place(recent, i)].slot = has.slot;
			recent->all[place(recent, i)].later = true;
		}
	}
	contest->frees[contest->count - 1].failed = (uint32_t)saved->undone;
	return 0;
}

void undo_mark_slots(const struct replay *replay, uint8_t *out_marks)
{
	uint32_t number, i;

	for (number = 1; number < replay->writers.room; number++) {
		const struct writer *writer = replay->writers.all[number];

		for (i = 0; writer != NULL && i < writer->recent.count; i++) {
			const struct recent_free *free =
				&writer->recent.all[place(&writer->recent, i)];

			if (free->slot != UNDO_NO_BLOCK && !free->later)
				out_marks[free->slot] = 1;
		}
	}
}

/* Loaded with the blocks. */
void undo_save(const struct replay *replay, struct checkpoint *cp)
{
	uint32_t number, i;

	for (number = 1; number < replay->writers.room; number++) {
		const struct writer *writer = replay->writers.all[number];

		for (i = 0; writer != NULL && i < writer->recent.count; i++) {
			const struct recent_free *free =
				&writer->recent.all[place(&writer->recent, i)];

			if (free->slot != UNDO_NO_BLOCK && !free->later)
				blocks_save_block(replay, cp, &replay->blocks.all[free->slot],
						  free->key, number);
			else
				save_free(cp, number, free->space, free->key);
		}
	}
	for (i = 0; i < replay->contests.count; i++)
		save_contest(replay, cp, &replay->contests.all[i]);
}
