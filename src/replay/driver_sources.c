/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the driver's own interface for tools tells besides its calls: a context ends with all that it holds, and from some moment on
 * another tool has the interface.
 */
#include <errno.h>
#include <stdlib.h>

#include "replay/state.h"

typedef bool chooses(struct replay *replay, const struct block *block, uint32_t number);

static bool is_of_context(struct replay *replay, const struct block *block, uint32_t number)
{
	const struct context *context = replay_context(replay, block->context);

	return context->vendor == VENDOR_CUDA &&
	       (context->pool == POOL_hal || context->pool == POOL_host_pinned) &&
	       CUDA_FLAGS_CONTEXT(context->flags) == number;
}

static bool is_of_driver(struct replay *replay, const struct block *block, uint32_t vendor)
{
	const struct context *context = replay_context(replay, block->context);

	return context->vendor == vendor &&
	       (context->pool == POOL_hal || context->pool == POOL_host_pinned) &&
	       !pool_details_keeps(replay, block, context_space(context));
}

/* Ends the blocks that are chosen, with rows or without. */
static int end_blocks(struct replay *replay, const struct trace_event *event, chooses *choose,
		      uint32_t number, bool with_rows)
{
	size_t count = 0, i;
	struct block **blocks = blocks_sorted(&replay->blocks, &count);
	int r = 0;

	if (blocks == NULL)
		return replay->blocks.live.count == 0 ? 0 : -ENOMEM;
	for (i = 0; i < count && r == 0; i++) {
		const struct context *context = replay_context(replay, blocks[i]->context);
		const struct live_entry *entry;

		if (!choose(replay, blocks[i], number))
			continue;
		/* Blocks of drivers are found by their address or handle. */
		entry = live_get(&replay->blocks, context_space(context), blocks[i]->address);
		if (entry != NULL)
			r = with_rows ? blocks_free(replay, event, entry)
				      : blocks_end(replay, entry);
	}
	free(blocks);
	return r;
}

int driver_take_driver_context_end(struct replay *replay, const struct trace_event *event)
{
	struct event_driver_context_end end;

	event_driver_context_end_decode(event->words, &end);
	return end.number == 0
		       ? 0
		       : end_blocks(replay, event, is_of_context, (uint32_t)end.number, true);
}

/* When the calls are not seen any more, no block may count as never freed: how they end is not known. */
int driver_take_driver_source(struct replay *replay, const struct trace_event *event)
{
	struct event_driver_source source;
	uint64_t after_ns = event->time_ns - replay->totals.first_ns;
	int r;

	event_driver_source_decode(event->words, &source);
	if (source.state == DRIVER_SOURCE_YIELDS || source.state == DRIVER_SOURCE_TIMES_YIELD)
		replay->kernels.untold = true;
	if (source.state == DRIVER_SOURCE_TIMES_YIELD)
		return notes_add(
			replay,
			"another tool took CUPTI's records of kernels %llu.%03llu s after the first event: from then on no execution times are recorded",
			(unsigned long long)(after_ns / 1000000000),
			(unsigned long long)(after_ns / 1000000 % 1000));
	if (source.state != DRIVER_SOURCE_YIELDS)
		return 0;
	replay->pool_details.driver_calls = false;
	r = notes_add(
		replay,
		"another tool took CUPTI %llu.%03llu s after the first event: calls of the CUDA driver are not recorded from then on%s",
		(unsigned long long)(after_ns / 1000000000),
		(unsigned long long)(after_ns / 1000000 % 1000),
		replay->pool_details.place_count == 0 ? ""
						      : "; segments of PyTorch's pool still are");
	return r < 0 ? r : end_blocks(replay, event, is_of_driver, (uint32_t)source.vendor, false);
}
