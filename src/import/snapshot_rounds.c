/* SPDX-License-Identifier: Apache-2.0 */
#include "import/snapshot_rounds.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>

#include "base/hash.h"
#include "base/map.h"
#include "import/pickle.h"
#include "trace/run.h"

/* The work: call sites that may allocate in every round. `of` gets 0 for these, and UINT64_MAX for others. */
static size_t find_work(const struct round_event *events, size_t count, uint32_t sites,
			uint64_t *of)
{
	size_t work = 0, allocations = 0, at = 0, i;

	for (i = 0; i < count; i++) {
		of[events[i].site] += events[i].site != 0;
		allocations += events[i].site != 0;
	}
	for (i = 1; i <= sites; i++)
		of[i] = of[i] >= RUN_ROUNDS_MIN ? 1 : UINT64_MAX;
	/* What the beginning alone does is none: the model is made there. */
	for (i = 0; i < count; i++) {
		at += events[i].site != 0;
		if (events[i].site != 0 && of[events[i].site] == 1 &&
		    at >= allocations / RUN_ROUNDS_MIN) {
			of[events[i].site] = 0;
			work++;
		}
	}
	for (i = 1; i <= sites; i++)
		of[i] = of[i] == 0 ? 0 : UINT64_MAX;
	return work;
}

int64_t rounds_find(const struct round_event *events, size_t count, uint32_t sites, size_t *ends,
		    size_t *out_ends)
{
	/* The turn in which each call site allocated last. A turn is a round, or its start once more. */
	uint64_t *of = calloc((size_t)sites + 1, sizeof(*of)), turn = 1, took = 0, gave = 0;
	int64_t rounds = 0, level = 0, least = 0;
	size_t work, wanted, met = 0, i;
	bool follows = false; /* work since the end of the last round */

	if (of == NULL)
		return -ENOMEM;
	work = find_work(events, count, sites, of);
	/* One call site alone is a loop. */
	wanted = work < 2 ? 2 : work - work / 10;
	for (i = 0; i < count; i++) {
		const struct round_event *event = &events[i];
		bool works = event->site != 0 && of[event->site] != UINT64_MAX;
		bool ends_now;

		level +=
			event->site != 0 ? (int64_t)event->size_bytes : -(int64_t)event->size_bytes;
		/* The round before has not held less: it ends here, or later. */
		ends_now = rounds > 0 && level <= least;
		if (!ends_now) {
			met += works && of[event->site] != turn;
			of[event->site] = works ? turn : of[event->site];
			took += works || (rounds > 0 && event->site != 0) ? event->size_bytes : 0;
			gave += event->site == 0 ? event->size_bytes : 0;
			follows |= works;
			if (met < wanted || gave / 3 < took / 4)
				continue;
			rounds++;
		}
		ends[rounds - 1] = event->entry;
		least = level;
		took = gave = 0;
		met = 0;
		turn++;
		follows = false;
	}
	*out_ends = (size_t)rounds - (rounds > 0 && !follows);
	free(of);
	return rounds;
}

/* ---- of a file ---- */

struct reading {
	const struct pickle *pickle;
	struct map lists; /* list of frames -> number of the call site */
	struct map sites; /* two hashes of its frames, or its size -> number */
	size_t left;	  /* parts of the file that may still be read */
	int error;
};

static bool visit(struct reading *r)
{
	if (r->left == 0)
		return false;
	r->left--;
	return r->error == 0;
}

static void remember(struct reading *r, struct map *map, struct map_key key, uint64_t value)
{
	if (map_put(map, key, value) < 0)
		r->error = -ENOMEM;
}

static struct map_key add_frame(const struct reading *r, struct map_key key, uint32_t frame)
{
	uint64_t line = pickle_u64(r->pickle, pickle_at(r->pickle, frame, "line"), 0);
	size_t bytes;
	const char *text = pickle_text(r->pickle, pickle_at(r->pickle, frame, "name"), &bytes);

