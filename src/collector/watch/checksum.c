/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sixteen bytes at a time, each by a table of its own: 32 KiB in all, computed at the first use. Threads that come at the same
 * time write the same values.
 */
#include "collector/watch/checksum.h"

#include <stdatomic.h>
#include <string.h>

#define POLYNOMIAL UINT64_C(0x42f0e1eba9ea3693)
#define SLICES	   16u

static uint64_t tables[SLICES][256];
static uint64_t behind[8][256]; /* what a byte of the state becomes behind CHECKSUM_CHUNK zeros */
static const uint8_t zeros[CHECKSUM_CHUNK];
static _Atomic uint32_t made, behind_made;

MSCOPE_COLD static void make_tables(void)
{
	uint32_t i, k;

	for (i = 0; i < 256; i++) {
		uint64_t value = i;

		for (k = 0; k < 8; k++)
			value = value & 1 ? value >> 1 ^ POLYNOMIAL : value >> 1;
		__atomic_store_n(&tables[0][i], value, __ATOMIC_RELAXED);
	}
	for (k = 1; k < SLICES; k++) {
		for (i = 0; i < 256; i++) {
			uint64_t before = tables[k - 1][i];

			__atomic_store_n(&tables[k][i], before >> 8 ^ tables[0][before & 0xff],
					 __ATOMIC_RELAXED);
		}
	}
	atomic_store_explicit(&made, 1, memory_order_release);
}

/* Eight bytes that end `from` bytes before the end of the slice. */
MSCOPE_INLINE uint64_t slice(uint32_t from, uint64_t word)
{
	return tables[from + 7][word & 0xff] ^ tables[from + 6][word >> 8 & 0xff] ^
	       tables[from + 5][word >> 16 & 0xff] ^ tables[from + 4][word >> 24 & 0xff] ^
	       tables[from + 3][word >> 32 & 0xff] ^ tables[from + 2][word >> 40 & 0xff] ^
	       tables[from + 1][word >> 48 & 0xff] ^ tables[from][word >> 56];
}

uint64_t checksum_add(uint64_t state, const void *data, size_t bytes)
{
	const uint8_t *at = data;

	/* Pairs with the release in make_tables(). */
	if (MSCOPE_UNLIKELY(atomic_load_explicit(&made, memory_order_acquire) == 0))
		make_tables();
	for (; bytes >= SLICES; bytes -= SLICES, at += SLICES) {
		uint64_t first, second;

		memcpy(&first, at, sizeof(first));
		memcpy(&second, at + 8, sizeof(second));
		state = slice(8, first ^ state) ^ slice(0, second);
	}
	for (; bytes > 0; bytes--, at++)
		state = state >> 8 ^ tables[0][(state ^ *at) & 0xff];
	return state;
}

/* A state is the sum of its bits, and so is what becomes of it. */
MSCOPE_COLD static void make_behind(void)
{
	uint32_t byte, i;

	for (byte = 0; byte < 8; byte++) {
		for (i = 1; i < 256; i++) {
			uint32_t rest = i & (i - 1); /* without its lowest bit */
			uint64_t value = rest == 0 ? checksum_add((uint64_t)i << 8 * byte, zeros,
								  sizeof(zeros))
						   : behind[byte][rest] ^ behind[byte][i ^ rest];

			__atomic_store_n(&behind[byte][i], value, __ATOMIC_RELAXED);
		}
	}
	atomic_store_explicit(&behind_made, 1, memory_order_release);
}

uint64_t checksum_join(uint64_t state, uint64_t sum, size_t bytes)
{
	uint64_t moved = 0;
	uint32_t byte;

	if (bytes != CHECKSUM_CHUNK)
		return checksum_add(state, zeros, bytes) ^ sum;
	/* Pairs with the release in make_behind(). */
	if (MSCOPE_UNLIKELY(atomic_load_explicit(&behind_made, memory_order_acquire) == 0))
		make_behind();
	for (byte = 0; byte < 8; byte++)
		moved ^= behind[byte][state >> 8 * byte & 0xff];
	return moved ^ sum;
}
