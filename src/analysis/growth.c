/* SPDX-License-Identifier: Apache-2.0 */
#include "analysis/growth.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"

/* Blocks that come ever more rarely are a cache that fills: below this trend nothing is called a leak. */
#define TREND_MIN    -1.0
#define SHORT_STEPS  100u
#define BRIEF_STEPS  20u
#define TREND_STEPS  8u /* of the later half, when it is looked at alone */
#define RHYTHM_TIMES 3u

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

uint32_t growth_age_get(const struct growth *g, uint32_t bucket)
{
	const struct growth_ages *ages = g->ages;

	return ages == NULL || bucket < ages->first || bucket - ages->first >= ages->count
		       ? 0
		       : ages->frees[bucket - ages->first];
}

/* Most places free at a few ages: only the buckets from the first to the last of these are kept. */
static int widen_ages(struct growth *g, uint32_t bucket)
{
	struct growth_ages *ages = g->ages;
	uint32_t first = ages == NULL || bucket < ages->first ? bucket : ages->first;
	uint32_t old_end = ages == NULL ? bucket : (uint32_t)ages->first + ages->count;
	uint32_t end = bucket + 1 > old_end ? bucket + 1 : old_end, count = end - first;

	if (ages == NULL || count > ages->room) {
		/* Coarser steps may spread them over one more. */
		uint32_t room = count + 1 < GROWTH_AGES ? count + 1 : GROWTH_AGES;

		ages = realloc(ages, sizeof(*ages) + room * sizeof(ages->frees[0]));
		if (ages == NULL)
			return -ENOMEM;
		if (g->ages == NULL)
			*ages = (struct growth_ages){.first = (uint16_t)bucket};
		ages->room = (uint16_t)room;
		g->ages = ages;
	}
	memmove(ages->frees + (ages->first - first), ages->frees,
		ages->count * sizeof(ages->frees[0]));
	memset(ages->frees, 0, (ages->first - first) * sizeof(ages->frees[0]));
	memset(ages->frees + (old_end - first), 0, (end - old_end) * sizeof(ages->frees[0]));
	ages->first = (uint16_t)first;
	ages->count = (uint16_t)count;
	return 0;
}

int growth_age_add(struct growth *g, uint32_t bucket, uint32_t frees)
{
	const struct growth_ages *ages = g->ages;

	if (frees == 0)
		return 0;
	if ((ages == NULL || bucket < ages->first || bucket - ages->first >= ages->count) &&
	    widen_ages(g, bucket) < 0)
		return -ENOMEM;
	g->ages->frees[bucket - g->ages->first] += frees;
	return 0;
}

/* ---- while the run is played ---- */

static uint32_t larger(uint32_t a, uint32_t b)
{
	return a > b ? a : b;
}

void growth_forget(struct growth *g, uint64_t bytes, bool seen)
{
	g->live = less_u64(g->live, bytes);
	if (!seen)
		return;
	g->high = less_u64(g->high, bytes);
	g->early[0] = less_u64(g->early[0], bytes);
	g->early[1] = less_u64(g->early[1], bytes);
}

int growth_free(struct growth *g, uint64_t bytes, uint32_t age)
{
	if (age == 0) {
		growth_free_new(g, bytes);
		return 0;
	}
	g->live = less_u64(g->live, bytes);
	if (growth_age_add(g, bucket_of(age), 1) < 0)
		return -ENOMEM;
	g->late++;
	return 0;
}

static uint32_t slot_of(const struct growth_rises *r, uint32_t step)
{
	return step < 2 ? 0 : 1 + ((step - 2) >> r->slot_bits);
}

static void join_rise(struct growth_rise *top, const struct growth_rise *next)
{
	top->last = next->last;
	top->level = next->level;
	top->wait = larger(top->wait, next->wait);
}

/* Neighbours that lie in one slot become one. */
static void join_slots(struct growth_rises *r)
{
	uint32_t from, to = 1;

	for (from = 1; from < r->count; from++) {
		struct growth_rise *top = &r->rise[to - 1];
		const struct growth_rise *next = &r->rise[from];

		if (slot_of(r, top->last) == slot_of(r, next->last))
			join_rise(top, next);
		else
			r->rise[to++] = *next;
	}
	r->count = (uint8_t)(r->count == 0 ? 0 : to);
}

