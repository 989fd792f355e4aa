/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/outcome.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/array.h"
#include "base/io.h"
#include "base/json.h"
#include "base/shown.h"
#include "cli/cli.h"
#include "cli/conditions.h"
#include "cli/forecast_command.h"
#include "replay/watches.h"
#include "sink/report_json.h"
#include "sink/screen.h"

/* A verdict that is printed while the program runs: its headline and its cause take at most this many rows each. */
#define OOM_ROWS 3

void outcome_init(struct outcome *outcome, const struct options *options)
{
	*outcome = (struct outcome){
		.log_level = options->log_level,
		.summary_json = options->summary_json,
		.conditions = options_given(options, OPTION_ID_fail_on) ? &options->fail_on : NULL,
		.on_forecast = options->on_forecast,
	};
}

void outcome_say(struct outcome *outcome, const char *format, ...)
{
	char line[1024];
	va_list args;

	va_start(args, format);
	(void)vsnprintf(line, sizeof(line), format, args);
	va_end(args);
	strbuf_add_str(&outcome->text, "msmemscope: ");
	strbuf_add_shown(&outcome->text, line, strlen(line));
	strbuf_add_char(&outcome->text, '\n');
}

static void add_error(struct outcome *outcome, const struct mscope_error *err)
{
	if (err->code != 0)
		outcome_say(outcome, "%s", err->message);
}

void outcome_steps(struct outcome *outcome, const struct session *session,
		   const struct replay *replay)
{
	uint32_t seen = replay_marked_steps(replay), counted = replay_steps(replay);
	size_t i, kept = 0;

	if (outcome->steps_missing == NULL && session->step_count > 0) {
		outcome->steps_missing = calloc(session->step_count, sizeof(uint32_t));
		for (i = 0; outcome->steps_missing != NULL && i < session->step_count; i++)
			outcome->steps_missing[outcome->missing_count++] = session->steps[i];
	}
	for (i = 0; i < outcome->missing_count; i++) {
		if (outcome->steps_missing[i] > seen)
			outcome->steps_missing[kept++] = outcome->steps_missing[i];
	}
	outcome->missing_count = kept;
	if (seen > outcome->steps_seen)
		outcome->steps_seen = seen;
	if (replay_steps_are_automatic(replay) && counted > outcome->optimizer_steps)
		outcome->optimizer_steps = counted;
}

static void say_steps(struct outcome *outcome)
{
	const size_t shown = 10;
	struct strbuf list = {0};
	char had[64];
	size_t i;

	if (outcome->missing_count == 0 || outcome->log_level > OPT_LOG_WARN)
		return;
	for (i = 0; i < outcome->missing_count && i < shown; i++)
		strbuf_addf(&list, "%s%u", i == 0 ? "" : ", ", outcome->steps_missing[i]);
	if (outcome->missing_count > shown)
		strbuf_addf(&list, " and %zu more", outcome->missing_count - shown);
	if (outcome->optimizer_steps > 0 && outcome->steps_seen == 0)
		(void)snprintf(had, sizeof(had), "the program marks no steps");
	else
		(void)snprintf(had, sizeof(had), "the run had %u step%s", outcome->steps_seen,
			       outcome->steps_seen == 1 ? "" : "s");
	outcome_say(outcome, "--steps: %s not reached; %s%s", strbuf_str(&list), had,
		    outcome->optimizer_steps > outcome->steps_seen
			    ? ", and those of its optimizer cannot be chosen"
			    : "");
	strbuf_fini(&list);
}

/* What the user may type next: one directory by its name, several by a pattern. */
static void note_next(struct outcome *outcome, const struct pipeline *pipeline)
{
	if (!pipeline->project.made || pipeline->session->no_keep_trace)
		return;
	if (outcome->next[0] == '\0')
		(void)snprintf(outcome->next, sizeof(outcome->next), "%s", pipeline->project.path);
	else
		(void)snprintf(outcome->next, sizeof(outcome->next), "%s/msmemscope_*",
			       pipeline->project.output);
}

/* A path as a person types it: from here, if it is below. */
static char *shown_path(const char *path)
{
	char here[PROJECT_PATH_MAX];
	size_t length;

	if (getcwd(here, sizeof(here)) == NULL)
		return strdup(path);
	length = strlen(here);
	if (length > 1 && strncmp(path, here, length) == 0 && path[length] == '/')
		return strdup(path + length + 1);
	return strdup(path);
}

