/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Claims about the page's parts: a spool keeps what was written while it grows and is zero elsewhere; least and most of any span of
 * a line are those of a scan; the server answers who knows the token and asked for a loopback name, and nobody else.
 */
#include "unit.h"

#include <errno.h>
#include <sys/resource.h>

#include "base/strbuf.h"
#include "viewer/server.h"
#include "viewer/value_line.h"

#define TOKEN "0123456789abcdef0123456789abcdef"

/* ---- spool ---- */

static void spool_keeps_records_while_it_grows(void **state)
{
	uint64_t seed = 77, highest = 0, i;
	struct mscope_error err = {0};
	struct spool spool;
	uint64_t *record;

	(void)state;
	assert_int_equal(spool_init(&spool, unit_directory, 24, &err), 0);
	/* Records of 24 bytes do not fill pages: some lie across two steps of the mapping. */
	for (i = 0; i < 3000; i++) {
		uint64_t index = i * 1000 + unit_random(&seed) % 1000;

		record = spool_at(&spool, index);
		assert_non_null(record);
		record[0] = index + 1;
		record[2] = ~index;
		highest = index;
	}
	seed = 77;
	for (i = 0; i < 3000; i++) {
		uint64_t index = i * 1000 + unit_random(&seed) % 1000;

		record = spool_at(&spool, index);
		assert_int_equal(record[0], index + 1);
		assert_int_equal(record[1], 0);
		assert_int_equal(record[2], ~index);
	}
	assert_true(highest < spool.room);
	record = spool_at(&spool, highest + 1);
	assert_int_equal(record[0], 0);
	spool_fini(&spool);
	assert_null(spool.data);
}

static void spool_says_where_there_is_no_room(void **state)
{
	struct rlimit old, limit;
	struct mscope_error err = {0};
	struct spool spool, none = {0};

	(void)state;
	assert_null(spool_at(&none, 0));
	spool_fini(&none);
	assert_true(spool_init(&spool, "/nowhere/at/all", 16, &err) < 0);
	assert_non_null(strstr(err.message, "/nowhere/at/all"));
	spool_fini(&spool);

	/* A limit on the length of files ends the spool, not the process. */
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
	limit = old;
	limit.rlim_cur = 20u << 20;
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
	assert_int_equal(spool_init(&spool, unit_directory, 16, &err), 0);
	assert_non_null(spool_at(&spool, (20u << 20) / 16 - 1));
	assert_null(spool_at(&spool, (20u << 20) / 16));
	spool_fini(&spool);
	limit.rlim_cur = 1u << 20;
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
	assert_int_equal(spool_init(&spool, unit_directory, 16, &err), -EFBIG);
	spool_fini(&spool);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
}

/* ---- lines ---- */

static bool scan(const struct line *line, uint64_t from_ns, uint64_t to_ns, struct line_range *out)
{
	const struct line_point *points = (const void *)line->points.data;
	uint64_t begin = 0, i;

	*out = (struct line_range){UINT64_MAX, 0};
	for (i = 0; i < line->count; i++) {
		if (points[i].time_ns <= from_ns)
			begin = i;
	}
	for (i = begin; i < line->count && points[i].time_ns <= to_ns; i++) {
		out->least = points[i].bytes < out->least ? points[i].bytes : out->least;
		out->most = points[i].bytes > out->most ? points[i].bytes : out->most;
	}
	return i > begin;
}

static void line_range_is_that_of_a_scan(void **state)
{
	static const unsigned counts[] = {0, 1, 2, 15, 16, 17, 255, 256, 257, 4096, 5000};
	uint64_t seed = 4242;
	unsigned c, i;

	(void)state;
	for (c = 0; c < MSCOPE_COUNT(counts); c++) {
		struct mscope_error err = {0};
		struct line line = {0};
		uint64_t time = 1000;

		assert_int_equal(
			spool_init(&line.points, unit_directory, sizeof(struct line_point), &err),
			0);
		for (i = 0; i < counts[c]; i++) {
			/* Several at one time, and now and then one that comes late. */
			time += unit_random(&seed) % 3 == 0 ? 0 : unit_random(&seed) % 50;
			assert_int_equal(line_add(&line,
						  unit_random(&seed) % 20 == 0 ? time - 5 : time,
						  unit_random(&seed) % 1000000),
					 0);
		}
		for (i = 0; i < 3000; i++) {
			uint64_t from = 900 + unit_random(&seed) % (time - 800);
			uint64_t to = from + unit_random(&seed) % (i % 2 == 0 ? 100 : time);
			struct line_range got, wanted;

			assert_int_equal(line_range(&line, from, to, &got),
					 scan(&line, from, to, &wanted));
			if (!scan(&line, from, to, &wanted))
				continue;
			assert_int_equal(got.least, wanted.least);
			assert_int_equal(got.most, wanted.most);
		}
		line_fini(&line);
	}
}

/* ---- requests ---- */

/* The status that a request gets, and whether the reply has this text. */
static int status_of(const char *request, const char *text)
{
	struct viewed viewed = {.directory = unit_directory};
	struct server server = {.fd = -1, .token = TOKEN, .viewed = &viewed};
	struct strbuf out = {0};
	char *copy = strdup(request);
	int status = 0;

	server_reply(&server, copy, &out);
	assert_int_equal(sscanf(strbuf_str(&out), "HTTP/1.1 %d ", &status), 1);
	if (text != NULL)
		assert_non_null(strstr(strbuf_str(&out), text));
	assert_non_null(strstr(strbuf_str(&out), "Content-Security-Policy: default-src 'none'"));
	/* Nobody is told the token. */
	assert_null(strstr(strbuf_str(&out), TOKEN));
	free(copy);
	strbuf_fini(&out);
	viewed_fini(&viewed);
	return status;
}

