/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fleet compare: two runs, place by place. A place of one run is the same place of the other by its stack, and what is then left over
 * by its stack without line numbers, because an edit above a line moves it. Ranks are compared one by one where both runs have the
 * same ranks, else each with the median of the other run.
 *
 * A place has changed in general when the median of all differences is certain: far from 0 in units of its own error. Else single
 * ranks may have changed: those whose difference is far from what is usual among the others.
 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/shown.h"
#include "base/whole.h"
#include "store/fleet.h"

#define SURE	    5.0	  /* errors of the median */
#define FAR	    6.0	  /* spreads of single ranks */
#define PLACE_SHARE 0.01  /* of the place */
#define PEAK_SHARE  0.001 /* of the pool's peak: less is not worth a line */

struct pair {
	const struct fleet_place *of[2]; /* NULL: the run has no such place */
	uint32_t ranks;			 /* that changed */
	double delta;			 /* median of these */
	double total;			 /* of all ranks */
	bool moved;			 /* found by its functions alone */
};

struct comparing {
	struct fleet *sides[2];
	bool paired; /* the same ranks */
	/* Pools of the second run, by those of the first; FLEET_POOLS: none. */
	uint8_t pool_of[FLEET_POOLS];
	struct pair *pairs;
	size_t count, room;
	double *values, *scratch;
};

static struct fleet_spread pool_peak(const struct comparing *c, int side, size_t pool)
{
	size_t i;

	for (i = 0; i < c->sides[side]->rank_count; i++)
		c->scratch[i] = (double)c->sides[side]->ranks[i].pools[pool].peak_bytes;
	return fleet_spread(c->scratch, c->sides[side]->rank_count);
}

static void match_pools(struct comparing *c)
{
	size_t i, k;

	for (i = 0; i < FLEET_POOLS; i++) {
		c->pool_of[i] = FLEET_POOLS;
		for (k = 0; i < c->sides[0]->pool_count && k < c->sides[1]->pool_count; k++) {
			if (strcmp(c->sides[0]->pools[i], c->sides[1]->pools[k]) == 0)
				c->pool_of[i] = (uint8_t)k;
		}
	}
	c->paired = c->sides[0]->rank_count == c->sides[1]->rank_count;
	for (i = 0; c->paired && i < c->sides[0]->rank_count; i++)
		c->paired = c->sides[0]->ranks[i].rank == c->sides[1]->ranks[i].rank;
}

/* ---- the same place ---- */

static int add_pair(struct comparing *c, const struct fleet_place *a, const struct fleet_place *b)
{
	if (array_reserve(&c->pairs, &c->room, c->count + 1, sizeof(*c->pairs)) < 0)
		return -ENOMEM;
	c->pairs[c->count++] = (struct pair){.of = {a, b}};
	return 0;
}

static const struct fleet_place *find_place(const struct fleet *fleet, uint8_t pool, int64_t stack)
{
	size_t low = 0, high = fleet->place_count;

	while (low < high) {
		size_t at = (low + high) / 2;
		const struct fleet_place *place = &fleet->places[at];

		if (place->pool < pool || (place->pool == pool && place->stack < stack))
			low = at + 1;
		else
			high = at;
	}
	return low < fleet->place_count && fleet->places[low].pool == pool &&
			       fleet->places[low].stack == stack
		       ? &fleet->places[low]
		       : NULL;
}

static int take_loose(void *arg, const struct store_value *values, size_t count)
{
	if (count > 0)
		*(int64_t *)arg = values[0].number;
	return 0;
}

static int64_t loose_of(const struct fleet *fleet, int64_t stack)
{
	struct store_value key = store_int(stack);
	int64_t loose = stack;

	(void)store_query(fleet->store, "SELECT loose FROM stacks WHERE stack = $1", &key, 1,
			  take_loose, &loose, NULL);
	return loose;
}

