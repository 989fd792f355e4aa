/* SPDX-License-Identifier: Apache-2.0 */
/*
 * When is a record final for a live reader? A writer says busy before it reads the clock and idle after the commit, with plain
 * stores. The engine reads the clock, then makes every writing thread pass a memory barrier (membarrier(2)), then looks: a
 * record older than the clock reading is either committed, or its writer is seen busy. Processes that could not register for
 * the barrier are read when they have ended; their trace is whole all the same.
 */
#include "engine/follow.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/array.h"
#include "base/clock.h"
#include "engine/process.h"
#include "engine/sampler.h"

#define MEMBARRIER_GLOBAL_EXPEDITED 2
#if defined(__x86_64__)
#define NR_membarrier 324
#else
#define NR_membarrier 283
#endif

/* How often to look, in milliseconds: often while events come, seldom while nothing happens. */
#define LOOK_BUSY_MS 10
#define LOOK_IDLE_MS 50

struct followed {
	struct pipeline pipeline;
	struct process process;
	char name[300];	  /* of the raw file */
	uint32_t request; /* that waits for an answer, 0: none */
	bool done;
};

struct follow {
	struct session_place *place;
	const struct follow_ops *ops;
	struct follow_result *result;
	struct elf_cache elves;
	struct sampler sampler;
	bool sampler_tried;
	uint64_t hosts_sampled_ns;
	struct followed **runs;
	size_t run_count, run_room;
	char **refused; /* names that could not be opened: said once */
	size_t refused_count, refused_room;
};

static bool has_suffix(const char *name, const char *suffix)
{
	size_t length = strlen(name), tail = strlen(suffix);

	return length > tail && strcmp(name + length - tail, suffix) == 0;
}

static bool is_known(const struct follow *follow, const char *name)
{
	size_t i;

	for (i = 0; i < follow->run_count; i++) {
		if (strcmp(follow->runs[i]->name, name) == 0)
			return true;
	}
	for (i = 0; i < follow->refused_count; i++) {
		if (strcmp(follow->refused[i], name) == 0)
			return true;
	}
	return false;
}

static void refuse(struct follow *follow, const char *name, const char *path,
		   const struct mscope_error *err)
{
	if (array_reserve(&follow->refused, &follow->refused_room, follow->refused_count + 1,
			  sizeof(char *)) == 0) {
		char *copy = strdup(name);

		if (copy != NULL)
			follow->refused[follow->refused_count++] = copy;
	}
	follow->result->failed++;
	if (follow->ops->unreadable != NULL)
		follow->ops->unreadable(follow->ops->arg, path, err);
}

static int add(struct follow *follow, const char *name, bool live)
{
	char path[SESSION_PATH_MAX + 310];
	struct mscope_error err = {0};
	struct followed *f;
	int r;

	r = array_reserve(&follow->runs, &follow->run_room, follow->run_count + 1,
			  sizeof(*follow->runs));
	f = r < 0 ? NULL : calloc(1, sizeof(*f));
	if (f == NULL)
		return -ENOMEM;
	(void)snprintf(f->name, sizeof(f->name), "%s", name);
	(void)snprintf(path, sizeof(path), "%s/%s", follow->place->directory, name);
	r = pipeline_open(&f->pipeline, follow->place->session, &follow->elves, path, live, &err);
	if (r < 0) {
		free(f);
		refuse(follow, name, path, &err);
		return 0;
	}
	process_watch(&f->process, run_header(f->pipeline.run),
		      run_identity(f->pipeline.run, "pid_namespace"));
	if (live && !atomic_load(&run_header_live(f->pipeline.run)->membarrier))
		log_warn(&f->pipeline.log, "membarrier(2) is not available there: the trace is "
					   "read when the process has ended");
	if (live)
		atomic_store(&run_header_live(f->pipeline.run)->engine_pid, (uint32_t)getpid());
	follow->runs[follow->run_count++] = f;
	return 0;
}

/* Looks for traces that are new. `parts`: also packed ones whose raw file is gone, as an engine that was killed leaves them. */
static int scan(struct follow *follow, bool live, bool parts)
{
	DIR *dir = opendir(follow->place->directory);
	const struct dirent *entry;
	int r = 0;

	if (dir == NULL)
		return 0; /* somebody removed it; what is open stays readable */
	while (r == 0 && (entry = readdir(dir)) != NULL) {
		char name[300];

		if (entry->d_name[0] == '.' || strlen(entry->d_name) > 255)
			continue;
		(void)snprintf(name, sizeof(name), "%s", entry->d_name);
		if (parts && has_suffix(name, SESSION_PART))
			memcpy(name + strlen(name) - strlen(SESSION_PART), SESSION_RAW,
			       sizeof(SESSION_RAW));
		if (has_suffix(name, SESSION_RAW) && !is_known(follow, name))
			r = add(follow, name, live);
	}
	(void)closedir(dir);
	return r;
}

