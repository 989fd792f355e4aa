/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The sentences about call sites, pools and forecasts, and the words that they are made of: each case of each, word for word, from
 * findings that no analysis has to come to first.
 */
#include "unit.h"

#include "base/vendors.h"
#include "findings/findings.h"
#include "findings/say.h"

#define KIB UINT64_C(1024)
#define MIB (UINT64_C(1) << 20)

#define LEAK	.verdict = GROWTH_LEAK
#define SUSPECT .verdict = GROWTH_SUSPECT

/* A call site of a run of `steps` steps, its sentence and, of a leak or a suspect, its few words. */
struct said {
	uint32_t steps;
	struct finding_place place;
	const char *sentence, *brief, *briefest;
};

static struct findings run_of(uint32_t steps)
{
	return (struct findings){.vendor = VENDOR_CUDA, .judgement = {.last_step = steps}};
}

static void check_place(struct findings *found, const struct said *said)
{
	struct strbuf text = {0};

	place_sentence(found, &said->place, &text);
	assert_string_equal(strbuf_str(&text), said->sentence);
	strbuf_fini(&text);
	if (said->brief != NULL) {
		place_brief(found, &said->place, true, &text);
		assert_string_equal(strbuf_str(&text), said->brief);
		strbuf_fini(&text);
		place_brief(found, &said->place, false, &text);
		assert_string_equal(strbuf_str(&text), said->briefest);
		strbuf_fini(&text);
	}
}

static void check_places(const struct said *all, size_t count)
{
	size_t i;

	for (i = 0; i < count; i++) {
		struct findings found = run_of(all[i].steps);

		check_place(&found, &all[i]);
	}
}

/* ---- call sites ---- */

static void leaks_are_told_by_what_stays(void **state)
{
	static const struct said all[] = {
		{30,
		 {LEAK, .reason = GROWTH_STAYS, .usual_age = -1, .overdue_blocks = 29,
		  .overdue_bytes = 29 * MIB, .first_step = 2, .bytes_per_step = MIB,
		  .bytes_per_step_low = 0.9 * MIB, .bytes_per_step_high = 1.1 * MIB},
		 "1.0 MiB per step (0.9 to 1.1), 29 blocks, 29.0 MiB since step 2. Nothing of it was freed.",
		 "29 blocks, none freed",
		 "29 blocks"},
		{19,
		 {LEAK, .reason = GROWTH_STAYS, .usual_age = -1, .overdue_blocks = 1,
		  .overdue_bytes = 512, .first_step = 3, .bytes_per_step = 999, .freed = 1,
		  .young_blocks = 1},
		 "about 999.0 B per step, 1 block, 512 B since step 3. 1 newer block is not judged yet.",
		 "1 of 2 blocks not freed",
		 "1 block"},
		{20,
		 {LEAK, .reason = GROWTH_FORGETS, .usual_age = 0, .overdue_blocks = 4,
		  .overdue_bytes = 4096, .bytes_per_step = 1000, .freed = 1230, .freed_usual = 1200,
		  .young_blocks = 2},
		 "1.0 KiB per step: 4 blocks older than 1 step; it usually frees within the step (1,200 of 1,234 blocks). 2 newer blocks are not judged yet.",
		 "4 of 1,234 blocks not freed",
		 "4 blocks"},
		{20,
		 {LEAK, .reason = GROWTH_STAYS, .usual_age = 3, .overdue_blocks = 4,
		  .bytes_per_step = 1024, .freed = 6, .freed_usual = 5},
		 "1.0 KiB per step: 4 blocks older than 7 steps; it usually frees within 3 steps (5 of 10 blocks).",
		 "4 of 10 blocks not freed",
		 "4 blocks"},
		{20,
		 {LEAK, .reason = GROWTH_SIZES, .usual_age = 1, .overdue_blocks = 9,
		  .overdue_bytes = 90, .first_step = 4, .bytes_per_step = 10, .freed = 1,
		  .rises = 5, .rise_steps = 6, .young_blocks = 3},
		 "10.0 B per step, 9 blocks, 90 B since step 4. Its blocks have many sizes: run again with --call-stack=c to see where they come from.",
		 "many sizes, grew in 5 of 6 steps",
		 "many sizes, grew in 5 of 6 steps"},
	};

	(void)state;
	check_places(all, MSCOPE_COUNT(all));
}

