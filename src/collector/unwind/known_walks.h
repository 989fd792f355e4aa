/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Walks that were made before. A program that does the same again has the same stacks in the same order, so what came last time behind
 * the last few walks is expected to come again. It has come again when all words that it read from the stack are what they were:
 * nothing else tells a walk where to go, as long as the tables are the same. To compare them needs no row, and no word to know where
 * the next one lies.
 *
 * What costs here is memory that is not in the processor's caches. So words are compared by their hash: two cache lines of a walk tell
 * whether it has come, and its frames are not read. Two different stacks with one hash are as likely as a flipped bit in memory.
 *
 * One thread's own; a thread that takes it over finds walks that do not fit, or fit.
 */
#ifndef MSCOPE_COLLECTOR_UNWIND_KNOWN_WALKS_H
#define MSCOPE_COLLECTOR_UNWIND_KNOWN_WALKS_H

#include "collector/unwind/stack_span.h"

#define WALKS_UNIT     64u    /* bytes, a cache line */
#define WALKS_UNITS    10240u /* of them, for all walks */
#define WALKS_EXPECTED 32768u
#define WALKS_BY_HASH  4096u
#define WALK_FETCHED                                                                               \
	192u /* bytes that tell whether a walk of 20 frames has come, each with a frame pointer */
#define WALK_LANES 4u /* chains in which words are hashed */

/* What one walk read, and what its user makes of it. Behind it lie where each word and each base was read, in words, and the frames. */
struct known_walk {
	uint64_t tables; /* that it was made with */
	uint64_t words;	 /* hash of the words and bases that it read */
	uint64_t hash;	 /* of the frames that the user takes */
	uint64_t whole;	 /* the user's: hash of the whole stack, 0: none */
	uint32_t stack;	 /* the user's: number of that stack */
	uint32_t reach;	 /* bytes of the stack that it took in */
	uint16_t next;	 /* unit of the walk that came after it */
	uint8_t max;	 /* frames that were asked for */
	uint8_t count;
	uint8_t skip; /* the user's: frames that it does not take */
	/* Multiples of WALK_LANES: the first one fills up. 0 places: nothing is here. */
	uint8_t places; /* of words */
	uint8_t bases;
	bool forks; /* not always the same one comes after it */
	uint16_t place[];
};

/* Where walks are kept. */
struct walk_store {
	uint16_t expected[WALKS_EXPECTED]; /* unit of a walk, by the history before it */
	uint16_t by_hash[WALKS_BY_HASH];   /* unit of a walk */
	_Alignas(WALKS_UNIT) uint8_t units[WALKS_UNITS][WALKS_UNIT];
};

/* Zeroed: none. Small, so that it can lie in the cache line with what else a walk needs. */
struct known_walks {
	struct walk_store *store; /* NULL: none are kept */
	struct known_walk *found; /* what the last unwind_frames() has found again, NULL: nothing */
	uint64_t history;	  /* the last walks, mixed; older ones are shifted out */
	uint16_t last;		  /* unit of the walk that came last, 0: none */
	uint16_t guess;		  /* what came after it before */
	uint16_t used;		  /* units; the first ones are nothing's */
	uint16_t reserved;
};

_Static_assert(WALKS_UNITS <= UINT16_MAX, "numbers of units");

#define WALK_PLACE_REGISTER UINT16_MAX /* of a base that is not on the stack */

static inline void **walk_frames(struct known_walk *walk)
{
	uintptr_t end = (uintptr_t)&walk->place[walk->places + walk->bases];

	return (void **)((end + 7) & ~(uintptr_t)7);
}

/* What the history is followed by. */
static inline uint16_t *walk_expected(const struct known_walks *walks)
{
	return &walks->store->expected[walks->history * UINT64_C(0x9e3779b97f4a7c15) >> (64 - 15)];
}

_Static_assert(WALKS_EXPECTED == 1u << 15, "walk_expected() takes 15 bits");

static inline struct known_walk *walk_at(const struct known_walks *walks, uint16_t unit)
{
	return (struct known_walk *)(void *)walks->store->units[unit];
}

static inline uint32_t walk_filled(uint32_t count)
{
	return (count + WALK_LANES - 1) / WALK_LANES * WALK_LANES;
}

/* A hash of words, the lanes one after the other. No change of a single word is lost: all factors are odd. */
struct words_hash {
	uint64_t lane[WALK_LANES];
};

static inline void words_add(struct words_hash *h, uint32_t lane, uint64_t word)
{
	h->lane[lane] = h->lane[lane] * UINT64_C(0x9e3779b97f4a7c15) + word;
}

static inline uint64_t words_end(const struct words_hash *h)
{
	return h->lane[0] + h->lane[1] * UINT64_C(0xd6e8feb86659fd93) +
	       h->lane[2] * UINT64_C(0xc2b2ae3d27d4eb4f) +
	       h->lane[3] * UINT64_C(0xff51afd7ed558ccd);
}

/*
 * It has come. Until the next one comes the program uses so much memory that nothing of it is near; so it is asked for now: what came after
 * this one before, or after the last few where that was not the same each time.
 */
static inline void walk_came(struct known_walks *walks, struct known_walk *walk, uint16_t unit)
{
	const char *next;
	uint32_t i;

	walks->history = walks->history << 8 ^ (walk->hash >> 40 & 0xffff);
	if (walks->last != 0 && walks->guess != unit) {
		struct known_walk *before = walk_at(walks, walks->last);

		before->forks = before->next != 0;
		before->next = unit;
	}
	walks->last = unit;
	walks->guess = walk->forks ? *walk_expected(walks) : walk->next;
	next = (const char *)walk_at(walks, walks->guess);
	for (i = 0; i < WALK_FETCHED; i += 64)
		__builtin_prefetch(next + i);
}

/* Forgets what a walk read after its first `count` frames; `count` is at least 1. */
void walk_cut(struct walk_reads *reads, uint32_t count);

/* Remembers what unwind_frames() has just found in `frames`, of which `max` were asked for. */
void walk_keep(struct known_walks *walks, const struct own_stack *own, void *const *frames,
	       uint32_t count, uint32_t max, uint32_t skip, uint64_t hash);

#endif
