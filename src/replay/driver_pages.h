/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What blocks of a driver take of its device, which may be more or less than what was asked for. CUDA's driver counts whole pages of
 * 2 MiB; blocks below 1 MiB share pages. Its pools (cuMemAllocAsync) keep what is freed for a while, and managed memory takes nothing
 * of the device before it is used there: of both only the most is known.
 */
#ifndef MSCOPE_REPLAY_DRIVER_PAGES_H
#define MSCOPE_REPLAY_DRIVER_PAGES_H

#include "trace/context.h"

#define DRIVER_PAGE (UINT64_C(2) << 20)

struct driver_pages {
	/* Of blocks with pages of their own, and of those that count as they are. */
	uint64_t whole_bytes;
	uint64_t small_bytes; /* of blocks that share pages */
	uint64_t managed_bytes;
	/* Of the driver's own pools: now, and the most that was. */
	uint64_t pooled_bytes, pooled_most;
};

void driver_pages_add(struct driver_pages *pages, const struct context *context, uint64_t bytes);
void driver_pages_remove(struct driver_pages *pages, const struct context *context, uint64_t bytes);

/* What a block takes; of one that shares pages its own part. */
uint64_t driver_pages_of(const struct context *context, uint64_t bytes);

/* What all of them take at least, and how much more it may be. */
uint64_t driver_pages_taken(const struct driver_pages *pages);
uint64_t driver_pages_more(const struct driver_pages *pages);

#endif
