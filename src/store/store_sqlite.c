/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A store in one file, for writers of one machine: a write-ahead log lets readers in while one writes, and a writer that finds
 * another waits a random while and tries again.
 *
 * A store that is not there is made under a name that nobody knows, and gets its own when a process is in it, by a rename that
 * replaces nothing: a full disk leaves no half store, and of writers that make it at the same time one is first and the others add
 * to its store.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <sqlite3.h>

#include "store/store.h"

#define BUSY_TRIES 400 /* of 1 to 100 ms each: about 20 s */

struct sqlite_store {
	struct store base;
	sqlite3 *db;
	uint64_t random;
	char *part; /* of a hidden store: where it is */
	char *path;
};

static int failed(struct sqlite_store *store, struct mscope_error *err)
{
	int code = sqlite3_errcode(store->db);

	if (code == SQLITE_BUSY || code == SQLITE_LOCKED)
		return error_set(err, -EAGAIN, "%s is locked by another program", store->base.name);
	if (code == SQLITE_IOERR && sqlite3_system_errno(store->db) > 0)
		return error_set(err, -EIO, "%s: %s: %s", store->base.name,
				 sqlite3_errmsg(store->db),
				 strerror(sqlite3_system_errno(store->db)));
	return error_set(err, code == SQLITE_FULL ? -ENOSPC : -EIO, "%s: %s", store->base.name,
			 sqlite3_errmsg(store->db));
}

/* Called while another connection holds the lock: true tries again. */
static int on_busy(void *arg, int tries)
{
	struct sqlite_store *store = arg;
	uint64_t most_ms = tries < 7 ? 1u << tries : 100;
	struct timespec wait = {0};

	store->random = store->random * UINT64_C(6364136223846793005) + 1442695040888963407u;
	wait.tv_nsec = (long)(1 + (store->random >> 33) % most_ms) * 1000000;
	(void)nanosleep(&wait, NULL);
	return tries < BUSY_TRIES;
}

static void bind_text(sqlite3_stmt *statement, int at, const struct store_value *value)
{
	struct strbuf text = {0};

	store_text_encode(value->text, value->bytes, &text);
	(void)sqlite3_bind_text(statement, at, strbuf_str(&text), (int)text.length,
				SQLITE_TRANSIENT);
	strbuf_fini(&text);
}

static void bind(sqlite3_stmt *statement, int at, const struct store_value *value)
{
	if (value->type == STORE_INT)
		(void)sqlite3_bind_int64(statement, at, value->number);
	else if (value->type == STORE_REAL)
		(void)sqlite3_bind_double(statement, at, value->real);
	else if (value->type == STORE_TEXT)
		bind_text(statement, at, value);
	else
		(void)sqlite3_bind_null(statement, at);
}

/* $1 is a name to SQLite: a number of its own. */
static void bind_all(sqlite3_stmt *statement, const struct store_value *values, size_t count)
{
	char name[24];
	size_t i;

	for (i = 0; i < count; i++) {
		int at;

		(void)snprintf(name, sizeof(name), "$%zu", i + 1);
		at = sqlite3_bind_parameter_index(statement, name);
		if (at > 0)
			bind(statement, at, &values[i]);
	}
}

static int give_row(sqlite3_stmt *statement, struct strbuf texts[], store_answer *answer, void *arg)
{
	struct store_value values[STORE_COLUMNS_MAX];
	int count = sqlite3_column_count(statement), i;

	for (i = 0; i < count && i < STORE_COLUMNS_MAX; i++) {
		int type = sqlite3_column_type(statement, i);

		if (type == SQLITE_INTEGER) {
			values[i] = store_int(sqlite3_column_int64(statement, i));
			values[i].real = (double)values[i].number;
		} else if (type == SQLITE_FLOAT) {
			values[i] = store_real(sqlite3_column_double(statement, i));
			values[i].number = (int64_t)values[i].real;
		} else if (type == SQLITE_NULL) {
			values[i] = (struct store_value){.type = STORE_NULL, .text = ""};
		} else {
			strbuf_reset(&texts[i]);
			store_text_decode((const char *)sqlite3_column_text(statement, i),
					  (size_t)sqlite3_column_bytes(statement, i), &texts[i]);
			values[i] = store_text(strbuf_str(&texts[i]), texts[i].length);
		}
	}
	return answer(arg, values, (size_t)i);
}

