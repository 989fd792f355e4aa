/* SPDX-License-Identifier: Apache-2.0 */
#include "replay/figures.h"

#include "base/vendors.h"
#include "replay/state.h"

const struct usage *figures_pool(const struct replay *replay, uint32_t device)
{
	const struct usage *best = NULL;
	size_t i;

	for (i = 0; i < replay->usages.count; i++) {
		const struct usage *usage = &replay->usages.all[i];

		if (usage->device == device && !pool_is_driver(usage->pool) &&
		    usage->reserved_bytes + usage->live_bytes > 0 &&
		    (best == NULL || usage->reserved_bytes > best->reserved_bytes))
			best = usage;
	}
	return best;
}

/* Samples are of one vendor's devices; another's may have the same numbers. */
static void device_figures(const struct replay *replay, const struct context *context,
			   struct figures *out)
{
	bool theirs = vendor_row(context->vendor)->sampled &&
		      (context->vendor != VENDOR_CUDA || replay->usages.gpus);
	const struct driver_usage *driver =
		theirs ? usages_driver(&replay->usages, context->device) : NULL;

	if (out->total_bytes != UINT64_MAX || driver == NULL || driver->total_bytes == 0 ||
	    driver->device_bytes > driver->total_bytes)
		return;
	out->total_bytes = driver->total_bytes;
	out->free_bytes = driver->total_bytes - driver->device_bytes;
}

struct figures figures_at(const struct replay *replay, const struct usage *usage,
			  const struct context *context, uint64_t total_bytes, uint64_t free_bytes)
{
	struct figures figures = {.total_bytes = total_bytes,
				  .free_bytes = free_bytes,
				  .requested_bytes = UINT64_MAX,
				  .waiting_bytes = UINT64_MAX,
				  .private_bytes = UINT64_MAX};
	uint64_t live_bytes;

	device_figures(replay, context, &figures);
	if (usage == NULL)
		return figures;
	/* A snapshot tells of this moment, in a window or not. */
	live_bytes = usage->live_bytes + (uint64_t)usage->outside_bytes;
	figures.allocated_bytes = live_bytes;
	figures.max_allocated_bytes = usage->highest_bytes;
	if (usage->detailed) {
		if (usage->detailed_bytes == usage->live_bytes && usage->outside_bytes == 0)
			figures.requested_bytes = usage->requested_bytes;
		figures.waiting_bytes = usage->waiting_bytes;
		if (!usage->private_unknown)
			figures.private_bytes = usage->private_bytes;
	}
	if (pool_is_driver(usage->pool)) {
		figures.reserved_bytes = live_bytes;
		figures.max_reserved_bytes = figures.max_allocated_bytes;
	} else {
		/* A pool that does not say what it holds has at least what it handed out. */
		figures.reserved_bytes = figure_larger(usage->reserved_bytes, live_bytes);
		figures.max_reserved_bytes =
			figure_larger(usage->peak_reserved_bytes, figures.reserved_bytes);
	}
	return figures;
}

/* ---- snapshots that the program asks for ---- */

/* What the driver itself handed out on a device: of the host that is the memory of tensors, pinned or not. NULL: nothing. */
static const struct usage *driver_memory(const struct replay *replay, uint32_t device)
{
	uint8_t pool = device == DEVICE_HOST ? POOL_host : POOL_hal;
	size_t i;

	for (i = 0; i < replay->usages.count; i++) {
		if (replay->usages.all[i].device == device && replay->usages.all[i].pool == pool)
			return &replay->usages.all[i];
	}
	return NULL;
}

static void prefer(uint64_t *figure, uint64_t said)
{
	if (said != UINT64_MAX)
		*figure = said;
}

/* The framework's own figures, else those of the blocks so far; the same for each figure, so that they fit together. */
static struct figures figures_of_snapshot(const struct replay *replay,
					  const struct context *context,
					  const struct event_snapshot *said)
{
	struct figures figures = {UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX,
				  UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX};
	const struct usage *usage;

	figures.total_bytes = said->total_bytes;
	figures.free_bytes = said->free_bytes;
	if (said->tracked) {
		usage = figures_pool(replay, context->device);
		if (usage == NULL)
			usage = driver_memory(replay, context->device);
		figures = figures_at(replay, usage, context, said->total_bytes, said->free_bytes);
		/* What the pool gave back since it last told a total. */
		if (usage != NULL && figures.reserved_bytes == usage->reserved_bytes)
			figures.reserved_bytes =
				figure_larger(usage->reserved_bytes - usage->returned_bytes,
					      figures.allocated_bytes);
	}
	prefer(&figures.reserved_bytes, said->reserved_bytes);
	prefer(&figures.max_reserved_bytes, said->max_reserved_bytes);
	prefer(&figures.allocated_bytes, said->allocated_bytes);
	prefer(&figures.max_allocated_bytes, said->max_allocated_bytes);
	return figures;
}

int figures_take_snapshot(struct replay *replay, const struct trace_event *event)
{
	struct row row = {.kind = ROW_SNAPSHOT, .step = steps_current(&replay->steps)};
	struct event_snapshot said;
	struct figures figures;

	if (!replay_wants_row(replay, row.kind))
		return 0;
	event_snapshot_decode(event->words, &said);
	row.context = replay_context(replay, definitions_context(replay, event));
	row.name = texts_find(replay, event, said.name);
	figures = figures_of_snapshot(replay, row.context, &said);
	row.figures = &figures;
	return replay_publish(replay, event, &row);
}
