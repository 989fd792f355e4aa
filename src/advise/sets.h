/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Changes of modules: a rule that is tried on all modules of a class, on the first or last half, on every other one, and with a limit on the first
 * or last N. What is chosen are forward passes, with the nodes of the graph that they made.
 */
#ifndef MSCOPE_ADVISE_SETS_H
#define MSCOPE_ADVISE_SETS_H

#include "advise/advise.h"

/* Modules of one class, in the order of their first forward pass. */
struct group {
	const char *kind;
	const char *line; /* that calls the first one */
	bool more_lines;  /* others are called elsewhere */
	uint32_t *modules;
	size_t module_count, module_room;
	size_t again_count; /* of the class, and none of these: their forward pass runs again already */
};

/* What is to be known of a forward pass that is chosen. */
struct chosen {
	uint32_t call;
	uint64_t first_node, end_node;
	size_t runs_again; /* when its backward pass starts; ADVISE_NEVER: that is not in the record */
	size_t stops;	   /* the moment of the forward pass at which its last thing is saved */
	size_t released; /* when its backward pass is over */
};

struct sets;

/* What a rule does with forward passes. */
struct sets_rule {
	enum advise_rule rule;
	const char *verb; /* "checkpoint" */
	void (*edit)(struct sets *);
	void (*price)(const struct sets *, struct advise_offer *);
};

struct sets {
	const struct sets_rule *rule;
	struct advising *advising;
	const struct advise_record *record;
	struct editor *editor;
	bool *picked;	       /* by module */
	struct chosen *chosen; /* by their nodes */
	size_t chosen_count, chosen_room;
	uint32_t *inside; /* by call: the chosen one that it is in, ADVISE_NONE */
	struct group *groups;
	size_t group_count, group_room;
	bool compiled; /* torch.compile made one of the modules */
};

/* Tries a rule on all sets. 0 or -ENOMEM. */
int sets_try(struct advising *advising, const struct sets_rule *rule);

/* The chosen forward pass that a node is of; NULL: none. */
const struct chosen *sets_chosen_of(const struct sets *sets, uint64_t node);

/* Whether a module returned a block. */
bool sets_gives(const struct advise_record *record, uint32_t call, uint32_t block);

/* When no variable of a running function has a block any more that nothing saved: at the end of the function that made it, or got it. */
size_t sets_dropped(const struct advise_record *record, uint32_t block);

/* Classes that a module itself, or the program, keeps. */
bool sets_is_kept(const struct advise_block *block);

#endif
