/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Claims about base/: what grows keeps its contents, also when memory runs out while it grows; the map agrees with a model
 * that cannot be wrong; numbers come out as printf would write them; every status has words; a log loses no line.
 *
 * The sources are included here, instead of linked, so that their allocations go through functions that fail on demand.
 */
#include "unit.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/digits.h"
#include "base/hash.h"
#include "base/io.h"
#include "base/json.h"
#include "base/log.h"
#include "base/nearest.h"
#include "base/shown.h"

static bool out_of_memory;

static void *calloc_or_fail(size_t count, size_t size)
{
	return out_of_memory ? NULL : calloc(count, size);
}

static void *realloc_or_fail(void *old, size_t size)
{
	return out_of_memory ? NULL : realloc(old, size);
}

#define calloc	calloc_or_fail
#define realloc realloc_or_fail
#include "base/array.c"
#include "base/index.c"
#include "base/map.c"
#include "base/status.c"
#include "base/strbuf.c"
#undef calloc
#undef realloc

static int restore_memory(void **state)
{
	(void)state;
	out_of_memory = false;
	return 0;
}

/* array */

static void array_keeps_elements_while_it_grows(void **state)
{
	uint32_t *numbers = NULL;
	size_t count, room = 0, moves = 0;

	(void)state;
	for (count = 0; count < 10000; count++) {
		size_t before = room;

		assert_int_equal(array_reserve(&numbers, &room, count + 1, sizeof(*numbers)), 0);
		assert_true(room > count);
		moves += room != before;
		numbers[count] = (uint32_t)count * 7;
	}
	while (count-- > 0)
		assert_int_equal(numbers[count], count * 7);
	/* Doubling from 8 to 16384: growing by a constant would move a hundred times more often. */
	assert_int_equal(moves, 12);
	free(numbers);
}

static void array_makes_room_for_a_large_request_at_once(void **state)
{
	uint64_t *numbers = NULL;
	uint64_t *before;
	size_t room = 0;

	(void)state;
	assert_int_equal(array_reserve(&numbers, &room, 1000, sizeof(*numbers)), 0);
	assert_true(room >= 1000);
	before = numbers;
	assert_int_equal(array_reserve(&numbers, &room, room, sizeof(*numbers)), 0);
	assert_ptr_equal(numbers, before);
	free(numbers);
}

static void array_loses_nothing_when_memory_runs_out(void **state)
{
	uint64_t *numbers = NULL;
	uint64_t *before;
	size_t room = 0, room_before;

	(void)state;
	assert_int_equal(array_reserve(&numbers, &room, 1, sizeof(*numbers)), 0);
	numbers[0] = 42;
	before = numbers;
	room_before = room;

	/* More bytes than a size_t can count, and more elements than doubling can reach. */
	assert_int_equal(array_reserve(&numbers, &room, SIZE_MAX / 8 + 1, sizeof(*numbers)),
			 -ENOMEM);
	assert_int_equal(array_reserve(&numbers, &room, SIZE_MAX, sizeof(*numbers)), -ENOMEM);
	out_of_memory = true;
	assert_int_equal(array_reserve(&numbers, &room, room + 1, sizeof(*numbers)), -ENOMEM);

	assert_ptr_equal(numbers, before);
	assert_int_equal(room, room_before);
	assert_int_equal(numbers[0], 42);
	free(numbers);
}

/* index */

#define INDEXED 5000u

/* Elements that share a hash are all found, others never are where nothing else has their hash. */
static void index_finds_every_element_of_a_hash(void **state)
{
	struct index index = {0};
	uint32_t i, found[INDEXED / 3 + 1];

	(void)state;
	memset(found, 0, sizeof(found));
	for (i = 0; i < INDEXED; i++)
		assert_int_equal(index_add(&index, (uint64_t)(i / 3) << 20, i), 0);
	assert_int_equal(index.count, INDEXED);
	assert_true(index.count * 8 <= (index.mask + 1) * 7);
	for (i = 0; i <= INDEXED / 3; i++) {
		struct index_search search = index_search((uint64_t)i << 20);
		uint32_t element;

		while (index_next(&index, &search, &element)) {
			assert_true(element < INDEXED);
			found[i] += element / 3 == i;
		}
		assert_int_equal(found[i], i < INDEXED / 3 ? 3 : INDEXED % 3);
	}
	index_fini(&index);
	assert_int_equal(index_add(&index, 0, UINT32_MAX), -ENOMEM);
}

