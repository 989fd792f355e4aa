/* SPDX-License-Identifier: Apache-2.0 */
#include "analysis/leaks.h"

#include <errno.h>
#include <stdlib.h>

#include "analysis/analyses.h"
#include "analysis/site.h"
#include "base/array.h"
#include "trace/session.h"

#define MIB (1024.0 * 1024.0)

bool device_has_pool(const struct replay *replay, uint32_t device)
{
	size_t count, i;
	const struct usage *usages = replay_usages(replay, &count);

	for (i = 0; i < count; i++) {
		const struct usage *usage = &usages[i];

		if (usage->device == device && !pool_is_driver(usage->pool) &&
		    usage->allocations > 0)
			return true;
	}
	return false;
}

uint32_t last_ended_step(const struct replay *replay)
{
	uint32_t step = replay_steps(replay);

	while (step > 0 && !step_has_ended(replay, step))
		step--;
	return step;
}

bool block_is_leaked(const struct replay *replay, const struct block *block)
{
	const struct context *context = replay_context(replay, block->context);

	if (block->outside_window || block->latest_step < LEAKS_FIRST_STEP ||
	    !step_has_ended(replay, block->latest_step))
		return false;
	return context->pool == POOL_hal ? !device_has_pool(replay, context->device)
					 : pool_long_name(context->pool) != NULL;
}

/*
 * While the run is replayed: blocks that outlived their step and are freed. When another step ends, a step has freed them, and
 * their age is the usual lifetime of their kind. If none does, they were freed after the last step.
 */
struct late {
	struct block block;
	uint32_t age; /* steps that had ended since its own */
};

struct leaks {
	struct late *late; /* freed since the last step ended */
	size_t late_count, late_room;
	struct map uses; /* kind -> greatest age at which a step freed one, + 1 */
};

/* Blocks of one pool, place and size. */
static struct map_key kind_of(const struct block *block)
{
	return (struct map_key){(uint64_t)block->context << 32 | block->stack, block->size_bytes};
}

/* Whether a step has freed blocks of this kind that were at least as old. */
static bool is_in_use(const struct leaks *leaks, const struct block *block, uint32_t age)
{
	uint64_t *known = map_get(&leaks->uses, kind_of(block));

	return known != NULL && age < *known;
}

static int leaks_block(void *state, struct replay *replay, enum block_change change,
		       const struct block *block, const struct usage *usage, uint32_t owner)
{
	struct leaks *leaks = state;
	size_t i;
	int r;

	(void)usage;
	(void)owner;
	if (change == BLOCK_RESTORED) {
		for (i = 0; i < leaks->late_count; i++) {
			if (leaks->late[i].block.allocation_id == block->allocation_id)
				leaks->late[i] = leaks->late[--leaks->late_count];
		}
		return 0;
	}
	if (!block_is_leaked(replay, block))
		return 0;
	r = array_reserve(&leaks->late, &leaks->late_room, leaks->late_count + 1,
			  sizeof(*leaks->late));
	if (r == 0)
		leaks->late[leaks->late_count++] = (struct late){
			.block = *block, .age = last_ended_step(replay) - block->latest_step};
	return r;
}

static int leaks_step(void *state, struct replay *replay, uint32_t step, bool begins)
{
	struct leaks *leaks = state;
	size_t i;
	int r = 0;

	(void)replay;
	(void)step;
	if (begins)
		return 0;
	for (i = 0; i < leaks->late_count && r == 0; i++) {
		const struct late *late = &leaks->late[i];

		if (!is_in_use(leaks, &late->block, late->age))
			r = map_put(&leaks->uses, kind_of(&late->block), (uint64_t)late->age + 1);
	}
	leaks->late_count = 0;
	return r;
}

static void save_block(struct strbuf *out, const struct block *block)
{
	words_add(out, block->address);
	words_add(out, block->size_bytes);
	words_add(out, block->allocation_id);
	words_add(out, block->launches);
	words_add(out, (uint64_t)block->stack << 32 | block->context);
	words_add(out, (uint64_t)block->outside_window << 32 | block->latest_step);
}

