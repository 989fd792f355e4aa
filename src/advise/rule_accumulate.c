/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two batches of half the size whose gradients are added up. What scales with the batch is not recorded; taken for it is what a forward
 * pass, its loss and its backward pass make and give back, if its bytes are a multiple of the first dimension of what the model was
 * given, and if the graph or a module has it, or something of its size. Where the rest decides the peak nothing is offered. The second
 * of the two passes has all gradients already, and what is added to each is memory of its own until that is done.
 *
 * A size that is not a multiple, and that differs from pass to pass, depends on values: the rows that an expert gets, for example. Nobody
 * knows how many of them come from each half.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "advise/advise.h"
#include "base/map.h"

#define UNSURE 0.01 /* of the peak: the most that may not be known */

/* A forward pass of a whole model, with its backward pass. */
struct pass {
	uint32_t call;
	bool mixed;	 /* it was given several */
	uint32_t batch;	 /* first dimension of what it was given */
	size_t from, to; /* until its backward pass is over */
	size_t next; /* where the next one is over: what the program holds until it has the next result is gone then */
	bool last; /* no next one is in the record */
};

/* What became of the blocks of a call site that outlived the backward pass they were made for. */
enum held {
	HELD_UNTIL_NEXT = 1, /* each went before the next backward pass was over */
	HELD_LONGER,
};

struct work {
	struct advising *advising;
	const struct advise_record *record;
	struct pass *passes;
	size_t pass_count;
	size_t *runs; /* of all nodes, in order */
	size_t run_count;
	struct map results; /* sizes of what the graph has of it */
	struct map casts;   /* sizes of copies of weights in another type */
	/* Size of a block -> the latest pass that has one of it, and how many do. */
	struct map sizes;
	struct map held; /* call stack -> enum held */
	bool scales;	 /* what libraries need scales with the batch, too */
	bool routed;	 /* and what has a size that follows from values */
};

/* The pass of a forward pass; NULL: it is none. They are in the order of calls. */
static struct pass *pass_of(const struct work *work, uint32_t call)
{
	size_t low = COUNT_FRONT(at, work->pass_count, work->passes[at].call < call);

	return low < work->pass_count && work->passes[low].call == call ? &work->passes[low] : NULL;
}

/* The first dimension of what forward passes were given; 0: not known, or not the same for all. */
static void find_batches(struct work *work)
{
	const struct advise_record *record = work->record;

	for (size_t i = 0; i < record->touch_count; i++) {
		const struct advise_touch *touch = &record->touches[i];
		struct pass *pass =
			touch->gives || touch->first == 0 ? NULL : pass_of(work, touch->call);

		if (pass == NULL)
			continue;
		pass->mixed |= pass->batch != 0 && pass->batch != touch->first;
		pass->batch = touch->first;
	}
	for (size_t i = 0; i < work->pass_count; i++)
		if (work->passes[i].mixed)
			work->passes[i].batch = 0;
}

/* When the backward pass of nodes is over; 0: it is not in the record. */
static size_t released(const struct advise_record *record, const struct advise_call *call)
{
	const struct advise_node *node = advise_record_node(record, call->end_node - 1);
	size_t last = 0;

	for (; node != NULL && node >= record->nodes && node->number >= call->first_node; node--)
		if (node->runs != ADVISE_NEVER && node->released != ADVISE_NEVER &&
		    node->released > last)
			last = node->released;
	return last;
}

static void find_passes(struct work *work)
{
	const struct advise_record *record = work->record;

	for (size_t i = 0; i < record->call_count; i++) {
		const struct advise_call *call = &record->calls[i];
		size_t to;

		if (call->parent != ADVISE_NONE || !call->has_nodes ||
		    call->end_node == call->first_node)
			continue;
		to = released(record, call);
		if (to == 0)
			continue;
		work->passes[work->pass_count++] = (struct pass){.call = (uint32_t)i,
								 .from = call->start,
								 .to = to,
								 .next = record->moment_count,
								 .last = true};
		if (work->pass_count > 1) {
			work->passes[work->pass_count - 2].next = to;
			work->passes[work->pass_count - 2].last = false;
		}
	}
}

/* The pass that a moment is in; NULL: none. */
static const struct pass *pass_at(const struct work *work, size_t at)
{
	size_t low = COUNT_FRONT(i, work->pass_count, work->passes[i].from <= at);

	return low > 0 && at <= work->passes[low - 1].to ? &work->passes[low - 1] : NULL;
}

