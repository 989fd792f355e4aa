/* SPDX-License-Identifier: Apache-2.0 */
#include "analysis/spots.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/hash.h"

/* Of places with the same functions at most as many are tried; a place that has more is no place at all. */
#define PAIRED_MOST 256u

/* What tells places apart in both runs: with lines, and without. */
struct keys {
	uint64_t exact, loose;
};

/* What is needed of a spot while they are found. */
struct making {
	const struct compare *compare;
	struct differences *out;
	struct spots *spots;
	struct keys *keys; /* of each spot */
	size_t room, key_room;
};

void spots_fini(struct spots *spots)
{
	int side;

	for (side = 0; side < 2; side++) {
		free(spots->of[side]);
		free(spots->pool_of[side]);
	}
	*spots = (struct spots){0};
}

/* ---- pools ---- */

static int find_pools(const struct compare *compare, struct differences *out, struct spots *spots)
{
	const struct ledger *a = &compare->sides[0].ledger, *b = &compare->sides[1].ledger;
	size_t i, k;
	int side;

	out->pools = calloc(a->pool_count + b->pool_count + 1, sizeof(*out->pools));
	if (out->pools == NULL)
		return -ENOMEM;
	for (side = 0; side < 2; side++) {
		const struct ledger *ledger = side == 0 ? a : b;

		spots->pool_of[side] = calloc(ledger->pool_count + 1, sizeof(uint32_t));
		if (spots->pool_of[side] == NULL)
			return -ENOMEM;
		for (i = 0; i < ledger->pool_count; i++) {
			const struct ledger_pool *pool = &ledger->pools[i];

			for (k = 0; k < out->pool_count; k++) {
				if (out->pools[k].pool == pool->pool &&
				    out->pools[k].device == pool->device)
					break;
			}
			if (k == out->pool_count)
				out->pools[out->pool_count++] = (struct difference_pool){
					.pool = pool->pool,
					.device = pool->device,
					.counts = compare_counts_pool(compare, pool->pool)};
			spots->pool_of[side][i] = (uint32_t)k;
		}
	}
	return 0;
}

/* ---- places ---- */

static uint64_t add_text(uint64_t hash, const char *text)
{
	return text == NULL ? hash_add_byte(hash, 1)
			    : hash_add_byte(hash_add(hash, text, strlen(text)), 0);
}

static const char *base_name(const char *path)
{
	const char *slash = path == NULL ? NULL : strrchr(path, '/');

	return slash == NULL ? path : slash + 1;
}

static struct keys keys_of(const struct compare *compare, int side,
			   const struct ledger_place *place, uint32_t pool)
{
	struct replay *replay = compare->sides[side].replay;
	uint64_t loose = hash_add(HASH_BEGIN, &pool, sizeof(pool)), exact;
	const struct stack_line *lines = NULL;
	uint32_t i, count = 0;

	loose = hash_add(loose, &place->size_bytes, sizeof(place->size_bytes));
	loose = add_text(loose, place->call == 0 ? NULL : compare->names.data + place->call - 1);
	if (place->stack != 0 && replay != NULL)
		lines = replay_stack_lines(replay, place->stack, &count);
	exact = loose;
	for (i = 0; i < count; i++) {
		const struct stack_line *line = &lines[i];

		loose = add_text(loose, line->function);
		exact = add_text(add_text(exact, line->function), base_name(line->file));
		exact = hash_add(exact, &line->line, sizeof(line->line));
		if (line->function == NULL) {
			loose = add_text(loose, base_name(line->module));
			exact = hash_add(exact, &line->offset, sizeof(line->offset));
		}
	}
	return (struct keys){exact, loose};
}

/* The spot of each place, by exact keys. */
static int find_exact(struct making *m)
{
	struct map known = {0};
	int side, r = 0;
	size_t i;

	for (side = 0; side < 2 && r == 0; side++) {
		const struct ledger *ledger = &m->compare->sides[side].ledger;

		m->spots->of[side] = calloc(ledger->place_count + 1, sizeof(uint32_t));
		if (m->spots->of[side] == NULL)
			r = -ENOMEM;
		for (i = 0; i < ledger->place_count && r == 0; i++) {
			const struct ledger_place *place = &ledger->places[i];
			uint32_t pool = m->spots->pool_of[side][place->pool];
			struct keys keys = keys_of(m->compare, side, place, pool);
			const uint64_t *at = map_get(&known, (struct map_key){keys.exact, pool});
			size_t spot = at != NULL ? *at : m->out->place_count;

			if (at == NULL) {
				r = map_put(&known, (struct map_key){keys.exact, pool}, spot);
				if (r == 0)
					r = array_reserve(&m->out->places, &m->room, spot + 1,
							  sizeof(*m->out->places));
				if (r == 0)
					r = array_reserve(&m->keys, &m->key_room, spot + 1,
							  sizeof(*m->keys));
				if (r < 0)
					break;
				m->keys[spot] = keys;
				m->out->places[spot] = (struct difference_place){
					.place = {DIFFERENCE_NONE, DIFFERENCE_NONE}, .pool = pool};
				m->out->place_count++;
			}
			if (m->out->places[spot].place[side] == DIFFERENCE_NONE)
				m->out->places[spot].place[side] = (uint32_t)i;
			m->spots->of[side][i] = (uint32_t)spot;
		}
	}
	map_fini(&known);
	return r;
}

