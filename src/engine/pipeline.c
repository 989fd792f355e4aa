/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/pipeline.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/io.h"
#include "engine/beater.h"
#include "engine/dump_bound.h"
#include "engine/host_memory.h"
#include "sink/config.h"
#include "sink/report.h"
#include "trace/settings.h"

#define LOG_DIRECTORY "msmemscope_logs"

/* Most chunks that are kept ready for the writers of a process, and most that are made ready at a time. */
#define READY_CHUNKS_MAX  256u
#define READY_CHUNKS_STEP 16u
/* Chunks that are always ready for a process that must not make system calls. */
#define READY_CHUNKS_QUIET 32u

#define HEARTBEAT_EVENTS 4096u

/* The driver's figures are in the packed trace after this time, where readers beside us find them (trace/run_observe.c). */
#define INJECTED_NS UINT64_C(2000000000)

static void keep_error(struct mscope_error *kept, const struct mscope_error *err)
{
	if (kept->code == 0)
		*kept = *err;
}

static const char *text_or(const char *text, const char *otherwise)
{
	return text != NULL ? text : otherwise;
}

static int put_preamble(struct pipeline *pipeline, struct pack_writer *pack)
{
	uint32_t bytes;
	const void *preamble = run_preamble(pipeline->run, &bytes);
	struct pack_block meta = {.kind = PACK_HEADER, .raw_bytes = bytes};

	return pack_writer_put(pack, &meta, preamble);
}

static int put_chunk(struct pack_writer *pack, const struct run_chunk *chunk)
{
	struct pack_block meta = {
		.kind = PACK_CHUNK,
		.raw_bytes = chunk->bytes,
		.writer = chunk->writer,
		.sequence = chunk->sequence,
		.base_ns = chunk->base_ns,
	};

	return pack_writer_put(pack, &meta, chunk->records);
}

static void on_consumed(void *arg, const struct run_chunk *chunk)
{
	struct pipeline *pipeline = arg;
	int r;

	/* After a failure no chunk goes back to the writers: the raw chunks are then the only copy. */
	if (pipeline->pack == NULL || pipeline->pack_error.code != 0)
		return;
	r = put_chunk(pipeline->pack, chunk);
	if (r < 0) {
		(void)error_set(&pipeline->pack_error, r, "cannot write the packed copy of %s: %s",
				pipeline->raw_path, mscope_status_str(r));
		return;
	}
	if (pipeline->live && chunk->number != RUN_CHUNK_NONE)
		run_release(pipeline->run, chunk->number);
}

static void derive_paths(struct pipeline *pipeline, const struct session_place *place,
			 const char *name)
{
	size_t stem = strlen(name) - strlen(SESSION_RAW);

	(void)snprintf(pipeline->raw_path, sizeof(pipeline->raw_path), "%s/%s", place->directory,
		       name);
	(void)snprintf(pipeline->raw_file, sizeof(pipeline->raw_file), "%s/%s", place->files, name);
	(void)snprintf(pipeline->part_file, sizeof(pipeline->part_file), "%s/%.*s%s", place->files,
		       (int)stem, name, SESSION_PART);
}

static void log_start(struct pipeline *pipeline)
{
	const struct session *session = pipeline->session;

	log_init(&pipeline->log, session->log_level, session->utc_offset_s);
	log_info(&pipeline->log, "process %u, %s: %s %s", run_header(pipeline->run)->pid,
		 text_or(run_identity(pipeline->run, "exe"), "unknown program"),
		 pipeline->live ? "follows" : "finishes", pipeline->raw_path);
	log_debug(
		&pipeline->log,
		"events %#x, level %#x, devices %#x%s, %u steps, analysis %#x, stacks c:%u python:%u",
		session->events, session->level, session->devices, session->host ? " and cpu" : "",
		session->step_count, session->analysis, session->c_depth, session->python_depth);
}

