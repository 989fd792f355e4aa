/* SPDX-License-Identifier: Apache-2.0 */
/*
 * csv: RFC 4180 quoting, "\n" line ends, numbers without locale. A million rows a second: rows are built in a buffer by
 * hand-written number output and leave it by write(2) in large pieces.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/io.h"
#include "sink/attr.h"
#include "sink/sink.h"

#define CSV_FLUSH_BYTES (256u << 10)

static const char header[] =
	"ID,Event,Event Type,Name,Timestamp(ns),Process Id,Thread Id,Device Id,Ptr,Attr,"
	"Call Stack(Python),Call Stack(C)\n";

struct form_file {
	int fd;
	const char *path; /* for messages; owned */
	struct strbuf buffer;
};

static int csv_flush(struct form_file *file, struct mscope_error *err)
{
	int r = io_flush(file->fd, &file->buffer);

	return r == 0 ? 0 : error_set(err, r, "cannot write %s: %s", file->path, strerror(-r));
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

static int csv_open(const char *path, bool resume, uint64_t first_id, struct form_file **out,
		    struct mscope_error *err)
{
	struct form_file *file = calloc(1, sizeof(*file));
	off_t end = 0;

	if (file == NULL || (file->path = strdup(path)) == NULL) {
		free(file);
		return error_set(err, -ENOMEM, "no memory");
	}
	file->fd = open(path,
			(resume ? O_RDWR : O_WRONLY | O_TRUNC) | O_CREAT | O_CLOEXEC | O_NOFOLLOW,
			0600);
	if (file->fd >= 0 && resume)
		end = rows_before(file->fd, first_id);
	if (file->fd < 0 || ftruncate(file->fd, end) < 0 || lseek(file->fd, end, SEEK_SET) < 0) {
		int r = error_set(err, -errno, "cannot write %s: %s", path, strerror(errno));

		if (file->fd >= 0)
			(void)close(file->fd);
		free((char *)(uintptr_t)file->path);
		free(file);
		return r;
	}
	if (end == 0)
		strbuf_add(&file->buffer, header, sizeof(header) - 1);
	*out = file;
	return 0;
}

#define ADD_LITERAL(sb, text) strbuf_add(sb, text, sizeof(text) - 1)

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

void csv_add_text(struct strbuf *sb, const char *text, size_t length)
{
	if (strcspn(text, ",\"\r\n") < length)
		add_quoted(sb, text, length);
	else
		strbuf_add(sb, text, length);
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
	if (row->kind == ROW_MARK || row->kind == ROW_RANGE_START || row->kind == ROW_RANGE_END)
		add_quoted(sb, row->name, length);
	else
		csv_add_text(sb, row->name, length);
}

static int csv_row(struct form_file *file, const struct row *row, const char *device,
		   struct stack_text python, struct stack_text c, struct mscope_error *err)
{
	struct strbuf *sb = &file->buffer;
	size_t attr;

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
	if (row_has_address(row))
		strbuf_add_hex(sb, row->address, 16);
	else
		ADD_LITERAL(sb, "N/A");
	ADD_LITERAL(sb, ",\"");
	attr = sb->length;
	attr_add(sb, ATTR_CSV, row);
	if (sb->length == attr)
		sb->length--; /* no attributes: no quotes either */
	else
		strbuf_add_char(sb, '"');
	strbuf_add_char(sb, ',');
	if (python.bytes > 0)
		add_quoted(sb, python.text, python.bytes);
	strbuf_add_char(sb, ',');
	if (c.bytes > 0)
		add_quoted(sb, c.text, c.bytes);
	strbuf_add_char(sb, '\n');
	return sb->length >= CSV_FLUSH_BYTES ? csv_flush(file, err) : 0;
}

static int csv_close(struct form_file *file, bool keep, struct mscope_error *err)
{
	int r = keep ? csv_flush(file, err) : 0;

	if (close(file->fd) < 0 && keep && r == 0)
		r = error_set(err, -errno, "cannot write %s: %s", file->path, strerror(errno));
	strbuf_fini(&file->buffer);
	free((char *)(uintptr_t)file->path);
	free(file);
	return r;
}

const struct sink_form form_csv = {
	.name = "csv",
	.extension = ".csv",
	.open = csv_open,
	.row = csv_row,
	.flush = csv_flush,
	.close = csv_close,
};