/* ---- figures ---- */

/* What the pools and places of one run hold over time. */
static int scan(struct making *m, int side, size_t *peak_at)
{
	const struct ledger *ledger = &m->compare->sides[side].ledger;
	struct differences *out = m->out;
	int64_t *live = calloc(out->place_count + out->pool_count + 1, sizeof(*live)), *pools;
	size_t i, k;

	if (live == NULL)
		return -ENOMEM;
	pools = live + out->place_count;
	for (i = 0; i <= ledger->to; i++) {
		const struct ledger_entry *entry;
		struct difference_place *place;
		struct difference_pool *pool;
		uint32_t spot;

		if (i == ledger->from) {
			for (k = 0; k < out->place_count; k++)
				out->places[k].most[side] = live[k];
			for (k = 0; k < out->pool_count; k++) {
				out->pools[k].start[side] = out->pools[k].peak[side] = pools[k];
				peak_at[k] = i; /* entries before the peak */
			}
		}
		if (i == ledger->to)
			break;
		entry = &ledger->entries[i];
		spot = m->spots->of[side][entry->place];
		place = &out->places[spot];
		pool = &out->pools[place->pool];
		live[spot] += entry->bytes;
		pools[place->pool] += entry->bytes;
		if (i < ledger->from)
			continue;
		if (entry->bytes > 0) {
			place->allocated[side] += entry->bytes;
			place->blocks[side]++;
			if (live[spot] > place->most[side])
				place->most[side] = live[spot];
			if (pools[place->pool] > pool->peak[side]) {
				pool->peak[side] = pools[place->pool];
				peak_at[place->pool] = i + 1;
			}
		} else {
			place->life[side] += (uint64_t)-entry->bytes * entry->life;
		}
	}
	for (k = 0; k < out->place_count; k++)
		out->places[k].end[side] = live[k];
	for (k = 0; k < out->pool_count; k++)
		out->pools[k].end[side] = pools[k];
	free(live);
	return 0;
}

/* ---- places whose lines have moved ---- */

/* How alike two places are that only one run has each: 0 if they are not the same functions. */
static int likeness(const struct making *m, size_t a, size_t b)
{
	const struct difference_place *x = &m->out->places[a], *y = &m->out->places[b];

	if (m->keys[a].loose != m->keys[b].loose || x->pool != y->pool)
		return 0;
	if (x->allocated[0] != y->allocated[1] || x->blocks[0] != y->blocks[1])
		return 1;
	return x->end[0] == y->end[1] && x->most[0] == y->most[1] && x->life[0] == y->life[1] ? 3
											      : 2;
}

/* Places of one run alone, by their functions; in each group in the order in which they first allocated. */
static int by_loose(const void *a, const void *b, void *arg)
{
	const struct making *m = arg;
	size_t x = *(const size_t *)a, y = *(const size_t *)b;

	if (m->keys[x].loose != m->keys[y].loose)
		return m->keys[x].loose < m->keys[y].loose ? -1 : 1;
	return x < y ? -1 : 1;
}

/* Spots of the second run become those of the first that they are paired with. */
static void redirect(struct making *m, const uint32_t *into)
{
	size_t i;

	for (i = 0; i < m->compare->sides[1].ledger.place_count; i++) {
		uint32_t *of = &m->spots->of[1][i];

		if (into[*of] != DIFFERENCE_NONE)
			*of = into[*of];
	}
}

/* Pairs what is left, the most alike first. */
static int pair_moved(struct making *m, bool *out_any)
{
	struct differences *out = m->out;
	size_t *alone[2], count[2] = {0}, i, k, from;
	uint32_t *into = calloc(out->place_count + 1, sizeof(*into));
	int side, wanted;

	alone[0] = calloc(out->place_count + 1, sizeof(**alone));
	alone[1] = calloc(out->place_count + 1, sizeof(**alone));
	if (alone[0] == NULL || alone[1] == NULL || into == NULL) {
		free(alone[0]);
		free(alone[1]);
		free(into);
		return -ENOMEM;
	}
	for (i = 0; i < out->place_count; i++) {
		into[i] = DIFFERENCE_NONE;
		for (side = 0; side < 2; side++) {
			if (out->places[i].place[!side] == DIFFERENCE_NONE)
				alone[side][count[side]++] = i;
		}
	}
	qsort_r(alone[0], count[0], sizeof(**alone), by_loose, m);
	qsort_r(alone[1], count[1], sizeof(**alone), by_loose, m);
	for (wanted = 3; wanted > 0; wanted--) {
		for (i = from = 0; i < count[0]; i++) {
			size_t a = alone[0][i];

			if (out->places[a].place[1] != DIFFERENCE_NONE)
				continue;
			while (from < count[1] && m->keys[alone[1][from]].loose < m->keys[a].loose)
				from++;
			for (k = from; k < count[1] && k < from + PAIRED_MOST &&
				       m->keys[alone[1][k]].loose == m->keys[a].loose;
			     k++) {
				if (out->places[alone[1][k]].place[1] == DIFFERENCE_NONE ||
				    likeness(m, a, alone[1][k]) < wanted)
					continue;
				out->places[a].place[1] = out->places[alone[1][k]].place[1];
				out->places[alone[1][k]].place[1] = DIFFERENCE_NONE;
				into[alone[1][k]] = (uint32_t)a;
				*out_any = true;
				break;
			}
		}
	}
	redirect(m, into);
	free(alone[0]);
	free(alone[1]);
	free(into);
	return 0;
}

