/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/storing.h"

#include <errno.h>
#include <signal.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/io.h"
#include "base/text.h"

#define WAIT_S	  10 /* at the end of a launch, unless it was asked for more */
#define BLOCKED_S 30 /* after a failure, which many processes would meet */
#define SECOND_NS UINT64_C(1000000000)
#define GRACE_NS                                                                                   \
	SECOND_NS /* a child that has passed its time says so itself; one that cannot is killed */

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
	const char *wait, *every;

	if (r < 0 || storing->place.choice.url == NULL)
		return r;
	storing->url = whole_url(storing->place.choice.url);
	if (storing->url == NULL)
		return error_set(err, -ENOMEM, "no memory");
	storing->place.choice.url = storing->url;
	storing->place.choice.helper = storing->place.helper;
	wait = getenv("MSMEMSCOPE_STORE_WAIT");
	storing->patience_s = wait != NULL && wait[0] != '\0' ? strtod(wait, NULL) : WAIT_S;
	every = getenv("MSMEMSCOPE_STORE_EVERY");
	storing->every_s = options->store_every != 0 ? options->store_every
			   : every != NULL	     ? strtod(every, NULL)
						     : 0;
	if (!(storing->every_s >= 0))
		storing->every_s = 0;
	return 0;
}

/* ---- children ---- */

static void say_failure(int fd, const struct mscope_error *err)
{
	(void)io_write(fd, err->message, strlen(err->message));
}

/* How long one process may take to store, from the connection to the last row. */
static uint64_t limit_ns(const struct storing *storing)
{
	return (uint64_t)((storing->patience_s < 1 ? 1 : storing->patience_s) * (double)SECOND_NS);
}

/* In the child: all it has is what the engine had. */
static void write_rows(const struct storing *storing, const struct store_rows *rows, int fd)
{
	struct store_choice choice = storing->place.choice;
	struct mscope_error err = {0};
	struct store *store = NULL;
	int r;

	choice.until_ns = clock_monotonic_ns() + limit_ns(storing);
	r = store_write(&choice, &store, rows, storing->patience_s, &err);

	if (r < 0)
		say_failure(fd, &err);
	store_close(store);
	_exit(r < 0);
}

/* Forks: 0 in the child, whose end of the pipe is `out_fd`; in the engine a pid, or -1 if there is none. */
static pid_t start_child(const struct storing *storing, struct storing_child *child, int *out_fd)
{
	int ends[2];
	pid_t pid;

	if (pipe2(ends, O_CLOEXEC) < 0)
		return -1;
	pid = fork();
	if (pid == 0) {
		*out_fd = ends[1];
		return 0;
	}
	(void)close(ends[1]);
	if (pid < 0) {
		(void)close(ends[0]);
		return -1;
	}
	*child = (struct storing_child){
		.pid = pid,
		.fd = ends[0],
		.until_ns = clock_monotonic_ns() + limit_ns(storing) + GRACE_NS,
	};
	return pid;
}

static void start_waiting(struct storing *storing, struct storing_child *child)
{
	struct store_rows *rows = &storing->waiting[storing->count - 1];
	int fd = -1;
	pid_t pid = start_child(storing, child, &fd);

	if (pid == 0)
		write_rows(storing, rows, fd);
	if (pid > 0) {
		store_rows_fini(rows);
		storing->count--;
	}
}

static struct storing_living *find_living(struct storing *storing, int64_t process)
{
	size_t i;

	for (i = 0; i < storing->living_count; i++) {
		if (storing->living[i].process == process)
			return &storing->living[i];
	}
	return NULL;
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
	if (child->living) {
		struct storing_living *living = find_living(storing, child->process);

		if (living != NULL && WIFEXITED(status) && WEXITSTATUS(status) == 0)
			living->events = child->events;
		return true;
	}
	if (WIFEXITED(status) && WEXITSTATUS(status) == 0) {
		storing->stored++;
		return true;
	}
	if (WIFSIGNALED(status))
		got = snprintf(text, sizeof(text), "%.*s: no answer within %g s",
			       (int)strcspn(storing->url, "?"), storing->url, storing->patience_s);
	storing->failed++;
	storing->blocked_ns = clock_monotonic_ns() + BLOCKED_S * SECOND_NS;
	if (storing->err.code == 0)
		(void)error_set(&storing->err, -EIO, "%.*s", got > 0 ? (int)got : 0, text);
	return true;
}

static bool is_blocked(const struct storing *storing)
{
	return storing->blocked_ns != 0 && clock_monotonic_ns() < storing->blocked_ns;
}

void storing_step(struct storing *storing)
{
	size_t i;

	for (i = 0; i < STORING_CHILDREN; i++) {
		struct storing_child *child = &storing->children[i];

		if (child->pid != 0 && clock_monotonic_ns() > child->until_ns)
			(void)kill(child->pid, SIGKILL);
		if (child->pid != 0 && !collect(storing, child, false))
			continue;
		/* A store that failed once is not tried for each of many processes: they are told together. */
		if (storing->count > 0 && !is_blocked(storing))
			start_waiting(storing, child);
	}
}

/* ---- processes ---- */

