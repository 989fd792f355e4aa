/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Claims about replay/python_calls.c: records of entering and leaving become slices that nest, whatever is missing; what is open when tracing,
 * the thread or the trace ends is told as such; ranges end by their name.
 */
#include "unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "replay/python_calls.h"
#include "trace/context.h"

struct play {
	struct python_calls calls;
	struct texts texts;
	struct codes codes;
	struct strbuf out; /* a line per row */
};

static int on_row(void *arg, const struct call_row *row)
{
	struct play *p = arg;

	strbuf_addf(&p->out, "%s%s %llu-%llu\n", row->prefix, row->text,
		    (unsigned long long)row->start_ns, (unsigned long long)row->end_ns);
	return 0;
}

static int begin(void **state)
{
	static const char *const names[] = {"f", "g", "h"};
	struct play *p = calloc(1, sizeof(*p));
	uint32_t i;

	if (p == NULL)
		return -1;
	p->calls = (struct python_calls){
		.texts = &p->texts, .codes = &p->codes, .row = on_row, .row_arg = p};
	for (i = 0; i < MSCOPE_COUNT(names); i++) {
		struct code code = {.minor = 11,
				    .first_line = 10 * (i + 1),
				    .file = (const uint8_t *)"a.py",
				    .file_bytes = 4,
				    .name = (const uint8_t *)names[i],
				    .name_bytes = 1};
		uint32_t index;

		assert_int_equal(codes_intern(&p->codes, &code, &index), 0);
		assert_int_equal(index, i);
	}
	strbuf_add(&p->texts.bytes, "len\0range\0other\0nn.Module: Net", 31);
	*state = p;
	return 0;
}

static int end(void **state)
{
	struct play *p = *state;

	python_calls_reset(&p->calls);
	codes_fini(&p->codes);
	strbuf_fini(&p->texts.bytes);
	strbuf_fini(&p->out);
	free(p);
	return 0;
}

enum code_number { F = 1, G = 2, H = 3 };
enum text_offset { LEN = 1, RANGE = 5, OTHER = 11, MODULE = 17 };

static void take(struct play *p, uint64_t time_ns, uint32_t kind, uint32_t what, uint32_t text)
{
	struct event_call call = {.what = what, .at = UINT32_MAX, .kind = kind};
	uint64_t words[EVENT_BYTES_call / 8];
	struct trace_event event = {
		.type = EVENT_call, .writer = 1, .tid = 7, .time_ns = time_ns, .words = words};

	if (kind == CALL_MODULE_ENTER)
		call.at = what;
	event_call_encode(words, &call);
	assert_int_equal(python_calls_take(&p->calls, &event, text, what <= H ? what : 0), 0);
}

static void assert_rows(struct play *p, const char *rows)
{
	assert_string_equal(strbuf_str(&p->out), rows);
	strbuf_reset(&p->out);
}

static void slices_end_inner_ones_first(void **state)
{
	struct play *p = *state;

	take(p, 1, CALL_ENTER, F, 0);
	take(p, 2, CALL_C_ENTER, 0, LEN);
	take(p, 3, CALL_C_LEAVE, 0, 0);
	take(p, 4, CALL_ENTER, G, 0);
	take(p, 5, CALL_LEAVE, G, 0);
	take(p, 6, CALL_LEAVE, F, 0);
	assert_rows(p, "len 2-3\na.py(10): f 2-3\na.py(20): g 4-5\na.py(10): f 1-6\n");
}

static void recursion_ends_the_innermost(void **state)
{
	struct play *p = *state;
	uint32_t i;

	for (i = 0; i < 3; i++)
		take(p, 1 + i, CALL_ENTER, F, 0);
	for (i = 0; i < 3; i++)
		take(p, 11 + i, CALL_LEAVE, F, 0);
	assert_rows(p, "a.py(10): f 3-11\na.py(10): f 2-12\na.py(10): f 1-13\n");
}

static void leaving_what_was_not_entered_changes_nothing(void **state)
{
	struct play *p = *state;

	take(p, 1, CALL_LEAVE, F, 0);
	take(p, 2, CALL_C_LEAVE, 0, 0);
	take(p, 3, CALL_ENTER, G, 0);
	take(p, 4, CALL_C_LEAVE, 0, 0);
	take(p, 5, CALL_LEAVE, F, 0);
	take(p, 6, CALL_LEAVE, 99, 0);
	take(p, 7, CALL_LEAVE, G, 0);
	assert_rows(p, "a.py(20): g 3-7\n");
}

