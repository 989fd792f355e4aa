/* SPDX-License-Identifier: Apache-2.0 */
#include "analysis/leaks.h"

#include <errno.h>
#include <stdlib.h>

#include "analysis/analyses.h"
#include "trace/session.h"

#define MIB (1024.0 * 1024.0)

bool device_has_pool(const struct replay *replay, uint32_t device)
{
	size_t i;

	for (i = 0; i < replay->usage_count; i++) {
		const struct usage *usage = &replay->usages[i];

		if (usage->device == device && !pool_is_driver(usage->pool) &&
		    usage->allocations > 0)
			return true;
	}
	return false;
}

uint32_t last_ended_step(const struct replay *replay)
{
	uint32_t step = replay->steps;

	while (step > 0 && !step_has_ended(replay, step))
		step--;
	return step;
}

bool block_is_leaked(const struct replay *replay, const struct block *block)
{
	const struct context *context = replay_context(replay, block->context);

	if (block->outside || block->step < LEAKS_FIRST_STEP ||
	    !step_has_ended(replay, block->step))
		return false;
	return context->pool == POOL_hal ? !device_has_pool(replay, context->device)
					 : pool_long_name(context->pool) != NULL;
}

/* Two lists: what is leaked, and what pools keep from the driver. Both by device, then by step. */
struct found {
	const struct block **leaks;
	size_t leak_count;
	const struct block **driver;
	size_t driver_count;
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
	if (x->block->step != y->block->step)
		return x->block->step < y->block->step ? -1 : 1;
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
				       .early = blocks[i]->step < LEAKS_FIRST_STEP};
	qsort(entries, count, sizeof(*entries), by_place);
	for (i = 0; i < count; i++)
		blocks[i] = entries[i].block;
}

static int find(const struct replay *replay, struct found *out)
{
	struct entry *entries = calloc(replay->live.count + 1, sizeof(*entries));
	const struct block *block;
	size_t cursor = 0;

	*out = (struct found){.leaks = calloc(replay->live.count + 1, sizeof(const struct block *)),
			      .driver =
				      calloc(replay->live.count + 1, sizeof(const struct block *))};
	if (entries == NULL || out->leaks == NULL || out->driver == NULL) {
		free(entries);
		found_fini(out);
		return -ENOMEM;
	}
	while ((block = replay_next_block(replay, &cursor)) != NULL) {
		const struct context *context = replay_context(replay, block->context);

		if (block_is_leaked(replay, block))
			out->leaks[out->leak_count++] = block;
		else if (context->pool == POOL_hal && !block->outside &&
			 device_has_pool(replay, context->device))
			out->driver[out->driver_count++] = block;
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

/* How much, where and when, behind the words that say what; then the place in the program. */
static void text_block(const struct analysis_view *view, const struct block *block,
		       struct strbuf *out)
{
	strbuf_addf(out, " of %f Mb(s) at 0x%llx in kernel_%llu at step %u.\n",
		    (double)block->size_bytes / MIB, (unsigned long long)block->address,
		    (unsigned long long)block->launches, block->step);
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

			late += block->step >= LEAKS_FIRST_STEP;
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

/* Blocks of the last step that look like what each step leaves to the next one, which frees it: nothing older of their kind. */
static int count_carried(const struct replay *replay, const struct found *found, size_t *out)
{
	uint32_t last = last_ended_step(replay);
	struct map older = {0};
	size_t i;
	int r = 0;

	*out = 0;
	for (i = 0; i < found->leak_count && r == 0; i++) {
		const struct block *block = found->leaks[i];
		struct map_key key = {(uint64_t)block->context << 32 | block->stack,
				      block->size_bytes};

		if (block->step != last)
			r = map_put(&older, key, 1);
	}
	for (i = 0; i < found->leak_count && r == 0; i++) {
		const struct block *block = found->leaks[i];
		struct map_key key = {(uint64_t)block->context << 32 | block->stack,
				      block->size_bytes};

		*out += block->step == last && map_get(&older, key) == NULL;
	}
	map_fini(&older);
	return r;
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
	struct replay *replay = view->replay;
	uint32_t last = last_ended_step(replay);
	struct found found;
	size_t carried = 0;
	int r;

	(void)state;
	if (replay->allocations == 0)
		return 0;
	if (last < LEAKS_FIRST_STEP) {
		strbuf_addf(out,
			    "Leaks are not judged: %s. A range named \"" STEP_MESSAGE
			    "\" (mstxRangeStartA, mstxRangeEnd) or msmemscope.step() marks a "
			    "step.\n",
			    replay->steps == 0 ? "no step was marked"
					       : "no step after the first has ended");
		return 0;
	}
	r = find(replay, &found);
	if (r < 0)
		return r;
	r = count_carried(replay, &found, &carried);
	if (r < 0) {
		found_fini(&found);
		return r;
	}
	text_leaks(view, &found, out);
	if (found.leak_count > 0 && !has_stack(&found))
		strbuf_add_str(out,
			       "(run again with --call-stack=c to see where they come from)\n");
	if (found.leak_count == 0)
		strbuf_addf(out, "No leak was found in steps 2 to %u.\n", last);
	if (carried > 0)
		strbuf_addf(out,
			    "%zu of them %s of the last step, and earlier steps left nothing of "
			    "that kind: it may be what every step leaves to the next.\n",
			    carried, carried == 1 ? "is" : "are");
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
	int r = last < LEAKS_FIRST_STEP ? 0 : find(replay, &found);

	(void)state;
	if (r < 0)
		return r;
	json_object(json, "leaks");
	json_bool(json, "judged", last >= LEAKS_FIRST_STEP);
	json_u64(json, "last_step", last);
	json_blocks(replay, found.leaks, found.leak_count, "blocks", json);
	json_blocks(replay, found.driver, found.driver_count, "driver", json);
	json_end(json);
	found_fini(&found);
	return 0;
}

const struct analysis analysis_leaks = {
	.name = "leaks",
	.bits = SESSION_LEAKS,
	.text = leaks_text,
	.json = leaks_json,
};
