/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Results that the program still holds while the backward pass runs, although no operator uses them any more: freed after their last use.
 * Only functions that call the backward pass, or what outlives them, can hold these, so `del` before backward() or a name less frees
 * them. What the graph has saved is not the program's to free: it goes when its node lets go of it.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "advise/advise.h"
#include "base/array.h"

#define LINES_MOST 64 /* lines of source that are tried */

/* Blocks that one line of source makes. */
struct held {
	char line[400];
	uint64_t bytes; /* at the peak, used no more */
	uint32_t *blocks;
	size_t count, room;
};

struct work {
	struct advising *advising;
	const struct advise_node **runs; /* nodes of the graph that ran, in that order */
	size_t run_count;
	struct held *held;
	size_t held_count, held_room;
	/* The innermost function of the user's that calls the backward pass; "": not known. */
	char file[400], function[200];
};

static int by_moment(const void *a, const void *b)
{
	const struct advise_node *x = *(const struct advise_node *const *)a;
	const struct advise_node *y = *(const struct advise_node *const *)b;

	return ORDER_UP(x->runs, y->runs);
}

static bool find_runs(struct work *work)
{
	const struct advise_record *record = work->advising->record;

	work->runs = calloc(record->node_count + 1, sizeof(*work->runs));
	if (work->runs == NULL)
		return false;
	for (size_t i = 0; i < record->node_count; i++)
		if (record->nodes[i].runs != ADVISE_NEVER)
			work->runs[work->run_count++] = &record->nodes[i];
	qsort(work->runs, work->run_count, sizeof(*work->runs), by_moment);
	return true;
}

/* Index of the first node that ran from a moment on. */
static size_t first_run(const struct work *work, size_t from)
{
	return COUNT_FRONT(at, work->run_count, work->runs[at]->runs < from);
}

/* Whether a node of the graph ran from one moment on, and before another one. */
static bool runs_between(const struct work *work, size_t from, size_t to)
{
	size_t at = first_run(work, from);

	return at < work->run_count && work->runs[at]->runs < to;
}

/*
 * Whether the last use was in a backward pass, by a node that had not saved the block: a forward pass that is computed again, or a
 * hook, holds it by itself.
 */
static bool is_used_in_backward(const struct work *work, const struct advise_block *block)
{
	const struct advise_record *record = work->advising->record;
	size_t after = first_run(work, block->used);
	const struct advise_node *node = after == 0 ? NULL : work->runs[after - 1];

	if (node == NULL || (node->released != ADVISE_NEVER && node->released < block->used))
		return false;
	for (uint32_t i = block->save; i != ADVISE_NONE; i = record->saves[i].next)
		if (record->saves[i].node == node->number)
			return false;
	return true;
}

/* When a block could go; ADVISE_NEVER: not before it does. */
static size_t could_go(const struct advise_record *record, const struct advise_block *block)
{
	size_t at = block->used;

	if (at == ADVISE_NEVER)
		return ADVISE_NEVER;
	for (uint32_t i = block->save; i != ADVISE_NONE; i = record->saves[i].next) {
		size_t released = advise_record_release(record, record->saves[i].node);

		if (released == ADVISE_NEVER || released > at)
			at = released;
		if (at == ADVISE_NEVER)
			return ADVISE_NEVER;
	}
	return at < block->died ? at : ADVISE_NEVER;
}

/* Held by the program through a part of a backward pass, and used no more. */
static bool is_held(const struct work *work, const struct advise_block *block, size_t goes)
{
	return block->pool == work->advising->editor.pool && goes != ADVISE_NEVER &&
	       block->kind != CLASS_weight && block->kind != CLASS_gradient &&
	       block->kind != CLASS_optimizer_state && block->used > block->born &&
	       !is_used_in_backward(work, block) && runs_between(work, goes, block->died);
}

/* Who calls the backward pass: what is made in it has the caller in its stack, if it runs on the same thread. */
static void find_caller(struct work *work)
{
	const struct advise_record *record = work->advising->record;

	for (size_t i = 0; i < record->block_count && work->function[0] == '\0'; i++) {
		const struct advise_block *block = &record->blocks[i];
		const struct stack_line *lines;
		uint32_t count;

		if (block->kind != CLASS_gradient || block->stack == 0 ||
		    block->tid != record->tid || !runs_between(work, 0, block->born))
			continue;
		lines = replay_stack_lines(work->advising->replay, block->stack, &count);
		for (uint32_t k = 0; k < count && lines != NULL; k++) {
			if (!lines[k].script || lines[k].origin != ORIGIN_USER ||
			    lines[k].file == NULL || lines[k].function == NULL)
				continue;
			snprintf(work->file, sizeof(work->file), "%s", lines[k].file);
			snprintf(work->function, sizeof(work->function), "%s", lines[k].function);
			break;
		}
	}
}

