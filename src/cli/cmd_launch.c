/* SPDX-License-Identifier: Apache-2.0 */
/*
 * msmemscope [options] program: everything is checked and prepared before anything starts; then supervisor, engine and program
 * run (cli/supervisor.h), and in the end the user reads what was found and where the files are.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/descriptors.h"
#include "cli/cli.h"
#include "cli/launch_report.h"
#include "cli/machine.h"
#include "cli/outcome.h"
#include "cli/preflight.h"
#include "cli/startup.h"
#include "cli/storing.h"
#include "cli/supervisor.h"
#include "cli/tree.h"
#include "engine/follow.h"
#include "engine/unrecorded_list.h"

extern char **environ;

#define TORCH_PAUSE_NS UINT64_C(200000000)
#define STATUS_WAIT_MS 500

struct launch {
	const struct options *options;
	const struct launch_dry *dry; /* NULL: it is not a dry run */
	struct session_place place;
	char collector[SESSION_PATH_MAX + 64];
	char sampler[SESSION_PATH_MAX + 64];
	char preload[PATH_MAX * 3];
	char session_variable[SESSION_PATH_MAX + 32];
	char unrecorded_variable[64];
	char injections[2][SESSION_PATH_MAX +
			   96]; /* variables of cuda_injections, "": kept as they were */
	const struct unrecorded *unrecorded; /* NULL: there is none */
	char **environment;
	struct outcome outcome;
	struct storing storing;
	struct launch_report report;
	struct machine machine;
	bool cpu_chosen;		 /* CPU tensors are recorded because there is no device */
	pid_t program;			 /* 0 until it runs */
	bool runs_torch;		 /* it was seen with PyTorch loaded */
	uint64_t look_ns, look_pause_ns; /* when that is asked next, and the pause after it */
	int control_fd;
	bool interrupted;
	bool ended;
	int status; /* of the program once it has ended, as of waitpid() */
};

/* Free space that dumps leave, unless more is asked for. */
#define MIN_FREE_MOST (UINT64_C(2) << 30)

/* ---- before the start ---- */

/* The loader splits LD_PRELOAD at blanks and colons; a collector below such a path gets another name in the session. */
static int preloadable(struct launch *launch, struct mscope_error *err)
{
	char link[SESSION_PATH_MAX + 64];

	if (strpbrk(launch->collector, " :") == NULL)
		return 0;
	(void)snprintf(link, sizeof(link), "%s/%s", launch->place.directory, TREE_COLLECTOR);
	if (strpbrk(link, " :") != NULL)
		return error_set(
			err, -EINVAL,
			"the loader cannot preload from a path with a blank or colon, as %s and %s have; use --trace-dir",
			launch->collector, launch->place.directory);
	if (symlink(launch->collector, link) < 0)
		return error_set(err, -errno, "cannot create %s: %s", link, strerror(errno));
	(void)snprintf(launch->collector, sizeof(launch->collector), "%s", link);
	return 0;
}

/* In bytes, of a disk with this free space. */
static uint64_t size_of(const struct option_size *size, uint64_t free_bytes)
{
	return size->bytes != 0 ? size->bytes : free_bytes / 100 * size->percent;
}

void launch_disk_limits(const struct options *options, const char *directory,
			struct session *session)
{
	struct statvfs traces = {0}, dumps;
	uint64_t free_bytes, limit;

	(void)statvfs(directory, &traces);
	/* It is made when there is something to write. */
	if (statvfs(options->output_path, &dumps) < 0)
		dumps = traces;
	free_bytes = (uint64_t)traces.f_bavail * traces.f_frsize;
	limit = size_of(&options->max_disk, free_bytes);
	session->max_trace_bytes =
		options_given(options, OPTION_ID_max_disk) &&
				!options_given(options, OPTION_ID_max_trace)
			? limit
			: min_u64(limit, size_of(&options->max_trace, free_bytes));
	/* A part of two disks is a part of each. */
	if (options->max_disk.bytes == 0 && dumps.f_fsid != traces.f_fsid)
		limit += size_of(&options->max_disk, (uint64_t)dumps.f_bavail * dumps.f_frsize);
	session->max_disk_bytes = limit;
	session->min_free_bytes = options->min_free.bytes != 0
					  ? options->min_free.bytes
					  : min_u64((uint64_t)dumps.f_blocks * dumps.f_frsize /
							    100 * options->min_free.percent,
						    MIN_FREE_MOST);
}