struct stopper {
	struct follow *follow;
	uint64_t done;
	bool stopped;
};

static bool wants_stop(void *arg)
{
	struct stopper *stopper = arg;
	const struct follow_ops *ops = stopper->follow->ops;

	stopper->done += 1u << 20;
	if (ops->progress != NULL && ops->progress(ops->arg, stopper->done))
		stopper->stopped = true;
	return stopper->stopped;
}

/* False: the user does not want to wait. */
static bool finish(struct follow *follow, struct followed *f)
{
	struct stopper stopper = {.follow = follow};
	int r = pipeline_finish(&f->pipeline, wants_stop, &stopper);

	if (stopper.stopped) {
		follow->result->interrupted = true;
		return false;
	}
	f->done = true;
	if (f->request != 0)
		pipeline_answer(&f->pipeline, f->request);
	follow->result->runs++;
	if (r < 0)
		follow->result->failed++;
	if (follow->ops->finished != NULL)
		follow->ops->finished(follow->ops->arg, &f->pipeline);
	process_unwatch(&f->process);
	pipeline_close(&f->pipeline);
	return true;
}

static void take_sample(void *arg, const struct sampler_record *record)
{
	struct follow *follow = arg;
	uint64_t now = clock_monotonic_ns();
	size_t i;

	for (i = 0; i < follow->run_count; i++) {
		if (!follow->runs[i]->done)
			pipeline_sample(&follow->runs[i]->pipeline, record, now);
	}
}

/* Rows of pinned host memory tell what the process has resident; asked for as often as the driver is. */
static void sample_hosts(struct follow *follow)
{
	uint64_t now = clock_monotonic_ns();
	size_t i;

	if (now - follow->hosts_sampled_ns < SAMPLER_INTERVAL_MS * UINT64_C(1000000))
		return;
	follow->hosts_sampled_ns = now;
	for (i = 0; i < follow->run_count; i++) {
		struct followed *f = follow->runs[i];
		struct sampler_record record = {.device = DEVICE_HOST, .pid = f->process.pid};

		if (f->done || !pipeline_uses_host(&f->pipeline))
			continue;
		record.bytes = process_resident_bytes(&f->process);
		if (record.bytes != UINT64_MAX && record.bytes != 0)
			pipeline_sample(&f->pipeline, &record, now);
	}
}

/* The driver is asked from the moment that somebody uses a device. */
static void sample(struct follow *follow)
{
	size_t i;

	sample_hosts(follow);

	for (i = 0; i < follow->run_count && !follow->sampler_tried && follow->ops->sampler != NULL;
	     i++) {
		if (!follow->runs[i]->done && pipeline_uses_device(&follow->runs[i]->pipeline)) {
			follow->sampler_tried = true;
			sampler_start(&follow->sampler, follow->ops->sampler);
			log_debug(&follow->runs[i]->pipeline.log,
				  "asks the driver for its figures, by %s", follow->ops->sampler);
		}
	}
	sampler_read(&follow->sampler, take_sample, follow);
}

/* One round over all processes. Returns how many events came; *out_alive counts those that run on. */
static uint64_t round_of(struct follow *follow, bool may_finish, uint32_t *out_alive)
{
	uint64_t events = 0, now;
	uint32_t kind;
	bool barrier;
	size_t i;

	*out_alive = 0;
	/* Who is dead is asked before the clock is read: a dead one's trace is then read to its very end. */
	for (i = 0; i < follow->run_count; i++) {
		struct followed *f = follow->runs[i];

		if (f->done)
			continue;
		f->request = pipeline_request(&f->pipeline, &kind);
		if (kind != TRACE_REQUEST_FINISH && process_is_alive(&f->process))
			continue;
		if (may_finish && !finish(follow, f))
			return events;
	}
	sample(follow);
	now = clock_monotonic_ns();
	barrier = syscall(NR_membarrier, MEMBARRIER_GLOBAL_EXPEDITED, 0) == 0;
	for (i = 0; i < follow->run_count; i++) {
		struct followed *f = follow->runs[i];

		if (f->done)
			continue;
		(*out_alive)++;
		events += pipeline_step(
			&f->pipeline,
			barrier && atomic_load(&run_header_live(f->pipeline.run)->membarrier) ? now
											      : 0);
		if (f->request != 0 && pipeline_settle(&f->pipeline))
			pipeline_answer(&f->pipeline, f->request);
		else if (f->request != 0)
			events++; /* look again soon */
	}
	return events;
}

