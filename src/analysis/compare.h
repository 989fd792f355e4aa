/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two runs side by side, call by call: operators as they end, kernels as they are launched, matched by name in the order of each
 * device. docs/decisions/0008-memory-of-a-call.md defines the memory of a call. What the runs did to memory is kept too
 * (ledger.h), for differences.h.
 *
 *     compare_init()
 *     of each run:  compare_begin()  compare_observe()  compare_take_event() for each event that was replayed  compare_end()
 *                   compare_reader_fini()
 *     compare_align()
 *     compare_fini()
 */
#ifndef MSCOPE_ANALYSIS_COMPARE_H
#define MSCOPE_ANALYSIS_COMPARE_H

#include "analysis/ledger.h"
#include "base/map.h"
#include "base/status.h"
#include "base/strbuf.h"
#include "replay/replay.h"

enum compare_level {
	COMPARE_OPS = 1,
	COMPARE_KERNELS = 2,
};

/* Whose memory is compared. */
enum compare_pools {
	COMPARE_DRIVER,	   /* no framework in either run: what the driver handed out */
	COMPARE_PYTORCH,   /* its pools, workspace and ATB included */
	COMPARE_MINDSPORE, /* its pool */
};

struct compare_call {
	uint32_t name; /* in compare.names; with the kind of call in its highest bit */
	uint32_t device;
	int64_t bytes[3]; /* change by the call, for each of enum compare_pools */
	uint32_t at;	  /* entries of the ledger when it ended */
};

#define COMPARE_KERNEL (UINT32_C(1) << 31)

/* One of the two runs. */
struct compare_side {
	struct compare_call *calls; /* in the order of time */
	size_t count, room;
	bool pytorch, mindspore; /* has blocks of these */
	bool classes;		 /* knows what its blocks are to a model */
	uint64_t ops, kernels;	 /* calls of each level, asked for or not */
	uint64_t nameless;	 /* launches that were recorded without their names */
	uint32_t steps;		 /* that the run has */
	bool in_range;		 /* the step that was asked for has begun */
	struct ledger ledger;	 /* names of calls are offsets in compare.names + 1 */
	struct replay *replay;	 /* at its end, for call stacks; borrowed, NULL: there are none */
};

#define COMPARE_ABSENT SIZE_MAX

/* A line of the result. */
struct compare_row {
	uint32_t device;
	size_t call[2]; /* in calls of each side, or COMPARE_ABSENT */
};

struct compare {
	uint32_t level; /* bits of enum compare_level */
	enum compare_pools pools;
	struct compare_side sides[2];
	struct strbuf names;	  /* NUL-terminated, each once */
	struct map name_known;	  /* hash -> offset + 1 */
	struct compare_row *rows; /* by device, within it in the order of the sequences */
	size_t row_count, row_room;
	bool exact; /* no alignment was cut into pieces */
	/* The second run used other devices, which have the numbers of the first here. */
	bool other_devices;
	const char *no_calls; /* why there are no rows; NULL: there are */
};

struct open_call;
struct last_call;

/* Calls of a run that are compared: those that its launch wrote. */
struct compare_choice {
	/* Whether a call that ends now is one of them; NULL: all are. */
	bool (*wanted)(const void *arg, const struct replay *replay, const struct context *context);
	/* Whether a row is one that was written; its block counts then. NULL: all blocks count. */
	bool (*row)(const void *arg, const struct replay *replay, const struct row *row);
	const void *arg;
	uint32_t step; /* only what this step did; 0: all */
	bool nameless; /* kernels without a name are calls too, named N/A */
};

/* A text of a writer that was met lately. */
struct recent_name {
	uint64_t id; /* 0: none */
	uint32_t writer;
	uint32_t name; /* in compare.names */
};

/* The reading of one run. */
struct compare_reader {
	struct compare *compare;
	struct compare_side *side;
	struct replay *replay;
	struct open_call *open; /* operators that have begun */
	size_t open_count, open_room;
	struct last_call *last; /* by device */
	size_t last_count, last_room;
	const struct compare_choice *choice;
	struct recent_name recent[256];
	struct map written; /* live blocks that were written, by allocation_id */
	struct replay_observer observer;
	bool in_step;	/* the step that was asked for is in progress */
	bool has_ended; /* the program's own code has, after `end_at` entries */
	size_t end_at;
	int error; /* of the observer, which cannot return one */
};

void compare_init(struct compare *compare, uint32_t level);
void compare_fini(struct compare *compare);

/* A run is about to be replayed, which is side 0 or 1. `choice` is borrowed until its end. */
void compare_begin(struct compare_reader *reader, struct compare *compare, int side,
		   const struct compare_choice *choice);

/* Becomes the observer of `replay`, before its first event; the reader must not move from then on. */
void compare_observe(struct compare_reader *reader, struct replay *replay);

/* Takes an event that `replay` has just taken; `arg` is the reader. 0, -ENOMEM or MSCOPE_E_LIMIT. */
int compare_take_event(void *arg, struct replay *replay, const struct trace_event *event);

/* Takes a row that `replay` publishes, if the choice is one of rows; `arg` is the reader. */
int compare_take_row(void *arg, struct replay *replay, const struct row *row);

/* The run is at its end; `replay` stays as it is until compare_fini(). */
void compare_end(struct compare_reader *reader, struct replay *replay);
void compare_reader_fini(struct compare_reader *reader);

/* Once both are read. MSCOPE_E_ABSENT or MSCOPE_E_STATE when the two cannot be compared, and why. */
int compare_align(struct compare *compare, struct mscope_error *err);

/* Whether the memory of a pool is what calls are compared by. */
bool compare_counts_pool(const struct compare *compare, uint8_t pool);

/* Parts of a row. */
const char *compare_name(const struct compare *compare, const struct compare_row *row);
const char *compare_event(const struct compare *compare, const struct compare_row *row);
/* Change by the call on that side; false when it is not there. */
bool compare_bytes(const struct compare *compare, const struct compare_row *row, int side,
		   int64_t *out);
/* Second minus first, a call that is not there counting as 0. */
int64_t compare_difference(const struct compare *compare, const struct compare_row *row);

#endif