/* Sets the pass up: as the session asks, or as the program chooses through the API. */
static int open_pass(struct pipeline *pipeline, const struct session_place *place,
		     struct elf_cache *elves, struct mscope_error *err)
{
	const struct session *session = pipeline->session;
	const struct trace_header *h = run_header(pipeline->run);
	struct pass_setup setup = {
		.run = pipeline->run,
		.elves = elves,
		.root = pipeline->root,
		.analysis = session->analysis | (place->timeline ? SESSION_TIMELINE : 0u),
		.settings = settings_of_session(session),
		.follow_analysis = true,
		.sink = pass_sink(session, &pipeline->project),
		.choice = pass_choice(session),
		.follow_choice = true,
		.oom_top = session->analysis & SESSION_OOM ? session->oom_top : 0,
		.close_live = session->insight_close_live,
		/* A full disk ends the files, not the reading: the packed trace may lie elsewhere, and the report counts on. */
		.survive_sink = true,
		.facts_directory = place->files,
	};

	setup.sink.follow_rows = setup.sink.follow_stacks = true;
	setup.sink.resume = pipeline->shrunk;
	setup.sink.spool = place->files;
	pipeline->project = (struct project){.output = session->output,
					     .pid = h->pid,
					     .start_ns = h->realtime_ns,
					     .utc_offset_s = h->utc_offset_s};
	memcpy(pipeline->project.run_id, h->run_id, sizeof(h->run_id));
	return pass_open(&pipeline->pass, &setup, err);
}

int pipeline_open(struct pipeline *pipeline, const struct session_place *place,
		  struct elf_cache *elves, const char *name, bool live, struct mscope_error *err)
{
	bool raw, part;
	size_t i;
	int r;

	*pipeline = (struct pipeline){.session = place->session, .live = live};
	for (i = 0; i <= PIPELINE_DEVICES; i++)
		pipeline->sampled[i] = (struct driver_usage){.process_bytes = UINT64_MAX,
							     .device_bytes = UINT64_MAX,
							     .others_bytes = UINT64_MAX};
	derive_paths(pipeline, place, name);
	raw = access(pipeline->raw_file, F_OK) == 0;
	part = !live && access(pipeline->part_file, F_OK) == 0;
	r = run_open(raw || !part ? pipeline->raw_file : NULL, part ? pipeline->part_file : NULL,
		     live, &pipeline->run, err);
	if (r < 0)
		return r;
	log_start(pipeline);
	pipeline->shrunk = run_is_checkpointed(pipeline->run);
	r = open_pass(pipeline, place, elves, err);
	if (r < 0) {
		pipeline_close(pipeline);
		return r;
	}
	if (pack_writer_open(pipeline->part_file, &pipeline->pack, &pipeline->pack_error) == 0 &&
	    !part) {
		r = put_preamble(pipeline, pipeline->pack);
		if (r < 0)
			(void)error_set(&pipeline->pack_error, r,
					"cannot write the packed copy of %s: %s",
					pipeline->raw_path, mscope_status_str(r));
	}
	run_on_consumed(pipeline->run, on_consumed, pipeline);
	return 0;
}

void pipeline_find_root(struct pipeline *pipeline, uint32_t pid)
{
	char path[64], theirs[64], ours[64], root[8];
	ssize_t a, b, c;

	/* Most share our view, and that holds also after they are gone. */
	if (pid == 0)
		return;
	(void)snprintf(path, sizeof(path), "/proc/%u/ns/mnt", pid);
	a = readlink(path, theirs, sizeof(theirs));
	b = readlink("/proc/self/ns/mnt", ours, sizeof(ours));
	(void)snprintf(path, sizeof(path), "/proc/%u/root", pid);
	c = readlink(path, root, sizeof(root));
	if (a <= 0 || c <= 0 ||
	    (a == b && memcmp(theirs, ours, (size_t)a) == 0 && c == 1 && root[0] == '/'))
		return;
	(void)snprintf(pipeline->root, sizeof(pipeline->root), "%s", path);
}

/* ---- while it runs ---- */

/*
 * Chunks for the writers to take next, so that they need not stop for disk space and pages themselves: what they took since the last
 * look twice over, fading. A process that has stopped taking chunks gets space for one more.
 */
