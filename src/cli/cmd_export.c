/* SPDX-License-Identifier: Apache-2.0 */
/*
 * msmemscope export RUN...: the files of a recorded run once more, with any options again. engine/input.h tells what RUN may be.
 * Each run gets a project directory of its own; its path is what stdout shows. With --format of another viewer it gets files, whose
 * paths stdout shows.
 */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/json.h"
#include "cli/cli.h"
#include "cli/outcome.h"
#include "cli/reading.h"
#include "engine/anonymize.h"
#include "engine/export.h"
#include "engine/export_view.h"
#include "sink/report.h"
#include "symbols/elf_cache.h"
#include "trace/session.h"

static bool on_progress(void *arg, uint64_t events)
{
	outcome_progress(arg, "writing files, read so far", events);
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

/* Names what was asked for and is not in the run. */
static void warn_absent(const struct options *options, const struct export_job *job)
{
	const struct trace_header *header = run_header(job->input->run);
	const struct replay_totals *totals = replay_totals(job->pass.replay);

	if (option_set_has(&options->call_stack, OPT_STACK_C) && header->c_depth == 0)
		cli_say("no C call stacks: the trace was recorded without --call-stack=c");
	if (option_set_has(&options->call_stack, OPT_STACK_PYTHON) && header->python_shown == 0)
		cli_say("short Python call stacks: the trace was recorded without --call-stack=python, so allocations have at most %u frames and frees none",
			SESSION_SITE_FRAMES);
	if (options_given(options, OPTION_ID_level) &&
	    option_set_has(&options->level, OPT_LEVEL_KERNEL) && totals->launches > 0 &&
	    job->pass.kernel_rows == 0)
		cli_say("no kernels: the trace was recorded without --level=kernel");
	if (totals->dropped_events > 0)
		cli_say("the first %llu events were given up during the run (--max-disk); rows start after them",
			(unsigned long long)totals->dropped_events);
}

struct export
{
	const struct options *options;
	struct session *session; /* too large for a stack */
	struct outcome outcome;
	struct elf_cache elves;
	struct json json;
	struct strbuf text;
	size_t objects; /* of JSON in it */
	struct anonymous names;
};

/* The next object of the list. */
static struct json *begin_object(struct export *export)
{
	if (export->objects++ > 0)
		strbuf_add_char(&export->text, ',');
	json_begin(&export->json, &export->text);
	json_object(&export->json, NULL);
	return &export->json;
}

static void add_json(struct export *export, const char *word, const struct export_job *job,
		     bool damaged)
{
	const struct replay_totals *totals = replay_totals(job->pass.replay);
	struct json *json = begin_object(export);

	json_string(json, "trace", word);
	if (job->project->made)
		json_string(json, "project", job->project->path);
	else
		json_null(json, "project");
	json_u64(json, "pid", job->project->pid);
	json_u64(json, "events", totals->events);
	json_u64(json, "rows", totals->rows);
	json_u64(json, "dumps", job->project->dumps);
	json_u64(json, "dropped_events", totals->dropped_events);
	json_bool(json, "damaged", damaged);
	json_end(json);
}

/* Prints what was written, and warns of what was missing. Returns the exit code. */
static int print_result(struct export *export, const struct reading *reading,
			const struct export_job *job)
{
	const struct input *input = job->input;
	struct report report = {.replay = job->pass.replay,
				.input_damaged = import_is_damaged(&input->import)};
	bool damaged = report_is_damaged(&report);

	if (export->options->json)
		add_json(export, reading->word, job, damaged);
	else if (job->project->made)
		strbuf_addf(&export->text, "%s\n", job->project->path);
	/* Dump files have no call stacks that could be shown. */
	if (!input->imported)
		warn_absent(export->options, job);
	if (!reading_warn_rows(reading, input) && damaged && job->project->made)
		cli_say("%s is damaged; everything readable is in %s", reading->word,
			job->project->path);
	if (input->unfinished)
		cli_say("%s is incomplete; run: msmemscope recover", reading->word);
	if (!job->project->made)
		cli_say("no dump written: nothing in %s matches the options", reading->word);
	if (damaged || input->unfinished)
		return MSCOPE_EXIT_DAMAGED;
	return job->project->made ? MSCOPE_EXIT_OK : MSCOPE_EXIT_FAILED;
}

static int export_one(void *arg, const char *word, uint32_t pid, struct reading_processes *out)
{
	struct export *export = arg;
	const struct options *options = export->options;
	struct session *session = export->session;
	struct reading reading = {.word = word, .log_level = options->log_level};
	struct project project = {.output = session->output};
	struct input input;
	struct export_job job = {
		.input = &input,
		.session = session,
		.project = &project,
		.elves = &export->elves,
		.follow_rows = !options_given(options, OPTION_ID_device) &&
			       !options_given(options, OPTION_ID_events) &&
			       !options_given(options, OPTION_ID_level),
		.follow_stacks = !options_given(options, OPTION_ID_call_stack),
		.fixed_settings = options_given(options, OPTION_ID_inefficient),
		.follow_analysis = !options_given(options, OPTION_ID_analysis),
		.progress = on_progress,
		.progress_arg = &export->outcome,
	};
	struct mscope_error err = {0};
	const struct trace_header *header;
	int r, exit_code;

	r = reading_open_process(&reading, pid, &input, out, &err);
	if (r == 0 && options->anonymize)
		r = input_anonymize(&input, &export->names, &err);
	launch_settings_again(options, r == 0 ? run_identity(input.run, SESSION_LAUNCH_KEY) : NULL,
			      session);
	if (r == 0 && !options_given(options, OPTION_ID_output_path))
		r = input_home(&input, session->output, sizeof(session->output), &err);
	if (r == 0) {
		header = run_header(input.run);
		apply_recorded(options, header, session);
		project.pid = header->pid;
		project.start_ns = header->realtime_ns;
		project.utc_offset_s = header->utc_offset_s;
		r = export_all(&job, &err);
	}
	if (r == 0)
		outcome_steps(&export->outcome, session, job.pass.replay);
	(void)outcome_print(&export->outcome);
	if (r < 0) {
		cli_say("%s", err.message);
		exit_code = input_exit_code(r);
	} else {
		exit_code = print_result(export, &reading, &job);
	}
	export_close(&job);
	input_close(&input);
	return exit_code;
}

/* ---- views of other viewers ---- */

static void add_view(struct export *export, const struct reading *reading,
		     const struct view_job *job, bool damaged)
{
	const struct replay_totals *totals = replay_totals(job->pass.replay);
	struct json *json;
	size_t i;

	if (!export->options->json) {
		for (i = 0; i < job->view.file_count; i++)
			strbuf_addf(&export->text, "%s\n", job->view.files[i].path);
		return;
	}
	json = begin_object(export);
	json_string(json, "trace", reading->word);
	json_array(json, "files");
	for (i = 0; i < job->view.file_count; i++)
		json_string(json, NULL, job->view.files[i].path);
	json_end(json);
	json_u64(json, "pid", run_header(job->input->run)->pid);
	json_u64(json, "events", totals->events);
	json_u64(json, "rows", totals->rows);
	json_u64(json, "dropped_events", totals->dropped_events);
	json_bool(json, "damaged", damaged);
	json_end(json);
}

static int export_view(void *arg, const char *word, uint32_t pid, struct reading_processes *out)
{
	struct export *export = arg;
	const struct options *options = export->options;
	struct reading reading = {.word = word, .log_level = options->log_level};
	struct input input;
	struct view_job job = {.input = &input,
			       .form = view_get((uint32_t)options->format),
			       .elves = &export->elves,
			       .progress = on_progress,
			       .progress_arg = &export->outcome};
	struct mscope_error err = {0};
	char output[PATH_MAX];
	bool damaged = false;
	int r = reading_open_process(&reading, pid, &input, out, &err), exit_code = MSCOPE_EXIT_OK;

	job.output = output;
	if (r == 0 && options->anonymize)
		r = input_anonymize(&input, &export->names, &err);
	if (r == 0 && options_given(options, OPTION_ID_output_path))
		(void)snprintf(output, sizeof(output), "%s", options->output_path);
	else if (r == 0)
		r = input_home(&input, output, sizeof(output), &err);
	if (r == 0)
		r = view_export(&job, &err);
	(void)outcome_print(&export->outcome);
	if (r < 0) {
		cli_say("%s", err.message);
		exit_code = input_exit_code(r);
	} else {
		struct report report = {.replay = job.pass.replay,
					.input_damaged = import_is_damaged(&input.import)};

		damaged = report_is_damaged(&report);
		add_view(export, &reading, &job, damaged);
		if (!reading_warn_rows(&reading, &input) && damaged)
			cli_say("%s is damaged; everything readable is in %s", word,
				job.view.files[0].path);
		if (damaged || input.unfinished)
			exit_code = MSCOPE_EXIT_DAMAGED;
	}
	view_export_close(&job);
	input_close(&input);
	return exit_code;
}

/* Paths for a script are the paths; for a person they are shown. JSON of one run is an object, of several a list. */
static void print_text(const struct export *export)
{
	bool many = export->options->argc > 2 || export->objects > 1;
	struct strbuf text = {0};

	strbuf_add_str(&text, strbuf_str(&export->text) + (export->options->json && !many));
	if (export->options->json && text.length > 0)
		strbuf_add_str(&text, many ? "]\n" : "\n");
	if (isatty(STDOUT_FILENO))
		cli_show(STDOUT_FILENO, &text);
	else
		cli_write(STDOUT_FILENO, strbuf_str(&text), text.length);
	strbuf_fini(&text);
}

int cmd_export(const struct options *options)
{
	struct export export = {.options = options, .session = calloc(1, sizeof(struct session))};
	int i, worst = MSCOPE_EXIT_OK;

	if (export.session == NULL) {
		cli_say("no memory");
		return MSCOPE_EXIT_FAILED;
	}
	outcome_init(&export.outcome, options);
	if (options->json)
		strbuf_add_char(&export.text, '[');
	for (i = 1; i < options->argc; i++) {
		int r = reading_each(options->argv[i],
				     options->format >= VIEW_FIRST ? export_view : export_one,
				     &export);

		if (r > worst)
			worst = r;
	}
	print_text(&export);
	strbuf_fini(&export.text);
	elf_cache_fini(&export.elves);
	anonymous_fini(&export.names);
	free(export.session);
	return worst;
}
