/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plugin_loop ROUNDS FILE...: loads the plug-ins in turn, takes memory through each, and unloads it, so that different
 * plug-ins come to lie at the same address. The plug-in's number is in the size of its blocks: size % 8 is its place on the
 * command line.
 */
#include <dlfcn.h>

#include "target.h"

int main(int argc, char **argv)
{
	int rounds = argc > 2 ? atoi(argv[1]) : 0;
	struct truth *truth;
	uintptr_t first = 0;
	bool same = false;

	target_check(rounds > 0 && argc < 10, "usage: plugin_loop ROUNDS FILE...");
	truth = truth_new((size_t)rounds * (size_t)(argc - 2) * 2);
	for (int i = 0; i < rounds * (argc - 2); i++) {
		uint64_t size = (uint64_t)i * 8 + (unsigned)(i % (argc - 2)) + 8;
		void *library = dlopen(argv[2 + i % (argc - 2)], RTLD_NOW | RTLD_LOCAL);
		void *(*take)(unsigned long long size, unsigned long long flag);
		char symbol[32] = "plugin_";
		struct block *block;
		void *address;

		target_check(library != NULL, "dlopen failed");
		strcat(symbol, (const char *)dlsym(library, "plugin_name"));
		*(void **)&take = dlsym(library, symbol);
		if (i == 0)
			first = (uintptr_t)take;
		else if (i % (argc - 2) != 0 && (uintptr_t)take == first)
			same = true;
		address = take(size, FLAG_NORMAL);
		target_check(address != NULL, "the plug-in got no memory");
		block = truth_add_flag(truth, address, size, FLAG_NORMAL);
		if (i % 3 != 0)
			truth_free(truth, block);
		dlclose(library);
		target_check(dlopen(argv[2 + i % (argc - 2)], RTLD_NOW | RTLD_NOLOAD) == NULL,
			     "the plug-in was not unloaded");
	}
	target_check(same, "no two plug-ins had the same address");
	truth_write();
	return 0;
}
