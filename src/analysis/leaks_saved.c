/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The state of the analysis of leaks in a checkpoint. What is loaded is checked, for it comes from a file.
 */
#include <errno.h>
#include <stdlib.h>

#include "analysis/analyses.h"
#include "analysis/leaks_state.h"
#include "base/array.h"
#include "base/word_list.h"

void leaks_clear(struct leaks *leaks)
{
	size_t i;

	for (i = 0; i < leaks->place_count; i++)
		growth_fini(&leaks->places[i].growth);
	for (i = 0; i < leaks->group_count; i++)
		growth_fini(&leaks->groups[i].growth);
	for (i = 0; i < leaks->device_count; i++) {
		growth_fini(&leaks->devices[i].handles);
		device_level_fini(&leaks->devices[i].level);
		free(leaks->devices[i].unclaimed);
	}
	free(leaks->groups);
	free(leaks->by_context);
	free(leaks->places);
	by_stack_fini(&leaks->by_stack);
	free(leaks->touched);
	free(leaks->freed);
	free(leaks->devices);
	free(leaks->holds);
	*leaks = (struct leaks){0};
}

static int keep_rises(struct words *words, struct growth *g)
{
	uint32_t head[] = {g->rises == NULL ? 0 : g->rises->count,
			   g->rises == NULL ? 0 : g->rises->slot_bits},
		 i;

	words_memory(words, head, sizeof(head));
	if (head[0] > GROWTH_RISES || head[1] > 30) {
		words->failed = true;
		return 0;
	}
	if (words_load(words) && head[0] > 0) {
		g->rises = calloc(1, sizeof(*g->rises) + head[0] * sizeof(g->rises->rise[0]));
		if (g->rises == NULL)
			return -ENOMEM;
		g->rises->count = g->rises->room = (uint8_t)head[0];
		g->rises->slot_bits = (uint8_t)head[1];
	}
	for (i = 0; i < head[0]; i++) {
		struct growth_rise *rise = &g->rises->rise[i];

		KEEP(words, rise->first);
		KEEP(words, rise->last);
		KEEP(words, rise->wait);
		KEEP(words, rise->level);
		/* Steps and levels never fall. */
		words->failed |=
			rise->first > rise->last ||
			(i > 0 && (rise->last < rise[-1].last || rise->level < rise[-1].level));
	}
	return 0;
}

static int keep_growth(struct words *words, struct growth *g)
{
	bool ages = g->ages != NULL;
	uint32_t i;

	words_memory(words, g, offsetof(struct growth, ages));
	g->octave &= 31;
	KEEP(words, ages);
	for (i = 0; ages && i < GROWTH_AGES; i += 2) {
		uint32_t two[] = {growth_age_get(g, i), growth_age_get(g, i + 1)};

		words_memory(words, two, sizeof(two));
		if (words_load(words) &&
		    (growth_age_add(g, i, two[0]) < 0 || growth_age_add(g, i + 1, two[1]) < 0))
			return -ENOMEM;
	}
	return keep_rises(words, g);
}

static void keep_freed(struct words *words, struct freed *freed)
{
	struct leaks_block *block = &freed->block;

	KEEP(words, block->address);
	KEEP(words, block->size_bytes);
	KEEP(words, block->allocation_id);
	KEEP(words, block->kernel);
	KEEP(words, block->step);
	KEEP(words, block->stack);
	block->freed_late = true;
	KEEP(words, freed->place);
	KEEP(words, freed->step);
	KEEP(words, freed->owner);
	KEEP(words, freed->unused);
	if (freed->unused > block->size_bytes)
		freed->unused = 0;
}

static int keep_level(struct words *words, struct device_level *level)
{
	int r = keep_growth(words, &level->growth);
	uint32_t i;

	KEEP(words, level->swing);
	KEEP(words, level->given_peak);
	KEEP(words, level->use_peak);
	KEEP(words, level->peak_step);
	KEEP(words, level->samples);
	KEEP(words, level->stride);
	KEEP(words, level->skipped);
	KEEP(words, level->point_count);
	if (level->point_count > FORECAST_POINTS) {
		words->failed = true;
		level->point_count = 0;
	}
	for (i = 0; i < level->point_count; i++) {
		struct level_point *point = &level->points[i];

		KEEP(words, point->step);
		KEEP(words, point->level);
		KEEP(words, point->use);
		KEEP(words, point->given);
		words->failed |= i > 0 && point->step < point[-1].step;
	}
	words_memory(words, level->beside, sizeof(level->beside));
	return r;
}

static int keep_device(struct words *words, struct device_state *d)
{
	size_t i;

	KEEP(words, d->device);
	KEEP(words, d->pooled);
	KEEP(words, d->claimed_bytes);
	if (keep_level(words, &d->level) < 0 || keep_growth(words, &d->handles) < 0 ||
	    words_array(words, &d->unclaimed, &d->unclaimed_count, &d->unclaimed_room,
			sizeof(*d->unclaimed)) < 0)
		return -ENOMEM;
	for (i = 0; i < d->unclaimed_count; i++) {
		struct unclaimed *u = &d->unclaimed[i];

		words_memory(words, u, sizeof(*u));
		words->failed |= i > 0 && u->address < u[-1].address;
	}
	return 0;
}

