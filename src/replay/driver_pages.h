/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What blocks of a driver take of its device, which may be more or less than what was asked for. CUDA's driver counts whole pages of
 * 2 MiB; blocks below 1 MiB share pages. Managed memory takes nothing of the device before it is used there.
 */
#ifndef MSCOPE_REPLAY_DRIVER_PAGES_H
#define MSCOPE_REPLAY_DRIVER_PAGES_H

#include "trace/context.h"

#define DRIVER_PAGE (UINT64_C(2) << 20)

struct driver_pages {
	/* Of blocks with pages of their own, and of those that count as they are. */
	uint64_t whole_bytes;
	uint64_t small_bytes;	/* of blocks that share pages */
	uint64_t managed_bytes; /* takes so much at most */
	uint64_t pooled_bytes;	/* of the driver's own pools, which keep more */
};

void driver_pages_add(struct driver_pages *pages, const struct context *context, uint64_t bytes);
void driver_pages_remove(struct driver_pages *pages, const struct context *context, uint64_t bytes);

/* What a block takes; of one that shares pages its own part. */
uint64_t driver_pages_of(const struct context *context, uint64_t bytes);

/* What all of them take, but for managed memory. */
uint64_t driver_pages_taken(const struct driver_pages *pages);

#endif
