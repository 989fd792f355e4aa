/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What became of watched memory. The collector compares each dump of a block with the one before and says how many bytes changed,
 * and how many of them no operator in progress declared to write. Changes that were declared are counted by who made them; each
 * other one is kept with what is known of it. Memory grows with watched blocks, up to WATCHES_MAX, and with different unexpected
 * changes, up to CHANGES_MAX for each.
 */
#ifndef MSCOPE_REPLAY_WATCHES_H
#define MSCOPE_REPLAY_WATCHES_H

#include <stdbool.h>

#include "trace/context.h"

struct replay;
struct trace_event;

#define WATCHES_MAX  4096u
#define CHANGES_MAX  64u   /* different unexpected changes of a block */
#define EXPECTED_MAX 16u   /* operators that changed a block as they declared */
#define SEEN_MAX     8192u /* names of operators, to tell the nearest to one that never ran */
#define BYTES_SOME   UINT64_MAX

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
	uint64_t address;
	uint32_t stack; /* of the thread */
	bool named;	/* by the program, with its address */
	/* Since the last dump; BYTES_SOME: it is not known how many. */
	bool compared; /* else only checksums tell */
	bool handed;   /* the kernel was handed an address in it */
	uint64_t changed_bytes;
	uint64_t stray_bytes; /* of these, those that nobody in progress declared to write */
	uint64_t first_stray, last_stray;
	const char *inside; /* operator in progress around it, NULL: none, or nothing changed */
};

/* The begin or the end of a call. */
struct moment {
	char *operation; /* owned */
	uint64_t number;
	uint32_t tid;
	uint32_t stack;
	bool after;
};

/* Bytes of a block that changed between two moments without anybody having declared to write them. */
struct change {
	struct moment from, to;
	char *inside;	      /* operator in progress around the second, NULL: none. Owned */
	bool handed;	      /* a kernel that declares nothing was handed the block */
	uint64_t bytes;	      /* BYTES_SOME: not known */
	uint64_t first, last; /* offsets of the first and the last of them */
	uint32_t step;	      /* in progress that the program marked, 0: none */
	uint32_t automatic;   /* the same as optimizers tell it */
	uint64_t at;	      /* ordinal of the dump that showed it, of all */
	uint64_t times;	      /* the same operators at the same places */
	uint32_t last_step;   /* of the last time */
	uint32_t last_automatic;
};

/* An operator that changed a block as it had declared. */
struct expected {
	char *operation; /* owned */
	uint64_t times;
};

struct watched {
	char *name; /* owned */
	uint32_t output;
	uint32_t device;
	uint64_t size_bytes;
	uint64_t address; /* 0: it moves, or is not known */
	uint64_t dumps;
	uint64_t changes;
	uint64_t checksum; /* of the last dump */
	struct moment last;
	struct moment from, to; /* between which it changed first; when `changes` is not 0 */
	uint64_t unexpected;	/* of the changes, those that nobody declared */
	struct change *strays;	/* these; the same ones once, by their first time */
	size_t stray_count, stray_room;
	struct expected expected[EXPECTED_MAX];
	size_t expected_count;
};

struct watches {
	struct watched *items; /* by their first dump */
	size_t count, room;
	uint64_t dumps;
	uint64_t more; /* dumps of blocks that there was no room for */
	/* Operators that were seen while --watch asked for some. */
	char **seen;
	size_t seen_count, seen_room;
	bool start_ran, end_ran; /* those that it asked for */
};

void watches_fini(struct replay *replay);

/* True when these are the begin and the end of one call. */
bool moments_are_one_call(const struct moment *from, const struct moment *to);

#endif