static struct digest *new_digest(struct outcome *outcome)
{
	if (ARRAY_RESERVE(outcome->digests, outcome->digest_room, outcome->digest_count + 1) < 0)
		return NULL;
	outcome->digests[outcome->digest_count] = (struct digest){0};
	return &outcome->digests[outcome->digest_count++];
}

static void take_digest(struct outcome *outcome, struct pipeline *pipeline)
{
	struct report report = {
		.replay = pipeline->pass.replay,
		.analyses = &pipeline->pass.analyses,
		.trace_path = pipeline->project.made ? pipeline->project.path : NULL,
		.runs = !pipeline->finished,
	};
	struct digest *digest = new_digest(outcome);
	char dumps[PROJECT_PATH_MAX + 16];
	struct json json;

	if (digest == NULL)
		return;
	pipeline_what_if(pipeline, &report);
	digest_take(digest, &report);
	report.found = digest->found;
	if (pipeline->project.made)
		digest->project = shown_path(pipeline->project.path);
	if (pipeline->project.made && replay_watches(pipeline->pass.replay)->dumps > 0) {
		(void)snprintf(dumps, sizeof(dumps), "%s/watch_dump", pipeline->project.output);
		digest->dumps = shown_path(dumps);
	}
	if (outcome->summary_json != NULL) {
		json_begin(&json, &digest->json);
		report_json(&report, &json);
	}
}

void outcome_made(struct outcome *outcome, const char *report)
{
	/* In the directory that the screen names, or beside those that its pattern does. */
	(void)snprintf(outcome->report, sizeof(outcome->report), "%s", strrchr(report, '/') + 1);
}

void outcome_add(struct outcome *outcome, struct pipeline *pipeline)
{
	bool failed = pipeline_has_failed(pipeline);

	take_digest(outcome, pipeline);
	outcome_steps(outcome, pipeline->session, pipeline->pass.replay);
	if (!failed)
		note_next(outcome, pipeline);
	add_error(outcome, &pipeline->read_error);
	add_error(outcome, &pipeline->pack_error);
	add_error(outcome, &pipeline->pass.sink_error);
	add_error(outcome, &pipeline->dump_stopped);
	if (failed)
		outcome_say(
			outcome,
			"the recording is kept in %s; fix the cause, then run: msmemscope recover %.*s",
			pipeline->raw_path,
			(int)(strrchr(pipeline->raw_path, '/') - pipeline->raw_path),
			pipeline->raw_path);
}

void outcome_out_of_memory(struct outcome *outcome, const struct pipeline *pipeline,
			   const char *text)
{
	struct strbuf line = {0}, wrapped = {0};
	const char *at;

	/* Who asked for the analysis hears of it whatever the level. */
	if (outcome->log_level > OPT_LOG_WARN && !(pipeline->session->analysis & SESSION_OOM))
		return;
	strbuf_addf(&line, "msmemscope: process %u: %s", run_header(pipeline->run)->pid, text);
	screen_wrap(strbuf_str(&line), OOM_ROWS, &wrapped);
	cli_write(STDERR_FILENO, strbuf_str(&wrapped), wrapped.length);
	for (at = strbuf_str(&wrapped); *at != '\0'; at++)
		outcome->above += *at == '\n';
	strbuf_fini(&line);
	strbuf_fini(&wrapped);
}

void outcome_forecast(const struct outcome *outcome, const struct pipeline *pipeline,
		      const struct finding_forecast *forecast, const char *text)
{
	uint32_t pid = run_header(pipeline->run)->pid;
	struct strbuf line = {0}, wrapped = {0};

	if (outcome->log_level <= OPT_LOG_WARN) {
		strbuf_addf(&line, "msmemscope: process %u: %s.\n", pid, text);
		screen_wrap(strbuf_str(&line), OOM_ROWS, &wrapped);
		cli_write(STDERR_FILENO, strbuf_str(&wrapped), wrapped.length);
	}
	if (outcome->on_forecast != NULL)
		forecast_command(outcome->on_forecast, pid, forecast, text);
	strbuf_fini(&line);
	strbuf_fini(&wrapped);
}

