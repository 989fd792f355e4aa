/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The encodings are read back by decoders that follow the specification and nothing of ours; whole files are read by pyarrow and DuckDB
 * (tests/e2e/test_parquet.py).
 */
#include "unit.h"

#include <errno.h>

#include "parquet/parquet.h"
#include "parquet/parquet_dictionary.h"
#include "parquet/parquet_encode.h"
#include "parquet/parquet_thrift.h"

/* ---- memory that runs out ---- */

static long allocations_left = -1; /* -1: no limit */

static bool may_allocate(void)
{
	if (allocations_left > 0)
		allocations_left--;
	return allocations_left != 0;
}

void *__real_malloc(size_t bytes);
void *__real_calloc(size_t count, size_t bytes);
void *__real_realloc(void *old, size_t bytes);
void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes);
void *__wrap_realloc(void *old, size_t bytes);

void *__wrap_malloc(size_t bytes)
{
	return may_allocate() ? __real_malloc(bytes) : NULL;
}

void *__wrap_calloc(size_t count, size_t bytes)
{
	return may_allocate() ? __real_calloc(count, bytes) : NULL;
}

void *__wrap_realloc(void *old, size_t bytes)
{
	return may_allocate() ? __real_realloc(old, bytes) : NULL;
}

static uint64_t seed = 33;

static size_t random_below(size_t bound)
{
	return unit_random(&seed) % bound;
}

/* ---- decoders ---- */

struct reader {
	const uint8_t *at, *end;
};

static uint64_t get_varint(struct reader *in)
{
	uint64_t value = 0;
	unsigned int shift = 0;

	for (;; shift += 7) {
		assert_true(in->at < in->end && shift < 64);
		value |= (uint64_t)(*in->at & 0x7f) << shift;
		if (*in->at++ < 0x80)
			return value;
	}
}

static int64_t get_zigzag(struct reader *in)
{
	uint64_t value = get_varint(in);

	return (int64_t)(value >> 1 ^ -(value & 1));
}

/* Number `i` of those that lie at `at` with `width` bits each, bit by bit. */
static uint64_t get_bits(const struct reader *in, size_t i, unsigned int width)
{
	uint64_t value = 0;
	unsigned int k;

	for (k = 0; k < width; k++) {
		size_t bit = i * width + k;

		assert_true(in->at + bit / 8 < in->end);
		value |= (uint64_t)(in->at[bit / 8] >> bit % 8 & 1) << k;
	}
	return value;
}

static void check_hybrid(const uint32_t *values, size_t count, unsigned int width)
{
	struct strbuf out = {0};
	struct reader in;
	size_t found = 0, i;

	encode_hybrid(&out, values, count, width);
	assert_false(strbuf_failed(&out));
	in = (struct reader){(const uint8_t *)strbuf_str(&out),
			     (const uint8_t *)strbuf_str(&out) + out.length};
	while (found < count) {
		uint64_t run = get_varint(&in);

		if (run & 1) {
			for (i = 0; i < (run >> 1) * 8 && found < count; i++, found++)
				assert_int_equal(get_bits(&in, i, width), values[found]);
			in.at += (run >> 1) * width;
		} else {
			assert_true(run >> 1 > 0);
			for (i = 0; i < run >> 1; i++, found++) {
				assert_true(found < count);
				assert_int_equal(get_bits(&in, 0, width), values[found]);
			}
			in.at += (width + 7) / 8;
		}
	}
	assert_ptr_equal(in.at, in.end);
	strbuf_fini(&out);
}

static void check_delta(const int64_t *values, size_t count)
{
	struct strbuf out = {0};
	struct reader in;
	size_t found = 0, k, i;
	uint64_t before;

	encode_delta(&out, values, count);
	assert_false(strbuf_failed(&out));
	in = (struct reader){(const uint8_t *)strbuf_str(&out),
			     (const uint8_t *)strbuf_str(&out) + out.length};
	assert_int_equal(get_varint(&in), 128);
	assert_int_equal(get_varint(&in), 4);
	assert_int_equal(get_varint(&in), count);
	before = (uint64_t)get_zigzag(&in);
	if (count > 0)
		assert_int_equal(before, (uint64_t)values[found++]);
	while (found < count) {
		int64_t least = get_zigzag(&in);
		const uint8_t *widths = in.at;

		in.at += 4;
		for (k = 0; k < 4 && found < count; k++) {
			for (i = 0; i < 32 && found < count; i++) {
				before += (uint64_t)least + get_bits(&in, i, widths[k]);
				assert_int_equal(before, (uint64_t)values[found++]);
			}
			in.at += 4 * widths[k];
		}
	}
	assert_ptr_equal(in.at, in.end);
	strbuf_fini(&out);
}

