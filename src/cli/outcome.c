/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/outcome.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/shown.h"
#include "cli/cli.h"
#include "options/options.h"
#include "sink/report.h"

void outcome_init(struct outcome *outcome, int log_level)
{
	*outcome = (struct outcome){.log_level = log_level};
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

void outcome_steps(struct outcome *outcome, const struct session *session, uint32_t seen)
{
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
}

static void say_steps(struct outcome *outcome)
{
	const size_t shown = 10;
	struct strbuf list = {0};
	size_t i;

	if (outcome->missing_count == 0 || outcome->log_level > OPT_LOG_WARN)
		return;
	for (i = 0; i < outcome->missing_count && i < shown; i++)
		strbuf_addf(&list, "%s%u", i == 0 ? "" : ", ", outcome->steps_missing[i]);
	if (outcome->missing_count > shown)
		strbuf_addf(&list, " and %zu more", outcome->missing_count - shown);
	outcome_say(outcome, "--steps: %s never came; %u step%s seen", strbuf_str(&list),
		    outcome->steps_seen, outcome->steps_seen == 1 ? " was" : "s were");
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

void outcome_add(struct outcome *outcome, struct pipeline *pipeline)
{
	struct report report = {
		.replay = pipeline->pass.replay,
		.groups = outcome->reports == 0 ? OUTCOME_GROUPS : 0,
		.frames = OUTCOME_FRAMES,
		.analyses = &pipeline->pass.analyses,
	};
	bool failed = pipeline->read_error.code != 0 || pipeline->pack_error.code != 0 ||
		      pipeline->pass.sink_error.code != 0;

	outcome->reports++;
	outcome_steps(outcome, pipeline->session, replay_steps(pipeline->pass.replay));
	if (!failed)
		note_next(outcome, pipeline);
	if (outcome->log_level <= OPT_LOG_WARN) {
		if (outcome->reports <= OUTCOME_FULL) {
			strbuf_add_str(&outcome->text, "\nmsmemscope: ");
			report_text(&report, &outcome->text);
		}
		if (pipeline->project.made)
			strbuf_addf(&outcome->text, "%s%s\n",
				    outcome->reports <= OUTCOME_FULL ? "Files: "
								     : "msmemscope: also ",
				    pipeline->project.path);
		if (pipeline->project.made && replay_watches(pipeline->pass.replay)->dumps > 0)
			strbuf_addf(&outcome->text, "Dumps: %s/watch_dump\n",
				    pipeline->project.output);
	}
	add_error(outcome, &pipeline->read_error);
	add_error(outcome, &pipeline->pack_error);
	add_error(outcome, &pipeline->pass.sink_error);
	if (failed)
		outcome_say(outcome,
			    "what was recorded is kept in %s; when the cause is mended: msmemscope "
			    "recover %.*s",
			    pipeline->raw_path,
			    (int)(strrchr(pipeline->raw_path, '/') - pipeline->raw_path),
			    pipeline->raw_path);
}

void outcome_unreadable(struct outcome *outcome, const char *path, const struct mscope_error *err)
{
	(void)path;
	outcome_say(outcome, "%s", err->message);
}

void outcome_progress(struct outcome *outcome, uint64_t events)
{
	char line[128];
	int length;

	if (!isatty(STDERR_FILENO) || outcome->log_level > OPT_LOG_WARN)
		return;
	length = snprintf(line, sizeof(line), "\rmsmemscope: finishing files, %llu million events ",
			  (unsigned long long)events / 1000000);
	cli_write(STDERR_FILENO, line, (size_t)length);
	outcome->progress_shown = true;
}

void outcome_print(struct outcome *outcome)
{
	if (outcome->progress_shown)
		cli_write(STDERR_FILENO, "\r\033[K", 4);
	say_steps(outcome);
	if (outcome->next[0] != '\0' && outcome->log_level <= OPT_LOG_WARN)
		strbuf_addf(&outcome->text, "Next: msmemscope info %s\n", outcome->next);
	cli_show(STDERR_FILENO, &outcome->text);
	outcome_discard(outcome);
}

void outcome_discard(struct outcome *outcome)
{
	strbuf_fini(&outcome->text);
	free(outcome->steps_missing);
	*outcome = (struct outcome){.log_level = outcome->log_level};
}
