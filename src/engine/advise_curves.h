/* SPDX-License-Identifier: Apache-2.0 */
/* What a pool would hold over time after each of the best changes of a program (advise/advise.h), for the page. */
#ifndef MSCOPE_ENGINE_ADVISE_CURVES_H
#define MSCOPE_ENGINE_ADVISE_CURVES_H

#include "advise/editor.h"
#include "base/json.h"

/*
 * Reads a run again. Into an object of `json`: "advice", best first, with "what", "saved_bytes", "peak_bytes", "line", what the pool would
 * reserve ("reserved_low", "reserved_high", where that is known) and "used", a number for each part of the span; "used" and "peak_bytes" of
 * the record; or "refusal", a sentence.
 */
struct advise_question {
	uint8_t pool; /* number in trace/pools.def */
	uint32_t device;
	struct editor_span span;
};
void advise_curves(const char *word, const struct advise_question *question, struct json *json);

#endif
