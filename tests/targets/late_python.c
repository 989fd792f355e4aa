/* SPDX-License-Identifier: Apache-2.0 */
/*
 * late_python LIBPYTHON: takes memory, then loads a Python interpreter and takes memory from a thread that runs a line of Python.
 * odd_python LIBPYTHON VERSION: the same, and the interpreter seems to be of another version.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "ascend_hal.h"

#if defined(ODD_VERSION)
/* Stands before the interpreter's own, which nothing in it reads. */
extern unsigned long Py_Version;
unsigned long Py_Version;
#endif

static const char text[] =
	"import ctypes\n"
	"alloc = ctypes.CDLL(None).halMemAlloc\n"
	"alloc.argtypes = [ctypes.c_void_p, ctypes.c_ulonglong, ctypes.c_ulonglong]\n"
	"assert alloc(ctypes.byref(ctypes.c_void_p()), 8192, %llu) == 0\n";

static void *run_python(void *library)
{
	void (*start)(int) = NULL;
	int (*run)(const char *) = NULL;
	char line[512];

	*(void **)&start = dlsym(library, "Py_InitializeEx");
	*(void **)&run = dlsym(library, "PyRun_SimpleString");
	if (start == NULL || run == NULL)
		return NULL;
	start(0);
	(void)snprintf(line, sizeof(line), text, (unsigned long long)(MEM_DEV | MEM_PAGE_NORMAL));
	return run(line) == 0 ? library : NULL;
}

int main(int argc, char **argv)
{
	void *block, *library, *done = NULL;
	pthread_t thread;

#if defined(ODD_VERSION)
	Py_Version = argc == 3 ? strtoul(argv[2], NULL, 16) : 0;
	argc--;
#endif
	if (argc != 2 || halMemAlloc(&block, 4096, MEM_DEV | MEM_PAGE_NORMAL) != 0)
		return 97;
	library = dlopen(argv[1], RTLD_NOW | RTLD_GLOBAL);
	if (library == NULL) {
		fprintf(stderr, "%s\n", dlerror());
		return 98;
	}
	pthread_create(&thread, NULL, run_python, library);
	pthread_join(thread, &done);
	return done == NULL;
}
