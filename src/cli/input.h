/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The trace that a word on the command line means, for every verb that reads one: a packed trace (trace.msc), a raw one, or a
 * project directory with a packed one in it.
 */
#ifndef MSCOPE_CLI_INPUT_H
#define MSCOPE_CLI_INPUT_H

#include <limits.h>
#include <stdbool.h>

#include "base/status.h"

struct input {
	char raw[PATH_MAX];  /* "": none; else the trace is unfinished */
	char pack[PATH_MAX]; /* "": none */
};

int input_find(const char *word, struct input *out, struct mscope_error *err);

/* The two paths as functions take them that know NULL for none. */
const char *input_raw(const struct input *input);
const char *input_pack(const struct input *input);

/*
 * The output directory that the trace's own results are in, where results of the same kind belong: above a project or session
 * directory, else the directory of the trace itself. Absolute.
 */
int input_home(const struct input *input, char *out, size_t bytes, struct mscope_error *err);

/* The exit code for an input that cannot be opened. */
int input_exit_code(int code);

#endif
