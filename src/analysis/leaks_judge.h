/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What leaks_findings.c, which judges places and pools, and leaks_sizes.c, which judges blocks of many sizes, share.
 */
#ifndef MSCOPE_ANALYSIS_LEAKS_JUDGE_H
#define MSCOPE_ANALYSIS_LEAKS_JUDGE_H

#include "analysis/leaks_state.h"

/* A block that counts: it lives, or was freed only after the last step. */
struct survivor {
	const void *of;	     /* struct block, or struct freed */
	uint32_t place : 31; /* of `merged`; then the group */
	uint32_t freed : 1;
	uint32_t step;
};

/* Memory of a place that an owner holds by right; not in its growth. */
struct held {
	uint64_t blocks, bytes;
	uint32_t owner;
};

/* Places of the replay that are one. There may be millions. */
struct merged {
	struct growth *growth; /* of places without a stack; others have it while they are judged */
	uint32_t first;	       /* of its places, a list by `judge.next` */
	uint32_t at;	       /* the last of these; then where its next survivor goes */
	uint32_t held;	       /* index + 1 */
	bool loose;
};

struct leaks_result {
	struct leaks_findings told; /* what callers see; first, so that they can free it */
	struct leaks_place *places;
	struct leaks_pool *pools;
	struct leaks_unjudged *unjudged;
	struct device_forecast *forecasts;
	size_t place_room, pool_room, unjudged_room, forecast_room;
};

/* What is asked of the places of a group while they are added. */
struct group_sums {
	uint64_t freed;	  /* blocks that they freed */
	double growth_of; /* growth in bytes */
	double leaking;	  /* rate of leaks */
	size_t stopped;	  /* have grown and stopped */
	bool unkept;	  /* at least one place leaks or is a suspect */
};

/* The same of a device. */
struct device_sums {
	double copied, copied_bytes; /* rate and bytes of leaks that grow by reallocation */
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

/* The latest answer of the process about a call site, NULL: none. */
const struct keeper *leaks_keeper(struct replay *replay, const struct leaks_place *place);

struct judge {
	const struct leaks *leaks;
	struct replay *replay;
	struct leaks_result *found;
	size_t most[3];	 /* places of a verdict that are listed */
	size_t count[3]; /* places of a verdict in `found` */
	struct leaks_place *rest;
	size_t rest_count, rest_room;
	uint32_t *canon; /* by place: index of `merged` */
	uint32_t *next;	 /* by place: the next that is the same one, + 1 */
	struct merged *merged;
	size_t merged_count;
	struct held *held;
	size_t held_count, held_room;
	struct survivor *survivors; /* by place, then by age */
	size_t survivor_count;
	struct growth_survivor *few; /* of the place in question */
	struct loose *loose;	     /* places that are held back, of all groups */
	size_t loose_count, loose_room;
	struct group_sums *groups;   /* by group */
	struct device_sums *devices; /* by device */
};

/* NULL: it lives. */
static inline const struct freed *survivor_freed(const struct survivor *s)
{
	return s->freed ? s->of : NULL;
}

/* NULL: it was freed. */
static inline const struct block *survivor_block(const struct survivor *s)
{
	return s->freed ? NULL : s->of;
}

static inline uint64_t survivor_bytes(const struct survivor *s)
{
	return s->freed ? survivor_freed(s)->block.size_bytes : survivor_block(s)->size_bytes;
}

static inline uint64_t survivor_id(const struct survivor *s)
{
	return s->freed ? survivor_freed(s)->block.allocation_id : survivor_block(s)->allocation_id;
}

/* The same as growth is judged. */
static inline uint64_t survivor_judged(const struct survivor *s)
{
	return s->freed ? survivor_bytes(s) - survivor_freed(s)->unused
			: judged_bytes(survivor_block(s));
}

/* What tells merged places apart. */
static inline const struct place *merged_place(const struct judge *j, const struct merged *merged)
{
	return &j->leaks->places[merged->first];
}

static inline bool leaks_same_pool(const struct group *a, const struct group *b)
{
	return a->pool == b->pool && a->device == b->device;
}

/* Finds out where in `survivors` those of each place go. */
void leaks_make_room(struct judge *j);

/* Takes the gaps out of `survivors`, and sorts those of each place by age. */
void leaks_sort_survivors(struct judge *j);

/* Gives back what only places need; a survivor has the group of its place then. */
void leaks_forget_places(struct judge *j);

/* Those of a pool in the order of their steps, in `few`. 0 or -ENOMEM. */
int leaks_pool_survivors(struct judge *j, const struct group *group, size_t *out_count);

/* What the rule said about a place. */
void leaks_take_judgement(const struct judge *j, struct leaks_place *place, const struct growth *g,
			  const struct growth_judgement *judgement);

/* What the blocks themselves say about their place. True if all of later steps are weights. */
bool leaks_describe(const struct judge *j, struct leaks_place *place, const struct survivor *all,
		    size_t count);

/*
 * By time, no first step has what code makes once, when it runs first: a library's workspace, taken at the very call site that leaks. Such a
 * block is the oldest, and far larger than all others.
 */
bool leaks_first_is_apart(const struct survivor *all, size_t count);

/* What the blocks and the process say about a place whose growth was judged: what is held by right is kept. */
void leaks_take_known(const struct judge *j, struct leaks_place *place, const struct survivor *all,
		      size_t count, uint32_t rises);

/* Adds a place that is judged and described, and lists its blocks; `group` is that of its pool. 0 or -ENOMEM. */
int leaks_add_place(struct judge *j, struct leaks_place *place, const struct survivor *all,
		    size_t count, uint32_t group);

/* Adds a place; beyond twice as many of a verdict as are wanted the least become the rest. It takes the list over. 0 or -ENOMEM. */
int leaks_take_place(struct judge *j, struct leaks_place *place);

/* The places in their order, and the rest. 0 or -ENOMEM. */
int leaks_sort_places(struct judge *j);

/* Judges the places that were held back. 0 or -ENOMEM. */
int leaks_settle_loose(struct judge *j);

#endif
