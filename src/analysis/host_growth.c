/* SPDX-License-Identifier: Apache-2.0 */
#include "analysis/host_growth.h"

#include "base/compiler.h"

#define PARTS	     16u
#define QUARTER	     (PARTS / 4)
#define LEAST_SPANS  (PARTS * 4)
#define LEAST_NS     UINT64_C(8000000000)
#define LEAST_STEPS  12u
#define LEAST_BYTES  (8.0 * (1 << 20))
#define LEAST_SHARE  0.02
#define QUARTER_RISE 0.7
#define LATER_RISE   0.9

/* Two spans become one. */
static void widen(struct host_series *series)
{
	uint32_t i;

	for (i = 0; i < series->count; i += 2) {
		struct host_span *to = &series->spans[i / 2];
		struct host_span a = series->spans[i];
		struct host_span b = i + 1 < series->count ? series->spans[i + 1] : a;

		*to = (struct host_span){.low = a.low < b.low ? a.low : b.low,
					 .high = a.high > b.high ? a.high : b.high,
					 .steps = b.steps,
					 .held = b.held};
	}
	series->count = (series->count + 1) / 2;
	series->span_ns *= 2;
}

/* Spans up to that of `time_ns`; those in between have the last level. */
static struct host_span *span_at(struct host_series *series, uint64_t time_ns)
{
	uint64_t index;

	while ((index = (time_ns - series->start_ns) / series->span_ns) >= HOST_SPANS)
		widen(series);
	while (series->count <= index)
		series->spans[series->count++] = (struct host_span){.low = series->last_bytes,
								    .high = series->last_bytes,
								    .steps = series->steps,
								    .held = series->held};
	return &series->spans[series->count - 1];
}

void host_series_add(struct host_series *series, uint64_t time_ns, uint64_t bytes, uint64_t steps,
		     uint64_t held)
{
	struct host_span *span;

	if (series->count == 0) {
		series->start_ns = time_ns;
		series->span_ns = HOST_SPAN_NS;
		series->last_bytes = bytes;
	}
	if (time_ns < series->last_ns)
		time_ns = series->last_ns;
	/* Steps that were counted by an optimizer have never been once the program marks its own. */
	if (steps < series->steps) {
		uint32_t i;

		for (i = 0; i < series->count; i++)
			series->spans[i].steps = 0;
	}
	span = span_at(series, time_ns);
	series->steps = steps;
	series->held = held;
	series->last_bytes = bytes;
	series->last_ns = time_ns;
	span->low = bytes < span->low ? bytes : span->low;
	span->high = bytes > span->high ? bytes : span->high;
	span->steps = steps;
	span->held = held;
}

void host_series_cap(struct host_series *series, uint64_t from_ns, uint64_t bytes)
{
	uint64_t since = from_ns > series->start_ns ? from_ns - series->start_ns : 0;
	uint64_t i;

	if (series->count == 0)
		return;
	for (i = since / series->span_ns; i < series->count; i++) {
		struct host_span *span = &series->spans[i];

		span->low = span->low < bytes ? span->low : bytes;
		span->high = span->high < bytes ? span->high : bytes;
	}
	if (series->last_bytes > bytes)
		series->last_bytes = bytes;
}

uint64_t host_series_pace(const struct host_series *series)
{
	uint32_t first = series->count / 4, spans = series->count - 1 - first;
	uint64_t low;

	if (series->count < 2 || spans == 0)
		return 0;
	low = series->spans[first].low;
	if (series->last_bytes <= low)
		return 0;
	return (uint64_t)((double)(series->last_bytes - low) * 1e9 /
			  ((double)spans * (double)series->span_ns));
}

/* ---- the verdict ---- */

struct part {
	double low, high;
};

/* Levels of equal parts of the spans from `first` on. */
static void cut(const struct host_series *series, uint32_t first, uint32_t count,
		struct part parts[PARTS])
{
	uint32_t i, k;

