/* SPDX-License-Identifier: Apache-2.0 */
/*
 * msmemscope export TRACE...: the files of a launch once more, from its trace, with any options again. Each trace gets a project
 * directory of its own; its path is what stdout shows.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/json.h"
#include "cli/cli.h"
#include "cli/input.h"
#include "cli/outcome.h"
#include "engine/export.h"
#include "sink/report.h"

static bool on_progress(void *arg, uint64_t events)
{
	outcome_progress(arg, events);
	return false;
}

/* What is not asked for on the command line is written as it was recorded. */
static void apply_recorded(const struct options *options, const struct trace_header *header,
			   struct session *session)
{
	if (!options_given(options, OPTION_ID_call_stack)) {
		session->c_depth = header->c_depth;
		session->python_depth = header->python_shown;
	}
	if (!options_given(options, OPTION_ID_level))
		session->level = SESSION_LEVEL_OP | SESSION_LEVEL_KERNEL;
}

/* Wishes that no trace can fulfil after the event. */
static void tell_absent(const struct options *options, const struct export_pass *pass)
{
	if (option_set_has(&options->call_stack, OPT_STACK_C) &&
	    run_header(pass->run)->c_depth == 0)
		cli_say("no C call stacks: the trace was recorded without --call-stack=c");
	if (option_set_has(&options->call_stack, OPT_STACK_PYTHON) &&
	    run_header(pass->run)->python_shown == 0)
		cli_say("short Python call stacks: the trace was recorded without "
			"--call-stack=python, so allocations have at most %u frames and frees none",
			SESSION_SITE_FRAMES);
	if (options_given(options, OPTION_ID_level) &&
	    option_set_has(&options->level, OPT_LEVEL_KERNEL) && pass->replay.launch_count > 0 &&
	    pass->kernel_rows == 0)
		cli_say("no kernels: the trace was recorded without --level=kernel");
	if (pass->replay.dropped_events > 0)
		cli_say("the first %llu events were given up during the run (--max-disk); rows "
			"begin after them",
			(unsigned long long)pass->replay.dropped_events);
}

static void add_json(struct json *json, const char *word, const struct export_pass *pass,
		     bool damaged)
{
	json_object(json, NULL);
	json_string(json, "trace", word);
	json_string(json, "project", pass->project->path);
	json_u64(json, "pid", pass->project->pid);
	json_u64(json, "events", pass->replay.events);
	json_u64(json, "rows", pass->replay.rows);
	json_u64(json, "dropped_events", pass->replay.dropped_events);
	json_bool(json, "damaged", damaged);
	json_end(json);
}

struct export
{
	const struct options *options;
	struct session *session; /* too large for a stack */
	struct outcome outcome;
	struct elf_cache elves;
	struct json json;
	struct strbuf text;
};

static int export_one(struct export *export, const char *word)
{
	const struct options *options = export->options;
	struct project project = {.output = export->session->output};
	struct export_pass pass = {
		.session = export->session,
		.project = &project,
		.elves = &export->elves,
		.progress = on_progress,
		.progress_arg = &export->outcome,
		.follow_analysis = !options_given(options, OPTION_ID_analysis),
	};
	struct mscope_error err = {0};
	const struct trace_header *header;
	struct input input;
	bool damaged;
	int r;

	launch_settings(options, export->session);
	r = input_find(word, &input, &err);
	if (r == 0 && !options_given(options, OPTION_ID_output_path))
		r = input_home(&input, export->session->output, sizeof(export->session->output),
			       &err);
	if (r == 0)
		r = export_open(&pass, input_raw(&input), input_pack(&input), &err);
	if (r == 0) {
		header = run_header(pass.run);
		apply_recorded(options, header, export->session);
		pass.follow_stacks = !options_given(options, OPTION_ID_call_stack);
		project.pid = header->pid;
		project.start_ns = header->realtime_ns;
		project.utc_offset_s = header->utc_offset_s;
		r = export_all(&pass, &err);
	}
	if (r == 0)
		outcome_steps(&export->outcome, export->session, pass.replay.steps);
	outcome_print(&export->outcome);
	if (r < 0) {
		cli_say("%s", err.message);
		export_close(&pass);
		return input_exit_code(r);
	}
	damaged = report_is_damaged(&(struct report){.replay = &pass.replay, .run = pass.run});
	if (options->json)
		add_json(&export->json, word, &pass, damaged);
	else
		strbuf_addf(&export->text, "%s\n", project.path);
	tell_absent(options, &pass);
	if (damaged)
		cli_say("%s is damaged; what could be read is in %s", word, project.path);
	if (input_raw(&input) != NULL)
		cli_say("%s is unfinished; msmemscope recover makes its own files", word);
	export_close(&pass);
	return damaged || input_raw(&input) != NULL ? MSCOPE_EXIT_DAMAGED : MSCOPE_EXIT_OK;
}

int cmd_export(const struct options *options)
{
	struct export export = {.options = options, .session = calloc(1, sizeof(struct session))};
	bool many = options->argc > 2;
	int i, worst = MSCOPE_EXIT_OK;

	if (export.session == NULL) {
		cli_say("no memory");
		return MSCOPE_EXIT_FAILED;
	}
	if (options->log_level <= OPT_LOG_WARN)
		launch_tell_missing(options);
	outcome_init(&export.outcome, options->log_level);
	json_begin(&export.json, &export.text);
	if (options->json && many)
		json_array(&export.json, NULL);
	for (i = 1; i < options->argc; i++) {
		int r = export_one(&export, options->argv[i]);

		if (r > worst)
			worst = r;
	}
	if (options->json && many)
		json_end(&export.json);
	if (options->json && export.text.length > 0)
		strbuf_add_char(&export.text, '\n');
	cli_write(STDOUT_FILENO, strbuf_str(&export.text), export.text.length);
	strbuf_fini(&export.text);
	elf_cache_fini(&export.elves);
	free(export.session);
	return worst;
}
