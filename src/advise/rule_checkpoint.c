/* SPDX-License-Identifier: Apache-2.0 */
/*
 * torch.utils.checkpoint(module, ..., use_reentrant=False) around modules of one class. Of each forward pass that is chosen:
 *
 *  - what only its own nodes saved goes when the function that made it ends; what it was given stays until its backward pass is over
 *  - when the backward pass reaches the first node that saved something, the forward pass runs again up to the last thing that was saved;
 *    what was saved then goes as it went in the record, everything else at once
 *  - the state of the random number generator is kept, in host memory
 *
 * Which node saved what, and which one runs, is in the record: nothing is guessed but the moment at which a variable of a function is
 * dropped, and then it is the end of the function.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "advise/advise.h"
#include "base/array.h"

#define RNG_BYTES   5056 /* state of PyTorch's generator of the host */
#define MODULES_MAX 4096 /* of one class */
#define TRIES_MAX   64	 /* first and last ones that are tried for a limit */

/* Modules of one class, in the order of their first forward pass. */
struct group {
	const char *kind;
	const char *line; /* that calls the first one */
	bool more_lines;  /* others are called elsewhere */
	uint32_t *modules;
	size_t module_count, module_room;
	bool again;
};

/* What is to be known of a forward pass that is chosen. */
struct chosen {
	uint32_t call;
	uint64_t first_node, end_node;
	size_t runs_again; /* ADVISE_NEVER: its backward pass is not in the record */
	size_t stops;	   /* the moment of the forward pass at which that ends */
	size_t released;   /* when its backward pass is over */
};

struct work {
	struct advising *advising;
	const struct advise_record *record;
	struct editor *editor;
	bool *picked;	       /* by module */
	struct chosen *chosen; /* by their nodes */
	size_t chosen_count, chosen_room;
	uint32_t *inside; /* by call: the chosen one that it is in, ADVISE_NONE */
	struct group *groups;
	size_t group_count, group_room;
	bool compiled; /* torch.compile made one of the modules */
};

/* ---- which forward passes ---- */

static size_t later(size_t a, size_t b)
{
	return a > b ? a : b;
}

/* The chosen forward pass that a node is of; NULL: none. */
static const struct chosen *chosen_of(const struct work *work, uint64_t node)
{
	size_t low = 0, high = work->chosen_count;

	while (low < high) {
		size_t middle = (low + high) / 2;

		if (work->chosen[middle].first_node <= node)
			low = middle + 1;
		else
			high = middle;
	}
	/* One without nodes of its own may start at the same number. */
	while (low > 0 && work->chosen[low - 1].end_node <= node &&
	       work->chosen[low - 1].first_node == work->chosen[low - 1].end_node)
		low--;
	return low > 0 && node < work->chosen[low - 1].end_node ? &work->chosen[low - 1] : NULL;
}

/* When the backward pass of a chosen one starts and ends, and where its second forward pass stops. */
static void find_moments(const struct advise_record *record, struct chosen *one)
{
	const struct advise_call *call = &record->calls[one->call];
	const struct advise_node *node = advise_record_node(record, one->end_node - 1);
	const struct advise_node *first = NULL, *last = NULL;

	one->runs_again = one->released = ADVISE_NEVER;
	one->stops = call->start;
	if (one->end_node == one->first_node || node == NULL)
		return;
	for (; node >= record->nodes && node->number >= one->first_node; node--) {
		if (node->saved == ADVISE_NEVER)
			continue;
		if (last == NULL)
			last = node;
		first = node;
		if (node->runs < one->runs_again)
			one->runs_again = node->runs;
	}
	if (last == NULL || one->runs_again == ADVISE_NEVER)
		return;
	/* What is an argument of the operator is saved before it runs. */
	one->stops = !last->result && last->started != ADVISE_NEVER ? last->started : last->saved;
	if (one->stops > call->end)
		one->stops = call->end;
	one->released = advise_record_release(record, first->number);
}

