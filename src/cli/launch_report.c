/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/launch_report.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/array.h"
#include "base/io.h"
#include "base/text.h"
#include "sink/screen.h"
#include "viewer/html_report.h"

#define ASK_MS 50

void launch_report_add(struct launch_report *report, const struct pipeline *pipeline)
{
	struct launch_report_run run = {.rank = digest_rank(pipeline->run, false)};
	char *program;

	if (report->off || !pipeline->project.made || pipeline->empty ||
	    pipeline->session->no_keep_trace || pipeline_has_failed(pipeline))
		return;
	program = digest_run_name(pipeline->run);
	run.project = strdup(pipeline->project.path);
	if (run.rank >= 0)
		(void)!asprintf(&run.name, "rank %lld", (long long)run.rank);
	else
		(void)!asprintf(&run.name, "%s (pid %u)", program == NULL ? "?" : program,
				pipeline->project.pid);
	free(program);
	if (run.project == NULL || run.name == NULL ||
	    ARRAY_RESERVE(report->runs, report->room, report->count + 1) < 0) {
		free(run.project);
		free(run.name);
		report->off = true;
		return;
	}
	report->runs[report->count++] = run;
	report->events += replay_totals(pipeline->pass.replay)->events;
	report->limit_bytes = pipeline->live ? pipeline->session->max_disk_bytes : 0;
	report->used_bytes += pipeline_disk_bytes(pipeline) + pipeline->dump_bytes;
}

static int by_rank(const void *a, const void *b)
{
	const struct launch_report_run *x = a, *y = b;

	return ORDER_UP(x->rank, y->rank) ?: strcmp(x->project, y->project);
}

/* The project of the process that the screen names first. */
static const char *worst_project(const struct launch_report *report, const struct outcome *outcome)
{
	const struct digest *worst = NULL;
	size_t i;

	for (i = 0; i < outcome->digest_count; i++) {
		const struct digest *one = &outcome->digests[i];

		if (one->project != NULL && (worst == NULL || screen_worst_first(&one, &worst) < 0))
			worst = one;
	}
	for (i = 0; worst != NULL && i < report->count; i++) {
		const char *name = strrchr(report->runs[i].project, '/') + 1;

		if (strcmp(name, text_base_name(worst->project)) == 0)
			return report->runs[i].project;
	}
	return report->runs[0].project;
}

/* In the project of one process, else beside the projects and named as the worst of them. */
static int path_of(const struct launch_report *report, const struct outcome *outcome,
		   char path[PROJECT_PATH_MAX])
{
	const char *project = worst_project(report, outcome), *name = strrchr(project, '/') + 1;
	const char *number = strchr(name, '_');
	int length;

	if (report->count == 1)
		length = snprintf(path, PROJECT_PATH_MAX, "%s/" LAUNCH_REPORT_FILE, project);
	else
		length = snprintf(path, PROJECT_PATH_MAX, "%.*sreport%s.html",
				  (int)(name - project), project, number == NULL ? "" : number);
	return length < PROJECT_PATH_MAX ? 0 : -ENAMETOOLONG;
}

/* Bytes that the page may take. */
static uint64_t room_of(const struct launch_report *report)
{
	if (report->limit_bytes == 0)
		return HTML_REPORT_BYTES;
	return min_u64(HTML_REPORT_BYTES,
		       report->limit_bytes - min_u64(report->used_bytes, report->limit_bytes));
}

/* In the child. */
static int write_file(const struct launch_report *report, const char *path, const char *directory,
		      const char *next, struct mscope_error *err)
{
	struct viewed viewed = {.directory = directory};
	struct strbuf text = {0}, command = {0};
	size_t i;
	int r = 0;

	for (i = 0; i < report->count && r == 0; i++)
		r = viewed_add_run(&viewed, report->runs[i].project, report->runs[i].name);
	strbuf_addf(&command, "msmemscope view ");
	strbuf_add_str(&command, next);
	if (r == 0)
		r = html_report(&viewed, (size_t)room_of(report), strbuf_str(&command), &text, err);
	if (r == 0)
		r = io_replace(path, &text);
	if (r < 0 && err->code == 0)
		(void)error_set(err, r, "%s", mscope_status_str(r));
	viewed_fini(&viewed);
	return r;
}

/* Waits for the child's end, or ends it. True: the file is there. */
static bool wait_for(pid_t child, int fd, bool (*stopped)(void *arg), void *arg, char *why,
		     size_t bytes)
{
	struct pollfd end = {.fd = fd, .events = POLLIN};
	bool killed = false;
	int status = 0;
	ssize_t got;

	while (poll(&end, 1, ASK_MS) <= 0) {
		if (!killed && stopped != NULL && stopped(arg)) {
			(void)kill(child, SIGKILL);
			killed = true;
		}
	}
	got = read(fd, why, bytes - 1);
	why[got > 0 ? got : 0] = '\0';
	while (waitpid(child, &status, 0) < 0 && errno == EINTR)
		;
	if (got <= 0)
		(void)snprintf(why, bytes, "%s", killed ? "interrupted" : "its process died");
	return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static bool make(const struct launch_report *report, const char *path, struct outcome *outcome,
		 const char *directory, bool (*stopped)(void *arg), void *arg)
{
	char why[sizeof(((struct mscope_error *)0)->message)];
	struct mscope_error err = {0};
	bool made = false;
	int ends[2];
	pid_t child;

	if (pipe2(ends, O_CLOEXEC) < 0)
		return false;
	outcome_progress(outcome, "making " LAUNCH_REPORT_FILE, report->events);
	child = fork();
	if (child == 0) {
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (write_file(report, path, directory, outcome->next, &err) < 0)
			(void)io_write(ends[1], err.message, strlen(err.message));
		_exit(err.code != 0);
	}
	(void)close(ends[1]);
	if (child > 0)
		made = wait_for(child, ends[0], stopped, arg, why, sizeof(why));
	else
		(void)snprintf(why, sizeof(why), "%s", strerror(errno));
	(void)close(ends[0]);
	if (!made)
		outcome_say(outcome,
			    LAUNCH_REPORT_FILE
			    " was not written: %s; to write it: msmemscope report %s",
			    why, outcome->next);
	return made;
}

void launch_report_make(struct launch_report *report, struct outcome *outcome,
			const char *directory, bool (*stopped)(void *arg), void *arg)
{
	char path[PROJECT_PATH_MAX];
	size_t i;

	if (report->count > 0 && !report->off) {
		qsort(report->runs, report->count, sizeof(*report->runs), by_rank);
		if (report->events > LAUNCH_REPORT_EVENTS ||
		    report->count > LAUNCH_REPORT_PROCESSES)
			(void)snprintf(outcome->report, sizeof(outcome->report),
				       "no page beyond %s: msmemscope report makes it",
				       report->events > LAUNCH_REPORT_EVENTS ? "2 million events"
									     : "64 processes");
		else if (room_of(report) < HTML_REPORT_LEAST)
			(void)snprintf(outcome->report, sizeof(outcome->report),
				       "no page within --max-disk: msmemscope report makes it");
		else if (path_of(report, outcome, path) == 0 &&
			 make(report, path, outcome, directory, stopped, arg))
			outcome_made(outcome, path);
	}
	for (i = 0; i < report->count; i++) {
		free(report->runs[i].project);
		free(report->runs[i].name);
	}
	free(report->runs);
	*report = (struct launch_report){.off = report->off};
}
