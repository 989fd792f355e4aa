/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Labels: who owns a block. owners.h knows what a label makes of an owner. Once replay_decompose() was called every block has an
 * owner; before that only blocks with a label of the user's, whose rows name it in any case.
 */
#ifndef MSCOPE_REPLAY_LABELS_H
#define MSCOPE_REPLAY_LABELS_H

#include "replay/owners.h"
#include "replay/replay.h"

struct labels {
	struct owners owners;
	bool followed; /* replay_decompose() was called */
	bool labelled; /* the user has labelled something */
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

#endif
