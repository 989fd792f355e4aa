/* SPDX-License-Identifier: Apache-2.0 */
#include "store/fleet.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/map.h"
#include "base/whole.h"

/* ---- the run ---- */

static char *text_of(const struct store_value *value)
{
	return strndup(value->text == NULL ? "" : value->text, value->bytes);
}

static int take_run(void *arg, const struct store_value *values, size_t count)
{
	struct fleet *fleet = arg;

	if (fleet->name != NULL || count < 5)
		return 0;
	fleet->run = values[0].number;
	fleet->name = text_of(&values[1]);
	fleet->job = text_of(&values[2]);
	fleet->code = text_of(&values[3]);
	fleet->start_ns = values[4].number;
	return fleet->name == NULL || fleet->job == NULL || fleet->code == NULL ? -ENOMEM : 0;
}

static int take_names(void *arg, const struct store_value *values, size_t count)
{
	struct strbuf *names = arg;

	if (count > 0)
		strbuf_addf(names, "%s%.60s", names->length == 0 ? "" : ", ", values[0].text);
	return 0;
}

static int find_run(struct fleet *fleet, const char *name, struct mscope_error *err)
{
	struct store_value key = store_int(store_key(name, strlen(name)));
	struct strbuf names = {0};
	int r;

	if (name[0] == '\0')
		r = store_query(
			fleet->store,
			"SELECT run, name, job, code, start_ns FROM runs ORDER BY start_ns DESC LIMIT 1",
			NULL, 0, take_run, fleet, err);
	else
		r = store_query(fleet->store,
				"SELECT run, name, job, code, start_ns FROM runs WHERE run = $1",
				&key, 1, take_run, fleet, err);
	if (r < 0 || fleet->name != NULL)
		return r;
	(void)store_query(fleet->store, "SELECT name FROM runs ORDER BY start_ns DESC LIMIT 5",
			  NULL, 0, take_names, &names, NULL);
	r = error_set(err, MSCOPE_E_ABSENT, "%s has no run%s%s; the latest are: %s",
		      fleet->store->name, name[0] == '\0' ? "" : " ", name,
		      names.length == 0 ? "none" : strbuf_str(&names));
	strbuf_fini(&names);
	return r;
}

/* ---- ranks ---- */

static int take_rank(void *arg, const struct store_value *values, size_t count)
{
	struct fleet *fleet = arg;
	struct fleet_rank *rank;

	if (count < 11 || ARRAY_RESERVE(fleet->ranks, fleet->rank_room, fleet->rank_count + 1) < 0)
		return -ENOMEM;
	rank = &fleet->ranks[fleet->rank_count++];
	*rank = (struct fleet_rank){
		.process = values[0].number,
		.rank = values[1].number,
		.numbered = values[1].type == STORE_INT,
		.host = text_of(&values[2]),
		.device = text_of(&values[3]),
		.name = text_of(&values[4]),
		.trace = text_of(&values[5]),
		.steps = values[6].number,
		.seconds = values[7].real,
		.outcome = text_of(&values[8]),
		.verdict = text_of(&values[9]),
		.dry = text_of(&values[10]),
	};
	return rank->dry == NULL ? -ENOMEM : 0;
}

static int by_process(const void *a, const void *b)
{
	const struct fleet_rank *x = a, *y = b;

	return ORDER_UP(x->process, y->process);
}

static struct fleet_rank *rank_of(const struct fleet *fleet, int64_t process)
{
	struct fleet_rank key = {.process = process};

	return fleet->rank_count == 0
		       ? NULL
		       : bsearch(&key, fleet->ranks, fleet->rank_count, sizeof(key), by_process);
}

/* The number of a pool by its name; FLEET_POOLS: there are too many. */
static size_t pool_of(struct fleet *fleet, const struct store_value *name)
{
	size_t i;

	for (i = 0; i < fleet->pool_count; i++) {
		if (strlen(fleet->pools[i]) == name->bytes &&
		    memcmp(fleet->pools[i], name->text, name->bytes) == 0)
			return i;
	}
	if (i == FLEET_POOLS)
		return i;
	fleet->pools[i] = text_of(name);
	if (fleet->pools[i] == NULL)
		return FLEET_POOLS;
	fleet->pool_count++;
	return i;
}

