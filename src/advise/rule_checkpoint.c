/* SPDX-License-Identifier: Apache-2.0 */
/*
 * torch.utils.checkpoint(module, ..., use_reentrant=False) around modules of one class. Of each forward pass that is chosen:
 *
 *  - what only its own nodes saved goes when the function that made it ends; what it was given stays until its backward pass is over
 *  - when the backward pass reaches the first node that saved something, the forward pass runs again up to the last thing that was saved;
 *    what was saved then goes when the node that saved it has computed its gradients, everything else at once
 *  - the state of the random number generator is kept, in host memory, and once more while the forward pass runs again
 *
 * Which node saved what, and which one runs, is in the record: nothing is guessed but the moment at which a variable of a function is
 * dropped, and then it is the end of the function.
 */
#include "advise/sets.h"

#define RNG_BYTES 5056 /* state of PyTorch's generator of the host */

static size_t later(size_t a, size_t b)
{
	return a > b ? a : b;
}

/* ---- what becomes of blocks ---- */

/* How long modules that are chosen keep a block because they were given it; 0: none was. */
static size_t kept_as_input(const struct sets *sets, uint32_t block, uint32_t but)
{
	const struct advise_record *record = sets->record;
	size_t until = 0;

	for (uint32_t i = record->blocks[block].touch; i != ADVISE_NONE;
	     i = record->touches[i].next) {
		uint32_t call = record->touches[i].call, in = sets->inside[call];

		if (record->touches[i].gives || in == ADVISE_NONE || in == but ||
		    sets->chosen[in].call != call || sets->chosen[in].released == ADVISE_NEVER)
			continue;
		until = later(until, sets->chosen[in].released);
	}
	return until;
}

/* Whether the program holds a block by itself, in a list, a hook or an attribute: it lived on after the graph had let go of it. */
static bool is_held(const struct advise_record *record, uint32_t block)
{
	const struct advise_block *one = &record->blocks[block];

	for (uint32_t i = one->save; i != ADVISE_NONE; i = record->saves[i].next) {
		size_t released = advise_record_release(record, record->saves[i].node);

		if (released == ADVISE_NEVER || released >= one->died)
			return false;
	}
	return true;
}

/* When the backward pass after a moment starts; ADVISE_NEVER: there is none. */
static size_t backward_after(const struct advise_record *record, size_t moment)
{
	size_t low = COUNT_FRONT(at, record->run_count, record->runs[at].from <= moment);

	return low < record->run_count ? record->runs[low].from : ADVISE_NEVER;
}

/* A block that a chosen forward pass made, and that lived on after it. */
static size_t new_end(const struct sets *sets, uint32_t block, uint32_t in)
{
	const struct advise_record *record = sets->record;
	const struct advise_block *one = &record->blocks[block];
	size_t until = is_held(record, block) ? one->died : sets_dropped(record, block);

	/* Autocast keeps its copies of weights to its own end, at which the backward pass starts. */
	if (one->cast && until < one->died)
		until = later(until, backward_after(record, one->born));
	if (until > one->died)
		until = one->died;
	for (uint32_t i = one->save; i != ADVISE_NONE; i = record->saves[i].next) {
		const struct chosen *of = sets_chosen_of(sets, record->saves[i].node);
		size_t released;

		if (of == &sets->chosen[in])
			continue;
		released = of != NULL ? of->released
				      : advise_record_release(record, record->saves[i].node);
		until = later(until, released < one->died ? released : one->died);
	}
	return later(until, kept_as_input(sets, block, in));
}

static void edit_blocks(struct sets *sets)
{
	const struct advise_record *record = sets->record;

	for (size_t i = 0; i < record->block_count; i++) {
		const struct advise_block *block = &record->blocks[i];
		uint32_t in = block->call == ADVISE_NONE ? ADVISE_NONE : sets->inside[block->call];
		size_t until;

		if (block->pool != sets->editor->pool || sets_is_kept(block))
			continue;
		if (in != ADVISE_NONE && block->save != ADVISE_NONE &&
		    block->died > record->calls[sets->chosen[in].call].end) {
			editor_free_at(sets->editor, (uint32_t)i, new_end(sets, (uint32_t)i, in));
		} else if (block->touch != ADVISE_NONE && block->died != ADVISE_NEVER) {
			until = kept_as_input(sets, (uint32_t)i, in);
			if (until > block->died)
				editor_free_at(sets->editor, (uint32_t)i, until);
		}
	}
}

/* ---- the second forward pass ---- */

/* When a block of it goes; 0: at its end, since none of its nodes saved it. */
static size_t second_end(const struct sets *sets, uint32_t block, const struct chosen *one,
			 uint32_t pass)
{
	const struct advise_record *record = sets->record;
	size_t until = 0;

	for (uint32_t i = record->blocks[block].save; i != ADVISE_NONE; i = record->saves[i].next)
		if (record->saves[i].node >= one->first_node &&
		    record->saves[i].node < one->end_node)
			until = later(until,
				      advise_record_unpacked(record, record->saves[i].node, pass));
	return until < record->blocks[block].died ? until : record->blocks[block].died;
}

