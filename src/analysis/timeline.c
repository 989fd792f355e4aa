/* SPDX-License-Identifier: Apache-2.0 */
#include "analysis/timeline.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/array.h"
#include "replay/figures.h"
#include "trace/session.h"

#define SPAN_FIRST_NS 1000000u

static struct timeline_pool *pool_of(struct timeline *timeline, const struct usage *usage)
{
	struct timeline_pool *pool;
	size_t i;

	for (i = 0; i < timeline->pool_count; i++) {
		pool = timeline->pools[i];
		if (pool->pool == usage->pool && pool->device == usage->device)
			return pool;
	}
	if (array_reserve(&timeline->pools, &timeline->pool_room, i + 1,
			  sizeof(struct timeline_pool *)) < 0)
		return NULL;
	pool = calloc(1, sizeof(*pool));
	if (pool == NULL)
		return NULL;
	pool->pool = usage->pool;
	pool->device = usage->device;
	timeline->pools[timeline->pool_count++] = pool;
	return pool;
}

/* Joins spans in pairs. */
static void widen(struct timeline *timeline)
{
	size_t i, k;

	for (i = 0; i < timeline->pool_count; i++) {
		struct timeline_pool *pool = timeline->pools[i];

		for (k = 0; k < pool->count; k += 2) {
			uint64_t a = pool->most[k], b = k + 1 < pool->count ? pool->most[k + 1] : 0;

			pool->most[k / 2] = a > b ? a : b;
		}
		pool->count = (pool->count + 1) / 2;
	}
	timeline->span_ns *= 2;
}

static int note(struct timeline *timeline, const struct usage *usage, uint64_t now_ns,
		uint64_t bytes)
{
	struct timeline_pool *pool = pool_of(timeline, usage);
	uint64_t span;

	if (pool == NULL)
		return -ENOMEM;
	if (timeline->begin_ns == 0) {
		timeline->begin_ns = now_ns;
		timeline->span_ns = SPAN_FIRST_NS;
	}
	while ((span = (now_ns - timeline->begin_ns) / timeline->span_ns) >= TIMELINE_POINTS)
		widen(timeline);
	/* Spans without a change hold what was there before. */
	for (; pool->count <= span; pool->count++)
		pool->most[pool->count] = pool->last_bytes;
	if (bytes > pool->most[span])
		pool->most[span] = bytes;
	pool->last_bytes = bytes;
	return 0;
}

static int timeline_block(void *state, struct replay *replay, enum block_change change,
			  const struct block *block, const struct usage *usage, uint32_t owner)
{
	uint64_t bytes = usage->live_bytes;

	(void)owner;
	if (change == BLOCK_REMOVED)
		bytes -= block->size_bytes < bytes ? block->size_bytes : bytes;
	return note(state, usage, replay_totals(replay)->last_ns, bytes);
}

static int timeline_row(void *state, struct replay *replay, const struct row *row)
{
	struct timeline *timeline = state;
	struct timeline_snapshot *snapshot;

	(void)replay;
	if (row->figures == NULL || row->oom != NULL ||
	    timeline->snapshot_count >= TIMELINE_SNAPSHOTS)
		return 0;
	if (array_reserve(&timeline->snapshots, &timeline->snapshot_room,
			  timeline->snapshot_count + 1, sizeof(*snapshot)) < 0)
		return -ENOMEM;
	snapshot = &timeline->snapshots[timeline->snapshot_count++];
	*snapshot = (struct timeline_snapshot){
		.time_ns = row->time_ns,
		.device = row->context == NULL ? 0 : row->context->device,
		.bytes = {row->figures->reserved_bytes, row->figures->allocated_bytes,
			  row->figures->total_bytes, row->figures->free_bytes},
	};
	(void)snprintf(snapshot->name, sizeof(snapshot->name), "%s",
		       row->name == NULL ? "" : row->name);
	return 0;
}

static void timeline_fini(void *state)
{
	struct timeline *timeline = state;
	size_t i;

	for (i = 0; i < timeline->pool_count; i++)
		free(timeline->pools[i]);
	free(timeline->pools);
	free(timeline->snapshots);
}

const struct timeline *analyses_timeline(const struct analyses *analyses)
{
	return analyses->failed[ANALYSIS_ID_timeline] ? NULL
						      : analyses->state[ANALYSIS_ID_timeline];
}

const struct analysis analysis_timeline = {
	.name = "timeline",
	.bits = SESSION_TIMELINE,
	.state_bytes = sizeof(struct timeline),
	.rows = 1u << ROW_SNAPSHOT,
	.blocks = 1u << BLOCK_ADDED | 1u << BLOCK_REMOVED | 1u << BLOCK_RESTORED,
	.blocks_in_step = 1u << BLOCK_ADDED | 1u << BLOCK_REMOVED | 1u << BLOCK_RESTORED,
	.row = timeline_row,
	.block = timeline_block,
	.fini = timeline_fini,
};