static void index_is_unchanged_when_memory_runs_out(void **state)
{
	struct index index = {0};
	struct index_search search = index_search(7);
	uint32_t i, element;

	(void)state;
	assert_false(index_next(&index, &search, &element));
	out_of_memory = true;
	assert_int_equal(index_add(&index, 7, 0), -ENOMEM);
	out_of_memory = false;
	for (i = 0; i < 14; i++)
		assert_int_equal(index_add(&index, i, i), 0);
	out_of_memory = true;
	assert_int_equal(index_add(&index, 14, 14), -ENOMEM);
	assert_int_equal(index.count, 14);
	search = index_search(13);
	assert_true(index_next(&index, &search, &element));
	assert_int_equal(element, 13);
	out_of_memory = false;
	index_fini(&index);
}

/* map */

static struct map_key key_of(uint64_t number)
{
	/* Both words matter: keys that share one of them are frequent (addresses of two pools). */
	return (struct map_key){.a = number / 2 << 12, .b = number % 2};
}

static void empty_map_holds_nothing(void **state)
{
	struct map map = {0};
	size_t cursor = 0;
	uint64_t value = 5;

	(void)state;
	assert_null(map_get(&map, key_of(1)));
	assert_false(map_remove(&map, key_of(1), &value));
	assert_int_equal(value, 5);
	assert_null(map_next(&map, &cursor));
	map_fini(&map);
}

static void map_replaces_the_value_of_a_key(void **state)
{
	struct map map = {0};
	uint64_t value = 0;

	(void)state;
	assert_int_equal(map_put(&map, key_of(1), 10), 0);
	assert_int_equal(map_put(&map, key_of(1), 11), 0);
	assert_int_equal(map.count, 1);
	assert_int_equal(*map_get(&map, key_of(1)), 11);
	*map_get(&map, key_of(1)) = 12;
	assert_true(map_remove(&map, key_of(1), &value));
	assert_int_equal(value, 12);
	assert_null(map_get(&map, key_of(1)));
	assert_int_equal(map.count, 0);
	map_fini(&map);
}

static void map_takes_any_key(void **state)
{
	static const uint64_t words[] = {0, 1, UINT64_MAX, UINT64_C(1) << 63};
	struct map map = {0};
	size_t a, b;

	(void)state;
	for (a = 0; a < MSCOPE_COUNT(words); a++) {
		for (b = 0; b < MSCOPE_COUNT(words); b++) {
			struct map_key key = {words[a], words[b]};

			assert_int_equal(map_put(&map, key, a * 10 + b), 0);
		}
	}
	for (a = 0; a < MSCOPE_COUNT(words); a++) {
		for (b = 0; b < MSCOPE_COUNT(words); b++) {
			struct map_key key = {words[a], words[b]};

			assert_int_equal(*map_get(&map, key), a * 10 + b);
		}
	}
	map_fini(&map);
}

#define MODEL_KEYS 600

struct model {
	bool there[MODEL_KEYS];
	uint64_t value[MODEL_KEYS];
	size_t count;
};

/* Looks at everything: each key by map_get(), each slot by map_next(), the count by both. */
static void assert_same(const struct map *map, const struct model *model)
{
	const struct map_slot *slot;
	size_t cursor = 0, walked = 0;
	uint64_t i;

	assert_int_equal(map->count, model->count);
	for (i = 0; i < MODEL_KEYS; i++) {
		const uint64_t *value = map_get(map, key_of(i));

		assert_int_equal(value != NULL, model->there[i]);
		if (value != NULL)
			assert_int_equal(*value, model->value[i]);
	}
	while ((slot = map_next(map, &cursor)) != NULL) {
		i = (slot->key.a >> 12) * 2 + slot->key.b;
		assert_true(i < MODEL_KEYS && model->there[i]);
		walked++;
	}
	assert_int_equal(walked, model->count);
}

static void map_agrees_with_a_naive_model(void **state)
{
	static struct model model;
	struct map map = {0};
	uint64_t random = UINT64_C(0x2545f4914f6cdd1d);
	int step;

	(void)state;
	for (step = 0; step < 100000; step++) {
		uint64_t r = unit_random(&random);
		uint64_t i = r % MODEL_KEYS;
		/* Long phases of mostly putting and mostly removing, so that the map fills, empties and fills again. */
		bool put = (r >> 32) % 10 < (step / 5000 % 2 == 0 ? 7u : 3u);
		uint64_t value = 0;

		if (put) {
			assert_int_equal(map_put(&map, key_of(i), r), 0);
			model.count += !model.there[i];
			model.there[i] = true;
			model.value[i] = r;
		} else {
			assert_int_equal(map_remove(&map, key_of(i), &value), model.there[i]);
			if (model.there[i])
				assert_int_equal(value, model.value[i]);
			model.count -= model.there[i];
			model.there[i] = false;
		}
		assert_int_equal(map.count, model.count);
		if (step % 500 == 0)
			assert_same(&map, &model);
	}
	assert_same(&map, &model);
	map_fini(&map);
}

