/* SPDX-License-Identifier: Apache-2.0 */
#include "replay/holdings.h"

#include <string.h>

#include "replay/state.h"

void holdings_take_alloc(struct replay *replay, uint32_t slot)
{
	struct holdings *holdings = &replay->holdings;
	uint64_t id = replay->blocks.all[slot].allocation_id;
	size_t at;

	if (MSCOPE_UNLIKELY(holdings->count == HOLDINGS_FRESH)) {
		holdings->count = HOLDINGS_FRESH / 2;
		memcpy(holdings->fresh, holdings->fresh + HOLDINGS_FRESH / 2,
		       holdings->count * sizeof(holdings->fresh[0]));
	}
	/* A checkpoint has its blocks in any order. */
	for (at = holdings->count; at > 0 && holdings->fresh[at - 1].allocation_id > id; at--)
		holdings->fresh[at] = holdings->fresh[at - 1];
	holdings->fresh[at] = (struct fresh_block){.allocation_id = id, .slot = slot};
	holdings->count++;
}

/* What pools of frameworks have reserved on a device. */
static uint64_t pools_on(const struct replay *replay, uint32_t device)
{
	uint64_t sum = 0;
	size_t i;

	for (i = 0; i < replay->usages.count; i++) {
		if (replay->usages.all[i].device == device)
			sum += usage_reserved(&replay->usages.all[i]);
	}
	return sum;
}

void holdings_note_level(struct replay *replay, const struct usage *usage)
{
	struct holdings *holdings = &replay->holdings;

	holdings->levels[holdings->level_count++ % HOLDINGS_LEVELS] =
		(struct driver_level){.time_ns = replay->totals.last_ns,
				      .bytes = driver_pages_taken(&usage->pages) +
					       replay_driver_kept(replay, usage->device),
				      .pools_bytes = pools_on(replay, usage->device),
				      .device = usage->device};
}

void holdings_note_pools(struct replay *replay, const struct usage *usage)
{
	struct holdings *holdings = &replay->holdings;
	struct driver_level *level =
		&holdings->levels[(holdings->level_count - 1) % HOLDINGS_LEVELS];

	if (holdings->level_count > 0 && level->device == usage->device)
		level->pools_bytes = pools_on(replay, usage->device);
}

uint64_t usage_reserved(const struct usage *usage)
{
	uint64_t reserved = usage->reserved_bytes - usage->returned_bytes;

	if (pool_is_driver(usage->pool) || usage->pool == POOL_host_pinned)
		return 0;
	return reserved > usage->live_bytes ? reserved : usage->live_bytes;
}

uint64_t usage_requested_peak(const struct usage *usage)
{
	return usage->requested_peak_bytes != 0 ? usage->requested_peak_bytes : usage->peak_bytes;
}

uint64_t usage_requested(const struct usage *usage)
{
	return usage->detailed_bytes == usage->live_bytes ? usage->requested_bytes : 0;
}

uint64_t replay_driver_kept(const struct replay *replay, uint32_t device)
{
	const struct driver_usage *driver = usages_driver(&replay->usages, device);
	uint64_t live;

	if (driver == NULL || driver->pools_bytes == 0)
		return 0;
	live = driver->hal == 0 ? 0 : replay->usages.all[driver->hal - 1].async_bytes;
	return driver->pools_bytes > live ? driver->pools_bytes - live : 0;
}

uint64_t replay_driver_managed(const struct replay *replay, uint32_t device)
{
	const struct driver_usage *driver = usages_driver(&replay->usages, device);

	return driver == NULL || driver->hal == 0
		       ? 0
		       : replay->usages.all[driver->hal - 1].managed_bytes;
}

static uint64_t distance(uint64_t a, uint64_t b)
{
	return a > b ? a - b : b - a;
}

uint64_t replay_driver_level(const struct replay *replay, uint32_t device, uint64_t since_ns,
			     uint64_t wanted, uint64_t *out_pools)
{
	const struct holdings *holdings = &replay->holdings;
	uint64_t best = 0, at = holdings->level_count;
	uint64_t oldest = at > HOLDINGS_LEVELS ? at - HOLDINGS_LEVELS : 0;
	bool any = false;

	*out_pools = 0;
	while (at-- > oldest) {
		const struct driver_level *level = &holdings->levels[at % HOLDINGS_LEVELS];

		if (level->device != device)
			continue;
		if (!any || distance(level->bytes, wanted) < distance(best, wanted)) {
			best = level->bytes;
			*out_pools = level->pools_bytes;
		}
		any = true;
		if (level->time_ns < since_ns)
			return best; /* it was still so then */
	}
	/* Nothing came before what is remembered. */
	if (any && oldest == 0 && distance(0, wanted) < distance(best, wanted))
		best = *out_pools = 0;
	return best;
}

