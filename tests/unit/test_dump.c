/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Claims about dump/: headers and tables are those that MindStudio Insight reads; what is written of a kind, pool, page or device is
 * read as the same again; csv fields are quoted when they must be and not otherwise.
 */
#include "unit.h"

#include "dump/csv_text.h"
#include "dump/format.h"

static void tables_are_those_that_readers_know(void **state)
{
	struct strbuf sb = {0};

	(void)state;
	dump_csv_header(&dump_rows, &sb);
	assert_string_equal(strbuf_str(&sb),
			    "ID,Event,Event Type,Name,Timestamp(ns),Process Id,Thread Id,Device "
			    "Id,Ptr,Attr,Call Stack(Python),Call Stack(C)\n");
	strbuf_reset(&sb);
	dump_csv_header(&dump_calls, &sb);
	assert_string_equal(strbuf_str(&sb),
			    "FuncInfo,StartTime(ns),EndTime(ns),Thread Id,Process Id\n");
	strbuf_reset(&sb);
	dump_sql_create(&dump_rows, "memscope_dump", &sb);
	assert_string_equal(strbuf_str(&sb),
			    "CREATE TABLE IF NOT EXISTS memscope_dump (ID INTEGER, Event TEXT, "
			    "\"Event Type\" TEXT, Name TEXT, \"Timestamp(ns)\" INTEGER, \"Process "
			    "Id\" INTEGER, \"Thread Id\" INTEGER, \"Device Id\" TEXT, Ptr TEXT, "
			    "Attr TEXT, \"Call Stack(Python)\" TEXT, \"Call Stack(C)\" TEXT)");
	strbuf_reset(&sb);
	dump_sql_insert(&dump_calls, "python_trace_7", &sb);
	assert_string_equal(strbuf_str(&sb), "INSERT INTO python_trace_7 VALUES (?,?,?,?,?)");
	strbuf_fini(&sb);
}

static void every_kind_of_row_is_found_by_its_columns(void **state)
{
	enum row_kind kind;
	uint8_t pool, found;

	(void)state;
	for (kind = ROW_NONE + 1; kind < ROW_END; kind++) {
		for (pool = POOL_UNKNOWN + 1; pool < POOL_END; pool++) {
			assert_int_equal(
				row_parse(row_event(kind), row_event_type(kind, pool), &found),
				kind);
			if (kind == ROW_MALLOC || kind == ROW_FREE)
				assert_int_equal(found, pool);
			else
				assert_int_equal(found, POOL_UNKNOWN);
		}
	}
	/* Old files spell them so. */
	assert_int_equal(row_parse("SYSTEM", "acl init", &found), ROW_ACL_INIT);
	assert_int_equal(row_parse("mstx", "MARK", &found), ROW_MARK);
	assert_int_equal(row_parse("malloc", "host_pinned", &found), ROW_MALLOC);
	assert_int_equal(found, POOL_host_pinned);
	/* A block of a pool that nobody knows is a block. */
	assert_int_equal(row_parse("FREE", "NEW", &found), ROW_FREE);
	assert_int_equal(found, POOL_UNKNOWN);
	assert_int_equal(row_parse("FREED", "HAL", &found), ROW_NONE);
	assert_int_equal(row_parse("SYSTEM", "", &found), ROW_NONE);
	assert_int_equal(row_parse("", "", &found), ROW_NONE);
}

