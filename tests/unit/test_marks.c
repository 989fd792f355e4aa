/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Claims about collector/torch/marks.c: texts that the Python code of older tools sends are understood as they are meant, and
 * anything else stays a mark.
 */
#include "unit.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "collector/torch/marks.h"

#define ACCESS                                                                                     \
	"memscope-aten-ac:ptr=%s;is_write=%s;is_read=%s;is_output=False;name=torch._ops.aten.mul." \
	"Tensor;shape=torch.Size([2, 3]);dtype=torch.float32;tensor_size=%s;device=%s"

static bool is(struct text_span span, const char *text)
{
	return span.bytes == strlen(text) && memcmp(span.text, text, span.bytes) == 0;
}

static struct aten_mark parsed(const char *format, ...) MSCOPE_PRINTF(1, 2);

static struct aten_mark parsed(const char *format, ...)
{
	static char text[1024];
	struct aten_mark mark;
	va_list args;

	va_start(args, format);
	(void)vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	aten_mark_parse(text, &mark);
	return mark;
}

static void beginnings_and_ends_have_names(void **state)
{
	struct aten_mark mark = parsed("memscope-aten-b: name=torch._ops.aten.mul.Tensor");

	(void)state;
	assert_int_equal(mark.kind, ATEN_MARK_BEGIN);
	assert_true(is(mark.access.name, "torch._ops.aten.mul.Tensor"));
	mark = parsed("memscope-aten-e:name=x;more=1");
	assert_int_equal(mark.kind, ATEN_MARK_END);
	assert_true(is(mark.access.name, "x"));
}

static void an_access_has_all_its_parts(void **state)
{
	struct aten_mark mark = parsed(ACCESS, "4096", "False", "True", "24", "npu:3");

	(void)state;
	assert_int_equal(mark.kind, ATEN_MARK_ACCESS);
	assert_int_equal(mark.access.address, 4096);
	assert_int_equal(mark.access.size_bytes, 24);
	assert_int_equal(mark.access.kind, ACCESS_READ);
	assert_int_equal(mark.device, 3);
	assert_true(is(mark.access.name, "torch._ops.aten.mul.Tensor"));
	assert_true(is(mark.access.shape, "torch.Size([2, 3])"));
	assert_true(is(mark.access.dtype, "torch.float32"));
}

static void writing_wins_and_neither_is_unknown(void **state)
{
	(void)state;
	assert_int_equal(parsed(ACCESS, "1", "True", "True", "1", "npu:0").access.kind,
			 ACCESS_WRITE);
	assert_int_equal(parsed(ACCESS, "1", "True", "False", "1", "npu:0").access.kind,
			 ACCESS_WRITE);
	assert_int_equal(parsed(ACCESS, "1", "False", "False", "1", "npu:0").access.kind,
			 ACCESS_UNKNOWN);
}

static void numbers_have_the_base_that_they_are_written_in(void **state)
{
	(void)state;
	assert_int_equal(parsed(ACCESS, "0x1fF", "True", "True", "017", "cpu").access.address,
			 0x1ff);
	assert_int_equal(parsed(ACCESS, "0x1fF", "True", "True", "017", "cpu").access.size_bytes,
			 15);
	assert_int_equal(parsed(ACCESS, "0", "True", "True", "0", "cpu").access.address, 0);
	assert_true(
		parsed(ACCESS, "18446744073709551615", "True", "True", "1", "x").access.address ==
		UINT64_MAX);
}

static void what_lacks_a_part_stays_a_mark(void **state)
{
	static const char *const texts[] = {
		"",
		"memscope-aten",
		"memscope-aten-",
		"memscope-aten-x: name=a",
		"memscope-aten-b: name=",
		"memscope-aten-b: nam=a",
		"memscope-aten-b:xname=a",
		"memscope-aten-b",
		"memscope-aten-ac:name=a;ptr=1",
		"memscope-aten-ac:name=a;tensor_size=1",
		"memscope-aten-ac:ptr=1;tensor_size=1",
		" memscope-aten-b: name=a",
	};
	static const char *const numbers[] = {
		"", "x", "1x", " 1", "-1", "0x", "08", "0xfg", "18446744073709551616"};
	size_t i;

	(void)state;
	for (i = 0; i < MSCOPE_COUNT(texts); i++)
		assert_int_equal(parsed("%s", texts[i]).kind, ATEN_MARK_NONE);
	for (i = 0; i < MSCOPE_COUNT(numbers); i++) {
		assert_int_equal(parsed(ACCESS, numbers[i], "True", "True", "1", "npu:0").kind,
				 ATEN_MARK_NONE);
		assert_int_equal(parsed(ACCESS, "1", "True", "True", numbers[i], "npu:0").kind,
				 ATEN_MARK_NONE);
	}
}

static void a_device_that_is_no_number_is_not_said(void **state)
{
	static const char *const devices[] = {"npu", "npu:", "npu:x", "cpu", "npu:99999", ""};
	size_t i;

	(void)state;
	for (i = 0; i < MSCOPE_COUNT(devices); i++) {
		struct aten_mark mark = parsed(ACCESS, "1", "True", "True", "1", devices[i]);

		assert_int_equal(mark.kind, ATEN_MARK_ACCESS);
		assert_int_equal(mark.device, ATEN_DEVICE_NONE);
	}
}

static void a_key_counts_at_the_beginning_of_a_field(void **state)
{
	struct aten_mark mark = parsed("memscope-aten-ac:workspace_ptr=7;xname=b;{ptr=9;"
				       "tensor_size=2;name=a}rest;name=c");

	(void)state;
	assert_int_equal(mark.kind, ATEN_MARK_ACCESS);
	assert_int_equal(mark.access.address, 9);
	assert_true(is(mark.access.name, "a"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(beginnings_and_ends_have_names),
		cmocka_unit_test(an_access_has_all_its_parts),
		cmocka_unit_test(writing_wins_and_neither_is_unknown),
		cmocka_unit_test(numbers_have_the_base_that_they_are_written_in),
		cmocka_unit_test(what_lacks_a_part_stays_a_mark),
		cmocka_unit_test(a_device_that_is_no_number_is_not_said),
		cmocka_unit_test(a_key_counts_at_the_beginning_of_a_field),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
