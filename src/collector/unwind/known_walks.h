/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Walks that were made before. A program that does the same again has the same stacks in the same order, so what came last time behind
 * the last few walks is expected to come again. It has come again when all words that it read from the stack are what they were:
 * nothing else tells a walk where to go, as long as the tables are the same. To compare them needs no row, and no word to know where
 * the next one lies.
 *
 * What costs here is memory that is not in the processor's caches: walks lie side by side, each as short as it can be.
 *
 * One thread's own; a thread that takes it over finds walks that do not fit, or fit.
 */
#ifndef MSCOPE_COLLECTOR_UNWIND_KNOWN_WALKS_H
#define MSCOPE_COLLECTOR_UNWIND_KNOWN_WALKS_H

#include "collector/unwind/stack_span.h"

#define WALKS_UNIT     16u    /* bytes */
#define WALKS_UNITS    32768u /* of them, for all walks */
#define WALKS_EXPECTED 32768u
#define WALKS_BY_HASH  4096u
#define WALK_FETCHED   384u /* bytes of a walk of 20 frames */

/* What one walk read, and what its user makes of it. Behind it lie the frames, the bases and where each frame was read, in words. */
struct known_walk {
	uint64_t tables; /* that it was made with */
	uint64_t hash;	 /* of the frames that the user takes */
	uint64_t whole;	 /* the user's: hash of the whole stack, 0: none */
	uint32_t stack;	 /* the user's: number of that stack */
	uint32_t reach;	 /* bytes of the stack that it took in */
	uint16_t next;	 /* unit of the walk that came after it */
	uint8_t max;	 /* frames that were asked for */
	uint8_t count;
	uint8_t skip;  /* the user's: frames that it does not take */
	uint8_t words; /* count, or one more: the word that ended it. 0: nothing is here */
	uint8_t bases;
	void *frames[];
};

/* Zeroed: none. */
struct known_walks {
	struct known_walk *found; /* what the last unwind_frames() has found again, NULL: nothing */
	uint64_t history;	  /* the last walks, mixed; older ones are shifted out */
	uint32_t used;		  /* units; the first one is nothing's */
	uint16_t last;		  /* unit of the walk that came last, 0: none */
	uint16_t expected[WALKS_EXPECTED]; /* unit of a walk, by the history before it */
	uint16_t by_hash[WALKS_BY_HASH];   /* unit of a walk */
	uint64_t units[WALKS_UNITS * WALKS_UNIT / 8];
};

static inline struct walk_base *walk_bases(struct known_walk *walk)
{
	return (struct walk_base *)&walk->frames[walk->words];
}

static inline uint16_t *walk_places(struct known_walk *walk)
{
	return (uint16_t *)(walk_bases(walk) + walk->bases);
}

/* What the history is followed by. */
static inline uint16_t *walk_expected(struct known_walks *walks)
{
	return &walks->expected[walks->history * UINT64_C(0x9e3779b97f4a7c15) >> (64 - 15)];
}

_Static_assert(WALKS_EXPECTED == 1u << 15, "walk_expected() takes 15 bits");

static inline struct known_walk *walk_at(struct known_walks *walks, uint16_t unit)
{
	return (struct known_walk *)&walks->units[unit * (WALKS_UNIT / 8)];
}

/*
 * It has come. Until the next one comes the program uses so much memory that nothing of it is near; so it is asked for now, by what came after
 * this one before.
 */
static inline void walk_came(struct known_walks *walks, struct known_walk *walk, uint16_t unit)
{
	const char *next = (const char *)walk_at(walks, walk->next);
	uint32_t i;

	walks->history = walks->history << 8 ^ (walk->hash >> 40 & 0xffff);
	__builtin_prefetch(walk_expected(walks));
	for (i = 0; i < WALK_FETCHED; i += 64)
		__builtin_prefetch(next + i);
	if (walks->last != 0)
		walk_at(walks, walks->last)->next = unit;
	walks->last = unit;
}

/* Forgets what a walk read after its first `count` frames; `count` is at least 1. */
void walk_cut(struct walk_reads *reads, uint32_t count);

/* Remembers what unwind_frames() has just found in `frames`, of which `max` were asked for. */
void walk_keep(struct known_walks *walks, const struct own_stack *own, void *const *frames,
	       uint32_t count, uint32_t max, uint32_t skip, uint64_t hash);

#endif