static void leaks_whose_level_climbs_are_told_by_their_rises(void **state)
{
	static const struct said all[] = {
		{20,
		 {LEAK, .reason = GROWTH_CLIMBS, .usual_age = 1, .blocks = 2, .rises = 18,
		  .rise_steps = 19, .bytes_per_step = 2 * KIB, .young_blocks = 1},
		 "grows by reallocation: 2.0 KiB per step in 18 of 19 steps; each block replaces a smaller one.",
		 "each block replaces a smaller one",
		 "each block replaces a smaller one"},
		{20,
		 {LEAK, .reason = GROWTH_CLIMBS, .usual_age = 1, .blocks = 3, .rises = 18,
		  .rise_steps = 19, .bytes_per_step = 2 * KIB},
		 "its level climbs: 2.0 KiB per step in 18 of 19 steps, although it frees blocks.",
		 "frees less than it allocates",
		 "frees less than it allocates"},
		{20,
		 {LEAK, .reason = GROWTH_CLIMBS, .by_handles = true, .blocks = 2, .rises = 18,
		  .rise_steps = 19, .bytes_per_step = 2 * KIB},
		 "driver memory beside the pools grows: 2.0 KiB per step in 18 of 19 steps.",
		 "driver memory beside the pools",
		 "driver memory beside the pools"},
	};

	(void)state;
	check_places(all, MSCOPE_COUNT(all));
}

#define GREW                                                                                       \
	SUSPECT, .usual_age = -1, .rises = 4, .rise_steps = 9, .overdue_blocks = 3,                \
		 .young_blocks = 1, .kept_bytes = 4 * MIB

static void suspects_are_told_by_what_would_decide(void **state)
{
	static const struct said all[] = {
		{12,
		 {SUSPECT, .reason = GROWTH_ONCE, .overdue_blocks = 1, .overdue_bytes = 512,
		  .freed = 40},
		 "1 block, 512 B stayed; its other 40 blocks were freed within their step. Forgotten, or made once to be kept: that cannot be told.",
		 "1 of 41 blocks stayed",
		 "1 block stayed"},
		{12,
		 {SUSPECT, .reason = GROWTH_ONCE, .overdue_blocks = 2, .overdue_bytes = 512,
		  .freed = 1},
		 "2 blocks, 512 B stayed; its other 1 block was freed within their step. Forgotten, or made once to be kept: that cannot be told.",
		 "2 of 3 blocks stayed",
		 "2 blocks stayed"},
		{12,
		 {GREW, .reason = GROWTH_SIZES},
		 "grew in 4 of 9 steps, 4 blocks, 4.0 MiB. Blocks of many sizes grow together: run again with --call-stack=c to see which call site they come from.",
		 "grew in 4 of 9 steps",
		 "grew in 4 of 9 steps"},
		{12,
		 {SUSPECT, .reason = GROWTH_TOO_SHORT, .by_handles = true, .usual_age = -1,
		  .rises = 4, .rise_steps = 9, .bytes = 3 * MIB, .kept_bytes = 4 * MIB},
		 "grew in 4 of 9 steps, 3.0 MiB. It may be a cache that fills: run longer to tell.",
		 "grew in 4 of 9 steps",
		 "grew in 4 of 9 steps"},
		{9,
		 {GREW},
		 "grew in 4 of 9 steps, 4 blocks, 4.0 MiB. Too short to tell a leak from a cache that fills: run 10 steps or more.",
		 "grew in 4 of 9 steps",
		 "grew in 4 of 9 steps"},
		{9,
		 {GREW, .quiet = 2, .pause = 2, .more_steps = 5},
		 "grew in 4 of 9 steps, 4 blocks, 4.0 MiB. Too short to tell a leak from a cache that fills: run 10 steps or more.",
		 "grew in 4 of 9 steps",
		 "grew in 4 of 9 steps"},
		{9,
		 {GREW, .quiet = 2, .pause = 3, .more_steps = 1},
		 "grew in 4 of 9 steps, 4 blocks, 4.0 MiB. About 1 more step would decide it.",
		 "grew in 4 of 9 steps",
		 "grew in 4 of 9 steps"},
		{12,
		 {SUSPECT, .usual_age = 0, .rises = 4, .rise_steps = 9, .young_blocks = 1,
		  .kept_bytes = 8, .more_steps = 3},
		 "grew in 4 of 9 steps, 1 block, 8 B. All of it may still be in use: run longer to tell.",
		 "grew in 4 of 9 steps; may be in use",
		 "grew in 4 of 9 steps"},
		{12,
		 {GREW},
		 "grew in 4 of 9 steps, 4 blocks, 4.0 MiB. It may be a cache that fills: run longer to tell.",
		 "grew in 4 of 9 steps",
		 "grew in 4 of 9 steps"},
	};

	(void)state;
	check_places(all, MSCOPE_COUNT(all));
}