void outcome_incomplete(void *arg, const struct pipeline *pipeline, const struct mscope_error *err)
{
	const char *raw = pipeline->raw_path;

	(void)arg;
	cli_say("process %u: stop() did not complete its files: %s; nothing is lost, run this when the program has ended: msmemscope recover %.*s",
		run_header(pipeline->run)->pid, err->message, (int)(strrchr(raw, '/') - raw), raw);
}

void outcome_unreadable(struct outcome *outcome, const char *path, const struct mscope_error *err)
{
	(void)path;
	outcome_say(outcome, "%s", err->message);
}

/* What takes no time is not worth a line. */
#define PROGRESS_LEAST 100000

void outcome_progress(struct outcome *outcome, const char *what, uint64_t events)
{
	char line[128];
	int length;

	if (!isatty(STDERR_FILENO) || outcome->log_level > OPT_LOG_WARN ||
	    (events < PROGRESS_LEAST && !outcome->progress_shown))
		return;
	length = snprintf(line, sizeof(line), "\r\033[Kmsmemscope: %s:", what);
	length += snprintf(line + length, sizeof(line) - (size_t)length, " %.1f million events",
			   (double)events / 1e6);
	cli_write(STDERR_FILENO, line, (size_t)length);
	outcome->progress_shown = true;
}

/* ---- the document ---- */

static int by_rank(const void *a, const void *b)
{
	const struct digest *x = *(const struct digest *const *)a,
			    *y = *(const struct digest *const *)b;

	return ORDER_UP(x->rank, y->rank) ?: ORDER_UP(x->pid, y->pid);
}

static int make_document(const struct outcome *outcome, struct strbuf *out)
{
	const struct digest **sorted = calloc(outcome->digest_count + 1, sizeof(*sorted));
	struct json json;
	size_t i;

	if (sorted == NULL)
		return -ENOMEM;
	for (i = 0; i < outcome->digest_count; i++)
		sorted[i] = &outcome->digests[i];
	qsort(sorted, outcome->digest_count, sizeof(*sorted), by_rank);
	report_json_begin(&json, out);
	for (i = 0; i < outcome->digest_count; i++) {
		if (sorted[i]->json.length > 0)
			json_raw(&json, NULL, strbuf_str(&sorted[i]->json));
	}
	report_json_end(&json);
	free(sorted);
	return strbuf_failed(out) ? -ENOMEM : 0;
}

/* A reader finds all of it or nothing. */
static int put_document(struct outcome *outcome)
{
	struct strbuf text = {0};
	int r = make_document(outcome, &text);

	if (r == 0)
		r = io_replace(outcome->summary_json, &text);
	if (r < 0)
		outcome_say(outcome, "cannot write %s: %s", outcome->summary_json,
			    mscope_status_str(r));
	strbuf_fini(&text);
	return r;
}

/* ---- the screen ---- */

/* Colours are for terminals whose user wants them (no-color.org). */
static bool wants_colour(void)
{
	const char *no = getenv("NO_COLOR"), *term = getenv("TERM");

	return isatty(STDERR_FILENO) && (no == NULL || no[0] == '\0') && term != NULL &&
	       term[0] != '\0' && strcmp(term, "dumb") != 0;
}

/* Whether the output directory holds nothing but this launch: then its name is enough. */
static bool is_all_there(const struct outcome *outcome, const char *directory)
{
	DIR *all = opendir(directory);
	const struct dirent *entry;
	size_t count = 0;

	while (all != NULL && (entry = readdir(all)) != NULL)
		count += strncmp(entry->d_name, "msmemscope_", 11) == 0;
	if (all != NULL)
		(void)closedir(all);
	return count == outcome->digest_count;
}

/* What `msmemscope info` is to be given: the output directory, the project, or a pattern of several. */
static char *what_to_show(const struct outcome *outcome)
{
	char directory[sizeof(outcome->next)];
	char *slash;

	if (outcome->next[0] == '\0')
		return NULL;
	(void)snprintf(directory, sizeof(directory), "%s", outcome->next);
	slash = strrchr(directory, '/');
	if (slash != NULL && slash != directory) {
		*slash = '\0';
		if (is_all_there(outcome, directory))
			return shown_path(directory);
	}
	return shown_path(outcome->next);
}

