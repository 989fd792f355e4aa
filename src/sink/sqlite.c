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

#include "sink/attr.h"
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

static int db_open(const char *path, bool resume, uint64_t first_id, struct form_file **out,
		   struct mscope_error *err)
{
	static const char table[] =
		"CREATE TABLE IF NOT EXISTS memscope_dump (ID INTEGER, Event TEXT, \"Event Type\" "
		"TEXT, Name TEXT, "
		"\"Timestamp(ns)\" INTEGER, \"Process Id\" INTEGER, \"Thread Id\" INTEGER, "
		"\"Device Id\" TEXT, Ptr TEXT, "
		"Attr TEXT, \"Call Stack(Python)\" TEXT, \"Call Stack(C)\" TEXT)";
	struct form_file *file = calloc(1, sizeof(*file));
	mode_t mask;
	char *drop;
	int r;

	if (file == NULL)
		return error_set(err, -ENOMEM, "no memory");
	(void)snprintf(file->path, sizeof(file->path), "%s", path);
	if (!resume)
		remove_with_log(path);
	mask = umask(0077); /* the file and its log are nobody else's */
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
		r = run_sql(file, table, err);
	(void)umask(mask);
	if (r == 0 && resume) {
		drop = sqlite3_mprintf("DELETE FROM memscope_dump WHERE ID >= %llu",
				       (unsigned long long)first_id);
		r = drop == NULL ? -ENOMEM : run_sql(file, drop, err);
		sqlite3_free(drop);
	}
	if (r == 0 &&
	    sqlite3_prepare_v2(file->db,
			       "INSERT INTO memscope_dump VALUES (?,?,?,?,?,?,?,?,?,?,?,?)", -1,
			       &file->insert, NULL) != SQLITE_OK)
		r = failed(file, err);
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

static int db_settle(struct form_file *file, struct mscope_error *err)
{
	/* A reader in the middle of something keeps the log from being emptied; it holds all the same. */
	return run_sql(file, "PRAGMA wal_checkpoint(TRUNCATE)", err);
}

static void bind_text(struct form_file *file, int column, const char *text)
{
	(void)sqlite3_bind_text(file->insert, column, text, -1, SQLITE_STATIC);
}

static int db_row(struct form_file *file, const struct row *row, const char *device,
		  struct stack_text python, struct stack_text c, struct mscope_error *err)
{
	char text[24];
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
	if (row_has_address(row))
		(void)snprintf(text, sizeof(text), "0x%016llx", (unsigned long long)row->address);
	else
		memcpy(text, "N/A", 4);
	(void)sqlite3_bind_int64(file->insert, 1, (int64_t)row->id);
	bind_text(file, 2, row_event(row->kind));
	bind_text(file, 3, row_event_type(row));
	bind_text(file, 4, row->name == NULL ? "N/A" : row->name);
	(void)sqlite3_bind_int64(file->insert, 5, (int64_t)row->time_ns);
	(void)sqlite3_bind_int64(file->insert, 6, row->pid);
	(void)sqlite3_bind_int64(file->insert, 7, row->tid);
	bind_text(file, 8, device);
	bind_text(file, 9, text);
	(void)sqlite3_bind_text(file->insert, 10, strbuf_str(&file->attr), (int)file->attr.length,
				SQLITE_STATIC);
	(void)sqlite3_bind_text(file->insert, 11, python.text, (int)python.bytes, SQLITE_STATIC);
	(void)sqlite3_bind_text(file->insert, 12, c.text, (int)c.bytes, SQLITE_STATIC);
	r = sqlite3_step(file->insert);
	(void)sqlite3_reset(file->insert);
	if (r != SQLITE_DONE)
		return failed(file, err);
	return ++file->pending >= ROWS_PER_TRANSACTION ? db_flush(file, err) : 0;
}

static int calls_prepare(struct form_file *file, uint32_t pid, struct mscope_error *err)
{
	char sql[512];
	int r;

	(void)snprintf(sql, sizeof(sql),
		       "CREATE TABLE IF NOT EXISTS python_trace_%u (FuncInfo TEXT, "
		       "\"StartTime(ns)\" TEXT, \"EndTime(ns)\" TEXT, \"Thread Id\" INTEGER, "
		       "\"Process Id\" INTEGER)",
		       pid);
	r = run_sql(file, sql, err);
	if (r < 0)
		return r;
	(void)snprintf(sql, sizeof(sql), "INSERT INTO python_trace_%u VALUES (?,?,?,?,?)", pid);
	return sqlite3_prepare_v2(file->db, sql, -1, &file->insert_call, NULL) == SQLITE_OK
		       ? 0
		       : failed(file, err);
}

static int db_call(struct form_file *file, const struct sink_call *call, struct mscope_error *err)
{
	char start[24] = "N/A", end[24] = "N/A";
	int r = file->insert_call != NULL ? 0 : calls_prepare(file, call->pid, err);

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
	/* One file without a log beside it, that whoever copies it copies whole. */
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
	.name = "db",
	.extension = ".db",
	.one_stamp = true,
	.open = db_open,
	.row = db_row,
	.call = db_call,
	.flush = db_flush,
	.settle = db_settle,
	.close = db_close,
};
