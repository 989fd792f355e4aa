/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Dump files become a trace: a temporary one that has no name, and that every reader of traces reads as it reads others.
 */
#ifndef MSCOPE_IMPORT_IMPORT_H
#define MSCOPE_IMPORT_IMPORT_H

#include <stdbool.h>

#include "import/dump.h"

/* How it went. The caller may set reading.progress and `processes` before. */
struct import {
	bool processes; /* rows may be of several processes; blocks of the later ones have other addresses then */
	struct dump_reading reading;
	uint64_t unknown; /* rows of kinds that are not known here */
};

/*
 * Reads csv and db files of memscope_dump that belong to one process. `name` is what messages call them together. 0 and the
 * packed trace in `out_fd`, which the caller closes, or a negative code with a sentence in `err`.
 */
int import_dumps(const char *const *paths, size_t count, const char *name, struct import *import,
		 int *out_fd, struct mscope_error *err);

/* True when something of the files could not be read. */
bool import_is_damaged(const struct import *import);

#endif
