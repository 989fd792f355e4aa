/* SPDX-License-Identifier: Apache-2.0 */
/*
 * components: driver memory of every component that CANN numbers, and of numbers beyond them, on two devices; a part of it is
 * given back. A line for each block, in the order of allocation:
 *
 *     device module size address freed
 */
#include <stdio.h>

#include "target.h"

#define MODULES 80
#define KEPT	3 /* every third block stays */

/* Device memory as halMemAlloc()'s flags say it: device in bits 0-9, space in 10-13, module in 56-63. */
#define FLAG_DEVICE_SPACE (UINT64_C(1) << 10)

int main(void)
{
	struct {
		void *address;
		uint64_t size;
		unsigned device;
	} blocks[MODULES];
	unsigned i;

	for (i = 0; i < MODULES; i++) {
		blocks[i].size = (i + 1) * UINT64_C(4096) + i;
		blocks[i].device = i % 2;
		target_check(
			halMemAlloc(&blocks[i].address, blocks[i].size,
				    (uint64_t)i << 56 | FLAG_DEVICE_SPACE | blocks[i].device) == 0,
			"halMemAlloc failed");
	}
	for (i = 0; i < MODULES; i++) {
		if (i % KEPT != 0)
			target_check(halMemFree(blocks[i].address) == 0, "halMemFree failed");
		printf("%u %u %llu %llu %d\n", blocks[i].device, i,
		       (unsigned long long)blocks[i].size,
		       (unsigned long long)(uintptr_t)blocks[i].address, i % KEPT != 0);
	}
	return 0;
}
