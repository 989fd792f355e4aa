/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the framework's pool would reserve after a change: the history of the pool is edited as the editor edits the record, and played by the
 * twin of the allocator (twin/what_if.h). Nothing is said where the replay of the record itself does not agree.
 */
#ifndef MSCOPE_ADVISE_RESERVING_H
#define MSCOPE_ADVISE_RESERVING_H

#include "advise/editor.h"
#include "twin/what_if.h"

/* The history of a pool, with the moments of the record that its events are of. */
struct advise_history {
	const struct pool_history *history;
	/* Of each event: how many moments of the record there were after it. */
	const size_t *moments;
};

struct reserving {
	const struct advise_record *record;
	struct advise_history of;
	struct what_if recorded;
	uint32_t *blocks;   /* of each event: its block; ADVISE_NONE: none of the record */
	uint32_t *requests; /* of each block: number of its request, from 1; 0: unknown */
	uint32_t orders;
	/* Events of plays so far: later changes of a long run with many have no figure. */
	uint64_t played;
	char refusal[400]; /* why nothing is known, a sentence; "": it is */
};

/* 0 or -ENOMEM; needs reserving_fini() in either case. */
int reserving_init(struct reserving *reserving, const struct advise_record *record, uint32_t pool,
		   const struct advise_history *of);
void reserving_fini(struct reserving *reserving);

/*
 * The peak that is reserved after what is edited; `out` stays as it is where it cannot be said within 10 %. A program drops a block a little
 * earlier or later than the editor says, so that this is played, too. 0 or -ENOMEM.
 */
int reserving_play(struct reserving *reserving, const struct editor *editor,
		   struct what_if_range *out);

#endif
