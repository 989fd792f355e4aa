/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a trace tells about torch_npu's pool: blocks with their sizes as the pool rounded them, and what it holds in all. Neither requests,
 * nor streams, nor segments: these are memory that the driver gave just before a block at its start.
 *
 * Memory goes back to the driver without a word about its device.
 *
 *     driver memory at an address    a segment, once a block begins there; other memory of the driver never does
 *     driver memory without one      (physical memory to be mapped) a part of an expandable segment, once the next block comes
 *
 * The sum of both must be what the pool says that it holds, else the record is not used.
 */
#ifndef MSCOPE_ENGINE_NPU_HISTORY_H
#define MSCOPE_ENGINE_NPU_HISTORY_H

#include "base/map.h"
#include "replay/replay.h"
#include "twin/pool_history.h"

struct npu_history {
	struct map driver; /* kind and address or handle -> bytes << 1 | whether the pool has it */
	uint64_t *handles; /* given since the last block */
	size_t handle_count, handle_room;
	uint64_t handle_bytes;
	uint64_t held; /* segments and parts */
	uint64_t told; /* what the pool holds, as it says */
	bool strange;  /* which is something else */
	bool has_pool; /* it has had a block */
	/* A memory fraction, or settings, came after that. */
	bool told_late, changed_late;
};

/* The driver gave memory of the device. 0 or -ENOMEM. */
int npu_history_given(struct npu_history *npu, uint64_t address, uint64_t bytes, bool by_handle);
/* It was given back; nothing if it is another device's. 0 or -ENOMEM. */
int npu_history_gone(struct npu_history *npu, struct pool_history *history, uint64_t address,
		     bool by_handle, struct history_event now);
/* What comes before a block of the pool at this address: segments. `now` has time and step. 0 or -ENOMEM. */
int npu_history_block(struct npu_history *npu, struct pool_history *history, uint64_t address,
		      struct history_event now);
void npu_history_fini(struct npu_history *npu);

#endif
