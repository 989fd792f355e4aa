/* SPDX-License-Identifier: Apache-2.0 */
#include "analysis/forecast_watch.h"

#include "analysis/leaks.h"
#include "base/clock.h"

#define APART	      2u  /* steps between the first look and the one that counts */
#define RISES_STEPS   24u /* from here on a level that rises, and does not climb yet, counts, too */
#define AGAIN	      5u  /* steps until the leak rule is asked again */
#define AHEAD_SECONDS (7.0 * 86400)
#define LOOK_EVERY_NS UINT64_C(100000000)
#define LOOK_SHARE    20u /* looks may take a twentieth of the time */
#define MINUTE_NS     UINT64_C(60000000000)
#define NAMED	      16u /* call sites that are named beside each other */

/* How far ahead a device is announced: the more steps were seen, the more they say. */
static uint64_t horizon(uint32_t ended)
{
	return (uint64_t)ended * (ended >= 1000 ? 4 : 2);
}

/* The call site that grows most on a device, if the rule calls one a leak; NULL otherwise. */
static const struct leaks_place *worst_place(const struct leaks_findings *found, uint32_t device)
{
	size_t i;

	for (i = 0; i < found->place_count; i++) {
		const struct leaks_place *place = &found->places[i];

		if (place->device == device && place->verdict == GROWTH_LEAK)
			return place;
	}
	return NULL;
}

static bool pool_grows(const struct leaks_findings *found, uint32_t device)
{
	size_t i;

	for (i = 0; i < found->pool_count; i++) {
		if (found->pools[i].device == device && found->pools[i].verdict == GROWTH_LEAK)
			return true;
	}
	return false;
}

/* The sentence, with the name that the call site has beside the other leaks. */
static void say(struct replay *replay, const struct leaks_findings *found,
		const struct finding_forecast *forecast, struct strbuf *text)
{
	const struct leaks_place *worst = worst_place(found, forecast->device);
	struct site_names names = {0};
	const char *at = NULL;
	size_t i, named = 0;

	for (i = 0; worst != NULL && i < found->place_count && named < NAMED; i++) {
		if (found->places[i].verdict == GROWTH_LEAK && found->places[i].stack != 0)
			named += site_names_add(&names, replay, found->places[i].stack) == 0;
	}
	if (named > 0 && site_names_settle(&names, replay) == 0)
		at = site_name(&names, replay, worst->stack);
	forecast_words(forecast, at,
		       worst == NULL ? 0 : worst->bytes_per_step / forecast->bytes_per_step, text);
	site_names_fini(&names);
}

/* Whether the leak rule agrees; then `out` and `text` are filled in. */
static bool judge(const struct analyses *analyses, struct replay *replay, uint32_t device,
		  bool trend, struct finding_forecast *out, struct strbuf *text)
{
	struct leaks_findings *found = leaks_findings(analyses, replay);
	bool agrees = false;
	size_t i;

	if (found == NULL)
		return false;
	for (i = 0; i < found->forecast_count && found->forecasts[i].device != device; i++)
		;
	if (i < found->forecast_count &&
	    found->forecasts[i].steps_even <= horizon(found->last_step)) {
		*out = forecast_finding(&found->forecasts[i], replay, found->last_step,
					found->step_seconds);
		agrees = out->seconds <= AHEAD_SECONDS &&
			 (worst_place(found, device) != NULL ||
			  (trend && found->forecasts[i].climbs && pool_grows(found, device)));
	}
	if (agrees)
		say(replay, found, out, text);
	leaks_findings_free(found);
	return agrees;
}

/* Steps until the leak rule is asked again. Of a device that does not climb it is asked ever more rarely. */
static uint32_t pause(const struct device_forecast *device, uint32_t ended)
{
	return device->climbs || ended < 8 * AGAIN ? AGAIN : ended / 8;
}

/* Forgets devices that no longer climb. */
static void forget(struct forecast_watch *watch, const struct device_forecast *climbing,
		   size_t count)
{
	size_t i, k;

	for (i = 0; i < FORECAST_DEVICES; i++) {
		for (k = 0; k < count && climbing[k].device != i; k++)
			;
		if (k == count) {
			watch->devices[i].since = watch->devices[i].refused = 0;
			watch->devices[i].said = false;
		}
	}
}

static bool look(struct forecast_watch *watch, const struct analyses *analyses,
		 struct replay *replay, uint64_t now_ns, struct finding_forecast *out,
		 struct strbuf *text)
{
	struct device_forecast climbing[FORECAST_DEVICES];
	uint32_t step, ended;
	size_t i, count;

	count = leaks_climbing(analyses, replay, climbing, FORECAST_DEVICES, &step, &ended);
	if (step == watch->step)
		return false;
	watch->step = step;
	forget(watch, climbing, count);
	for (i = 0; i < count; i++) {
		uint32_t device = climbing[i].device;

		if (device >= FORECAST_DEVICES || watch->devices[device].said ||
		    !climbing[i].steady || climbing[i].steps_even > horizon(ended) ||
		    (!climbing[i].climbs && ended < RISES_STEPS))
			continue;
		if (watch->devices[device].since == 0)
			watch->devices[device].since = step;
		if (ended < FORECAST_STEPS_MIN ||
		    step < watch->devices[device].since + APART + ended / 8 ||
		    (watch->devices[device].refused != 0 &&
		     step < watch->devices[device].refused + pause(&climbing[i], ended)) ||
		    (watch->said_ns != 0 && now_ns - watch->said_ns < MINUTE_NS))
			continue;
		if (judge(analyses, replay, device, ended >= FORECAST_TREND_STEPS, out, text)) {
			watch->devices[device].said = true;
			watch->said_ns = now_ns;
			return true;
		}
		watch->devices[device].refused = step;
	}
	return false;
}

bool forecast_watch(struct forecast_watch *watch, const struct analyses *analyses,
		    struct replay *replay, uint64_t now_ns, struct finding_forecast *out,
		    struct strbuf *text)
{
	uint64_t pause = LOOK_EVERY_NS, began;
	bool found;

	if (watch->took_ns * LOOK_SHARE > pause)
		pause = watch->took_ns * LOOK_SHARE;
	if (watch->looked_ns != 0 && now_ns - watch->looked_ns < pause)
		return false;
	began = clock_monotonic_ns();
	found = look(watch, analyses, replay, now_ns, out, text);
	watch->looked_ns = now_ns;
	watch->took_ns = clock_monotonic_ns() - began;
	return found;
}
