/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes the column Attr: the keys of a row in the order that dump/rows.def gives them, in the two spellings that files use:
 *
 *     csv      {allocation_id:3,addr:0x0000120000000000,size:512}     inside a quoted field, quotes doubled
 *     JSON     {"allocation_id":"3","addr":"0x0000120000000000","size":"512"}     every value a string
 */
#ifndef MSCOPE_SINK_ATTR_WRITER_H
#define MSCOPE_SINK_ATTR_WRITER_H

#include "replay/replay.h"

enum attr_style {
	ATTR_CSV,
	ATTR_JSON,
};

/* Bytes that the attributes of a row take at most, in either style. */
size_t attr_room(const struct row *row);

/* Writes the attributes of a row with their braces, nothing when it has none, and returns where they end. */
char *attr_put_csv(char *to, const struct row *row);
char *attr_put_json(char *to, const struct row *row);

/* The same into a buffer. */
void attr_add(struct strbuf *out, enum attr_style style, const struct row *row);

#endif
