/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/storing.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/array.h"
#include "base/io.h"
#include "base/text.h"

#define WAIT_S 10 /* at the end of a launch, unless it was asked for more */

/* "sqlite:FILE" with the file's whole path, "rows:DIRECTORY" too. */
static char *whole_url(const char *url)
{
	const char *path = strchr(url, ':') + 1;
	char here[4096], *whole = NULL;

	if (text_starts_with(url, "postgres") || path[0] == '/' ||
	    getcwd(here, sizeof(here)) == NULL)
		return strdup(url);
	return asprintf(&whole, "%.*s%s/%s", (int)(path - url), url, here, path) < 0 ? NULL : whole;
}

int storing_init(struct storing *storing, const struct options *options, struct mscope_error *err)
{
	int r = store_place_find(options, true, &storing->place, err);
	const char *wait;

	if (r < 0 || storing->place.choice.url == NULL)
		return r;
	storing->url = whole_url(storing->place.choice.url);
	if (storing->url == NULL)
		return error_set(err, -ENOMEM, "no memory");
	storing->place.choice.url = storing->url;
	storing->place.choice.helper = storing->place.helper;
	wait = getenv("MSMEMSCOPE_STORE_WAIT");
	storing->patience_s = wait != NULL && wait[0] != '\0' ? strtod(wait, NULL) : WAIT_S;
	return 0;
}

/* ---- children ---- */

static void say_failure(int fd, const struct mscope_error *err)
{
	(void)io_write(fd, err->message, strlen(err->message));
}

/* In the child: all it has is what the engine had. */
static void write_rows(const struct storing *storing, const struct store_rows *rows, int fd)
{
	struct mscope_error err = {0};
	struct store *store = NULL;
	int r = store_write(&storing->place.choice, &store, rows, storing->patience_s, &err);

	if (r < 0)
		say_failure(fd, &err);
	store_close(store);
	_exit(r < 0);
}

static bool start_child(struct storing *storing, struct storing_child *child)
{
	struct store_rows *rows = &storing->waiting[storing->count - 1];
	int ends[2];

	if (pipe2(ends, O_CLOEXEC) < 0)
		return false;
	child->pid = fork();
	if (child->pid == 0)
		write_rows(storing, rows, ends[1]);
	(void)close(ends[1]);
	if (child->pid < 0) {
		child->pid = 0;
		(void)close(ends[0]);
		return false;
	}
	child->fd = ends[0];
	store_rows_fini(rows);
	storing->count--;
	return true;
}

/* Whether the child has ended; what it said is kept. */
static bool collect(struct storing *storing, struct storing_child *child, bool wait)
{
	char text[sizeof(storing->err.message)];
	int status = 0;
	ssize_t got;

	if (waitpid(child->pid, &status, wait ? 0 : WNOHANG) == 0)
		return false;
	got = read(child->fd, text, sizeof(text) - 1);
	(void)close(child->fd);
	child->pid = 0;
	if (WIFEXITED(status) && WEXITSTATUS(status) == 0) {
		storing->stored++;
		return true;
	}
	storing->failed++;
	if (storing->err.code == 0)
		(void)error_set(&storing->err, -EIO, "%.*s", got > 0 ? (int)got : 0, text);
	return true;
}

void storing_step(struct storing *storing)
{
	size_t i;

	for (i = 0; i < STORING_CHILDREN; i++) {
		struct storing_child *child = &storing->children[i];

		if (child->pid != 0 && !collect(storing, child, false))
			continue;
		/* A store that failed once is not tried for each of many processes: they are told together. */
		if (storing->count > 0 && storing->failed == 0)
			(void)start_child(storing, child);
	}
}

/* ---- processes ---- */

static const char *run_of(struct storing *storing, const struct pipeline *pipeline)
{
	const struct session *session = pipeline->session;
	char *launcher = store_run_name(pipeline->run);

	if (storing->stamp[0] == '\0') {
		(void)snprintf(storing->stamp, sizeof(storing->stamp), "run-");
		project_stamp(session->realtime_ns, session->utc_offset_s, storing->stamp + 4);
	}
	(void)snprintf(storing->run, sizeof(storing->run), "%s",
		       storing->place.label.run != NULL ? storing->place.label.run
		       : launcher != NULL		? launcher
							: storing->stamp);
	free(launcher);
	return storing->place.label.run != NULL ? storing->place.label.run : storing->run;
}

void storing_add(struct storing *storing, struct pipeline *pipeline)
{
	struct report report = {
		.replay = pipeline->pass.replay,
		.analyses = &pipeline->pass.analyses,
		.trace_path = pipeline->project.made ? pipeline->project.path : NULL,
	};
	struct store_label label = storing->place.label;

	if (storing->place.choice.url == NULL || pipeline->empty)
		return;
	if (array_reserve(&storing->waiting, &storing->room, storing->count + 1,
			  sizeof(*storing->waiting)) < 0) {
		storing->failed++;
		return;
	}
	label.run = run_of(storing, pipeline);
	storing->waiting[storing->count] = (struct store_rows){0};
	store_take(&storing->waiting[storing->count++], &report, &label);
	storing_step(storing);
}

void storing_finish(struct storing *storing, struct outcome *outcome, const char *output)
{
	struct timespec moment = {.tv_nsec = 5000000};
	bool busy = storing->place.choice.url != NULL;
	size_t i;

	while (busy) {
		storing_step(storing);
		busy = storing->count > 0 && storing->failed == 0;
		for (i = 0; i < STORING_CHILDREN; i++)
			busy = busy || storing->children[i].pid != 0;
		if (busy)
			(void)nanosleep(&moment, NULL);
	}
	for (i = 0; i < storing->count; i++)
		store_rows_fini(&storing->waiting[i]);
	storing->failed += (uint32_t)storing->count;
	storing->count = 0;
	if (storing->failed > 0)
		outcome_say(
			outcome,
			"%s; %u of %u processes are stored, nothing is lost: msmemscope store add "
			"%s --to '%s' --run='%s'",
			storing->err.code != 0 ? storing->err.message : "the store was not written",
			storing->stored, storing->stored + storing->failed, output, storing->url,
			storing->run);
	else if (storing->stored > 0 && outcome->log_level <= OPT_LOG_INFO)
		outcome_say(outcome, "%u process%s stored in %s, run %s", storing->stored,
			    storing->stored == 1 ? " is" : "es are", storing->url, storing->run);
	storing->stored = storing->failed = 0;
	free(storing->waiting);
	storing->waiting = NULL;
	storing->room = 0;
}
