/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The same program with another batch: two or three recorded runs that differ in their batch are paired request by request, each
 * request's size is a function of the batch, and the twin plays the largest run with the sizes of another batch.
 *
 *     two runs      a + b x batch; a request that grows faster than the batch cannot be that, and is refused where it matters
 *     three runs    the curve of second degree through all three, which is the line where they lie on one
 *
 * What gives a wrong pairing away: requests that one run has and the other has not, frees that come at another moment (a loop whose
 * cache grows has all of its requests paired), and the largest run that, played with the sizes of a smaller one, does not reserve
 * what that one did.
 */
#ifndef MSCOPE_TWIN_BATCHES_H
#define MSCOPE_TWIN_BATCHES_H

#include "twin/what_if.h"

#define BATCH_RUNS_MOST	 3u
#define BATCH_SITES_MOST 5u

struct batch_choice {
	const struct pool_history *runs[BATCH_RUNS_MOST]; /* by ascending batch */
	uint64_t run_batches[BATCH_RUNS_MOST];		  /* ascending, from 1 */
	size_t run_count;
	const uint64_t *batches; /* to predict */
	size_t batch_count;
	const char *settings; /* NULL: those of the largest run */
	uint64_t limit_bytes; /* what the pool may reserve; 0: not asked about */
	const char *torch;    /* as of what_if_choice */
};

struct batch_row {
	uint64_t batch;
	uint64_t reserved_peak, low, high;
	bool fits; /* only with a limit */
};

/* A call site whose requests are no line over the batch. */
struct batch_site {
	const char *name; /* of the history; "": unknown */
	uint64_t bytes;	  /* most that it had in use at once, in the largest run */
	uint64_t requests;
};

struct batches {
	struct what_if runs[BATCH_RUNS_MOST];
	size_t run_count;
	uint64_t requests; /* of the largest run */
	uint64_t paired;   /* of them, with all other runs */
	double gaps;	   /* share of requests that only one of the runs has */
	double moved;	   /* share of bytes whose free comes at another moment */
	struct batch_row *rows;
	size_t row_count;
	uint64_t largest; /* with a limit: the largest batch that fits; 0: none does */
	struct batch_site sites[BATCH_SITES_MOST];
	size_t site_count;
	/* Most in use at once, in the largest run, of requests whose size is not a line. */
	uint64_t odd_bytes;
	bool has_odd; /* they are so many that figures are ranges */
	char refusal[400];
};

/* As what_if_answer(): 0 with or without `refusal`, -ENOMEM, or MSCOPE_E_USAGE with a sentence. Needs batches_fini() in any case. */
int batches_answer(struct batches *out, const struct batch_choice *choice,
		   struct mscope_error *err);
void batches_fini(struct batches *batches);

#endif
