/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The settings of a launch: from words of the command line to the session, the numbers of the API and config.json, and what one
 * setting brings with it.
 */
#include <stdlib.h>
#include <string.h>

#include "unit.h"

#include "cli/cli.h"
#include "options/options_table.h"
#include "sink/config.h"
#include "trace/launch.h"
#include "trace/settings.h"

#define TEST(name) cmocka_unit_test(name)

#define BLOCKS (SESSION_ALLOC | SESSION_FREE)

/* Parses a line of options before a program. */
static void parse(struct options *out, const char *first, const char *second)
{
	static char command[] = "msmemscope", program[] = "program";
	char *argv[5] = {command};
	struct mscope_error err = {0};
	int argc = 1;

	if (first != NULL)
		argv[argc++] = (char *)(uintptr_t)first;
	if (second != NULL)
		argv[argc++] = (char *)(uintptr_t)second;
	argv[argc++] = program;
	if (options_parse(argc, argv, out, &err) != 0)
		fail_msg("%s", err.message);
}

static struct event_settings choices_of(const char *first, const char *second)
{
	struct event_settings settings;
	struct options options;

	parse(&options, first, second);
	settings = launch_choices(&options);
	options_fini(&options);
	return settings;
}

/* ---- what one brings with it ---- */

static void events_come_in_pairs_and_with_the_analysis_that_was_named(void **state)
{
	static const struct {
		const char *events, *analysis;
		uint32_t wanted_events, wanted_analysis;
	} cases[] = {
		{NULL, NULL, BLOCKS | SESSION_LAUNCH, SESSION_LEAKS},
		{"--events=alloc", NULL, BLOCKS, SESSION_LEAKS},
		{"--events=free", NULL, BLOCKS, SESSION_LEAKS},
		{"--events=access", NULL, BLOCKS | SESSION_ACCESS, SESSION_LEAKS},
		{"--events=launch", NULL, SESSION_LAUNCH, 0},
		{"--events=none", NULL, 0, 0},
		{"--events=traceback", NULL, 0, 0},
		/* The same analysis, but named: it brings what it looks at. */
		{"--events=launch", "--analysis=leaks", BLOCKS | SESSION_LAUNCH, SESSION_LEAKS},
		{"--events=none", "--analysis=decompose", BLOCKS, SESSION_DECOMPOSE},
		{"--events=none", "--analysis=inefficient",
		 BLOCKS | SESSION_ACCESS | SESSION_LAUNCH, SESSION_INEFFICIENT},
		{"--events=launch", "--analysis=none", SESSION_LAUNCH, 0},
	};
	size_t i;

	(void)state;
	for (i = 0; i < MSCOPE_COUNT(cases); i++) {
		struct event_settings settings = choices_of(cases[i].events, cases[i].analysis);

		assert_int_equal(settings.events, cases[i].wanted_events);
		assert_int_equal(settings.analysis, cases[i].wanted_analysis);
	}
}

static void an_analysis_brings_events_to_a_window_only_when_it_was_named(void **state)
{
	struct event_settings settings = {.analysis = SESSION_INEFFICIENT | SESSION_LEAKS};

	(void)state;
	settings_complete(&settings, false);
	assert_int_equal(settings.events, 0);
	assert_int_equal(settings.analysis, SESSION_INEFFICIENT);
	settings_complete(&settings, true);
	assert_int_equal(settings.events, BLOCKS | SESSION_ACCESS | SESSION_LAUNCH);
}

/* ---- from options ---- */

static void settings_come_from_the_words_of_their_options(void **state)
{
	struct event_settings settings =
		choices_of("--device=npu:1,npu:4,cpu", "--call-stack=c:7,python:9");

	(void)state;
	assert_int_equal(settings.devices, 1 << 1 | 1 << 4);
	assert_int_equal(settings.all_devices, 0);
	assert_int_equal(SETTINGS_NPUS(&settings), 1 << 1 | 1 << 4);
	assert_int_equal(SETTINGS_GPUS(&settings), 0);
	assert_int_equal(settings.host, 1);
	assert_int_equal(settings.c_depth, 7);
	assert_int_equal(settings.python_depth, 9);
	settings = choices_of("--events=alloc,traceback", "--analysis=oom:5,leaks");
	assert_int_equal(settings.traceback, 1);
	assert_int_equal(settings.oom_top, 5);
	assert_int_equal(settings.analysis, SESSION_OOM | SESSION_LEAKS);
	assert_int_equal(settings.level, SESSION_LEVEL_OP);
	assert_int_equal(settings.devices, UINT32_MAX);
	assert_int_equal(settings.all_devices, 1);
	assert_int_equal(settings.gpus_otherwise, 0); /* as before there were words for GPUs */
	assert_int_equal(settings.host, 0);
	assert_int_equal(settings.c_depth, 0);
	assert_int_equal(settings.waste_kinds, 0);
	settings = choices_of("--inefficient=temporary_idleness,mem_size:7", "--analysis=none");
	assert_int_equal(settings.waste_kinds, SESSION_WASTE_IDLE);
	assert_int_equal(settings.waste_bytes, 7);
	assert_int_equal(settings.waste_idle, 0);
}