/* Fills `keys` with keys whose first choice is `slot` in a table of 16. */
static void keys_at_home_in(size_t slot, struct map_key *keys, size_t count)
{
	uint64_t number = 0;

	while (count > 0) {
		struct map_key key = key_of(++number);

		if ((hash(key) & 15) == slot)
			keys[--count] = key;
	}
}

/*
 * Six keys at home in the last two slots run over the end of the table into its first slots. Whichever is removed first,
 * second, ..., the others stay reachable.
 */
static void map_removes_across_the_end_of_the_table(void **state)
{
	struct map_key keys[6];
	int order[6];
	int permutation;

	(void)state;
	keys_at_home_in(14, keys, 3);
	keys_at_home_in(15, keys + 3, 3);
	for (permutation = 0; permutation < 720; permutation++) {
		struct map map = {0};
		int rest = permutation, i, j;

		for (i = 0; i < 6; i++)
			assert_int_equal(map_put(&map, keys[i], (uint64_t)i), 0);
		assert_int_equal(map.mask, 15);
		assert_true(map.slots[0].used && map.slots[1].used && map.slots[15].used);

		/* The permutation's digits in the factorial number system pick from what is left. */
		for (i = 0; i < 6; i++)
			order[i] = i;
		for (i = 0; i < 6; i++) {
			int pick = i + rest % (6 - i);
			int removed = order[pick];
			uint64_t value = 99;

			rest /= 6 - i;
			order[pick] = order[i];
			order[i] = removed;
			assert_true(map_remove(&map, keys[removed], &value));
			assert_int_equal(value, removed);
			for (j = 0; j < 6; j++) {
				const uint64_t *found = map_get(&map, keys[order[j]]);

				assert_int_equal(found != NULL, j > i);
				if (found != NULL)
					assert_int_equal(*found, order[j]);
			}
		}
		assert_int_equal(map.count, 0);
		map_fini(&map);
	}
}

static void map_is_unchanged_when_memory_runs_out(void **state)
{
	struct map map = {0};
	uint64_t i, stored;
	int r;

	(void)state;
	out_of_memory = true;
	assert_int_equal(map_put(&map, key_of(0), 0), -ENOMEM);
	assert_int_equal(map.count, 0);
	out_of_memory = false;
	assert_int_equal(map_put(&map, key_of(0), 0), 0);
	out_of_memory = true;
	for (stored = 1; (r = map_put(&map, key_of(stored), stored)) == 0; stored++)
		assert_true(stored < 16);
	assert_int_equal(r, -ENOMEM);
	assert_int_equal(map.count, stored);
	assert_null(map_get(&map, key_of(stored)));
	for (i = 0; i < stored; i++)
		assert_int_equal(*map_get(&map, key_of(i)), i);
	map_fini(&map);
}

/* strbuf */

static void a_size_is_never_1024_of_a_smaller_unit(void **state)
{
	static const struct {
		uint64_t bytes;
		const char *text;
	} sizes[] = {{0, "0 B"},
		     {1023, "1023 B"},
		     {1024, "1.0 KiB"},
		     {1047000, "1022 KiB"},
		     {1048063, "1023 KiB"},
		     {1048064, "1.0 MiB"},
		     {1048575, "1.0 MiB"},
		     {1048576, "1.0 MiB"},
		     {(UINT64_C(1) << 30) - 1, "1.0 GiB"},
		     {(UINT64_C(1) << 40) - 1, "1.0 TiB"},
		     {UINT64_C(1) << 50, "1024 TiB"}};
	struct strbuf sb = {0};
	size_t i;

	(void)state;
	for (i = 0; i < MSCOPE_COUNT(sizes); i++) {
		strbuf_reset(&sb);
		strbuf_add_size(&sb, sizes[i].bytes);
		assert_string_equal(strbuf_str(&sb), sizes[i].text);
	}
	strbuf_fini(&sb);
}

static void strbuf_writes_unsigned_numbers_as_printf_does(void **state)
{
	struct strbuf sb = {0};
	uint64_t power, random = 1;
	char expected[24];
	int i, d;

	(void)state;
	for (power = 1, i = 0; i < 20; i++, power *= 10) {
		for (d = -1; d <= 1; d++) {
			uint64_t value = power + (uint64_t)d;

			strbuf_reset(&sb);
			strbuf_add_u64(&sb, value);
			(void)snprintf(expected, sizeof(expected), "%" PRIu64, value);
			assert_string_equal(sb.data, expected);
		}
	}
	for (i = 0; i < 10000; i++) {
		uint64_t value = unit_random(&random) >> (i % 64);

		strbuf_reset(&sb);
		strbuf_add_u64(&sb, value);
		(void)snprintf(expected, sizeof(expected), "%" PRIu64, value);
		assert_string_equal(sb.data, expected);
	}
	strbuf_reset(&sb);
	strbuf_add_u64(&sb, UINT64_MAX);
	assert_string_equal(sb.data, "18446744073709551615");
	assert_int_equal(sb.length, 20);
	strbuf_fini(&sb);
}

