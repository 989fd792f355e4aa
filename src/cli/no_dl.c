/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SQLite can load extensions and so calls these; the command is static and loads nothing. The linker puts these in their place
 * (--wrap): they fail at once, and there is nothing to warn of.
 */
#include <stddef.h>

void *__wrap_dlopen(const char *file, int mode);
void *__wrap_dlsym(void *handle, const char *name);
int __wrap_dlclose(void *handle);
char *__wrap_dlerror(void);

void *__wrap_dlopen(const char *file, int mode)
{
	(void)file;
	(void)mode;
	return NULL;
}

void *__wrap_dlsym(void *handle, const char *name)
{
	(void)handle;
	(void)name;
	return NULL;
}

int __wrap_dlclose(void *handle)
{
	(void)handle;
	return 0;
}

char *__wrap_dlerror(void)
{
	static char text[] = "this program loads no libraries";

	return text;
}
