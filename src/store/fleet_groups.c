/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which ranks stand out, and by which places. For each pool four figures of each rank are compared with those of all ranks: its
 * peak, its growth, its distance: the sum over all places of how far the rank is from the median of all ranks; and the number of
 * its odd places, which hold far more or less than is usual for that place, be they ever so small. The last two find a rank that
 * holds as much as the others, but at other places: it runs other code.
 *
 * A rank stands out when a figure is far from the median both as a share of the median peak and by a robust z-score (distance from
 * the median in units of the median absolute deviation): the first keeps differences out that nobody would care for, the second
 * those that are usual among these ranks. Few ranks tell less about what is usual, so the score that is needed rises. A place that
 * leaks in one rank, or in a quarter of the ranks or less, makes these ranks stand out, whatever its size.
 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "store/fleet.h"

#define PEAK_SHARE     0.05
#define DISTANCE_SHARE 0.02
#define GROWTH_SHARE   0.02 /* of the peak, over all steps */
#define PEAK_SCORE     6.0
#define DISTANCE_SCORE 10.0
#define REASON_SCORE   5.0   /* of a place among the reasons */
#define ODD_SHARE      0.001 /* of the peak, at odd places together */
#define ODD_SCORE      10.0  /* that makes a place odd, and as many odd places unusual */
#define ODD_FLOOR      0.4 /* places: 4 or less are chance, what lived at the moment of the peak */
#define FLOOR_SHARE    0.002 /* of the peak: no two ranks are compared more closely */

/* Figures of all ranks in one pool. */
struct figures_of_pool {
	uint8_t pool;
	double *peak, *growth, *distance, *scratch;
	/* Odd places of each rank; their bytes, and the same with signs. */
	double *odd, *odd_bytes, *odd_delta;
	struct fleet_spread peaks, growths, distances, odds;
	double factor; /* on scores, because of few ranks */
};

const char *fleet_why_word(enum fleet_why why)
{
	static const char *const words[FLEET_WHYS] = {[FLEET_WHY_LEAK] = "leak",
						      [FLEET_WHY_GROWTH] = "growth",
						      [FLEET_WHY_MORE] = "more",
						      [FLEET_WHY_LESS] = "less",
						      [FLEET_WHY_DIFFERENT] = "different"};

	return words[why];
}

void fleet_groups_fini(struct fleet_groups *groups)
{
	size_t i;

	for (i = 0; i < groups->count; i++)
		free(groups->all[i].ranks);
	free(groups->all);
	*groups = (struct fleet_groups){0};
}

static struct fleet_group *add_group(struct fleet_groups *groups)
{
	if (ARRAY_RESERVE(groups->all, groups->room, groups->count + 1) < 0)
		return NULL;
	groups->all[groups->count] = (struct fleet_group){0};
	return &groups->all[groups->count++];
}

static int add_rank(struct fleet_group *group, uint32_t rank)
{
	if (ARRAY_RESERVE(group->ranks, group->room, group->count + 1) < 0)
		return -ENOMEM;
	group->ranks[group->count++] = rank;
	return 0;
}

/* ---- leaks in few ranks ---- */

static int find_leaks(const struct fleet *fleet, struct fleet_groups *out)
{
	size_t i, k;

	for (i = 0; i < fleet->place_count; i++) {
		const struct fleet_place *place = &fleet->places[i];
		struct fleet_group *group;

		if (place->leaks == 0 || (place->leaks > 1 && place->leaks * 4 > fleet->rank_count))
			continue;
		group = add_group(out);
		if (group == NULL)
			return -ENOMEM;
		*group = (struct fleet_group){.why = FLEET_WHY_LEAK, .pool = place->pool};
		for (k = 0; k < place->count; k++) {
			const struct fleet_entry *entry = &fleet->entries[place->from + k];

			if (entry->verdict != FLEET_LEAK)
				continue;
			if (add_rank(group, entry->rank) < 0)
				return -ENOMEM;
			if ((int64_t)entry->rate_bytes > group->delta_bytes)
				group->delta_bytes = (int64_t)entry->rate_bytes;
		}
		group->reasons[group->reason_count++] =
			(struct fleet_reason){.stack = place->stack,
					      .delta_bytes = group->delta_bytes,
					      .ranks = place->count};
	}
	return 0;
}