static void load_block(struct words *words, struct block *block)
{
	uint64_t word;

	*block = (struct block){.address = words_next(words)};
	block->size_bytes = words_next(words);
	block->allocation_id = words_next(words);
	block->launches = words_next(words);
	word = words_next(words);
	block->context = (uint32_t)word;
	block->stack = (uint32_t)(word >> 32);
	word = words_next(words);
	block->latest_step = (uint32_t)word;
	block->outside_window = word >> 32 != 0;
}

static void leaks_save(void *state, struct strbuf *out)
{
	const struct leaks *leaks = state;
	const struct map_slot *slot;
	size_t i, cursor = 0;

	words_add(out, leaks->late_count);
	for (i = 0; i < leaks->late_count; i++) {
		save_block(out, &leaks->late[i].block);
		words_add(out, leaks->late[i].age);
	}
	words_add(out, leaks->uses.count);
	while ((slot = map_next(&leaks->uses, &cursor)) != NULL) {
		words_add(out, slot->key.a);
		words_add(out, slot->key.b);
		words_add(out, slot->value);
	}
}

static int leaks_load(void *state, const struct replay *replay, struct words *words)
{
	struct leaks *leaks = state;
	size_t count = words_count(words), i;
	int r = array_reserve(&leaks->late, &leaks->late_room, count, sizeof(*leaks->late));

	(void)replay;
	for (i = 0; i < count && r == 0; i++) {
		load_block(words, &leaks->late[i].block);
		leaks->late[i].age = (uint32_t)words_next(words);
	}
	leaks->late_count = r == 0 ? count : 0;
	count = words_count(words);
	for (i = 0; i < count && r == 0; i++) {
		struct map_key key = {.a = words_next(words)};

		key.b = words_next(words);
		r = map_put(&leaks->uses, key, words_next(words));
	}
	return r;
}

/* A window begins: blocks that were freed outside of windows tell nothing. */
static int leaks_row(void *state, struct replay *replay, const struct row *row)
{
	struct leaks *leaks = state;

	(void)replay;
	(void)row;
	leaks->late_count = 0;
	return 0;
}

static void leaks_fini(void *state)
{
	struct leaks *leaks = state;

	free(leaks->late);
	map_fini(&leaks->uses);
}

/* Two lists: what is leaked, and what pools keep from the driver. Both by device, then by step. */
struct found {
	const struct block **leaks;
	size_t leak_count;
	const struct block **driver;
	size_t driver_count;
	size_t late_count; /* of the leaks, those that were freed after the last step */
	size_t used_count; /* no leaks: within their usual lifetime */
	uint64_t used_bytes;
};

struct entry {
	const struct block *block;
	uint32_t device;
	bool early; /* of the driver's blocks, those from before step 2 come last */
};

static int by_place(const void *a, const void *b)
{
	const struct entry *x = a, *y = b;

	if (x->device != y->device)
		return x->device < y->device ? -1 : 1;
	if (x->early != y->early)
		return x->early ? 1 : -1;
	if (x->block->latest_step != y->block->latest_step)
		return x->block->latest_step < y->block->latest_step ? -1 : 1;
	return x->block->allocation_id < y->block->allocation_id ? -1 : 1;
}

static void found_fini(struct found *found)
{
	free((void *)found->leaks);
	free((void *)found->driver);
}

static void sort(const struct replay *replay, const struct block **blocks, size_t count,
		 struct entry *entries)
{
	size_t i;

	for (i = 0; i < count; i++)
		entries[i] =
			(struct entry){.block = blocks[i],
				       .device = replay_context(replay, blocks[i]->context)->device,
				       .early = blocks[i]->latest_step < LEAKS_FIRST_STEP};
	qsort(entries, count, sizeof(*entries), by_place);
	for (i = 0; i < count; i++)
		blocks[i] = entries[i].block;
}