static int keep_group(struct words *words, struct group *group)
{
	KEEP(words, group->pool);
	KEEP(words, group->device);
	KEEP(words, group->handles);
	KEEP(words, group->on);
	KEEP(words, group->sizes);
	KEEP(words, group->end_bytes);
	group->framework = !pool_is_driver(group->pool);
	return keep_growth(words, &group->growth);
}

static void keep_clock(struct words *words, struct leaks *leaks)
{
	KEEP(words, leaks->contiguous);
	KEEP(words, leaks->by_step);
	KEEP(words, leaks->now);
	KEEP(words, leaks->offset);
	KEEP(words, leaks->ended);
	KEEP(words, leaks->refused);
	KEEP(words, leaks->left);
	KEEP(words, leaks->left_ns);
	KEEP(words, leaks->start_ns);
	KEEP(words, leaks->part_ns);
	KEEP(words, leaks->latest_ns);
	KEEP(words, leaks->pause_count);
	if (leaks->pause_count > LEAKS_PAUSES) {
		words->failed = true;
		leaks->pause_count = 0;
	}
	words_memory(words, leaks->pauses, leaks->pause_count * sizeof(leaks->pauses[0]));
	KEEP(words, leaks->last_end_ns);
	KEEP(words, leaks->stride);
	KEEP(words, leaks->length_skipped);
	KEEP(words, leaks->length_count);
	if (leaks->length_count > MSCOPE_COUNT(leaks->lengths)) {
		words->failed = true;
		leaks->length_count = 0;
	}
	words_memory(words, leaks->lengths, leaks->length_count * sizeof(leaks->lengths[0]));
}

static int keep_place(struct words *words, struct leaks *leaks, const struct replay *replay,
		      size_t index)
{
	struct place *place = &leaks->places[index];
	uint64_t where = (uint64_t)place->group << 32 | place->stack;

	KEEP(words, place->size);
	KEEP(words, where);
	words->failed |=
		where >> 32 >= leaks->group_count || (uint32_t)where >= replay_stack_count(replay);
	if (words_load(words) && !words->failed) {
		place->stack = (uint32_t)where;
		place->group = where >> 32 & INT32_MAX;
		if (by_stack_add(&leaks->by_stack, place->stack,
				 leaks_place_hash(place->group, place->stack, place->size),
				 index) < 0)
			return -ENOMEM;
	}
	return keep_growth(words, &place->growth);
}

static int keep_touched(struct words *words, struct leaks *leaks)
{
	size_t i;

	if (words_array(words, &leaks->touched, &leaks->touched_count, &leaks->touched_room,
			sizeof(*leaks->touched)) < 0)
		return -ENOMEM;
	for (i = 0; i < leaks->touched_count; i++) {
		KEEP(words, leaks->touched[i]);
		if (!words_load(words))
			continue;
		if (leaks->touched[i] >= leaks->place_count ||
		    leaks->places[leaks->touched[i]].touched) {
			words->failed = true;
			break;
		}
		leaks->places[leaks->touched[i]].touched = true;
	}
	return 0;
}

static bool is_whole(const struct leaks *leaks)
{
	size_t i, k;

	for (i = 0; i < leaks->group_count; i++) {
		if (leaks->groups[i].on >= leaks->device_count)
			return false;
	}
	for (i = 0; i < leaks->device_count; i++) {
		for (k = 0; k < leaks->devices[i].unclaimed_count; k++) {
			if (leaks->devices[i].unclaimed[k].place >= leaks->place_count)
				return false;
		}
	}
	for (i = 0; i < leaks->freed_count; i++) {
		if (leaks->freed[i].place >= leaks->place_count)
			return false;
	}
	return true;
}

int leaks_keep(void *state, const struct replay *replay, struct words *words)
{
	struct leaks *leaks = state;
	size_t i;

	if (words_load(words))
		leaks_clear(leaks);
	keep_clock(words, leaks);
	if (words_array(words, &leaks->devices, &leaks->device_count, &leaks->device_room,
			sizeof(*leaks->devices)) < 0)
		return -ENOMEM;
	for (i = 0; i < leaks->device_count; i++) {
		if (keep_device(words, &leaks->devices[i]) < 0)
			return -ENOMEM;
	}
	if (words_array(words, &leaks->groups, &leaks->group_count, &leaks->group_room,
			sizeof(*leaks->groups)) < 0)
		return -ENOMEM;
	for (i = 0; i < leaks->group_count; i++) {
		if (keep_group(words, &leaks->groups[i]) < 0)
			return -ENOMEM;
	}
	if (words_array(words, &leaks->places, &leaks->place_count, &leaks->place_room,
			sizeof(*leaks->places)) < 0)
		return -ENOMEM;
	for (i = 0; i < leaks->place_count; i++) {
		if (keep_place(words, leaks, replay, i) < 0)
			return -ENOMEM;
	}
	if (keep_touched(words, leaks) < 0 ||
	    words_array(words, &leaks->freed, &leaks->freed_count, &leaks->freed_room,
			sizeof(*leaks->freed)) < 0)
		return -ENOMEM;
	for (i = 0; i < leaks->freed_count; i++)
		keep_freed(words, &leaks->freed[i]);
	words->failed |= !is_whole(leaks);
	return 0;
}
