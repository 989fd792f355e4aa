/* SPDX-License-Identifier: Apache-2.0 */
#include "analysis/forecast.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "base/whole.h"

/* A pool that reserves more than twice of what it needs will not go on like that. */
#define RATIO_MAX 2.0
/* How many segments the whole of a pool counts for, beside its growth. */
#define PRIOR 4.0
/* The range is at least this wide on either side, in hundredths of the step. */
#define MARGIN_PERCENT 6u
/* Growth of the later half, by that of the first half, that is still called steady. */
#define STEADY 0.75

/* A rate rises with the steps if the later half grows by so much faster than the first one, and its own later half than its first. */
#define GAINS	   1.5
#define GAINS_LATE 1.25

/* A rate is a mean of many numbers. */
#define ROUNDING 0.01

struct sums {
	uint64_t given, given_peak; /* by the driver; of pools where its calls were not recorded */
	uint64_t use, use_peak;
};

static uint64_t held(const struct usage *usage)
{
	int64_t bytes = (int64_t)usage->live_bytes + usage->outside_bytes;

	return bytes > 0 ? (uint64_t)bytes : 0;
}

static uint64_t larger(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

/* The driver gives whole pages, which blocks need not fill. */
static uint64_t lost_to_pages(const struct replay *replay, uint32_t device)
{
	size_t count, i;
	const struct usage *usages = replay_usages(replay, &count);
	uint64_t lost = 0;

	for (i = 0; i < count; i++) {
		if (usages[i].device == device && pool_is_driver(usages[i].pool))
			lost += less_u64(driver_pages_taken(&usages[i].pages),
					 usages[i].live_bytes);
	}
	return lost;
}

static bool is_pooled(const struct replay *replay, uint32_t device)
{
	size_t count, i;
	const struct usage *usages = replay_usages(replay, &count);

	for (i = 0; i < count; i++) {
		if (usages[i].device == device && !pool_is_driver(usages[i].pool))
			return true;
	}
	return false;
}

static struct sums sums_of(const struct replay *replay, uint32_t device)
{
	uint64_t driver = 0, driver_peak = 0, pools = 0, pools_peak = 0;
	uint64_t lost = lost_to_pages(replay, device);
	uint64_t reserved = 0, reserved_peak = 0;
	bool told = true; /* every pool says what it has reserved */
	size_t count, i;
	const struct usage *usages = replay_usages(replay, &count);

	for (i = 0; i < count; i++) {
		const struct usage *u = &usages[i];

		if (u->device != device)
			continue;
		if (pool_is_driver(u->pool)) {
			driver += held(u);
			driver_peak += u->peak_bytes;
			continue;
		}
		pools += held(u);
		pools_peak += u->peak_bytes;
		if (u->reserved_bytes == UINT64_MAX) {
			told = false;
			continue;
		}
		reserved += u->reserved_bytes;
		reserved_peak += u->reserved_bytes;
	}
	if (driver_peak == 0)
		return (struct sums){.given = told ? reserved : pools,
				     .given_peak = told ? reserved_peak : pools_peak,
				     .use = pools,
				     .use_peak = pools_peak};
	if (!told || reserved_peak == 0)
		return (struct sums){driver + lost, driver_peak + lost, driver, driver_peak};
	return (struct sums){.given = driver + lost,
			     .given_peak = driver_peak + lost,
			     .use = pools + less_u64(driver, reserved),
			     .use_peak = pools_peak + less_u64(driver_peak, reserved_peak)};
}

void device_level_fini(struct device_level *level)
{
	growth_fini(&level->growth);
}

void device_level_sample(struct device_level *level, const struct replay *replay,
			 const struct driver_usage *driver)
{
	uint64_t given;

	if (driver->device_bytes == UINT64_MAX)
		return;
	given = sums_of(replay, driver->device).given;
	level->beside[level->samples++ % FORECAST_SAMPLES] = less_u64(driver->device_bytes, given);
}

static void note_point(struct device_level *level, uint32_t step)
{
	uint32_t i;

	if (level->stride == 0)
		level->stride = 1;
	if (++level->skipped < level->stride)
		return;
	level->skipped = 0;
	if (level->point_count == FORECAST_POINTS) {
		level->stride *= 2;
		level->point_count /= 2;
		for (i = 0; i < level->point_count; i++)
			level->points[i] = level->points[2 * i];
	}
	level->points[level->point_count++] = (struct level_point){.step = step,
								   .level = level->growth.live,
								   .use = level->use_peak,
								   .given = level->given_peak};
}

int device_level_step(struct device_level *level, const struct replay *replay, uint32_t device,
		      uint32_t step)
{
	struct sums now = sums_of(replay, device);

	level->given_peak = larger(level->given_peak, now.given_peak);
	if (now.use_peak > level->use_peak) {
		level->use_peak = now.use_peak;
		level->peak_step = step;
		/* Peaks that are no record are not seen; the high ones are. */
		if (step > 2)
			level->swing = larger(level->swing, less_u64(now.use_peak, now.use));
	}
	level->growth.live = now.use;
	if (step >= 2)
		note_point(level, step);
	return growth_step(&level->growth, step);
}

void device_level_coarsen(struct device_level *level)
{
	uint32_t i;

	growth_coarsen(&level->growth);
	level->peak_step = (level->peak_step + 1) / 2;
	for (i = 0; i < level->point_count; i++)
		level->points[i].step = (level->points[i].step + 1) / 2;
}

void device_level_restart(struct device_level *level)
{
	growth_fini(&level->growth);
	level->peak_step = level->point_count = level->stride = level->skipped = 0;
}

/* The median: a sample and what was known of the process at that moment may lie a call apart. */
static uint64_t beside(const struct device_level *level)
{
	uint32_t count = level->samples < FORECAST_SAMPLES ? level->samples : FORECAST_SAMPLES;
	uint64_t sorted[FORECAST_SAMPLES];

	if (count == 0)
		return 0;
	memcpy(sorted, level->beside, count * sizeof(sorted[0]));
	qsort(sorted, count, sizeof(sorted[0]), order_u64);
	return sorted[count / 2];
}

/* What pools need of the driver, as far as it was seen. */
struct needs {
	double ratio;  /* given for each byte more in use */
	double fixed;  /* given, and not in use, whatever grows */
	double usable; /* of that, what growth can still use */
};

static double at_least(double value, double least)
{
	return value < least ? least : value;
}

static struct needs needs_of(const struct device_level *level, bool pooled)
{
	const struct level_point *p = level->points;
	double use = at_least((double)level->use_peak, 1), given = (double)level->given_peak;
	double more_use, more_given, prior, jump = 0, whole_ratio = at_least(given / use, 1);
	struct needs needs = {.ratio = 1};
	uint32_t i;

	if (level->point_count == 0)
		return needs;
	/* Pools grow by whole segments: until there are several, all of the pool says more than its growth. */
	for (i = 1; i < level->point_count; i++)
		jump = at_least(jump, (double)(p[i].given - p[i - 1].given));
	more_use = use - (double)p->use;
	more_given = given - (double)p->given;
	prior = pooled ? PRIOR * jump : 0;
	if (more_use + prior > 0)
		needs.ratio = (more_given + prior * whole_ratio) / (more_use + prior);
	needs.ratio = at_least(needs.ratio > RATIO_MAX ? RATIO_MAX : needs.ratio, 1);
	/* Without a pool it is known what the blocks to come need, whatever those before needed. */
	needs.fixed = given - needs.ratio * use;
	if (pooled)
		needs.fixed = at_least(needs.fixed, 0);
	/* Room that growth has passed by stays free, but for the rest of the newest segment. */
	needs.usable = at_least(more_given <= 0 || needs.fixed < jump ? needs.fixed : jump, 0);
	return needs;
}

/* The last point at or before a step. */
static const struct level_point *point_at(const struct device_level *level, uint32_t step)
{
	uint32_t i = level->point_count - 1;

	while (i > 0 && level->points[i].step > step)
		i--;
	return &level->points[i];
}

static double slope(const struct level_point *from, const struct level_point *to)
{
	return to->step <= from->step
		       ? 0
		       : (double)less_u64(to->use, from->use) / (to->step - from->step);
}

/*
 * How fast the peak of what is in use rises: over the later half of the steps, and, as an interval, over both halves of that. False: it
 * does not.
 */
static bool peak_rate(const struct device_level *level, uint32_t steps, struct device_forecast *out)
{
	const struct level_point *half, *later;
	struct level_point now = {.step = steps, .use = level->use_peak};
	double early, late;

	if (level->point_count < 4)
		return false;
	half = point_at(level, steps / 2);
	later = point_at(level, steps - steps / 4);
	early = slope(half, later);
	late = slope(later, &now);
	out->rate = slope(half, &now);
	out->rate_low = early < late ? early : late;
	out->rate_high = early < late ? late : early;
	out->even = out->rate;
	out->even_high = out->rate_high;
	if (early > GAINS * slope(level->points, half) && late > GAINS_LATE * early) {
		/* Both are those of the middle of their steps. */
		out->gain = 2 * (late - early) / (steps - half->step);
		out->rate = late + out->gain * (steps - later->step) / 2;
		out->rate_high = out->rate;
	}
	return out->rate_low > 0;
}

/* A cache that fills grows ever more slowly. */
static bool is_steady(const struct device_level *level, uint32_t steps)
{
	const struct level_point *first = level->points, *half;
	uint64_t early, late;

	if (level->point_count < 4)
		return false;
	half = point_at(level, first->step + (steps - first->step) / 2);
	early = less_u64(half->level, first->level);
	late = less_u64(level->growth.live, half->level);
	return half->step > first->step && steps > half->step &&
	       (double)late / (steps - half->step) >=
		       STEADY * (double)early / (half->step - first->step);
}

bool device_level_rises(const struct device_level *level, uint32_t steps)
{
	const struct level_point *first = level->points, *half;

	if (level->point_count < 4)
		return false;
	half = point_at(level, first->step + (steps - first->step) / 2);
	return level->growth.live > half->level && half->level > first->level &&
	       is_steady(level, steps);
}

/* `gain`: of the rate, with each step. */
static uint64_t steps_until(double room, double rate, double gain)
{
	if (room <= 0)
		return 0;
	return whole(
		(gain > 0 ? (sqrt(rate * rate + 2 * gain * room) - rate) / gain : room / rate) +
		ROUNDING);
}

/* How many steps fit, by what may be in use at most: if the pools go on as they did, at worst, and at best. */
static void count_steps(const struct device_level *level, uint32_t steps,
			const struct device_growth *growth, double level_rate,
			const struct replay *replay, struct device_forecast *out)
{
	uint64_t lost = lost_to_pages(replay, out->device);
	bool pooled = is_pooled(replay, out->device);
	struct needs needs = needs_of(level, pooled);
	double use = (double)level->use_peak, now = (double)level->growth.live;
	double given = (double)level->given_peak;
	double left = (double)less_u64(out->total_bytes, out->used_bytes);
	double most = (given + left - needs.fixed + needs.usable / 2) / needs.ratio;
	/* A peak of long ago need not come again. */
	bool old = steps - level->peak_step > steps / 4;
	double peak = at_least(now + (double)level->swing, old ? 0 : use);
	uint64_t copied, margin, even;

	out->steps = steps_until(most - peak, out->rate, out->gain);
	out->steps_low = steps_until(use + left / needs.ratio - at_least(peak, use), out->rate_high,
				     out->gain);
	/* Where the rate rises: it need not go on rising. */
	/* Nothing can use what pages lose. */
	out->steps_high = steps_until((given + left) * now / at_least(now + (double)lost, 1) -
					      (old ? now : peak),
				      out->gain > 0 ? out->rate : out->rate_low, 0);
	/* While a block is replaced by a larger one, both are there. */
	copied = steps_until(most - now - growth->copied_bytes, level_rate + growth->copied,
			     out->gain);
	if (growth->copied > 0 && copied < out->steps)
		out->steps = copied;
	even = steps_until(most - peak, out->even, 0);
	out->steps_even =
		steps_until(use + left / needs.ratio - at_least(peak, use), out->even_high, 0);
	if (growth->copied > 0 && copied < even)
		even = copied;
	margin = 1 + (steps + even) * MARGIN_PERCENT / 100;
	if (out->steps_even > less_u64(even, margin))
		out->steps_even = less_u64(even, margin);
	/* No growth is so even that the step could be known more exactly. */
	margin = 1 + (steps + out->steps) * MARGIN_PERCENT / 100;
	if (out->steps_low > less_u64(out->steps, margin))
		out->steps_low = less_u64(out->steps, margin);
	if (out->steps_high < out->steps + margin)
		out->steps_high = out->steps + margin;
}

bool device_level_forecast(const struct device_level *level, const struct replay *replay,
			   uint32_t device, uint32_t steps, const struct device_growth *growth,
			   struct device_forecast *out)
{
	const struct driver_usage *driver = replay_driver_usage(replay, device);
	struct growth_facts facts = {.steps = steps, .whole_pool = true};
	struct growth_judgement judged = {0};

	*out = (struct device_forecast){.device = device,
					.used_bytes = beside(level) + level->given_peak};
	if (driver == NULL || driver->total_bytes == 0 || steps < 2)
		return false;
	growth_judge(&level->growth, &facts, &judged);
	out->climbs = judged.verdict == GROWTH_LEAK;
	out->steady = is_steady(level, steps);
	if (!out->climbs) {
		out->rate = out->rate_low = out->rate_high = growth->leaking;
	} else if (!peak_rate(level, steps, out) || out->rate < judged.rate) {
		/* The highest of many uneven peaks rises late: then the level itself says more. */
		out->gain = 0;
		out->rate = judged.rate;
		out->rate_low = judged.rate_low;
		out->rate_high = judged.rate_high;
	}
	if (out->gain <= 0) {
		out->even = out->rate;
		out->even_high = out->rate_high;
	}
	if (out->rate <= 0)
		return false;
	if (out->rate_low < out->rate / 2)
		out->rate_low = out->rate / 2;
	out->total_bytes = driver->total_bytes;
	count_steps(level, steps, growth, out->climbs ? judged.rate : growth->leaking, replay, out);
	return true;
}

struct finding_forecast forecast_finding(const struct device_forecast *forecast,
					 const struct replay *replay, uint32_t step,
					 double step_seconds)
{
	struct finding_forecast finding = {
		.device = forecast->device,
		.total_bytes = forecast->total_bytes,
		.used_bytes = forecast->used_bytes,
		.bytes_per_step = forecast->rate,
		.step = step,
		.full_step = step + forecast->steps,
		.full_step_low = step + forecast->steps_low,
		.full_step_high = step + forecast->steps_high,
		.seconds = (double)forecast->steps * step_seconds,
	};
	size_t count, i;
	const struct usage *usages = replay_usages(replay, &count);

	for (i = 0; i < count; i++) {
		if (usages[i].device == forecast->device && usages[i].vendor != VENDOR_UNKNOWN)
			finding.vendor = usages[i].vendor;
	}
	return finding;
}
