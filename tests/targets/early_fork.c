/* SPDX-License-Identifier: Apache-2.0 */
/*
 * early_fork: takes four blocks and gives one back, then forks. The child gives back one more that it has from its parent, takes one,
 * and so reaches its fifth allocation before the parent does; the parent takes its own after the child has ended.
 */
#include <sys/wait.h>

#include "target.h"

int main(void)
{
	struct truth *truth = truth_new(16);
	struct block *blocks[4];
	int status;
	pid_t pid;

	for (int i = 0; i < 4; i++)
		blocks[i] = truth_alloc(truth, 4096 * (uint64_t)(i + 1), FLAG_NORMAL | (unsigned)i);
	truth_free(truth, blocks[1]);
	pid = fork();
	target_check(pid >= 0, "fork failed");
	if (pid == 0)
		truth_free(truth, blocks[2]);
	else
		target_check(waitpid(pid, &status, 0) == pid && status == 0, "the child failed");
	truth_alloc(truth, 65536, FLAG_NORMAL);
	truth_write();
	return 0;
}
