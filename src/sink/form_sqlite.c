/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SQLite: the table memscope_dump exactly as MindStudio Insight reads it: column names and order, Attr as JSON of strings, plain
 * rowid table without key or index (Insight adds its own). Rows go in by one prepared statement in large transactions; a
 * write-ahead log only while writing, so that a reader sees whole transactions; closed, it is one file.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <sqlite3.h>

#include "base/digits.h"
#include "sink/attr_writer.h"
#include "sink/sink.h"

#define ROWS_PER_TRANSACTION 65536u

struct form_file {
	sqlite3 *db;
	sqlite3_stmt *insert;
	sqlite3_stmt *insert_call; /* NULL until the first call */
	uint32_t pending;	   /* rows in the open transaction; 0: none is open */
	struct strbuf attr;
	char path[PROJECT_PATH_MAX + 128];
};

static int failed(struct form_file *file, struct mscope_error *err)
{
	int code = sqlite3_errcode(file->db) == SQLITE_FULL ? -ENOSPC : -EIO;

	return error_set(err, code, "cannot write %s: %s", file->path, sqlite3_errmsg(file->db));
}

static int run_sql(struct form_file *file, const char *sql, struct mscope_error *err)
{
	return sqlite3_exec(file->db, sql, NULL, NULL, NULL) == SQLITE_OK ? 0 : failed(file, err);
}

static void remove_with_log(const char *path)
{
	static const char *const tails[] = {"", "-wal", "-shm", "-journal"};
	char name[PROJECT_PATH_MAX + 160];
	size_t i;

	for (i = 0; i < MSCOPE_COUNT(tails); i++) {
		(void)snprintf(name, sizeof(name), "%s%s", path, tails[i]);
		(void)unlink(name);
	}
}

static int db_close(struct form_file *file, bool keep, struct mscope_error *err);

/* Makes a table unless it is there, and prepares the statement that inserts into it. */
static int prepare_table(struct form_file *file, const struct dump_table *table, const char *name,
			 sqlite3_stmt **out, struct mscope_error *err)
{
	struct strbuf sql = {0};
	int r;

	dump_sql_create(table, name, &sql);
	r = run_sql(file, strbuf_str(&sql), err);
	strbuf_reset(&sql);
	dump_sql_insert(table, name, &sql);
	if (r == 0 && sqlite3_prepare_v2(file->db, strbuf_str(&sql), -1, out, NULL) != SQLITE_OK)
		r = failed(file, err);
	strbuf_fini(&sql);
	return r;
}

static int db_open(const char *path, bool resume, uint64_t first_id, struct form_file **out,
		   struct mscope_error *err)
{
	struct form_file *file = calloc(1, sizeof(*file));
	mode_t mask;
	char *drop;
	int r;

	if (file == NULL)
		return error_set(err, -ENOMEM, "no memory");
	(void)snprintf(file->path, sizeof(file->path), "%s", path);
	if (!resume)
		remove_with_log(path);
	mask = umask(0077); /* the file and its log are the user's alone */
	r = sqlite3_open_v2(path, &file->db,
			    SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX, NULL);
	if (r != SQLITE_OK) {
		r = error_set(err, -EIO, "cannot write %s: %s", path,
			      file->db != NULL ? sqlite3_errmsg(file->db) : "no memory");
		(void)umask(mask);
		(void)sqlite3_close(file->db);
		free(file);
		return r;
	}
	/* A kill cannot tear what was handed to the kernel, and the trace can make the file again; so no waiting for the disk. */
	r = run_sql(file, "PRAGMA journal_mode=WAL; PRAGMA synchronous=OFF", err);
	if (r == 0)
		r = prepare_table(file, &dump_rows, DUMP_TABLE, &file->insert, err);
	(void)umask(mask);
	if (r == 0 && resume) {
		drop = sqlite3_mprintf("DELETE FROM " DUMP_TABLE " WHERE ID >= %llu",
				       (unsigned long long)first_id);
		r = drop == NULL ? -ENOMEM : run_sql(file, drop, err);
		sqlite3_free(drop);
	}
	if (r < 0) {
		(void)db_close(file, false, NULL);
		return r;
	}
	*out = file;
	return 0;
}

static int db_flush(struct form_file *file, struct mscope_error *err)
{
	if (file->pending == 0)
		return 0;
	file->pending = 0;
	return run_sql(file, "COMMIT", err);
}

static int db_publish(struct form_file *file, struct mscope_error *err)
{
	/* A reader may keep the log from being emptied. That is no error: the rows are in the log. */
	return run_sql(file, "PRAGMA wal_checkpoint(TRUNCATE)", err);
}

static void bind_text(struct form_file *file, enum dump_column column, const char *text)
{
	(void)sqlite3_bind_text(file->insert, (int)column + 1, text, -1, SQLITE_STATIC);
}

