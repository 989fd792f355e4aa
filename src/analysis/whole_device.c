/* SPDX-License-Identifier: Apache-2.0 */
#include "analysis/whole_device.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/oom.h"
#include "base/array.h"
#include "base/text.h"
#include "base/vendors.h"
#include "base/word_list.h"
#include "replay/ooms.h"
#include "symbols/modules.h"

/* How much later than what it shows a sample may come: the driver is asked, a pipe is read, the engine has other work. */
#define LATE_NS UINT64_C(300000000)

#define GAP_FIRST_NS UINT64_C(10000000)

struct devices_state {
	struct device_account *all;
	size_t count, room;
};

static struct device_account *account_at(struct devices_state *state, uint32_t device)
{
	size_t i;

	for (i = 0; i < state->count; i++) {
		if (state->all[i].device == device)
			return &state->all[i];
	}
	if (ARRAY_RESERVE(state->all, state->room, i + 1) < 0)
		return NULL;
	state->all[i] = (struct device_account){.device = device, .point_gap_ns = GAP_FIRST_NS};
	state->count++;
	return &state->all[i];
}

/* ---- which library ---- */

struct known_library {
	const char *prefix, *name;
	bool passing, pool;
};

static const struct known_library *find_library(const char *path)
{
	static const struct known_library all[] = {
#define PASSING(prefix)	      {prefix, NULL, true, false},
#define POOL(prefix, name)    {prefix, name, false, true},
#define LIBRARY(prefix, name) {prefix, name, false, false},
#include "analysis/device_libraries.def"
#undef LIBRARY
#undef POOL
#undef PASSING
	};
	size_t i;

	for (i = 0; i < MSCOPE_COUNT(all); i++) {
		if (text_starts_with(text_base_name(path), all[i].prefix))
			return &all[i];
	}
	return NULL;
}

const char *device_library_name(const char *path)
{
	const struct known_library *library = find_library(path);

	return library == NULL ? NULL : library->name;
}

/* Who asked for a block of the driver: the innermost module of its stack that is not a runtime; NULL if that is not known. */
static const char *library_path(const struct replay *replay, uint32_t stack)
{
	uint32_t count, i;
	const uint32_t *frames = replay_frames(replay, stack, &count);

	for (i = 0; i < count; i++) {
		const struct module *module =
			replay_module(replay, replay_frame(replay, frames[i])->module);
		const struct known_library *library;

		if (module == NULL || module->info.path == NULL)
			continue;
		library = find_library(module->info.path);
		if (library == NULL || !library->passing)
			return module->info.path;
	}
	return NULL;
}

/* As people call it; "" if that is not known. */
static const char *library_of(const struct replay *replay, const struct block *block)
{
	const char *path = library_path(replay, block->stack);
	const char *name = path == NULL ? "" : device_library_name(path);

	return name != NULL ? name : text_base_name(path);
}

bool device_stack_is_pooled(const struct replay *replay, uint32_t stack)
{
	const char *path = library_path(replay, stack);
	const struct known_library *library = path == NULL ? NULL : find_library(path);

	return library != NULL && library->pool;
}

static void add_library(struct device_view *view, const char *name, uint64_t bytes)
{
	struct device_library *library;
	size_t i;

	for (i = 0; i < view->library_count; i++) {
		if (strncmp(view->libraries[i].name, name, sizeof(view->libraries[i].name) - 1) ==
		    0)
			break;
	}
	if (i == DEVICE_LIBRARIES)
		i--;
	library = &view->libraries[i];
	if (i == view->library_count) {
		*library = (struct device_library){0};
		(void)snprintf(library->name, sizeof(library->name), "%s", name);
		view->library_count++;
	}
	library->bytes += bytes;
	library->blocks++;
}

static int most_first(const void *a, const void *b)
{
	const struct device_library *x = a, *y = b;

	return ORDER_DOWN(x->bytes, y->bytes) ?: strcmp(x->name, y->name);
}

