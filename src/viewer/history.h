/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What happened in a run, in the order of the dump: each row as 24 bytes in a file without a name, ranges of the program, and the
 * operator that each thread is in. Part of model.h. Not thread-safe.
 */
#ifndef MSCOPE_VIEWER_HISTORY_H
#define MSCOPE_VIEWER_HISTORY_H

#include "base/map.h"
#include "base/spool.h"
#include "replay/replay.h"

#define HISTORY_NO_BLOCK ((UINT64_C(1) << 56) - 1)
#define HISTORY_RANGES	 10000u

struct history_event {
	uint64_t time_ns; /* wall clock */
	uint64_t block : 56, kind : 8;
	uint32_t name; /* see history_name() */
	uint32_t tid;
};

/* A range that the program marked. */
struct history_range {
	uint64_t from_ns, to_ns; /* UINT64_MAX: it has not ended */
	uint32_t name, tid;
};

/* Operators in progress on one thread, outermost first. */
struct history_thread {
	uint32_t *names;
	size_t count, room;
};

struct history {
	struct spool events; /* struct history_event */
	uint64_t count;
	char **names; /* [0] is "" */
	size_t name_count, name_room;
	struct map name_ids;
	struct history_range *ranges;
	size_t range_count, range_room;
	struct map open_ranges;		/* id -> index */
	struct history_thread *threads; /* by writer */
	size_t thread_room;
};

/* `directory` is where the file is made. 0, or a negative code said in `err`; needs history_fini() in either case. */
int history_init(struct history *history, const char *directory, struct mscope_error *err);
void history_fini(struct history *history);

/* Takes a row. 0, -ENOSPC or -ENOMEM. */
int history_row(struct history *history, const struct row *row);

/* The outermost operator in progress on the thread of a writer; 0: none. */
uint32_t history_operator(const struct history *history, uint32_t writer);

static inline const char *history_name(const struct history *history, uint32_t name)
{
	return name < history->name_count ? history->names[name] : "";
}

static inline const struct history_event *history_at(const struct history *history, uint64_t index)
{
	return (const struct history_event *)(const void *)history->events.data + index;
}

#endif
