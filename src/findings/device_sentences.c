/* SPDX-License-Identifier: Apache-2.0 */
/* Who has what of a device, and what of a pool comes and goes within steps, in words. */
#include <stdio.h>
#include <string.h>

#include "base/vendors.h"
#include "findings/findings.h"
#include "findings/say.h"

/* Named in a sentence; JSON has all. */
#define SHOWN_LIBRARIES 5u
#define BRIEF_LIBRARIES 3u

/* Lines over time in report.txt; JSON has all points. */
#define SHOWN_POINTS 30u

#define MIB (1024.0 * 1024.0)

/* ---- a device at one moment ---- */

static const char *const part_names[PARTS_OF_DEVICE] = {
	[PART_OUTSIDE] = "driver memory outside of pools",
	[PART_KEPT] = "kept by the driver's pools",
	[PART_CONTEXT] = "context",
	[PART_CODE] = "code of kernels",
	[PART_GRAPH] = "graphs",
	[PART_OTHERS] = "other processes",
	[PART_UNKNOWN] = "unknown",
};

#define PART(id, field) [PART_##id] = of->field,

static void add_part(struct strbuf *out, const char **between, const char *name, uint64_t bytes)
{
	if (bytes == 0)
		return;
	strbuf_addf(out, "%s%s ", *between, name);
	strbuf_add_size(out, bytes);
	*between = " + ";
}