static void words_are_read_as_they_are_written(void **state)
{
	uint32_t device, again;
	char text[16];
	uint8_t i;

	(void)state;
	for (i = PAGE_UNKNOWN; i <= PAGE_GIANT; i++)
		assert_int_equal(page_parse(page_text(i)), i);
	assert_string_equal(page_text(200), "unknown");
	assert_int_equal(page_parse("large"), PAGE_UNKNOWN);
	assert_int_equal(page_parse(NULL), PAGE_UNKNOWN);
	for (i = BLOCK_ALLOC; i <= BLOCK_CREATE; i++)
		assert_int_equal(block_kind_parse(block_kind_text(i)), i);
	assert_string_equal(block_kind_text(BLOCK_HANDLE), "alloc");
	for (i = LAYER_ATEN; i <= LAYER_ATB; i++)
		assert_int_equal(layer_parse(layer_text(i)), i);
	assert_string_equal(layer_text(LAYER_ATB_KERNEL), "ATB");
	assert_int_equal(layer_parse(WORD_HOST), LAYER_ATEN);
	for (device = 0; device < 40; device++) {
		device_text(device < 38 ? device : UINT32_MAX - (device - 38), text);
		assert_true(device_parse(text, &again));
		assert_int_equal(again, device < 38 ? device : UINT32_MAX - (device - 38));
	}
	assert_true(device_parse("host", &again));
	assert_int_equal(again, DEVICE_HOST);
	assert_false(device_parse("9999", &again));
	assert_false(device_parse("gpu", &again));
}

static void keys_are_their_names(void **state)
{
	int key;

	(void)state;
	for (key = 0; key < ATTR_KEY_COUNT; key++)
		assert_true(attr_keys[key] != NULL && attr_keys[key][0] != '\0');
	assert_string_equal(attr_keys[ATTR_allocation_id], "allocation_id");
	assert_string_equal(attr_keys[ATTR_streamId], "streamId");
}

static void numbers_are_decimal_or_hexadecimal(void **state)
{
	static const struct {
		const char *text;
		bool good;
		uint64_t value;
	} cases[] = {
		{"0", true, 0},
		{"18446744073709551615", true, UINT64_MAX},
		{"18446744073709551616", false, 0},
		{"0x120000000000", true, 0x120000000000},
		{"0XfF", true, 255},
		{"-512", true, 512},
		{"", false, 0},
		{"-", false, 0},
		{"12 ", false, 0},
		{"x", false, 0},
		{"+1", false, 0},
	};
	uint64_t value;
	size_t i;

	(void)state;
	for (i = 0; i < MSCOPE_COUNT(cases); i++) {
		assert_int_equal(number_parse(cases[i].text, &value), cases[i].good);
		if (cases[i].good)
			assert_int_equal(value, cases[i].value);
	}
}

static void csv_fields_are_quoted_when_they_must_be(void **state)
{
	static const struct {
		const char *text, *field;
	} cases[] = {
		{"", ""},
		{"plain text: {a}", "plain text: {a}"},
		{"a,b", "\"a,b\""},
		{"\"", "\"\"\"\""},
		{"say \"it\" twice", "\"say \"\"it\"\" twice\""},
		{"line\nline", "\"line\nline\""},
		{"line\r", "\"line\r\""},
		{"\xe4\xb8\xad", "\xe4\xb8\xad"},
	};
	struct strbuf sb = {0};
	char text[64];
	size_t i;

	(void)state;
	for (i = 0; i < MSCOPE_COUNT(cases); i++) {
		strbuf_reset(&sb);
		csv_add_text(&sb, cases[i].text, strlen(cases[i].text));
		assert_string_equal(strbuf_str(&sb), cases[i].field);
	}
	strbuf_fini(&sb);
	*csv_put_quoted(text, "plain", 5) = '\0';
	assert_string_equal(text, "\"plain\"");
	*csv_put_doubled(text, "\"a\"b", 4) = '\0';
	assert_string_equal(text, "\"\"a\"\"b");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(tables_are_those_that_readers_know),
		cmocka_unit_test(every_kind_of_row_is_found_by_its_columns),
		cmocka_unit_test(words_are_read_as_they_are_written),
		cmocka_unit_test(keys_are_their_names),
		cmocka_unit_test(numbers_are_decimal_or_hexadecimal),
		cmocka_unit_test(csv_fields_are_quoted_when_they_must_be),
	};

	return cmocka_run_group_tests_name("dump", tests, NULL, NULL);
}