/* ---- encodings ---- */

static void runs_and_single_numbers_come_back(void **state)
{
	static uint32_t values[5000];
	unsigned int width, round;
	size_t i;

	(void)state;
	for (width = 0; width <= 32; width++) {
		for (round = 0; round < 8; round++) {
			size_t count = 1 + random_below(MSCOPE_COUNT(values));
			uint32_t mask = width == 32 ? UINT32_MAX : (1u << width) - 1;

			for (i = 0; i < count;) {
				/* Runs of all lengths around the group of eight. */
				size_t run = 1 + random_below(round % 2 == 0 ? 3 : 30);
				uint32_t value = (uint32_t)unit_random(&seed) & mask;

				for (; run > 0 && i < count; run--)
					values[i++] = value;
			}
			check_hybrid(values, count, width);
		}
	}
}

static void differences_come_back_also_those_that_wrap_around(void **state)
{
	static int64_t values[1000];
	size_t count, i;
	int bits;

	(void)state;
	for (bits = 0; bits <= 64; bits++) {
		count = random_below(MSCOPE_COUNT(values));
		for (i = 0; i < count; i++)
			values[i] = bits == 0 ? 7 : (int64_t)unit_random(&seed) >> (64 - bits);
		check_delta(values, count);
	}
	for (count = 0; count < 300; count++) {
		for (i = 0; i < count; i++)
			values[i] = i % 2 == 0 ? INT64_MIN : INT64_MAX;
		check_delta(values, count);
	}
}

/* The examples of the specification: 1..5 has differences of 1; 7, 5, 3, 1, 2, 3, 4, 5 has the least one -2. */
static void examples_of_the_specification(void **state)
{
	static const int64_t rising[] = {1, 2, 3, 4, 5}, valley[] = {7, 5, 3, 1, 2, 3, 4, 5};
	static const uint32_t counting[] = {0, 1, 2, 3, 4, 5, 6, 7};
	static const uint8_t rising_bytes[] = {0x80, 1, 4, 5, 2, 2, 0, 0, 0, 0};
	static const uint8_t valley_bytes[] = {0x80, 1,	   4,	 8, 14, 3, 2, 0, 0,
					       0,    0xc0, 0x3f, 0, 0,	0, 0, 0, 0};
	static const uint8_t counting_bytes[] = {3, 0x88, 0xc6, 0xfa};
	struct strbuf out = {0};

	(void)state;
	encode_delta(&out, rising, MSCOPE_COUNT(rising));
	assert_int_equal(out.length, sizeof(rising_bytes));
	assert_memory_equal(out.data, rising_bytes, sizeof(rising_bytes));
	strbuf_reset(&out);
	encode_delta(&out, valley, MSCOPE_COUNT(valley));
	assert_int_equal(out.length, sizeof(valley_bytes));
	assert_memory_equal(out.data, valley_bytes, sizeof(valley_bytes));
	strbuf_reset(&out);
	encode_hybrid(&out, counting, MSCOPE_COUNT(counting), 3);
	assert_int_equal(out.length, sizeof(counting_bytes));
	assert_memory_equal(out.data, counting_bytes, sizeof(counting_bytes));
	strbuf_fini(&out);
}

static void a_dictionary_has_each_value_once(void **state)
{
	struct parquet_dictionary texts = {0}, numbers = {0};
	char text[32];
	size_t bytes;
	uint32_t i, k;

	(void)state;
	for (k = 0; k < 2; k++) {
		for (i = 0; i < 3000; i++) {
			int length = snprintf(text, sizeof(text), "text %u", i);

			assert_int_equal(dictionary_text(&texts, text, (size_t)length), i);
			assert_int_equal(dictionary_number(&numbers, (int64_t)i << 32), i);
		}
	}
	assert_int_equal(dictionary_text(&texts, "", 0), 3000);
	assert_string_equal(dictionary_get(&texts, 0, &bytes) - 4, "\x06");
	assert_int_equal(bytes, 6);
	/* What is not UTF-8 becomes U+FFFD, wherever it came from. */
	assert_int_equal(dictionary_text(&texts, "a\xff", 2), 3001);
	assert_int_equal(dictionary_text(&texts, "a\xef\xbf\xbd", 4), 3001);
	dictionary_reset(&texts);
	dictionary_reset(&numbers);
	assert_int_equal(dictionary_text(&texts, "text 2", 6), 0);
	assert_int_equal(dictionary_number(&numbers, 5), 0);
	dictionary_fini(&texts);
	dictionary_fini(&numbers);
}

