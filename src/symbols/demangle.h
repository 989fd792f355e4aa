/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names of functions as people read them.
 *
 * Names come from the files of traced programs and are not trusted. Demangling is done by libstdc++, which needs no memory
 * besides the stack here and whose output is cut; but some names of 160 bytes keep it busy for years. So demangle() is called
 * only in a process that may be killed (symbols/lines.h). Shortening takes time linear in the length of the name.
 *
 * No state; any thread.
 */
#ifndef MSCOPE_SYMBOLS_DEMANGLE_H
#define MSCOPE_SYMBOLS_DEMANGLE_H

#include <stdbool.h>

#include "base/compiler.h"

struct strbuf;

/* Longer names are left as they are; libstdc++ gives up on them as well. */
#define DEMANGLE_IN_BYTES_MAX 1024

/* Where the text of a name is cut. */
#define DEMANGLE_OUT_BYTES_MAX 4096

/* Whether demangle() would try: the name begins as those of C++ and Rust do. */
bool demangle_wanted(const char *name);

/*
 * Appends the name as it stands in the source, with parameters. A name that is not mangled, or not well, is appended as it is.
 * What is longer than DEMANGLE_OUT_BYTES_MAX is cut, and "..." follows.
 */
void demangle(const char *name, struct strbuf *out);

/*
 * Appends a demangled name without its parameters, template arguments, return type and clone suffix:
 *
 *     void at::native::fill<float>(at::Tensor&, float) [clone .cold]     at::native::fill
 *     (anonymous namespace)::Pool::take(unsigned long)::{lambda()#1}::operator()() const
 *                                                     (anonymous namespace)::Pool::take::{lambda#1}::operator()
 *
 * A name that has none of these is appended as it is.
 */
void demangle_shorten(const char *name, struct strbuf *out);

/* The same for people, who see that there are template arguments: at::native::fill<...>. */
void demangle_brief(const char *name, struct strbuf *out);

/*
 * Appends the qualified name of a mangled function of C++, up to its first template arguments, without the demangler and in time
 * linear in its length: any process may call it, at every event.
 *
 *     _ZN2at6native4fillIfEEvRNS_6TensorEf     at::native::fill
 *
 * A name that is not mangled, or begins with something else than names, is appended as it is.
 */
void demangle_qualified(const char *name, struct strbuf *out);

#endif
