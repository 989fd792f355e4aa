/* SPDX-License-Identifier: Apache-2.0 */
/* Who has what of a device, in words and as JSON. */
#include "analysis/whole_device.h"

#include <errno.h>

#include "base/vendors.h"

/* Named in a sentence; JSON has all. */
#define SHOWN_LIBRARIES 5u

/* Lines over time in report.txt; JSON has all points. */
#define SHOWN_POINTS 30u

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

static void add_libraries(const struct device_view *view, const char **between, struct strbuf *out)
{
	uint64_t left = view->moment.parts[PART_OUTSIDE];
	size_t i;

	for (i = 0; i < view->library_count && i < SHOWN_LIBRARIES && left > 0; i++) {
		const struct device_library *library = &view->libraries[i];
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

/* "GPU 0 at the peak of PTA: " */
static void add_when(const struct device_account *account, const struct device_view *view,
		     struct strbuf *out)
{
	strbuf_addf(out, "%s %u ", account->vendor == VENDOR_CUDA ? "GPU" : "NPU", account->device);
	switch ((enum device_when)view->when) {
	case DEVICE_FULLEST:
		strbuf_add_str(out, "at its fullest: ");
		break;
	case DEVICE_POOL_PEAK:
		strbuf_addf(out, "at the peak of %s: ", pool_event_type((uint8_t)view->pool));
		break;
	case DEVICE_REFUSED:
		strbuf_add_str(out, "when memory ran out: ");
		break;
	}
}

void device_line(const struct device_account *account, const struct device_view *view,
		 struct strbuf *out)
{
	const char *between = "= ";
	size_t i;

	add_when(account, view, out);
	strbuf_add_size(out, view->moment.used_bytes);
	if (account->total_bytes != 0) {
		strbuf_add_str(out, " of ");
		strbuf_add_size(out, account->total_bytes);
	}
	strbuf_add_str(out, " used ");
	for (i = 0; i < view->pool_count; i++) {
		const struct device_pool *pool = &view->pools[i];

		add_part(out, &between, pool_event_type((uint8_t)pool->pool), pool->reserved_bytes);
		pool_split(pool, out);
	}
	add_libraries(view, &between, out);
	for (i = PART_KEPT; i < PART_UNKNOWN; i++)
		add_part(out, &between, part_names[i], view->moment.parts[i]);
	strbuf_addf(out, "%sunknown ", between);
	strbuf_add_size(out, view->moment.parts[PART_UNKNOWN]);
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

int devices_text(const struct device_account *accounts, size_t count,
		 const struct analysis_view *view, struct strbuf *out)
{
	size_t i;

	/* An NPU does not tell what a context takes: most of what it needs would be unknown. */
	for (i = 0; i < count; i++) {
		const struct device_account *account = &accounts[i];
		struct device_view then;

		if (account->fullest.moment.time_ns == 0 || account->vendor != VENDOR_CUDA)
			continue;
		device_then(account, view->replay, &then);
		device_line(account, &then, out);
		if (view->lines != UINT32_MAX)
			continue;
		if (then.when != DEVICE_FULLEST)
			device_line(account, &account->fullest, out);
		text_over_time(account, replay_totals(view->replay)->first_ns, out);
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

static void json_view(const struct device_view *view, const char *key, const struct run *run,
		      struct json *json)
{
	size_t i;

	json_object(json, key);
	if (view->when == DEVICE_POOL_PEAK)
		json_string(json, "pool", pool_event_type((uint8_t)view->pool));
	json_moment(&view->moment, run, json);
	json_u64(json, "other_processes", view->others);
	json_array(json, "pools");
	for (i = 0; i < view->pool_count; i++) {
		const struct device_pool *pool = &view->pools[i];

		json_object(json, NULL);
		json_string(json, "pool", pool_event_type((uint8_t)pool->pool));
		json_u64(json, "reserved_bytes", pool->reserved_bytes);
		json_u64(json, "live_bytes", pool->live_bytes);
		if (pool->requested_bytes != 0)
			json_u64(json, "requested_bytes", pool->requested_bytes);
		json_u64(json, "waiting_bytes", pool->waiting_bytes);
		json_u64(json, "private_pools_bytes", pool->private_bytes);
		json_end(json);
	}
	json_end(json);
	json_array(json, "outside");
	for (i = 0; i < view->library_count; i++) {
		json_object(json, NULL);
		json_string(json, "library", view->libraries[i].name);
		json_u64(json, "bytes", view->libraries[i].bytes);
		json_u64(json, "blocks", view->libraries[i].blocks);
		json_end(json);
	}
	json_end(json);
	json_end(json);
}

static void json_account(const struct device_account *account, const struct replay *replay,
			 struct json *json)
{
	const struct run *run = replay_run(replay);
	struct device_view then;
	char device[16];
	size_t i;

	device_text(account->device, device);
	json_object(json, NULL);
	json_string(json, "device", device);
	json_string(json, "vendor", vendor_row(account->vendor)->suffix);
	json_u64(json, "total_bytes", account->total_bytes);
	json_view(&account->fullest, "peak", run, json);
	device_then(account, replay, &then);
	if (then.when != DEVICE_FULLEST)
		json_view(&then, then.when == DEVICE_REFUSED ? "at_oom" : "at_pool_peak", run,
			  json);
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

void devices_json(const struct device_account *accounts, size_t count, const struct replay *replay,
		  struct json *json)
{
	size_t i;

	json_array(json, "devices");
	for (i = 0; i < count; i++) {
		if (accounts[i].fullest.moment.time_ns != 0)
			json_account(&accounts[i], replay, json);
	}
	json_end(json);
}
