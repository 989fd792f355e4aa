/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What analysis decompose knows, for its own files: decompose.c follows the run, decompose_owners.c
 * makes a tree of owners, decompose_layers.c
 * finds what each layer of a model holds.
 *
 * A share is what one owner holds of one pool on one device (a usage). An instant has a copy of all shares: at the peak, when memory
 * ran out, in a step that was asked for. A label may come long after the allocation of its block, even after an instant. The block
 * was alive then, so its bytes move to the new owner in every instant that includes it.
 */
#ifndef MSCOPE_ANALYSIS_DECOMPOSE_STATE_H
#define MSCOPE_ANALYSIS_DECOMPOSE_STATE_H

#include "analysis/analyses.h"
#include "base/map.h"

struct share {
	uint32_t usage; /* index in replay_usages() */
	uint32_t owner;
	uint64_t live_bytes;
	uint64_t live_blocks;
	uint64_t end_bytes; /* at the end of the program's own code; set when it is reported */
};

enum instant_kind {
	INSTANT_PEAK,
	INSTANT_REFUSED,   /* a request was refused; the program may not notice */
	INSTANT_OOM,	   /* the last refusal that it noticed */
	INSTANT_STEP_PEAK, /* the most in a step */
	INSTANT_STEP_END,
};

/* A usage at an instant. */
struct instant_usage {
	uint64_t most_bytes;
	uint64_t bytes;	     /* most_bytes when shares were copied */
	uint64_t allocation; /* the last one handed out then */
	uint64_t change;     /* struct decompose.changes then */
};

struct instant {
	enum instant_kind kind;
	uint32_t step; /* 0: not of a step */
	bool open;     /* waits for its highest use */
	bool taken;
	struct instant_usage *usages;
	size_t usage_count, usage_room;
	uint64_t *bytes; /* by share */
	size_t share_count, share_room;
};

struct decompose {
	struct share *shares;
	size_t share_count, share_room;
	struct map index;     /* usage, owner -> share */
	uint64_t *live_bytes; /* by usage */
	size_t live_count, live_room;
	/* [INSTANT_PEAK], [INSTANT_REFUSED], [INSTANT_OOM], then two for each step that was asked for. */
	struct instant *instants;
	size_t instant_count;
	uint64_t changes; /* of blocks so far */
	/* Allocation -> `changes` when its block was counted, for blocks that some instant before that would seem to include. */
	struct map joined;
};

/* Bytes of a share, and of a usage, at an instant. */
uint64_t instant_share(const struct instant *instant, size_t share);
uint64_t instant_total(const struct instant *instant, size_t usage);

/* Owners of memory, as findings; `d`: what decompose_at() gave. 0 or -ENOMEM. */
int owners_judge(const struct decompose *d, struct replay *replay, struct findings *out);

/* The same of layers of models. */
int layers_judge(const struct decompose *d, struct replay *replay, struct findings *out);

/* Layers as a table, from the document. */
void layers_text(const struct analysis_view *view, struct strbuf *out);

#endif
