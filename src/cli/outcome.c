/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/outcome.h"

#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

#include "base/options.h"
#include "cli/cli.h"

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
	strbuf_addf(&outcome->text, "msmemscope: %s\n", line);
}

static void add_error(struct outcome *outcome, const struct mscope_error *err)
{
	if (err->code != 0)
		outcome_say(outcome, "%s", err->message);
}

void outcome_add(struct outcome *outcome, struct pipeline *pipeline)
{
	struct report report = {.replay = &pipeline->replay, .run = pipeline->run};
	bool failed = pipeline->read_error.code != 0 || pipeline->pack_error.code != 0 || pipeline->sink_error.code != 0;

	outcome->reports++;
	if (outcome->log_level <= OPT_LOG_WARN) {
		if (outcome->reports <= OUTCOME_FULL) {
			strbuf_add_str(&outcome->text, "\nmsmemscope: ");
			report_text(&report, &outcome->text);
		}
		if (pipeline->project.made)
			strbuf_addf(&outcome->text, "%s%s\n", outcome->reports <= OUTCOME_FULL ? "Files: " : "msmemscope: also ",
				    pipeline->project.path);
	}
	add_error(outcome, &pipeline->read_error);
	add_error(outcome, &pipeline->pack_error);
	add_error(outcome, &pipeline->sink_error);
	if (failed)
		outcome_say(outcome, "what was recorded is kept in %s; when the cause is mended: msmemscope recover %.*s",
			    pipeline->raw_path, (int)(strrchr(pipeline->raw_path, '/') - pipeline->raw_path),
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
	cli_write(STDERR_FILENO, strbuf_str(&outcome->text), outcome->text.length);
	outcome_discard(outcome);
}

void outcome_discard(struct outcome *outcome)
{
	strbuf_fini(&outcome->text);
	outcome->progress_shown = false;
}