/* Splits driver memory outside of pools by who asked for it. A page that blocks share is the first one's. */
static void find_libraries(struct device_view *view, uint32_t device, const struct replay *replay)
{
	uint64_t left = view->moment.parts[PART_OUTSIDE];
	struct driver_pages pages = {0};
	const struct block *block;
	size_t cursor = 0, i;

	view->library_count = 0;
	view->split_bytes = left;
	if (left == 0)
		return;
	while ((block = replay_next_block(replay, &cursor)) != NULL) {
		const struct context *context = replay_context(replay, block->context);
		uint64_t before = driver_pages_taken(&pages);

		if (context->pool != POOL_hal || context->device != device ||
		    block->segment_of != 0)
			continue;
		driver_pages_add(&pages, context, block->address, block->size_bytes);
		add_library(view, library_of(replay, block),
			    CUDA_FLAGS_MEMORY(context->flags) == CUDA_MEMORY_MANAGED
				    ? block->size_bytes
				    : driver_pages_taken(&pages) - before);
	}
	driver_pages_fini(&pages);
	qsort(view->libraries, view->library_count, sizeof(view->libraries[0]), most_first);
	/* Managed memory may be elsewhere. */
	for (i = 0; i < view->library_count; i++) {
		view->libraries[i].bytes = min_u64(view->libraries[i].bytes, left);
		left -= view->libraries[i].bytes;
	}
}

/* ---- a moment ---- */

struct holding {
	uint64_t pools, outside;
	/* Not part of `outside`, and not surely there: kept by pools of the driver and for graphs, and managed memory. */
	uint64_t kept, graphs, managed;
	bool any;    /* the process has memory there that the user asked about */
	bool hidden; /* the user asked about other devices */
	bool older;  /* the sample is older than what is recorded */
	uint8_t vendor;
};

/* What this process is known to have; of the levels of driver memory since a moment that which is nearest to what is `wanted`. */
static struct holding holding_of(const struct replay *replay, uint32_t device, uint64_t since_ns,
				 uint64_t wanted)
{
	struct holding holding = {0};
	uint64_t driver = 0, driver_now = 0, pools_then = 0;
	bool driver_known = false;
	size_t count, i;
	const struct usage *usages = replay_usages(replay, &count);

	for (i = 0; i < count; i++) {
		if (usages[i].device != device || usages[i].pool == POOL_host_pinned)
			continue;
		holding.any = holding.any || !usages[i].hidden;
		holding.hidden = usages[i].hidden;
		holding.vendor = usages[i].vendor;
		if (usages[i].pool == POOL_hal) {
			driver_known = true;
			driver_now = driver_pages_taken(&usages[i].pages);
		}
		if (!pool_is_driver(usages[i].pool))
			holding.pools += usage_reserved(&usages[i]);
	}
	if (driver_known)
		driver = replay_driver_level(replay, device, since_ns, wanted, &pools_then);
	/* The sample may be older than the pool's last segments, or than those that it gave back. */
	if (driver_now >= holding.pools)
		holding.pools = min_u64(driver != driver_now ? pools_then : holding.pools, driver);
	holding.outside = driver > holding.pools ? driver - holding.pools : 0;
	/* A framework whose pool is one of the driver's counts what that keeps as its own. */
	holding.kept = min_u64(replay_driver_kept(replay, device), holding.outside);
	holding.outside -= holding.kept;
	holding.managed = replay_driver_managed(replay, device);
	return holding;
}

static uint64_t sum_of(const uint64_t *costs)
{
	uint64_t sum = 0;
	int i;

	for (i = COST_CONTEXT; i < COSTS; i++)
		sum += costs[i];
	return sum;
}

/*
 * What the driver has done for this process that this sample is the first to show; 0: nothing. A sample may be older than what was
 * recorded before it, so those of a little later count too.
 */
static int recent_cost(const struct device_account *account, const struct driver_usage *driver,
		       uint64_t now_ns)
{
	int i, late = 0;

	for (i = COST_CONTEXT; i < COSTS; i++) {
		if (driver->cost_ns[i] == 0)
			continue;
		if (driver->cost_ns[i] >= account->sampled_ns)
			return i;
		if (late == 0 && driver->cost_ns[i] >= less_u64(now_ns, LATE_NS))
			late = i;
	}
	return late;
}