static void suspects_say_how_long_to_run(void **state)
{
	static const struct said all[] = {
		{10,
		 {GREW, .quiet = 1, .pause = 1, .every = 2},
		 "grew in 4 of 9 steps, 4 blocks, 4.0 MiB. It did not grow in the last step: run longer to tell a leak from a cache that has filled.",
		 "grew in 4 of 9 steps, not in the last one",
		 "grew in 4 of 9 steps"},
		{12,
		 {GREW, .quiet = 6, .pause = 2, .more_steps = 1200, .by_quiet = true},
		 "grew in 4 of 9 steps, 4 blocks, 4.0 MiB. It did not grow in the last 6 steps; 1,200 more steps without growth would show that it has stopped.",
		 "grew in 4 of 9 steps, not in the last 6",
		 "grew in 4 of 9 steps"},
		{12,
		 {GREW, .quiet = 6, .pause = 2, .more_steps = 7},
		 "grew in 4 of 9 steps, 4 blocks, 4.0 MiB. It did not grow in the last 6 steps: run longer to tell a leak from a cache that has filled.",
		 "grew in 4 of 9 steps, not in the last 6",
		 "grew in 4 of 9 steps"},
		{12,
		 {GREW, .every = 1, .more_steps = 7},
		 "grew in 4 of 9 steps, 4 blocks, 4.0 MiB. It grew every step; 7 more steps would decide it.",
		 "grew in 4 of 9 steps; 7 more would decide it",
		 "grew in 4 of 9 steps"},
		{12,
		 {GREW, .every = 10, .more_steps = 7},
		 "grew in 4 of 9 steps, 4 blocks, 4.0 MiB. It grew every tenth step; 7 more steps would decide it.",
		 "grew in 4 of 9 steps; 7 more would decide it",
		 "grew in 4 of 9 steps"},
		{12,
		 {GREW, .every = 11, .more_steps = 7, .by_quiet = true},
		 "grew in 4 of 9 steps, 4 blocks, 4.0 MiB. It grew every 11 steps: run longer to tell a leak from a cache that fills.",
		 "grew in 4 of 9 steps; 7 more would decide it",
		 "grew in 4 of 9 steps"},
		{12,
		 {GREW, .more_steps = 7, .by_quiet = true},
		 "grew in 4 of 9 steps, 4 blocks, 4.0 MiB. Run longer to tell a leak from a cache that fills.",
		 "grew in 4 of 9 steps; 7 more would decide it",
		 "grew in 4 of 9 steps"},
	};

	(void)state;
	check_places(all, MSCOPE_COUNT(all));
}

