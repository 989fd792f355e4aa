/* SPDX-License-Identifier: Apache-2.0 */
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/io.h"
#include "base/shown.h"
#include "base/text.h"

#define EARLY_MAX ((size_t)64 << 10) /* bytes that are kept for a file that may never come */

void log_init(struct log *log, uint32_t level, int32_t utc_offset_s)
{
	*log = (struct log){.level = level, .utc_offset_s = utc_offset_s};
}

void log_fini(struct log *log)
{
	free(log->path);
	strbuf_fini(&log->early);
	*log = (struct log){.level = LOG_LEVEL_OFF};
}

/* A full disk is told elsewhere; here it only costs this line. */
static int put(const char *path, const char *text, size_t length)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);

	if (fd < 0)
		return -errno;
	(void)io_write(fd, text, length);
	(void)close(fd);
	return 0;
}

int log_open(struct log *log, const char *path)
{
	char *copy = strdup(path);
	int r = copy == NULL ? -ENOMEM : put(path, strbuf_str(&log->early), log->early.length);

	if (r < 0) {
		free(copy);
		return r;
	}
	free(log->path);
	log->path = copy;
	strbuf_fini(&log->early);
	return 0;
}

void log_line(struct log *log, enum log_level level, const char *source, int line,
	      const char *format, ...)
{
	static const char *const names[] = {"DEBUG", "INFO", "WARN", "ERROR"};
	time_t now = time(NULL) + log->utc_offset_s;
	char stamp[32] = "", text[1024];
	struct strbuf out = {0};
	struct tm local;
	va_list args;

	if (level < log->level || log->level >= LOG_LEVEL_OFF || level >= LOG_LEVEL_OFF)
		return;
	va_start(args, format);
	(void)vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	if (gmtime_r(&now, &local) != NULL)
		(void)strftime(stamp, sizeof(stamp), "%Y-%m-%d %H:%M:%S", &local);
	strbuf_addf(&out, "%s [%-7s] [%s:%d] ", stamp, names[level], text_base_name(source), line);
	/* One line: what a name of the program's brings along must not forge another. */
	strbuf_add_shown(&out, text, strlen(text));
	strbuf_add_char(&out, '\n');
	if (log->path != NULL)
		(void)put(log->path, strbuf_str(&out), out.length);
	else if (log->early.length + out.length <= EARLY_MAX)
		strbuf_add(&log->early, strbuf_str(&out), out.length);
	strbuf_fini(&out);
}
