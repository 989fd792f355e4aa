/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Texts that a file has once and names by number, from 0 in the order in which they come. Exact: texts of one hash are told apart.
 * A zeroed struct is an empty table. Not thread-safe.
 */
#ifndef MSCOPE_VIEWS_INTERNED_H
#define MSCOPE_VIEWS_INTERNED_H

#include <stdbool.h>

#include "base/map.h"
#include "base/strbuf.h"

struct interned {
	/* Hash, ordinal among those of one hash -> offset in `texts` << 32 | number. */
	struct map known;
	struct strbuf texts; /* NUL-terminated */
	uint32_t count;
};

void interned_fini(struct interned *interned);

/* The number of a text, and whether it is new. 0 or -ENOMEM; MSCOPE_E_LIMIT beyond 4 GiB of texts. */
int interned_number(struct interned *interned, const char *text, size_t length, uint32_t *out,
		    bool *out_new);

#endif
