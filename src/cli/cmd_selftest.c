/* SPDX-License-Identifier: Apache-2.0 */
/*
 * msmemscope selftest: does this installation work on this machine? The staged example runs on the simulated NPU under the real
 * command, in a temporary directory that is removed afterwards, and what was recorded is compared with what the example is known
 * to do: row by row, block by block, call stacks, after a SIGKILL, and as a database. Then the cost of an event is measured.
 */
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/files.h"
#include "base/json.h"
#include "cli/child.h"
#include "cli/cli.h"
#include "cli/tree.h"
#include "dump/format.h"
#include "engine/input.h"
#include "engine/pass.h"
#include "symbols/elf_cache.h"
#include "trace/session.h"

#define LIMIT_MS    60000
#define STEPS	    "12"
#define STEPS_NEVER "1000000000" /* more than any run lives to see */
#define STEPS_COST  "100000"
#define COST_ROUNDS 3
#define COST_MS	    4000 /* no further round after this: the help promises 5 s in all */
#define KILL_TRIES  5
#define KILL_BYTES  (64 << 10) /* of rows that a run has before it is killed */

#define KIB UINT64_C(1024)
#define MIB (KIB * 1024)

struct selftest {
	const struct options *options;
	char tool[PATH_MAX]; /* ourselves */
	char prefix[PATH_MAX];
	char example[PATH_MAX + 32];
	char libraries[PATH_MAX + 32];
	char home[PATH_MAX + 32];
	char directory[PATH_MAX]; /* temporary */
	struct child_variable changes[8];
	struct elf_cache elves;
	struct json json;
	struct strbuf text;
	uint64_t start_ns;
	bool failed;
};

/* ---- results ---- */

static void add_result(struct selftest *test, bool good, const char *what, const char *format, ...)
	MSCOPE_PRINTF(4, 5);

static void add_result(struct selftest *test, bool good, const char *what, const char *format, ...)
{
	char found[512];
	va_list args;

	va_start(args, format);
	(void)vsnprintf(found, sizeof(found), format, args);
	va_end(args);
	test->failed = test->failed || !good;
	if (test->options->json) {
		json_object(&test->json, NULL);
		json_string(&test->json, "check", what);
		json_bool(&test->json, "ok", good);
		json_string(&test->json, "found", found);
		json_end(&test->json);
		return;
	}
	/* Line by line, so that the user sees progress. */
	strbuf_reset(&test->text);
	strbuf_addf(&test->text, "%-4s  %-12s %s\n", good ? "ok" : "BAD", what, found);
	cli_show(STDOUT_FILENO, &test->text);
}

/* A run that failed. Its last line of output is most often the reason. */
static void add_failure(struct selftest *test, const char *what, int code, const struct strbuf *log)
{
	const char *last = strbuf_str(log), *end = last + log->length;

	while (end > last && end[-1] == '\n')
		end--;
	while (memchr(last, '\n', (size_t)(end - last)) != NULL)
		last = (const char *)memchr(last, '\n', (size_t)(end - last)) + 1;
	add_result(test, false, what, "%s%d: %.*s", code < 0 ? "error " : "exit code ",
		   code < 0 ? -code : code, (int)(end - last), last);
}

/* ---- runs ---- */

/* The tool with up to eight words, which NULL ends; its output goes to `log`. Returns what child_run() does. */
static int run_tool(struct selftest *test, struct strbuf *log, const char *const words[])
{
	const char *argv[12] = {test->tool};
	size_t i;

	for (i = 0; words[i] != NULL && i + 2 < MSCOPE_COUNT(argv); i++)
		argv[i + 1] = words[i];
	strbuf_reset(log);
	return child_run(argv, test->changes, LIMIT_MS, log);
}

/* An entry of a directory by the beginning and the end of its name. */
static bool find_entry(const char *directory, const char *prefix, const char *suffix, char *out,
		       size_t bytes)
{
	DIR *dir = opendir(directory);
	const struct dirent *entry;
	bool found = false;

	while (dir != NULL && !found && (entry = readdir(dir)) != NULL) {
		size_t length = strlen(entry->d_name), tail = strlen(suffix);

		found = length >= tail && strncmp(entry->d_name, prefix, strlen(prefix)) == 0 &&
			strcmp(entry->d_name + length - tail, suffix) == 0 &&
			snprintf(out, bytes, "%s/%s", directory, entry->d_name) < (int)bytes;
	}
	if (dir != NULL)
		(void)closedir(dir);
	return found;
}