static int make_room(struct growth *g)
{
	struct growth_rises *r = g->rises;
	uint32_t room = r == NULL ? 1 : 2 * r->room;

	while (r != NULL && r->count == GROWTH_RISES) {
		r->slot_bits++;
		join_slots(r);
	}
	if (r != NULL && r->count < r->room)
		return 0;
	r = realloc(r, sizeof(*r) + room * sizeof(r->rise[0]));
	if (r == NULL)
		return -ENOMEM;
	if (g->rises == NULL)
		*r = (struct growth_rises){0};
	r->room = (uint8_t)room;
	g->rises = r;
	return 0;
}

static int push_rise(struct growth *g, struct growth_rise rise)
{
	struct growth_rises *r = g->rises;

	if (r != NULL && r->count > 0 &&
	    slot_of(r, r->rise[r->count - 1].last) == slot_of(r, rise.last)) {
		join_rise(&r->rise[r->count - 1], &rise);
		return 0;
	}
	if (make_room(g) < 0)
		return -ENOMEM;
	r = g->rises;
	r->rise[r->count++] = rise;
	return 0;
}

/* A step of this octave is to come: what was highest is kept for those before it. */
static void enter_octave(struct growth *g, uint32_t octave)
{
	if (octave <= g->octave)
		return;
	g->early[1] = octave == g->octave + 1 ? g->early[0] : g->high;
	g->early[0] = g->high;
	g->octave = octave;
}

int growth_step(struct growth *g, uint32_t step)
{
	struct growth_rises *r = g->rises;
	struct growth_rise cut = {0};
	uint64_t base;
	bool was_cut = false;

	g->clean += g->live == g->before;
	g->rose += g->live > g->before && step >= 2;
	enter_octave(g, step < 2 ? 0 : 31 - (uint32_t)__builtin_clz(step));
	if (g->live > g->high) {
		g->high = g->live;
		g->high_step = step;
	}
	if (g->high - g->live > g->drop)
		g->drop = g->high - g->live;
	g->before = g->live;
	while (r != NULL && r->count > 0 && r->rise[r->count - 1].level > g->live) {
		cut = r->rise[--r->count];
		was_cut = true;
	}
	base = r == NULL || r->count == 0 ? 0 : r->rise[r->count - 1].level;
	if (g->live <= base)
		return 0;
	if (was_cut) {
		/* The lower part of what was undercut stays, and came as early. */
		double part = (double)(g->live - base) / (double)(cut.level - base);

		cut.last = cut.first + (uint32_t)((cut.last - cut.first) * part);
		cut.level = g->live;
		return push_rise(g, cut);
	}
	step = r == NULL || r->count == 0 ? step : larger(step, r->rise[r->count - 1].last);
	return push_rise(g,
			 (struct growth_rise){.first = step,
					      .last = step,
					      .wait = r == NULL || r->count == 0
							      ? step
							      : step - r->rise[r->count - 1].last,
					      .level = g->live});
}

void growth_restart(struct growth *g)
{
	uint64_t live = g->live;

	growth_fini(g);
	g->live = live;
}

/* Ages halve: buckets from 8 on move down an octave, below that they are split between two. */
static void coarsen_ages(struct growth *g)
{
	uint32_t ages[GROWTH_AGES + 2] = {0}, i, half;

	for (i = 0; i < GROWTH_AGES; i++)
		ages[i] = growth_age_get(g, i);
	half = ages[1] / 2;
	g->instep += half;
	g->late -= half;
	ages[1] += ages[2] + ages[3] / 2 - half;
	ages[2] = ages[3] - ages[3] / 2 + ages[4] / 2;
	ages[3] = ages[4] - ages[4] / 2 + ages[5] / 2;
	ages[4] = ages[5] - ages[5] / 2 + ages[6];
	for (i = 5; i < GROWTH_AGES; i++)
		ages[i] = ages[i + 2];
	g->ages->count = 0;
	g->ages->first = GROWTH_AGES;
	for (i = 0; i < GROWTH_AGES; i++) {
		if (g->ages->count == 0)
			g->ages->first = (uint16_t)i;
		/* Without memory, the older ones are counted as a little younger. */
		if (growth_age_add(g, i, ages[i]) < 0)
			g->ages->frees[g->ages->count - 1] += ages[i];
	}
	if (g->ages->count == 0)
		g->ages->first = 0;
}