static int take_pool(void *arg, const struct store_value *values, size_t count)
{
	struct fleet *fleet = arg;
	struct fleet_rank *rank = count < 7 ? NULL : rank_of(fleet, values[0].number);
	size_t at = rank == NULL ? FLEET_POOLS : pool_of(fleet, &values[1]);
	struct fleet_pool *pool;

	if (at == FLEET_POOLS)
		return 0;
	pool = &rank->pools[at];
	pool->peak_bytes += (uint64_t)values[2].number;
	pool->end_bytes += (uint64_t)values[3].number;
	/* What an older version stored has none. */
	pool->requested_bytes += (uint64_t)values[values[6].type == STORE_NULL ? 2 : 6].number;
	if (values[4].type != STORE_NULL) {
		pool->judged = true;
		pool->trend_bytes += values[4].real;
		pool->grows = pool->grows ||
			      (values[5].bytes == 5 && memcmp(values[5].text, "grows", 5) == 0);
	}
	return 0;
}

static uint64_t held(const struct fleet_rank *rank)
{
	uint64_t most = 0;
	size_t i;

	for (i = 0; i < FLEET_POOLS; i++)
		most = rank->pools[i].peak_bytes > most ? rank->pools[i].peak_bytes : most;
	return most;
}

static void rank_fini(struct fleet_rank *rank)
{
	free(rank->host);
	free(rank->device);
	free(rank->name);
	free(rank->trace);
	free(rank->outcome);
	free(rank->verdict);
	free(rank->dry);
}

/* By number; of the same number the one that held most first. */
static int by_number(const void *a, const void *b)
{
	const struct fleet_rank *x = a, *y = b;

	if (x->numbered != y->numbered)
		return x->numbered ? -1 : 1;
	if (x->numbered && x->rank != y->rank)
		return x->rank < y->rank ? -1 : 1;
	if (x->numbered && held(x) != held(y))
		return held(x) > held(y) ? -1 : 1;
	return by_process(a, b);
}

/* Leaves one process of each rank. */
static void choose_ranks(struct fleet *fleet)
{
	size_t i, kept = 0;

	qsort(fleet->ranks, fleet->rank_count, sizeof(*fleet->ranks), by_number);
	for (i = 0; i < fleet->rank_count; i++) {
		struct fleet_rank *rank = &fleet->ranks[i];
		bool other =
			fleet->ranks[0].numbered
				? !rank->numbered ||
					  (kept > 0 && fleet->ranks[kept - 1].rank == rank->rank)
				: held(rank) == 0 && fleet->rank_count > 1;

		if (other) {
			fleet->others++;
			rank_fini(rank);
			continue;
		}
		if (!rank->numbered)
			rank->rank = (int64_t)kept;
		fleet->ranks[kept++] = *rank;
	}
	fleet->rank_count = kept;
}

static int by_double(const void *a, const void *b)
{
	const double *x = a, *y = b;

	return ORDER_UP(*x, *y);
}

static double middle(const double *sorted, size_t count)
{
	return count == 0  ? 0
	       : count % 2 ? sorted[count / 2]
			   : (sorted[count / 2 - 1] + sorted[count / 2]) / 2;
}

struct fleet_spread fleet_spread(double *values, size_t count)
{
	struct fleet_spread out = {0};
	size_t i;

	if (count == 0)
		return out;
	qsort(values, count, sizeof(*values), by_double);
	out.median = middle(values, count);
	out.least = values[0];
	out.most = values[count - 1];
	out.low = values[(count - 1) / 10];
	out.high = values[count - 1 - (count - 1) / 10];
	for (i = 0; i < count; i++)
		values[i] = fabs(values[i] - out.median);
	qsort(values, count, sizeof(*values), by_double);
	out.spread = 1.4826 * middle(values, count);
	return out;
}