/* Less is there than was measured: what came last was not its own, or a context or a graph is gone. */
static void drop_costs(struct device_account *account, uint64_t gone)
{
	uint64_t part;
	int i;

	part = min_u64(account->costs[account->cost_last], gone);
	account->costs[account->cost_last] -= part;
	gone -= part;
	for (i = COSTS - 1; i >= COST_CONTEXT && gone > 0; i--) {
		part = min_u64(account->costs[i], gone);
		account->costs[i] -= part;
		gone -= part;
	}
}

/*
 * What the driver counts for this process, and no call explains, belongs to what it has just done. The sample may be older than the last
 * `slack` bytes of what is known: the next sample says whether they were missing.
 */
static void measure_costs(struct device_account *account, uint64_t known, uint64_t counted,
			  uint64_t slack, int kind)
{
	uint64_t sum = sum_of(account->costs);

	if (kind != 0) {
		account->costs[kind] += less_u64(counted, known + sum);
		account->cost_last = (uint64_t)kind;
		account->cost_slack = slack;
		return;
	}
	if (account->cost_last != 0)
		account->costs[account->cost_last] +=
			min_u64(account->cost_slack, less_u64(counted, known + sum));
	account->cost_slack = 0;
	if (counted != 0)
		drop_costs(account, less_u64(known + sum_of(account->costs), counted));
}

/* What a context takes at most that the driver counts for no process. */
#define STRAY_MOST ((uint64_t)16 << 20)

/*
 * A context also takes what the driver counts for the device and for no process (8.8 MiB for the first on an H200, 5.6 for another). It
 * comes with the context, and where other processes were there first, what they had by then is theirs.
 */
static void measure_stray(struct device_account *account, const struct driver_usage *driver,
			  uint64_t stray, int kind)
{
	if (account->sampled_ns == 0 && driver->others != 0)
		account->stray = stray;
	if (kind == COST_CONTEXT)
		account->context_stray += less_u64(stray, account->stray);
	/* The driver is asked for the device and for its processes one after the other: one sample alone may have it too small. */
	account->context_stray =
		min_u64(account->context_stray, stray > account->stray ? stray : account->stray);
	account->stray = stray;
}

static uint64_t others_of(const struct driver_usage *driver)
{
	if (driver->others_bytes != UINT64_MAX)
		return driver->others_bytes;
	return driver->process_bytes == UINT64_MAX
		       ? 0
		       : less_u64(driver->device_bytes, driver->process_bytes);
}

/* What the process is known to have had when the sample was taken, and what the driver's pools and graphs keep of it. */
static struct holding holding_then(const struct device_account *account,
				   const struct replay *replay, const struct driver_usage *driver,
				   uint64_t counted, int kind)
{
	uint64_t now_ns = replay_totals(replay)->last_ns, costs = sum_of(account->costs), room;
	uint64_t wanted = less_u64(counted, costs + driver->graphs_bytes), since_ns = now_ns, pools,
		 below;
	struct holding holding;
	bool explained;

	/*
	 * After something new the level is not guessed by the sample; unless the sample is older than what was recorded since, or a
	 * level of that time and what was known before explain all of it, so that nothing new was taken.
	 */
	explained = replay_driver_level(replay, driver->device, less_u64(now_ns, LATE_NS), wanted,
					&pools) == wanted;
	if (kind == 0 || explained)
		since_ns = less_u64(now_ns, LATE_NS);
	holding = holding_of(replay, driver->device, since_ns, wanted);
	holding.older = kind != 0 && explained;
	/* Memory that is being given back may still have been there: what is new is what even that leaves. */
	below = replay_driver_level_below(replay, driver->device, less_u64(now_ns, LATE_NS),
					  wanted);
	if (kind != 0 && !explained && below != UINT64_MAX &&
	    holding.pools + holding.outside + holding.kept < below)
		holding = holding_of(replay, driver->device, less_u64(now_ns, LATE_NS), below);
	if (kind != 0 && holding.pools + holding.outside + holding.kept + costs > counted) {
		holding = holding_of(replay, driver->device, less_u64(now_ns, LATE_NS), wanted);
		holding.older = true;
	}
	/* Pools may have given back since they told. */
	room = less_u64(counted, holding.pools + holding.outside + costs);
	holding.graphs = min_u64(driver->graphs_bytes, room);
	holding.kept = min_u64(holding.kept, room - holding.graphs);
	return holding;
}

