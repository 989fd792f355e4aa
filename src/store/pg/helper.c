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
#include <sys/prctl.h>
#include <signal.h>
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

/* What failed: the server's own words and state, or those of the connection. */
static void say_result(PGresult *result)
{
	const char *state = result == NULL ? NULL : pq.PQresultErrorField(result, DIAG_SQLSTATE);
	const char *sentence = result == NULL ? NULL : pq.PQresultErrorField(result, 'M');

	if (state == NULL || strlen(state) != PG_STATE_BYTES)
		state = "08000";
	say_failed(state, sentence != NULL ? sentence : pq.PQerrorMessage(connection));
}

static void open_connection(const char *url)
{
	if (pq.PQfinish == NULL && !load()) {
		say_failed(PG_NO_LIBRARY, "PostgreSQL's client library libpq.so.5 is not installed "
					  "(Debian: apt install libpq5)");
		return;
	}
	pq.PQfinish(connection);
	connection = pq.PQconnectdb(url);
	if (pq.PQstatus(connection) != CONNECTION_OK) {
		say_failed("08001", pq.PQerrorMessage(connection));
		return;
	}
	pq.PQclear(pq.PQexec(connection,
			     "SET client_min_messages = error; SET client_encoding = 'UTF8'"));
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
	bool failed = false;

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
		(void)pq.PQsetSingleRowMode(connection);
	}
	while ((result = pq.PQgetResult(connection)) != NULL) {
		int status = pq.PQresultStatus(result);

		if (status == PGRES_SINGLE_TUPLE || status == PGRES_TUPLES_OK) {
			put_rows(result);
		} else if (status != PGRES_COMMAND_OK && !failed) {
			say_result(result);
			failed = true;
		}
		pq.PQclear(result);
	}
	if (!failed)
		say_done();
	free(values);
	free(types);
}

/* Whether COPY began; the rows that follow are dropped if not. */
static bool copying, copy_told;

static void copy_begin(const char *sql)
{
	PGresult *result = pq.PQexec(connection, sql);

	copying = pq.PQresultStatus(result) == PGRES_COPY_IN;
	copy_told = !copying;
	if (!copying)
		say_result(result);
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
	bool failed = copy_told;

	if (copying)
		(void)pq.PQputCopyEnd(connection, NULL);
	else if (!copy_told)
		say_result(NULL), failed = true;
	while ((result = pq.PQgetResult(connection)) != NULL) {
		if (pq.PQresultStatus(result) != PGRES_COMMAND_OK && !failed) {
			say_result(result);
			failed = true;
		}
		pq.PQclear(result);
	}
	if (!failed)
		say_done();
	copying = copy_told = false;
}

int main(void)
{
	struct pg_head head;
	char *frame = NULL;
	size_t room = 0;

	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
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
