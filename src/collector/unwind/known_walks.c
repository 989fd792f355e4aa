/* SPDX-License-Identifier: Apache-2.0 */
#include "collector/unwind/known_walks.h"

#include <string.h>

/* Room for a walk: that of the same frames, or new room. When there is none, all are forgotten: the same few will be back at once. */
static struct known_walk *walk_room(struct known_walks *walks, uint64_t hash, uint32_t words,
				    uint32_t bases)
{
	uint32_t bytes = (uint32_t)sizeof(struct known_walk) + words * 10 + bases * 8;
	uint32_t units = (bytes + WALKS_UNIT - 1) / WALKS_UNIT;
	uint16_t *unit = &walks->by_hash[hash >> 32 & (WALKS_BY_HASH - 1)];
	struct known_walk *walk = walk_at(walks, *unit);

	if (walk->hash == hash && walk->words == words && walk->bases == bases)
		return walk;
	if (walks->used == 0 || walks->used + units > WALKS_UNITS) {
		walks->last = 0;
		walks->used = 1 + (uint32_t)sizeof(struct known_walk) / WALKS_UNIT;
		memset(walks->expected, 0, sizeof(walks->expected));
		memset(walks->by_hash, 0, sizeof(walks->by_hash));
	}
	*unit = (uint16_t)walks->used;
	walks->used += units;
	return walk_at(walks, *unit);
}

void walk_cut(struct walk_reads *reads, uint32_t count)
{
	/* Where the last frame ends, or was read. A base further out leads further out. */
	uint32_t end = reads->at[(count - 1) % WALK_WORDS] + 8;

	reads->words = count;
	while (reads->bases > 0 && reads->base[reads->bases - 1].value > end)
		reads->bases--;
}

void walk_keep(struct known_walks *walks, const struct own_stack *own, void *const *frames,
	       uint32_t count, uint32_t max, uint32_t skip, uint64_t hash)
{
	const struct walk_reads *reads = &own->reads;
	struct known_walk *walk;
	uint16_t *places, unit;
	uint32_t i;

	/* The last word lies furthest out. */
	if (!reads->complete || max > WALK_WORDS || reads->words == 0 || count == 0 ||
	    reads->at[reads->words - 1] / 8 > UINT16_MAX)
		return;
	walk = walk_room(walks, hash, reads->words, reads->bases);
	*walk = (struct known_walk){
		.tables = reads->tables,
		.hash = hash,
		.max = (uint8_t)max,
		.count = (uint8_t)count,
		.skip = (uint8_t)skip,
		.words = (uint8_t)reads->words,
		.bases = (uint8_t)reads->bases,
		.reach = reads->at[reads->words - 1] + 8,
	};
	memcpy(walk->frames, frames, count * sizeof(frames[0]));
	if (reads->words > count)
		walk->frames[count] = reads->end;
	memcpy(walk_bases(walk), reads->base, walk->bases * sizeof(reads->base[0]));
	places = walk_places(walk);
	for (i = 0; i < walk->words; i++)
		places[i] = (uint16_t)(reads->at[i] / 8);
	/* So do bases before it, but tables are never trusted. */
	for (i = 0; i < walk->bases; i++) {
		if (reads->base[i].at != WALK_BASE_REGISTER && reads->base[i].at + 8 > walk->reach)
			walk->reach = reads->base[i].at + 8;
	}
	unit = (uint16_t)(((uint64_t *)(void *)walk - walks->units) / (WALKS_UNIT / 8));
	*walk_expected(walks) = unit;
	walk_came(walks, walk, unit);
}