static void what_is_kept_says_why(void **state)
{
	static const struct said all[] = {
		{30,
		 {.reason = GROWTH_FLAT, .blocks = 2, .bytes = 2048},
		 "2 blocks, 2.0 KiB, and does not grow after the first step.",
		 NULL,
		 NULL},
		{30,
		 {.reason = GROWTH_OWNED, .blocks = 1, .bytes = 2048},
		 "1 block, 2.0 KiB, held for the whole run, as weights and optimizer state are.",
		 NULL,
		 NULL},
		{30,
		 {.reason = GROWTH_IN_USE, .blocks = 3, .bytes = 96, .usual_age = 2},
		 "3 blocks, 96 B, in use: it frees its blocks within 2 steps.",
		 NULL,
		 NULL},
		{30,
		 {.reason = GROWTH_STOPPED,
		  .blocks = 3,
		  .bytes = 96,
		  .first_step = 2,
		  .last_step = 2,
		  .quiet = 28},
		 "3 blocks, 96 B, made in step 2; nothing in the 28 steps since.",
		 NULL,
		 NULL},
		{30,
		 {.reason = GROWTH_STOPPED,
		  .blocks = 3,
		  .bytes = 96,
		  .first_step = 2,
		  .last_step = 5,
		  .quiet = 1,
		  .bound_per_step = 1023.5},
		 "3 blocks, 96 B, made in steps 2 to 5; nothing in the step since (if it grows again, then by less than 1.0 KiB per step).",
		 NULL,
		 NULL},
	};

	(void)state;
	check_places(all, MSCOPE_COUNT(all));
}

/* Parts of the run instead of steps: rates are for a second. */
static void without_steps_rates_are_for_seconds(void **state)
{
	static const struct said all[] = {
		{30,
		 {LEAK, .reason = GROWTH_STAYS, .usual_age = -1, .overdue_blocks = 2,
		  .overdue_bytes = 2048, .first_step = 2, .bytes_per_step = 1024,
		  .bytes_per_step_low = 512, .bytes_per_step_high = 2048},
		 "4.0 KiB per second (2.0 to 8.0), 2 blocks, 2.0 KiB since part 2. Nothing of it was freed.",
		 "2 blocks, none freed",
		 "2 blocks"},
		{5,
		 {GREW},
		 "grew in 4 of 9 parts, 4 blocks, 4.0 MiB. No step was marked, so a leak cannot be told from a program that starts: mark steps.",
		 "grew 4 times in 2.2 s",
		 "grew 4 times in 2.2 s"},
	};
	struct strbuf text = {0};
	size_t i;

	(void)state;
	for (i = 0; i < MSCOPE_COUNT(all); i++) {
		struct findings found = run_of(all[i].steps);

		found.judgement.by_time = true;
		found.judgement.step_seconds = 0.25;
		check_place(&found, &all[i]);
		rate_words(&found, 1024, &text);
		assert_string_equal(strbuf_str(&text), "+4.0 KiB");
		strbuf_fini(&text);
		assert_string_equal(rate_unit(&found), "second");
	}
}

#define HISTORY                                                                                    \
	.kind = "global", .type = "list", .name = "history", .root = "global of a.py", .holds = ""

