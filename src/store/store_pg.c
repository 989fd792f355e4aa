/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A store on a server that speaks PostgreSQL's protocol. The command is static and cannot hold libpq, so a small program beside it,
 * msmemscope-pg, does: this file starts it and talks to it (pg_wire.h). Rows go in by COPY.
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "store/pg_wire.h"
#include "store/store.h"

#define ANSWER_MS   120000 /* a server that is silent for longer is unreachable */
#define PIECE_BYTES (1u << 20)

struct pg_store {
	struct store base;
	int fd; /* -1: the helper is gone */
	pid_t helper;
	uint64_t until_ns; /* see struct store_choice */
	char *in;	   /* read and not yet used: [at, end) */
	size_t at, end, room;
};

static int lost(struct pg_store *store, struct mscope_error *err, const char *why)
{
	if (store->fd >= 0)
		(void)close(store->fd);
	store->fd = -1;
	return error_set(err, -EAGAIN, "%s: %s", store->base.name, why);
}

/* States that another try may get past: no connection, conflicts with other writers, a server that starts or ends, or is full. */
static bool may_pass(const char *state)
{
	static const char *const states[] = {"08",    "40",    "53",	"57",	 "23505", "42701",
					     "42P07", "55P03", "XX000", "42710", "25006"};
	size_t i;

	for (i = 0; i < MSCOPE_COUNT(states); i++) {
		if (strncmp(state, states[i], strlen(states[i])) == 0)
			return true;
	}
	return false;
}

/* A sentence without what libpq adds in further lines. */
static int failed(struct pg_store *store, const char *frame, size_t bytes, struct mscope_error *err)
{
	const char *sentence = frame + PG_STATE_BYTES;
	size_t length = bytes < PG_STATE_BYTES ? 0 : bytes - PG_STATE_BYTES;
	bool passes = bytes >= PG_STATE_BYTES && may_pass(frame);

	if (memchr(sentence, '\n', length) != NULL)
		length = (size_t)((const char *)memchr(sentence, '\n', length) - sentence);
	/* A refused password will be refused again. */
	if (bytes >= PG_STATE_BYTES && memcmp(frame, "08001", 5) == 0 &&
	    (memmem(sentence, length, "authentication", 14) != NULL ||
	     memmem(sentence, length, "password", 8) != NULL ||
	     memmem(sentence, length, "does not exist", 14) != NULL))
		passes = false;
	return error_set(err, passes ? -EAGAIN : -EIO, "%s: %.*s", store->base.name, (int)length,
			 sentence);
}

/* ---- frames ---- */

/* Until the helper takes more or has said more. */
static int await(struct pg_store *store, short events, struct mscope_error *err)
{
	struct pollfd wait = {.fd = store->fd, .events = events};
	uint64_t now = clock_monotonic_ns();
	int limit_ms = ANSWER_MS, r;

	if (store->fd < 0)
		return lost(store, err, "the connection is lost");
	if (store->until_ns != 0 && store->until_ns < now + ANSWER_MS * UINT64_C(1000000))
		limit_ms = store->until_ns <= now ? 0 : (int)((store->until_ns - now) / 1000000);
	r = poll(&wait, 1, limit_ms);
	return r == 0 ? lost(store, err, "the server does not answer") : 0;
}

static int send_all(struct pg_store *store, const void *data, size_t bytes,
		    struct mscope_error *err)
{
	const char *at = data;

	if (store->fd < 0)
		return lost(store, err, "the connection is lost");
	while (bytes > 0) {
		int r = await(store, POLLOUT, err);
		ssize_t sent;

		if (r < 0)
			return r;
		sent = send(store->fd, at, bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
		if (sent < 0 && (errno == EINTR || errno == EAGAIN))
			continue;
		if (sent <= 0)
			return lost(store, err, "msmemscope-pg has ended");
		at += sent;
		bytes -= (size_t)sent;
	}
	return 0;
}

static int send_frame(struct pg_store *store, enum pg_frame kind, const void *data, size_t bytes,
		      struct mscope_error *err)
{
	struct pg_head head = {.kind = kind, .bytes = (uint32_t)bytes};
	int r = send_all(store, &head, sizeof(head), err);

	return r == 0 ? send_all(store, data, bytes, err) : r;
}

/* Makes `bytes` available at store->in + store->at. */
static int fill(struct pg_store *store, size_t bytes, struct mscope_error *err)
{
	if (store->at > 0 && store->room - store->at < bytes) {
		memmove(store->in, store->in + store->at, store->end - store->at);
		store->end -= store->at;
		store->at = 0;
	}
	if (store->room < bytes) {
		char *in = realloc(store->in, bytes + 65536);

		if (in == NULL)
			return error_set(err, -ENOMEM, "no memory");
		store->in = in;
		store->room = bytes + 65536;
	}
	while (store->end - store->at < bytes) {
		int r = await(store, POLLIN, err);
		ssize_t got;

		if (r < 0)
			return r;
		got = recv(store->fd, store->in + store->end, store->room - store->end, 0);
		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			return lost(store, err, "msmemscope-pg has ended");
		store->end += (size_t)got;
	}
	return 0;
}

/* Most numbers are a few digits, and there are millions of them. */
static struct store_value parse_number(char kind, const char *text, size_t length)
{
	struct store_value value = {.type = kind == PG_INT ? STORE_INT : STORE_REAL};
	bool negative = length > 0 && text[0] == '-';
	char number[64];
	uint64_t digits = 0;
	size_t i = negative;

