/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ELF files behind the modules of all traced processes, each once: ranks of a job load the same
 * libraries, and the symbols of a large one take 75 MB. Files are told apart by build id, or by
 * device, inode, size and time when they have none.
 *
 * A file is pinned from the moment it is first asked for until its symbols are read: its descriptor
 * stays open, because files vanish with containers. At most ELF_CACHE_PINNED_MAX are pinned at a
 * time, and no more than a quarter of the descriptors that this process may have.
 *
 * Whoever makes the cache frees it after all that use it. Files live as long as the cache. Not
 * thread-safe.
 */
#ifndef MSCOPE_SYMBOLS_ELF_CACHE_H
#define MSCOPE_SYMBOLS_ELF_CACHE_H

#include <stdbool.h>

#include "base/compiler.h"
#include "base/map.h"

#define ELF_CACHE_PINNED_MAX 512

struct cached_elf;
struct lines;

/* A zeroed struct is an empty cache. */
struct elf_cache {
	struct map files; /* hash of the identity -> first struct cached_elf of a chain */
	size_t file_count;
	size_t pinned_count;
	bool keep_open; /* files stay pinned when their symbols were read: more is read from them later */
	bool no_lines;	     /* lines_of() makes none, so that no process is forked */
	struct lines *lines; /* of these files; NULL until lines_of() makes it */
};

/* What is wanted. The file must have this build id, or none when `build_id_length` is 0. */
struct elf_wish {
	const char *root; /* where `path` begins: "" or "/proc/PID/root" */
	const char *path; /* absolute */
	const uint8_t *build_id;
	size_t build_id_length;
};

void elf_cache_fini(struct elf_cache *cache);

/* A file with this build id that is there already, else NULL. Borrowed. */
struct cached_elf *elf_cache_find(const struct elf_cache *cache, const uint8_t *build_id,
				  size_t build_id_length);

/*
 * Finds, or opens and pins. Symbolic links are followed inside `root`, where the kernel can (5.6
 * and later). A file with another build id is MSCOPE_E_ABSENT. MSCOPE_E_LIMIT when too many are
 * pinned, unless `read_now` tells that a lookup follows at once, which ends the pin again. Else
 * what elf_open() returns, or -errno. The file is borrowed.
 */
int elf_cache_open(struct elf_cache *cache, const struct elf_wish *wish, bool read_now,
		   struct cached_elf **out_file);

/* As elf_lookup(). Ends the pin, unless files are kept open. */
int elf_cache_lookup(struct elf_cache *cache, struct cached_elf *file, uint64_t vaddr,
		     const char **out_name, uint64_t *out_offset);

/* The descriptor of a file that is pinned, else -1. Borrowed. */
int elf_cache_descriptor(const struct cached_elf *file);

/*
 * Opens `path` for reading below `root`, where it stays as elf_cache_open() says; never waits for a FIFO. The descriptor, or
 * -errno. Whether it is a regular file is for the caller to see.
 */
int elf_cache_open_below(const char *root, const char *path);

#endif