static void found_unfinished(void *arg, const char *directory)
{
	struct session_place place;

	(void)arg;
	if (session_open(directory, &place, NULL) < 0)
		return;
	/* Without a lock, no engine is at work there any more. */
	if (session_lock(&place) == 0)
		cli_say("an earlier launch was killed and its files are incomplete; run: msmemscope recover %s",
			directory);
	session_close(&place);
}

void launch_tell_unfinished(const char *output)
{
	session_search(output, found_unfinished, NULL);
}

static int prepare(struct launch *launch, struct mscope_error *err)
{
	const struct options *options = launch->options;
	struct session *wanted = calloc(1, sizeof(*wanted));
	int r;

	if (wanted == NULL)
		return error_set(err, -ENOMEM, "no memory");
	launch_settings(options, wanted);
	if (launch->dry != NULL)
		(void)snprintf(wanted->dry, sizeof(wanted->dry), "%s", launch->dry->device);
	r = tree_collector(launch->collector, sizeof(launch->collector), err);
	if (r == 0)
		(void)snprintf(launch->sampler, sizeof(launch->sampler), "%.*s%s",
			       (int)(strrchr(launch->collector, '/') + 1 - launch->collector),
			       launch->collector, SAMPLER_FILE);
	if (r == 0)
		r = session_create(wanted, options->trace_dir, &launch->place, err);
	launch->place.timeline = launch->storing.place.choice.url != NULL;
	free(wanted);
	if (r < 0)
		return r;
	launch_disk_limits(options, launch->place.directory, launch->place.session);
	launch->unrecorded = unrecorded_create(launch->place.session);
	r = preloadable(launch, err);
	if (r < 0) {
		(void)session_remove(&launch->place);
		return r;
	}
	if (launch->place.on_memory && options->log_level <= OPT_LOG_WARN)
		cli_say("no local disk found: the trace is in memory or on a network (%s); use --trace-dir for a local directory",
			launch->place.directory);
	return 0;
}

/* By these the CUDA driver and NVTX load one tool. Another tool's value is kept: it was there first. */
static const struct {
	const char *name;
	const char *lost; /* what is not recorded without it */
} cuda_injections[] = {
	{"CUDA_INJECTION64_PATH", "calls of the CUDA driver"},
	{"NVTX_INJECTION64_PATH", "marks and ranges of NVTX"},
};

static void name_injections(struct launch *launch)
{
	size_t i;

	/* Without a GPU the environment stays as it is. */
	for (i = 0; launch->machine.gpu && i < MSCOPE_COUNT(cuda_injections); i++) {
		const char *before = getenv(cuda_injections[i].name);
		const char *file = before == NULL ? NULL : strrchr(before, '/');

		/* A program that we record may start the command again. */
		if (before != NULL && (file == NULL || strcmp(file + 1, TREE_COLLECTOR) != 0)) {
			if (launch->options->log_level <= OPT_LOG_WARN)
				cli_say("%s are not recorded: %s=%s is kept as it is",
					cuda_injections[i].lost, cuda_injections[i].name, before);
			continue;
		}
		(void)snprintf(launch->injections[i], sizeof(launch->injections[i]), "%s=%s",
			       cuda_injections[i].name, launch->collector);
	}
}

