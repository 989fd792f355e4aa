/* SPDX-License-Identifier: Apache-2.0 */
/*
 * free_fails: frees that the driver refuses, in every way there is: twice, in the middle of a block, an address that never
 * was, NULL; between frees that succeed. The codes go to stderr, so that a run with and one without a collector can be
 * compared. A refused free must leave no row, and the block's real free must still be whole.
 */
#include <stdio.h>

#include "target.h"

int main(void)
{
	struct truth *truth = truth_new(1024);

	for (unsigned i = 0; i < 64; i++) {
		struct block *block = truth_alloc(truth, 8192 + i, FLAG_NORMAL | i % 2);
		struct block *handle = truth_create(truth, 1, (int)(i % 2));
		char *address = (char *)(uintptr_t)block->address;
		drvError_t codes[6];

		codes[0] = halMemFree(address + 8);
		codes[1] = halMemFree((void *)(uintptr_t)0x123456789000);
		codes[2] = halMemFree(NULL);
		codes[3] = halMemFree((void *)(uintptr_t)handle->address);
		if (i % 4 != 3) {
			truth_free(truth, block);
			codes[4] = halMemFree(address);
		} else {
			codes[4] = halMemFree(address + 4096);
		}
		truth_free(truth, handle);
		codes[5] = halMemRelease(NULL);
		for (unsigned n = 0; n < 6; n++) {
			target_check(codes[n] != 0, "a wrong free succeeded");
			fprintf(stderr, "%u%c", codes[n], n == 5 ? '\n' : ' ');
		}
	}
	truth_write();
	return 0;
}
