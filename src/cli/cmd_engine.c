/* SPDX-License-Identifier: Apache-2.0 */
/*
 * msmemscope api-engine PID [options]: a launch without a program. A process that has the collector preloaded and calls start() of
 * the Python module runs this (collector/process/spawn.c). It makes a session, says on stdout where, and follows that process and
 * its children until they end; then the user reads what was found, as after a launch.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/descriptors.h"
#include "base/io.h"
#include "cli/cli.h"
#include "cli/launch_id.h"
#include "cli/machine.h"
#include "cli/outcome.h"
#include "cli/python_attach.h"
#include "cli/storing.h"
#include "cli/tree.h"
#include "engine/follow.h"
#include "engine/traced_process.h"
#include "engine/unrecorded_list.h"
#include "trace/sampler.h"

#define ENGINE_NICE 10

struct api_engine {
	struct session_place place;
	struct process target;
	struct outcome outcome;
	struct storing storing;
	const char *output; /* where results go */
	struct machine machine;
	const struct unrecorded *unrecorded; /* NULL: there is none */
	char sampler[PATH_MAX + 64];
	uint32_t woken; /* session's wake word as last seen */
	bool line_told; /* of the latest window the user has read a line */
	bool end_told;	/* the program has ended, and the user has read everything */
};

/* Signals that the program ignores, descriptors that it left open and its preloads are not ours. */
static void leave_the_program(void)
{
	struct dirent *entry;
	DIR *dir = opendir("/proc/self/fd");

	while (dir != NULL && (entry = readdir(dir)) != NULL) {
		int fd = atoi(entry->d_name);

		if (fd > STDERR_FILENO && fd != dirfd(dir))
			(void)close(fd);
	}
	if (dir != NULL)
		(void)closedir(dir);
	(void)signal(SIGCHLD, SIG_DFL);
	(void)signal(SIGPIPE, SIG_IGN);
	(void)unsetenv("LD_PRELOAD");
	(void)!nice(ENGINE_NICE);
}

/* A request of the process ends the wait. Whether it has ended is checked every time. */
static enum follow_news wait_for_news(void *arg, int timeout_ms)
{
	struct api_engine *engine = arg;
	struct session *session = engine->place.session;
	struct timespec timeout = {.tv_sec = timeout_ms / 1000,
				   .tv_nsec = (timeout_ms % 1000) * 1000000L};

	storing_step(&engine->storing);
	(void)syscall(SYS_futex, &session->wake, FUTEX_WAIT, engine->woken, &timeout, NULL, 0);
	engine->woken = atomic_load(&session->wake);
	return process_life(&engine->target) == PROCESS_GONE || atomic_load(&session->left) != 0
		       ? FOLLOW_ENDED
		       : FOLLOW_NOTHING;
}

/* What a person reads when files are complete. */
enum told {
	TOLD_NOTHING,
	TOLD_LINE,
	TOLD_ALL,
};

/*
 * All of it by the first stop() of the process that asked for the engine, and when that process ends with more than the user has read.
 * Of later windows a line is enough. Other processes are part of what is told then.
 */
static enum told what_to_tell(const struct api_engine *engine, const struct pipeline *pipeline,
			      bool ends)
{
	if (run_header(pipeline->run)->pid != engine->place.session->launch_pid || engine->end_told)
		return TOLD_NOTHING;
	if (pipeline->completions == 0)
		return TOLD_ALL;
	if (!ends)
		return TOLD_LINE;
	return pipeline_is_complete(pipeline) && !engine->line_told ? TOLD_NOTHING : TOLD_ALL;
}

static void tell(void *arg, struct pipeline *pipeline, bool ends)
{
	struct api_engine *engine = arg;
	enum told told = what_to_tell(engine, pipeline, ends);

	if (told == TOLD_NOTHING)
		return;
	outcome_add(&engine->outcome, pipeline);
	if (told == TOLD_ALL)
		(void)outcome_print(&engine->outcome);
	else
		outcome_line(&engine->outcome);
}

static void on_told(void *arg, struct pipeline *pipeline, bool ends)
{
	struct api_engine *engine = arg;
	enum told told = what_to_tell(engine, pipeline, ends);

	if (told == TOLD_ALL)
		outcome_discard(&engine->outcome);
	if (told != TOLD_NOTHING)
		engine->line_told = told == TOLD_LINE;
	if (ends && run_header(pipeline->run)->pid == engine->place.session->launch_pid)
		engine->end_told = true;
	if (!ends)
		storing_soon(&engine->storing, pipeline);
}

static void on_living(void *arg, struct pipeline *pipeline)
{
	struct api_engine *engine = arg;

	storing_look(&engine->storing, pipeline);
}

/* What the user has read is not told again. */
static void on_finished(void *arg, struct pipeline *pipeline)
{
	struct api_engine *engine = arg;

	storing_add(&engine->storing, pipeline);
	if (engine->outcome.summary_json == NULL && !pipeline_has_failed(pipeline) &&
	    run_header(pipeline->run)->pid == engine->place.session->launch_pid &&
	    (engine->end_told || (pipeline_is_complete(pipeline) && !engine->line_told)))
		return;
	outcome_add(&engine->outcome, pipeline);
}

static void on_out_of_memory(void *arg, const struct pipeline *pipeline, const char *text)
{
	struct api_engine *engine = arg;

	outcome_out_of_memory(&engine->outcome, pipeline, text);
}

static void on_forecast(void *arg, const struct pipeline *pipeline,
			const struct finding_forecast *forecast, const char *text)
{
	const struct api_engine *engine = arg;

	outcome_forecast(&engine->outcome, pipeline, forecast, text);
}