/* Whether a variable of ours gets another value for the program. */
static bool is_replaced(const struct launch *launch, const char *variable)
{
	static const char *const names[] = {"LD_PRELOAD", SESSION_ENV, UNRECORDED_ENV};
	size_t i;

	for (i = 0; i < MSCOPE_COUNT(names); i++) {
		if (strncmp(variable, names[i], strlen(names[i])) == 0 &&
		    variable[strlen(names[i])] == '=')
			return true;
	}
	for (i = 0; i < MSCOPE_COUNT(cuda_injections); i++) {
		size_t length = strlen(cuda_injections[i].name);

		if (launch->injections[i][0] != '\0' &&
		    strncmp(variable, cuda_injections[i].name, length) == 0 &&
		    variable[length] == '=')
			return true;
	}
	return false;
}

/* The environment of the program: ours, with the collector preloaded and the session named. */
static int make_environment(struct launch *launch, const char *runtime)
{
	const char *before = getenv("LD_PRELOAD");
	size_t count = 0, i;
	char **e;

	(void)snprintf(launch->preload, sizeof(launch->preload), "LD_PRELOAD=%s%s%s%s%s", runtime,
		       runtime[0] != '\0' ? ":" : "", launch->collector,
		       before != NULL && before[0] != '\0' ? ":" : "",
		       before != NULL ? before : "");
	if (before != NULL &&
	    strlen(before) + strlen(launch->collector) + 300 > sizeof(launch->preload))
		return -E2BIG;
	(void)snprintf(launch->session_variable, sizeof(launch->session_variable), "%s=%s",
		       SESSION_ENV, launch->place.directory);
	for (e = environ; *e != NULL; e++)
		count++;
	(void)snprintf(launch->unrecorded_variable, sizeof(launch->unrecorded_variable),
		       "%s=%d:%llx", UNRECORDED_ENV, launch->place.session->unrecorded,
		       (unsigned long long)launch->place.session->unrecorded_cookie);
	name_injections(launch);
	launch->environment = calloc(count + 6, sizeof(char *));
	if (launch->environment == NULL)
		return -ENOMEM;
	count = 0;
	for (e = environ; *e != NULL; e++) {
		if (!is_replaced(launch, *e))
			launch->environment[count++] = *e;
	}
	launch->environment[count++] = launch->preload;
	launch->environment[count++] = launch->session_variable;
	launch->environment[count++] = launch->unrecorded_variable;
	for (i = 0; i < MSCOPE_COUNT(launch->injections); i++) {
		if (launch->injections[i][0] != '\0')
			launch->environment[count++] = launch->injections[i];
	}
	for (i = count; launch->environment[i] != NULL; i++)
		launch->environment[i] = NULL;
	return 0;
}

/* ---- the engine process ---- */

static enum follow_news read_control(struct launch *launch)
{
	struct supervisor_message message;
	int r;

	while ((r = supervisor_receive(launch->control_fd, &message)) == 0) {
		if (message.event == SUPERVISOR_STARTED)
			launch->program = (pid_t)message.pid;
		if (message.event == SUPERVISOR_INTERRUPTED)
			launch->interrupted = true;
		else if (message.event == SUPERVISOR_ENDED) {
			launch->ended = true;
			launch->status = message.status;
		}
	}
	/* The supervisor was killed, and the program with it. */
	if (r == -EPIPE)
		launch->ended = true;
	return launch->interrupted ? FOLLOW_INTERRUPTED
	       : launch->ended	   ? FOLLOW_ENDED
				   : FOLLOW_NOTHING;
}

/*
 * Whether PyTorch is loaded decides what "nothing was recorded" advises. Its import takes a second, so the pauses double: a program
 * that runs for days is asked a few dozen times.
 */
static void look_for_torch(struct launch *launch)
{
	uint64_t now = clock_monotonic_ns();

	if (launch->runs_torch || launch->program == 0 || launch->place.session->host ||
	    now < launch->look_ns)
		return;
	launch->look_pause_ns =
		launch->look_pause_ns == 0 ? TORCH_PAUSE_NS : launch->look_pause_ns * 3 / 2;
	launch->look_ns = now + launch->look_pause_ns;
	launch->runs_torch = machine_runs_torch(launch->program);
}