/* Places that are in one run alone meet by their functions. */
static void match_loose(struct comparing *c)
{
	int64_t *loose = calloc(c->count + 1, sizeof(*loose));
	size_t i, k;

	for (i = 0; loose != NULL && i < c->count; i++) {
		const struct pair *pair = &c->pairs[i];

		if (pair->of[0] == NULL)
			loose[i] = loose_of(c->sides[1], pair->of[1]->stack);
		else if (pair->of[1] == NULL)
			loose[i] = loose_of(c->sides[0], pair->of[0]->stack);
	}
	for (i = 0; loose != NULL && i < c->count; i++) {
		struct pair *pair = &c->pairs[i];

		for (k = 0; k < c->count && pair->of[0] != NULL && pair->of[1] == NULL; k++) {
			struct pair *other = &c->pairs[k];

			if (other->of[0] != NULL || other->of[1] == NULL || loose[k] != loose[i] ||
			    c->pool_of[pair->of[0]->pool] != other->of[1]->pool)
				continue;
			pair->of[1] = other->of[1];
			pair->moved = true;
			other->of[1] = NULL;
		}
	}
	free(loose);
}

static int match_places(struct comparing *c)
{
	struct fleet *a = c->sides[0], *b = c->sides[1];
	bool *taken = calloc(b->place_count + 1, sizeof(*taken));
	size_t i;
	int r = taken == NULL ? -ENOMEM : 0;

	for (i = 0; r == 0 && i < a->place_count; i++) {
		uint8_t pool = c->pool_of[a->places[i].pool];
		const struct fleet_place *found =
			pool == FLEET_POOLS ? NULL : find_place(b, pool, a->places[i].stack);

		if (found != NULL)
			taken[found - b->places] = true;
		r = add_pair(c, &a->places[i], found);
	}
	for (i = 0; r == 0 && i < b->place_count; i++) {
		if (!taken[i])
			r = add_pair(c, NULL, &b->places[i]);
	}
	free(taken);
	if (r == 0)
		match_loose(c);
	return r;
}

/* ---- what changed ---- */

/* Bytes of a place in each rank of its run. */
static void bytes_of(const struct fleet *fleet, const struct fleet_place *place, double *out)
{
	size_t i;

	memset(out, 0, fleet->rank_count * sizeof(*out));
	for (i = 0; place != NULL && i < place->count; i++) {
		const struct fleet_entry *entry = &fleet->entries[place->from + i];

		out[entry->rank] = (double)entry->peak_bytes;
	}
}

static double error_of_median(double spread, size_t count)
{
	return count == 0 ? 0 : 1.2533 * spread / sqrt((double)count);
}

/* Differences of all ranks of the second run, in c->values; the error of what they are compared with. */
static double differences(struct comparing *c, const struct pair *pair)
{
	size_t i, n = c->sides[1]->rank_count;
	struct fleet_spread base;

	bytes_of(c->sides[0], pair->of[0], c->scratch);
	bytes_of(c->sides[1], pair->of[1], c->values);
	if (c->paired) {
		for (i = 0; i < n; i++)
			c->values[i] -= c->scratch[i];
		return 0;
	}
	base = fleet_spread(c->scratch, c->sides[0]->rank_count);
	for (i = 0; i < n; i++)
		c->values[i] -= base.median;
	return error_of_median(base.spread, c->sides[0]->rank_count);
}

static void judge(struct comparing *c, struct pair *pair)
{
	size_t n = c->sides[1]->rank_count, i, changed = 0;
	size_t pool = pair->of[1] != NULL ? pair->of[1]->pool : c->pool_of[pair->of[0]->pool];
	double peak = pool == FLEET_POOLS ? 0 : pool_peak(c, 1, pool).median;
	double error = differences(c, pair), size, least;
	struct fleet_spread spread;
	bool general;

	memcpy(c->scratch, c->values, n * sizeof(*c->values));
	spread = fleet_spread(c->scratch, n);
	error = hypot(error, error_of_median(spread.spread, n));
	size = (double)(pair->of[0] != NULL ? pair->of[0]->median_bytes
					    : pair->of[1]->median_bytes);
	general = fabs(spread.median) > SURE * error && fabs(spread.median) >= PLACE_SHARE * size &&
		  fabs(spread.median) >= PEAK_SHARE * peak && spread.median != 0;
	least = fmax(fmax(FAR * spread.spread, 0.05 * size), 10 * PEAK_SHARE * peak);
	for (i = 0; i < n; i++) {
		double value = c->values[i];

		pair->total += value;
		if (general ? value * spread.median > 0 && fabs(value) > fabs(spread.median) / 2
			    : fabs(value - spread.median) > least)
			c->scratch[changed++] = value;
	}
	pair->ranks = (uint32_t)changed;
	pair->delta = fleet_spread(c->scratch, changed).median;
}

