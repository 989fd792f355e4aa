/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What places of programs do with memory, step by step, with known truth: leaking, healthy, or such that no history of this length can
 * tell. A shape is a function that is called once per step and allocates and frees by the functions below, which judge.c has.
 */
#ifndef MSCOPE_TESTS_JUDGE_SHAPES_H
#define MSCOPE_TESTS_JUDGE_SHAPES_H

#include <stdbool.h>
#include <stdint.h>

enum shape_truth { LEAKING, HEALTHY, UNDECIDABLE, TRUTHS };

/* One place of a program. */
struct spot {
	uint32_t number;
	const struct shape *shape;
	uint32_t step, steps; /* now, and of the run */
	uint64_t size;	      /* of its blocks, or the mean of it */
	uint32_t p[4];	      /* parameters of the shape */
	uint64_t total;	      /* a size that grows */
	uint32_t *queue;      /* blocks that are to be freed in order */
	uint32_t head, tail, queue_room;
	double rate;	       /* true mean growth in bytes per step; 0: none, or not even */
	uint32_t leaked_steps; /* distinct steps from the second on whose blocks it never frees */
	uint32_t last_leak;
};

struct shape {
	const char *name;
	enum shape_truth truth;
	void (*step)(struct spot *spot);
	bool varies; /* blocks of many sizes: without stacks the pool's trend and a suspect tell of it */
	bool still_fills; /* healthy, but the run may end before it shows: judgement.md tells its figures apart */
};

extern const struct shape shapes[];
extern const uint32_t shape_count;

/* A block of this spot, as a number. */
uint32_t spot_take(struct spot *spot, uint64_t bytes);
/* One that the program's steps never free. */
void spot_leak(struct spot *spot, uint64_t bytes);
void spot_give(struct spot *spot, uint32_t block);
void spot_push(struct spot *spot, uint32_t block);
uint32_t spot_pop(struct spot *spot);

static inline uint32_t spot_queued(const struct spot *spot)
{
	return spot->tail - spot->head;
}

/* Random numbers that are the same in every run (chance.c); whoever sets the state back gets the same ones again. */
extern uint64_t chance_state;
uint64_t chance_next(void);
uint32_t below(uint32_t end);
uint32_t between(uint32_t first, uint32_t last);
bool chance(double probability);
uint32_t poisson(double mean);
double unit(void);

#endif