static enum follow_news wait_for_news(void *arg, int timeout_ms)
{
	struct launch *launch = arg;
	struct pollfd control = {.fd = launch->control_fd, .events = POLLIN};

	look_for_torch(launch);
	storing_step(&launch->storing);
	(void)poll(&control, 1, timeout_ms);
	return read_control(launch);
}

static bool on_progress(void *arg, uint64_t events)
{
	struct launch *launch = arg;

	outcome_progress(&launch->outcome, "finishing files, still to read", events);
	return launch->ended && read_control(launch) == FOLLOW_INTERRUPTED;
}

/* How the program ended is known to the supervisor, which says so at once. */
static uint32_t killed_by(void *arg, uint32_t pid)
{
	struct launch *launch = arg;
	struct pollfd control = {.fd = launch->control_fd, .events = POLLIN};

	if (launch->program == 0 || (uint32_t)launch->program != pid)
		return 0;
	if (!launch->ended && poll(&control, 1, STATUS_WAIT_MS) > 0)
		(void)read_control(launch);
	return launch->ended && WIFSIGNALED(launch->status) ? (uint32_t)WTERMSIG(launch->status)
							    : 0;
}

static bool is_stopped(void *arg)
{
	return read_control(arg) == FOLLOW_INTERRUPTED;
}

static void list_project(const char *list, const char *project)
{
	FILE *file = fopen(list, "ae");

	if (file == NULL)
		return;
	(void)fprintf(file, "%s\n", project);
	(void)fclose(file);
}

static void on_finished(void *arg, struct pipeline *pipeline)
{
	struct launch *launch = arg;

	outcome_add(&launch->outcome, pipeline);
	storing_add(&launch->storing, pipeline);
	launch_report_add(&launch->report, pipeline);
	if (launch->dry != NULL && pipeline->project.made)
		list_project(launch->dry->list, pipeline->project.path);
}

static void on_living(void *arg, struct pipeline *pipeline)
{
	struct launch *launch = arg;

	storing_look(&launch->storing, pipeline);
}

static void on_told(void *arg, struct pipeline *pipeline, bool ends)
{
	struct launch *launch = arg;

	if (!ends)
		storing_soon(&launch->storing, pipeline);
}

static void on_out_of_memory(void *arg, const struct pipeline *pipeline, const char *text)
{
	struct launch *launch = arg;

	/* The answer of a dry run says it. */
	if (launch->dry == NULL)
		outcome_out_of_memory(&launch->outcome, pipeline, text);
}

static void on_forecast(void *arg, const struct pipeline *pipeline,
			const struct finding_forecast *forecast, const char *text)
{
	const struct launch *launch = arg;

	outcome_forecast(&launch->outcome, pipeline, forecast, text);
}

static void on_unreadable(void *arg, const char *path, const struct mscope_error *err)
{
	struct launch *launch = arg;

	outcome_unreadable(&launch->outcome, path, err);
}

/* No supervisor stands for us any more: a signal that asks to end ends us, and `recover` finds all that there is. */
static void obey_signals(void)
{
	static const int ending[] = {SIGTERM, SIGINT, SIGQUIT, SIGHUP};
	sigset_t set;
	size_t i;

	(void)sigemptyset(&set);
	for (i = 0; i < MSCOPE_COUNT(ending); i++) {
		(void)signal(ending[i], SIG_DFL);
		(void)sigaddset(&set, ending[i]);
	}
	(void)sigprocmask(SIG_UNBLOCK, &set, NULL);
}

/* Added to the exit code of an engine that could not write the file of --summary-json. */
#define ENGINE_NO_SUMMARY 0x10

