/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The log of programs. Real software writes it to files of its own; here it goes to stdout or nowhere.
 */
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "acl/acl.h"

static bool is_wanted(aclLogLevel level)
{
	const char *print = getenv("ASCEND_SLOG_PRINT_TO_STDOUT");
	const char *least = getenv("ASCEND_GLOBAL_LOG_LEVEL");

	return print && strcmp(print, "1") == 0 && (int)level >= (least ? atoi(least) : ACL_ERROR);
}

void aclAppLog(aclLogLevel logLevel, const char *func, const char *file, uint32_t line,
	       const char *fmt, ...)
{
	static const char *const names[] = {"DEBUG", "INFO", "WARNING", "ERROR"};
	char text[1024];
	va_list values;

	if (logLevel < ACL_DEBUG || logLevel > ACL_ERROR || !fmt || !is_wanted(logLevel))
		return;
	va_start(values, fmt);
	(void)vsnprintf(text, sizeof(text), fmt, values);
	va_end(values);
	(void)printf("[%s] APP(%s:%u) %s: %s\n", names[logLevel], file ? file : "?", line,
		     func ? func : "?", text);
}
