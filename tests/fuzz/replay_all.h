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
#include "sink/report.h"

/* A file in memory, made once, with a name that run_open() takes: raw traces are not opened through links. */
struct fuzz_file {
	char path[64];
	int fd;
};

static inline void fuzz_file_fill(struct fuzz_file *file, const void *data, size_t bytes)
{
	if (file->path[0] == '\0') {
		(void)snprintf(file->path, sizeof(file->path), "/dev/shm/mscope-fuzz-XXXXXX");
		file->fd = mkostemp(file->path, O_CLOEXEC);
		if (file->fd < 0) {
			(void)snprintf(file->path, sizeof(file->path), "/tmp/mscope-fuzz-XXXXXX");
			file->fd = mkostemp(file->path, O_CLOEXEC);
		}
		if (file->fd < 0)
			abort();
	}
	if (ftruncate(file->fd, 0) < 0 || pwrite(file->fd, data, bytes, 0) != (ssize_t)bytes)
		abort();
}

static inline int fuzz_count_row(void *arg, struct replay *replay, const struct row *row)
{
	(void)replay;
	if (row->id != (*(uint64_t *)arg)++)
		abort();
	return 0;
}

static inline void fuzz_replay_all(const char *raw, const char *pack)
{
	struct elf_cache elves = {0};
	struct strbuf text = {0};
	struct analyses analyses;
	struct trace_event event;
	struct replay replay;
	struct report report;
	struct json json;
	struct run *run;
	uint64_t rows = 0, before = 0;

	if (run_open(raw, pack, false, &run, NULL) < 0)
		return;
	replay_init(&replay, run, &elves, "/nowhere");
	replay.row = fuzz_count_row;
	replay.row_arg = &rows;
	analyses_init(&analyses, UINT32_MAX, true, &replay);
	if (run_poll(run, 0, true) < 0)
		abort();
	while (run_next(run, &event)) {
		if (event.time_ns < before && run_damage(run)->late_events == 0)
			abort();
		before = event.time_ns;
		/* A checkpoint may claim that any number of rows came before it. */
		if (replay.rows != rows)
			rows = replay.rows;
		if (replay_event(&replay, &event) < 0)
			abort();
	}
	report = (struct report){
		.replay = &replay, .run = run, .detail = true, .analyses = &analyses};
	report_text(&report, &text);
	json_begin(&json, &text);
	report_json(&report, &json);
	strbuf_fini(&text);
	analyses_fini(&analyses);
	replay_fini(&replay);
	run_close(run);
	elf_cache_fini(&elves);
}

#endif
