/* SPDX-License-Identifier: Apache-2.0 */
/* The sentence about a device that will be full. */
#include <math.h>

#include "base/whole.h"
#include "findings/findings.h"

#define YEAR_S	   (365.0 * 86400)
#define MOST_SHARE 0.5

/* "40 s", "93 min", "3 h 10 min", "5 days". */
static void add_time(struct strbuf *out, double seconds)
{
	uint64_t minutes = whole(seconds / 60 + 0.5);

	if (seconds < 120)
		strbuf_addf(out, "%.0f s", seconds);
	else if (minutes < 120)
		strbuf_addf(out, "%llu min", (unsigned long long)minutes);
	else if (minutes < 24 * 60)
		strbuf_addf(out, "%llu h %llu min", (unsigned long long)minutes / 60,
			    (unsigned long long)minutes % 60);
	else if (seconds < 72 * 3600)
		strbuf_addf(out, "%.0f h", seconds / 3600);
	else
		strbuf_addf(out, "%.0f days", seconds / 86400);
}

void forecast_steps(const struct finding_forecast *forecast, struct strbuf *out)
{
	strbuf_add_number(out, forecast->full_step_low);
	if (forecast->full_step_high != forecast->full_step_low) {
		strbuf_add_str(out, " to ");
		strbuf_add_number(out, forecast->full_step_high);
	}
}

void forecast_title(const struct finding_forecast *forecast, struct strbuf *out)
{
	if (forecast->device >= DEVICE_HOST)
		strbuf_add_str(out, "Host memory");
	else
		strbuf_addf(out, "%s %u",
			    forecast->vendor == VENDOR_CUDA	? "GPU"
			    : forecast->vendor == VENDOR_ASCEND ? "NPU"
								: "Device",
			    forecast->device);
	strbuf_add_str(out, " will be full");
}

void forecast_words(const struct finding_forecast *forecast, const char *at, double share,
		    struct strbuf *out)
{
	forecast_title(forecast, out);
	strbuf_add_str(out, " at step ");
	forecast_steps(forecast, out);
	if (forecast->seconds >= 1 && forecast->seconds < YEAR_S) {
		strbuf_add_str(out, ", in about ");
		add_time(out, forecast->seconds);
	}
	strbuf_add_str(out, ": +");
	strbuf_add_size(out, whole(forecast->bytes_per_step));
	strbuf_add_str(out, " per step");
	if (at != NULL) {
		strbuf_add_str(out, share >= MOST_SHARE ? ", most of it at " : ", also at ");
		strbuf_add_str(out, at);
	}
}

static bool leaks_on(const struct findings *found, uint32_t device)
{
	size_t i;

	for (i = 0; i < FINDINGS_COUNT(found, place); i++) {
		if (FINDINGS(found, place)[i].verdict == GROWTH_LEAK &&
		    FINDINGS(found, place)[i].device == device)
			return true;
	}
	return false;
}

/* A whole pool grows, and no call site is known for it. */
static bool pool_grows_on(const struct findings *found, uint32_t device)
{
	size_t i;

	for (i = 0; i < FINDINGS_COUNT(found, trend); i++) {
		if (FINDINGS(found, trend)[i].trend == GROWTH_LEAK &&
		    FINDINGS(found, trend)[i].device == device)
			return true;
	}
	return false;
}

bool forecast_has_place(const struct findings *found, const struct finding_forecast *forecast)
{
	return leaks_on(found, forecast->device);
}

bool forecast_is_told(const struct findings *found, const struct finding_forecast *forecast)
{
	uint32_t steps = found->judgement.last_step;

	return steps >= FORECAST_STEPS_MIN && forecast->seconds <= FORECAST_SECONDS_MAX &&
	       (leaks_on(found, forecast->device) ||
		(steps >= FORECAST_TREND_STEPS && pool_grows_on(found, forecast->device)));
}

void forecast_sentence(const struct findings *found, const struct finding_forecast *forecast,
		       struct strbuf *out)
{
	const struct finding_place *places = FINDINGS(found, place);
	size_t i;

	/* The fastest first. */
	for (i = 0; i < FINDINGS_COUNT(found, place); i++) {
		if (places[i].verdict == GROWTH_LEAK && places[i].device == forecast->device)
			break;
	}
	if (i < FINDINGS_COUNT(found, place))
		forecast_words(forecast, places[i].name,
			       places[i].bytes_per_step / forecast->bytes_per_step, out);
	else
		forecast_words(forecast, NULL, 0, out);
}
