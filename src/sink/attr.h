/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The column Attr: which keys a row has and in which order, written once, in the two spellings that files use:
 *
 *     csv      {allocation_id:3,addr:0x0000120000000000,size:512}     inside a quoted field, quotes doubled
 *     JSON     {"allocation_id":"3","addr":"0x0000120000000000","size":"512"}     every value a string
 */
#ifndef MSCOPE_SINK_ATTR_H
#define MSCOPE_SINK_ATTR_H

#include "replay/replay.h"

enum attr_style {
	ATTR_CSV,
	ATTR_JSON,
};

/* Appends the attributes of a row with their braces; nothing when it has none. */
void attr_add(struct strbuf *out, enum attr_style style, const struct row *row);

#endif
