/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Symbols of the loaded objects, found without dlsym(). Any thread, any time; slow paths only. errno stays as it was.
 */
#ifndef MSCOPE_COLLECTOR_LOADER_LOOKUP_H
#define MSCOPE_COLLECTOR_LOADER_LOOKUP_H

#include <link.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "base/compiler.h"

/* The first definition of `name` among the loaded objects, this library and its copies excepted; NULL when there is none. */
void *lookup_symbol(const char *name);

/* The same, and how many bytes the object has. */
void *lookup_symbol_sized(const char *name, size_t *out_bytes);

/*
 * A function of another library that is called more than once. It is searched for until it is found, and again after it was
 * forgotten.
 */
struct lookup_function {
	const char *name;
	_Atomic(void *) address;
};

/* NULL when there is none. */
void *lookup_function(struct lookup_function *function);
void lookup_forget(struct lookup_function *function);

/* The definition of `name` in one object, and how many bytes it has; NULL when it has none. */
void *lookup_in_object(const struct dl_phdr_info *info, const char *name, size_t *out_bytes);

/*
 * Calls call() for each function that this library exports, with its address here and its size; or that the object exports which has
 * `name` at `address`. Not while the list is walked.
 */
typedef void lookup_visit(const char *name, void *address, size_t bytes, void *arg);
void lookup_own_functions(lookup_visit *call, void *arg);
void lookup_functions_beside(const char *name, const void *address, lookup_visit *call, void *arg);

/*
 * From now on the originals of hooks are those that come first in the loader's list: nothing is preloaded, and a library before us
 * has no place for us behind it.
 */
void lookup_come_last(void);

/* What another process talks to this copy of the library by; see trace/control.h. */
struct control_block *lookup_own_block(void);

/* True when another copy of this library serves the process; this one then passes everything on to it. */
bool lookup_is_passive_quiet(void);

/* The same, and a note in the trace about copies; for the thread that attaches. */
bool lookup_is_passive(void);

/* True when both addresses lie in what the loader mapped of one and the same object. */
bool lookup_is_same_object(const void *a, const void *b);

/* Directory of this library's own file with a trailing slash, from the loader; "" when it is not known. */
void lookup_own_directory(char *out, size_t bytes);

#endif
