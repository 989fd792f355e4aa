/* SPDX-License-Identifier: Apache-2.0 */
/*
 * deepbind PLUGIN: takes memory itself and through a plug-in that was loaded with RTLD_DEEPBIND. The plug-in needs the driver
 * by itself, so its calls go there before they can meet a preloaded function. Sizes of the plug-in's blocks are odd.
 */
#include <dlfcn.h>

#include "target.h"

int main(int argc, char **argv)
{
	struct truth *truth = truth_new(400);
	void *(*take)(unsigned long long size, unsigned long long flag);
	int (*give_back)(void *address);
	void *library;

	target_check(argc == 2, "usage: deepbind PLUGIN");
	library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
	target_check(library != NULL, "dlopen failed");
	*(void **)&take = dlsym(library, "plugin_a");
	*(void **)&give_back = dlsym(library, "plugin_free");
	for (unsigned i = 0; i < 50; i++) {
		struct block *block;
		void *address;

		truth_free(truth, truth_alloc(truth, 4096 + 2 * i, FLAG_NORMAL));
		address = take(4097 + 2 * i, FLAG_NORMAL);
		target_check(address != NULL, "the plug-in got no memory");
		block = truth_add_flag(truth, address, 4097 + 2 * i, FLAG_NORMAL);
		truth_event(truth, block, true);
		target_check(give_back(address) == 0, "the plug-in's free failed");
	}
	truth_write();
	return 0;
}
