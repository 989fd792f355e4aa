/* SPDX-License-Identifier: Apache-2.0 */
/*
 *     spool: { tid, bytes, rows } ...      row: { start, end, text length } text
 */
#include "sink/call_files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/array.h"
#include "base/io.h"
#include "base/map.h"
#include "dump/csv_text.h"
#include "trace/context.h"

#define BUFFER_BYTES (32u << 10)
#define CSV_BYTES    (256u << 10)

struct call_thread_file {
	uint32_t tid;
	uint32_t pid;
	uint32_t device;
	uint8_t vendor;
	bool placed; /* its file is decided, and stays so */
	uint64_t first_ns;
	struct strbuf rows;		   /* not yet in the spool */
	struct form_file *form;		   /* where it goes, in a form with one file */
	char path[PROJECT_PATH_MAX + 160]; /* else where its own file is */
};

struct spool_block {
	uint32_t tid;
	uint32_t bytes;
};

struct packed_row {
	uint64_t start_ns;
	uint64_t end_ns;
	uint64_t text_bytes;
};

struct call_files {
	struct sink_config config;
	struct sink *sink;
	int spool;
	bool spooled; /* something is in it */
	struct call_thread_file **threads;
	size_t thread_count, thread_room;
	struct map by_tid;
	struct strbuf csv; /* rows of one thread on their way to its file */
	struct strbuf block;
};

static int failed_to(const char *verb, const char *what, int r, struct mscope_error *err)
{
	return error_set(err, r, "cannot %s %s: %s", verb, what, strerror(-r));
}

int call_files_open(const struct sink_config *config, struct sink *sink, struct call_files **out,
		    struct mscope_error *err)
{
	struct call_files *files = calloc(1, sizeof(*files));
	int r;

	if (files == NULL)
		return error_set(err, -ENOMEM, "no memory");
	files->config = *config;
	files->sink = sink;
	files->spool = io_unnamed(config->spool);
	if (files->spool < 0) {
		r = error_set(err, files->spool, "cannot create a file in %s: %s", config->spool,
			      strerror(-files->spool));
		free(files);
		return r;
	}
	*out = files;
	return 0;
}

/* ---- taking rows ---- */

static struct call_thread_file *thread_for(struct call_files *files, const struct sink_call *call)
{
	struct map_key key = {call->tid, 0};
	uint64_t *known = map_get(&files->by_tid, key);
	struct call_thread_file *thread;

	if (known != NULL)
		return files->threads[*known];
	if (ARRAY_RESERVE(files->threads, files->thread_room, files->thread_count + 1) < 0)
		return NULL;
	thread = calloc(1, sizeof(*thread));
	if (thread == NULL || map_put(&files->by_tid, key, files->thread_count) < 0) {
		free(thread);
		return NULL;
	}
	thread->tid = call->tid;
	thread->pid = call->pid;
	thread->device = DEVICE_UNKNOWN;
	thread->first_ns = call->start_ns != 0 ? call->start_ns : call->end_ns;
	files->threads[files->thread_count++] = thread;
	return thread;
}

static int spool_put(struct call_files *files, struct call_thread_file *thread,
		     struct mscope_error *err)
{
	struct spool_block block = {.tid = thread->tid, .bytes = (uint32_t)thread->rows.length};
	int r = io_write(files->spool, &block, sizeof(block));

	if (r == 0)
		r = io_write(files->spool, thread->rows.data, thread->rows.length);
	if (r < 0)
		return failed_to("keep", "the Python trace", r, err);
	files->spooled = true;
	strbuf_reset(&thread->rows);
	return 0;
}

int call_files_put(struct call_files *files, const struct sink_call *call, uint32_t device,
		   uint8_t vendor, struct mscope_error *err)
{
	struct call_thread_file *thread = thread_for(files, call);
	struct packed_row row = {.start_ns = call->start_ns,
				 .end_ns = call->end_ns,
				 .text_bytes = strlen(call->text)};

	if (thread == NULL)
		return error_set(err, -ENOMEM, "no memory");
	if (!thread->placed) {
		thread->vendor = vendor;
		if (thread->device == DEVICE_UNKNOWN)
			thread->device = device;
	}
	if (row.start_ns != 0 && row.start_ns < thread->first_ns && !thread->placed)
		thread->first_ns = row.start_ns;
	strbuf_add(&thread->rows, &row, sizeof(row));
	strbuf_add(&thread->rows, call->text, row.text_bytes + 1);
	if (strbuf_failed(&thread->rows))
		return error_set(err, -ENOMEM, "no memory");
	return thread->rows.length < BUFFER_BYTES ? 0 : spool_put(files, thread, err);
}

/* ---- writing them ---- */

static int choose_place(struct call_files *files, struct call_thread_file *thread,
			struct mscope_error *err)
{
	struct project *project = files->config.project;
	char stamp[16], device[16], directory[PROJECT_PATH_MAX + 64];
	int fd, r;

