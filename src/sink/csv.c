/* SPDX-License-Identifier: Apache-2.0 */
/*
 * memscope_dump_STAMP.csv, one per device: RFC 4180 quoting, "\n" line ends, numbers without locale. A million rows a second:
 * rows are built in a buffer by hand-written number output and leave it by write(2) in large pieces.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/array.h"
#include "sink/sink.h"

#define CSV_FLUSH_BYTES (256u << 10)
#define DUMP_NAME       "memscope_dump_"

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
	struct strbuf common;     /* rows of no device so far: they go into the file of every device */
	struct row common_row;    /* the first of them, for the file that is made when there is no device at all */
	struct context common_context;
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

/* Where row `id` or a later one begins, or one that was not written to its end: everything before stays. */
static off_t rows_before(int fd, uint64_t id)
{
	bool quoted = false, number = true;
	off_t at = 0, line = 0;
	uint64_t value = 0;
	char buffer[65536];
	ssize_t got, i;

	while ((got = read(fd, buffer, sizeof(buffer))) > 0) {
		for (i = 0; i < got; i++) {
			char c = buffer[i];

			if (number && c >= '0' && c <= '9') {
				value = value * 10 + (uint64_t)(c - '0');
				continue;
			}
			if (number && c == ',' && line > 0 && value >= id)
				return line;
			number = false;
			if (c == '"') {
				quoted = !quoted;
			} else if (c == '\n' && !quoted) {
				line = at + i + 1;
				number = true;
				value = 0;
			}
		}
		at += got;
	}
	return line;
}

