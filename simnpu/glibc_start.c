/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program that was linked on a machine with glibc 2.34 or later asks for the __libc_start_main of that version. The linker's --wrap
 * (mscope_glibc_floor_program() in cmake/mscope.cmake) brings its call here, and this calls the one that all versions have. Before
 * 2.34 that one runs the constructors of the program only when `init` does, and these programs have none.
 */
#include "glibc_floor.h"

typedef int main_function(int, char **, char **);

int floor_start_main(main_function *program, int argc, char **argv, void (*init)(void),
		     void (*fini)(void), void (*loader_fini)(void), void *stack_end);
int __wrap___libc_start_main(main_function *program, int argc, char **argv, void (*init)(void),
			     void (*fini)(void), void (*loader_fini)(void), void *stack_end);

__asm__(".symver floor_start_main,__libc_start_main@" FLOOR_VERSION("GLIBC_2.2.5"));

int __wrap___libc_start_main(main_function *program, int argc, char **argv, void (*init)(void),
			     void (*fini)(void), void (*loader_fini)(void), void *stack_end)
{
	return floor_start_main(program, argc, argv, init, fini, loader_fini, stack_end);
}
