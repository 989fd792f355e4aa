/* SPDX-License-Identifier: Apache-2.0 */
#include "base/io.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int io_open_file(const char *path, int flags, struct mscope_error *err)
{
	int fd = open(path, flags | O_CLOEXEC | O_NONBLOCK | O_NOCTTY), r = 0;
	struct stat st;

	/* A socket cannot be opened, nor a FIFO to write that nobody reads. */
	if (fd < 0 && errno == ENXIO)
		r = MSCOPE_E_FOREIGN;
	else if (fd < 0 || fstat(fd, &st) < 0)
		r = -errno;
	else if (!S_ISREG(st.st_mode))
		r = MSCOPE_E_FOREIGN;
	if (r == 0)
		return fd;
	io_close(&fd);
	return r == MSCOPE_E_FOREIGN ? error_set(err, r, "%s is not a file", path)
				     : error_set(err, r, "cannot open %s: %s", path, strerror(-r));
}

int io_read_at(int fd, void *out, size_t bytes, uint64_t at)
{
	char *to = out;

	if (at > INT64_MAX || bytes > INT64_MAX - at)
		return MSCOPE_E_DAMAGED;
	while (bytes > 0) {
		ssize_t got = pread(fd, to, bytes, (off_t)at);

		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return -errno;
		if (got == 0)
			return MSCOPE_E_TRUNCATED;
		to += got;
		at += (uint64_t)got;
		bytes -= (size_t)got;
	}
	return 0;
}

bool io_read_text(const char *path, char *out, size_t bytes)
{
	int fd = io_open_file(path, O_RDONLY | O_NOFOLLOW, NULL);
	ssize_t got;

	if (fd < 0)
		return false;
	got = read(fd, out, bytes - 1);
	(void)close(fd);
	if (got <= 0)
		return false;
	out[got] = '\0';
	return true;
}

static int write_some(int fd, const char *data, size_t bytes, size_t *done)
{
	while (*done < bytes) {
		ssize_t wrote = write(fd, data + *done, bytes - *done);

		if (wrote < 0 && errno == EINTR)
			continue;
		if (wrote <= 0)
			return wrote < 0 ? -errno : -ENOSPC;
		*done += (size_t)wrote;
	}
	return 0;
}

int io_write(int fd, const void *data, size_t bytes)
{
	size_t done = 0;

	return write_some(fd, data, bytes, &done);
}

int io_flush(int fd, struct strbuf *sb)
{
	size_t done = 0;
	int r = strbuf_failed(sb) ? -ENOMEM : write_some(fd, sb->data, sb->length, &done);

	if (done == sb->length) {
		strbuf_reset(sb);
	} else if (done > 0) {
		memmove(sb->data, sb->data + done, sb->length - done);
		sb->length -= done;
	}
	return r;
}

/* What is no file cannot be replaced by one. */
static bool is_device(const char *path)
{
	struct stat st;

	return stat(path, &st) == 0 && !S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode);
}

int io_replace(const char *path, const struct strbuf *text)
{
	char part[4096 + 16] = "";
	int fd, r;

	if (strbuf_failed(text))
		return -ENOMEM;
	if (is_device(path)) {
		fd = open(path, O_WRONLY | O_CLOEXEC | O_NOCTTY);
	} else {
		if (snprintf(part, sizeof(part), "%s.XXXXXX", path) >= (int)sizeof(part))
			return -ENAMETOOLONG;
		fd = mkostemp(part, O_CLOEXEC);
	}
	if (fd < 0)
		return -errno;
	r = io_write(fd, strbuf_str(text), text->length);
	if (close(fd) < 0 && r == 0)
		r = -errno;
	if (r == 0 && part[0] != '\0' && rename(part, path) < 0)
		r = -errno;
	if (r < 0 && part[0] != '\0')
		(void)unlink(part);
	return r;
}

int io_unnamed(const char *directory)
{
	char path[4096 + 32];
	int fd;

	if (snprintf(path, sizeof(path), "%s/.msmemscope-XXXXXX", directory) >= (int)sizeof(path))
		return -ENAMETOOLONG;
	fd = mkostemp(path, O_CLOEXEC);
	if (fd < 0)
		return -errno;
	(void)unlink(path);
	return fd;
}

const char *io_scratch(void)
{
	const char *places[] = {getenv("TMPDIR"), "/var/tmp"};
	size_t i;

	for (i = 0; i < MSCOPE_COUNT(places); i++) {
		if (places[i] != NULL && places[i][0] == '/' && access(places[i], W_OK | X_OK) == 0)
			return places[i];
	}
	return "/tmp";
}

void io_close(int *fd)
{
	if (*fd >= 0)
		(void)close(*fd);
	*fd = -1;
}