static const struct fleet_place *place_of(const struct pair *pair)
{
	return pair->of[1] != NULL ? pair->of[1] : pair->of[0];
}

static int most_first(const void *a, const void *b)
{
	const struct pair *x = a, *y = b;
	double left = fabs(x->delta) * x->ranks, right = fabs(y->delta) * y->ranks;

	if (left != right)
		return left > right ? -1 : 1;
	return place_of(x)->stack < place_of(y)->stack ? -1 : 1;
}

/* A leak that only one of the runs has is a change, whatever its size. */
static bool leaks_changed(const struct pair *pair)
{
	bool base = pair->of[0] != NULL && pair->of[0]->leaks > 0;
	bool other = pair->of[1] != NULL && pair->of[1]->leaks > 0;

	return base != other;
}

/* ---- answers ---- */

static const char *kind_of(const struct pair *pair)
{
	return pair->of[0] == NULL   ? "new"
	       : pair->of[1] == NULL ? "gone"
	       : pair->delta > 0     ? "grew"
				     : "shrank";
}

static char *label_of(struct comparing *c, const struct pair *pair)
{
	return fleet_label(c->sides[pair->of[1] != NULL], place_of(pair)->stack);
}

static const char *pool_name(const struct comparing *c, const struct pair *pair)
{
	return c->sides[pair->of[1] != NULL]->pools[place_of(pair)->pool];
}

static void write_json(struct comparing *c, size_t changed, struct strbuf *out)
{
	struct json json;
	size_t i;

	json_begin(&json, out);
	json_object(&json, NULL);
	json_u64(&json, "schema", 1);
	json_string(&json, "base", c->sides[0]->name);
	json_string(&json, "other", c->sides[1]->name);
	json_u64(&json, "base_ranks", c->sides[0]->rank_count);
	json_u64(&json, "other_ranks", c->sides[1]->rank_count);
	json_bool(&json, "by_rank", c->paired);
	json_array(&json, "pools");
	for (i = 0; i < c->sides[0]->pool_count; i++) {
		double base = pool_peak(c, 0, i).median;
		double other =
			c->pool_of[i] == FLEET_POOLS ? 0 : pool_peak(c, 1, c->pool_of[i]).median;

		json_object(&json, NULL);
		json_string(&json, "pool", c->sides[0]->pools[i]);
		json_f64(&json, "base_peak_bytes", base, 0);
		json_f64(&json, "other_peak_bytes", other, 0);
		json_end(&json);
	}
	json_end(&json);
	json_array(&json, "places");
	for (i = 0; i < changed; i++) {
		const struct pair *pair = &c->pairs[i];
		char *label = label_of(c, pair);

		json_object(&json, NULL);
		json_string(&json, "place", label == NULL ? "" : label);
		json_string(&json, "pool", pool_name(c, pair));
		json_string(&json, "kind", kind_of(pair));
		json_bool(&json, "moved", pair->moved);
		json_u64(&json, "ranks", pair->ranks);
		json_f64(&json, "delta_bytes", pair->delta, 0);
		json_f64(&json, "total_bytes", pair->total, 0);
		json_u64(&json, "base_median_bytes",
			 pair->of[0] == NULL ? 0 : pair->of[0]->median_bytes);
		json_u64(&json, "other_median_bytes",
			 pair->of[1] == NULL ? 0 : pair->of[1]->median_bytes);
		json_u64(&json, "base_leaks", pair->of[0] == NULL ? 0 : pair->of[0]->leaks);
		json_u64(&json, "other_leaks", pair->of[1] == NULL ? 0 : pair->of[1]->leaks);
		json_end(&json);
		free(label);
	}
	json_end(&json);
	json_end(&json);
	strbuf_add_char(out, '\n');
}