	for (; i < length && i < 20 && text[i] >= '0' && text[i] <= '9'; i++)
		digits = digits * 10 + (uint64_t)(text[i] - '0');
	if (i == length) {
		value.number = (int64_t)(negative ? 0 - digits : digits);
		value.real = (double)value.number;
	} else {
		(void)snprintf(number, sizeof(number), "%.*s", (int)length, text);
		value.real = strtod(number, NULL);
		value.number = (int64_t)value.real;
	}
	return value;
}

static int parse_row(const char *at, const char *end, struct strbuf texts[],
		     struct store_value *values, size_t *out_count)
{
	size_t i;

	for (i = 0; at < end && i < STORE_COLUMNS_MAX; i++) {
		char kind = *at++;
		uint32_t length;

		if ((size_t)(end - at) < sizeof(length))
			return MSCOPE_E_DAMAGED;
		memcpy(&length, at, sizeof(length));
		at += sizeof(length);
		if ((size_t)(end - at) < length)
			return MSCOPE_E_DAMAGED;
		if (kind == PG_TEXT) {
			strbuf_reset(&texts[i]);
			store_text_decode(at, length, &texts[i]);
			values[i] = store_text(strbuf_str(&texts[i]), texts[i].length);
		} else if (kind == PG_NULL) {
			values[i] = (struct store_value){.type = STORE_NULL, .text = ""};
		} else {
			values[i] = parse_number(kind, at, length);
		}
		at += length;
	}
	*out_count = i;
	return 0;
}

/* Takes rows until the end of the answer. A callback that fails ends the hearing, not the answer. */
static int hear(struct pg_store *store, store_answer *answer, void *arg, struct mscope_error *err)
{
	struct strbuf texts[STORE_COLUMNS_MAX] = {0};
	struct store_value values[STORE_COLUMNS_MAX];
	struct pg_head head = {0};
	size_t count, i;
	int r = 0, heard = 0;

	while (r == 0 && head.kind != PG_DONE) {
		const char *frame;

		r = fill(store, sizeof(head), err);
		if (r < 0)
			break;
		memcpy(&head, store->in + store->at, sizeof(head));
		store->at += sizeof(head);
		if (head.bytes > PG_ROW_BYTES_MAX)
			r = lost(store, err, "unexpected answer of msmemscope-pg");
		if (r == 0)
			r = fill(store, head.bytes, err);
		if (r < 0)
			break;
		frame = store->in + store->at;
		store->at += head.bytes;
		if (head.kind == PG_FAILED) {
			r = failed(store, frame, head.bytes, err);
		} else if (head.kind == PG_ROW && answer != NULL && heard == 0) {
			heard = parse_row(frame, frame + head.bytes, texts, values, &count);
			if (heard == 0)
				heard = answer(arg, values, count);
		}
	}
	for (i = 0; i < STORE_COLUMNS_MAX; i++)
		strbuf_fini(&texts[i]);
	return r < 0 ? r : heard;
}

/* ---- operations ---- */

static void add_value(const struct store_value *value, struct strbuf *out)
{
	static const char kinds[] = {[STORE_INT] = PG_INT,
				     [STORE_REAL] = PG_REAL,
				     [STORE_TEXT] = PG_TEXT,
				     [STORE_NULL] = PG_NULL};
	struct strbuf text = {0};
	uint32_t length;

	if (value->type == STORE_INT)
		strbuf_add_i64(&text, value->number);
	else if (value->type == STORE_REAL)
		strbuf_addf(&text, "%.17g", value->real);
	else if (value->type == STORE_TEXT)
		store_text_encode(value->text, value->bytes, &text);
	length = (uint32_t)text.length;
	strbuf_add_char(out, kinds[value->type]);
	strbuf_add(out, &length, sizeof(length));
	strbuf_add(out, strbuf_str(&text), text.length);
	strbuf_add_char(out, '\0');
	strbuf_fini(&text);
}

static int query(struct store *base, const char *sql, const struct store_value *values,
		 size_t count, store_answer *answer, void *arg, struct mscope_error *err)
{
	struct pg_store *store = (struct pg_store *)base;
	struct strbuf frame = {0};
	uint32_t many = (uint32_t)count;
	size_t i;
	int r;

	strbuf_add(&frame, &many, sizeof(many));
	for (i = 0; i < count; i++)
		add_value(&values[i], &frame);
	strbuf_add_str(&frame, sql);
	r = strbuf_failed(&frame)
		    ? error_set(err, -ENOMEM, "no memory")
		    : send_frame(store, PG_QUERY, strbuf_str(&frame), frame.length, err);
	strbuf_fini(&frame);
	return r == 0 ? hear(store, answer, arg, err) : r;
}

static int copy(struct store *base, const struct store_rows *rows, enum store_table table,
		struct mscope_error *err)
{
	struct pg_store *store = (struct pg_store *)base;
	struct strbuf sql = {0}, data = {0};
	size_t at = 0;
	int r;

