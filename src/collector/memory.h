/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading this process's own memory where it may not be there: other people's objects whose layout is tried, and tensors that the
 * program may free meanwhile. Nothing here faults. Any thread, any time; each call is a system call. errno stays as it was.
 */
#ifndef MSCOPE_COLLECTOR_MEMORY_H
#define MSCOPE_COLLECTOR_MEMORY_H

#include <stdbool.h>

#include "base/compiler.h"

/* True when these bytes can be read. */
bool memory_readable(const void *at, size_t bytes);

/* Copies bytes out. Returns how many, fewer than asked for where the first unreadable one lies. */
size_t memory_read(void *out, uint64_t address, size_t bytes);

#endif
