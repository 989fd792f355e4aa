/* SPDX-License-Identifier: Apache-2.0 */
/*
 * csv: RFC 4180 quoting, "\n" line ends, numbers without locale. Several million rows a second: a row is written in place, by a
 * pointer that moves on, into a buffer that has room for it, and leaves by write(2) in large pieces.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/digits.h"
#include "base/io.h"
#include "dump/csv_text.h"
#include "sink/attr_writer.h"
#include "sink/sink.h"

#define CSV_FLUSH_BYTES (256u << 10)

/* Numbers, words and commas of a row, without its texts and its attributes. */
#define ROW_BYTES 512u

/* Columns Event and Event Type with the commas around them, of a fixed size so that copying one is a few stores. */
struct event_text {
	char text[63];
	uint8_t length;
};

struct form_file {
	int fd;
	const char *path; /* for messages; owned */
	struct strbuf buffer;
	struct event_text events[ROW_END][POOL_END];
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

static void make_events(struct form_file *file)
{
	enum row_kind kind;
	uint8_t pool;

	for (kind = ROW_NONE + 1; kind < ROW_END; kind++) {
		for (pool = 0; pool < POOL_END; pool++) {
			struct event_text *event = &file->events[kind][pool];

			event->length =
				(uint8_t)snprintf(event->text, sizeof(event->text), ",%s,%s,",
						  row_event(kind), row_event_type(kind, pool));
		}
	}
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
	make_events(file);
	if (end == 0)
		dump_csv_header(&dump_rows, &file->buffer);
	*out = file;
	return 0;
}

/* Marks are always quoted, as readers expect; other names only when they must be. */
static char *put_name(char *to, const struct row *row, size_t length)
{
	return row_is_mark(row->kind) ? csv_put_quoted(to, row->name, length)
				      : csv_put_text(to, row->name, length);
}

static char *put_word(char *to, const char *word)
{
	while (*word != '\0')
		*to++ = *word++;
	return to;
}

static char *put_event(char *to, const struct form_file *file, const struct row *row)
{
	uint8_t pool = row->context->pool < POOL_END ? row->context->pool : POOL_UNKNOWN;
	const struct event_text *event = &file->events[row->kind][pool];

	memcpy(to, event->text, sizeof(event->text));
	return to + event->length;
}

static char *put_number(char *to, uint64_t value)
{
	to = digits_put_u64(to, value);
	*to++ = ',';
	return to;
}

/* In quotes, or nothing at all. */
static char *put_attr(char *to, const struct row *row)
{
	char *begin = to + 1, *end = attr_put_csv(begin, row);

	if (end == begin)
		return to;
	*to = '"';
	*end++ = '"';
	return end;
}

static int csv_row(struct form_file *file, const struct row *row, const char *device,
		   struct stack_text python, struct stack_text c, struct mscope_error *err)
{
	size_t name = row->name == NULL ? 0 : strlen(row->name);
	char *to = strbuf_room(&file->buffer, ROW_BYTES + attr_room(row) + 2 * name +
						      2 * python.bytes + 2 * c.bytes);

	if (to == NULL)
		return error_set(err, -ENOMEM, "no memory");
	to = digits_put_u64(to, row->id);
	to = put_event(to, file, row);
	to = row->name == NULL ? put_word(to, WORD_NONE) : put_name(to, row, name);
	*to++ = ',';
	to = put_number(to, row->time_ns);
	to = put_number(to, row->pid);
	to = put_number(to, row->tid);
	to = put_word(to, device);
	*to++ = ',';
	to = row_has_address(row->kind) ? digits_put_address(to, row->address)
					: put_word(to, WORD_NONE);
	*to++ = ',';
	to = put_attr(to, row);
	*to++ = ',';
	if (python.bytes > 0)
		to = csv_put_quoted(to, python.text, python.bytes);
	*to++ = ',';
	if (c.bytes > 0)
		to = csv_put_quoted(to, c.text, c.bytes);
	*to++ = '\n';
	strbuf_end(&file->buffer, to);
	return file->buffer.length >= CSV_FLUSH_BYTES ? csv_flush(file, err) : 0;
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
	.extension = ".csv",
	.calls = CALLS_IN_CSV,
	.open = csv_open,
	.row = csv_row,
	.flush = csv_flush,
	.close = csv_close,
};
