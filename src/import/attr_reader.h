/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads the column Attr of a memscope_dump, in each form there is: {key:value,...} of csv files, where values are not quoted and
 * may hold commas and colons themselves, and JSON of databases. Keys are those of dump/rows.def, found by name, never by position.
 */
#ifndef MSCOPE_IMPORT_ATTR_READER_H
#define MSCOPE_IMPORT_ATTR_READER_H

#include <stdbool.h>

#include "base/strbuf.h"
#include "dump/format.h"

/* Values by key, NULL where there is none; in `text`. */
struct attr_values {
	const char *value[ATTR_KEY_COUNT];
	struct strbuf text;
};

/* Reads an Attr; an empty one has no keys. False when it is malformed, or there is no memory. */
bool attr_parse(struct attr_values *attr, const char *text, size_t length);
void attr_fini(struct attr_values *attr);

#endif
