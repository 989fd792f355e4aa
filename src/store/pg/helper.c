/* SPDX-License-Identifier: Apache-2.0 */
/*
 * msmemscope-pg: what the command needs of libpq, which a static program cannot hold. The command starts it with a socket as its
 * standard input, and says what is to be done by frames (store/pg_wire.h). The URL comes that way too, so `ps` never shows it;
 * passwords are libpq's own business ($PGPASSWORD, ~/.pgpass, services). It ends when the socket does.
 */
#include <dlfcn.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "store/pg_wire.h"

typedef struct pg_conn PGconn;
typedef struct pg_result PGresult;

static struct {
#define PQ(type, name, arguments) type(*name) arguments;
#include "store/pg/libpq.def"
#undef PQ
} pq;

/* Values of libpq's own enumerations, which never change. */
enum { CONNECTION_OK = 0 };
enum { PGRES_COMMAND_OK = 1, PGRES_TUPLES_OK = 2, PGRES_COPY_IN = 4, PGRES_SINGLE_TUPLE = 9 };
enum { DIAG_SQLSTATE = 'C' };
enum {
	OID_INT8 = 20,
	OID_INT2 = 21,
	OID_INT4 = 23,
	OID_TEXT = 25,
	OID_FLOAT8 = 701,
	OID_NUMERIC = 1700
};

#define MEMORY_MAX (UINT64_C(512) << 20)

static PGconn *connection;

/* ---- frames ---- */

static char *out_data;
static size_t out_bytes, out_room;

static void flush_out(void)
{
	size_t at = 0;

	while (at < out_bytes) {
		ssize_t wrote = write(STDIN_FILENO, out_data + at, out_bytes - at);

		if (wrote < 0 && errno == EINTR)
			continue;
		if (wrote <= 0)
			_exit(1); /* the command is gone */
		at += (size_t)wrote;
	}
	out_bytes = 0;
}

static void put(const void *data, size_t bytes)
{
	if (out_bytes + bytes > out_room) {
		out_room = (out_bytes + bytes) * 2 + 65536;
		out_data = realloc(out_data, out_room);
		if (out_data == NULL)
			_exit(1);
	}
	memcpy(out_data + out_bytes, data, bytes);
	out_bytes += bytes;
}

static void put_head(enum pg_frame kind, size_t bytes)
{
	struct pg_head head = {.kind = kind, .bytes = (uint32_t)bytes};

	put(&head, sizeof(head));
}

static void say_done(void)
{
	put_head(PG_DONE, 0);
	flush_out();
}

static void say_failed(const char *state, const char *sentence)
{
	size_t bytes = strlen(sentence);

	while (bytes > 0 && sentence[bytes - 1] == '\n')
		bytes--;
	put_head(PG_FAILED, PG_STATE_BYTES + bytes);
	put(state, PG_STATE_BYTES);
	put(sentence, bytes);
	flush_out();
}

static bool read_all(void *to, size_t bytes)
{
	char *at = to;

	while (bytes > 0) {
		ssize_t got = read(STDIN_FILENO, at, bytes);

		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			return false;
		at += got;
		bytes -= (size_t)got;
	}
	return true;
}

/* ---- libpq ---- */