static void clear_figures(struct differences *out)
{
	size_t i;

	for (i = 0; i < out->place_count; i++) {
		const struct difference_place *place = &out->places[i];

		out->places[i] = (struct difference_place){
			.place = {place->place[0], place->place[1]}, .pool = place->pool};
	}
}

/* ---- the moment of the peak ---- */

/* The entry that is the n-th allocation of a spot, and one more; 0: there is none. */
static size_t nth_allocation(const struct making *m, int side, uint32_t spot, uint64_t n)
{
	const struct ledger *ledger = &m->compare->sides[side].ledger;
	size_t i;

	for (i = ledger->from; i < ledger->to; i++) {
		const struct ledger_entry *entry = &ledger->entries[i];

		if (entry->bytes > 0 && m->spots->of[side][entry->place] == spot && --n == 0)
			return i + 1;
	}
	return 0;
}

static uint64_t count_allocations(const struct making *m, int side, uint32_t spot, size_t until)
{
	const struct ledger *ledger = &m->compare->sides[side].ledger;
	uint64_t count = 0;
	size_t i;

	for (i = ledger->from; i < until; i++) {
		const struct ledger_entry *entry = &ledger->entries[i];

		count += entry->bytes > 0 && m->spots->of[side][entry->place] == spot;
	}
	return count;
}

/* Moves the moment of the run with the lower peak to that of the other, for each pool. */
static void find_moments(const struct making *m, size_t *moments[2])
{
	size_t k;

	for (k = 0; k < m->out->pool_count; k++) {
		const struct difference_pool *pool = &m->out->pools[k];
		int high = pool->peak[1] >= pool->peak[0];
		const struct ledger *ledger = &m->compare->sides[high].ledger;
		size_t at = moments[high][k], found;
		uint32_t spot;

		if (at <= ledger->from) {
			moments[!high][k] = m->compare->sides[!high].ledger.from;
			continue;
		}
		spot = m->spots->of[high][ledger->entries[at - 1].place];
		found = nth_allocation(m, !high, spot, count_allocations(m, high, spot, at));
		if (found != 0)
			moments[!high][k] = found;
	}
}

static void hold_at_moments(struct making *m, size_t *moments[2])
{
	struct differences *out = m->out;
	int side;
	size_t i;

	for (side = 0; side < 2; side++) {
		const struct ledger *ledger = &m->compare->sides[side].ledger;

		for (i = 0; i < ledger->to; i++) {
			const struct ledger_entry *entry = &ledger->entries[i];
			struct difference_place *place =
				&out->places[m->spots->of[side][entry->place]];

			if (i < moments[side][place->pool]) {
				place->at_peak[side] += entry->bytes;
				out->pools[place->pool].at_moment[side] += entry->bytes;
			}
		}
	}
}

int spots_find(const struct compare *compare, struct differences *out, struct spots *spots)
{
	struct making m = {.compare = compare, .out = out, .spots = spots};
	size_t *moments[2] = {NULL, NULL};
	bool paired = false;
	int side, r;

	*spots = (struct spots){0};
	r = find_pools(compare, out, spots);
	moments[0] = calloc(out->pool_count + 1, sizeof(**moments));
	moments[1] = calloc(out->pool_count + 1, sizeof(**moments));
	if (moments[0] == NULL || moments[1] == NULL)
		r = -ENOMEM;
	if (r == 0)
		r = find_exact(&m);
	for (side = 0; side < 2 && r == 0; side++)
		r = scan(&m, side, moments[side]);
	if (r == 0)
		r = pair_moved(&m, &paired);
	if (r == 0 && paired)
		clear_figures(out);
	for (side = 0; side < 2 && r == 0 && paired; side++)
		r = scan(&m, side, moments[side]);
	if (r == 0) {
		find_moments(&m, moments);
		hold_at_moments(&m, moments);
	}
	free(m.keys);
	free(moments[0]);
	free(moments[1]);
	return r;
}
