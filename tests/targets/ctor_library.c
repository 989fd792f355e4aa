/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A library that takes device memory in its constructor, before main and, where the loader pleases, before a collector's
 * own, and gives it back in its destructor. The program asks for the addresses with ctor_blocks.
 */
#include <stdlib.h>

#include "ascend_hal.h"

#define BLOCKS 16
#define FLAG   (((unsigned long long)33 << 56) | 0x904400)

extern void *ctor_blocks[BLOCKS];
void *ctor_blocks[BLOCKS];

__attribute__((constructor)) static void take(void)
{
	for (unsigned i = 0; i < BLOCKS; i++)
		if (halMemAlloc(&ctor_blocks[i], 100 + i, FLAG) != 0)
			abort();
}

__attribute__((destructor)) static void give_back(void)
{
	for (unsigned i = 0; i < BLOCKS; i += 2)
		if (halMemFree(ctor_blocks[i]) != 0)
			abort();
}
