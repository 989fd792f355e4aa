/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/launch_id.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/io.h"
#include "sink/project.h"

#define ANCESTORS_MAX 16

/* Variables that say how many ranks there are, with that of the rank. */
static const char *const sizes[][2] = {
	{"WORLD_SIZE", "RANK"},
	{"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"},
	{"PMI_SIZE", "PMI_RANK"},
	{"RANK_SIZE", "RANK_ID"},
};

struct ancestor {
	pid_t pid, parent;
	unsigned long long start_ticks;
	char name[32];
};

/* What /proc says of a process. The name is in parentheses and may have any characters. */
static bool look_at(pid_t pid, struct ancestor *out)
{
	char path[64], text[1024], *open, *close;

	(void)snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	if (!io_read_text(path, text, sizeof(text)))
		return false;
	open = strchr(text, '(');
	close = strrchr(text, ')');
	if (open == NULL || close == NULL || close < open)
		return false;
	*out = (struct ancestor){.pid = pid};
	*close = '\0';
	(void)snprintf(out->name, sizeof(out->name), "%s", open + 1);
	return sscanf(close + 1,
		      " %*c %d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %llu",
		      &out->parent, &out->start_ticks) == 2;
}

/* The variable of the rank if this process is one of several; NULL: it is not. */
static const char *rank_variable(void)
{
	size_t i;

	for (i = 0; i < MSCOPE_COUNT(sizes); i++) {
		const char *size = getenv(sizes[i][0]), *rank = getenv(sizes[i][1]);

		if (rank != NULL && size != NULL && atoi(size) > 1)
			return sizes[i][1];
	}
	return NULL;
}

static bool has_variable(pid_t pid, const char *name)
{
	char path[64], text[65536];
	size_t length = strlen(name), at;
	ssize_t got;
	int fd;

	(void)snprintf(path, sizeof(path), "/proc/%d/environ", (int)pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	got = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
	if (fd >= 0)
		(void)close(fd);
	for (at = 0; got > 0 && at < (size_t)got; at += strlen(text + at) + 1) {
		text[got] = '\0';
		if (strncmp(text + at, name, length) == 0 && text[at + length] == '=')
			return true;
	}
	return false;
}

/* The nearest process above a rank that is not a rank itself. False: there is none but init. */
static bool find_launcher(pid_t pid, const char *rank, struct ancestor *out)
{
	struct ancestor one;
	int i;

	for (i = 0; i < ANCESTORS_MAX && look_at(pid, &one) && one.parent > 1; i++) {
		pid = one.parent;
		if (!has_variable(pid, rank))
			return look_at(pid, out);
	}
	return false;
}

static uint64_t hash_host(void)
{
	char boot[64] = "";

	(void)io_read_text("/proc/sys/kernel/random/boot_id", boot, sizeof(boot));
	return hash_text(boot);
}

/* A name as it may stand in the name of a run. */
static void clean(char *name)
{
	for (; *name != '\0'; name++) {
		if (strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-",
			   *name) == NULL)
			*name = '_';
	}
}

void launch_id_make(struct session *session)
{
	const char *rank = rank_variable();
	pid_t pid = (pid_t)session->launch_pid;
	struct ancestor launcher;
	uint64_t hash = hash_host();
	char stamp[16];

	if (rank != NULL && find_launcher(pid, rank, &launcher)) {
		hash = hash_add(hash, &launcher.pid, sizeof(launcher.pid));
		hash = hash_add(hash, &launcher.start_ticks, sizeof(launcher.start_ticks));
		clean(launcher.name);
		(void)snprintf(session->launch_id, sizeof(session->launch_id), "%.16s-%08x",
			       launcher.name, (unsigned)(hash ^ hash >> 32));
		return;
	}
	hash = hash_add(hash, &pid, sizeof(pid));
	hash = hash_add(hash, &session->realtime_ns, sizeof(session->realtime_ns));
	project_stamp(session->realtime_ns, session->utc_offset_s, stamp);
	(void)snprintf(session->launch_id, sizeof(session->launch_id), "run-%s-%06x", stamp,
		       (unsigned)(hash ^ hash >> 32) & 0xffffffu);
}
