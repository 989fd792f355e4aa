/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What became of watched memory: each dump of a watched block is compared with the one before. So the report can name the
 * operator that changed its bytes first, or the two operators between which they changed. Memory grows with watched blocks, up
 * to WATCHES_MAX.
 */
#ifndef MSCOPE_REPLAY_WATCHES_H
#define MSCOPE_REPLAY_WATCHES_H

#include <stdbool.h>

#include "trace/context.h"

struct checkpoint;
struct replay;
struct trace_event;

#define WATCHES_MAX 4096u

/* Watched memory at one moment. Texts are borrowed for the call. */
struct dump {
	uint64_t time_ns; /* wall clock */
	uint32_t tid;
	const struct context *context;
	const char *operation; /* that begins or has ended */
	uint64_t number;       /* ordinal of this call, from 1 */
	bool after;	       /* it has ended */
	bool first;	       /* the first dump of this memory */
	bool in_file;	       /* the bytes have a file of their own */
	const char *watched;
	uint32_t output;
	uint64_t checksum;
	uint64_t size_bytes;
};

/* The begin or the end of a call. */
struct moment {
	char *operation; /* owned */
	uint64_t number;
	uint32_t tid;
	bool after;
};

struct watched {
	char *name; /* owned */
	uint32_t output;
	uint32_t device;
	uint64_t size_bytes;
	uint64_t dumps;
	uint64_t changes;
	uint64_t checksum; /* of the last dump */
	struct moment last;
	struct moment from, to; /* between which it changed first; when `changes` is not 0 */
};

struct watches {
	struct watched *items; /* by their first dump */
	size_t count, room;
	uint64_t dumps;
	uint64_t more; /* dumps of blocks that there was no room for */
};

void watches_fini(struct replay *replay);

void watches_save(const struct replay *replay, struct checkpoint *cp);

/* True when it changed between the begin and the end of one call, false: between two moments. */
bool watched_changed_during(const struct watched *watched);

#endif
