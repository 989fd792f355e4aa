/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names of call sites where columns are few. A name loses what other names of the list have before what only it has, and keeps the files
 * and lines of the user's frames:
 *
 *     serve::Session::evaluate (serve.cpp:19) -> serve::make (serve.cpp:17) -> serve::Buffer<...>::Buffer (serve.cpp:12)
 *     Session::evaluate (serve.cpp:19) -> serve.cpp:17 -> serve.cpp:12
 *
 * No state; any thread.
 */
#ifndef MSCOPE_SINK_SCREEN_NAMES_H
#define MSCOPE_SINK_SCREEN_NAMES_H

#include <stdbool.h>
#include <stddef.h>

#include "base/strbuf.h"

/* Below a list of blocks by size, of a run without call stacks. */
#define SCREEN_NO_STACKS "  Run again with --call-stack=c to see which code they come from.\n"

/*
 * Appends a name as at most `columns`. `frames`: it is a row of frames, as names are where a stack was recorded; others lose their middle.
 * `others` are the names it is listed with; it may be among them itself.
 */
void screen_name(const char *name, bool frames, const char *const *others, size_t count,
		 size_t columns, struct strbuf *out);

#endif