/* Goes on in the background with processes that outlive the program; the files appear when they end. */
static int leave_orphans(struct launch *launch, struct follow *follow, uint32_t count)
{
	struct runs_result result;
	pid_t pid;
	int code;

	outcome_say(&launch->outcome,
		    "%u process%s of the program still run%s; the files are complete when %s",
		    count, count == 1 ? "" : "es", count == 1 ? "s" : "",
		    count == 1 ? "it ends" : "they end");
	storing_finish(&launch->storing, &launch->outcome, launch->options->output_path);
	code = outcome_print(&launch->outcome);
	pid = fork();
	if (pid != 0)
		return code == MSCOPE_EXIT_FAILED ? ENGINE_NO_SUMMARY : code;
	(void)close(launch->control_fd); /* the supervisor does not wait for us any more */
	(void)setsid();
	(void)!freopen("/dev/null", "w", stderr);
	obey_signals();
	follow_orphans(follow, &result);
	storing_finish(&launch->storing, &launch->outcome, launch->options->output_path);
	launch_report_make(&launch->report, &launch->outcome, launch->place.directory, NULL, NULL);
	(void)session_remove(&launch->place);
	_exit(0);
}

/* Why nothing was recorded, and the cure. */
static void say_nothing(struct launch *launch)
{
	const struct machine *machine = &launch->machine;

	/* Traces may have been in it that the engine had not seen yet. */
	if (access(launch->place.directory, F_OK) < 0 && errno == ENOENT)
		outcome_say(&launch->outcome,
			    "nothing was recorded: %s was removed while the program ran",
			    launch->place.directory);
	else if (launch->runs_torch)
		outcome_say(
			&launch->outcome,
			"nothing was recorded: the program used no device memory. It used PyTorch on the CPU: --device=cpu records CPU tensors");
	else if (launch->place.session->host)
		outcome_say(
			&launch->outcome,
			"nothing was recorded: the program used no device memory and no CPU tensors of PyTorch%s; see msmemscope doctor",
			launch->cpu_chosen ? " (no NPU and no GPU was found here)" : "");
	else if (machine_is_bare(machine))
		outcome_say(
			&launch->outcome,
			"nothing was recorded: the program used no device memory. No NPU and no GPU was found here; --device=cpu records CPU tensors of PyTorch");
	else
		outcome_say(
			&launch->outcome,
			"nothing was recorded: the program used no device memory, although this machine has %s; see msmemscope doctor",
			machine->npu && machine->gpu ? "an NPU and a GPU"
			: machine->npu		     ? "an NPU"
						     : "a GPU");
}

/* Marks of a program that keeps its tensors in host memory make a trace without memory. */
static void say_no_memory(struct launch *launch)
{
	size_t i;

	for (i = 0; i < launch->outcome.digest_count; i++) {
		if (launch->outcome.digests[i].pool_count > 0 ||
		    launch->outcome.digests[i].watched.length > 0)
			return;
	}
	if (launch->outcome.digest_count > 0 && launch->runs_torch)
		outcome_say(
			&launch->outcome,
			"no memory was recorded: the program used PyTorch on the CPU; --device=cpu records CPU tensors");
}

