/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes the column Attr: the keys of a row in the order that dump/rows.def gives them, in the two spellings that files use:
 *
 *     csv      {allocation_id:3,addr:0x0000120000000000,size:512}     inside a quoted field, quotes doubled
 *     JSON     {"allocation_id":"3","addr":"0x0000120000000000","size":"512"}     every value a string
 *
 * A form with a column for some of the keys gets their values as they are, and JSON of the others.
 */
#ifndef MSCOPE_SINK_ATTR_WRITER_H
#define MSCOPE_SINK_ATTR_WRITER_H

#include "replay/replay.h"

/* Numbers that have a column of their own where a form splits Attr: key of Attr, column. Two keys may share a column. */
#define ATTR_NUMBERS(X)                                                                            \
	X(allocation_id, ALLOCATION_ID)                                                            \
	X(size, SIZE)                                                                              \
	X(used, USED)                                                                              \
	X(total, TOTAL)                                                                            \
	X(process_used, PROCESS_USED)                                                              \
	X(device_used, DEVICE_USED)                                                                \
	X(stream, STREAM)                                                                          \
	X(streamId, STREAM)

enum attr_number {
	NUMBER_ALLOCATION_ID,
	NUMBER_SIZE,
	NUMBER_USED,
	NUMBER_TOTAL,
	NUMBER_PROCESS_USED,
	NUMBER_DEVICE_USED,
	NUMBER_STREAM,
	NUMBER_COUNT
};

/* What attr_split() takes out of Attr. */
struct attr_columns {
	uint64_t numbers[NUMBER_COUNT];
	uint32_t present;  /* bit 1 << enum attr_number for each that the row has */
	const char *owner; /* NULL: none */
};

enum attr_style {
	ATTR_CSV,
	ATTR_JSON,
};

/* Bytes that the attributes of a row take at most, in either style. */
size_t attr_room(const struct row *row);

/* Writes the attributes of a row with their braces, nothing when it has none, and returns where they end. */
char *attr_put_csv(char *to, const struct row *row);
char *attr_put_json(char *to, const struct row *row);

/* JSON of the keys that have no column; `out` gets the others. The address of a block is the column Ptr and in neither. */
char *attr_split(char *to, const struct row *row, struct attr_columns *out);

/* The same into a buffer. */
void attr_add(struct strbuf *out, enum attr_style style, const struct row *row);

#endif