static void keepers_are_told_by_their_items(void **state)
{
	static const struct {
		struct finding_keeper keeper;
		const char *says;
	} all[] = {
		{{HISTORY}, "list `history` (global of a.py)"},
		{{HISTORY, .items = 1, .newest_step = 30},
		 "list `history` (global of a.py), 1 item, newest from step 30"},
		{{HISTORY, .items = 40, .newest_step = 29},
		 "list `history` (global of a.py), 40 items"},
		{{HISTORY, .items = 40, .most = 1000},
		 "list `history` (global of a.py), 40 of at most 1,000 items"},
		{{.kind = "global",
		  .type = "linked list",
		  .name = "head",
		  .root = "global of a.py",
		  .holds = "",
		  .items = 7},
		 "linked list `head` (global of a.py), 7 nodes"},
		{{.kind = "gradient",
		  .type = "dict",
		  .name = "layers",
		  .root = "global of a.py",
		  .holds = "",
		  .items = 3},
		 "gradients of tensors in dict `layers` (global of a.py), 3 items"},
		{{.kind = "gradient",
		  .type = "tensor",
		  .name = "w",
		  .root = "global of a.py",
		  .holds = ""},
		 "gradient of tensor `w` (global of a.py)"},
		{{HISTORY, .step = 5}, "list `history` (global of a.py), seen in step 5"},
		{{HISTORY, .step = 28, .items = 2},
		 "list `history` (global of a.py), 2 items in step 28"},
		{{HISTORY, .step = 29, .items = 2}, "list `history` (global of a.py), 2 items"},
		{{.kind = "hook",
		  .type = "dict",
		  .name = "kept",
		  .root = "closure of a.py",
		  .holds = "a graph"},
		 "dict `kept` of a hook (closure of a.py); it holds a graph"},
		{{.kind = "graph", .name = "", .root = "`loss`", .items = 3, .holds = "a graph"},
		 "autograd's graph of `loss`, 3 items; each holds a graph"},
		{{.kind = "cycle", .type = "3"},
		 "a reference cycle of 3 objects; gc.collect() would free it"},
		{{.kind = "unnamed", .type = "a list"},
		 "a list that no variable of Python leads to"},
		{{.kind = "cpp"}, "C++ only: no Python object and no autograd graph holds it"},
	};
	struct findings found = run_of(30);
	struct strbuf text = {0};
	size_t i;

	(void)state;
	for (i = 0; i < MSCOPE_COUNT(all); i++) {
		keeper_sentence(&found, &all[i].keeper, &text);
		assert_string_equal(strbuf_str(&text), all[i].says);
		strbuf_fini(&text);
	}
}

/* ---- pools and forecasts ---- */

static void pinned_memory_that_pytorch_reuses_is_told(void **state)
{
	struct findings found = run_of(30);
	struct said said = {
		.place = {LEAK, .pool = POOL_host_pinned, .device = DEVICE_HOST, .usual_age = -1,
			  .overdue_blocks = 2, .overdue_bytes = 64, .first_step = 2,
			  .bytes_per_step = 8},
		.sentence =
			"8.0 B per step, 2 blocks, 64 B since step 2. Nothing of it was freed. PyTorch reuses pinned memory: these blocks were "
			"first taken here, and another line may keep them.",
		.brief = "2 blocks, first taken here",
		.briefest = "2 blocks"};

	(void)state;
	FINDINGS_ADD(&found, trend)->pool = POOL_host_pinned;
	FINDINGS_ADD(&found, trend)->pool = POOL_pta;
	check_place(&found, &said);
	findings_fini(&found);
}

static void add_forecast(struct findings *found, uint32_t device, uint64_t from, uint64_t to)
{
	struct finding_forecast *forecast = FINDINGS_ADD(found, forecast);

	forecast->device = device;
	forecast->vendor = VENDOR_CUDA;
	forecast->full_step_low = from;
	forecast->full_step_high = to;
	forecast->bytes_per_step = 2 * MIB;
	forecast->seconds = 3 * 3600 + 600;
}

static struct finding_place *add_leak(struct findings *found, uint32_t device, const char *name)
{
	struct finding_place *place = FINDINGS_ADD(found, place);

	*place = (struct finding_place){LEAK,
					.device = device,
					.name = name,
					.pool = POOL_pta,
					.usual_age = -1,
					.freed = 1,
					.overdue_blocks = 1,
					.overdue_bytes = 8,
					.first_step = 2,
					.bytes_per_step = MIB,
					.steps_until_full = 40573,
					.seconds_until_full = 100 * 60};
	return place;
}

static void assert_place(const struct findings *found, size_t index, const char *sentence)
{
	struct strbuf text = {0};

	place_sentence(found, &FINDINGS(found, place)[index], &text);
	assert_string_equal(strbuf_str(&text), sentence);
	strbuf_fini(&text);
}