/* The dump of device 0 in the only project of an output directory. */
static bool find_dump(const char *output, const char *suffix, char *project, char *dump,
		      size_t bytes)
{
	char directory[PATH_MAX];

	if (!find_entry(output, "msmemscope_", "", project, bytes) ||
	    snprintf(directory, sizeof(directory), "%s/device_0/dump", project) >=
		    (int)sizeof(directory))
		return false;
	return find_entry(directory, DUMP_TABLE "_", suffix, dump, bytes);
}

/* A run that was replayed to its end. */
struct replayed {
	struct input input;
	struct pass pass;
};

static int read_project(struct selftest *test, const char *project, struct replayed *out)
{
	struct pass_setup setup = {.elves = &test->elves};
	int r = input_open(&out->input, project, NULL, NULL, NULL);

	out->pass = (struct pass){0};
	setup.run = out->input.run;
	if (r == 0)
		r = pass_open(&out->pass, &setup, NULL);
	return r == 0 ? pass_all(&out->pass, NULL) : r;
}

static void replayed_close(struct replayed *replayed)
{
	pass_close(&replayed->pass);
	input_close(&replayed->input);
}

/* ---- what the example does (examples/leaky_npu.c), event by event ---- */

struct move {
	bool free;
	uint64_t bytes;
};

struct truth {
	unsigned int step; /* 0: before the first */
	unsigned int at;   /* next move of it */
};

static struct move truth_next(struct truth *truth)
{
	static const struct move begin[] = {{false, 64 * MIB}, {false, 16 * MIB}};
	static const struct move step[] = {{false, 8 * MIB},  {false, 64 * MIB}, {false, 256 * KIB},
					   {true, 256 * KIB}, {true, 64 * MIB},	 {true, 8 * MIB}};

	if (truth->step == 0 && truth->at < MSCOPE_COUNT(begin))
		return begin[truth->at++];
	if (truth->step == 0 || truth->at == MSCOPE_COUNT(step))
		*truth = (struct truth){.step = truth->step + 1};
	/* Every third step keeps its loss buffer. */
	if (truth->at == 3 && truth->step % 3 == 0)
		truth->at++;
	return step[truth->at++];
}

struct tally {
	uint64_t rows, allocations, frees;
	uint64_t live_bytes;
	uint64_t wrong; /* number of the first row that is not as it should be, 0: none */
};

/* Compares the rows of a csv with what the example did, as far as they go; `steps` is 0 when it was killed. */
static bool tally_rows(const char *dump, unsigned int steps, struct tally *out)
{
	struct truth truth = {0};
	FILE *file = fopen(dump, "re");
	char *line = NULL;
	size_t room = 0;

	*out = (struct tally){0};
	if (file == NULL)
		return false;
	while (getline(&line, &room, file) > 0) {
		bool free_row = strstr(line, ",FREE,HAL,") != NULL;
		const char *size = strstr(line, ",size:");
		struct move move;

		if (!free_row && strstr(line, ",MALLOC,HAL,") == NULL)
			continue;
		out->rows++;
		move = truth_next(&truth);
		/* What comes after the last step is the end of the program. */
		if (steps != 0 && truth.step > steps)
			move = (struct move){true, 64 * MIB};
		if ((size == NULL || free_row != move.free ||
		     strtoull(size + 6, NULL, 10) != move.bytes) &&
		    out->wrong == 0)
			out->wrong = out->rows;
		if (free_row) {
			out->frees++;
			out->live_bytes -= move.bytes;
		} else {
			out->allocations++;
			out->live_bytes += move.bytes;
		}
	}
	free(line);
	(void)fclose(file);
	return true;
}

/* ---- the checks ---- */

static void output_of(const struct selftest *test, const char *name, char *out, size_t bytes)
{
	(void)snprintf(out, bytes, "%s/%s", test->directory, name);
}

