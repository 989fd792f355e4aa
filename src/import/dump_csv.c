/* SPDX-License-Identifier: Apache-2.0 */
#include "import/dump.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/io.h"
#include "base/text.h"
#include "import/csv_reader.h"

#define PROGRESS_ROWS (UINT64_C(1) << 18)

/* A file with more of them is not what we think; going on would only cost time. */
#define BAD_ROWS_MAX 1000

void dump_note_bad(struct dump_reading *reading, const struct dump_place *place, const char *why)
{
	if (reading->bad_rows++ == 0)
		(void)snprintf(reading->first_bad, sizeof(reading->first_bad), "%.80s %s %llu: %s",
			       place->name, place->unit, (unsigned long long)place->number, why);
}

int dump_take(struct importer *importer, struct dump_reading *reading,
	      const struct import_field fields[COLUMN_COUNT], const struct dump_place *place)
{
	const char *why = "";
	int r = importer_row(importer, fields, &why);

	if (r == MSCOPE_E_DAMAGED) {
		dump_note_bad(reading, place, why);
		return 0;
	}
	if (r == 0 && ++reading->rows % PROGRESS_ROWS == 0 && reading->progress != NULL)
		reading->progress(reading->progress_arg, reading->rows);
	return r;
}

/* Finds the columns in the first record. */
static int read_header(struct csv_reader *reader, size_t columns[COLUMN_COUNT], const char *path,
		       struct mscope_error *err)
{
	int r = csv_next(reader), column;
	size_t i;

	if (r < 0)
		return error_set(err, r, "cannot read %s: %s", path, strerror(-r));
	if (r == 0)
		return error_set(err, MSCOPE_E_FOREIGN, "%s is empty", path);
	for (column = 0; column < COLUMN_COUNT; column++) {
		const struct column *wanted = &dump_rows.columns[column];

		i = wanted->use == COLUMN_WRITTEN ? reader->field_count : 0;
		while (i < reader->field_count && strcmp(reader->fields[i].text, wanted->name) != 0)
			i++;
		columns[column] = i;
		if (i == reader->field_count && wanted->use == COLUMN_NEEDED)
			return error_set(
				err, MSCOPE_E_FOREIGN,
				"%s is neither a trace nor a dump: its first line has no column %s",
				path, wanted->name);
	}
	return 0;
}

static int read_rows(struct csv_reader *reader, const size_t columns[COLUMN_COUNT],
		     struct importer *importer, struct dump_reading *reading, const char *name)
{
	size_t wanted = reader->field_count;
	uint64_t bad_before = reading->bad_rows;
	struct import_field fields[COLUMN_COUNT];
	struct dump_place place = {.name = name, .unit = "line"};
	int r, column;

	while ((r = csv_next(reader)) > 0) {
		place.number = reader->record_line;
		if (reader->fault != CSV_WHOLE) {
			dump_note_bad(reading, &place, csv_fault_text(reader->fault));
			reading->cut = reading->cut || reader->fault == CSV_CUT;
		} else if (reader->field_count != wanted) {
			dump_note_bad(reading, &place,
				      reader->unended ? "the file ends inside of it"
						      : "it has fewer columns than the first line");
			reading->cut = reading->cut || reader->unended;
		} else {
			for (column = 0; column < COLUMN_COUNT; column++) {
				size_t at = columns[column];

				fields[column] = (struct import_field){0};
				if (at < wanted)
					fields[column] = (struct import_field){
						reader->fields[at].text, reader->fields[at].length};
			}
			r = dump_take(importer, reading, fields, &place);
			if (r < 0)
				return r;
		}
		if (reading->bad_rows - bad_before > BAD_ROWS_MAX) {
			reading->cut = true;
			return 0;
		}
	}
	return r;
}

int dump_read_csv(const char *path, struct importer *importer, struct dump_reading *reading,
		  struct mscope_error *err)
{
	size_t columns[COLUMN_COUNT];
	struct csv_reader reader;
	int r, fd = io_open_file(path, O_RDONLY, err);

	if (fd < 0)
		return fd;
	csv_init(&reader, fd);
	r = read_header(&reader, columns, path, err);
	if (r == 0) {
		r = read_rows(&reader, columns, importer, reading, text_base_name(path));
		if (r < 0)
			(void)error_set(err, r, "cannot read %s: %s", path, mscope_status_str(r));
	}
	csv_fini(&reader);
	(void)close(fd);
	return r;
}
