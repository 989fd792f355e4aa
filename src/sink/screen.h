/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The answer on one screen: is there a problem, where, how big and how fast, how sure, what to do next. At most SCREEN_ROWS
 * rows of SCREEN_COLUMNS for any number of processes of any size (a blank line before it, and a line about the machine, make 25). Groups instead of lists, the largest first, a count
 * instead of the rest. Lines are cut at the last column, except those that a person copies (paths): they count as the rows
 * that they take.
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
	const char *after;  /* whole lines before the last one; may be NULL */
	const char *files;  /* where the files of several processes are; NULL: nowhere */
	const char *report; /* the file for a browser, or how to make it; NULL: none */
	bool offers_info;   /* the last line is how to see more of the worst process */
	unsigned int above; /* rows that the user has read already */
	bool findings_only; /* nothing but problems, and nothing at all where there is none */
};

void screen_text(const struct screen *screen, struct strbuf *out);

/* Compares two `const struct digest *`, for qsort(): the worst process first. */
int screen_worst_first(const void *a, const void *b);

/* "train.py (pid 4242, rank 3)". */
void screen_who(const struct digest *digest, struct strbuf *out);

/* The same text with escape sequences that colour lines by what they say. */
void screen_colour(const char *text, struct strbuf *out);

/* Columns that a text takes on a terminal, up to a newline; wide characters take two. */
size_t screen_columns(const char *text);

/* Appends a name; of one that is longer than `columns` the middle gives way to "...". */
void screen_cut_middle(const char *line, size_t columns, struct strbuf *out);

/* Appends one line, cut to `columns` with "..." where it is longer. */
void screen_cut(const char *line, size_t columns, struct strbuf *out);

/* Appends each line as at most `rows` lines of SCREEN_COLUMNS, broken between words; what is longer is cut. */
void screen_wrap(const char *lines, unsigned int rows, struct strbuf *out);

#endif