/* ---- files ---- */

static const struct parquet_column columns[] = {
	{.name = "number", .type = PARQUET_NUMBER},
	{.name = "text", .type = PARQUET_TEXT},
	{.name = "maybe", .type = PARQUET_NUMBER, .optional = true},
	{.name = "note", .type = PARQUET_TEXT, .optional = true, .long_text = true},
};

struct target {
	struct strbuf bytes;
	size_t room; /* bytes that fit; 0: any number */
};

static int take(void *arg, const void *data, size_t bytes)
{
	struct target *target = arg;

	if (target->room > 0 && target->bytes.length + bytes > target->room)
		return -ENOSPC;
	strbuf_add(&target->bytes, data, bytes);
	return strbuf_failed(&target->bytes) ? -ENOMEM : 0;
}

static int put_row(struct parquet_writer *writer, uint32_t i)
{
	char text[64];
	int length = snprintf(text, sizeof(text), "note %u", i / 100);

	parquet_put_number(writer, 0, (int64_t)i * 1000);
	parquet_put_text(writer, 1, i % 2 == 0 ? "even" : "odd", i % 2 == 0 ? 4 : 3);
	if (i % 3 == 0)
		parquet_put_null(writer, 2);
	else
		parquet_put_number(writer, 2, -(int64_t)i);
	if (i % 5 == 0)
		parquet_put_null(writer, 3);
	else
		parquet_put_text(writer, 3, text, (size_t)length);
	return parquet_end_row(writer);
}

static int write_file(struct target *target, uint32_t rows, uint32_t group_rows)
{
	static const struct parquet_pair pair = {"key", "value"};
	struct parquet_writer *writer = NULL;
	int r = parquet_new(columns, MSCOPE_COUNT(columns), take, target, &writer);
	uint32_t i;

	for (i = 0; i < rows && r == 0; i++) {
		r = put_row(writer, i);
		if (r == 0 && parquet_rows(writer) == group_rows)
			r = parquet_end_group(writer);
	}
	if (r == 0)
		r = parquet_end_file(writer, &pair, 1);
	parquet_free(writer);
	return r;
}

/* The footer's length and both marks; what is in between is for pyarrow. */
static void check_frame(const struct strbuf *bytes)
{
	uint32_t footer;

	assert_true(bytes->length > 12);
	assert_memory_equal(bytes->data, "PAR1", 4);
	assert_memory_equal(bytes->data + bytes->length - 4, "PAR1", 4);
	memcpy(&footer, bytes->data + bytes->length - 8, sizeof(footer));
	assert_true(footer <= bytes->length - 12);
	assert_non_null(
		memmem(bytes->data + bytes->length - 8 - footer, footer, "key\x18\x05value", 10));
}

static void a_file_is_framed_whatever_its_rows(void **state)
{
	static const uint32_t rows[] = {
		0, 1, 255, 256, 257, PARQUET_PAGE_ROWS, PARQUET_PAGE_ROWS + 1, 100000};
	size_t i;

	(void)state;
	for (i = 0; i < MSCOPE_COUNT(rows); i++) {
		struct target target = {0}, again = {0};

		assert_int_equal(write_file(&target, rows[i], 50000), 0);
		check_frame(&target.bytes);
		assert_int_equal(write_file(&again, rows[i], 50000), 0);
		assert_int_equal(target.bytes.length, again.bytes.length);
		assert_memory_equal(target.bytes.data, again.bytes.data, again.bytes.length);
		strbuf_fini(&target.bytes);
		strbuf_fini(&again.bytes);
	}
}

static void a_full_disk_is_a_code_at_every_write(void **state)
{
	struct target whole = {0};
	size_t room;

	(void)state;
	assert_int_equal(write_file(&whole, 3000, 1000), 0);
	for (room = 1; room < whole.bytes.length; room += 97) {
		struct target target = {.room = room};

		assert_int_equal(write_file(&target, 3000, 1000), -ENOSPC);
		strbuf_fini(&target.bytes);
	}
	strbuf_fini(&whole.bytes);
}

