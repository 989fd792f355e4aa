/* SPDX-License-Identifier: Apache-2.0 */
#include "shapes.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

void spot_push(struct spot *spot, uint32_t block)
{
	if (spot->tail == spot->queue_room) {
		spot->queue_room = spot->queue_room == 0 ? 64 : 2 * spot->queue_room;
		spot->queue = realloc(spot->queue, spot->queue_room * sizeof(*spot->queue));
		if (spot->queue == NULL) {
			perror("memory");
			abort();
		}
	}
	spot->queue[spot->tail++] = block;
}

uint32_t spot_pop(struct spot *spot)
{
	return spot->queue[spot->head++];
}

static bool first(const struct spot *s)
{
	return s->step == 1;
}

static uint64_t varied(const struct spot *s)
{
	return s->size / 2 + below((uint32_t)s->size) + 1;
}

static void temporary(struct spot *s, uint64_t bytes)
{
	spot_give(s, spot_take(s, bytes));
}

static void temporaries(struct spot *s, uint32_t least, uint32_t most)
{
	uint32_t count = between(least, most);

	while (count-- > 0)
		temporary(s, s->size);
}

/* Keeps the latest `depth` blocks. */
static void keep_latest(struct spot *s, uint64_t bytes, uint32_t depth)
{
	spot_push(s, spot_take(s, bytes));
	while (spot_queued(s) > depth)
		spot_give(s, spot_pop(s));
}

/* The new block takes the place of the old one. */
static void replace(struct spot *s, uint64_t bytes)
{
	keep_latest(s, bytes, 1);
}

/* ---- leaks ---- */

static void every_step(struct spot *s)
{
	s->rate = (double)s->size;
	spot_leak(s, s->size);
}

static void every_kth(struct spot *s)
{
	if (first(s))
		s->p[0] = between(2, 5);
	s->rate = (double)s->size / s->p[0];
	if (s->step % s->p[0] == 0)
		spot_leak(s, s->size);
}

static void now_and_then(struct spot *s, double probability)
{
	s->rate = (double)s->size * probability;
	if (chance(probability))
		spot_leak(s, s->size);
}

static void one_in_three(struct spot *s)
{
	now_and_then(s, 1 / 3.0);
}

static void one_in_ten(struct spot *s)
{
	now_and_then(s, 0.1);
}

static void varying(struct spot *s)
{
	s->rate = (double)s->size;
	spot_leak(s, varied(s));
}

static void seven_of_eight_freed(struct spot *s)
{
	int i;

	s->rate = (double)s->size;
	for (i = 0; i < 7; i++)
		temporary(s, s->size);
	spot_leak(s, s->size);
}

static void one_of_eight_by_chance(struct spot *s)
{
	int i;

	s->rate = (double)s->size;
	for (i = 0; i < 8; i++) {
		if (chance(1 / 8.0))
			spot_leak(s, s->size);
		else
			temporary(s, s->size);
	}
}

static void double_buffer_forgets(struct spot *s)
{
	s->rate = (double)s->size / 4;
	if (chance(0.25))
		spot_leak(s, s->size);
	else
		replace(s, s->size);
}

static void cat(struct spot *s)
{
	s->rate = (double)s->size;
	s->total += s->size;
	s->leaked_steps += s->step > 1;
	replace(s, s->total);
}

static void cat_varying(struct spot *s)
{
	s->rate = (double)s->size;
	s->total += varied(s);
	s->leaked_steps += s->step > 1;
	replace(s, s->total);
}

static void beside_a_long_one(struct spot *s)
{
	s->rate = (double)s->size;
	if (first(s))
		spot_push(s, spot_take(s, s->size));
	if (s->step == s->steps * 3 / 4 && spot_queued(s) > 0)
		spot_give(s, spot_pop(s));
	spot_leak(s, s->size);
}

static void one_in_twenty_steps(struct spot *s)
{
	s->rate = (double)s->size / 20;
	if (s->step % 20 == 7)
		spot_leak(s, s->size);
}

