/* SPDX-License-Identifier: Apache-2.0 */
#include "base/io.h"

#include <errno.h>
#include <unistd.h>

#include "base/status.h"

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
