/* SPDX-License-Identifier: Apache-2.0 */
/*
 * memscope_dump_STAMP.csv, one per device: RFC 4180 quoting, "\n" line ends, numbers without locale. A million rows a second:
 * rows are built in a buffer by hand-written number output and leave it by write(2) in large pieces.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/array.h"
#include "sink/sink.h"

#define CSV_FLUSH_BYTES (256u << 10)

static const char header[] = "ID,Event,Event Type,Name,Timestamp(ns),Process Id,Thread Id,Device Id,Ptr,Attr,"
			     "Call Stack(Python),Call Stack(C)\n";

struct file {
	uint32_t device;
	int fd;
	char device_text[16];
	char path[PROJECT_PATH_MAX + 128];
	struct strbuf buffer;
};

struct sink {
	struct sink_config config;
	struct file **files; /* one per device */
	size_t file_count, file_room;
	struct strbuf stack; /* text of the stack of the present row */
	uint32_t stack_id;   /* whose text it is, 0: none */
};

static int csv_open(const struct sink_config *config, struct sink **out, struct mscope_error *err)
{
	struct sink *sink = calloc(1, sizeof(*sink));

	if (sink == NULL)
		return error_set(err, -ENOMEM, "no memory");
	sink->config = *config;
	*out = sink;
	return 0;
}

static int file_flush(struct file *file, struct mscope_error *err)
{
	size_t done = 0;

	if (strbuf_failed(&file->buffer))
		return error_set(err, -ENOMEM, "no memory");
	while (done < file->buffer.length) {
		ssize_t wrote = write(file->fd, file->buffer.data + done, file->buffer.length - done);

		if (wrote < 0 && errno == EINTR)
			continue;
		if (wrote < 0) {
			/* Keep what did not go out: the disk may have room again at the next flush. */
			int error = errno;

			memmove(file->buffer.data, file->buffer.data + done, file->buffer.length - done);
			file->buffer.length -= done;
			return error_set(err, -error, "cannot write %s: %s", file->path, strerror(error));
		}
		done += (size_t)wrote;
	}
	strbuf_reset(&file->buffer);
	return 0;
}