static struct device_moment moment_of(struct device_account *account, const struct replay *replay,
				      const struct driver_usage *driver, struct holding *out)
{
	struct device_moment moment = {.time_ns = replay_totals(replay)->last_ns,
				       .used_bytes = driver->device_bytes};
	uint64_t others = others_of(driver), known, counted = driver->process_bytes, stray = 0,
		 context_stray;
	uint64_t pools, lowest = replay_driver_level(replay, driver->device,
						     less_u64(moment.time_ns, LATE_NS), 0, &pools);
	int i, kind = recent_cost(account, driver, moment.time_ns);

	if (counted == UINT64_MAX)
		counted = less_u64(driver->device_bytes, others);
	else
		stray = less_u64(driver->device_bytes, others + counted);
	/* More than fits even beside the least that the process had lately: some of it was no cost. */
	if (kind != 0 && counted != 0 && driver->process_bytes != UINT64_MAX)
		drop_costs(account, less_u64(lowest + sum_of(account->costs), counted));
	*out = holding_then(account, replay, driver, counted, kind);
	known = out->pools + out->outside + out->kept + out->graphs;
	if (driver->process_bytes != UINT64_MAX)
		measure_stray(account, driver, stray, kind);
	/* One that is older than what is recorded does not tell what is new; the next one will. */
	if (driver->process_bytes != UINT64_MAX && !out->older) {
		measure_costs(account, known, counted,
			      less_u64(out->pools + out->outside + out->kept, lowest), kind);
		account->sampled_ns = moment.time_ns;
	}
	/* Managed memory, which the driver counts for no process, as far as it is there. */
	out->managed =
		min_u64(out->managed, less_u64(counted + stray, known + sum_of(account->costs) +
									account->context_stray));
	out->outside += out->managed;
	moment.parts[PART_POOLS] = out->pools;
	moment.parts[PART_OUTSIDE] = out->outside;
	moment.parts[PART_KEPT] = out->kept;
	context_stray = min_u64(account->context_stray, stray);
	stray = less_u64(stray, out->managed + context_stray);
	/* Nobody else is there whose it could be. */
	if (driver->others == 0 && driver->others_bytes != UINT64_MAX &&
	    account->costs[COST_CONTEXT] != 0)
		context_stray += min_u64(stray, less_u64(STRAY_MOST, context_stray));
	moment.parts[PART_OTHERS] = others + min_u64(stray, driver->others * STRAY_MOST);
	for (i = COST_CONTEXT; i < COSTS; i++)
		moment.parts[PART_CONTEXT + i - COST_CONTEXT] =
			account->costs[i] > driver->cost_bytes[i] ? account->costs[i]
								  : driver->cost_bytes[i];
	moment.parts[PART_CONTEXT] += context_stray;
	moment.parts[PART_GRAPH] += out->graphs;
	for (i = 0, known = 0; i < PARTS_OF_DEVICE; i++)
		known += moment.parts[i];
	if (known > moment.used_bytes)
		moment.used_bytes = known;
	moment.parts[PART_UNKNOWN] = moment.used_bytes - known;
	return moment;
}

/* Every second point goes: of two neighbours the one with more in use stays. */
static void thin_points(struct device_account *account)
{
	size_t i, kept = 0;

	for (i = 0; i < account->point_count; i += 2) {
		size_t k = i + 1 < account->point_count && account->points[i + 1].used_bytes >
								   account->points[i].used_bytes
				   ? i + 1
				   : i;

		account->points[kept++] = account->points[k];
	}
	account->point_count = kept;
	account->point_gap_ns *= 2;
}

static void put_point(struct device_account *account, const struct device_moment *moment)
{
	if (account->point_count == DEVICE_POINTS)
		thin_points(account);
	account->points[account->point_count++] = *moment;
}

