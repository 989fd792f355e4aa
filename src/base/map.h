/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A hash map from a 128-bit key (two words) to one 64-bit value. It serves wherever something is looked up by number:
 * live blocks by pool and address, interned stacks and contexts by writer and id, names by hash.
 *
 * Open addressing with linear probing, power-of-two size, at most 3/4 full, removal by shifting back, so that there are no
 * tombstones and the cost does not depend on history. A slot is 32 bytes. Not thread-safe. A zeroed struct is an empty map.
 */
#ifndef MSCOPE_BASE_MAP_H
#define MSCOPE_BASE_MAP_H

#include <stdbool.h>

#include "base/compiler.h"

struct map_key {
	uint64_t a;
	uint64_t b;
};

struct map_slot {
	struct map_key key;
	uint64_t value;
	uint64_t used;
};

struct map {
	struct map_slot *slots;
	size_t mask; /* slots - 1, 0 while there are none */
	size_t count;
};

void map_fini(struct map *map);

/* Borrowed pointer to the value of `key`, valid until the next put or remove; NULL when absent. */
uint64_t *map_get(const struct map *map, struct map_key key);

/* Sets or replaces. 0 or -ENOMEM; the map is unchanged on failure. */
int map_put(struct map *map, struct map_key key, uint64_t value);

/* Removes `key` and gives its value through `out_value` (which may be NULL). False when absent. */
bool map_remove(struct map *map, struct map_key key, uint64_t *out_value);

/* Walks all slots in table order: start with *cursor = 0; NULL at the end. The map must not change meanwhile. */
const struct map_slot *map_next(const struct map *map, size_t *cursor);

#endif
