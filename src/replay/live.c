/* SPDX-License-Identifier: Apache-2.0 */
#include "replay/live.h"

#include <errno.h>
#include <stdlib.h>

static inline size_t home_of(const struct live *live, uint16_t space, uint64_t key)
{
	uint64_t h = (key + ((uint64_t)space << 56)) * UINT64_C(0x9e3779b97f4a7c15);

	h ^= h >> 32;
	h *= UINT64_C(0xd6e8feb86659fd93);
	return (h >> 29) & live->mask;
}

/* The entry that has the key, or the free one where it would go. The table is never full. */
static struct live_entry *probe(const struct live *live, uint16_t space, uint64_t key)
{
	size_t i = home_of(live, space, key);

	while (live->entries[i].used &&
	       (live->entries[i].key != key || live->entries[i].space != space))
		i = (i + 1) & live->mask;
	return &live->entries[i];
}

static int grow(struct live *live)
{
	struct live bigger = {.mask = live->entries == NULL ? 15 : live->mask * 2 + 1,
			      .count = live->count};
	const struct live_entry *entry;
	size_t cursor = 0;

	bigger.entries = calloc(bigger.mask + 1, sizeof(*bigger.entries));
	if (bigger.entries == NULL)
		return -ENOMEM;
	while ((entry = live_next(live, &cursor)) != NULL)
		*probe(&bigger, entry->space, entry->key) = *entry;
	free(live->entries);
	*live = bigger;
	return 0;
}

void live_fini(struct live *live)
{
	free(live->entries);
	*live = (struct live){0};
}

const struct live_entry *live_get(const struct live *live, uint8_t space, uint64_t key)
{
	const struct live_entry *entry;

	if (live->count == 0)
		return NULL;
	entry = probe(live, space, key);
	return entry->used ? entry : NULL;
}

int live_put(struct live *live, uint8_t space, uint64_t key, uint32_t slot)
{
	if (live->entries == NULL || (live->count + 1) * 4 > (live->mask + 1) * 3) {
		int r = grow(live);

		if (r < 0)
			return r;
	}
	*probe(live, space, key) =
		(struct live_entry){.key = key, .slot = slot, .space = space, .used = 1};
	live->count++;
	return 0;
}

void live_remove(struct live *live, const struct live_entry *entry)
{
	size_t hole = (size_t)(entry - live->entries), i;

	/* Shift back every following entry that would no longer be reachable across the hole. */
	for (i = (hole + 1) & live->mask; live->entries[i].used; i = (i + 1) & live->mask) {
		size_t home = home_of(live, live->entries[i].space, live->entries[i].key);

		if (((i - home) & live->mask) >= ((i - hole) & live->mask)) {
			live->entries[hole] = live->entries[i];
			hole = i;
		}
	}
	live->entries[hole].used = 0;
	live->count--;
}

const struct live_entry *live_next(const struct live *live, size_t *cursor)
{
	if (live->entries == NULL)
		return NULL;
	for (; *cursor <= live->mask; (*cursor)++) {
		if (live->entries[*cursor].used)
			return &live->entries[(*cursor)++];
	}
	return NULL;
}