static int choose(struct work *work)
{
	const struct advise_record *record = work->record;

	work->chosen_count = 0;
	for (size_t i = 0; i < record->call_count; i++) {
		const struct advise_call *call = &record->calls[i];
		struct chosen one = {.call = (uint32_t)i,
				     .first_node = call->first_node,
				     .end_node = call->end_node};

		/* Parents come first. */
		work->inside[i] =
			call->parent == ADVISE_NONE ? ADVISE_NONE : work->inside[call->parent];
		if (work->inside[i] != ADVISE_NONE || !work->picked[call->module] ||
		    !call->has_nodes)
			continue;
		if (array_reserve(&work->chosen, &work->chosen_room, work->chosen_count + 1,
				  sizeof(*work->chosen)) != 0)
			return -ENOMEM;
		find_moments(record, &one);
		work->inside[i] = (uint32_t)work->chosen_count;
		work->chosen[work->chosen_count++] = one;
	}
	return 0;
}

/* ---- what becomes of blocks ---- */

static bool gives(const struct advise_record *record, uint32_t call, uint32_t block)
{
	for (uint32_t i = record->blocks[block].touch; i != ADVISE_NONE;
	     i = record->touches[i].next)
		if (record->touches[i].gives && record->touches[i].call == call)
			return true;
	return false;
}

/* The last module that a container called with a block; ADVISE_NONE: none. */
static uint32_t taker(const struct advise_record *record, uint32_t parent, uint32_t block,
		      uint32_t after)
{
	for (uint32_t i = record->blocks[block].touch; i != ADVISE_NONE;
	     i = record->touches[i].next) {
		const struct advise_touch *touch = &record->touches[i];

		if (!touch->gives && touch->call > after &&
		    record->calls[touch->call].parent == parent)
			return touch->call;
	}
	return ADVISE_NONE;
}

static bool is_sequential(const struct advise_record *record, uint32_t call)
{
	const char *kind = record->modules[record->calls[call].module].kind;

	return kind != NULL && strcmp(kind, "Sequential") == 0;
}

/* When no variable of a running function has a block any more that nothing saved: at the end of the function that made it, or got it. */
static size_t dropped(const struct advise_record *record, uint32_t block)
{
	uint32_t call = record->blocks[block].call;

	while (call != ADVISE_NONE) {
		uint32_t parent = record->calls[call].parent, next;

		if (!gives(record, call, block))
			return record->calls[call].end;
		if (parent == ADVISE_NONE)
			break;
		next = is_sequential(record, parent) ? taker(record, parent, block, call)
						     : ADVISE_NONE;
		call = next != ADVISE_NONE ? next : parent;
	}
	return ADVISE_NEVER;
}

/* Classes that a module itself, or the program, keeps. */
static bool is_kept(const struct advise_block *block)
{
	return block->kind >= CLASS_state_dict;
}

/* How long modules that are chosen keep a block because they were given it; 0: none was. */
static size_t kept_as_input(const struct work *work, uint32_t block, uint32_t but)
{
	const struct advise_record *record = work->record;
	size_t until = 0;

	for (uint32_t i = record->blocks[block].touch; i != ADVISE_NONE;
	     i = record->touches[i].next) {
		uint32_t call = record->touches[i].call, in = work->inside[call];

		if (record->touches[i].gives || in == ADVISE_NONE || in == but ||
		    work->chosen[in].call != call || work->chosen[in].released == ADVISE_NEVER)
			continue;
		until = later(until, work->chosen[in].released);
	}
	return until;
}