/*
 * The line of the function that holds it, if that is in its stack. On a device the backward pass has a thread of its own: then the line
 * that calls the outermost module; else the innermost one of the user's.
 */
static void held_line(struct work *work, const struct advise_block *block, char *out, size_t bytes)
{
	const struct advise_record *record = work->advising->record;
	const char *called = NULL;
	uint32_t count;
	const struct stack_line *lines =
		replay_stack_lines(work->advising->replay, block->stack, &count);

	for (uint32_t i = 0; i < count && lines != NULL && work->function[0] != '\0'; i++) {
		if (lines[i].file != NULL && lines[i].function != NULL &&
		    strcmp(lines[i].file, work->file) == 0 &&
		    strcmp(lines[i].function, work->function) == 0) {
			snprintf(out, bytes, "%s:%" PRIu32, lines[i].file, lines[i].line);
			return;
		}
	}
	for (uint32_t call = block->call; call != ADVISE_NONE; call = record->calls[call].parent)
		called = record->modules[record->calls[call].module].line;
	if (called != NULL && called[0] != '\0' && work->function[0] == '\0')
		snprintf(out, bytes, "%s", called);
	else
		advising_line(work->advising, block->stack, out, bytes);
}

static struct held *held_at(struct work *work, const char *line)
{
	for (size_t i = 0; i < work->held_count; i++)
		if (strcmp(work->held[i].line, line) == 0)
			return &work->held[i];
	if (work->held_count == LINES_MOST ||
	    ARRAY_RESERVE(work->held, work->held_room, work->held_count + 1) != 0)
		return NULL;
	work->held[work->held_count] = (struct held){0};
	snprintf(work->held[work->held_count].line, sizeof(work->held[0].line), "%s", line);
	return &work->held[work->held_count++];
}

static int find_held(struct work *work)
{
	const struct advise_record *record = work->advising->record;
	size_t peak = record->pools[work->advising->editor.pool].peak_at;

	for (size_t i = 0; i < record->block_count; i++) {
		const struct advise_block *block = &record->blocks[i];
		size_t goes = could_go(record, block);
		struct held *held;
		char line[400];

		if (!is_held(work, block, goes))
			continue;
		held_line(work, block, line, sizeof(line));
		held = line[0] == '\0' ? NULL : held_at(work, line);
		if (held == NULL)
			continue;
		if (ARRAY_RESERVE(held->blocks, held->room, held->count + 1) != 0)
			return -ENOMEM;
		held->blocks[held->count++] = (uint32_t)i;
		if (goes <= peak && peak < block->died)
			held->bytes += block->bytes;
	}
	return 0;
}

static int offer(struct work *work, const struct held *held)
{
	struct advising *advising = work->advising;
	struct advise_offer one = {.rule = ADVISE_RULE_free_earlier, .cost = "no cost"};

	if (held->bytes == 0)
		return 0;
	editor_reset(&advising->editor);
	for (size_t i = 0; i < held->count; i++) {
		const struct advise_block *block = &advising->record->blocks[held->blocks[i]];

		editor_free_at(&advising->editor, held->blocks[i],
			       could_go(advising->record, block));
	}
	snprintf(one.what, sizeof(one.what), "free its result before backward()");
	snprintf(one.line, sizeof(one.line), "%s", held->line);
	return advising_offer(advising, &one);
}

int rule_free_earlier(struct advising *advising)
{
	struct work work = {.advising = advising};
	int status = 0;

	for (size_t i = 0; i < advising->record->module_count; i++)
		if (advising->record->modules[i].compiled) {
			advising_refuse(
				advising,
				"Freeing results earlier: torch.compile made a part of the model, and what its code uses is not seen.");
			return 0;
		}

	if (!advising->record->accesses) {
		advising_refuse(
			advising,
			"Freeing results earlier: the run has no accesses; record it with --events=alloc,free,access as well.");
		return 0;
	}
	status = find_runs(&work) ? 0 : -ENOMEM;
	if (status == 0) {
		find_caller(&work);
		status = find_held(&work);
	}
	for (size_t i = 0; i < work.held_count && status == 0; i++)
		status = offer(&work, &work.held[i]);
	for (size_t i = 0; i < work.held_count; i++)
		free(work.held[i].blocks);
	free(work.held);
	free(work.runs);
	return status;
}
