/* SPDX-License-Identifier: Apache-2.0 */
#include "analysis/growth.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Blocks that come ever more rarely are a cache that fills: below this trend nothing is called a leak. */
#define TREND_MIN -1.0

void growth_fini(struct growth *g)
{
	free(g->ages);
	free(g->rises);
	*g = (struct growth){0};
}

/* ---- ages ---- */

/* Largest age of a bucket: 0 1 2 3 5 7 11 15 23 31 47 63 ... */
static uint32_t bucket_edge(uint32_t bucket)
{
	if (bucket < 4)
		return bucket;
	return bucket % 2 == 0 ? (3u << (bucket / 2 - 1)) - 1 : (4u << (bucket / 2 - 1)) - 1;
}

static uint32_t bucket_of(uint32_t age)
{
	uint32_t bucket = 0;

	while (bucket + 1 < GROWTH_AGES && bucket_edge(bucket) < age)
		bucket++;
	return bucket;
}

/* ---- while the run is played ---- */

void growth_alloc(struct growth *g, uint64_t bytes)
{
	g->live += bytes;
}

int growth_free(struct growth *g, uint64_t bytes, uint32_t age)
{
	g->live -= bytes < g->live ? bytes : g->live;
	if (age == 0) {
		g->instep++;
		return 0;
	}
	if (g->ages == NULL) {
		g->ages = calloc(GROWTH_AGES, sizeof(*g->ages));
		if (g->ages == NULL)
			return -ENOMEM;
	}
	g->late++;
	g->ages[bucket_of(age)]++;
	return 0;
}

static uint32_t slot_of(const struct growth_rises *r, uint32_t step)
{
	return step < 2 ? 0 : 1 + (step - 2) / r->slot;
}

/* Makes room for one more: neighbours that lie in one slot of twice the length become one. */
static void merge_slots(struct growth_rises *r)
{
	uint32_t from, to = 0;

	while (r->count == GROWTH_RISES) {
		r->slot *= 2;
		for (from = 1, to = 1; from < r->count; from++) {
			struct growth_rise *top = &r->rise[to - 1];
			const struct growth_rise *next = &r->rise[from];

			if (top->last >= 2 && slot_of(r, top->last) == slot_of(r, next->last)) {
				top->last = next->last;
				top->level = next->level;
				if (next->wait > top->wait)
					top->wait = next->wait;
			} else {
				r->rise[to++] = *next;
			}
		}
		r->count = to;
	}
}

static void push_rise(struct growth_rises *r, struct growth_rise rise)
{
	struct growth_rise *top = r->count == 0 ? NULL : &r->rise[r->count - 1];

	if (top != NULL && top->last >= 2 && slot_of(r, top->last) == slot_of(r, rise.last)) {
		top->last = rise.last;
		top->level = rise.level;
		if (rise.wait > top->wait)
			top->wait = rise.wait;
		return;
	}
	if (r->count == GROWTH_RISES)
		merge_slots(r);
	r->rise[r->count++] = rise;
}

int growth_step(struct growth *g, uint32_t step)
{
	struct growth_rise cut = {0};
	struct growth_rises *r;
	uint64_t base;
	bool was_cut = false;

	g->clean += g->live == g->before;
	if (g->live > g->high)
		g->high = g->live;
	if (g->high - g->live > g->drop)
		g->drop = g->high - g->live;
	if (g->rises == NULL && g->live > 0) {
		g->rises = calloc(1, sizeof(*g->rises));
		if (g->rises == NULL)
			return -ENOMEM;
		g->rises->slot = 1;
	}
	r = g->rises;
	g->before = g->live;
	if (r == NULL)
		return 0;
	while (r->count > 0 && r->rise[r->count - 1].level > g->live) {
		cut = r->rise[--r->count];
		was_cut = true;
	}
	base = r->count == 0 ? 0 : r->rise[r->count - 1].level;
	if (g->live <= base)
		return 0;
	if (was_cut) {
		/* The lower part of what was undercut stays, and came as early. */
		double part = (double)(g->live - base) / (double)(cut.level - base);
		uint32_t last = cut.first + (uint32_t)((cut.last - cut.first) * part);

		push_rise(r, (struct growth_rise){cut.first, last, cut.wait, g->live});
	} else {
		uint32_t since = r->count == 0 ? 0 : r->rise[r->count - 1].last;

		push_rise(r, (struct growth_rise){step, step, step - since, g->live});
	}
	return 0;
}

