/* SPDX-License-Identifier: Apache-2.0 */
#include "analysis/differences.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/segments.h"
#include "analysis/spots.h"
#include "base/array.h"
#include "findings/differ.h"

/* Calls beyond these get no place: each takes a look at its entries. */
#define EXPLAINED_MOST 4096u

/* Calls behind one that the other run does not have, whose memory may differ because of it. */
#define NEAR 3u

/* The gradients and optimizer states of a weight take at most this many times its own size. Adam keeps two states. */
#define FOLLOWERS 8
#define MAKERS	  2 /* lines that may come before them: a list has room for few */

/* No call: what happened behind the last one. */
#define NAME_NONE UINT32_MAX

struct finding {
	const struct compare *compare;
	struct differences *out;
	struct spots spots;
	struct segments segments[2];
	struct map groups; /* of calls that differ alike -> index */
	size_t room, explained;
	int64_t *net, *sum; /* by spot, zero between two uses */
	/* By spot: the calls that one run has alone and that took or freed its blocks, number + 1. */
	uint32_t *alone;
	/* The last such calls, number + 1, and the ordinal of the last of them. */
	uint32_t last_alone;
	size_t last_ordinal;
};

static int64_t size_of(int64_t difference)
{
	return difference < 0 ? -difference : difference;
}

static int64_t gap(const int64_t both[2])
{
	return size_of(both[1] - both[0]);
}

static int64_t larger(int64_t a, int64_t b)
{
	return a > b ? a : b;
}

void differences_fini(struct differences *differences)
{
	free(differences->pools);
	free(differences->places);
	free(differences->calls);
	free(differences->layers);
	strbuf_fini(&differences->texts);
	*differences = (struct differences){0};
}

/* ---- which blocks make a call differ ---- */

static uint32_t device_of_spot(const struct finding *f, uint32_t spot)
{
	return f->out->pools[f->out->places[spot].pool].device;
}

/* Adds what one run has in a segment, with a sign; or looks for the spot that counts most and clears the sums. */
static void add_segment(struct finding *f, int side, const struct segment *segment, uint32_t device)
{
	const struct ledger *ledger = &f->compare->sides[side].ledger;
	int64_t sign = side == 0 ? -1 : 1;
	size_t i;

	for (i = segment->from; i < segment->to; i++) {
		const struct ledger_entry *entry = &ledger->entries[i];
		uint32_t spot = f->spots.of[side][entry->place];

		if (device_of_spot(f, spot) != device ||
		    !f->out->pools[f->out->places[spot].pool].counts)
			continue;
		f->net[spot] += sign * entry->bytes;
		if (entry->bytes > 0)
			f->sum[spot] += sign * entry->bytes;
	}
}

static void find_most(struct finding *f, int side, const struct segment *segment, int64_t best[2],
		      struct difference_call *one)
{
	const struct ledger *ledger = &f->compare->sides[side].ledger;
	size_t i;

	for (i = segment->from; i < segment->to; i++) {
		uint32_t spot = f->spots.of[side][ledger->entries[i].place];
		int64_t net = size_of(f->net[spot]), sum = size_of(f->sum[spot]);

		f->net[spot] = f->sum[spot] = 0;
		if (net > best[0] || (net == best[0] && sum > best[1])) {
			best[0] = net;
			best[1] = sum;
			one->place = spot;
		}
	}
}

static void explain(struct finding *f, const struct segment segments[2], const bool there[2],
		    struct difference_call *one)
{
	int64_t best[2] = {0, 0};
	int side;

	one->place = DIFFERENCE_NONE;
	if (f->explained++ >= EXPLAINED_MOST)
		return;
	for (side = 0; side < 2; side++) {
		if (there[side])
			add_segment(f, side, &segments[side], one->device);
	}
	for (side = 0; side < 2; side++) {
		if (there[side])
			find_most(f, side, &segments[side], best, one);
	}
}

/* The blocks of a call that one run has alone are missed elsewhere too. */
static void touch_alone(struct finding *f, int side, const struct segment *segment, size_t group)
{
	const struct ledger *ledger = &f->compare->sides[side].ledger;
	size_t i;

	for (i = segment->from; i < segment->to; i++)
		f->alone[f->spots.of[side][ledger->entries[i].place]] = (uint32_t)group + 1;
}

/* ---- calls ---- */

/* A row of the comparison, or what is behind the last one of a device. */
struct pair {
	enum difference_kind kind;
	uint32_t name, device;
	size_t ordinal;
	size_t calls[2];
	bool there[2];
};

static bool differs(const struct segment *a, const struct segment *b)
{
	return a->left != b->left || a->peak != b->peak || a->allocated != b->allocated;
}