/* Driver memory outside of pools by library. */
static void add_libraries(const struct findings *found, const struct finding_device_moment *moment,
			  const char **between, struct strbuf *out)
{
	const struct finding_device_library *libraries =
		FINDINGS(found, device_library) + moment->outside.first;
	uint64_t left = moment->outside_bytes;
	size_t i;

	for (i = 0; i < moment->outside.count && i < SHOWN_LIBRARIES && left > 0; i++) {
		uint64_t bytes = min_u64(libraries[i].bytes, left);

		if (libraries[i].library[0] == '\0')
			continue;
		add_part(out, between, libraries[i].library, bytes);
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
static void pool_split(const struct finding_device_pool *pool, struct strbuf *out)
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
	if (pool->private_pools_bytes != 0) {
		strbuf_add_str(out, between[0] == ',' ? "; " : between);
		strbuf_add_str(out, "CUDA graphs and private pools ");
		strbuf_add_size(out, pool->private_pools_bytes);
		between = ", ";
	}
	if (between[0] == ',')
		strbuf_add_char(out, ')');
}

/* "GPU 0 at the peak of PTA: " */
static void add_when(const struct finding_device_memory *device,
		     const struct finding_device_moment *moment, struct strbuf *out)
{
	strbuf_addf(out, "%s %u ", device->platform == VENDOR_CUDA ? "GPU" : "NPU", device->device);
	switch (moment->when) {
	case DEVICE_FULLEST:
		strbuf_add_str(out, "at its fullest: ");
		break;
	case DEVICE_POOL_PEAK:
		strbuf_addf(out, "at the peak of %s: ", pool_event_type(moment->pool));
		break;
	case DEVICE_REFUSED:
		strbuf_add_str(out, "when memory ran out: ");
		break;
	}
}

static void device_line(const struct findings *found, const struct finding_device_memory *device,
			const struct finding_device_moment *of, struct strbuf *out)
{
	const uint64_t parts[PARTS_OF_DEVICE] = {DEVICE_PARTS};
	const char *between = "= ";
	size_t i;

	add_when(device, of, out);
	strbuf_add_size(out, of->used_bytes);
	if (device->total_bytes != 0) {
		strbuf_add_str(out, " of ");
		strbuf_add_size(out, device->total_bytes);
	}
	strbuf_add_str(out, " used ");
	for (i = 0; i < of->pools.count; i++) {
		const struct finding_device_pool *pool =
			&FINDINGS(found, device_pool)[of->pools.first + i];

		add_part(out, &between, pool_event_type(pool->pool), pool->reserved_bytes);
		pool_split(pool, out);
	}
	add_libraries(found, of, &between, out);
	for (i = PART_KEPT; i < PART_UNKNOWN; i++)
		add_part(out, &between, part_names[i], parts[i]);
	strbuf_addf(out, "%sunknown ", between);
	strbuf_add_size(out, of->unknown_bytes);
	strbuf_add_char(out, '\n');
}

/* ---- over time ---- */

static void point_row(const struct finding_device_point *of, struct strbuf *out)
{
	const uint64_t parts[PARTS_OF_DEVICE] = {DEVICE_PARTS};
	int i;

	strbuf_addf(out, "  %10.3f  %10.1f", (double)of->after_ns / 1e9,
		    (double)of->used_bytes / MIB);
	for (i = 0; i < PARTS_OF_DEVICE; i++)
		strbuf_addf(out, "  %10.1f", (double)parts[i] / MIB);
	strbuf_add_char(out, '\n');
}

/* Of each span the fullest moment; the last sample, if it is one of the list, is a row of its own. */
static void text_over_time(const struct findings *found, const struct finding_device_memory *device,
			   struct strbuf *out)
{
	const struct finding_device_point *points =
		FINDINGS(found, device_point) + device->over_time.first;
	size_t count = device->over_time.count - device->ends_lower;
	size_t span = (count + SHOWN_POINTS - 1) / SHOWN_POINTS, i, k;

	strbuf_addf(out,
		    "GPU %u over time, in MiB:\n  %10s  %10s  %10s  %10s  %10s  %10s  %10s  %10s  "
		    "%10s  %10s\n",
		    device->device, "seconds", "used", "pools", "outside", "kept", "context",
		    "code", "graphs", "others", "unknown");
	for (i = 0; i < count; i += span) {
		size_t fullest = i;

		for (k = i; k < i + span && k < count; k++) {
			if (points[k].used_bytes > points[fullest].used_bytes)
				fullest = k;
		}
		point_row(&points[fullest], out);
	}
	if (device->ends_lower)
		point_row(&points[count], out);
}

/* The moment that people ask about: when memory ran out, else when most of the largest pool was in use, else the fullest sample. */
static const struct finding_device_moment *device_asked(const struct findings *found,
							const struct finding_device_memory *device)
{
	const struct finding_range *range = device->at_oom.count > 0	     ? &device->at_oom
					    : device->at_pool_peak.count > 0 ? &device->at_pool_peak
									     : &device->peak;

	return &FINDINGS(found, device_moment)[range->first];
}

void devices_text(const struct findings *found, bool all, struct strbuf *out)
{
	FINDINGS_EACH (found, device_memory, device) {
		const struct finding_device_moment *asked = device_asked(found, device);

		/* An NPU does not tell what a context takes: most of what it needs would be unknown. */
		if (device->platform != VENDOR_CUDA)
			continue;
		device_line(found, device, asked, out);
		if (!all)
			continue;
		if (asked->when != DEVICE_FULLEST)
			device_line(found, device,
				    &FINDINGS(found, device_moment)[device->peak.first], out);
		text_over_time(found, device, out);
	}
}

/* ---- on a screen ---- */

void device_brief(const struct findings *found, const struct finding_device_memory *device,
		  struct strbuf *out)
{
	const struct finding_device_moment *of = device_asked(found, device);
	const struct finding_device_pool *pools = FINDINGS(found, device_pool) + of->pools.first;
	const struct finding_device_library *libraries =
		FINDINGS(found, device_library) + of->outside.first;
	const uint64_t parts[PARTS_OF_DEVICE] = {DEVICE_PARTS};
	static const char *const names[PARTS_OF_DEVICE] = {
		[PART_OUTSIDE] = "other driver memory",
		[PART_KEPT] = "kept by the driver's pools",
		[PART_CONTEXT] = "context",
		[PART_CODE] = "kernels",
		[PART_GRAPH] = "graphs",
		[PART_OTHERS] = "other processes",
		[PART_UNKNOWN] = "unknown",
	};
	uint64_t left = of->outside_bytes;
	struct say_sum sum = {.out = out};
	size_t i;

	say_device(out, device->platform, device->device);
	strbuf_add_str(out, of->when == DEVICE_FULLEST ? " at its fullest: " : " then: ");
	if (device->total_bytes != 0)
		say_part(out, of->used_bytes, device->total_bytes);
	else
		strbuf_add_size(out, of->used_bytes);
	strbuf_add_str(out, " = ");
	for (i = 0; i < of->pools.count; i++)
		say_sum_add(&sum, say_pool(device->platform, pools[i].pool),
			    pools[i].reserved_bytes);
	for (i = 0; i < of->outside.count && i < BRIEF_LIBRARIES; i++) {
		uint64_t bytes = min_u64(libraries[i].bytes, left);

		if (libraries[i].library[0] == '\0')
			continue;
		say_sum_add(&sum, libraries[i].library, bytes);
		left -= bytes;
	}
	say_sum_add(&sum, names[PART_OUTSIDE], left);
	for (i = PART_KEPT; i < PARTS_OF_DEVICE; i++)
		say_sum_add(&sum, names[i], parts[i]);
	say_sum_end(&sum);
	strbuf_add_char(out, '\n');
}

/* ---- within steps ---- */

static double percent(const struct finding_step_share *share)
{
	return 100.0 * (double)share->min_bytes / (double)share->max_bytes;
}

static void share_row(const char *name, const struct finding_step_share *share, struct strbuf *out)
{
	strbuf_addf(out, "%s\t%-25.4f%-25.4f%llu\n", name, percent(share),
		    (double)share->min_bytes / MIB, (unsigned long long)share->step);
}

void fluctuations_text(const struct findings *found, struct strbuf *out)
{
	char device[16], low[16], high[16];

	FINDINGS_EACH (found, fluctuation, of) {
		const struct finding_step_share *least =
			&FINDINGS(found, step_share)[of->least.first];
		const struct finding_step_share *most =
			&FINDINGS(found, step_share)[of->most.first];

		device_text(of->device, device);
		strbuf_addf(out, "======= %s Gap Analysis of Device %s =======\n",
			    pool_long_name(of->event_type), device);
		strbuf_addf(out, "\t%-25s%-25s%s\n", "MinAlloc/MaxAlloc(%)", "MinAllocMem(MB)",
			    "StepId");
		share_row("MinGap", least, out);
		share_row("MaxGap", most, out);
		(void)snprintf(low, sizeof(low), "%.0f", percent(least));
		(void)snprintf(high, sizeof(high), "%.0f", percent(most));
		strbuf_add_str(out, low);
		if (strcmp(low, high) != 0)
			strbuf_addf(out, " to %s", high);
		strbuf_add_str(out,
			       " % of each step's peak stays allocated throughout the step.\n");
	}
}