static void check_rows(struct selftest *test, struct strbuf *log)
{
	unsigned int steps = (unsigned int)atoi(STEPS);
	uint64_t live_blocks = 1 + steps / 3, live_bytes = 16 * MIB + steps / 3 * 256 * KIB;
	uint64_t allocations = 2 + 3 * steps, frees = allocations - live_blocks;
	char output[PATH_MAX], project[PATH_MAX], dump[PATH_MAX];
	const struct usage *usage;
	size_t usages = 0;
	struct replayed replayed = {0};
	struct tally tally;
	int r;

	output_of(test, "rows", output, sizeof(output));
	r = run_tool(test, log,
		     (const char *[]){"-o", output, "--trace-dir", output, "--", test->example,
				      STEPS, NULL});
	if (r != 0) {
		add_failure(test, "recording", r, log);
		return;
	}
	if (!find_dump(output, ".csv", project, dump, sizeof(dump)) ||
	    !tally_rows(dump, steps, &tally)) {
		add_result(test, false, "recording", "no dump was written");
		return;
	}
	add_result(test,
		   tally.wrong == 0 && tally.allocations == allocations && tally.frees == frees,
		   "recording", "%llu of %llu allocations and %llu of %llu frees, %s",
		   (unsigned long long)tally.allocations, (unsigned long long)allocations,
		   (unsigned long long)tally.frees, (unsigned long long)frees,
		   tally.wrong == 0 ? "each as the example made it"
				    : "but not as the example made them");
	r = read_project(test, project, &replayed);
	usage = r == 0 ? replay_usages(replayed.pass.replay, &usages) : NULL;
	if (usages != 1)
		usage = NULL;
	add_result(test,
		   usage != NULL && usage->live_blocks == live_blocks &&
			   usage->live_bytes == live_bytes,
		   "live blocks",
		   "%llu of %llu blocks, %llu of %llu KiB are alive at the end of the trace",
		   (unsigned long long)(usage == NULL ? 0 : usage->live_blocks),
		   (unsigned long long)live_blocks,
		   (unsigned long long)(usage == NULL ? 0 : usage->live_bytes / KIB),
		   (unsigned long long)(live_bytes / KIB));
	replayed_close(&replayed);
}

/* The frames of a live block name the function that leaked it. */
static bool stack_names(struct replay *replay, const struct block *block, const char *function)
{
	uint32_t count, i;
	const uint32_t *frames = replay_frames(replay, block->stack, &count);

	for (i = 0; i < count; i++) {
		if (strstr(replay_frame_text(replay, frames[i]), function) != NULL)
			return true;
	}
	return false;
}

static void check_stacks(struct selftest *test, struct strbuf *log)
{
	char output[PATH_MAX], project[PATH_MAX];
	unsigned int blocks = 0, named = 0;
	struct replayed replayed = {0};
	const struct block *block;
	size_t cursor = 0;
	int r;

	output_of(test, "stacks", output, sizeof(output));
	r = run_tool(test, log,
		     (const char *[]){"--call-stack=c:20", "-o", output, "--trace-dir", output,
				      "--", test->example, STEPS, NULL});
	if (r != 0) {
		add_failure(test, "stacks", r, log);
		return;
	}
	if (find_entry(output, "msmemscope_", "", project, sizeof(project)) &&
	    read_project(test, project, &replayed) == 0) {
		while ((block = replay_next_block(replayed.pass.replay, &cursor)) != NULL) {
			blocks++;
			if (stack_names(replayed.pass.replay, block,
					block->size_bytes > MIB ? "open_workspace"
								: "compute_loss"))
				named++;
		}
	}
	add_result(test, blocks > 0 && named == blocks, "stacks",
		   "%u of %u leaked blocks name the function that leaked them", named, blocks);
	replayed_close(&replayed);
}

static void sleep_ms(long ms)
{
	struct timespec pause = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};

	(void)nanosleep(&pause, NULL);
}

/* True when rows are coming: then there is something to lose. */
static bool is_running(const char *output)
{
	char project[PATH_MAX], dump[PATH_MAX];
	struct stat st;

	return find_dump(output, ".csv", project, dump, sizeof(dump)) && stat(dump, &st) == 0 &&
	       st.st_size >= KILL_BYTES;
}

/* Kills tool, engine and program at once in the middle of a run. False when the run was over before. */
static bool kill_run(struct selftest *test, const char *output, struct strbuf *log)
{
	const char *const argv[] = {test->tool, "-o",	       output,	    "--trace-dir", output,
				    "--",	test->example, STEPS_NEVER, NULL};
	struct child child;
	int status, waited = 0;

	if (child_start(&child, argv, test->changes) < 0)
		return false;
	while (!is_running(output) && !child_ended(&child) && waited++ < 5000)
		sleep_ms(1);
	child_kill(&child);
	strbuf_reset(log);
	return child_finish(&child, LIMIT_MS, log, &status) == 0 && status == 9;
}