	for (i = 0; i < PARTS; i++) {
		uint32_t from = first + (uint32_t)((uint64_t)count * i / PARTS);
		uint32_t to = first + (uint32_t)((uint64_t)count * (i + 1) / PARTS);

		parts[i] = (struct part){(double)series->spans[from].low,
					 (double)series->spans[from].high};
		for (k = from + 1; k < to; k++) {
			if ((double)series->spans[k].low < parts[i].low)
				parts[i].low = (double)series->spans[k].low;
			if ((double)series->spans[k].high > parts[i].high)
				parts[i].high = (double)series->spans[k].high;
		}
	}
}

/* Rises nearly everywhere, at about the same pace, and more than it swings. `share`: of the bytes that a verdict takes. */
static bool climbs(const struct part parts[PARTS], double share)
{
	double rise = parts[PARTS - 1].low - parts[0].low;
	double half = parts[PARTS / 2].low - parts[0].low;
	double later = parts[PARTS - 1].low - parts[PARTS / 2 - 1].low;
	uint32_t i, low_falls = 0, high_falls = 0;

	if (rise < share * LEAST_BYTES || rise < share * LEAST_SHARE * parts[PARTS - 1].low)
		return false;
	for (i = 1; i < PARTS; i++) {
		low_falls += parts[i].low <= parts[i - 1].low;
		high_falls += parts[i].high <= parts[i - 1].high;
		if (parts[i - 1].low - parts[i].low > rise / (PARTS - 1))
			return false;
	}
	for (i = 0; i < PARTS; i++) {
		if (parts[i].high - parts[i].low > rise)
			return false;
	}
	/* A quarter has as many rises as it has parts, but the first. */
	for (i = QUARTER; i < PARTS; i += QUARTER) {
		double quarter = parts[i + QUARTER - 1].low - parts[i - 1].low;

		if (quarter < QUARTER_RISE * rise * QUARTER / (PARTS - 1))
			return false;
	}
	return low_falls <= 1 && high_falls <= 1 && later >= LATER_RISE * half;
}

static bool judge(const struct host_series *series, uint64_t end_ns, uint64_t end_steps,
		  uint64_t end_held, double share, struct host_growth *out)
{
	struct host_series whole = *series;
	struct part parts[PARTS];
	uint32_t first, count;
	double seconds;

	if (series->count == 0)
		return false;
	if (end_ns > whole.last_ns)
		host_series_add(&whole, end_ns, whole.last_bytes,
				end_steps > whole.steps ? end_steps : whole.steps, end_held);
	/* The last span is not over. */
	first = whole.count / 4;
	count = whole.count - 1 - first;
	if (whole.count < 2 || count < share * LEAST_SPANS ||
	    (double)(count * whole.span_ns) < share * LEAST_NS)
		return false;
	cut(&whole, first, count, parts);
	*out = (struct host_growth){
		.from_ns = whole.start_ns + first * whole.span_ns,
		.to_ns = whole.start_ns + (uint64_t)(whole.count - 1) * whole.span_ns,
		.steps = whole.spans[whole.count - 1].steps - whole.spans[first].steps,
	};
	if ((whole.steps != 0 && (double)out->steps < share * LEAST_STEPS) || !climbs(parts, share))
		return false;
	/* From the first part to the last are as many parts less one. */
	out->bytes = (uint64_t)((parts[PARTS - 1].low - parts[0].low) * PARTS / (PARTS - 1));
	seconds = (double)(out->to_ns - out->from_ns) / 1e9;
	if (whole.spans[whole.count - 1].held > whole.spans[first].held)
		out->held_bytes = whole.spans[whole.count - 1].held - whole.spans[first].held;
	out->bytes_per_second = (double)out->bytes / seconds;
	if (out->steps > 0)
		out->bytes_per_step = (double)out->bytes / (double)out->steps;
	return true;
}

bool host_growth_judge(const struct host_series *series, uint64_t end_ns, uint64_t end_steps,
		       uint64_t end_held, struct host_growth *out)
{
	return judge(series, end_ns, end_steps, end_held, 1, out);
}

bool host_growth_may(const struct host_series *series, uint64_t end_ns, uint64_t end_steps)
{
	struct host_growth growth;

	return judge(series, end_ns, end_steps, 0, 0.5, &growth);
}
