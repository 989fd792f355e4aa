/* SPDX-License-Identifier: Apache-2.0 */
/* Blocks by owner or by place, for colours and lists. */
#ifndef MSCOPE_VIEWER_GROUPS_H
#define MSCOPE_VIEWER_GROUPS_H

#include "viewer/answers.h"

/* What tells groups apart. Those by call site are the lines that findings have: settle.c in src/findings makes the same of a peak. */
uint64_t group_key(struct model *model, const struct model_block *block, enum answer_by by);

/* The call site of a group that is made by call site; 0: none. */
uint32_t group_stack(uint64_t key);

/* The owner that the name of a group of call sites ends with; "": it names none. */
const char *group_owner(const struct model *model, uint64_t key);

/* Appends the group's name for people. */
void group_name(struct model *model, uint64_t key, enum answer_by by, struct strbuf *out);

/* Of a group by call site whose name ends with an owner an array: the name, the call site, the owner; of others nothing. */
void group_owned_json(struct model *model, uint64_t key, const char *name, struct json *json);

/* The heaviest groups of a span, by bytes and time; number `count` stands for all others. */
struct groups {
	uint64_t keys[ANSWER_GROUPS];
	uint32_t count;
	bool rest;
};

/* 0 or -ENOMEM. */
int groups_find(struct model *model, const struct question *question, struct groups *out);

/* The number of a block's group. */
uint32_t groups_number(const struct groups *groups, uint64_t key);

/* An array of their names, the rest last, and what group_owned_json() says of them. */
void groups_json(struct model *model, const struct groups *groups, enum answer_by by,
		 struct json *json);

/* How long a block lived within the span; 0: it did not. */
static inline uint64_t block_within(const struct model_block *block, uint64_t from_ns,
				    uint64_t to_ns)
{
	uint64_t from = block->start_ns > from_ns ? block->start_ns : from_ns;
	uint64_t to = block->end_ns < to_ns ? block->end_ns : to_ns;

	return to > from ? to - from : 0;
}

#endif
