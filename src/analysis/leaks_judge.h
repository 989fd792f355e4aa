/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What leaks_findings.c, which judges places and pools, and leaks_sizes.c, which judges blocks of many sizes, share.
 */
#ifndef MSCOPE_ANALYSIS_LEAKS_JUDGE_H
#define MSCOPE_ANALYSIS_LEAKS_JUDGE_H

#include "analysis/leaks_state.h"

/* A block that counts: it lives, or was freed only behind the last step. */
struct survivor {
	const struct block *block; /* NULL: it was freed */
	const struct freed *freed;
	uint32_t place; /* of `merged` */
	uint32_t step;
	uint64_t allocation_id;
};

/* Places of the replay that are one. */
struct merged {
	struct growth growth;
	uint64_t size;
	uint32_t stack, group;
	bool loose;
	uint64_t held_blocks,
		held_bytes; /* by an owner that holds its memory by right; not in `growth` */
	uint32_t held_owner;
};

struct leaks_result {
	struct leaks_findings told; /* what callers see; first, so that they can free it */
	struct leaks_place *places;
	struct leaks_pool *pools;
	struct leaks_unjudged *unjudged;
	struct device_forecast *forecasts;
	struct leaks_block *blocks; /* of all places */
	size_t place_room, pool_room, unjudged_room, forecast_room, block_count;
};

/*
 * A place without a stack that left blocks in one or two steps: perhaps a part of one whose blocks have many sizes.
 */
struct loose {
	struct leaks_place place;
	const struct survivor *survivors;
	size_t count;
	uint32_t merged;
};

struct judge {
	const struct leaks *leaks;
	struct replay *replay;
	struct leaks_result *found;
	uint32_t *canon; /* by place: index of `merged` */
	struct merged *merged;
	size_t merged_count;
	struct survivor *survivors; /* by place, then by age */
	size_t survivor_count;
	struct growth_survivor *few; /* of the place in question */
	struct loose *loose;	     /* places that are held back, of all groups */
	size_t loose_count, loose_room;
	double *growth_of; /* by group: growth of its places in bytes */
	double *leaking;   /* by group: rate of its leaks */
};

static inline uint64_t survivor_bytes(const struct survivor *s)
{
	return s->block != NULL ? s->block->size_bytes : s->freed->block.size_bytes;
}

/* The same as growth is judged. */
static inline uint64_t survivor_judged(const struct survivor *s)
{
	return s->block != NULL ? judged_bytes(s->block)
				: s->freed->block.size_bytes - s->freed->unused;
}

/* What the rule said about a place. */
void leaks_take_judgement(const struct judge *j, struct leaks_place *place, const struct growth *g,
			  const struct growth_judgement *judgement);

/* What the blocks themselves say about their place. True if all of later steps are weights. */
bool leaks_describe(const struct judge *j, struct leaks_place *place, const struct survivor *all,
		    size_t count);

/* Adds a place that is judged and described, and lists its blocks; `group` is that of its pool. 0 or -ENOMEM. */
int leaks_add_place(struct judge *j, struct leaks_place *place, const struct survivor *all,
		    size_t count, uint32_t group);

/* Judges the places that were held back. 0 or -ENOMEM. */
int leaks_settle_loose(struct judge *j);

#endif
