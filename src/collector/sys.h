/* SPDX-License-Identifier: Apache-2.0 */
/*
 * System calls that glibc 2.17 has no wrapper for, or whose wrapper would ask for a newer symbol version, and the thread
 * functions that moved between libraries: bound weakly and at their oldest version, so that the library loads everywhere.
 */
#ifndef MSCOPE_COLLECTOR_SYS_H
#define MSCOPE_COLLECTOR_SYS_H

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

#include "base/compiler.h"
#include "collector/quiet.h"

#if defined(__x86_64__)
#define SYS_FLOOR	    "GLIBC_2.2.5"
#define SYS_NR_getrandom    318
#define SYS_NR_membarrier   324
#define SYS_NR_memfd_create 319
#define SYS_NR_kcmp	    312
#elif defined(__aarch64__)
#define SYS_FLOOR	    "GLIBC_2.17"
#define SYS_NR_getrandom    278
#define SYS_NR_membarrier   283
#define SYS_NR_memfd_create 279
#define SYS_NR_kcmp	    272
#else
#error "only x86-64 and aarch64 are supported"
#endif

/* In libpthread or libdl before glibc 2.34, in libc since. Absent (NULL) in an old single-threaded program. */
__asm__(".symver pthread_key_create,pthread_key_create@" SYS_FLOOR);
__asm__(".symver pthread_setspecific,pthread_setspecific@" SYS_FLOOR);
__asm__(".symver dlopen,dlopen@" SYS_FLOOR);
__asm__(".symver dlsym,dlsym@" SYS_FLOOR);
#pragma weak pthread_key_create
#pragma weak pthread_setspecific
#pragma weak dlopen
#pragma weak dlsym

#define SYS_MFD_CLOEXEC			  1
#define SYS_KCMP_VM			  1
#define SYS_MADV_WIPEONFORK		  18
#define SYS_MEMBARRIER_REGISTER_EXPEDITED 4 /* MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED */

/* The clock of every record: monotonic, never batched, never coarse. About 20 ns through the vDSO. */
MSCOPE_INLINE uint64_t clock_ns(void)
{
	struct timespec now;

	(void)clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/*
 * Files and waiting by bare system calls: the wrappers of libc are points where a thread may be cancelled, and a thread that
 * vanished in the middle of our code would leave locks taken for ever.
 */
static inline int sys_open(const char *path, int flags, unsigned int mode)
{
	if (quiet_is_on()) {
		errno = EPERM;
		return -1;
	}
#if defined(__SANITIZE_THREAD__)
	/* A unit test: the sanitizer follows descriptors, and must see them come and go. */
	return open(path, flags, mode);
#else
	return (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
#endif
}

static inline void sys_close(int fd)
{
#if defined(__SANITIZE_THREAD__)
	(void)close(fd);
#else
	(void)syscall(SYS_close, fd);
#endif
}

static inline ssize_t sys_read(int fd, void *out, size_t bytes)
{
	return syscall(SYS_read, fd, out, bytes);
}

static inline ssize_t sys_pwrite(int fd, const void *data, size_t bytes, uint64_t at)
{
	return syscall(SYS_pwrite64, fd, data, bytes, at);
}

static inline int sys_fallocate(int fd, uint64_t at, uint64_t bytes)
{
	return (int)syscall(SYS_fallocate, fd, 0, at, bytes);
}

static inline void sys_sleep_ms(unsigned int milliseconds)
{
	struct timespec pause = {.tv_sec = milliseconds / 1000,
				 .tv_nsec = (milliseconds % 1000) * 1000000L};

	(void)syscall(SYS_nanosleep, &pause, NULL);
}

#define SYS_SIGNALS_FREE UINT64_MAX /* no mask of the kernel's has all bits: nothing was blocked */

/*
 * Keeps handlers of the program out of a span that must not be left by siglongjmp(), and lets them in again. Not blocked are signals
 * for faults, and the two of the thread library, which another thread may wait for.
 */
static inline uint64_t sys_signals_block(void)
{
	uint64_t faults = UINT64_C(1) << (SIGILL - 1) | UINT64_C(1) << (SIGTRAP - 1) |
			  UINT64_C(1) << (SIGBUS - 1) | UINT64_C(1) << (SIGFPE - 1) |
			  UINT64_C(1) << (SIGSEGV - 1) | UINT64_C(1) << (SIGSYS - 1);
	uint64_t blocked = ~(faults | UINT64_C(3) << 31), before = 0;

	/* Under a filter they come: one that jumps out is then not healed. */
	if (quiet_is_on())
		return SYS_SIGNALS_FREE;
	(void)syscall(SYS_rt_sigprocmask, SIG_BLOCK, &blocked, &before, sizeof(before));
	return before;
}

static inline void sys_signals_restore(uint64_t before)
{
	if (before == SYS_SIGNALS_FREE)
		return;
	(void)syscall(SYS_rt_sigprocmask, SIG_SETMASK, &before, NULL, sizeof(before));
}

static inline uint32_t sys_gettid(void)
{
	return quiet_is_on() ? quiet_tid() : (uint32_t)syscall(SYS_gettid);
}

/* In a forked child of a quiet process: its parent's. */
static inline uint32_t sys_getpid(void)
{
	return quiet_is_on() ? quiet.pid : (uint32_t)getpid();
}

static inline void sys_yield(void)
{
	if (!quiet_is_on())
		(void)sched_yield();
}

#endif