static void show(const struct outcome *outcome, const char *after)
{
	bool quiet = outcome->log_level > OPT_LOG_WARN;
	struct strbuf text = {0};
	char *path = outcome->next[0] == '\0' ? NULL : shown_path(outcome->next),
	     *more = quiet ? NULL : what_to_show(outcome);
	struct screen screen = {
		.digests = outcome->digests,
		.count = outcome->digest_count,
		.before = strbuf_str(&outcome->text),
		.after = after,
		.files = path,
		.report = outcome->report[0] == '\0' ? NULL : outcome->report,
		.more = more,
		.findings_only = quiet,
		.above = outcome->above,
		.colours = wants_colour(),
		.terminal = isatty(STDERR_FILENO) != 0,
	};

	/* A blank line sets it apart from the program's own output. */
	screen_text(&screen, &text);
	if (outcome->digest_count > 0 && text.length > 0)
		cli_write(STDERR_FILENO, "\n", 1);
	cli_write(STDERR_FILENO, strbuf_str(&text), text.length);
	strbuf_fini(&text);
	free(path);
	free(more);
}

void outcome_line(struct outcome *outcome)
{
	const struct digest *digest = &outcome->digests[outcome->digest_count - 1];
	struct strbuf line = {0};

	if (outcome->digest_count == 0 || outcome->log_level > OPT_LOG_WARN)
		return;
	strbuf_add_str(&line, "msmemscope: another window has ended: ");
	strbuf_add_count(&line, digest->events, "event", "events");
	strbuf_add_str(&line, " so far");
	if (digest->project != NULL) {
		strbuf_add_str(&line, " in ");
		strbuf_add_shown(&line, digest->project, strlen(digest->project));
	}
	strbuf_add_char(&line, '\n');
	cli_write(STDERR_FILENO, strbuf_str(&line), line.length);
	strbuf_fini(&line);
}

/* Tensors in host memory were recorded. */
static bool has_tensors(const struct outcome *outcome)
{
	size_t i, k;

	for (i = 0; i < outcome->digest_count; i++) {
		for (k = 0; k < outcome->digests[i].pool_count; k++) {
			if (outcome->digests[i].pools[k].pool == POOL_host)
				return true;
		}
	}
	return false;
}

static void tell_root(const struct outcome *outcome)
{
	if (outcome->tells_root && outcome->log_level <= OPT_LOG_WARN)
		(void)cli_tell_root("the output directory");
}

int outcome_print(struct outcome *outcome)
{
	struct strbuf why = {0}, after = {0};
	int code = 0;

	if (outcome->progress_shown)
		cli_write(STDERR_FILENO, "\r\033[K", 4);
	say_steps(outcome);
	if (outcome->summary_json != NULL && put_document(outcome) < 0)
		code = MSCOPE_EXIT_FAILED;
	if (outcome->conditions != NULL &&
	    conditions_met(outcome->conditions, outcome->digests, outcome->digest_count, &why)) {
		code = MSCOPE_EXIT_CONDITION;
		strbuf_addf(&after, "msmemscope: --fail-on: %s\n", strbuf_str(&why));
	}
	if (outcome->chose != NULL && has_tensors(outcome) && outcome->log_level <= OPT_LOG_WARN)
		strbuf_add_str(&after, outcome->chose);
	show(outcome, after.length > 0 ? strbuf_str(&after) : NULL);
	tell_root(outcome);
	strbuf_fini(&why);
	strbuf_fini(&after);
	outcome_discard(outcome);
	return code;
}

int outcome_print_problems(struct outcome *outcome)
{
	if (outcome->progress_shown)
		cli_write(STDERR_FILENO, "\r\033[K", 4);
	cli_write(STDERR_FILENO, strbuf_str(&outcome->text), outcome->text.length);
	tell_root(outcome);
	outcome_discard(outcome);
	return 0;
}

void outcome_discard(struct outcome *outcome)
{
	size_t i;

	for (i = 0; i < outcome->digest_count; i++)
		digest_fini(&outcome->digests[i]);
	free(outcome->digests);
	strbuf_fini(&outcome->text);
	free(outcome->steps_missing);
	*outcome = (struct outcome){.log_level = outcome->log_level};
}
