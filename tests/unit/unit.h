/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What unit tests share: cmocka with the headers it relies on, a directory for a test or a group of tests, whole files, random
 * numbers that are the same in every run, and child processes. A failure ends the test by an assertion of cmocka.
 */
#ifndef MSCOPE_TESTS_UNIT_H
#define MSCOPE_TESTS_UNIT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/files.h"

/* Made and removed by the two functions below, which serve as setup and teardown of a test or of a group. */
static char unit_directory[200];

static inline int unit_make_directory_in(const char *parent)
{
	(void)snprintf(unit_directory, sizeof(unit_directory), "%s/mscope-unit-XXXXXX", parent);
	return mkdtemp(unit_directory) == NULL;
}

static inline int unit_make_directory(void **state)
{
	const char *parent = getenv("TMPDIR");

	(void)state;
	return unit_make_directory_in(parent != NULL && strlen(parent) < 100 ? parent : "/tmp");
}

/* In memory where there is some: for tests that map thousands of small files, each of which a disk takes milliseconds to unmap. */
static inline int unit_make_directory_in_memory(void **state)
{
	if (unit_make_directory_in("/dev/shm") == 0)
		return 0;
	return unit_make_directory(state);
}

/* With all that is in it. */
static inline int unit_remove_directory(void **state)
{
	(void)state;
	return files_remove(unit_directory);
}

/* For tests that must leave nothing in it: fails where something is left. */
static inline int unit_remove_empty_directory(void **state)
{
	(void)state;
	return rmdir(unit_directory);
}

/* Path of a file in the directory. Valid until the call after the next one. */
static inline const char *unit_path(const char *name)
{
	static char path[2][600];
	static int turn;

	turn = !turn;
	(void)snprintf(path[turn], sizeof(path[turn]), "%s/%s", unit_directory, name);
	return path[turn];
}

static inline void unit_write_file(const char *path, const void *data, size_t bytes)
{
	FILE *file = fopen(path, "wb");

	assert_non_null(file);
	assert_int_equal(fwrite(data, 1, bytes, file), bytes);
	assert_int_equal(fclose(file), 0);
}

/* The caller frees what comes back. */
static inline uint8_t *unit_read_file(const char *path, size_t *out_bytes)
{
	FILE *file = fopen(path, "rb");
	struct stat st;
	uint8_t *data;

	assert_non_null(file);
	assert_int_equal(fstat(fileno(file), &st), 0);
	data = malloc((size_t)st.st_size + 1);
	assert_non_null(data);
	*out_bytes = fread(data, 1, (size_t)st.st_size, file);
	assert_int_equal(*out_bytes, st.st_size);
	(void)fclose(file);
	return data;
}

/* Descriptor of a file that holds these bytes and stands at its beginning. */
static inline int unit_memory_file(const void *data, size_t bytes)
{
	int fd = memfd_create("unit", MFD_CLOEXEC);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, data, bytes), bytes);
	assert_int_equal(lseek(fd, 0, SEEK_SET), 0);
	return fd;
}

/* 56 bits; `state` is any number but 0. */
static inline uint64_t unit_random(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state * UINT64_C(0x2545f4914f6cdd1d) >> 8;
}

static inline uint64_t unit_now_ns(void)
{
	struct timespec now;

	(void)clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* A forked child that works longer hangs, however busy the machine is. */
#define UNIT_HANGS_S 240u

/* Waits for a child: its status as waitpid() gives it, -1 where there is none. For children too, so no assertion. */
static inline int unit_wait(pid_t pid)
{
	int status = -1;

	return waitpid(pid, &status, 0) == pid ? status : -1;
}

/* Under qemu-user, which cannot map pages twice, run threads in a forked child, or execute this program again. */
static inline bool unit_is_emulated(void)
{
	void *page = mmap(NULL, 4096, PROT_READ, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	return mremap(page, 0, 4096, MREMAP_MAYMOVE) == MAP_FAILED;
}

#endif