static void npus_and_gpus_are_chosen_each_by_their_words(void **state)
{
	struct event_settings settings =
		choices_of("--device=gpu:3,cuda:1,npu:2", "--events=alloc");

	(void)state;
	assert_int_equal(SETTINGS_NPUS(&settings), 1 << 2);
	assert_int_equal(SETTINGS_GPUS(&settings), 1 << 1 | 1 << 3);
	assert_int_equal(settings.all_devices, 0);
	settings = choices_of("--device=gpu,cpu", "--events=alloc");
	assert_int_equal(SETTINGS_NPUS(&settings), 0);
	assert_int_equal(SETTINGS_GPUS(&settings), UINT32_MAX);
	assert_true(settings_take_device(0, UINT32_MAX, VENDOR_CUDA, 77));
	assert_false(settings_take_device(0, UINT32_MAX, VENDOR_ASCEND, 0));
	assert_true(settings_take_device(0, 1 << 3, VENDOR_UNKNOWN, 3));
	assert_false(settings_take_device(1 << 3, 1 << 3, VENDOR_CUDA, 35));
}

static void flags_and_words_are_in_the_session_by_their_own_names(void **state)
{
	struct session *session = calloc(1, sizeof(*session));
	struct options options;

	(void)state;
	assert_non_null(session);
	parse(&options, "--format=db", "--insight-close-live");
	launch_settings(&options, session);
	assert_int_equal(session->format, OPT_FORMAT_DB);
	assert_int_equal(session->log_level, OPT_LOG_WARN);
	assert_true(session->insight_close_live);
	assert_false(session->no_keep_trace);
	assert_int_equal(session->state, RECORDING_ON);
	options_fini(&options);
	parse(&options, "--collect-mode=deferred", "--no-keep-trace");
	launch_settings(&options, session);
	assert_int_equal(session->state, RECORDING_SHADOW);
	assert_int_equal(session->collect_mode, OPT_COLLECT_DEFERRED);
	assert_true(session->no_keep_trace);
	options_fini(&options);
	free(session);
}

/* ---- as numbers ---- */