static void check_kill(struct selftest *test, struct strbuf *log)
{
	char output[PATH_MAX], project[PATH_MAX], dump[PATH_MAX], name[16];
	struct tally tally = {0};
	bool killed = false;
	int i, r = 1;

	for (i = 0; i < KILL_TRIES && !killed; i++) {
		(void)snprintf(name, sizeof(name), "kill%d", i);
		output_of(test, name, output, sizeof(output));
		killed = kill_run(test, output, log);
	}
	if (!killed) {
		add_result(test, false, "kill", "no run could be killed in time: %.200s",
			   strbuf_str(log));
		return;
	}
	/* The program dies with the tool, but not in the same moment. */
	for (i = 0; i < 20 && r != 0; i++) {
		sleep_ms(50);
		r = run_tool(test, log, (const char *[]){"recover", output, NULL});
	}
	if (r != 0) {
		add_failure(test, "kill", r, log);
		return;
	}
	if (!find_dump(output, ".csv", project, dump, sizeof(dump)) || !tally_rows(dump, 0, &tally))
		tally.wrong = 1;
	add_result(test, tally.wrong == 0 && tally.rows > 0, "kill",
		   "SIGKILL in the middle of a run; recover wrote %llu events, %s",
		   (unsigned long long)tally.rows,
		   tally.wrong == 0 ? "each as the example made it"
				    : "but not as the example made them");
}

static void check_export(struct selftest *test, struct strbuf *log)
{
	char output[PATH_MAX], project[PATH_MAX], dump[PATH_MAX], exported[PATH_MAX],
		magic[16] = "";
	FILE *file;
	int r;

	output_of(test, "rows", output, sizeof(output));
	output_of(test, "db", exported, sizeof(exported));
	if (!find_entry(output, "msmemscope_", "", project, sizeof(project))) {
		add_result(test, false, "database", "no trace to export");
		return;
	}
	r = run_tool(test, log,
		     (const char *[]){"export", "--format=db", "-o", exported, project, NULL});
	if (r != 0) {
		add_failure(test, "database", r, log);
		return;
	}
	file = find_dump(exported, ".db", project, dump, sizeof(dump)) ? fopen(dump, "re") : NULL;
	if (file != NULL) {
		(void)!fread(magic, 1, sizeof(magic), file);
		(void)fclose(file);
	}
	add_result(test, memcmp(magic, "SQLite format 3", 16) == 0, "database",
		   "the trace exported as a database for MindStudio Insight");
}

/* How long the example runs by itself, start and end included. UINT64_MAX: it failed. */
static uint64_t time_bare(struct selftest *test, const char *steps, struct strbuf *log)
{
	uint64_t begin = clock_monotonic_ns();

	strbuf_reset(log);
	return child_run((const char *[]){test->example, steps, NULL}, test->changes, LIMIT_MS,
			 log) != 0
		       ? UINT64_MAX
		       : clock_monotonic_ns() - begin;
}

/* Time from the first to the last event under the tool; UINT64_MAX: it failed. No rows: they are the engine's work. */
static uint64_t time_traced(struct selftest *test, int round, struct strbuf *log,
			    uint64_t *out_events)
{
	char output[PATH_MAX], project[PATH_MAX], name[16];
	struct replayed replayed = {0};
	uint64_t result = UINT64_MAX;

	(void)snprintf(name, sizeof(name), "cost%d", round);
	output_of(test, name, output, sizeof(output));
	if (run_tool(test, log,
		     (const char *[]){"--events=none", "-o", output, "--trace-dir", output, "--",
				      test->example, STEPS_COST, NULL}) == 0 &&
	    find_entry(output, "msmemscope_", "", project, sizeof(project)) &&
	    read_project(test, project, &replayed) == 0) {
		const struct replay_totals *totals = replay_totals(replayed.pass.replay);

		result = totals->last_ns - totals->first_ns;
		*out_events = totals->events;
	}
	replayed_close(&replayed);
	return result;
}

/* The shortest of a few rounds, at least one: disturbances only make them longer. */
static void check_cost(struct selftest *test, struct strbuf *log)
{
	uint64_t start = UINT64_MAX, bare = UINT64_MAX, traced = UINT64_MAX, events = 0, t;
	double plain, with;
	int round;

	for (round = 0; round < COST_ROUNDS; round++) {
		if (round > 0 &&
		    clock_monotonic_ns() - test->start_ns > COST_MS * UINT64_C(1000000))
			break;
		t = time_bare(test, "0", log);
		start = t < start ? t : start;
		t = time_bare(test, STEPS_COST, log);
		bare = t < bare ? t : bare;
		t = time_traced(test, round, log, &events);
		traced = t < traced ? t : traced;
	}
	if (start == UINT64_MAX || bare == UINT64_MAX || traced == UINT64_MAX || events == 0) {
		add_failure(test, "cost", 1, log);
		return;
	}
	plain = bare > start ? (double)(bare - start) / (double)events : 0;
	with = (double)traced / (double)events;
	add_result(test, true, "cost",
		   "%.0f ns per event (%.0f ns with msmemscope, %.0f ns without), over %llu events",
		   with > plain ? with - plain : 0, with, plain, (unsigned long long)events);
}

