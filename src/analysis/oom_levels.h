/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How much each place and each pool held at earlier moments of a run: at the ends of steps, and after so many allocations for runs
 * without steps. At most SAMPLES moments of each kind are kept; when there are more, every other one goes and the distance doubles.
 * A sample walks the live blocks, and is put off while that would cost more than LEVELS_VISITS visits per allocation; two when there
 * are many blocks.
 */
#ifndef MSCOPE_ANALYSIS_OOM_LEVELS_H
#define MSCOPE_ANALYSIS_OOM_LEVELS_H

#include "analysis/by_stack.h"
#include "replay/replay.h"

#define SAMPLES	      32u
#define LEVELS_VISITS 8u
#define LEVELS_FEW    4096u

enum level_series { BY_STEPS, BY_ALLOCATIONS, LEVEL_SERIES };

struct series {
	uint32_t count;
	uint64_t interval;
	uint64_t at[SAMPLES]; /* step, or number of allocations */
	uint64_t walked_at;   /* allocations at its last sample */
	uint64_t settled_at;  /* samples before it do not count */
	uint64_t end;	      /* the present, for samples by allocations */
};

/*
 * What a place held at each sample, >> a shift of its own, in numbers of 1, 2 or 4 bytes: a run may have a million places, and what most of
 * them hold are few multiples of a power of two. The first two are exact; the third is below 4 GiB, and what comes next is never less
 * because of it.
 */
enum level_width { LEVEL_BYTES, LEVEL_NARROW, LEVEL_WIDE, LEVEL_WIDTHS };

struct level_place {
	uint64_t size_bytes;	     /* without a stack; tells places apart */
	uint32_t usage;		     /* index of its pool and device in replay_usages() */
	uint32_t stack;		     /* 0: unknown */
	uint32_t past[LEVEL_SERIES]; /* index + 1 in levels.pasts; 0: it never held anything */
	uint8_t shift[LEVEL_SERIES];
	uint8_t width[LEVEL_SERIES]; /* enum level_width */
} __attribute__((packed, aligned(4)));

/* The blocks that a place holds at present. */
struct level_blocks {
	uint64_t largest;
	uint32_t count;
} __attribute__((packed, aligned(4)));

/* What a place holds at present. */
struct level_hold {
	uint64_t bytes, largest;
	uint32_t blocks;
};

/* Pasts of one width, SAMPLES numbers each. */
struct level_pasts {
	unsigned char *all;
	size_t count, room;
};

struct level_pool {
	/* Live bytes; of the driver without what frameworks' pools on the device have reserved. */
	uint64_t levels[LEVEL_SERIES][SAMPLES];
	uint64_t frees[SAMPLES]; /* so far, at samples by allocations */
	uint64_t allocations[SAMPLES];
	uint64_t peaks[SAMPLES];      /* between two samples by allocations */
	uint64_t window_peak;	      /* since the last of these */
	uint64_t step_peaks[SAMPLES]; /* of the steps up to a sample by steps */
	uint64_t step_peak;	      /* in the step in progress */
	uint64_t latest_step_peak;    /* the most since the last sample by steps */
	uint64_t usual_step_peak;     /* the most in any step that has ended */
	uint64_t largest_request;
};

struct levels {
	struct series series[LEVEL_SERIES];
	uint64_t allocations, next_sample;
	uint32_t steps; /* that have ended */
	struct level_place *places;
	size_t place_count, place_room;
	/* Of places, from levels_walk() until the next sample; a sample needs the bytes alone. */
	uint64_t *bytes;
	struct level_blocks *blocks;
	size_t byte_room, block_room;
	struct level_pasts pasts[LEVEL_SERIES][LEVEL_WIDTHS];
	struct by_stack by_stack; /* of places */
	struct level_pool *pools; /* by index in replay_usages() */
	size_t pool_count, pool_room;
};

/* A zeroed struct is ready. All return 0 or -ENOMEM. */
void levels_fini(struct levels *levels);
int levels_allocated(struct levels *levels, struct replay *replay, const struct block *block,
		     const struct usage *usage);
int levels_step_ended(struct levels *levels, struct replay *replay, uint32_t step);

/* Sums up live blocks by place, those that `skip` names left out; it may be NULL. */
int levels_walk(struct levels *levels, struct replay *replay,
		bool (*skip)(void *arg, const struct block *block), void *arg);

/* What a place holds at present, after a walk. */
struct level_hold levels_hold(const struct levels *levels, size_t place);

/* Keeps what each place holds at present as the sample with this index. */
int levels_keep(struct levels *levels, enum level_series kind, uint32_t sample);

/* What a place held at each sample. */
void levels_of_place(const struct levels *levels, const struct level_place *place,
		     enum level_series kind, uint64_t *out_levels);

/* How a level rose for good. */
struct rise {
	uint64_t bytes;	   /* 0: it does not grow steadily */
	uint64_t from, to; /* first and last moment of it, as in series.at */
	uint32_t middle;   /* sample in the middle of it */
};

/*
 * Whether a series of levels grows, and does so until now, when the level is `now`. By allocations, both halves must grow: one that
 * rises only at its end is a burst.
 */
struct rise levels_rise(const struct series *series, enum level_series kind, const uint64_t *levels,
			uint64_t now);

/*
 * Whether what rises is the size of what each step works on, such as its batch, and nothing is kept from step to step: one or two blocks,
 * each time larger by a factor, or the steps' needs rise with them by far more than they do. A tensor that the program makes longer with each
 * step (a history) rises evenly, and needs at most its copy beside it. `past`: what the place held at samples by steps.
 */
bool levels_place_scales(const struct levels *levels, size_t place, const uint64_t *past);

/* The same of a whole pool: each of its last rises is larger by a factor than the one before. */
bool levels_pool_scales(const struct levels *levels, size_t usage);

/*
 * Whether a pool needed more in each of the latest steps than in all before it. `out_steps`: in how many; 0: not known, as not each of them was
 * seen.
 */
bool levels_needs_rise(const struct levels *levels, size_t usage, uint32_t *out_steps);

/* What a pool has by itself: live bytes; of the driver without what pools on the device have reserved. */
uint64_t levels_now(const struct usage *usages, size_t count, const struct usage *usage);

/*
 * Whether a pool, from a sample by allocations on, freed next to nothing although it did before: what rose then is one burst.
 */
bool levels_is_burst(const struct levels *levels, const struct usage *usage, size_t index,
		     uint32_t middle);

/* Whether no sample saw a place hold less than an earlier one did. */
bool levels_never_fell(const struct levels *levels, size_t place);

/* Whether a step, but for the first that was seen, left a place with more than the one before. */
bool levels_rose_by_steps(const struct levels *levels, const struct level_place *place);

/* Whether a pool had most of what it has now already in the first half of the run. */
bool levels_are_steady(const struct levels *levels, size_t usage, uint64_t now);

/* The most that a pool had in use before the step, or before the last quarter of the run without steps; 0: nothing is usual yet. */
uint64_t levels_usual(const struct levels *levels, size_t usage);

/* Whether a request that was refused was made where the blocks of a place come from, as far as can be known. */
bool levels_is_of(struct replay *replay, const struct level_place *place, const struct oom *oom);

#endif