static int find(const struct leaks *leaks, const struct replay *replay, struct found *out)
{
	size_t room = replay_block_count(replay) + leaks->late_count + 1, cursor = 0, i;
	struct entry *entries = calloc(room, sizeof(*entries));
	uint32_t last = last_ended_step(replay);
	const struct block *block;

	*out = (struct found){.leaks = calloc(room, sizeof(const struct block *)),
			      .driver = calloc(room, sizeof(const struct block *))};
	if (entries == NULL || out->leaks == NULL || out->driver == NULL) {
		free(entries);
		found_fini(out);
		return -ENOMEM;
	}
	while ((block = replay_next_block(replay, &cursor)) != NULL) {
		const struct context *context = replay_context(replay, block->context);

		if (block_is_leaked(replay, block) &&
		    is_in_use(leaks, block, last - block->latest_step)) {
			out->used_count++;
			out->used_bytes += block->size_bytes;
		} else if (block_is_leaked(replay, block)) {
			out->leaks[out->leak_count++] = block;
		} else if (context->pool == POOL_hal && !block->outside_window &&
			   device_has_pool(replay, context->device)) {
			out->driver[out->driver_count++] = block;
		}
	}
	for (i = 0; i < leaks->late_count; i++) {
		const struct late *late = &leaks->late[i];

		/* Blocks of the last step cannot be judged. Whether a device has a pool may have become known after the free. */
		if (late->age == 0 || is_in_use(leaks, &late->block, late->age) ||
		    !block_is_leaked(replay, &late->block))
			continue;
		out->leaks[out->leak_count++] = &late->block;
		out->late_count++;
	}
	sort(replay, out->leaks, out->leak_count, entries);
	sort(replay, out->driver, out->driver_count, entries);
	free(entries);
	return 0;
}

static uint32_t device_of(const struct replay *replay, const struct block *block)
{
	return replay_context(replay, block->context)->device;
}

/* How many of `blocks` from `first` on are of the same device. */
static size_t run_length(const struct replay *replay, const struct block **blocks, size_t count,
			 size_t first, uint64_t *out_bytes)
{
	size_t i;

	*out_bytes = 0;
	for (i = first;
	     i < count && device_of(replay, blocks[i]) == device_of(replay, blocks[first]); i++)
		*out_bytes += blocks[i]->size_bytes;
	return i - first;
}

/* The rest of a line that begins with what the block is, and the place in the program. */
static void text_block(const struct analysis_view *view, const struct block *block,
		       struct strbuf *out)
{
	strbuf_addf(out, " of %f Mb(s) at 0x%llx in kernel_%llu at step %u.\n",
		    (double)block->size_bytes / MIB, (unsigned long long)block->address,
		    (unsigned long long)block->launches, block->latest_step);
	site_text(view->replay, block->stack, view->frames, out);
}

static void text_more(size_t count, uint32_t shown, struct strbuf *out)
{
	if (count > shown)
		strbuf_addf(out, "... %zu more; report.txt has all of them\n", count - shown);
}

static void text_leaks(const struct analysis_view *view, const struct found *found,
		       struct strbuf *out)
{
	struct replay *replay = view->replay;
	size_t first, count, i;
	uint64_t bytes;
	char device[16];

	for (first = 0; first < found->leak_count; first += count) {
		count = run_length(replay, found->leaks, found->leak_count, first, &bytes);
		device_text(device_of(replay, found->leaks[first]), device);
		strbuf_addf(out, "====== ERROR: Detected memory leaks on device %s ======\n",
			    device);
		for (i = 0; i < count && i < view->lines; i++) {
			const struct block *block = found->leaks[first + i];
			uint8_t pool = replay_context(replay, block->context)->pool;

			strbuf_addf(out, "Direct %s leak",
				    pool == POOL_hal ? "Hal memory" : pool_long_name(pool));
			text_block(view, block, out);
		}
		text_more(count, view->lines, out);
		strbuf_addf(out, "====== SUMMARY: %g Mb(s) leaked in %zu allocation(s) ======\n",
			    (double)bytes / MIB, count);
	}
}

static void text_driver(const struct analysis_view *view, const struct found *found,
			struct strbuf *out)
{
	struct replay *replay = view->replay;
	uint32_t lines = view->lines == UINT32_MAX ? view->lines : view->lines / 4;
	size_t first, count, i, late;
	uint64_t bytes;
	char device[16];

	for (first = 0; first < found->driver_count; first += count) {
		count = run_length(replay, found->driver, found->driver_count, first, &bytes);
		device_text(device_of(replay, found->driver[first]), device);
		strbuf_addf(out, "====== Driver memory alive at the end on device %s ======\n",
			    device);
		for (i = late = 0; i < count; i++) {
			const struct block *block = found->driver[first + i];

			late += block->latest_step >= LEAKS_FIRST_STEP;
			if (i >= lines)
				continue;
			strbuf_add_str(out, "Hal memory");
			text_block(view, block, out);
		}
		text_more(count, lines, out);
		strbuf_addf(out,
			    "====== SUMMARY: %g Mb(s) in %zu allocation(s), %zu of them in step 2 "
			    "or later; memory pools keep what they took ======\n",
			    (double)bytes / MIB, count, late);
	}
}

