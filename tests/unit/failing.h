/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Allocations that fail on demand, for one test program: link it with --wrap=malloc,--wrap=calloc,--wrap=realloc. Calls that
 * a test wraps besides these ask fails_now() as well.
 */
#ifndef FAILING_H
#define FAILING_H

#include <stdbool.h>
#include <stddef.h>

/* Fails the n-th wrapped call from now on; 0 is never. */
static unsigned long fail_at;

void *__real_malloc(size_t bytes);
void *__real_calloc(size_t count, size_t bytes);
void *__real_realloc(void *old, size_t bytes);
void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes);
void *__wrap_realloc(void *old, size_t bytes);

static bool fails_now(void)
{
	return fail_at > 0 && --fail_at == 0;
}

void *__wrap_malloc(size_t bytes)
{
	return fails_now() ? NULL : __real_malloc(bytes);
}

void *__wrap_calloc(size_t count, size_t bytes)
{
	return fails_now() ? NULL : __real_calloc(count, bytes);
}

void *__wrap_realloc(void *old, size_t bytes)
{
	return fails_now() ? NULL : __real_realloc(old, bytes);
}

#endif
