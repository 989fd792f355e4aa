/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The file is opened for each line: a program that closes every descriptor it does not know must not end the log, and
 * appending with one write keeps lines whole.
 */
#include "log.h"

#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* With the directory at the time of the first kernel, as the program may change it. Empty for no log. */
static char pattern[PATH_MAX];

static void read_environment(void)
{
	const char *path = getenv("SIMNPU_LOG");
	size_t used = 0;

	if (!path || !*path)
		return;
	if (*path != '/') {
		if (!getcwd(pattern, sizeof(pattern)))
			return;
		used = strlen(pattern);
	}
	if (used + strlen(path) + 2 > sizeof(pattern)) {
		*pattern = '\0';
		return;
	}
	(void)snprintf(pattern + used, sizeof(pattern) - used, "%s%s", used ? "/" : "", path);
}

static bool expand(char *path, size_t size)
{
	const char *mark = strstr(pattern, "%p");
	int length;

	if (!mark)
		length = snprintf(path, size, "%s", pattern);
	else
		length = snprintf(path, size, "%.*s%ld%s", (int)(mark - pattern), pattern,
				  (long)getpid(), mark + 2);
	return length >= 0 && (size_t)length < size;
}

void log_kernel(const struct simnpu_task *task, const char *name, uint64_t begin_ns,
		uint64_t end_ns)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	char path[PATH_MAX];
	char *line;
	int length;
	int fd;

	(void)pthread_once(&once, read_environment);
	if (!*pattern || !expand(path, sizeof(path)))
		return;
	length = asprintf(&line, "%u %u %u %s %llu %llu\n", task->device, task->stream, task->id,
			  name, (unsigned long long)begin_ns, (unsigned long long)end_ns);
	if (length < 0)
		return;
	fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
	/* A line that is missing or cut shows in the comparison that the log is for. */
	if (fd < 0 || write(fd, line, (size_t)length) != length)
		(void)fprintf(stderr, "simnpu: cannot write to %s\n", path);
	if (fd >= 0)
		(void)close(fd);
	free(line);
}
