/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Functions of libc in the versions that every glibc since 2.17 has. The build includes it into every file of the simulated NPU and
 * of the examples, and links the libraries that these functions were in before glibc 2.34: libpthread.so.0 and libdl.so.2.
 * tests/lint/check_glibc.py names what is missing here.
 */
#ifndef SIMNPU_GLIBC_FLOOR_H
#define SIMNPU_GLIBC_FLOOR_H

#include <sys/stat.h>

#if defined(__x86_64__)
#define FLOOR_VERSION(first) first
#define FLOOR_STAT	     1
#elif defined(__aarch64__)
/* The first glibc that knows this machine. */
#define FLOOR_VERSION(first) "GLIBC_2.17"
#define FLOOR_STAT	     0
#else
#error "only x86-64 and aarch64 are supported"
#endif

#define FLOOR(name, first) __asm__(".symver " #name "," #name "@" FLOOR_VERSION(first));
FLOOR(dlopen, "GLIBC_2.2.5")
FLOOR(dlsym, "GLIBC_2.2.5")
FLOOR(pthread_condattr_setclock, "GLIBC_2.3.3")
FLOOR(pthread_create, "GLIBC_2.2.5")
FLOOR(pthread_join, "GLIBC_2.2.5")
FLOOR(pthread_mutex_trylock, "GLIBC_2.2.5")
FLOOR(pthread_once, "GLIBC_2.2.5")
FLOOR(pthread_setname_np, "GLIBC_2.12")
FLOOR(pthread_sigmask, "GLIBC_2.2.5")
#undef FLOOR

/* What stat() and fstat() were before they became functions, with glibc 2.33. */
int __xstat(int version, const char *path, struct stat *out);
int __fxstat(int version, int fd, struct stat *out);

static inline int floor_stat(const char *path, struct stat *out)
{
	return __xstat(FLOOR_STAT, path, out);
}

static inline int floor_fstat(int fd, struct stat *out)
{
	return __fxstat(FLOOR_STAT, fd, out);
}

#endif
