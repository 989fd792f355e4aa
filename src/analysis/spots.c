/* SPDX-License-Identifier: Apache-2.0 */
#include "analysis/spots.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/hash.h"
#include "findings/differ.h"

/* What is needed of a spot while they are found. */
struct making {
	const struct compare *compare;
	struct differences *out;
	struct spots *spots;
	struct differ differ; /* has a line for each spot */
	size_t room;
};

void spots_fini(struct spots *spots)
{
	int side;

	for (side = 0; side < 2; side++) {
		free(spots->of[side]);
		free(spots->pool_of[side]);
		free(spots->named[side]);
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

static struct differ_keys keys_of(const struct compare *compare, int side,
				  const struct ledger_place *place)
{
	const struct compare_side *of = &compare->sides[side];
	struct differ_keys keys;
	uint64_t hash = hash_add(HASH_BEGIN, &place->size_bytes, sizeof(place->size_bytes));
	const char *const texts[] = {
		place->call == 0 ? NULL : compare->names.data + place->call - 1,
		differences_owner(compare, side, place),
		differences_layer(compare, side, place),
	};
	size_t i;

	for (i = 0; i < MSCOPE_COUNT(texts); i++)
		hash = texts[i] == NULL
			       ? hash_add_byte(hash, 1)
			       : hash_add_byte(hash_add(hash, texts[i], strlen(texts[i])), 0);
	keys = (struct differ_keys){hash, hash};
	if (of->replay != NULL)
		differ_add_stack(&keys, of->replay, place->stack);
	return keys;
}

/* The spot of each place, by exact keys. */
static int find_exact(struct making *m)
{
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
			uint32_t *spot = &m->spots->of[side][i];

			r = differ_add(&m->differ, side, pool, keys_of(m->compare, side, place),
				       spot);
			if (r == 0)
				r = ARRAY_RESERVE(m->out->places, m->room, (size_t)*spot + 1);
			if (r < 0)
				break;
			if (*spot == m->out->place_count)
				m->out->places[m->out->place_count++] = (struct difference_place){
					.place = {DIFFERENCE_NONE, DIFFERENCE_NONE}, .pool = pool};
			if (m->out->places[*spot].place[side] == DIFFERENCE_NONE)
				m->out->places[*spot].place[side] = (uint32_t)i;
		}
	}
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

/* ---- places whose lines have moved, and those that read the same ---- */

static uint64_t figures_hash(const void *figures, size_t bytes)
{
	return hash_add(HASH_BEGIN, figures, bytes);
}

/* Places of one run alone are paired by their functions. `out_any`: there were some. */
static int pair_moved(struct making *m, bool *out_any)
{
	struct differences *out = m->out;
	size_t i;
	int side, r;

	for (i = 0; i < out->place_count; i++) {
		const struct difference_place *place = &out->places[i];

		for (side = 0; side < 2; side++) {
			const uint64_t rough[] = {(uint64_t)place->allocated[side],
						  place->blocks[side]},
				       fine[] = {(uint64_t)place->end[side],
						 (uint64_t)place->most[side], place->life[side]};

			m->differ.lines[i].alike[side][0] = figures_hash(rough, sizeof(rough));
			m->differ.lines[i].alike[side][1] = figures_hash(fine, sizeof(fine));
		}
	}
	r = differ_pair(&m->differ);
	for (i = 0; i < out->place_count && r == 0; i++)
		*out_any |= m->differ.lines[i].moved;
	return r;
}

/* Spots that became one with another give their places to that. */
static void redirect(struct making *m)
{
	struct differences *out = m->out;
	size_t i;
	int side;

	for (i = 0; i < out->place_count; i++) {
		uint32_t line = differ_line(&m->differ, (uint32_t)i);

		for (side = 0; side < 2 && line != i; side++) {
			uint32_t *of = &out->places[line].place[side];

			*of = *of == DIFFERENCE_NONE ? out->places[i].place[side] : *of;
		}
	}
	for (side = 0; side < 2; side++) {
		uint32_t *of = m->spots->of[side];

		for (i = 0; i < m->compare->sides[side].ledger.place_count; i++)
			of[i] = differ_line(&m->differ, of[i]);
	}
}

static void clear_figures(struct differences *out)
{
	size_t i;

	for (i = 0; i < out->place_count; i++) {
		const struct difference_place *place = &out->places[i];

		out->places[i] =
			(struct difference_place){.place = {place->place[0], place->place[1]},
						  .pool = place->pool,
						  .name = place->name,
						  .frames = place->frames,
						  .owner = place->owner,
						  .class = place->class,
						  .call = place->call};
	}
}

/* Only lines are left. 0 or -ENOMEM. */
static int keep_lines(struct making *m)
{
	struct differences *out = m->out;
	uint32_t *now = calloc(out->place_count + 1, sizeof(*now));
	size_t i, kept = 0;
	int side;

	if (now == NULL)
		return -ENOMEM;
	redirect(m);
	for (i = 0; i < out->place_count; i++) {
		if (differ_line(&m->differ, (uint32_t)i) != i)
			continue;
		now[i] = (uint32_t)kept;
		out->places[kept++] = out->places[i];
	}
	out->place_count = kept;
	for (side = 0; side < 2; side++) {
		uint32_t *of = m->spots->of[side];

		for (i = 0; i < m->compare->sides[side].ledger.place_count; i++)
			of[i] = now[of[i]];
	}
	free(now);
	return 0;
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

	for (i = 0; i < out->pool_count; i++)
		out->pools[i].at_moment[0] = out->pools[i].at_moment[1] = 0;
	for (side = 0; side < 2; side++) {
		const struct ledger *ledger = &m->compare->sides[side].ledger;

		for (i = 0; i < ledger->to; i++) {
			const struct ledger_entry *entry = &ledger->entries[i];
			struct difference_place *place =
				&out->places[m->spots->of[side][entry->place]];

			if (i >= moments[side][place->pool])
				continue;
			place->at_peak[side] += entry->bytes;
			place->held[side] += entry->bytes > 0 ? 1 : -1;
			out->pools[place->pool].at_moment[side] += entry->bytes;
		}
	}
}

/* `peaks`: of each run its own, for each pool. */
static int find_named(struct making *m, size_t *peaks[2])
{
	int side;
	size_t i;

	for (side = 0; side < 2; side++) {
		const struct ledger *ledger = &m->compare->sides[side].ledger;
		bool *named = calloc(ledger->place_count + 1, sizeof(*named));
		int64_t *held = calloc(2 * ledger->place_count + 1, sizeof(*held));

		m->spots->named[side] = named;
		for (i = 0; i < ledger->to && named != NULL && held != NULL; i++) {
			const struct ledger_entry *entry = &ledger->entries[i];
			uint32_t pool = m->spots->pool_of[side][ledger->places[entry->place].pool];

			held[2 * entry->place] += entry->bytes;
			if (i < peaks[side][pool])
				held[2 * entry->place + 1] += entry->bytes;
		}
		for (i = 0; i < ledger->place_count && named != NULL && held != NULL; i++)
			named[i] = held[2 * i] != 0 || held[2 * i + 1] != 0;
		free(held);
		if (named == NULL || held == NULL)
			return -ENOMEM;
	}
	return 0;
}

static int scan_both(struct making *m, size_t *peaks[2])
{
	int r = scan(m, 0, peaks[0]);

	return r < 0 ? r : scan(m, 1, peaks[1]);
}

/*
 * First each place is a spot by itself, so that the same allocation is found in both runs and layers stay separate; then those that
 * people see as one line are one.
 */
static int find_all(struct making *m, size_t *moments[2], size_t *peaks[2])
{
	bool moved = false;
	int r = find_exact(m);

	if (r == 0)
		r = scan_both(m, moments);
	if (r == 0)
		r = pair_moved(m, &moved);
	if (r == 0 && moved) {
		redirect(m);
		clear_figures(m->out);
		r = scan_both(m, peaks);
	}
	if (r == 0)
		r = find_named(m, moments);
	if (r < 0)
		return r;
	find_moments(m, moments);
	hold_at_moments(m, moments);
	r = differences_find_layers(m->compare, m->out);
	if (r == 0)
		r = differences_name(m->compare, m->out, m->spots, &m->differ);
	if (r == 0)
		r = keep_lines(m);
	if (r < 0)
		return r;
	clear_figures(m->out);
	r = scan_both(m, peaks);
	hold_at_moments(m, moments);
	return r;
}

int spots_find(const struct compare *compare, struct differences *out, struct spots *spots)
{
	struct making m = {.compare = compare, .out = out, .spots = spots};
	size_t *figures, *moments[2], *peaks[2];
	int r;

	*spots = (struct spots){0};
	r = find_pools(compare, out, spots);
	figures = calloc(4 * out->pool_count + 1, sizeof(*figures));
	if (figures == NULL)
		r = -ENOMEM;
	moments[0] = figures;
	moments[1] = figures + out->pool_count;
	peaks[0] = figures + 2 * out->pool_count;
	peaks[1] = figures + 3 * out->pool_count;
	if (r == 0)
		r = find_all(&m, moments, peaks);
	differ_fini(&m.differ);
	free(figures);
	return r;
}