static void reserve_ahead(struct pipeline *pipeline)
{
	uint64_t max_bytes = dump_bound_trace(pipeline);
	struct trace_header *h = run_header_live(pipeline->run);
	uint32_t taken = run_taken(pipeline->run);
	uint32_t pace = taken - pipeline->chunks_before;

	if (run_watermark_ns(pipeline->run) == UINT64_MAX)
		return; /* no writer is left */
	/* Its first chunk says nothing about its pace. */
	if (pipeline->chunks_before == 0 && pace == 1)
		pace = 0;
	pipeline->chunks_before = taken;
	pipeline->chunks_ahead -= (pipeline->chunks_ahead + 15) / 16;
	if (pace > READY_CHUNKS_MAX / 2)
		pace = READY_CHUNKS_MAX / 2;
	if (pace * 2 > pipeline->chunks_ahead)
		pipeline->chunks_ahead = pace * 2;
	/* A process that must not take space itself has some even after a pause. */
	if (atomic_load_explicit(&h->quiet, memory_order_relaxed) != 0 &&
	    pipeline->chunks_ahead < READY_CHUNKS_QUIET)
		pipeline->chunks_ahead = READY_CHUNKS_QUIET;
	if (max_bytes != 0 && pipeline->chunks_ahead > max_bytes / 8 / TRACE_CHUNK_BYTES)
		pipeline->chunks_ahead = (uint32_t)(max_bytes / 8 / TRACE_CHUNK_BYTES);
	if (max_bytes != 0 && pipeline->pack != NULL)
		atomic_store_explicit(
			&h->alone_chunks,
			trace_alone_chunks(max_bytes, pack_writer_bytes(pipeline->pack)),
			memory_order_relaxed);
	/* Without space the writers meet the same error and stop recording with the reason. */
	if (run_make_ready(pipeline->run, pipeline->chunks_ahead, READY_CHUNKS_STEP) == 0)
		(void)run_reserve(pipeline->run, 1);
}

/* A process that waits for an answer sees here that the engine is at work. NULL: no process does. */
static _Atomic uint32_t *heartbeat(struct pipeline *pipeline)
{
	return pipeline->live ? &run_header_live(pipeline->run)->heartbeat : NULL;
}

static void pipeline_beat(struct pipeline *pipeline)
{
	if (pipeline->live)
		atomic_fetch_add_explicit(heartbeat(pipeline), 1, memory_order_relaxed);
}

/* Alone it takes what all may take together; runs_keep_limit() looks at the rest. */
static void keep_limit(struct pipeline *pipeline)
{
	uint64_t limit = pipeline->live ? dump_bound_trace(pipeline) : 0;

	dump_bound_look(pipeline);
	if (limit != 0 && pipeline_disk_bytes(pipeline) > limit)
		(void)pipeline_shrink(pipeline);
}

/* Takes up to `most` events, and shows signs of life meanwhile. */
static uint64_t drain(struct pipeline *pipeline, uint64_t most)
{
	uint64_t count = 0, taken = HEARTBEAT_EVENTS;
	int r;

	while (pipeline->read_error.code == 0 && count < most && taken == HEARTBEAT_EVENTS) {
		r = pass_read(&pipeline->pass, HEARTBEAT_EVENTS, &taken);
		count += taken;
		if (taken == HEARTBEAT_EVENTS)
			pipeline_beat(pipeline);
		if (taken == HEARTBEAT_EVENTS && pipeline->live)
			reserve_ahead(pipeline);
		if (r < 0)
			(void)error_set(&pipeline->read_error, r,
					"cannot read more of the trace: %s", mscope_status_str(r));
		/* An engine that is late has much to read at once, also after the program has ended. */
		keep_limit(pipeline);
	}
	return count;
}

/* Puts settings and log into the project directory once there is one. */
static void write_settings(struct pipeline *pipeline)
{
	const struct project *project = &pipeline->project;
	char path[PROJECT_PATH_MAX + 80], stamp[16];
	struct mscope_error err = {0};
	size_t length;

	if (pipeline->settings_written || !project->made)
		return;
	pipeline->settings_written = true;
	if (config_write(pipeline->session, project, &err) < 0)
		keep_error(&pipeline->pass.sink_error, &err);
	if (pipeline->log.level >= LOG_LEVEL_OFF)
		return;
	project_stamp(project->start_ns, project->utc_offset_s, stamp);
	length = (size_t)snprintf(path, sizeof(path), "%s/" LOG_DIRECTORY, project->path);
	/* Without a log nothing else is missing. */
	if (project_mkdirs(path) < 0)
		return;
	(void)snprintf(path + length, sizeof(path) - length, "/msmemscope_%s.log", stamp);
	(void)log_open(&pipeline->log, path);
}