static const char *run_of(struct storing *storing, const struct pipeline *pipeline)
{
	char *launcher = store_run_name(pipeline->run);

	(void)snprintf(storing->run, sizeof(storing->run), "%s",
		       storing->place.label.run != NULL ? storing->place.label.run
		       : launcher != NULL		? launcher
							: pipeline->session->launch_id);
	free(launcher);
	return storing->place.label.run != NULL ? storing->place.label.run : storing->run;
}

/* ---- processes that run ---- */

/* The rows of its end come now: what a child still writes of it is older. */
static void forget_living(struct storing *storing, int64_t process)
{
	struct storing_living *living = find_living(storing, process);
	size_t i;

	for (i = 0; i < STORING_CHILDREN; i++) {
		struct storing_child *child = &storing->children[i];

		if (child->pid != 0 && child->living && child->process == process) {
			(void)kill(child->pid, SIGKILL);
			(void)collect(storing, child, true);
		}
	}
	if (living != NULL)
		*living = storing->living[--storing->living_count];
}

/* The entry of a process, made at the first look. Many ranks begin together; each has its own first time. */
static struct storing_living *living_of(struct storing *storing, int64_t process)
{
	struct storing_living *living = find_living(storing, process);
	double first_s = storing->every_s *
			 (0.5 + (double)((uint64_t)process >> 12) / (double)(UINT64_C(1) << 53));

	if (living != NULL || storing->place.choice.url == NULL ||
	    ARRAY_RESERVE(storing->living, storing->living_room, storing->living_count + 1) < 0)
		return living;
	living = &storing->living[storing->living_count++];
	*living = (struct storing_living){
		.process = process, .due_ns = UINT64_MAX, .events = UINT64_MAX};
	if (storing->every_s > 0)
		living->due_ns = clock_monotonic_ns() + (uint64_t)(first_s * (double)SECOND_NS);
	return living;
}

/* In the child. It ends with the engine: what it writes is of use only while the process runs. */
static void write_living(const struct storing *storing, struct pipeline *pipeline, const char *run,
			 int fd)
{
	struct store_label label = storing->place.label;
	struct report report = {.analyses = &pipeline->pass.analyses};
	struct store_rows rows = {0};

	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	pipeline_end_here(pipeline);
	report.replay = pipeline->pass.replay;
	report.trace_path = pipeline->project.made ? pipeline->project.path : NULL;
	label.run = run;
	label.running = true;
	store_take(&rows, &report, &label);
	write_rows(storing, &rows, fd);
}

static struct storing_child *free_child(struct storing *storing, int64_t process)
{
	struct storing_child *found = NULL;
	size_t i;

	for (i = 0; i < STORING_CHILDREN; i++) {
		struct storing_child *child = &storing->children[i];

		if (child->pid != 0 && child->living && child->process == process)
			return NULL; /* the last time is not over */
		if (child->pid == 0)
			found = child;
	}
	return found;
}

void storing_look(struct storing *storing, struct pipeline *pipeline)
{
	const struct replay_totals *totals = replay_totals(pipeline->pass.replay);
	int64_t process = store_process_key(pipeline->run, NULL);
	struct storing_living *living = living_of(storing, process);
	uint64_t now = clock_monotonic_ns();
	struct storing_child *child;
	const char *run;
	int fd = -1;
	pid_t pid;

	if (living == NULL || now < living->due_ns)
		return;
	storing_step(
		storing); /* children that have ended make room, also where nobody else looks */
	/* Nothing of its own yet, or nothing new. */
	if (totals->events == replay_samples(totals) || totals->events == living->events)
		child = NULL;
	else if ((child = free_child(storing, process)) == NULL)
		return; /* the next look finds one */
	living->due_ns = storing->every_s > 0
				 ? now + (uint64_t)(storing->every_s * (double)SECOND_NS)
				 : UINT64_MAX;
	if (child == NULL)
		return;
	run = run_of(storing, pipeline);
	pid = start_child(storing, child, &fd);
	if (pid == 0)
		write_living(storing, pipeline, run, fd);
	if (pid > 0) {
		child->living = true;
		child->process = process;
		child->events = totals->events;
	}
}

void storing_soon(struct storing *storing, const struct pipeline *pipeline)
{
	struct storing_living *living = living_of(storing, store_process_key(pipeline->run, NULL));

	if (living != NULL)
		living->due_ns = 0;
}

/* ---- processes that have ended ---- */

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
	forget_living(storing, store_process_key(pipeline->run, NULL));
	if (ARRAY_RESERVE(storing->waiting, storing->room, storing->count + 1) < 0) {
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
		busy = storing->count > 0 && !is_blocked(storing);
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
			"%s; %u of %u processes are stored, nothing is lost; for the rest: msmemscope store add %s --to '%s' --run='%s'",
			storing->err.code != 0 ? storing->err.message : "the store was not written",
			storing->stored, storing->stored + storing->failed, output, storing->url,
			storing->run);
	else if (storing->stored > 0 &&
		 outcome->log_level <= (storing->stored > 1 ? OPT_LOG_WARN : OPT_LOG_INFO))
		outcome_say(
			outcome,
			"%u process%s stored; to compare them: msmemscope fleet show '%s' --store='%s'",
			storing->stored, storing->stored == 1 ? " is" : "es are", storing->run,
			storing->url);
	storing->stored = storing->failed = 0;
	free(storing->waiting);
	storing->waiting = NULL;
	storing->room = 0;
}
