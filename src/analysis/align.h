/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two sequences side by side: which elements are the same call in both, which are in one alone. Myers' greedy algorithm: the
 * fewest elements alone, and among equal choices always the same one; where a path may go on by an element of either side, it
 * takes that of the second only if this reaches strictly further.
 *
 * Up to ALIGN_EXACT elements alone the result is the shortest. Beyond, the sequences are aligned piece by piece: the furthest
 * point that ALIGN_EXACT such elements reach is kept, and the search begins anew from there. So the time is at most in proportion
 * to the length times ALIGN_EXACT, and memory is 4 bytes per element alone and 1 MiB; nothing recurses.
 */
#ifndef MSCOPE_ANALYSIS_ALIGN_H
#define MSCOPE_ANALYSIS_ALIGN_H

#include <stdbool.h>

#include "base/compiler.h"

#define ALIGN_EXACT 4096u

enum align_step {
	ALIGN_BOTH,   /* the next elements of the two are the same */
	ALIGN_FIRST,  /* the next of the first is in it alone */
	ALIGN_SECOND, /* the next of the second is */
};

/* Called for each step from the beginning on. */
typedef int align_visit(void *arg, enum align_step step, size_t first, size_t second);

/* Walks an alignment of two sequences of numbers. 0, -ENOMEM, or what `visit` returned. `out_exact` may be NULL. */
int align(const uint32_t *first, size_t first_count, const uint32_t *second, size_t second_count,
	  align_visit *visit, void *arg, bool *out_exact);

#endif
