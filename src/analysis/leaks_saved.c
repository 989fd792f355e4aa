/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The state of the analysis of leaks in a checkpoint: as words, and back. What words say is checked, for they come from a file.
 */
#include <errno.h>
#include <stdlib.h>

#include "analysis/analyses.h"
#include "analysis/leaks_state.h"
#include "base/array.h"

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
	index_fini(&leaks->index);
	free(leaks->touched);
	free(leaks->freed);
	free(leaks->devices);
	free(leaks->holds);
	*leaks = (struct leaks){0};
}

static void save_growth(struct strbuf *out, const struct growth *g)
{
	uint32_t i, rises = g->rises == NULL ? 0 : g->rises->count;

	words_add(out, g->live);
	words_add(out, g->before);
	words_add(out, g->high);
	words_add(out, g->drop);
	words_add(out, g->early[0]);
	words_add(out, g->early[1]);
	words_add(out, (uint64_t)g->octave << 32 | g->high_step);
	words_add(out, (uint64_t)g->instep << 32 | g->late);
	words_add(out, (uint64_t)g->clean << 32 | g->rose);
	words_add(out, (uint64_t)(g->ages != NULL) << 63 |
			       (uint64_t)(rises == 0 ? 1 : g->rises->slot) << 8 | rises);
	for (i = 0; g->ages != NULL && i < GROWTH_AGES; i += 2)
		words_add(out, (uint64_t)growth_age_get(g, i) << 32 | growth_age_get(g, i + 1));
	for (i = 0; i < rises; i++) {
		const struct growth_rise *rise = &g->rises->rise[i];

		words_add(out, (uint64_t)rise->first << 32 | rise->last);
		words_add(out, rise->wait);
		words_add(out, rise->level);
	}
}

static int load_growth(struct words *words, struct growth *g)
{
	uint32_t i, rises;
	uint64_t word;

	*g = (struct growth){.live = words_next(words)};
	g->before = words_next(words);
	g->high = words_next(words);
	g->drop = words_next(words);
	g->early[0] = words_next(words);
	g->early[1] = words_next(words);
	word = words_next(words);
	g->octave = word >> 32 & 31;
	g->high_step = (uint32_t)word;
	word = words_next(words);
	g->instep = (uint32_t)(word >> 32);
	g->late = (uint32_t)word;
	word = words_next(words);
	g->clean = (uint32_t)(word >> 32);
	g->rose = (uint32_t)word;
	word = words_next(words);
	rises = word & 0xff;
	if (rises > GROWTH_RISES || (word >> 8 & UINT32_MAX) == 0) {
		words->failed = true;
		return 0;
	}
	for (i = 0; word >> 63 && i < GROWTH_AGES; i += 2) {
		uint64_t two = words_next(words);

		if (growth_age_add(g, i, (uint32_t)(two >> 32)) < 0 ||
		    growth_age_add(g, i + 1, (uint32_t)two) < 0)
			return -ENOMEM;
	}
	if (rises == 0)
		return 0;
	g->rises = calloc(1, sizeof(*g->rises) + rises * sizeof(g->rises->rise[0]));
	if (g->rises == NULL)
		return -ENOMEM;
	g->rises->room = rises;
	g->rises->slot = (uint32_t)(word >> 8);
	for (i = 0; i < rises; i++) {
		uint64_t steps = words_next(words);
		struct growth_rise *rise = &g->rises->rise[g->rises->count];

		*rise = (struct growth_rise){.first = (uint32_t)(steps >> 32),
					     .last = (uint32_t)steps};
		rise->wait = (uint32_t)words_next(words);
		rise->level = words_next(words);
		/* Steps and levels never fall. */
		words->failed |=
			rise->first > rise->last ||
			(i > 0 && (rise->last < rise[-1].last || rise->level < rise[-1].level));
		g->rises->count++;
	}
	return 0;
}

static void save_freed(struct strbuf *out, const struct freed *freed)
{
	const struct leaks_block *block = &freed->block;

	words_add(out, block->address);
	words_add(out, block->size_bytes);
	words_add(out, block->allocation_id);
	words_add(out, block->kernel);
	words_add(out, (uint64_t)block->step << 32 | block->stack);
	words_add(out, (uint64_t)freed->place << 32 | freed->step);
	words_add(out, (uint64_t)freed->unused << 32 | freed->owner);
}

static void load_freed(struct words *words, struct freed *freed)
{
	uint64_t word;

	*freed = (struct freed){.block = {.address = words_next(words), .freed_late = true}};
	freed->block.size_bytes = words_next(words);
	freed->block.allocation_id = words_next(words);
	freed->block.kernel = words_next(words);
	word = words_next(words);
	freed->block.step = (uint32_t)(word >> 32);
	freed->block.stack = (uint32_t)word;
	word = words_next(words);
	freed->place = (uint32_t)(word >> 32);
	freed->step = (uint32_t)word;
	word = words_next(words);
	freed->owner = (uint32_t)word;
	freed->unused = (uint32_t)(word >> 32);
	if (freed->unused > freed->block.size_bytes)
		freed->unused = 0;
}

