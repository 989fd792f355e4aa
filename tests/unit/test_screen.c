/* SPDX-License-Identifier: Apache-2.0 */
/* The screen at the end of a run: never more than it may have, whatever the processes did, and the worst first. */
#include "sink/screen.h"

#include "cli/conditions.h"
#include "unit.h"

#define PLACES 40

static char *copy(const char *text)
{
	char *made = strdup(text);

	assert_non_null(made);
	return made;
}

static const char *const names[] = {
	"train.py",
	"a_very_long_name_of_a_training_script_that_no_terminal_has_room_for_at_all_and_then_some."
	"py",
	"\xe8\xae\xad\xe7\xbb\x83\xe6\xa8\xa1\xe5\x9e\x8b\xe7\x9a\x84\xe8\x84\x9a\xe6\x9c\xac\xe5"
	"\xbe\x88\xe9\x95\xbf.py",
	"\xff\xfe broken \xe8\xae",
};

static void add_places(struct digest *digest, uint32_t devices, unsigned int count)
{
	unsigned int i;

	digest->places = calloc(count + 1, sizeof(*digest->places));
	digest->devices = calloc(devices + 1, sizeof(*digest->devices));
	assert_non_null(digest->places);
	assert_non_null(digest->devices);
	for (i = 0; i < count; i++) {
		bool leaks = i < count / 2;
		char where[300], sentence[600];

		(void)snprintf(where, sizeof(where), "\xe6\xa8\xa1\xe5\x9e\x8b_%u.py:%u %0*d", i, i,
			       (int)(i * 5 % 200 + 1), 7);
		(void)snprintf(sentence, sizeof(sentence), "%s  1.0 MiB per step (0.9 to 1.1)",
			       where);
		digest->places[digest->place_count++] = (struct digest_place){
			.verdict = leaks ? DIGEST_LEAK : DIGEST_SUSPECT,
			.pool = POOL_pta,
			.device = i % devices,
			.growth_bytes = 1e6 * (count - i),
			.where = copy(where),
			.sentence = copy(sentence),
			.direct =
				leaks ? copy("Direct Pytorch Caching memory pool leak of 1.000000 "
					     "Mb(s) at 0x120000d24200 in kernel_3 at step 2.")
				      : NULL};
		if (leaks && i < devices)
			digest->devices[digest->device_count++] =
				(struct digest_device){.device = i, .bytes = 1 << 20};
		if (leaks)
			digest->devices[i % devices].places++;
	}
	digest->leak_places = count / 2;
	digest->suspect_places = count - count / 2;
	digest->verdict = count > 1 ? DIGEST_LEAK : DIGEST_FINE;
}

static void add_lines(struct strbuf *text, unsigned int lines, const char *what)
{
	unsigned int i;

	for (i = 0; i < lines; i++)
		strbuf_addf(text, "%s %u %0*d\n", what, i, (int)(i * 13 % 150 + 1), 1);
}

static void make(struct digest *out, unsigned int number, unsigned int size)
{
	unsigned int pools = size % 20, i;

	*out = (struct digest){.pid = 1000 + number,
			       .rank = size % 3 == 0 ? -1 : (int64_t)number,
			       .name = copy(names[(number + size) % MSCOPE_COUNT(names)]),
			       .events = UINT64_MAX,
			       .steps = size,
			       .seconds = 1e7};
	out->pools = calloc(pools + 1, sizeof(*out->pools));
	assert_non_null(out->pools);
	for (i = 0; i < pools; i++)
		out->pools[out->pool_count++] = (struct digest_pool){
			.pool = POOL_hal, .device = i, .peak_bytes = UINT64_MAX >> i};
	add_places(out, 1 + size % 8, size % 2 == 0 ? size : 0);
	if (size % 5 == 0) {
		out->peak = (struct digest_peak){.pool = POOL_pta, .bytes = 1 << 30, .more = size};
		for (i = 0; i < DIGEST_PEAK; i++)
			out->peak.holders[out->peak.holder_count++] =
				(struct digest_holder){.where = copy(names[1]), .bytes = 1 << 28};
	}
	add_lines(&out->oom, size % 7 == 0 ? size : 0, "Out of memory");
	add_lines(&out->judged, size % 4, "Judged");
	add_lines(&out->trends, size % 3, "PTA");
	add_lines(&out->gaps, size, "Gap");
	add_lines(&out->tables, size % 11 == 0 ? size : 0, "owner");
	add_lines(&out->losses, size % 3 == 1 ? size : 0, "Not recorded:");
	add_lines(&out->watched, size % 13 == 0 ? 4 : 0, "Watched:");
	out->project = copy("results/msmemscope_1000_20260101000000_ascend");
}

