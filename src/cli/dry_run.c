/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/dry_run.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/array.h"
#include "base/files.h"
#include "base/text.h"
#include "cli/cli.h"
#include "cli/dry_notes.h"
#include "cli/scratch.h"
#include "cli/stand_ins.h"
#include "cli/tree.h"
#include "engine/input.h"
#include "engine/pass.h"
#include "findings/say.h"
#include "replay/ooms.h"
#include "sink/screen.h"
#include "symbols/elf_cache.h"

#define WORDS_BEFORE 7 /* of the launch, before those of the program */

/* ---- the program's environment ---- */

static void put_before(const char *name, const char *first)
{
	const char *rest = getenv(name);
	struct strbuf text = {0};

	strbuf_add_str(&text, first);
	if (rest != NULL && rest[0] != '\0')
		strbuf_addf(&text, ":%s", rest);
	(void)setenv(name, strbuf_str(&text), 1);
	strbuf_fini(&text);
}

/* As simnpu/set_env.sh, and what makes it a dry run. */
static void set_npu(const char *home, const char *scratch, const struct dry_device *device)
{
	char text[PATH_MAX + 64];

	(void)setenv("ASCEND_HOME_PATH", home, 1);
	(void)setenv("ASCEND_TOOLKIT_HOME", home, 1);
	(void)snprintf(text, sizeof(text), "%s/opp", home);
	(void)setenv("ASCEND_OPP_PATH", text, 1);
	(void)snprintf(text, sizeof(text), "%s/lib64", home);
	put_before("LD_LIBRARY_PATH", text);
	(void)snprintf(text, sizeof(text), "%s/python", home);
	put_before("PYTHONPATH", text);
	(void)setenv("SIMNPU_SHAPES", "1", 1);
	(void)setenv("SIMNPU_WORKSPACE", "none", 1);
	/* Other programs of this machine have devices of their own. */
	(void)setenv("SIMNPU_SHARE", scratch, 1);
	(void)snprintf(text, sizeof(text), "%llu", (unsigned long long)device->bytes);
	(void)setenv("SIMNPU_HBM", text, 1);
	/* Operators run on the thread that calls them, so that a value that is read has its line. */
	(void)setenv("TASK_QUEUE_ENABLE", "0", 0);
}

static void set_cuda(const struct dry_device *device, const struct dry_torch *torch,
		     const char *preload)
{
	char text[32];

	put_before("LD_PRELOAD", preload);
	(void)setenv("SIMCUDA_DEVICE", device->card, 1);
	(void)snprintf(text, sizeof(text), "%llu", (unsigned long long)device->bytes);
	(void)setenv("SIMCUDA_BYTES", text, 1);
	(void)snprintf(text, sizeof(text), "%u", torch->cuda);
	(void)setenv("SIMCUDA_VERSION", text, 1);
	(void)snprintf(text, sizeof(text), "%u", torch->cudnn);
	if (torch->cudnn > 0)
		(void)setenv("SIMCUDA_CUDNN", text, 1);
	(void)setenv("SIMCUDA_WORKSPACE", device->lean ? "none" : "most", 1);
	/* Kernels that PyTorch compiles at run time would be kept for later, real runs. */
	(void)setenv("USE_PYTORCH_KERNEL_CACHE", "0", 1);
	/* Which cards this machine has does not matter. */
	(void)unsetenv("CUDA_VISIBLE_DEVICES");
}

/* In the child. */
static void set_environment(const struct dry_device *device, uint32_t steps)
{
	char text[32];

	(void)setenv("MSMEMSCOPE_DRY", device->name, 1);
	(void)snprintf(text, sizeof(text), "%u", steps);
	(void)setenv("MSMEMSCOPE_DRY_STEPS", text, 1);
	if (device->other)
		(void)setenv("MSMEMSCOPE_DRY_OTHER", "1", 1);
	if (device->classes)
		(void)setenv("MSMEMSCOPE_DRY_CLASSES", "1", 1);
	if (device->number)
		(void)setenv("MSMEMSCOPE_DRY_NUMBER", DRY_NUMBER, 1);
}

/* ---- the launch ---- */

/* Our own standard output has the answer and nothing else. */
static void direct_output(bool shown)
{
	int null = shown ? -1 : open("/dev/null", O_WRONLY | O_CLOEXEC);

	if (null >= 0)
		(void)dup2(null, STDERR_FILENO);
	(void)dup2(STDERR_FILENO, STDOUT_FILENO);
}

