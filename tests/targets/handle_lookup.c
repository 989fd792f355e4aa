/* SPDX-License-Identifier: Apache-2.0 */
/*
 * handle_lookup DRIVER [WAY]: never linked to the driver, finds it at run time, as device runtimes do. WAY is handle (dlsym
 * on what dlopen gave: nobody can interpose), global (RTLD_GLOBAL, then dlsym by RTLD_DEFAULT: the preloaded one is found)
 * or next (RTLD_NEXT). Prints what it got and exits 0 when all calls succeeded. Built a second time as cleared_env_child.
 */
#include <dlfcn.h>
#include <stdio.h>

#include "target.h"

int main(int argc, char **argv)
{
	const char *way = argc > 2 ? argv[2] : "handle";
	int flags = RTLD_NOW | (strcmp(way, "handle") == 0 ? RTLD_LOCAL : RTLD_GLOBAL);
	struct truth *truth = truth_new(400);
	drvError_t (*alloc)(void **pp, unsigned long long size, unsigned long long flag);
	drvError_t (*release)(void *pp);
	void *library;

	target_check(argc > 1, "usage: handle_lookup DRIVER [WAY]");
	library = dlopen(argv[1], flags);
	target_check(library != NULL, "the driver was not found");
	if (strcmp(way, "global") == 0)
		library = RTLD_DEFAULT;
	else if (strcmp(way, "next") == 0)
		library = RTLD_NEXT;
	*(void **)&alloc = dlsym(library, "halMemAlloc");
	*(void **)&release = dlsym(library, "halMemFree");
	target_check(alloc != NULL && release != NULL, "the functions were not found");
	for (unsigned i = 0; i < 100; i++) {
		struct block *block;
		void *address = NULL;

		target_check(alloc(&address, 4096 + i, FLAG_NORMAL) == 0, "no memory");
		block = truth_add_flag(truth, address, 4096 + i, FLAG_NORMAL);
		if (i % 8 != 7) {
			truth_event(truth, block, true);
			target_check(release(address) == 0, "free failed");
		}
	}
	truth_write();
	return 0;
}
