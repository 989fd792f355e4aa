/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ctor: linked to a library whose constructor takes memory before main, and whose destructor gives half of it back after
 * main. The truth is written in between; what the destructor will do is known and already stands in it.
 */
#include "target.h"

#define BLOCKS 16

extern void *ctor_blocks[BLOCKS];

int main(void)
{
	struct truth *truth = truth_new(1000);
	struct block *blocks[BLOCKS];

	for (unsigned i = 0; i < BLOCKS; i++)
		blocks[i] = truth_add_flag(truth, ctor_blocks[i], 100 + i, FLAG_NORMAL);
	truth_live(truth, 50, 0);
	for (unsigned i = 0; i < BLOCKS; i += 2)
		truth_event(truth, blocks[i], true);
	truth_write();
	return 0;
}
