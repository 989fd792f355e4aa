/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writing pickles of plain data that memory_viz reads: protocol 4, and of its instructions only those that its reader knows. Texts that
 * come again, and whatever the caller gives a key, stand in a pickle once and are named by a number.
 *
 * Parts are written apart and joined later (a list for each device, while events of all devices come mixed). A part names only what
 * it has itself, by numbers that no other part uses. Not thread-safe.
 */
#ifndef MSCOPE_VIEWS_PICKLE_WRITER_H
#define MSCOPE_VIEWS_PICKLE_WRITER_H

#include <stdbool.h>

#include "base/strbuf.h"
#include "views/interned.h"

/* Zeroed but for the first two members it is an empty one. */
struct pickle_part {
	int spool;	/* descriptor of a file for what is much; -1: all stays in memory */
	uint32_t *memo; /* next free number, of all parts */
	struct strbuf text;
	struct strbuf scratch; /* of pickle_put_text() */
	uint64_t spooled;      /* bytes in the file */
	struct interned known; /* keys of what can be named */
	uint32_t *numbers;     /* by number of the key */
	size_t number_count, number_room;
	uint32_t batch; /* items of the open list since its last mark */
	int error;
};

void pickle_part_fini(struct pickle_part *part);

void pickle_put_int(struct pickle_part *part, uint64_t value);
void pickle_put_bool(struct pickle_part *part, bool value);
/* A text, as valid UTF-8; it is named when it comes again. */
void pickle_put_text(struct pickle_part *part, const char *text);

/* A dictionary: pickle_put_text() and a value in turn between the two. */
void pickle_begin_dict(struct pickle_part *part);
void pickle_end_dict(struct pickle_part *part);

/* A list of few items. */
void pickle_begin_list(struct pickle_part *part);
void pickle_end_list(struct pickle_part *part);

/* The list that a part is: pickle_next() before each of its items, at the end pickle_end_part(). Any number of items. */
void pickle_begin_part(struct pickle_part *part);
void pickle_next(struct pickle_part *part);
void pickle_end_part(struct pickle_part *part);

/* Names what has this key, and returns true; or returns false, and the caller writes it and then calls pickle_remember(). */
bool pickle_recall(struct pickle_part *part, const char *key, size_t bytes, uint32_t *out_key);
void pickle_remember(struct pickle_part *part, uint32_t key);

#endif
