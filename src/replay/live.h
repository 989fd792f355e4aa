/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The live blocks by what gives them back: the address or handle of a block, and the space that it is meant in. There may be millions:
 * an entry has 8 bytes and the block itself the rest; keys that are not the block's address are kept apart. The same scheme as
 * base/map.h. Not thread-safe. A zeroed struct is an empty one.
 */
#ifndef MSCOPE_REPLAY_LIVE_H
#define MSCOPE_REPLAY_LIVE_H

#include "base/map.h"

struct blocks;

struct live_entry {
	uint32_t tag;  /* of the hash */
	uint32_t slot; /* UINT32_MAX: the entry is free */
};

struct live {
	struct live_entry *entries;
	size_t mask; /* entries - 1, 0 while there are none */
	size_t count;
	struct map keys; /* slot -> key of the blocks that are `keyed` */
};

void live_fini(struct live *live);

/* Borrowed until the next put or remove; NULL when absent. */
const struct live_entry *live_get(const struct blocks *blocks, uint8_t space, uint64_t key);

/* What gives back the live block in a slot. */
uint64_t live_key(const struct blocks *blocks, uint32_t slot);

/* Adds the block in a slot, whose key is not there yet. 0 or -ENOMEM. */
int live_put(struct blocks *blocks, uint8_t space, uint64_t key, uint32_t slot);

/* Removes an entry that live_get() found. */
void live_remove(struct blocks *blocks, const struct live_entry *entry);

/* Walks all entries in table order: start with *cursor = 0; NULL at the end. */
const struct live_entry *live_next(const struct live *live, size_t *cursor);

#endif
