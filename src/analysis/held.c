/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory that is held for long without growing: blocks that lived through at least half of all steps, and at least three, and
 * of which later steps added no more. Usually weights and buffers that are meant to stay; sometimes a buffer that was needed
 * once. Leaks are not listed here.
 *
 * Blocks of one pool, device, size and place are one line.
 */
#include <errno.h>
#include <stdlib.h>

#include "analysis/analyses.h"
#include "analysis/leaks.h"
#include "trace/session.h"

#define HELD_STEPS_MIN 3u

struct group {
	const struct block *first; /* lowest allocation_id */
	uint64_t blocks;
	uint64_t bytes;
	uint32_t last_step;
	bool young; /* one of its blocks did not live long enough, or is leaked */
};

struct held {
	struct group *groups;
	size_t count;
	uint64_t bytes;
	uint64_t blocks;
};

static int by_bytes(const void *a, const void *b)
{
	const struct group *x = a, *y = b;

	if (x->bytes != y->bytes)
		return x->bytes > y->bytes ? -1 : 1;
	return x->first->allocation_id < y->first->allocation_id ? -1 : 1;
}

static bool lived_long(const struct replay *replay, const struct block *block)
{
	/* The first step of a window has a number before step() ends it. */
	uint32_t age = replay_steps(replay) > block->latest_step
			       ? replay_steps(replay) - block->latest_step
			       : 0;

	return age >= HELD_STEPS_MIN && age >= (replay_steps(replay) + 1) / 2;
}

/* What a pool took from the driver is listed with the leaks. */
static bool is_asked_for(const struct replay *replay, const struct context *context)
{
	return context->pool == POOL_hal ? !device_has_pool(replay, context->device)
					 : context->pool == POOL_pta_workspace ||
						   pool_long_name(context->pool) != NULL;
}

static int gather(const struct replay *replay, struct held *held)
{
	struct map index = {0};
	const struct block *block;
	size_t cursor = 0, i, kept = 0;
	int r = 0;

	*held = (struct held){
		.groups = calloc(replay_count_at_end(replay) + 1, sizeof(struct group))};
	if (held->groups == NULL)
		return -ENOMEM;
	while ((block = replay_next_at_end(replay, &cursor)) != NULL) {
		struct map_key key = {(uint64_t)block->context << 32 | block->stack,
				      block->size_bytes};
		uint64_t *known = map_get(&index, key);
		struct group *group;

		if (block->outside_window ||
		    !is_asked_for(replay, replay_context(replay, block->context)))
			continue;
		if (known == NULL) {
			r = map_put(&index, key, held->count);
			if (r < 0)
				break;
			held->groups[held->count++] = (struct group){.first = block};
		}
		group = &held->groups[known == NULL ? held->count - 1 : *known];
		if (block->allocation_id < group->first->allocation_id)
			group->first = block;
		if (block->latest_step > group->last_step)
			group->last_step = block->latest_step;
		group->blocks++;
		group->bytes += block->size_bytes;
		group->young |= !lived_long(replay, block) || block_is_leaked(replay, block);
	}
	map_fini(&index);
	for (i = 0; i < held->count; i++) {
		struct group *group = &held->groups[i];

		/* It grew when steps after the first added to it. */
		if (group->young || (group->last_step >= LEAKS_FIRST_STEP &&
				     group->last_step != group->first->latest_step))
			continue;
		held->bytes += group->bytes;
		held->blocks += group->blocks;
		held->groups[kept++] = *group;
	}
	held->count = kept;
	if (kept > 0)
		qsort(held->groups, kept, sizeof(*held->groups), by_bytes);
	if (r < 0)
		free(held->groups);
	return r;
}

static int held_text(void *state, const struct analysis_view *view, struct strbuf *out)
{
	uint32_t lines = view->lines == UINT32_MAX ? view->lines : view->lines / 4;
	struct replay *replay = view->replay;
	struct held held;
	size_t i;
	int r = gather(replay, &held);

	(void)state;
	if (r < 0)
		return r;
	if (held.count > 0) {
		strbuf_add_str(out, "Held through at least half of the steps without growing: ");
		strbuf_add_size(out, held.bytes);
		strbuf_addf(out, " in %llu %s\n", (unsigned long long)held.blocks,
			    held.blocks == 1 ? "block" : "blocks");
	}
	for (i = 0; i < held.count && i < lines; i++) {
		const struct group *group = &held.groups[i];
		const struct context *context = replay_context(replay, group->first->context);
		char device[16];

		device_text(context->device, device);
		strbuf_add_str(out, "  ");
		if (group->blocks > 1) {
			strbuf_add_size(out, group->bytes);
			strbuf_addf(out, " = %llu blocks of ", (unsigned long long)group->blocks);
		}
		strbuf_add_size(out, group->first->size_bytes);
		strbuf_addf(out, "  %s on %s%s, %sat 0x%llx in kernel_%llu at step %u\n",
			    pool_event_type(context->pool),
			    context->device == DEVICE_HOST ? "" : "device ", device,
			    group->blocks > 1 ? "first " : "",
			    (unsigned long long)group->first->address,
			    (unsigned long long)group->first->launches, group->first->latest_step);
		site_text(replay, group->first->stack, view->frames, out);
	}
	if (held.count > lines)
		strbuf_addf(out, "  ... %zu more %s; report.txt has all of them\n",
			    held.count - lines, held.count - lines == 1 ? "place" : "places");
	free(held.groups);
	return 0;
}

static int held_json(void *state, const struct analysis_view *view, struct json *json)
{
	struct held held;
	size_t i;
	int r = gather(view->replay, &held);

	(void)state;
	if (r < 0)
		return r;
	json_array(json, "held");
	for (i = 0; i < held.count; i++) {
		json_object(json, NULL);
		json_u64(json, "blocks", held.groups[i].blocks);
		json_u64(json, "bytes", held.groups[i].bytes);
		block_json(view->replay, held.groups[i].first, json);
		json_end(json);
	}
	json_end(json);
	free(held.groups);
	return 0;
}

const struct analysis analysis_held = {
	.name = "held",
	.bits = SESSION_LEAKS,
	.text = held_text,
	.json = held_json,
};
