/* SPDX-License-Identifier: Apache-2.0 */
/*
 * msmemscope --compare --input=BASE,OTHER: two recorded runs side by side, or two steps of one: --input=RUN --steps=3,7. What
 * differs goes to stdout, every call to a file of its own; a program is not needed, and one that is named is not run. Directories
 * with the projects of many ranks are compared rank by rank, one after the other.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/io.h"
#include "base/json.h"
#include "base/shown.h"
#include "cli/cli.h"
#include "cli/reading.h"
#include "engine/pass.h"
#include "sink/comparison.h"
#include "sink/report.h"
#include "symbols/elf_cache.h"
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
	const struct input *from; /* the input to read once more, instead of one of its own */
	struct session *launch;	  /* what it was asked to write; too large for a stack */
	struct row_filter filter;
	struct compare_choice choice;
	struct compare_reader reader;
	struct elf_cache elves;
	struct run *run;
	struct pass first, pass;
};

/* Two runs, or two steps of one, and what came of it. */
struct couple {
	struct side sides[2];
	struct compare compare;
	struct differences differences;
};

/* What rows depend on is known only at the end of a run: which marks are steps, which frees failed. One pass finds it. */
static int find_facts(struct side *side, struct mscope_error *err)
{
	struct pass_setup setup = {
		.elves = &side->elves,
		.facts_directory = io_scratch(),
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
		.run = side->run,
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
	if (r < 0)
		return r;
	compare_observe(&side->reader, side->pass.replay);
	r = pass_all(&side->pass, NULL);
	if (r < 0)
		(void)error_set(err, r, "cannot read more: %s", mscope_status_str(r));
	return r;
}

/* Opens the run and finds out what its launch wrote. */
static int side_open(struct side *side, struct compare *compare, int number,
		     struct mscope_error *err)
{
	bool known = false;
	int r;

	if (side->from != NULL) {
		r = input_reopen(side->from, &side->run, err);
	} else {
		r = reading_open(&side->reading, &side->input, err);
		side->run = side->input.run;
	}
	side->launch = calloc(1, sizeof(*side->launch));
	if (r == 0 && side->launch == NULL)
		r = error_set(err, -ENOMEM, "no memory");
	if (r == 0)
		known = launch_read(run_identity(side->run, SESSION_LAUNCH_KEY), side->launch);
	if (known) {
		side->filter = pass_filter(side->launch);
		/* Steps that are asked for take the place of those of the launch: the trace has all. */
		if (side->choice.step != 0)
			side->filter.steps = NULL;
		side->choice.wanted = is_written;
		side->choice.row = side->filter.steps != NULL ? is_written_row : NULL;
		side->choice.arg = &side->filter;
	}
	side->choice.nameless = (side->from != NULL ? side->from : &side->input)->imported;
	compare_begin(&side->reader, compare, number, &side->choice);
	return r;
}

static void side_close(struct side *side)
{
	struct run *first = side->first.setup.run;

	compare_reader_fini(&side->reader);
	pass_close(&side->pass);
	pass_close(&side->first);
	run_close(first);
	if (side->from != NULL)
		run_close(side->run);
	else
		input_close(&side->input);
	elf_cache_fini(&side->elves);
	free(side->launch);
}

/* Reads one of the two runs. Returns the exit code, 0 or 3, when it could be read. */
static int read_side(struct side *side, struct compare *compare, int number,
		     struct mscope_error *err)
{
	const char *path = side->reading.word;
	bool damaged = false;
	int r = side_open(side, compare, number, err);

	if (r == 0)
		r = read_run(side, err);
	reading_end(&side->reading);
	if (r < 0)
		return r;
	compare_end(&side->reader, side->pass.replay);
	if (side->choice.step != 0 && !compare->sides[number].in_range)
		return error_set(err, MSCOPE_E_ABSENT, "%s has no step %u; it has %u steps", path,
				 side->choice.step, compare->sides[number].steps);
	damaged = report_is_damaged(&(struct report){.replay = side->pass.replay});
	if (side->from != NULL)
		return damaged ? MSCOPE_EXIT_DAMAGED : MSCOPE_EXIT_OK;
	damaged = damaged || input_is_damaged(&side->input);
	if (!reading_warn_rows(&side->reading, &side->input)) {
		if (side->input.unfinished)
			cli_say("%s is incomplete; comparing what it has so far", path);
		else if (damaged)
			cli_say("%s is damaged; comparing what can be read", path);
	}
	return damaged ? MSCOPE_EXIT_DAMAGED : MSCOPE_EXIT_OK;
}

/* Sequences that differ much take seconds. */
static void announce_aligning(const struct compare *compare, const struct options *options)
{
	if (options->log_level <= OPT_LOG_WARN && isatty(STDERR_FILENO) &&
	    compare->sides[0].count + compare->sides[1].count > ALIGNING_SHOWN)
		cli_say("aligning %zu and %zu calls", compare->sides[0].count,
			compare->sides[1].count);
}

/* Reads and compares. The exit code so far, or a negative code. The couple must not move from then on. */
static int couple_read(struct couple *couple, const char *const paths[2],
		       const struct options *options, struct mscope_error *err)
{
	int side, r = 0, worst = MSCOPE_EXIT_OK;

	compare_init(&couple->compare, options->level.mask);
	for (side = 0; side < 2 && r >= 0; side++) {
		struct side *one = &couple->sides[side];

		one->reading = (struct reading){
			.word = paths[side], .log_level = options->log_level, .processes = true};
		if (options->steps.count == 2) {
			one->choice.step = options->steps.value[side];
			one->from = side == 1 ? &couple->sides[0].input : NULL;
		}
		r = read_side(one, &couple->compare, side, err);
		worst = r > worst ? r : worst;
	}
	if (r >= 0) {
		announce_aligning(&couple->compare, options);
		r = compare_align(&couple->compare, err);
	}
	if (r >= 0 && differences_find(&couple->compare, &couple->differences) < 0)
		r = error_set(err, -ENOMEM, "no memory");
	return r < 0 ? r : worst;
}

static void couple_close(struct couple *couple)
{
	differences_fini(&couple->differences);
	compare_fini(&couple->compare);
	/* The second may read the input of the first. */
	side_close(&couple->sides[1]);
	side_close(&couple->sides[0]);
	free(couple);
}

static bool want_colour(void)
{
	const char *term = getenv("TERM");

	return isatty(STDOUT_FILENO) && getenv("NO_COLOR") == NULL && term != NULL &&
	       strcmp(term, "dumb") != 0 && strcmp(term, "unknown") != 0;
}

/* ---- what is shown ---- */

/* The ranks of each input; one that is no directory of ranks is one run. */
struct ranks {
	struct input_rank *all[2];
	size_t count[2];
};

/* What is said in the end, while ranks are read one after the other. */
struct answer {
	const struct options *options;
	struct comparison_file file;
	struct strbuf text;  /* of the rank that differs most, or JSON */
	struct strbuf lines; /* one for each rank */
	struct json json;
	uint64_t most;
	uint32_t rank; /* whose text it is */
	bool many;
	bool calls; /* the file has some */
};

static int answer_add(struct answer *answer, struct couple *couple, const char *const paths[2],
		      uint32_t rank, struct mscope_error *err)
{
	uint64_t size = comparison_size(&couple->differences) + 1;
	int r = comparison_file_add(&answer->file, &couple->compare, err);

	if (r < 0)
		return r;
	answer->calls = answer->calls || couple->compare.row_count > 0;
	if (answer->options->json) {
		if (answer->many) {
			json_object(&answer->json, NULL);
			json_u64(&answer->json, "rank", rank);
			json_string(&answer->json, "base", paths[0]);
			json_string(&answer->json, "compare", paths[1]);
		}
		r = comparison_json(&couple->compare, &couple->differences, &answer->json);
		if (answer->many)
			json_end(&answer->json);
		return r;
	}
	if (answer->many) {
		strbuf_addf(&answer->lines, "rank %u: ", rank);
		comparison_line(&couple->compare, &couple->differences, &answer->lines);
		strbuf_add_char(&answer->lines, '\n');
	}
	if (size > answer->most) {
		answer->most = size;
		answer->rank = rank;
		strbuf_reset(&answer->text);
		comparison_text(&couple->compare, &couple->differences, want_colour(),
				&answer->text);
	}
	return 0;
}

static void answer_begin(struct answer *answer)
{
	const struct options *options = answer->options;

	if (!options->json)
		return;
	json_begin(&answer->json, &answer->text);
	json_object(&answer->json, NULL);
	json_string(&answer->json, "base", options->input_path.path[0]);
	json_string(&answer->json, "compare",
		    options->input_path.path[options->steps.count == 2 ? 0 : 1]);
	if (options->steps.count == 2) {
		json_u64(&answer->json, "base_step", options->steps.value[0]);
		json_u64(&answer->json, "compare_step", options->steps.value[1]);
	}
	json_string(&answer->json, "file", answer->file.path);
	if (answer->many)
		json_array(&answer->json, "ranks");
}

/* The first ranks, and a count of the rest. */
#define RANKS_SHOWN 6u

static void add_ranks(const struct answer *answer, struct strbuf *out)
{
	const char *at = strbuf_str(&answer->lines), *end;
	size_t shown, left = 0;

	for (shown = 0; shown < RANKS_SHOWN && (end = strchr(at, '\n')) != NULL; shown++) {
		strbuf_add(out, at, (size_t)(end - at) + 1);
		at = end + 1;
	}
	for (; *at != '\0'; at++)
		left += *at == '\n';
	if (left > 0)
		strbuf_addf(out, "... %zu more ranks; --json has all\n", left);
	strbuf_addf(out, "\nrank %u differs most:\n", answer->rank);
}

static void answer_print(struct answer *answer)
{
	const struct options *options = answer->options;
	struct strbuf out = {0};
	int side;

	if (options->json) {
		if (answer->many)
			json_end(&answer->json);
		json_end(&answer->json);
		strbuf_add_char(&answer->text, '\n');
	} else {
		for (side = 0; side < 2; side++) {
			const char *path =
				options->input_path.path[options->steps.count == 2 ? 0 : side];

			strbuf_add_str(&out, side == 0 ? "base     " : "compare  ");
			strbuf_add_shown(&out, path, strlen(path));
			if (options->steps.count == 2)
				strbuf_addf(&out, ", step %u", options->steps.value[side]);
			strbuf_add_char(&out, '\n');
		}
		if (answer->many)
			add_ranks(answer, &out);
	}
	strbuf_add(&out, strbuf_str(&answer->text), answer->text.length);
	if (strbuf_failed(&out) || strbuf_failed(&answer->text))
		cli_say("out of memory for the table; %s has every call", answer->file.path);
	else
		cli_write(STDOUT_FILENO, strbuf_str(&out), out.length);
	strbuf_fini(&out);
}

/* Warnings before anything is read. */
static void advise(const struct options *options)
{
	if (options->log_level > OPT_LOG_WARN)
		return;
	if (options->argc > 0)
		cli_say("%s is not started: --compare reads two recorded runs", options->argv[0]);
	/* Root reads at the end that this is not checked. */
	if (geteuid() == 0)
		return;
	cli_tell_owner("input", options->input_path.path[0], "what is compared");
	if (options->input_path.path[1] != NULL)
		cli_tell_owner("input", options->input_path.path[1], "what is compared");
	cli_tell_owner("output directory", options->output_path, "the results");
}

/* Compares one run with another, or one rank of them. */
static int compare_one(struct answer *answer, const char *base, const char *other, uint32_t rank,
		       struct mscope_error *err)
{
	const char *const paths[2] = {base, other};
	struct couple *couple = calloc(1, sizeof(*couple));
	int code, r;

	if (couple == NULL)
		return error_set(err, -ENOMEM, "no memory");
	code = couple_read(couple, paths, answer->options, err);
	r = code < 0 ? code : 0;
	if (r == 0 && answer->file.fd < 0) {
		struct timespec now;
		struct tm local = {0};

		(void)clock_gettime(CLOCK_REALTIME, &now);
		(void)localtime_r(&now.tv_sec, &local);
		r = comparison_file_open(&answer->file, answer->options->output_path,
					 (uint64_t)now.tv_sec * 1000000000u,
					 (int32_t)local.tm_gmtoff, err);
		if (r == 0)
			answer_begin(answer);
	}
	if (r == 0)
		r = answer_add(answer, couple, paths, rank, err);
	couple_close(couple);
	return r < 0 ? r : code;
}

/* Ranks that both launches have. */
static int compare_ranks(struct answer *answer, const struct ranks *ranks, struct mscope_error *err)
{
	size_t i = 0, k = 0, both = 0;
	int r = 0, worst = MSCOPE_EXIT_OK;

	while ((i < ranks->count[0] || k < ranks->count[1]) && r >= 0) {
		const struct input_rank *a = i < ranks->count[0] ? &ranks->all[0][i] : NULL,
					*b = k < ranks->count[1] ? &ranks->all[1][k] : NULL;

		if (a != NULL && b != NULL && a->rank == b->rank) {
			r = compare_one(answer, a->path, b->path, a->rank, err);
			worst = r > worst ? r : worst;
			both++;
			i++;
			k++;
		} else if (b == NULL || (a != NULL && a->rank < b->rank)) {
			cli_say("rank %u is only in base", a->rank);
			i++;
		} else {
			cli_say("rank %u is only in compare", b->rank);
			k++;
		}
	}
	if (r >= 0 && both == 0)
		r = error_set(err, MSCOPE_E_ABSENT, "the two have no rank in common");
	return r < 0 ? r : worst;
}

static int compare_inputs(struct answer *answer, struct mscope_error *err)
{
	const struct options *options = answer->options;
	char *const *paths = options->input_path.path;
	struct ranks ranks = {0};
	size_t i;
	int side, r = 0;

	if (options->level.mask == 0)
		return error_set(
			err, MSCOPE_E_USAGE,
			"--level names nothing to compare; allowed with --compare: op, kernel");
	if (options->steps.count == 2)
		return compare_one(answer, paths[0], paths[0], 0, err);
	for (side = 0; side < 2 && r == 0; side++)
		r = input_ranks(paths[side], &ranks.all[side], &ranks.count[side]);
	answer->many = ranks.count[0] > 0 && ranks.count[1] > 0;
	if (r < 0)
		(void)error_set(err, r, "no memory");
	else if (answer->many)
		r = compare_ranks(answer, &ranks, err);
	else
		r = compare_one(answer, paths[0], paths[1], 0, err);
	for (side = 0; side < 2; side++) {
		for (i = 0; i < ranks.count[side]; i++)
			free(ranks.all[side][i].path);
		free(ranks.all[side]);
	}
	return r;
}

int cmd_compare(const struct options *options)
{
	struct answer answer = {.options = options, .file = {.fd = -1}};
	struct mscope_error err = {0};
	int code;

	advise(options);
	code = compare_inputs(&answer, &err);
	if (comparison_file_close(&answer.file, code >= 0, &err) < 0)
		code = err.code;
	if (code >= 0) {
		answer_print(&answer);
		if (options->log_level <= OPT_LOG_WARN)
			(void)cli_tell_root("the inputs and of the output directory");
		if (options->log_level <= OPT_LOG_WARN && answer.calls)
			cli_say("every call is in %s", answer.file.path);
	} else {
		cli_say("%s", err.message);
		code = code == MSCOPE_E_USAGE ? MSCOPE_EXIT_USAGE : input_exit_code(code);
	}
	strbuf_fini(&answer.text);
	strbuf_fini(&answer.lines);
	return code;
}
