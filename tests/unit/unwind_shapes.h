/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Functions with frames of many shapes, which test_unwind.c lets call one another at random. Compiled several times with different
 * options. Each notes its own return address before it goes on, so that the test knows the stack.
 */
#ifndef MSCOPE_TESTS_UNWIND_SHAPES_H
#define MSCOPE_TESTS_UNWIND_SHAPES_H

#include <stdint.h>

#define SHADOW_MAX 512

struct shadow {
	void (*next)(struct shadow *s); /* calls another shape, or looks at the stack */
	void *back[SHADOW_MAX];		/* return addresses, innermost last */
	uint32_t depth;
	uint64_t sink; /* what keeps the compiler from making calls into jumps */
};

typedef void shape(struct shadow *s);

/* A module's shapes, ended by NULL. */
typedef shape *const *shapes_get(void);

#define SHADOW_ENTER(s)                                                                            \
	((s)->back[(s)->depth++] = __builtin_extract_return_addr(__builtin_return_address(0)))
#define SHADOW_LEAVE(s) ((s)->depth--, (s)->sink++)

#endif
