/* SPDX-License-Identifier: Apache-2.0 */
/*
 * msmemscope analyze WHAT RUN...: one question to recorded runs, and nothing else. engine/input.h tells what RUN may be; of a dump
 * file with several processes each is answered for. As JSON it is a document like that of info --json.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "analysis/launches.h"
#include "analysis/mark_leaks.h"
#include "base/json.h"
#include "findings/site.h"
#include "base/array.h"
#include "base/io.h"
#include "base/nearest.h"
#include "base/shown.h"
#include "cli/cli.h"
#include "cli/pager.h"
#include "cli/reading.h"
#include "engine/pass.h"
#include "replay/facts.h"
#include "sink/digest.h"
#include "sink/report_json.h"
#include "sink/report_watch.h"
#include "symbols/elf_cache.h"
#include "trace/launch.h"
#include "trace/session.h"
#include "trace/settings.h"

#define OOM_TOP 10u

/* The word that no analysis answers: what was watched is in the rows. */
#define WATCH "watch"

/* What is asked: a word, and the analyses that answer it. */
struct question {
	const char *word;
	uint32_t analysis; /* bits of enum session_analysis */
	enum analysis_id answers[ANALYSES];
	size_t answer_count;
	bool by_steps;	     /* --steps chooses */
	bool by_marks;	     /* the same word with --mark */
	const char *nothing; /* the answer when there is none */
};

/* A block with the column of its MALLOC row that says how it was not used well. */
struct wasted {
	uint64_t row_id, allocation_id, size_bytes;
	uint16_t found;
};

struct analyze {
	const struct options *options;
	struct question question;
	struct json json;
	struct strbuf text;
	uint32_t reported;
	/* Of the run at hand. */
	const struct input *input;
	struct wasted *wasted;
	size_t wasted_count, wasted_room;
	bool has_marks; /* those that were named */
};

/* ---- one run ---- */

static bool wants_blocks(const struct analyze *analyze)
{
	return analyze->question.analysis == SESSION_INEFFICIENT && analyze->options->json &&
	       analyze->options->all;
}

/* The column ID of the row of an allocation. */
static uint64_t row_id_of(const struct input *input, uint64_t allocation_id, uint64_t id)
{
	return allocation_id - 1 < input->import.row_id_count
		       ? input->import.row_ids[allocation_id - 1]
		       : id;
}

static int take_row(void *arg, struct replay *replay, const struct row *row)
{
	struct analyze *analyze = arg;

	(void)replay;
	if (row->kind != ROW_MALLOC || row->inefficient == 0 || row->block == NULL)
		return 0;
	if (ARRAY_RESERVE(analyze->wasted, analyze->wasted_room, analyze->wasted_count + 1) < 0)
		return -ENOMEM;
	analyze->wasted[analyze->wasted_count++] = (struct wasted){
		.row_id = row_id_of(analyze->input, row->block->allocation_id, row->id),
		.allocation_id = row->block->allocation_id,
		.size_bytes = row->block->size_bytes,
		.found = row->inefficient,
	};
	return 0;
}

static void choose(const struct analyze *analyze, struct replay_choice devices,
		   struct analyses *analyses)
{
	const struct options *options = analyze->options;
	struct launches_choice launches = {.steps = options->steps.value,
					   .step_count = options->steps.count,
					   .devices = devices};
	struct marks_choice marks = {.name = options->mark,
				     .start = options->start_index,
				     .row_ids = analyze->input->import.row_ids,
				     .row_id_count = analyze->input->import.row_id_count};

	launches_choose(analyses, &launches);
	marks_choose(analyses, &marks);
}

/*
 * Some facts about rows come after them: frees that failed, what of a block was found later, that the first step() ended a step. Then
 * a second pass has the answer.
 */
static bool needs_facts(const struct analyze *analyze, const struct pass *pass)
{
	bool by_rows = (analyze->question.analysis & (SESSION_MARKS | SESSION_LAUNCHES)) != 0;

	return wants_blocks(analyze) || analyze->options->steps.count > 0 ||
	       (by_rows && replay_totals(pass->replay)->oddities.undone_frees > 0);
}

static int read_pass(struct analyze *analyze, struct pass *pass, const struct pass_setup *setup,
		     struct mscope_error *err)
{
	int r = pass_open(pass, setup, err);

	if (r == 0) {
		choose(analyze, setup->choice, &pass->analyses);
		r = pass_all(pass, err);
	}
	return r;
}

