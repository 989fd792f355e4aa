/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Chunks for writers, and disk space for chunks. Any thread; functions may change errno.
 */
#ifndef MSCOPE_COLLECTOR_RECORD_CHUNK_SUPPLY_H
#define MSCOPE_COLLECTOR_RECORD_CHUNK_SUPPLY_H

#include <stdbool.h>

#include "base/compiler.h"

/* Before the first event of a process or of a forked child. */
void chunk_supply_setup(void);

/* A chunk that belongs to the caller from here on, in state CHUNK_OPEN and not yet published. False: there is none, and why is known. */
bool chunk_supply_take(uint32_t *out_number);

/* Before a seccomp filter is installed: takes space that lasts until the engine does it alone. */
void writers_become_quiet(void);

/* 0 when the program's own limit lets a file grow to `end` bytes, else -EFBIG. */
int writer_file_fits(uint64_t end);

#endif