static int engine_main(void *arg, int control_fd)
{
	struct launch *launch = arg;
	struct follow_ops ops = {
		.runs = {.finished = on_finished,
			 .told = on_told,
			 .living = on_living,
			 .progress = on_progress,
			 .killed_by = killed_by,
			 .incomplete = outcome_incomplete,
			 .out_of_memory = on_out_of_memory,
			 .forecast = on_forecast,
			 .unreadable = on_unreadable,
			 .arg = launch},
		.wait = wait_for_news,
		.sampler = launch->sampler,
		.sample_first = launch->machine.npu,
	};
	struct runs_result result = {0};
	struct mscope_error err = {0};
	struct follow *follow;
	uint32_t unrecorded;
	int r, code;

	launch->control_fd = control_fd;
	launch->report.off = launch->options->no_report;
	descriptors_raise();
	outcome_init(&launch->outcome, launch->options);
	launch->outcome.tells_root = true;
	if (launch->cpu_chosen)
		launch->outcome.chose = machine_choice_text(false);
	follow = follow_new(&launch->place, &ops, &err);
	supervisor_ready(control_fd);
	r = follow == NULL ? err.code : follow_launch(follow, &result, &err);
	if (r < 0 || result.interrupted || result.still_alive == 0) {
		follow_free(follow);
		follow = NULL;
	}
	if (r < 0)
		outcome_say(&launch->outcome, "%s; to finish the files: msmemscope recover %s",
			    err.message, launch->place.directory);
	if (result.interrupted) {
		outcome_discard(&launch->outcome); /* the supervisor's parent says how to go on */
		return MSCOPE_EXIT_FAILED;
	}
	unrecorded =
		unrecorded_text(launch->unrecorded, launch->place.directory, &launch->outcome.text);
	if (atomic_load(&launch->place.session->failed_starts) > 0)
		outcome_say(&launch->outcome, "%u process%s could not be recorded: %s",
			    atomic_load(&launch->place.session->failed_starts),
			    atomic_load(&launch->place.session->failed_starts) == 1 ? "" : "es",
			    strerror((int)atomic_load(&launch->place.session->failed_errno)));
	if (follow != NULL)
		return leave_orphans(launch, follow, result.still_alive);
	if (r == 0 && result.runs + result.failed == 0 && unrecorded == 0 && launch->dry == NULL &&
	    atomic_load(&launch->place.session->failed_starts) == 0)
		say_nothing(launch);
	if (launch->dry == NULL)
		say_no_memory(launch);
	storing_finish(&launch->storing, &launch->outcome, launch->options->output_path);
	launch_report_make(&launch->report, &launch->outcome, launch->place.directory, is_stopped,
			   launch);
	code = launch->dry == NULL ? outcome_print(&launch->outcome)
				   : outcome_print_problems(&launch->outcome);
	if (result.failed == 0 && r == 0)
		(void)session_remove(&launch->place);
	if (code == MSCOPE_EXIT_FAILED)
		code = ENGINE_NO_SUMMARY;
	return result.failed > 0 || r < 0 ? MSCOPE_EXIT_FAILED | (code & ENGINE_NO_SUMMARY) : code;
}

/* ---- the launch ---- */

static int run_bare(const struct options *options, const char *path)
{
	startup_restore_signals();
	(void)execve(path, options->argv, environ);
	cli_say("cannot run %s: %s", path, strerror(errno));
	return preflight_exit_code(-errno);
}

/* Nobody else can when the engine is gone. */
static void say_unrecorded(const struct launch *launch)
{
	struct strbuf text = {0};

	(void)unrecorded_text(launch->unrecorded, launch->place.directory, &text);
	cli_show(STDERR_FILENO, &text);
	strbuf_fini(&text);
}

static void warn_findings(const struct preflight_report *report, int log_level)
{
	size_t i;

	for (i = 0; i < report->finding_count && log_level <= OPT_LOG_WARN; i++)
		cli_say("%s", report->findings[i].sentence);
}

/* A condition of --fail-on, or a --summary-json that could not be written, takes the place of success. */
static void take_condition(struct supervisor_result *result)
{
	int code = WIFEXITED(result->engine_status) ? WEXITSTATUS(result->engine_status) : 0;

	if (result->exec_errno != 0 || !WIFEXITED(result->status) ||
	    WEXITSTATUS(result->status) != 0)
		return;
	if (code == MSCOPE_EXIT_CONDITION)
		result->status = W_EXITCODE(MSCOPE_EXIT_CONDITION, 0);
	else if (code & ENGINE_NO_SUMMARY)
		result->status = W_EXITCODE(MSCOPE_EXIT_FAILED, 0);
}