/* ---- at the end ---- */

/* Rises after the first step. */
struct history {
	const struct growth_rise *rise;
	uint32_t count;
	uint64_t base; /* level below the first of them */
	uint32_t steps;
};

static struct history history_of(const struct growth *g, uint32_t steps)
{
	struct history h = {.steps = steps};
	uint32_t i = 0;

	if (g->rises == NULL)
		return h;
	while (i < g->rises->count && g->rises->rise[i].last < 2)
		h.base = g->rises->rise[i++].level;
	h.rise = g->rises->rise + i;
	h.count = g->rises->count - i;
	return h;
}

/* Level that was permanent at the end of a step. A rise over several steps is taken as even. */
static double level_at(const struct history *h, double step)
{
	double level = (double)h->base;
	uint32_t i;

	for (i = 0; i < h->count; i++) {
		const struct growth_rise *rise = &h->rise[i];

		if (rise->last <= step) {
			level = (double)rise->level;
			continue;
		}
		if (rise->first <= step)
			level += ((double)rise->level - level) * (step - rise->first + 1) /
				 (rise->last - rise->first + 1);
		break;
	}
	return level;
}

static uint32_t longest_wait(const struct history *h)
{
	uint32_t wait = 0, i;

	/* The pause before the first rise is none between two. */
	for (i = 1; i < h->count; i++) {
		if (h->rise[i].wait > wait)
			wait = h->rise[i].wait;
	}
	return wait;
}

struct overdue {
	uint32_t blocks;
	uint64_t bytes;
	uint32_t steps;	      /* distinct ones */
	uint32_t first, last; /* of them */
	uint32_t wait;	      /* longest between two */
	uint32_t early, later; /* of the distinct ones: in the first half of [first, end], the first not counted, and behind it */
	uint32_t old_frees;
	double trend; /* of Laplace: below 0 when blocks come ever more rarely, in standard deviations of a steady stream */
};

static uint64_t frees_older(const struct growth *g, int32_t age)
{
	uint64_t sum = 0;
	uint32_t i;

	if (age < 0)
		return (uint64_t)g->instep + g->late;
	for (i = 0; g->ages != NULL && i < GROWTH_AGES; i++) {
		/* The bucket counts when all of its ages are older. */
		if ((i == 0 ? 0 : bucket_edge(i - 1) + 1) > (uint32_t)age)
			sum += g->ages[i];
	}
	return sum;
}

static uint64_t survivors_older(const struct growth_facts *f, int32_t age)
{
	uint64_t count = 0;
	size_t i;

	for (i = 0; i < f->survivor_count; i++) {
		uint32_t step = f->survivors[i].step;

		count += step >= 2 && step <= f->steps && (int32_t)(f->steps - step) > age;
	}
	return count;
}

/* Age within which this place frees nine blocks of ten, -1: it hardly frees. */
static int32_t usual_age(const struct growth *g, const struct growth_facts *f)
{
	uint32_t i;

	for (i = 0; i < GROWTH_AGES; i++) {
		int32_t age = i == 0 ? -1 : (int32_t)bucket_edge(i - 1);
		uint64_t stay = survivors_older(f, age);

		if (age >= 1 && g->late > stay)
			stay = g->late;
		if (10 * frees_older(g, age) <= stay)
			return age;
	}
	return (int32_t)bucket_edge(GROWTH_AGES - 1);
}

static struct overdue overdue_of(const struct growth *g, const struct growth_facts *f, int32_t age)
{
	int32_t limit = 2 * age + 1;
	struct overdue o = {0};
	uint32_t last = 0, half, end = (uint32_t)((int32_t)f->steps - limit - 1);
	double sum = 0;
	size_t i;

	o.old_frees = (uint32_t)frees_older(g, limit);
	for (i = 0; i < f->survivor_count; i++) {
		uint32_t step = f->survivors[i].step;

		if (step < 2 || step > f->steps || (int32_t)(f->steps - step) <= limit)
			continue;
		o.blocks++;
		o.bytes += f->survivors[i].bytes;
		if (step == last)
			continue;
		if (last != 0 && step - last > o.wait)
			o.wait = step - last;
		if (last == 0)
			o.first = step;
		last = step;
		o.steps++;
	}
	o.last = last;
	half = o.first + (end - o.first) / 2;
	last = 0;
	for (i = 0; o.steps > 0 && i < f->survivor_count; i++) {
		uint32_t step = f->survivors[i].step;

		if (step <= o.first || step > o.last || step == last)
			continue;
		last = step;
		sum += (step - o.first - 0.5) / (double)(end - o.first) - 0.5;
		if (step > half)
			o.later++;
		else
			o.early++;
	}
	if (o.steps > 1)
		o.trend = sum * sqrt(12.0 / (o.steps - 1));
	return o;
}

