/* SPDX-License-Identifier: Apache-2.0 */
/*
 * State of the analysis of inefficient memory: inefficient.c finds it, inefficient_saved.c keeps it in checkpoints,
 * inefficient_findings.c says what it costs. Private to these three.
 */
#ifndef MSCOPE_ANALYSIS_INEFFICIENT_H
#define MSCOPE_ANALYSIS_INEFFICIENT_H

#include "analysis/analyses.h"
#include "analysis/account.h"
#include "base/map.h"

#define WASTE_KINDS  3u /* bits of enum inefficiency */
#define WASTE_RECENT 256u
#define WASTE_POOL   UINT32_MAX /* waste_place.stack of the one that stands for all of a pool */

/* Blocks of a pool that were allocated by one stack; without a stack, those of about the same size. */
struct waste_place {
	uint32_t pool; /* index in inefficient.pools, which is that of its usage */
	uint32_t stack;
	uint16_t size_class; /* without a stack: bits of the size */
	uint16_t found;	     /* bits of enum inefficiency */
	uint32_t live;	     /* blocks that are judged and live */
	/* Segment that begins with the operator that began at a moment; NO_SEGMENT: none. */
	uint32_t operator_at;
	uint64_t operator_since;
	struct account account;
	/* Of blocks with a finding. */
	uint64_t blocks[WASTE_KINDS]; /* by kind */
	uint64_t any_blocks;
	uint64_t bytes;
	uint64_t first; /* lowest allocation_id */
};

/* A pool on a device. */
struct waste_pool {
	struct tide tide;
	uint32_t all;		     /* the place that stands for all of it, index + 1 */
	uint64_t tops[WASTE_GROUPS]; /* the most that it held in each group of steps */
	size_t trim_at;		     /* values in the tide at which it is trimmed */
};

/* What is known of a live block. */
struct waste_trail {
	uint64_t allocation_id;
	uint64_t allocated;  /* tick */
	uint64_t used;	     /* tick of the latest use, 0: none yet */
	uint32_t place;	     /* index */
	uint32_t at, at_all; /* segments from which on it may be wasted, NO_SEGMENT: it is in use */
	uint32_t users;	     /* operators in progress that use it */
	uint16_t found;
};

/* A thread, and the operators that it is in. */
struct waste_thread {
	bool inside;
	bool allocates, frees;
	uint64_t tick;	/* of the outermost operator, or of the latest event outside */
	uint64_t since; /* moment when it began */
	struct waste_use {
		uint32_t trail;
		uint64_t allocation_id;
	} * uses; /* blocks that it uses, each once */
	size_t use_count, use_room;
};

struct inefficient {
	uint64_t tick;
	uint64_t moment;		/* rows so far */
	uint64_t last_alloc, last_free; /* ticks of the latest ended operators that did so */
	struct waste_thread *threads;	/* by writer */
	size_t thread_room;
	struct waste_pool **pools; /* accounts point into them */
	size_t pool_count, pool_room;
	struct waste_place *places;
	size_t place_count, place_room;
	struct map place_ids; /* pool and stack, size class -> index */
	/* Indices of places, by their stacks: looked at before the map is asked. */
	uint32_t recent[WASTE_RECENT];
	struct segments segments;
	struct map live; /* allocation_id -> index of trail */
	struct waste_trail *trails;
	size_t trail_count, trail_room;
	uint32_t *free_trails;
	size_t free_count, free_room;
	bool saw_access;
	/* Steps. */
	uint32_t steps;	      /* that have begun */
	uint32_t group_steps; /* in a group, 0: 1 */
	uint32_t group;
	uint64_t group_since; /* moment */
	bool steps_restarted; /* the program marked steps after others were counted: there are no groups */
	/* What counts: --inefficient. */
	uint32_t kinds; /* bits of enum inefficiency */
	uint64_t least_bytes, idle_ticks;
};

/* The place of a key, new or known; NULL: no memory. Valid until the next call. */
struct waste_place *waste_place_at(struct inefficient *s, uint32_t pool, uint32_t stack,
				   uint16_t size_class);

/* The pool of a usage, new or known; NULL: no memory. */
struct waste_pool *waste_pool_at(struct inefficient *s, size_t index);

/* The thread of a writer; NULL: no memory. Valid until the next call. */
struct waste_thread *waste_thread_at(struct inefficient *s, uint32_t writer);

/* Room for a trail. 0 or -ENOMEM. */
int waste_trail_new(struct inefficient *s, size_t *out);

void inefficient_fini(void *state);
int inefficient_keep(void *state, const struct replay *replay, struct words *words);
int inefficient_judge(const void *state, struct replay *replay, struct findings *out);
int inefficient_text(void *state, const struct analysis_view *view, struct strbuf *out);
int inefficient_json(void *state, const struct analysis_view *view, struct json *json);

#endif