static void on_unreadable(void *arg, const char *path, const struct mscope_error *err)
{
	struct api_engine *engine = arg;

	outcome_unreadable(&engine->outcome, path, err);
}

/* The session's settings: those of the options, in the process that asked, recording when it says so. */
static int make_session(struct api_engine *engine, const struct options *options,
			struct mscope_error *err)
{
	struct session *wanted = calloc(1, sizeof(*wanted));
	int r;

	if (wanted == NULL)
		return error_set(err, -ENOMEM, "no memory");
	launch_settings(options, wanted);
	wanted->host_by_default = machine_is_bare(&engine->machine);
	wanted->state = RECORDING_SHADOW;
	wanted->launch_pid = engine->target.pid;
	launch_id_make(wanted);
	r = session_create(wanted, options->trace_dir, &engine->place, err);
	engine->place.timeline = engine->storing.place.choice.url != NULL;
	free(wanted);
	if (r == 0) {
		launch_disk_limits(options, engine->place.directory, engine->place.session);
		engine->unrecorded = unrecorded_create(engine->place.session);
	}
	return r;
}

/* Tells the process where to record. When it is gone, the line is lost, which does no harm. */
static void answer(const struct api_engine *engine)
{
	char line[SESSION_PATH_MAX + 2];
	int length = snprintf(line, sizeof(line), "%s\n", engine->place.directory);
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);

	cli_write(STDOUT_FILENO, line, (size_t)length);
	(void)dup2(null, STDOUT_FILENO);
	(void)close(null);
	(void)!chdir("/");
}

static int follow_target(struct api_engine *engine)
{
	struct follow_ops ops = {
		.runs = {.finished = on_finished,
			 .tell = tell,
			 .told = on_told,
			 .living = on_living,
			 .incomplete = outcome_incomplete,
			 .out_of_memory = on_out_of_memory,
			 .forecast = on_forecast,
			 .unreadable = on_unreadable,
			 .arg = engine},
		.wait = wait_for_news,
		.sampler = engine->sampler,
		.sample_first = engine->machine.npu,
	};
	struct runs_result result = {0}, later = {0};
	const struct session *session = engine->place.session;
	struct mscope_error err = {0};
	struct follow *follow = follow_new(&engine->place, &ops, &err);
	int r = follow == NULL ? err.code : follow_launch(follow, &result, &err);

	if (r < 0)
		outcome_say(&engine->outcome, "%s; to finish the files: msmemscope recover %s",
			    err.message, engine->place.directory);
	if (atomic_load(&session->failed_starts) > 0)
		outcome_say(&engine->outcome, "the process could not be recorded: %s",
			    strerror((int)atomic_load(&session->failed_errno)));
	(void)unrecorded_text(engine->unrecorded, engine->place.directory, &engine->outcome.text);
	storing_finish(&engine->storing, &engine->outcome, engine->output);
	(void)outcome_print(&engine->outcome);
	/* Children of the process that outlive it. */
	if (r == 0 && result.still_alive > 0)
		follow_orphans(follow, &later);
	follow_free(follow);
	storing_finish(&engine->storing, &engine->outcome, engine->output);
	if (later.runs > 0)
		(void)outcome_print(&engine->outcome);
	if (r < 0 || result.failed + later.failed > 0)
		return MSCOPE_EXIT_FAILED;
	(void)session_remove(&engine->place);
	return MSCOPE_EXIT_OK;
}

/* For a program that `attach` asked to start us. Where there can be no log, results cannot be written either, which is reported. */
static void write_to_log(const char *output, uint32_t pid)
{
	char path[PATH_MAX];
	int fd = attach_open_log(output, pid, path, sizeof(path));

	if (fd >= 0)
		(void)dup2(fd, STDERR_FILENO);
	io_close(&fd);
}

int cmd_engine(const struct options *given)
{
	struct options chosen = *given; /* what it points to is still that of `given` */
	const struct options *options = &chosen;
	struct api_engine *engine = calloc(1, sizeof(*engine));
	char prefix[PATH_MAX], *end;
	struct mscope_error err = {0};
	unsigned long pid = strtoul(options->argv[1], &end, 10);
	bool cpu_chosen;
	int r;

	if (engine == NULL) {
		cli_say("no memory");
		return MSCOPE_EXIT_FAILED;
	}
	engine->machine = machine_look();
	cpu_chosen = machine_default_device(&engine->machine, &chosen);
	leave_the_program();
	descriptors_raise();
	if (*end != '\0' || pid == 0 || pid > INT_MAX ||
	    !process_watch_pid(&engine->target, (uint32_t)pid)) {
		cli_say("no such process: %s", options->argv[1]);
		free(engine);
		return MSCOPE_EXIT_USAGE;
	}
	if (options->argc > 2)
		write_to_log(options->output_path, (uint32_t)pid);
	(void)launch_advise(options);
	if (options->log_level <= OPT_LOG_WARN)
		launch_tell_unfinished(options->output_path);
	engine->output = options->output_path;
	r = storing_init(&engine->storing, options, &err);
	if (r == 0)
		r = make_session(engine, options, &err);
	if (r < 0) {
		cli_say("%s", err.message);
		free(engine);
		return MSCOPE_EXIT_FAILED;
	}
	if (tree_prefix(prefix, sizeof(prefix), NULL) == 0)
		(void)snprintf(engine->sampler, sizeof(engine->sampler), "%s/lib64/%s", prefix,
			       SAMPLER_FILE);
	outcome_init(&engine->outcome, options);
	engine->outcome.tells_root = true;
	if (cpu_chosen)
		engine->outcome.chose = machine_choice_text(true);
	answer(engine);
	r = follow_target(engine);
	process_unwatch(&engine->target);
	session_close(&engine->place);
	free(engine);
	return r;
}
