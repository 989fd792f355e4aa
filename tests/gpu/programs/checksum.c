/* SPDX-License-Identifier: Apache-2.0 */
/* The checksum of watched memory, a byte at a time, for programs of tests/gpu. */
#include <stddef.h>
#include <stdint.h>

uint64_t checksum(const uint8_t *data, size_t bytes);

uint64_t checksum(const uint8_t *data, size_t bytes)
{
	static uint64_t table[256];
	uint64_t state = UINT64_MAX;
	size_t i, k;

	for (i = 0; i < 256; i++) {
		table[i] = i;
		for (k = 0; k < 8; k++)
			table[i] = table[i] & 1 ? table[i] >> 1 ^ UINT64_C(0x42f0e1eba9ea3693)
						: table[i] >> 1;
	}
	for (i = 0; i < bytes; i++)
		state = state >> 8 ^ table[(state ^ data[i]) & 0xff];
	return ~state;
}
