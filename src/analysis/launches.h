/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory per operator and per kernel launch, by name. docs/decisions/0019-memory-left-by-calls.md says what belongs to a call:
 *
 *     an operator   blocks that its thread allocates while it is the innermost one; it leaves those that live when it ends
 *     a kernel      blocks allocated on its device since the launch before; it leaves those that live when the next one is launched
 *
 * Every block belongs to one operator (or to none: "outside of operators") and to one launch, so the bytes of all names add up.
 */
#ifndef MSCOPE_ANALYSIS_LAUNCHES_H
#define MSCOPE_ANALYSIS_LAUNCHES_H

#include "analysis/analyses.h"

enum launches_level { LAUNCHES_OPERATOR, LAUNCHES_KERNEL, LAUNCHES_LEVELS };

/* Calls of one name, and their memory in one pool of one device. */
struct launches_entry {
	const char *name;
	enum launches_level level;
	bool outside; /* memory of no call: outside of operators, or after the last launch */
	uint32_t device;
	uint8_t pool; /* POOL_UNKNOWN: the calls allocated and freed nothing */
	uint64_t calls;
	uint64_t left_bytes;	/* what the calls left allocated, summed */
	uint64_t largest_bytes; /* the most that one of them left */
	uint64_t freed_bytes;	/* older blocks that they freed */
	uint64_t held_bytes;	/* of their blocks, at the end of the run */
	uint64_t held_blocks;
	/* The same at the end of the first step and of the last one that ended. */
	uint64_t first_bytes, last_bytes;
	double growth_bytes; /* per step; 0 unless two steps have ended */
};

struct launches {
	uint32_t steps;		     /* that have ended */
	bool known[LAUNCHES_LEVELS]; /* calls of this level were recorded with their names */
	/* By level; in each the fastest growth first, then the most bytes left. */
	struct launches_entry *entries;
	size_t count;
};

/* What is counted; all zero: everything. */
struct launches_choice {
	const uint32_t *steps; /* only calls and blocks of these steps; borrowed */
	uint32_t step_count;
	struct replay_choice devices; /* only calls of these; of memory, the replay knows */
};

/* Before the first event. */
void launches_choose(struct analyses *analyses, const struct launches_choice *choice);

void launches_fini(struct launches *launches);

/* A table of at most `lines` names of each level; a key "launches" with an entry for each, and the sums of all. */
void launches_add_text(const struct launches *launches, uint32_t lines, struct strbuf *out);
void launches_add_json(const struct launches *launches, uint32_t lines, struct json *json);

#endif
