/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the compiler is asked for, spelled once, and what every folder does with numbers: compare, round, bisect. No types.
 */
#ifndef MSCOPE_BASE_COMPILER_H
#define MSCOPE_BASE_COMPILER_H

#include <stddef.h>
#include <stdint.h>

#define MSCOPE_LIKELY(x)    __builtin_expect(!!(x), 1)
#define MSCOPE_UNLIKELY(x)  __builtin_expect(!!(x), 0)
#define MSCOPE_COLD	    __attribute__((cold, noinline))
#define MSCOPE_INLINE	    static inline __attribute__((always_inline))
#define MSCOPE_EXPORT	    __attribute__((visibility("default")))
#define MSCOPE_HIDDEN	    __attribute__((visibility("hidden")))
#define MSCOPE_PRINTF(f, a) __attribute__((format(printf, f, a)))

/* For zeroed data that each process writes when it starts: beside what the loader has written to; elsewhere it is another page fault. */
#define MSCOPE_AT_START __attribute__((section(".data")))

#define MSCOPE_COUNT(array) (sizeof(array) / sizeof((array)[0]))

static inline uint64_t round_up_u64(uint64_t value, uint64_t step)
{
	return (value + step - 1) / step * step;
}

static inline uint64_t min_u64(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/*
 * What functions for qsort() and bsearch() are made of, the most important key first:
 *
 *     return ORDER_DOWN(x->bytes, y->bytes) ?: ORDER_UP(x->device, y->device) ?: strcmp(x->name, y->name);
 *
 * UP: the smaller number first, of bools the one that is false. Arguments are evaluated twice.
 */
#define ORDER_UP(x, y)	 (((x) > (y)) - ((x) < (y)))
#define ORDER_DOWN(x, y) ORDER_UP(y, x)

static inline int order_u64(const void *a, const void *b)
{
	return ORDER_UP(*(const uint64_t *)a, *(const uint64_t *)b);
}

static inline int order_u32(const void *a, const void *b)
{
	return ORDER_UP(*(const uint32_t *)a, *(const uint32_t *)b);
}

/*
 * Bisects a sorted array: how many of its first elements meet a condition that those after them do not.
 *
 *     size_t after = COUNT_FRONT(at, spans->count, spans->all[at].start <= address);
 */
#define COUNT_FRONT(at, count, condition)                                                          \
	__extension__({                                                                            \
		size_t front_of_##at = 0, end_of_##at = (count);                                   \
		while (front_of_##at < end_of_##at) {                                              \
			size_t at = front_of_##at + (end_of_##at - front_of_##at) / 2;             \
			if (condition)                                                             \
				front_of_##at = at + 1;                                            \
			else                                                                       \
				end_of_##at = at;                                                  \
		}                                                                                  \
		front_of_##at;                                                                     \
	})

/* a - b, and not less than 0. */
static inline uint64_t less_u64(uint64_t a, uint64_t b)
{
	return a > b ? a - b : 0;
}

#endif