static void addresses_are_written_as_printf_does(void **state)
{
	char text[DIGITS_ROOM], expected[32];
	uint64_t random = 1;
	int i;

	(void)state;
	for (i = 0; i < 10000; i++) {
		uint64_t value = i == 0 ? 0 : unit_random(&random) >> (i % 64);

		*digits_put_address(text, value) = '\0';
		(void)snprintf(expected, sizeof(expected), "0x%016" PRIx64, value);
		assert_string_equal(text, expected);
		*digits_put_hex(text, value) = '\0';
		(void)snprintf(expected, sizeof(expected), "0x%" PRIx64, value);
		assert_string_equal(text, expected);
	}
}

static void strbuf_writes_signed_numbers_to_both_ends(void **state)
{
	static const struct {
		int64_t value;
		const char *text;
	} cases[] = {
		{0, "0"},
		{-1, "-1"},
		{42, "42"},
		{-100, "-100"},
		{INT64_MAX, "9223372036854775807"},
		{INT64_MIN, "-9223372036854775808"},
	};
	struct strbuf sb = {0};
	size_t i;

	(void)state;
	for (i = 0; i < MSCOPE_COUNT(cases); i++) {
		strbuf_reset(&sb);
		strbuf_add_i64(&sb, cases[i].value);
		assert_string_equal(sb.data, cases[i].text);
	}
	strbuf_fini(&sb);
}

static void strbuf_pads_hexadecimal_to_the_digits_asked_for(void **state)
{
	static const struct {
		uint64_t value;
		unsigned int digits;
		const char *text;
	} cases[] = {
		{0, 0, "0x0"},
		{0, 16, "0x0000000000000000"},
		{0x120000000000, 16, "0x0000120000000000"},
		{0xabcdef, 0, "0xabcdef"},
		{0xabcdef, 6, "0xabcdef"},
		{0xabcdef, 7, "0x0abcdef"},
		{0xabcdef, 3, "0xabcdef"},
		{0x10, 1, "0x10"},
		{UINT64_MAX, 0, "0xffffffffffffffff"},
		{1, 99, "0x0000000000000001"},
	};
	struct strbuf sb = {0};
	size_t i;

	(void)state;
	for (i = 0; i < MSCOPE_COUNT(cases); i++) {
		strbuf_reset(&sb);
		strbuf_add_hex(&sb, cases[i].value, cases[i].digits);
		assert_string_equal(sb.data, cases[i].text);
	}
	strbuf_fini(&sb);
}

static void strbuf_joins_pieces_and_grows_past_any_size(void **state)
{
	struct strbuf sb = {0};
	size_t i;

	(void)state;
	assert_string_equal(strbuf_str(&sb), "");
	strbuf_add_str(&sb, "a,");
	strbuf_add_char(&sb, 'b');
	strbuf_addf(&sb, ",%s=%d", "c", 7);
	strbuf_add(&sb, "\0d", 2);
	assert_int_equal(sb.length, 9);
	assert_memory_equal(sb.data, "a,b,c=7\0d", 10);

	strbuf_reset(&sb);
	for (i = 0; i < 100000; i++)
		strbuf_add_char(&sb, (char)('a' + i % 26));
	assert_int_equal(strlen(strbuf_str(&sb)), 100000);
	for (i = 0; i < 100000; i++)
		assert_int_equal(sb.data[i], 'a' + i % 26);
	assert_false(strbuf_failed(&sb));
	strbuf_fini(&sb);
}

static void strbuf_formats_text_longer_than_its_room(void **state)
{
	struct strbuf sb = {0};
	char text[2000];

	(void)state;
	memset(text, 'x', sizeof(text) - 1);
	text[sizeof(text) - 1] = '\0';
	strbuf_addf(&sb, "<%s>", text);
	assert_int_equal(sb.length, sizeof(text) + 1);
	assert_int_equal(sb.data[0], '<');
	assert_memory_equal(sb.data + 1, text, sizeof(text) - 1);
	assert_string_equal(sb.data + sizeof(text), ">");
	strbuf_fini(&sb);
}