static void c_function_that_never_left_ends_with_its_caller(void **state)
{
	struct play *p = *state;

	take(p, 1, CALL_ENTER, F, 0);
	take(p, 2, CALL_C_ENTER, 0, LEN);
	take(p, 3, CALL_LEAVE, F, 0);
	assert_rows(p, "len 2-3\na.py(10): f 2-3\na.py(10): f 1-3\n");
}

static void functions_that_take_turns_end_by_themselves(void **state)
{
	struct play *p = *state;

	take(p, 1, CALL_ENTER, F, 0);
	take(p, 2, CALL_ENTER, G, 0);
	take(p, 3, CALL_LEAVE, F, 0);
	take(p, 4, CALL_LEAVE, G, 0);
	assert_rows(p, "a.py(10): f 1-3\na.py(20): g 2-4\n");
}

static void what_is_open_at_start_and_stop_is_marked(void **state)
{
	struct play *p = *state;

	take(p, 1, CALL_STOP, 0, 0);
	take(p, 2, CALL_OPEN_AT_START, F, 0);
	take(p, 3, CALL_OPEN_AT_START, G, 0);
	take(p, 4, CALL_ENTER, H, 0);
	take(p, 5, CALL_LEAVE, H, 0);
	take(p, 6, CALL_LEAVE, G, 0);
	assert_rows(p, "a.py(30): h 4-5\nstart: a.py(20): g 3-6\n");
	take(p, 7, CALL_ENTER, H, 0);
	take(p, 8, CALL_C_ENTER, 0, LEN);
	take(p, 9, CALL_STOP, 0, 0);
	assert_rows(p, "len 8-0\na.py(30): h 8-0\na.py(30): h 7-0\nstart: a.py(10): f 2-0\n"
		       "stop: a.py(30): h 0-9\nstop: a.py(10): f 0-9\n");
	take(p, 10, CALL_LEAVE, F, 0);
	assert_rows(p, "");
}

static void modules_are_shown_by_their_class(void **state)
{
	struct play *p = *state;

	take(p, 1, CALL_MODULE_ENTER, F, MODULE);
	take(p, 2, CALL_C_ENTER, 0, LEN);
	take(p, 3, CALL_C_LEAVE, 0, 0);
	take(p, 4, CALL_LEAVE, F, 0);
	assert_rows(p, "len 2-3\na.py(10): f 2-3\nnn.Module: Net 1-4\n");
}

static void ranges_end_by_their_name_and_need_no_calls(void **state)
{
	struct play *p = *state;

	take(p, 1, CALL_RANGE_BEGIN, 0, RANGE);
	take(p, 2, CALL_RANGE_BEGIN, 0, OTHER);
	take(p, 3, CALL_RANGE_BEGIN, 0, RANGE);
	take(p, 4, CALL_STOP, 0, 0);
	take(p, 5, CALL_RANGE_END, 0, OTHER);
	take(p, 6, CALL_RANGE_END, 0, RANGE);
	take(p, 7, CALL_RANGE_END, 0, OTHER);
	assert_rows(p, "other 2-5\nrange 3-6\n");
	assert_int_equal(python_calls_end(&p->calls), 0);
	assert_rows(p, "range 1-0\n");
}

static void thread_that_ends_leaves_what_is_open_without_an_end(void **state)
{
	struct play *p = *state;

	take(p, 1, CALL_ENTER, F, 0);
	take(p, 2, CALL_ENTER, 99, 0);
	assert_int_equal(python_calls_end_thread(&p->calls, 1), 0);
	assert_rows(p, "unknown 2-0\na.py(10): f 1-0\n");
	assert_int_equal(python_calls_end_thread(&p->calls, 1), 0);
	assert_int_equal(python_calls_end_thread(&p->calls, 60000), 0);
	assert_int_equal(python_calls_end(&p->calls), 0);
	assert_rows(p, "");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(slices_end_inner_ones_first),
		TEST(recursion_ends_the_innermost),
		TEST(leaving_what_was_not_entered_changes_nothing),
		TEST(c_function_that_never_left_ends_with_its_caller),
		TEST(functions_that_take_turns_end_by_themselves),
		TEST(what_is_open_at_start_and_stop_is_marked),
		TEST(modules_are_shown_by_their_class),
		TEST(ranges_end_by_their_name_and_need_no_calls),
		TEST(thread_that_ends_leaves_what_is_open_without_an_end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
