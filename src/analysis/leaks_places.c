/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The places that were judged, in the order of their weight. A run may have millions of them, and nobody reads so many: beyond
 * judge.most of a verdict the least of each pool become one place, the rest, with their sums. What is asked of all places is counted
 * while they come.
 */
#include <errno.h>
#include <stdlib.h>

#include "analysis/leaks_judge.h"
#include "base/array.h"
#include "base/vendors.h"

/* A call site that grows by reallocation has one block, or two while it copies. */
#define COPIED_BLOCKS 2u

/* Leaks by rate, suspects and kept places by bytes. */
static int by_weight(const void *a, const void *b)
{
	const struct leaks_place *x = a, *y = b;

	if (x->verdict != y->verdict)
		return x->verdict > y->verdict ? -1 : 1;
	if ((x->call_sites != 0) != (y->call_sites != 0))
		return x->call_sites != 0 ? 1 : -1;
	if (x->verdict == GROWTH_LEAK && x->bytes_per_step != y->bytes_per_step)
		return x->bytes_per_step > y->bytes_per_step ? -1 : 1;
	if (x->bytes != y->bytes)
		return x->bytes > y->bytes ? -1 : 1;
	if (x->device != y->device)
		return x->device < y->device ? -1 : 1;
	if (x->list_count != 0 && y->list_count != 0)
		return x->list[0].allocation_id < y->list[0].allocation_id ? -1 : 1;
	return x->list_count != y->list_count ? (x->list_count > y->list_count ? -1 : 1)
					      : (int)x->pool - (int)y->pool;
}

static bool is_gpu(const struct replay *replay, uint32_t device)
{
	size_t count, i;
	const struct usage *usages = replay_usages(replay, &count);

	for (i = 0; i < count; i++) {
		if (usages[i].device == device)
			return usages[i].vendor == VENDOR_CUDA;
	}
	return false;
}

/* ---- the rest ---- */

/* `to` is the larger one: what cannot be added up is its own. */
static void fold(struct leaks_place *to, const struct leaks_place *from)
{
	to->call_sites += from->call_sites == 0 ? 1 : from->call_sites;
	to->listed_bytes += from->listed_blocks == 0 ? from->bytes : from->listed_bytes;
#include "findings/place_sums.def"
}

/* A place becomes a part of the rest of its verdict and pool. */
static int drop(struct judge *j, struct leaks_place *place)
{
	struct leaks_place *rest;
	size_t i;

	free(place->list);
	place->list = NULL;
	place->list_count = 0;
	place->example_count = 0;
	j->count[place->verdict]--;
	for (i = 0; i < j->rest_count; i++) {
		rest = &j->rest[i];
		if (rest->verdict == place->verdict && rest->pool == place->pool &&
		    rest->device == place->device) {
			fold(rest, place);
			return 0;
		}
	}
	if (ARRAY_RESERVE(j->rest, j->rest_room, j->rest_count + 1) < 0)
		return -ENOMEM;
	rest = &j->rest[j->rest_count++];
	*rest = *place;
	rest->call_sites = 1;
	rest->stack = rest->owner = 0;
	rest->missing = (struct growth_missing){0};
	rest->every = 0;
	if (rest->listed_blocks == 0)
		rest->listed_bytes = rest->bytes;
	return 0;
}

/* Sorts the places, and keeps of each verdict as many as are wanted. */
static int prune(struct judge *j)
{
	struct leaks_result *found = j->found;
	size_t i, kept = 0, of[3] = {0};
	int r = 0;

	if (found->told.place_count > 1)
		qsort(found->places, found->told.place_count, sizeof(*found->places), by_weight);
	for (i = 0; i < found->told.place_count; i++) {
		struct leaks_place *place = &found->places[i];

		if (of[place->verdict]++ < j->most[place->verdict])
			found->places[kept++] = *place;
		else if (r == 0)
			r = drop(j, place);
		else
			free(place->list);
	}
	found->told.place_count = kept;
	return r;
}

/* ---- all ---- */

/* What is asked of all places. */
static void count(struct judge *j, const struct leaks_place *place)
{
	struct leaks_findings *told = &j->found->told;
	size_t i;

	told->leaks += place->verdict == GROWTH_LEAK;
	told->suspects += place->verdict == GROWTH_SUSPECT;
	told->kept += place->verdict == GROWTH_KEPT;
	for (i = 0; i < j->leaks->group_count; i++) {
		const struct group *group = &j->leaks->groups[i];

		if (group->pool == place->pool && group->device == place->device) {
			j->groups[i].stopped +=
				place->verdict == GROWTH_KEPT && place->reason == GROWTH_STOPPED;
			j->groups[i].unkept |= place->verdict != GROWTH_KEPT;
			break;
		}
	}
	if (place->verdict != GROWTH_LEAK || place->reason != GROWTH_CLIMBS ||
	    place->blocks > COPIED_BLOCKS)
		return;
	for (i = 0; i < j->leaks->device_count; i++) {
		if (j->leaks->devices[i].device == place->device) {
			j->devices[i].copied += place->bytes_per_step;
			j->devices[i].copied_bytes += (double)place->bytes;
		}
	}
}

int leaks_take_place(struct judge *j, struct leaks_place *place)
{
	struct leaks_result *found = j->found;

	if (ARRAY_RESERVE(found->places, found->place_room, found->told.place_count + 1) < 0) {
		free(place->list);
		return -ENOMEM;
	}
	found->places[found->told.place_count] = *place;
	found->places[found->told.place_count++].on_gpu = is_gpu(j->replay, place->device);
	count(j, place);
	return ++j->count[place->verdict] > 2 * j->most[place->verdict] ? prune(j) : 0;
}

int leaks_sort_places(struct judge *j)
{
	struct leaks_result *found = j->found;
	size_t i;
	int r = prune(j);

	if (r == 0 && j->rest_count > 0)
		r = ARRAY_RESERVE(found->places, found->place_room,
				  found->told.place_count + j->rest_count);
	for (i = 0; i < j->rest_count && r == 0; i++)
		found->places[found->told.place_count++] = j->rest[i];
	if (j->rest_count > 0 && r == 0)
		qsort(found->places, found->told.place_count, sizeof(*found->places), by_weight);
	return r;
}
