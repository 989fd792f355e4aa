/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What fuzz_trace and fuzz_pack do with a trace once it is a file: read it to its end, replay it, and ask for everything that a
 * report would ask for. Reading must end, in order, with as many rows as the replay counts.
 */
#ifndef MSCOPE_FUZZ_REPLAY_ALL_H
#define MSCOPE_FUZZ_REPLAY_ALL_H

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "replay/replay.h"
#include "dump/csv_text.h"
#include "sink/attr_writer.h"
#include "sink/report_json.h"
#include "symbols/elf_cache.h"
#include "sink/sink.h"
#include "sink/watch_sink.h"

/* A file in memory, made once; the path leads to its descriptor, so that nothing is left behind, however the process ends. */
struct fuzz_file {
	char path[64];
	int fd;
};

static inline void fuzz_file_fill(struct fuzz_file *file, const void *data, size_t bytes)
{
	if (file->path[0] == '\0') {
		file->fd = memfd_create("mscope-fuzz", MFD_CLOEXEC);
		if (file->fd < 0)
			abort();
		(void)snprintf(file->path, sizeof(file->path), "/proc/self/fd/%d", file->fd);
	}
	if (ftruncate(file->fd, 0) < 0 || pwrite(file->fd, data, bytes, 0) != (ssize_t)bytes)
		abort();
}

/*
 * A new empty file with a name, in $TMPDIR, else where no disk is. For what is not opened through links; the caller removes it
 * after each input. Only a process that dies in between leaves it, and tools/common.sh removes the whole directory.
 */
static inline void fuzz_named_file(char path[200])
{
	const char *parent = getenv("TMPDIR");
	int fd;

	(void)snprintf(path, 200, "%s/mscope-fuzz-XXXXXX",
		       parent != NULL && strlen(parent) < 100 ? parent : "/dev/shm");
	fd = mkostemp(path, O_CLOEXEC);
	if (fd < 0)
		abort();
	(void)close(fd);
}

struct fuzz_rows {
	uint64_t count;
	struct strbuf text;
};

static inline int fuzz_row(void *arg, struct replay *replay, const struct row *row)
{
	struct fuzz_rows *rows = arg;

	(void)replay;
	if (row->id != rows->count++)
		abort();
	strbuf_reset(&rows->text);
	attr_add(&rows->text, ATTR_JSON, row);
	attr_add(&rows->text, ATTR_CSV, row);
	return 0;
}

static inline int fuzz_dump(void *arg, struct replay *replay, const struct dump *dump)
{
	struct fuzz_rows *rows = arg;

	(void)replay;
	strbuf_reset(&rows->text);
	watch_dump_name(&rows->text, dump);
	return 0;
}

static inline int fuzz_call(void *arg, struct replay *replay, const struct call_row *row)
{
	struct fuzz_rows *rows = arg;

	(void)replay;
	strbuf_reset(&rows->text);
	csv_add_text(&rows->text, row->text, strlen(row->text));
	return 0;
}

/* The same beside an engine: as it would be while the process lives, and after its end. */
static inline void fuzz_observe(const char *raw, const char *part)
{
	struct trace_event event;
	struct run *run;
	int turn;

	if (run_observe(raw, part, &run, NULL) < 0)
		return;
	for (turn = 0; turn < 3; turn++) {
		if (run_poll(run, UINT64_MAX / 2, turn == 2) < 0)
			break;
		while (run_next(run, &event)) {
			if (event.bytes < 8 || event.payload_bytes > event.bytes)
				abort();
		}
	}
	run_close(run);
}

static inline void fuzz_replay_all(const char *raw, const char *pack)
{
	struct elf_cache elves = {.no_lines = true};
	struct strbuf text = {0};
	struct analyses analyses;
	struct trace_event event;
	struct replay_setup setup;
	struct replay *replay;
	struct report report;
	struct json json;
	struct run *run;
	struct fuzz_rows rows = {0};
	uint64_t before = 0;

	if (run_open(raw, pack, false, &run, NULL) < 0)
		return;
	setup = (struct replay_setup){.run = run,
				      .elves = &elves,
				      .root = "/nowhere",
				      .row = fuzz_row,
				      .dump = fuzz_dump,
				      .call = fuzz_call,
				      .arg = &rows};
	if (replay_new(&setup, &replay) < 0)
		abort();
	analyses_init(&analyses, UINT32_MAX, true, replay);
	if (run_poll(run, 0, true) < 0)
		abort();
	while (run_next(run, &event)) {
		if (event.time_ns < before && run_damage(run)->late_events == 0)
			abort();
		before = event.time_ns;
		/* A checkpoint may claim that any number of rows came before it. */
		if (replay_totals(replay)->rows != rows.count)
			rows.count = replay_totals(replay)->rows;
		if (replay_event(replay, &event) < 0)
			abort();
	}
	report = (struct report){.replay = replay, .shown.all = true, .analyses = &analyses};
	report_text(&report, &text);
	json_begin(&json, &text);
	report_json(&report, &json);
	if (replay_close_live(replay) < 0 || replay_end(replay) < 0)
		abort();
	strbuf_fini(&text);
	strbuf_fini(&rows.text);
	analyses_fini(&analyses);
	replay_free(replay);
	run_close(run);
	elf_cache_fini(&elves);
}

#endif
