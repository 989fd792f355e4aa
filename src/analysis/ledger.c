/* SPDX-License-Identifier: Apache-2.0 */
#include "analysis/ledger.h"

#include <errno.h>
#include <stdlib.h>

#include "base/array.h"

#define LIFE_MOST ((UINT32_C(1) << 31) - 1)

void ledger_fini(struct ledger *ledger)
{
	free(ledger->pools);
	free(ledger->places);
	free(ledger->entries);
	map_fini(&ledger->place_known);
	map_fini(&ledger->live);
	*ledger = (struct ledger){0};
}

/* The index of a pool, new or known. There are few. */
static int pool_at(struct ledger *ledger, const struct context *context, uint32_t *out)
{
	uint32_t i;

	for (i = 0; i < ledger->pool_count; i++) {
		if (ledger->pools[i].pool == context->pool &&
		    ledger->pools[i].device == context->device)
			break;
	}
	if (i == ledger->pool_count) {
		if (ARRAY_RESERVE(ledger->pools, ledger->pool_room, ledger->pool_count + 1) < 0)
			return -ENOMEM;
		ledger->pools[ledger->pool_count++] =
			(struct ledger_pool){context->pool, context->device};
	}
	*out = i;
	return 0;
}

static bool is_same(const struct ledger_place *a, const struct ledger_place *b)
{
	return a->stack == b->stack && a->call == b->call && a->pool == b->pool &&
	       a->size_bytes == b->size_bytes && a->owner == b->owner;
}

static int place_at(struct ledger *ledger, struct ledger_place place, uint32_t *out)
{
	struct map_key key = {(uint64_t)place.stack << 32 | place.call,
			      place.size_bytes ^ (uint64_t)place.pool << 48 ^
				      (uint64_t)place.owner << 20};
	uint32_t *recent = &ledger->recent[(place.stack ^ place.call ^ place.size_bytes >> 4 ^
					    place.owner * 7) %
					   MSCOPE_COUNT(ledger->recent)];
	const uint64_t *known;

	if (*recent != 0 && is_same(&ledger->places[*recent - 1], &place)) {
		*out = *recent - 1;
		return 0;
	}
	/* Places with the same key have keys one after the other. */
	for (; (known = map_get(&ledger->place_known, key)) != NULL; key.b++) {
		if (!is_same(&ledger->places[*known], &place))
			continue;
		*out = (uint32_t)*known;
		*recent = *out + 1;
		return 0;
	}
	if (ledger->place_count >= UINT32_MAX ||
	    ARRAY_RESERVE(ledger->places, ledger->place_room, ledger->place_count + 1) < 0 ||
	    map_put(&ledger->place_known, key, ledger->place_count) < 0)
		return -ENOMEM;
	*out = (uint32_t)ledger->place_count;
	ledger->places[ledger->place_count++] = place;
	return 0;
}

static int put_entry(struct ledger *ledger, struct ledger_entry entry)
{
	if (ARRAY_RESERVE(ledger->entries, ledger->entry_room, ledger->entry_count + 1) < 0)
		return -ENOMEM;
	ledger->entries[ledger->entry_count++] = entry;
	return 0;
}

static bool is_full(struct ledger *ledger)
{
	ledger->full = ledger->full || ledger->entry_count == LEDGER_MOST;
	return ledger->full;
}

int ledger_add(struct ledger *ledger, const struct block *block, const struct context *context,
	       uint32_t call, bool outside)
{
	struct ledger_place place = {.stack = block->stack, .call = call, .owner = block->owner};
	uint32_t at;

	if (is_full(ledger))
		return 0;
	if (block->stack == 0 && call == 0)
		place.size_bytes = block->size_bytes;
	if (pool_at(ledger, context, &place.pool) < 0 || place_at(ledger, place, &at) < 0 ||
	    map_put(&ledger->live, (struct map_key){block->allocation_id, 0},
		    (ledger->allocations & UINT32_MAX) << 32 | ledger->entry_count) < 0)
		return -ENOMEM;
	ledger->allocations++;
	return put_entry(ledger, (struct ledger_entry){.bytes = (int64_t)block->size_bytes,
						       .place = at,
						       .outside = outside});
}

int ledger_remove(struct ledger *ledger, const struct block *block, bool outside)
{
	uint64_t known, life;

	if (is_full(ledger) ||
	    !map_remove(&ledger->live, (struct map_key){block->allocation_id, 0}, &known))
		return 0;
	life = (ledger->allocations - (known >> 32)) & UINT32_MAX;
	return put_entry(ledger, (struct ledger_entry){
					 .bytes = -(int64_t)block->size_bytes,
					 .place = ledger->entries[(uint32_t)known].place,
					 .life = (life < LIFE_MOST ? life : LIFE_MOST) & LIFE_MOST,
					 .outside = outside});
}

int ledger_relabel(struct ledger *ledger, const struct block *block)
{
	const uint64_t *known = map_get(&ledger->live, (struct map_key){block->allocation_id, 0});
	struct ledger_entry *entry;
	struct ledger_place place;
	uint32_t at;

	if (known == NULL)
		return 0;
	entry = &ledger->entries[(uint32_t)*known];
	place = ledger->places[entry->place];
	place.owner = block->owner;
	if (place_at(ledger, place, &at) < 0)
		return -ENOMEM;
	entry->place = at;
	return 0;
}
