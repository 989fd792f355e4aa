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
#include <unistd.h>

#include "replay/checkpoint.h"
#include "engine/export.h"
#include "sink/config.h"

#define TRACE_NAME    "trace.msc"
#define LOG_DIRECTORY "msmemscope_logs"

/* Space that is reserved ahead of the writers: what they took in the last step twice over, and a little. */
#define RESERVE_CHUNKS_MIN 16u
#define RESERVE_CHUNKS_MAX 256u

#define HEARTBEAT_EVENTS 4096u

static void keep_error(struct mscope_error *kept, const struct mscope_error *err)
{
	if (kept->code == 0)
		*kept = *err;
}

static int on_row(void *arg, struct replay *replay, const struct row *row)
{
	struct pipeline *pipeline = arg;
	struct mscope_error err = {0};

	/* A full disk ends the files, not the reading: the packed trace may lie elsewhere, and the report counts on. */
	if (pipeline->sink_error.code == 0 && sink_row(pipeline->sink, replay, row, &err) < 0)
		keep_error(&pipeline->sink_error, &err);
	return 0;
}

static int on_dump(void *arg, struct replay *replay, const struct dump *dump)
{
	struct pipeline *pipeline = arg;
	struct mscope_error err = {0};

	(void)replay;
	if (pipeline->sink_error.code == 0 && sink_dump(pipeline->sink, dump, &err) < 0)
		keep_error(&pipeline->sink_error, &err);
	return 0;
}

static int on_call(void *arg, struct replay *replay, const struct call_row *row)
{
	struct pipeline *pipeline = arg;
	struct mscope_error err = {0};

	if (pipeline->sink_error.code == 0 && sink_call(pipeline->sink, replay, row, &err) < 0)
		keep_error(&pipeline->sink_error, &err);
	return 0;
}

static const char *text_or(const char *text, const char *otherwise)
{
	return text != NULL ? text : otherwise;
}

static int put_preamble(struct pipeline *pipeline)
{
	uint32_t bytes;
	const void *preamble = run_preamble(pipeline->run, &bytes);
	struct pack_block meta = {.kind = PACK_HEADER, .raw_bytes = bytes};

	return pack_writer_put(pipeline->pack, &meta, preamble);
}

/* The oldest packed chunks go; what lived then is written down in their place. */
static void shrink(struct pipeline *pipeline)
{
	struct mscope_error err = {0};
	int r = checkpoint_write(pipeline->part_path, pipeline->run, pipeline->replay,
				 &pipeline->pack, &err);

	if (r < 0) {
		keep_error(&pipeline->pack_error, &err);
		return;
	}
	pipeline->shrunk = true;
	log_info(&pipeline->log,
		 "the trace reached its limit: the oldest events were dropped, %llu so far",
		 (unsigned long long)replay_totals(pipeline->replay)->dropped_events);
	/* Live blocks alone may fill the limit; dropping again at once would drop nothing. */
	if (pipeline->shrink_at < pack_writer_bytes(pipeline->pack) * 2)
		pipeline->shrink_at = pack_writer_bytes(pipeline->pack) * 2;
}

static void on_consumed(void *arg, const struct run_chunk *chunk)
{
	struct pipeline *pipeline = arg;
	struct pack_block meta = {
		.kind = PACK_CHUNK,
		.raw_bytes = chunk->bytes,
		.writer = chunk->writer,
		.sequence = chunk->sequence,
		.base_ns = chunk->base_ns,
	};
	int r;

	/* After a failure nothing is given back any more: the raw chunks are then the only copy. */
	if (pipeline->pack == NULL || pipeline->pack_error.code != 0)
		return;
	r = pack_writer_put(pipeline->pack, &meta, chunk->records);
	if (r < 0) {
		(void)error_set(&pipeline->pack_error, r, "cannot write %s: %s",
				pipeline->part_path, mscope_status_str(r));
		return;
	}
	if (pipeline->live && chunk->number != RUN_CHUNK_NONE)
		run_release(pipeline->run, chunk->number);
}

static void derive_paths(struct pipeline *pipeline, const char *raw_path)
{
	size_t stem = strlen(raw_path) - strlen(SESSION_RAW);

	(void)snprintf(pipeline->raw_path, sizeof(pipeline->raw_path), "%s", raw_path);
	(void)snprintf(pipeline->part_path, sizeof(pipeline->part_path), "%.*s%s", (int)stem,
		       raw_path, SESSION_PART);
}

static void directory_of(const char *path, char *out, size_t bytes)
{
	const char *slash = strrchr(path, '/');

	(void)snprintf(out, bytes, "%.*s", slash == NULL ? 1 : (int)(slash - path),
		       slash == NULL ? "." : path);
}