static void strbuf_is_empty_text_after_reset(void **state)
{
	struct strbuf sb = {0};

	(void)state;
	strbuf_add_str(&sb, "old row");
	strbuf_reset(&sb);
	assert_int_equal(sb.length, 0);
	assert_string_equal(strbuf_str(&sb), "");
	strbuf_fini(&sb);
}

static void strbuf_remembers_that_memory_ran_out(void **state)
{
	struct strbuf sb = {0};
	size_t length;

	(void)state;
	strbuf_add_str(&sb, "kept");
	out_of_memory = true;
	while (!strbuf_failed(&sb))
		strbuf_add_char(&sb, '.');
	length = sb.length;
	out_of_memory = false;

	/* Later calls do nothing, although there would be memory again: a row with a hole is worse than none. */
	strbuf_add_char(&sb, '!');
	strbuf_add_u64(&sb, 1);
	strbuf_addf(&sb, "%d", 1);
	assert_int_equal(sb.length, length);
	assert_memory_equal(sb.data, "kept", 4);
	strbuf_reset(&sb);
	assert_false(strbuf_failed(&sb));
	strbuf_add_str(&sb, "again");
	assert_string_equal(sb.data, "again");
	strbuf_fini(&sb);
}

/* status */

static const struct {
	int number, code;
	const char *sentence;
} statuses[] = {
#define STATUS(number, name, sentence) {number, MSCOPE_E_##name, sentence},
#include "base/status.def"
#undef STATUS
};

static void every_status_has_its_own_sentence(void **state)
{
	size_t i, j;

	(void)state;
	for (i = 0; i < MSCOPE_COUNT(statuses); i++) {
		assert_int_equal(statuses[i].code, statuses[i].number);
		assert_string_equal(mscope_status_str(statuses[i].code), statuses[i].sentence);
		assert_true(statuses[i].sentence[0] != '\0');
		/* Below every errno the kernel can return. */
		assert_true(statuses[i].code < -4095);
		for (j = 0; j < i; j++) {
			assert_int_not_equal(statuses[i].code, statuses[j].code);
			assert_string_not_equal(statuses[i].sentence, statuses[j].sentence);
		}
	}
	assert_string_equal(mscope_status_str(0), "success");
}

static void system_errors_keep_the_words_of_the_system(void **state)
{
	int code;

	(void)state;
	for (code = 1; code <= 4096; code++) {
		char expected[128];

		(void)snprintf(expected, sizeof(expected), "%s", strerror(code));
		assert_string_equal(mscope_status_str(-code), expected);
	}
	assert_string_equal(mscope_status_str(-ENOENT), "No such file or directory");
	assert_non_null(mscope_status_str(-20000));
}

static void error_set_fills_the_error_and_passes_the_code_on(void **state)
{
	struct mscope_error err = {0};
	char text[2 * sizeof(err.message)];

	(void)state;
	assert_int_equal(error_set(&err, -ENOENT, "cannot open %s", "x.msc"), -ENOENT);
	assert_int_equal(err.code, -ENOENT);
	assert_string_equal(err.message, "cannot open x.msc");
	assert_int_equal(error_set(NULL, MSCOPE_E_DAMAGED, "%d", 1), MSCOPE_E_DAMAGED);

	memset(text, 'x', sizeof(text) - 1);
	text[sizeof(text) - 1] = '\0';
	(void)error_set(&err, MSCOPE_E_LIMIT, "%s", text);
	assert_int_equal(strlen(err.message), sizeof(err.message) - 1);
}

/* ---- log ---- */

#define STAMP "NNNN-NN-NN NN:NN:NN"

/* The text of a file, each digit of a time stamp at the start of a line replaced by N. */
static void read_log(const char *path, char *out, size_t room)
{
	int fd = open(path, O_RDONLY);
	ssize_t got = read(fd, out, room - 1);
	char *line, *at;

	assert_true(got >= 0);
	out[got] = '\0';
	for (line = out; *line != '\0'; line = strchr(line, '\n') + 1) {
		for (at = line; at < line + strlen(STAMP) && *at != '\0'; at++) {
			if (*at >= '0' && *at <= '9')
				*at = 'N';
		}
	}
	close(fd);
}

