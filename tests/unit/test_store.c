/* SPDX-License-Identifier: Apache-2.0 */
/* The store: rows as text and back, names of any bytes through an engine, what is refused. */
#include "unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "store/fleet.h"
#include "store/store.h"

static const struct {
	const char *text;
	size_t bytes;
} hostile[] = {
#define HOSTILE(literal)                                                                           \
	{                                                                                          \
		literal, sizeof(literal) - 1                                                       \
	}
	HOSTILE("plain"),
	HOSTILE(""),
	HOSTILE("it's \"quoted\"; DROP TABLE runs; --"),
	HOSTILE("a\0b\0"),
	HOSTILE("line\nfeed\ttab\rreturn"),
	HOSTILE("\\ \\N \\. \\x41 \\0 \\"),
	HOSTILE("\xff\xfe alone \xc3"),
	HOSTILE("\xe6\x97\xa5\xe6\x9c\xac"),
};

static const char *long_name(void)
{
	static char text[4097];

	memset(text, 'x', 4096);
	return text;
}

/* Rows of one process with this name. */
static void make(struct store_rows *rows, const char *text, size_t bytes)
{
	struct store_value null = {.type = STORE_NULL};

	store_rows_add(rows, STORE_runs,
		       (struct store_value[]){store_int(1), store_str("r"), store_str(""),
					      store_str(""), store_int(5)});
	store_rows_add(rows, STORE_processes,
		       (struct store_value[]){store_int(1), store_int(-2), null, store_str("host"),
					      store_int(3), store_str("0"), store_text(text, bytes),
					      store_str(""), store_str(""), store_int(0),
					      store_real(0.5), store_int(0), store_int(0),
					      store_str("ended"), store_str("ok"), store_int(0),
					      null, null});
}

static void texts_come_back_from_their_encoding(void **state)
{
	size_t i;

	(void)state;
	for (i = 0; i < MSCOPE_COUNT(hostile); i++) {
		struct strbuf encoded = {0}, decoded = {0};

		store_text_encode(hostile[i].text, hostile[i].bytes, &encoded);
		assert_null(memchr(strbuf_str(&encoded), '\0', encoded.length));
		store_text_decode(strbuf_str(&encoded), encoded.length, &decoded);
		assert_int_equal(decoded.length, hostile[i].bytes);
		assert_memory_equal(strbuf_str(&decoded), hostile[i].text, hostile[i].bytes);
		strbuf_fini(&encoded);
		strbuf_fini(&decoded);
	}
}

static void rows_come_back_from_a_file(void **state)
{
	size_t i;

	(void)state;
	for (i = 0; i < MSCOPE_COUNT(hostile); i++) {
		struct store_rows rows = {0}, again = {0};
		const struct store_value *name;
		struct strbuf text = {0};

		make(&rows, hostile[i].text, hostile[i].bytes);
		store_rows_write(&rows, &text);
		assert_int_equal(store_rows_read(&again, strbuf_str(&text), text.length, NULL), 0);
		name = store_rows_at(&again, STORE_processes, 0, 6);
		assert_int_equal(name->bytes, hostile[i].bytes);
		assert_memory_equal(name->text, hostile[i].text, hostile[i].bytes);
		assert_int_equal(store_rows_at(&again, STORE_processes, 0, 2)->type, STORE_NULL);
		store_rows_fini(&rows);
		store_rows_fini(&again);
		strbuf_fini(&text);
	}
}

/* A file that ends at any byte is refused, and nothing is read beyond it. */
static void a_cut_file_of_rows_is_refused(void **state)
{
	struct store_rows rows = {0};
	struct strbuf text = {0};
	size_t length;

	(void)state;
	make(&rows, "name", 4);
	store_rows_write(&rows, &text);
	for (length = 0; length < text.length; length++) {
		struct store_rows again = {0};
		char *cut = malloc(length + 1);

		assert_non_null(cut);
		memcpy(cut, text.data, length);
		assert_true(store_rows_read(&again, cut, length, NULL) < 0);
		store_rows_fini(&again);
		free(cut);
	}
	store_rows_fini(&rows);
	strbuf_fini(&text);
}

static int take_name(void *arg, const struct store_value *values, size_t count)
{
	struct strbuf *name = arg;

	assert_int_equal(count, 1);
	strbuf_add(name, values[0].text, values[0].bytes);
	return 0;
}

static void names_of_any_bytes_survive_an_engine(void **state)
{
	char path[] = "/tmp/test_store_XXXXXX", url[64];
	struct store_choice choice = {.url = url, .write = true};
	struct store *store = NULL;
	size_t i;

	(void)state;
	assert_non_null(mkdtemp(path));
	(void)snprintf(url, sizeof(url), "sqlite:%s/s.db", path);
	for (i = 0; i <= MSCOPE_COUNT(hostile); i++) {
		const char *text = i < MSCOPE_COUNT(hostile) ? hostile[i].text : long_name();
		size_t bytes = i < MSCOPE_COUNT(hostile) ? hostile[i].bytes : 4096;
		struct store_rows rows = {0};
		struct strbuf name = {0};

		make(&rows, text, bytes);
		assert_int_equal(store_write(&choice, &store, &rows, 0, NULL), 0);
		assert_int_equal(store_query(store, "SELECT name FROM processes", NULL, 0,
					     take_name, &name, NULL),
				 0);
		assert_int_equal(name.length, bytes);
		assert_memory_equal(strbuf_str(&name), text, bytes);
		store_rows_fini(&rows);
		strbuf_fini(&name);
	}
	store_close(store);
	(void)snprintf(url, sizeof(url), "%s/s.db", path);
	assert_int_equal(unlink(url), 0);
	assert_int_equal(rmdir(path), 0);
}

static void passwords_in_urls_are_refused(void **state)
{
	(void)state;
	assert_null(store_url_fault("sqlite:a.db"));
	assert_null(store_url_fault("rows:d"));
	assert_null(store_url_fault("postgresql://u@h:5432/d"));
	assert_null(store_url_fault("postgres:///d?host=/tmp&passfile=x"));
	assert_non_null(store_url_fault("postgresql://u:p@h/d"));
	assert_non_null(store_url_fault("postgresql://u:p@h1,h2/d"));
	assert_non_null(store_url_fault("postgresql:///d?a=b&PASSWORD=x"));
	assert_non_null(store_url_fault("sqlite:"));
	assert_non_null(store_url_fault("mysql://h/d"));
}

static void spread_is_robust(void **state)
{
	double values[] = {1, 2, 3, 4, 1000};
	struct fleet_spread spread = fleet_spread(values, 5);

	(void)state;
	assert_true(spread.median == 3 && spread.least == 1 && spread.most == 1000);
	assert_true(spread.spread > 1.48 && spread.spread < 1.49);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(texts_come_back_from_their_encoding),
		cmocka_unit_test(rows_come_back_from_a_file),
		cmocka_unit_test(a_cut_file_of_rows_is_refused),
		cmocka_unit_test(names_of_any_bytes_survive_an_engine),
		cmocka_unit_test(passwords_in_urls_are_refused),
		cmocka_unit_test(spread_is_robust),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
