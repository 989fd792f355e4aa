/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as a csv file: the reader must end, give texts of the length that it says, and never count lines backwards; and the
 * whole way of an input, from the file to a run that is replayed and compared with itself, must hold whatever the rows are. The
 * first byte says whether the usual header stands before the rest, which no mutation would write so soon.
 */
#include <stdint.h>

#include "analysis/compare.h"
#include "analysis/differences.h"
#include "engine/input.h"
#include "engine/pass.h"
#include "import/csv_reader.h"
#include "replay_all.h"
#include "symbols/elf_cache.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char header[] =
	"ID,Event,Event Type,Name,Timestamp(ns),Process Id,Thread Id,Device Id,Ptr,Attr\n";

static void read_records(const char *path)
{
	struct csv_reader reader;
	uint64_t line = 0;
	size_t i;
	int fd = open(path, O_RDONLY | O_CLOEXEC), r;

	if (fd < 0)
		abort();
	csv_init(&reader, fd);
	while ((r = csv_next(&reader)) > 0) {
		if (reader.record_line <= line || reader.field_count > CSV_FIELDS_MAX)
			abort();
		line = reader.record_line;
		for (i = 0; i < reader.field_count; i++) {
			if (strlen(reader.fields[i].text) != reader.fields[i].length)
				abort();
		}
	}
	if (r < 0)
		abort();
	csv_fini(&reader);
	(void)close(fd);
}

struct fuzz_side {
	struct compare_reader reader;
	struct elf_cache elves;
	struct input input;
	struct pass pass;
	bool read;
};

static void read_side(struct fuzz_side *side, struct compare *compare, int number, const char *path)
{
	static const struct compare_choice all = {.nameless = true};
	struct pass_setup setup = {
		.elves = &side->elves, .event = compare_take_event, .event_arg = &side->reader};

	side->elves.no_lines = true;
	compare_begin(&side->reader, compare, number, &all);
	if (input_open(&side->input, path, NULL, NULL, NULL) != 0)
		return;
	setup.run = side->input.run;
	if (pass_open(&side->pass, &setup, NULL) < 0)
		abort();
	compare_observe(&side->reader, side->pass.replay);
	if (pass_all(&side->pass, NULL) < 0)
		abort();
	compare_end(&side->reader, side->pass.replay);
	side->read = true;
}

static void compare_with_itself(const char *path)
{
	struct fuzz_side *sides = calloc(2, sizeof(*sides));
	struct differences differences = {0};
	struct compare compare;
	size_t i;
	int side;

	if (sides == NULL)
		abort();
	compare_init(&compare, COMPARE_OPS | COMPARE_KERNELS);
	for (side = 0; side < 2; side++)
		read_side(&sides[side], &compare, side, path);
	if (sides[0].read && sides[1].read && compare_align(&compare, NULL) == 0) {
		for (i = 0; i < compare.row_count; i++) {
			if (compare_difference(&compare, &compare.rows[i]) != 0)
				abort();
		}
		if (differences_find(&compare, &differences) < 0 ||
		    differences.differing_places != 0)
			abort();
	}
	differences_fini(&differences);
	compare_fini(&compare);
	for (side = 0; side < 2; side++) {
		compare_reader_fini(&sides[side].reader);
		pass_close(&sides[side].pass);
		input_close(&sides[side].input);
		elf_cache_fini(&sides[side].elves);
	}
	free(sides);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct fuzz_file file;
	size_t first = size > 0 && data[0] == 'h' ? sizeof(header) - 1 : 0;
	uint8_t *whole;

	if (size == 0)
		return 0;
	(void)setenv("TMPDIR", "/dev/shm", 0); /* temporary traces of no disk */
	whole = malloc(first + size);
	if (whole == NULL)
		abort();
	memcpy(whole, header, first);
	memcpy(whole + first, data + 1, size - 1);
	fuzz_file_fill(&file, whole, first + size - 1);
	free(whole);
	read_records(file.path);
	compare_with_itself(file.path);
	return 0;
}
