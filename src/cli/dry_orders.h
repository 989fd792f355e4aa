/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a dry run's pool would have needed if the driver had handed out other addresses. On a card they differ from run to run: of equal free
 * blocks PyTorch takes the lower one, and what it does not split off counts as needed.
 */
#ifndef MSCOPE_CLI_DRY_ORDERS_H
#define MSCOPE_CLI_DRY_ORDERS_H

#include "engine/pool_histories.h"

struct dry_orders {
	/* Most bytes that were asked for at once, which no address changes; 0: unknown. */
	uint64_t requested;
	uint64_t needs_low, needs_high, reserves_low, reserves_high;
	bool refused; /* with some addresses a request does not fit; the figures are those of the others */
};

/*
 * Plays the pool of a device again, which gets no more than `most` bytes: it gives its cache back first, as on the card. Figures in `out` that
 * the caller has set are widened. An unknown pool, or one whose replay does not agree with the record, leaves them. 0 or -ENOMEM.
 */
int dry_orders_play(const struct pool_histories *histories, uint32_t device, uint64_t most,
		    struct dry_orders *out);

#endif
