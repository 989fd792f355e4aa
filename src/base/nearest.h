/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The known name that a person meant by an unknown one: the fewest letters typed wrong, left out, added or swapped. Case does not
 * count, nor whether parts are joined by - or _. A name of several parts is also near to one of its parts (stack: call-stack).
 */
#ifndef MSCOPE_BASE_NEAREST_H
#define MSCOPE_BASE_NEAREST_H

#include <stddef.h>

struct nearest {
	const char *text; /* what was typed; not terminated */
	size_t length;
	const char *best; /* NULL as long as no name is near enough */
	size_t faults;	  /* of `best` */
};

static inline struct nearest nearest_to(const char *text, size_t length)
{
	return (struct nearest){.text = text, .length = length};
}

/* Of several equally near names the first stays. `name` is borrowed. */
void nearest_offer(struct nearest *nearest, const char *name);

/*
 * Of the names of things in a program, those most like `wanted`, best first, at most `room`: those that contain it or are contained
 * in it, then those with the fewest faults, in the whole name or a part of it between dots, slashes and colons. What is too
 * different is left out. Returns how many; the texts are borrowed.
 */
size_t nearest_names(const char *wanted, const char *const *names, size_t count, const char **out,
		     size_t room);

#endif
