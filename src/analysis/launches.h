/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory per operator and per kernel launch, by name. docs/decisions/0019-memory-left-by-calls.md says what belongs to a call:
 *
 *     an operator   blocks that its thread allocates while it is the innermost one; it leaves those that live when it ends
 *     a kernel      blocks allocated on its device since the launch before; it leaves those that live when the next one is launched
 *
 * Every block belongs to one operator (or to none: "outside of operators") and to one launch, so the bytes of all names add up.
 */
#ifndef MSCOPE_ANALYSIS_LAUNCHES_H
#define MSCOPE_ANALYSIS_LAUNCHES_H

#include "analysis/analyses.h"

/* What is counted; all zero: everything. */
struct launches_choice {
	const uint32_t *steps; /* only calls and blocks of these steps; borrowed */
	uint32_t step_count;
	struct replay_choice devices; /* only calls of these; of memory, the replay knows */
};

/* Before the first event. */
void launches_choose(struct analyses *analyses, const struct launches_choice *choice);

#endif
