/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the machine's dynamic loader would find, without having one: the command is static, so the ways that ld.so(8) describes
 * are gone by hand. Files may be damaged or hostile; every read is bounded and nothing is mapped.
 */
#ifndef MSCOPE_CLI_LOADER_H
#define MSCOPE_CLI_LOADER_H

#include <stdbool.h>

#include "base/status.h"

#define LOADER_CACHE "/etc/ld.so.cache"

/*
 * The file that a program started from here gets for a library's name: along LD_LIBRARY_PATH, by the loader's cache, in the
 * directories that are always searched. Files for other machines are passed over, as the loader does. 0 or -ENOENT.
 */
int loader_find(const char *name, char *out, size_t bytes);

/* The same in one list of directories, split by colons or semicolons; an empty one is the current directory. */
int loader_find_along(const char *directories, const char *name, char *out, size_t bytes);

/* The same in the loader's cache at `cache`. -ENOENT also for a file that is no such cache. */
int loader_find_cached(const char *cache, const char *name, char *out, size_t bytes);

/* True for a shared object that a program of our own machine could load, by its first bytes. */
bool loader_fits(const char *path);

/* The version that a C library says of itself, "2.36". MSCOPE_E_ABSENT when it is no glibc. */
int loader_glibc_version(const char *path, char *out, size_t bytes);

#endif
