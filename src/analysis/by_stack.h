/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds the elements of an array by a call stack and what else tells them apart. Most stacks have one element, so the first of each
 * stack is found by the stack's number: 4 bytes, where an index (base/index.h) takes 9 to 18. The others, and those without a stack,
 * are in an index, by a hash of all that tells them apart:
 *
 *     struct by_stack_search search = by_stack_search(&found, stack, hash);
 *     while (by_stack_next(&found, &search, &element))
 *             if (all[element] is it) ...
 *     r = by_stack_add(&found, stack, hash, count++);
 *
 * Nothing is removed. Not thread-safe. A zeroed struct is an empty one.
 */
#ifndef MSCOPE_ANALYSIS_BY_STACK_H
#define MSCOPE_ANALYSIS_BY_STACK_H

#include "base/index.h"

struct by_stack {
	uint32_t *first; /* by stack: its first element, + 1; 0: there is none */
	size_t count, room;
	struct index others;
};

struct by_stack_search {
	uint32_t first;
	struct index_search others;
};

void by_stack_fini(struct by_stack *found);

/* Adds an element; `stack` 0: it has none. 0 or -ENOMEM; unchanged on failure. */
int by_stack_add(struct by_stack *found, uint32_t stack, uint64_t hash, size_t element);

static inline struct by_stack_search by_stack_search(const struct by_stack *found, uint32_t stack,
						     uint64_t hash)
{
	return (struct by_stack_search){.first = stack < found->count ? found->first[stack] : 0,
					.others = index_search(hash)};
}

/* The next element that it may be; false: there are no more. */
static inline bool by_stack_next(const struct by_stack *found, struct by_stack_search *search,
				 uint32_t *out_element)
{
	if (search->first != 0) {
		*out_element = search->first - 1;
		search->first = 0;
		return true;
	}
	return index_next(&found->others, &search->others, out_element);
}

#endif
