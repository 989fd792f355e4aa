/* SPDX-License-Identifier: Apache-2.0 */
/*
 * many_devices N: memory of every kind on N devices and the host, and from each device in turn, so that a running sum mixed
 * up between devices shows.
 */
#include "target.h"

#define ROUNDS 40

int main(int argc, char **argv)
{
	int devices = argc > 1 ? atoi(argv[1]) : 4;
	struct truth *truth = truth_new((size_t)devices * ROUNDS * 8);

	for (int round = 0; round < ROUNDS; round++) {
		for (int device = 0; device < devices; device++) {
			uint64_t size = (uint64_t)(round + 1) * 512 + (unsigned)device;
			unsigned bits = (unsigned)device;
			struct block *small = truth_alloc(truth, size, FLAG_NORMAL | bits);
			struct block *huge = truth_alloc(truth, size << 4, FLAG_HUGE | bits);
			struct block *host = truth_alloc(truth, size, FLAG_HOST);
			struct block *physical = truth_create(truth, 1, device);

			truth_free(truth, huge);
			truth_free(truth, physical);
			if (round % 4 != 0)
				truth_free(truth, small);
			if (round % 8 != 0)
				truth_free(truth, host);
		}
	}
	truth_write();
	return 0;
}