/*
 * Where the process sees its files: "/proc/PID/root" when it lives in a container of its own, else "". Most share our view, and
 * that holds also after they are gone.
 */
static void find_root(uint32_t pid, char *out, size_t bytes)
{
	char path[64], theirs[64], ours[64], root[8];
	ssize_t a, b, c;

	out[0] = '\0';
	(void)snprintf(path, sizeof(path), "/proc/%u/ns/mnt", pid);
	a = readlink(path, theirs, sizeof(theirs));
	b = readlink("/proc/self/ns/mnt", ours, sizeof(ours));
	(void)snprintf(path, sizeof(path), "/proc/%u/root", pid);
	c = readlink(path, root, sizeof(root));
	if (a <= 0 || c <= 0 ||
	    (a == b && memcmp(theirs, ours, (size_t)a) == 0 && c == 1 && root[0] == '/'))
		return;
	(void)snprintf(out, bytes, "%s", path);
}

int pipeline_open(struct pipeline *pipeline, const struct session *session, struct elf_cache *elves,
		  const char *raw_path, bool live, struct mscope_error *err)
{
	struct sink_config config;
	struct replay_setup setup;
	char directory[SESSION_PATH_MAX];
	const struct trace_header *h;
	bool raw, part;
	size_t i;
	int r;

	*pipeline = (struct pipeline){.session = session,
				      .live = live,
				      .facts = {.fd = -1},
				      .shrink_at = session->max_disk_bytes};
	for (i = 0; i <= PIPELINE_DEVICES; i++)
		pipeline->sampled[i] = (struct driver_usage){.process_bytes = UINT64_MAX,
							     .device_bytes = UINT64_MAX};
	derive_paths(pipeline, raw_path);
	raw = access(pipeline->raw_path, F_OK) == 0;
	part = !live && access(pipeline->part_path, F_OK) == 0;
	r = run_open(raw || !part ? pipeline->raw_path : NULL, part ? pipeline->part_path : NULL,
		     live, &pipeline->run, err);
	if (r < 0)
		return r;
	h = run_header(pipeline->run);
	log_init(&pipeline->log, session->log_level, session->utc_offset_s);
	log_info(&pipeline->log, "process %u, %s: %s %s", h->pid,
		 text_or(run_identity(pipeline->run, "exe"), "unknown program"),
		 live ? "follows" : "finishes", raw_path);
	log_debug(&pipeline->log,
		  "events %#x, level %#x, devices %#x%s, %u steps, analysis %#x, stacks c:%u "
		  "python:%u",
		  session->events, session->level, session->devices,
		  session->host ? " and cpu" : "", session->step_count, session->analysis,
		  session->c_depth, session->python_shown);
	config = export_settings(session, &pipeline->project);
	config.follow_rows = config.follow_stacks = true;
	pipeline->shrunk = config.resume = run_is_checkpointed(pipeline->run);
	if (live)
		find_root(h->pid, pipeline->root, sizeof(pipeline->root));
	pipeline->project = (struct project){.output = session->output,
					     .pid = h->pid,
					     .start_ns = h->realtime_ns,
					     .utc_offset_s = h->utc_offset_s};
	memcpy(pipeline->project.run_id, h->run_id, sizeof(h->run_id));
	directory_of(raw_path, directory, sizeof(directory));
	setup = (struct replay_setup){.run = pipeline->run,
				      .elves = elves,
				      .root = pipeline->root,
				      .row = on_row,
				      .dump = on_dump,
				      .call = on_call,
				      .arg = pipeline,
				      .steps_matter = session->step_count > 0};
	if (facts_init(&pipeline->facts, directory, NULL) == 0)
		setup.facts = &pipeline->facts;
	pipeline->elves = elves;
	r = replay_new(&setup, &pipeline->replay);
	if (r < 0)
		goto fail;
	analyses_init(&pipeline->analyses, session->analysis, true, pipeline->replay);
	config.spool = directory;
	r = sink_open(&config, &pipeline->sink, err);
	if (r < 0)
		goto fail;
	if (pack_writer_open(pipeline->part_path, &pipeline->pack, &pipeline->pack_error) == 0 &&
	    !part) {
		r = put_preamble(pipeline);
		if (r < 0)
			(void)error_set(&pipeline->pack_error, r, "cannot write %s: %s",
					pipeline->part_path, mscope_status_str(r));
	}
	run_on_consumed(pipeline->run, on_consumed, pipeline);
	return 0;
fail:
	pipeline_close(pipeline);
	return r;
}