uint64_t pipeline_step(struct pipeline *pipeline, uint64_t now_ns)
{
	uint64_t count;
	int r;

	if (pipeline->finished || pipeline->read_error.code != 0)
		return 0;
	if (pipeline->live)
		reserve_ahead(pipeline);
	r = run_poll(pipeline->run, now_ns, false);
	if (r < 0) {
		(void)error_set(&pipeline->read_error, r, "cannot read more of the trace: %s",
				mscope_status_str(r));
		return 0;
	}
	count = drain(pipeline, UINT64_MAX);
	if (count > 0)
		pass_flush(&pipeline->pass);
	write_settings(pipeline);
	if (pipeline->live && clock_monotonic_ns() - pipeline->injected_ns > INJECTED_NS &&
	    run_inject_flush(pipeline->run))
		pipeline->injected_ns = clock_monotonic_ns();
	return count;
}

uint64_t pipeline_disk_bytes(const struct pipeline *pipeline)
{
	return pipeline->pack == NULL ? 0 : pack_writer_bytes(pipeline->pack);
}

/* The oldest packed chunks go; what lived then is written down in their place. */
bool pipeline_shrink(struct pipeline *pipeline)
{
	struct mscope_error err = {0};
	int r;

	if (pipeline->pack == NULL || pipeline->pack_error.code != 0 ||
	    pipeline_disk_bytes(pipeline) <= pipeline->shrink_at)
		return false;
	pass_secure(&pipeline->pass);
	r = replay_checkpoint(pipeline->pass.replay, pipeline->part_file, &pipeline->pack, &err);
	if (r == MSCOPE_E_VERSION) {
		/* A trace of another version is finished without a limit. */
		pipeline->shrink_at = UINT64_MAX;
		return false;
	}
	if (r < 0) {
		keep_error(&pipeline->pack_error, &err);
		return false;
	}
	pipeline->shrunk = true;
	log_info(&pipeline->log,
		 "the trace reached its limit (--max-disk): the oldest %llu events were dropped",
		 (unsigned long long)replay_totals(pipeline->pass.replay)->dropped_events);
	/* Live blocks alone may fill the limit; dropping again at once would drop nothing. */
	pipeline->shrink_at = pipeline_disk_bytes(pipeline) * 2;
	return true;
}

uint32_t pipeline_request(struct pipeline *pipeline, uint32_t *out_kind)
{
	struct trace_header *h = pipeline->live ? run_header_live(pipeline->run) : NULL;
	uint32_t number;

	*out_kind = 0;
	if (h == NULL || pipeline->finished)
		return 0;
	/* Pairs with the release in the collector's request. */
	number = atomic_load_explicit(&h->request, memory_order_acquire);
	if (number == atomic_load_explicit(&h->answer, memory_order_relaxed))
		return 0;
	*out_kind = atomic_load_explicit(&h->request_kind, memory_order_relaxed);
	pipeline_beat(pipeline);
	return number;
}