/* Before `last` becomes this moment. Nothing is sampled while nothing changes: what a span ends with lasts until the next one. */
static void add_point(struct device_account *account, const struct device_moment *moment)
{
	struct device_moment *point =
		account->point_count == 0 ? NULL : &account->points[account->point_count - 1];

	if (point != NULL && moment->time_ns - point->time_ns < account->point_gap_ns) {
		account->ends_lower = moment->used_bytes < point->used_bytes;
		if (!account->ends_lower) {
			uint64_t time_ns = point->time_ns;

			*point = *moment;
			point->time_ns = time_ns;
		}
		return;
	}
	if (account->ends_lower)
		put_point(account, &account->last);
	account->ends_lower = false;
	put_point(account, moment);
}

static struct device_pool pool_now(const struct usage *usage)
{
	return (struct device_pool){.pool = usage->pool,
				    .reserved_bytes = usage_reserved(usage),
				    .live_bytes = usage->live_bytes,
				    .requested_bytes = usage_requested(usage),
				    .waiting_bytes = usage->waiting_bytes,
				    .private_bytes = usage->private_bytes};
}

static void keep_pools(struct device_view *view, uint32_t device, const struct replay *replay)
{
	size_t count, i;
	const struct usage *usages = replay_usages(replay, &count);

	view->pool_count = 0;
	for (i = 0; i < count && view->pool_count < DEVICE_POOLS; i++) {
		if (usages[i].device == device && !pool_is_driver(usages[i].pool) &&
		    usage_reserved(&usages[i]) > 0)
			view->pools[view->pool_count++] = pool_now(&usages[i]);
	}
}

/* Whether pools have handed out as much as when they were kept. Nothing changes for the driver while a program frees all and ends. */
static bool lives_as_much(const struct device_account *account, const struct replay *replay)
{
	uint64_t then = 0, now = 0;
	size_t count, i;
	const struct usage *usages = replay_usages(replay, &count);

	for (i = 0; i < account->fullest.pool_count; i++)
		then += account->fullest.pools[i].live_bytes;
	for (i = 0; i < count; i++) {
		if (usages[i].device == account->device && !pool_is_driver(usages[i].pool))
			now += usages[i].live_bytes;
	}
	return now >= then;
}

/* Of moments with as much in use, the one that is known best, in which most lives. */
static bool is_fuller(const struct device_account *account, const struct device_moment *moment,
		      const struct replay *replay)
{
	const struct device_moment *before = &account->fullest.moment;

	if (moment->used_bytes != before->used_bytes)
		return moment->used_bytes > before->used_bytes;
	if (moment->parts[PART_UNKNOWN] != before->parts[PART_UNKNOWN])
		return moment->parts[PART_UNKNOWN] < before->parts[PART_UNKNOWN];
	return lives_as_much(account, replay);
}

/* ---- a moment between two samples ---- */

static struct device_pool *pool_in(struct device_view *view, uint8_t pool)
{
	size_t i;

	for (i = 0; i < view->pool_count && view->pools[i].pool != pool; i++)
		;
	if (i == DEVICE_POOLS)
		return NULL;
	if (i == view->pool_count)
		view->pool_count++;
	return &view->pools[i];
}

/*
 * Gives a sample the pools of another moment, and what the driver had given by then, of which its own pools kept a part. What the
 * driver has for itself, other processes and what is unknown are as sampled.
 */
static void move_moment(struct device_view *view, uint64_t driver, uint64_t kept, uint64_t managed)
{
	uint64_t *parts = view->moment.parts, pools = 0;
	uint64_t before = parts[PART_POOLS] + parts[PART_OUTSIDE] + parts[PART_KEPT];
	size_t i;

	for (i = 0; i < view->pool_count; i++)
		pools += view->pools[i].reserved_bytes;
	if (driver != UINT64_MAX) {
		uint64_t outside = less_u64(driver + kept, pools);

		parts[PART_KEPT] = min_u64(kept, outside);
		parts[PART_OUTSIDE] = outside - parts[PART_KEPT] + managed;
	}
	parts[PART_POOLS] = pools;
	view->moment.used_bytes = less_u64(view->moment.used_bytes, before) + pools +
				  parts[PART_OUTSIDE] + parts[PART_KEPT];
}