static int query(struct store *base, const char *sql, const struct store_value *values,
		 size_t count, store_answer *answer, void *arg, struct mscope_error *err)
{
	struct sqlite_store *store = (struct sqlite_store *)base;
	struct strbuf texts[STORE_COLUMNS_MAX] = {0};
	sqlite3_stmt *statement = NULL;
	int r = 0, step = SQLITE_DONE;
	size_t i;

	if (sqlite3_prepare_v2(store->db, sql, -1, &statement, NULL) != SQLITE_OK)
		return failed(store, err);
	bind_all(statement, values, count);
	while (r == 0 && (step = sqlite3_step(statement)) == SQLITE_ROW) {
		if (answer != NULL)
			r = give_row(statement, texts, answer, arg);
	}
	if (r == 0 && step != SQLITE_DONE)
		r = failed(store, err);
	(void)sqlite3_finalize(statement);
	for (i = 0; i < STORE_COLUMNS_MAX; i++)
		strbuf_fini(&texts[i]);
	return r;
}

static int copy(struct store *base, const struct store_rows *rows, enum store_table table,
		struct mscope_error *err)
{
	struct sqlite_store *store = (struct sqlite_store *)base;
	size_t columns = store_schema(table)->column_count, row;
	sqlite3_stmt *statement = NULL;
	struct strbuf sql = {0};
	int r = 0;

	store_sql_insert(table, 1, false, &sql);
	if (sqlite3_prepare_v2(store->db, strbuf_str(&sql), -1, &statement, NULL) != SQLITE_OK)
		r = failed(store, err);
	for (row = 0; r == 0 && row < rows->tables[table].count; row++) {
		bind_all(statement, store_rows_at(rows, table, row, 0), columns);
		if (sqlite3_step(statement) != SQLITE_DONE || sqlite3_reset(statement) != SQLITE_OK)
			r = failed(store, err);
	}
	(void)sqlite3_finalize(statement);
	strbuf_fini(&sql);
	return r;
}

/* What SQLite keeps beside a file, too. */
static void remove_part(const char *part)
{
	static const char *const ends[] = {"", "-wal", "-shm", "-journal"};
	struct strbuf path = {0};
	size_t i;

	for (i = 0; i < MSCOPE_COUNT(ends); i++) {
		strbuf_reset(&path);
		strbuf_addf(&path, "%s%s", part, ends[i]);
		if (!strbuf_failed(&path))
			(void)unlink(strbuf_str(&path));
	}
	strbuf_fini(&path);
}

static void close_store(struct store *base)
{
	struct sqlite_store *store = (struct sqlite_store *)base;

	(void)sqlite3_close(store->db);
	if (store->part != NULL)
		remove_part(store->part);
	free(store->part);
	free(store->path);
	free(store);
}

/* A file of that name that came meanwhile stays; some file systems have links and not that kind of rename. */
static int rename_new(const char *part, const char *path)
{
	if (renameat2(AT_FDCWD, part, AT_FDCWD, path, RENAME_NOREPLACE) == 0)
		return 0;
	if (errno != EINVAL && errno != ENOSYS)
		return -errno;
	return link(part, path) < 0 ? -errno : 0;
}

static int show(struct store *base, struct mscope_error *err)
{
	struct sqlite_store *store = (struct sqlite_store *)base;
	int r;

	if (sqlite3_exec(store->db, "PRAGMA journal_mode=WAL", NULL, NULL, NULL) != SQLITE_OK)
		return failed(store, err);
	(void)sqlite3_close(store->db);
	store->db = NULL;
	r = rename_new(store->part, store->path);
	if (r == -EEXIST)
		return error_set(err, -EAGAIN, "%s: another writer made it meanwhile", base->name);
	return r < 0 ? error_set(err, r, "cannot make the store %s: %s", store->path, strerror(-r))
		     : 0;
}