uint64_t replay_driver_level_below(const struct replay *replay, uint32_t device, uint64_t since_ns,
				   uint64_t most)
{
	const struct holdings *holdings = &replay->holdings;
	uint64_t best = UINT64_MAX, at = holdings->level_count;
	uint64_t oldest = at > HOLDINGS_LEVELS ? at - HOLDINGS_LEVELS : 0;

	while (at-- > oldest) {
		const struct driver_level *level = &holdings->levels[at % HOLDINGS_LEVELS];

		if (level->device != device)
			continue;
		if (level->bytes <= most && (best == UINT64_MAX || level->bytes > best))
			best = level->bytes;
		if (level->time_ns < since_ns)
			break;
	}
	return best;
}

bool holdings_is_fresh(const struct replay *replay, const struct block *block)
{
	size_t at;

	for (at = 0; at < replay->holdings.count; at++) {
		if (replay->holdings.fresh[at].allocation_id == block->allocation_id)
			return true;
	}
	return false;
}

/* The fresh block at this place; NULL if it is freed or of another device. */
static struct block *fresh_at(struct replay *replay, size_t at, uint32_t device)
{
	struct block *block = &replay->blocks.all[replay->holdings.fresh[at].slot];

	return block->allocation_id == replay->holdings.fresh[at].allocation_id &&
			       replay->definitions.contexts[block->context].device == device
		       ? block
		       : NULL;
}

/* Where the newest fresh blocks of the device that have these bytes in all begin; `count` if none do. */
static size_t find_sum(struct replay *replay, uint32_t device, uint64_t bytes)
{
	size_t at = replay->holdings.count;
	uint64_t sum = 0;

	while (at-- > 0 && sum < bytes) {
		const struct block *block = fresh_at(replay, at, device);

		sum += block == NULL ? 0 : block->size_bytes;
		if (sum == bytes)
			return at;
	}
	return replay->holdings.count;
}

void holdings_take_growth(struct replay *replay, const struct usage *usage, uint64_t bytes)
{
	struct holdings *holdings = &replay->holdings;
	size_t from = find_sum(replay, usage->device, bytes), kept = from, at;

	for (at = from; at < holdings->count; at++) {
		struct block *block = fresh_at(replay, at, usage->device);

		if (block != NULL)
			block->segment_of = usage->pool;
		else
			holdings->fresh[kept++] = holdings->fresh[at];
	}
	holdings->count = kept;
}

/* Index of the usage of the pool that holds the block; `count` if there is none. */
static size_t pool_of(const struct replay *replay, const struct block *block)
{
	uint32_t device = replay->definitions.contexts[block->context].device;
	size_t i;

	if (block->segment_of == 0)
		return replay->usages.count;
	for (i = 0; i < replay->usages.count; i++) {
		const struct usage *usage = &replay->usages.all[i];

		if (usage->pool == block->segment_of && usage->device == device)
			break;
	}
	return i;
}

void holdings_take_free(struct replay *replay, const struct block *block)
{
	size_t at = pool_of(replay, block);
	struct usage *usage;
	uint64_t left;

	if (at == replay->usages.count)
		return;
	usage = &replay->usages.all[at];
	left = usage->reserved_bytes - usage->returned_bytes;
	usage->returned_bytes += block->size_bytes < left ? block->size_bytes : left;
}

void holdings_undo_free(struct replay *replay, const struct block *block)
{
	size_t at = pool_of(replay, block);
	struct usage *usage;

	if (at == replay->usages.count)
		return;
	usage = &replay->usages.all[at];
	usage->returned_bytes -= block->size_bytes < usage->returned_bytes ? block->size_bytes
									   : usage->returned_bytes;
}

void holdings_take_region(struct replay *replay, struct usage *usage)
{
	/* The collector leaves out a total that is the same as before: the pool has grown by what it gave back. */
	holdings_take_growth(replay, usage, usage->returned_bytes);
	usage->returned_bytes = 0;
}

uint64_t holdings_reserved(const struct replay *replay, const struct block *block)
{
	size_t at = pool_of(replay, block);

	return at < replay->usages.count ? replay->usages.all[at].reserved_bytes -
						   replay->usages.all[at].returned_bytes
					 : UINT64_MAX;
}

/* ---- in a checkpoint ---- */

int holdings_keep(struct replay *replay, struct keeping *k)
{
	size_t i;

	KEEP(&k->words, replay->holdings.level_count);
	for (i = 0; i < HOLDINGS_LEVELS; i++) {
		struct driver_level *level = &replay->holdings.levels[i];

		KEEP(&k->words, level->time_ns);
		KEEP(&k->words, level->bytes);
		KEEP(&k->words, level->pools_bytes);
		KEEP(&k->words, level->device);
	}
	return 0;
}
