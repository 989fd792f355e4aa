/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A database as MindStudio Insight opens it: table memscope_dump, or leaks_dump of the tool's first name. The file may be
 * hostile: only a table of that name is asked, the schema is not trusted to run functions, and cells have a limit.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <sqlite3.h>

#include "base/strbuf.h"
#include "base/text.h"
#include "import/dump.h"

#define CELL_MAX (1 << 20)

static const char *const tables[] = {DUMP_TABLE, DUMP_TABLE_OLD};

static int failed(sqlite3 *db, const char *path, struct mscope_error *err)
{
	if (sqlite3_errcode(db) == SQLITE_NOMEM)
		return error_set(err, -ENOMEM, "no memory");
	return error_set(err, MSCOPE_E_DAMAGED, "cannot read %s: %s", path, sqlite3_errmsg(db));
}

/*
 * Read-only; if that fails, because the file needs a log beside it that we may not make, as a file that does not change.
 */
static int open_db(const char *path, sqlite3 **out, struct mscope_error *err)
{
	struct strbuf uri = {0};
	const char *at;
	int attempt, r = SQLITE_ERROR;

	for (attempt = 0; attempt < 2 && r != SQLITE_OK; attempt++) {
		strbuf_reset(&uri);
		strbuf_add_str(&uri, "file:");
		for (at = path; *at != '\0'; at++) {
			if (strchr("%?#", *at) != NULL)
				strbuf_addf(&uri, "%%%02x", (unsigned char)*at);
			else
				strbuf_add_char(&uri, *at);
		}
		if (attempt == 1)
			strbuf_add_str(&uri, "?immutable=1");
		(void)sqlite3_close(*out);
		r = sqlite3_open_v2(strbuf_str(&uri), out,
				    SQLITE_OPEN_READONLY | SQLITE_OPEN_URI | SQLITE_OPEN_NOMUTEX,
				    NULL);
		if (r == SQLITE_OK) {
			(void)sqlite3_db_config(*out, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
			(void)sqlite3_db_config(*out, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, NULL);
			(void)sqlite3_limit(*out, SQLITE_LIMIT_LENGTH, CELL_MAX);
			r = sqlite3_exec(*out, "SELECT 1 FROM sqlite_master LIMIT 1", NULL, NULL,
					 NULL);
		}
	}
	strbuf_fini(&uri);
	if (r == SQLITE_NOTADB)
		return error_set(err, MSCOPE_E_FOREIGN, "%s is not a database", path);
	return r == SQLITE_OK ? 0 : failed(*out, path, err);
}

/* The table of that name, if it is a table and not a view that might ask for anything. */
static const char *find_table(sqlite3 *db)
{
	const char *found = NULL;
	sqlite3_stmt *query;
	size_t i;

	if (sqlite3_prepare_v2(
		    db,
		    "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ? AND sql LIKE 'CREATE TABLE%'",
		    -1, &query, NULL) != SQLITE_OK)
		return NULL;
	for (i = 0; i < MSCOPE_COUNT(tables) && found == NULL; i++) {
		(void)sqlite3_bind_text(query, 1, tables[i], -1, SQLITE_STATIC);
		if (sqlite3_step(query) == SQLITE_ROW)
			found = tables[i];
		(void)sqlite3_reset(query);
	}
	(void)sqlite3_finalize(query);
	return found;
}

/* A query for the columns that the table has, each where its enum says; NULL for those it has not. */
static int prepare(sqlite3 *db, const char *table, const char *path, sqlite3_stmt **out,
		   struct mscope_error *err)
{
	bool there[COLUMN_COUNT] = {false};
	struct strbuf sql = {0};
	sqlite3_stmt *info = NULL;
	int column, r = 0;

	strbuf_addf(&sql, "SELECT name FROM pragma_table_info('%s')", table);
	if (sqlite3_prepare_v2(db, strbuf_str(&sql), -1, &info, NULL) != SQLITE_OK) {
		strbuf_fini(&sql);
		return failed(db, path, err);
	}
	while (sqlite3_step(info) == SQLITE_ROW) {
		const char *name = (const char *)sqlite3_column_text(info, 0);

		for (column = 0; name != NULL && column < COLUMN_COUNT; column++)
			there[column] =
				there[column] || strcmp(name, dump_rows.columns[column].name) == 0;
	}
	(void)sqlite3_finalize(info);
	strbuf_reset(&sql);
	for (column = 0; column < COLUMN_COUNT && r == 0; column++) {
		const struct column *wanted = &dump_rows.columns[column];

		strbuf_add_str(&sql, column == 0 ? "SELECT " : ", ");
		if (there[column] && wanted->use != COLUMN_WRITTEN)
			strbuf_addf(&sql, "\"%s\"", wanted->name);
		else
			strbuf_add_str(&sql, "NULL");
		if (!there[column] && wanted->use == COLUMN_NEEDED)
			r = error_set(err, MSCOPE_E_FOREIGN, "table %s of %s has no column %s",
				      table, path, wanted->name);
	}
	strbuf_addf(&sql, " FROM %s", table);
	if (r == 0 && sqlite3_prepare_v2(db, strbuf_str(&sql), -1, out, NULL) != SQLITE_OK)
		r = failed(db, path, err);
	strbuf_fini(&sql);
	return r;
}

static int read_rows(sqlite3 *db, sqlite3_stmt *query, const char *path, struct importer *importer,
		     struct dump_reading *reading, struct mscope_error *err)
{
	struct dump_place place = {.name = text_base_name(path), .unit = "row"};
	struct import_field fields[COLUMN_COUNT];
	int r = 0, column, step;

	while ((step = sqlite3_step(query)) == SQLITE_ROW && r == 0) {
		place.number++;
		for (column = 0; column < COLUMN_COUNT; column++) {
			const char *text = (const char *)sqlite3_column_text(query, column);

			fields[column] = (struct import_field){
				.text = text,
				.length = text == NULL ? 0 : strlen(text),
			};
			/* A cell that is NULL is an empty one; only a column that is not there has no text. */
			if (text == NULL && dump_rows.columns[column].use == COLUMN_NEEDED)
				fields[column].text = "";
		}
		r = dump_take(importer, reading, fields, &place);
	}
	if (r < 0)
		return error_set(err, r, "no memory");
	if (step != SQLITE_DONE) {
		/* What came before the damage counts. */
		place.unit = "after row";
		dump_note_bad(reading, &place, sqlite3_errmsg(db));
		reading->cut = true;
	}
	return 0;
}

int dump_read_db(const char *path, struct importer *importer, struct dump_reading *reading,
		 struct mscope_error *err)
{
	sqlite3_stmt *query = NULL;
	sqlite3 *db = NULL;
	const char *table;
	int r = open_db(path, &db, err);

	if (r == 0) {
		table = find_table(db);
		r = table == NULL ? error_set(err, MSCOPE_E_FOREIGN,
					      "%s has no table memscope_dump or leaks_dump", path)
				  : prepare(db, table, path, &query, err);
	}
	if (r == 0)
		r = read_rows(db, query, path, importer, reading, err);
	(void)sqlite3_finalize(query);
	(void)sqlite3_close(db);
	return r;
}