static void from_a_third_on(struct spot *s)
{
	s->rate = (double)s->size;
	if (s->step > s->steps / 3)
		spot_leak(s, s->size);
}

static void among_temporaries(struct spot *s)
{
	s->rate = (double)s->size;
	temporaries(s, 3, 20);
	spot_leak(s, s->size);
}

static void rare_among_temporaries(struct spot *s)
{
	temporaries(s, 3, 20);
	now_and_then(s, 0.25);
}

static void poisson_stream(struct spot *s)
{
	uint32_t count = poisson(1.5);

	s->rate = 1.5 * (double)s->size;
	while (count-- > 0)
		spot_leak(s, varied(s));
}

static void cache_and_leak(struct spot *s)
{
	if (s->step <= s->steps / 4)
		(void)spot_take(s, s->size);
	spot_leak(s, s->size);
}

static void sessions_that_forget(struct spot *s)
{
	int i;

	if (first(s))
		s->p[0] = between(2, 5);
	s->rate = (double)s->size / 2;
	for (i = 0; i < 5; i++) {
		if (chance(0.1))
			spot_leak(s, s->size);
		else
			spot_push(s, spot_take(s, s->size));
	}
	while (spot_queued(s) > s->p[0] * 5)
		spot_give(s, spot_pop(s));
}

static void bursts(struct spot *s)
{
	int i;

	s->rate = 4.0 * (double)s->size / 3;
	for (i = 0; i < 4 && s->step % 3 == 0; i++)
		spot_leak(s, s->size);
}

static void ever_larger(struct spot *s)
{
	s->total += s->size / 8;
	spot_leak(s, s->size + s->total);
}

static void two_at_a_time(struct spot *s)
{
	s->rate = 2.0 * (double)s->size;
	spot_leak(s, s->size);
	temporaries(s, 1, 3);
	spot_leak(s, s->size);
}

/* Three come, two go. */
static void queue_that_outgrows(struct spot *s)
{
	int i;

	s->rate = (double)s->size;
	s->leaked_steps += s->step > 1;
	for (i = 0; i < 3; i++)
		spot_push(s, spot_take(s, s->size));
	for (i = 0; i < 2; i++)
		spot_give(s, spot_pop(s));
}

/* Sizes over two decades, as those of sequences and images are. */
static uint64_t log_size(const struct spot *s)
{
	return (uint64_t)((double)s->size * exp(4.6 * (unit() - 0.5))) + 1;
}

static void sizes_of_two_decades(struct spot *s)
{
	spot_leak(s, log_size(s));
	temporary(s, log_size(s));
}

static void varying_among_temporaries(struct spot *s)
{
	uint32_t count = between(1, 10);

	s->rate = (double)s->size;
	while (count-- > 0)
		temporary(s, varied(s));
	spot_leak(s, varied(s));
}

/* Batches are padded to a multiple: few sizes, by chance. */
static void few_sizes(struct spot *s)
{
	spot_leak(s, s->size * between(1, 6));
	temporary(s, s->size * between(1, 6));
}

/* Lengths of sequences: each size comes again now and then. */
static void forty_sizes(struct spot *s)
{
	spot_leak(s, s->size * between(1, 40));
	temporary(s, s->size * between(1, 40));
}

/* Tensors of a cache that become longer together, one for each layer. */
static void cat_of_layers(struct spot *s)
{
	int i;

	s->total += s->size;
	s->leaked_steps += s->step > 1;
	for (i = 0; i < 4; i++)
		keep_latest(s, s->total, 4);
}

static void from_late_on(struct spot *s)
{
	if (first(s))
		s->p[0] = between(s->steps / 2, s->steps * 2 / 3);
	temporaries(s, 1, 3);
	if (s->step > s->p[0])
		spot_leak(s, s->size);
}

static void every_tenth_or_so(struct spot *s)
{
	if (first(s))
		s->p[0] = between(6, 12);
	s->rate = (double)s->size / s->p[0];
	temporary(s, s->size);
	if (s->step % s->p[0] == s->p[0] / 2)
		spot_leak(s, s->size);
}

