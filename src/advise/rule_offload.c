/* SPDX-License-Identifier: Apache-2.0 */
/*
 * torch.autograd.graph.save_on_cpu() around modules of one class: what their nodes save is copied to the host when it is saved, and back, weights
 * too, when the backward pass reaches the node. Of each forward pass that is chosen:
 *
 *  - what only its own nodes saved goes when no function has it any more
 *  - each node gets a copy of its own of all that it saved, for as long as it computes
 */
#include "advise/sets.h"

static size_t later(size_t a, size_t b)
{
	return a > b ? a : b;
}

/* Whether nodes saved parts of a block: a function has views of it. */
static bool has_views(const struct advise_record *record, uint32_t block)
{
	const struct advise_block *one = &record->blocks[block];

	for (uint32_t i = one->save; i != ADVISE_NONE; i = record->saves[i].next)
		if (record->saves[i].bytes < one->bytes)
			return true;
	return false;
}

/* The next module that a module calls after a moment; ADVISE_NONE: none. */
static uint32_t next_inside(const struct advise_record *record, uint32_t parent, size_t after)
{
	for (uint32_t i = parent + 1;
	     i < record->call_count && record->calls[i].start <= record->calls[parent].end; i++)
		if (record->calls[i].parent == parent && record->calls[i].start >= after)
			return i;
	return ADVISE_NONE;
}

/*
 * When a function has used a result in an expression of its own, at the latest: the first operator after a moment that is its own and not a
 * module's has run when it calls the next module, or ends. `node`: the next one at that moment.
 */
static size_t used_up(const struct advise_record *record, uint32_t parent, size_t after,
		      uint64_t node)
{
	for (;;) {
		uint32_t next = next_inside(record, parent, after);

		if (next == ADVISE_NONE)
			return record->calls[parent].end;
		if (record->calls[next].first_node > node)
			return record->calls[next].start;
		after = record->calls[next].end;
		node = record->calls[next].end_node;
	}
}

/* The last module that a function called with a block, after one of them; ADVISE_NONE: none. */
static uint32_t last_taker(const struct advise_record *record, uint32_t parent, uint32_t block,
			   size_t after)
{
	for (uint32_t i = record->blocks[block].touch; i != ADVISE_NONE;
	     i = record->touches[i].next) {
		const struct advise_touch *touch = &record->touches[i];

		if (!touch->gives && record->calls[touch->call].parent == parent &&
		    record->calls[touch->call].start >= after)
			return touch->call;
	}
	return ADVISE_NONE;
}

/*
 * When the last function lets go of a block that nothing saved. A result that is passed on is a variable that gets the next result, or none: it goes
 * when the last module that was given it has ended. What a function used itself goes with its own next operator, views with the function.
 */
static size_t let_go(const struct advise_record *record, uint32_t block)
{
	uint32_t call = record->blocks[block].call, taker;
	size_t born = record->blocks[block].born;

	if (record->blocks[block].dropped != ADVISE_NEVER)
		return record->blocks[block].dropped;
	if (call == ADVISE_NONE || has_views(record, block))
		return sets_dropped(record, block);
	if (!sets_gives(record, call, block)) {
		taker = last_taker(record, call, block, born);
		return taker == ADVISE_NONE ? record->calls[call].end
					    : used_up(record, call, record->calls[taker].end,
						      record->calls[taker].end_node);
	}
	for (;;) {
		uint32_t parent = record->calls[call].parent;
		size_t end = record->calls[call].end;

		if (parent == ADVISE_NONE)
			return ADVISE_NEVER;
		taker = last_taker(record, parent, block, end);
		if (taker != ADVISE_NONE && !sets_gives(record, taker, block))
			return record->calls[taker].end;
		if (taker != ADVISE_NONE)
			call = taker;
		else if (sets_gives(record, parent, block))
			call = parent;
		else
			return used_up(record, parent, end, record->calls[call].end_node);
	}
}

/* When a block goes that chosen nodes saved. */
static size_t new_end(const struct sets *sets, uint32_t block)
{
	const struct advise_record *record = sets->record;
	const struct advise_block *one = &record->blocks[block];
	size_t until = let_go(record, block);

	if (until > one->died)
		return one->died;
	for (uint32_t i = one->save; i != ADVISE_NONE; i = record->saves[i].next) {
		size_t released;

		if (sets_chosen_of(sets, record->saves[i].node) != NULL)
			continue;
		released = advise_record_release(record, record->saves[i].node);
		until = later(until, released < one->died ? released : one->died);
	}
	return until;
}

static bool is_saved_by_chosen(const struct sets *sets, const struct advise_block *block)
{
	for (uint32_t i = block->save; i != ADVISE_NONE; i = sets->record->saves[i].next)
		if (sets_chosen_of(sets, sets->record->saves[i].node) != NULL)
			return true;
	return false;
}

static void edit(struct sets *sets)
{
	const struct advise_record *record = sets->record;

	for (size_t i = 0; i < record->block_count; i++) {
		const struct advise_block *block = &record->blocks[i];

		if (block->pool == sets->editor->pool && !sets_is_kept(block) &&
		    is_saved_by_chosen(sets, block))
			editor_free_at(sets->editor, (uint32_t)i, new_end(sets, (uint32_t)i));
	}
	for (size_t i = 0; i < record->save_count; i++) {
		const struct advise_save *save = &record->saves[i];
		const struct advise_node *node = advise_record_node(record, save->node);

		if (record->blocks[save->block].pool != sets->editor->pool ||
		    sets_chosen_of(sets, save->node) == NULL || node == NULL ||
		    node->number != save->node || node->runs == ADVISE_NEVER)
			continue;
		for (uint32_t run = node->run; run != ADVISE_NONE; run = record->runs[run].next)
			editor_span(
				sets->editor, save->block, record->runs[run].from,
				advise_record_unpacked(record, save->node, record->runs[run].pass),
				save->bytes);
	}
}

/* Bytes of a step that go to the host, and come back. */
static void price(const struct sets *sets, struct advise_offer *offer)
{
	const struct advising *advising = sets->advising;
	const struct advise_record *record = sets->record;
	uint64_t bytes = 0;

	for (size_t i = 0; i < record->save_count; i++)
		if (record->saves[i].at >= advising->timed_from &&
		    record->saves[i].at < advising->timed_to &&
		    record->blocks[record->saves[i].block].pool == sets->editor->pool &&
		    sets_chosen_of(sets, record->saves[i].node) != NULL)
			bytes += record->saves[i].bytes;
	offer->moved = advising->timed_steps == 0 ? 0 : bytes / advising->timed_steps;
	offer->seconds = offer->moved == 0 || advising->bandwidth == 0
				 ? -1
				 : 2 * (double)offer->moved / (double)advising->bandwidth;
}

int rule_offload(struct advising *advising)
{
	static const struct sets_rule rule = {
		.rule = ADVISE_RULE_offload, .verb = "offload", .edit = edit, .price = price};

	/* Memory of the host cannot go there. */
	return advising->record->pools[advising->editor.pool].device == DEVICE_HOST
		       ? 0
		       : sets_try(advising, &rule);
}
