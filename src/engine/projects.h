/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is in a directory of results: files and directories by pattern, its dump files, and its projects. A project that `export` made
 * of another one in the directory is not a further process, and one without a trace and without rows is not a run.
 */
#ifndef MSCOPE_ENGINE_PROJECTS_H
#define MSCOPE_ENGINE_PROJECTS_H

#include <stdbool.h>
#include <stddef.h>

struct paths {
	char **all;
	size_t count, room;
};

void paths_fini(struct paths *paths);

/*
 * Adds the paths of what fits the pattern in `directory`, sorted: directories or regular files. A directory that does not exist has
 * nothing in it. 0 or a negative code; paths_fini() in either case, as for the others below.
 */
int paths_list(const char *directory, const char *pattern, bool directories, struct paths *out);

/* Dump files of one form in a directory, in its dump directory, and in the dump directory of each device below it. */
int paths_list_dumps(const char *directory, const char *extension, struct paths *out);

/*
 * The projects of a directory of results, sorted. Exports are left out where the project of their run is there, too, and so are
 * projects that nothing can be read from where others can; those go to `unreadable` unless that is NULL.
 */
int projects_list(const char *directory, struct paths *out, struct paths *unreadable);

#endif