static void json_wasted(struct analyze *analyze, const struct replay *replay)
{
	struct strbuf types = {0};
	size_t i;

	json_bool(&analyze->json, "accesses",
		  replay_totals(replay)->events_by_type[EVENT_access] > 0);
	json_array(&analyze->json, "inefficient_blocks");
	for (i = 0; i < analyze->wasted_count; i++) {
		const struct wasted *wasted = &analyze->wasted[i];

		strbuf_reset(&types);
		inefficiency_text(wasted->found, &types);
		json_object(&analyze->json, NULL);
		json_u64(&analyze->json, "index", wasted->row_id);
		json_u64(&analyze->json, "allocation_id", wasted->allocation_id);
		json_u64(&analyze->json, "size", wasted->size_bytes);
		json_string(&analyze->json, "inefficient_type", strbuf_str(&types));
		json_end(&analyze->json);
	}
	json_end(&analyze->json);
	strbuf_fini(&types);
}

/* Whether the marks that were named are there, on any device. */
static bool has_marks(const struct findings *found)
{
	size_t i;

	for (i = 0; i < FINDINGS_COUNT(found, marked_device); i++) {
		if (FINDINGS(found, marked_device)[i].judged)
			return true;
	}
	return false;
}

static void add_json(struct analyze *analyze, const struct report *report)
{
	const struct question *question = &analyze->question;
	struct findings found = {0};
	struct report judged = *report;
	struct analysis_view view;
	size_t i;

	judged.found = report_judged(report, &found);
	view = report_view(report, judged.found);
	report_json_process(&judged, &analyze->json);
	for (i = 0; i < question->answer_count; i++)
		analyses_json_of(report->analyses, question->answers[i], &view, &analyze->json);
	if (wants_blocks(analyze))
		json_wasted(analyze, report->replay);
	if (question->answer_count == 0)
		report_watch_json(report->replay, &analyze->json);
	json_end(&analyze->json);
	analyze->has_marks = has_marks(judged.found);
	findings_fini(&found);
}

static void add_text(struct analyze *analyze, const struct report *report)
{
	const struct question *question = &analyze->question;
	const struct run *run = replay_run(report->replay);
	struct findings found = {0};
	struct analysis_view view = report_view(report, report_judged(report, &found));
	char *name = digest_run_name(run);
	struct strbuf *out = &analyze->text;
	size_t i, before;

	strbuf_add_shown(out, name == NULL ? report->trace_path : name,
			 strlen(name == NULL ? report->trace_path : name));
	strbuf_addf(out, " (pid %u):\n", run_header(run)->pid);
	free(name);
	before = out->length;
	for (i = 0; i < question->answer_count; i++)
		analyses_text_of(report->analyses, question->answers[i], &view, out);
	if (question->answer_count == 0)
		(void)report_watch_text(report->replay,
					report->shown.all ? SIZE_MAX : report->shown.top, out);
	if (out->length == before)
		strbuf_add_str(out, question->nothing);
	report_losses(report, out);
	site_notes(report->replay, out);
	analyze->has_marks = has_marks(view.found);
	findings_fini(&found);
}

static int exit_code_of(const struct analyze *analyze, const struct report *report)
{
	if (report_is_damaged(report) || analyze->input->unfinished)
		return MSCOPE_EXIT_DAMAGED;
	if (analyze->question.by_marks && !analyze->has_marks)
		return MSCOPE_EXIT_FAILED;
	return MSCOPE_EXIT_OK;
}

/* Devices and what is inefficient: as asked for, else as the launch was asked for. */
static void take_launch(const struct options *options, struct pass_setup *setup)
{
	const char *launch = run_identity(setup->run, SESSION_LAUNCH_KEY);
	struct session *session = launch == NULL ? NULL : calloc(1, sizeof(*session));
	bool known = session != NULL && launch_read(launch, session);

	setup->settings = launch_choices(options);
	setup->fixed_settings = options_given(options, OPTION_ID_inefficient);
	if (known && !setup->fixed_settings)
		setup->settings = settings_of_session(session);
	reading_choose_devices(options, known ? session : NULL, setup);
	free(session);
}

/* Replays the run and answers. Returns the exit code. */
static int answer(void *arg, const char *word, struct input *input)
{
	struct analyze *analyze = arg;
	const struct options *options = analyze->options;
	struct elf_cache elves = {0};
	struct pass_setup setup = {
		.run = input->run,
		.elves = &elves,
		.analysis = analyze->question.analysis,
		.steps_matter = options->steps.count > 0,
		.oom_top = analyze->question.analysis & SESSION_OOM ? OOM_TOP : 0,
		.facts_directory = io_scratch(),
	};
	struct report report = {
		.trace_path = word,
		.from_dump = input->imported,
		.shown = {.top = options_given(options, OPTION_ID_top) ? options->top : REPORT_TOP,
			  .all = options->all},
	};
	struct mscope_error err = {0};
	struct pass first = {0}, second = {0}, *pass = &first;
	struct run *again = NULL;
	int exit_code = MSCOPE_EXIT_FAILED, r;

	analyze->input = input;
	analyze->wasted_count = 0;
	take_launch(options, &setup);
	r = read_pass(analyze, &first, &setup, &err);
	if (r == 0 && needs_facts(analyze, &first)) {
		r = input_reopen(input, &again, &err);
		setup.run = again;
		setup.facts_directory = NULL;
		setup.known = &first.facts;
		setup.row = wants_blocks(analyze) ? take_row : NULL;
		setup.event_arg = analyze;
		pass = &second;
		if (r == 0)
			r = read_pass(analyze, &second, &setup, &err);
	}
	if (r < 0) {
		cli_say("cannot read %s: %s", word,
			err.message[0] != '\0' ? err.message : mscope_status_str(r));
	} else {
		report.replay = pass->replay;
		report.analyses = &pass->analyses;
		report.input_damaged = import_is_damaged(&input->import);
		if (options->json)
			add_json(analyze, &report);
		else
			add_text(analyze, &report);
		analyze->reported++;
		exit_code = exit_code_of(analyze, &report);
	}
	pass_close(&second);
	pass_close(&first);
	run_close(again);
	elf_cache_fini(&elves);
	return exit_code;
}