static void running_out_of_memory_is_a_code(void **state)
{
	long n;
	int r = -ENOMEM;

	(void)state;
	for (n = 1; r != 0; n++) {
		struct target target = {0};

		allocations_left = n;
		r = write_file(&target, 3000, 1000);
		allocations_left = -1;
		if (r == 0)
			check_frame(&target.bytes);
		else
			assert_int_equal(r, -ENOMEM);
		strbuf_fini(&target.bytes);
	}
	assert_true(n > 50);
}

/* Texts that are all different, and long: neither the dictionary nor the pages grow beyond their bounds. */
static void memory_is_bounded_whatever_the_texts(void **state)
{
	struct target target = {0};
	struct parquet_writer *writer;
	static char text[4096];
	uint32_t i, groups = 0;
	size_t most = 0;

	(void)state;
	memset(text, 'x', sizeof(text));
	assert_int_equal(parquet_new(columns, MSCOPE_COUNT(columns), take, &target, &writer), 0);
	for (i = 0; i < 20000; i++) {
		int length = snprintf(text, 100, "%llx", (unsigned long long)unit_random(&seed));

		text[length] = 'x';
		parquet_put_number(writer, 0, (int64_t)unit_random(&seed));
		parquet_put_text(writer, 1, text, 100);
		parquet_put_null(writer, 2);
		parquet_put_text(writer, 3, text, sizeof(text));
		assert_int_equal(parquet_end_row(writer), 0);
		most = parquet_held(writer) > most ? parquet_held(writer) : most;
		if (parquet_held(writer) > 8u << 20 || parquet_wants_group(writer)) {
			assert_int_equal(parquet_end_group(writer), 0);
			groups++;
		}
	}
	assert_int_equal(parquet_end_file(writer, NULL, 0), 0);
	assert_true(groups > 0 && most < 16u << 20);
	parquet_free(writer);
	strbuf_fini(&target.bytes);
}

/* Also where the dictionary was given up in between. */
static void a_text_by_its_number_is_the_text(void **state)
{
	int by_number;
	struct strbuf found[2] = {0};

	(void)state;
	for (by_number = 0; by_number < 2; by_number++) {
		struct target target = {0};
		struct parquet_writer *writer;
		uint32_t i, entry = PARQUET_NO_ENTRY, last;
		char text[128];

		assert_int_equal(
			parquet_new(columns, MSCOPE_COUNT(columns), take, &target, &writer), 0);
		for (i = 0; i < 90000; i++) {
			int length = snprintf(text, sizeof(text), "text %u", i);

			parquet_put_number(writer, 0, i);
			if (i % 10 != 5)
				parquet_put_text(writer, 1, text, (size_t)length);
			else if (by_number)
				parquet_put_entry(writer, 1, entry);
			else
				parquet_put_text(writer, 1, "text 3", 6);
			last = parquet_last_entry(writer, 1);
			if (i == 3)
				entry = last;
			parquet_put_null(writer, 2);
			parquet_put_null(writer, 3);
			assert_int_equal(parquet_end_row(writer), 0);
		}
		assert_int_equal(parquet_last_entry(writer, 1), PARQUET_NO_ENTRY);
		assert_int_equal(parquet_end_file(writer, NULL, 0), 0);
		parquet_free(writer);
		found[by_number] = target.bytes;
	}
	assert_int_equal(found[0].length, found[1].length);
	assert_memory_equal(found[0].data, found[1].data, found[0].length);
	strbuf_fini(&found[0]);
	strbuf_fini(&found[1]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(runs_and_single_numbers_come_back),
		cmocka_unit_test(differences_come_back_also_those_that_wrap_around),
		cmocka_unit_test(examples_of_the_specification),
		cmocka_unit_test(a_dictionary_has_each_value_once),
		cmocka_unit_test(a_file_is_framed_whatever_its_rows),
		cmocka_unit_test(a_full_disk_is_a_code_at_every_write),
		cmocka_unit_test(running_out_of_memory_is_a_code),
		cmocka_unit_test(memory_is_bounded_whatever_the_texts),
		cmocka_unit_test(a_text_by_its_number_is_the_text),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