/* ---- figures ---- */

static struct fleet_spread spread_of(const double *values, double *scratch, size_t count)
{
	memcpy(scratch, values, count * sizeof(*values));
	return fleet_spread(scratch, count);
}

/* Whether so far from the median is out of the ordinary for the place. */
static bool is_odd(const struct fleet_place *place, double delta)
{
	double usual = (double)place->median_bytes / 100;

	if (usual < place->spread_bytes)
		usual = place->spread_bytes;
	return fabs(delta) > ODD_SCORE * usual;
}

/* Every rank that lacks the place is as odd as `absent` says; those that have it are looked at one by one. */
static void count_odd(const struct fleet *fleet, const struct fleet_place *place,
		      struct figures_of_pool *of)
{
	double median = (double)place->median_bytes;
	bool absent = is_odd(place, median);
	size_t i, k = 0;

	for (i = 0; i < fleet->rank_count; i++) {
		const struct fleet_entry *entry = &fleet->entries[place->from + k];
		bool here = k < place->count && entry->rank == i;
		double delta = here ? (double)entry->peak_bytes - median : -median;

		k += here;
		if (here ? is_odd(place, delta) : absent) {
			of->odd[i]++;
			of->odd_bytes[i] += fabs(delta);
			of->odd_delta[i] += delta;
		}
	}
}

static void measure(const struct fleet *fleet, struct figures_of_pool *of)
{
	double medians = 0;
	size_t i, k;

	for (i = 0; i < fleet->place_count; i++) {
		if (fleet->places[i].pool == of->pool)
			medians += (double)fleet->places[i].median_bytes;
	}
	for (i = 0; i < fleet->rank_count; i++) {
		const struct fleet_pool *pool = &fleet->ranks[i].pools[of->pool];

		of->peak[i] = (double)pool->peak_bytes;
		of->growth[i] = pool->trend_bytes;
		of->distance[i] = medians;
		of->odd[i] = of->odd_bytes[i] = of->odd_delta[i] = 0;
	}
	for (i = 0; i < fleet->place_count; i++) {
		const struct fleet_place *place = &fleet->places[i];
		double median = (double)place->median_bytes;

		if (place->pool != of->pool)
			continue;
		count_odd(fleet, place, of);
		for (k = 0; k < place->count; k++) {
			const struct fleet_entry *entry = &fleet->entries[place->from + k];

			of->distance[entry->rank] +=
				fabs((double)entry->peak_bytes - median) - median;
		}
	}
	of->peaks = spread_of(of->peak, of->scratch, fleet->rank_count);
	of->growths = spread_of(of->growth, of->scratch, fleet->rank_count);
	of->distances = spread_of(of->distance, of->scratch, fleet->rank_count);
	of->odds = spread_of(of->odd, of->scratch, fleet->rank_count);
	of->factor = 1 + 8.0 / (double)fleet->rank_count;
}

static double score(double value, const struct fleet_spread *spread, double least)
{
	return (value - spread->median) / (spread->spread > least ? spread->spread : least);
}

/* ---- places that make a rank stand out ---- */

static uint64_t bytes_in(const struct fleet *fleet, const struct fleet_place *place, uint32_t rank)
{
	size_t low = 0, high = place->count;

	while (low < high) {
		size_t at = (low + high) / 2;

		if (fleet->entries[place->from + at].rank < rank)
			low = at + 1;
		else
			high = at;
	}
	return low < place->count && fleet->entries[place->from + low].rank == rank
		       ? fleet->entries[place->from + low].peak_bytes
		       : 0;
}

/*
 * The largest differences first; those below a hundredth of all are not worth a word, nor those below `times` what is usual among the
 * ranks for that place.
 */
