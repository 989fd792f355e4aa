/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds the libraries that the machine's dynamic loader would find. The command is static and has no loader, so it searches by
 * itself as ld.so(8) describes. Files may be damaged or hostile; every read is bounded and nothing is mapped.
 */
#ifndef MSCOPE_CLI_LD_SO_H
#define MSCOPE_CLI_LD_SO_H

#include <stdbool.h>

#include "base/status.h"

#define LD_SO_CACHE "/etc/ld.so.cache"

/*
 * The file that a program started from here gets for a library's name: along LD_LIBRARY_PATH, by the loader's cache, in the
 * directories that are always searched. Files for other machines are passed over, as the loader does. 0 or -ENOENT.
 */
int ld_so_find(const char *name, char *out, size_t bytes);

/* The same in one list of directories, split by colons or semicolons; an empty one is the current directory. */
int ld_so_find_along(const char *directories, const char *name, char *out, size_t bytes);

/* The same in the loader's cache at `cache`. -ENOENT also for a file that is no such cache. */
int ld_so_find_cached(const char *cache, const char *name, char *out, size_t bytes);

/* True for a shared object that a program of our own machine could load, by its first bytes. */
bool ld_so_fits(const char *path);

/* The version that a C library says of itself, "2.36". MSCOPE_E_ABSENT when it is no glibc. */
int ld_so_glibc_version(const char *path, char *out, size_t bytes);

#endif