static void log_keeps_early_lines_for_its_file(void **state)
{
	char path[] = "/tmp/test_base.XXXXXX", text[1000];
	struct log log;
	struct stat st;

	(void)state;
	assert_non_null(mkdtemp(path));
	strcpy(text, path);
	strcat(text, "/log");
	log_init(&log, LOG_LEVEL_INFO, 0);
	log_debug(&log, "too small a thing");
	log_info(&log, "first %d", 1);
	assert_int_equal(log_open(&log, "/nowhere/at/all"), -ENOENT);
	assert_int_equal(log_open(&log, text), 0);
	assert_int_equal(stat(text, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0600);
	log_line(&log, LOG_LEVEL_WARN, "a/b/c.c", 7, "two\nlines\x1b");
	log_line(&log, LOG_LEVEL_ERROR, "c.c", 8, "%s", "end");
	/* Not closed yet: every line is there at once. */
	read_log(text, text + 200, sizeof(text) - 200);
	assert_true(strncmp(text + 200, STAMP " [INFO   ] [test_base.c:", 43) == 0);
	assert_non_null(strstr(text + 200,
			       "] first 1\n" STAMP " [WARN   ] [c.c:7] two\\x0alines\\x1b\n" STAMP
			       " [ERROR  ] [c.c:8] end\n"));
	assert_null(strstr(text + 200, "too small"));
	log_fini(&log);
	log_error(&log, "nobody listens");
	assert_int_equal(unlink(text), 0);
	assert_int_equal(rmdir(path), 0);
}

static void log_has_the_local_time_of_its_owner(void **state)
{
	struct log log;
	char expected[32];
	time_t there;

	(void)state;
	log_init(&log, LOG_LEVEL_DEBUG, 5 * 3600 + 1800);
	there = time(NULL) + 5 * 3600 + 1800;
	log_debug(&log, "x");
	(void)strftime(expected, sizeof(expected), "%Y-%m-%d %H:%M", gmtime(&there));
	assert_memory_equal(strbuf_str(&log.early), expected, 15);
	log_fini(&log);
}

static void log_of_no_level_is_off(void **state)
{
	static const uint32_t levels[] = {LOG_LEVEL_OFF, 17, UINT32_MAX};
	struct log log;
	size_t i;

	(void)state;
	for (i = 0; i < MSCOPE_COUNT(levels); i++) {
		log_init(&log, levels[i], 0);
		log_error(&log, "x");
		log_line(&log, (enum log_level)17, "c.c", 1, "x");
		assert_int_equal(log.early.length, 0);
		log_fini(&log);
	}
}

/* ---- json ---- */

static void add_values(struct json *json)
{
	json_object(json, NULL);
	json_u64(json, "a", 1);
	json_array(json, "b");
	json_end(json);
	json_array(json, "c");
	json_bool(json, NULL, true);
	json_string(json, NULL, "x\"\n\xff");
	json_end(json);
	json_end(json);
}

static void json_numbers_are_short_and_finite(void **state)
{
	struct strbuf text = {0};
	struct json json;

	(void)state;
	json_begin(&json, &text);
	json_array(&json, NULL);
	json_f64(&json, NULL, 1048576, 1);
	json_f64(&json, NULL, 0.25, 4);
	json_f64(&json, NULL, -0.01, 1);
	json_f64(&json, NULL, 100, 0);
	json_f64(&json, NULL, 1e308 * 10, 1);
	json_null(&json, NULL);
	json_raw(&json, NULL, "{\"a\":1}");
	json_end(&json);
	assert_string_equal(strbuf_str(&text), "[1048576,0.25,0,100,null,null,{\"a\":1}]");
	strbuf_fini(&text);
}

static void json_stands_on_one_line_or_on_many(void **state)
{
	struct strbuf text = {0};
	struct json json;

	(void)state;
	json_begin(&json, &text);
	add_values(&json);
	assert_string_equal(strbuf_str(&text),
			    "{\"a\":1,\"b\":[],\"c\":[true,\"x\\\"\\u000a\\ufffd\"]}");
	strbuf_reset(&text);
	json_begin(&json, &text);
	json.indent = 4;
	add_values(&json);
	assert_string_equal(strbuf_str(&text), "{\n"
					       "    \"a\": 1,\n"
					       "    \"b\": [],\n"
					       "    \"c\": [\n"
					       "        true,\n"
					       "        \"x\\\"\\u000a\\ufffd\"\n"
					       "    ]\n"
					       "}");
	strbuf_fini(&text);
}

static const char *shown(struct strbuf *out, const char *text)
{
	strbuf_reset(out);
	strbuf_add_shown(out, text, strlen(text));
	return strbuf_str(out);
}

static void no_control_character_is_shown(void **state)
{
	struct strbuf out = {0};

	(void)state;
	assert_string_equal(shown(&out, ""), "");
	assert_string_equal(shown(&out, "=a b\\ 内存 \xf0\x9f\x98\x80"),
			    "=a b\\ 内存 \xf0\x9f\x98\x80");
	assert_string_equal(shown(&out, "\x1b[31m\a\t\n\x7f"), "\\x1b[31m\\x07\\x09\\x0a\\x7f");
	/* C1, and characters that turn text round; their neighbours stay. */
	assert_string_equal(shown(&out, "\xc2\x9b\xc2\xa0"), "\\u009b\xc2\xa0");
	assert_string_equal(shown(&out, "\xe2\x80\xae\xe2\x81\xa9\xd8\x9c\xe2\x80\x90"),
			    "\\u202e\\u2069\\u061c\xe2\x80\x90");
	/* One U+FFFD for each byte: cut, overlong, surrogate. */
	assert_string_equal(shown(&out, "a\xff\xe5\x86"), "a\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd");
	assert_string_equal(shown(&out, "\xc0\xaf"), "\xef\xbf\xbd\xef\xbf\xbd");
	strbuf_reset(&out);
	strbuf_add_lines(&out, "a\tb\n\x1b\n", 6);
	assert_string_equal(strbuf_str(&out), "a\tb\n\\x1b\n");
	strbuf_reset(&out);
	strbuf_add_valid(&out, "\x1b\xff\n", 3);
	assert_string_equal(strbuf_str(&out), "\x1b\xef\xbf\xbd\n");
	strbuf_reset(&out);
	json_quote(&out, "\x1b\xc2\x9b\xe2\x80\xae\xff");
	assert_string_equal(strbuf_str(&out), "\"\\u001b\\u009b\\u202e\\ufffd\"");
	strbuf_fini(&out);
}

static void hash_is_fnv_1a(void **state)
{
	(void)state;
	assert_int_equal(hash_text(""), HASH_BEGIN);
	assert_int_equal(hash_text("a"), UINT64_C(0xaf63dc4c8601ec8c));
	assert_int_equal(hash_text("foobar"), UINT64_C(0x85944171f73967e8));
	assert_int_equal(hash_add(HASH_BEGIN, "foobar", 6), hash_text("foobar"));
	assert_int_equal(hash_add(hash_text("foo"), "bar", 3), hash_text("foobar"));
	assert_int_not_equal(hash_add(HASH_BEGIN, "\xff", 1), hash_text("\x7f"));
}

/* `first` NULL: none is near. */
static void check_nearest(const char *wanted, const char *first)
{
	static const char *const names[] = {"torch._ops.aten.mul.Tensor", "aten::mul", "softmax",
					    "token0/layer0/module0/op0",  "op1",       "LayerNorm"};
	const char *found[3];
	size_t count = nearest_names(wanted, names, MSCOPE_COUNT(names), found, 3);

	assert_int_equal(count > 0, first != NULL);
	if (count > 0)
		assert_string_equal(found[0], first);
}

static void the_nearest_names_are_those_a_person_may_have_meant(void **state)
{
	const char *none[1];

	(void)state;
	check_nearest("aten::mull", "aten::mul");
	check_nearest("aten.mul.Tensor", "torch._ops.aten.mul.Tensor");
	check_nearest("mul", "torch._ops.aten.mul.Tensor");
	check_nearest("sofmtax", "softmax");
	check_nearest("layernorm", "LayerNorm");
	check_nearest("op2", "op1");
	check_nearest("embedding_bag", NULL);
	check_nearest("", NULL);
	assert_int_equal(nearest_names("x", NULL, 0, none, 1), 0);
}

/* io */

static void temporary_files_lie_where_they_may(void **state)
{
	char directory[] = "/tmp/test_base.XXXXXX";
	const char *before = getenv("TMPDIR");
	char *kept = before == NULL ? NULL : strdup(before);

	(void)state;
	assert_non_null(mkdtemp(directory));
	assert_int_equal(setenv("TMPDIR", directory, 1), 0);
	assert_string_equal(io_scratch(), directory);
	assert_int_equal(rmdir(directory), 0);
	/* One that is gone, and one that depends on where we are, do not count. */
	assert_string_equal(io_scratch(), "/var/tmp");
	assert_int_equal(setenv("TMPDIR", "tmp", 1), 0);
	assert_string_equal(io_scratch(), "/var/tmp");
	assert_int_equal(unsetenv("TMPDIR"), 0);
	assert_string_equal(io_scratch(), "/var/tmp");
	if (kept != NULL)
		assert_int_equal(setenv("TMPDIR", kept, 1), 0);
	free(kept);
}

static void a_file_is_replaced_as_a_whole_or_not_at_all(void **state)
{
	char directory[] = "/tmp/test_base.XXXXXX", path[64], below[80], found[16] = "";
	struct strbuf text = {0};
	struct stat st;

	(void)state;
	assert_non_null(mkdtemp(directory));
	(void)snprintf(path, sizeof(path), "%s/file", directory);
	(void)snprintf(below, sizeof(below), "%s/file", path);
	strbuf_add_str(&text, "first");
	assert_int_equal(io_replace(path, &text), 0);
	strbuf_add_str(&text, " second");
	assert_int_equal(io_replace(path, &text), 0);
	assert_true(io_read_text(path, found, sizeof(found)));
	assert_string_equal(found, "first second");
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0600);
	assert_int_equal(io_replace(below, &text), -ENOTDIR);
	/* A directory in its place stays, and nothing is left beside it. */
	assert_int_equal(unlink(path), 0);
	assert_int_equal(mkdir(path, 0700), 0);
	assert_int_equal(io_replace(path, &text), -EISDIR);
	assert_int_equal(rmdir(path), 0);
	assert_int_equal(rmdir(directory), 0);
	strbuf_fini(&text);
}

