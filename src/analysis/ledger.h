/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What happened to the memory of a run, change by change: which place a block belongs to, and the bytes that came or went. Two
 * ledgers are what a comparison explains its differences by (differences.h).
 *
 * A place is a call stack, an operator that was in progress, a pool, and an owner; blocks with neither stack nor operator are
 * distinguished by their size. An entry takes 16 bytes, a live block one slot of a map. Not thread-safe. A zeroed struct is an empty ledger.
 */
#ifndef MSCOPE_ANALYSIS_LEDGER_H
#define MSCOPE_ANALYSIS_LEDGER_H

#include "base/map.h"
#include "replay/replay.h"

/* 1 GiB of entries; what comes behind them is not kept. */
#define LEDGER_MOST (UINT64_C(1) << 26)

struct ledger_pool {
	uint8_t pool;
	uint32_t device;
};

struct ledger_place {
	uint32_t stack; /* 0: none was recorded */
	/* Name of the operator in progress, as the caller numbers names from 1; 0: none. */
	uint32_t call;
	uint32_t pool;	/* in ledger.pools */
	uint32_t owner; /* of its blocks, as the replay numbers owners; the latest that they had */
	uint64_t size_bytes; /* of a place without stack and operator, else 0 */
};

struct ledger_entry {
	int64_t bytes; /* less than 0: a block was freed */
	uint32_t place;
	/* Of a free: blocks that were allocated during its life, at most 2^31 - 1. */
	uint32_t life : 31;
	uint32_t outside : 1; /* no operator was in progress */
};

struct ledger {
	struct ledger_pool *pools;
	size_t pool_count, pool_room;
	struct ledger_place *places;
	size_t place_count, place_room;
	struct ledger_entry *entries; /* in the order of time */
	size_t entry_count, entry_room;
	/* What is compared: entries [from, to). Those before count as what was there. */
	size_t from, to;
	uint64_t allocations;
	bool full;		/* entries were dropped */
	struct map place_known; /* what tells places apart -> index */
	uint32_t recent[64];	/* places that were met lately, index + 1 */
	/* Allocation id -> its entry, and `allocations` at its begin in the upper half. */
	struct map live;
};

void ledger_fini(struct ledger *ledger);

/* A block came to be, or was freed. A free of a block that never came is ignored. 0 or -ENOMEM. */
int ledger_add(struct ledger *ledger, const struct block *block, const struct context *context,
	       uint32_t call, bool outside);
int ledger_remove(struct ledger *ledger, const struct block *block, bool outside);

/* The owner of a live block is known better now. 0 or -ENOMEM. */
int ledger_relabel(struct ledger *ledger, const struct block *block);

#endif
