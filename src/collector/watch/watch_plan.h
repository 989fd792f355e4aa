/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Watching memory: which ranges, from when until when, and which of them are to be dumped now. This part decides; it touches no
 * watched memory and needs nothing of the collector but its lock, so that it can be tested alone. watch_dump.h makes the dumps.
 *
 * Ranges come from --watch=START[:OUTPUT],END, when operator START has ended: its outputs, until END has ended; or from the API.
 * At the begin and the end of every operator, and at kernel level of every kernel, the caller asks for a plan of what to dump.
 * Ranges of a plan keep their entries in the table until watch_finish(), also when they are no longer watched by then.
 *
 * Any thread may call any function. One lock, held for a walk over the table at most, never while memory is read.
 */
#ifndef MSCOPE_COLLECTOR_WATCH_H
#define MSCOPE_COLLECTOR_WATCH_H

#include <stdatomic.h>
#include <stdbool.h>

#include "base/compiler.h"
#include "collector/lock.h"
#include "collector/watch/watch_calls.h"
#include "trace/context.h"
#include "trace/session.h"

#define WATCH_RANGES	256u
#define WATCH_COUNTERS	16384u /* slots of operators that are counted, a power of two */
#define WATCH_PATHS	1024u  /* of them, paths while nothing is watched: they hardly come twice */
#define WATCH_UNLIMITED (-1)
#define WATCH_IGNORED	16u /* freed neighbours of a range that are told apart */

/* A range of memory. The first fields do not change while it is in the table. */
struct watch_range {
	uint64_t address;
	uint64_t bytes;
	uint32_t device;
	uint32_t output; /* which output of the operator, 0 for those of the API */
	uint8_t vendor;	 /* whose device it is */
	bool from_api;
	/* The operator whose output it is, or the name that it was given. */
	char name[SESSION_WATCH_MAX];
	/* Guarded by the lock. */
	bool used;     /* the entry is taken */
	bool watched;  /* is put into plans */
	uint32_t pins; /* plans that it is in */
	int64_t left;  /* dumps that remain, WATCH_UNLIMITED */
	/* Blocks behind the first one that were freed: whoever has their memory now may write it. */
	struct watch_span ignored[WATCH_IGNORED];
	uint32_t ignored_count;
	/* Atomic. */
	/* Bytes that there are: behind them memory was given back to the driver. */
	_Atomic uint64_t readable;
	_Atomic uint32_t begun;	   /* it has been dumped */
	_Atomic uint32_t compared; /* what it held is kept, to be compared with */
	_Atomic uint32_t gone;	   /* its memory is freed: it must not be read any more */
	_Atomic uint32_t readers;  /* threads that read it at this moment */
};

struct watch_counter {
	uint64_t hash; /* of the operator's name, 0: empty */
	uint64_t count;
};

struct watch {
	struct session_watch settings;
	uint32_t level; /* enum session_level: whose begin and end are moments to dump */
	bool by_path;	/* START or END is a path: operators are called by theirs */
	/* 0: nothing is watched and nothing will be; operators need not report. */
	_Atomic uint32_t active;
	_Atomic uint32_t range_count;
	struct lock lock;
	bool open; /* START has ended, END has not */
	bool start_ran, end_ran;
	bool full; /* the table of counters has no room for further operators */
	uint32_t counter_count;
	struct watch_range ranges[WATCH_RANGES];
	struct watch_counter counters[WATCH_COUNTERS];
};

struct watch_output {
	uint64_t address;
	uint64_t bytes;
};

/* An operator or kernel that begins or has ended. */
struct watch_call {
	uint32_t kind;	  /* enum operation_kind */
	uint32_t level;	  /* one of enum session_level: what it is */
	const char *name; /* NULL: not known before it has run */
	const char *path; /* where it is in its model, NULL: unknown */
	uint64_t number;  /* at its end: the number of the plan at its begin; 0: unknown */
	bool late_name;	  /* at its end: its begin had no name */
	/* Where the stack is at its begin, and would be at that of the next one; 0: unknown. */
	uintptr_t frame;
	bool opaque;	 /* what it writes is not known: who called it decides */
	uint32_t device; /* that it runs on and its outputs are on */
	uint8_t vendor;	 /* whose device that is */
	bool has_stream;
	void *stream; /* that it runs on, if known */
	/* What it writes; at the end of the operator that the user named, all that it gives, in order. */
	const struct watch_output *outputs;
	uint32_t output_count;
	/* Of a kernel that declares nothing: what it was handed, among it addresses. */
	const void *arguments;
	size_t argument_bytes;
};

struct watch_plan {
	uint64_t number;  /* ordinal of this call of the operator, from 1; 0: not counted */
	uint32_t dropped; /* outputs that the table has no room for */
	uint32_t seen;	  /* enum seen_flags: it ran for the first time as one of these */
	bool is_new;	  /* an operator of this name ran for the first time */
	uint32_t count;
	uint8_t ranges[WATCH_RANGES]; /* entries of the table */
	bool taken[WATCH_RANGES];     /* of each: it counts as one of a limited number of dumps */
};

_Static_assert(WATCH_RANGES <= 256, "an entry's number fits 8 bits");

void watch_init(struct watch *watch, const struct session_watch *settings, uint32_t level);

/* What --watch asked for is not wanted any more; what the API watches is. */
void watch_off(struct watch *watch);

/* In a forked child, where no other thread runs: what its parent watched is not here. */
void watch_forget(struct watch *watch);

/* What is to be dumped now. True when there is something; then watch_finish() must follow. */
bool watch_plan(struct watch *watch, const struct watch_call *call, struct watch_plan *plan);

/* The dumps of a plan are over. `made` false: they were not even tried, and do not count. */
void watch_finish(struct watch *watch, const struct watch_plan *plan, bool made);

/* The name under which a call is shown. Borrowed from it. */
const char *watch_shown(const struct watch *watch, const struct watch_call *call);

/* True when this is the operator whose outputs will be watched. */
bool watch_wants_outputs(const struct watch *watch, const char *name, const char *path);

/*
 * Begins to watch for the API. `limit` dumps at most, WATCH_UNLIMITED. The same address and length again is a new watch.
 * -ENOSPC: too many.
 */
int watch_add(struct watch *watch, const struct watch_range *range, int64_t limit);

/* Ends a watch of the API; `bytes` 0: whatever its length. -ENOENT: there is none. */
int watch_remove(struct watch *watch, uint64_t address, uint64_t bytes);

/*
 * Memory is about to be freed: ranges that begin in it are no longer watched, and no thread reads them when this returns. With
 * `bytes` 0 the size of the block is not known: only ranges that begin at the address. Ranges that begin before it and reach into
 * it are watched on; if it is `unmapped`, what lies from there on is not read any more. Returns how many are no longer watched;
 * one name is copied out.
 */
uint32_t watch_free(struct watch *watch, uint64_t address, uint64_t bytes, bool unmapped,
		    char out_name[SESSION_WATCH_MAX]);

/* Of these, those that reach into watched memory, as spans. Returns how many. */
uint32_t watch_touching(struct watch *watch, const struct watch_output *outputs, uint32_t count,
			struct watch_span *out, uint32_t room);

/* Freed neighbours in the range of an entry, as addresses. Returns how many. */
uint32_t watch_ignored(struct watch *watch, uint32_t entry, struct watch_span out[WATCH_IGNORED]);

/* True: the range may be read until watch_read_end(). False: its memory is freed. */
bool watch_read_begin(struct watch_range *range);
void watch_read_end(struct watch_range *range);

#endif