static void settings_are_the_same_as_numbers_in_a_session_and_in_a_record(void **state)
{
	struct session *session = calloc(1, sizeof(*session));
	uint64_t words[EVENT_BYTES_settings / 8];
	uint32_t numbers[SETTING_COUNT];
	struct event_settings first, second;

	(void)state;
	assert_non_null(session);
	/* Another value for each that fits its bits. */
#define SETTING(name, word, shift, bits, ...)                                                      \
	session->name = (uint32_t)((SETTING_##name + 1) & RECORD_MASK(bits));
	SETTINGS(SETTING)
#undef SETTING
	first = settings_of_session(session);
	settings_to_numbers(&first, numbers);
	assert_int_equal(numbers[SETTING_events], SETTING_events + 1);
	assert_int_equal(numbers[SETTING_python_depth], SETTING_python_depth + 1);
	second = settings_of_numbers(numbers);
	event_settings_encode(words, &second);
	memset(&second, 0xff, sizeof(second));
	event_settings_decode(words, &second);
	memset(session, 0, sizeof(*session));
	settings_to_session(&second, session);
	second = settings_of_session(session);
	assert_memory_equal(&first, &second, sizeof(first));
	free(session);
}

/* ---- for others ---- */

static const char wanted_config[] = "{\n"
				    "    \"SelectedStepList\": {\n"
				    "        \"stepCount\": 1,\n"
				    "        \"stepIdList\": [\n"
				    "            3,\n"
				    "            0,\n"
				    "            0,\n"
				    "            0,\n"
				    "            0\n"
				    "        ]\n"
				    "    },\n"
				    "    \"analysisType\": 1,\n"
				    "    \"cStackDepth\": 7,\n"
				    "    \"collectAllNpu\": true,\n"
				    "    \"collectCpu\": false,\n"
				    "    \"collectMode\": 0,\n"
				    "    \"dataFormat\": 0,\n"
				    "    \"dumpEventType\": 7,\n"
				    "    \"enableCStack\": true,\n"
				    "    \"enableCompare\": false,\n"
				    "    \"enablePyStack\": false,\n"
				    "    \"eventType\": 7,\n"
				    "    \"isEffective\": true,\n"
				    "    \"levelType\": 1,\n"
				    "    \"logLevel\": 2,\n"
				    "    \"npuSlots\": 4294967295,\n"
				    "    \"oomTopK\": 0,\n"
				    "    \"outputDir\": \"/somewhere\",\n"
				    "    \"pySiteDepth\": 12,\n"
				    "    \"pyStackDepth\": 0,\n"
				    "    \"watchConfig\": {\n"
				    "        \"end\": \"\",\n"
				    "        \"fullContent\": false,\n"
				    "        \"isWatched\": false,\n"
				    "        \"outputId\": 4294967295,\n"
				    "        \"start\": \"\"\n"
				    "    }\n"
				    "}\n";

static void config_json_has_its_keys_in_the_order_of_their_bytes(void **state)
{
	struct session *session = calloc(1, sizeof(*session));
	struct strbuf text = {0};
	struct options options;

	(void)state;
	assert_non_null(session);
	parse(&options, "--call-stack=c:7", "--steps=3");
	launch_settings(&options, session);
	strcpy(session->output, "/somewhere");
	config_text(session, "", &text);
	assert_string_equal(strbuf_str(&text), wanted_config);
	strbuf_fini(&text);
	options_fini(&options);
	free(session);
}

static void python_learns_every_setting_and_takes_its_option(void **state)
{
	static const char *const names[] = {
#define SETTING(name, ...) "    Setting(\"" #name "\", \"",
		SETTINGS(SETTING)
#undef SETTING
	};
	const struct option_row *row = NULL;
	const char *at, *quote;
	struct strbuf text = {0};
	size_t i;

	(void)state;
	settings_python(&text);
	for (i = 0, at = strbuf_str(&text); i < MSCOPE_COUNT(names); i++) {
		at = strstr(at, names[i]);
		assert_non_null(at); /* all of them, in this order */
		at += strlen(names[i]);
		quote = strchr(at, '"');
		while ((row = option_next(row)) != NULL) {
			if (strlen(row->name) == (size_t)(quote - at) &&
			    strncmp(row->name, at, strlen(row->name)) == 0)
				break;
		}
		assert_non_null(row);
		assert_int_not_equal(row->config, 0);
		row = NULL;
	}
	strbuf_fini(&text);
}

static void a_launch_comes_back_from_its_text(void **state)
{
	struct session *session = calloc(2, sizeof(*session)), *back = session + 1;
	uint32_t i;

	(void)state;
	assert_non_null(session);
	*session =
		(struct session){.events = 11, .analysis = 5, .devices = UINT32_MAX, .format = 1};
	session->step_count = SESSION_STEPS_MAX;
	for (i = 0; i < SESSION_STEPS_MAX; i++)
		session->steps[i] = UINT32_MAX - i;
	launch_write(session);
	assert_true(launch_read(session->launch, back));
	assert_int_equal(back->events, 11);
	assert_int_equal(back->analysis, 5);
	assert_int_equal(back->devices, UINT32_MAX);
	assert_int_equal(back->format, 1);
	assert_int_equal(back->step_count, SESSION_STEPS_MAX);
	assert_memory_equal(back->steps, session->steps, sizeof(back->steps));
	/* Of a newer version, or of a forged trace. */
	assert_true(launch_read("later:7 events:3 steps:4,,5 level steps: :9 events:", back));
	assert_int_equal(back->events, 0);
	assert_int_equal(back->step_count, 0);
	assert_false(launch_read(NULL, back));
	free(session);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(events_come_in_pairs_and_with_the_analysis_that_was_named),
		TEST(an_analysis_brings_events_to_a_window_only_when_it_was_named),
		TEST(settings_come_from_the_words_of_their_options),
		TEST(npus_and_gpus_are_chosen_each_by_their_words),
		TEST(flags_and_words_are_in_the_session_by_their_own_names),
		TEST(settings_are_the_same_as_numbers_in_a_session_and_in_a_record),
		TEST(config_json_has_its_keys_in_the_order_of_their_bytes),
		TEST(python_learns_every_setting_and_takes_its_option),
		TEST(a_launch_comes_back_from_its_text),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