static bool has_stack(const struct found *found)
{
	size_t i;

	for (i = 0; i < found->leak_count; i++) {
		if (found->leaks[i]->stack != 0)
			return true;
	}
	return false;
}

static int leaks_text(void *state, const struct analysis_view *view, struct strbuf *out)
{
	const struct leaks *leaks = state;
	struct replay *replay = view->replay;
	uint32_t last = last_ended_step(replay);
	struct found found;
	int r;

	if (replay_totals(replay)->allocations == 0)
		return 0;
	if (last < LEAKS_FIRST_STEP) {
		strbuf_addf(out,
			    "Leaks are not judged: %s. A range named \"" STEP_MESSAGE
			    "\" (mstxRangeStartA, mstxRangeEnd) or msmemscope.step() marks a "
			    "step.\n",
			    replay_steps(replay) == 0 ? "no step was marked"
						      : "no step after the first has ended");
		return 0;
	}
	r = find(leaks, replay, &found);
	if (r < 0)
		return r;
	text_leaks(view, &found, out);
	if (found.leak_count > 0 && !has_stack(&found))
		strbuf_add_str(out,
			       "(run again with --call-stack=c to see where they come from)\n");
	if (found.leak_count == 0 && last == LEAKS_FIRST_STEP)
		strbuf_addf(out, "No leak was found in step %u.\n", last);
	else if (found.leak_count == 0)
		strbuf_addf(out, "No leak was found in steps %u to %u.\n", LEAKS_FIRST_STEP, last);
	if (found.late_count > 0)
		strbuf_addf(out,
			    "%zu of them %s freed only after the last step, as a program does that "
			    "ends.\n",
			    found.late_count, found.late_count == 1 ? "was" : "were");
	if (found.used_count > 0) {
		strbuf_addf(out, "%zu younger %s (", found.used_count,
			    found.used_count == 1 ? "block" : "blocks");
		strbuf_add_size(out, found.used_bytes);
		strbuf_addf(out, ") %s still within %s usual lifetime.\n",
			    found.used_count == 1 ? "is" : "are",
			    found.used_count == 1 ? "its" : "their");
	}
	text_driver(view, &found, out);
	found_fini(&found);
	return 0;
}

static void json_blocks(struct replay *replay, const struct block **blocks, size_t count,
			const char *key, struct json *json)
{
	size_t i;

	json_array(json, key);
	for (i = 0; i < count; i++) {
		json_object(json, NULL);
		block_json(replay, blocks[i], json);
		json_end(json);
	}
	json_end(json);
}

static int leaks_json(void *state, const struct analysis_view *view, struct json *json)
{
	struct replay *replay = view->replay;
	uint32_t last = last_ended_step(replay);
	struct found found = {0};
	int r = last < LEAKS_FIRST_STEP ? 0 : find(state, replay, &found);

	if (r < 0)
		return r;
	json_object(json, "leaks");
	json_bool(json, "judged", last >= LEAKS_FIRST_STEP);
	json_u64(json, "last_step", last);
	json_blocks(replay, found.leaks, found.leak_count, "blocks", json);
	json_blocks(replay, found.driver, found.driver_count, "driver", json);
	json_u64(json, "freed_after_last_step", found.late_count);
	json_u64(json, "in_use_blocks", found.used_count);
	json_u64(json, "in_use_bytes", found.used_bytes);
	json_end(json);
	found_fini(&found);
	return 0;
}

const struct analysis analysis_leaks = {
	.name = "leaks",
	.bits = SESSION_LEAKS,
	.state_bytes = sizeof(struct leaks),
	.rows = 1u << ROW_START_TRACE,
	.blocks = 1u << BLOCK_REMOVED | 1u << BLOCK_RESTORED,
	.row = leaks_row,
	.step = leaks_step,
	.block = leaks_block,
	.version = 1,
	.save = leaks_save,
	.load = leaks_load,
	.text = leaks_text,
	.json = leaks_json,
	.fini = leaks_fini,
};