static void bind_bytes(struct form_file *file, enum dump_column column, const char *text,
		       size_t bytes)
{
	(void)sqlite3_bind_text(file->insert, (int)column + 1, text, (int)bytes, SQLITE_STATIC);
}

static void bind_number(struct form_file *file, enum dump_column column, uint64_t value)
{
	(void)sqlite3_bind_int64(file->insert, (int)column + 1, (int64_t)value);
}

static int db_row(struct form_file *file, const struct row *row, const char *device,
		  struct stack_text python, struct stack_text c, struct mscope_error *err)
{
	char address[DIGITS_ROOM];
	int r;

	if (file->pending == 0) {
		r = run_sql(file, "BEGIN", err);
		if (r < 0)
			return r;
	}
	strbuf_reset(&file->attr);
	attr_add(&file->attr, ATTR_JSON, row);
	if (file->attr.length == 0)
		strbuf_add_str(&file->attr, "{}");
	*digits_put_address(address, row->address) = '\0';
	bind_number(file, COLUMN_ID, row->id);
	bind_text(file, COLUMN_EVENT, row_event(row->kind));
	bind_text(file, COLUMN_EVENT_TYPE, row_event_type(row->kind, row->context->pool));
	bind_text(file, COLUMN_NAME, row->name == NULL ? WORD_NONE : row->name);
	bind_number(file, COLUMN_TIME, row->time_ns);
	bind_number(file, COLUMN_PID, row->pid);
	bind_number(file, COLUMN_TID, row->tid);
	bind_text(file, COLUMN_DEVICE, device);
	bind_text(file, COLUMN_PTR, row_has_address(row->kind) ? address : WORD_NONE);
	bind_bytes(file, COLUMN_ATTR, strbuf_str(&file->attr), file->attr.length);
	bind_bytes(file, COLUMN_PYTHON_STACK, python.text, python.bytes);
	bind_bytes(file, COLUMN_C_STACK, c.text, c.bytes);
	r = sqlite3_step(file->insert);
	(void)sqlite3_reset(file->insert);
	if (r != SQLITE_DONE)
		return failed(file, err);
	return ++file->pending >= ROWS_PER_TRANSACTION ? db_flush(file, err) : 0;
}

static int db_call(struct form_file *file, const struct sink_call *call, struct mscope_error *err)
{
	char start[24] = WORD_NONE, end[24] = WORD_NONE, name[32];
	int r = 0;

	if (file->insert_call == NULL) {
		(void)snprintf(name, sizeof(name), CALL_TABLE "_%u", call->pid);
		r = prepare_table(file, &dump_calls, name, &file->insert_call, err);
	}
	if (r == 0 && file->pending == 0)
		r = run_sql(file, "BEGIN", err);
	if (r < 0)
		return r;
	if (call->start_ns != 0)
		(void)snprintf(start, sizeof(start), "%llu", (unsigned long long)call->start_ns);
	if (call->end_ns != 0)
		(void)snprintf(end, sizeof(end), "%llu", (unsigned long long)call->end_ns);
	(void)sqlite3_bind_text(file->insert_call, 1, call->text, -1, SQLITE_STATIC);
	(void)sqlite3_bind_text(file->insert_call, 2, start, -1, SQLITE_STATIC);
	(void)sqlite3_bind_text(file->insert_call, 3, end, -1, SQLITE_STATIC);
	(void)sqlite3_bind_int64(file->insert_call, 4, call->tid);
	(void)sqlite3_bind_int64(file->insert_call, 5, call->pid);
	r = sqlite3_step(file->insert_call);
	(void)sqlite3_reset(file->insert_call);
	if (r != SQLITE_DONE)
		return failed(file, err);
	return ++file->pending >= ROWS_PER_TRANSACTION ? db_flush(file, err) : 0;
}

static int db_close(struct form_file *file, bool keep, struct mscope_error *err)
{
	int r = keep ? db_flush(file, err) : 0;

	(void)sqlite3_finalize(file->insert);
	(void)sqlite3_finalize(file->insert_call);
	/* One file without a log beside it, so that a copy of it is complete. */
	if (keep && r == 0)
		r = run_sql(file, "PRAGMA wal_checkpoint(TRUNCATE); PRAGMA journal_mode=DELETE",
			    err);
	if (sqlite3_close(file->db) != SQLITE_OK && keep && r == 0)
		r = error_set(err, -EIO, "cannot close %s", file->path);
	strbuf_fini(&file->attr);
	free(file);
	return r;
}

const struct sink_form form_sqlite = {
	.extension = ".db",
	.calls = CALLS_IN_FILE,
	.one_stamp = true,
	.open = db_open,
	.row = db_row,
	.call = db_call,
	.flush = db_flush,
	.publish = db_publish,
	.close = db_close,
};
