/* SPDX-License-Identifier: Apache-2.0 */
/* Entries of a ledger by the calls of their device: each entry belongs to the first call that ends behind it. */
#include <errno.h>
#include <stdlib.h>

#include "analysis/segments.h"

/* Of a pool that does not count. */
#define NO_LANE SIZE_MAX

static size_t lane_of(const struct segments *s, uint32_t device)
{
	size_t i = 0;

	while (i < s->lane_count && s->lanes[i].device != device)
		i++;
	return i;
}

static int find_lanes(struct segments *s, const struct compare *compare,
		      const struct compare_side *side)
{
	const struct ledger *ledger = &side->ledger;
	size_t i;

	s->lanes = calloc(ledger->pool_count + 1, sizeof(*s->lanes));
	s->lane_of_pool = calloc(ledger->pool_count + 1, sizeof(*s->lane_of_pool));
	s->all = calloc(side->count + 1, sizeof(*s->all));
	if (s->lanes == NULL || s->lane_of_pool == NULL || s->all == NULL)
		return -ENOMEM;
	for (i = 0; i < ledger->pool_count; i++) {
		size_t lane = lane_of(s, ledger->pools[i].device);

		if (lane == s->lane_count)
			s->lanes[s->lane_count++] = (struct segment_lane){
				.device = ledger->pools[i].device, .tail = {.from = ledger->from}};
		s->lane_of_pool[i] =
			compare_counts_pool(compare, ledger->pools[i].pool) ? lane : NO_LANE;
	}
	return 0;
}

static void add_entry(struct segment *segment, const struct ledger_entry *entry)
{
	segment->left += entry->bytes;
	if (entry->outside)
		segment->outside += entry->bytes;
	if (entry->bytes > 0)
		segment->allocated += entry->bytes;
	if (segment->left > segment->peak)
		segment->peak = segment->left;
}

int segments_find(const struct compare *compare, int which, struct segments *out)
{
	const struct compare_side *side = &compare->sides[which];
	const struct ledger *ledger = &side->ledger;
	struct segments s = {0};
	size_t i, at = ledger->from;

	if (find_lanes(&s, compare, side) < 0) {
		segments_fini(&s);
		return -ENOMEM;
	}
	for (i = 0; i <= side->count; i++) {
		size_t end = i < side->count && side->calls[i].at < ledger->to ? side->calls[i].at
									       : ledger->to;
		struct segment_lane *lane;

		/* The calls behind the end of the program have nothing. */
		for (; at < end; at++) {
			const struct ledger_entry *entry = &ledger->entries[at];
			uint32_t pool = ledger->places[entry->place].pool;

			if (s.lane_of_pool[pool] != NO_LANE)
				add_entry(&s.lanes[s.lane_of_pool[pool]].tail, entry);
		}
		if (i == side->count)
			break;
		lane = &s.lanes[lane_of(&s, side->calls[i].device)];
		if (lane == &s.lanes[s.lane_count])
			continue; /* nothing ever happened on its device */
		s.all[i] = lane->tail;
		lane->tail = (struct segment){.from = end};
	}
	*out = s;
	return 0;
}

void segments_fini(struct segments *segments)
{
	free(segments->all);
	free(segments->lanes);
	free(segments->lane_of_pool);
	*segments = (struct segments){0};
}

const struct segment *segments_tail(const struct segments *segments, uint32_t device)
{
	static const struct segment none = {0};
	size_t lane = lane_of(segments, device);

	return lane == segments->lane_count ? &none : &segments->lanes[lane].tail;
}