static int file_make(struct sink *sink, const struct row *row, struct file **out, struct mscope_error *err)
{
	struct project *project = sink->config.project;
	struct file *file;
	char stamp[16];
	int r;

	r = project_make(project, row->context->vendor, err);
	if (r < 0)
		return r;
	r = array_reserve(&sink->files, &sink->file_room, sink->file_count + 1, sizeof(*sink->files));
	file = r < 0 ? NULL : calloc(1, sizeof(*file));
	if (file == NULL)
		return error_set(err, -ENOMEM, "no memory");
	file->device = row->context->device;
	project_device_text(file->device, file->device_text);
	project_stamp(row->time_ns, project->utc_offset_s, stamp);
	(void)snprintf(file->path, sizeof(file->path), "%s/device_%s/dump", project->path, file->device_text);
	r = project_mkdirs(file->path);
	if (r < 0) {
		(void)error_set(err, r, "cannot create %s: %s", file->path, strerror(-r));
		free(file);
		return r;
	}
	(void)snprintf(file->path, sizeof(file->path), "%s/device_%s/dump/memscope_dump_%s.csv%s", project->path,
		       file->device_text, stamp, sink->config.replace ? ".new" : "");
	file->fd = open(file->path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (file->fd < 0) {
		r = error_set(err, -errno, "cannot write %s: %s", file->path, strerror(errno));
		free(file);
		return r;
	}
	strbuf_add(&file->buffer, header, sizeof(header) - 1);
	sink->files[sink->file_count++] = file;
	*out = file;
	return 0;
}

static int file_for(struct sink *sink, const struct row *row, struct file **out, struct mscope_error *err)
{
	size_t i;

	for (i = 0; i < sink->file_count; i++) {
		if (sink->files[i]->device == row->context->device) {
			*out = sink->files[i];
			return 0;
		}
	}
	return file_make(sink, row, out, err);
}

/* ---- rows ---- */

#define ADD_LITERAL(sb, text) strbuf_add(sb, text, sizeof(text) - 1)

static void add_key(struct strbuf *sb, const char *key, size_t length, uint64_t value)
{
	strbuf_add(sb, key, length);
	strbuf_add_u64(sb, value);
}

#define ADD_KEY(sb, key, value) add_key(sb, "," key ":", sizeof("," key ":") - 1, value)

/* The keys of behaviour.md 3.2 in their order. */
static void add_block_attr(struct strbuf *sb, const struct row *row)
{
	const struct block *block = row->block;
	const struct context *context = row->context;

	ADD_LITERAL(sb, "\"{allocation_id:");
	strbuf_add_u64(sb, block->allocation_id);
	ADD_LITERAL(sb, ",addr:");
	strbuf_add_hex(sb, block->address, 16);
	ADD_KEY(sb, "size", block->size_bytes);
	if (row->shadow) {
		ADD_LITERAL(sb, ",shadow:true");
	} else {
		if (context->pool == POOL_host_pinned)
			ADD_LITERAL(sb, ",pinned:true");
		ADD_KEY(sb, "used", row->used_bytes);
	}
	if (row->kind == ROW_MALLOC && context->pool == POOL_hal) {
		static const char *const pages[] = {
			[PAGE_UNKNOWN] = "unknown", [PAGE_NORMAL] = "normal", [PAGE_HUGE] = "huge", [PAGE_GIANT] = "giant"};

		ADD_LITERAL(sb, ",page_type:");
		strbuf_add_str(sb, pages[context->page < MSCOPE_COUNT(pages) ? context->page : PAGE_UNKNOWN]);
		if (context->kind == BLOCK_CREATE)
			ADD_LITERAL(sb, ",alloc_type:create");
		else
			ADD_LITERAL(sb, ",alloc_type:alloc");
	}
	ADD_LITERAL(sb, "}\"");
}

/* A quoted field: quotes inside are doubled, everything else stays. */
static void add_quoted(struct strbuf *sb, const char *text, size_t length)
{
	const char *end = text + length;

	strbuf_add_char(sb, '"');
	while (text < end) {
		const char *quote = memchr(text, '"', (size_t)(end - text));
		size_t plain = (size_t)((quote == NULL ? end : quote + 1) - text);

		strbuf_add(sb, text, plain);
		if (quote != NULL)
			strbuf_add_char(sb, '"');
		text += plain;
	}
	strbuf_add_char(sb, '"');
}

/* One frame per line, innermost first. The text of the last stack is kept: a loop allocates at one place many times. */
static void add_stack(struct sink *sink, struct replay *replay, uint32_t stack, struct strbuf *sb)
{
	uint32_t count, i;
	const struct frame *frames;

	if (sink->stack_id != stack) {
		frames = stacks_frames(&replay->stacks, stack, &count);
		strbuf_reset(&sink->stack);
		for (i = 0; i < count; i++) {
			strbuf_add_str(&sink->stack, stacks_frame_text(&replay->stacks, &frames[i]));
			strbuf_add_char(&sink->stack, '\n');
		}
		sink->stack_id = stack;
	}
	add_quoted(sb, strbuf_str(&sink->stack), sink->stack.length);
}

static int csv_row(struct sink *sink, struct replay *replay, const struct row *row, struct mscope_error *err)
{
	struct file *file = NULL;
	struct strbuf *sb;
	int r = file_for(sink, row, &file, err);

	if (r < 0)
		return r;
	sb = &file->buffer;
	strbuf_add_u64(sb, row->id);
	if (row->kind == ROW_MALLOC)
		ADD_LITERAL(sb, ",MALLOC,");
	else
		ADD_LITERAL(sb, ",FREE,");
	strbuf_add_str(sb, pool_event_type(row->context->pool));
	ADD_LITERAL(sb, ",N/A,");
	strbuf_add_u64(sb, row->time_ns);
	strbuf_add_char(sb, ',');
	strbuf_add_u64(sb, row->pid);
	strbuf_add_char(sb, ',');
	strbuf_add_u64(sb, row->tid);
	strbuf_add_char(sb, ',');
	strbuf_add_str(sb, file->device_text);
	strbuf_add_char(sb, ',');
	strbuf_add_hex(sb, row->block->address, 16);
	strbuf_add_char(sb, ',');
	add_block_attr(sb, row);
	ADD_LITERAL(sb, ",,");
	if (sink->config.c_stacks && row->stack != 0)
		add_stack(sink, replay, row->stack, sb);
	strbuf_add_char(sb, '\n');
	return sb->length >= CSV_FLUSH_BYTES ? file_flush(file, err) : 0;
}

static int csv_flush(struct sink *sink, struct mscope_error *err)
{
	size_t i;
	int r, first = 0;

	for (i = 0; i < sink->file_count; i++) {
		r = file_flush(sink->files[i], first == 0 ? err : NULL);
		if (first == 0)
			first = r;
	}
	return first;
}

static int csv_close(struct sink *sink, bool keep, struct mscope_error *err)
{
	int r = 0;
	size_t i;

	if (sink == NULL)
		return 0;
	if (keep)
		r = csv_flush(sink, err);
	for (i = 0; i < sink->file_count; i++) {
		struct file *file = sink->files[i];

		(void)close(file->fd);
		if (sink->config.replace) {
			char final[sizeof(file->path)];

			memcpy(final, file->path, sizeof(final));
			final[strlen(final) - strlen(".new")] = '\0';
			if (!keep || r < 0)
				(void)unlink(file->path);
			else if (rename(file->path, final) < 0)
				r = error_set(err, -errno, "cannot replace %s: %s", final, strerror(errno));
		}
		strbuf_fini(&file->buffer);
		free(file);
	}
	strbuf_fini(&sink->stack);
	free(sink->files);
	free(sink);
	return r;
}

const struct sink_ops sink_csv = {
	.name = "csv",
	.open = csv_open,
	.row = csv_row,
	.flush = csv_flush,
	.close = csv_close,
};
