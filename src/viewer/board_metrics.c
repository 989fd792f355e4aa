/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Figures of launches for Prometheus. One table of what a process has and one of what a pool has: name, type and help of a metric stand
 * beside the function that gives its value.
 */
#include <inttypes.h>
#include <stdio.h>

#include "base/shown.h"
#include "viewer/board.h"

/* False: it is unknown now, and the sample is left out. */
typedef bool process_value(const struct gauge *gauge, double *out);
typedef bool pool_value(const struct gauge *gauge, const struct usage *usage, size_t index,
			double *out);

static bool events(const struct gauge *gauge, double *out)
{
	*out = (double)replay_totals(gauge->pass.replay)->events;
	return true;
}

static bool lost(const struct gauge *gauge, double *out)
{
	*out = (double)gauge_lost(gauge);
	return true;
}

static bool steps(const struct gauge *gauge, double *out)
{
	*out = gauge->step;
	return true;
}

static bool refused(const struct gauge *gauge, double *out)
{
	*out = (double)gauge_refused(gauge);
	return true;
}

static bool leaks(const struct gauge *gauge, double *out)
{
	*out = gauge->latest == NULL ? 0 : (double)gauge->latest->leaks;
	return gauge->latest != NULL && gauge->latest->judged;
}

static bool suspects(const struct gauge *gauge, double *out)
{
	*out = gauge->latest == NULL ? 0 : (double)gauge->latest->suspects;
	return gauge->latest != NULL && gauge->latest->judged;
}

static bool resident(const struct gauge *gauge, double *out)
{
	*out = (double)gauge_resident(gauge);
	return *out > 0;
}

static bool recording(const struct gauge *gauge, double *out)
{
	*out = gauge->state == GAUGE_RUNS;
	return true;
}

static bool dry(const struct gauge *gauge, double *out)
{
	*out = 1;
	return run_dry(replay_run(gauge->pass.replay)) != NULL;
}

static const struct {
	const char *name, *type, *help;
	process_value *value;
} of_process[] = {
	{"dry_run", "gauge", "1 if no device is used: the process is a dry run.", dry},
	{"recording", "gauge", "1 while the process is recorded and read, else 0.", recording},
	{"events_total", "counter", "Events that were recorded.", events},
	{"lost_events_total", "counter", "Events that could not be recorded.", lost},
	{"steps_total", "counter", "Steps that have started.", steps},
	{"refused_requests_total", "counter", "Requests for memory that were refused.", refused},
	{"resident_bytes", "gauge", "Bytes of the host that the process has resident (RSS).",
	 resident},
	{"leak_places", "gauge", "Call sites that leak.", leaks},
	{"suspect_places", "gauge", "Call sites that may leak.", suspects},
};

static bool used(const struct gauge *gauge, const struct usage *usage, size_t index, double *out)
{
	(void)gauge, (void)index;
	*out = (double)gauge_used(usage);
	return true;
}

static bool peak(const struct gauge *gauge, const struct usage *usage, size_t index, double *out)
{
	(void)gauge, (void)index;
	*out = (double)gauge_peak(usage);
	return true;
}

static bool reserved(const struct gauge *gauge, const struct usage *usage, size_t index,
		     double *out)
{
	(void)gauge, (void)index;
	*out = (double)usage->reserved_bytes;
	return usage->reserved_bytes != UINT64_MAX;
}

static bool blocks(const struct gauge *gauge, const struct usage *usage, size_t index, double *out)
{
	(void)gauge, (void)index;
	*out = (double)usage->live_blocks;
	return true;
}

static bool allocations(const struct gauge *gauge, const struct usage *usage, size_t index,
			double *out)
{
	(void)gauge, (void)index;
	*out = (double)usage->allocations;
	return true;
}

static bool allocated(const struct gauge *gauge, const struct usage *usage, size_t index,
		      double *out)
{
	(void)gauge, (void)index;
	*out = (double)usage->allocated_bytes;
	return true;
}

static bool frees(const struct gauge *gauge, const struct usage *usage, size_t index, double *out)
{
	(void)gauge, (void)index;
	*out = (double)usage->frees;
	return true;
}

static bool growth(const struct gauge *gauge, const struct usage *usage, size_t index, double *out)
{
	(void)usage;
	return gauge_growth(gauge, index, out);
}

static bool device_used(const struct gauge *gauge, const struct usage *usage, size_t index,
			double *out)
{
	const struct driver_usage *driver = replay_driver_usage(gauge->pass.replay, usage->device);

	(void)index;
	*out = driver == NULL ? 0 : (double)driver->device_bytes;
	return usage->pool == POOL_hal && driver != NULL && driver->device_bytes != UINT64_MAX;
}

static bool device_total(const struct gauge *gauge, const struct usage *usage, size_t index,
			 double *out)
{
	const struct driver_usage *driver = replay_driver_usage(gauge->pass.replay, usage->device);

	(void)index;
	*out = driver == NULL ? 0 : (double)driver->total_bytes;
	return usage->pool == POOL_hal && driver != NULL && driver->total_bytes != 0;
}

static const struct {
	const char *name, *type, *help;
	pool_value *value;
} of_pool[] = {
	{"used_bytes", "gauge", "Bytes in blocks of the pool now.", used},
	{"peak_bytes", "gauge", "Peak bytes in blocks of the pool.", peak},
	{"reserved_bytes", "gauge", "Bytes that the pool reserves from the driver.", reserved},
	{"blocks", "gauge", "Live blocks of the pool.", blocks},
	{"allocations_total", "counter", "Blocks that were allocated.", allocations},
	{"allocated_bytes_total", "counter", "Bytes of all blocks that were allocated.", allocated},
	{"frees_total", "counter", "Blocks that were freed.", frees},
	{"growth_bytes_per_step", "gauge",
	 "Growth of the pool in bytes per step, over the last ten steps.", growth},
	{"device_used_bytes", "gauge",
	 "Bytes used on the device by all processes, as the driver reports.", device_used},
	{"device_total_bytes", "gauge", "Memory of the device in bytes.", device_total},
};