/* Of the pools on a device the one that had most in use at a time, and the driver's memory where there is none. NULL: nothing is there. */
static const struct usage *largest_pool(const struct replay *replay, uint32_t device)
{
	const struct usage *largest = NULL;
	size_t count, i;
	const struct usage *usages = replay_usages(replay, &count);

	for (i = 0; i < count; i++) {
		const struct usage *usage = &usages[i];
		bool driver = pool_is_driver(usage->pool);

		if (usage->device != device || usage->peak_bytes == 0 ||
		    (driver && usage->pool != POOL_hal))
			continue;
		if (largest == NULL || (pool_is_driver(largest->pool) && !driver) ||
		    (pool_is_driver(largest->pool) == driver &&
		     usage->peak_bytes > largest->peak_bytes))
			largest = usage;
	}
	return largest;
}

/* The last sample, as it was when most of the pool was in use. */
static void view_of_peak(const struct device_account *account, const struct replay *replay,
			 const struct usage *usage, struct device_view *out)
{
	const struct usage_peak *then = &usage->at_peak;
	struct device_pool *pool = NULL;

	*out = (struct device_view){.when = DEVICE_POOL_PEAK,
				    .pool = usage->pool,
				    .moment = account->last,
				    .others = account->last_others};
	keep_pools(out, account->device, replay);
	if (!pool_is_driver(usage->pool))
		pool = pool_in(out, usage->pool);
	if (pool != NULL)
		*pool = (struct device_pool){.pool = usage->pool,
					     .reserved_bytes = then->reserved_bytes,
					     .live_bytes = usage->peak_bytes,
					     .requested_bytes = then->requested_bytes,
					     .waiting_bytes = then->waiting_bytes,
					     .private_bytes = then->private_bytes};
	move_moment(out, then->driver_bytes, then->kept_bytes, account->last_managed);
	out->moment.time_ns = usage->peak_time_ns;
}

/* Libraries of the fullest moment, where these have all of it. */
static bool copy_libraries(const struct device_account *account, struct device_view *view)
{
	const struct device_view *from = &account->fullest;

	if (view->moment.parts[PART_OUTSIDE] != from->split_bytes)
		return false;
	memcpy(view->libraries, from->libraries, sizeof(view->libraries));
	view->library_count = from->library_count;
	view->split_bytes = from->split_bytes;
	return true;
}

static bool is_new_peak(const struct device_account *account, const struct usage *usage)
{
	return usage != NULL &&
	       (usage->pool != account->pool_peak.pool || usage->peak_bytes != account->peak_bytes);
}

static void keep_pool_peak(struct device_account *account, const struct replay *replay)
{
	const struct usage *usage = largest_pool(replay, account->device);

	if (!is_new_peak(account, usage))
		return;
	view_of_peak(account, replay, usage, &account->pool_peak);
	account->peak_bytes = usage->peak_bytes;
	/* That walks over all blocks. */
	if (!copy_libraries(account, &account->pool_peak))
		find_libraries(&account->pool_peak, account->device, replay);
}

/* Other processes have what a sample before or after the refusal counts for them, as far as it was used then. */
static void name_others(struct device_view *view, uint64_t others_bytes, uint64_t others)
{
	uint64_t *parts = view->moment.parts;
	uint64_t rest = parts[PART_OTHERS] + parts[PART_UNKNOWN];

	if (min_u64(others_bytes, rest) <= parts[PART_OTHERS])
		return;
	parts[PART_OTHERS] = min_u64(others_bytes, rest);
	parts[PART_UNKNOWN] = rest - parts[PART_OTHERS];
	view->others = others;
}