/* A block that a chosen forward pass made, and that lived on after it. */
static size_t new_end(const struct work *work, uint32_t block, uint32_t in)
{
	const struct advise_record *record = work->record;
	const struct advise_block *one = &record->blocks[block];
	size_t until = dropped(record, block);

	if (until > one->died)
		until = one->died;
	for (uint32_t i = one->save; i != ADVISE_NONE; i = record->saves[i].next) {
		const struct chosen *of = chosen_of(work, record->saves[i].node);
		size_t released;

		if (of == &work->chosen[in])
			continue;
		released = of != NULL ? of->released
				      : advise_record_release(record, record->saves[i].node);
		until = later(until, released < one->died ? released : one->died);
	}
	return later(until, kept_as_input(work, block, in));
}

static void edit_blocks(struct work *work)
{
	const struct advise_record *record = work->record;

	for (size_t i = 0; i < record->block_count; i++) {
		const struct advise_block *block = &record->blocks[i];
		uint32_t in = block->call == ADVISE_NONE ? ADVISE_NONE : work->inside[block->call];
		size_t until;

		if (block->pool != work->editor->pool || is_kept(block))
			continue;
		if (in != ADVISE_NONE && block->save != ADVISE_NONE &&
		    block->died > record->calls[work->chosen[in].call].end) {
			editor_free_at(work->editor, (uint32_t)i, new_end(work, (uint32_t)i, in));
		} else if (block->touch != ADVISE_NONE && block->died != ADVISE_NEVER) {
			until = kept_as_input(work, (uint32_t)i, in);
			if (until > block->died)
				editor_free_at(work->editor, (uint32_t)i, until);
		}
	}
}

/* ---- the second forward pass ---- */

/* When a block of it goes; 0: at its end, since none of its nodes saved it. */
static size_t second_end(const struct work *work, uint32_t block, const struct chosen *one)
{
	const struct advise_record *record = work->record;
	size_t until = 0;

	for (uint32_t i = record->blocks[block].save; i != ADVISE_NONE; i = record->saves[i].next)
		if (record->saves[i].node >= one->first_node &&
		    record->saves[i].node < one->end_node)
			until = later(until, advise_record_release(record, record->saves[i].node));
	return until < record->blocks[block].died ? until : record->blocks[block].died;
}

/*
 * Whether the second forward pass has no part in a block: neither the graph nor a caller has it, and it outlives the backward pass. Its operator
 * made it once for all that come later, such as the workspace of cuBLAS.
 */
static bool is_there_already(const struct work *work, uint32_t block, const struct chosen *one)
{
	const struct advise_block *of = &work->record->blocks[block];

	return of->save == ADVISE_NONE && of->touch == ADVISE_NONE && of->died > one->released;
}

static void run_again(struct work *work, const struct chosen *one)
{
	const struct advise_record *record = work->record;
	const struct advise_call *call = &record->calls[one->call];
	size_t at = one->runs_again;

	for (size_t i = call->start; i < one->stops; i++) {
		const struct advise_moment *moment = &record->moments[i];
		const struct advise_block *block =
			moment->block == ADVISE_NONE ? NULL : &record->blocks[moment->block];

		if (block == NULL || block->pool != work->editor->pool || block->tid != call->tid ||
		    block->born < call->start || is_kept(block) ||
		    is_there_already(work, moment->block, one))
			continue;
		editor_pass(work->editor, at,
			    moment->comes ? (int64_t)block->bytes : -(int64_t)block->bytes);
	}
	for (size_t i = call->start; i < one->stops; i++) {
		const struct advise_moment *moment = &record->moments[i];
		const struct advise_block *block =
			moment->block == ADVISE_NONE ? NULL : &record->blocks[moment->block];
		size_t until;

		if (block == NULL || !moment->comes || block->pool != work->editor->pool ||
		    block->tid != call->tid || block->died < one->stops || is_kept(block) ||
		    is_there_already(work, moment->block, one))
			continue;
		until = second_end(work, moment->block, one);
		if (until <= at)
			editor_pass(work->editor, at, -(int64_t)block->bytes);
		else
			editor_add(work->editor, until, -(int64_t)block->bytes);
	}
}

