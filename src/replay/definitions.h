/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What records refer to by number: contexts, call stacks, Python functions, and the modules that addresses lie in. Each distinct
 * thing is kept once, however many writers define it; a writer's numbers are in struct writer.
 */
#ifndef MSCOPE_REPLAY_DEFINITIONS_H
#define MSCOPE_REPLAY_DEFINITIONS_H

#include "replay/python.h"
#include "replay/sites.h"
#include "replay/stacks.h"

/* What the replay needs to know of a context for each of its events. */
struct context_use {
	uint32_t usage; /* index of its pool and device in struct usages, + 1; 0: not yet used */
	uint8_t space;	/* see context_space() */
};

struct checkpoint;
struct writer;

struct definitions {
	struct context *contexts; /* distinct ones; [0] is the unknown one */
	struct context_use *uses; /* of each context */
	size_t context_count, context_room, use_room;
	struct modules modules;
	struct stacks stacks;
	struct sites sites;
	struct codes codes;
	struct python_place *places; /* room to define a stack */
	size_t place_room;
};

int definitions_init(struct replay *replay);
void definitions_fini(struct replay *replay);

void definitions_save(const struct replay *replay, struct checkpoint *cp);

/* Index of a context, new or known; 0: no memory. */
uint32_t definitions_add_context(struct replay *replay, const struct context *context);

/* Index of the context that a record names; 0 and counted as an oddity when it was never defined. */
uint32_t definitions_context(struct replay *replay, const struct trace_event *event);

/* The same where the writer is known; it may be NULL. A writer's first context of a device is the device of its thread. */
uint32_t definitions_context_of(struct replay *replay, struct writer *writer, uint32_t number);

/* Index of the stack that a record names; 0 when it names none, or one that was never defined, which is an oddity. */
uint32_t definitions_stack(struct replay *replay, const struct writer *writer, uint64_t id);

#endif