void growth_coarsen(struct growth *g)
{
	struct growth_rises *r = g->rises;
	uint32_t i;

	for (i = 0; r != NULL && i < r->count; i++) {
		r->rise[i].first = (r->rise[i].first + 1) / 2;
		r->rise[i].last = (r->rise[i].last + 1) / 2;
		r->rise[i].wait = (r->rise[i].wait + 1) / 2;
	}
	if (r != NULL) {
		r->slot_bits = (uint8_t)(r->slot_bits - (r->slot_bits > 0));
		join_slots(r);
	}
	g->high_step = (g->high_step + 1) / 2;
	g->octave -= g->octave > 0;
	g->clean /= 2;
	g->rose = (g->rose + 1) / 2;
	if (g->ages != NULL)
		coarsen_ages(g);
}

/* Puts the rises of two places in order of their steps. Levels of both become rises of the sum. */
static int merge_rises(struct growth *g, const struct growth_rises *b)
{
	struct growth_rises *a = g->rises;
	struct growth merged = {0};
	uint64_t level = 0, level_a = 0, level_b = 0;
	uint32_t i = 0, k = 0, last = 0;

	if (b == NULL || b->count == 0)
		return 0;
	while ((a != NULL && i < a->count) || k < b->count) {
		bool from_a = a != NULL && i < a->count &&
			      (k == b->count || a->rise[i].last <= b->rise[k].last);
		struct growth_rise rise = from_a ? a->rise[i++] : b->rise[k++];
		uint32_t inside = rise.last - rise.first;

		level += rise.level - (from_a ? level_a : level_b);
		*(from_a ? &level_a : &level_b) = rise.level;
		/* Its own pause may be filled by the other place. */
		rise.wait = rise.wait < inside ? rise.wait : inside;
		if (rise.first > last)
			rise.wait = larger(rise.wait, rise.first - last);
		rise.level = level;
		if (rise.last < last)
			rise.last = last;
		last = rise.last;
		if (push_rise(&merged, rise) < 0) {
			free(merged.rises);
			return -ENOMEM;
		}
	}
	free(a);
	g->rises = merged.rises;
	return 0;
}

/* Before the highest levels are added. */
static void merge_early(struct growth *g, const struct growth *from)
{
	struct growth other = {.early = {from->early[0], from->early[1]},
			       .octave = from->octave,
			       .high = from->high};

	enter_octave(&other, g->octave);
	enter_octave(g, other.octave);
	g->early[0] += other.early[0];
	g->early[1] += other.early[1];
}

int growth_merge_ages(struct growth *g, const struct growth *from)
{
	uint32_t i;

	for (i = 0; from->ages != NULL && i < from->ages->count; i++) {
		if (growth_age_add(g, from->ages->first + i, from->ages->frees[i]) < 0)
			return -ENOMEM;
	}
	g->instep += from->instep;
	g->late += from->late;
	return 0;
}

int growth_merge(struct growth *g, const struct growth *from)
{
	if (growth_merge_ages(g, from) < 0)
		return -ENOMEM;
	g->live += from->live;
	g->before += from->before;
	merge_early(g, from);
	g->high += from->high;
	g->drop += from->drop;
	g->high_step = larger(g->high_step, from->high_step);
	g->clean = larger(g->clean, from->clean);
	g->rose = larger(g->rose, from->rose);
	return merge_rises(g, from->rises);
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
	uint32_t early,
		later; /* of the distinct ones: in the first half of [first, end], the first not counted, and behind it */
	uint32_t old_frees;
	double trend; /* below 0: they come ever more rarely, see trend_of() */
};

