/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Frees that may still turn out to have failed. The collector announces a free before it happens; when the driver refuses, an
 * undo record follows, and only events of a signal handler can come between the two. So each writer remembers its last few
 * frees. The block of a remembered free keeps its slot, and an undo brings it back as it was. The free of an address that no
 * block had is remembered too: its undo must not bring back an older block.
 */
#ifndef MSCOPE_REPLAY_UNDO_H
#define MSCOPE_REPLAY_UNDO_H

#include "replay/replay.h"

#define RECENT_FREES  4
#define UNDO_NO_BLOCK UINT32_MAX

struct checkpoint;

struct recent_free {
	uint64_t key;  /* address or handle that was given back */
	uint32_t slot; /* of the block, UNDO_NO_BLOCK: there was none */
	uint8_t space; /* as in struct blocks */
};

/* Of one writer: a ring. */
struct recent_frees {
	struct recent_free all[RECENT_FREES];
	uint8_t first; /* place of the oldest */
	uint8_t count;
};

/* Remembers a free; slots of frees that are too old for an undo go back to `replay`. */
void undo_remember(struct replay *replay, struct recent_frees *recent,
		   const struct recent_free *free);

void undo_save(const struct replay *replay, struct checkpoint *cp);

#endif