/* Of each device, at the first of its leaks. */
static void the_first_leak_of_a_device_says_when_it_is_full(void **state)
{
	struct findings found = run_of(30);

	(void)state;
	found.judgement.step_seconds = 0.1;
	add_leak(&found, 0, "a.py:1");
	add_leak(&found, 0, "a.py:2");
	add_leak(&found, 1, "a.py:3");
	add_forecast(&found, 1, 1900, 2050);
	assert_place(
		&found, 0,
		"1.0 MiB per step, 1 block, 8 B since step 2. GPU 0 is full in about 40,600 steps (about 100 min).");
	assert_place(&found, 1, "1.0 MiB per step, 1 block, 8 B since step 2.");
	assert_place(
		&found, 2,
		"1.0 MiB per step, 1 block, 8 B since step 2. GPU 1 is full in about 40,600 steps (about 100 min), at step 1,900 to 2,050.");
	/* Short steps are no training's: without the time. */
	found.judgement.step_seconds = 0.0009;
	FINDINGS(&found, place)->steps_until_full = 1;
	assert_place(&found, 0,
		     "1.0 MiB per step, 1 block, 8 B since step 2. GPU 0 is full in about 1 step.");
	FINDINGS(&found, place)->seconds_until_full = 366.0 * 86400;
	assert_place(&found, 0, "1.0 MiB per step, 1 block, 8 B since step 2.");
	findings_fini(&found);
}

static void assert_forecast(const struct findings *found, size_t index, const char *sentence)
{
	struct strbuf text = {0};

	forecast_sentence(found, &FINDINGS(found, forecast)[index], &text);
	assert_string_equal(strbuf_str(&text), sentence);
	strbuf_fini(&text);
}

static void forecasts_name_the_call_site_that_grows_most(void **state)
{
	struct findings found = run_of(30);
	static const struct {
		double seconds;
		const char *says;
	} times[] = {{0.9, ""},
		     {1, ", in about 1 s"},
		     {119, ", in about 119 s"},
		     {120, ", in about 2 min"},
		     {7169, ", in about 119 min"},
		     {7170, ", in about 2 h 0 min"},
		     {86369, ", in about 23 h 59 min"},
		     {86370, ", in about 24 h"},
		     {259199, ", in about 72 h"},
		     {259200, ", in about 3 days"},
		     {365.0 * 86400, ""}};
	char said[100];
	size_t i;

	(void)state;
	add_leak(&found, 1, "a.py:3");
	add_leak(&found, 0, "a.py:4")->bytes_per_step = MIB - 1;
	add_forecast(&found, 1, 1900, 2050);
	add_forecast(&found, 0, 7, 7);
	add_forecast(&found, 2, 7, 7);
	assert_forecast(
		&found, 0,
		"GPU 1 will be full at step 1,900 to 2,050, in about 3 h 10 min: +2.0 MiB per step, most of it at a.py:3");
	assert_forecast(
		&found, 1,
		"GPU 0 will be full at step 7, in about 3 h 10 min: +2.0 MiB per step, also at a.py:4");
	FINDINGS(&found, forecast)[2].vendor = VENDOR_ASCEND;
	for (i = 0; i < MSCOPE_COUNT(times); i++) {
		FINDINGS(&found, forecast)[2].seconds = times[i].seconds;
		(void)snprintf(said, sizeof(said),
			       "NPU 2 will be full at step 7%s: +2.0 MiB per step", times[i].says);
		assert_forecast(&found, 2, said);
	}
	FINDINGS(&found, forecast)[2].device = DEVICE_HOST;
	assert_forecast(&found, 2, "Host memory will be full at step 7: +2.0 MiB per step");
	findings_fini(&found);
}

/* ---- words ---- */