/* ---- while it runs ---- */

/* Disk space for the chunks that the writers will take next, so that they need not stop for it themselves. */
static void reserve_ahead(struct pipeline *pipeline)
{
	uint32_t next = atomic_load_explicit(&run_header_live(pipeline->run)->next_chunk,
					     memory_order_relaxed);
	uint32_t ahead = (next - pipeline->chunks_before) * 2;

	pipeline->chunks_before = next;
	if (ahead < RESERVE_CHUNKS_MIN)
		ahead = RESERVE_CHUNKS_MIN;
	if (ahead > RESERVE_CHUNKS_MAX)
		ahead = RESERVE_CHUNKS_MAX;
	/* Without space the writers meet the same error and stop recording with the reason. */
	(void)run_reserve(pipeline->run, ahead);
}

/* Whoever waits for an answer sees that somebody works on it. */
static void pipeline_beat(struct pipeline *pipeline)
{
	if (pipeline->live)
		atomic_fetch_add_explicit(&run_header_live(pipeline->run)->heartbeat, 1,
					  memory_order_relaxed);
}

static uint64_t drain(struct pipeline *pipeline, uint64_t most)
{
	struct trace_event event;
	uint64_t count = 0;
	int r = 0;

	while (pipeline->read_error.code == 0 && count < most && run_next(pipeline->run, &event)) {
		if (++count % HEARTBEAT_EVENTS == 0)
			pipeline_beat(pipeline);
		r = replay_event(pipeline->replay, &event);
		if (r < 0)
			(void)error_set(&pipeline->read_error, r,
					"cannot go on reading the trace: %s", mscope_status_str(r));
	}
	return count;
}

static void flush(struct pipeline *pipeline)
{
	struct mscope_error err = {0};

	if (pipeline->sink_error.code == 0 && sink_flush(pipeline->sink, &err) < 0)
		keep_error(&pipeline->sink_error, &err);
}

/* Once there is a project directory, its settings and its log are in it. */
static void settle(struct pipeline *pipeline)
{
	const struct project *project = &pipeline->project;
	char path[PROJECT_PATH_MAX + 80], stamp[16];
	struct mscope_error err = {0};
	size_t length;

	if (pipeline->settled || !project->made)
		return;
	pipeline->settled = true;
	if (config_write(pipeline->session, project, &err) < 0)
		keep_error(&pipeline->sink_error, &err);
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
		(void)error_set(&pipeline->read_error, r, "cannot go on reading the trace: %s",
				mscope_status_str(r));
		return 0;
	}
	count = drain(pipeline, UINT64_MAX);
	if (count > 0)
		flush(pipeline);
	settle(pipeline);
	if (pipeline->shrink_at != 0 && pipeline->pack != NULL && pipeline->pack_error.code == 0 &&
	    pack_writer_bytes(pipeline->pack) > pipeline->shrink_at)
		shrink(pipeline);
	return count;
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

bool pipeline_settle(struct pipeline *pipeline)
{
	struct trace_header *h = run_header_live(pipeline->run);
	struct mscope_error err = {0};

	/* A writer in the middle of a record may hold the reader back; then the next round. */
	if (pipeline->read_error.code == 0 && atomic_load(&h->membarrier) &&
	    run_watermark_ns(pipeline->run) <= atomic_load(&h->request_ns))
		return false;
	if (pipeline->sink_error.code == 0 && sink_settle(pipeline->sink, &err) < 0)
		keep_error(&pipeline->sink_error, &err);
	return true;
}

bool pipeline_uses_device(const struct pipeline *pipeline)
{
	size_t count, i;
	const struct context *contexts = replay_contexts(pipeline->replay, &count);

	for (i = 1; i < count; i++) {
		if (contexts[i].vendor == VENDOR_ASCEND && contexts[i].device < DEVICE_HOST)
			return true;
	}
	return false;
}

bool pipeline_uses_host(const struct pipeline *pipeline)
{
	size_t count, i;
	const struct context *contexts = replay_contexts(pipeline->replay, &count);

	for (i = 1; i < count; i++) {
		if (contexts[i].pool == POOL_host_pinned)
			return true;
	}
	return false;
}

