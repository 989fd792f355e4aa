/* SPDX-License-Identifier: Apache-2.0 */
#include "analysis/whole_device.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/text.h"
#include "base/vendors.h"

/* How much later than what it shows a sample may come: the driver is asked, a pipe is read, the engine has other work. */
#define LATE_NS UINT64_C(300000000)

/* Named in a sentence; JSON has all. */
#define SHOWN_LIBRARIES 5u

/* Lines over time in report.txt; JSON has all points. */
#define SHOWN_POINTS 30u

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
	if (array_reserve(&state->all, &state->room, i + 1, sizeof(*state->all)) < 0)
		return NULL;
	state->all[i] = (struct device_account){.device = device, .point_gap_ns = GAP_FIRST_NS};
	state->count++;
	return &state->all[i];
}

/* ---- which library ---- */

static const char *base_name(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash == NULL ? path : slash + 1;
}

const char *device_library_name(const char *path)
{
	static const struct {
		const char *prefix, *name;
	} libraries[] = {
#define PASSING(prefix)
#define LIBRARY(prefix, name) {prefix, name},
#include "analysis/device_libraries.def"
#undef LIBRARY
#undef PASSING
	};
	size_t i;

	for (i = 0; i < MSCOPE_COUNT(libraries); i++) {
		if (text_starts_with(base_name(path), libraries[i].prefix))
			return libraries[i].name;
	}
	return NULL;
}

static bool is_passing(const char *path)
{
	static const char *const prefixes[] = {
#define PASSING(prefix) prefix,
#define LIBRARY(prefix, name)
#include "analysis/device_libraries.def"
#undef LIBRARY
#undef PASSING
	};
	size_t i;

	for (i = 0; i < MSCOPE_COUNT(prefixes); i++) {
		if (text_starts_with(base_name(path), prefixes[i]))
			return true;
	}
	return false;
}

/* Who asked for a block of the driver: the innermost module of its stack that is no runtime; "" if that is not known. */
static const char *library_of(const struct replay *replay, const struct block *block)
{
	uint32_t count, i;
	const struct frame *frames = replay_frames(replay, block->stack, &count);

	for (i = 0; i < count; i++) {
		const struct module *module = replay_module(replay, frames[i].module);
		const char *name;

		if (module == NULL || module->info.path == NULL || is_passing(module->info.path))
			continue;
		name = device_library_name(module->info.path);
		return name != NULL ? name : base_name(module->info.path);
	}
	return "";
}

static void add_library(struct device_account *account, const char *name, uint64_t bytes)
{
	struct device_library *library;
	size_t i;

	for (i = 0; i < account->library_count; i++) {
		if (strncmp(account->libraries[i].name, name,
			    sizeof(account->libraries[i].name) - 1) == 0)
			break;
	}
	if (i == DEVICE_LIBRARIES)
		i--;
	library = &account->libraries[i];
	if (i == account->library_count) {
		*library = (struct device_library){0};
		(void)snprintf(library->name, sizeof(library->name), "%s", name);
		account->library_count++;
	}
	library->bytes += bytes;
	library->blocks++;
}

static int most_first(const void *a, const void *b)
{
	const struct device_library *x = a, *y = b;

	if (x->bytes != y->bytes)
		return x->bytes > y->bytes ? -1 : 1;
	return strcmp(x->name, y->name);
}

