/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fields of csv files as RFC 4180 has them: a field with a comma, a quote or a line end stands in quotes, quotes inside are
 * doubled, everything else stays. The functions that take `to` need room for twice the text and two quotes, and return where the
 * field ends.
 */
#ifndef MSCOPE_DUMP_CSV_TEXT_H
#define MSCOPE_DUMP_CSV_TEXT_H

#include "base/strbuf.h"

/* The text with its quotes doubled, without quotes around it. */
char *csv_put_doubled(char *to, const char *text, size_t length);

/* Always in quotes. */
char *csv_put_quoted(char *to, const char *text, size_t length);

/* In quotes only when it must be. */
char *csv_put_text(char *to, const char *text, size_t length);

/* The same into a buffer. */
void csv_add_text(struct strbuf *sb, const char *text, size_t length);

#endif
