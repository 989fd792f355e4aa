/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes Apache Parquet, the table format that DuckDB, Spark, Trino, ClickHouse and pandas read. Only what a dump needs: flat columns of
 * 64-bit numbers and of texts, each with or without NULLs. Nothing here reads Parquet.
 *
 * The format, as far as it is used:
 *
 *     "PAR1"
 *     row group:  for each column a chunk:  [dictionary page]  data page ...
 *     ...
 *     footer:     FileMetaData in Thrift's compact protocol (parquet_thrift.h): schema, row groups, statistics, key-value pairs
 *     bytes of the footer, 32 bits, little-endian
 *     "PAR1"
 *
 * - A page is a PageHeader in Thrift and a body, which zstd has compressed. The body of a data page is the definition levels of a
 *   column with NULLs (1: there is a value, 0: NULL), then the values that are there.
 * - Levels and numbers of dictionary entries are runs: RLE/bit-packed hybrid (parquet_encode.h).
 * - A text is in the dictionary of its chunk, so a row costs a few bits. A dictionary that does not pay off, because nearly every text is
 *   new, is given up for the rest of the row group; texts are written one after the other then (PLAIN).
 * - A number is in a dictionary or is the difference from the one before it (DELTA_BINARY_PACKED). The first page of each row group is
 *   compressed both ways; the smaller one wins.
 * - Statistics of a chunk (least, largest, NULLs) let an engine skip row groups. Long texts have none.
 * - Nothing before the footer is readable without it, so a file is whole or it is none.
 *
 * Memory: a page in progress, the compressed pages of the row group in progress, its dictionaries, and about 3 KB of footer for each row
 * group. parquet_held() is their sum; the caller ends row groups by it. One thread at a time uses a writer.
 */
#ifndef MSCOPE_PARQUET_PARQUET_H
#define MSCOPE_PARQUET_PARQUET_H

#include <stdbool.h>

#include "base/compiler.h"

#define PARQUET_PAGE_ROWS  32768u
#define PARQUET_GROUP_ROWS (1u << 20)

enum parquet_type {
	PARQUET_NUMBER, /* 64 bits, signed */
	PARQUET_TEXT,	/* UTF-8; bytes that are none become U+FFFD */
};

struct parquet_column {
	const char *name;
	enum parquet_type type;
	bool optional;	/* may be NULL */
	bool long_text; /* without statistics */
};

/* Text that the footer carries. */
struct parquet_pair {
	const char *key, *value;
};

/* Takes bytes of the file, in their order. 0 or a negative code, which the call below returns. */
typedef int parquet_write(void *arg, const void *data, size_t bytes);

struct parquet_writer;

/* `columns` are borrowed. 0 or -ENOMEM. */
int parquet_new(const struct parquet_column *columns, size_t count, parquet_write *write, void *arg,
		struct parquet_writer **out);

/* NULL is fine. Nothing is written. */
void parquet_free(struct parquet_writer *writer);

/*
 * One value of the row in progress; every column gets exactly one, NULL included, before parquet_end_row(). After the first
 * failure all calls do nothing, and parquet_end_row() returns it.
 */
void parquet_put_number(struct parquet_writer *writer, size_t column, int64_t value);
void parquet_put_text(struct parquet_writer *writer, size_t column, const char *text, size_t bytes);
void parquet_put_null(struct parquet_writer *writer, size_t column);

/*
 * A text that has come before in this row group is put by its number, without being looked at again: the number of the text that was put
 * last, PARQUET_NO_ENTRY where the column has no dictionary at present. Numbers end with their row group.
 */
#define PARQUET_NO_ENTRY UINT32_MAX
uint32_t parquet_last_entry(const struct parquet_writer *writer, size_t column);
void parquet_put_entry(struct parquet_writer *writer, size_t column, uint32_t entry);

/* 0 or -ENOMEM. */
int parquet_end_row(struct parquet_writer *writer);

/* Row groups that have ended. */
uint32_t parquet_groups(const struct parquet_writer *writer);

/* Rows and bytes that the row group in progress holds in memory. */
uint32_t parquet_rows(const struct parquet_writer *writer);
size_t parquet_held(const struct parquet_writer *writer);

/* Whether a dictionary is full although it pays off: a new row group starts a new one. */
bool parquet_wants_group(const struct parquet_writer *writer);

/* Writes the row group in progress, if it has rows. 0 or a code. */
int parquet_end_group(struct parquet_writer *writer);

/* The same, and the footer: the file is whole. The writer only takes parquet_free() then. */
int parquet_end_file(struct parquet_writer *writer, const struct parquet_pair *pairs, size_t count);

#endif
