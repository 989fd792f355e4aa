/* SPDX-License-Identifier: Apache-2.0 */
#include "store/store_schema.h"

#include <string.h>

static const char *const types[] = {
	[STORE_INT] = "BIGINT", [STORE_REAL] = "DOUBLE PRECISION", [STORE_TEXT] = "TEXT"};

static const struct store_column columns[] = {
#define TABLE(name, since, key)
#define COLUMN(table_, name_, type_, since_)                                                       \
	{.table = STORE_##table_, .name = #name_, .type = STORE_##type_, .since = since_},
#include "store/schema.def"
#undef TABLE
#undef COLUMN
};

static struct store_schema tables[STORE_TABLES] = {
#define TABLE(name_, since_, key_) [STORE_##name_] = {.name = #name_, .since = since_, .key = key_},
#define COLUMN(table, name, type, since)
#include "store/schema.def"
#undef TABLE
#undef COLUMN
};

/* Gives each table its columns; once. */
static void fill(void)
{
	size_t i;

	if (tables[0].column_count > 0)
		return;
	for (i = 0; i < MSCOPE_COUNT(columns); i++) {
		struct store_schema *table = &tables[columns[i].table];

		table->columns[table->column_count++] = columns[i];
	}
}

const struct store_schema *store_schema(enum store_table table)
{
	fill();
	return &tables[table];
}

enum store_table store_table_of(const char *name, size_t length)
{
	int i;

	for (i = 0; i < STORE_TABLES; i++) {
		if (strlen(tables[i].name) == length && memcmp(tables[i].name, name, length) == 0)
			return (enum store_table)i;
	}
	return STORE_TABLES;
}

/* Whether the column is part of the table's key: these are never NULL. */
static bool is_key(const struct store_schema *table, const char *name)
{
	size_t length = strlen(name);
	const char *at = table->key;

	while ((at = strstr(at, name)) != NULL) {
		if ((at == table->key || at[-1] == ' ') &&
		    (at[length] == '\0' || at[length] == ','))
			return true;
		at += length;
	}
	return false;
}

static void create(const struct store_schema *table, const char *tail, struct strbuf *out)
{
	size_t i;

	strbuf_addf(out, "CREATE TABLE IF NOT EXISTS %s (", table->name);
	for (i = 0; i < table->column_count; i++)
		strbuf_addf(out, "%s %s%s, ", table->columns[i].name, types[table->columns[i].type],
			    is_key(table, table->columns[i].name) ? " NOT NULL" : "");
	strbuf_addf(out, "PRIMARY KEY (%s))%s;\n", table->key, tail);
}

void store_sql_upgrade(int version, const char *tail, struct strbuf *out)
{
	size_t k;
	int i;

	fill();
	if (version == 0)
		strbuf_add_str(
			out,
			"CREATE TABLE IF NOT EXISTS store_version (version BIGINT NOT NULL PRIMARY KEY);\n");
	for (i = 0; i < STORE_TABLES; i++) {
		const struct store_schema *table = &tables[i];

		if (table->since > version) {
			create(table, tail, out);
			continue;
		}
		for (k = 0; k < table->column_count; k++) {
			if (table->columns[k].since > version)
				strbuf_addf(out, "ALTER TABLE %s ADD COLUMN %s %s;\n", table->name,
					    table->columns[k].name, types[table->columns[k].type]);
		}
	}
#define TABLE(name, since, key)
#define COLUMN(table, name, type, since)
#define INDEX(name, table, columns, since)                                                         \
	if (since > version)                                                                       \
		strbuf_add_str(out, "CREATE INDEX IF NOT EXISTS " #name " ON " #table " (" columns \
				    ");\n");
#include "store/schema.def"
#undef TABLE
#undef COLUMN
	if (version == 0)
		strbuf_addf(out, "INSERT INTO store_version VALUES (%d) ON CONFLICT DO NOTHING;\n",
			    STORE_VERSION);
	else
		strbuf_addf(out, "UPDATE store_version SET version = %d;\n", STORE_VERSION);
}

void store_sql_columns(enum store_table table, struct strbuf *out)
{
	const struct store_schema *schema = store_schema(table);
	size_t i;

	for (i = 0; i < schema->column_count; i++)
		strbuf_addf(out, "%s%s", i == 0 ? "" : ", ", schema->columns[i].name);
}

void store_sql_insert(enum store_table table, size_t rows, bool keep, struct strbuf *out)
{
	const struct store_schema *schema = store_schema(table);
	size_t row, i;

	strbuf_addf(out, "INSERT INTO %s (", schema->name);
	store_sql_columns(table, out);
	strbuf_add_str(out, ") VALUES ");
	for (row = 0; row < rows; row++) {
		strbuf_add_str(out, row == 0 ? "(" : ", (");
		for (i = 0; i < schema->column_count; i++)
			strbuf_addf(out, "%s$%zu", i == 0 ? "" : ", ",
				    row * schema->column_count + i + 1);
		strbuf_add_char(out, ')');
	}
	if (keep)
		strbuf_add_str(out, " ON CONFLICT DO NOTHING");
}
