/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The dump format: the columns of memscope_dump and python_trace, the kinds of rows, the keys of the column Attr, and the words
 * that stand in them. Sinks write files by it, import reads files by it; what a file looks like is decided here and nowhere else.
 *
 *     columns.def   names, types and order of columns; the csv header and the SQL come from it
 *     rows.def      kinds of rows: Event, Event Type, the keys of Attr, the record that a row is read back as
 *
 * Everything here is constant and may be used by any thread.
 */
#ifndef MSCOPE_DUMP_FORMAT_H
#define MSCOPE_DUMP_FORMAT_H

#include <stdbool.h>

#include "base/strbuf.h"
#include "trace/context.h"

/* Names of files begin with the name of the table and "_". */
#define DUMP_TABLE     "memscope_dump"
#define DUMP_TABLE_OLD "leaks_dump" /* what old versions of the original call it */
#define CALL_TABLE     "python_trace"

/* ---- columns ---- */

enum dump_column {
#define COLUMN(symbol, name, type, use) COLUMN_##symbol,
#include "dump/columns.def"
#undef COLUMN
	COLUMN_COUNT
};

enum column_use {
	COLUMN_WRITTEN, /* never read back */
	COLUMN_READ,	/* read back if the file has it */
	COLUMN_NEEDED,	/* a file without it is refused */
};

struct column {
	const char *name;
	const char *sql_type;
	enum column_use use;
};

struct dump_table {
	const struct column *columns;
	size_t count;
};

extern const struct dump_table dump_rows;  /* memscope_dump, by enum dump_column */
extern const struct dump_table dump_calls; /* python_trace */

/* The first line of a csv file, with its line end. */
void dump_csv_header(const struct dump_table *table, struct strbuf *out);

/* The statements that make a table `name`, and that insert a row into it. */
void dump_sql_create(const struct dump_table *table, const char *name, struct strbuf *out);
void dump_sql_insert(const struct dump_table *table, const char *name, struct strbuf *out);

/* ---- rows ---- */

/* What --events and --level choose rows by. */
enum row_group {
	ROW_GROUP_ALWAYS,
	ROW_GROUP_ALLOC,
	ROW_GROUP_FREE,
	ROW_GROUP_KERNEL,
	ROW_GROUP_OP,
	ROW_GROUP_ACCESS,
};

enum row_kind {
	ROW_NONE,
#define ROW(symbol, event, event_type, group, attrs, record) ROW_##symbol,
#include "dump/rows.def"
#undef ROW
	ROW_END
};

/* Columns Event and Event Type; `pool` counts for kinds whose type is that of their pool. */
const char *row_event(enum row_kind kind);
const char *row_event_type(enum row_kind kind, uint8_t pool);
enum row_group row_group(enum row_kind kind);

/* Whether the column Ptr has an address. */
bool row_has_address(enum row_kind kind);

/* True for marks and ranges, whose names are messages of the program. */
bool row_is_mark(enum row_kind kind);

/* The kind and, where the type is that of a pool, the pool of two columns. ROW_NONE: no such kind. POOL_UNKNOWN: no such pool. */
enum row_kind row_parse(const char *event, const char *event_type, uint8_t *out_pool);

/* ---- Attr ---- */

enum attr_key {
#define KEY(name) ATTR_##name,
#include "dump/rows.def"
#undef KEY
	ATTR_KEY_COUNT
};

extern const char *const attr_keys[ATTR_KEY_COUNT];

/* ---- words ---- */

#define WORD_NONE  "N/A"		/* a column that has nothing to say */
#define WORD_TRUE  "true"		/* the value of a flag of Attr; other flags are left out */
#define WORD_HOST  "HOST"		/* type of an access to host memory */
#define RANGE_ENDS "Range end from id " /* name of the end of a range, before its number */

/* Text of a pool: the column Event Type of its blocks. */
const char *pool_event_type(uint8_t pool);

/* "0" and so on, "cpu" for the host, "N/A" for unknown. */
void device_text(uint32_t device, char out[16]);

/* Reads what device_text() writes, and what the original writes for the host. False: no device. */
bool device_parse(const char *text, uint32_t *out);

/* Values of page_type, alloc_type and type. A word that is unknown parses as PAGE_UNKNOWN, BLOCK_ALLOC or LAYER_ATEN. */
const char *page_text(uint8_t page);
uint8_t page_parse(const char *text);
const char *block_kind_text(uint8_t kind);
uint8_t block_kind_parse(const char *text);
const char *layer_text(uint8_t layer);
uint8_t layer_parse(const char *text);

/* Writes the value of inefficient_type, a list of words for bits of enum inefficiency, at `to`, and returns where it ends. */
#define INEFFICIENCY_ROOM 64u
char *inefficiency_put(char *to, uint32_t bits);

/* Reads a number: decimal, or hexadecimal after 0x. A sign is passed over: old files have frees of sizes below zero. */
bool number_parse(const char *text, uint64_t *out);

#endif
