/* SPDX-License-Identifier: Apache-2.0 */
#include "collector/unwind/known_walks.h"

#include <string.h>

void walk_keep(struct known_walks *walks, const struct own_stack *own, void *const *frames,
	       uint32_t count, uint32_t max, uint32_t skip, uint64_t hash)
{
	const struct walk_reads *reads = &own->reads;
	struct known_walk *walk = &walks->all[hash >> 32 & (KNOWN_WALKS - 2)];
	uint32_t i;

	if (!reads->complete || max > WALK_WORDS || count == 0)
		return;
	/* Two places for each. */
	if (walk->hash != hash && walk->words != 0)
		walk++;
	walk->tables = reads->tables;
	walk->hash = hash;
	walk->max = max;
	walk->count = count;
	walk->skip = skip;
	walk->words = count;
	walk->bases = reads->bases;
	memcpy(walk->base, reads->base, reads->bases * sizeof(reads->base[0]));
	memcpy(walk->at, reads->at, count * sizeof(reads->at[0]));
	memcpy(walk->frames, frames, count * sizeof(frames[0]));
	/* The word at which it ended, which is no frame. */
	if (reads->words > count) {
		walk->at[count] = reads->at[count];
		walk->frames[count] = reads->end;
		walk->words = count + 1;
	}
	walk->reach = walk->at[walk->words - 1] + 8;
	for (i = 0; i < walk->bases; i++) {
		if (walk->base[i].at != WALK_BASE_REGISTER && walk->base[i].at + 8 > walk->reach)
			walk->reach = walk->base[i].at + 8;
	}
	*walk_expected(walks) = (uint16_t)(walk - walks->all);
	walk_came(walks, walk);
}
