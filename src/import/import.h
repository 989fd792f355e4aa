/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Dump files, and memory snapshots of PyTorch (torch_snapshot.h), become a trace: a temporary one that has no name, and that every reader of traces reads as it reads others.
 */
#ifndef MSCOPE_IMPORT_IMPORT_H
#define MSCOPE_IMPORT_IMPORT_H

#include <stdbool.h>

#include "import/dump.h"

/* How it went. The caller may set reading.progress and the first three before. */
struct import {
	bool one_process; /* only rows of one process are read, whose numbers are kept, */
	uint32_t pid;	  /* which is this, or 0 for that of the first row */
	bool processes; /* rows may be of several processes; blocks of the later ones have other addresses then */
	struct dump_reading reading;
	uint64_t unknown; /* rows of kinds that are not known here */
	/* Processes of the files, in the order of their first rows. */
	uint32_t pids[IMPORT_PROCESSES_MAX];
	size_t pid_count;
	/* Of one process: column ID of each row that became an allocation, by allocation_id - 1. import_fini() frees it. */
	uint64_t *row_ids;
	size_t row_id_count;
};

/*
 * Reads csv and db files of memscope_dump that belong to one process, or one snapshot. `name` is what messages call them together. 0 and the
 * packed trace in `out_fd`, which the caller closes, or a negative code with a sentence in `err`.
 */
int import_dumps(const char *const *paths, size_t count, const char *name, struct import *import,
		 int *out_fd, struct mscope_error *err);
void import_fini(struct import *import);

/* True when something of the files could not be read. */
bool import_is_damaged(const struct import *import);

#endif
