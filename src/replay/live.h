/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The live blocks by what gives them back: the address or handle of a block, and the space that it is meant in. The same scheme
 * as base/map.h with entries of half the size, because there may be millions. Not thread-safe. A zeroed struct is an empty one.
 */
#ifndef MSCOPE_REPLAY_LIVE_H
#define MSCOPE_REPLAY_LIVE_H

#include <stdbool.h>

#include "base/compiler.h"

struct live_entry {
	uint64_t key;
	uint32_t slot;
	uint16_t space;
	uint16_t used;
};

struct live {
	struct live_entry *entries;
	size_t mask; /* entries - 1, 0 while there are none */
	size_t count;
};

void live_fini(struct live *live);

/* Borrowed until the next put or remove; NULL when absent. */
const struct live_entry *live_get(const struct live *live, uint8_t space, uint64_t key);

/* Adds a block whose key is not there yet. 0 or -ENOMEM. */
int live_put(struct live *live, uint8_t space, uint64_t key, uint32_t slot);

/* Removes an entry that live_get() found. */
void live_remove(struct live *live, const struct live_entry *entry);

/* Walks all entries in table order: start with *cursor = 0; NULL at the end. */
const struct live_entry *live_next(const struct live *live, size_t *cursor);

#endif
