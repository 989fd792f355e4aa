/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What PyTorch's pool would reserve over time under other settings of its allocator: a trace or a memory snapshot of PyTorch is read
 * for what was asked of the pool, and the twin plays it. A curve has the most of each part of a span, as the line of what was reserved has.
 */
#ifndef MSCOPE_ENGINE_WHAT_IF_CURVES_H
#define MSCOPE_ENGINE_WHAT_IF_CURVES_H

#include <stdint.h>

#include "base/json.h"

struct what_if_span {
	uint64_t from_ns, to_ns; /* since the epoch */
	uint32_t width;		 /* parts */
};

/*
 * Into an object of `json`: "set", the run's own settings, and "settings", best first, with "set", "reserved_peak" and "reserved", a number
 * for each part; or "refusal", a sentence that says why that is not known.
 */
void what_if_curves(const char *word, uint32_t device, const struct what_if_span *span,
		    struct json *json);

#endif
