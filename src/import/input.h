/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whatever a user can name as a recorded run, opened as one: a trace as it is; a dump file, or the dump files of a project
 * without a trace, by way of a temporary trace that has no name any more once it is open.
 *
 *     a packed or raw trace     a csv or db file of memscope_dump     a directory with such files or a trace.msc
 *     a project directory       a directory of results with exactly one project in it
 */
#ifndef MSCOPE_IMPORT_INPUT_H
#define MSCOPE_IMPORT_INPUT_H

#include <limits.h>

#include "import/dump.h"
#include "trace/run.h"

struct import_input {
	struct run *run;
	struct dump_reading reading; /* of dump files; zero for a trace */
	bool imported;		     /* from dump files */
	bool unfinished;	     /* a raw trace that nobody has finished */
	uint64_t unknown;	     /* rows of kinds that are not known here */
	char found[PATH_MAX];	     /* what was read: the file, or the directory of the files */
};

/*
 * Opens what `path` names. The caller may set reading.progress before. 0, or a negative code with a sentence in `err`; needs
 * import_close() in either case.
 */
int import_open(const char *path, struct import_input *input, struct mscope_error *err);
void import_close(struct import_input *input);

/* True when something of the input could not be read, once its run has been read to its end. */
bool import_is_damaged(const struct import_input *input);

#endif