static void find_reasons(const struct fleet *fleet, const struct figures_of_pool *of, uint32_t rank,
			 double times, struct fleet_group *out)
{
	double least = of->distance[rank] / 100;
	size_t i, k;

	for (i = 0; i < fleet->place_count; i++) {
		const struct fleet_place *place = &fleet->places[i];
		struct fleet_reason reason = {.stack = place->stack, .ranks = place->count};

		if (place->pool != of->pool)
			continue;
		reason.delta_bytes =
			(int64_t)bytes_in(fleet, place, rank) - (int64_t)place->median_bytes;
		if (fabs((double)reason.delta_bytes) < least || reason.delta_bytes == 0 ||
		    fabs((double)reason.delta_bytes) < times * place->spread_bytes)
			continue;
		for (k = out->reason_count;
		     k > 0 && llabs(out->reasons[k - 1].delta_bytes) < llabs(reason.delta_bytes);
		     k--) {
			if (k < FLEET_REASONS)
				out->reasons[k] = out->reasons[k - 1];
		}
		if (k < FLEET_REASONS)
			out->reasons[k] = reason;
		if (out->reason_count < FLEET_REASONS)
			out->reason_count++;
		else
			out->more++;
	}
}

/* Whether most of a group's places differ in this rank too, and in the same direction. */
static bool shares_places(const struct fleet *fleet, const struct fleet_group *group, uint32_t rank)
{
	size_t i, k, shared = 0;

	for (i = 0; i < group->reason_count; i++) {
		const struct fleet_reason *reason = &group->reasons[i];
		int64_t delta = 0;

		for (k = 0; k < fleet->place_count; k++) {
			const struct fleet_place *place = &fleet->places[k];

			if (place->stack == reason->stack && place->pool == group->pool)
				delta = (int64_t)bytes_in(fleet, place, rank) -
					(int64_t)place->median_bytes;
		}
		shared += (delta < 0) == (reason->delta_bytes < 0) &&
			  llabs(delta) >= llabs(reason->delta_bytes) / 4;
	}
	return shared * 2 > group->reason_count;
}

/* Whether a place differs in the same direction in both; of many places that are alike, each rank names others first. */
static bool is_alike(const struct fleet *fleet, const struct fleet_group *a,
		     const struct fleet_group *b, uint32_t rank_of_b)
{
	size_t i, k;

	if (a->why != b->why || a->pool != b->pool)
		return false;
	if (a->reason_count == 0 && b->reason_count == 0)
		return true;
	if (shares_places(fleet, a, rank_of_b))
		return true;
	for (i = 0; i < a->reason_count; i++) {
		for (k = 0; k < b->reason_count; k++) {
			if (a->reasons[i].stack == b->reasons[k].stack &&
			    (a->reasons[i].delta_bytes < 0) == (b->reasons[k].delta_bytes < 0))
				return true;
		}
	}
	return false;
}

static int join(const struct fleet *fleet, struct fleet_groups *groups,
		const struct fleet_group *found, uint32_t rank)
{
	struct fleet_group *group = NULL;
	size_t i;

	for (i = 0; i < groups->count && group == NULL; i++) {
		if (is_alike(fleet, &groups->all[i], found, rank))
			group = &groups->all[i];
	}
	if (group == NULL) {
		group = add_group(groups);
		if (group == NULL)
			return -ENOMEM;
		*group = *found;
	} else if (fabs(found->z) > fabs(group->z)) {
		uint32_t *ranks = group->ranks;
		size_t count = group->count, room = group->room;

		*group = *found;
		group->ranks = ranks;
		group->count = count;
		group->room = room;
	}
	return add_rank(group, rank);
}

/* Why the rank stands out in this pool. False: it does not. */
static bool stands_out(const struct fleet *fleet, const struct figures_of_pool *of, uint32_t rank,
		       struct fleet_group *out)
{
	double base = of->peaks.median, least = base * FLOOR_SHARE;
	double peak = of->peak[rank] - base, distance = of->distance[rank] - of->distances.median;
	double growth = of->growth[rank] - of->growths.median;
	double peak_z = score(of->peak[rank], &of->peaks, least);
	double distance_z = score(of->distance[rank], &of->distances, least);
	double growth_z = score(of->growth[rank], &of->growths, least / 100);
	bool by_peak = fabs(peak) >= PEAK_SHARE * base && fabs(peak_z) >= PEAK_SCORE * of->factor;
	bool by_distance =
		distance >= DISTANCE_SHARE * base && distance_z >= DISTANCE_SCORE * of->factor;
	double odd_z = score(of->odd[rank], &of->odds, ODD_FLOOR);
	bool by_places = of->odd_bytes[rank] >= ODD_SHARE * base && odd_z >= ODD_SCORE * of->factor;
	bool by_growth = growth * (double)fleet->ranks[rank].steps >= GROWTH_SHARE * base &&
			 growth_z >= DISTANCE_SCORE * of->factor &&
			 fleet->ranks[rank].pools[of->pool].grows;