/* The pass that was given a block which was made before it; NULL: none. */
static const struct pass *pass_given(const struct work *work, const struct advise_block *block)
{
	for (uint32_t i = block->touch; i != ADVISE_NONE; i = work->record->touches[i].next) {
		const struct advise_touch *touch = &work->record->touches[i];
		const struct pass *pass = touch->gives ? NULL : pass_of(work, touch->call);

		if (pass != NULL && block->born < pass->from)
			return pass;
	}
	return NULL;
}

/* Whether all passes have a block of this size. */
static bool is_in_all(const struct work *work, uint64_t bytes)
{
	const uint64_t *passes = map_get(&work->sizes, (struct map_key){bytes, 0});

	return passes == NULL || (uint32_t)*passes == work->pass_count;
}

static int note_size(struct work *work, const struct advise_block *block)
{
	const struct pass *pass = pass_at(work, block->born);
	struct map_key key = {block->bytes, 0};
	const uint64_t *known = map_get(&work->sizes, key);
	uint64_t latest, before = known == NULL ? 0 : *known;

	if (pass == NULL)
		return 0;
	latest = (uint64_t)(pass - work->passes) + 1;
	return before >> 32 == latest
		       ? 0
		       : map_put(&work->sizes, key, latest << 32 | ((uint32_t)before + 1));
}

static int note_held(struct work *work, const struct advise_block *block)
{
	const struct pass *pass = pass_at(work, block->born);
	struct map_key key = {block->stack, 0};
	const uint64_t *known = map_get(&work->held, key);
	enum held held;

	if (pass == NULL || pass->last || block->died <= pass->to)
		return 0;
	held = block->died > pass->next ? HELD_LONGER : HELD_UNTIL_NEXT;
	return known != NULL && *known >= held ? 0 : map_put(&work->held, key, held);
}

/*
 * Whether the program has a block longer than until the next backward pass is over. Nothing takes the place of what it has of the last one: the
 * same call site says what would have come of it.
 */
static bool is_kept(const struct work *work, const struct advise_block *block,
		    const struct pass *pass)
{
	const uint64_t *held = map_get(&work->held, (struct map_key){block->stack, 0});

	if (pass->last && block->died > pass->to && held != NULL)
		return *held == HELD_LONGER;
	return block->died > pass->next;
}

static bool is_of_batch(const struct work *work, const struct advise_block *block,
			const struct pass *pass)
{
	if (block->kind == CLASS_weight || block->kind == CLASS_gradient ||
	    block->kind == CLASS_optimizer_state || block->kind >= CLASS_state_dict ||
	    block->cast || is_kept(work, block, pass))
		return false;
	/* The gradient of a weight's copy has the size of the copy. */
	if (block->save == ADVISE_NONE && block->touch == ADVISE_NONE &&
	    map_get(&work->casts, (struct map_key){block->bytes, 0}) != NULL)
		return false;
	/* A gradient of a result has its size. What else neither the graph nor a module has may be a library's workspace. */
	if (block->save == ADVISE_NONE && block->touch == ADVISE_NONE &&
	    map_get(&work->results, (struct map_key){block->bytes, 0}) == NULL)
		return work->scales;
	return block->bytes % pass->batch == 0 || (work->routed && !is_in_all(work, block->bytes));
}

/* When what is added to a gradient is free again: the next node runs. */
static size_t added(const struct work *work, size_t at)
{
	size_t next = advise_moment_after(work->runs, work->run_count, at);

	return next == ADVISE_NEVER ? at + 1 : next;
}

/* What a block of the whole batch is in one of the two. */
static uint64_t part(uint64_t bytes, const struct pass *pass, bool second)
{
	return bytes * ((pass->batch + !second) / 2) / pass->batch;
}

/* The first of the two passes, which has the larger part of an odd batch, or the second. Returns the peak. */
static uint64_t edit(struct work *work, bool second)
{
	const struct advise_record *record = work->record;
	struct editor *editor = &work->advising->editor;
	size_t at;

	editor_reset(editor);
	for (size_t i = 0; i < record->block_count; i++) {
		const struct advise_block *block = &record->blocks[i];
		const struct pass *pass = pass_at(work, block->born);

		if (block->pool != editor->pool)
			continue;
		if (pass == NULL)
			pass = pass_given(work, block);
		if (pass != NULL && is_of_batch(work, block, pass)) {
			editor_resize(editor, (uint32_t)i, part(block->bytes, pass, second));
		} else if (pass != NULL && second && block->kind == CLASS_gradient &&
			   block->born > pass->from) {
			editor_span(editor, (uint32_t)i, pass->from, block->born, block->bytes);
			editor_span(editor, (uint32_t)i, block->born, added(work, block->complete),
				    block->bytes);
		}
	}
	return editor_peak(editor, &at);
}

