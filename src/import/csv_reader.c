/* SPDX-License-Identifier: Apache-2.0 */
#include "import/csv_reader.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define READ_BYTES (256u << 10)

void csv_init(struct csv_reader *reader, int fd)
{
	*reader = (struct csv_reader){.fd = fd, .line = 1};
}

void csv_fini(struct csv_reader *reader)
{
	free(reader->buffer);
	*reader = (struct csv_reader){.fd = -1};
}

const char *csv_fault_text(enum csv_fault fault)
{
	switch (fault) {
	case CSV_QUOTE:
		return "a quote is misplaced";
	case CSV_TOO_LONG:
		return "the row is too long";
	case CSV_NUL:
		return "the row is not text";
	case CSV_CUT:
		return "the file ends inside of it";
	case CSV_WHOLE:
		break;
	}
	return "nothing is wrong";
}

/* Gets more bytes behind those that are there. False when there is no more of them. */
static int fill(struct csv_reader *reader, bool *out_more)
{
	size_t wanted;
	ssize_t got;

	if (reader->start > 0) {
		memmove(reader->buffer, reader->buffer + reader->start,
			reader->end - reader->start);
		reader->end -= reader->start;
		reader->start = 0;
	}
	wanted = reader->end + READ_BYTES;
	/* One byte more than is read: a field at the very end needs its NUL. */
	if (reader->room < wanted + 1) {
		char *grown = realloc(reader->buffer, wanted + 1);

		if (grown == NULL)
			return -ENOMEM;
		reader->buffer = grown;
		reader->room = wanted + 1;
	}
	do {
		got = read(reader->fd, reader->buffer + reader->end, READ_BYTES);
	} while (got < 0 && errno == EINTR);
	if (got < 0)
		return -errno;
	reader->end += (size_t)got;
	reader->bytes += (uint64_t)got;
	reader->at_end = got == 0;
	*out_more = got > 0;
	return 0;
}

enum state {
	FIELD_BEGINS,
	PLAIN,
	QUOTED,
	QUOTE_IN_QUOTED, /* the end of the quotes, or the first of two */
};

/* Where a scan of the record stands; positions count from reader->start, so that they survive a fill(). */
struct scan {
	size_t at;
	enum state state;
	uint64_t lines;
	size_t field_at[CSV_FIELDS_MAX];
	size_t field_end[CSV_FIELDS_MAX];
	size_t fields;
	bool ended; /* by a line end, which stands at `at` */
};

static void scan_begin(struct scan *scan)
{
	scan->at = scan->fields = scan->field_at[0] = 0;
	scan->state = FIELD_BEGINS;
	scan->lines = 0;
	scan->ended = false;
}

static void field_begin(struct scan *scan)
{
	scan->field_at[scan->fields] = scan->at;
	scan->state = FIELD_BEGINS;
}

/* Sixteen bytes at a time; the compiler knows how on each machine. */
typedef uint8_t bytes16 __attribute__((vector_size(16)));

/* Bytes that end a run of ordinary ones: 0, a quote, a line end, and outside of quotes a comma. */
static inline bool ends_run(char c, char comma)
{
	return c == '\0' || c == '"' || c == '\n' || c == comma;
}

/* The first byte from `at` on, before `end`, that means something in this state. */
static inline size_t skip_ordinary(const char *data, size_t at, size_t end, enum state state)
{
	char comma = state == QUOTED ? '"' : ',';

	for (; at + sizeof(bytes16) <= end; at += sizeof(bytes16)) {
		uint64_t halves[2];
		bytes16 text;

		memcpy(&text, data + at, sizeof(text));
		text = (bytes16)((text == 0) | (text == '"') | (text == '\n') |
				 (text == (uint8_t)comma));
		memcpy(halves, &text, sizeof(halves));
		if (halves[0] != 0)
			return at + (size_t)__builtin_ctzll(halves[0]) / 8;
		if (halves[1] != 0)
			return at + 8 + (size_t)__builtin_ctzll(halves[1]) / 8;
	}
	while (at < end && !ends_run(data[at], comma))
		at++;
	return at;
}

/* Scans as far as there are bytes. CSV_CUT: more are wanted. */
static enum csv_fault scan_on(const struct csv_reader *reader, struct scan *scan)
{
	const char *data = reader->buffer + reader->start;
	size_t bytes = reader->end - reader->start;