void pipeline_answer(struct pipeline *pipeline, uint32_t number)
{
	struct trace_header *h = run_header_live(pipeline->run);

	atomic_store_explicit(&h->answer, number, memory_order_release);
	(void)syscall(SYS_futex, &h->answer, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

bool pipeline_sync(struct pipeline *pipeline)
{
	struct trace_header *h = run_header_live(pipeline->run);

	/* A writer in the middle of a record may hold the reader back; then the next round. */
	if (pipeline->read_error.code == 0 && run_has_barrier(pipeline->run) &&
	    run_watermark_ns(pipeline->run) <= atomic_load(&h->request_ns))
		return false;
	pass_sync(&pipeline->pass);
	return true;
}

/* ---- when it is over ---- */

/* The table of texts may be longer than a block; the reader joins what follows each other. */
static int put_frames(void *arg, const struct strbuf *part)
{
	struct pack_writer *pack = arg;
	size_t at = 0;
	int r = 0;

	while (r == 0 && at < part->length) {
		size_t bytes =
			part->length - at < PACK_BYTES_MAX ? part->length - at : PACK_BYTES_MAX;
		struct pack_block meta = {.kind = PACK_FRAMES, .raw_bytes = (uint32_t)bytes};

		r = pack_writer_put(pack, &meta, part->data + at);
		at += bytes;
	}
	return r;
}

/* What ends a packed trace: names of frames, and the header as it is now. */
static int save_frames(struct pipeline *pipeline, struct pack_writer *pack)
{
	int r = replay_save_frames(pipeline->pass.replay, put_frames, pack);

	if (r == 0)
		r = put_preamble(pipeline, pack);
	if (r == 0)
		r = pack_writer_put(pack, &(struct pack_block){.kind = PACK_END}, "");
	return r;
}

/* The packed trace by a name that also works after the file was removed. */
static void open_name(struct pipeline *pipeline, char out[64])
{
	(void)snprintf(out, 64, "/proc/self/fd/%d", pack_writer_fd(pipeline->pack));
}

/*
 * Makes the files once more, from the packed trace: because facts came that rows already written do not show (`replace`), or
 * because the directory they were in was removed.
 */
struct again {
	pipeline_left *left;
	void *arg;
	uint64_t events; /* of the whole run */
};

/* What is being written again is not left half done. */
static bool on_again(void *arg, uint64_t events)
{
	const struct again *again = arg;

	if (again->left != NULL)
		(void)again->left(again->arg, events < again->events ? again->events - events : 0);
	return false;
}

static int rewrite(struct pipeline *pipeline, const char *trace, bool replace, struct again *again,
		   struct mscope_error *err)
{
	struct run *run = NULL;
	int r;

	again->events = replay_totals(pipeline->pass.replay)->events;
	pipeline->pass.setup.progress = on_again;
	pipeline->pass.setup.progress_arg = again;
	r = run_open(NULL, trace, false, &run, err);
	if (r == 0)
		r = pass_again(&pipeline->pass, run, replace, err);
	pipeline->pass.setup.progress = NULL;
	run_close(run);
	return r;
}

static int copy_file(const char *from, const char *to)
{
	char temporary[PROJECT_PATH_MAX + 64];
	int in = io_open_file(from, O_RDONLY, NULL), out, r = 0;
	struct stat st;
	off_t at = 0;

	(void)snprintf(temporary, sizeof(temporary), "%s.new", to);
	if (in < 0)
		return in;
	out = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (out < 0 || fstat(in, &st) < 0)
		r = -errno;
	while (r == 0 && at < st.st_size) {
		ssize_t sent = sendfile(out, in, &at, (size_t)(st.st_size - at));

		if (sent < 0 && errno != EINTR)
			r = -errno;
		else if (sent == 0)
			r = -EIO;
	}
	if (out >= 0 && close(out) < 0 && r == 0)
		r = -errno;
	(void)close(in);
	if (r == 0 && rename(temporary, to) < 0)
		r = -errno;
	if (r < 0)
		(void)unlink(temporary);
	return r;
}

/* The packed trace goes into the project directory, or away; the raw one goes when the packed one is whole. */
static void place_trace(struct pipeline *pipeline)
{
	char path[PROJECT_PATH_MAX + 16], name[64];
	int r = 0;

	(void)snprintf(path, sizeof(path), "%s/%s", pipeline->project.path, PROJECT_TRACE);
	open_name(pipeline, name);
	/*
	 * The packed one is whole, so the raw one goes first: after a kill between these lines, recovery finds a packed
	 * trace to finish, or nothing, but never an emptied raw one alone.
	 */
	(void)unlink(pipeline->raw_file);
	if (!pipeline->session->no_keep_trace && rename(pipeline->part_file, path) < 0)
		r = copy_file(name, path); /* another file system, or the name is gone */
	if (r == 0)
		(void)unlink(pipeline->part_file);
	else
		(void)error_set(&pipeline->pack_error, r, "cannot move the trace to %s: %s",
				pipeline->project.path, mscope_status_str(r));
}

/* Writes the files again where they are wrong or gone. Needs the whole trace, so not after a part of it was dropped. */
static void remake_files(struct pipeline *pipeline, pipeline_left *left, void *arg)
{
	struct again again = {.left = left, .arg = arg};
	bool gone = pipeline->project.made && access(pipeline->project.path, F_OK) < 0;
	struct mscope_error err = {0};
	char name[64];

	if (((pipeline->pass.sink_error.code != 0 || pipeline->dump_stopped.code != 0) && !gone) ||
	    pipeline->pack == NULL || pipeline->pack_error.code != 0 || pipeline->shrunk)
		return;
	if (gone) {
		/* Failures of files that are gone do not matter. */
		pipeline->pass.sink_error = (struct mscope_error){0};
		log_warn(&pipeline->log,
			 "%s was removed while the program ran; its files are written again",
			 pipeline->project.path);
		pipeline->project.made = pipeline->settings_written = false;
	}
	open_name(pipeline, name);
	if ((gone || (pipeline->pass.facts.changed && pipeline->project.made &&
		      dump_bound_has_room(pipeline))) &&
	    rewrite(pipeline, name, !gone, &again, &err) < 0)
		keep_error(&pipeline->pass.sink_error, &err);
}

static void log_failure(struct pipeline *pipeline, const struct mscope_error *err)
{
	if (err->code != 0)
		log_error(&pipeline->log, "%s", err->message);
}

/* How it ended, what was lost, what failed. */
static void log_end(struct pipeline *pipeline)
{
	const struct report report = {.replay = pipeline->pass.replay};
	const struct session *session = pipeline->session;
	struct strbuf losses = {0};
	char *line, *rest;
	uint32_t i;

	log_info(&pipeline->log, "process %u %s: %llu events, %llu rows, %u steps",
		 run_header(pipeline->run)->pid, report_is_closed(&report) ? "ended" : "was killed",
		 (unsigned long long)replay_totals(pipeline->pass.replay)->events,
		 (unsigned long long)replay_totals(pipeline->pass.replay)->rows,
		 replay_marked_steps(pipeline->pass.replay));
	report_losses(&report, &losses);
	line = losses.length > 0 ? strtok_r(losses.data, "\n", &rest) : NULL;
	for (; line != NULL; line = strtok_r(NULL, "\n", &rest))
		log_warn(&pipeline->log, "%s", line);
	strbuf_fini(&losses);
	for (i = 0; i < session->step_count && i < SESSION_STEPS_MAX; i++) {
		if (session->steps[i] > replay_marked_steps(pipeline->pass.replay))
			log_warn(&pipeline->log, "step %u was not reached", session->steps[i]);
	}
	log_failure(pipeline, &pipeline->read_error);
	log_failure(pipeline, &pipeline->pack_error);
	log_failure(pipeline, &pipeline->pass.sink_error);
}

/* A process that attached early (collector/process/confine.c) and recorded nothing, not even a loss. */
static bool is_empty(const struct pipeline *pipeline)
{
	const struct replay_totals *totals = replay_totals(pipeline->pass.replay);
	const struct trace_header *h = run_header(pipeline->run);
	uint32_t i;

	if (access(pipeline->raw_path, F_OK) < 0 || atomic_load(&h->next_chunk) != 0 ||
	    atomic_load(&h->stop) != TRACE_STOP_NONE || atomic_load(&h->request) != 0 ||
	    totals->events != replay_samples(totals))
		return false;
	for (i = 0; i < TRACE_LOSSES_MAX; i++) {
		if (atomic_load(&h->loss[i]) != 0)
			return false;
	}
	return true;
}

/* All of pipeline_finish() but the signs of life. */
static int finish(struct pipeline *pipeline, pipeline_left *left, void *arg)
{
	struct report report = {.analyses = &pipeline->pass.analyses};
	struct mscope_error err = {0};
	int r;

	r = run_poll(pipeline->run, 0, true);
	if (r < 0)
		return error_set(&pipeline->read_error, r, "cannot read the trace: %s",
				 mscope_status_str(r));
	while (drain(pipeline, 1u << 20) > 0) {
		if (left != NULL && left(arg, run_left_events(pipeline->run)))
			return -EINTR;
	}
	if (is_empty(pipeline)) {
		(void)unlink(pipeline->raw_file);
		(void)unlink(pipeline->part_file);
		pipeline->empty = pipeline->finished = true;
		return 0;
	}
	/* First, since it gives back much memory, and names of frames take some. */
	(void)pass_end(&pipeline->pass);
	if (pipeline->pack != NULL && pipeline->pack_error.code == 0)
		r = save_frames(pipeline, pipeline->pack);
	if (r < 0)
		(void)error_set(&pipeline->pack_error, r, "cannot write the packed copy of %s: %s",
				pipeline->raw_path, mscope_status_str(r));
	pass_flush(&pipeline->pass);
	/* Closed first: a database must not find another file under its name. */
	r = pass_close_sink(&pipeline->pass, true, &err);
	if (r < 0)
		keep_error(&pipeline->pass.sink_error, &err);
	remake_files(pipeline, left, arg);
	report.replay = pipeline->pass.replay;
	pipeline->ending = true;
	pipeline_what_if(pipeline, &report);
	r = report_write(&report, &pipeline->project, &err);
	if (r < 0)
		keep_error(&pipeline->pass.sink_error, &err);
	write_settings(pipeline);
	if (pipeline->project.made) {
		if (pipeline->pack_error.code == 0 && pipeline->read_error.code == 0 &&
		    pipeline->pass.sink_error.code == 0)
			place_trace(pipeline);
		if (pipeline->pack_error.code == 0 && pipeline->pass.sink_error.code == 0)
			project_complete(&pipeline->project);
	}
	log_end(pipeline);
	if (pipeline->pack_error.code == 0 && pipeline->pass.sink_error.code == 0)
		project_settle(&pipeline->project, replay_vendor(pipeline->pass.replay));
	pipeline->finished = true;
	return pipeline->read_error.code != 0	? pipeline->read_error.code
	       : pipeline->pack_error.code != 0 ? pipeline->pack_error.code
						: pipeline->pass.sink_error.code;
}

int pipeline_finish(struct pipeline *pipeline, pipeline_left *left, void *arg)
{
	struct beater beater;
	int r;

	beater_begin(&beater, heartbeat(pipeline));
	r = finish(pipeline, left, arg);
	beater_end(&beater);
	return r;
}

bool pipeline_has_failed(const struct pipeline *pipeline)
{
	return pipeline->read_error.code != 0 || pipeline->pack_error.code != 0 ||
	       pipeline->pass.sink_error.code != 0;
}

/* ---- complete files of a process that runs on ---- */

struct put_open {
	struct pack_writer *pack;
	int error;
};

static void on_open_chunk(void *arg, const struct run_chunk *chunk)
{
	struct put_open *put = arg;

	if (put->error == 0)
		put->error = put_chunk(put->pack, chunk);
}

/* Writes the packed trace as far as it has been read: the chunks packed so far, what was read of those that are open, the end. */
static int write_trace(struct pipeline *pipeline, const char *path)
{
	struct put_open put = {0};
	struct mscope_error err;
	char name[64];
	int r;

	open_name(pipeline, name);
	r = copy_file(name, path);
	if (r == 0)
		r = pack_writer_open(path, &put.pack, &err);
	if (r == 0) {
		run_each_open(pipeline->run, on_open_chunk, &put);
		r = put.error;
	}
	if (r == 0)
		r = save_frames(pipeline, put.pack);
	pack_writer_close(put.pack);
	return r;
}

/* Rows that were written before all was known of them are written again; the live pass goes on behind them. */
static void correct_rows(struct pipeline *pipeline, const char *trace)
{
	struct pass *pass = &pipeline->pass;
	struct mscope_error err = {0};
	struct again again = {0};
	int r = 0;

	if (!pass->facts.changed || pipeline->shrunk || pass->sink == NULL ||
	    pass->sink_error.code != 0 || !dump_bound_has_room(pipeline) ||
	    !sink_suspend(pass->sink, &err))
		return;
	pass->setup.unended = true;
	r = rewrite(pipeline, trace, true, &again, &err);
	pass->setup.unended = false;
	if (r == 0)
		pass->facts.changed = false;
	else
		log_warn(&pipeline->log, "rows could not be corrected yet: %s", err.message);
}

void pipeline_end_here(struct pipeline *pipeline)
{
	/* Rows of the end are for the end. */
	pipeline->pass.sink = NULL;
	(void)pass_end(&pipeline->pass);
}

#define REPORT_TOLD 9 /* exit status: the report could not be written, and that was told */

static void incomplete(struct pipeline *pipeline, const struct pipeline_teller *teller,
		       const struct mscope_error *err)
{
	log_warn(&pipeline->log, "%s", err->message);
	if (teller->incomplete != NULL)
		teller->incomplete(teller->arg, pipeline, err);
}

/*
 * In a process of its own, with the state of the pass as it is now. Judging would not change that state, but the run is taken as ended
 * here: a refused request that may still be tried again counts as refused. Names of frames take long, and may end the process. Returns
 * the exit status.
 */
static int write_report(struct pipeline *pipeline, const struct pipeline_teller *teller)
{
	struct report report = {.analyses = &pipeline->pass.analyses, .runs = true};
	struct mscope_error err = {0};
	int r;

	pipeline_end_here(pipeline);
	report.replay = pipeline->pass.replay;
	pipeline_what_if(pipeline, &report);
	r = report_write(&report, &pipeline->project, &err);
	if (r < 0)
		incomplete(pipeline, teller, &err);
	if (teller->tell != NULL)
		teller->tell(teller->arg, pipeline, teller->ends);
	return r < 0 ? REPORT_TOLD : 0;
}

/* The trace of the window, and rows that are known better by now. */
static void complete_trace(struct pipeline *pipeline, const struct pipeline_teller *teller)
{
	char next[PROJECT_PATH_MAX + 32], path[PROJECT_PATH_MAX + 16];
	struct mscope_error err = {0};
	int r;

	(void)snprintf(path, sizeof(path), "%s/%s", pipeline->project.path, PROJECT_TRACE);
	(void)snprintf(next, sizeof(next), "%s.next", path);
	r = write_trace(pipeline, next);
	pipeline_beat(pipeline);
	if (r == 0)
		correct_rows(pipeline, next);
	if (r == 0 && !pipeline->session->no_keep_trace && rename(next, path) < 0)
		r = -errno;
	if (r < 0 || pipeline->session->no_keep_trace)
		(void)unlink(next);
	if (r < 0) {
		(void)error_set(&err, r, "the trace is not in %s yet: %s", path,
				mscope_status_str(r));
		incomplete(pipeline, teller, &err);
	}
}

static void complete_report(struct pipeline *pipeline, const struct pipeline_teller *teller)
{
	struct mscope_error err = {0};
	int status = 0;
	pid_t child = fork();

	if (child == 0)
		_exit(write_report(pipeline, teller));
	if (child < 0)
		(void)error_set(&err, -errno, "report.txt is not written yet: %s", strerror(errno));
	while (child > 0 && waitpid(child, &status, 0) < 0 && errno == EINTR)
		;
	if (WIFSIGNALED(status))
		(void)error_set(
			&err, -EINTR,
			"report.txt is not written yet: signal %d ended the process that writes it",
			WTERMSIG(status));
	else if (status != 0 && WEXITSTATUS(status) != REPORT_TOLD)
		(void)error_set(&err, -EIO, "report.txt is not written yet");
	if (err.code != 0)
		incomplete(pipeline, teller, &err);
}

void pipeline_complete(struct pipeline *pipeline, const struct pipeline_teller *teller)
{
	struct mscope_error err = {0};
	struct beater beater;

	if (project_make(&pipeline->project, replay_likely_vendor(pipeline->pass.replay), &err) <
	    0) {
		incomplete(pipeline, teller, &err);
		return;
	}
	pipeline->project.named = true;
	beater_begin(&beater, heartbeat(pipeline));
	write_settings(pipeline);
	if (pipeline->pack_error.code != 0)
		incomplete(pipeline, teller, &pipeline->pack_error);
	else if (pipeline->pack != NULL)
		complete_trace(pipeline, teller);
	if (pipeline->pass.sink_error.code != 0)
		incomplete(pipeline, teller, &pipeline->pass.sink_error);
	complete_report(pipeline, teller);
	beater_end(&beater);
	if (teller->told != NULL)
		teller->told(teller->arg, pipeline, teller->ends);
	pipeline->completions++;
	pipeline->complete_rows = replay_totals(pipeline->pass.replay)->rows;
	pipeline->complete_events = replay_totals(pipeline->pass.replay)->events;
}

bool pipeline_is_complete(const struct pipeline *pipeline)
{
	const struct replay_totals *totals = replay_totals(pipeline->pass.replay);

	return pipeline->completions > 0 && pipeline->complete_rows == totals->rows &&
	       pipeline->complete_events == totals->events;
}

void pipeline_close(struct pipeline *pipeline)
{
	pass_close(&pipeline->pass);
	pack_writer_close(pipeline->pack);
	run_close(pipeline->run);
	log_fini(&pipeline->log);
	*pipeline = (struct pipeline){0};
}
