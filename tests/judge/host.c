/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How often the verdict about resident memory of the host is right. Random processes with known truth are sampled as the engine does it:
 * every 100 ms, told where they changed by 256 KiB or more.
 *
 *     host [PROCESSES [SEED]]
 *
 * Healthy ones stand still, warm up, fill caches that are full before the last eighth of the run, swing, wander, or jump now and then.
 * Leaking ones grow by their steps for the whole run or from its first quarter on, with noise on top. Ends with 1 if more than one healthy
 * process in 1,000 is called growing, if fewer than nine in ten leaking ones are, or if a rate is wrong by more than a fifth for one in
 * twenty.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/host_growth.h"
#include "shapes.h"

#define MIB	  1048576.0
#define SAMPLE_S  0.1
#define CHANGE	  (256 * 1024.0)
#define RANDOMS	  64u
#define ZIPF_KEYS 4096u

/* One process. What a shape needs is drawn before its first moment. */
struct life {
	double seconds, base, size, noise; /* MiB */
	double a, b, c;
	double level, extra; /* of shapes that remember */
	double moments[RANDOMS];
	uint32_t count, cursor;
	double step_s; /* 0: no steps */
	uint8_t seen[ZIPF_KEYS];
	double rate; /* MiB per second of a leak */
};

struct host_shape {
	const char *name;
	bool leaks;
	double (*level)(struct life *life, double s); /* MiB above the base at this time */
};

static double normal(void)
{
	return sqrt(-2 * log(unit() + 1e-300)) * cos(6.283185307179586 * unit());
}

/* ---- healthy ---- */

static double flat(struct life *l, double s)
{
	(void)l;
	(void)s;
	return 0;
}

static double saturates(struct life *l, double s)
{
	return l->size * (1 - exp(-s / (l->seconds * (0.01 + l->a))));
}

static double logarithm(struct life *l, double s)
{
	return l->size * log(1 + s / (l->seconds * (0.005 + 0.3 * l->a)));
}

static double root(struct life *l, double s)
{
	return l->size * sqrt(s / l->seconds);
}

static double fills(struct life *l, double s)
{
	double full = l->seconds * (0.05 + 0.82 * l->a);

	return l->size * (s < full ? s / full : 1);
}

static double swings(struct life *l, double s)
{
	double period = l->seconds * (0.01 + l->a * 0.99);

	return l->size * (1 + sin(6.283185307179586 * (s / period + l->b)));
}

/* An epoch fills and frees; there are two or more. */
static double epochs(struct life *l, double s)
{
	double period = l->seconds / (2 + 20 * l->a), at = fmod(s + l->b * period, period);

	return l->size * at / period;
}

static double wanders(struct life *l, double s)
{
	(void)s;
	l->level += normal() * l->size * (0.002 + 0.05 * l->a);
	l->level = l->level < 0 ? -l->level : l->level;
	l->level = l->level > l->size ? 2 * l->size - l->level : l->level;
	return l->level < 0 ? 0 : l->level;
}

static double reverts(struct life *l, double s)
{
	(void)s;
	l->level += -l->level * (0.001 + 0.1 * l->a) + normal() * l->size * 0.02;
	return 4 * l->size + l->level;
}

static double jumps(struct life *l, double s)
{
	while (l->cursor < l->count && s >= l->moments[l->cursor])
		l->level += l->size * unit(), l->cursor++;
	return l->level;
}

static double doubles(struct life *l, double s)
{
	return l->size * pow(2, floor(log2(1 + s / l->seconds * (4 + 2000 * l->a)))) / 64;
}

/* A high-water mark of demands that vary. */
static double highest(struct life *l, double s)
{
	double demand = l->size * (0.5 + 0.2 * normal());

	(void)s;
	l->level = demand > l->level ? demand : l->level;
	return l->level;
}

/* A cache of keys, few of which are wanted often: nearly full at the end, for one that is not grows like a leak. */
static double zipf(struct life *l, double s)
{
	uint32_t keys = 64 + (uint32_t)(l->a * 900), i;
	uint32_t draws = 1 + (uint32_t)(8 * keys * SAMPLE_S / l->seconds);

	(void)s;
	for (i = 0; i < draws; i++) {
		uint32_t key = (uint32_t)(pow(keys, unit()) - 1);

		if (!l->seen[key])
			l->level += l->size / keys;
		l->seen[key] = 1;
	}
	return l->level;
}

/* Garbage that is collected late, on top of a warm-up. */
static double collected(struct life *l, double s)
{
	l->extra += l->size * 0.3 * (0.02 + 0.1 * l->b) * unit();
	if (l->extra > l->size * 0.3)
		l->extra = 0;
	return l->size * (1 - exp(-s / (l->seconds * (0.01 + 0.3 * l->a)))) + l->extra;
}

/* Workers that are made anew, each larger than none. */
static double restarts(struct life *l, double s)
{
	double period = l->seconds / (2 + 10 * l->a);

	return l->size * (1 - exp(-fmod(s, period) / (period * (0.05 + l->b))));
}

/* ---- leaking ---- */

static double leaks(struct life *l, double s)
{
	return l->rate * s;
}

static double leaks_by_step(struct life *l, double s)
{
	double step = l->step_s > 0 ? l->step_s : 0.2;

	return l->rate * step * floor(s / step);
}

