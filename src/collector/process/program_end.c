/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The end of the program's own code, as a record: what is freed behind it was alive at the end. It comes from the first of
 *
 *     main() returns       __libc_start_main() is given a function of ours that calls main(). An exit handler of ours would run
 *                          behind the program's own handlers and destructors.
 *     exit() is called     by the program; libc's own calls cannot be seen
 *     the interpreter      that runs the program begins to end: globals are gone when its main() returns. See python/boot.c and
 *                          the package's _boot.py. Its main() is left alone.
 *
 * Not told: _exit(), quick_exit() and signals, behind which nothing is freed; the end of the last thread after pthread_exit() in
 * main(); err() and error() of libc; statically linked programs. Then the end is the last event.
 */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "collector/process/confine.h"
#include "collector/process/process.h"
#include "collector/record/capture.h"
#include "collector/sys.h"

/* The program's, NULL: it is not known. */
static MSCOPE_AT_START int (*program_main)(int argc, char **argv, char **envp);

CAPTURE_LEFT_OUT static int run_main(int argc, char **argv, char **envp)
{
	int status = program_main(argc, argv, envp);

	program_end(END_MAIN);
	return status;
}

/* Which version the program asks for does not matter: glibc has one function for all of them. */
MSCOPE_EXPORT CAPTURE_LEFT_OUT int __libc_start_main(int (*main)(int, char **, char **), int argc,
						     char **argv, void (*init)(void),
						     void (*fini)(void), void (*rtld_fini)(void),
						     void *stack_end)
{
	hook___libc_start_main *original = HOOK_ORIGINAL(__libc_start_main);

	if (original == NULL && dlsym != NULL) {
		void *found = dlsym(RTLD_NEXT, "__libc_start_main");

		memcpy(&original, &found, sizeof(found));
	}
	if (original == NULL)
		_exit(127);
	if (main_is_awaited) {
		program_main = main;
		main = run_main;
	}
	return original(main, argc, argv, init, fini, rtld_fini, stack_end);
}

MSCOPE_EXPORT void exit(int status)
{
	hook_exit *original = HOOK_ORIGINAL(exit);

	program_end(END_EXIT);
	if (original != NULL)
		original(status);
	_exit(status);
}