static void numbers_and_times_read_as_people_write_them(void **state)
{
	static const struct {
		uint64_t number;
		const char *said, *about;
	} numbers[] = {{0, "0", "0"},
		       {999, "999", "999"},
		       {1000, "1,000", "1,000"},
		       {1004, "1,004", "1,000"},
		       {1005, "1,005", "1,010"},
		       {40573, "40,573", "40,600"},
		       {1999999, "1,999,999", "2,000,000"}};
	static const struct {
		double seconds;
		const char *lasts, *took;
	} times[] = {
		{0.0009, "0 s", "0.9 ms"}, {0.00095, "0 s", "1 ms"},	 {0.099, "0 s", "99 ms"},
		{0.0995, "0 s", "0.1 s"},  {119, "119 s", "119.0 s"},	 {120, "2 min", "120.0 s"},
		{600, "10 min", "10 min"}, {7199, "120 min", "120 min"}, {7200, "2 h", "2 h"},
		{259199, "72 h", "72 h"},  {259200, "3 days", "3 days"}};
	struct strbuf text = {0};
	size_t i;

	(void)state;
	for (i = 0; i < MSCOPE_COUNT(numbers); i++) {
		say_number(&text, numbers[i].number);
		assert_string_equal(strbuf_str(&text), numbers[i].said);
		strbuf_fini(&text);
		say_about(&text, numbers[i].number);
		assert_string_equal(strbuf_str(&text), numbers[i].about);
		strbuf_fini(&text);
	}
	for (i = 0; i < MSCOPE_COUNT(times); i++) {
		say_duration(&text, times[i].seconds);
		assert_string_equal(strbuf_str(&text), times[i].lasts);
		strbuf_fini(&text);
		say_seconds(&text, times[i].seconds);
		assert_string_equal(strbuf_str(&text), times[i].took);
		strbuf_fini(&text);
	}
}

static void sizes_beside_each_other_share_a_unit(void **state)
{
	static const struct {
		uint64_t from, to;
		const char *part, *change;
	} pairs[] = {{400 * MIB, 140 * KIB * MIB, "0.4 of 140 GiB", "400 MiB -> 140 GiB"},
		     {4 * MIB, 140 * KIB * MIB, "4.0 MiB of 140 GiB", "4.0 MiB -> 140 GiB"},
		     {0, 4 * MIB, "0 of 4.0 MiB", "0 B -> 4.0 MiB"},
		     {4 * MIB, 5 * MIB, "4.0 of 5.0 MiB", "4.0 -> 5.0 MiB"},
		     {100 * MIB, 200 * MIB, "100 of 200 MiB", "100 -> 200 MiB"},
		     {4 * MIB, 4 * MIB, "4.0 of 4.0 MiB", "4.0 MiB"},
		     {4 * MIB, 4 * MIB + 512, "4.0 of 4.0 MiB", "4.0 MiB (+512 B)"},
		     {4 * MIB + 512, 4 * MIB, "4.0 of 4.0 MiB", "4.0 MiB (-512 B)"},
		     {7, 9, "7 of 9 B", "7 -> 9 B"}};
	struct strbuf text = {0};
	size_t i;

	(void)state;
	for (i = 0; i < MSCOPE_COUNT(pairs); i++) {
		say_part(&text, pairs[i].from, pairs[i].to);
		assert_string_equal(strbuf_str(&text), pairs[i].part);
		strbuf_fini(&text);
		say_change(&text, pairs[i].from, pairs[i].to);
		assert_string_equal(strbuf_str(&text), pairs[i].change);
		strbuf_fini(&text);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(leaks_are_told_by_what_stays),
		cmocka_unit_test(leaks_whose_level_climbs_are_told_by_their_rises),
		cmocka_unit_test(suspects_are_told_by_what_would_decide),
		cmocka_unit_test(suspects_say_how_long_to_run),
		cmocka_unit_test(what_is_kept_says_why),
		cmocka_unit_test(without_steps_rates_are_for_seconds),
		cmocka_unit_test(keepers_are_told_by_their_items),
		cmocka_unit_test(pinned_memory_that_pytorch_reuses_is_told),
		cmocka_unit_test(the_first_leak_of_a_device_says_when_it_is_full),
		cmocka_unit_test(forecasts_name_the_call_site_that_grows_most),
		cmocka_unit_test(numbers_and_times_read_as_people_write_them),
		cmocka_unit_test(sizes_beside_each_other_share_a_unit),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
