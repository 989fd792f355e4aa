/* SPDX-License-Identifier: Apache-2.0 */
#include "advise/sets.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"

#define MODULES_MAX 4096 /* of one class */
#define TRIES_MAX   64	 /* first and last ones that are tried for a limit */

/* ---- which forward passes ---- */

const struct chosen *sets_chosen_of(const struct sets *sets, uint64_t node)
{
	size_t low = COUNT_FRONT(at, sets->chosen_count, sets->chosen[at].first_node <= node);

	/* One without nodes of its own may start at the same number. */
	while (low > 0 && sets->chosen[low - 1].end_node <= node &&
	       sets->chosen[low - 1].first_node == sets->chosen[low - 1].end_node)
		low--;
	return low > 0 && node < sets->chosen[low - 1].end_node ? &sets->chosen[low - 1] : NULL;
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

static int choose(struct sets *sets)
{
	const struct advise_record *record = sets->record;

	sets->chosen_count = 0;
	for (size_t i = 0; i < record->call_count; i++) {
		const struct advise_call *call = &record->calls[i];
		struct chosen one = {.call = (uint32_t)i,
				     .first_node = call->first_node,
				     .end_node = call->end_node};

		/* Parents come first. */
		sets->inside[i] =
			call->parent == ADVISE_NONE ? ADVISE_NONE : sets->inside[call->parent];
		if (sets->inside[i] != ADVISE_NONE || !sets->picked[call->module] ||
		    !call->has_nodes)
			continue;
		if (ARRAY_RESERVE(sets->chosen, sets->chosen_room, sets->chosen_count + 1) != 0)
			return -ENOMEM;
		find_moments(record, &one);
		sets->inside[i] = (uint32_t)sets->chosen_count;
		sets->chosen[sets->chosen_count++] = one;
	}
	return 0;
}

/* ---- what holds a block ---- */

bool sets_gives(const struct advise_record *record, uint32_t call, uint32_t block)
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

size_t sets_dropped(const struct advise_record *record, uint32_t block)
{
	uint32_t call = record->blocks[block].call;

	if (record->blocks[block].dropped != ADVISE_NEVER)
		return record->blocks[block].dropped;
	while (call != ADVISE_NONE) {
		uint32_t parent = record->calls[call].parent, next;

		if (!sets_gives(record, call, block))
			return record->calls[call].end;
		if (parent == ADVISE_NONE)
			break;
		next = is_sequential(record, parent) ? taker(record, parent, block, call)
						     : ADVISE_NONE;
		call = next != ADVISE_NONE ? next : parent;
	}
	return ADVISE_NEVER;
}

bool sets_is_kept(const struct advise_block *block)
{
	return block->kind >= CLASS_state_dict;
}

/* ---- offers ---- */

/* `which`: NULL: all of them. */
static int try_set(struct sets *sets, const struct group *group, const char *which, uint32_t count)
{
	struct advise_offer offer = {.rule = sets->rule->rule, .modules = count};
	int status = choose(sets);

	if (status != 0)
		return status;
	editor_reset(sets->editor);
	sets->rule->edit(sets);
	snprintf(offer.kind, sizeof(offer.kind), "%s", group->kind);
	snprintf(offer.which, sizeof(offer.which), "%s", which == NULL ? "all" : which);
	if (which != NULL)
		snprintf(offer.what, sizeof(offer.what), "%s %s (%s, %" PRIu32 " of %zu)",
			 sets->rule->verb, offer.kind, which, count,
			 group->module_count + group->again_count);
	else if (count > 1)
		snprintf(offer.what, sizeof(offer.what), "%s %s (%" PRIu32 " of them)",
			 sets->rule->verb, offer.kind, count);
	else
		snprintf(offer.what, sizeof(offer.what), "%s %s", sets->rule->verb, offer.kind);
	snprintf(offer.line, sizeof(offer.line), "%s", group->line);
	offer.more_lines = group->more_lines;
	sets->rule->price(sets, &offer);
	offer.share = offer.seconds >= 0 && sets->advising->step_seconds > 0
			      ? offer.seconds / sets->advising->step_seconds
			      : -1;
	return advising_offer(sets->advising, &offer);
}

/* Picks modules of a group from one index on, before another, each `stride`-th. Returns how many. */
static uint32_t pick(struct sets *sets, const struct group *group, size_t from, size_t to,
		     size_t stride)
{
	uint32_t count = 0;

	memset(sets->picked, 0, sets->record->module_count * sizeof(*sets->picked));
	for (size_t i = from; i < to; i += stride) {
		sets->picked[group->modules[i]] = true;
		count++;
	}
	return count;
}

/* The first or last N, for a limit. */
static int try_counts(struct sets *sets, const struct group *group)
{
	size_t count = group->module_count, stride = count / TRIES_MAX + 1;
	int status = 0;
	char which[40];

	for (size_t k = 1; k < count && status == 0; k += stride) {
		snprintf(which, sizeof(which), "first %zu", k);
		status = try_set(sets, group, which, pick(sets, group, 0, k, 1));
		if (status != 0)
			break;
		snprintf(which, sizeof(which), "last %zu", k);
		status = try_set(sets, group, which, pick(sets, group, count - k, count, 1));
	}
	return status;
}

static int try_group(struct sets *sets, const struct group *group)
{
	size_t count = group->module_count;
	uint32_t all = pick(sets, group, 0, count, 1);
	int status = try_set(sets, group, group->again_count > 0 ? "others" : NULL, all);

	/* Halves of the others would have names that are hard to understand. */
	if (group->again_count > 0)
		return status;
	if (status == 0 && count > 1)
		status = try_set(sets, group, "first half",
				 pick(sets, group, 0, (count + 1) / 2, 1));
	if (status == 0 && count > 1)
		status = try_set(sets, group, "last half", pick(sets, group, count / 2, count, 1));
	if (status == 0 && count > 2)
		status = try_set(sets, group, "every other", pick(sets, group, 0, count, 2));
	if (status == 0 && sets->advising->limit != 0)
		status = try_counts(sets, group);
	return status;
}

/* ---- groups ---- */

static struct group *group_of(struct sets *sets, const struct advise_module *module)
{
	for (size_t i = 0; i < sets->group_count; i++)
		if (strcmp(sets->groups[i].kind, module->kind) == 0)
			return &sets->groups[i];
	if (ARRAY_RESERVE(sets->groups, sets->group_room, sets->group_count + 1) != 0)
		return NULL;
	sets->groups[sets->group_count] =
		(struct group){.kind = module->kind, .line = module->line};
	return &sets->groups[sets->group_count++];
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
static int find_groups(struct sets *sets)
{
	const struct advise_record *record = sets->record;
	bool *seen = sets->picked;

	for (size_t i = 0; i < record->call_count; i++) {
		const struct advise_call *call = &record->calls[i];
		const struct advise_module *module = &record->modules[call->module];
		struct group *group;

		if (seen[call->module] || module->kind == NULL)
			continue;
		seen[call->module] = true;
		sets->compiled |= module->compiled;
		if (module->compiled || call->parent == ADVISE_NONE || is_nested(record, call))
			continue;
		group = group_of(sets, module);
		if (group == NULL ||
		    ARRAY_RESERVE(group->modules, group->module_room, group->module_count + 1) != 0)
			return -ENOMEM;
		group->again_count += module->again;
		if (module->again)
			continue;
		if (group->module_count == 0)
			group->line = module->line;
		group->more_lines |= strcmp(group->line, module->line) != 0;
		if (group->module_count < MODULES_MAX)
			group->modules[group->module_count++] = call->module;
	}
	return 0;
}

static int try_groups(struct sets *sets)
{
	int status = find_groups(sets);

	if (sets->compiled)
		advising_refuse(sets->advising,
				"torch.compile: the record lacks what compiled code saves.");
	for (size_t i = 0; i < sets->group_count && status == 0; i++) {
		const struct group *group = &sets->groups[i];

		if (group->again_count > 0 && group->module_count > 0)
			advising_refuse(
				sets->advising,
				"%s: the forward passes of %zu of %zu already run again in the backward pass.",
				group->kind, group->again_count,
				group->again_count + group->module_count);
		else if (group->again_count > 0)
			advising_refuse(
				sets->advising,
				"%s: its forward pass already runs again in the backward pass.",
				group->kind);
		if (group->module_count > 0)
			status = try_group(sets, group);
	}
	return status;
}

int sets_try(struct advising *advising, const struct sets_rule *rule)
{
	const struct advise_record *record = advising->record;
	struct sets sets = {.rule = rule,
			    .advising = advising,
			    .record = record,
			    .editor = &advising->editor,
			    .picked = calloc(record->module_count + 1, sizeof(bool)),
			    .inside = calloc(record->call_count + 1, sizeof(uint32_t))};
	int status = -ENOMEM;

	if (record->threads) {
		advising_refuse(advising, "Changes of modules: they ran on several threads.");
		status = 0;
	} else if (sets.picked != NULL && sets.inside != NULL) {
		status = try_groups(&sets);
	}
	for (size_t i = 0; i < sets.group_count; i++)
		free(sets.groups[i].modules);
	free(sets.groups);
	free(sets.chosen);
	free(sets.picked);
	free(sets.inside);
	return status;
}
