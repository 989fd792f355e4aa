/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading csv as RFC 4180 has it: fields in quotes may hold commas, doubled quotes and line ends; lines end with LF or CRLF; a
 * byte order mark is passed over. The file is read piece by piece, never mapped, so one that changes or ends meanwhile does no
 * harm, and memory is bounded by the longest record, which is bounded too.
 *
 * A record that breaks these rules is skipped up to the end of its first line, and reading continues behind it. Not thread-safe.
 */
#ifndef MSCOPE_IMPORT_CSV_READER_H
#define MSCOPE_IMPORT_CSV_READER_H

#include <stdbool.h>

#include "base/status.h"

/* A row has at most two call stacks of 1,000 frames each. */
#define CSV_RECORD_MAX (1u << 20)
#define CSV_FIELDS_MAX 64u

struct csv_field {
	const char *text; /* without its quotes, NUL-terminated; quotes inside are single again */
	size_t length;
};

enum csv_fault {
	CSV_WHOLE,
	CSV_QUOTE,    /* a quote where none may stand */
	CSV_TOO_LONG, /* longer than CSV_RECORD_MAX, or more than CSV_FIELDS_MAX fields */
	CSV_NUL,      /* a byte 0, which no text has */
	CSV_CUT,      /* the file ends inside quotes */
};

struct csv_reader {
	int fd; /* borrowed; read from its present offset on */
	char *buffer;
	size_t room, start, end; /* what was not returned yet lies from `start` to `end` */
	bool at_end;		 /* of the file */
	bool begun;		 /* the byte order mark has been skipped */
	uint64_t line;		 /* in which the next record begins, from 1 */
	uint64_t bytes;		 /* read so far */
	/* Of the last record. */
	struct csv_field fields[CSV_FIELDS_MAX];
	size_t field_count;
	uint64_t record_line;
	enum csv_fault fault;
	bool unended; /* no line end followed it */
};

void csv_init(struct csv_reader *reader, int fd);
void csv_fini(struct csv_reader *reader);

/*
 * Reads the next record into `fields`, valid until the next call. 1, also when it is malformed, see `fault`; 0 at the end
 * of the file; -errno. Empty lines are passed over.
 */
int csv_next(struct csv_reader *reader);

/* What is wrong with a record, in words that follow "line 7: ". */
const char *csv_fault_text(enum csv_fault fault);

#endif
