/* SPDX-License-Identifier: Apache-2.0 */
/*
 * trace_bomb TRACE KIND COUNT: appends blocks to a packed trace, each of 64 MiB that pack to a few KiB: of names (KIND 3), or
 * of records of a writer each (KIND 2). All sums are right. No program to trace.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <xxhash.h>
#include <zstd.h>

#include "trace/pack.h"

static int give_up(const char *what)
{
	(void)fprintf(stderr, "trace_bomb: %s\n", what);
	return EXIT_FAILURE;
}

int main(int argc, char **argv)
{
	size_t room = ZSTD_compressBound(PACK_BYTES_MAX), packed;
	struct pack_block block = {.magic = PACK_BLOCK_MAGIC, .codec = PACK_ZSTD};
	void *from = calloc(1, PACK_BYTES_MAX), *to = malloc(room);
	int fd, i;

	if (argc != 4 || from == NULL || to == NULL)
		return give_up("TRACE KIND COUNT");
	packed = ZSTD_compress(to, room, from, PACK_BYTES_MAX, 19);
	fd = open(argv[1], O_WRONLY | O_APPEND | O_CLOEXEC);
	if (fd < 0 || ZSTD_isError(packed))
		return give_up("the trace cannot be written");
	block.kind = (uint8_t)atoi(argv[2]);
	block.raw_bytes = PACK_BYTES_MAX;
	block.packed_bytes = (uint32_t)packed;
	block.sum = XXH3_64bits(to, packed);
	for (i = 0; i < atoi(argv[3]); i++) {
		block.writer = 1000 + (uint32_t)i;
		block.header_sum = XXH3_64bits(&block, offsetof(struct pack_block, header_sum));
		if (write(fd, &block, sizeof(block)) != (ssize_t)sizeof(block) ||
		    write(fd, to, packed) != (ssize_t)packed)
			return give_up("the trace cannot be written");
	}
	free(from);
	free(to);
	return close(fd) == 0 ? 0 : give_up("the trace cannot be written");
}
