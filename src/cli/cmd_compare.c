/* SPDX-License-Identifier: Apache-2.0 */
/*
 * msmemscope --compare --input=BASE,OTHER: two recorded runs side by side. The table goes to stdout, every call to a file of its
 * own; a program is not needed, and one that is named is not run.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/reading.h"
#include "engine/pass.h"
#include "sink/comparison.h"
#include "sink/report.h"
#include "trace/launch.h"

/* With more calls than this in both runs, a line says that they are being aligned. */
#define ALIGNING_SHOWN 200000u

static bool on_progress(void *arg, uint64_t events)
{
	reading_progress(arg, events);
	return false;
}

/* Of a run, what its launch wrote is compared. */
static bool is_written(const void *arg, const struct replay *replay, const struct context *context)
{
	return row_filter_takes(arg, replay, context);
}

static bool is_written_row(const void *arg, const struct replay *replay, const struct row *row)
{
	return row_filter_takes_row(arg, replay, row);
}

/* Of which run, and what of it. */
struct side {
	struct reading reading;
	struct input input;
	struct session *launch; /* what it was asked to write; too large for a stack */
	struct row_filter filter;
	struct compare_choice choice;
	struct compare_reader reader;
	struct elf_cache elves;
	struct pass first, pass;
};

/* What rows depend on is known only at the end of a run: which marks are steps, which frees failed. One pass finds it. */
static int find_facts(struct side *side, struct mscope_error *err)
{
	const char *directory = getenv("TMPDIR");
	struct pass_setup setup = {
		.elves = &side->elves,
		.facts_directory = directory != NULL && directory[0] == '/' ? directory : "/tmp",
		.steps_matter = true,
	};
	int r = input_reopen(&side->input, &setup.run, err);

	if (r == 0)
		r = pass_open(&side->first, &setup, err);
	return r == 0 ? pass_all(&side->first, err) : r;
}

static int read_run(struct side *side, struct mscope_error *err)
{
	struct pass_setup setup = {
		.run = side->input.run,
		.elves = &side->elves,
		.event = compare_take_event,
		.event_arg = &side->reader,
		.progress = on_progress,
		.progress_arg = &side->reading,
	};
	int r = 0;

	if (side->choice.row != NULL) {
		setup.row = compare_take_row;
		setup.steps_matter = true;
		r = find_facts(side, err);
		setup.known = &side->first.facts;
	}
	if (r == 0)
		r = pass_open(&side->pass, &setup, err);
	if (r == 0 && (r = pass_all(&side->pass, NULL)) < 0)
		(void)error_set(err, r, "cannot go on reading: %s", mscope_status_str(r));
	return r;
}

/* Opens the run and finds out what its launch wrote. */
static int side_open(struct side *side, struct compare *compare, int number,
		     struct mscope_error *err)
{
	int r = reading_open(&side->reading, &side->input, err);
	bool known = false;

	side->launch = calloc(1, sizeof(*side->launch));
	if (r == 0 && side->launch == NULL)
		r = error_set(err, -ENOMEM, "no memory");
	if (r == 0)
		known = launch_read(run_identity(side->input.run, SESSION_LAUNCH_KEY),
				    side->launch);
	if (known) {
		side->filter = pass_filter(side->launch);
		side->choice = (struct compare_choice){
			.wanted = is_written,
			.row = side->filter.steps != NULL ? is_written_row : NULL,
			.arg = &side->filter};
	}
	compare_begin(&side->reader, compare, number, known ? &side->choice : NULL);
	return r;
}

static void side_close(struct side *side)
{
	struct run *first = side->first.setup.run;

	compare_reader_fini(&side->reader);
	pass_close(&side->pass);
	pass_close(&side->first);
	run_close(first);
	input_close(&side->input);
	elf_cache_fini(&side->elves);
	free(side->launch);
}