/* Arenas of an allocator come in pieces. */
static double leaks_in_pieces(struct life *l, double s)
{
	double piece = fmin(l->rate * l->seconds / 80, 64);

	return piece * floor(l->rate * s / piece);
}

static double leaks_and_swings(struct life *l, double s)
{
	double period = l->seconds / (40 + 60 * l->b);

	return l->rate * s + l->rate * l->seconds * 0.2 * fmod(s, period) / period;
}

static double leaks_unevenly(struct life *l, double s)
{
	(void)s;
	l->level += l->rate * SAMPLE_S * 2 * unit();
	return l->level;
}

static double leaks_later(struct life *l, double s)
{
	double from = l->seconds * 0.2 * l->a;

	return s < from ? 0 : l->rate * (s - from);
}

static double leaks_after_warm_up(struct life *l, double s)
{
	return l->size * (1 - exp(-s / (l->seconds * 0.05))) + l->rate * s;
}

static const struct host_shape host_shapes[] = {
	{"flat", false, flat},
	{"saturates", false, saturates},
	{"logarithm", false, logarithm},
	{"root", false, root},
	{"a cache fills", false, fills},
	{"swings", false, swings},
	{"epochs", false, epochs},
	{"wanders", false, wanders},
	{"reverts", false, reverts},
	{"jumps", false, jumps},
	{"doubles", false, doubles},
	{"high-water mark", false, highest},
	{"Zipf keys", false, zipf},
	{"collected late", false, collected},
	{"restarts", false, restarts},
	{"leaks", true, leaks},
	{"leaks by step", true, leaks_by_step},
	{"leaks in pieces", true, leaks_in_pieces},
	{"leaks and swings", true, leaks_and_swings},
	{"leaks unevenly", true, leaks_unevenly},
	{"leaks later", true, leaks_later},
	{"leaks after a warm-up", true, leaks_after_warm_up},
};
#define SHAPES (sizeof(host_shapes) / sizeof(host_shapes[0]))

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

static void draw(struct life *l, bool leaks)
{
	uint32_t i;

	*l = (struct life){.seconds = 12 * pow(50, unit()),
			   .base = 20 * pow(400, unit()),
			   .size = 4 * pow(1000, unit()),
			   .a = unit(),
			   .b = unit(),
			   .c = unit(),
			   .count = between(1, 8)};
	if (chance(0.7))
		l->step_s = fmin(0.01 * pow(100, unit()), l->seconds / 30);
	for (i = 0; i < l->count; i++)
		l->moments[i] = l->seconds * unit();
	qsort(l->moments, l->count, sizeof(double), by_value);
	/* What is found at all: a leak of 40 MiB and of a tenth of the base. */
	if (leaks)
		l->rate = fmax(40 * pow(100, unit()), l->base / 10) / l->seconds;
	l->noise = chance(0.3) ? 0 : (leaks ? l->rate * l->seconds * 0.03 : l->size * 0.1) * unit();
}

/* Whether it was called growing. */
static bool live(const struct host_shape *shape, struct life *l, struct host_growth *out)
{
	static struct host_series series;
	double told = -CHANGE, s;
	uint64_t steps = 0;

	memset(&series, 0, sizeof(series));
	for (s = 0; s < l->seconds; s += SAMPLE_S * (0.95 + 0.2 * unit())) {
		double mib = l->base + shape->level(l, s) + l->noise * unit();
		double bytes = floor(mib * 256) * 4096;

		steps = l->step_s > 0 ? (uint64_t)(s / l->step_s) : 0;
		if (fabs(bytes - told) < CHANGE)
			continue;
		told = bytes;
		host_series_add(&series, (uint64_t)(s * 1e9), (uint64_t)bytes, steps, 0);
	}
	return host_growth_judge(&series, (uint64_t)(l->seconds * 1e9), steps, 0, out);
}

int main(int argc, char **argv)
{
	uint32_t processes = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 10) : 2000, i, k;
	uint64_t healthy = 0, accused = 0, leaking = 0, found = 0, wrong = 0;

	if (argc > 2)
		chance_state ^= strtoull(argv[2], NULL, 10) * UINT64_C(0x9E3779B97F4A7C15);
	for (k = 0; k < SHAPES; k++) {
		const struct host_shape *shape = &host_shapes[k];
		uint64_t said = 0;

		for (i = 0; i < processes; i++) {
			struct host_growth growth;
			struct life life;

			draw(&life, shape->leaks);
			if (!live(shape, &life, &growth))
				continue;
			said++;
			if (shape->leaks &&
			    fabs(growth.bytes_per_second / MIB / life.rate - 1) > 0.2)
				wrong++;
		}
		printf("%-22s %s  %6llu of %u called growing\n", shape->name,
		       shape->leaks ? "leaks  " : "healthy", (unsigned long long)said, processes);
		*(shape->leaks ? &leaking : &healthy) += processes;
		*(shape->leaks ? &found : &accused) += said;
	}
	printf("healthy: %llu of %llu accused; leaking: %llu of %llu found, rate wrong in %llu\n",
	       (unsigned long long)accused, (unsigned long long)healthy, (unsigned long long)found,
	       (unsigned long long)leaking, (unsigned long long)wrong);
	return accused * 1000 > healthy || found * 10 < leaking * 9 || wrong * 20 > found;
}
