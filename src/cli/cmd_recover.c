/* SPDX-License-Identifier: Apache-2.0 */
/*
 * msmemscope recover DIR...: finishes the files of launches whose engine was killed. DIR is an output directory, the session
 * directory that a message named, or a raw trace in it.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/io.h"
#include "base/json.h"
#include "cli/cli.h"
#include "cli/launch_report.h"
#include "cli/outcome.h"
#include "engine/recover.h"
#include "sink/report.h"
#include "trace/chunk.h"
#include "trace/pack.h"

struct recovery {
	const struct options *options;
	struct outcome outcome;
	struct launch_report report;
	struct json json;
	uint32_t sessions, runs, failed, alive, busy, damaged;
};

static void on_finished(void *arg, struct pipeline *pipeline)
{
	struct recovery *recovery = arg;
	struct report report = {.replay = pipeline->pass.replay};

	if (report_is_damaged(&report))
		recovery->damaged++;
	if (recovery->options->json) {
		json_object(&recovery->json, NULL);
		json_u64(&recovery->json, "pid", run_header(pipeline->run)->pid);
		json_string(&recovery->json, "project",
			    pipeline->project.made ? pipeline->project.path : "");
		json_u64(&recovery->json, "events", replay_totals(pipeline->pass.replay)->events);
		json_u64(&recovery->json, "rows", replay_totals(pipeline->pass.replay)->rows);
		json_bool(&recovery->json, "damaged", report_is_damaged(&report));
		json_end(&recovery->json);
	}
	outcome_add(&recovery->outcome, pipeline);
	launch_report_add(&recovery->report, pipeline);
}

static void on_unreadable(void *arg, const char *path, const struct mscope_error *err)
{
	struct recovery *recovery = arg;

	outcome_unreadable(&recovery->outcome, path, err);
}

static bool on_progress(void *arg, uint64_t events)
{
	struct recovery *recovery = arg;

	outcome_progress(&recovery->outcome, "finishing files, still to read", events);
	return false;
}

static void on_session(void *arg, const char *directory)
{
	struct recovery *recovery = arg;
	struct runs_ops ops = {.finished = on_finished,
			       .progress = on_progress,
			       .unreadable = on_unreadable,
			       .arg = recovery};
	struct runs_result result = {0};
	struct mscope_error err = {0};
	int r = recover_session(directory, &ops, &result, &err);

	recovery->sessions++;
	recovery->runs += result.runs;
	recovery->failed += result.failed;
	recovery->alive += result.still_alive;
	if (r == -EBUSY)
		recovery->busy++;
	else if (r < 0)
		recovery->failed++;
	if (r < 0)
		outcome_say(&recovery->outcome, "%s", err.message);
}

static bool begins_with(const char *path, const char *magic)
{
	char head[8] = "";
	int fd = io_open_file(path, O_RDONLY, NULL);
	bool same = fd >= 0 && io_read_at(fd, head, sizeof(head), 0) == 0 &&
		    memcmp(head, magic, sizeof(head)) == 0;

	io_close(&fd);
	return same;
}

/* A word without a session: there is nothing to do, or the word was not meant. */
static void say_nothing(struct recovery *recovery, const char *word, const struct stat *st)
{
	if (S_ISDIR(st->st_mode) || begins_with(word, PACK_MAGIC)) {
		outcome_say(&recovery->outcome, "nothing to recover in %s", word);
		return;
	}
	recovery->failed++;
	outcome_say(&recovery->outcome,
		    begins_with(word, TRACE_MAGIC)
			    ? "%s is a trace outside its session: msmemscope info reads it"
			    : "%s is not a trace; give the output directory of the launch",
		    word);
}

/* Finds the sessions that a word means. */
static void search(struct recovery *recovery, const char *word, const struct stat *st)
{
	char directory[SESSION_PATH_MAX];
	struct session_place place;
	const char *slash = strrchr(word, '/');

	if (S_ISDIR(st->st_mode)) {
		session_search(word, on_session, recovery);
		return;
	}
	(void)snprintf(directory, sizeof(directory), "%.*s",
		       slash == NULL ? 1 : (int)(slash - word), slash == NULL ? "." : word);
	if (session_open(directory, &place, NULL) < 0)
		return;
	session_close(&place);
	on_session(recovery, directory);
}

int cmd_recover(const struct options *options)
{
	struct recovery recovery = {.options = options, .report = {.off = options->no_report}};
	struct strbuf json = {0};
	int i, r = MSCOPE_EXIT_OK;

	outcome_init(&recovery.outcome, options);
	json_begin(&recovery.json, &json);
	json_array(&recovery.json, NULL);
	for (i = 1; i < options->argc; i++) {
		struct stat st;
		uint32_t before = recovery.sessions;

		if (stat(options->argv[i], &st) < 0) {
			outcome_say(&recovery.outcome, "cannot open %s: %s", options->argv[i],
				    strerror(errno));
			recovery.failed++;
			continue;
		}
		if (!S_ISDIR(st.st_mode) && !S_ISREG(st.st_mode)) {
			outcome_say(&recovery.outcome, "%s is neither a file nor a directory",
				    options->argv[i]);
			recovery.failed++;
			continue;
		}
		search(&recovery, options->argv[i], &st);
		if (recovery.sessions == before)
			say_nothing(&recovery, options->argv[i], &st);
	}
	json_end(&recovery.json);
	if (options->json) {
		strbuf_add_char(&json, '\n');
		cli_show(STDOUT_FILENO, &json);
	}
	if (recovery.alive > 0)
		outcome_say(
			&recovery.outcome,
			recovery.alive == 1
				? "%u process is still running and recording; recover again when it has ended"
				: "%u processes are still running and recording; recover again when they have ended",
			recovery.alive);
	launch_report_make(&recovery.report, &recovery.outcome, io_scratch(), NULL, NULL);
	(void)outcome_print(&recovery.outcome);
	strbuf_fini(&json);
	if (recovery.failed > 0 || recovery.busy > 0)
		r = MSCOPE_EXIT_FAILED;
	if (recovery.damaged > 0 || (recovery.failed > 0 && recovery.runs > 0))
		r = MSCOPE_EXIT_DAMAGED;
	return r;
}