static void edit_calls(struct work *work)
{
	const struct advise_record *record = work->record;
	const struct advise_pool *pool = &record->pools[work->editor->pool];

	for (size_t i = 0; i < work->chosen_count; i++) {
		const struct chosen *one = &work->chosen[i];

		if (pool->device == DEVICE_HOST) {
			editor_add(work->editor, record->calls[one->call].start, RNG_BYTES);
			editor_add(work->editor, one->released, -RNG_BYTES);
		}
		if (one->runs_again != ADVISE_NEVER)
			run_again(work, one);
	}
}

/* ---- offers ---- */

/* What the second forward passes of a step take. */
static double seconds_of(const struct work *work)
{
	const struct advising *advising = work->advising;
	double sum = 0;

	if (advising->timed_steps == 0)
		return -1;
	for (size_t i = 0; i < work->chosen_count; i++) {
		const struct advise_call *call = &work->record->calls[work->chosen[i].call];

		if (call->start >= advising->timed_from && call->start < advising->timed_to)
			sum += (double)(call->end_ns - call->start_ns) / 1e9;
	}
	return sum / advising->timed_steps;
}

/* `which`: NULL: all of them. */
static int try_set(struct work *work, const struct group *group, const char *which, uint32_t count)
{
	struct advise_offer offer = {.rule = ADVISE_RULE_checkpoint, .modules = count};
	int status = choose(work);

	if (status != 0)
		return status;
	editor_reset(work->editor);
	edit_blocks(work);
	edit_calls(work);
	snprintf(offer.kind, sizeof(offer.kind), "%s", group->kind);
	snprintf(offer.which, sizeof(offer.which), "%s", which == NULL ? "all" : which);
	if (which != NULL)
		snprintf(offer.what, sizeof(offer.what), "checkpoint %s (%s, %" PRIu32 " of %zu)",
			 offer.kind, which, count, group->module_count);
	else if (count > 1)
		snprintf(offer.what, sizeof(offer.what), "checkpoint %s (%" PRIu32 " of them)",
			 offer.kind, count);
	else
		snprintf(offer.what, sizeof(offer.what), "checkpoint %s", offer.kind);
	snprintf(offer.line, sizeof(offer.line), "%s", group->line);
	offer.more_lines = group->more_lines;
	offer.seconds = seconds_of(work);
	offer.share = offer.seconds >= 0 && work->advising->step_seconds > 0
			      ? offer.seconds / work->advising->step_seconds
			      : -1;
	return advising_offer(work->advising, &offer);
}

/* Picks modules of a group from one index on, before another, each `stride`-th. Returns how many. */
static uint32_t pick(struct work *work, const struct group *group, size_t from, size_t to,
		     size_t stride)
{
	uint32_t count = 0;

	memset(work->picked, 0, work->record->module_count * sizeof(*work->picked));
	for (size_t i = from; i < to; i += stride) {
		work->picked[group->modules[i]] = true;
		count++;
	}
	return count;
}

/* The first or last N, for a limit. */
static int try_counts(struct work *work, const struct group *group)
{
	size_t count = group->module_count, stride = count / TRIES_MAX + 1;
	int status = 0;
	char which[40];

	for (size_t k = 1; k < count && status == 0; k += stride) {
		snprintf(which, sizeof(which), "first %zu", k);
		status = try_set(work, group, which, pick(work, group, 0, k, 1));
		if (status != 0)
			break;
		snprintf(which, sizeof(which), "last %zu", k);
		status = try_set(work, group, which, pick(work, group, count - k, count, 1));
	}
	return status;
}

