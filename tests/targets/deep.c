/* SPDX-License-Identifier: Apache-2.0 */
/* deep N: takes and gives back a block of device memory below N calls of one function. */
#include "target.h"

static unsigned descend(struct truth *truth, unsigned depth)
{
	if (depth == 0) {
		truth_free(truth, truth_alloc(truth, 4096, FLAG_NORMAL));
		return 1;
	}
	/* Used after the call, so that each call keeps its frame. */
	return 1 + descend(truth, depth - 1);
}

int main(int argc, char **argv)
{
	unsigned depth = argc > 1 ? (unsigned)atoi(argv[1]) : 100;

	target_check(descend(truth_new(2), depth) == depth + 1, "the stack was not walked down");
	truth_write();
	return 0;
}
