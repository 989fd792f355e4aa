/* SPDX-License-Identifier: Apache-2.0 */
#include "replay/live.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "replay/blocks.h"

#define FREE UINT32_MAX

static inline uint32_t tag_of(uint8_t space, uint64_t key)
{
	uint64_t h = (key + ((uint64_t)space << 56)) * UINT64_C(0x9e3779b97f4a7c15);

	h ^= h >> 32;
	h *= UINT64_C(0xd6e8feb86659fd93);
	return (uint32_t)(h >> 29);
}

uint64_t live_key(const struct blocks *blocks, uint32_t slot)
{
	const struct block *block = &blocks->all[slot];

	return MSCOPE_LIKELY(!block->keyed)
		       ? block->address
		       : *map_get(&blocks->live.keys, (struct map_key){slot, 0});
}

static inline bool is_it(const struct blocks *blocks, const struct live_entry *entry, uint8_t space,
			 uint64_t key)
{
	const struct block *block = &blocks->all[entry->slot];

	return block->space == space &&
	       (MSCOPE_LIKELY(!block->keyed) ? block->address == key
					     : live_key(blocks, entry->slot) == key);
}

/* Into the first free entry from its home on. The table is never full. */
static void put(struct live *live, struct live_entry entry)
{
	size_t i = entry.tag & live->mask;

	while (live->entries[i].slot != FREE)
		i = (i + 1) & live->mask;
	live->entries[i] = entry;
}

static int grow(struct live *live)
{
	struct live bigger = {.mask = live->entries == NULL ? 15 : live->mask * 2 + 1,
			      .count = live->count,
			      .keys = live->keys};
	const struct live_entry *entry;
	size_t cursor = 0;

	bigger.entries = malloc((bigger.mask + 1) * sizeof(*bigger.entries));
	if (bigger.entries == NULL)
		return -ENOMEM;
	memset(bigger.entries, 0xff, (bigger.mask + 1) * sizeof(*bigger.entries));
	while ((entry = live_next(live, &cursor)) != NULL)
		put(&bigger, *entry);
	free(live->entries);
	*live = bigger;
	return 0;
}

void live_fini(struct live *live)
{
	free(live->entries);
	map_fini(&live->keys);
	*live = (struct live){0};
}

const struct live_entry *live_get(const struct blocks *blocks, uint8_t space, uint64_t key)
{
	const struct live *live = &blocks->live;
	const struct live_entry *entries = live->entries;
	uint32_t tag;
	size_t i;

	if (live->count == 0)
		return NULL;
	tag = tag_of(space, key);
	for (i = tag & live->mask; entries[i].slot != FREE; i = (i + 1) & live->mask) {
		if (entries[i].tag == tag && is_it(blocks, &entries[i], space, key))
			return &entries[i];
	}
	return NULL;
}

int live_put(struct blocks *blocks, uint8_t space, uint64_t key, uint32_t slot)
{
	struct live *live = &blocks->live;
	struct block *block = &blocks->all[slot];
	int r = 0;

	if (live->entries == NULL || (live->count + 1) * 4 > (live->mask + 1) * 3)
		r = grow(live);
	if (r == 0 && MSCOPE_UNLIKELY(key != block->address))
		r = map_put(&live->keys, (struct map_key){slot, 0}, key);
	if (r < 0)
		return r;
	block->space = space;
	block->keyed = key != block->address;
	put(live, (struct live_entry){.tag = tag_of(space, key), .slot = slot});
	live->count++;
	return 0;
}

void live_remove(struct blocks *blocks, const struct live_entry *entry)
{
	struct live *live = &blocks->live;
	size_t hole = (size_t)(entry - live->entries), i;

	if (MSCOPE_UNLIKELY(blocks->all[entry->slot].keyed))
		(void)map_remove(&live->keys, (struct map_key){entry->slot, 0}, NULL);
	/* Shift back every following entry that would no longer be reachable across the hole. */
	for (i = (hole + 1) & live->mask; live->entries[i].slot != FREE; i = (i + 1) & live->mask) {
		size_t home = live->entries[i].tag & live->mask;

		if (((i - home) & live->mask) >= ((i - hole) & live->mask)) {
			live->entries[hole] = live->entries[i];
			hole = i;
		}
	}
	live->entries[hole].slot = FREE;
	live->count--;
}

const struct live_entry *live_next(const struct live *live, size_t *cursor)
{
	if (live->entries == NULL)
		return NULL;
	for (; *cursor <= live->mask; (*cursor)++) {
		if (live->entries[*cursor].slot != FREE)
			return &live->entries[(*cursor)++];
	}
	return NULL;
}
