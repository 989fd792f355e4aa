/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Dump files become a trace: a temporary one that has no name, and that every reader of traces reads as it reads others.
 */
#ifndef MSCOPE_IMPORT_IMPORT_H
#define MSCOPE_IMPORT_IMPORT_H

#include <stdbool.h>

#include "import/dump.h"

/* How it went. The caller may set reading.progress before. */
struct import {
	struct dump_reading reading;
	uint64_t unknown; /* rows of kinds that are not known here */
	/* Only with a choice; import_fini() frees them. */
	uint32_t *pids; /* of all processes in the files, in the order of their first rows */
	size_t pid_count;
	uint64_t *
		row_ids; /* column ID of each row that became an allocation, by allocation_id - 1 */
	size_t row_id_count;
};

/* One process of files that may have several, and the numbers of its rows. */
struct import_choice {
	uint32_t pid; /* 0: that of the first row */
};

/*
 * Reads csv and db files of memscope_dump that belong to one process, or with `choice` (which may be NULL) one of their processes.
 * `name` is what messages call them together. 0 and the packed trace in `out_fd`, which the caller closes, or a negative code with a
 * sentence in `err`.
 */
int import_dumps(const char *const *paths, size_t count, const char *name,
		 const struct import_choice *choice, struct import *import, int *out_fd,
		 struct mscope_error *err);
void import_fini(struct import *import);

/* True when something of the files could not be read. */
bool import_is_damaged(const struct import *import);

#endif
