/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Python functions of one run, each distinct one kept once however many writers defined it, and the text of places in them.
 *
 * A function is what a code_def says: file, name, first line, and the interpreter's own line table, whose form depends on its
 * version. A place is a function and the byte offset of an instruction in it. Not thread-safe.
 */
#ifndef MSCOPE_REPLAY_PYTHON_H
#define MSCOPE_REPLAY_PYTHON_H

#include "base/map.h"
#include "base/strbuf.h"

#define CODE_NOT_BEGUN                                                                             \
	UINT32_MAX /* offset of a function that was entered and has run nothing yet */

/* A function. The bytes are borrowed: from the caller, or from struct codes. */
struct code {
	uint32_t minor; /* x of Python 3.x */
	uint32_t first_line;
	const uint8_t *file;
	const uint8_t *name;
	const uint8_t *table;
	uint32_t file_bytes;
	uint32_t name_bytes;
	uint32_t table_bytes;
};

struct code_entry {
	uint64_t at; /* offset in codes.bytes of file, name and table, one behind the other */
	uint32_t minor;
	uint32_t first_line;
	uint32_t file_bytes;
	uint32_t name_bytes;
	uint32_t table_bytes;
};

struct codes {
	struct code_entry *all;
	size_t count, room;
	struct strbuf bytes;
	struct map by_content; /* hash of the content -> index */
	struct map texts;      /* index, offset -> where in `text` */
	struct strbuf text;    /* NUL-terminated texts of places */
};

void codes_fini(struct codes *codes);

/* Index of a function, new or known. 0 or -ENOMEM. */
int codes_intern(struct codes *codes, const struct code *code, uint32_t *out_index);

/* The function with an index below `count`; borrowed until the next codes_intern(). */
struct code codes_get(const struct codes *codes, uint32_t index);

/* "file(line): function" of a place. Borrowed until the next call; "" when out of memory or there is no such function. */
const char *codes_text(struct codes *codes, uint32_t index, uint32_t offset);

/*
 * Line of the instruction at a byte offset, as the interpreter has it. Where the table has none, the last line before it, or the
 * first line of the function. The table may be any bytes.
 */
uint32_t code_line(const struct code *code, uint32_t offset);

#endif
