/* SPDX-License-Identifier: Apache-2.0 */
/* Who has what of a device, as findings. */
#include "analysis/whole_device.h"

#include "base/vendors.h"

/* Figures of a moment. */
#define PART(id, field) (to)->field = (from)->parts[PART_##id];
#define TAKE(from, to)                                                                             \
	do {                                                                                       \
		(to)->time_ns = run_wall_ns(run, (from)->time_ns);                                 \
		(to)->after_ns = less_u64((from)->time_ns, first_ns);                              \
		(to)->used_bytes = (from)->used_bytes;                                             \
		DEVICE_PARTS                                                                       \
	} while (0)

static void add_moment(const struct device_view *view, const struct run *run, uint64_t first_ns,
		       struct findings *found, struct finding_range *range)
{
	struct finding_device_moment *to = FINDINGS_ADD_TO(found, device_moment, range);
	const struct device_moment *from = &view->moment;
	size_t i;

	if (to == NULL)
		return;
	to->when = (enum device_when)view->when;
	to->pool = view->when == DEVICE_POOL_PEAK ? (uint8_t)view->pool : POOL_UNKNOWN;
	TAKE(from, to);
	to->other_processes = view->others;
	for (i = 0; i < view->pool_count; i++) {
		const struct device_pool *pool = &view->pools[i];
		struct finding_device_pool *added = FINDINGS_ADD_TO(found, device_pool, &to->pools);

		if (added != NULL)
			*added = (struct finding_device_pool){
				.pool = (uint8_t)pool->pool,
				.reserved_bytes = pool->reserved_bytes,
				.live_bytes = pool->live_bytes,
				.requested_bytes = pool->requested_bytes,
				.waiting_bytes = pool->waiting_bytes,
				.private_pools_bytes = pool->private_bytes};
	}
	for (i = 0; i < view->library_count; i++) {
		const struct device_library *library = &view->libraries[i];
		struct finding_device_library *added =
			FINDINGS_ADD_TO(found, device_library, &to->outside);

		if (added != NULL)
			*added = (struct finding_device_library){
				.library = findings_text(found, library->name),
				.bytes = library->bytes,
				.blocks = library->blocks};
	}
}

static void add_point(const struct device_moment *from, const struct run *run, uint64_t first_ns,
		      struct findings *found, struct finding_range *range)
{
	struct finding_device_point *to = FINDINGS_ADD_TO(found, device_point, range);

	if (to != NULL)
		TAKE(from, to);
}

void device_find(const struct device_account *account, struct replay *replay,
		 struct findings *found)
{
	const struct run *run = replay_run(replay);
	uint64_t first_ns = replay_totals(replay)->first_ns;
	struct finding_device_memory *to;
	struct device_view then;
	size_t i;

	if (account->fullest.moment.time_ns == 0)
		return;
	to = FINDINGS_ADD(found, device_memory);
	if (to == NULL)
		return;
	to->device = account->device;
	to->platform = account->vendor;
	to->vendor = vendor_row(account->vendor)->suffix;
	to->total_bytes = account->total_bytes;
	to->ends_lower = account->ends_lower;
	add_moment(&account->fullest, run, first_ns, found, &to->peak);
	device_then(account, replay, &then);
	if (then.when != DEVICE_FULLEST)
		add_moment(&then, run, first_ns, found,
			   then.when == DEVICE_REFUSED ? &to->at_oom : &to->at_pool_peak);
	add_point(&account->last, run, first_ns, found, &to->last);
	for (i = 0; i < account->point_count; i++)
		add_point(&account->points[i], run, first_ns, found, &to->over_time);
	if (account->ends_lower)
		add_point(&account->last, run, first_ns, found, &to->over_time);
}
