/* SPDX-License-Identifier: Apache-2.0 */
/*
 * wild_stores stores SEED COUNT | zero | half: a program that damages the trace which the collector has mapped into it, the way a
 * stray pointer or a clean-up of other people's files does.
 *
 * It allocates BLOCKS blocks of 1, 2, 3... bytes, says "ready" and waits for a byte on stdin. Then it stores COUNT random words at
 * random places of the mapping, with allocations in between, or cuts the file to nothing or to half. It ends with status 7: after
 * the stores like any program, after a cut at once, because the next store of the collector would be SIGBUS.
 */
#include <stdio.h>
#include <sys/stat.h>

#include "target.h"

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

static void store(unsigned char *mapping, uint64_t seed, unsigned count)
{
	uint64_t state = seed * 2654435761u + 1;

	for (unsigned i = 0; i < count; i++) {
		/* The header is small and matters most: every fourth goes there. */
		uint64_t within = i % 4 == 0 ? 4096 : file_bytes();
		uint64_t word = target_random(&state) ^ target_random(&state) << 32;
		void *address = NULL;

		memcpy(mapping + target_random(&state) % (within - 8), &word, sizeof(word));
		target_check(halMemAlloc(&address, BLOCKS + i, FLAG_NORMAL) == 0, "no memory");
		target_check(halMemFree(address) == 0, "free failed");
	}
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
		store(mapping, strtoull(argv[2], NULL, 10), (unsigned)atoi(argv[3]));
		return 7;
	}
	target_check(truncate(path, strcmp(argv[1], "half") == 0 ? (off_t)file_bytes() / 2 : 0) ==
			     0,
		     "cannot cut the trace");
	_exit(7);
}