static int try_group(struct work *work, const struct group *group)
{
	size_t count = group->module_count;
	int status = try_set(work, group, NULL, pick(work, group, 0, count, 1));

	if (status == 0 && count > 1)
		status = try_set(work, group, "first half",
				 pick(work, group, 0, (count + 1) / 2, 1));
	if (status == 0 && count > 1)
		status = try_set(work, group, "last half", pick(work, group, count / 2, count, 1));
	if (status == 0 && count > 2)
		status = try_set(work, group, "every other", pick(work, group, 0, count, 2));
	if (status == 0 && work->advising->limit != 0)
		status = try_counts(work, group);
	return status;
}

/* ---- groups ---- */

static struct group *group_of(struct work *work, const struct advise_module *module)
{
	for (size_t i = 0; i < work->group_count; i++)
		if (strcmp(work->groups[i].kind, module->kind) == 0)
			return &work->groups[i];
	if (array_reserve(&work->groups, &work->group_room, work->group_count + 1,
			  sizeof(*work->groups)) != 0)
		return NULL;
	work->groups[work->group_count] =
		(struct group){.kind = module->kind, .line = module->line};
	return &work->groups[work->group_count++];
}

/* Whether a module of the same class is around a forward pass: that one is chosen then. */
static bool is_nested(const struct advise_record *record, const struct advise_call *call)
{
	const char *kind = record->modules[call->module].kind;

	for (uint32_t at = call->parent; at != ADVISE_NONE; at = record->calls[at].parent) {
		const char *around = record->modules[record->calls[at].module].kind;

		/* The outermost module is never chosen. */
		if (around != NULL && strcmp(around, kind) == 0 &&
		    record->calls[at].parent != ADVISE_NONE)
			return true;
	}
	return false;
}

/* All classes of modules inside others. The outermost one is not asked about: nothing would be left to save. */
static int find_groups(struct work *work)
{
	const struct advise_record *record = work->record;
	bool *seen = work->picked;

	for (size_t i = 0; i < record->call_count; i++) {
		const struct advise_call *call = &record->calls[i];
		const struct advise_module *module = &record->modules[call->module];
		struct group *group;

		if (seen[call->module] || module->kind == NULL)
			continue;
		seen[call->module] = true;
		work->compiled |= module->compiled;
		if (module->compiled || call->parent == ADVISE_NONE || is_nested(record, call))
			continue;
		group = group_of(work, module);
		if (group == NULL ||
		    array_reserve(&group->modules, &group->module_room, group->module_count + 1,
				  sizeof(*group->modules)) != 0)
			return -ENOMEM;
		group->again |= module->again;
		group->more_lines |= strcmp(group->line, module->line) != 0;
		if (group->module_count < MODULES_MAX)
			group->modules[group->module_count++] = call->module;
	}
	return 0;
}

static int try_groups(struct work *work)
{
	struct strbuf *refused = &work->advising->refused;
	int status = find_groups(work);

	if (work->compiled)
		strbuf_add_str(refused,
			       "torch.compile: the record lacks what compiled code saves.\n");
	for (size_t i = 0; i < work->group_count && status == 0; i++) {
		const struct group *group = &work->groups[i];

		if (group->again)
			strbuf_addf(
				refused,
				"%s: its forward pass already runs again in the backward pass.\n",
				group->kind);
		else
			status = try_group(work, group);
	}
	return status;
}

int rule_checkpoint(struct advising *advising)
{
	const struct advise_record *record = advising->record;
	struct work work = {.advising = advising,
			    .record = record,
			    .editor = &advising->editor,
			    .picked = calloc(record->module_count + 1, sizeof(bool)),
			    .inside = calloc(record->call_count + 1, sizeof(uint32_t))};
	int status = -ENOMEM;

	if (record->threads) {
		strbuf_add_str(&advising->refused,
			       "Checkpointing: modules ran on several threads.\n");
		status = 0;
	} else if (work.picked != NULL && work.inside != NULL) {
		status = try_groups(&work);
	}
	for (size_t i = 0; i < work.group_count; i++)
		free(work.groups[i].modules);
	free(work.groups);
	free(work.chosen);
	free(work.picked);
	free(work.inside);
	return status;
}
