/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The column Attr of a memscope_dump, in each form there is: {key:value,...} of csv files, where values are not quoted and may
 * hold commas and colons themselves, and JSON of databases. Keys are found by name, never by position.
 */
#ifndef MSCOPE_IMPORT_ATTR_H
#define MSCOPE_IMPORT_ATTR_H

#include <stdbool.h>

#include "base/strbuf.h"

/* Every key that a row can have; one that is not here cannot end the value before it. */
#define ATTR_KEYS(KEY)                                                                             \
	KEY(allocation_id)                                                                         \
	KEY(addr)                                                                                  \
	KEY(size)                                                                                  \
	KEY(used)                                                                                  \
	KEY(total)                                                                                 \
	KEY(pinned)                                                                                \
	KEY(process_used)                                                                          \
	KEY(device_used)                                                                           \
	KEY(shadow)                                                                                \
	KEY(owner)                                                                                 \
	KEY(inefficient_type)                                                                      \
	KEY(page_type)                                                                             \
	KEY(alloc_type)                                                                            \
	KEY(type)                                                                                  \
	KEY(dtype)                                                                                 \
	KEY(format)                                                                                \
	KEY(shape)                                                                                 \
	KEY(path)                                                                                  \
	KEY(workspace_ptr)                                                                         \
	KEY(workspace_size)                                                                        \
	KEY(streamId)                                                                              \
	KEY(taskId)                                                                                \
	KEY(free)                                                                                  \
	KEY(MID)

enum attr_key {
#define KEY(name) ATTR_##name,
	ATTR_KEYS(KEY)
#undef KEY
		ATTR_KEY_COUNT
};

/* Values by key, NULL where there is none; in `text`. */
struct attr_values {
	const char *value[ATTR_KEY_COUNT];
	struct strbuf text;
};

/* Reads an Attr; an empty one has no keys. False when it does not hold, or there is no memory. */
bool attr_parse(struct attr_values *attr, const char *text, size_t length);
void attr_fini(struct attr_values *attr);

#endif
