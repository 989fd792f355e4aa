/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cleared_env: takes memory, then runs its neighbour cleared_env_child with an empty environment, which is nobody's to trace
 * and must do as well. The child gets the driver's path as an argument: without a variable it would not find it.
 */
#include <dlfcn.h>
#include <link.h>
#include <spawn.h>
#include <stdio.h>
#include <sys/wait.h>

#include "target.h"

int main(int argc, char **argv)
{
	char *const nothing[] = {NULL};
	struct truth *truth = truth_new(200);
	void *library = dlopen("libascend_hal.so", RTLD_NOW | RTLD_NOLOAD);
	struct link_map *map = NULL;
	char program[4096];
	char *child_argv[] = {program, NULL, NULL};
	pid_t pid;
	int status;
	(void)argc;

	truth_live(truth, 50, 0);
	target_check(library != NULL && dlinfo(library, RTLD_DI_LINKMAP, &map) == 0, "no driver");
	child_argv[1] = map->l_name;
	snprintf(program, sizeof(program), "%s_child", argv[0]);
	target_check(posix_spawn(&pid, program, NULL, NULL, child_argv, nothing) == 0,
		     "cannot start the child");
	target_check(waitpid(pid, &status, 0) == pid && status == 0, "the child failed");
	truth_live(truth, 50, 0);
	truth_write();
	return 0;
}
