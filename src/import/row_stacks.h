/* SPDX-License-Identifier: Apache-2.0 */
/* Python call stacks of rows, as records: each distinct frame and each distinct stack of a writer is defined once. */
#ifndef MSCOPE_IMPORT_ROW_STACKS_H
#define MSCOPE_IMPORT_ROW_STACKS_H

#include "base/map.h"
#include "trace/builder.h"

/* Of one writer. */
struct row_stacks {
	struct map codes;  /* text of a frame -> its number */
	struct map stacks; /* offset of a stack's text -> its number */
};

/*
 * The number of a stack, defined now if it is new: one line per frame, innermost first, each "FILE(LINE): FUNCTION". `offset` is
 * that of `text` among texts of which each is there once. 0 or -ENOMEM.
 */
int row_stacks_put(struct row_stacks *stacks, struct builder *builder, uint32_t offset,
		   const char *text, uint32_t *out_id);
void row_stacks_fini(struct row_stacks *stacks);

#endif
