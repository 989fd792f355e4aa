/* SPDX-License-Identifier: Apache-2.0 */
/* The screen at the end of a run: never more than it may have, whatever the processes did, and the worst first. */
#include "sink/screen.h"

#include "base/vendors.h"
#include "cli/conditions.h"
#include "findings/say.h"
#include "sink/screen_names.h"
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

static struct findings *found_in(struct digest *digest)
{
	if (digest->own == NULL) {
		digest->own = calloc(1, sizeof(*digest->own));
		assert_non_null(digest->own);
		digest->own->judgement =
			(struct findings_judgement){.asked = true, .judged = true, .first_step = 2};
		digest->own->judgement.last_step = 40;
		digest->own->vendor = VENDOR_CUDA;
		digest->found = digest->own;
	}
	return digest->own;
}

static void add_places(struct digest *digest, uint32_t devices, unsigned int count)
{
	struct findings *found = found_in(digest);
	unsigned int i;

	for (i = 0; i < count; i++) {
		bool leaks = i < count / 2;
		struct finding_place *place = FINDINGS_ADD(found, place);
		char name[300];

		(void)snprintf(name, sizeof(name), "\xe6\xa8\xa1\xe5\x9e\x8b_%u.py:%u %0*d", i, i,
			       (int)(i * 5 % 200 + 1), 7);
		assert_non_null(place);
		*place = (struct finding_place){.verdict = leaks ? GROWTH_LEAK : GROWTH_SUSPECT,
						.reason = leaks ? GROWTH_STAYS : GROWTH_TOO_SHORT,
						.pool = POOL_pta,
						.device = i % devices,
						.name = findings_text(found, name),
						.owner = "",
						.bytes_per_step = 1e6 * (count - i),
						.usual_age = -1,
						.overdue_blocks = 2 * i + 1,
						.leaked_blocks = leaks ? 2 * i + 1 : 0,
						.leaked_bytes = leaks ? 1 << 20 : 0,
						.listed_bytes = 1 << 20,
						.first_step = 2,
						.stack = 1,
						.examples = {FINDINGS_COUNT(found, block), 1}};
		assert_non_null(FINDINGS_ADD(found, block));
	}
	found->judgement.leaks = count / 2;
	found->judgement.suspects = count - count / 2;
	found->judgement.clean = count == 0;
	found->judgement.asked = true;
	findings_weigh(found, true);
	digest->verdict = found->verdict;
}

static void add_peak(struct digest *digest, unsigned int holders)
{
	struct findings *found = found_in(digest);
	struct finding_peak *peak = FINDINGS_ADD(found, peak);
	unsigned int i;

	assert_non_null(peak);
	*peak = (struct finding_peak){.pool = POOL_pta,
				      .bytes = 1 << 30,
				      .reserved_bytes = UINT64_C(5) << 28,
				      .places = {FINDINGS_COUNT(found, holder), holders}};
	for (i = 0; i < holders; i++) {
		struct finding_holder *holder = FINDINGS_ADD(found, holder);

		assert_non_null(holder);
		*holder = (struct finding_holder){.bytes = (UINT64_C(1) << 28) >> i,
						  .percent = 25.0 / (i + 1),
						  .owner = "",
						  .site = names[1],
						  .place = names[1]};
	}
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
	if (size % 5 == 0)
		add_peak(out, size);
	add_lines(&out->oom, size % 7 == 0 ? size : 0, "OUT OF MEMORY");
	add_lines(&out->not_judged, size % 4 == 3, "Leaks are not judged");
	add_lines(&out->gaps, size, "Gap");
	add_lines(&out->sections[ANALYSIS_ID_inefficient], size % 11 == 0 ? size : 0, "owner");
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
		if (strncmp(text, "Files: ", 7) != 0 && strncmp(text, "More:  ", 7) != 0 &&
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
						.more = "results",
						.colours = false,
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
	screen.more = "results";
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
		FINDINGS(digests[i].own, place)[0].bytes_per_step = i == 5 ? 3 << 20 : 1 << 20;
	}
	digests[6].verdict = VERDICT_OOM;
	add_lines(&digests[6].oom, 1, "OUT OF MEMORY:");
	screen_text(&screen, &text);
	at = strstr(strbuf_str(&text), "\n     6       106");
	assert_non_null(at);
	assert_null(strstr(strbuf_str(&text), "\n     6       106 ") == at ? NULL : at);
	assert_true(at < strstr(strbuf_str(&text), "\n     5       105"));
	assert_true(strstr(strbuf_str(&text), "\n     5       105") <
		    strstr(strbuf_str(&text), "\n     0       100"));
	assert_non_null(strstr(strbuf_str(&text),
			       "LEAK in 8 of 8 processes: +1.0 MiB to +3.0 MiB per step"));
	assert_non_null(strstr(strbuf_str(&text), "Worst: train.py (pid 106, rank 6)"));
	strbuf_fini(&text);
	for (i = 0; i < 8; i++)
		digest_fini(&digests[i]);
}

