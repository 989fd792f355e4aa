/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/running.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/array.h"
#include "base/io.h"
#include "base/text.h"
#include "engine/session_place.h"
#include "sink/project.h"

#define SESSION_TAIL "/" SESSION_FILE

void running_fini(struct running *running)
{
	while (running->count > 0)
		free(running->all[--running->count]);
	free(running->all);
	*running = (struct running){0};
}

/* Adds a directory once. */
static void add(void *arg, const char *directory)
{
	struct running *running = arg;
	char *copy;
	size_t i;

	for (i = 0; i < running->count; i++) {
		if (strcmp(running->all[i], directory) == 0)
			return;
	}
	if (ARRAY_RESERVE(running->all, running->room, running->count + 1) < 0 ||
	    (copy = strdup(directory)) == NULL)
		return;
	running->all[running->count++] = copy;
}

/* ---- engines ---- */

/* Cuts a path to the session directory if it is that of a session file. */
static bool cut_to_session(char *path)
{
	const char *name;

	if (!text_ends_with(path, SESSION_TAIL))
		return false;
	path[strlen(path) - strlen(SESSION_TAIL)] = '\0';
	name = strrchr(path, '/');
	return name != NULL && text_starts_with(name, "/.msmemscope_");
}

/* The session that a process of ours has open. False: none. */
static bool session_of(const char *pid, char out[PATH_MAX])
{
	char path[64], name[16] = "";
	struct dirent *entry;
	bool found = false;
	DIR *dir;

	(void)snprintf(path, sizeof(path), "/proc/%.20s/comm", pid);
	/* Files of other programs are none of our business. */
	if (!io_read_text(path, name, sizeof(name)) ||
	    (!text_starts_with(name, "mscope-engine") && !text_starts_with(name, "msmemscope") &&
	     !text_starts_with(name, "msleaks")))
		return false;
	(void)snprintf(path, sizeof(path), "/proc/%.20s/fd", pid);
	dir = opendir(path);
	while (dir != NULL && !found && (entry = readdir(dir)) != NULL) {
		ssize_t length = readlinkat(dirfd(dir), entry->d_name, out, PATH_MAX - 1);

		if (length <= 0)
			continue;
		out[length] = '\0';
		found = cut_to_session(out);
	}
	if (dir != NULL)
		(void)closedir(dir);
	return found;
}

static bool is_own(DIR *proc, const char *pid)
{
	struct stat st;

	return fstatat(dirfd(proc), pid, &st, 0) == 0 && st.st_uid == geteuid();
}

static void find_engines(struct running *out, bool own)
{
	DIR *dir = opendir("/proc");
	struct dirent *entry;
	char path[PATH_MAX];

	while (dir != NULL && (entry = readdir(dir)) != NULL) {
		if (isdigit((unsigned char)entry->d_name[0]) &&
		    (!own || is_own(dir, entry->d_name)) && session_of(entry->d_name, path))
			add(out, path);
	}
	if (dir != NULL)
		(void)closedir(dir);
}

/* Whether an engine has this session open. */
static bool running_has_engine(const char *directory)
{
	struct running engines = {0};
	char path[PATH_MAX];
	bool found = false;
	size_t i;

	if (realpath(directory, path) == NULL)
		return false;
	find_engines(&engines, false);
	for (i = 0; i < engines.count && !found; i++)
		found = strcmp(engines.all[i], path) == 0;
	running_fini(&engines);
	return found;
}

/* ---- what a word means ---- */

static bool is_number(const char *word)
{
	return word[0] != '\0' && strlen(word) < 10 && strspn(word, "0123456789") == strlen(word);
}

/* Adds the traces in a session directory whose names begin so; `out` may be NULL. How many there are. */
static size_t find_traces(const char *directory, const char *prefix, struct running *out)
{
	DIR *dir = opendir(directory);
	struct dirent *entry;
	char path[PATH_MAX];
	size_t found = 0;

	while (dir != NULL && (entry = readdir(dir)) != NULL) {
		if (entry->d_name[0] == '.' || !text_ends_with(entry->d_name, SESSION_RAW) ||
		    !text_starts_with(entry->d_name, prefix) ||
		    snprintf(path, sizeof(path), "%s/%s", directory, entry->d_name) >=
			    (int)sizeof(path))
			continue;
		found++;
		if (out != NULL)
			add(out, path);
	}
	if (dir != NULL)
		(void)closedir(dir);
	return found;
}

