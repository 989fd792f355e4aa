/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Claims about sink/: every form says where the Python trace goes; attributes of any row, whatever is in its texts, stay within the
 * room that was made for them and are read back as the same values from csv and from JSON; a csv file has the rows in their columns;
 * rows of the Python trace wait in a file.
 */
#include <errno.h>

#include "replay/figures.h"
#include "replay/ooms.h"
#include "unit.h"

#include "import/attr_reader.h"
#include "import/csv_reader.h"
#include "sink/attr_writer.h"
#include "sink/call_files.h"
#include "sink/sink.h"

static void every_form_says_where_the_python_trace_goes(void **state)
{
	uint32_t number;

	(void)state;
	for (number = 0; form_get(number) != NULL; number++) {
		const struct sink_form *form = form_get(number);

		assert_int_not_equal(form->calls, CALLS_UNDECIDED);
		assert_true((form->calls == CALLS_IN_FILE) == (form->call != NULL));
	}
	assert_true(number >= 2);
}

static void a_form_that_does_not_say_is_refused(void **state)
{
	struct sink_form form = *form_get(0);
	struct sink_config config = {.form = &form};
	struct mscope_error err = {0};
	struct sink *sink = NULL;

	(void)state;
	form.calls = CALLS_UNDECIDED;
	assert_int_equal(sink_open(&config, &sink, &err), -EINVAL);
	assert_non_null(strstr(err.message, "Python trace"));
	form.calls = CALLS_IN_FILE; /* and no function for it */
	assert_int_equal(sink_open(&config, &sink, &err), -EINVAL);
	assert_null(sink);
}

static const struct block block = {
	.address = 0x120000000000, .size_bytes = UINT64_MAX, .allocation_id = UINT64_MAX};

static const struct figures figures = {
	.reserved_bytes = UINT64_MAX - 1,
	.max_reserved_bytes = UINT64_MAX - 1,
	.allocated_bytes = 1,
	.max_allocated_bytes = UINT64_MAX - 1,
	.total_bytes = UINT64_MAX - 1,
	.free_bytes = 1,
};

static const struct oom oom = {
	.call = OOM_TORCH_CUDA, .requested_bytes = UINT64_MAX, .flag = UINT64_MAX};

/* A row with everything that a kind of row can have, its texts being `text`. */
static struct row full_row(enum row_kind kind, const struct context *context, const char *text)
{
	return (struct row){.kind = kind,
			    .id = 7,
			    .time_ns = UINT64_C(1700000000123456789),
			    .pid = 4242,
			    .tid = 4243,
			    .context = context,
			    .name = text,
			    .inefficient = 7,
			    .owner = text,
			    .block = &block,
			    .address = UINT64_MAX,
			    .used_bytes = 1,
			    .reserved_bytes = UINT64_MAX - 1,
			    .process_bytes = UINT64_MAX - 2,
			    .device_bytes = 3,
			    .total_bytes = 5,
			    .stream = UINT32_MAX,
			    .task = 0,
			    .layer = LAYER_ATB,
			    .path = text,
			    .workspace = 0x1234,
			    .size_bytes = 512,
			    .dtype = text,
			    .shape = text,
			    .format = text,
			    .figures = &figures,
			    .oom = &oom,
			    .block_pool = "PTA_WORKSPACE",
			    .block_ns = UINT64_MAX};
}

/* Takes the doubling of quotes back, as a csv reader does. */
static void undouble(struct strbuf *sb)
{
	size_t from, to = 0;

	for (from = 0; from < sb->length; from++) {
		sb->data[to++] = sb->data[from];
		from += sb->data[from] == '"';
	}
	sb->length = to;
}

static void attributes_mean_the_same_in_both_styles(void **state)
{
	static const char *const texts[] = {"",
					    "torch.Size([2, 3])",
					    "a,b:c,\"quoted\"",
					    "back\\slash",
					    "\xe4\xb8\xad\xe6\x96\x87",
					    "model@weight"};
	static const uint8_t pools[] = {POOL_hal, POOL_host_pinned, POOL_pta, POOL_host};
	size_t i, k;
	enum row_kind kind;
	int key;

	(void)state;
	for (kind = ROW_NONE + 1; kind < ROW_END; kind++) {
		for (i = 0; i < MSCOPE_COUNT(texts); i++) {
			for (k = 0; k < MSCOPE_COUNT(pools); k++) {
				struct context context = {.pool = pools[k], .page = PAGE_HUGE};
				struct row row = full_row(kind, &context, texts[i]);
				struct attr_values csv = {0}, json = {0};
				struct strbuf sb = {0};

				attr_add(&sb, ATTR_CSV, &row);
				undouble(&sb);
				assert_true(attr_parse(&csv, strbuf_str(&sb), sb.length));
				strbuf_reset(&sb);
				attr_add(&sb, ATTR_JSON, &row);
				assert_true(attr_parse(&json, strbuf_str(&sb), sb.length));
				for (key = 0; key < ATTR_KEY_COUNT; key++) {
					assert_int_equal(csv.value[key] == NULL,
							 json.value[key] == NULL);
					if (csv.value[key] != NULL)
						assert_string_equal(csv.value[key],
								    json.value[key]);
				}
				attr_fini(&csv);
				attr_fini(&json);
				strbuf_fini(&sb);
			}
		}
	}
}