static int kept_input = -1;

void dry_keep_input(void)
{
	kept_input = memfd_create("dry run's input", MFD_CLOEXEC);
}

/* Standard input has been read when the first run ends. A terminal would be asked again by a program that nobody sees. */
static void direct_input(bool shown, pid_t owner)
{
	char path[64];
	int again;

	(void)snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)owner, kept_input);
	if (shown && kept_input >= 0)
		(void)setenv("MSMEMSCOPE_DRY_INPUT", path, 1);
	else
		(void)unsetenv("MSMEMSCOPE_DRY_INPUT");
	if (shown)
		return;
	again = kept_input >= 0 ? open(path, O_RDONLY | O_CLOEXEC) : -1;
	if (again < 0)
		again = open("/dev/null", O_RDONLY | O_CLOEXEC);
	if (again >= 0)
		(void)dup2(again, STDIN_FILENO);
}

/* In the child. */
_Noreturn static void launch(const struct options *asked, const struct dry_device *device,
			     const struct launch_dry *dry)
{
	char output[PATH_MAX + 16];
	char **words = calloc((size_t)asked->argc + WORDS_BEFORE + 1, sizeof(*words));
	const char *before[WORDS_BEFORE] = {"msmemscope",
					    device->card != NULL ? "--device=gpu" : "--device=npu",
					    "--format=none",
					    device->classes ? "--analysis=leaks,decompose"
							    : "--analysis=leaks",
					    "--quiet",
					    output,
					    "--"};
	struct mscope_error err = {0};
	struct options options;
	int i;

	if (words == NULL)
		_exit(MSCOPE_EXIT_FAILED);
	(void)snprintf(output, sizeof(output), "--output-path=%s", asked->output_path);
	for (i = 0; i < WORDS_BEFORE; i++)
		words[i] = (char *)(uintptr_t)before[i];
	for (i = 1; i < asked->argc; i++)
		words[WORDS_BEFORE + i - 1] = asked->argv[i];
	if (options_parse(WORDS_BEFORE + asked->argc - 1, words, &options, &err) < 0) {
		cli_say("%s", err.message);
		_exit(MSCOPE_EXIT_FAILED);
	}
	_exit(launch_program(&options, dry));
}

/* ---- what the trace says ---- */

/* Threads without lines of Python are those of the backward pass. */
static void add_backward(const struct dry_result *result, struct strbuf *out)
{
	if (result->backward == NULL) {
		strbuf_add_str(out, "without a call stack");
		return;
	}
	strbuf_addf(out, "backward pass of %s", result->backward);
	if (result->backwards > 1)
		strbuf_addf(out, " and %zu more", result->backwards - 1);
}

/* The innermost line of the user's own code. */
static char *innermost_line(const struct dry_result *result, const struct findings *found,
			    struct replay *replay, const struct finding_holder *holder)
{
	struct strbuf line = {0};
	char *copy;

	if (holder->recorded && holder->stack == 0)
		add_backward(result, &line);
	else if (!holder->recorded || !site_own_line(&found->names, replay, holder->stack, &line))
		strbuf_add_str(&line, holder->site);
	copy = strdup(strbuf_str(&line));
	strbuf_fini(&line);
	return copy;
}

/* Call sites with the same class and line are one. */
static void take_site(struct dry_result *result, const struct findings *found,
		      struct replay *replay, const struct finding_holder *holder)
{
	const char *class = say_class((uint32_t)holder->owner_class);
	char *line = innermost_line(result, found, replay, holder);
	size_t i;

	class = class != NULL ? class : "other";
	for (i = 0; line != NULL && i < result->site_count; i++) {
		if (strcmp(result->sites[i].class, class) == 0 &&
		    strcmp(result->sites[i].site, line) == 0)
			break;
	}
	if (line != NULL && i == result->site_count)
		result->sites[result->site_count++] =
			(struct dry_site){.class = class, .site = line};
	else
		free(line);
	if (i < result->site_count)
		result->sites[i].bytes += holder->bytes;
}

static int by_bytes(const void *a, const void *b)
{
	const struct dry_site *x = a, *y = b;

	return ORDER_DOWN(x->bytes, y->bytes) ?: strcmp(x->site, y->site);
}

