/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Dump files as sources of rows: a csv or a database of memscope_dump, of this tool, of the original, or of its older versions.
 * Columns are found by their names, in any order; unknown columns are passed over.
 */
#ifndef MSCOPE_IMPORT_DUMP_H
#define MSCOPE_IMPORT_DUMP_H

#include "import/rows.h"

/* How reading went, over all files of one input. */
struct dump_reading {
	uint64_t rows;	   /* that were taken */
	uint64_t bad_rows; /* malformed ones, which were left out */
	/* Where the first of them is and what is wrong with it; "" when there is none. */
	char first_bad[300];
	bool cut; /* a file ended too early, or its rest could not be read */
	/* Called now and then with the rows so far; may be NULL. */
	void (*progress)(void *arg, uint64_t rows);
	void *progress_arg;
};

/* Both: 0; MSCOPE_E_FOREIGN when it is no such file; -errno. What could be read of a damaged one has been taken. */
int dump_read_csv(const char *path, struct importer *importer, struct dump_reading *reading,
		  struct mscope_error *err);
int dump_read_db(const char *path, struct importer *importer, struct dump_reading *reading,
		 struct mscope_error *err);

/* ---- shared by the two ---- */

/* Where a row is: "NAME line 7". */
struct dump_place {
	const char *name; /* last component of the path */
	const char *unit; /* "line" or "row" */
	uint64_t number;
};

/* Takes a row and counts it as what it turned out to be. 0 or -ENOMEM. */
int dump_take(struct importer *importer, struct dump_reading *reading,
	      const struct import_field fields[COLUMN_COUNT], const struct dump_place *place);
void dump_note_bad(struct dump_reading *reading, const struct dump_place *place, const char *why);

#endif
