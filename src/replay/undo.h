/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Frees that may still turn out to have failed. The collector announces a free before it happens; when the driver refuses, an
 * undo record follows, and only events of a signal handler can come between the two. So each writer remembers its last few
 * frees. The block of a remembered free keeps its slot, and an undo brings it back as it was. The free of an address that no
 * block had is remembered too: its undo must not bring back an older block.
 *
 * Two threads may free one block. The first free that is announced takes the block, but the driver may refuse it and take a later
 * one. A contest is such a block with all its frees in order: when the free that has the block is undone, the next one that
 * was not undone has it.
 */
#ifndef MSCOPE_REPLAY_UNDO_H
#define MSCOPE_REPLAY_UNDO_H

#include "replay/replay.h"

#define RECENT_FREES  4
#define UNDO_NO_BLOCK UINT32_MAX

struct checkpoint;
struct event_live_block;

struct recent_free {
	uint64_t key;  /* address or handle that was given back */
	uint32_t slot; /* of the block, UNDO_NO_BLOCK: there was none */
	uint8_t space; /* as in struct blocks */
	bool later;    /* `slot` belongs to an earlier free of a contest */
};

/* Of one writer: a ring. */
struct recent_frees {
	struct recent_free all[RECENT_FREES];
	uint8_t first; /* place of the oldest */
	uint8_t count;
};

#define CONTESTS      16
#define CONTEST_FREES 8

/* A block that several frees were announced for. The first of them has the block. */
struct contest {
	uint64_t key;
	uint32_t slot;
	uint32_t count;
	struct {
		uint32_t writer;
		uint32_t failed; /* frees behind this one, before the next, that were undone */
	} frees[CONTEST_FREES];
	uint8_t space;
};

/* The oldest first; a new one takes the place of the oldest. */
struct contests {
	struct contest all[CONTESTS];
	uint32_t count;
};

/* Remembers a free; slots of frees that are too old for an undo go back to `replay`. */
void undo_remember(struct replay *replay, struct recent_frees *recent,
		   const struct recent_free *free);

/* Remembers the free of an address that no block has. It may be the real one of a block that another free took. */
void undo_remember_later(struct replay *replay, uint32_t writer, const struct recent_free *free);

/* A checkpoint has the frees of a contest in order, behind the block. 0 or -ENOMEM. */
int undo_load_contest(struct replay *replay, const struct event_live_block *saved);

/* Marks the slots of blocks that an undo record may bring back; `out_marks` has a byte for each slot. */
void undo_mark_slots(const struct replay *replay, uint8_t *out_marks);

void undo_save(const struct replay *replay, struct checkpoint *cp);

#endif
