/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Devices that will be full, while the program still runs. A device is announced when its level climbs (analysis/forecast.h), or from step 24
 * on rises while a call site leaks, at two looks, ten steps have ended, the leak rule agrees, and the end is near enough that the steps seen so
 * far say something about it. It is announced once; again only if it stopped to rise in between; and at most one line a minute in all.
 *
 * A look at a program that does not grow costs microseconds. Only a device that climbs or rises has its call sites judged.
 */
#ifndef MSCOPE_ANALYSIS_FORECAST_WATCH_H
#define MSCOPE_ANALYSIS_FORECAST_WATCH_H

#include "analysis/analyses.h"

#define FORECAST_DEVICES 16u /* of one process, that are watched */

struct forecast_watch {
	uint32_t step;	    /* of the last look */
	uint64_t looked_ns; /* when it was */
	uint64_t took_ns;   /* what it cost */
	uint64_t said_ns;   /* when something was said last; 0: never */
	struct {
		/* Step of the first look in a row that found it climbing; 0: none. */
		uint32_t since;
		uint32_t refused; /* step at which no leak was found for it; 0: none */
		bool said;
	} devices[FORECAST_DEVICES];
};

/* At `now_ns`, as often as wanted. True: there is something to say, `out` is filled in and `text` has the sentence. */
bool forecast_watch(struct forecast_watch *watch, const struct analyses *analyses,
		    struct replay *replay, uint64_t now_ns, struct finding_forecast *out,
		    struct strbuf *text);

#endif