static const struct store_ops ops = {
	.query = query,
	.copy = copy,
	.show = show,
	.close = close_store,
	.one_writer = true,
	.begin = "BEGIN IMMEDIATE",
	.tail = " WITHOUT ROWID",
	.probe = "SELECT count(*) FROM sqlite_master",
};

/* SQLite takes a file that is shorter than its header for an empty database, and writes over it. */
static bool is_another_file(const char *path)
{
	static const char magic[16] = "SQLite format 3";
	char head[sizeof(magic)];
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	ssize_t n = fd < 0 ? 0 : read(fd, head, sizeof(head));

	if (fd >= 0)
		(void)close(fd);
	return n > 0 && (n < (ssize_t)sizeof(head) || memcmp(head, magic, sizeof(head)) != 0);
}

/* Chooses where a store is made that is not there. */
static int hide(struct sqlite_store *store, const char *path, struct mscope_error *err)
{
	struct strbuf part = {0};
	struct stat st;
	int fd;

	if (lstat(path, &st) == 0 || errno != ENOENT)
		return 0;
	strbuf_addf(&part, "%s.XXXXXX", path);
	store->path = strdup(path);
	store->part = strbuf_failed(&part) ? NULL : strdup(strbuf_str(&part));
	strbuf_fini(&part);
	if (store->part == NULL || store->path == NULL)
		return error_set(err, -ENOMEM, "no memory");
	fd = mkostemp(store->part, O_CLOEXEC);
	if (fd < 0) {
		int r = -errno;

		free(store->part);
		store->part = NULL;
		return error_set(err, r, "cannot open the store %s: %s", path, strerror(-r));
	}
	(void)close(fd);
	store->base.hidden = true;
	return 0;
}

static int open_file(struct sqlite_store *store, const char *path, bool write,
		     struct mscope_error *err)
{
	const char *file = store->part != NULL ? store->part : path;
	/* A kill cannot tear what was handed to the kernel, and the trace can give its rows again. */
	const char *pragmas = store->part != NULL
				      ? "PRAGMA journal_mode=MEMORY; PRAGMA synchronous=OFF"
				      : "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL";
	int flags = SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_READWRITE | (write ? SQLITE_OPEN_CREATE : 0);

	if (sqlite3_open_v2(file, &store->db, flags, NULL) != SQLITE_OK) {
		if (!write && access(path, F_OK) < 0)
			return error_set(
				err, -ENOENT,
				"no store %s; give one with --store=URL or $MSMEMSCOPE_STORE",
				path);
		return error_set(err, -EIO, "cannot open the store %s: %s", path,
				 store->db != NULL ? sqlite3_errmsg(store->db) : "no memory");
	}
	(void)sqlite3_busy_handler(store->db, on_busy, store);
	return write && sqlite3_exec(store->db, pragmas, NULL, NULL, NULL) != SQLITE_OK
		       ? failed(store, err)
		       : 0;
}

int store_sqlite_open(const struct store_choice *choice, struct store **out,
		      struct mscope_error *err)
{
	const char *path = choice->url + strlen("sqlite:");
	struct sqlite_store *store = calloc(1, sizeof(*store));
	struct timespec now = {0};
	mode_t mask;
	int r = 0;

	if (store == NULL)
		return error_set(err, -ENOMEM, "no memory");
	store->base.ops = &ops;
	(void)snprintf(store->base.name, sizeof(store->base.name), "%s", choice->url);
	(void)clock_gettime(CLOCK_MONOTONIC, &now);
	store->random = (uint64_t)now.tv_nsec ^ (uint64_t)(uintptr_t)store;
	mask = umask(0077);
	if (is_another_file(path))
		r = error_set(err, MSCOPE_E_USAGE, "%s is another file, no store", path);
	if (r == 0 && choice->write)
		r = hide(store, path, err);
	if (r == 0)
		r = open_file(store, path, choice->write, err);
	(void)umask(mask);
	*out = &store->base;
	if (r < 0) {
		close_store(&store->base);
		*out = NULL;
	}
	return r;
}
