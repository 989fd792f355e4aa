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

#endif