static int find_main_pool(struct fleet *fleet)
{
	double *values = calloc(fleet->rank_count + 1, sizeof(*values)), most = -1, median;
	size_t i, k;

	if (values == NULL)
		return -ENOMEM;
	for (i = 0; i < fleet->pool_count; i++) {
		for (k = 0; k < fleet->rank_count; k++)
			values[k] = (double)fleet->ranks[k].pools[i].peak_bytes;
		median = fleet_spread(values, fleet->rank_count).median;
		if (median > most) {
			most = median;
			fleet->main_pool = (uint8_t)i;
		}
	}
	free(values);
	return 0;
}

/* ---- places ---- */

struct loading {
	struct fleet *fleet;
	struct map indexes; /* of processes */
};

static int add_entry(struct loading *loading, const struct store_value *values,
		     struct fleet_entry entry)
{
	struct fleet *fleet = loading->fleet;
	const uint64_t *index =
		map_get(&loading->indexes, (struct map_key){(uint64_t)values[0].number, 0});
	size_t pool = index == NULL ? FLEET_POOLS : pool_of(fleet, &values[1]);

	if (pool == FLEET_POOLS)
		return 0;
	if (ARRAY_RESERVE(fleet->entries, fleet->entry_room, fleet->entry_count + 1) < 0)
		return -ENOMEM;
	entry.rank = (uint32_t)*index;
	entry.pool = (uint8_t)pool;
	entry.stack = values[2].number;
	fleet->entries[fleet->entry_count++] = entry;
	return 0;
}

static int take_entry(void *arg, const struct store_value *values, size_t count)
{
	return count < 5 ? 0
			 : add_entry(arg, values,
				     (struct fleet_entry){.peak_bytes = (uint64_t)values[3].number,
							  .end_bytes = (uint64_t)values[4].number});
}

/* What grows is little of all; it joins the place's other entry. */
static int take_growth(void *arg, const struct store_value *values, size_t count)
{
	return count < 5 ? 0
			 : add_entry(arg, values,
				     (struct fleet_entry){.verdict = (uint8_t)values[3].number,
							  .rate_bytes = values[4].real});
}

static bool is_same(const struct fleet_entry *x, const struct fleet_entry *y)
{
	return x->pool == y->pool && x->stack == y->stack && x->rank == y->rank;
}

/* `to` gets the indexes of `from` by their keys, which are below `key_count`; equal ones stay in order. `starts` has one more. */
static void sort_indexes(const uint32_t *keys, size_t key_count, size_t *starts,
			 const uint32_t *from, uint32_t *to, size_t count)
{
	size_t i;

	memset(starts, 0, (key_count + 1) * sizeof(*starts));
	for (i = 0; i < count; i++)
		starts[keys[i] + 1]++;
	for (i = 0; i < key_count; i++)
		starts[i + 1] += starts[i];
	for (i = 0; i < count; i++)
		to[starts[keys[from[i]]]++] = from[i];
}

/* What sorting half a million entries by place and rank needs; it is far faster than comparing them. */
struct sorting {
	uint32_t *places, *ranks; /* of each entry */
	uint32_t *one, *other;	  /* indexes of entries */
	size_t *starts;
	struct fleet_entry *sorted;
};