/* Reads one of the two runs. Returns the exit code, 0 or 3, when it could be read. */
static int read_side(struct compare *compare, int number, const char *path,
		     const struct options *options, struct mscope_error *err)
{
	struct side side = {.reading = {.word = path, .log_level = options->log_level}};
	bool damaged = false;
	int r = side_open(&side, compare, number, err);

	if (r == 0)
		r = read_run(&side, err);
	reading_end(&side.reading);
	if (r == 0) {
		compare_end(&side.reader, side.pass.replay);
		damaged = input_is_damaged(&side.input) ||
			  report_is_damaged(&(struct report){.replay = side.pass.replay});
		if (!reading_warn_rows(&side.reading, &side.input)) {
			if (side.input.unfinished)
				cli_say("%s is unfinished; what it has so far is compared", path);
			else if (damaged)
				cli_say("%s is damaged; what could be read of it is compared",
					path);
		}
	}
	side_close(&side);
	return r < 0 ? r : damaged ? MSCOPE_EXIT_DAMAGED : MSCOPE_EXIT_OK;
}

/* Sequences that differ much take seconds. */
static void announce_aligning(const struct compare *compare, const struct options *options)
{
	if (options->log_level <= OPT_LOG_WARN && isatty(STDERR_FILENO) &&
	    compare->sides[0].count + compare->sides[1].count > ALIGNING_SHOWN)
		cli_say("putting %zu and %zu calls side by side", compare->sides[0].count,
			compare->sides[1].count);
}

static bool want_colour(void)
{
	const char *term = getenv("TERM");

	return isatty(STDOUT_FILENO) && getenv("NO_COLOR") == NULL && term != NULL &&
	       strcmp(term, "dumb") != 0 && strcmp(term, "unknown") != 0;
}

static void print(const struct compare *compare, const struct options *options, const char *path)
{
	const char *const paths[2] = {options->input_path.path[0], options->input_path.path[1]};
	struct strbuf text = {0};
	struct json json;

	if (options->json) {
		json_begin(&json, &text);
		json_object(&json, NULL);
		json_string(&json, "base", paths[0]);
		json_string(&json, "compare", paths[1]);
		json_string(&json, "file", path);
		comparison_json(compare, &json);
		json_end(&json);
		strbuf_add_char(&text, '\n');
	} else {
		comparison_text(compare, paths, want_colour(), &text);
	}
	if (strbuf_failed(&text))
		cli_say("no memory for the table; %s has every call", path);
	else
		cli_write(STDOUT_FILENO, strbuf_str(&text), text.length);
	strbuf_fini(&text);
}

/* Warnings before anything is read. */
static void advise(const struct options *options)
{
	if (options->log_level > OPT_LOG_WARN)
		return;
	if (options->argc > 0)
		cli_say("%s is not run: --compare reads two recorded runs", options->argv[0]);
	if (cli_tell_root("the inputs and of the output directory"))
		return;
	cli_tell_owner("input", options->input_path.path[0], "what is compared");
	cli_tell_owner("input", options->input_path.path[1], "what is compared");
	cli_tell_owner("output directory", options->output_path, "the results");
}

int cmd_compare(const struct options *options)
{
	char path[PROJECT_PATH_MAX + 64];
	struct mscope_error err = {0};
	struct compare compare;
	struct timespec now;
	struct tm local = {0};
	int side, r = 0, worst = MSCOPE_EXIT_OK;

	advise(options);
	compare_init(&compare, options->level.mask);
	if (options->level.mask == 0)
		r = error_set(&err, MSCOPE_E_USAGE,
			      "--level names nothing to compare; allowed with --compare: op, "
			      "kernel");
	for (side = 0; side < 2 && r >= 0; side++) {
		r = read_side(&compare, side, options->input_path.path[side], options, &err);
		worst = r > worst ? r : worst;
	}
	if (r >= 0) {
		announce_aligning(&compare, options);
		r = compare_align(&compare, &err);
	}
	if (r >= 0) {
		(void)clock_gettime(CLOCK_REALTIME, &now);
		(void)localtime_r(&now.tv_sec, &local);
		r = comparison_csv(&compare, options->output_path,
				   (uint64_t)now.tv_sec * 1000000000u, (int32_t)local.tm_gmtoff,
				   path, &err);
	}
	if (r >= 0) {
		print(&compare, options, path);
		if (options->log_level <= OPT_LOG_WARN)
			cli_say("every call is in %s", path);
	} else {
		cli_say("%s", err.message);
		worst = r == MSCOPE_E_USAGE ? MSCOPE_EXIT_USAGE : input_exit_code(r);
	}
	compare_fini(&compare);
	return worst;
}
