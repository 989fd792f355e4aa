/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How much each pool holds on each device, as blocks come and go, and what the driver and the pools themselves say.
 */
#ifndef MSCOPE_REPLAY_USAGES_H
#define MSCOPE_REPLAY_USAGES_H

#include "replay/replay.h"

struct checkpoint;

struct usages {
	struct usage *all; /* in the order of their first event */
	size_t count, room;
	struct driver_usage *drivers; /* in the order of their first sample */
	size_t driver_count, driver_room;
	bool any_hidden;
	bool gpus; /* samples are of GPUs, else of NPUs */
};

void usages_fini(struct replay *replay);

/* The entry of a context's pool and device, new or known; NULL: no memory. Valid until the next call. See usages_of() in state.h. */
struct usage *usages_at(struct replay *replay, uint32_t context);

/*
 * The process uses a GPU. Samples have no vendor, and those of before any device was used are of NPUs; a machine that has both
 * must not show one's figures for the other. Called where the first context of a GPU is defined: samples of GPUs come after that.
 */
void usages_take_gpu(struct replay *replay, uint32_t device);

/* The driver's figures of a device; NULL if it was never sampled. */
const struct driver_usage *usages_driver(const struct usages *usages, uint32_t device);

/*
 * The driver's figures at a row: as last sampled, and what the process is known to have taken since. A sample comes later than the
 * growth that it shows; what the driver gave and what the row's own pool holds are known at once.
 */
void usages_figures(const struct usages *usages, const struct usage *usage, uint64_t *out_process,
		    uint64_t *out_device);

/* True for a row about memory that is hidden from the observer. */
bool usages_hide_row(const struct replay *replay, const struct row *row);

/* The program chose devices: the observer hears of them from here on, and of the blocks that live there already. */
void usages_choose(struct replay *replay, const struct event_settings *settings);

void usages_save(const struct replay *replay, struct checkpoint *cp);

#endif
