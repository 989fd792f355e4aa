/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A pool and its device at one moment, as a row SNAPSHOT shows them: because the program asked for it, or because memory ran out
 * (ooms.h). What the framework and the driver say counts most; what they do not say comes from the blocks and samples so far.
 */
#ifndef MSCOPE_REPLAY_FIGURES_H
#define MSCOPE_REPLAY_FIGURES_H

#include <stdint.h>

struct context;
struct replay;
struct usage;

/* UINT64_MAX: unknown. */
struct figures {
	uint64_t reserved_bytes, max_reserved_bytes;
	uint64_t allocated_bytes, max_allocated_bytes;
	uint64_t total_bytes, free_bytes; /* of the device */
	/* Of what is allocated, what was asked for; freed and still in use by streams; reserved for private pools. */
	uint64_t requested_bytes, waiting_bytes, private_bytes;
};

static inline uint64_t figure_larger(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

/* The framework's pool on a device, the largest if there are several. NULL: there is none. */
const struct usage *figures_pool(const struct replay *replay, uint32_t device);

/*
 * The pool as the last events have left it; `usage` is the driver's where there is no pool, NULL: nothing was allocated. Total and
 * free are the driver's own figures; where they are unknown, the last sample counts.
 */
struct figures figures_at(const struct replay *replay, const struct usage *usage,
			  const struct context *context, uint64_t total_bytes, uint64_t free_bytes);

#endif