static void beside_a_ring_of_its_size(struct spot *s)
{
	s->rate = (double)s->size;
	if (first(s))
		s->p[0] = between(2, 2 + s->steps / 10);
	keep_latest(s, s->size, s->p[0]);
	spot_leak(s, s->size);
}

static void beside_sessions(struct spot *s)
{
	uint32_t queued = spot_queued(s), i;

	for (i = 0; i < queued; i++) {
		uint32_t block = spot_pop(s);

		if (chance(0.4))
			spot_give(s, block);
		else
			spot_push(s, block);
	}
	for (i = poisson(3); i > 0; i--)
		spot_push(s, spot_take(s, s->size));
	now_and_then(s, 0.5);
}

/* Each flush forgets one. */
static void sawtooth_that_drifts(struct spot *s)
{
	if (first(s))
		s->p[0] = between(2, 5);
	s->p[1]++;
	if (s->p[1] < s->p[0]) {
		spot_push(s, spot_take(s, s->size));
		return;
	}
	while (spot_queued(s) > 0)
		spot_give(s, spot_pop(s));
	spot_leak(s, s->size);
	s->p[0] = between(2, 5);
	s->p[1] = 0;
}

static void cat_every_few_steps(struct spot *s)
{
	if (first(s))
		s->p[0] = between(2, 6);
	s->rate = (double)s->size / s->p[0];
	if (s->step % s->p[0] != 0)
		return;
	s->total += s->size;
	s->leaked_steps++;
	replace(s, s->total);
}

/* More come than go, by chance. */
static void server_that_falls_behind(struct spot *s)
{
	uint32_t in = poisson(2), out = poisson(1.4);

	s->rate = 0.6 * (double)s->size;
	while (in-- > 0)
		spot_push(s, spot_take(s, s->size));
	while (out-- > 0 && spot_queued(s) > 0)
		spot_give(s, spot_pop(s));
	/* By chance it may not fall behind at all: it does when it is behind twice as far as in the first half. */
	if (s->step <= s->steps / 2 && spot_queued(s) > s->p[0])
		s->p[0] = spot_queued(s);
	s->leaked_steps = spot_queued(s) >= 2 * s->p[0] ? spot_queued(s) / 3 : 0;
}

static void evaluation_leaks(struct spot *s)
{
	temporaries(s, 2, 6);
	if (s->step % 5 == 0)
		spot_leak(s, varied(s));
}

/* A graph that is kept: blocks of many layers, the same in every step. */
static void kept_graph(struct spot *s)
{
	uint32_t i;

	for (i = 0; i < 6; i++) {
		temporary(s, s->size + 512 * i);
		spot_leak(s, s->size + 512 * i);
	}
	s->rate = 6.0 * (double)s->size + 15 * 512;
}

static void more_and_more(struct spot *s)
{
	uint32_t i;

	for (i = 0; i <= s->step / 10; i++)
		spot_leak(s, s->size);
}

static void cache_that_fills_and_varying_leak(struct spot *s)
{
	if (s->step <= s->steps / 5)
		(void)spot_take(s, varied(s));
	if (chance(0.6))
		spot_leak(s, varied(s));
}

/* ---- healthy ---- */

static void only_temporaries(struct spot *s)
{
	uint32_t count = between(1, 20);

	while (count-- > 0)
		temporary(s, varied(s));
}

static void buffers_of_one_size(struct spot *s)
{
	if (first(s))
		s->p[0] = between(1, 3);
	keep_latest(s, s->size, s->p[0]);
}

static void buffers_of_varying_size(struct spot *s)
{
	if (first(s))
		s->p[0] = between(1, 3);
	keep_latest(s, varied(s), s->p[0]);
}

static void made_in_the_first_step(struct spot *s)
{
	int i;

	for (i = 0; i < 10 && first(s); i++)
		(void)spot_take(s, s->size);
}