static uint64_t frees_older(const struct growth *g, int32_t age)
{
	uint64_t sum = 0;
	uint32_t i;

	if (age < 0)
		return (uint64_t)g->instep + g->late;
	for (i = 0; i < GROWTH_AGES; i++) {
		/* The bucket counts when all of its ages are older. */
		if ((i == 0 ? 0 : bucket_edge(i - 1) + 1) > (uint32_t)age)
			sum += growth_age_get(g, i);
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

uint64_t growth_freed_within(const struct growth *g, int32_t age)
{
	return (uint64_t)g->instep + g->late - frees_older(g, age);
}

uint64_t growth_since_first(const struct growth *g)
{
	struct history h = history_of(g, 0);

	return h.count == 0 ? 0 : h.rise[h.count - 1].level - h.base;
}

uint64_t growth_permanent(const struct growth *g, uint32_t step)
{
	struct history h = history_of(g, 0);

	return (uint64_t)level_at(&h, step);
}

bool growth_is_overdue(uint32_t step, uint32_t steps, int32_t usual_age)
{
	return step >= 2 && step <= steps && (int32_t)(steps - step) > 2 * usual_age + 1;
}

uint32_t growth_rhythm(const struct growth_facts *f, int32_t usual_age)
{
	uint32_t last = 0, every = 0, times = 0;
	size_t i;

	for (i = 0; i < f->survivor_count; i++) {
		uint32_t step = f->survivors[i].step;

		if (step == last || !growth_is_overdue(step, f->steps, usual_age))
			continue;
		if (every != 0 && step - last != every)
			return 0;
		every = last == 0 ? 0 : step - last;
		last = step;
		times++;
	}
	return times < RHYTHM_TIMES || every == 1 ? 0 : every;
}

/*
 * Whether blocks come ever more rarely: the mean place of the blocks in their window against that of a steady stream, in its standard
 * deviations (the test of Laplace, each step weighted by its blocks). The window begins with the first of them, which does not count,
 * unless they came from the first judged step on.
 */
static double trend_of(const struct growth_facts *f, uint32_t start, uint32_t end)
{
	double sum = 0, weights = 0, squares = 0;
	size_t i, k;

	for (i = 0; i < f->survivor_count; i = k) {
		uint32_t step = f->survivors[i].step;
		double weight;

		for (k = i + 1; k < f->survivor_count && f->survivors[k].step == step; k++)
			;
		if (step <= start || step > end)
			continue;
		weight = (double)(k - i);
		sum += weight * ((step - start - 0.5) / (double)(end - start) - 0.5);
		weights += weight;
		squares += weight * weight;
	}
	return weights > 0 ? sum / sqrt(squares / 12) : 0;
}

static struct overdue overdue_of(const struct growth *g, const struct growth_facts *f, int32_t age)
{
	int32_t limit = 2 * age + 1;
	struct overdue o = {0};
	uint32_t last = 0, half, end = (uint32_t)((int32_t)f->steps - limit - 1);
	size_t i;

	o.old_frees = (uint32_t)frees_older(g, limit);
	for (i = 0; i < f->survivor_count; i++) {
		uint32_t step = f->survivors[i].step;

		if (!growth_is_overdue(step, f->steps, age))
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
	if (o.steps == 0)
		return o;
	o.last = last;
	half = o.first + (end - o.first) / 2;
	last = o.first;
	for (i = 0; i < f->survivor_count; i++) {
		uint32_t step = f->survivors[i].step;

		if (step <= last || step > o.last)
			continue;
		last = step;
		if (step > half)
			o.later++;
		else
			o.early++;
	}
	/* What the first step made is not judged, but in a run of few steps it tells of a cache. */
	o.trend = trend_of(f, o.first > 2 ? o.first : f->steps < BRIEF_STEPS ? 0 : 1, end);
	/* A cache that has filled may hide behind a steady stream of its own. */
	if (o.trend <= TREND_MIN && o.later >= TREND_STEPS)
		o.trend = trend_of(f, half, end);
	return o;
}

static bool blocks_stay(const struct overdue *o, int32_t end)
{
	return o->later >= 3 && 2 * o->later >= o->early && o->trend > TREND_MIN &&
	       end - (int32_t)o->last <= (int32_t)o->wait;
}

static bool level_climbs(const struct history *h, uint32_t wait)
{
	uint32_t first = h->rise[0].first, i, later = 0;
	double half = first + (h->steps - first) / 2.0;
	double at_half = level_at(h, half), at_first = level_at(h, first);
	double end = (double)h->rise[h->count - 1].level;

	for (i = 0; i < h->count; i++)
		later += h->rise[i].last > half;
	/* Chance makes few rises; one in every step is none. */
	return later >= (wait <= 1 ? 4 : 6) && (wait <= 1 || h->steps >= BRIEF_STEPS) &&
	       2 * (end - at_half) >= at_half - at_first &&
	       h->steps - h->rise[h->count - 1].last <= wait;
}

/* ---- how fast ---- */

#define PARTS 8u

/* Growth in equal parts of a window: the mean, and 95 % around it by the t distribution. */
static void rate_of_parts(const double *part, uint32_t parts, double least,
			  struct growth_judgement *out)
{
	static const double t[PARTS] = {0, 12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365};
	double mean = 0, variance = 0, half = 0;
	uint32_t i;

	for (i = 0; i < parts; i++)
		mean += part[i] / parts;
	for (i = 0; i < parts; i++)
		variance += (part[i] - mean) * (part[i] - mean);
	if (parts > 1)
		half = t[parts - 1] * sqrt(variance / (parts - 1) / parts);
	if (half < least)
		half = least;
	out->rate = mean;
	out->rate_low = mean > half ? mean - half : 0;
	out->rate_high = mean + half;
}

/* The first of `length` steps that is in a part, of `parts` equal ones. */
static uint64_t part_start(uint32_t part, uint32_t length, uint32_t parts)
{
	return ((uint64_t)part * length + parts - 1) / parts;
}

/* By blocks that stay: what came after the first of them. The interval is at least one block wide. */
static void rate_by_blocks(const struct growth_facts *f, const struct overdue *o, uint32_t end,
			   struct growth_judgement *out)
{
	uint32_t length = end - o->first, parts = length < PARTS ? length : PARTS, at, i;
	double part[PARTS] = {0}, steps[PARTS] = {0};
	uint64_t block = 0;
	size_t k, blocks = 0;

	for (i = 0; i < parts; i++)
		steps[i] =
			(double)(part_start(i + 1, length, parts) - part_start(i, length, parts));
	for (k = 0; k < f->survivor_count; k++) {
		const struct growth_survivor *s = &f->survivors[k];

		if (s->step <= o->first || s->step > end)
			continue;
		at = (uint32_t)((uint64_t)(s->step - o->first - 1) * parts / length);
		part[at] += (double)s->bytes / steps[at];
		block = s->bytes > block ? s->bytes : block;
		blocks++;
	}
	rate_of_parts(part, parts, (double)block / length, out);
	out->block_rate = (double)blocks / length;
}

/* By the level: what it rose after the first rise. */
static void rate_by_level(const struct history *h, struct growth_judgement *out)
{
	uint32_t first = larger(h->rise[0].first, 2), length = h->steps - first;
	uint32_t parts = length < PARTS ? length : PARTS, i;
	double part[PARTS], level = level_at(h, first), largest = 0;

	for (i = 0; i < parts; i++) {
		double next = level_at(h, first + (double)length * (i + 1) / parts);

		part[i] = (next - level) * parts / length;
		level = next;
	}
	for (i = 0; i < h->count; i++) {
		double rise =
			(double)(h->rise[i].level - (i == 0 ? h->base : h->rise[i - 1].level)) /
			(h->rise[i].last - h->rise[i].first + 1);

		largest = rise > largest ? rise : largest;
	}
	rate_of_parts(part, parts, largest / length, out);
}

static void rate(const struct growth_facts *f, const struct history *h, const struct overdue *o,
		 struct growth_judgement *out)
{
	int32_t end = (int32_t)f->steps - 2 * out->usual_age - 2;
	bool blocks = out->reason != GROWTH_CLIMBS && o->steps > 1 && end > (int32_t)o->first;

	if (blocks)
		rate_by_blocks(f, o, (uint32_t)end, out);
	else if (h->steps > larger(h->rise[0].first, 2))
		rate_by_level(h, out);
	else
		out->rate = out->rate_high = (double)out->grown_bytes;
}

/* ---- the verdict ---- */

/* What the rule looks at; docs/decisions/0015-leaks-by-growth.md has the same names. */
struct evidence {
	struct history h;
	struct overdue o;
	int32_t a;     /* usual age */
	uint32_t q, w; /* quiet now, longest pause between rises */
	uint32_t t1;   /* first rise */
	bool strong;   /* the level climbs by more than queues make it swing */
	bool stopped;  /* quiet for much longer than ever before */
};

/*
 * A stream that comes by chance pauses for long now and then. With many rises at uneven distances, silence counts when a dozen of
 * them, or twenty where distances are long, would have been expected meanwhile.
 */
static bool silence_counts(const struct history *h, uint32_t quiet, uint32_t wait)
{
	uint32_t span = h->rise[h->count - 1].last - h->rise[0].first;

	return h->count < 6 || wait < 2 ||
	       (uint64_t)quiet * (h->count - 1) >= (wait < 3 ? 12ull : 20ull) * span;
}

static struct evidence evidence_of(const struct growth *g, const struct growth_facts *f)
{
	struct evidence e = {.h = history_of(g, f->steps), .a = -1};
	uint32_t freed = g->instep + g->late;
	double half, climb;

	if (e.h.count == 0)
		return e;
	e.t1 = larger(e.h.rise[0].first, 2);
	e.q = f->steps - e.h.rise[e.h.count - 1].last;
	e.w = longest_wait(&e.h);
	e.a = usual_age(g, f);
	e.o = overdue_of(g, f, e.a);
	half = e.t1 + (f->steps - e.t1) / 2.0;
	climb = (double)g->before - level_at(&e.h, half);
	e.strong = climb > (f->steps < SHORT_STEPS ? 6.0 : 3.0) * (double)g->drop;
	if (e.h.count >= 3)
		e.stopped = e.q >= 3 && e.q >= 3 * e.w && silence_counts(&e.h, e.q, e.w);
	else
		e.stopped = e.q >= 3 && e.q > larger(e.t1 - 1, e.w) &&
			    (freed > 0 || 2 * e.q >= 3 * (e.t1 - 1)) &&
			    (f->whole_pool ||
			     !(e.a >= 0 && e.o.blocks > 0 && freed >= 4ull * e.o.blocks));
	return e;
}

/* Of blocks that live by chance, one of ten outlives the usual age, and one of a hundred twice that: these are no leak. */
static bool by_chance(const struct growth *g, const struct growth_facts *f,
		      const struct evidence *e)
{
	double blocks = (double)g->instep + g->late + (double)f->survivor_count;
	double share = (f->steps - 2.0 * e->a - 2) / f->steps;

	return e->a >= 1 && e->o.blocks < 3 + blocks * share / 50;
}

static bool keeps_blocks(const struct growth *g, const struct growth_facts *f,
			 const struct evidence *e)
{
	return e->o.blocks > 0 && !e->stopped && !by_chance(g, f, e) &&
	       2 * e->o.old_frees <= e->o.blocks &&
	       blocks_stay(&e->o, (int32_t)f->steps - 2 * e->a - 2);
}

/* Few blocks that come at ever longer distances are those of a cache. */
static bool is_even(const struct overdue *o)
{
	return o->later > 0 && 4 * o->wait * (o->steps - 1) <= 5 * (o->last - o->first);
}

/* A place that otherwise frees within its step, and did not for some blocks. */
static bool forgets(const struct growth *g, const struct growth_facts *f, const struct evidence *e)
{
	return !f->whole_pool && e->a == 0 && g->late == 0 && e->o.blocks > 0 && g->clean >= 8 &&
	       g->instep >= 4ull * e->o.blocks && !(e->h.count >= 3 && e->stopped);
}

/* Two lifetimes were seen. */
static bool long_enough(const struct growth_facts *f, int32_t age)
{
	return (int32_t)f->steps >= 2 * (2 * age + 1);
}

/* The highest level that is known of before a step. */
static uint64_t high_before(const struct growth *g, uint32_t step)
{
	if (g->high_step < step)
		return g->high;
	if (1u << g->octave <= step)
		return g->early[0];
	return g->octave > 0 && 1u << (g->octave - 1) <= step ? g->early[1] : 0;
}

/* No more is held than was before `step`, and in the first half of the run; after two lifetimes, up to the swing of a queue. */
static bool held_as_much(const struct growth *g, const struct growth_facts *f, int32_t age,
			 uint32_t step)
{
	uint32_t half = (f->steps < BRIEF_STEPS ? 3 * f->steps / 4 : f->steps / 2) + 1;
	uint64_t swing = long_enough(f, age) ? g->drop / 4 : 0;

	return g->before <= high_before(g, step < half ? step : half) + swing;
}

/* Blocks turn over: it held as much before, and freed all of that since. */
static bool turns_over(const struct growth *g, const struct growth_facts *f, int32_t age)
{
	size_t i = 0;

	while (i < f->survivor_count && f->survivors[i].step < 2)
		i++;
	return i < f->survivor_count && held_as_much(g, f, age, f->survivors[i].step);
}

/* No more blocks outlive the usual age than were freed beyond it. */
static bool none_older(const struct growth *g, const struct growth_facts *f, int32_t age)
{
	return survivors_older(f, age) <= 1 + frees_older(g, age);
}

/* The level has stopped to rise. Where blocks are freed late it swings, which may hide a few that stay. */
static bool stopped_for_good(const struct growth *g, const struct growth_facts *f,
			     const struct evidence *e)
{
	bool held, is_long = long_enough(f, e->a);
	uint32_t steps = 0, late = 0;
	size_t i;

	if (!e->stopped || e->a < 1)
		return e->stopped;
	for (i = 0; i < f->survivor_count; i++) {
		uint32_t step = f->survivors[i].step;

		steps += step >= 2 && (i == 0 || step != f->survivors[i - 1].step);
		late += step > f->steps / 2 && (int32_t)(f->steps - step) > e->a;
	}
	held = held_as_much(g, f, e->a, f->steps);
	/* What stays came in the first half: a cache beside blocks that turn over. */
	if (is_long && held && late == 0)
		return true;
	return none_older(g, f, e->a) && (steps < 6 ? is_long || held : turns_over(g, f, e->a));
}

bool growth_in_use(const struct growth *g, const struct growth_facts *f, int32_t *out_usual_age)
{
	int32_t age = usual_age(g, f);

	*out_usual_age = age;
	return age >= 1 && overdue_of(g, f, age).blocks == 0 && none_older(g, f, age) &&
	       turns_over(g, f, age);
}

static void conclude(struct growth_judgement *out, enum growth_verdict verdict,
		     enum growth_reason reason)
{
	out->verdict = verdict;
	out->reason = reason;
}

static void decide(const struct growth *g, const struct growth_facts *f, const struct evidence *e,
		   struct growth_judgement *out)
{
	conclude(out, GROWTH_SUSPECT, GROWTH_TOO_SHORT);
	if (keeps_blocks(g, f, e)) {
		conclude(out, GROWTH_LEAK, GROWTH_STAYS);
	} else if ((e->a >= 0 || f->survivor_count == 0) && e->strong &&
		   level_climbs(&e->h, e->w)) {
		conclude(out, GROWTH_LEAK, GROWTH_CLIMBS);
	} else if (forgets(g, f, e)) {
		uint32_t pause = e->h.count < 3 ? larger(e->w, e->t1 - 1) : e->w;

		if (f->stacks_known && f->steps >= BRIEF_STEPS && e->o.steps >= 3 &&
		    (e->o.later >= 2 || is_even(&e->o)) && 2 * e->o.later >= e->o.early &&
		    e->o.trend > TREND_MIN && e->q <= pause)
			conclude(out, GROWTH_LEAK, GROWTH_FORGETS);
		else
			conclude(out, GROWTH_SUSPECT, GROWTH_ONCE);
	} else if (stopped_for_good(g, f, e)) {
		conclude(out, GROWTH_KEPT, GROWTH_STOPPED);
	} else if (growth_in_use(g, f, &out->usual_age)) {
		conclude(out, GROWTH_KEPT, GROWTH_IN_USE);
	}
}

void growth_judge(const struct growth *g, const struct growth_facts *f,
		  struct growth_judgement *out)
{
	struct evidence e = evidence_of(g, f);
	uint64_t level;
	uint32_t i;

	*out = (struct growth_judgement){.usual_age = e.a};
	if (e.h.count == 0) {
		out->verdict = GROWTH_KEPT;
		out->reason = GROWTH_FLAT;
		return;
	}
	out->first = e.t1;
	out->last = e.h.rise[e.h.count - 1].last;
	out->rises = e.h.count;
	out->quiet = e.q;
	out->longest_pause = e.w;
	out->overdue = e.o.blocks;
	out->overdue_bytes = e.o.bytes;
	out->grown_bytes = g->before - e.h.base;
	for (i = 0, level = e.h.base; i < e.h.count; level = e.h.rise[i++].level) {
		if (e.h.rise[i].level - level > out->rise_bytes)
			out->rise_bytes = e.h.rise[i].level - level;
	}
	decide(g, f, &e, out);
	rate(f, &e.h, &e.o, out);
}