static int sort_entries(struct fleet *fleet)
{
	size_t count = fleet->entry_count, most, i;
	struct sorting s = {.places = calloc(count + 1, sizeof(uint32_t)),
			    .ranks = calloc(count + 1, sizeof(uint32_t)),
			    .one = calloc(count + 1, sizeof(uint32_t)),
			    .other = calloc(count + 1, sizeof(uint32_t)),
			    .sorted = calloc(count + 1, sizeof(struct fleet_entry))};
	struct map numbers = {0};
	int r = s.places == NULL || s.ranks == NULL || s.one == NULL || s.other == NULL ||
				s.sorted == NULL
			? -ENOMEM
			: 0;

	for (i = 0; r == 0 && i < count; i++) {
		const struct fleet_entry *entry = &fleet->entries[i];
		struct map_key key = {(uint64_t)entry->stack, entry->pool};
		const uint64_t *known = map_get(&numbers, key);

		s.places[i] = known != NULL ? (uint32_t)*known : (uint32_t)numbers.count;
		s.ranks[i] = entry->rank;
		s.one[i] = (uint32_t)i;
		if (known == NULL)
			r = map_put(&numbers, key, numbers.count);
	}
	most = numbers.count > fleet->rank_count ? numbers.count : fleet->rank_count;
	s.starts = calloc(most + 1, sizeof(size_t));
	if (r == 0 && s.starts != NULL) {
		sort_indexes(s.ranks, fleet->rank_count, s.starts, s.one, s.other, count);
		sort_indexes(s.places, numbers.count, s.starts, s.other, s.one, count);
		for (i = 0; i < count; i++)
			s.sorted[i] = fleet->entries[s.one[i]];
		free(fleet->entries);
		fleet->entries = s.sorted;
		fleet->entry_room = count + 1;
		s.sorted = NULL;
	} else {
		r = -ENOMEM;
	}
	map_fini(&numbers);
	free(s.places);
	free(s.ranks);
	free(s.one);
	free(s.other);
	free(s.starts);
	free(s.sorted);
	return r;
}

/* A rank with several devices has a place on each, and what grows has an entry more: together they are one. */
static void join_entries(struct fleet *fleet)
{
	size_t i, kept = 0;

	for (i = 0; i < fleet->entry_count; i++) {
		struct fleet_entry *entry = &fleet->entries[i], *last = entry;

		if (kept > 0)
			last = &fleet->entries[kept - 1];
		if (kept == 0 || !is_same(last, entry)) {
			fleet->entries[kept++] = *entry;
			continue;
		}
		last->peak_bytes += entry->peak_bytes;
		last->end_bytes += entry->end_bytes;
		last->rate_bytes += entry->rate_bytes;
		if (entry->verdict > last->verdict)
			last->verdict = entry->verdict;
	}
	fleet->entry_count = kept;
}

static void judge_place(const struct fleet *fleet, struct fleet_place *place, double *values)
{
	size_t i, zeros = fleet->rank_count - place->count, grown = 0;
	struct fleet_spread spread;

	for (i = 0; i < place->count; i++) {
		const struct fleet_entry *entry = &fleet->entries[place->from + i];

		values[i] = (double)entry->peak_bytes;
		place->leaks += entry->verdict == FLEET_LEAK;
		place->suspects += entry->verdict == FLEET_SUSPECT;
		if (entry->peak_bytes > place->most_bytes)
			place->most_bytes = entry->peak_bytes;
	}
	memset(values + place->count, 0, zeros * sizeof(*values));
	spread = fleet_spread(values, fleet->rank_count);
	place->median_bytes = whole(spread.median);
	place->spread_bytes = spread.spread;
	for (i = 0; i < place->count; i++) {
		const struct fleet_entry *entry = &fleet->entries[place->from + i];

		if (entry->verdict != FLEET_KEPT)
			values[grown++] = entry->rate_bytes;
	}
	place->rate_bytes = fleet_spread(values, grown).median;
}

/* fleet_compare.c searches them. */
static int by_stack(const void *a, const void *b)
{
	const struct fleet_place *x = a, *y = b;

	return ORDER_UP(x->pool, y->pool) ?: ORDER_UP(x->stack, y->stack);
}

