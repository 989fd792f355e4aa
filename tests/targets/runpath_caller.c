/* SPDX-License-Identifier: Apache-2.0 */
/* A library that finds another one by its own RUNPATH and by nothing else. Built a second time as the one that it finds. */
#include <dlfcn.h>
#include <stddef.h>

void *open_inner(void);

void *open_inner(void)
{
	void *library = dlopen("libinner.so", RTLD_NOW);

	if (library != NULL)
		dlclose(library);
	return library;
}