	for (; scan->at < bytes; scan->at++) {
		char c;

		if (scan->state == QUOTED || scan->state == PLAIN) {
			scan->at = skip_ordinary(data, scan->at,
						 bytes < CSV_RECORD_MAX ? bytes : CSV_RECORD_MAX,
						 scan->state);
			if (scan->at == bytes)
				break;
		}
		c = data[scan->at];
		if (c == '\0')
			return CSV_NUL;
		if (scan->at >= CSV_RECORD_MAX)
			return CSV_TOO_LONG;
		if (scan->state == QUOTED) {
			scan->lines += c == '\n';
			if (c == '"')
				scan->state = QUOTE_IN_QUOTED;
			continue;
		}
		if (c == '"') {
			if (scan->state == PLAIN)
				return CSV_QUOTE;
			scan->state = QUOTED; /* opens, or is the second of two */
			continue;
		}
		if (c == ',' || c == '\n') {
			scan->field_end[scan->fields++] = scan->at;
			if (c == '\n') {
				scan->ended = true;
				return CSV_WHOLE;
			}
			if (scan->fields == CSV_FIELDS_MAX)
				return CSV_TOO_LONG;
			scan->at++;
			field_begin(scan);
			scan->at--;
			continue;
		}
		if (scan->state == QUOTE_IN_QUOTED) {
			/* A line end of two bytes may follow; its second decides. */
			if (c != '\r' || (scan->at + 1 < bytes && data[scan->at + 1] != '\n'))
				return CSV_QUOTE;
			if (scan->at + 1 == bytes)
				return CSV_CUT;
			continue;
		}
		scan->state = PLAIN;
	}
	return CSV_CUT;
}

/* Takes the quotes off a field, in place, and ends it with a NUL where its comma or line end stood. */
static struct csv_field unquote(char *from, char *end)
{
	char *read, *write = from;

	*end = '\0';
	if (*from != '"' || from == end)
		return (struct csv_field){.text = from, .length = (size_t)(end - from)};
	/* Few have quotes inside. */
	read = memchr(from + 1, '"', (size_t)(end - from - 1));
	if (read != NULL && (read + 1 == end || read[1] != '"')) {
		*read = '\0';
		return (struct csv_field){.text = from + 1, .length = (size_t)(read - from - 1)};
	}
	for (read = from + 1; read < end && !(*read == '"' && read[1] != '"'); read++) {
		*write++ = *read;
		read += *read == '"';
	}
	*write = '\0';
	return (struct csv_field){.text = from, .length = (size_t)(write - from)};
}

static void take_fields(struct csv_reader *reader, const struct scan *scan)
{
	char *data = reader->buffer + reader->start;
	size_t i, end;

	for (i = 0; i < scan->fields; i++) {
		end = scan->field_end[i];
		/* CRLF: the CR belongs to the line end. */
		if (i + 1 == scan->fields && end > scan->field_at[i] && data[end - 1] == '\r') {
			data[end] = '\0';
			end--;
		}
		/* What closes the quotes must not be taken for the first of two, so the byte behind is set first. */
		data[end] = '\0';
		reader->fields[i] = unquote(data + scan->field_at[i], data + end);
	}
	reader->field_count = scan->fields;
}

/* Passes over the line that the bad record begins with. Bytes of it that are not there yet are read and forgotten. */
static int skip_line(struct csv_reader *reader)
{
	for (;;) {
		char *data = reader->buffer + reader->start;
		char *end = memchr(data, '\n', reader->end - reader->start);
		bool more = false;
		int r;

		if (end != NULL) {
			reader->start += (size_t)(end - data) + 1;
			reader->line++;
			return 0;
		}
		reader->start = reader->end = 0;
		r = reader->at_end ? 0 : fill(reader, &more);
		if (r < 0 || !more)
			return r;
	}
}

static int skip_mark(struct csv_reader *reader)
{
	bool more = true;
	int r = 0;

	while (r == 0 && more && reader->end < 3)
		r = fill(reader, &more);
	reader->begun = true;
	if (reader->end >= 3 && memcmp(reader->buffer, "\xef\xbb\xbf", 3) == 0)
		reader->start = 3;
	return r;
}

int csv_next(struct csv_reader *reader)
{
	struct scan scan;
	bool more;
	int r = reader->begun ? 0 : skip_mark(reader);

	scan_begin(&scan);
	while (r == 0) {
		enum csv_fault fault = scan_on(reader, &scan);

		if (fault == CSV_CUT && !reader->at_end) {
			r = fill(reader, &more);
			continue;
		}
		if (fault == CSV_CUT && reader->end == reader->start)
			return 0;
		reader->unended = fault == CSV_CUT;
		/* The last line may lack its end; inside quotes there is no telling what is missing. */
		if (fault == CSV_CUT && scan.state != QUOTED) {
			scan.at = reader->end -
				  reader->start; /* behind a CR that waited for its LF */
			scan.field_end[scan.fields++] = scan.at;
			fault = CSV_WHOLE;
		}
		reader->fault = fault;
		reader->record_line = reader->line;
		if (fault != CSV_WHOLE) {
			reader->field_count = 0;
			r = skip_line(reader);
			return r < 0 ? r : 1;
		}
		take_fields(reader, &scan);
		reader->start += scan.at + scan.ended;
		reader->line += scan.lines + scan.ended;
		if (reader->field_count > 1 || reader->fields[0].length > 0)
			return 1;
		scan_begin(&scan);
	}
	return r;
}