	strbuf_addf(&sql, "COPY %s (", store_schema(table)->name);
	store_sql_columns(table, &sql);
	strbuf_add_str(&sql, ") FROM STDIN");
	store_rows_copy(rows, table, &data);
	r = strbuf_failed(&data) || strbuf_failed(&sql)
		    ? error_set(err, -ENOMEM, "no memory")
		    : send_frame(store, PG_COPY, strbuf_str(&sql), sql.length, err);
	while (r == 0 && at < data.length) {
		size_t bytes = data.length - at < PIECE_BYTES ? data.length - at : PIECE_BYTES;

		r = send_frame(store, PG_DATA, data.data + at, bytes, err);
		at += bytes;
	}
	if (r == 0)
		r = send_frame(store, PG_END, "", 0, err);
	strbuf_fini(&sql);
	strbuf_fini(&data);
	return r == 0 ? hear(store, NULL, NULL, err) : r;
}

static void close_store(struct store *base)
{
	struct pg_store *store = (struct pg_store *)base;

	if (store->fd >= 0)
		(void)close(store->fd);
	/* It ends with its socket; one that waits for a server does not notice. */
	if (store->helper > 0) {
		struct timespec moment = {.tv_nsec = 10000000};
		int i;

		for (i = 0; i < 50 && waitpid(store->helper, NULL, WNOHANG) == 0; i++)
			(void)nanosleep(&moment, NULL);
		if (i == 50) {
			(void)kill(store->helper, SIGKILL);
			(void)waitpid(store->helper, NULL, 0);
		}
	}
	free(store->in);
	free(store);
}

static const struct store_ops ops = {
	.query = query,
	.copy = copy,
	.close = close_store,
	.begin = "BEGIN",
	.tail = "",
	.probe = "SELECT 1",
};

/* ---- open ---- */

static int start_helper(struct pg_store *store, const char *path, struct mscope_error *err)
{
	int ends[2];

	if (path == NULL || access(path, X_OK) < 0)
		return error_set(
			err, -ENOENT,
			"%s: %s, which connects to PostgreSQL, is missing; install all of msmemscope, or use sqlite:FILE",
			store->base.name, path == NULL ? "msmemscope-pg" : path);
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) < 0)
		return error_set(err, -errno, "cannot start %s: %s", path, strerror(errno));
	store->helper = fork();
	if (store->helper == 0) {
		sigset_t none;

		(void)sigemptyset(&none);
		(void)sigprocmask(SIG_SETMASK, &none, NULL);
		/* A program that is traced preloads us; the helper must not be. */
		(void)unsetenv("LD_PRELOAD");
		if (dup2(ends[1], STDIN_FILENO) >= 0)
			(void)execl(path, path, (char *)NULL);
		_exit(127);
	}
	(void)close(ends[1]);
	store->fd = ends[0];
	return store->helper < 0
		       ? error_set(err, -errno, "cannot start %s: %s", path, strerror(errno))
		       : 0;
}

/* The URL as it may be shown: without its parameters. */
static void name_store(struct pg_store *store, const char *url)
{
	(void)snprintf(store->base.name, sizeof(store->base.name), "%.*s", (int)strcspn(url, "?"),
		       url);
}

int store_pg_open(const struct store_choice *choice, struct store **out, struct mscope_error *err)
{
	struct pg_store *store = calloc(1, sizeof(*store));
	struct strbuf url = {0};
	int r;

	if (store == NULL)
		return error_set(err, -ENOMEM, "no memory");
	store->base.ops = &ops;
	store->fd = -1;
	store->until_ns = choice->until_ns;
	name_store(store, choice->url);
	strbuf_add_str(&url, choice->url);
	if (strstr(choice->url, "connect_timeout=") == NULL)
		strbuf_addf(&url, "%cconnect_timeout=10",
			    strchr(choice->url, '?') == NULL ? '?' : '&');
	r = start_helper(store, choice->helper, err);
	if (r == 0)
		r = send_frame(store, PG_OPEN, strbuf_str(&url), url.length, err);
	if (r == 0)
		r = hear(store, NULL, NULL, err);
	strbuf_fini(&url);
	if (r < 0) {
		close_store(&store->base);
		return r;
	}
	*out = &store->base;
	return 0;
}