static int add_pair(struct finding *f, const struct pair *pair)
{
	struct differences *out = f->out;
	struct segment segments[2] = {{0}};
	struct difference_call one = {.kind = pair->kind,
				      .name = pair->name,
				      .device = pair->device,
				      .count = 1,
				      .ordinal = pair->ordinal};
	struct difference_call *group;
	struct map_key key;
	uint64_t *known;
	int side;

	for (side = 0; side < 2; side++) {
		if (!pair->there[side])
			continue;
		segments[side] =
			segments_next(&f->segments[side],
				      segment_end(&f->compare->sides[side], pair->calls[side]));
		one.left[side] = segments[side].left;
		one.peak[side] = segments[side].peak;
		one.allocated[side] = segments[side].allocated;
	}
	if (pair->there[0] && pair->there[1] && !differs(&segments[0], &segments[1]))
		return 0;
	explain(f, segments, pair->there, &one);
	if (f->last_alone != 0 && pair->ordinal > f->last_ordinal &&
	    pair->ordinal - f->last_ordinal <= NEAR)
		one.cause = f->last_alone;
	/* Kernels have no time of their own: what comes before one is its own. */
	one.outside = one.left[0] != one.left[1] && f->compare->level & COMPARE_OPS &&
		      (one.name == NAME_NONE || !(one.name & COMPARE_KERNEL)) &&
		      segments[1].outside - segments[0].outside == one.left[1] - one.left[0];
	key = (struct map_key){(uint64_t)one.name << 32 | one.place,
			       (uint64_t)one.device << 8 | (uint64_t)one.kind << 1 |
				       (uint64_t)one.outside};
	known = map_get(&f->groups, key);
	if (known == NULL) {
		if (ARRAY_RESERVE(out->calls, f->room, out->call_count + 1) < 0 ||
		    map_put(&f->groups, key, out->call_count) < 0)
			return -ENOMEM;
		known = NULL;
		out->calls[out->call_count++] = one;
	}
	side = pair->there[1];
	if (pair->kind == DIFFERENCE_BASE || pair->kind == DIFFERENCE_COMPARE) {
		size_t number = known == NULL ? out->call_count - 1 : *known;

		touch_alone(f, side, &segments[side], number);
		f->last_alone = (uint32_t)number + 1;
		f->last_ordinal = pair->ordinal;
	}
	if (known == NULL)
		return 0;
	group = &out->calls[*known];
	group->count++;
	for (side = 0; side < 2; side++) {
		group->left[side] += one.left[side];
		group->allocated[side] += one.allocated[side];
	}
	if (gap(one.peak) > gap(group->peak))
		memcpy(group->peak, one.peak, sizeof(one.peak));
	return 0;
}

/* Begins to walk the segments of a device in both runs. */
static int walk_device(struct finding *f, uint32_t device)
{
	int side, r = 0;

	for (side = 0; side < 2 && r == 0; side++) {
		segments_end(&f->segments[side]);
		r = segments_begin(&f->segments[side], f->compare, side, device);
	}
	return r;
}

static int find_calls(struct finding *f)
{
	const struct compare *compare = f->compare;
	size_t i, ordinal = 0;
	int r = 0;

	for (i = 0; i < compare->row_count && r == 0; i++) {
		const struct compare_row *row = &compare->rows[i];
		int side = row->call[0] == COMPARE_ABSENT;
		struct pair pair = {
			.kind = row->call[1] == COMPARE_ABSENT ? DIFFERENCE_BASE
				: side == 1		       ? DIFFERENCE_COMPARE
							       : DIFFERENCE_BOTH,
			.name = compare->sides[side].calls[row->call[side]].name,
			.device = row->device,
			.calls = {row->call[0], row->call[1]},
			.there = {row->call[0] != COMPARE_ABSENT, row->call[1] != COMPARE_ABSENT},
		};

		pair.ordinal = ++ordinal;
		if (ordinal == 1)
			r = walk_device(f, row->device);
		if (r == 0)
			r = add_pair(f, &pair);
		if (r < 0 ||
		    (i + 1 < compare->row_count && compare->rows[i + 1].device == row->device))
			continue;
		r = add_pair(f, &(struct pair){.kind = DIFFERENCE_AFTER_ALL,
					       .name = NAME_NONE,
					       .device = row->device,
					       .ordinal = ordinal + 1,
					       .calls = {COMPARE_ABSENT, COMPARE_ABSENT},
					       .there = {true, true}});
		ordinal = f->last_alone = 0;
	}
	return r;
}

static int64_t own_score(const struct difference_call *call)
{
	return larger(gap(call->left), gap(call->peak));
}

