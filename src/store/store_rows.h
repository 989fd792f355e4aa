/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the store keeps of one process: rows of the tables of schema.def, in memory, before and while they are written. As a text it
 * is what PostgreSQL's COPY reads, a table after the other; so it can be kept in a file and be stored later, or elsewhere.
 *
 * Texts may hold any byte. In the store and in files they are UTF-8 without NUL: a backslash is written twice, NUL as \0 and a byte
 * that is no UTF-8 as \xHH. store_text_encode() and store_text_decode() do that, at the edge of each engine.
 */
#ifndef MSCOPE_STORE_STORE_ROWS_H
#define MSCOPE_STORE_STORE_ROWS_H

#include "base/status.h"
#include "store/store_schema.h"

#define STORE_RUNNING "running" /* outcome of a process that has not ended */

struct store_value {
	enum store_type type; /* STORE_NULL: none */
	int64_t number;
	double real;
	const char *text;
	size_t bytes;
};

static inline struct store_value store_int(int64_t number)
{
	return (struct store_value){.type = STORE_INT, .number = number};
}

static inline struct store_value store_u64(uint64_t number)
{
	return store_int(number > INT64_MAX ? INT64_MAX : (int64_t)number);
}

/* UINT64_MAX is unknown. */
static inline struct store_value store_known(uint64_t number)
{
	return number == UINT64_MAX ? (struct store_value){.type = STORE_NULL} : store_u64(number);
}

static inline struct store_value store_real(double real)
{
	return (struct store_value){.type = STORE_REAL, .real = real};
}

static inline struct store_value store_text(const char *text, size_t bytes)
{
	return (struct store_value){.type = STORE_TEXT, .text = text, .bytes = bytes};
}

/* NULL is the empty text. */
static inline struct store_value store_str(const char *text)
{
	return store_text(text == NULL ? "" : text, text == NULL ? 0 : strlen(text));
}

struct store_table_rows {
	struct store_value *values; /* column_count for each row */
	size_t count, room;	    /* rows; values */
};

struct store_piece;

struct store_rows {
	struct store_table_rows tables[STORE_TABLES];
	struct store_piece *pieces; /* memory of texts */
	bool failed;		    /* out of memory: something is missing */
};

void store_rows_fini(struct store_rows *rows);

/* Adds a row of `store_schema(table)->column_count` values; texts are copied. */
void store_rows_add(struct store_rows *rows, enum store_table table,
		    const struct store_value *values);

/* The value of a row, to be read or changed; a text must live as long as the rows. */
static inline struct store_value *store_rows_at(const struct store_rows *rows,
						enum store_table table, size_t row, size_t column)
{
	return &rows->tables[table].values[row * store_schema(table)->column_count + column];
}

/* Gives all rows of the process another run: its key is a hash of its name. */
void store_rows_rename(struct store_rows *rows, const char *name);

/* The key of a run, and of anything else that is named by its content. */
int64_t store_key(const void *content, size_t bytes);

void store_text_encode(const char *text, size_t bytes, struct strbuf *out);
void store_text_decode(const char *text, size_t bytes, struct strbuf *out);

/* Appends one table as COPY reads it, without its end mark. */
void store_rows_copy(const struct store_rows *rows, enum store_table table, struct strbuf *out);

/* All tables, as a file keeps them; and back. 0, -ENOMEM or MSCOPE_E_DAMAGED with a sentence. */
void store_rows_write(const struct store_rows *rows, struct strbuf *out);
int store_rows_read(struct store_rows *rows, const char *text, size_t bytes,
		    struct mscope_error *err);

/* First line of such a file. */
#define STORE_ROWS_MAGIC "msmemscope rows 2\n"

#endif