static void take_sites(struct dry_result *result, const struct findings *found,
		       struct replay *replay, uint32_t device)
{
	const struct finding_peak *peak = NULL;
	size_t i;

	for (i = 0; found != NULL && i < FINDINGS_COUNT(found, peak); i++) {
		if (FINDINGS(found, peak)[i].pool == POOL_pta &&
		    FINDINGS(found, peak)[i].device == device)
			peak = &FINDINGS(found, peak)[i];
	}
	result->sites =
		peak == NULL ? NULL : calloc(peak->places.count + 1, sizeof(*result->sites));
	for (i = 0; result->sites != NULL && i < peak->places.count; i++)
		take_site(result, found, replay, &FINDINGS(found, holder)[peak->places.first + i]);
	if (result->site_count > 0)
		qsort(result->sites, result->site_count, sizeof(*result->sites), by_bytes);
}

static void add_text(char ***list, size_t *count, size_t *room, const char *text)
{
	if (ARRAY_RESERVE(*list, *room, *count + 1) == 0)
		(*list)[(*count)++] = strdup(text);
}

static void take_notes(struct dry_result *result, const struct replay *replay)
{
	const char *note;
	size_t i, room = result->value_count, missing_room = result->missing_count;

	for (i = 0; (note = replay_note(replay, i)) != NULL; i++) {
		if (text_starts_with(note, DRY_NOTE_DIED)) {
			free(result->died_at);
			result->died_at = strdup(note + strlen(DRY_NOTE_DIED));
		} else if (text_starts_with(note, DRY_NOTE_BECAUSE)) {
			free(result->because);
			result->because = strdup(note + strlen(DRY_NOTE_BECAUSE));
		} else if (text_starts_with(note, DRY_NOTE_STUCK)) {
			free(result->stuck);
			result->stuck = strdup(note + strlen(DRY_NOTE_STUCK));
		} else if (text_starts_with(note, DRY_NOTE_VALUE)) {
			add_text(&result->values, &result->value_count, &room,
				 note + strlen(DRY_NOTE_VALUE));
			result->at_most = result->at_most || strstr(note, DRY_FULL) != NULL;
		} else if (text_starts_with(note, DRY_NOTE_MISSING)) {
			add_text(&result->missing, &result->missing_count, &missing_room,
				 note + strlen(DRY_NOTE_MISSING));
		} else if (text_starts_with(note, DRY_NOTE_OUTSIDE)) {
			result->outside = strtoull(note + strlen(DRY_NOTE_OUTSIDE), NULL, 10);
		} else if (text_starts_with(note, DRY_NOTE_WAITS)) {
			result->waits = strtoull(note + strlen(DRY_NOTE_WAITS), NULL, 10);
		} else if (text_starts_with(note, DRY_NOTE_NUMBERS)) {
			result->numbers = true;
		} else if (text_starts_with(note, DRY_NOTE_STEERS)) {
			result->steers = true;
		} else if (text_starts_with(note, DRY_NOTE_BACKWARD)) {
			if (result->backwards++ == 0)
				result->backward = strdup(note + strlen(DRY_NOTE_BACKWARD));
		} else if (text_starts_with(note, DRY_NOTE_RANGE)) {
			result->workspaces = strtoull(note + strlen(DRY_NOTE_RANGE), NULL, 10);
		}
	}
}

static void take_oom(struct dry_result *result, const struct digest *digest)
{
	const struct findings *found = digest->found;
	const struct finding_oom *oom;

	result->refusals = digest->oom_count;
	if (found == NULL || FINDINGS_COUNT(found, oom) == 0)
		return;
	oom = &FINDINGS(found, oom)[FINDINGS_COUNT(found, oom) - 1];
	result->oom_step = oom->step;
	free(result->oom_place);
	result->oom_place = strdup(oom->place);
}

/* The device of this process whose tensors took most; NULL if it has none. */
static const struct usage *largest(const struct replay *replay, bool cuda, uint32_t *out_devices)
{
	const struct usage *usages, *best = NULL;
	size_t count, i;

	*out_devices = 0;
	usages = replay_usages(replay, &count);
	for (i = 0; i < count; i++) {
		if (usages[i].pool != POOL_pta || (usages[i].vendor == VENDOR_CUDA) != cuda ||
		    usages[i].device == DEVICE_HOST || usages[i].allocations == 0)
			continue;
		(*out_devices)++;
		if (best == NULL || usages[i].peak_bytes > best->peak_bytes)
			best = &usages[i];
	}
	return best;
}

