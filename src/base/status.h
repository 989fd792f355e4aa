/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How a function says what went wrong: it returns 0, or a negative code. System errors keep -errno, our own come from
 * status.def. Where a person needs more than a code, the function also fills a struct mscope_error at the point of failure;
 * only cli/ turns it into a printed line.
 */
#ifndef MSCOPE_BASE_STATUS_H
#define MSCOPE_BASE_STATUS_H

#include "base/compiler.h"

enum mscope_status {
#define STATUS(number, name, sentence) MSCOPE_E_##name = (number),
#include "base/status.def"
#undef STATUS
};

/* Exit codes of the command, besides the traced program's own. */
enum mscope_exit {
	MSCOPE_EXIT_OK = 0,
	MSCOPE_EXIT_FAILED = 1,
	MSCOPE_EXIT_USAGE = 2,
	MSCOPE_EXIT_DAMAGED = 3, /* answered, but from a damaged or unfinished input */
	MSCOPE_EXIT_CONDITION =
		4, /* a condition of --fail-on was met, and the program ended with 0 */
	MSCOPE_EXIT_NOT_EXECUTABLE = 126,
	MSCOPE_EXIT_NOT_FOUND = 127,
};

struct mscope_error {
	int code;	   /* 0 while nothing failed */
	char message[500]; /* one sentence without a final newline */
};

/* The sentence of a code, ours or -errno. Never NULL. */
const char *mscope_status_str(int code);

/* Fills `err` (which may be NULL) and returns `code`, so that callers write `return error_set(err, -ENOENT, ...)`. */
int error_set(struct mscope_error *err, int code, const char *format, ...) MSCOPE_PRINTF(3, 4);

#endif