static bool is_alone(const struct difference_call *call)
{
	return call->kind == DIFFERENCE_BASE || call->kind == DIFFERENCE_COMPARE;
}

/* Calls that one run has alone make others differ: those that free their blocks, or free others' in their place. They come first. */
static void score_calls(struct finding *f)
{
	struct differences *out = f->out;
	size_t i;

	for (i = 0; i < out->call_count; i++)
		out->calls[i].score = own_score(&out->calls[i]);
	for (i = 0; i < out->call_count; i++) {
		struct difference_call *call = &out->calls[i];
		uint32_t cause = call->place == DIFFERENCE_NONE ? 0 : f->alone[call->place];

		if (cause == 0)
			cause = call->cause;

		if (cause != 0 && !is_alone(call) && call->score > out->calls[cause - 1].score)
			out->calls[cause - 1].score = call->score;
	}
}

/* A call that each run has alone: it only moved. */
static void join_moved(struct differences *out)
{
	size_t i, k;

	for (i = 0; i < out->call_count && i < EXPLAINED_MOST; i++) {
		struct difference_call *a = &out->calls[i];

		for (k = i + 1; k < out->call_count && k < EXPLAINED_MOST; k++) {
			struct difference_call *b = &out->calls[k];
			int side = a->kind == DIFFERENCE_COMPARE;

			if (!is_alone(a) || !is_alone(b) || a->kind == b->kind ||
			    a->name != b->name || a->device != b->device || a->count != b->count)
				continue;
			a->kind = DIFFERENCE_MOVED;
			a->score = larger(a->score, b->score);
			a->left[!side] = b->left[!side];
			a->peak[!side] = b->peak[!side];
			a->allocated[!side] = b->allocated[!side];
			memmove(b, b + 1, (out->call_count - k - 1) * sizeof(*b));
			out->call_count--;
			break;
		}
	}
}

static int calls_by_size(const void *a, const void *b)
{
	const struct difference_call *x = a, *y = b;
	bool first = x->kind == DIFFERENCE_BOTH || x->kind == DIFFERENCE_AFTER_ALL,
	     second = y->kind == DIFFERENCE_BOTH || y->kind == DIFFERENCE_AFTER_ALL;

	if (x->score != y->score)
		return x->score > y->score ? -1 : 1;
	if (first != second)
		return second ? -1 : 1;
	if (gap(x->allocated) != gap(y->allocated))
		return gap(x->allocated) > gap(y->allocated) ? -1 : 1;
	if (x->ordinal != y->ordinal)
		return x->ordinal < y->ordinal ? -1 : 1;
	return x->device < y->device ? -1 : x->device > y->device;
}

/* ---- places ---- */

static int places_by_size(const void *a, const void *b, void *arg)
{
	const struct difference_place *x = a, *y = b;
	const struct difference_pool *pools = arg;
	int order;

	if (x->differs != y->differs)
		return x->differs ? -1 : 1;
	/* A pool of a framework makes the driver's memory grow. */
	if (pools[x->pool].counts != pools[y->pool].counts)
		return pools[x->pool].counts ? -1 : 1;
	order = differ_order(gap(x->end) > gap(x->at_peak) ? x->end : x->at_peak,
			     gap(y->end) > gap(y->at_peak) ? y->end : y->at_peak);
	if (order == 0)
		order = differ_order(x->most, y->most);
	if (order != 0)
		return order;
	if (gap(x->allocated) != gap(y->allocated))
		return gap(x->allocated) > gap(y->allocated) ? -1 : 1;
	if (x->life[1] - x->life[0] != y->life[1] - y->life[0])
		return size_of((int64_t)(x->life[1] - x->life[0])) >
				       size_of((int64_t)(y->life[1] - y->life[0]))
			       ? -1
			       : 1;
	if (x->place[1] != y->place[1])
		return x->place[1] < y->place[1] ? -1 : 1;
	return x->place[0] < y->place[0] ? -1 : 1;
}

/* Marks the places that differ. How long blocks lived counts where nothing else tells. */
static void mark_places(struct differences *out)
{
	bool any = out->call_count > 0;
	size_t i;

	for (i = 0; i < out->place_count; i++) {
		struct difference_place *place = &out->places[i];

		place->differs = gap(place->at_peak) != 0 || gap(place->end) != 0 ||
				 gap(place->most) != 0 || gap(place->allocated) != 0 ||
				 place->blocks[0] != place->blocks[1];
		any = any || place->differs;
	}
	for (i = 0; i < out->place_count && !any; i++)
		out->places[i].differs = out->places[i].life[0] != out->places[i].life[1];
}

