/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which blocks of our code ran, for the preset `coverage`: clang calls us at the start of each block. $MSCOPE_COVERAGE is the
 * beginning of a path; the file PATH.N has a byte for each of the N - 1 blocks of an executable or library, by its ordinal from 1, and 1
 * in it when that block ran. The file is mapped and shared: all processes of a test add to it, and a kill loses nothing. Nothing is
 * locked or allocated, and nothing depends on a clean exit.
 *
 * With $MSCOPE_COVERAGE_PCS, a directory, the addresses of the blocks are written to DIRECTORY/N, 8 bytes each, relative to the ELF
 * header. tools/covered.py makes lines of them.
 */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define HIDDEN __attribute__((visibility("hidden")))

HIDDEN extern const char __ehdr_start[];

HIDDEN void __sanitizer_cov_trace_pc_guard_init(uint32_t *start, uint32_t *stop);
HIDDEN void __sanitizer_cov_trace_pc_guard(uint32_t *guard);
HIDDEN void __sanitizer_cov_pcs_init(const uintptr_t *start, const uintptr_t *stop);

static unsigned char *ran;

static int open_numbered(const char *variable, const char *format, size_t number)
{
	const char *where = getenv(variable);
	char path[1000];
	int length;

	if (where == NULL)
		return -1;
	length = snprintf(path, sizeof(path), format, where, number);
	if (length < 0 || (size_t)length >= sizeof(path))
		return -1;
	return open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
}

/* Called by each file of a program, with the same arguments. */
void __sanitizer_cov_trace_pc_guard_init(uint32_t *start, uint32_t *stop)
{
	size_t count = (size_t)(stop - start) + 1;
	uint32_t ordinal = 0;
	void *map;
	int fd;

	if (start == stop || ran != NULL)
		return;
	fd = open_numbered("MSCOPE_COVERAGE", "%s.%zu", count);
	if (fd < 0)
		return;
	map = ftruncate(fd, (off_t)count) == 0
		      ? mmap(NULL, count, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)
		      : MAP_FAILED;
	(void)close(fd);
	if (map == MAP_FAILED)
		return;
	ran = map;
	for (; start < stop; start++)
		*start = ++ordinal;
}

/* The guard of a block is its ordinal; 0: the block is known to have run, or nobody wants to know. */
void __sanitizer_cov_trace_pc_guard(uint32_t *guard)
{
	uint32_t ordinal = *guard;

	if (ordinal == 0)
		return;
	ran[ordinal] = 1;
	*guard = 0;
}

/* Pairs of an address and flags. */
void __sanitizer_cov_pcs_init(const uintptr_t *start, const uintptr_t *stop)
{
	int fd = open_numbered("MSCOPE_COVERAGE_PCS", "%s/%zu", (size_t)(stop - start) / 2 + 1);

	for (; fd >= 0 && start < stop; start += 2) {
		uint64_t address = *start - (uintptr_t)__ehdr_start;

		if (write(fd, &address, sizeof(address)) != sizeof(address))
			break;
	}
	if (fd >= 0)
		(void)close(fd);
}
