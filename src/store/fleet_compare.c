/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fleet compare: two runs, place by place. Which places of both runs are the same is said by findings/differ.h: by stack, then by
 * functions, then by what people see as one line. Ranks are compared one by one where both runs have the
 * same ranks, else each with the median of the other run.
 *
 * A place has changed in general when the median of all differences is certain: far from 0 in units of its own error. Else single
 * ranks may have changed: those whose difference is far from what is usual among the others.
 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/shown.h"
#include "findings/differ.h"
#include "base/whole.h"
#include "store/fleet.h"

#define SURE	    5.0	  /* errors of the median */
#define FAR	    6.0	  /* spreads of single ranks */
#define PLACE_SHARE 0.01  /* of the place */
#define PEAK_SHARE  0.001 /* of the pool's peak: less is not worth a line */

struct pair {
	const struct fleet_place *of[2]; /* the first of each run; comparing.next has the rest */
	const struct fleet_place *largest[2]; /* NULL: the run has no such place */
	bool there[2];
	uint32_t leaks[2]; /* ranks in which one leaks */
	uint32_t ranks;	   /* that changed */
	double delta;	   /* median of these */
	double total;	   /* of all ranks */
	double median[2];  /* bytes in each run */
	bool moved;	   /* found by its functions alone */
};