static struct follow *
	keeper; /* what follow_launch() left for follow_orphans(), in the same process or its child */

static void follow_free(struct follow *follow)
{
	size_t i;

	for (i = 0; i < follow->run_count; i++) {
		if (!follow->runs[i]->done) {
			process_unwatch(&follow->runs[i]->process);
			pipeline_close(&follow->runs[i]->pipeline);
		}
		free(follow->runs[i]);
	}
	for (i = 0; i < follow->refused_count; i++)
		free(follow->refused[i]);
	sampler_stop(&follow->sampler);
	free(follow->refused);
	free(follow->runs);
	elf_cache_fini(&follow->elves);
	free(follow);
}

int follow_launch(struct session_place *place, const struct follow_ops *ops,
		  struct follow_result *out, struct mscope_error *err)
{
	struct follow *follow = calloc(1, sizeof(*follow));
	bool ended = false;
	uint32_t alive = 0;
	int r;

	*out = (struct follow_result){0};
	if (follow == NULL)
		return error_set(err, -ENOMEM, "no memory");
	*follow = (struct follow){.place = place, .ops = ops, .result = out, .sampler = {.fd = -1}};
	r = session_lock(place);
	if (r < 0) {
		free(follow);
		return error_set(err, r, "cannot lock %s: %s", place->directory,
				 mscope_status_str(r));
	}
	for (;;) {
		enum follow_news news;
		uint64_t events;

		r = scan(follow, true, false);
		events = r < 0 ? 0 : round_of(follow, true, &alive);
		if (r < 0 || out->interrupted || ended)
			break;
		news = ops->wait(ops->arg, events > 0 ? LOOK_BUSY_MS : LOOK_IDLE_MS);
		if (news == FOLLOW_INTERRUPTED) {
			out->interrupted = true;
			break;
		}
		/* One more round after the end: its last events, and traces that appeared meanwhile. */
		ended = news == FOLLOW_ENDED;
	}
	out->still_alive = alive;
	if (r < 0)
		(void)error_set(err, r, "the engine cannot go on: %s", mscope_status_str(r));
	if (r == 0 && alive > 0 && !out->interrupted)
		keeper = follow;
	else
		follow_free(follow);
	return r;
}

void follow_orphans(struct session_place *place, const struct follow_ops *ops,
		    struct follow_result *out)
{
	struct follow *follow = keeper;
	uint32_t alive = 1;

	*out = (struct follow_result){0};
	if (follow == NULL)
		return;
	keeper = NULL;
	follow->place = place;
	follow->ops = ops;
	follow->result = out;
	while (alive > 0 && scan(follow, true, false) == 0) {
		uint64_t events = round_of(follow, true, &alive);
		struct timespec pause = {.tv_nsec = (events > 0 ? LOOK_BUSY_MS : LOOK_IDLE_MS) *
						    1000000L};

		if (alive > 0)
			(void)nanosleep(&pause, NULL);
	}
	follow_free(follow);
}

int recover_session(const char *directory, const struct follow_ops *ops, struct follow_result *out,
		    struct mscope_error *err)
{
	struct follow *follow = calloc(1, sizeof(*follow));
	struct session_place place = {0};
	size_t i;
	int r;

	*out = (struct follow_result){0};
	if (follow == NULL)
		return error_set(err, -ENOMEM, "no memory");
	r = session_open(directory, &place, err);
	if (r < 0) {
		free(follow);
		return r;
	}
	*follow =
		(struct follow){.place = &place, .ops = ops, .result = out, .sampler = {.fd = -1}};
	r = session_lock(&place);
	if (r < 0)
		(void)error_set(err, r, "%s is in use: the program that records there still runs",
				directory);
	else
		r = scan(follow, false, true);
	for (i = 0; r == 0 && i < follow->run_count; i++) {
		struct followed *f = follow->runs[i];

		if (!f->process.foreign && process_is_alive(&f->process))
			out->still_alive++;
		else if (!finish(follow, f))
			break;
	}
	follow_free(follow);
	if (r == 0 && !out->interrupted && out->still_alive == 0)
		(void)session_remove(&place);
	session_close(&place);
	return r;
}
