/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Call stacks as people read them, and which of them are the same place: stacks with the same functions and lines, whatever
 * instructions they went through.
 *
 * Where the user's own code has no line, the instruction tells places apart; in code of others the name of the function does.
 * Not thread-safe. A zeroed struct is an empty one.
 */
#ifndef MSCOPE_REPLAY_SITES_H
#define MSCOPE_REPLAY_SITES_H

#include "base/index.h"
#include "base/map.h"
#include "base/strbuf.h"
#include "replay/replay.h"

struct sites {
	uint32_t *ids; /* of the stacks below `count`: the lowest stack of the same place */
	size_t count, room;
	struct map_key *keys; /* of the places */
	uint32_t *lowest;     /* of each its lowest stack */
	size_t key_count, key_room, lowest_room;
	struct index by_key;	  /* of `keys` */
	struct stack_line *lines; /* of the stack that was asked for last */
	size_t line_count, line_room;
	struct strbuf python; /* texts of its Python lines */
};

void sites_fini(struct sites *sites);

#endif
