/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Walks that were made before. A program that does the same again has the same stacks in the same order, so what came last time behind
 * the last few walks is expected to come again. It has come again when all words that it read from the stack are what they were:
 * nothing else tells a walk where to go, as long as the tables are the same. To compare them needs no row, and no word to know where the
 * next one lies.
 *
 * One thread's own; a thread that takes it over finds walks that do not fit, or fit.
 */
#ifndef MSCOPE_COLLECTOR_UNWIND_KNOWN_WALKS_H
#define MSCOPE_COLLECTOR_UNWIND_KNOWN_WALKS_H

#include "collector/unwind/stack_span.h"

#define KNOWN_WALKS    1024u
#define EXPECTED_WALKS 8192u

struct known_walk {
	uint64_t tables; /* that it was made with; `words` 0: nothing is here */
	uint64_t hash;	 /* the user's */
	uint32_t max;	 /* that was asked for */
	uint32_t count;
	uint32_t skip;	/* the user's */
	uint32_t reach; /* bytes of the stack that it took in */
	uint32_t words;
	uint32_t bases;
	struct walk_base base[WALK_WORDS];
	uint32_t at[WALK_WORDS]; /* where each frame was read, from the stack pointer on */
	void *frames[WALK_WORDS];
};

/* Zeroed: none. */
struct known_walks {
	struct known_walk *found; /* what the last unwind_frames() has found again, NULL: nothing */
	uint64_t history;	  /* the last walks, mixed; older ones are shifted out */
	uint16_t expected[EXPECTED_WALKS]; /* number of a walk, by the history before it */
	struct known_walk all[KNOWN_WALKS];
};

/* What the history is followed by. */
static inline uint16_t *walk_expected(struct known_walks *walks)
{
	return &walks->expected[walks->history * UINT64_C(0x9e3779b97f4a7c15) >> (64 - 13)];
}

_Static_assert(EXPECTED_WALKS == 1u << 13, "walk_expected() takes 13 bits");

/* It has come. */
static inline void walk_came(struct known_walks *walks, const struct known_walk *walk)
{
	walks->history = walks->history << 8 ^ (walk->hash >> 40 & 0xffff);
}

/* Remembers what unwind_frames() has just found in `frames`, of which `max` were asked for. */
void walk_keep(struct known_walks *walks, const struct own_stack *own, void *const *frames,
	       uint32_t count, uint32_t max, uint32_t skip, uint64_t hash);

#endif
