/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the replay keeps for each writer of a trace: the thread that it writes for, what its numbers mean, its recent frees and
 * the operators that its thread is in. Writers are found by number; a checkpoint has one of its own.
 */
#ifndef MSCOPE_REPLAY_WRITERS_H
#define MSCOPE_REPLAY_WRITERS_H

#include "base/strbuf.h"
#include "replay/numbers.h"
#include "replay/operations.h"
#include "replay/undo.h"
#include "trace/context.h"
#include "trace/pack.h"

/* Numbers are dense in a real trace; a damaged one must not make us allocate for them all. */
#define WRITERS_MAX 65536u

struct writer {
	struct numbers contexts; /* -> index in definitions.contexts */
	struct numbers stacks;	 /* -> index in definitions.stacks */
	struct numbers codes;	 /* -> index in definitions.codes */
	struct numbers texts;	 /* -> offset in texts */
	struct strbuf once[TEXT_ONCE_SLOTS];
	struct recent_frees recent;
	struct operations operations;
	uint32_t tid;
	uint32_t device; /* first one that its thread used, + 1; 0: none so far */
	uint64_t latest; /* allocation_id of the block it allocated last; 0: it freed one since */
};

struct checkpoint;

struct writers {
	struct writer **all; /* by number; NULL: never met */
	size_t room;
	struct writer *checkpoint; /* CHECKPOINT_WRITER */
	uint32_t as_writer; /* the writer that records of a checkpoint are about, 0: its own */
};

int writers_init(struct replay *replay);
void writers_fini(struct replay *replay);

/* The writer with a number; NULL if it was never met. */
static inline struct writer *writers_get(const struct writers *writers, uint32_t number)
{
	if (MSCOPE_LIKELY(number < writers->room))
		return writers->all[number];
	return number == CHECKPOINT_WRITER ? writers->checkpoint : NULL;
}

/* The same, made when it is new; NULL: no memory, or no real writer has such a number. */
struct writer *writers_at(struct writers *writers, uint32_t number);

/* The writer whose numbers a definition is about. */
uint32_t writers_definer(const struct writers *writers, const struct trace_event *event);

/* The checkpoint was read to its end: its own numbers are not needed any more. */
void writers_end_checkpoint(struct writers *writers);

void writers_save(const struct replay *replay, struct checkpoint *cp);

#endif
