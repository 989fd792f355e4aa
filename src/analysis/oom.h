/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Why memory ran out: one verdict for each request that was refused and stayed refused (replay/ooms.h). It needs no option: the
 * analysis observes every run. The verdict is made as soon as the request is not tried again, from what lives at that moment and
 * from samples of earlier moments.
 *
 *     analyses_find_ooms()                   at any time between two events, as findings; findings/oom_sentences.c has the words
 *
 * All byte counts are of the device that refused; UINT64_MAX: unknown.
 */
#ifndef MSCOPE_ANALYSIS_OOM_H
#define MSCOPE_ANALYSIS_OOM_H

#include "analysis/analyses.h"

/* Several of them may be shown as one call site, of which all bytes count. */
#define OOM_PLACES 200u
#define OOM_POOLS  8u

/* Blocks that were allocated at one place. */
struct oom_place {
	uint32_t stack; /* see site_text(); 0: unknown, then it is blocks of one size */
	uint8_t pool;	/* pools.def */
	uint64_t bytes, blocks;
	uint64_t size_bytes;  /* of its largest block */
	uint64_t grown_bytes; /* of grown_place: since the program settled */
};

struct oom_verdict {
	uint64_t number;  /* ordinal, from 1; those that recovered do not count */
	uint64_t time_ns; /* monotonic */
	uint64_t last_ns; /* of its last try, or of the last repetition */
	uint32_t device, tid, step;
	uint8_t pool;	/* that the request came from, as far as is known */
	uint8_t call;	/* enum oom_call; oom_call_text() */
	uint8_t vendor; /* whose device it is */
	uint32_t tries; /* refusals of this one request */
	uint32_t stack; /* where it was asked for */
	/* Requests refused after it at the same place, of the same size, that have no verdict of their own. */
	uint32_t repeats;
	uint64_t requested_bytes;
	uint64_t free_bytes, total_bytes;
	uint64_t process_bytes; /* what this process holds from the driver */
	uint64_t others_bytes;	/* what neither the process nor the free memory explains */
	uint64_t pages_bytes; /* of the driver's pages, what blocks of this process leave of them */
	uint64_t outside_bytes; /* of the process, outside of its pools; 0 without a pool */
	/* Reserved by pools and not in use, after they gave back their caches. */
	uint64_t unused_bytes;
	uint64_t hole_bytes;	   /* the largest piece of it */
	uint64_t waiting_bytes;	   /* beside it: freed, and other streams still use it */
	uint64_t private_bytes;	   /* beside it: kept by private pools and not in use */
	uint64_t given_back_bytes; /* what the pool gave back before its last try */
	/* Of a pool with a limit: the most that it ever reserved, and how much less it has now. */
	uint64_t limit_bytes, room_bytes;
	enum oom_cause cause;
	uint64_t cause_bytes;	/* how much the cause explains */
	uint64_t usual_bytes;	/* spike: the most that was in use before this step or burst */
	uint64_t most_bytes;	/* the most that the pool ever had in use */
	uint64_t largest_bytes; /* of all requests before */
	/* full: what the pool that was asked holds, and whether that is a level that it has long been at. */
	uint64_t held_bytes, held_blocks, freed_blocks;
	bool steady;
	uint64_t grown_bytes;	 /* growth: of all, since the program settled */
	uint64_t per_step_bytes; /* growth: in each step; 0: unknown */
	uint32_t grown_steps;	 /* growth: over so many steps; 0: there are none */
	/* spike: this many of the latest steps needed more than all before; 0: unknown */
	uint32_t record_steps;
	uint8_t grown_pool; /* growth: where */
	bool scales;	    /* spike: what steps work on becomes larger and larger */
	bool by_steps;	    /* growth was seen at the ends of steps, else over time */
	/* growth: the place that grew most; no bytes: no single one did */
	struct oom_place grown_place;
	uint32_t pool_count, place_count;
	/* Largest first. The driver's own memory is one, too: it holds what the pools have reserved. */
	struct finding_oom_pool pools[OOM_POOLS];
	struct oom_place places[OOM_PLACES]; /* largest first */
};

/* How many verdicts there are. */
size_t analyses_oom_count(const struct analyses *analyses);

/* Whether a request that was refused is the same again: a program that tries until it succeeds. */
bool oom_repeats(const struct oom *oom, uint64_t requested_bytes, uint32_t stack, uint64_t last_ns);

/* There was enough: a limit of the process or of the pool holds. */
bool oom_is_limited(const struct oom_verdict *verdict);

/* Adds the verdict to what was found. */
void oom_find(const struct oom_verdict *verdict, struct replay *replay, struct findings *found);

/* The verdicts alone, in the order of time. Their call sites have names after findings_settle(), which reads symbols. */
void analyses_find_ooms(const struct analyses *analyses, struct replay *replay,
			struct findings *found);

#endif
