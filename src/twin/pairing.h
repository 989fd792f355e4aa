/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests of two runs of one program, paired in order: the same call site where both records have them, and sizes that can be of the
 * same tensor. Where they do not fit, requests of either run are skipped until they do.
 */
#ifndef MSCOPE_TWIN_PAIRING_H
#define MSCOPE_TWIN_PAIRING_H

#include "twin/program.h"

#define PAIRING_NONE UINT32_MAX

/* The requests of a program, in order. */
struct requests {
	struct request {
		uint64_t bytes;
		uint64_t site;	  /* of the same text in each run; 0: unknown */
		uint32_t lane;	  /* in order of their first request */
		uint32_t site_id; /* in its history */
		uint32_t freed;	  /* requests before its free; UINT32_MAX: it was not freed */
	} * all;
	size_t count;
	bool blocks; /* sizes are those of blocks, which can be up to 1 MiB larger in the large pool */
};

/* 0 or -ENOMEM. Needs requests_fini() in either case. */
int requests_of(const struct program *program, struct requests *out);
void requests_fini(struct requests *requests);

/* How two sizes of a request compare over two batches, the second of them larger. */
enum growth {
	GROWTH_NONE,	/* the same */
	GROWTH_FULL,	/* as the batch grows */
	GROWTH_PARTLY,	/* between these */
	GROWTH_SHRINKS, /* less */
	GROWTH_SQUARE,	/* with the square of the batch */
	GROWTH_MORE,	/* more than the batch, in another way */
};

enum growth growth_of(uint64_t small_bytes, uint64_t big_bytes, uint64_t small_batch,
		      uint64_t big_batch);

struct pairing {
	uint32_t *partner; /* of each request of the larger run: in the smaller one; PAIRING_NONE */
	uint64_t paired;
	uint64_t gaps; /* requests of either run that have none */
};

/* 0 or -ENOMEM; `out->partner` is freed by the caller. */
int pairing_make(const struct requests *small, uint64_t small_batch, const struct requests *big,
		 uint64_t big_batch, struct pairing *out);

/* The share of paired bytes whose free comes after other requests than in the smaller run. */
double pairing_moved(const struct pairing *pairing, const struct requests *small,
		     const struct requests *big);

#endif