	if (thread->device == DEVICE_UNKNOWN)
		thread->device = DEVICE_HOST;
	if (files->config.form->calls == CALLS_IN_FILE) {
		r = sink_file(files->sink, thread->device, thread->vendor, thread->first_ns,
			      &thread->form, err);
		thread->placed = r == 0;
		return r;
	}
	r = project_make(project, thread->vendor, err);
	if (r < 0)
		return r;
	project_device_text(thread->device, device);
	(void)snprintf(directory, sizeof(directory), "%s/device_%s/dump", project->path, device);
	r = project_mkdirs(directory);
	if (r < 0)
		return error_set(err, r, "cannot create %s: %s", directory, strerror(-r));
	project_stamp(thread->first_ns, project->utc_offset_s, stamp);
	(void)snprintf(thread->path, sizeof(thread->path), "%s/" CALL_TABLE "_%u_%s.csv%s",
		       directory, thread->tid, stamp, files->config.replace ? ".new" : "");
	fd = open(thread->path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
	strbuf_reset(&files->csv);
	dump_csv_header(&dump_calls, &files->csv);
	r = fd < 0 ? -errno : io_flush(fd, &files->csv);
	if (r < 0)
		(void)failed_to("write", thread->path, r, err);
	if (fd >= 0)
		(void)close(fd);
	thread->placed = r == 0;
	project->dumps += r == 0;
	return r;
}

static void add_time(struct strbuf *sb, uint64_t time_ns)
{
	if (time_ns == 0)
		strbuf_add_str(sb, WORD_NONE);
	else
		strbuf_add_u64(sb, time_ns);
	strbuf_add_char(sb, ',');
}

static void add_csv(struct strbuf *sb, const struct sink_call *call, size_t text_bytes)
{
	csv_add_text(sb, call->text, text_bytes);
	strbuf_add_char(sb, ',');
	add_time(sb, call->start_ns);
	add_time(sb, call->end_ns);
	strbuf_add_u64(sb, call->tid);
	strbuf_add_char(sb, ',');
	strbuf_add_u64(sb, call->pid);
	strbuf_add_char(sb, '\n');
}

static int write_csv(struct call_files *files, const struct call_thread_file *thread,
		     struct mscope_error *err)
{
	/* Opened for the moment: a program may have more threads than we may have files. */
	int fd = open(thread->path, O_WRONLY | O_APPEND | O_CLOEXEC | O_NOFOLLOW);
	int r = fd < 0 ? -errno : io_flush(fd, &files->csv);

	if (r < 0)
		(void)failed_to("write", thread->path, r, err);
	if (fd >= 0)
		(void)close(fd);
	strbuf_reset(&files->csv);
	return r;
}

static int write_rows(struct call_files *files, struct call_thread_file *thread, const char *rows,
		      size_t bytes, struct mscope_error *err)
{
	size_t at = 0;
	int r = 0;

	strbuf_reset(&files->csv);
	while (at < bytes && r == 0) {
		struct packed_row row;
		struct sink_call call = {.pid = thread->pid, .tid = thread->tid};

		memcpy(&row, rows + at, sizeof(row));
		call.text = rows + at + sizeof(row);
		call.start_ns = row.start_ns;
		call.end_ns = row.end_ns;
		at += sizeof(row) + row.text_bytes + 1;
		if (files->config.form->calls == CALLS_IN_FILE)
			r = files->config.form->call(thread->form, &call, err);
		else
			add_csv(&files->csv, &call, row.text_bytes);
		if (files->csv.length >= CSV_BYTES)
			r = write_csv(files, thread, err);
	}
	return r == 0 && files->csv.length > 0 ? write_csv(files, thread, err) : r;
}

static int write_spool(struct call_files *files, struct mscope_error *err)
{
	struct spool_block block;
	off_t at = 0;
	int r = 0;

	while (r == 0 && pread(files->spool, &block, sizeof(block), at) == (ssize_t)sizeof(block)) {
		uint64_t *known = map_get(&files->by_tid, (struct map_key){block.tid, 0});

		strbuf_reset(&files->block);
		if (strbuf_room(&files->block, block.bytes) == NULL)
			return error_set(err, -ENOMEM, "no memory");
		at += (off_t)sizeof(block);
		if (known == NULL ||
		    pread(files->spool, files->block.data, block.bytes, at) != (ssize_t)block.bytes)
			return error_set(err, -EIO, "cannot read back the Python trace");
		at += block.bytes;
		r = write_rows(files, files->threads[*known], files->block.data, block.bytes, err);
	}
	if (r == 0 && (ftruncate(files->spool, 0) < 0 || lseek(files->spool, 0, SEEK_SET) < 0))
		r = failed_to("keep", "the Python trace", -errno, err);
	files->spooled = false;
	return r;
}

int call_files_publish(struct call_files *files, struct mscope_error *err)
{
	size_t i;
	int r = 0;

	for (i = 0; files != NULL && i < files->thread_count && r == 0; i++) {
		if (!files->threads[i]->placed)
			r = choose_place(files, files->threads[i], err);
	}
	if (files != NULL && r == 0 && files->spooled)
		r = write_spool(files, err);
	for (i = 0; files != NULL && i < files->thread_count && r == 0; i++) {
		struct call_thread_file *thread = files->threads[i];

		r = write_rows(files, thread, strbuf_str(&thread->rows), thread->rows.length, err);
		strbuf_reset(&thread->rows);
	}
	return r;
}

/* A file of a replacing pass takes the place of the one before it. */
static int replace(const struct call_thread_file *thread, bool keep, struct mscope_error *err)
{
	char final[sizeof(thread->path)];

	if (!keep) {
		(void)unlink(thread->path);
		return 0;
	}
	memcpy(final, thread->path, sizeof(final));
	final[strlen(final) - strlen(".new")] = '\0';
	return rename(thread->path, final) < 0 ? failed_to("replace", final, -errno, err) : 0;
}

int call_files_close(struct call_files *files, bool keep, struct mscope_error *err)
{
	int r = keep ? call_files_publish(files, err) : 0;
	size_t i;

	if (files == NULL)
		return 0;
	for (i = 0; i < files->thread_count; i++) {
		struct call_thread_file *thread = files->threads[i];

		if (files->config.replace && thread->placed && thread->path[0] != '\0' && r == 0)
			r = replace(thread, keep, err);
		strbuf_fini(&thread->rows);
		free(thread);
	}
	free(files->threads);
	map_fini(&files->by_tid);
	strbuf_fini(&files->csv);
	strbuf_fini(&files->block);
	(void)close(files->spool);
	free(files);
	return r;
}