static int take_figures(struct dry_result *result, const struct report *report,
			const struct pool_histories *histories, const char *project)
{
	const struct usage *pool, *usages;
	struct digest digest = {0};
	uint32_t devices;
	uint64_t most;
	size_t count, i;
	int r = 0;

	digest_take(&digest, report);
	take_notes(result, report->replay);
	if (digest.oom_count > 0)
		take_oom(result, &digest);
	pool = largest(report->replay, result->device.card != NULL, &devices);
	if (pool != NULL && ++result->processes == 1) {
		result->number = pool->device;
		result->devices = devices;
		result->needs = pool->peak_bytes;
		result->reserves = pool->peak_reserved_bytes > pool->peak_bytes
					   ? pool->peak_reserved_bytes
					   : pool->peak_bytes;
		result->orders = (struct dry_orders){.needs_low = result->needs,
						     .needs_high = result->needs,
						     .reserves_low = result->reserves,
						     .reserves_high = result->reserves};
		usages = replay_usages(report->replay, &count);
		for (i = 0; i < count; i++) {
			if (usages[i].pool == POOL_hal && usages[i].device == pool->device &&
			    usages[i].peak_bytes > result->reserves)
				result->outside = usages[i].peak_bytes - result->reserves;
		}
		most = less_u64(result->device.bytes, result->outside);
		if (dry_is_whole(result) && !result->device.classes && !result->device.other)
			r = dry_orders_play(histories, pool->device,
					    most > result->reserves ? most : result->reserves,
					    &result->orders);
		result->steps = digest.steps;
		result->seconds = digest.seconds;
		take_sites(result, digest.found, report->replay, pool->device);
		result->project = strdup(project);
	}
	digest_fini(&digest);
	return r;
}

static int read_trace(struct dry_result *result, const char *project, struct mscope_error *err)
{
	struct elf_cache elves = {0};
	struct pool_histories histories = {0};
	struct input input = {0};
	struct pass pass = {0};
	int r = input_open(&input, project, NULL, NULL, err);

	if (r == 0) {
		struct pass_setup setup = {.run = input.run,
					   .elves = &elves,
					   .event = pool_histories_take,
					   .event_arg = &histories,
					   .analysis = SESSION_LEAKS | SESSION_DECOMPOSE};

		r = pass_open(&pass, &setup, err);
		if (r == 0)
			r = pass_all(&pass, err);
		if (r == 0)
			r = pool_histories_end(&histories, pass.replay);
		if (r == 0)
			r = take_figures(result,
					 &(struct report){.replay = pass.replay,
							  .analyses = &pass.analyses,
							  .trace_path = project},
					 &histories, project);
		pass_close(&pass);
	}
	if (r < 0 && err->code == 0)
		(void)error_set(err, r, "cannot read %s: %s", project, mscope_status_str(r));
	pool_histories_fini(&histories);
	input_close(&input);
	elf_cache_fini(&elves);
	return r;
}

static int read_traces(struct dry_result *result, const char *list, struct mscope_error *err)
{
	char line[PATH_MAX];
	FILE *file = fopen(list, "re");
	int r = 0;

	while (file != NULL && r == 0 && fgets(line, sizeof(line), file) != NULL) {
		line[strcspn(line, "\n")] = '\0';
		r = read_trace(result, line, err);
	}
	if (file != NULL)
		(void)fclose(file);
	return r;
}

/* ---- signals ---- */

/* They end the command when its files are removed. One of the terminal has reached the program, too; any other is passed on. */
static const int ends[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};
static volatile sig_atomic_t held_signal, running;

static void on_signal(int signo, siginfo_t *info, void *context)
{
	int before = errno;

	(void)context;
	held_signal = signo;
	if (info->si_code <= 0 && running > 0)
		(void)kill((pid_t)running, signo);
	errno = before;
}

