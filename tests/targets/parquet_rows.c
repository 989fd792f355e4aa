/* SPDX-License-Identifier: Apache-2.0 */
/*
 * parquet_rows FILE COLUMNS: a Parquet file of the rows on stdin, for a test that reads it back with other software. COLUMNS has a
 * letter for each column: N numbers, T texts, n and t the same with NULLs. On stdin each value is a byte and what it announces: 0
 * NULL; 1 a number, 8 bytes; 2 a text, its length in 4 bytes and the bytes. A 3 between two rows ends the row group. No program to trace.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "parquet/parquet.h"

#define COLUMNS_MAX 26
#define TEXT_MAX    (1u << 20)

static int give_up(const char *what)
{
	(void)fprintf(stderr, "parquet_rows: %s\n", what);
	return EXIT_FAILURE;
}

static int put(void *arg, const void *data, size_t bytes)
{
	return fwrite(data, 1, bytes, arg) == bytes ? 0 : -1;
}

/* One value of which the first byte is read. */
static bool put_value(struct parquet_writer *writer, size_t column, int kind)
{
	static char text[TEXT_MAX];
	uint32_t length;
	int64_t number;

	if (kind == 0) {
		parquet_put_null(writer, column);
		return true;
	}
	if (kind == 1) {
		if (fread(&number, sizeof(number), 1, stdin) != 1)
			return false;
		parquet_put_number(writer, column, number);
		return true;
	}
	if (kind != 2 || fread(&length, sizeof(length), 1, stdin) != 1 || length > sizeof(text) ||
	    fread(text, 1, length, stdin) != length)
		return false;
	parquet_put_text(writer, column, text, length);
	return true;
}

int main(int argc, char **argv)
{
	struct parquet_column columns[COLUMNS_MAX] = {0};
	static char names[COLUMNS_MAX][2];
	struct parquet_writer *writer;
	size_t count, i;
	int kind, r = 0;
	FILE *file;

	if (argc != 3 || (count = strlen(argv[2])) > COLUMNS_MAX)
		return give_up("FILE COLUMNS");
	for (i = 0; i < count; i++) {
		names[i][0] = (char)('a' + i);
		columns[i].name = names[i];
		columns[i].type = strchr("Nn", argv[2][i]) != NULL ? PARQUET_NUMBER : PARQUET_TEXT;
		columns[i].optional = strchr("nt", argv[2][i]) != NULL;
	}
	file = fopen(argv[1], "wb");
	if (file == NULL || parquet_new(columns, count, put, file, &writer) < 0)
		return give_up("no file");
	while (r == 0 && (kind = getchar()) != EOF) {
		if (kind == 3) {
			r = parquet_end_group(writer);
			continue;
		}
		for (i = 0; i < count; i++) {
			if (!put_value(writer, i, i == 0 ? kind : getchar()))
				return give_up("rows end early");
		}
		r = parquet_end_row(writer);
	}
	if (r == 0)
		r = parquet_end_file(writer, NULL, 0);
	parquet_free(writer);
	if (fclose(file) != 0 || r < 0)
		return give_up("cannot write");
	return EXIT_SUCCESS;
}
