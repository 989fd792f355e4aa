/* SPDX-License-Identifier: Apache-2.0 */
#include "collector/unwind/known_walks.h"

#include <string.h>

_Static_assert(sizeof(struct known_walk) + (24 + 24) * sizeof(uint16_t) <= WALK_FETCHED,
	       "a walk of 20 frames and four of ours is asked for whole");

/* Room for a walk: that of the same frames, or new room. When there is none, all are forgotten: the same few will be back at once. */
static struct known_walk *walk_room(struct known_walks *walks, uint64_t hash, uint32_t places,
				    uint32_t bases)
{
	uint32_t bytes = (uint32_t)sizeof(struct known_walk) + places * 10 + bases * 2 + 7;
	uint32_t units = (bytes + WALKS_UNIT - 1) / WALKS_UNIT;
	uint16_t *unit = &walks->store->by_hash[hash >> 32 & (WALKS_BY_HASH - 1)];
	struct known_walk *walk = walk_at(walks, *unit);

	if (walk->hash == hash && walk->places == places && walk->bases == bases)
		return walk;
	if (walks->used == 0 || walks->used + units > WALKS_UNITS) {
		walks->last = walks->guess = 0;
		walks->used = 1;
		memset(walks->store->expected, 0, sizeof(walks->store->expected));
		memset(walks->store->by_hash, 0, sizeof(walks->store->by_hash));
	}
	*unit = walks->used;
	walks->used = (uint16_t)(walks->used + units);
	walk = walk_at(walks, *unit);
	/* What lay here before all were forgotten may name a unit that is none any more. */
	walk->next = 0;
	walk->forks = false;
	return walk;
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
	struct words_hash words = {{0}};
	struct known_walk *walk;
	uint32_t i, filled;
	uint16_t unit;

	/* The last word lies furthest out. */
	if (!reads->complete || max > WALK_WORDS || reads->words == 0 || count == 0 ||
	    reads->at[reads->words - 1] / 8 > UINT16_MAX)
		return;
	filled = walk_filled(reads->words);
	walk = walk_room(walks, hash, filled, walk_filled(reads->bases));
	*walk = (struct known_walk){
		.tables = reads->tables,
		.hash = hash,
		.next = walk->next,
		.max = (uint8_t)max,
		.count = (uint8_t)count,
		.skip = (uint8_t)skip,
		.places = (uint8_t)filled,
		.bases = (uint8_t)walk_filled(reads->bases),
		.forks = walk->forks,
		.reach = reads->at[reads->words - 1] + 8,
	};
	for (i = 0; i < filled; i++) {
		uint32_t k = i < reads->words ? i : 0;
		const void *word = k < count ? frames[k] : reads->end;

		walk->place[i] = (uint16_t)(reads->at[k] / 8);
		words_add(&words, i % WALK_LANES, (uintptr_t)word);
	}
	for (i = 0; i < walk->bases; i++) {
		const struct walk_base *base = &reads->base[i < reads->bases ? i : 0];
		uint32_t at = base->at;

		words_add(&words, i % WALK_LANES, base->value);
		walk->place[filled + i] = WALK_PLACE_REGISTER;
		if (at == WALK_BASE_REGISTER)
			continue;
		walk->place[filled + i] = (uint16_t)(at / 8);
		/* Words lie further out than the bases before them, but tables are never trusted. */
		if (at + 8 > walk->reach)
			walk->reach = at + 8;
	}
	walk->words = words_end(&words);
	if (walk->reach / 8 >= WALK_PLACE_REGISTER)
		walk->places = 0;
	memcpy(walk_frames(walk), frames, count * sizeof(frames[0]));
	unit = (uint16_t)(((uint8_t *)walk - walks->store->units[0]) / WALKS_UNIT);
	*walk_expected(walks) = unit;
	walk_came(walks, walk, unit);
}
