/* SPDX-License-Identifier: Apache-2.0 */
/* schema.def as arrays and as SQL. Pure functions. */
#ifndef MSCOPE_STORE_STORE_SCHEMA_H
#define MSCOPE_STORE_STORE_SCHEMA_H

#include <stdbool.h>

#include "base/strbuf.h"

#define STORE_VERSION 4 /* that this program writes */

enum store_table {
#define TABLE(name, since, key) STORE_##name,
#define COLUMN(table, name, type, since)
#include "store/schema.def"
#undef TABLE
#undef COLUMN
	STORE_TABLES
};

#define STORE_COLUMNS_MAX 20

enum store_type {
	STORE_INT,
	STORE_REAL,
	STORE_TEXT,
	STORE_NULL, /* of a value */
};

struct store_column {
	enum store_table table;
	const char *name;
	enum store_type type;
	int since;
};

struct store_schema {
	const char *name;
	int since;
	const char *key;
	size_t column_count;
	struct store_column columns[STORE_COLUMNS_MAX];
};

const struct store_schema *store_schema(enum store_table table);

/* The table with this name; STORE_TABLES if there is none. */
enum store_table store_table_of(const char *name, size_t length);

/* Statements, each ended by a semicolon, that bring a store from `version` (0: empty) to STORE_VERSION. `tail` ends each CREATE. */
void store_sql_upgrade(int version, const char *tail, struct strbuf *out);

/* "name, name, ..." of a table. */
void store_sql_columns(enum store_table table, struct strbuf *out);

/* "INSERT INTO t (...) VALUES ($1, ...), (...) ON CONFLICT DO NOTHING" of `rows` rows; without `keep` the conflict is an error. */
void store_sql_insert(enum store_table table, size_t rows, bool keep, struct strbuf *out);

#endif
