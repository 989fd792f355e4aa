/* SPDX-License-Identifier: Apache-2.0 */
/*
 * wild_stores stores SEED COUNT [BLOCKS] | chunks | zero | half: a program that damages the trace which the collector has mapped into it, the way a
 * stray pointer or a clean-up of other people's files does.
 *
 * It allocates BLOCKS blocks of 1, 2, 3... bytes, says "ready" and waits for a byte on stdin. Then it stores COUNT random words at
 * random places of the mapping, with BLOCKS allocations (1) after each, or cuts the file to nothing or to half. It ends with status 7: after
 * the stores like any program, after a cut at once, because the next store of the collector would be SIGBUS.
 */
#include <stdio.h>
#include <sys/stat.h>

#include "target.h"
#include "trace/chunk.h"

#define BLOCKS 500

static char path[4096];

/* The mapping of a file that ends in .raw; its path goes to `path`. */
static unsigned char *find_mapping(void)
{
	FILE *maps = fopen("/proc/self/maps", "r");
	unsigned long start = 0;
	char line[8192];

	target_check(maps != NULL, "no /proc");
	while (start == 0 && fgets(line, sizeof(line), maps) != NULL) {
		char *slash = strchr(line, '/');

		line[strcspn(line, "\n")] = 0;
		if (slash == NULL || strlen(slash) < 4 ||
		    strcmp(slash + strlen(slash) - 4, ".raw") != 0)
			continue;
		start = strtoul(line, NULL, 16);
		snprintf(path, sizeof(path), "%s", slash);
	}
	fclose(maps);
	target_check(start != 0, "the trace is not mapped");
	return (unsigned char *)start;
}

static uint64_t file_bytes(void)
{
	struct stat st;

	target_check(stat(path, &st) == 0, "the trace is gone");
	return (uint64_t)st.st_size;
}

static void store(unsigned char *mapping, uint64_t seed, unsigned count, unsigned blocks)
{
	uint64_t state = seed * 2654435761u + 1;

	for (unsigned i = 0; i < count; i++) {
		/* The header is small and matters most: every fourth goes there. */
		uint64_t within = i % 4 == 0 ? 4096 : file_bytes();
		uint64_t word = target_random(&state) ^ target_random(&state) << 32;
		void *address = NULL;

		memcpy(mapping + target_random(&state) % (within - 8), &word, sizeof(word));
		for (unsigned k = 0; k < blocks; k++) {
			target_check(halMemAlloc(&address, BLOCKS + i, FLAG_NORMAL) == 0,
				     "no memory");
			target_check(halMemFree(address) == 0, "free failed");
		}
	}
}

/*
 * Makes the words of the header that say which chunks there are as wrong as they can be, each in turn, with enough allocations to need
 * new chunks after each; tells how much the file has grown.
 */
static void spoil_chunks(unsigned char *mapping)
{
	struct trace_header *header = (struct trace_header *)(void *)mapping;
	_Atomic uint32_t *ring = (_Atomic uint32_t *)(void *)(mapping + TRACE_HEADER_BYTES);
	uint64_t before = file_bytes();

	for (unsigned i = 0; i < 24; i++) {
		uint32_t wrong = i % 2 == 0 ? 60000 : 0;
		void *address = NULL;

		for (unsigned k = 0; k < TRACE_CHUNKS_MAX / 16 && i % 6 == 0; k++)
			atomic_store(&ring[k], 50000 + k % 15000);
		if (i % 6 == 1)
			atomic_store(&header->ring_head, atomic_load(&header->ring_head) + 1000);
		else if (i % 6 == 2)
			atomic_store(&header->ring_tail, UINT64_MAX / 2);
		else if (i % 6 == 3 || i % 6 == 4)
			atomic_store(&header->next_chunk, wrong);
		else if (i % 6 == 5)
			atomic_store(&header->reserved_chunks, 60000);
		for (unsigned k = 0; k < 8000; k++) {
			target_check(halMemAlloc(&address, BLOCKS + i, FLAG_NORMAL) == 0,
				     "no memory");
			target_check(halMemFree(address) == 0, "free failed");
		}
	}
	printf("grown %llu\n", (unsigned long long)(file_bytes() - before));
	fflush(stdout);
}

int main(int argc, char **argv)
{
	unsigned char *mapping;
	void *address;
	char go;

	target_check(argc > 1, "what is to be damaged?");
	for (unsigned i = 1; i <= BLOCKS; i++)
		target_check(halMemAlloc(&address, i, FLAG_NORMAL) == 0, "no memory");
	mapping = find_mapping();
	target_check(write(STDOUT_FILENO, "ready\n", 6) == 6, "stdout is closed");
	target_check(read(STDIN_FILENO, &go, 1) == 1, "stdin is closed");
	if (strcmp(argv[1], "stores") == 0) {
		target_check(argc > 3, "seed and count?");
		store(mapping, strtoull(argv[2], NULL, 10), (unsigned)atoi(argv[3]),
		      argc > 4 ? (unsigned)atoi(argv[4]) : 1);
		return 7;
	}
	if (strcmp(argv[1], "chunks") == 0) {
		spoil_chunks(mapping);
		return 7;
	}
	target_check(truncate(path, strcmp(argv[1], "half") == 0 ? (off_t)file_bytes() / 2 : 0) ==
			     0,
		     "cannot cut the trace");
	_exit(7);
}