static void set_signals(const struct sigaction *wanted)
{
	struct sigaction now;
	size_t i;

	for (i = 0; i < MSCOPE_COUNT(ends); i++) {
		/* nohup stays as it is. */
		if (sigaction(ends[i], NULL, &now) == 0 && now.sa_handler != SIG_IGN)
			(void)sigaction(ends[i], wanted, NULL);
	}
}

static void hold_signals(void)
{
	set_signals(&(struct sigaction){.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO});
}

static void release_signals(void)
{
	set_signals(&(struct sigaction){.sa_handler = SIG_DFL});
}

/* ---- the whole ---- */

int dry_run(const struct options *options, const struct dry_device *device,
	    const struct dry_torch *torch, bool shown, struct dry_result *result,
	    struct mscope_error *err)
{
	char home[PATH_MAX + 64], list[PATH_MAX + 16];
	struct scratch scratch;
	struct strbuf preload = {0};
	const pid_t owner = getpid();
	pid_t child = -1;
	int r = tree_prefix(home, PATH_MAX, err);

	*result = (struct dry_result){.device = *device};
	if (r < 0)
		return r;
	(void)strcat(home, device->card != NULL ? "/simcuda/lib64/libsimcuda.so" : "/simnpu");
	hold_signals();
	r = scratch_make(&scratch, device->card != NULL, err);
	if (r < 0)
		return r;
	(void)snprintf(list, sizeof(list), "%s/projects", scratch.path);
	if (device->card != NULL)
		r = stand_ins_make(torch->directory, home, scratch.path, &preload, err);
	if (r == 0 && held_signal == 0)
		child = running = fork();
	if (child == 0) {
		release_signals();
		direct_output(shown);
		direct_input(shown, owner);
		if (device->card != NULL)
			set_cuda(device, torch, strbuf_str(&preload));
		else
			set_npu(home, scratch.path, device);
		set_environment(device, options->dry_steps);
		launch(options, device, &(struct launch_dry){.device = device->name, .list = list});
	}
	if (r == 0 && child < 0 && held_signal == 0)
		r = error_set(err, -errno, "cannot start: %s", strerror(errno));
	while (child > 0 && waitpid(child, &result->status, 0) < 0 && errno == EINTR)
		;
	running = 0;
	if (r == 0 && held_signal == 0)
		r = read_traces(result, list, err);
	scratch_remove(&scratch);
	strbuf_fini(&preload);
	release_signals();
	if (held_signal != 0)
		(void)raise(held_signal);
	return r;
}

void dry_fini(struct dry_result *result)
{
	size_t i;

	for (i = 0; i < result->site_count; i++)
		free(result->sites[i].site);
	for (i = 0; i < result->value_count; i++)
		free(result->values[i]);
	for (i = 0; i < result->missing_count; i++)
		free(result->missing[i]);
	free(result->sites);
	free(result->values);
	free(result->missing);
	free(result->oom_place);
	free(result->died_at);
	free(result->because);
	free(result->stuck);
	free(result->backward);
	free(result->project);
	*result = (struct dry_result){0};
}

void dry_take_classes(struct dry_result *result, struct dry_result *from)
{
	struct dry_site *sites = result->sites;
	size_t count = result->site_count;
	char *project = result->project;

	if (from->project == NULL || from->site_count == 0 || from->status != result->status ||
	    from->steps != result->steps)
		return;
	result->sites = from->sites;
	result->site_count = from->site_count;
	result->project = from->project;
	from->sites = sites;
	from->site_count = count;
	from->project = project;
	if (project != NULL)
		(void)files_remove(project);
}

void dry_drop(struct dry_result *result)
{
	if (result->project != NULL)
		(void)files_remove(result->project);
	dry_fini(result);
}

bool dry_wants_number(const struct dry_result *result)
{
	return !dry_is_fine(result) && result->steers && result->because != NULL &&
	       (text_starts_with(result->because, "ZeroDivisionError: ") ||
		text_starts_with(result->because, "ValueError: math domain error") ||
		text_starts_with(result->because, "ValueError: expected a positive input"));
}

bool dry_is_fine(const struct dry_result *result)
{
	return WIFEXITED(result->status) && WEXITSTATUS(result->status) == 0;
}

bool dry_is_whole(const struct dry_result *result)
{
	return dry_is_fine(result) && result->stuck == NULL;
}

bool dry_ran_out(const struct dry_result *result)
{
	return !dry_is_fine(result) && result->refusals > 0;
}
