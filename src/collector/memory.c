/* SPDX-License-Identifier: Apache-2.0 */
#include "collector/memory.h"

#include <errno.h>
#include <sys/uio.h>

#include "collector/sys.h"

bool memory_readable(const void *at, size_t bytes)
{
	uintptr_t page = 4096, first = (uintptr_t)at & ~(page - 1), last;
	int saved_errno = errno;
	bool readable = true;

	if ((uintptr_t)at < page || (uintptr_t)at + bytes < (uintptr_t)at)
		return false;
	last = ((uintptr_t)at + bytes - (bytes > 0)) & ~(page - 1);
	/*
	 * The kernel reads the new signal mask before it finds that the request makes no sense: EFAULT or EINVAL, and nothing
	 * changes. Other ways to ask are forbidden in some containers.
	 */
	for (; readable && first <= last; first += page)
		readable = syscall(SYS_rt_sigprocmask, -1, first, NULL, 8) < 0 && errno == EINVAL;
	errno = saved_errno;
	return readable;
}

/* Where the call that reads other processes' memory is forbidden, or not known to an emulator. */
static size_t read_by_file(void *out, uint64_t address, size_t bytes)
{
	int fd = sys_open("/proc/self/mem", O_RDONLY | O_CLOEXEC, 0);
	size_t done = 0;
	ssize_t got;

	if (fd < 0)
		return 0;
	while (done < bytes) {
		got = syscall(SYS_pread64, fd, (char *)out + done, bytes - done, address + done);
		if (got <= 0)
			break;
		done += (size_t)got;
	}
	sys_close(fd);
	return done;
}

size_t memory_read(void *out, uint64_t address, size_t bytes)
{
	int saved_errno = errno;
	size_t done = 0;

	while (done < bytes) {
		struct iovec into = {(char *)out + done, bytes - done};
		struct iovec from = {(void *)(uintptr_t)(address + done), bytes - done};
		ssize_t got = syscall(SYS_process_vm_readv, getpid(), &into, 1, &from, 1, 0);

		if (got < 0 && errno != EFAULT && done == 0) {
			done = read_by_file(out, address, bytes);
			break;
		}
		if (got <= 0)
			break;
		done += (size_t)got;
	}
	errno = saved_errno;
	return done;
}