static bool load(void)
{
	void *library = dlopen("libpq.so.5", RTLD_NOW);
	bool all = library != NULL;

#define PQ(type, name, arguments)                                                                  \
	if (all) {                                                                                 \
		*(void **)(void *)&pq.name = dlsym(library, #name);                                \
		all = pq.name != NULL;                                                             \
	}
#include "store/pg/libpq.def"
#undef PQ
	return all;
}

/* Rows and bytes of the answer that is being read. */
static uint64_t answer_rows, answer_bytes;

/*
 * The next part of an answer, NULL at its end or when the server sends more than any answer of ours has: then the connection is
 * closed, and `*out_excess` set.
 */
static PGresult *next_result(bool *out_excess)
{
	PGresult *result = pq.PQgetResult(connection);
	int rows = result == NULL ? 0 : pq.PQntuples(result), row, i;
	int columns = result == NULL ? 0 : pq.PQnfields(result);
	bool excess = columns > PG_COLUMNS_MAX;

	for (row = 0; row < rows && !excess; row++) {
		uint64_t bytes = 0;

		for (i = 0; i < columns; i++)
			bytes += 1 + sizeof(uint32_t) + (size_t)pq.PQgetlength(result, row, i);
		answer_rows++;
		answer_bytes += bytes;
		excess = bytes > PG_ROW_BYTES_MAX || answer_rows > PG_ANSWER_ROWS_MAX ||
			 answer_bytes > PG_ANSWER_BYTES_MAX;
	}
	if (!excess)
		return result;
	pq.PQclear(result);
	pq.PQfinish(connection);
	connection = NULL;
	*out_excess = true;
	return NULL;
}

static void begin_answer(void)
{
	answer_rows = answer_bytes = 0;
	(void)pq.PQsetSingleRowMode(connection);
}

static void say_excess(void)
{
	say_failed(PG_TOO_MUCH, "the server sends more than a store holds");
}

/* What failed: the server's own words and state, or those of the connection. */
static void say_result(PGresult *result)
{
	const char *state = result == NULL ? NULL : pq.PQresultErrorField(result, DIAG_SQLSTATE);
	const char *sentence = result == NULL ? NULL : pq.PQresultErrorField(result, 'M');

	if (state == NULL || strlen(state) != PG_STATE_BYTES)
		state = "08000";
	say_failed(state, sentence != NULL ? sentence : pq.PQerrorMessage(connection));
}

/* libpq would print it. */
static void drop_notice(void *arg, const char *text)
{
	(void)arg;
	(void)text;
}

static void open_connection(const char *url)
{
	PGresult *result;
	bool excess = false;

	if (pq.PQfinish == NULL && !load()) {
		say_failed(
			PG_NO_LIBRARY,
			"PostgreSQL's client library libpq.so.5 is not installed (Debian: apt install libpq5)");
		return;
	}
	pq.PQfinish(connection);
	connection = pq.PQconnectdb(url);
	if (pq.PQstatus(connection) != CONNECTION_OK) {
		say_failed("08001", pq.PQerrorMessage(connection));
		return;
	}
	(void)pq.PQsetNoticeProcessor(connection, drop_notice, NULL);
	if (pq.PQsendQuery(connection,
			   "SET client_min_messages = error; SET client_encoding = 'UTF8'"))
		begin_answer();
	while ((result = next_result(&excess)) != NULL)
		pq.PQclear(result);
	if (excess)
		say_excess();
	else
		say_done();
}

/* ---- statements ---- */

static char kind_of(unsigned int type)
{
	switch (type) {
	case OID_INT2:
	case OID_INT4:
	case OID_INT8:
		return PG_INT;
	case OID_FLOAT8:
	case OID_NUMERIC:
		return PG_REAL;
	default:
		return PG_TEXT;
	}
}

static void put_rows(PGresult *result)
{
	int rows = pq.PQntuples(result), columns = pq.PQnfields(result), row, i;

	for (row = 0; row < rows; row++) {
		size_t bytes = 0;

		for (i = 0; i < columns; i++)
			bytes += 1 + sizeof(uint32_t) + (size_t)pq.PQgetlength(result, row, i);
		put_head(PG_ROW, bytes);
		for (i = 0; i < columns; i++) {
			uint32_t length = (uint32_t)pq.PQgetlength(result, row, i);
			char kind = pq.PQgetisnull(result, row, i) ? (char)PG_NULL
								   : kind_of(pq.PQftype(result, i));

			put(&kind, 1);
			put(&length, sizeof(length));
			put(pq.PQgetvalue(result, row, i), length);
		}
		if (out_bytes > 1u << 18)
			flush_out();
	}
}

/* The frame: a count, then kind, length, text and NUL of each parameter, then the statement. */
static void query(char *frame)
{
	uint32_t count, i;
	const char **values;
	unsigned int *types;
	PGresult *result;
	bool failed = false, excess = false;

	memcpy(&count, frame, sizeof(count));
	frame += sizeof(count);
	values = calloc(count + 1, sizeof(*values));
	types = calloc(count + 1, sizeof(*types));
	if (values == NULL || types == NULL)
		_exit(1);
	for (i = 0; i < count; i++) {
		uint32_t length;
		char kind = *frame++;

		memcpy(&length, frame, sizeof(length));
		frame += sizeof(length);
		values[i] = kind == PG_NULL ? NULL : frame;
		types[i] = kind == PG_INT    ? OID_INT8
			   : kind == PG_REAL ? OID_FLOAT8
			   : kind == PG_TEXT ? OID_TEXT
					     : 0;
		frame += length + 1;
	}
	if (!pq.PQsendQueryParams(connection, frame, (int)count, types, values, NULL, NULL, 0)) {
		say_result(NULL);
		failed = true;
	} else {
		begin_answer();
	}
	while ((result = next_result(&excess)) != NULL) {
		int status = pq.PQresultStatus(result);

		if (status == PGRES_SINGLE_TUPLE || status == PGRES_TUPLES_OK) {
			put_rows(result);
		} else if (status != PGRES_COMMAND_OK && !failed) {
			say_result(result);
			failed = true;
		}
		pq.PQclear(result);
	}
	if (!failed && excess)
		say_excess();
	else if (!failed)
		say_done();
	free(values);
	free(types);
}

/* Whether COPY began; the rows that follow are dropped if not. */
static bool copying, copy_told;

static void copy_begin(const char *sql)
{
	bool excess = false;
	PGresult *result;

	if (pq.PQsendQuery(connection, sql))
		begin_answer();
	result = next_result(&excess);
	copying = result != NULL && pq.PQresultStatus(result) == PGRES_COPY_IN;
	copy_told = !copying;
	if (excess)
		say_excess();
	else if (!copying)
		say_result(result);
	/* An answer that begins a copy has no end before the rows. */
	while (!copying && result != NULL) {
		pq.PQclear(result);
		result = next_result(&excess);
	}
	pq.PQclear(result);
}

static void copy_data(const char *data, size_t bytes)
{
	if (copying && pq.PQputCopyData(connection, data, (int)bytes) != 1)
		copying = false;
}

static void copy_end(void)
{
	PGresult *result;
	bool failed = copy_told, excess = false;

	if (copying)
		(void)pq.PQputCopyEnd(connection, NULL);
	else if (!copy_told)
		say_result(NULL), failed = true;
	while ((result = next_result(&excess)) != NULL) {
		if (pq.PQresultStatus(result) != PGRES_COMMAND_OK && !failed) {
			say_result(result);
			failed = true;
		}
		pq.PQclear(result);
	}
	if (!failed && excess)
		say_excess();
	else if (!failed)
		say_done();
	copying = copy_told = false;
}

int main(void)
{
	struct pg_head head;
	char *frame = NULL;
	size_t room = 0;

	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	/* libpq keeps one row, and what a server says besides rows; a broken server could make that all of memory. */
	(void)setrlimit(RLIMIT_AS, &(struct rlimit){MEMORY_MAX, MEMORY_MAX});
	while (read_all(&head, sizeof(head))) {
		if (head.bytes >= room) {
			room = head.bytes + 4096u;
			free(frame);
			frame = malloc(room);
		}
		if (frame == NULL || !read_all(frame, head.bytes))
			return 1;
		frame[head.bytes] = '\0';
		if (head.kind == PG_OPEN)
			open_connection(frame);
		else if (connection == NULL)
			return 1;
		else if (head.kind == PG_QUERY)
			query(frame);
		else if (head.kind == PG_COPY)
			copy_begin(frame);
		else if (head.kind == PG_DATA)
			copy_data(frame, head.bytes);
		else if (head.kind == PG_END)
			copy_end();
	}
	return 0;
}
