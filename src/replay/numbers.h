/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the numbers of one writer mean: contexts, stacks, functions, texts. Writers count from 1, so the values lie in pages of an array;
 * numbers that leave it too empty, as in a damaged trace, go into a map. A writer that has more stacks than it remembers defines them
 * again and again, mostly in the order of before: a full page whose values follow each other is its first value. Finding costs two loads.
 * A zeroed struct is an empty one. Not thread-safe.
 */
#ifndef MSCOPE_REPLAY_NUMBERS_H
#define MSCOPE_REPLAY_NUMBERS_H

#include <stdbool.h>

#include "base/map.h"

#define NUMBERS_PAGE 64u

struct numbers_page {
	uint32_t *values; /* + 1, by number; 0: not defined. NULL: they follow each other */
	uint32_t first;	  /* the first of these, + 1; 0: none is defined */
};

struct numbers {
	struct numbers_page *pages;
	size_t page_count, page_room;
	size_t count; /* numbers in `pages` */
	struct map sparse;
};

void numbers_fini(struct numbers *numbers);

/* Sets or replaces. 0 or -ENOMEM; the greatest value is UINT32_MAX - 1. */
int numbers_put(struct numbers *numbers, uint32_t number, uint32_t value);

/* The way of numbers_get() when the pages do not have it. */
uint32_t numbers_get_sparse(const struct numbers *numbers, uint32_t number);

/* Value + 1 of a number; 0 if it is not defined. */
static inline uint32_t numbers_get(const struct numbers *numbers, uint64_t number)
{
	uint32_t value = 0;

	if (MSCOPE_LIKELY(number / NUMBERS_PAGE < numbers->page_count)) {
		const struct numbers_page *page = &numbers->pages[number / NUMBERS_PAGE];

		if (page->values != NULL)
			value = page->values[number % NUMBERS_PAGE];
		else if (page->first != 0)
			value = page->first + (uint32_t)(number % NUMBERS_PAGE);
	}
	if (MSCOPE_LIKELY(value != 0))
		return value;
	return numbers->sparse.count == 0 ? 0 : numbers_get_sparse(numbers, (uint32_t)number);
}

/* Walks all numbers: start with *cursor = 0; false at the end. Values may be replaced meanwhile. */
bool numbers_next(const struct numbers *numbers, size_t *cursor, uint32_t *out_number,
		  uint32_t *out_value);

#endif