/* Opens the file that a killed engine wrote for this device, cut before row `id`; false when there is none. */
static bool file_resume(struct file *file, const char *directory, uint64_t id)
{
	const struct dirent *entry;
	DIR *dir = opendir(directory);
	off_t end;

	while (dir != NULL && (entry = readdir(dir)) != NULL && file->fd < 0) {
		size_t length = strlen(entry->d_name);

		if (strncmp(entry->d_name, DUMP_NAME, strlen(DUMP_NAME)) != 0 || length > 100 ||
		    strcmp(entry->d_name + length - 4, ".csv") != 0)
			continue;
		(void)snprintf(file->path, sizeof(file->path), "%s/%.100s", directory, entry->d_name);
		file->fd = open(file->path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
	}
	if (dir != NULL)
		(void)closedir(dir);
	if (file->fd < 0)
		return false;
	end = rows_before(file->fd, id);
	if (ftruncate(file->fd, end) < 0 || lseek(file->fd, end, SEEK_SET) < 0 || end == 0) {
		(void)close(file->fd);
		file->fd = -1;
		return false;
	}
	return true;
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
	file->fd = -1;
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
	if (sink->config.resume) {
		char directory[sizeof(file->path)];

		memcpy(directory, file->path, sizeof(directory));
		if (file_resume(file, directory, row->id)) {
			sink->files[sink->file_count++] = file;
			*out = file;
			return 0;
		}
	}
	(void)snprintf(file->path, sizeof(file->path), "%s/device_%s/dump/" DUMP_NAME "%s.csv%s", project->path,
		       file->device_text, stamp, sink->config.replace ? ".new" : "");
	file->fd = open(file->path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (file->fd < 0) {
		r = error_set(err, -errno, "cannot write %s: %s", file->path, strerror(errno));
		free(file);
		return r;
	}
	strbuf_add(&file->buffer, header, sizeof(header) - 1);
	strbuf_add(&file->buffer, strbuf_str(&sink->common), sink->common.length);
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

static void add_known(struct strbuf *sb, const char *key, size_t length, uint64_t value)
{
	if (value != UINT64_MAX)
		add_key(sb, key, length, value);
}

#define ADD_KNOWN(sb, key, value) add_known(sb, "," key ":", sizeof("," key ":") - 1, value)

/* Attributes of a block: the order of the keys is part of the format. */
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
		ADD_KNOWN(sb, "total", row->reserved_bytes);
		ADD_KNOWN(sb, "process_used", row->process_bytes);
		ADD_KNOWN(sb, "device_used", row->device_bytes);
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

/* Marks are always quoted, as readers expect; other names only when they must be. */
static void add_name(struct strbuf *sb, const struct row *row)
{
	size_t length;

	if (row->name == NULL) {
		ADD_LITERAL(sb, "N/A");
		return;
	}
	length = strlen(row->name);
	if (row->kind == ROW_MARK || row->kind == ROW_RANGE_START || row->kind == ROW_RANGE_END ||
	    strcspn(row->name, ",\"\r\n") != length)
		add_quoted(sb, row->name, length);
	else
		strbuf_add(sb, row->name, length);
}

static void add_row(struct sink *sink, struct replay *replay, const struct row *row, const char *device, struct strbuf *sb)
{
	strbuf_add_u64(sb, row->id);
	strbuf_add_char(sb, ',');
	strbuf_add_str(sb, row_event(row->kind));
	strbuf_add_char(sb, ',');
	strbuf_add_str(sb, row_event_type(row));
	strbuf_add_char(sb, ',');
	add_name(sb, row);
	strbuf_add_char(sb, ',');
	strbuf_add_u64(sb, row->time_ns);
	strbuf_add_char(sb, ',');
	strbuf_add_u64(sb, row->pid);
	strbuf_add_char(sb, ',');
	strbuf_add_u64(sb, row->tid);
	strbuf_add_char(sb, ',');
	strbuf_add_str(sb, device);
	strbuf_add_char(sb, ',');
	if (row->block != NULL) {
		strbuf_add_hex(sb, row->block->address, 16);
		strbuf_add_char(sb, ',');
		add_block_attr(sb, row);
	} else {
		ADD_LITERAL(sb, "N/A,");
		if (row_group(row->kind) == ROW_GROUP_KERNEL) {
			ADD_LITERAL(sb, "\"{streamId:");
			strbuf_add_u64(sb, row->stream);
			ADD_KEY(sb, "taskId", row->task);
			ADD_LITERAL(sb, "}\"");
		}
	}
	ADD_LITERAL(sb, ",,");
	if (sink->config.c_stacks && row->stack != 0)
		add_stack(sink, replay, row->stack, sb);
	strbuf_add_char(sb, '\n');
}

/* A row of no device belongs to all: into every file there is, and first into every file that comes. */
static int add_common(struct sink *sink, struct replay *replay, const struct row *row)
{
	size_t at = sink->common.length, i;

	if (at == 0) {
		sink->common_row = *row;
		sink->common_context = *row->context;
	}
	add_row(sink, replay, row, "N/A", &sink->common);
	for (i = 0; i < sink->file_count && !strbuf_failed(&sink->common); i++)
		strbuf_add(&sink->files[i]->buffer, sink->common.data + at, sink->common.length - at);
	return strbuf_failed(&sink->common) ? -ENOMEM : 0;
}

static int csv_row(struct sink *sink, struct replay *replay, const struct row *row, struct mscope_error *err)
{
	struct file *file = NULL;
	int r;

	if (row_group(row->kind) == ROW_GROUP_KERNEL && !sink->config.kernels)
		return 0;
	if (row->context->device == DEVICE_UNKNOWN && row->block == NULL)
		return add_common(sink, replay, row);
	r = file_for(sink, row, &file, err);
	if (r < 0)
		return r;
	add_row(sink, replay, row, file->device_text, &file->buffer);
	return file->buffer.length >= CSV_FLUSH_BYTES ? file_flush(file, err) : 0;
}

/* A process that marked moments and used no device: its rows go where those of the host go. */
static int place_common(struct sink *sink, struct mscope_error *err)
{
	struct row row = sink->common_row;
	struct context context = sink->common_context;
	struct file *file;

	if (sink->common.length == 0 || sink->file_count > 0)
		return 0;
	context.device = DEVICE_HOST;
	row.context = &context;
	return file_make(sink, &row, &file, err);
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
	if (keep) {
		r = place_common(sink, err);
		if (r == 0)
			r = csv_flush(sink, err);
	}
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
	strbuf_fini(&sink->common);
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