static const char *why_not(const struct work *work)
{
	if (work->pass_count == 0)
		return "the backward pass of no model is in the record";
	for (size_t i = 1; i < work->pass_count; i++)
		if (work->passes[i].from < work->passes[i - 1].to)
			return "several models, or forward passes of one, share a backward pass";
	for (size_t i = 0; i < work->pass_count; i++)
		if (work->passes[i].batch == 0)
			return "what the model is given has no first dimension that is the same for all";
	for (size_t i = 0; i < work->pass_count; i++)
		if (work->passes[i].batch == 1)
			return "the batch is 1";
	for (size_t i = 0; i < work->record->module_count; i++)
		if (work->record->modules[i].compiled)
			return "the record lacks what compiled code saves";
	for (size_t i = 0; i < work->record->module_count; i++) {
		const char *kind = work->record->modules[i].kind;

		if (kind != NULL && (strcmp(kind, "LSTM") == 0 || strcmp(kind, "GRU") == 0 ||
				     strcmp(kind, "RNN") == 0))
			return "how much of the workspace of a recurrent layer is the batch's is not known";
	}
	return NULL;
}

static int prepare(struct work *work)
{
	const struct advise_record *record = work->record;
	int status = 0;

	work->passes = calloc(record->call_count + 1, sizeof(*work->passes));
	work->runs = calloc(record->node_count + 1, sizeof(*work->runs));
	if (work->passes == NULL || work->runs == NULL)
		return -ENOMEM;
	find_passes(work);
	find_batches(work);
	for (size_t i = 0; i < record->node_count; i++)
		if (record->nodes[i].runs != ADVISE_NEVER)
			work->runs[work->run_count++] = record->nodes[i].runs;
	qsort(work->runs, work->run_count, sizeof(*work->runs), order_u64);
	for (size_t i = 0; i < record->block_count && status == 0; i++) {
		const struct advise_block *block = &record->blocks[i];

		if (block->cast)
			status = map_put(&work->casts, (struct map_key){block->bytes, 0}, 1);
		else if (block->kind == CLASS_activation)
			status = map_put(&work->results, (struct map_key){block->bytes, 0}, 1);
		if (status == 0 && block->pool == work->advising->editor.pool)
			status = note_size(work, block);
		if (status == 0 && block->pool == work->advising->editor.pool)
			status = note_held(work, block);
	}
	return status;
}

/* The peak of the two passes, with the one in the editor that has it. */
static uint64_t edit_both(struct work *work)
{
	uint64_t first = edit(work, false), second = edit(work, true);

	return second >= first ? second : edit(work, false);
}

static int try_halves(struct work *work)
{
	struct advising *advising = work->advising;
	const struct advise_record *record = work->record;
	const char *line = record->modules[record->calls[work->passes[0].call].module].line;
	struct advise_offer offer = {.rule = ADVISE_RULE_accumulate,
				     .what = "half the batch, twice, adding up gradients",
				     .cost = "two smaller passes",
				     .seconds = -1};
	const char *why = NULL;
	uint64_t scaled, routed, most;

	work->scales = true;
	scaled = edit_both(work);
	work->scales = false;
	work->routed = true;
	routed = edit_both(work);
	work->routed = false;
	most = edit_both(work);
	if ((double)most > (1 + UNSURE) * (double)scaled)
		why = "what libraries use while they work may scale with the batch or not, and decides the peak";
	else if ((double)most > (1 + UNSURE) * (double)routed)
		why = "how many rows some results have follows from values, and decides the peak";
	if (why != NULL) {
		advising_refuse(advising, "Gradient accumulation: %s.", why);
		return 0;
	}
	snprintf(offer.line, sizeof(offer.line), "%s", line == NULL ? "" : line);
	return advising_offer(advising, &offer);
}

int rule_accumulate(struct advising *advising)
{
	struct work work = {.advising = advising, .record = advising->record};
	int status = prepare(&work);
	const char *why = status == 0 ? why_not(&work) : NULL;

	if (why != NULL)
		advising_refuse(advising, "Gradient accumulation: %s.", why);
	else if (status == 0)
		status = try_halves(&work);
	free(work.passes);
	free(work.runs);
	map_fini(&work.results);
	map_fini(&work.casts);
	map_fini(&work.sizes);
	map_fini(&work.held);
	return status;
}
