/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as a packed trace. The first byte says how: with 1, the sums of blocks are made right, so that they do not keep the
 * rest from being seen; with 2, a good header block comes first, which no mutation of a compressed one would ever hit on.
 */
#include <stdint.h>

#include <xxhash.h>

#include "replay_all.h"
#include "trace/pack.h"
#include "../unit/trace_maker.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A packed trace that holds a header alone, made by our own writer. */
static const uint8_t *good_header(size_t *out_bytes)
{
	static uint8_t bytes[65536];
	static size_t length;
	struct pack_writer *writer;
	struct maker m;
	char path[200];

	if (length == 0) {
		fuzz_named_file(path);
		maker_make(&m, path, MAKER_CHUNK_BYTES, 1);
		(void)unlink(path);
		if (pack_writer_open(path, &writer, NULL) < 0 ||
		    pack_writer_put(writer,
				    &(struct pack_block){.kind = PACK_HEADER,
							 .raw_bytes = TRACE_HEADER_BYTES},
				    m.header) < 0)
			abort();
		length = (size_t)pread(pack_writer_fd(writer), bytes, sizeof(bytes), 0);
		pack_writer_close(writer);
		maker_fini(&m);
	}
	*out_bytes = length;
	return bytes;
}

/* Block after block, as the reader would walk them. */
static void make_sums_right(uint8_t *data, size_t bytes)
{
	size_t at = 8;

	while (bytes >= at + sizeof(struct pack_block)) {
		struct pack_block block;

		memcpy(&block, data + at, sizeof(block));
		block.magic = PACK_BLOCK_MAGIC;
		if (block.packed_bytes > bytes - at - sizeof(block))
			block.packed_bytes = (uint32_t)(bytes - at - sizeof(block));
		/* A real block of this size has as many bytes in the file; here it would only take memory. */
		block.raw_bytes %= 1u << 20;
		block.sum = XXH3_64bits(data + at + sizeof(block), block.packed_bytes);
		block.header_sum = XXH3_64bits(&block, offsetof(struct pack_block, header_sum));
		memcpy(data + at, &block, sizeof(block));
		at += sizeof(block) + block.packed_bytes;
	}
}

/* The same bytes as the part of an engine whose raw trace has a chunk of writer 1 that is being written, and one that came back. */
static void observe_beside(const uint8_t *data, size_t bytes)
{
	struct maker_writer w = {.number = 1, .sequence = 1};
	struct chunk *chunk;
	struct maker m;
	char raw[200], part[200];
	int fd;

	fuzz_named_file(raw);
	fuzz_named_file(part);
	maker_make(&m, raw, MAKER_CHUNK_BYTES, 2);
	w.maker = &m;
	chunk = maker_next_chunk(&w, 1000);
	atomic_store(&chunk->magic, 0);
	w.chunk = NULL;
	maker_alloc(&w, 2000, 0, 1, 1, 0);
	fd = open(part, O_WRONLY | O_CLOEXEC);
	if (fd < 0 || write(fd, data, bytes) != (ssize_t)bytes)
		abort();
	(void)close(fd);
	fuzz_observe(raw, part);
	(void)unlink(part);
	maker_fini(&m);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct fuzz_file file;
	const uint8_t *header;
	size_t first = 8;
	uint8_t *whole;

	if (size == 0)
		return 0;
	header = good_header(&first);
	if (!(data[0] & 2))
		first = 8; /* its magic alone */
	whole = malloc(first + size);
	if (whole == NULL)
		abort();
	memcpy(whole, header, first);
	memcpy(whole + first, data + 1, size - 1);
	if (data[0] & 1)
		make_sums_right(whole, first + size - 1);
	fuzz_file_fill(&file, whole, first + size - 1);
	fuzz_replay_all(NULL, file.path);
	observe_beside(whole, first + size - 1);
	free(whole);
	return 0;
}