/* Rows that a terminal shows; every line but those with paths fits. */
static unsigned int check_rows(const char *text)
{
	unsigned int rows = 0;

	for (; *text != '\0'; text += strcspn(text, "\n") + 1) {
		size_t columns = screen_columns(text);

		assert_non_null(strchr(text, '\n'));
		if (strncmp(text, "Files: ", 7) != 0 && strncmp(text, "Next: ", 6) != 0 &&
		    strncmp(text, "msmemscope: ", 12) != 0)
			assert_in_range(columns, 0, SCREEN_COLUMNS);
		rows += columns == 0
				? 1
				: (unsigned int)((columns + SCREEN_COLUMNS - 1) / SCREEN_COLUMNS);
	}
	return rows;
}

static void any_run_fits(void **state)
{
	static const size_t counts[] = {1, 2, 3, 8, 9, 64};
	unsigned int size;
	size_t c, i;

	(void)state;
	for (c = 0; c < MSCOPE_COUNT(counts); c++) {
		for (size = 0; size < PLACES; size++) {
			struct digest *digests = calloc(counts[c], sizeof(*digests));
			struct strbuf text = {0};
			struct screen screen = {.digests = digests,
						.count = counts[c],
						.offers_info = true,
						.above = size % 10 == 7 ? size : 0,
						.before = size % 9 == 0 ? "msmemscope: one\n" : "",
						.findings_only = size % 6 == 5};

			assert_non_null(digests);
			for (i = 0; i < counts[c]; i++)
				make(&digests[i], (unsigned int)i, size);
			screen_text(&screen, &text);
			assert_in_range(check_rows(strbuf_str(&text)), screen.findings_only ? 0 : 2,
					SCREEN_ROWS);
			strbuf_fini(&text);
			for (i = 0; i < counts[c]; i++)
				digest_fini(&digests[i]);
			free(digests);
		}
	}
}

static void a_long_path_counts_as_the_rows_it_takes(void **state)
{
	struct digest digest;
	struct strbuf text = {0}, path = {0};
	struct screen screen = {.digests = &digest, .count = 1};
	(void)state;

	make(&digest, 0, 38);
	strbuf_addf(&path, "/%0300d", 1);
	free(digest.project);
	digest.project = copy(strbuf_str(&path));
	screen.offers_info = true;
	screen_text(&screen, &text);
	assert_non_null(strstr(strbuf_str(&text), strbuf_str(&path)));
	assert_in_range(check_rows(strbuf_str(&text)), 2, SCREEN_ROWS);
	strbuf_fini(&text);
	strbuf_fini(&path);
	digest_fini(&digest);
}

static void the_worst_comes_first_and_a_shared_place_once(void **state)
{
	struct digest digests[8] = {{0}};
	struct screen screen = {.digests = digests, .count = 8};
	struct strbuf text = {0};
	const char *at;
	size_t i;
	(void)state;

	for (i = 0; i < 8; i++) {
		digests[i] = (struct digest){.pid = 100 + (uint32_t)i, .rank = (int64_t)i};
		digests[i].name = copy("train.py");
		add_places(&digests[i], 1, 2);
		digests[i].places[0].growth_bytes = i == 5 ? 3 << 20 : 1 << 20;
	}
	digests[6].verdict = DIGEST_OOM;
	add_lines(&digests[6].oom, 1, "Out of memory:");
	screen_text(&screen, &text);
	at = strstr(strbuf_str(&text), "\n     6       106");
	assert_non_null(at);
	assert_null(strstr(strbuf_str(&text), "\n     6       106 ") == at ? NULL : at);
	assert_true(at < strstr(strbuf_str(&text), "\n     5       105"));
	assert_true(strstr(strbuf_str(&text), "\n     5       105") <
		    strstr(strbuf_str(&text), "\n     0       100"));
	assert_non_null(
		strstr(strbuf_str(&text), "leak in 8 of 8 processes: 1.0 MiB to 3.0 MiB per step"));
	assert_non_null(strstr(strbuf_str(&text), "Worst: train.py (pid 106, rank 6)"));
	strbuf_fini(&text);
	for (i = 0; i < 8; i++)
		digest_fini(&digests[i]);
}

