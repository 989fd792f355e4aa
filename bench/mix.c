/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mix train EVENTS WORK: the memory life of a training loop. mix live BLOCKS: blocks that are never given back.
 *
 * A step goes forward through 24 layers, each a norm, an attention and a feed-forward part; every operator takes a workspace
 * for itself and leaves an activation that lives until the same layer's turn on the way back, where gradients come and go.
 * Sizes are those of a decoder with hidden size 4096 in 16 bits, for a number of tokens that is drawn anew for each step in
 * multiples of 16, as with batches of real text; weights and optimizer states are taken once and stay. So addresses, sizes and
 * call stacks come back step after step, in the disorder that changing lengths make, and about half of all blocks live for
 * one operator only. The driver below decides on the addresses; with the simulated NPU they are a buddy allocator's.
 *
 * WORK is how much the program does of its own for each event, in multiplications, on average: between nothing and twice as
 * much, drawn for each. Prints one line of JSON: the events made, the clock at the start and when the work was done, and the
 * CPU time between.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "ascend_hal.h"

#define MODULE ((uint64_t)3 << 56) /* who asks; any number does */
#define HIDDEN UINT64_C(4096)
#define HEADS  UINT64_C(32)
#define LAYERS 24
#define KEPT   8 /* activations of one layer */

static uint64_t events, limit, work_mean, flag = MEM_DEV | MEM_PAGE_HUGE | MODULE;
static uint64_t random_state = UINT64_C(0x2545f4914f6cdd1d); /* the same walk every time */

static void *activations[LAYERS][KEPT];
static unsigned kept[LAYERS];

static uint64_t clock_ns(clockid_t clock)
{
	struct timespec now;

	clock_gettime(clock, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static uint64_t random_below(uint64_t bound)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return random_state % bound;
}

static void work(void)
{
	uint64_t count = work_mean == 0 ? 0 : random_below(work_mean * 2);
	volatile uint64_t result;
	uint64_t value = count;

	while (count-- > 0)
		value = value * UINT64_C(6364136223846793005) + 1;
	result = value;
	(void)result;
}

/* Not inlined and never last in their callers: the stacks are to be those of a program with functions. */
#define FRAME  __attribute__((noinline))
#define STAY() __asm__ volatile("" ::: "memory")

static FRAME void *take(uint64_t bytes)
{
	void *block = NULL;

	work();
	if (halMemAlloc(&block, bytes, flag) != DRV_ERROR_NONE) {
		fprintf(stderr, "mix: the device is full\n");
		exit(1);
	}
	events++;
	return block;
}

static FRAME void give(void *block)
{
	work();
	(void)halMemFree(block);
	events++;
}

/* An operator: a workspace for as long as it runs, and its result. */
static FRAME void *operator_run(uint64_t workspace, uint64_t result)
{
	void *space = take(workspace), *out = take(result);

	give(space);
	return out;
}

static void keep(int layer, void *block)
{
	activations[layer][kept[layer]++] = block;
}

static FRAME void norm_forward(int layer, uint64_t tokens)
{
	keep(layer, operator_run(tokens * 4, tokens * HIDDEN * 2));
	STAY();
}

static FRAME void attention_forward(int layer, uint64_t tokens)
{
	void *qkv = operator_run(tokens * 512, 3 * tokens * HIDDEN * 2);

	keep(layer, operator_run(tokens * HEADS * 8, tokens * HIDDEN * 2));
	keep(layer, operator_run(HIDDEN * 64, tokens * HIDDEN * 2));
	give(qkv);
}

static FRAME void feed_forward(int layer, uint64_t tokens)
{
	void *gate = operator_run(HIDDEN * 64, tokens * HIDDEN * 5);

	keep(layer, operator_run(HIDDEN * 64, tokens * HIDDEN * 5));
	keep(layer, operator_run(tokens * 256, tokens * HIDDEN * 2));
	give(gate);
}

static FRAME void layer_backward(int layer, uint64_t tokens)
{
	void *gradient = operator_run(HIDDEN * 64, tokens * HIDDEN * 2);

	while (kept[layer] > 0) {
		void *next = operator_run(HIDDEN * 64, tokens * HIDDEN * 2);

		give(activations[layer][--kept[layer]]);
		give(gradient);
		gradient = next;
	}
	give(gradient);
}

static FRAME void optimizer_step(void)
{
	/* A few scratch blocks per layer, and small scalars as a loop logs them. */
	for (int layer = 0; layer < LAYERS; layer++) {
		void *scalar = take(512);

		give(operator_run(HIDDEN * 64, HIDDEN * HIDDEN));
		give(scalar);
	}
}

static FRAME void training_step(uint64_t tokens)
{
	for (int layer = 0; layer < LAYERS; layer++) {
		norm_forward(layer, tokens);
		attention_forward(layer, tokens);
		feed_forward(layer, tokens);
	}
	for (int layer = LAYERS - 1; layer >= 0; layer--)
		layer_backward(layer, tokens);
	optimizer_step();
}

static FRAME void train(void)
{
	for (int layer = 0; layer < LAYERS; layer++) {
		/* Weights, gradients and two moments of a layer, each in three parts. */
		for (int i = 0; i < 12; i++)
			(void)take(HIDDEN * HIDDEN * (i % 3 + 1) / 2);
	}
	while (events < limit)
		training_step(16 * (32 + random_below(97)));
}

int main(int argc, char **argv)
{
	uint64_t start = clock_ns(CLOCK_MONOTONIC);

	limit = argc > 2 ? strtoull(argv[2], NULL, 10) : 0;
	if (argc == 4 && strcmp(argv[1], "train") == 0) {
		work_mean = strtoull(argv[3], NULL, 10);
		train();
	} else if (argc == 3 && strcmp(argv[1], "live") == 0) {
		flag = MEM_DEV | MODULE;
		while (events < limit)
			(void)take(512 << random_below(4));
	} else {
		fprintf(stderr, "usage: mix train EVENTS WORK | mix live BLOCKS\n");
		return 2;
	}
	printf("{\"events\": %llu, \"start_ns\": %llu, \"end_ns\": %llu, \"cpu_ns\": %llu}\n",
	       (unsigned long long)events, (unsigned long long)start,
	       (unsigned long long)clock_ns(CLOCK_MONOTONIC),
	       (unsigned long long)clock_ns(CLOCK_PROCESS_CPUTIME_ID));
	return 0;
}