/* Whether a process is of this launch: the one that a user sees, the engine, or one that records. */
static bool has_process(const char *directory, const char *pid)
{
	char prefix[40], session[PATH_MAX];
	const char *name = strrchr(directory, '/');

	(void)snprintf(prefix, sizeof(prefix), "/.msmemscope_%.20s_", pid);
	if (name != NULL && text_starts_with(name, prefix))
		return true;
	(void)snprintf(prefix, sizeof(prefix), "%.20s-", pid);
	return find_traces(directory, prefix, NULL) > 0 ||
	       (session_of(pid, session) && strcmp(session, directory) == 0);
}

static int find_number(const char *pid, struct running *out, struct mscope_error *err)
{
	struct running engines = {0};
	char path[64];
	size_t i;

	find_engines(&engines, false);
	for (i = 0; i < engines.count; i++) {
		if (has_process(engines.all[i], pid))
			add(out, engines.all[i]);
	}
	running_fini(&engines);
	if (out->count > 0)
		return 0;
	(void)snprintf(path, sizeof(path), "/proc/%.20s", pid);
	return access(path, F_OK) < 0
		       ? error_set(err, -ESRCH, "no such process: %s", pid)
		       : error_set(err, -ESRCH, "process %s is not recorded now", pid);
}

/* The name that traces of a project begin with: its marker has the run's id. "": it is no project that is being written. */
static void prefix_of_project(const char *project, char out[64])
{
	const char *name = strrchr(project, '/');
	char path[PATH_MAX];
	uint8_t id[16];
	unsigned int pid = 0;
	int fd;

	out[0] = '\0';
	if (name == NULL || sscanf(name, "/msmemscope_%u_", &pid) != 1 ||
	    snprintf(path, sizeof(path), "%s/%s", project, PROJECT_UNFINISHED) >= (int)sizeof(path))
		return;
	fd = io_open_file(path, O_RDONLY | O_NOFOLLOW, NULL);
	if (fd < 0)
		return;
	if (io_read_at(fd, id, sizeof(id), 0) == 0)
		(void)snprintf(out, 64, "%u-%02x%02x%02x%02x%02x%02x", pid, id[0], id[1], id[2],
			       id[3], id[4], id[5]);
	(void)close(fd);
}

/* Sessions that belong to a directory; `prefix` gets the begin of the names of its traces, "" for all. */
static void find_sessions(const char *word, char prefix[64], struct running *out)
{
	char path[PATH_MAX];

	prefix[0] = '\0';
	if (realpath(word, path) == NULL)
		return;
	session_search(path, add, out);
	if (out->count > 0)
		return;
	prefix_of_project(path, prefix);
	if (prefix[0] == '\0')
		return;
	*strrchr(path, '/') = '\0';
	session_search(path, add, out);
}

int running_find(const char *word, struct running *out, struct mscope_error *err)
{
	struct running sessions = {0};
	char prefix[64];
	struct stat st;
	size_t i;

	*out = (struct running){0};
	if (word == NULL) {
		find_engines(out, false);
		return 0;
	}
	if (stat(word, &st) < 0)
		return is_number(word) ? find_number(word, out, err)
				       : error_set(err, -errno, "cannot open %s: %s", word,
						   strerror(errno));
	if (!S_ISDIR(st.st_mode))
		return error_set(
			err, MSCOPE_E_USAGE,
			"%s is not a directory: give the results directory of a running launch, or one of its processes",
			word);
	find_sessions(word, prefix, &sessions);
	for (i = 0; i < sessions.count; i++) {
		if (running_has_engine(sessions.all[i]) &&
		    (prefix[0] == '\0' || find_traces(sessions.all[i], prefix, NULL) > 0))
			add(out, sessions.all[i]);
	}
	if (out->count == 0)
		(void)error_set(
			err, -ESRCH,
			sessions.count == 0
				? "no running launch has its results in %s"
				: "the launch in %s was killed; to finish its files: msmemscope recover",
			word);
	running_fini(&sessions);
	return out->count == 0 ? -ESRCH : 0;
}

void running_own(struct running *out)
{
	*out = (struct running){0};
	find_engines(out, true);
}

void running_traces(const char *word, struct running *out)
{
	struct running sessions = {0};
	char prefix[64] = "", path[PATH_MAX], *slash;
	struct stat st;
	size_t i;

	*out = (struct running){0};
	if (stat(word, &st) < 0)
		return;
	if (S_ISDIR(st.st_mode)) {
		find_sessions(word, prefix, &sessions);
		for (i = 0; i < sessions.count; i++) {
			if (running_has_engine(sessions.all[i]))
				(void)find_traces(sessions.all[i], prefix, out);
		}
		running_fini(&sessions);
	} else if (text_ends_with(word, SESSION_RAW) && realpath(word, path) != NULL) {
		slash = strrchr(path, '/');
		*slash = '\0';
		if (running_has_engine(path)) {
			*slash = '/';
			add(out, path);
		}
	}
}