static double full_step(const struct finding_forecast *forecast)
{
	return (double)forecast->full_step;
}

static double full_step_low(const struct finding_forecast *forecast)
{
	return (double)forecast->full_step_low;
}

static double full_step_high(const struct finding_forecast *forecast)
{
	return (double)forecast->full_step_high;
}

static double full_seconds(const struct finding_forecast *forecast)
{
	return forecast->seconds;
}

/* No sample: the device is not filled by leaks. */
static const struct {
	const char *name, *help;
	double (*value)(const struct finding_forecast *forecast);
} of_forecast[] = {
	{"full_step", "Step in which the device will be full.", full_step},
	{"full_step_low", "The same: the first in which it may be.", full_step_low},
	{"full_step_high", "The same: the last in which it may be.", full_step_high},
	{"seconds_until_full", "Seconds until the device will be full.", full_seconds},
};

/* The value of a label: quotes, backslashes and line feeds are escaped. */
static void add_label(struct strbuf *out, const char *name, const char *value)
{
	struct strbuf valid = {0};
	const char *at;

	strbuf_add_valid(&valid, value, strlen(value));
	strbuf_addf(out, "%s=\"", name);
	for (at = strbuf_str(&valid); *at != '\0'; at++) {
		if (*at == '\n')
			strbuf_add_str(out, "\\n");
		else if (*at == '"' || *at == '\\')
			strbuf_addf(out, "\\%c", *at);
		else
			strbuf_add_char(out, *at);
	}
	strbuf_add_char(out, '"');
	strbuf_fini(&valid);
}

/* `usage` is of a pool; NULL: the sample is of a device, or of the process if that is NULL, too. */
static void add_sample(struct strbuf *out, const char *metric, const struct board *board,
		       const struct gauge *gauge, const struct usage *usage, const uint32_t *device,
		       double value)
{
	char number[32];

	strbuf_addf(out, "msmemscope_%s{launch=\"%u\",pid=\"%u\",", metric,
		    board->place.session->launch_pid, gauge->pid);
	if (gauge->rank >= 0)
		strbuf_addf(out, "rank=\"%" PRId64 "\",", gauge->rank);
	add_label(out, "program", gauge->name == NULL ? "" : gauge->name);
	if (usage != NULL) {
		device_text(usage->device, number);
		strbuf_addf(out, ",device=\"%s\",", number);
		add_label(out, "pool", pool_event_type(usage->pool));
	}
	if (device != NULL) {
		device_text(*device, number);
		strbuf_addf(out, ",device=\"%s\"", number);
	}
	/* Whole numbers of bytes are exact up to 2^53. */
	(void)snprintf(number, sizeof(number), "%.17g", value);
	strbuf_addf(out, "} %s\n", number);
}

static void add_head(struct strbuf *out, const char *name, const char *type, const char *help)
{
	strbuf_addf(out, "# HELP msmemscope_%s %s\n# TYPE msmemscope_%s %s\n", name, help, name,
		    type);
}

static void add_pools(struct strbuf *out, size_t metric, const struct board *board,
		      const struct gauge *gauge)
{
	const struct usage *usages;
	size_t count, i;
	double value;

	usages = replay_usages(gauge->pass.replay, &count);
	for (i = 0; i < count; i++) {
		if (!usages[i].hidden && usages[i].allocations > 0 &&
		    of_pool[metric].value(gauge, &usages[i], i, &value))
			add_sample(out, of_pool[metric].name, board, gauge, &usages[i], NULL,
				   value);
	}
}

static void add_forecasts(struct strbuf *out, size_t metric, const struct board *board,
			  const struct gauge *gauge)
{
	uint32_t i;

	for (i = 0; gauge->latest != NULL && i < gauge->latest->forecast_count; i++) {
		const struct finding_forecast *forecast = &gauge->latest->forecasts[i].found;

		add_sample(out, of_forecast[metric].name, board, gauge, NULL, &forecast->device,
			   of_forecast[metric].value(forecast));
	}
}

void board_metrics(const struct board *boards, size_t count, struct strbuf *out)
{
	size_t metric, i, k;
	double value;

	/* All samples of a metric stand together. */
	for (metric = 0; metric < MSCOPE_COUNT(of_process); metric++) {
		add_head(out, of_process[metric].name, of_process[metric].type,
			 of_process[metric].help);
		for (i = 0; i < count; i++) {
			for (k = 0; k < boards[i].count; k++) {
				const struct gauge *gauge = boards[i].gauges[k];

				if (of_process[metric].value(gauge, &value))
					add_sample(out, of_process[metric].name, &boards[i], gauge,
						   NULL, NULL, value);
			}
		}
	}
	for (metric = 0; metric < MSCOPE_COUNT(of_pool); metric++) {
		add_head(out, of_pool[metric].name, of_pool[metric].type, of_pool[metric].help);
		for (i = 0; i < count; i++) {
			for (k = 0; k < boards[i].count; k++)
				add_pools(out, metric, &boards[i], boards[i].gauges[k]);
		}
	}
	for (metric = 0; metric < MSCOPE_COUNT(of_forecast); metric++) {
		add_head(out, of_forecast[metric].name, "gauge", of_forecast[metric].help);
		for (i = 0; i < count; i++) {
			for (k = 0; k < boards[i].count; k++)
				add_forecasts(out, metric, &boards[i], boards[i].gauges[k]);
		}
	}
}