	key.a = hash_add(key.a, text, bytes);
	text = pickle_text(r->pickle, pickle_at(r->pickle, frame, "filename"), &bytes);
	key.b = hash_add(hash_add(key.b, text, bytes), &line, sizeof(line));
	return key;
}

/* The call site of an entry: its frames, or its size where it has none. */
static uint32_t site_of(struct reading *r, uint32_t entry, uint64_t size)
{
	uint32_t list = pickle_at(r->pickle, entry, "frames");
	size_t count, i;
	const uint32_t *frames = pickle_list(r->pickle, list, &count);
	struct map_key key =
		count == 0 ? (struct map_key){size, 0} : (struct map_key){HASH_BEGIN, ~HASH_BEGIN};
	const uint64_t *known = count == 0 ? NULL : map_get(&r->lists, (struct map_key){list, 0});
	uint64_t number;

	if (known != NULL)
		return (uint32_t)*known;
	for (i = 0; i < count && visit(r); i++)
		key = add_frame(r, key, frames[i]);
	known = map_get(&r->sites, key);
	number = known != NULL ? *known : r->sites.count + 1;
	if (known == NULL)
		remember(r, &r->sites, key, number);
	if (count > 0)
		remember(r, &r->lists, (struct map_key){list, 0}, number);
	return (uint32_t)number;
}

static int64_t rounds_of(struct reading *r, const uint32_t *entries, size_t count, size_t *ends,
			 size_t *out_ends)
{
	struct round_event *events = calloc(count + 1, sizeof(*events));
	int64_t rounds = 0;
	size_t i, to = 0;

	r->error = events == NULL ? -ENOMEM : 0;
	for (i = 0; i < count && visit(r); i++) {
		uint32_t action = pickle_at(r->pickle, entries[i], "action");
		uint64_t size = pickle_u64(r->pickle, pickle_at(r->pickle, entries[i], "size"), 0);
		bool alloc = pickle_is(r->pickle, action, "alloc");

		/* Sums of sizes that no device has would not fit. */
		if ((!alloc && !pickle_is(r->pickle, action, "free_requested")) || size >> 44 != 0)
			continue;
		events[to++] =
			(struct round_event){alloc ? site_of(r, entries[i], size) : 0, size, i};
	}
	if (r->error == 0 && r->left > 0)
		rounds = rounds_find(events, to, (uint32_t)r->sites.count, ends, out_ends);
	free(events);
	map_fini(&r->lists);
	map_fini(&r->sites);
	return r->error != 0 ? r->error : rounds;
}

int snapshot_rounds_find(const struct pickle *pickle, uint32_t traces, size_t visits_max,
			 struct snapshot_rounds *out)
{
	struct reading reading = {.pickle = pickle, .left = visits_max};
	size_t devices, count, d;
	const uint32_t *list = pickle_list(pickle, traces, &devices);
	int64_t rounds = 0;

	*out = (struct snapshot_rounds){.count = UINT64_MAX};
	for (d = 0; d < devices && reading.left > 0 && rounds >= 0; d++) {
		const uint32_t *entries = pickle_list(pickle, list[d], &count);
		size_t *ends, end_count = 0;

		if (count == 0)
			continue;
		ends = calloc(count, sizeof(*ends));
		rounds = ends == NULL ? -ENOMEM
				      : rounds_of(&reading, entries, count, ends, &end_count);
		if (rounds >= 0 && (uint64_t)rounds < out->count)
			out->count = (uint64_t)rounds;
		if (end_count > out->end_count) {
			free(out->ends);
			out->ends = ends;
			out->end_count = end_count;
			out->device = (uint32_t)d;
		} else {
			free(ends);
		}
	}
	if (rounds < 0 || reading.left == 0 || out->count == UINT64_MAX)
		out->count = 0;
	if (out->count < RUN_ROUNDS_MIN)
		out->end_count = 0;
	return rounds < 0 ? (int)rounds : 0;
}

void snapshot_rounds_fini(struct snapshot_rounds *rounds)
{
	free(rounds->ends);
	*rounds = (struct snapshot_rounds){0};
}
