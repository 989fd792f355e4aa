/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How often the same call sites come round in the history of a memory snapshot, which has no steps.
 *
 * A program that starts only allocates, and so does its first training step: weights, gradients, the state of the optimizer. Growth
 * means something only where the work repeats. Call sites that allocate often enough to be in every round are the work; a round is
 * over when nearly all of them have allocated and most of what the round took is free again, and the next begins where
 * the least is held after that. So loops over the layers of a model, or over its parameters, are no rounds: they keep what they
 * allocate, or leave out a part of the work.
 */
#ifndef MSCOPE_IMPORT_SNAPSHOT_ROUNDS_H
#define MSCOPE_IMPORT_SNAPSHOT_ROUNDS_H

#include <stddef.h>
#include <stdint.h>

struct pickle;

/* An allocation or a free. */
struct round_event {
	uint32_t site; /* number of the call site, from 1; 0: a free */
	uint64_t size_bytes;
	size_t entry; /* of the history, from 0 */
};

/*
 * Rounds of one history; call sites have numbers up to `sites`. `ends`, which has room for `count`, gets the entries after which the
 * least of each round is held: there one ends and the next begins. The last one has no end if no work follows: what is freed there
 * is freed by the end of the program. Negative: no memory.
 */
int64_t rounds_find(const struct round_event *events, size_t count, uint32_t sites, size_t *ends,
		    size_t *out_ends);

struct snapshot_rounds {
	uint64_t count; /* of the device on which call sites come round least often */
	/* Ends of rounds on the device that has the most of them, in order; count is 0 where rounds say nothing. */
	uint32_t device;
	size_t *ends;
	size_t end_count;
};

/* `traces` is the list of histories. No rounds are found in a file that has more parts than `visits_max`. 0 or -ENOMEM. */
int snapshot_rounds_find(const struct pickle *pickle, uint32_t traces, size_t visits_max,
			 struct snapshot_rounds *out);
void snapshot_rounds_fini(struct snapshot_rounds *rounds);

#endif