void pipeline_sample(struct pipeline *pipeline, const struct sampler_record *record,
		     uint64_t now_ns)
{
	uint64_t words[EVENT_BYTES_usage_sample / 8];
	struct event_usage_sample event;
	struct driver_usage *last;
	uint64_t *figure;
	uint32_t slot;

	slot = record->device == DEVICE_HOST ? PIPELINE_DEVICES : record->device;
	if (pipeline->finished || slot > PIPELINE_DEVICES ||
	    (record->pid != 0 && record->pid != run_header(pipeline->run)->pid))
		return;
	last = &pipeline->sampled[slot];
	figure = record->pid != 0 ? &last->process_bytes : &last->device_bytes;
	if (*figure == record->bytes &&
	    (record->pid != 0 || last->total_bytes == record->total_bytes))
		return; /* nothing new */
	*figure = record->bytes;
	if (record->pid == 0)
		last->total_bytes = record->total_bytes;
	event = (struct event_usage_sample){.device = record->device,
					    .total_mib = last->total_bytes >> 20,
					    .process_bytes = last->process_bytes,
					    .device_bytes = last->device_bytes};
	event_usage_sample_encode(words, &event);
	(void)run_inject(pipeline->run, EVENT_usage_sample, now_ns, words, MSCOPE_COUNT(words));
}

/* ---- when it is over ---- */

static void save_frames(struct pipeline *pipeline)
{
	struct strbuf frames = {0};
	size_t at = 0;
	int r = 0;

	replay_save_frames(pipeline->replay, &frames);
	/* Whole frames only matter within one block, so a very long list is cut at block size and joined by the reader. */
	while (r == 0 && at < frames.length) {
		size_t bytes =
			frames.length - at < PACK_BYTES_MAX ? frames.length - at : PACK_BYTES_MAX;
		struct pack_block meta = {.kind = PACK_FRAMES, .raw_bytes = (uint32_t)bytes};

		r = pack_writer_put(pipeline->pack, &meta, frames.data + at);
		at += bytes;
	}
	if (r == 0)
		r = put_preamble(pipeline);
	if (r == 0)
		r = pack_writer_put(pipeline->pack, &(struct pack_block){.kind = PACK_END}, "");
	if (r < 0)
		(void)error_set(&pipeline->pack_error, r, "cannot write %s: %s",
				pipeline->part_path, mscope_status_str(r));
	strbuf_fini(&frames);
}

/* --insight-close-live: a viewer that loses blocks without a free gets one, marked as ours. Only when asked for. */
static void close_live(struct pipeline *pipeline)
{
	if (pipeline->session->close_live && pipeline->sink_error.code == 0)
		(void)replay_close_live(pipeline->replay);
}

/* The packed trace by a name that also works when somebody removed the file. */
static void open_name(const struct pipeline *pipeline, char out[64])
{
	(void)snprintf(out, 64, "/proc/self/fd/%d", pack_writer_fd(pipeline->pack));
}

/*
 * Makes the files once more, from the packed trace: because facts came that rows already written do not show (`replace`), or
 * because somebody removed the directory they were in.
 */
static int rewrite(struct pipeline *pipeline, bool replace, struct mscope_error *err)
{
	struct export_pass pass = {
		.session = pipeline->session,
		.project = &pipeline->project,
		.elves = pipeline->elves,
		.known = &pipeline->facts,
		.replace = replace,
		.follow_rows = true,
		.follow_analysis = true,
		.follow_stacks = true,
	};
	char name[64];
	int r;

	open_name(pipeline, name);
	r = export_open(&pass, NULL, name, err);
	if (r == 0)
		r = export_write(&pass, err);
	export_close(&pass);
	return r;
}

static int copy_file(const char *from, const char *to)
{
	char temporary[PROJECT_PATH_MAX + 64];
	int in = open(from, O_RDONLY | O_CLOEXEC), out, r = 0;
	struct stat st;
	off_t at = 0;

	(void)snprintf(temporary, sizeof(temporary), "%s.new", to);
	if (in < 0)
		return -errno;
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

	(void)snprintf(path, sizeof(path), "%s/%s", pipeline->project.path, TRACE_NAME);
	open_name(pipeline, name);
	/*
	 * The packed one is whole, so the raw one goes first: whoever recovers from a kill between these lines finds a packed
	 * trace to finish, or nothing, but never an emptied raw one alone.
	 */
	(void)unlink(pipeline->raw_path);
	if (pipeline->session->keep_trace && rename(pipeline->part_path, path) < 0)
		r = copy_file(name, path); /* another file system, or the name is gone */
	if (r == 0)
		(void)unlink(pipeline->part_path);
	else
		(void)error_set(&pipeline->pack_error, r, "cannot put the trace into %s: %s",
				pipeline->project.path, mscope_status_str(r));
}

