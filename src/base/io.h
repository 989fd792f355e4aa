/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading and writing files to the end of what was asked for. No state; any thread.
 */
#ifndef MSCOPE_BASE_IO_H
#define MSCOPE_BASE_IO_H

#include <stdbool.h>

#include "base/compiler.h"
#include "base/status.h"
#include "base/strbuf.h"

/*
 * Opens what must be a plain file. A FIFO, a device or a socket is MSCOPE_E_FOREIGN at once: nothing waits, nothing is read.
 * `flags` as in open(), O_CLOEXEC is added. A descriptor, or a code, said in `err`.
 */
int io_open_file(const char *path, int flags, struct mscope_error *err);

/* All of `bytes` from offset `at`. -errno, or MSCOPE_E_TRUNCATED when the file ends before; offsets are not trusted. */
int io_read_at(int fd, void *out, size_t bytes, uint64_t at);

/* What a small file begins with, as text: at most `bytes` - 1 of it and a NUL. False when there is none, or nothing in it. */
bool io_read_text(const char *path, char *out, size_t bytes);

/* All of `bytes`, at the file's present offset. 0 or -errno. */
int io_write(int fd, const void *data, size_t bytes);

/* The same with what is in a buffer; what did not go out stays in it, for the disk may have room again. -ENOMEM: it is not whole. */
int io_flush(int fd, struct strbuf *sb);

/*
 * A file for the user alone, in place of what has that name; it appears when it is complete, and several writers do not disturb one
 * another. A device, such as /dev/stdout, is written to. 0 or -errno; -ENOMEM: the text is not whole.
 */
int io_replace(const char *path, const struct strbuf *text);

/* A file without a name in this directory, open for both; -errno. */
int io_unnamed(const char *directory);

/* Where temporary files may lie, with room for more than memory holds: $TMPDIR, else /var/tmp, else /tmp. */
const char *io_scratch(void);

/* Closes a descriptor unless it is -1, and makes it -1. */
void io_close(int *fd);

#endif
