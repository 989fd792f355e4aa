/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/projects.h"

#include <dirent.h>
#include <errno.h>
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/array.h"
#include "base/text.h"
#include "dump/format.h"
#include "sink/config.h"

/* More files or projects than any real directory of results has; the rest is ignored. */
#define NAMES_MAX 4096

void paths_fini(struct paths *paths)
{
	while (paths->count > 0)
		free(paths->all[--paths->count]);
	free(paths->all);
	*paths = (struct paths){0};
}

int paths_list(const char *directory, const char *pattern, bool directories, struct paths *out)
{
	DIR *dir = opendir(directory);
	struct dirent *entry;
	struct stat st;
	char path[PATH_MAX];
	size_t before = out->count;
	int r = 0;

	if (dir == NULL)
		return errno == ENOENT || errno == ENOTDIR ? 0 : -errno;
	while (r == 0 && out->count < NAMES_MAX && (entry = readdir(dir)) != NULL) {
		if (fnmatch(pattern, entry->d_name, 0) != 0 ||
		    snprintf(path, sizeof(path), "%s/%s", directory, entry->d_name) >=
			    (int)sizeof(path) ||
		    stat(path, &st) < 0 ||
		    (directories ? !S_ISDIR(st.st_mode) : !S_ISREG(st.st_mode)))
			continue;
		r = ARRAY_RESERVE(out->all, out->room, out->count + 1);
		if (r == 0 && (out->all[out->count] = strdup(path)) == NULL)
			r = -ENOMEM;
		if (r == 0)
			out->count++;
	}
	(void)closedir(dir);
	if (out->count > before)
		qsort(out->all + before, out->count - before, sizeof(*out->all), text_order);
	return r;
}

int paths_list_dumps(const char *directory, const char *extension, struct paths *out)
{
	static const char *const stems[] = {DUMP_TABLE "_*", DUMP_TABLE_OLD "_*"};
	struct paths devices = {0};
	char pattern[64], path[PATH_MAX];
	size_t i, k;
	int r = paths_list(directory, "device_*", true, &devices);

	for (k = 0; k < MSCOPE_COUNT(stems) && r == 0; k++) {
		(void)snprintf(pattern, sizeof(pattern), "%s%s", stems[k], extension);
		r = paths_list(directory, pattern, false, out);
		(void)snprintf(path, sizeof(path), "%s/dump", directory);
		if (r == 0)
			r = paths_list(path, pattern, false, out);
		for (i = 0; i < devices.count && r == 0; i++) {
			(void)snprintf(path, sizeof(path), "%s/dump", devices.all[i]);
			r = paths_list(path, pattern, false, out);
		}
	}
	paths_fini(&devices);
	return r;
}

/* ---- projects ---- */

struct candidate {
	bool readable; /* it has a trace or rows */
	bool exported;
	/* Of the run that it was exported from; of a recorded one its own. */
	char stem[PROJECT_STEM_MAX];
};

static bool is_readable(const char *project)
{
	static const char *const extensions[] = {".csv", ".db"};
	struct paths dumps = {0};
	char trace[PROJECT_PATH_MAX];
	size_t i;
	bool found =
		snprintf(trace, sizeof(trace), "%s/" PROJECT_TRACE, project) < (int)sizeof(trace) &&
		access(trace, F_OK) == 0;

	for (i = 0; i < MSCOPE_COUNT(extensions) && !found; i++)
		found = paths_list_dumps(project, extensions[i], &dumps) == 0 && dumps.count > 0;
	paths_fini(&dumps);
	return found;
}

static void examine(const char *project, struct candidate *out)
{
	out->readable = is_readable(project);
	out->exported = config_exported_from(project, out->stem);
	if (!out->exported)
		project_stem(text_base_name(project), out->stem);
}

/* Whether the project of the run that this one was exported from is there. */
static bool is_copy(const struct candidate *all, size_t count, const struct candidate *one)
{
	size_t i;

	for (i = 0; one->exported && i < count; i++) {
		if (all[i].readable && !all[i].exported && strcmp(all[i].stem, one->stem) == 0)
			return true;
	}
	return false;
}

/* Takes the path out of the list, in whose place the next one comes. */
static int leave_out(struct paths *paths, size_t index, struct paths *unreadable)
{
	char *path = paths->all[index];
	int r = 0;

	paths->count--;
	memmove(paths->all + index, paths->all + index + 1,
		(paths->count - index) * sizeof(*paths->all));
	if (unreadable != NULL)
		r = ARRAY_RESERVE(unreadable->all, unreadable->room, unreadable->count + 1);
	if (unreadable != NULL && r == 0)
		unreadable->all[unreadable->count++] = path;
	else
		free(path);
	return r;
}

int projects_list(const char *directory, struct paths *out, struct paths *unreadable)
{
	struct candidate *all;
	size_t count, i, kept = 0;
	bool some = false;
	int r = paths_list(directory, "msmemscope_*_*", true, out);

	if (r == 0)
		r = paths_list(directory, "msleaks_*_*", true, out);
	if (r < 0 || out->count < 2)
		return r;
	count = out->count;
	all = calloc(count, sizeof(*all));
	if (all == NULL)
		return -ENOMEM;
	for (i = 0; i < count; i++) {
		examine(out->all[i], &all[i]);
		some = some || all[i].readable;
	}
	for (i = 0; i < count && some && r == 0; i++) {
		if (is_copy(all, count, &all[i]))
			r = leave_out(out, kept, NULL);
		else if (!all[i].readable)
			r = leave_out(out, kept, unreadable);
		else
			kept++;
	}
	free(all);
	return r;
}
