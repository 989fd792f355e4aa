/* SPDX-License-Identifier: Apache-2.0 */
#include "replay/ranges.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"

#define LEAF_MAX 126u /* a leaf is 1520 bytes */

struct leaf {
	uint32_t count;
	uint32_t slots[LEAF_MAX];
	uint64_t addresses[LEAF_MAX]; /* ascending */
};

/* An entry of a lane. */
struct place {
	size_t leaf;
	size_t at;
};

void ranges_fini(struct ranges *ranges)
{
	size_t i, k;

	for (i = 0; i < ranges->lane_count; i++) {
		for (k = 0; k < ranges->lanes[i].leaf_count; k++)
			free(ranges->lanes[i].leaves[k].leaf);
		free(ranges->lanes[i].leaves);
	}
	free(ranges->lanes);
	*ranges = (struct ranges){0};
}

static struct lane *lane_of(const struct ranges *ranges, uint8_t pool, uint32_t device)
{
	size_t i;

	for (i = 0; i < ranges->lane_count; i++) {
		if (ranges->lanes[i].pool == pool && ranges->lanes[i].device == device)
			return &ranges->lanes[i];
	}
	return NULL;
}

/* The last leaf that may have `address`. The lane must have a leaf. */
static size_t leaf_of(const struct lane *lane, uint64_t address)
{
	size_t low = 0, high = lane->leaf_count;

	while (high - low > 1) {
		size_t middle = low + (high - low) / 2;

		if (lane->leaves[middle].first <= address)
			low = middle;
		else
			high = middle;
	}
	return low;
}

/* How many entries of a leaf are not above `address`. */
static size_t upper_bound(const struct leaf *leaf, uint64_t address)
{
	size_t low = 0, count = leaf->count;

	/* Without a branch on what is compared, which nothing can predict. */
	while (count > 1) {
		size_t half = count / 2;

		low += leaf->addresses[low + half - 1] <= address ? half : 0;
		count -= half;
	}
	return low + (count == 1 && leaf->addresses[low] <= address);
}

static bool step_back(const struct lane *lane, struct place *place)
{
	if (place->at > 0) {
		place->at--;
		return true;
	}
	if (place->leaf == 0)
		return false;
	place->leaf--;
	place->at = lane->leaves[place->leaf].leaf->count - 1;
	return true;
}

static bool find_below(const struct lane *lane, uint64_t address, struct place *out)
{
	if (lane->leaf_count == 0)
		return false;
	out->leaf = leaf_of(lane, address);
	out->at = upper_bound(lane->leaves[out->leaf].leaf, address);
	return step_back(lane, out);
}

bool lane_below(const struct lane *lane, uint64_t address, uint32_t *out_slot)
{
	struct place place;

	if (!find_below(lane, address, &place))
		return false;
	*out_slot = lane->leaves[place.leaf].leaf->slots[place.at];
	return true;
}

static int leaf_add(struct lane *lane, size_t at, struct leaf **out)
{
	struct leaf *leaf;

	if (ARRAY_RESERVE(lane->leaves, lane->leaf_room, lane->leaf_count + 1) < 0)
		return -ENOMEM;
	leaf = malloc(sizeof(*leaf));
	if (leaf == NULL)
		return -ENOMEM;
	leaf->count = 0;
	memmove(lane->leaves + at + 1, lane->leaves + at,
		(lane->leaf_count - at) * sizeof(*lane->leaves));
	lane->leaves[at] = (struct leaf_entry){.leaf = leaf};
	lane->leaf_count++;
	*out = leaf;
	return 0;
}

static void leaf_drop(struct lane *lane, size_t at)
{
	free(lane->leaves[at].leaf);
	lane->leaf_count--;
	memmove(lane->leaves + at, lane->leaves + at + 1,
		(lane->leaf_count - at) * sizeof(*lane->leaves));
	if (at == 0 && lane->leaf_count > 0)
		lane->leaves[0].first = 0; /* whatever comes below goes here */
}

/* Moves the entries of `from` behind those of `to`, beginning with entry `at`. */
static void leaf_move(struct leaf *to, struct leaf *from, size_t at)
{
	size_t count = from->count - at;

	memcpy(to->addresses + to->count, from->addresses + at, count * sizeof(*to->addresses));
	memcpy(to->slots + to->count, from->slots + at, count * sizeof(*to->slots));
	to->count += (uint32_t)count;
	from->count = (uint32_t)at;
}

int ranges_insert(struct ranges *ranges, uint8_t pool, uint32_t device, uint64_t address,
		  uint32_t slot)
{
	struct lane *lane = lane_of(ranges, pool, device);
	struct leaf *leaf, *next;
	size_t i = 0, at;

	if (lane == NULL) {
		if (array_reserve(&ranges->lanes, &ranges->lane_room, ranges->lane_count + 1,
				  sizeof(*lane)) < 0)
			return -ENOMEM;
		lane = &ranges->lanes[ranges->lane_count++];
		*lane = (struct lane){.pool = pool, .device = device};
	}
	if (lane->leaf_count == 0 && leaf_add(lane, 0, &leaf) < 0)
		return -ENOMEM;
	i = leaf_of(lane, address);
	leaf = lane->leaves[i].leaf;
	if (leaf->count == LEAF_MAX) {
		if (leaf_add(lane, i + 1, &next) < 0)
			return -ENOMEM;
		leaf_move(next, leaf, LEAF_MAX / 2);
		lane->leaves[i + 1].first = next->addresses[0];
		if (address >= next->addresses[0])
			leaf = next;
	}
	at = upper_bound(leaf, address);
	memmove(leaf->addresses + at + 1, leaf->addresses + at,
		(leaf->count - at) * sizeof(*leaf->addresses));
	memmove(leaf->slots + at + 1, leaf->slots + at, (leaf->count - at) * sizeof(*leaf->slots));
	leaf->addresses[at] = address;
	leaf->slots[at] = slot;
	leaf->count++;
	return 0;
}

/* Joins leaf i + 1 to leaf i when what they hold leaves room to grow. */
static bool leaf_join(struct lane *lane, size_t i)
{
	struct leaf *leaf = lane->leaves[i].leaf, *next = lane->leaves[i + 1].leaf;

	if (leaf->count + next->count > LEAF_MAX / 4 * 3)
		return false;
	leaf_move(leaf, next, 0);
	leaf_drop(lane, i + 1);
	return true;
}

void ranges_remove(struct ranges *ranges, uint8_t pool, uint32_t device, uint64_t address,
		   uint32_t slot)
{
	struct lane *lane = lane_of(ranges, pool, device);
	struct place place;
	struct leaf *leaf;
	bool found;

	if (lane == NULL)
		return;
	for (found = find_below(lane, address, &place); found; found = step_back(lane, &place)) {
		leaf = lane->leaves[place.leaf].leaf;
		if (leaf->addresses[place.at] != address)
			return;
		if (leaf->slots[place.at] == slot)
			break;
	}
	if (!found)
		return;
	leaf->count--;
	memmove(leaf->addresses + place.at, leaf->addresses + place.at + 1,
		(leaf->count - place.at) * sizeof(*leaf->addresses));
	memmove(leaf->slots + place.at, leaf->slots + place.at + 1,
		(leaf->count - place.at) * sizeof(*leaf->slots));
	if (leaf->count == 0)
		leaf_drop(lane, place.leaf);
	else if (leaf->count < LEAF_MAX / 4 &&
		 !(place.leaf + 1 < lane->leaf_count && leaf_join(lane, place.leaf)) &&
		 place.leaf > 0)
		(void)leaf_join(lane, place.leaf - 1);
}
