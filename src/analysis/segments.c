/* SPDX-License-Identifier: Apache-2.0 */
#include "analysis/segments.h"

#include <errno.h>
#include <stdlib.h>

int segments_begin(struct segments *walk, const struct compare *compare, int side, uint32_t device)
{
	const struct ledger *ledger = &compare->sides[side].ledger;
	size_t i;

	*walk = (struct segments){
		.ledger = ledger,
		.counts = calloc(ledger->place_count + 1, sizeof(*walk->counts)),
		.at = ledger->from,
	};
	if (walk->counts == NULL)
		return -ENOMEM;
	for (i = 0; i < ledger->place_count; i++) {
		const struct ledger_pool *pool = &ledger->pools[ledger->places[i].pool];

		walk->counts[i] =
			pool->device == device && compare_counts_pool(compare, pool->pool);
	}
	return 0;
}

struct segment segments_next(struct segments *walk, size_t end)
{
	struct segment segment = {.from = walk->at, .to = end};

	for (; walk->at < end; walk->at++) {
		const struct ledger_entry *entry = &walk->ledger->entries[walk->at];

		if (!walk->counts[entry->place])
			continue;
		segment.left += entry->bytes;
		if (entry->outside)
			segment.outside += entry->bytes;
		if (entry->bytes > 0)
			segment.allocated += entry->bytes;
		if (segment.left > segment.peak)
			segment.peak = segment.left;
	}
	return segment;
}

void segments_end(struct segments *walk)
{
	free(walk->counts);
	*walk = (struct segments){0};
}

size_t segment_end(const struct compare_side *side, size_t call)
{
	size_t end = call == COMPARE_ABSENT ? side->ledger.to : side->calls[call].at;

	/* Calls behind the end of the program, and of its step, have nothing. */
	return end < side->ledger.to ? end : side->ledger.to;
}
