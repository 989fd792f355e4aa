/* SPDX-License-Identifier: Apache-2.0 */
/*
 * msmemscope info TRACE...: what a trace holds. TRACE is a packed trace (trace.msc), a raw one, or a project directory.
 */
#include <unistd.h>

#include "cli/cli.h"
#include "cli/input.h"
#include "sink/report.h"

static int show(const struct options *options, const char *word, struct json *json,
		struct strbuf *text)
{
	struct elf_cache elves = {0};
	struct mscope_error err = {0};
	struct report report = {.trace_path = word, .detail = true};
	struct trace_event event;
	struct analyses analyses;
	struct replay *replay = NULL;
	struct input input;
	struct run *run = NULL;
	int r, exit_code = MSCOPE_EXIT_OK;

	r = input_find(word, &input, &err);
	if (r == 0)
		r = run_open(input_raw(&input), input_pack(&input), false, &run, &err);
	if (r < 0) {
		cli_say("%s", err.message);
		return input_exit_code(r);
	}
	if (replay_new(&(struct replay_setup){.run = run, .elves = &elves, .root = ""}, &replay) <
	    0) {
		cli_say("no memory");
		run_close(run);
		return MSCOPE_EXIT_FAILED;
	}
	analyses_init(&analyses, options->analysis.mask,
		      !options_given(options, OPTION_ID_analysis), replay);
	r = run_poll(run, 0, true);
	while (r == 0 && run_next(run, &event))
		r = replay_event(replay, &event);
	if (r < 0) {
		cli_say("cannot read %s: %s", word, mscope_status_str(r));
		exit_code = MSCOPE_EXIT_FAILED;
	} else {
		report.replay = replay;
		report.analyses = &analyses;
		report.run = run;
		if (options->json)
			report_json(&report, json);
		else
			report_text(&report, text);
		if (report_is_damaged(&report) || input_raw(&input) != NULL)
			exit_code = MSCOPE_EXIT_DAMAGED;
		if (input_raw(&input) != NULL)
			cli_say("%s is unfinished; msmemscope recover makes its files", word);
	}
	analyses_fini(&analyses);
	replay_free(replay);
	elf_cache_fini(&elves);
	run_close(run);
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
	cli_write(STDOUT_FILENO, strbuf_str(&text), text.length);
	strbuf_fini(&text);
	return worst;
}
