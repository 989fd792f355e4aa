/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Does the memory of one place grow? A place is where blocks come from: a call stack, or a pool where there is none. This judge
 * knows nothing of stacks and pools; it is told of allocations, frees and ends of steps, and gives one of three verdicts:
 *
 *     leak      the place keeps more with every step, and nothing says that it will stop
 *     suspect   it kept something, and the run is too short or too quiet to tell
 *     kept      what it holds has stopped growing, or turns over
 *
 * Words. Level: bytes of the place that are alive when a step ends. Permanent rise: a level that was reached at a step and never
 * undercut until the end of the run. Age of a block: ended steps since its own; a block freed in its own step has age 0. The first
 * step is never judged: programs build their models there. What happens behind the last ended step does not count, so a block
 * that is freed only when the program exits is a survivor.
 *
 *     growth_alloc(g, size)            at each allocation
 *     growth_free(g, size, age)        at the end of a step, for each block freed in it
 *     growth_step(g, step)             after these, for each place touched in the step
 *     growth_judge(g, survivors, ...)  at the end of the run
 *
 * The cost is constant per event. Memory: the struct, 24 to 188 bytes more once the place frees late, 24 to 644 more as it grows.
 * docs/decisions/0015-leaks-by-growth.md has the rule, why its constants are what they are, and how often it is right.
 */
#ifndef MSCOPE_ANALYSIS_GROWTH_H
#define MSCOPE_ANALYSIS_GROWTH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "findings/verdicts.h"

#define GROWTH_AGES  42u /* buckets of ages, two an octave */
#define GROWTH_RISES 32u

struct growth_rise {
	uint32_t first, last; /* steps over which this rise came */
	uint32_t wait;	      /* longest pause before it, in steps */
	uint64_t level;
} __attribute__((packed, aligned(4)));

/* Late frees by bucket; buckets beyond those that are kept have none. */
struct growth_ages {
	uint16_t first, count, room;
	uint32_t frees[]; /* of the buckets first to first + count - 1 */
};

/* Rises in order of their steps; those within 1 << slot_bits steps share an entry. One rise takes 24 bytes. */
struct growth_rises {
	uint8_t count, room, slot_bits;
	struct growth_rise rise[];
};

struct growth {
	uint64_t live;		    /* bytes now; frees count when their step ends */
	uint64_t before;	    /* bytes when the last step ended */
	uint64_t high;		    /* highest level */
	uint64_t drop;		    /* greatest fall below it */
	uint64_t early[2];	    /* highest level before steps 2^octave and 2^(octave - 1) */
	uint32_t octave;	    /* of the last step that touched the place */
	uint32_t high_step;	    /* step that first reached the highest level */
	uint32_t instep;	    /* frees within their own step */
	uint32_t late;		    /* frees in a later one */
	uint32_t clean;		    /* steps that used the place and left its level unchanged */
	uint32_t rose;		    /* steps after the first that raised the level */
	struct growth_ages *ages;   /* of late frees; NULL: there is none */
	struct growth_rises *rises; /* NULL: there is none */
};

/* One live block, or one that was freed behind the last ended step. */
struct growth_survivor {
	uint32_t step; /* of its allocation */
	uint64_t bytes;
};

struct growth_facts {
	uint32_t steps;	   /* last ended step */
	bool stacks_known; /* the place is a call stack, not a pool and a size */
	bool whole_pool;   /* all places of a pool together */
	const struct growth_survivor *survivors; /* in order of their steps */
	size_t survivor_count;
};

struct growth_judgement {
	enum growth_verdict verdict;
	enum growth_reason reason;
	int32_t usual_age;	/* steps within which this place frees, -1: it hardly frees */
	uint32_t first, last;	/* steps of the first and the last permanent rise */
	uint32_t rises;		/* permanent rises after the first step; several may count as one */
	uint32_t quiet;		/* steps since the last */
	uint32_t longest_pause; /* between two of them */
	uint32_t overdue;	/* survivors older than is usual here */
	uint64_t overdue_bytes;
	uint64_t grown_bytes; /* risen since the first step */
	uint64_t rise_bytes;  /* the largest rise */
	double rate;	      /* bytes per step, with an interval of 95 % */
	double rate_low, rate_high;
	double block_rate; /* blocks per step; 0: growth is not by blocks */
};

void growth_fini(struct growth *g);

static inline void growth_alloc(struct growth *g, uint64_t bytes)
{
	g->live += bytes;
}

/* A block was freed before its step ended. */
static inline void growth_free_new(struct growth *g, uint64_t bytes)
{
	g->live -= bytes < g->live ? bytes : g->live;
	g->instep++;
}

/* A block of `age` ended steps was freed. 0 or -ENOMEM. */
int growth_free(struct growth *g, uint64_t bytes, uint32_t age);

/* A block is no longer this place's concern, as if it had never been. `seen`: it lived when a step ended. */
void growth_forget(struct growth *g, uint64_t bytes, bool seen);

/* A step has ended. Steps never decrease. 0 or -ENOMEM. */
int growth_step(struct growth *g, uint32_t step);

/* Forgets the history; what lives stays. */
void growth_restart(struct growth *g);

/* Two steps become one: step s is (s + 1) / 2 from now on. */
void growth_coarsen(struct growth *g);

/*
 * Adds the history of another place: both are the same one. The suffix minimum of a sum is at least the sum of the suffix minima,
 * so permanent rises stay permanent.
 */
int growth_merge(struct growth *g, const struct growth *from);

/* Frees of a bucket of ages; sets them. 0 or -ENOMEM. */
uint32_t growth_age_get(const struct growth *g, uint32_t bucket);
int growth_age_add(struct growth *g, uint32_t bucket, uint32_t frees);

/* Adds what another place has freed, and when; no levels. 0 or -ENOMEM. */
int growth_merge_ages(struct growth *g, const struct growth *from);

/* True if a survivor of this step is older than `usual_age` allows at the end of `steps`. */
bool growth_is_overdue(uint32_t step, uint32_t steps, int32_t usual_age);

/* Steps between those in which overdue blocks stayed, if that is more than one and always the same; else 0. */
uint32_t growth_rhythm(const struct growth_facts *facts, int32_t usual_age);

/* The level that was permanent when a step had ended. */
uint64_t growth_permanent(const struct growth *g, uint32_t step);

/* Whether all survivors are within the age at which blocks are freed here, and turn over. */
bool growth_in_use(const struct growth *g, const struct growth_facts *facts,
		   int32_t *out_usual_age);

/* What has risen for good since the first step. */
uint64_t growth_since_first(const struct growth *g);

/* Blocks freed at an age of at most `age`. */
uint64_t growth_freed_within(const struct growth *g, int32_t age);

void growth_judge(const struct growth *g, const struct growth_facts *facts,
		  struct growth_judgement *out);

#endif