static void attributes_stay_within_their_room(void **state)
{
	struct context context = {.pool = POOL_hal};
	enum row_kind kind;
	char text[2000];

	(void)state;
	memset(text, '\x01', sizeof(text) - 1); /* six bytes each in JSON */
	text[sizeof(text) - 1] = '\0';
	for (kind = ROW_NONE + 1; kind < ROW_END; kind++) {
		struct row row = full_row(kind, &context, text);
		char *room = malloc(attr_room(&row));

		assert_non_null(room);
		assert_true(attr_put_json(room, &row) <= room + attr_room(&row));
		assert_true(attr_put_csv(room, &row) <= room + attr_room(&row));
		free(room);
	}
}

static void csv_has_the_rows_in_their_columns(void **state)
{
	static const char name[] = "say \"it\", twice\nand again";
	const struct sink_form *form = form_get(0);
	struct context context = {.pool = POOL_pta, .device = 3};
	struct csv_reader reader;
	struct form_file *file;
	enum row_kind kind;
	int fd, column;

	(void)state;
	assert_int_equal(form->open(unit_path("rows.csv"), false, 0, &file, NULL), 0);
	for (kind = ROW_NONE + 1; kind < ROW_END; kind++) {
		struct row row = full_row(kind, &context, name);

		assert_int_equal(form->row(file, &row, "3", (struct stack_text){"a\nb\n", 4},
					   (struct stack_text){"", 0}, NULL),
				 0);
	}
	assert_int_equal(form->close(file, true, NULL), 0);
	fd = open(unit_path("rows.csv"), O_RDONLY | O_CLOEXEC);
	csv_init(&reader, fd);
	assert_int_equal(csv_next(&reader), 1);
	for (column = 0; column < COLUMN_COUNT; column++)
		assert_string_equal(reader.fields[column].text, dump_rows.columns[column].name);
	for (kind = ROW_NONE + 1; kind < ROW_END; kind++) {
		assert_int_equal(csv_next(&reader), 1);
		assert_int_equal(reader.fault, CSV_WHOLE);
		assert_int_equal(reader.field_count, COLUMN_COUNT);
		assert_string_equal(reader.fields[COLUMN_ID].text, "7");
		assert_string_equal(reader.fields[COLUMN_EVENT].text, row_event(kind));
		assert_string_equal(reader.fields[COLUMN_EVENT_TYPE].text,
				    row_event_type(kind, POOL_pta));
		assert_string_equal(reader.fields[COLUMN_NAME].text, name);
		assert_string_equal(reader.fields[COLUMN_TIME].text, "1700000000123456789");
		assert_string_equal(reader.fields[COLUMN_PID].text, "4242");
		assert_string_equal(reader.fields[COLUMN_TID].text, "4243");
		assert_string_equal(reader.fields[COLUMN_DEVICE].text, "3");
		assert_string_equal(reader.fields[COLUMN_PTR].text,
				    row_has_address(kind) ? "0xffffffffffffffff" : "N/A");
		assert_string_equal(reader.fields[COLUMN_PYTHON_STACK].text, "a\nb\n");
		assert_string_equal(reader.fields[COLUMN_C_STACK].text, "");
	}
	assert_int_equal(csv_next(&reader), 0);
	csv_fini(&reader);
	(void)close(fd);
}

static void calls_wait_in_a_file_once_there_are_many(void **state)
{
	struct sink_config config = {.form = form_get(0), .spool = unit_directory};
	struct sink_call call = {
		.text = "train.py(3): step", .start_ns = 5, .end_ns = 7, .pid = 1, .tid = 1};
	struct mscope_error err = {0};
	struct call_files *files;
	int spool = open("/dev/null", O_RDONLY);
	struct stat st;

	(void)state;
	(void)close(spool); /* the next file that is opened has its number */
	assert_int_equal(call_files_open(&config, NULL, &files, &err), 0);
	for (int i = 0; i < 100; i++)
		assert_int_equal(call_files_put(files, &call, 0, VENDOR_ASCEND, &err), 0);
	assert_int_equal(fstat(spool, &st), 0);
	assert_int_equal(st.st_size, 0);
	for (int i = 0; i < 10000; i++)
		assert_int_equal(call_files_put(files, &call, 0, VENDOR_ASCEND, &err), 0);
	assert_int_equal(fstat(spool, &st), 0);
	assert_true(st.st_size > 300000);
	assert_int_equal(call_files_close(files, false, &err), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_form_says_where_the_python_trace_goes),
		cmocka_unit_test(a_form_that_does_not_say_is_refused),
		cmocka_unit_test(attributes_mean_the_same_in_both_styles),
		cmocka_unit_test(attributes_stay_within_their_room),
		cmocka_unit_test(csv_has_the_rows_in_their_columns),
		cmocka_unit_test(calls_wait_in_a_file_once_there_are_many),
	};

	return cmocka_run_group_tests_name("sink", tests, unit_make_directory,
					   unit_remove_directory);
}
