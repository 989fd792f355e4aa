/* SPDX-License-Identifier: Apache-2.0 */
#include "base/map.h"

#include <errno.h>
#include <stdlib.h>

static uint64_t hash(struct map_key key)
{
	uint64_t h = key.a * UINT64_C(0x9e3779b97f4a7c15) ^ (key.b + UINT64_C(0xd6e8feb86659fd93));

	h ^= h >> 32;
	h *= UINT64_C(0xd6e8feb86659fd93);
	h ^= h >> 29;
	return h;
}

static bool equal(struct map_key x, struct map_key y)
{
	return x.a == y.a && x.b == y.b;
}

/* The slot that holds `key`, or the free one where it would go. The table is never full. */
static struct map_slot *probe(const struct map *map, struct map_key key)
{
	size_t i = hash(key) & map->mask;

	while (map->slots[i].used && !equal(map->slots[i].key, key))
		i = (i + 1) & map->mask;
	return &map->slots[i];
}

static int grow(struct map *map)
{
	struct map bigger = {.mask = map->slots == NULL ? 15 : map->mask * 2 + 1,
			     .count = map->count};
	size_t cursor = 0;
	const struct map_slot *slot;

	bigger.slots = calloc(bigger.mask + 1, sizeof(*bigger.slots));
	if (bigger.slots == NULL)
		return -ENOMEM;
	while ((slot = map_next(map, &cursor)) != NULL)
		*probe(&bigger, slot->key) = *slot;
	free(map->slots);
	*map = bigger;
	return 0;
}

void map_fini(struct map *map)
{
	free(map->slots);
	*map = (struct map){0};
}

uint64_t *map_get(const struct map *map, struct map_key key)
{
	struct map_slot *slot;

	if (map->count == 0)
		return NULL;
	slot = probe(map, key);
	return slot->used ? &slot->value : NULL;
}

int map_put(struct map *map, struct map_key key, uint64_t value)
{
	struct map_slot *slot;

	if (map->slots == NULL || (map->count + 1) * 4 > (map->mask + 1) * 3) {
		int r = grow(map);

		if (r < 0)
			return r;
	}
	slot = probe(map, key);
	if (!slot->used)
		map->count++;
	*slot = (struct map_slot){.key = key, .value = value, .used = 1};
	return 0;
}

bool map_remove(struct map *map, struct map_key key, uint64_t *out_value)
{
	struct map_slot *slot;
	size_t hole, i;

	if (map->count == 0)
		return false;
	slot = probe(map, key);
	if (!slot->used)
		return false;
	if (out_value != NULL)
		*out_value = slot->value;

	/* Shift back every following entry that would no longer be reachable across the hole. */
	hole = (size_t)(slot - map->slots);
	for (i = (hole + 1) & map->mask; map->slots[i].used; i = (i + 1) & map->mask) {
		size_t home = hash(map->slots[i].key) & map->mask;

		if (((i - home) & map->mask) >= ((i - hole) & map->mask)) {
			map->slots[hole] = map->slots[i];
			hole = i;
		}
	}
	map->slots[hole].used = 0;
	map->count--;
	return true;
}

const struct map_slot *map_next(const struct map *map, size_t *cursor)
{
	if (map->slots == NULL)
		return NULL;
	for (; *cursor <= map->mask; (*cursor)++) {
		if (map->slots[*cursor].used)
			return &map->slots[(*cursor)++];
	}
	return NULL;
}
