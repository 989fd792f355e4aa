/* SPDX-License-Identifier: Apache-2.0 */
/* Questions about texts that the C library has no function for. */
#ifndef MSCOPE_BASE_TEXT_H
#define MSCOPE_BASE_TEXT_H

#include <stdbool.h>
#include <string.h>

static inline bool text_starts_with(const char *text, const char *prefix)
{
	return strncmp(text, prefix, strlen(prefix)) == 0;
}

/* What follows the last '/'; all of a path that has none. */
static inline const char *text_base_name(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash == NULL ? path : slash + 1;
}

/* The same, but of a path that ends with '/' all of it. */
static inline const char *text_file_name(const char *path)
{
	const char *name = text_base_name(path);

	return name[0] == '\0' ? path : name;
}

/* For qsort() and bsearch() of pointers to texts. */
static inline int text_order(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* False also for a text that is the suffix alone: a name has a part before it. */
static inline bool text_ends_with(const char *text, const char *suffix)
{
	size_t length = strlen(text), tail = strlen(suffix);

	return length > tail && strcmp(text + length - tail, suffix) == 0;
}

#endif
