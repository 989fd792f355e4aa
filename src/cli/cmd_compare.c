/* SPDX-License-Identifier: Apache-2.0 */
/*
 * msmemscope --compare --input=BASE,OTHER: two recorded runs side by side. The table goes to stdout, every call to a file of its
 * own; a program is not needed, and one that is named is not run.
 */
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

/* With more calls than this in both runs, a line says that they are being aligned. */
#define ALIGNING_SHOWN 200000u

static bool on_progress(void *arg, uint64_t events)
{
	reading_progress(arg, events);
	return false;
}

/* Reads one of the two runs. Returns the exit code, 0 or 3, when it could be read. */
static int read_side(struct compare *compare, int side, const char *path,
		     const struct options *options, struct mscope_error *err)
{
	struct reading reading = {.word = path, .log_level = options->log_level};
	struct compare_reader reader;
	struct elf_cache elves = {0};
	struct pass_setup setup = {
		.elves = &elves,
		.event = compare_take_event,
		.event_arg = &reader,
		.progress = on_progress,
		.progress_arg = &reading,
	};
	struct pass pass = {0};
	struct input input;
	bool damaged = false;
	int r = reading_open(&reading, &input, err);

	compare_begin(&reader, compare, side);
	setup.run = input.run;
	if (r == 0)
		r = pass_open(&pass, &setup, err);
	if (r == 0 && (r = pass_all(&pass, NULL)) < 0)
		(void)error_set(err, r, "cannot go on reading: %s", mscope_status_str(r));
	reading_end(&reading);
	if (r == 0) {
		compare_end(&reader, pass.replay);
		damaged = input_is_damaged(&input) ||
			  report_is_damaged(&(struct report){.replay = pass.replay});
		if (!reading_warn_rows(&reading, &input)) {
			if (input.unfinished)
				cli_say("%s is unfinished; what it has so far is compared", path);
			else if (damaged)
				cli_say("%s is damaged; what could be read of it is compared",
					path);
		}
	}
	compare_reader_fini(&reader);
	pass_close(&pass);
	input_close(&input);
	elf_cache_fini(&elves);
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
