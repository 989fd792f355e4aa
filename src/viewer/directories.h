/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A report is mailed: it does not carry directories of the machine that it was made on, other than the places of the program's own
 * source. Files of libraries, modules, inputs and words of the command are told by their names; --anonymize goes further.
 */
#ifndef MSCOPE_VIEWER_DIRECTORIES_H
#define MSCOPE_VIEWER_DIRECTORIES_H

#include "base/strbuf.h"

/* Appends an answer, which is JSON, without them. */
void directories_leave_out(const struct strbuf *answer, struct strbuf *out);

/* Appends words of a command: "view /data/run" is "view run". */
void directories_leave_words(const char *words, size_t length, struct strbuf *out);

/* The same of one path, in its place. */
void directories_leave_name(char *path);

#endif