/* ---- all together ---- */

static int prepare(struct selftest *test, struct mscope_error *err)
{
	const char *candidates[] = {getenv("TMPDIR"), "/var/tmp", "/tmp"};
	struct child_variable changes[] = {
		{"LD_LIBRARY_PATH", test->libraries},
		{"ASCEND_HOME_PATH", test->home},
		{"LD_PRELOAD", NULL},
		{SESSION_ENV, NULL},
		{SESSION_DISABLE_ENV, NULL},
		{"SIMNPU_HBM", NULL},
		{"SIMNPU_DEVICES", NULL},
		{NULL, NULL},
	};
	int r = tree_prefix(test->prefix, sizeof(test->prefix), err);
	size_t i;

	if (r < 0)
		return r;
	_Static_assert(sizeof(changes) == sizeof(test->changes), "room for all of them");
	memcpy(test->changes, changes, sizeof(changes));
	(void)snprintf(test->tool, sizeof(test->tool), "%s/bin/msmemscope", test->prefix);
	(void)snprintf(test->home, sizeof(test->home), "%s/simnpu", test->prefix);
	(void)snprintf(test->libraries, sizeof(test->libraries), "%s/simnpu/lib64", test->prefix);
	(void)snprintf(test->example, sizeof(test->example), "%s/examples/leaky_npu", test->prefix);
	if (access(test->example, X_OK) < 0)
		return error_set(err, -errno, "cannot run the example %s: %s; copy the whole tree",
				 test->example, strerror(errno));
	for (i = 0; i < MSCOPE_COUNT(candidates); i++) {
		if (candidates[i] == NULL || candidates[i][0] != '/' ||
		    access(candidates[i], W_OK | X_OK) < 0)
			continue;
		if (snprintf(test->directory, sizeof(test->directory),
			     "%s/msmemscope-selftest-XXXXXX",
			     candidates[i]) < (int)sizeof(test->directory) &&
		    mkdtemp(test->directory) != NULL)
			return 0;
	}
	return error_set(err, -EACCES, "cannot create a temporary directory; set TMPDIR");
}

static void (*const checks[])(struct selftest *test, struct strbuf *log) = {
	check_rows, check_stacks, check_kill, check_export, check_cost,
};

/* Who interrupts us wants an end, but no files left behind: the signal waits until they are gone. */
static void hold_signals(sigset_t *before)
{
	sigset_t held;

	(void)sigemptyset(&held);
	(void)sigaddset(&held, SIGINT);
	(void)sigaddset(&held, SIGTERM);
	(void)sigaddset(&held, SIGHUP);
	(void)sigprocmask(SIG_BLOCK, &held, before);
}

static bool interrupted(void)
{
	sigset_t waiting;

	return sigpending(&waiting) == 0 &&
	       (sigismember(&waiting, SIGINT) || sigismember(&waiting, SIGTERM) ||
		sigismember(&waiting, SIGHUP));
}

int cmd_selftest(const struct options *options)
{
	struct selftest *test = calloc(1, sizeof(*test));
	struct mscope_error err = {0};
	struct strbuf log = {0};
	sigset_t before;
	bool failed;
	size_t i;

	if (test == NULL) {
		cli_say("no memory");
		return MSCOPE_EXIT_FAILED;
	}
	test->options = options;
	test->start_ns = clock_monotonic_ns();
	hold_signals(&before);
	if (prepare(test, &err) < 0) {
		cli_say("%s", err.message);
		free(test);
		return MSCOPE_EXIT_FAILED;
	}
	json_begin(&test->json, &test->text);
	if (options->json)
		json_array(&test->json, NULL);
	/* Where nothing is recorded at all, the other checks have nothing to add. */
	for (i = 0; i < MSCOPE_COUNT(checks) && !interrupted() && !(i == 1 && test->failed); i++)
		checks[i](test, &log);
	if (options->json) {
		json_end(&test->json);
		strbuf_add_char(&test->text, '\n');
		cli_show(STDOUT_FILENO, &test->text);
	}
	(void)files_remove(test->directory);
	(void)sigprocmask(SIG_SETMASK, &before, NULL); /* one that came meanwhile ends us here */
	failed = test->failed;
	strbuf_fini(&log);
	strbuf_fini(&test->text);
	elf_cache_fini(&test->elves);
	free(test);
	return failed ? MSCOPE_EXIT_FAILED : MSCOPE_EXIT_OK;
}