static void quiet_shows_problems_and_nothing_else(void **state)
{
	struct digest digest = {.pid = 1, .verdict = VERDICT_FINE, .rank = -1};
	struct screen screen = {.digests = &digest, .count = 1, .findings_only = true};
	struct strbuf text = {0};
	(void)state;

	found_in(&digest)->judgement.clean = true;
	screen_text(&screen, &text);
	assert_int_equal(text.length, 0);
	screen.after = "The store has no room.\n";
	screen_text(&screen, &text);
	assert_string_equal(strbuf_str(&text), screen.after);
	strbuf_reset(&text);
	screen.after = NULL;
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

/* Colours are those of what a part means, whatever its words are. */
static void colour_changes_no_text(void **state)
{
	struct digest digest = {.pid = 1, .rank = -1};
	struct screen screen = {.digests = &digest, .count = 1};
	struct strbuf plain = {0}, coloured = {0}, without = {0};
	const char *at;
	(void)state;

	add_places(&digest, 1, 2);
	screen_text(&screen, &plain);
	screen.colours = true;
	screen_text(&screen, &coloured);
	for (at = strbuf_str(&coloured); *at != '\0'; at++) {
		if (*at == '\033')
			at = strchr(at, 'm');
		else
			strbuf_add_char(&without, *at);
	}
	assert_string_equal(strbuf_str(&without), strbuf_str(&plain));
	assert_non_null(strstr(strbuf_str(&coloured), "\033[1;31mLEAK on GPU 0: "));
	assert_non_null(strstr(strbuf_str(&coloured), "\033[33mSUSPECT on GPU 0: "));
	strbuf_fini(&plain);
	strbuf_fini(&coloured);
	strbuf_fini(&without);
	digest_fini(&digest);
}

/* The pool that people work in; what it took from the driver is not listed as somebody's, however large it is. */
static void the_peak_is_that_of_the_pool_people_work_in(void **state)
{
	struct digest digest = {.pid = 1, .rank = -1};
	struct screen screen = {.digests = &digest, .count = 1};
	struct strbuf text = {0};
	(void)state;

	add_peak(&digest, 7);
	add_peak(&digest, 3);
	FINDINGS(digest.own, peak)[0].pool = POOL_hal;
	FINDINGS(digest.own, peak)[0].bytes = UINT64_C(8) << 30;
	digest.pools = calloc(1, sizeof(*digest.pools));
	assert_non_null(digest.pools);
	digest.pools[digest.pool_count++] = (struct digest_pool){.pool = POOL_pta};
	screen_text(&screen, &text);
	assert_non_null(strstr(strbuf_str(&text), "; all freed at the end\n"));
	assert_non_null(strstr(strbuf_str(&text),
			       "PEAK of the PyTorch pool: 1.0 GiB in use, 1.2 GiB reserved ("));
	assert_null(strstr(strbuf_str(&text), "PEAK of the CUDA driver"));
	strbuf_reset(&text);
	FINDINGS(digest.own, peak)[1].device = 1;
	FINDINGS(digest.own, peak)[1].pool = POOL_host_pinned;
	screen_text(&screen, &text);
	assert_non_null(strstr(strbuf_str(&text), "PEAK of the CUDA driver: 8.0 GiB ("));
	strbuf_fini(&text);
	digest_fini(&digest);
}

/* A part that has no room is left out whole and named; no line counts lines. */
static void what_has_no_room_is_left_out_whole_and_named(void **state)
{
	struct digest digest = {.pid = 1, .rank = -1};
	struct screen screen = {.digests = &digest, .count = 1};
	struct strbuf text = {0};
	(void)state;

	add_places(&digest, 1, 12);
	add_peak(&digest, 12);
	add_lines(&digest.gaps, 6, "Gap");
	add_lines(&digest.sections[ANALYSIS_ID_inefficient], 9, "waste");
	screen_text(&screen, &text);
	assert_in_range(check_rows(strbuf_str(&text)), 15, SCREEN_ROWS);
	assert_null(strstr(strbuf_str(&text), "Gap"));
	assert_null(strstr(strbuf_str(&text), "more line"));
	assert_non_null(strstr(strbuf_str(&text), "\nAlso in the report: "));
	assert_non_null(strstr(strbuf_str(&text), "gap analysis\n"));
	strbuf_fini(&text);
	digest_fini(&digest);
}

/* The worst device has the lines of the original; the others are counted. */
static void leaks_of_many_devices_are_one_table(void **state)
{
	struct digest digest = {.pid = 1, .rank = -1};
	struct screen screen = {.digests = &digest, .count = 1};
	struct strbuf text = {0};
	(void)state;

	add_places(&digest, 8, 16);
	found_in(&digest)->vendor = VENDOR_ASCEND;
	screen_text(&screen, &text);
	assert_non_null(strstr(strbuf_str(&text), "\nLEAK on 8 devices: +"));
	assert_non_null(strstr(strbuf_str(&text), "\n  NPU 7  "));
	assert_non_null(strstr(strbuf_str(&text),
			       "\n====== ERROR: Detected memory leaks on device 0 ======\n"));
	assert_null(strstr(strbuf_str(&text), "leaks on device 1"));
	assert_non_null(strstr(strbuf_str(&text), "\n... 7 more devices in report.txt\n"));
	assert_in_range(check_rows(strbuf_str(&text)), 12, SCREEN_ROWS);
	strbuf_fini(&text);
	digest_fini(&digest);
}

/* None of sixteen devices is left out, with paths of two rows, a peak and pools that have no room. */
static void each_of_sixteen_devices_has_its_row(void **state)
{
	struct digest digest = {.pid = 1, .rank = -1};
	struct screen screen = {.digests = &digest, .count = 1, .report = "report.html"};
	struct strbuf text = {0};
	char row[24];
	unsigned int i;
	(void)state;

	add_places(&digest, 16, 32);
	add_peak(&digest, 12);
	found_in(&digest)->vendor = VENDOR_ASCEND;
	digest.project = copy("results_of_a_run/msmemscope_1000_20260101000000_ascend");
	screen.more = "results_of_a_run/msmemscope_1000_20260101000000_ascend";
	screen_text(&screen, &text);
	for (i = 0; i < 16; i++) {
		(void)snprintf(row, sizeof(row), "\n  NPU %-2u ", i);
		assert_non_null(strstr(strbuf_str(&text), row));
	}
	assert_non_null(strstr(strbuf_str(&text), "\n====== SUMMARY: "));
	assert_non_null(strstr(strbuf_str(&text), "\n... 15 more devices in report.txt\n"));
	assert_in_range(check_rows(strbuf_str(&text)), 20, SCREEN_ROWS);
	strbuf_fini(&text);
	digest_fini(&digest);
}

/* What keeps the blocks of the worst process is shown where the table leaves room. */
static void the_worst_of_many_has_its_keeper(void **state)
{
	struct digest digests[4] = {{0}};
	struct screen screen = {.digests = digests, .count = 4};
	struct strbuf text = {0};
	struct finding_keeper *keeper;
	size_t i;
	(void)state;

	for (i = 0; i < 4; i++) {
		digests[i] = (struct digest){.pid = 100 + (uint32_t)i, .rank = (int64_t)i};
		digests[i].name = copy("train.py");
	}
	screen_text(&screen, &text);
	assert_non_null(strstr(strbuf_str(&text), "\nLargest: train.py (pid 100, rank 0)"));
	strbuf_reset(&text);
	add_places(&digests[2], 1, 2);
	add_peak(&digests[2], 12);
	keeper = FINDINGS_ADD_TO(digests[2].own, keeper,
				 &FINDINGS(digests[2].own, place)[0].keepers);
	assert_non_null(keeper);
	*keeper = (struct finding_keeper){.kind = "global",
					  .type = "list",
					  .name = "kept",
					  .root = "global of train.py",
					  .items = 15,
					  .newest_step = 15,
					  .step = 16,
					  .holds = "",
					  .path = "",
					  .cure = "clear it"};
	screen_text(&screen, &text);
	assert_non_null(strstr(strbuf_str(&text), "\nWorst: train.py (pid 102, rank 2)"));
	/* It was found in the middle of the run. */
	assert_non_null(
		strstr(strbuf_str(&text),
		       "\n  kept by: list `kept` (global of train.py), 15 items in step 16\n"
		       "  cure: clear it\n"));
	assert_non_null(strstr(strbuf_str(&text), "\nPEAK of the PyTorch pool: "));
	assert_in_range(check_rows(strbuf_str(&text)), 15, SCREEN_ROWS);
	strbuf_fini(&text);
	for (i = 0; i < 4; i++)
		digest_fini(&digests[i]);
}

static void a_peak_after_the_last_step_says_so(void **state)
{
	struct digest digest = {.pid = 1, .rank = -1, .steps = 40};
	struct screen screen = {.digests = &digest, .count = 1};
	struct strbuf text = {0};
	(void)state;

	add_peak(&digest, 3);
	FINDINGS(digest.own, peak)[0].step = 40;
	screen_text(&screen, &text);
	assert_non_null(strstr(strbuf_str(&text), "1.2 GiB reserved (step 40, "));
	strbuf_reset(&text);
	FINDINGS(digest.own, peak)[0].step = 41;
	screen_text(&screen, &text);
	assert_non_null(strstr(strbuf_str(&text), "1.2 GiB reserved (after step 40, "));
	strbuf_fini(&text);
	digest_fini(&digest);
}

static void blocks_without_a_stack_say_so(void **state)
{
	static const char again[] =
		"\n  Run again with --call-stack=c to see which code they come from.\n";
	struct digest digest = {.pid = 1, .rank = -1};
	struct screen screen = {.digests = &digest, .count = 1};
	struct strbuf text = {0};
	size_t i;
	(void)state;

	add_peak(&digest, 3);
	for (i = 0; i < 3; i++) {
		FINDINGS(digest.own, holder)[i].site = "blocks of 1.0 MiB or more";
		FINDINGS(digest.own, holder)[i].recorded = true;
	}
	screen_text(&screen, &text);
	assert_non_null(strstr(strbuf_str(&text), again));
	assert_null(strstr(strbuf_str(&text), "no call stack"));
	/* Another has one: then this is how they were recorded. */
	strbuf_reset(&text);
	FINDINGS(digest.own, holder)[0].site = "train.py:17 main";
	FINDINGS(digest.own, holder)[0].stack = 1;
	screen_text(&screen, &text);
	assert_null(strstr(strbuf_str(&text), again));
	assert_non_null(strstr(strbuf_str(&text), "  train.py:17 main\n"));
	assert_non_null(
		strstr(strbuf_str(&text), "  blocks of 1.0 MiB or more  (no call stack)\n"));
	strbuf_fini(&text);
	digest_fini(&digest);
}

/* One figure, once, in a sentence that is not cut. */
static void growth_beside_leaks_is_one_whole_sentence(void **state)
{
	struct digest digest = {.pid = 1, .rank = -1};
	struct screen screen = {.digests = &digest, .count = 1};
	struct strbuf text = {0};
	struct finding_trend *trend;
	const char *at;
	(void)state;

	add_places(&digest, 1, 2);
	trend = FINDINGS_ADD(found_in(&digest), trend);
	assert_non_null(trend);
	*trend = (struct finding_trend){.pool = POOL_pta,
					.trend = GROWTH_LEAK,
					.bytes_per_step = 123456789,
					.rises = 11538,
					.steps = 11538,
					.explained = 0.32};
	screen_text(&screen, &text);
	at = strstr(strbuf_str(&text), "\nGROWTH of the PyTorch pool on GPU 0: ");
	assert_non_null(at);
	assert_null(strstr(strbuf_str(&text), "..."));
	at = strstr(strbuf_str(&text), "32 %");
	assert_non_null(at);
	assert_null(strstr(at + 1, "32 %"));
	/* Rates that add up to all of a leak are not said to be 98 % of it. */
	trend->explained = 0.98;
	strbuf_reset(&text);
	screen_text(&screen, &text);
	assert_non_null(
		strstr(strbuf_str(&text), "  These account for nearly all of the pool's growth. "));
	assert_null(strstr(strbuf_str(&text), "98 %"));
	/* What a suspect has of the growth is said with the suspect. */
	trend->bytes_per_step = 3e6;
	trend->explained = 0.66;
	strbuf_reset(&text);
	screen_text(&screen, &text);
	assert_non_null(strstr(strbuf_str(&text), "\nSUSPECT on GPU 0: "));
	assert_null(strstr(strbuf_str(&text), "GROWTH of"));
	assert_null(strstr(strbuf_str(&text), "account for"));
	/* A pool that may be growing, and no call site that leaks. */
	digest.own->lists[FINDING_place].count = 0;
	digest.own->judgement.leaks = digest.own->judgement.suspects = 0;
	trend->trend = GROWTH_SUSPECT;
	trend->explained = 0;
	strbuf_reset(&text);
	screen_text(&screen, &text);
	assert_non_null(strstr(strbuf_str(&text),
			       "\nNo call site leaks, but the PyTorch pool on GPU 0 "
			       "may be growing: +"));
	strbuf_fini(&text);
	digest_fini(&digest);
}

static void add_host_growth(struct digest *digest, bool own, const char *pids, uint64_t processes)
{
	struct finding_host_growth *growth = FINDINGS_ADD(found_in(digest), host_growth);

	assert_non_null(growth);
	*growth =
		(struct finding_host_growth){.severity = SEVERITY_WARNING,
					     .name = own ? "" : "pt_data_worker",
					     .own = own,
					     .processes = processes,
					     .pids = pids,
					     .bytes = processes << 28,
					     .bytes_per_step = own ? 0 : (double)(processes << 20),
					     .bytes_per_second = (double)(processes << 22),
					     .steps = 300,
					     .seconds = 20};
	digest->verdict = VERDICT_SUSPECT;
}

/* The process that grows comes before the one that only started it, and what grows is said once. */
static void the_worst_process_is_the_one_that_grows(void **state)
{
	struct digest digests[] = {
		{.pid = 1, .rank = -1}, {.pid = 22, .rank = -1}, {.pid = 23, .rank = -1}};
	struct screen screen = {.digests = digests, .count = 3};
	struct strbuf text = {0};
	const char *at;
	(void)state;

	add_peak(&digests[0], 3);
	add_host_growth(&digests[0], false, "22, 23", 2);
	add_host_growth(&digests[1], true, "22", 1);
	add_host_growth(&digests[2], true, "23", 1);
	screen_text(&screen, &text);
	assert_non_null(strstr(strbuf_str(&text), "3 processes, 2 with a finding; worst first\n"));
	at = strstr(strbuf_str(&text), "  HOST MEMORY GROWS\n");
	assert_non_null(at);
	assert_true(at < strstr(strbuf_str(&text), "its child processes grow\n"));
	at = strstr(
		strbuf_str(&text),
		"\nHOST MEMORY GROWS: RSS of 2 DataLoader workers +2.0 MiB per step together, ");
	assert_non_null(at);
	assert_null(strstr(at + 2, "HOST MEMORY GROWS"));
	assert_non_null(strstr(at, "\nWorst: ? (pid 22)"));
	strbuf_fini(&text);
	for (size_t i = 0; i < 3; i++)
		digest_fini(&digests[i]);
}

static void figures_are_said_in_words(void **state)
{
	struct strbuf out = {0};
	struct say_sum sum = {.out = &out};
	(void)state;

	/* What is too little does not read as enough. */
	say_part(&out, UINT64_C(1000) << 20, UINT64_C(1) << 30);
	assert_string_equal(strbuf_str(&out), "1000 MiB of 1.0 GiB");
	strbuf_reset(&out);
	say_apart(&out, UINT64_C(2089) << 20, UINT64_C(2067) << 20);
	assert_string_equal(strbuf_str(&out), "2,089 MiB");
	strbuf_reset(&out);
	say_apart(&out, UINT64_C(2089) << 20, UINT64_C(300) << 20);
	assert_string_equal(strbuf_str(&out), "2.0 GiB");
	strbuf_reset(&out);
	say_about(&out, 40573);
	strbuf_add_str(&out, " | ");
	say_duration(&out, 5580);
	strbuf_add_str(&out, " | ");
	say_part(&out, UINT64_C(430) << 20, UINT64_C(140) << 30);
	strbuf_add_str(&out, " | ");
	say_part(&out, 0, UINT64_C(140) << 30);
	strbuf_add_str(&out, " | ");
	say_part(&out, 4096, UINT64_C(140) << 30);
	strbuf_add_str(&out, " | ");
	say_sum_add(&sum, "PyTorch pool", UINT64_C(340) << 20);
	say_sum_add(&sum, "cuBLAS", UINT64_C(130) << 20);
	say_sum_add(&sum, "graphs", 0);
	say_sum_add(&sum, "context", UINT64_C(539) << 20);
	say_sum_add(&sum, "other processes", UINT64_C(2) << 30);
	say_sum_end(&sum);
	assert_string_equal(
		strbuf_str(&out),
		"40,600 | 93 min | 0.4 of 140 GiB | 0 of 140 GiB | 4.0 KiB of 140 GiB"
		" | PyTorch pool 340 MiB + cuBLAS 130 + context 539 MiB + other processes 2.0 GiB");
	strbuf_fini(&out);
}

static void a_process_is_named_by_its_script(void **state)
{
	static const struct {
		const char *exe, *command, *name, *lengths;
	} cases[] = {
		{"/usr/bin/python3.11", "python3 -W ignore /a b/my train.py --x 1", "my train.py",
		 "7 2 6 16 3 1 "},
		{"/usr/bin/python3.11", "python3 -mpkg.main x y", "pkg.main", "7 10 3 "},
		{"/usr/bin/python3.11", "python3 cut", "cut", "7 4000 "},
		{"/usr/bin/python3.11", "python3 -u -W ignore /a/train.py --x 1", "train.py", NULL},
		{"/usr/bin/python3.11", "python3 -m torch.distributed.run x.py",
		 "torch.distributed.run", NULL},
		{"/usr/bin/python3.11", "python3 -c import x", "python -c", NULL},
		{"/usr/bin/python3.11", "python3", "python3.11", NULL},
		{"/usr/bin/python3.11", NULL, "python3.11", NULL},
		{"/opt/a.out", "a.out train.py", "a.out", NULL},
		{NULL, NULL, "?", NULL},
	};
	size_t i;
	(void)state;

	for (i = 0; i < MSCOPE_COUNT(cases); i++) {
		char *name = digest_name(cases[i].exe, cases[i].command, cases[i].lengths);

		assert_string_equal(name, cases[i].name);
		free(name);
	}
}

static void conditions_are_met_by_what_was_found(void **state)
{
	struct digest digest = {.pid = 7, .rank = -1};
	struct digest_pool pool = {
		.pool = POOL_pta, .peak_bytes = 100, .judged = true, .growth_bytes = 10};
	struct findings found = {0};
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
	digest.found = &found;
	found.judgement.suspects = 1;
	assert_false(conditions_met(&(struct option_conditions){.leak = true}, &digest, 1, &why));
	assert_true(conditions_met(&(struct option_conditions){.suspect = true}, &digest, 1, &why));
	found.judgement.leaks = digest.oom_count = 1;
	assert_true(conditions_met(&(struct option_conditions){.leak = true}, &digest, 1, &why));
	assert_true(conditions_met(&(struct option_conditions){.oom = true}, &digest, 1, &why));
	strbuf_fini(&why);
}

/* A name as it is shown among others in so many columns. */
static const char *named(struct strbuf *out, const char *const *all, size_t count, size_t at,
			 size_t columns)
{
	strbuf_reset(out);
	screen_name(all[at], true, all, count, columns, out);
	assert_true(screen_columns(strbuf_str(out)) <= columns);
	return strbuf_str(out);
}

static void names_keep_the_users_lines_and_what_tells_them_apart(void **state)
{
	static const char *const cxx[] = {
		"serve::Session::evaluate_with_attention (serve.cpp:19) -> serve::make (serve.cpp:17) "
		"-> serve::Buffer<...>::Buffer (serve.cpp:12)",
		"serve::Session::run::{lambda#1}::operator() (serve.cpp:22) -> serve::make "
		"(serve.cpp:17) -> serve::Buffer<...>::Buffer (serve.cpp:12)",
	};
	static const char *const python[] = {
		"train.py:88 Trainer.validate_one_epoch -> model.py:41 Net.forward -> "
		"Sequential.forward -> Linear.forward -> torch.nn.functional.linear",
		"train.py:90 Trainer.train_one_epoch -> model.py:41 Net.forward -> "
		"Sequential.forward -> Linear.forward -> torch.nn.functional.linear",
	};
	static const char *const one_file[] = {
		"p01_callback.py:57 main -> p01_callback.py:31 KeepingTrainer.compute_loss -> "
		"GPT2.forward -> Linear.forward",
	};
	static const char *const pairs[] = {
		"main (a.cpp:14) -> Graph::add (a.cpp:18) -> Node::Node (a.cpp:8) -> devAlloc (dev.h:13)",
		"main (a.cpp:14) -> Graph::add (a.cpp:18) -> ConvNode::ConvNode (a.cpp:11) -> devAlloc (dev.h:13)",
		"main (a.cpp:13) -> Graph::add (a.cpp:18) -> Node::Node (a.cpp:8) -> devAlloc (dev.h:13)",
		"main (a.cpp:13) -> Graph::add (a.cpp:18) -> ConvNode::ConvNode (a.cpp:11) -> devAlloc (dev.h:13)",
	};
	static const char sizes[] = "blocks of 15.6 MiB to 23.3 MiB in the PyTorch pool (PTA)";
	struct strbuf out = {0};
	size_t columns;

	(void)state;
	assert_string_equal(named(&out, cxx, 2, 0, 200), cxx[0]);
	assert_string_equal(named(&out, cxx, 2, 0, 100),
			    "Session::evaluate_with_attention (serve.cpp:19) -> make "
			    "(serve.cpp:17) -> Buffer (serve.cpp:12)");
	assert_string_equal(named(&out, cxx, 2, 0, 70),
			    "Session::evaluate_with_attention (serve.cpp:19) -> ... -> "
			    "serve.cpp:12");
	assert_string_equal(named(&out, cxx, 2, 1, 70),
			    "run::{lambda#1} (serve.cpp:22) -> serve.cpp:17 -> serve.cpp:12");
	assert_string_equal(
		named(&out, python, 2, 0, 100),
		"train.py:88 Trainer.validate_one_epoch -> model.py:41 forward -> ... -> "
		"functional.linear");
	assert_string_equal(named(&out, python, 2, 1, 60),
			    "train.py:90 train_one_epoch -> ... -> functional.linear");
	/* Sizes are not frames, and their dots are not qualifiers. */
	strbuf_reset(&out);
	screen_name(sizes, false, NULL, 0, 50, &out);
	assert_non_null(strstr(strbuf_str(&out), "blocks of 15.6 MiB"));
	assert_int_equal(screen_columns(strbuf_str(&out)), 50);
	/* Alone, nothing is common. */
	assert_string_equal(named(&out, python, 1, 0, 84),
			    "train.py:88 validate_one_epoch -> model.py:41 forward -> ... -> "
			    "functional.linear");
	/* The line stays to the end, and two names never become one while there is room for lines. */
	for (columns = 60; columns > 24; columns--) {
		struct strbuf other = {0};

		assert_non_null(strstr(named(&out, python, 2, 0, columns), "train.py:88"));
		assert_string_not_equal(strbuf_str(&out), named(&other, python, 2, 1, columns));
		assert_non_null(strstr(named(&out, cxx, 2, 1, columns), "serve.cpp:22"));
		strbuf_fini(&other);
	}
	/* Before a line of the user is left out, a file is named once. */
	assert_string_equal(named(&out, one_file, 1, 0, 78),
			    "p01_callback.py:57 -> p01_callback.py:31 compute_loss -> ... -> "
			    "Linear.forward");
	assert_string_equal(named(&out, one_file, 1, 0, 46),
			    "p01_callback.py:57 -> :31 compute_loss -> ...");
	/* No frame of the first is its own: what tells it from the one that would read the same is shown. */
	for (columns = 44; columns < 60; columns++) {
		struct strbuf other = {0};

		assert_string_not_equal(named(&out, pairs, 4, 0, columns),
					named(&other, pairs, 4, 1, columns));
		strbuf_fini(&other);
	}
	/* Any text may be a name. */
	for (columns = 8; columns < 40; columns++) {
		static const char *const odd[] = {
			" -> ",
			" -> -> a:1 -> ",
			"(f) ()) -> ::: -> a::b<c::d -> x.y.z....",
			"\xe8\xae\xad.py:7 \xe7\xbb\x83 -> \xe8\xae\xad.\xe7\xbb\x83",
		};
		size_t i;

		for (i = 0; i < MSCOPE_COUNT(odd); i++)
			(void)named(&out, odd, MSCOPE_COUNT(odd), i, columns);
	}
	strbuf_fini(&out);
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
		cmocka_unit_test(the_peak_is_that_of_the_pool_people_work_in),
		cmocka_unit_test(what_has_no_room_is_left_out_whole_and_named),
		cmocka_unit_test(leaks_of_many_devices_are_one_table),
		cmocka_unit_test(each_of_sixteen_devices_has_its_row),
		cmocka_unit_test(the_worst_of_many_has_its_keeper),
		cmocka_unit_test(a_peak_after_the_last_step_says_so),
		cmocka_unit_test(blocks_without_a_stack_say_so),
		cmocka_unit_test(growth_beside_leaks_is_one_whole_sentence),
		cmocka_unit_test(the_worst_process_is_the_one_that_grows),
		cmocka_unit_test(figures_are_said_in_words),
		cmocka_unit_test(a_process_is_named_by_its_script),
		cmocka_unit_test(conditions_are_met_by_what_was_found),
		cmocka_unit_test(names_keep_the_users_lines_and_what_tells_them_apart),
	};

	return cmocka_run_group_tests_name("screen", tests, NULL, NULL);
}