static int on_sample(void *arg, struct replay *replay, const struct driver_usage *driver)
{
	struct devices_state *state = arg;
	struct device_account *account;
	struct device_moment moment;
	struct holding holding;

	if (driver->device >= DEVICE_HOST || driver->device_bytes == UINT64_MAX)
		return 0;
	account = account_at(state, driver->device);
	if (account == NULL)
		return -ENOMEM;
	moment = moment_of(account, replay, driver, &holding);
	if (!holding.any && (holding.hidden || sum_of(driver->cost_ns) == 0))
		return 0; /* a device that this process does not use */
	account->vendor = holding.vendor != VENDOR_UNKNOWN ? holding.vendor : VENDOR_CUDA;
	account->total_bytes = driver->total_bytes;
	add_point(account, &moment);
	account->last = moment;
	account->last_others = driver->others;
	account->last_managed = holding.managed;
	if (is_fuller(account, &moment, replay)) {
		account->fullest.moment = moment;
		account->fullest.others = driver->others;
		keep_pools(&account->fullest, account->device, replay);
		if (moment.parts[PART_OUTSIDE] != account->fullest.split_bytes)
			find_libraries(&account->fullest, account->device, replay);
	}
	keep_pool_peak(account, replay);
	if (account->refused_is_new)
		name_others(&account->refused, moment.parts[PART_OTHERS], driver->others);
	account->refused_is_new = false;
	return 0;
}

/* ---- when memory ran out ---- */

/* No pool has more than the driver gave: one that emptied its cache tells so only with its next block. */
static void clamp_pools(struct device_view *view, uint64_t driver)
{
	uint64_t over = 0;
	size_t i;

	for (i = 0; i < view->pool_count; i++)
		over += view->pools[i].reserved_bytes;
	over = driver == 0 || driver == UINT64_MAX ? 0 : less_u64(over, driver);
	for (i = 0; i < view->pool_count && over > 0; i++) {
		struct device_pool *pool = &view->pools[i];
		uint64_t cut = min_u64(over, less_u64(pool->reserved_bytes, pool->live_bytes));

		pool->reserved_bytes -= cut;
		over -= cut;
	}
}

/* The last sample, as it was when the request was refused. */
static void view_of_refusal(const struct device_account *account, const struct replay *replay,
			    const struct oom *oom, struct device_view *out)
{
	uint64_t *parts = out->moment.parts, known = 0, driver = UINT64_MAX;
	const struct usage *usages;
	size_t count, i;

	*out = (struct device_view){
		.when = DEVICE_REFUSED, .moment = account->last, .others = account->last_others};
	keep_pools(out, account->device, replay);
	usages = replay_usages(replay, &count);
	for (i = 0; i < count; i++) {
		if (usages[i].device == account->device && usages[i].pool == POOL_hal)
			driver = driver_pages_taken(&usages[i].pages);
	}
	for (i = 0; i < out->pool_count; i++) {
		if (out->pools[i].pool == oom->pool)
			out->pools[i].reserved_bytes = oom->after.reserved_bytes;
	}
	clamp_pools(out, driver);
	move_moment(out, driver, replay_driver_kept(replay, account->device),
		    account->last_managed);
	out->moment.time_ns = oom->time_ns;
	if (oom->after.total_bytes == UINT64_MAX || oom->after.total_bytes == 0 ||
	    oom->after.free_bytes == UINT64_MAX)
		return;
	/* The driver said what it had left. What nothing else explains is of other processes as far as the last sample knows of them. */
	out->moment.used_bytes = less_u64(oom->after.total_bytes, oom->after.free_bytes);
	for (i = 0; i < PARTS_OF_DEVICE; i++)
		known += i == PART_OTHERS || i == PART_UNKNOWN ? 0 : parts[i];
	if (known > out->moment.used_bytes)
		out->moment.used_bytes = known;
	parts[PART_OTHERS] = min_u64(parts[PART_OTHERS], out->moment.used_bytes - known);
	parts[PART_UNKNOWN] = out->moment.used_bytes - known - parts[PART_OTHERS];
}

static int on_row(void *arg, struct replay *replay, const struct row *row)
{
	const struct oom *oom = row->oom;
	struct device_account *account;

	if (oom == NULL || !oom->ended || oom->recovered || oom->context->device >= DEVICE_HOST)
		return 0;
	account = account_at(arg, oom->context->device);
	if (account == NULL)
		return -ENOMEM;
	if (account->refused.moment.time_ns != 0 &&
	    oom_repeats(oom, account->refused_bytes, (uint32_t)account->refused_stack,
			account->refused_last_ns)) {
		account->refused_last_ns = oom->last_ns;
		return 0;
	}
	account->refused_bytes = oom->requested_bytes;
	account->refused_stack = oom->stack;
	account->refused_last_ns = oom->last_ns;
	account->refused_is_new = true;
	view_of_refusal(account, replay, oom, &account->refused);
	if (!copy_libraries(account, &account->refused))
		find_libraries(&account->refused, account->device, replay);
	return 0;
}