static void checkpoint_every_five(struct spot *s)
{
	if (s->step % 5 == 0)
		replace(s, s->size);
}

static void cache_that_fills(struct spot *s)
{
	if (first(s))
		s->p[0] = between(2, 1 + s->steps / 4);
	if (s->step <= s->p[0])
		(void)spot_take(s, s->size);
}

static void cache_that_fills_by_chance(struct spot *s)
{
	if (first(s))
		s->p[0] = between(2, 1 + s->steps / 4);
	if (s->p[1] < s->p[0] && chance(0.8)) {
		s->p[1]++;
		(void)spot_take(s, s->size);
	}
	temporary(s, s->size);
}

static void pool_that_warms_up(struct spot *s)
{
	uint32_t i;

	if (first(s))
		s->p[0] = between(1, 4);
	for (i = 0; s->step <= s->p[0] && i < 8 / s->step; i++)
		(void)spot_take(s, s->size);
}

static void vector_that_doubles(struct spot *s)
{
	s->p[1] += 3;
	if (s->p[1] <= s->p[0])
		return;
	s->p[0] = s->p[0] == 0 ? 4 : 2 * s->p[0];
	replace(s, s->size * s->p[0]);
}

static void made_in_a_later_step(struct spot *s)
{
	if (first(s))
		s->p[0] = between(2, 2 + s->steps / 3);
	if (s->step == s->p[0])
		(void)spot_take(s, s->size);
}

static void lru_cache(struct spot *s)
{
	uint32_t count = below(4);

	if (first(s))
		s->p[0] = between(4, 4 + s->steps / 4);
	while (count-- > 0)
		keep_latest(s, varied(s), s->p[0]);
}

static void ring(struct spot *s)
{
	if (first(s))
		s->p[0] = between(2, 1 + s->steps / 4);
	keep_latest(s, s->size, s->p[0]);
}

static void state_that_comes_late(struct spot *s)
{
	int i;

	if (first(s))
		s->p[0] = between(2, 8);
	for (i = 0; i < 20 && s->step == s->p[0]; i++)
		(void)spot_take(s, s->size);
}

static void copy_at_step_twenty(struct spot *s)
{
	int i;

	for (i = 0; i < 20 && s->step == 20; i++)
		(void)spot_take(s, s->size);
}

/* Blocks of sessions that end by chance, a few after long. */
static void sessions(struct spot *s)
{
	uint32_t count = poisson(2), queued = spot_queued(s), i;

	if (first(s))
		s->p[0] = 2 + s->steps / between(8, 20);
	for (i = 0; i < queued; i++) {
		uint32_t block = spot_pop(s);

		if (chance(1.0 / s->p[0]))
			spot_give(s, block);
		else
			spot_push(s, block);
	}
	while (count-- > 0)
		spot_push(s, spot_take(s, varied(s)));
}

static void buffer_of_the_longest_input(struct spot *s)
{
	uint64_t want = varied(s);

	if (want <= s->total)
		return;
	s->total = want;
	replace(s, want);
}

static void queue_up_and_down(struct spot *s)
{
	uint32_t in = below(4), out = below(4);

	if (first(s))
		s->p[0] = between(10, 20);
	while (in-- > 0 && spot_queued(s) < s->p[0])
		spot_push(s, spot_take(s, s->size));
	while (out-- > 0 && spot_queued(s) > 0)
		spot_give(s, spot_pop(s));
}

static void buffer_that_is_flushed(struct spot *s)
{
	if (first(s))
		s->p[0] = between(2, 2 + s->steps / 4);
	spot_push(s, spot_take(s, s->size));
	while (s->step % s->p[0] == 0 && spot_queued(s) > 0)
		spot_give(s, spot_pop(s));
}

static void accumulation_of_four(struct spot *s)
{
	while (s->step % 4 == 1 && spot_queued(s) > 0)
		spot_give(s, spot_pop(s));
	spot_push(s, spot_take(s, s->size));
	temporaries(s, 1, 5);
}

