/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any texts as the cells of a database's rows: what comes out is a trace without damage, whose events are in order and of which
 * replay knows every context. Cells end with byte 1, rows with byte 2; a byte 3 begins the next of several files.
 */
#include <errno.h>
#include <stdint.h>

#include "import/rows.h"
#include "replay_all.h"
#include "symbols/elf_cache.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Gives the row that begins at `at` to the importer; returns where the next begins. */
static size_t take_row(struct importer *importer, char *text, size_t at, size_t size)
{
	struct import_field fields[COLUMN_COUNT];
	const char *why = NULL;
	int column, r;

	for (column = 0; column < COLUMN_COUNT; column++) {
		size_t from = at;
		char end;

		while (at < size && text[at] > 2 && text[at] != '\0')
			at++;
		end = at < size ? text[at] : 2;
		text[at] = '\0';
		fields[column] = (struct import_field){text + from, at - from};
		if (end == 1)
			at++;
		else
			size = at; /* the cells that are left are empty */
	}
	r = importer_row(importer, fields, &why);
	if (r == -ENOMEM || (r == MSCOPE_E_DAMAGED) != (why != NULL))
		abort();
	return at + 1;
}

static void check(const char *path)
{
	struct elf_cache elves = {.no_lines = true};
	struct trace_event event;
	struct replay *replay;
	struct run *run;
	uint64_t before = 0;

	if (run_open(NULL, path, false, &run, NULL) < 0)
		abort();
	if (replay_new(&(struct replay_setup){.run = run, .elves = &elves, .root = "/nowhere"},
		       &replay) < 0)
		abort();
	if (run_poll(run, 0, true) < 0)
		abort();
	while (run_next(run, &event)) {
		if (event.time_ns < before)
			abort();
		before = event.time_ns;
		if (replay_event(replay, &event) < 0)
			abort();
	}
	if (run_damage(run)->skipped_bytes != 0 || run_damage(run)->cut ||
	    run_damage(run)->late_events != 0 || run_damage(run)->missing_chunks != 0 ||
	    replay_totals(replay)->oddities.bad_definitions != 0 ||
	    replay_totals(replay)->oddities.frees_unknown != 0)
		abort();
	replay_free(replay);
	run_close(run);
	elf_cache_fini(&elves);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct importer importer;
	char *text = malloc(size + 1);
	char path[200];
	size_t at = 0;
	int fd;

	if (text == NULL)
		abort();
	memcpy(text, data, size);
	text[size] = '\0';
	importer_init(&importer);
	while (at < size) {
		importer.file += text[at] == 3;
		at = take_row(&importer, text, at + (text[at] == 3), size);
	}
	fuzz_named_file(path);
	if (importer_write(&importer, path, &fd, NULL) < 0)
		abort();
	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	importer_fini(&importer);
	free(text);
	check(path);
	fuzz_replay_all(NULL, path);
	(void)close(fd);
	return 0;
}