static bool blocks_stay(const struct overdue *o, int32_t end)
{
	return o->later >= 3 && 2 * o->later >= o->early && o->trend > TREND_MIN && end - (int32_t)o->last <= (int32_t)o->wait;
}

static bool level_climbs(const struct history *h, uint32_t wait)
{
	uint32_t first = h->rise[0].first, i, later = 0;
	double half = first + (h->steps - first) / 2.0;
	double at_half = level_at(h, half), at_first = level_at(h, first);
	double end = (double)h->rise[h->count - 1].level;

	for (i = 0; i < h->count; i++)
		later += h->rise[i].last > half;
	return later >= 4 && 2 * (end - at_half) >= at_half - at_first &&
	       h->steps - h->rise[h->count - 1].last <= wait;
}

void growth_judge(const struct growth *g, const struct growth_facts *f, struct growth_judgement *out)
{
	struct history h = history_of(g, f->steps);
	uint32_t q, w, t1;
	struct overdue o;
	int32_t a;
	bool strong, stopped;
	double half;

	*out = (struct growth_judgement){.usual_age = -1};
	if (h.count == 0) {
		out->verdict = GROWTH_KEPT;
		out->reason = GROWTH_FLAT;
		return;
	}
	t1 = h.rise[0].first < 2 ? 2 : h.rise[0].first;
	q = f->steps - h.rise[h.count - 1].last;
	w = longest_wait(&h);
	a = usual_age(g, f);
	o = overdue_of(g, f, a);
	half = t1 + (f->steps - t1) / 2.0;
	strong = (double)g->before - level_at(&h, half) > 3.0 * (double)g->drop;
	if (h.count >= 3)
		stopped = q >= 3 && q >= 3 * w;
	else
		stopped = q >= 3 && q > (t1 - 1 > w ? t1 - 1 : w) &&
			  !(a >= 0 && o.blocks > 0 && (uint64_t)g->instep + g->late >= 4ull * o.blocks);
	out->usual_age = a;
	out->first = t1;
	out->last = h.rise[h.count - 1].last;
	out->rises = h.count;
	out->quiet = q;
	out->overdue = o.blocks;
	out->overdue_bytes = o.bytes;
	out->grown_bytes = g->before - h.base;
	out->verdict = GROWTH_SUSPECT;
	out->reason = GROWTH_TOO_SHORT;
	if (f->owner_holds && h.count <= 2) {
		out->verdict = GROWTH_KEPT;
		out->reason = GROWTH_OWNED;
	} else if (o.blocks > 0 && !stopped && 2 * o.old_frees <= o.blocks &&
		   blocks_stay(&o, (int32_t)f->steps - 2 * a - 2)) {
		out->verdict = GROWTH_LEAK;
		out->reason = GROWTH_STAYS;
	} else if (strong && level_climbs(&h, w)) {
		out->verdict = GROWTH_LEAK;
		out->reason = GROWTH_CLIMBS;
	} else if (a == 0 && g->late == 0 && o.blocks > 0 && g->clean >= 8 && g->instep >= 4ull * o.blocks &&
		   !(h.count >= 3 && stopped)) {
		uint32_t pause = h.count < 3 && t1 - 1 > w ? t1 - 1 : w;
		bool leak = f->stacks_known && o.steps >= 3 && q <= pause;

		out->verdict = leak ? GROWTH_LEAK : GROWTH_SUSPECT;
		out->reason = leak ? GROWTH_FORGETS : GROWTH_ONCE;
	} else if (stopped) {
		out->verdict = GROWTH_KEPT;
		out->reason = GROWTH_STOPPED;
	} else if (a >= 1 && o.blocks == 0 && (int32_t)f->steps >= 2 * (2 * a + 1) && !strong) {
		out->verdict = GROWTH_KEPT;
		out->reason = GROWTH_IN_USE;
	}
}