static void evaluation_every_ten(struct spot *s)
{
	temporaries(s, 1, 4);
	while (spot_queued(s) > 0)
		spot_give(s, spot_pop(s));
	if (s->step % 10 == 0)
		spot_push(s, spot_take(s, s->size));
}

static void first_epoch_fills(struct spot *s)
{
	int i;

	for (i = 0; i < 2 && s->step <= s->steps / 3; i++)
		(void)spot_take(s, varied(s));
	temporaries(s, 1, 3);
}

static void alternating_sizes(struct spot *s)
{
	replace(s, s->step % 2 ? s->size : 2 * s->size);
}

static void two_threads_of_buffers(struct spot *s)
{
	keep_latest(s, varied(s), 4);
	keep_latest(s, varied(s), 4);
}

/* A key that was not met before is kept; it fills for as long as rare keys come. */
static void cache_of_zipf_keys(struct spot *s)
{
	int i;

	if (first(s))
		s->p[0] = between(10, 32);
	for (i = 0; i < 6; i++) {
		uint32_t key = (uint32_t)pow(s->p[0], unit()) % 32;

		if (!(s->p[1] >> key & 1)) {
			s->p[1] |= 1u << key;
			(void)spot_take(s, s->size);
		}
	}
}

/* Misses become rare. */
static void cache_slows_down(struct spot *s)
{
	uint32_t i;

	if (first(s))
		s->p[0] = 1 + s->steps / between(8, 16);
	for (i = 0; i < 4; i++) {
		if (chance(exp(-(double)s->step / s->p[0])))
			(void)spot_take(s, s->size);
		else
			temporary(s, s->size);
	}
}

static void sawtooth_of_varying_period(struct spot *s)
{
	if (first(s))
		s->p[0] = between(2, 2 + s->steps / 6);
	spot_push(s, spot_take(s, s->size));
	if (spot_queued(s) < s->p[0])
		return;
	while (spot_queued(s) > 0)
		spot_give(s, spot_pop(s));
	s->p[0] = between(2, 2 + s->steps / 6);
}

/* A table of keys that are drawn evenly; it doubles as it fills. */
static void dictionary_that_doubles(struct spot *s)
{
	uint32_t i;

	if (first(s))
		s->p[0] = between(8, 31);
	for (i = 0; i < 3; i++) {
		uint32_t key = below(s->p[0]);

		s->p[2] += !(s->p[1] >> key & 1);
		s->p[1] |= 1u << key;
	}
	if (3 * s->p[2] <= 2 * s->p[3])
		return;
	s->p[3] = s->p[3] == 0 ? 4 : 2 * s->p[3];
	replace(s, s->size * s->p[3]);
}

/* One buffer for each length of input that was met. */
static void buffer_per_bucket(struct spot *s)
{
	uint32_t i;

	if (first(s))
		s->p[0] = between(3, 6);
	for (i = 0; i < 2; i++) {
		uint32_t bucket = below(s->p[0]);

		if (!(s->p[1] >> bucket & 1)) {
			s->p[1] |= 1u << bucket;
			(void)spot_take(s, s->size * (bucket + 1));
		}
		temporary(s, s->size * (bucket + 1));
	}
}

/* Blocks of a random life that is bounded. */
static void lives_up_to(struct spot *s, uint32_t most, uint64_t (*size)(const struct spot *))
{
	uint32_t queued = spot_queued(s), i;

	for (i = 0; i < queued; i++) {
		uint32_t block = spot_pop(s);

		if (chance(2.0 / most))
			spot_give(s, block);
		else
			spot_push(s, block);
	}
	while (spot_queued(s) > 2 * most)
		spot_give(s, spot_pop(s));
	spot_push(s, spot_take(s, size(s)));
	if (chance(0.5))
		spot_push(s, spot_take(s, size(s)));
}

static uint64_t one_size(const struct spot *s)
{
	return s->size;
}

static void short_sessions(struct spot *s)
{
	lives_up_to(s, 5, one_size);
}

static void short_sessions_of_many_sizes(struct spot *s)
{
	lives_up_to(s, 5, log_size);
}

