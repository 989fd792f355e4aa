/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Verdicts about refused requests as findings.
 */
#include "analysis/oom.h"
#include "replay/ooms.h"

bool oom_is_limited(const struct oom_verdict *verdict)
{
	/* A driver that has enough and refuses has it in pieces; a pool has a limit. */
	return (verdict->device == DEVICE_HOST || !pool_is_driver(verdict->pool)) &&
	       verdict->free_bytes != UINT64_MAX && verdict->free_bytes >= verdict->requested_bytes;
}

static void add_place_finding(struct findings *found, const struct oom_place *place,
			      struct finding_range *range)
{
	struct finding_oom_place *added = FINDINGS_ADD_TO(found, oom_place, range);

	if (added == NULL)
		return;
	added->pool = place->pool;
	added->bytes = place->bytes;
	added->blocks = place->blocks;
	added->largest_block_bytes = place->size_bytes;
	added->grown_bytes = place->grown_bytes;
	added->place = "";
	added->call_sites = 1;
	added->stack = place->stack;
}

void oom_find(const struct oom_verdict *verdict, struct replay *replay, struct findings *found)
{
	struct finding_oom *oom = FINDINGS_ADD(found, oom);
	struct finding_oom_pool *pool;
	uint32_t i;

	if (oom == NULL)
		return;
	*oom = (struct finding_oom){.number = verdict->number,
				    .time_ns = run_wall_ns(replay_run(replay), verdict->time_ns),
				    .device = verdict->device,
				    .pool = verdict->pool,
				    .function = oom_call_text(verdict->call),
				    .thread = verdict->tid,
				    .step = verdict->step,
				    .tries = verdict->tries,
				    .repeats = verdict->repeats,
				    .requested_bytes = verdict->requested_bytes,
				    .free_bytes = verdict->free_bytes,
				    .total_bytes = verdict->total_bytes,
				    .process_bytes = verdict->process_bytes,
				    .other_processes_bytes = verdict->others_bytes,
				    .lost_to_pages_bytes = verdict->pages_bytes,
				    .outside_pool_bytes = verdict->outside_bytes,
				    .reserved_unused_bytes = verdict->unused_bytes,
				    .largest_hole_bytes = verdict->hole_bytes,
				    .waiting_bytes = verdict->waiting_bytes,
				    .private_pools_unused_bytes = verdict->private_bytes,
				    .given_back_bytes = verdict->given_back_bytes,
				    .cause = verdict->cause,
				    .bytes_per_step = verdict->per_step_bytes,
				    .vendor = verdict->vendor,
				    .cause_bytes = verdict->cause_bytes,
				    .usual_bytes = verdict->usual_bytes,
				    .most_bytes = verdict->most_bytes,
				    .largest_bytes = verdict->largest_bytes,
				    .held_bytes = verdict->held_bytes,
				    .held_blocks = verdict->held_blocks,
				    .freed_blocks = verdict->freed_blocks,
				    .steady = verdict->steady,
				    .grown_bytes = verdict->grown_bytes,
				    .grown_steps = verdict->grown_steps,
				    .grown_pool = verdict->grown_pool,
				    .by_steps = verdict->by_steps,
				    .scales = verdict->scales,
				    .record_steps = verdict->record_steps,
				    .limited = oom_is_limited(verdict),
				    .place = "",
				    .stack = verdict->stack};
	if (verdict->grown_place.bytes != 0)
		add_place_finding(found, &verdict->grown_place, &oom->growing);
	for (i = 0; i < verdict->pool_count; i++) {
		pool = FINDINGS_ADD_TO(found, oom_pool, &oom->pools);
		if (pool != NULL)
			*pool = verdict->pools[i];
	}
	for (i = 0; i < verdict->place_count; i++)
		add_place_finding(found, &verdict->places[i], &oom->places);
}