struct comparing {
	struct fleet *sides[2];
	bool paired; /* the same ranks */
	/* Pools of the second run, by those of the first; FLEET_POOLS: none. */
	uint8_t pool_of[FLEET_POOLS];
	struct differ differ;
	/* Of each place of a run: its line, and the next place of the same one. */
	uint32_t *line_of[2];
	const struct fleet_place **next[2];
	struct pair *pairs;
	size_t count;
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

static int take_loose(void *arg, const struct store_value *values, size_t count)
{
	if (count > 0)
		*(int64_t *)arg = values[0].number;
	return 0;
}

static uint64_t loose_of(const struct fleet *fleet, int64_t stack)
{
	struct store_value key = store_int(stack);
	int64_t loose = stack;

	(void)store_query(fleet->store, "SELECT loose FROM stacks WHERE stack = $1", &key, 1,
			  take_loose, &loose, NULL);
	return (uint64_t)loose;
}

/* The number of a place's pool, the same for both runs. */
static uint64_t group_of(const struct comparing *c, int side, const struct fleet_place *place)
{
	size_t i;

	for (i = 0; i < FLEET_POOLS && side == 1; i++) {
		if (c->pool_of[i] == place->pool)
			return i;
	}
	return side == 0 ? place->pool : FLEET_POOLS + (size_t)place->pool;
}

static int add_places(struct comparing *c, int side)
{
	const struct fleet *fleet = c->sides[side];
	size_t i;
	int r = 0;

	c->line_of[side] = calloc(fleet->place_count + 1, sizeof(*c->line_of[side]));
	c->next[side] = calloc(fleet->place_count + 1, sizeof(*c->next[side]));
	if (c->line_of[side] == NULL || c->next[side] == NULL)
		return -ENOMEM;
	for (i = 0; i < fleet->place_count && r == 0; i++) {
		const struct fleet_place *place = &fleet->places[i];
		struct differ_keys keys = {(uint64_t)place->stack, (uint64_t)place->stack};
		uint32_t line;

		r = differ_add(&c->differ, side, group_of(c, side, place), keys, &line);
		if (r < 0)
			break;
		c->line_of[side][i] = line;
		c->differ.lines[line].alike[side][0] = place->median_bytes;
		c->differ.lines[line].alike[side][1] = place->count;
	}
	return r;
}

/* Places of one run alone meet by their functions: the store has that key of each stack. */
static int match_moved(struct comparing *c)
{
	int side;
	size_t i;

	for (side = 0; side < 2; side++) {
		for (i = 0; i < c->sides[side]->place_count; i++) {
			struct differ_line *line = &c->differ.lines[c->line_of[side][i]];

			if (!line->there[!side])
				line->keys.loose =
					loose_of(c->sides[side], c->sides[side]->places[i].stack);
		}
	}
	return differ_pair(&c->differ);
}

/* A pair for each line, with the places that it has in each run. */
static int make_pairs(struct comparing *c)
{
	int side;
	size_t i;

	c->count = c->differ.count;
	free(c->pairs);
	c->pairs = calloc(c->count + 1, sizeof(*c->pairs));
	if (c->pairs == NULL)
		return -ENOMEM;
	for (side = 0; side < 2; side++) {
		for (i = c->sides[side]->place_count; i-- > 0;) {
			const struct fleet_place *place = &c->sides[side]->places[i];
			uint32_t line = differ_line(&c->differ, c->line_of[side][i]);
			struct pair *pair = &c->pairs[line];

			c->next[side][i] = pair->of[side];
			if (pair->largest[side] == NULL ||
			    place->median_bytes >= pair->largest[side]->median_bytes)
				pair->largest[side] = place;
			pair->of[side] = place;
			pair->there[side] = true;
			pair->moved = c->differ.lines[line].moved;
			pair->leaks[side] =
				pair->leaks[side] > place->leaks ? pair->leaks[side] : place->leaks;
		}
	}
	return 0;
}

static int match_places(struct comparing *c)
{
	int r = add_places(c, 0);

	if (r == 0)
		r = add_places(c, 1);
	if (r == 0)
		r = match_moved(c);
	return r == 0 ? make_pairs(c) : r;
}

/* ---- what changed ---- */

/* Bytes of a line in each rank of a run. */
static void bytes_of(const struct comparing *c, int side, const struct pair *pair, double *out)
{
	const struct fleet *fleet = c->sides[side];
	const struct fleet_place *place = pair->of[side];
	size_t i;

	memset(out, 0, fleet->rank_count * sizeof(*out));
	for (; place != NULL; place = c->next[side][place - fleet->places]) {
		for (i = 0; i < place->count; i++) {
			const struct fleet_entry *entry = &fleet->entries[place->from + i];

			out[entry->rank] += (double)entry->peak_bytes;
		}
	}
}

static double median_of(const struct comparing *c, int side, const struct pair *pair)
{
	bytes_of(c, side, pair, c->scratch);
	return fleet_spread(c->scratch, c->sides[side]->rank_count).median;
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

	bytes_of(c, 0, pair, c->scratch);
	bytes_of(c, 1, pair, c->values);
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
	size_t pool = pair->there[1] ? pair->of[1]->pool : c->pool_of[pair->of[0]->pool];
	double peak = pool == FLEET_POOLS ? 0 : pool_peak(c, 1, pool).median;
	double error, size, least;
	struct fleet_spread spread;
	bool general;

	pair->median[0] = median_of(c, 0, pair);
	pair->median[1] = median_of(c, 1, pair);
	error = differences(c, pair);
	memcpy(c->scratch, c->values, n * sizeof(*c->values));
	spread = fleet_spread(c->scratch, n);
	error = hypot(error, error_of_median(spread.spread, n));
	size = pair->median[!pair->there[0]];
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
	return pair->there[1] ? pair->largest[1] : pair->largest[0];
}

static int most_first(const void *a, const void *b)
{
	const struct pair *x = a, *y = b;
	const int64_t left[2] = {0, llround(x->delta * x->ranks)},
		      right[2] = {0, llround(y->delta * y->ranks)};
	int order = differ_order(left, right);

	if (order != 0)
		return order;
	return place_of(x)->stack < place_of(y)->stack ? -1 : 1;
}

/* A leak that only one of the runs has is a change, whatever its size. */
static bool leaks_changed(const struct pair *pair)
{
	return (pair->leaks[0] > 0) != (pair->leaks[1] > 0);
}

/* ---- answers ---- */

static char *label_of(struct comparing *c, const struct pair *pair)
{
	return fleet_label(c->sides[pair->there[1]], place_of(pair)->stack);
}

static const char *pool_name(const struct comparing *c, const struct pair *pair)
{
	return c->sides[pair->there[1]]->pools[place_of(pair)->pool];
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
		json_string(&json, "kind", differ_kind(pair->there, llround(pair->delta)));
		json_bool(&json, "moved", pair->moved);
		json_u64(&json, "ranks", pair->ranks);
		json_f64(&json, "delta_bytes", pair->delta, 0);
		json_f64(&json, "total_bytes", pair->total, 0);
		json_u64(&json, "base_median_bytes", whole(pair->median[0]));
		json_u64(&json, "other_median_bytes", whole(pair->median[1]));
		json_u64(&json, "base_leaks", pair->leaks[0]);
		json_u64(&json, "other_leaks", pair->leaks[1]);
		json_end(&json);
		free(label);
	}
	json_end(&json);
	json_end(&json);
	strbuf_add_char(out, '\n');
}

