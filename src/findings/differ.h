/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What differs between two sides: two runs, or two moments of one run. `--compare`, `fleet compare` and the page's moments ask here which
 * lines are the same on both sides, which call sites are one line, and which line comes first. Side 0 is the earlier one.
 *
 *     differ_add()     every call site, owner or layer of each side
 *     differ_pair()    call sites whose lines moved find each other by their functions
 *     differ_join()    every line with its name: those that people see as one line become one
 *
 * A zeroed struct is an empty one; not thread-safe.
 */
#ifndef MSCOPE_FINDINGS_DIFFER_H
#define MSCOPE_FINDINGS_DIFFER_H

#include <stdbool.h>

#include "base/map.h"
#include "replay/replay.h"

/* Hashes that are equal for the same call site of two runs; `loose` leaves out line numbers, which an edit moves, and names of files. */
struct differ_keys {
	uint64_t exact, loose;
};

struct differ_line {
	uint64_t group; /* lines of two groups are never the same: a pool on a device */
	struct differ_keys keys;
	/*
	 * Set by the caller before differ_pair(): figures of each side, rough ones and finer ones. Of several call sites with the same
	 * functions those with equal figures are paired first.
	 */
	uint64_t alike[2][2];
	uint32_t into; /* the line that it became one with; its own number if none */
	bool there[2];
	bool moved; /* its sides were paired by their functions alone */
};

struct differ {
	struct differ_line *lines;
	size_t count, room;
	struct map exact; /* group, exact key -> line */
	struct map names; /* group, hash of a name -> line */
};

void differ_fini(struct differ *differ);

/* Adds the frames of a stack to keys that the caller has begun (HASH_BEGIN, or with what else tells lines apart). Stack 0 has none. */
void differ_add_stack(struct differ_keys *keys, struct replay *replay, uint32_t stack);

/* Adds something that a side has; the number of its line. 0 or -ENOMEM. */
int differ_add(struct differ *differ, int side, uint64_t group, struct differ_keys keys,
	       uint32_t *out_line);

/* Pairs lines that only one side has. 0 or -ENOMEM. */
int differ_pair(struct differ *differ);

/* A line has this name: it becomes one with an earlier line of its group that has it too. 0 or -ENOMEM. */
int differ_join(struct differ *differ, uint32_t line, const char *name);

/* The line that one became. */
uint32_t differ_line(const struct differ *differ, uint32_t line);

/* "new", "gone", "grew", "shrank", "same". */
const char *differ_kind(const bool there[2], int64_t change);

/* For sorting: the larger change first, then the larger line; 0: the caller decides. */
int differ_order(const int64_t a[2], const int64_t b[2]);

#endif
