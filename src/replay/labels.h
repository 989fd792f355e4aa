/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Labels: who owns a block. Followed only once replay_decompose() was called. owners.h knows what a label makes of an owner.
 */
#ifndef MSCOPE_REPLAY_LABELS_H
#define MSCOPE_REPLAY_LABELS_H

#include "replay/owners.h"
#include "replay/replay.h"

struct checkpoint;

struct labels {
	struct owners owners;
	bool followed; /* replay_decompose() was called */
	bool shown;    /* rows name the owner of their memory */
};

void labels_fini(struct replay *replay);

/* Owner of a block that a thread allocates now. 0 or -ENOMEM; *out_owner stays 0 while labels are not followed. */
int labels_owner(struct replay *replay, uint32_t context, const struct trace_event *event,
		 uint32_t *out_owner);

/* Checks the owner of a block that a checkpoint has, or finds it anew. 0 or -ENOMEM. */
int labels_load_owner(struct replay *replay, struct block *block);

/* Owner as a row shows it, NULL: none. What an earlier pass learned counts more than what is known now. */
const char *labels_row_text(const struct replay *replay, const struct block *block);

void labels_save(const struct replay *replay, struct checkpoint *cp);

#endif