static int make_places(struct fleet *fleet)
{
	double *values = calloc(fleet->rank_count + 1, sizeof(*values));
	size_t i, room = 0;

	if (values == NULL)
		return -ENOMEM;
	for (i = 0; i < fleet->entry_count; i++) {
		const struct fleet_entry *entry = &fleet->entries[i];
		struct fleet_place *place;

		if (i > 0 && entry[-1].pool == entry->pool && entry[-1].stack == entry->stack) {
			fleet->places[fleet->place_count - 1].count++;
			continue;
		}
		if (ARRAY_RESERVE(fleet->places, room, fleet->place_count + 1) < 0) {
			free(values);
			return -ENOMEM;
		}
		place = &fleet->places[fleet->place_count++];
		*place = (struct fleet_place){
			.stack = entry->stack, .pool = entry->pool, .from = i, .count = 1};
	}
	if (fleet->place_count > 0)
		qsort(fleet->places, fleet->place_count, sizeof(*fleet->places), by_stack);
	for (i = 0; i < fleet->place_count; i++)
		judge_place(fleet, &fleet->places[i], values);
	free(values);
	return 0;
}

static int load_places(struct fleet *fleet, const struct store_value *key, struct mscope_error *err)
{
	struct loading loading = {.fleet = fleet};
	size_t i;
	int r = 0;

	for (i = 0; r == 0 && i < fleet->rank_count; i++)
		r = map_put(&loading.indexes,
			    (struct map_key){(uint64_t)fleet->ranks[i].process, 0}, i);
	if (r == 0)
		r = store_query(
			fleet->store,
			"SELECT process, pool, stack, peak_bytes, end_bytes FROM places WHERE run = $1",
			key, 1, take_entry, &loading, err);
	if (r == 0)
		r = store_query(
			fleet->store,
			"SELECT process, pool, stack, CASE verdict WHEN 'leak' THEN 2 ELSE 1 END, rate_bytes FROM places WHERE run = $1 AND verdict IN ('leak', 'suspect')",
			key, 1, take_growth, &loading, err);
	map_fini(&loading.indexes);
	if (r < 0)
		return r;
	r = sort_entries(fleet);
	if (r < 0)
		return r;
	join_entries(fleet);
	return make_places(fleet);
}

int fleet_load(struct fleet *fleet, struct store *store, const char *name, struct mscope_error *err)
{
	struct store_value key;
	int r;

	*fleet = (struct fleet){.store = store};
	r = find_run(fleet, name, err);
	if (r < 0)
		return r;
	key = store_int(fleet->run);
	r = store_query(
		store,
		"SELECT process, rank, host, device, name, trace, steps, seconds, outcome, verdict, dry FROM processes WHERE run = $1",
		&key, 1, take_rank, fleet, err);
	if (r == 0 && fleet->rank_count > 0)
		qsort(fleet->ranks, fleet->rank_count, sizeof(*fleet->ranks), by_process);
	if (r == 0)
		r = store_query(
			store,
			"SELECT process, pool, peak_bytes, end_bytes, trend_bytes, trend, requested_bytes FROM pools WHERE run = $1 ORDER BY pool",
			&key, 1, take_pool, fleet, err);
	if (r == 0 && fleet->rank_count > 0) {
		choose_ranks(fleet);
		r = find_main_pool(fleet);
	}
	if (r == 0)
		r = load_places(fleet, &key, err);
	if (r == -ENOMEM)
		(void)error_set(err, r, "no memory");
	return r;
}

void fleet_fini(struct fleet *fleet)
{
	size_t i;

	for (i = 0; i < fleet->rank_count; i++)
		rank_fini(&fleet->ranks[i]);
	for (i = 0; i < fleet->pool_count; i++)
		free(fleet->pools[i]);
	free(fleet->name);
	free(fleet->job);
	free(fleet->code);
	free(fleet->ranks);
	free(fleet->entries);
	free(fleet->places);
	*fleet = (struct fleet){0};
}

static int take_label(void *arg, const struct store_value *values, size_t count)
{
	char **label = arg;

	if (count > 0 && *label == NULL)
		*label = text_of(&values[0]);
	return 0;
}

char *fleet_label(struct fleet *fleet, int64_t stack)
{
	struct store_value key = store_int(stack);
	char *label = NULL;

	(void)store_query(fleet->store, "SELECT label FROM stacks WHERE stack = $1", &key, 1,
			  take_label, &label, NULL);
	return label != NULL ? label : strdup("?");
}