/*
 * Whether the second forward pass has no part in a block: neither the graph nor a caller has it, and it outlives the backward pass. Its operator
 * made it once for all that come later, such as the workspace of cuBLAS. So is a weight's copy that autocast has until after the backward pass.
 */
static bool is_there_already(const struct sets *sets, uint32_t block, const struct chosen *one)
{
	const struct advise_block *of = &sets->record->blocks[block];

	if (of->cast && is_held(sets->record, block))
		return true;
	return of->save == ADVISE_NONE && of->touch == ADVISE_NONE && of->died > one->released;
}

/* In a backward pass, at a moment. `copy`: which second time it is. */
static void run_again(struct sets *sets, const struct chosen *one, uint32_t pass, size_t at,
		      uint64_t copy)
{
	const struct advise_record *record = sets->record;
	const struct advise_call *call = &record->calls[one->call];
	bool host = record->pools[sets->editor->pool].device == DEVICE_HOST;

	if (host)
		editor_passes(sets->editor, at, RNG_BYTES);
	for (size_t i = call->start; i < one->stops; i++) {
		const struct advise_moment *moment = &record->moments[i];
		const struct advise_block *block =
			moment->block == ADVISE_NONE ? NULL : &record->blocks[moment->block];

		if (block == NULL || block->pool != sets->editor->pool || block->tid != call->tid ||
		    block->born < call->start || sets_is_kept(block) ||
		    is_there_already(sets, moment->block, one))
			continue;
		if (moment->comes)
			editor_comes_again(sets->editor, moment->block, copy, at);
		else
			editor_goes_again(sets->editor, moment->block, copy, at);
	}
	for (size_t i = call->start; i < one->stops; i++) {
		const struct advise_moment *moment = &record->moments[i];
		const struct advise_block *block =
			moment->block == ADVISE_NONE ? NULL : &record->blocks[moment->block];
		size_t until;

		if (block == NULL || !moment->comes || block->pool != sets->editor->pool ||
		    block->tid != call->tid || block->died < one->stops || sets_is_kept(block) ||
		    is_there_already(sets, moment->block, one))
			continue;
		until = second_end(sets, moment->block, one, pass);
		if (until <= at)
			editor_goes_again(sets->editor, moment->block, copy, at);
		else
			editor_ends_again(sets->editor, moment->block, copy, until);
	}
	if (host)
		editor_passes(sets->editor, at, -RNG_BYTES);
}

/* The first backward pass, from one on, that reaches a node of a forward pass which saved something, and when; ADVISE_NONE: there is none. */
static uint32_t next_pass(const struct advise_record *record, const struct chosen *one,
			  uint32_t from, size_t *out_at)
{
	const struct advise_node *node = advise_record_node(record, one->end_node - 1);
	uint32_t pass = ADVISE_NONE;

	for (; node != NULL && node >= record->nodes && node->number >= one->first_node; node--) {
		uint32_t runs = node->saved == ADVISE_NEVER
					? ADVISE_NONE
					: advise_record_pass(record, node, from);

		if (runs == ADVISE_NONE || runs > pass)
			continue;
		size_t at = advise_record_run(record, node, runs)->from;

		*out_at = runs < pass || at < *out_at ? at : *out_at;
		pass = runs;
	}
	return pass;
}

static void edit_calls(struct sets *sets)
{
	const struct advise_record *record = sets->record;
	const struct advise_pool *pool = &record->pools[sets->editor->pool];
	uint64_t copies = 0;
	size_t at = 0;

	for (size_t i = 0; i < sets->chosen_count; i++) {
		const struct chosen *one = &sets->chosen[i];

		if (pool->device == DEVICE_HOST) {
			editor_add(sets->editor, record->calls[one->call].start, RNG_BYTES);
			/* Where nothing is saved, it goes with the forward pass. */
			editor_add(sets->editor,
				   one->released != ADVISE_NEVER ? one->released
								 : record->calls[one->call].end,
				   -RNG_BYTES);
		}
		if (one->runs_again == ADVISE_NEVER)
			continue;
		for (uint32_t pass = 0; (pass = next_pass(record, one, pass, &at)) != ADVISE_NONE;
		     pass++)
			run_again(sets, one, pass, at, ++copies);
	}
}

static void edit(struct sets *sets)
{
	edit_blocks(sets);
	edit_calls(sets);
}

/* ---- the price ---- */

/* What the second forward passes of a step take. */
static double seconds_of(const struct sets *sets)
{
	const struct advising *advising = sets->advising;
	double sum = 0;

	if (advising->timed_steps == 0)
		return -1;
	for (size_t i = 0; i < sets->chosen_count; i++) {
		const struct advise_call *call = &sets->record->calls[sets->chosen[i].call];

		if (call->start >= advising->timed_from && call->start < advising->timed_to)
			sum += (double)(call->end_ns - call->start_ns) / 1e9;
	}
	return sum / advising->timed_steps;
}

static void price(const struct sets *sets, struct advise_offer *offer)
{
	offer->seconds = seconds_of(sets);
}

int rule_checkpoint(struct advising *advising)
{
	static const struct sets_rule rule = {
		.rule = ADVISE_RULE_checkpoint, .verb = "checkpoint", .edit = edit, .price = price};

	return sets_try(advising, &rule);
}