void device_then(const struct device_account *account, const struct replay *replay,
		 struct device_view *out)
{
	const struct usage *usage = largest_pool(replay, account->device);

	if (account->refused.moment.time_ns != 0) {
		*out = account->refused;
	} else if (is_new_peak(account, usage)) {
		view_of_peak(account, replay, usage, out);
		(void)copy_libraries(account, out);
	} else {
		*out = account->peak_bytes != 0 ? account->pool_peak : account->fullest;
	}
}

/* ---- in a checkpoint ---- */

_Static_assert(sizeof(struct device_account) % 8 == 0, "an account is whole words");

/* Whether a view can be one; ends its texts. */
static bool is_view(struct device_view *view)
{
	size_t i;

	for (i = 0; i < DEVICE_LIBRARIES; i++)
		view->libraries[i].name[sizeof(view->libraries[i].name) - 1] = '\0';
	return view->pool_count <= DEVICE_POOLS && view->library_count <= DEVICE_LIBRARIES;
}

static int keep(void *arg, const struct replay *replay, struct words *words)
{
	struct devices_state *state = arg;
	size_t i;

	(void)replay;
	if (words_array(words, &state->all, &state->count, &state->room, sizeof(*state->all)) < 0)
		return -ENOMEM;
	for (i = 0; i < state->count; i++) {
		struct device_account *account = &state->all[i];

		words_memory(words, account, sizeof(*account));
		words->failed |= !is_view(&account->fullest) || !is_view(&account->pool_peak) ||
				 !is_view(&account->refused) || account->point_gap_ns == 0 ||
				 account->cost_last >= COSTS ||
				 account->point_count > DEVICE_POINTS;
	}
	if (words->failed)
		state->count = 0;
	return 0;
}

/* ---- results ---- */

const struct device_account *analyses_devices(const struct analyses *analyses, size_t *out_count)
{
	const struct devices_state *state =
		analyses->failed[ANALYSIS_ID_devices] ? NULL : analyses->state[ANALYSIS_ID_devices];

	*out_count = state == NULL ? 0 : state->count;
	return *out_count == 0 ? NULL : state->all;
}

static int by_number(const void *a, const void *b)
{
	const struct finding_device_memory *x = a, *y = b;

	return ORDER_UP(x->device, y->device);
}

static int find(const void *arg, struct replay *replay, struct findings *out)
{
	const struct devices_state *state = arg;
	size_t i;

	for (i = 0; i < state->count; i++)
		device_find(&state->all[i], replay, out);
	if (FINDINGS_COUNT(out, device_memory) > 1)
		qsort(FINDINGS(out, device_memory), FINDINGS_COUNT(out, device_memory),
		      sizeof(struct finding_device_memory), by_number);
	return out->failed ? -ENOMEM : 0;
}

static int text(void *arg, const struct analysis_view *view, struct strbuf *out)
{
	(void)arg;
	devices_text(view->found, view->lines == UINT32_MAX, out);
	return strbuf_failed(out) ? -ENOMEM : 0;
}

static int json(void *arg, const struct analysis_view *view, struct json *json)
{
	(void)arg;
	findings_json(view->found, FINDING_device_memory, "devices", SIZE_MAX, json);
	return 0;
}

static void fini(void *arg)
{
	struct devices_state *state = arg;

	free(state->all);
}

const struct analysis analysis_devices = {
	.name = "devices",
	.always = true,
	.state_bytes = sizeof(struct devices_state),
	.rows = 1u << ROW_SNAPSHOT,
	.row = on_row,
	.sample = on_sample,
	.version = 4,
	.keep = keep,
	.judge = find,
	.text = text,
	.json = json,
	.fini = fini,
};
