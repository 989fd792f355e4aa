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
#include "cli/input.h"
#include "import/input.h"
#include "sink/comparison.h"

/* Calls of both runs from which on it is said that they are being aligned. */
#define ALIGNING_SHOWN 200000u

/* What is being read, for the line that shows how far it is. */
struct progress {
	const char *path;
	const char *unit;
	bool shown;
};

static void on_progress(void *arg, uint64_t count)
{
	struct progress *progress = arg;
	const char *slash = strrchr(progress->path, '/');
	char line[256];
	int length;

	if (!isatty(STDERR_FILENO))
		return;
	length = snprintf(line, sizeof(line),
			  "\r\033[Kmsmemscope: reading %.100s, %llu.%llu million %s", slash + 1,
			  (unsigned long long)(count / 1000000),
			  (unsigned long long)(count / 100000 % 10), progress->unit);
	cli_write(STDERR_FILENO, line, (size_t)length);
	progress->shown = true;
}

static void end_progress(struct progress *progress)
{
	if (progress->shown)
		cli_write(STDERR_FILENO, "\r\033[K", 4);
	progress->shown = false;
}

/* Reads one of the two runs. Gives the exit code, 0 or 3, when it could be read. */
static int read_side(struct compare *compare, int side, const char *path,
		     const struct options *options, struct mscope_error *err)
{
	struct progress progress = {.path = path, .unit = "rows"};
	struct import_input input = {0};
	bool damaged = false;
	int r;

	if (options->log_level <= OPT_LOG_WARN) {
		input.reading.progress = compare->progress = on_progress;
		input.reading.progress_arg = compare->progress_arg = &progress;
	}
	r = import_open(path, &input, err);
	progress.unit = "events";
	if (r == 0)
		r = compare_read(compare, side, input.run, err);
	end_progress(&progress);
	compare->progress = NULL;
	if (r == 0) {
		damaged = import_is_damaged(&input) || compare->sides[side].bad_definitions > 0;
		if (input.reading.bad_rows > 0)
			cli_say("%s is damaged: %llu rows were left out, the first in %s", path,
				(unsigned long long)input.reading.bad_rows,
				input.reading.first_bad);
		else if (input.unfinished)
			cli_say("%s is unfinished; what it has so far is compared", path);
		else if (damaged)
			cli_say("%s is damaged; what could be read of it is compared", path);
		if (input.unknown > 0 && options->log_level <= OPT_LOG_INFO)
			cli_say("%s: %llu rows are of kinds that play no part here", path,
				(unsigned long long)input.unknown);
	}
	import_close(&input);
	return r < 0 ? r : damaged ? MSCOPE_EXIT_DAMAGED : MSCOPE_EXIT_OK;
}

/* Sequences that differ much take seconds. */
static void tell_aligning(const struct compare *compare, const struct options *options)
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

/* What is to be said before anything is read. */
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
		tell_aligning(&compare, options);
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