/* Of a longer file the first bytes, and their end: nothing behind the room is written. */
static void a_text_is_read_as_far_as_there_is_room(void **state)
{
	char path[] = "/tmp/test_base.XXXXXX", found[8];
	int fd = mkstemp(path);

	(void)state;
	assert_true(fd >= 0);
	assert_int_equal(write(fd, "abcdefghij", 10), 10);
	memset(found, 'x', sizeof(found));
	assert_true(io_read_text(path, found, 4));
	assert_memory_equal(found, "abc\0xxxx", sizeof(found));
	assert_int_equal(ftruncate(fd, 0), 0);
	assert_false(io_read_text(path, found, 4));
	assert_int_equal(unlink(path), 0);
	assert_false(io_read_text(path, found, 4));
	assert_int_equal(close(fd), 0);
}

static void a_device_is_written_to_and_stays_one(void **state)
{
	struct strbuf text = {0};
	struct stat st;

	(void)state;
	strbuf_add_str(&text, "x");
	assert_int_equal(io_replace("/dev/null", &text), 0);
	assert_int_equal(stat("/dev/null", &st), 0);
	assert_true(S_ISCHR(st.st_mode));
	strbuf_fini(&text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_nearest_names_are_those_a_person_may_have_meant),
		cmocka_unit_test(array_keeps_elements_while_it_grows),
		cmocka_unit_test(array_makes_room_for_a_large_request_at_once),
		cmocka_unit_test_teardown(array_loses_nothing_when_memory_runs_out, restore_memory),
		cmocka_unit_test(empty_map_holds_nothing),
		cmocka_unit_test(map_replaces_the_value_of_a_key),
		cmocka_unit_test(map_takes_any_key),
		cmocka_unit_test(index_finds_every_element_of_a_hash),
		cmocka_unit_test_teardown(index_is_unchanged_when_memory_runs_out, restore_memory),
		cmocka_unit_test(map_agrees_with_a_naive_model),
		cmocka_unit_test(map_removes_across_the_end_of_the_table),
		cmocka_unit_test_teardown(map_is_unchanged_when_memory_runs_out, restore_memory),
		cmocka_unit_test(a_size_is_never_1024_of_a_smaller_unit),
		cmocka_unit_test(strbuf_writes_unsigned_numbers_as_printf_does),
		cmocka_unit_test(addresses_are_written_as_printf_does),
		cmocka_unit_test(strbuf_writes_signed_numbers_to_both_ends),
		cmocka_unit_test(strbuf_pads_hexadecimal_to_the_digits_asked_for),
		cmocka_unit_test(strbuf_joins_pieces_and_grows_past_any_size),
		cmocka_unit_test(strbuf_formats_text_longer_than_its_room),
		cmocka_unit_test(strbuf_is_empty_text_after_reset),
		cmocka_unit_test_teardown(strbuf_remembers_that_memory_ran_out, restore_memory),
		cmocka_unit_test(every_status_has_its_own_sentence),
		cmocka_unit_test(system_errors_keep_the_words_of_the_system),
		cmocka_unit_test(error_set_fills_the_error_and_passes_the_code_on),
		cmocka_unit_test(log_keeps_early_lines_for_its_file),
		cmocka_unit_test(log_has_the_local_time_of_its_owner),
		cmocka_unit_test(log_of_no_level_is_off),
		cmocka_unit_test(json_numbers_are_short_and_finite),
		cmocka_unit_test(json_stands_on_one_line_or_on_many),
		cmocka_unit_test(no_control_character_is_shown),
		cmocka_unit_test(hash_is_fnv_1a),
		cmocka_unit_test(temporary_files_lie_where_they_may),
		cmocka_unit_test(a_file_is_replaced_as_a_whole_or_not_at_all),
		cmocka_unit_test(a_text_is_read_as_far_as_there_is_room),
		cmocka_unit_test(a_device_is_written_to_and_stays_one),
	};

	return cmocka_run_group_tests_name("base", tests, NULL, NULL);
}