static void quiet_shows_problems_and_nothing_else(void **state)
{
	struct digest digest = {.pid = 1, .verdict = DIGEST_FINE, .rank = -1};
	struct screen screen = {.digests = &digest, .count = 1, .findings_only = true};
	struct strbuf text = {0};
	(void)state;

	strbuf_add_str(&digest.judged, "No leak was found in steps 2 to 9.\n");
	screen_text(&screen, &text);
	assert_int_equal(text.length, 0);
	add_places(&digest, 1, 2);
	screen_text(&screen, &text);
	assert_non_null(strstr(strbuf_str(&text), "ERROR: Detected memory leaks on device 0"));
	strbuf_fini(&text);
	digest_fini(&digest);
}

static void lines_are_cut_by_columns_not_bytes(void **state)
{
	struct strbuf out = {0};
	(void)state;

	assert_int_equal(screen_columns("\xe4\xb8\xad"
					"a\t|"),
			 9);
	screen_cut("\xe4\xb8\xad\xe4\xb8\xad\xe4\xb8\xad\xe4\xb8\xad", 7, &out);
	assert_string_equal(strbuf_str(&out), "\xe4\xb8\xad\xe4\xb8\xad...");
	strbuf_reset(&out);
	screen_cut("abcdefgh\nnext", 8, &out);
	assert_string_equal(strbuf_str(&out), "abcdefgh");
	strbuf_fini(&out);
}

static void colour_changes_no_text(void **state)
{
	struct strbuf out = {0};
	(void)state;

	screen_colour("leak: a\nplain\n", &out);
	assert_string_equal(strbuf_str(&out), "\033[31mleak: a\033[0m\nplain\n");
	strbuf_fini(&out);
}

static void a_process_is_named_by_its_script(void **state)
{
	static const struct {
		const char *exe, *command, *name;
	} cases[] = {
		{"/usr/bin/python3.11", "python3 -u -W ignore /a/train.py --x 1", "train.py"},
		{"/usr/bin/python3.11", "python3 -m torch.distributed.run x.py",
		 "torch.distributed.run"},
		{"/usr/bin/python3.11", "python3 -c import x", "python -c"},
		{"/usr/bin/python3.11", "python3", "python3.11"},
		{"/usr/bin/python3.11", NULL, "python3.11"},
		{"/opt/a.out", "a.out train.py", "a.out"},
		{NULL, NULL, "?"},
	};
	size_t i;
	(void)state;

	for (i = 0; i < MSCOPE_COUNT(cases); i++) {
		char *name = digest_name(cases[i].exe, cases[i].command);

		assert_string_equal(name, cases[i].name);
		free(name);
	}
}

static void conditions_are_met_by_what_was_found(void **state)
{
	struct digest digest = {.pid = 7, .rank = -1};
	struct digest_pool pool = {
		.pool = POOL_pta, .peak_bytes = 100, .judged = true, .growth_bytes = 10};
	struct strbuf why = {0};
	(void)state;

	digest.pools = &pool;
	digest.pool_count = 1;
	assert_false(conditions_met(
		&(struct option_conditions){.leak = true, .suspect = true, .oom = true}, &digest, 1,
		&why));
	assert_false(
		conditions_met(&(struct option_conditions){.peak_bytes = 100}, &digest, 1, &why));
	assert_true(
		conditions_met(&(struct option_conditions){.peak_bytes = 99}, &digest, 1, &why));
	assert_false(
		conditions_met(&(struct option_conditions){.growth_bytes = 10}, &digest, 1, &why));
	assert_true(
		conditions_met(&(struct option_conditions){.growth_bytes = 9}, &digest, 1, &why));
	digest.suspect_places = 1;
	assert_false(conditions_met(&(struct option_conditions){.leak = true}, &digest, 1, &why));
	assert_true(conditions_met(&(struct option_conditions){.suspect = true}, &digest, 1, &why));
	digest.leak_places = digest.oom_count = 1;
	assert_true(conditions_met(&(struct option_conditions){.leak = true}, &digest, 1, &why));
	assert_true(conditions_met(&(struct option_conditions){.oom = true}, &digest, 1, &why));
	strbuf_fini(&why);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(any_run_fits),
		cmocka_unit_test(a_long_path_counts_as_the_rows_it_takes),
		cmocka_unit_test(the_worst_comes_first_and_a_shared_place_once),
		cmocka_unit_test(quiet_shows_problems_and_nothing_else),
		cmocka_unit_test(lines_are_cut_by_columns_not_bytes),
		cmocka_unit_test(colour_changes_no_text),
		cmocka_unit_test(a_process_is_named_by_its_script),
		cmocka_unit_test(conditions_are_met_by_what_was_found),
	};

	return cmocka_run_group_tests_name("screen", tests, NULL, NULL);
}