/* What was interrupted was only the report. */
static bool is_complete(const struct supervisor_result *result)
{
	return !result->engine_lost && WIFEXITED(result->engine_status) &&
	       (WEXITSTATUS(result->engine_status) & ~ENGINE_NO_SUMMARY) != MSCOPE_EXIT_FAILED;
}

static void say_how_it_ended(const struct launch *launch, const struct supervisor_result *result)
{
	struct mscope_error err = {0};

	if (result->exec_errno != 0) {
		(void)error_set(&err, -result->exec_errno, "cannot run %s: %s",
				launch->options->argv[0], strerror(result->exec_errno));
		launch_refuse(launch->options, err.message);
	} else if (result->interrupted && !is_complete(result)) {
		cli_say("interrupted; nothing is lost, to finish the files: msmemscope recover %s",
			launch->place.directory);
	} else if (result->engine_lost) {
		cli_say("the engine died; nothing is lost, to finish the files: msmemscope recover %s",
			launch->place.directory);
	}
	if ((result->interrupted && !is_complete(result)) || result->engine_lost)
		say_unrecorded(launch);
}

int cmd_launch(const struct options *options)
{
	return launch_program(options, NULL);
}

int launch_program(const struct options *given, const struct launch_dry *dry)
{
	struct options chosen = *given; /* what it points to is still that of `given` */
	const struct options *options = &chosen;
	struct launch *launch = calloc(1, sizeof(*launch));
	struct preflight_report report = {0};
	struct supervisor_result result;
	struct supervisor_launch start;
	struct mscope_error err = {0};
	const char *disabled = getenv(SESSION_DISABLE_ENV);
	char path[PATH_MAX];
	int r;

	if (launch == NULL) {
		cli_say("no memory");
		return MSCOPE_EXIT_FAILED;
	}
	launch->options = options;
	launch->dry = dry;
	launch->machine = machine_look();
	launch->cpu_chosen = machine_default_device(&launch->machine, &chosen);
	if (storing_init(&launch->storing, options, &err) < 0) {
		cli_say("%s", err.message);
		free(launch);
		return MSCOPE_EXIT_USAGE;
	}
	r = preflight_resolve(options->argv[0], path, sizeof(path), &err);
	if (r < 0) {
		launch_refuse(options, err.message);
		free(launch);
		return preflight_exit_code(r);
	}
	if (disabled != NULL && disabled[0] != '\0' && strcmp(disabled, "0") != 0) {
		free(launch);
		return run_bare(options, path);
	}
	launch_advise(options);
	if (preflight_inspect(path, &report) == 0) {
		preflight_inspect_words(options->argv, &report);
		warn_findings(&report, options->log_level);
	}
	if (options->log_level <= OPT_LOG_WARN)
		launch_tell_unfinished(options->output_path);
	r = prepare(launch, &err);
	if (r == 0)
		r = make_environment(launch, report.runtime);
	if (r < 0) {
		cli_say("%s", err.code != 0 ? err.message : mscope_status_str(r));
		free(launch);
		if (options->best_effort) {
			cli_say("running the program without recording (--best-effort)");
			return run_bare(options, path);
		}
		return MSCOPE_EXIT_FAILED;
	}
	start = (struct supervisor_launch){
		.path = path,
		.argv = options->argv,
		.envp = launch->environment,
		.engine = engine_main,
		.engine_arg = launch,
		.engine_fd = launch->place.lock_fd,
		.ready_ms = launch->machine.npu ? 2 * FOLLOW_FIRST_SAMPLE_MS : 0,
	};
	r = supervisor_run(&start, &result);
	if (r < 0) {
		cli_say("cannot start: %s", mscope_status_str(r));
		(void)session_remove(&launch->place);
		if (options->best_effort) {
			cli_say("running the program without recording (--best-effort)");
			return run_bare(options, path);
		}
		return MSCOPE_EXIT_FAILED;
	}
	say_how_it_ended(launch, &result);
	take_condition(&result);
	supervisor_exit_like(&result);
}
