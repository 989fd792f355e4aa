/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A log file: what happened, for whoever wonders afterwards. One line each, written at once, so that a killed process leaves
 * all it said:
 *
 *     2025-11-15 06:12:44 [WARN   ] [follow.c:117] text
 *
 * The file may come later than the first lines: until log_open() they are kept in memory. A log never fails: a line that cannot
 * be written is lost, and the owner goes on. A zeroed struct is a log at level debug without a file. Not thread-safe.
 */
#ifndef MSCOPE_BASE_LOG_H
#define MSCOPE_BASE_LOG_H

#include "base/compiler.h"
#include "base/strbuf.h"

/* The numbers are those of config.json. */
enum log_level {
	LOG_LEVEL_DEBUG,
	LOG_LEVEL_INFO,
	LOG_LEVEL_WARN,
	LOG_LEVEL_ERROR,
	LOG_LEVEL_OFF, /* and everything above */
};

struct log {
	uint32_t level;	      /* least serious line that is kept, enum log_level */
	int32_t utc_offset_s; /* local time minus UTC */
	char *path; /* NULL: no file yet. It is open only while a line is written: descriptors are few */
	struct strbuf early; /* lines from before there was a file */
};

/* `level` may be any number: one that means nothing switches the log off. */
void log_init(struct log *log, uint32_t level, int32_t utc_offset_s);
void log_fini(struct log *log);

/* Appends to `path` (0600, made if missing) from now on, first what was kept. 0 or -errno; then lines are kept on. */
int log_open(struct log *log, const char *path);

void log_line(struct log *log, enum log_level level, const char *source, int line,
	      const char *format, ...) MSCOPE_PRINTF(5, 6);

#define log_debug(log, ...) log_line(log, LOG_LEVEL_DEBUG, __FILE__, __LINE__, __VA_ARGS__)
#define log_info(log, ...)  log_line(log, LOG_LEVEL_INFO, __FILE__, __LINE__, __VA_ARGS__)
#define log_warn(log, ...)  log_line(log, LOG_LEVEL_WARN, __FILE__, __LINE__, __VA_ARGS__)
#define log_error(log, ...) log_line(log, LOG_LEVEL_ERROR, __FILE__, __LINE__, __VA_ARGS__)

#endif
