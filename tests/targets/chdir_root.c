/* SPDX-License-Identifier: Apache-2.0 */
/*
 * chdir_root DIRECTORY: makes DIRECTORY its own, removes it while standing in it, takes memory there, and goes on in /. Paths
 * that a collector kept relative would end nowhere.
 */
#include <sys/stat.h>

#include "target.h"

#define PAIRS 200

int main(int argc, char **argv)
{
	struct truth *truth = truth_new(4 * PAIRS);
	char path[16];

	target_check(argc == 2, "usage: chdir_root DIRECTORY");
	target_check(mkdir(argv[1], 0700) == 0 && chdir(argv[1]) == 0 && rmdir(argv[1]) == 0,
		     "cannot remove my own directory");
	target_check(getcwd(path, sizeof(path)) == NULL, "the directory is still there");
	truth_live(truth, PAIRS, 0);
	target_check(chdir("/") == 0, "chdir failed");
	truth_live(truth, PAIRS, 1);
	truth_write();
	return 0;
}