/* The best model so far is kept: improvements become rare. */
static void best_so_far(struct spot *s)
{
	temporary(s, s->size);
	if (chance(1.5 / s->step))
		replace(s, s->size);
}

/* An average of the weights, made anew in each step from the second on. */
static void ema_of_step_two(struct spot *s)
{
	int i;

	for (i = 0; i < 5 && s->step >= 2; i++)
		keep_latest(s, s->size, 5);
	temporaries(s, 5, 5);
}

/* Workers start one after the other. */
static void threads_that_start(struct spot *s)
{
	if (first(s))
		s->p[0] = between(2, 8);
	if (s->p[1] < s->p[0] && chance(0.6)) {
		s->p[1]++;
		(void)spot_take(s, s->size);
	}
	temporaries(s, 1, 8);
}

/* Inputs become longer in stages. */
static void longer_in_stages(struct spot *s)
{
	uint32_t stage = 1 + 4 * (s->step - 1) / s->steps;

	replace(s, s->size * (stage < 3 ? stage : 3));
}

static void longer_until_half(struct spot *s)
{
	uint32_t half = s->steps / 2;

	replace(s, s->size * (s->step < half ? s->step : half));
}

/* One line that has a ring and a cache: the cache has filled long ago. */
static void ring_and_cache(struct spot *s)
{
	if (first(s))
		s->p[0] = between(2, 2 + s->steps / 10);
	keep_latest(s, s->size, s->p[0]);
	if (s->step <= s->steps / 5 && chance(0.5))
		(void)spot_take(s, s->size);
}

static void last_three_checkpoints(struct spot *s)
{
	if (first(s))
		s->p[0] = between(2, 6);
	if (s->step % s->p[0] == 0)
		keep_latest(s, varied(s), 3);
}

static void replaced_now_and_then(struct spot *s)
{
	if (first(s) || chance(0.15))
		replace(s, s->size);
}

static void cleared_late(struct spot *s)
{
	if (s->step <= s->steps / 4)
		spot_push(s, spot_take(s, s->size));
	while (s->step == s->steps * 3 / 4 && spot_queued(s) > 0)
		spot_give(s, spot_pop(s));
}

static void second_phase(struct spot *s)
{
	int i;

	if (first(s) || s->step == s->steps / 2) {
		while (spot_queued(s) > 0)
			spot_give(s, spot_pop(s));
		for (i = 0; i < 6; i++)
			spot_push(s, spot_take(s, varied(s)));
	}
	temporaries(s, 1, 3);
}

static void rebuilt_every_ten(struct spot *s)
{
	int i;

	if (s->step % 10 != 1)
		return;
	while (spot_queued(s) > 0)
		spot_give(s, spot_pop(s));
	for (i = 0; i < 8; i++)
		spot_push(s, spot_take(s, varied(s)));
}

static void prefetch_of_varying_depth(struct spot *s)
{
	uint32_t depth = between(2, 5);

	while (spot_queued(s) > 0 && spot_queued(s) >= depth)
		spot_give(s, spot_pop(s));
	while (spot_queued(s) < depth)
		spot_push(s, spot_take(s, s->size));
}

/* Random accumulation: gradients live until the optimizer steps. */
static void accumulation_of_varying_length(struct spot *s)
{
	if (s->p[0] == 0) {
		while (spot_queued(s) > 0)
			spot_give(s, spot_pop(s));
		s->p[0] = between(1, 6);
	}
	s->p[0]--;
	if (spot_queued(s) == 0)
		spot_push(s, spot_take(s, s->size));
	temporaries(s, 1, 4);
}

/* ---- what a history cannot tell ---- */

static void ring_longer_than_the_run(struct spot *s)
{
	spot_push(s, spot_take(s, s->size));
}

static void once_among_temporaries(struct spot *s)
{
	if (first(s))
		s->p[0] = between(2, s->steps);
	if (s->step == s->p[0])
		(void)spot_take(s, s->size);
	temporary(s, s->size);
}