static void write_text(struct comparing *c, size_t changed, uint32_t top, struct strbuf *out)
{
	size_t i, n = c->sides[1]->rank_count;

	strbuf_add_shown(out, c->sides[0]->name, strnlen(c->sides[0]->name, 60));
	strbuf_add_str(out, " -> ");
	strbuf_add_shown(out, c->sides[1]->name, strnlen(c->sides[1]->name, 60));
	strbuf_addf(out, ": %zu and %zu ranks%s\n", c->sides[0]->rank_count, n,
		    c->paired ? ", compared rank by rank" : ", compared with the median");
	for (i = 0; i < c->sides[0]->pool_count; i++) {
		double base = pool_peak(c, 0, i).median;
		double other =
			c->pool_of[i] == FLEET_POOLS ? 0 : pool_peak(c, 1, c->pool_of[i]).median;

		strbuf_addf(out, "  median peak of %s: ", c->sides[0]->pools[i]);
		strbuf_add_size(out, whole(base));
		strbuf_add_str(out, " -> ");
		strbuf_add_size(out, whole(other));
		strbuf_add_str(out, " (");
		fleet_add_delta(other - base, out);
		strbuf_add_str(out, ")\n");
	}
	strbuf_addf(out,
		    changed == 0 ? "No call site changed: %zu call sites were compared.\n"
				 : "Call sites that changed, of %zu:\n",
		    c->count);
	for (i = 0; i < changed && i < top; i++) {
		const struct pair *pair = &c->pairs[i];
		struct strbuf delta = {0};
		char *label = label_of(c, pair);

		fleet_add_delta(pair->delta, &delta);
		strbuf_addf(out, "  %11s in %u of %zu ranks, %-6s ", strbuf_str(&delta),
			    pair->ranks, n, kind_of(pair));
		if (label != NULL)
			strbuf_add_shown(out, label, strnlen(label, 200));
		if (leaks_changed(pair))
			strbuf_addf(out, "  (leaks in %u ranks, before in %u)",
				    pair->of[1] == NULL ? 0 : pair->of[1]->leaks,
				    pair->of[0] == NULL ? 0 : pair->of[0]->leaks);
		strbuf_add_char(out, '\n');
		strbuf_fini(&delta);
		free(label);
	}
	if (changed > top)
		strbuf_addf(out, "  and %zu more (--top=N)\n", changed - top);
}

int fleet_compare(struct fleet *base, struct fleet *other, const struct fleet_ask *ask,
		  struct strbuf *out)
{
	struct comparing c = {.sides = {base, other}};
	size_t most = base->rank_count > other->rank_count ? base->rank_count : other->rank_count;
	size_t i, changed = 0;
	int r = 0;

	c.values = calloc(most + 1, sizeof(double));
	c.scratch = calloc(most + 1, sizeof(double));
	if (c.values == NULL || c.scratch == NULL)
		r = -ENOMEM;
	if (r == 0) {
		match_pools(&c);
		r = match_places(&c);
	}
	for (i = 0; r == 0 && i < c.count; i++) {
		struct pair pair = c.pairs[i];

		if (pair.of[0] == NULL && pair.of[1] == NULL)
			continue;
		judge(&c, &pair);
		if (pair.ranks == 0 && !leaks_changed(&pair))
			continue;
		/* Kept in front; what stood there was judged already. */
		c.pairs[changed++] = pair;
	}
	if (changed > 1)
		qsort(c.pairs, changed, sizeof(*c.pairs), most_first);
	if (r == 0 && ask->json)
		write_json(&c, changed, out);
	else if (r == 0)
		write_text(&c, changed, ask->top > 0 ? ask->top : 15, out);
	free(c.pairs);
	free(c.values);
	free(c.scratch);
	return r < 0 ? r : strbuf_failed(out) ? -ENOMEM : 0;
}
