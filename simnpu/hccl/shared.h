/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The memory that the ranks of a communicator share: a file that the first of them makes and that has no name any more once all
 * have met.
 *
 *     struct shared        who the ranks are, and the barrier
 *     slots                SLOT_BYTES for each rank, for collective operations
 *     channels             one for each pair of sender and receiver
 *
 * A file of zeros is a good beginning, so nobody has to be the first. Pages that are not used cost nothing.
 *
 * Waiting ends with HCCL_E_REMOTE when a rank has died or given up, and with HCCL_E_TIMEOUT after the limit; both end the
 * communicator for all.
 */
#ifndef SIMNPU_HCCL_SHARED_H
#define SIMNPU_HCCL_SHARED_H

#include <stdatomic.h>
#include <stdint.h>

#include "hccl/hccl_types.h"

enum {
	RANKS_MAX = 64,
	SLOT_BYTES = 1 << 20,
	CHANNEL_BYTES = 1 << 18,
};

/* What one rank sends to another, a piece at a time: full while `written` is one more than `read`. */
struct channel {
	_Atomic uint32_t written;
	_Atomic uint32_t read;
	_Alignas(64) unsigned char data[CHANNEL_BYTES];
};

struct shared {
	_Atomic uint32_t arrived;    /* ranks that wait at the barrier */
	_Atomic uint32_t generation; /* how often all have passed it; others wait on its change */
	_Atomic uint32_t failed;     /* a HcclResult: nobody shall wait any more */
	_Atomic uint64_t owners[RANKS_MAX]; /* pid and start of each rank, 0 until it has joined */
};

/* One rank's view of it. */
struct membership {
	struct shared *shared;
	unsigned char *slots;
	struct channel *channels;
	size_t bytes;
	uint32_t rank;
	uint32_t ranks;
	char path[256]; /* empty once the file has no name */
};

/* Joins the meeting of this name. */
HcclResult shared_join(struct membership *m, const char *name, uint32_t rank, uint32_t ranks);
void shared_leave(struct membership *m);

/* Waits until all ranks are here. */
HcclResult shared_barrier(struct membership *m);

unsigned char *shared_slot(const struct membership *m, uint32_t rank);
struct channel *shared_channel(const struct membership *m, uint32_t from, uint32_t to);

/* Waits until `*word` is not `value`, or a while has passed. For loops that look for something. */
void shared_wait(_Atomic uint32_t *word, uint32_t value);
void shared_wake(_Atomic uint32_t *word);

/* Whether to go on waiting: HCCL_SUCCESS, or what ended the communicator. `waited_ms` is how long it has been. */
HcclResult shared_check(struct membership *m, uint64_t waited_ms);

/* Milliseconds of a clock that does not jump. */
uint64_t shared_now(void);

#endif
