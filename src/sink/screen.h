/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The answer on one screen: is there a problem, where, how big and how fast, how sure, what to do next. At most SCREEN_ROWS
 * rows of SCREEN_COLUMNS for any number of processes of any size (a blank line before it, and a line about the machine, make 25).
 * Groups instead of lists, the largest first, a count instead of the rest. A part without room is left out whole, and named in the
 * last line. Lines are cut at the last column, except those that a person copies (paths): they count as the rows that they take.
 */
#ifndef MSCOPE_SINK_SCREEN_H
#define MSCOPE_SINK_SCREEN_H

#include <stdbool.h>

#include "base/strbuf.h"
#include "sink/digest.h"

#define SCREEN_ROWS    23
#define SCREEN_COLUMNS 100

struct screen {
	const struct digest *digests; /* of all processes, in any order */
	size_t count;
	const char *before; /* whole lines that come first: what went wrong; may be NULL */
	const char *after;  /* whole lines before those about files; may be NULL */
	const char *files;  /* where the files of several processes are; NULL: nowhere */
	const char *report; /* the file for a browser, or how to make it; NULL: none */
	/* What `msmemscope info` shows all of, if it is one process; of several it is the worst. NULL: nothing. */
	const char *more;
	unsigned int above; /* rows that the user has read already */
	bool findings_only; /* nothing but problems, and nothing at all where there is none */
	bool colours;	    /* first lines of parts are coloured by what they mean */
	bool terminal; /* a person reads it: without the lines that scripts look for, but ERROR and SUMMARY */
};

void screen_text(const struct screen *screen, struct strbuf *out);

/* Compares two `const struct digest *`, for qsort(): the worst process first. */
int screen_worst_first(const void *a, const void *b);

/* The peak of the pool that people work in; NULL if there is none. */
const struct finding_peak *screen_peak(const struct findings *found);

/* "train.py (pid 4242, rank 3)", "train.py (pid 4242, dry run on npu:64G)". */
void screen_who(const struct digest *digest, struct strbuf *out);

/* Columns that a text takes on a terminal, up to a newline; wide characters take two. */
size_t screen_columns(const char *text);

/* Appends a name; of one that is longer than `columns` the middle gives way to "...". */
void screen_cut_middle(const char *line, size_t columns, struct strbuf *out);

/* Appends one line, cut to `columns` with "..." where it is longer. */
void screen_cut(const char *line, size_t columns, struct strbuf *out);

/* Appends each line as at most `rows` lines of SCREEN_COLUMNS, broken between words; what is longer is cut. */
void screen_wrap(const char *lines, unsigned int rows, struct strbuf *out);

#endif
