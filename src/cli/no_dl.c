/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SQLite can load extensions and so names these; the command is static and loads nothing. Defined here they fail at once, and
 * the linker has no reason to warn that a static program would need shared libraries at run time.
 */
#include <dlfcn.h>
#include <stddef.h>

void *dlopen(const char *file, int mode)
{
	(void)file;
	(void)mode;
	return NULL;
}

void *dlsym(void *restrict handle, const char *restrict name)
{
	(void)handle;
	(void)name;
	return NULL;
}

int dlclose(void *handle)
{
	(void)handle;
	return 0;
}

char *dlerror(void)
{
	static char text[] = "this program loads no libraries";

	return text;
}