static void save_level(struct strbuf *out, const struct device_level *level)
{
	size_t i;

	save_growth(out, &level->growth);
	words_add(out, level->swing);
	words_add(out, level->given_peak);
	words_add(out, level->use_peak);
	words_add(out, (uint64_t)level->peak_step << 32 | level->samples);
	words_add(out, (uint64_t)level->stride << 32 | level->skipped);
	words_add(out, level->point_count);
	for (i = 0; i < level->point_count; i++) {
		words_add(out, level->points[i].step);
		words_add(out, level->points[i].level);
		words_add(out, level->points[i].use);
		words_add(out, level->points[i].given);
	}
	for (i = 0; i < FORECAST_SAMPLES; i++)
		words_add(out, level->beside[i]);
}

static int load_level(struct words *words, struct device_level *level)
{
	int r = load_growth(words, &level->growth);
	uint64_t word, count;
	size_t i;

	level->swing = words_next(words);
	level->given_peak = words_next(words);
	level->use_peak = words_next(words);
	word = words_next(words);
	level->peak_step = (uint32_t)(word >> 32);
	level->samples = (uint32_t)word;
	word = words_next(words);
	level->stride = (uint32_t)(word >> 32);
	level->skipped = (uint32_t)word;
	count = words_next(words);
	if (count > FORECAST_POINTS) {
		words->failed = true;
		return r;
	}
	for (i = 0; i < count; i++) {
		struct level_point *point = &level->points[i];

		point->step = (uint32_t)words_next(words);
		point->level = words_next(words);
		point->use = words_next(words);
		point->given = words_next(words);
		words->failed |= i > 0 && point->step < point[-1].step;
	}
	level->point_count = (uint32_t)count;
	for (i = 0; i < FORECAST_SAMPLES; i++)
		level->beside[i] = words_next(words);
	return r;
}

static void save_device(struct strbuf *out, const struct device_state *d)
{
	size_t i;

	words_add(out, (uint64_t)d->pooled << 32 | d->device);
	words_add(out, d->claimed_bytes);
	save_level(out, &d->level);
	save_growth(out, &d->handles);
	words_add(out, d->unclaimed_count);
	for (i = 0; i < d->unclaimed_count; i++) {
		words_add(out, d->unclaimed[i].address);
		words_add(out, d->unclaimed[i].end);
		words_add(out, d->unclaimed[i].allocation_id);
		words_add(out, (uint64_t)d->unclaimed[i].place << 32 | d->unclaimed[i].step);
	}
}

static int load_device(struct words *words, struct device_state *d)
{
	uint64_t word = words_next(words);
	size_t i, count;

	*d = (struct device_state){.device = (uint32_t)word, .pooled = word >> 32 != 0};
	d->claimed_bytes = words_next(words);
	if (load_level(words, &d->level) < 0 || load_growth(words, &d->handles) < 0)
		return -ENOMEM;
	count = words_count(words);
	if (array_reserve(&d->unclaimed, &d->unclaimed_room, count, sizeof(*d->unclaimed)) < 0)
		return -ENOMEM;
	d->unclaimed_count = count;
	for (i = 0; i < count; i++) {
		struct unclaimed *u = &d->unclaimed[i];

		*u = (struct unclaimed){.address = words_next(words)};
		u->end = words_next(words);
		u->allocation_id = words_next(words);
		word = words_next(words);
		u->place = (uint32_t)(word >> 32);
		u->step = (uint32_t)word;
		words->failed |= i > 0 && u->address < u[-1].address;
	}
	return 0;
}

static void save_group(struct strbuf *out, const struct group *group)
{
	words_add(out,
		  (uint64_t)group->handles << 40 | (uint64_t)group->pool << 32 | group->device);
	words_add(out, (uint64_t)group->on << 32 | group->sizes);
	words_add(out, group->end_bytes);
	save_growth(out, &group->growth);
}

static int load_group(struct words *words, struct group *group)
{
	uint64_t word = words_next(words);

	*group = (struct group){.device = (uint32_t)word,
				.pool = (uint8_t)(word >> 32),
				.handles = word >> 40 != 0};
	group->framework = !pool_is_driver(group->pool);
	word = words_next(words);
	group->on = (uint32_t)(word >> 32);
	group->sizes = (uint32_t)word;
	group->end_bytes = words_next(words);
	return load_growth(words, &group->growth);
}

