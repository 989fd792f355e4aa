/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a suspect lacks: how many more steps would decide it, if it goes on as it did. Found by playing the judge forward, so that it
 * cannot say anything else than the judge will.
 */
#ifndef MSCOPE_ANALYSIS_GROWTH_MISSING_H
#define MSCOPE_ANALYSIS_GROWTH_MISSING_H

#include "analysis/growth.h"

struct growth_missing {
	uint32_t every; /* it grew in each step of that distance; 0: at uneven distances, or once */
	uint32_t steps; /* that would decide it; 0: unknown */
	bool by_quiet;	/* these steps would have to pass without growth */
};

/* Only of suspects that hardly free anything: how others go on is not known. `judged` is the judgement of the same facts. */
struct growth_missing growth_missing(const struct growth *g, const struct growth_facts *facts,
				     const struct growth_judgement *judged);

#endif
