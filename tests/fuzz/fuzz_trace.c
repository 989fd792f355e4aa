/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A raw trace from any bytes. A real one is mostly zeros, so the input says only what is not: it spoils bytes of a good header
 * and fills chunks of 4 KiB, each with a header of its own choice.
 *
 *     count, then for each: offset:16 value:8                                   bytes of the first 64 KiB
 *     for each chunk: flags:8 writer:8 sequence:8 base:32 committed:16 length:16, then `length` bytes of records
 *
 * flags: 1 wrong magic, 2 wrong salt, 4 free, 8 `committed` as it stands (else what was filled).
 */
#include <stdint.h>

#include "replay_all.h"
#include "../unit/trace_maker.h"

#define CHUNKS 16u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct input {
	const uint8_t *at, *end;
};

static uint32_t take(struct input *in, unsigned bytes)
{
	uint32_t value = 0;

	for (unsigned i = 0; i < bytes && in->at < in->end; i++)
		value |= (uint32_t)*in->at++ << 8 * i;
	return value;
}

static void fill_chunk(struct maker *m, struct input *in)
{
	uint32_t flags = take(in, 1), length, committed;
	struct maker_writer w = {.maker = m, .number = take(in, 1), .sequence = take(in, 1)};
	struct chunk *chunk = maker_next_chunk(&w, take(in, 4));

	committed = take(in, 2);
	length = take(in, 2) % (MAKER_CHUNK_BYTES - CHUNK_HEADER_BYTES + 1);
	if (length > (size_t)(in->end - in->at))
		length = (uint32_t)(in->end - in->at);
	memcpy((char *)chunk + CHUNK_HEADER_BYTES, in->at, length);
	in->at += length;
	if (!(flags & 8))
		committed = CHUNK_HEADER_BYTES + length;
	atomic_store(&chunk->committed, committed);
	if (flags & 1)
		atomic_store(&chunk->magic, 1);
	if (flags & 2)
		chunk->salt ^= 1;
	if (flags & 4)
		atomic_store(&chunk->state, CHUNK_FREE);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input in = {data, data + size};
	uint8_t patches[256][3];
	char path[200];
	struct maker m;
	uint32_t count = take(&in, 1), i;

	fuzz_named_file(path);
	maker_make(&m, path, MAKER_CHUNK_BYTES, CHUNKS);
	for (i = 0; i < count; i++) {
		patches[i][0] = (uint8_t)take(&in, 1);
		patches[i][1] = (uint8_t)take(&in, 1);
		patches[i][2] = (uint8_t)take(&in, 1);
	}
	for (i = 0; i < CHUNKS && in.at < in.end; i++)
		fill_chunk(&m, &in);
	/* The maker needs its own header whole, so that is spoilt last. */
	for (i = 0; i < count; i++)
		((uint8_t *)m.header)[patches[i][0] | patches[i][1] << 8] = patches[i][2];
	(void)munmap(m.header, m.bytes);
	fuzz_replay_all(path, NULL);
	fuzz_observe(path, "/nowhere");
	(void)unlink(path);
	return 0;
}
