/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows of memscope_dump become a trace: whatever the file was, a run comes out that replay and every analysis read as if it had
 * been recorded here. Rows are taken in any order, because the original writes a block's rows when the block ends; they are
 * kept, about 100 bytes each, sorted by time, and turned into records of one writer per thread.
 *
 *     importer_init()  importer_row()...  importer_write()  importer_fini()
 *
 * Where a file is silent, as little as possible is made up: a block that is only freed lived before the first row; frees that
 * the original invents when the process ends are left out; the number of a range is that of its place among the ranges.
 * Python call stacks and owners of allocations are taken over; stacks of C are text in a file and addresses in a trace, and are not.
 * Nothing in a row is trusted.
 */
#ifndef MSCOPE_IMPORT_ROWS_H
#define MSCOPE_IMPORT_ROWS_H

#include <stdbool.h>

#include "base/map.h"
#include "base/status.h"
#include "base/strbuf.h"
#include "dump/format.h"
#include "import/attr_reader.h"

struct import_field {
	const char *text; /* NUL-terminated; NULL: the file has no such column */
	size_t length;
};

struct import_row;

/* What a row SNAPSHOT shows. UINT64_MAX: unknown. */
struct import_figures {
	uint64_t reserved, max_reserved, allocated, max_allocated, total, free;
};

#define IMPORT_PROCESSES_MAX 256u

struct importer {
	struct import_row *rows;
	size_t row_count, row_room;
	struct strbuf texts;   /* each distinct one once, NUL-terminated */
	struct map text_known; /* hash -> offset + 1 */
	struct attr_values attr;
	struct import_figures *figures; /* of SNAPSHOT rows, which are few */
	size_t figure_count, figure_room;
	/* Number of the file that rows come from; a row of no device stands in several files. */
	uint32_t file;
	uint8_t vendor; /* whose devices they are of */
	/* Processes of the rows, each once. The first is that of the trace; addresses of the others get its number in the top byte. */
	uint32_t pids[IMPORT_PROCESSES_MAX];
	size_t pid_count;
	bool too_many;	  /* rows of more processes were left out */
	uint64_t unknown; /* rows of kinds that no record is for */
	bool no_memory;	  /* a text could not be kept */
	/* Rows of other processes are left out, and the numbers of rows are kept. */
	bool one_process;
	uint32_t only_pid; /* 0: not known yet, or unknown */
	char dry[64];	   /* device of a dry run; "": a device was used */
	uint64_t *row_ids; /* of rows that became allocations, in their order */
	size_t row_id_count, row_id_room;
};

void importer_init(struct importer *importer);
void importer_fini(struct importer *importer);

/*
 * Takes a row. 0; MSCOPE_E_DAMAGED when it is malformed, with what is wrong in `out_why`; -ENOMEM. A row of a kind that is
 * not known is counted and forgotten.
 */
int importer_row(struct importer *importer, const struct import_field fields[COLUMN_COUNT],
		 const char **out_why);

/*
 * Writes the trace to `path`, an empty file of ours; a name that it has is gone before the first byte is written. The caller reads it through `out_fd`, which is the caller's to close. No row may follow.
 */
int importer_write(struct importer *importer, const char *path, int *out_fd,
		   struct mscope_error *err);

#endif
