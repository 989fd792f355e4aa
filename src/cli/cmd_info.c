/* SPDX-License-Identifier: Apache-2.0 */
/*
 * msmemscope info RUN...: what a recorded run holds. engine/input.h tells what RUN may be.
 */
#include <stdlib.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/reading.h"
#include "engine/pass.h"
#include "sink/report.h"
#include "trace/session.h"

/* What is asked for, else what the launch was asked for. */
static uint32_t analysis_of(const struct options *options, const struct run *run)
{
	struct session *session = calloc(1, sizeof(*session));
	uint32_t analysis = options->analysis.mask;

	if (session != NULL) {
		launch_settings_again(options, run_identity(run, SESSION_LAUNCH_KEY), session);
		analysis = session->analysis;
	}
	free(session);
	return analysis;
}

/* Replays the run and reports it. Returns the exit code. */
static int report_input(const struct options *options, const char *word, const struct input *input,
			struct json *json, struct strbuf *text)
{
	struct elf_cache elves = {0};
	struct pass_setup setup = {
		.run = input->run,
		.elves = &elves,
		.analysis = analysis_of(options, input->run),
		.follow_analysis = !options_given(options, OPTION_ID_analysis),
	};
	struct report report = {.trace_path = word, .detail = true, .from_dump = input->imported};
	struct mscope_error err = {0};
	struct pass pass = {0};
	int r = pass_open(&pass, &setup, &err), exit_code = MSCOPE_EXIT_OK;

	if (r == 0)
		r = pass_all(&pass, &err);
	if (r < 0) {
		cli_say("cannot read %s: %s", word, mscope_status_str(r));
		exit_code = MSCOPE_EXIT_FAILED;
	} else {
		report.replay = pass.replay;
		report.analyses = &pass.analyses;
		report.input_damaged = import_is_damaged(&input->import);
		if (options->json)
			report_json(&report, json);
		else
			report_text(&report, text);
		if (report_is_damaged(&report) || input->unfinished)
			exit_code = MSCOPE_EXIT_DAMAGED;
	}
	pass_close(&pass);
	elf_cache_fini(&elves);
	return exit_code;
}

static int show(const struct options *options, const char *word, struct json *json,
		struct strbuf *text)
{
	struct reading reading = {.word = word, .log_level = options->log_level};
	struct mscope_error err = {0};
	struct input input;
	int exit_code, r = reading_open(&reading, &input, &err);

	if (r < 0) {
		cli_say("%s", err.message);
		exit_code = input_exit_code(r);
	} else {
		exit_code = report_input(options, word, &input, json, text);
		(void)reading_warn_rows(&reading, &input);
		if (input.unfinished)
			cli_say("%s is unfinished; msmemscope recover makes its files", word);
	}
	input_close(&input);
	return exit_code;
}

int cmd_info(const struct options *options)
{
	struct strbuf text = {0};
	struct json json;
	int i, worst = MSCOPE_EXIT_OK;
	bool many = options->argc > 2;

	json_begin(&json, &text);
	if (options->json && many)
		json_array(&json, NULL);
	for (i = 1; i < options->argc; i++) {
		int r = show(options, options->argv[i], &json, &text);

		if (r > worst)
			worst = r;
	}
	if (options->json && many)
		json_end(&json);
	if (options->json && text.length > 0)
		strbuf_add_char(&text, '\n');
	cli_show(STDOUT_FILENO, &text);
	strbuf_fini(&text);
	return worst;
}