void leaks_save(void *state, struct strbuf *out)
{
	const struct leaks *leaks = state;
	size_t i;

	words_add(out,
		  (uint64_t)leaks->contiguous << 33 | (uint64_t)leaks->by_step << 32 | leaks->now);
	words_add(out, (uint64_t)leaks->offset << 32 | leaks->ended);
	words_add(out, leaks->start_ns);
	words_add(out, leaks->part_ns);
	words_add(out, leaks->last_end_ns);
	words_add(out, (uint64_t)leaks->stride << 32 | leaks->length_skipped);
	words_add(out, leaks->length_count);
	for (i = 0; i < leaks->length_count; i++)
		words_add(out, leaks->lengths[i]);
	words_add(out, leaks->device_count);
	for (i = 0; i < leaks->device_count; i++)
		save_device(out, &leaks->devices[i]);
	words_add(out, leaks->group_count);
	for (i = 0; i < leaks->group_count; i++)
		save_group(out, &leaks->groups[i]);
	words_add(out, leaks->place_count);
	for (i = 0; i < leaks->place_count; i++) {
		const struct place *place = &leaks->places[i];

		words_add(out, place->size);
		words_add(out, (uint64_t)place->group << 32 | place->stack);
		save_growth(out, &place->growth);
	}
	words_add(out, leaks->touched_count);
	for (i = 0; i < leaks->touched_count; i++)
		words_add(out, leaks->touched[i]);
	words_add(out, leaks->freed_count);
	for (i = 0; i < leaks->freed_count; i++)
		save_freed(out, &leaks->freed[i]);
}

static void load_clock(struct leaks *leaks, struct words *words)
{
	uint64_t word = words_next(words);
	size_t count, i;

	leaks->contiguous = word >> 33 != 0;
	leaks->by_step = (word >> 32 & 1) != 0;
	leaks->now = (uint32_t)word;
	word = words_next(words);
	leaks->offset = (uint32_t)(word >> 32);
	leaks->ended = (uint32_t)word;
	leaks->start_ns = words_next(words);
	leaks->part_ns = words_next(words);
	leaks->last_end_ns = words_next(words);
	word = words_next(words);
	leaks->stride = (uint32_t)(word >> 32);
	leaks->length_skipped = (uint32_t)word;
	count = words_count(words);
	words->failed |= count > MSCOPE_COUNT(leaks->lengths);
	for (i = 0; i < count && i < MSCOPE_COUNT(leaks->lengths); i++)
		leaks->lengths[leaks->length_count++] = words_next(words);
}

static int load_places(struct leaks *leaks, struct words *words)
{
	size_t count = words_count(words), i;

	if (array_reserve(&leaks->places, &leaks->place_room, count, sizeof(*leaks->places)) < 0)
		return -ENOMEM;
	for (i = 0; i < count && !words->failed; i++) {
		struct place *place = &leaks->places[i];
		uint64_t word;

		*place = (struct place){.size = words_next(words)};
		word = words_next(words);
		place->stack = (uint32_t)word;
		place->group = word >> 32 & INT32_MAX;
		words->failed |= word >> 32 >= leaks->group_count;
		leaks->place_count++;
		if (load_growth(words, &place->growth) < 0 ||
		    index_add(&leaks->index,
			      leaks_place_hash(place->group, place->stack, place->size), i) < 0)
			return -ENOMEM;
	}
	return 0;
}

static int load_touched(struct leaks *leaks, struct words *words)
{
	size_t count = words_count(words), i;

	if (array_reserve(&leaks->touched, &leaks->touched_room, count, sizeof(*leaks->touched)) <
	    0)
		return -ENOMEM;
	for (i = 0; i < count; i++) {
		uint64_t place = words_next(words);

		if (place >= leaks->place_count || leaks->places[place].touched) {
			words->failed = true;
			break;
		}
		leaks->places[place].touched = true;
		leaks->touched[leaks->touched_count++] = (uint32_t)place;
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

int leaks_load(void *state, const struct replay *replay, struct words *words)
{
	struct leaks *leaks = state;
	size_t count, i;

	(void)replay;
	leaks_clear(leaks);
	load_clock(leaks, words);
	count = words_count(words);
	if (array_reserve(&leaks->devices, &leaks->device_room, count, sizeof(*leaks->devices)) < 0)
		return -ENOMEM;
	for (i = 0; i < count && !words->failed; i++) {
		leaks->device_count++;
		if (load_device(words, &leaks->devices[i]) < 0)
			return -ENOMEM;
	}
	count = words_count(words);
	if (array_reserve(&leaks->groups, &leaks->group_room, count, sizeof(*leaks->groups)) < 0)
		return -ENOMEM;
	for (i = 0; i < count && !words->failed; i++) {
		leaks->group_count++;
		if (load_group(words, &leaks->groups[i]) < 0)
			return -ENOMEM;
	}
	if (load_places(leaks, words) < 0 || load_touched(leaks, words) < 0)
		return -ENOMEM;
	count = words_count(words);
	if (array_reserve(&leaks->freed, &leaks->freed_room, count, sizeof(*leaks->freed)) < 0)
		return -ENOMEM;
	for (i = 0; i < count; i++)
		load_freed(words, &leaks->freed[leaks->freed_count++]);
	words->failed |= !is_whole(leaks);
	return 0;
}