	*out = (struct fleet_group){.pool = of->pool};
	if (base <= 0 || (!by_peak && !by_distance && !by_growth && !by_places))
		return false;
	out->delta_bytes = (int64_t)peak;
	out->share = peak / base;
	out->z = by_peak ? peak_z : by_distance ? distance_z : odd_z;
	if (by_peak || (by_distance && fabs(peak) * 2 >= distance) ||
	    (!by_distance && fabs(of->odd_delta[rank]) * 2 >= of->odd_bytes[rank]))
		out->why = peak > 0 ? FLEET_WHY_MORE : FLEET_WHY_LESS;
	else
		out->why = FLEET_WHY_DIFFERENT;
	if (!by_peak && !by_distance && !by_places) {
		out->why = FLEET_WHY_GROWTH;
		out->delta_bytes = (int64_t)growth;
		out->z = growth_z;
	} else {
		find_reasons(fleet, of, rank, REASON_SCORE, out);
		if (out->reason_count == 0) /* a little more everywhere */
			find_reasons(fleet, of, rank, 0, out);
	}
	return true;
}

/* A leak explains growth, and that a rank holds more: it is told once. */
static bool is_explained(const struct fleet *fleet, const struct fleet_groups *groups,
			 const struct fleet_group *found, uint32_t rank)
{
	double leaked = 0;
	size_t i, k;

	if (found->why != FLEET_WHY_MORE && found->why != FLEET_WHY_GROWTH)
		return false;
	for (i = 0; i < groups->count; i++) {
		const struct fleet_group *group = &groups->all[i];

		for (k = 0; k < group->count && group->why == FLEET_WHY_LEAK; k++) {
			if (group->ranks[k] == rank && group->pool == found->pool)
				leaked += (double)group->delta_bytes;
		}
	}
	if (found->why == FLEET_WHY_GROWTH)
		return leaked > 0;
	return leaked * (double)fleet->ranks[rank].steps >= 0.5 * (double)found->delta_bytes &&
	       leaked > 0;
}

static int find_in_pool(const struct fleet *fleet, uint8_t pool, double *memory,
			struct fleet_groups *out)
{
	size_t m = fleet->rank_count, i;
	struct figures_of_pool of = {.pool = pool,
				     .peak = memory,
				     .growth = memory + m,
				     .distance = memory + 2 * m,
				     .odd = memory + 3 * m,
				     .odd_bytes = memory + 4 * m,
				     .odd_delta = memory + 5 * m,
				     .scratch = memory + 6 * m};
	struct fleet_group found;
	int r = 0;

	measure(fleet, &of);
	for (i = 0; r == 0 && i < m; i++) {
		if (stands_out(fleet, &of, (uint32_t)i, &found) &&
		    !is_explained(fleet, out, &found, (uint32_t)i))
			r = join(fleet, out, &found, (uint32_t)i);
	}
	return r;
}

static int worst_first(const void *a, const void *b)
{
	const struct fleet_group *x = a, *y = b;
	bool x_leaks = x->why == FLEET_WHY_LEAK, y_leaks = y->why == FLEET_WHY_LEAK;

	return ORDER_DOWN(x_leaks, y_leaks) ?:
	       ORDER_DOWN(llabs(x->delta_bytes), llabs(y->delta_bytes)) ?:
	       ORDER_UP(x->ranks[0], y->ranks[0]);
}

int fleet_groups_find(const struct fleet *fleet, struct fleet_groups *out)
{
	double *memory;
	size_t i;
	int r = 0;

	*out = (struct fleet_groups){.few = fleet->rank_count < FLEET_FEW};
	if (out->few)
		return 0;
	memory = calloc(7 * fleet->rank_count, sizeof(*memory));
	if (memory == NULL)
		return -ENOMEM;
	r = find_leaks(fleet, out);
	for (i = 0; r == 0 && i < fleet->pool_count; i++)
		r = find_in_pool(fleet, (uint8_t)i, memory, out);
	if (out->count > 0)
		qsort(out->all, out->count, sizeof(*out->all), worst_first);
	free(memory);
	return r;
}