static void in_the_last_step(struct spot *s)
{
	if (s->step == s->steps)
		(void)spot_take(s, s->size);
	temporary(s, s->size);
}

static void made_later_among_temporaries(struct spot *s)
{
	made_in_a_later_step(s);
	temporaries(s, 1, 20);
}

/* A block at steps 1, 2, 4, 8, ...: it may be bounded or not. */
static void grows_like_a_logarithm(struct spot *s)
{
	if ((s->step & (s->step - 1)) == 0)
		(void)spot_take(s, s->size);
	temporary(s, s->size);
}

static void leak_that_stops(struct spot *s)
{
	if (s->step <= s->steps / 2)
		(void)spot_take(s, s->size);
	temporary(s, s->size);
}

const struct shape shapes[] = {
	{"every_step", LEAKING, every_step, false, false},
	{"every_kth", LEAKING, every_kth, false, false},
	{"one_in_three", LEAKING, one_in_three, false, false},
	{"one_in_ten", LEAKING, one_in_ten, false, false},
	{"varying", LEAKING, varying, true, false},
	{"seven_of_eight_freed", LEAKING, seven_of_eight_freed, false, false},
	{"one_of_eight_by_chance", LEAKING, one_of_eight_by_chance, false, false},
	{"double_buffer_forgets", LEAKING, double_buffer_forgets, false, false},
	{"cat", LEAKING, cat, true, false},
	{"cat_varying", LEAKING, cat_varying, true, false},
	{"beside_a_long_one", LEAKING, beside_a_long_one, false, false},
	{"one_in_twenty_steps", LEAKING, one_in_twenty_steps, false, false},
	{"from_a_third_on", LEAKING, from_a_third_on, false, false},
	{"among_temporaries", LEAKING, among_temporaries, false, false},
	{"rare_among_temporaries", LEAKING, rare_among_temporaries, false, false},
	{"poisson_stream", LEAKING, poisson_stream, true, false},
	{"cache_and_leak", LEAKING, cache_and_leak, false, false},
	{"sessions_that_forget", LEAKING, sessions_that_forget, false, false},
	{"bursts", LEAKING, bursts, false, false},
	{"ever_larger", LEAKING, ever_larger, true, false},
	{"two_at_a_time", LEAKING, two_at_a_time, false, false},
	{"queue_that_outgrows", LEAKING, queue_that_outgrows, false, false},
	{"sizes_of_two_decades", LEAKING, sizes_of_two_decades, true, false},
	{"varying_among_temporaries", LEAKING, varying_among_temporaries, true, false},
	{"few_sizes", LEAKING, few_sizes, false, false},
	{"forty_sizes", LEAKING, forty_sizes, true, false},
	{"cat_of_layers", LEAKING, cat_of_layers, true, false},
	{"from_late_on", LEAKING, from_late_on, false, false},
	{"every_tenth_or_so", LEAKING, every_tenth_or_so, false, false},
	{"beside_a_ring_of_its_size", LEAKING, beside_a_ring_of_its_size, false, false},
	{"beside_sessions", LEAKING, beside_sessions, false, false},
	{"sawtooth_that_drifts", LEAKING, sawtooth_that_drifts, false, false},
	{"cat_every_few_steps", LEAKING, cat_every_few_steps, true, false},
	{"server_that_falls_behind", LEAKING, server_that_falls_behind, false, false},
	{"evaluation_leaks", LEAKING, evaluation_leaks, true, false},
	{"kept_graph", LEAKING, kept_graph, false, false},
	{"more_and_more", LEAKING, more_and_more, false, false},
	{"cache_that_fills_and_varying_leak", LEAKING, cache_that_fills_and_varying_leak, true,
	 false},
	{"only_temporaries", HEALTHY, only_temporaries, true, false},
	{"buffers_of_one_size", HEALTHY, buffers_of_one_size, false, false},
	{"buffers_of_varying_size", HEALTHY, buffers_of_varying_size, true, false},
	{"made_in_the_first_step", HEALTHY, made_in_the_first_step, false, false},
	{"checkpoint_every_five", HEALTHY, checkpoint_every_five, false, false},
	{"cache_that_fills", HEALTHY, cache_that_fills, false, false},
	{"cache_that_fills_by_chance", HEALTHY, cache_that_fills_by_chance, false, false},
	{"pool_that_warms_up", HEALTHY, pool_that_warms_up, false, false},
	{"vector_that_doubles", HEALTHY, vector_that_doubles, true, false},
	{"made_in_a_later_step", HEALTHY, made_in_a_later_step, false, false},
	{"lru_cache", HEALTHY, lru_cache, true, false},
	{"ring", HEALTHY, ring, false, false},
	{"state_that_comes_late", HEALTHY, state_that_comes_late, false, false},
	{"copy_at_step_twenty", HEALTHY, copy_at_step_twenty, false, false},
	{"sessions", HEALTHY, sessions, true, false},
	{"buffer_of_the_longest_input", HEALTHY, buffer_of_the_longest_input, true, false},
	{"queue_up_and_down", HEALTHY, queue_up_and_down, false, false},
	{"buffer_that_is_flushed", HEALTHY, buffer_that_is_flushed, false, false},
	{"accumulation_of_four", HEALTHY, accumulation_of_four, false, false},
	{"evaluation_every_ten", HEALTHY, evaluation_every_ten, false, false},
	{"first_epoch_fills", HEALTHY, first_epoch_fills, true, false},
	{"alternating_sizes", HEALTHY, alternating_sizes, true, false},
	{"two_threads_of_buffers", HEALTHY, two_threads_of_buffers, true, false},
	{"cache_of_zipf_keys", HEALTHY, cache_of_zipf_keys, false, true},
	{"cache_slows_down", HEALTHY, cache_slows_down, false, false},
	{"sawtooth_of_varying_period", HEALTHY, sawtooth_of_varying_period, false, false},
	{"dictionary_that_doubles", HEALTHY, dictionary_that_doubles, true, false},
	{"buffer_per_bucket", HEALTHY, buffer_per_bucket, true, false},
	{"short_sessions", HEALTHY, short_sessions, false, false},
	{"short_sessions_of_many_sizes", HEALTHY, short_sessions_of_many_sizes, true, false},
	{"best_so_far", HEALTHY, best_so_far, false, false},
	{"ema_of_step_two", HEALTHY, ema_of_step_two, false, false},
	{"threads_that_start", HEALTHY, threads_that_start, false, true},
	{"longer_in_stages", HEALTHY, longer_in_stages, true, false},
	{"longer_until_half", HEALTHY, longer_until_half, true, false},
	{"ring_and_cache", HEALTHY, ring_and_cache, false, false},
	{"last_three_checkpoints", HEALTHY, last_three_checkpoints, true, false},
	{"replaced_now_and_then", HEALTHY, replaced_now_and_then, false, false},
	{"cleared_late", HEALTHY, cleared_late, false, false},
	{"second_phase", HEALTHY, second_phase, true, false},
	{"rebuilt_every_ten", HEALTHY, rebuilt_every_ten, true, false},
	{"prefetch_of_varying_depth", HEALTHY, prefetch_of_varying_depth, false, false},
	{"accumulation_of_varying_length", HEALTHY, accumulation_of_varying_length, false, false},
	{"ring_longer_than_the_run", UNDECIDABLE, ring_longer_than_the_run, false, false},
	{"once_among_temporaries", UNDECIDABLE, once_among_temporaries, false, false},
	{"in_the_last_step", UNDECIDABLE, in_the_last_step, false, false},
	{"made_later_among_temporaries", UNDECIDABLE, made_later_among_temporaries, false, false},
	{"grows_like_a_logarithm", UNDECIDABLE, grows_like_a_logarithm, false, false},
	{"leak_that_stops", UNDECIDABLE, leak_that_stops, false, false},
};

const uint32_t shape_count = sizeof(shapes) / sizeof(shapes[0]);