/* Splits driver memory outside of pools by who asked for it. A page that blocks share is the first one's. */
static void find_libraries(struct device_account *account, const struct replay *replay)
{
	uint64_t left = account->peak.parts[PART_OUTSIDE];
	struct driver_pages pages = {0};
	const struct block *block;
	size_t cursor = 0, i;

	account->library_count = 0;
	account->split_bytes = left;
	if (left == 0)
		return;
	while ((block = replay_next_block(replay, &cursor)) != NULL) {
		const struct context *context = replay_context(replay, block->context);
		uint64_t before = driver_pages_taken(&pages);

		if (context->pool != POOL_hal || context->device != account->device ||
		    block->segment_of != 0)
			continue;
		driver_pages_add(&pages, context, block->address, block->size_bytes);
		add_library(account, library_of(replay, block),
			    CUDA_FLAGS_MEMORY(context->flags) == CUDA_MEMORY_MANAGED
				    ? block->size_bytes
				    : driver_pages_taken(&pages) - before);
	}
	driver_pages_fini(&pages);
	qsort(account->libraries, account->library_count, sizeof(account->libraries[0]),
	      most_first);
	/* Managed memory may be elsewhere. */
	for (i = 0; i < account->library_count; i++) {
		account->libraries[i].bytes = min_u64(account->libraries[i].bytes, left);
		left -= account->libraries[i].bytes;
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
	uint64_t others = others_of(driver), known, counted = driver->process_bytes, stray = 0;
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
	out->outside +=
		min_u64(out->managed, less_u64(counted + stray, known + sum_of(account->costs) +
									account->context_stray));
	moment.parts[PART_POOLS] = out->pools;
	moment.parts[PART_OUTSIDE] = out->outside;
	moment.parts[PART_KEPT] = out->kept;
	moment.parts[PART_OTHERS] = others;
	for (i = COST_CONTEXT; i < COSTS; i++)
		moment.parts[PART_CONTEXT + i - COST_CONTEXT] =
			account->costs[i] > driver->cost_bytes[i] ? account->costs[i]
								  : driver->cost_bytes[i];
	moment.parts[PART_CONTEXT] += min_u64(account->context_stray, stray);
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

/* What was asked for of all that lives; 0: not known of all. */
static uint64_t asked_for(const struct usage *usage)
{
	return usage->detailed_bytes == usage->live_bytes ? usage->requested_bytes : 0;
}

static void keep_pools(struct device_account *account, const struct replay *replay)
{
	size_t count, i;
	const struct usage *usages = replay_usages(replay, &count);

	account->pool_count = 0;
	for (i = 0; i < count && account->pool_count < DEVICE_POOLS; i++) {
		if (usages[i].device == account->device && !pool_is_driver(usages[i].pool) &&
		    usage_reserved(&usages[i]) > 0)
			account->pools[account->pool_count++] =
				(struct device_pool){.pool = usages[i].pool,
						     .reserved_bytes = usage_reserved(&usages[i]),
						     .live_bytes = usages[i].live_bytes,
						     .requested_bytes = asked_for(&usages[i]),
						     .waiting_bytes = usages[i].waiting_bytes,
						     .private_bytes = usages[i].private_bytes};
	}
}

/* Whether pools have handed out as much as when they were kept. Nothing changes for the driver while a program frees all and ends. */
static bool lives_as_much(const struct device_account *account, const struct replay *replay)
{
	uint64_t then = 0, now = 0;
	size_t count, i;
	const struct usage *usages = replay_usages(replay, &count);

	for (i = 0; i < account->pool_count; i++)
		then += account->pools[i].live_bytes;
	for (i = 0; i < count; i++) {
		if (usages[i].device == account->device && !pool_is_driver(usages[i].pool))
			now += usages[i].live_bytes;
	}
	return now >= then;
}

static int on_sample(void *arg, struct replay *replay, const struct driver_usage *driver)
{
	struct devices_state *state = arg;
	struct device_account *account;
	struct device_moment moment;
	struct holding holding;
	uint64_t before;

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
	before = account->peak.used_bytes;
	/* Of moments with as much in use, the one that is known best, in which most lives. */
	if (moment.used_bytes < before ||
	    (moment.used_bytes == before &&
	     (moment.parts[PART_UNKNOWN] > account->peak.parts[PART_UNKNOWN] ||
	      (moment.parts[PART_UNKNOWN] == account->peak.parts[PART_UNKNOWN] &&
	       !lives_as_much(account, replay)))))
		return 0;
	account->peak = moment;
	account->others = driver->others;
	keep_pools(account, replay);
	/* That walks over all blocks. */
	if (moment.parts[PART_OUTSIDE] != account->split_bytes)
		find_libraries(account, replay);
	return 0;
}

/* ---- in a checkpoint ---- */

_Static_assert(sizeof(struct device_account) % 8 == 0, "an account is whole words");

static void save(void *arg, struct strbuf *out)
{
	const struct devices_state *state = arg;

	words_add(out, state->count);
	if (state->count > 0)
		strbuf_add(out, state->all, state->count * sizeof(*state->all));
}

static int load(void *arg, const struct replay *replay, struct words *words)
{
	struct devices_state *state = arg;
	size_t count = words_count(words), i, k;

	(void)replay;
	state->count = 0;
	if (array_reserve(&state->all, &state->room, count + 1, sizeof(*state->all)) < 0)
		return -ENOMEM;
	for (i = 0; i < count && !words->failed; i++) {
		struct device_account *account = &state->all[i];
		uint64_t word;

		for (k = 0; k < sizeof(*account) / 8; k++) {
			word = words_next(words);
			memcpy((char *)account + k * 8, &word, sizeof(word));
		}
		for (k = 0; k < DEVICE_LIBRARIES; k++)
			account->libraries[k].name[sizeof(account->libraries[k].name) - 1] = '\0';
		if (account->pool_count > DEVICE_POOLS || account->point_gap_ns == 0 ||
		    account->library_count > DEVICE_LIBRARIES || account->cost_last >= COSTS ||
		    account->point_count > DEVICE_POINTS)
			words->failed = true;
	}
	state->count = words->failed ? 0 : count;
	return 0;
}

/* ---- results ---- */

static int by_number(const void *a, const void *b)
{
	const struct device_account *x = a, *y = b;

	return (x->device > y->device) - (x->device < y->device);
}

const struct device_account *analyses_devices(const struct analyses *analyses, size_t *out_count)
{
	struct devices_state *state =
		analyses->failed[ANALYSIS_ID_devices] ? NULL : analyses->state[ANALYSIS_ID_devices];

	*out_count = state == NULL ? 0 : state->count;
	if (*out_count == 0)
		return NULL;
	qsort(state->all, state->count, sizeof(*state->all), by_number);
	return state->all;
}

static const char *const part_names[PARTS_OF_DEVICE] = {
	[PART_POOLS] = "pools",
	[PART_OUTSIDE] = "driver memory outside of pools",
	[PART_KEPT] = "kept by the driver's pools",
	[PART_CONTEXT] = "context",
	[PART_CODE] = "code of kernels",
	[PART_GRAPH] = "graphs",
	[PART_OTHERS] = "other processes",
	[PART_UNKNOWN] = "unknown",
};

static const char *const part_keys[PARTS_OF_DEVICE] = {
	[PART_POOLS] = "pools_bytes",
	[PART_OUTSIDE] = "outside_bytes",
	[PART_KEPT] = "kept_bytes",
	[PART_CONTEXT] = "context_bytes",
	[PART_CODE] = "code_bytes",
	[PART_GRAPH] = "graphs_bytes",
	[PART_OTHERS] = "other_processes_bytes",
	[PART_UNKNOWN] = "unknown_bytes",
};

static void add_part(struct strbuf *out, const char **between, const char *name, uint64_t bytes)
{
	if (bytes == 0)
		return;
	strbuf_addf(out, "%s%s ", *between, name);
	strbuf_add_size(out, bytes);
	*between = " + ";
}

static void add_libraries(const struct device_account *account, const char **between,
			  struct strbuf *out)
{
	uint64_t left = account->peak.parts[PART_OUTSIDE];
	size_t i;

	for (i = 0; i < account->library_count && i < SHOWN_LIBRARIES && left > 0; i++) {
		const struct device_library *library = &account->libraries[i];
		uint64_t bytes = library->bytes < left ? library->bytes : left;

		if (library->name[0] == '\0')
			continue;
		add_part(out, between, library->name, bytes);
		left -= bytes;
	}
	add_part(out, between, part_names[PART_OUTSIDE], left);
}

static void add_share(struct strbuf *out, const char **between, uint64_t bytes, const char *what)
{
	if (bytes == 0)
		return;
	strbuf_add_str(out, *between);
	strbuf_add_size(out, bytes);
	strbuf_add_str(out, what);
	*between = ", ";
}

/* What of a pool is in use, and why the rest is not; private pools have a share of both. */
static void pool_split(const struct device_pool *pool, struct strbuf *out)
{
	uint64_t held = pool->live_bytes + pool->waiting_bytes;
	const char *between = " (";

	if (pool->requested_bytes != 0 && pool->live_bytes > 0) {
		add_share(out, &between, pool->live_bytes, " in use");
		add_share(out, &between, pool->requested_bytes, " of it asked for");
	}
	add_share(out, &between, pool->waiting_bytes, " waiting for streams");
	add_share(out, &between, pool->reserved_bytes > held ? pool->reserved_bytes - held : 0,
		  " unused");
	if (pool->private_bytes != 0) {
		strbuf_add_str(out, between[0] == ',' ? "; " : between);
		strbuf_add_str(out, "CUDA graphs and private pools ");
		strbuf_add_size(out, pool->private_bytes);
		between = ", ";
	}
	if (between[0] == ',')
		strbuf_add_char(out, ')');
}

void device_line(const struct device_account *account, struct strbuf *out)
{
	const struct device_moment *peak = &account->peak;
	const char *between = "= ";
	size_t i;

	strbuf_addf(out, "%s %u at its fullest: ", account->vendor == VENDOR_CUDA ? "GPU" : "NPU",
		    account->device);
	strbuf_add_size(out, peak->used_bytes);
	if (account->total_bytes != 0) {
		strbuf_add_str(out, " of ");
		strbuf_add_size(out, account->total_bytes);
	}
	strbuf_add_str(out, " used ");
	for (i = 0; i < account->pool_count; i++) {
		const struct device_pool *pool = &account->pools[i];

		add_part(out, &between, pool_event_type((uint8_t)pool->pool), pool->reserved_bytes);
		pool_split(pool, out);
	}
	add_libraries(account, &between, out);
	for (i = PART_KEPT; i < PART_UNKNOWN; i++)
		add_part(out, &between, part_names[i], peak->parts[i]);
	strbuf_addf(out, "%sunknown ", between);
	strbuf_add_size(out, peak->parts[PART_UNKNOWN]);
	strbuf_add_char(out, '\n');
}

static void moment_row(const struct device_moment *moment, uint64_t first_ns, struct strbuf *out)
{
	int i;

	strbuf_addf(out, "  %10.3f  %10.1f", (double)less_u64(moment->time_ns, first_ns) / 1e9,
		    (double)moment->used_bytes / (1 << 20));
	for (i = 0; i < PARTS_OF_DEVICE; i++)
		strbuf_addf(out, "  %10.1f", (double)moment->parts[i] / (1 << 20));
	strbuf_add_char(out, '\n');
}

/* Of each span the fullest moment. */
static void text_over_time(const struct device_account *account, uint64_t first_ns,
			   struct strbuf *out)
{
	size_t span = (account->point_count + SHOWN_POINTS - 1) / SHOWN_POINTS, i, k;

	strbuf_addf(out,
		    "GPU %u over time, in MiB:\n  %10s  %10s  %10s  %10s  %10s  %10s  %10s  %10s  "
		    "%10s  %10s\n",
		    account->device, "seconds", "used", "pools", "outside", "kept", "context",
		    "code", "graphs", "others", "unknown");
	for (i = 0; i < account->point_count; i += span) {
		size_t fullest = i;

		for (k = i; k < i + span && k < account->point_count; k++) {
			if (account->points[k].used_bytes > account->points[fullest].used_bytes)
				fullest = k;
		}
		moment_row(&account->points[fullest], first_ns, out);
	}
	if (account->ends_lower)
		moment_row(&account->last, first_ns, out);
}

static int text(void *arg, const struct analysis_view *view, struct strbuf *out)
{
	struct devices_state *state = arg;
	size_t i;

	if (state->count > 1)
		qsort(state->all, state->count, sizeof(*state->all), by_number);
	/* Of an NPU nobody tells what a context takes: most of what it needs would be unknown. */
	for (i = 0; i < state->count; i++) {
		if (state->all[i].peak.time_ns == 0 || state->all[i].vendor != VENDOR_CUDA)
			continue;
		device_line(&state->all[i], out);
		if (view->lines == UINT32_MAX)
			text_over_time(&state->all[i], replay_totals(view->replay)->first_ns, out);
	}
	return strbuf_failed(out) ? -ENOMEM : 0;
}

static void json_moment(const struct device_moment *moment, const struct run *run,
			struct json *json)
{
	int i;

	json_u64(json, "time_ns", run_wall_ns(run, moment->time_ns));
	json_u64(json, "used_bytes", moment->used_bytes);
	for (i = 0; i < PARTS_OF_DEVICE; i++)
		json_u64(json, part_keys[i], moment->parts[i]);
}

static void json_account(const struct device_account *account, const struct run *run,
			 struct json *json)
{
	char device[16];
	size_t i;

	device_text(account->device, device);
	json_object(json, NULL);
	json_string(json, "device", device);
	json_string(json, "vendor", vendor_row(account->vendor)->suffix);
	json_u64(json, "total_bytes", account->total_bytes);
	json_object(json, "peak");
	json_moment(&account->peak, run, json);
	json_u64(json, "other_processes", account->others);
	json_array(json, "pools");
	for (i = 0; i < account->pool_count; i++) {
		json_object(json, NULL);
		json_string(json, "pool", pool_event_type((uint8_t)account->pools[i].pool));
		json_u64(json, "reserved_bytes", account->pools[i].reserved_bytes);
		json_u64(json, "live_bytes", account->pools[i].live_bytes);
		if (account->pools[i].requested_bytes != 0)
			json_u64(json, "requested_bytes", account->pools[i].requested_bytes);
		json_u64(json, "waiting_bytes", account->pools[i].waiting_bytes);
		json_u64(json, "private_pools_bytes", account->pools[i].private_bytes);
		json_end(json);
	}
	json_end(json);
	json_array(json, "outside");
	for (i = 0; i < account->library_count; i++) {
		json_object(json, NULL);
		json_string(json, "library", account->libraries[i].name);
		json_u64(json, "bytes", account->libraries[i].bytes);
		json_u64(json, "blocks", account->libraries[i].blocks);
		json_end(json);
	}
	json_end(json);
	json_end(json);
	json_object(json, "last");
	json_moment(&account->last, run, json);
	json_end(json);
	json_array(json, "over_time");
	for (i = 0; i < account->point_count; i++) {
		json_object(json, NULL);
		json_moment(&account->points[i], run, json);
		json_end(json);
	}
	if (account->ends_lower) {
		json_object(json, NULL);
		json_moment(&account->last, run, json);
		json_end(json);
	}
	json_end(json);
	json_end(json);
}

static int json(void *arg, const struct analysis_view *view, struct json *json)
{
	struct devices_state *state = arg;
	size_t i;

	if (state->count > 1)
		qsort(state->all, state->count, sizeof(*state->all), by_number);
	json_array(json, "devices");
	for (i = 0; i < state->count; i++) {
		if (state->all[i].peak.time_ns != 0)
			json_account(&state->all[i], replay_run(view->replay), json);
	}
	json_end(json);
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
	.sample = on_sample,
	.version = 3,
	.save = save,
	.load = load,
	.text = text,
	.json = json,
	.fini = fini,
};
