/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Histories of PyTorch's pools (twin/pool_history.h) from a recorded run: an observer of the pass takes what the pool told of its blocks
 * and segments. Pools that tell no requested sizes are named, and have no history.
 */
#ifndef MSCOPE_ENGINE_POOL_HISTORIES_H
#define MSCOPE_ENGINE_POOL_HISTORIES_H

#include "base/map.h"
#include "engine/npu_history.h"
#include "engine/pass.h"
#include "twin/pool_history.h"

struct pool_recorder {
	struct pool_history history;
	uint64_t reserved; /* now */
	struct map live;   /* address of a block in use -> 1 */
	bool untold;	   /* blocks came without requested sizes */
	struct npu_history npu;
};

struct pool_histories {
	struct pool_recorder *pools; /* one for each device */
	size_t count, room;
	bool sites; /* call sites of requests are wanted; set by the caller */
};

/* For pass_setup.event; `arg` is the struct pool_histories. 0 or -ENOMEM. */
int pool_histories_take(void *arg, struct replay *replay, const struct trace_event *event);
/* After the last event: what only the end tells. 0 or -ENOMEM. */
int pool_histories_end(struct pool_histories *histories, struct replay *replay);
/* The one on a device that can be played; NULL: none. */
const struct pool_history *pool_histories_of(const struct pool_histories *histories,
					     uint32_t device);
void pool_histories_fini(struct pool_histories *histories);

#endif
