/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading files to the end of what was asked for. No state; any thread.
 */
#ifndef MSCOPE_BASE_IO_H
#define MSCOPE_BASE_IO_H

#include "base/compiler.h"

/* All of `bytes` from offset `at`. -errno, or MSCOPE_E_TRUNCATED when the file ends before; offsets are not trusted. */
int io_read_at(int fd, void *out, size_t bytes, uint64_t at);

#endif