static void write_text(struct comparing *c, size_t changed, size_t lines, uint32_t top,
		       struct strbuf *out)
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
		    lines);
	for (i = 0; i < changed && i < top; i++) {
		const struct pair *pair = &c->pairs[i];
		struct strbuf delta = {0};
		char *label = label_of(c, pair);

		fleet_add_delta(pair->delta, &delta);
		strbuf_addf(out, "  %11s in %u of %zu ranks, %-6s ", strbuf_str(&delta),
			    pair->ranks, n, differ_kind(pair->there, llround(pair->delta)));
		if (label != NULL)
			strbuf_add_shown(out, label, strnlen(label, 200));
		if (leaks_changed(pair))
			strbuf_addf(out, "  (leaks in %u ranks, before in %u)", pair->leaks[1],
				    pair->leaks[0]);
		strbuf_add_char(out, '\n');
		strbuf_fini(&delta);
		free(label);
	}
	if (changed > top)
		strbuf_addf(out, "  and %zu more (--top=N)\n", changed - top);
}

/* Judges each pair; true in `changed`: it is worth a line. How many there are. */
static size_t judge_all(struct comparing *c, bool *changed)
{
	size_t i, count = 0;

	for (i = 0; i < c->count; i++) {
		struct pair *pair = &c->pairs[i];

		changed[i] = false;
		if (!pair->there[0] && !pair->there[1])
			continue;
		count++;
		judge(c, pair);
		changed[i] = pair->ranks > 0 || leaks_changed(pair);
	}
	return count;
}

/* Places that changed and read the same are one. Only their names are asked for: a store may be far away. */
static int join_changed(struct comparing *c, const bool *changed)
{
	size_t i;
	int r = 0;

	for (i = 0; i < c->count && r == 0; i++) {
		char *label = changed[i] ? label_of(c, &c->pairs[i]) : NULL;

		if (changed[i])
			r = label == NULL ? -ENOMEM : differ_join(&c->differ, (uint32_t)i, label);
		free(label);
	}
	return r == 0 ? make_pairs(c) : r;
}

static int find_changes(struct comparing *c, size_t *out_changed, size_t *out_lines)
{
	bool *changed;
	size_t i, kept = 0;
	int r;

	match_pools(c);
	r = match_places(c);
	changed = calloc(c->count + 1, sizeof(*changed));
	if (changed == NULL)
		r = -ENOMEM;
	if (r == 0) {
		*out_lines = judge_all(c, changed);
		r = join_changed(c, changed);
	}
	if (r == 0)
		(void)judge_all(c, changed);
	for (i = 0; r == 0 && i < c->count; i++) {
		/* Kept in front; what was there has been judged. */
		if (changed[i])
			c->pairs[kept++] = c->pairs[i];
	}
	if (kept > 1)
		qsort(c->pairs, kept, sizeof(*c->pairs), most_first);
	*out_changed = kept;
	free(changed);
	return r;
}

int fleet_compare(struct fleet *base, struct fleet *other, const struct fleet_ask *ask,
		  struct strbuf *out)
{
	struct comparing c = {.sides = {base, other}};
	size_t most = base->rank_count > other->rank_count ? base->rank_count : other->rank_count;
	size_t changed = 0, lines = 0;
	int side, r = 0;

	c.values = calloc(most + 1, sizeof(double));
	c.scratch = calloc(most + 1, sizeof(double));
	if (c.values == NULL || c.scratch == NULL)
		r = -ENOMEM;
	if (r == 0)
		r = find_changes(&c, &changed, &lines);
	if (r == 0 && ask->json)
		write_json(&c, changed, out);
	else if (r == 0)
		write_text(&c, changed, lines, ask->top > 0 ? ask->top : 15, out);
	differ_fini(&c.differ);
	for (side = 0; side < 2; side++) {
		free(c.line_of[side]);
		free(c.next[side]);
	}
	free(c.pairs);
	free(c.values);
	free(c.scratch);
	return r < 0 ? r : strbuf_failed(out) ? -ENOMEM : 0;
}