struct ranked {
	struct difference_place place;
	uint32_t was;
};

/* Whether a name ends with a function, or has it before another. */
static bool has_function(const char *name, const char *function, bool last)
{
	const char *at = name;
	size_t length = strlen(function);

	while ((at = strstr(at, function)) != NULL) {
		at += length;
		if (*at == '\0' || (!last && strncmp(at, " -> ", 4) == 0))
			return true;
	}
	return false;
}

/* Gradients and states of an optimizer. */
static bool follows_weights(const struct differences *out, const struct difference_place *place)
{
	const char *name = difference_text(out, place->name);

	return has_function(name, ".step", false) || has_function(name, "Tensor.backward", false);
}

/*
 * A layer that is made larger has larger gradients and states, which are more than itself: the line that makes it comes before them.
 */
static void put_makers_first(const struct differences *out, struct ranked *ranked)
{
	size_t i, from = 0, moved = 0;

	while (from < out->place_count && ranked[from].place.differs &&
	       !follows_weights(out, &ranked[from].place))
		from++;
	for (i = from; i < out->place_count && ranked[i].place.differs && moved < MAKERS; i++) {
		struct ranked made = ranked[i];

		if (made.place.pool != ranked[from].place.pool ||
		    FOLLOWERS * gap(made.place.end) < gap(ranked[from].place.end) ||
		    gap(made.place.end) == 0 ||
		    !has_function(difference_text(out, made.place.name), "__init__", true))
			continue;
		memmove(&ranked[from + 1], &ranked[from], (i - from) * sizeof(*ranked));
		ranked[from++] = made;
		moved++;
	}
}

/* Puts those that differ first; calls are told where theirs went. */
static int find_places(struct finding *f)
{
	struct differences *out = f->out;
	struct ranked *ranked = calloc(out->place_count + 1, sizeof(*ranked));
	uint32_t *now = calloc(out->place_count + 1, sizeof(*now));
	size_t i;
	int r = ranked == NULL || now == NULL ? -ENOMEM : 0;

	mark_places(out);
	for (i = 0; i < out->place_count && r == 0; i++)
		ranked[i] = (struct ranked){out->places[i], (uint32_t)i};
	if (r == 0)
		qsort_r(ranked, out->place_count, sizeof(*ranked), places_by_size, out->pools);
	if (r == 0)
		put_makers_first(out, ranked);
	for (i = 0; i < out->place_count && r == 0; i++) {
		out->places[i] = ranked[i].place;
		out->differing_places += ranked[i].place.differs;
		now[ranked[i].was] = (uint32_t)i;
	}
	for (i = 0; i < out->call_count && r == 0; i++) {
		if (out->calls[i].place != DIFFERENCE_NONE)
			out->calls[i].place = now[out->calls[i].place];
	}
	free(ranked);
	free(now);
	return r;
}

static void find_outside(struct finding *f)
{
	int side;
	size_t i;

	if (!(f->compare->level & COMPARE_OPS))
		return;
	for (side = 0; side < 2; side++) {
		const struct ledger *ledger = &f->compare->sides[side].ledger;

		for (i = ledger->from; i < ledger->to; i++) {
			const struct ledger_entry *entry = &ledger->entries[i];
			uint32_t pool = ledger->places[entry->place].pool;

			if (entry->outside &&
			    compare_counts_pool(f->compare, ledger->pools[pool].pool))
				f->out->outside[side] += entry->bytes;
		}
	}
}

int differences_find(const struct compare *compare, struct differences *out)
{
	struct finding f = {.compare = compare, .out = out};
	int r;

	*out = (struct differences){0};
	r = spots_find(compare, out, &f.spots);
	f.net = calloc(out->place_count + 1, sizeof(*f.net));
	f.sum = calloc(out->place_count + 1, sizeof(*f.sum));
	f.alone = calloc(out->place_count + 1, sizeof(*f.alone));
	if (f.net == NULL || f.sum == NULL || f.alone == NULL)
		r = -ENOMEM;
	if (r == 0)
		r = find_calls(&f);
	if (r == 0) {
		score_calls(&f);
		join_moved(out);
		r = find_places(&f);
	}
	if (r == 0) {
		find_outside(&f);
		if (out->call_count > 0)
			qsort(out->calls, out->call_count, sizeof(*out->calls), calls_by_size);
	}
	spots_fini(&f.spots);
	segments_end(&f.segments[0]);
	segments_end(&f.segments[1]);
	map_fini(&f.groups);
	free(f.net);
	free(f.sum);
	free(f.alone);
	if (r < 0)
		differences_fini(out);
	return r;
}