#define HOST  "Host: 127.0.0.1:5\r\n"
#define KNOWN "X-Msmemscope-Token: " TOKEN "\r\n"

static void requests_are_answered_to_who_knows_the_token(void **state)
{
	(void)state;
	assert_int_equal(status_of("GET /?token=" TOKEN " HTTP/1.1\r\n" HOST "\r\n", "<html"), 200);
	assert_int_equal(
		status_of("GET /api/processes HTTP/1.1\r\n" HOST KNOWN "\r\n", "\"processes\":[]"),
		200);
	assert_int_equal(
		status_of("GET /api/processes HTTP/1.1\r\nhOST:localhost\r\n" KNOWN "\r\n", NULL),
		200);
	assert_int_equal(
		status_of("GET /api/series?process=0&from=x&width=%zz HTTP/1.1\r\n" HOST KNOWN
			  "\r\n",
			  "no such process"),
		200);
	assert_int_equal(status_of("GET /api/processes HTTP/1.1\r\n" HOST KNOWN
				   "Origin: http://localhost:99\r\n\r\n",
				   NULL),
			 200);
}

static void odd_requests_are_refused(void **state)
{
	static const struct {
		const char *request;
		int status;
	} odd[] = {
		{"", 405},
		{"G", 405},
		{"GET", 405},
		{"GET ", 405},
		{"GET /", 405},
		{"GET /\r\n\r\n", 405},
		{"GET /\r\nX: HTTP/1.1 \r\n\r\n", 405},
		{"POST / HTTP/1.1\r\n" HOST KNOWN "\r\n", 405},
		{"OPTIONS * HTTP/1.1\r\n" HOST KNOWN "\r\n", 405},
		{"GET http://127.0.0.1/ HTTP/1.1\r\n" HOST KNOWN "\r\n", 405},
		{"GET / HTTP/1.1\r\n\r\n", 403},
		{"GET / HTTP/1.1\r\n" KNOWN "\r\n", 403},
		{"GET / HTTP/1.1\r\n" HOST "\r\n", 403},
		{"GET /?x=1&token=" TOKEN " HTTP/1.1\r\n" HOST "\r\n", 403},
		{"GET /?token=" TOKEN "0 HTTP/1.1\r\n" HOST "\r\n", 403},
		{"GET /?token=0123456789abcdef0123456789abcdee HTTP/1.1\r\n" HOST "\r\n", 403},
		{"GET /?token= HTTP/1.1\r\n" HOST "\r\n", 403},
		{"GET / HTTP/1.1\r\nHost: evil.example\r\n" KNOWN "\r\n", 403},
		{"GET / HTTP/1.1\r\nHost: 127.0.0.1.evil.example\r\n" KNOWN "\r\n", 403},
		{"GET / HTTP/1.1\r\nHost: localhost:80evil\r\n" KNOWN "\r\n", 403},
		{"GET / HTTP/1.1\r\nHost: localhost@evil.example\r\n" KNOWN "\r\n", 403},
		{"GET / HTTP/1.1\r\nX-Host: localhost\r\n" KNOWN "\r\n", 403},
		{"GET / HTTP/1.1\r\nHost: evil.example\r\n" HOST KNOWN "\r\n", 403},
		{"GET / HTTP/1.1\r\n" HOST "Host: evil.example\r\n" KNOWN "\r\n", 403},
		{"GET / HTTP/1.1\r\n" HOST KNOWN "Origin: http://evil.example\r\n\r\n", 403},
		{"GET / HTTP/1.1\r\n" HOST KNOWN "Origin: null\r\n\r\n", 403},
		{"GET /api/ HTTP/1.1\r\n" HOST KNOWN "\r\n", 404},
		{"GET /api/nothing HTTP/1.1\r\n" HOST KNOWN "\r\n", 404},
		{"GET /api/../../etc/passwd HTTP/1.1\r\n" HOST KNOWN "\r\n", 404},
		{"GET /../../etc/passwd HTTP/1.1\r\n" HOST KNOWN "\r\n", 404},
		{"GET /%2e%2e/etc/passwd HTTP/1.1\r\n" HOST KNOWN "\r\n", 404},
		{"GET /index.html HTTP/1.1\r\n" HOST KNOWN "\r\n", 404},
	};
	size_t i;

	(void)state;
	for (i = 0; i < MSCOPE_COUNT(odd); i++) {
		if (status_of(odd[i].request, NULL) != odd[i].status)
			fail_msg("%s: %d", odd[i].request, status_of(odd[i].request, NULL));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(spool_keeps_records_while_it_grows),
		cmocka_unit_test(spool_says_where_there_is_no_room),
		cmocka_unit_test(line_range_is_that_of_a_scan),
		cmocka_unit_test(requests_are_answered_to_who_knows_the_token),
		cmocka_unit_test(odd_requests_are_refused),
	};

	return cmocka_run_group_tests_name("viewer", tests, unit_make_directory,
					   unit_remove_empty_directory);
}
