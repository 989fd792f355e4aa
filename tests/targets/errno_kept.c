/* SPDX-License-Identifier: Apache-2.0 */
/*
 * errno_kept: no call that succeeds may touch errno: the first ones, on which a collector starts and opens its files, those
 * of new threads, and enough of them that more space must be found. Run without a collector it shows that the driver itself
 * keeps it.
 */
#include <pthread.h>

#include "target.h"

#define MARK 1234

static void *work(void *argument)
{
	unsigned pairs = *(unsigned *)argument;
	struct truth *truth = truth_new(2 * (size_t)pairs + 4);

	for (unsigned i = 0; i < pairs; i++) {
		struct block *block;

		errno = MARK;
		block = truth_alloc(truth, 4096 + i, i % 3 == 0 ? FLAG_HOST : FLAG_NORMAL);
		target_check(errno == MARK, "an allocation touched errno");
		truth_free(truth, block);
		target_check(errno == MARK, "a free touched errno");
	}
	errno = MARK;
	truth_free(truth, truth_create(truth, 1, 0));
	target_check(errno == MARK, "a handle touched errno");
	return NULL;
}

int main(void)
{
	unsigned many = 50000;
	unsigned few = 10;

	work(&many);
	for (unsigned i = 0; i < 50; i++) {
		pthread_t thread;

		pthread_create(&thread, NULL, work, &few);
		pthread_join(thread, NULL);
	}
	truth_write();
	return 0;
}