/* Writes the files again where they are wrong or gone. Needs the whole trace, so not after a part of it was dropped. */
static void remake_files(struct pipeline *pipeline)
{
	bool gone = pipeline->project.made && access(pipeline->project.path, F_OK) < 0;
	struct mscope_error err = {0};

	if ((pipeline->sink_error.code != 0 && !gone) || pipeline->pack == NULL ||
	    pipeline->pack_error.code != 0 || pipeline->shrunk)
		return;
	if (gone) {
		/* What went wrong with files that nobody has any more does not matter. */
		pipeline->sink_error = (struct mscope_error){0};
		log_warn(&pipeline->log,
			 "%s was removed while the program ran; its files are written again",
			 pipeline->project.path);
		pipeline->project.made = pipeline->settled = false;
	}
	if ((gone || (pipeline->facts.changed && pipeline->project.made)) &&
	    rewrite(pipeline, !gone, &err) < 0)
		keep_error(&pipeline->sink_error, &err);
}

static void log_failure(struct pipeline *pipeline, const struct mscope_error *err)
{
	if (err->code != 0)
		log_error(&pipeline->log, "%s", err->message);
}

/* How it ended, what was lost, what failed. */
static void log_end(struct pipeline *pipeline)
{
	const struct report report = {.replay = pipeline->replay, .run = pipeline->run};
	const struct session *session = pipeline->session;
	struct strbuf losses = {0};
	char *line, *rest;
	uint32_t i;

	log_info(&pipeline->log, "process %u %s: %llu events, %llu rows, %u steps",
		 run_header(pipeline->run)->pid, report_is_closed(&report) ? "ended" : "was killed",
		 (unsigned long long)replay_totals(pipeline->replay)->events,
		 (unsigned long long)replay_totals(pipeline->replay)->rows,
		 replay_steps(pipeline->replay));
	report_losses(&report, &losses);
	line = losses.length > 0 ? strtok_r(losses.data, "\n", &rest) : NULL;
	for (; line != NULL; line = strtok_r(NULL, "\n", &rest))
		log_warn(&pipeline->log, "%s", line);
	strbuf_fini(&losses);
	for (i = 0; i < session->step_count && i < SESSION_STEPS_MAX; i++) {
		if (session->steps[i] > replay_steps(pipeline->replay))
			log_warn(&pipeline->log, "step %u never came", session->steps[i]);
	}
	log_failure(pipeline, &pipeline->read_error);
	log_failure(pipeline, &pipeline->pack_error);
	log_failure(pipeline, &pipeline->sink_error);
}

int pipeline_finish(struct pipeline *pipeline, bool (*wanted_stop)(void *arg), void *arg)
{
	struct mscope_error err = {0};
	int r;

	r = run_poll(pipeline->run, 0, true);
	if (r < 0)
		return error_set(&pipeline->read_error, r, "cannot read the trace: %s",
				 mscope_status_str(r));
	while (drain(pipeline, 1u << 20) > 0) {
		if (wanted_stop != NULL && wanted_stop(arg))
			return -EINTR;
	}
	if (pipeline->pack != NULL && pipeline->pack_error.code == 0)
		save_frames(pipeline);
	close_live(pipeline);
	(void)replay_end(pipeline->replay);
	flush(pipeline);
	/* Closed first: a database must not find another file under its name. */
	r = sink_close(pipeline->sink, true, &err);
	pipeline->sink = NULL;
	if (r < 0)
		keep_error(&pipeline->sink_error, &err);
	remake_files(pipeline);
	r = export_report(&pipeline->project, pipeline->replay, &pipeline->analyses, pipeline->run,
			  &err);
	if (r < 0)
		keep_error(&pipeline->sink_error, &err);
	settle(pipeline);
	if (pipeline->project.made) {
		if (pipeline->pack_error.code == 0 && pipeline->read_error.code == 0 &&
		    pipeline->sink_error.code == 0)
			place_trace(pipeline);
		if (pipeline->pack_error.code == 0 && pipeline->sink_error.code == 0)
			project_complete(&pipeline->project);
	}
	log_end(pipeline);
	pipeline->finished = true;
	return pipeline->read_error.code != 0	? pipeline->read_error.code
	       : pipeline->pack_error.code != 0 ? pipeline->pack_error.code
						: pipeline->sink_error.code;
}

void pipeline_close(struct pipeline *pipeline)
{
	if (pipeline->sink != NULL)
		(void)sink_close(pipeline->sink, true, NULL);
	analyses_fini(&pipeline->analyses);
	replay_free(pipeline->replay);
	facts_fini(&pipeline->facts);
	pack_writer_close(pipeline->pack);
	run_close(pipeline->run);
	log_fini(&pipeline->log);
	*pipeline = (struct pipeline){.facts = {.fd = -1}};
}