/* ---- the line ---- */

static void add_answer(struct question *question, enum analysis_id id)
{
	const struct analysis *analysis = analysis_of(id);

	if (question->answer_count == 0)
		question->nothing = analysis->nothing;
	question->answers[question->answer_count++] = id;
	question->analysis |= analysis->bits;
	question->by_steps |= analysis->by_steps;
}

/* False: nothing answers the word. */
static bool take_question(const struct options *options, struct question *out)
{
	size_t i;

	*out = (struct question){.word = options->argv[1]};
	if (strcmp(out->word, WATCH) == 0) {
		out->nothing = "Nothing was watched; record with --watch or watcher.watch().\n";
		return true;
	}
	if (options->mark != NULL && strcmp(out->word, analysis_of(ANALYSIS_ID_leaks)->word) == 0) {
		add_answer(out, ANALYSIS_ID_marks);
		out->by_marks = true;
		return true;
	}
	for (i = 0; i < ANALYSES; i++) {
		const char *word = analysis_of((enum analysis_id)i)->word;

		if (word != NULL && strcmp(word, out->word) == 0)
			add_answer(out, (enum analysis_id)i);
	}
	return out->answer_count > 0;
}

static void tell_unknown(const char *word)
{
	struct nearest nearest = nearest_to(word, strlen(word));
	struct strbuf text = {0};
	const char *last = "";
	size_t i;

	for (i = 0; i < ANALYSES; i++) {
		const char *known = analysis_of((enum analysis_id)i)->word;

		/* Those that answer one word follow each other. */
		if (known == NULL || strcmp(known, last) == 0)
			continue;
		nearest_offer(&nearest, known);
		strbuf_addf(&text, "%s, ", known);
		last = known;
	}
	nearest_offer(&nearest, WATCH);
	if (nearest.best != NULL)
		cli_say("analyze does not know '%s'; did you mean %s?", word, nearest.best);
	else
		cli_say("analyze does not know '%s'; usage: msmemscope analyze WHAT RUN, WHAT is one of %s" WATCH,
			word, strbuf_str(&text));
	strbuf_fini(&text);
}

/* Whether what was asked fits together; says why not. */
static bool is_sensible(const struct options *options, struct question *question)
{
	static const struct {
		enum option_id id;
		bool marks;
	} choices[] = {{OPTION_ID_steps, false},
		       {OPTION_ID_inefficient, false},
		       {OPTION_ID_mark, true},
		       {OPTION_ID_start_index, true}};
	size_t i;

	if (!take_question(options, question)) {
		tell_unknown(options->argv[1]);
		return false;
	}
	for (i = 0; i < MSCOPE_COUNT(choices); i++) {
		bool fits = choices[i].marks ? question->by_marks
			    : choices[i].id == OPTION_ID_inefficient
				    ? question->analysis == SESSION_INEFFICIENT
				    : question->by_steps;

		if (fits || !options_given(options, choices[i].id))
			continue;
		if (choices[i].id == OPTION_ID_start_index && question->analysis == SESSION_LEAKS)
			cli_say("--start-index needs --mark");
		else
			cli_say("--%s does not apply to analyze %s", options_name(choices[i].id),
				question->word);
		return false;
	}
	return true;
}

int cmd_analyze(const struct options *options)
{
	struct analyze analyze = {.options = options};
	int worst;

	if (!is_sensible(options, &analyze.question))
		return MSCOPE_EXIT_USAGE;
	if (options->json)
		report_json_begin(&analyze.json, &analyze.text);
	worst = reading_answers(options, 2, answer, &analyze);
	if (options->json)
		report_json_end(&analyze.json);
	if (options->json && analyze.reported > 0)
		cli_write(STDOUT_FILENO, strbuf_str(&analyze.text), analyze.text.length);
	else if (!options->json)
		pager_write(&analyze.text);
	strbuf_fini(&analyze.text);
	free(analyze.wasted);
	return worst;
}
