/* SPDX-License-Identifier: Apache-2.0 */
/* Names that a person may have meant by another one. */
#ifndef MSCOPE_BASE_NEAREST_H
#define MSCOPE_BASE_NEAREST_H

#include <stddef.h>

/*
 * The names most like `wanted`, best first, at most `room`: those that contain it or are contained in it, then those that take
 * the fewest typing errors, in the whole name or a part of it between dots, slashes and colons. What is too different is left
 * out. Returns how many; the texts are borrowed.
 */
size_t nearest_names(const char *wanted, const char *const *names, size_t count, const char **out,
		     size_t room);

#endif
