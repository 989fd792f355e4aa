/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the numbers of one writer mean: contexts, stacks, functions, texts. Writers count from 1, so the values lie in an array;
 * numbers that leave it too empty, as in a damaged trace, go into a map. Finding costs one load. A zeroed struct is an empty one.
 * Not thread-safe.
 */
#ifndef MSCOPE_REPLAY_NUMBERS_H
#define MSCOPE_REPLAY_NUMBERS_H

#include <stdbool.h>

#include "base/map.h"

struct numbers {
	uint32_t *dense; /* value + 1 by number, 0: not defined */
	size_t room;
	size_t count; /* numbers in `dense` */
	struct map sparse;
};

void numbers_fini(struct numbers *numbers);

/* Sets or replaces. 0 or -ENOMEM; the greatest value is UINT32_MAX - 1. */
int numbers_put(struct numbers *numbers, uint32_t number, uint32_t value);

/* The way of numbers_get() when the array does not have it. */
uint32_t numbers_get_sparse(const struct numbers *numbers, uint32_t number);

/* Value + 1 of a number; 0 if it is not defined. */
static inline uint32_t numbers_get(const struct numbers *numbers, uint64_t number)
{
	if (MSCOPE_LIKELY(number < numbers->room && numbers->dense[number] != 0))
		return numbers->dense[number];
	return numbers->sparse.count == 0 ? 0 : numbers_get_sparse(numbers, (uint32_t)number);
}

/* Walks all numbers: start with *cursor = 0; false at the end. Values may be replaced meanwhile. */
bool numbers_next(const struct numbers *numbers, size_t *cursor, uint32_t *out_number,
		  uint32_t *out_value);

#endif
