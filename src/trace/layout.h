/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How long a record is, by its type: from this version's events.def, or from the table that a trace carries, which may know
 * types that we do not. All lengths that a reader uses come from here and are checked here.
 */
#ifndef MSCOPE_TRACE_LAYOUT_H
#define MSCOPE_TRACE_LAYOUT_H

#include <stdbool.h>

#include "base/compiler.h"

struct layout {
	uint8_t words; /* of the fixed part, word 0 included; 0: no such type */
	bool variable;
};

struct layout_table {
	struct layout types[256];
};

/* This version's own table. */
const struct layout_table *layout_own_table(void);

static inline const struct layout *layout_own(uint32_t type)
{
	return &layout_own_table()->types[type & 0xff];
}

/*
 * Reads the table text of a trace. Types that both know must agree on shape, otherwise MSCOPE_E_DAMAGED. Lengths may differ:
 * fields are only ever added, so a newer trace has more words than we know and an older one fewer; those read as 0.
 */
int layout_parse(const char *text, size_t bytes, struct layout_table *out);

/* Length of the record at `at`, of which `left` bytes are there; 0 when it is malformed. */
static inline size_t layout_record_bytes(const struct layout_table *table, const uint8_t *at,
					 size_t left)
{
	const struct layout *layout;
	uint32_t bytes;

	if (left < 8)
		return 0;
	layout = &table->types[at[0]];
	if (layout->words == 0 || layout->words * 8u > left)
		return 0;
	if (!layout->variable)
		return layout->words * 8u;
	/* It has two words at least. */
	__builtin_memcpy(&bytes, at + 8, sizeof(bytes));
	return bytes % 8 == 0 && bytes >= layout->words * 8u && bytes <= left ? bytes : 0;
}

#endif
