/* SPDX-License-Identifier: Apache-2.0 */
#include "replay/keepers.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "replay/state.h"

/* Call sites that have one at most: the engine asks about few at a time. */
#define KEEPERS_MAX 4096u

void keepers_fini(struct replay *replay)
{
	struct keepers *keepers = &replay->keepers;
	size_t i;

	for (i = 0; i < keepers->count; i++)
		free(keepers->all[i].texts[0]);
	free(keepers->all);
	*keepers = (struct keepers){0};
}

/* Those that tensors lie in. Pinned memory comes last: it shares its addresses with the driver's, which a pool has parts of. */
static const uint8_t pools[] = {POOL_pta, POOL_host, POOL_mindspore, POOL_host_pinned};

bool pool_has_tensors(uint8_t pool)
{
	return memchr(pools, pool, sizeof(pools)) != NULL;
}

/* A block that lives at this address, of a pool that tensors lie in. */
static const struct block *block_at(struct replay *replay, uint64_t address)
{
	size_t i;

	for (i = 0; i < MSCOPE_COUNT(pools); i++) {
		const struct context context = {.pool = pools[i], .kind = BLOCK_ALLOC};
		const struct live_entry *entry =
			live_get(&replay->blocks, context_space(&context), address);

		if (entry != NULL)
			return &replay->blocks.all[entry->slot];
	}
	return NULL;
}

/* Texts of a record, one allocation; false: it is malformed. */
static bool take_texts(const struct trace_event *event, const struct event_keeper *record,
		       struct keeper *out)
{
	size_t left = record->text_bytes, i;
	char *copy, *at;

	if (left == 0 || left > event->payload_bytes)
		return false;
	copy = malloc(left);
	if (copy == NULL)
		return false;
	memcpy(copy, event->payload, left);
	copy[left - 1] = '\0';
	for (i = 0, at = copy; i < KEEPER_TEXTS; i++) {
		size_t length = left == 0 ? 0 : strnlen(at, left) + 1;

		if (length == 0 || length > left) {
			free(copy);
			return false;
		}
		out->texts[i] = at;
		at += length;
		left -= length;
	}
	return true;
}

static struct keeper *known(struct replay *replay, const struct keeper *keeper)
{
	struct keepers *keepers = &replay->keepers;
	size_t i;

	for (i = 0; i < keepers->count; i++) {
		struct keeper *k = &keepers->all[i];

		if (k->pool == keeper->pool && k->device == keeper->device &&
		    (keeper->stack != 0 ? k->stack == keeper->stack
					: k->stack == 0 && k->size_bytes == keeper->size_bytes))
			return k;
	}
	return NULL;
}

/* Takes over the texts. 0 or -ENOMEM. */
static int put(struct replay *replay, struct keeper *keeper)
{
	struct keepers *keepers = &replay->keepers;
	struct keeper *before = known(replay, keeper);

	if (before != NULL && keeper->texts[KEEPER_PATH][0] == '\0' &&
	    before->texts[KEEPER_PATH][0] != '\0') {
		free(keeper->texts[0]);
		return 0;
	}
	if (before == NULL && keepers->count < KEEPERS_MAX) {
		if (ARRAY_RESERVE(keepers->all, keepers->room, keepers->count + 1) < 0) {
			free(keeper->texts[0]);
			return -ENOMEM;
		}
		keepers->all[keepers->count++] = *keeper;
		return 0;
	}
	if (before == NULL)
		before = &keepers->all[0];
	free(before->texts[0]);
	*before = *keeper;
	return 0;
}

/* As many as its field in a checkpoint holds: 19 days. */
#define TENTHS_MAX 0xffffffu

static uint32_t tenths_into(const struct replay *replay, uint64_t time_ns)
{
	uint64_t first = replay_totals(replay)->first_ns;
	uint64_t tenths = time_ns > first ? (time_ns - first) / 100000000 : 0;

	return tenths < TENTHS_MAX ? (uint32_t)tenths : TENTHS_MAX;
}

int keepers_take_keeper(struct replay *replay, const struct trace_event *event)
{
	struct event_keeper record;
	struct keeper keeper = {0};
	const struct block *block;
	const struct context *context;

	replay->keepers.latest_ns = event->time_ns;
	event_keeper_decode(event->words, &record);
	block = block_at(replay, record.address);
	if (block == NULL || !take_texts(event, &record, &keeper))
		return 0;
	context = replay_context(replay, block->context);
	keeper.address = record.address;
	keeper.size_bytes = block->size_bytes;
	keeper.stack = block->stack;
	keeper.pool = context->pool;
	keeper.device = context->device;
	keeper.newest_step = block->latest_step;
	keeper.step = replay_steps(replay);
	keeper.tenths = tenths_into(replay, event->time_ns);
	keeper.items = record.items;
	keeper.most = record.most;
	keeper.full = record.full != 0;
	keeper.renewed = record.renewed != 0;
	keeper.held = (uint32_t)record.held;
	keeper.looked = (uint32_t)record.looked;
	return put(replay, &keeper);
}

int keepers_load_keeper(struct replay *replay, const struct trace_event *event)
{
	struct event_keeper record;
	struct keeper keeper = {0};

	event_keeper_decode(event->words, &record);
	if (!take_texts(event, &record, &keeper))
		return 0;
	keeper.address = record.address;
	keeper.size_bytes = record.size_bytes;
	keeper.stack = definitions_stack(replay, writers_get(&replay->writers, event->writer),
					 record.stack);
	keeper.pool = (uint8_t)record.pool;
	keeper.device = (uint32_t)record.device;
	keeper.newest_step = (uint32_t)record.newest_step;
	keeper.step = (uint32_t)record.step;
	keeper.tenths = (uint32_t)record.tenths;
	keeper.items = record.items;
	keeper.most = record.most;
	keeper.full = record.full != 0;
	keeper.renewed = record.renewed != 0;
	keeper.held = (uint32_t)record.held;
	keeper.looked = (uint32_t)record.looked;
	return put(replay, &keeper);
}

void keepers_save(const struct replay *replay, struct checkpoint *cp)
{
	size_t i;

	for (i = 0; i < replay->keepers.count; i++) {
		const struct keeper *k = &replay->keepers.all[i];
		const char *last = k->texts[KEEPER_TEXTS - 1];
		size_t bytes = (size_t)(last - k->texts[0]) + strlen(last) + 1;

		BUILDER_BEGIN(&cp->builder, keeper, 0, .text_bytes = bytes, .address = k->address,
			      .items = k->items, .full = k->full, .held = k->held,
			      .looked = k->looked, .step = k->step, .stack = k->stack,
			      .device = k->device, .size_bytes = k->size_bytes,
			      .newest_step = k->newest_step, .pool = k->pool, .tenths = k->tenths,
			      .most = k->most, .renewed = k->renewed);
		builder_payload(&cp->builder, k->texts[0], bytes);
		builder_end(&cp->builder);
	}
}

uint64_t replay_keeper_ns(const struct replay *replay)
{
	return replay->keepers.latest_ns;
}

const struct keeper *replay_keepers(const struct replay *replay, size_t *out_count)
{
	*out_count = replay->keepers.count;
	return replay->keepers.all;
}
