/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whose code a frame is: the user's own, or that of a runtime, a framework or a standard library, which a person does not look for.
 * The list is origins.def. No state; any thread.
 */
#ifndef MSCOPE_SYMBOLS_ORIGIN_H
#define MSCOPE_SYMBOLS_ORIGIN_H

#include <stdbool.h>

enum origin {
	ORIGIN_UNKNOWN, /* not asked yet */
	ORIGIN_USER,
	ORIGIN_FRAMEWORK,   /* PyTorch, MindSpore, installed packages */
	ORIGIN_STANDARD,    /* libraries of the language and the system */
	ORIGIN_RUNTIME,	    /* what gives out device memory: CANN, CUDA */
	ORIGIN_INTERPRETER, /* of Python */
	ORIGIN_TOOL,	    /* msmemscope, and the recorder of a snapshot */
};

/* Of an executable or library by its path. */
enum origin origin_of_module(const char *path);

/*
 * Whether it is a library of the system or the language, by its name: nobody looks for lines in these, and their debug files are large
 * and packed.
 */
bool origin_is_system(const char *path);

/*
 * Of a C function: in the user's own modules its name and source file tell what is inlined from elsewhere. `function` is shortened
 * (demangle_shorten()); it and `file` may be NULL.
 */
enum origin origin_of_function(const char *module, const char *function, const char *file);

/* Of a Python function by the path of its file. */
enum origin origin_of_script(const char *file);

/*
 * Whether a frame of a memory snapshot of PyTorch, which does not say what its frames are, is a function of C or C++: it has no file,
 * a file of C, a library, or a name as C++ has them.
 */
bool origin_is_native(const char *function, const char *file);

/* Whether a function of a framework only calls the one that matters; names of C are shortened. */
bool origin_is_passing(const char *function);

/* Whether what a Python function of a framework allocates itself, once, is held for the whole run. */
bool origin_is_holding(const char *file, const char *function);

#endif
