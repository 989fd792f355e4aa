/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A run whose oldest part --max-disk dropped. Its trace starts with a checkpoint: pools and blocks that lived then are in the replay, and
 * no row will show them. Of a peak before the checkpoint the blocks are gone, but the analysis knows who held it.
 */
#include <errno.h>

#include "analysis/peak.h"
#include "viewer/model.h"

static int take_pools(struct model *model, const struct replay *replay, uint64_t now_ns)
{
	const struct usage *usages;
	size_t count, i;
	int r = 0;

	usages = replay_usages(replay, &count);
	for (i = 0; i < count && r == 0; i++) {
		struct model_pool *pool = model_pool_at(model, i);

		if (pool == NULL)
			return -ENOSPC;
		if (pool->lines[MODEL_USED].count == 0 && usages[i].peak_bytes > 0)
			r = line_add(&pool->lines[MODEL_USED], now_ns, usages[i].live_bytes);
		if (r == 0 && pool->lines[MODEL_RESERVED].count == 0 &&
		    usages[i].reserved_bytes != UINT64_MAX)
			r = line_add(&pool->lines[MODEL_RESERVED], now_ns,
				     usage_reserved(&usages[i]));
	}
	return r;
}

int model_take_checkpoint(struct model *model, struct replay *replay)
{
	struct run *run = model->input.run;
	uint64_t now_ns = run_wall_ns(run, replay_totals(replay)->last_ns);
	const struct block *block;
	size_t cursor = 0;

	while ((block = replay_next_block(replay, &cursor)) != NULL) {
		if (!block->hidden &&
		    model_block_of(model, replay, block, run_wall_ns(run, block->time_ns)) == NULL)
			return -ENOSPC;
	}
	model->cut_ns = now_ns;
	if (model->from_ns == 0)
		model->from_ns = now_ns;
	if (model->to_ns < now_ns)
		model->to_ns = now_ns;
	return take_pools(model, replay, now_ns);
}

const struct peak *model_dropped_peak(struct model *model, const struct model_pool *pool,
				      struct peaks *peaks)
{
	size_t i;

	*peaks = (struct peaks){0};
	if (!pool->dropped_peak ||
	    peaks_find(&model->pass.analyses, model->pass.replay, SIZE_MAX, peaks) < 0)
		return NULL;
	for (i = 0; i < peaks->count; i++) {
		if (peaks->all[i].pool == pool->pool && peaks->all[i].device == pool->device)
			return &peaks->all[i];
	}
	return NULL;
}

struct model_block model_holder(const struct peak_place *place)
{
	return (struct model_block){
		.stack = place->site,
		.owner = place->owner,
		.outside = place->outside,
		.size_bytes = place->size_class == 0 ? 0 : UINT64_C(1) << (place->size_class - 1)};
}
