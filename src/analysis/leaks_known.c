/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is known about a call site beside how its memory grew: who made it, what keeps it, and what its first block is.
 */
#include <string.h>

#include "analysis/leaks_judge.h"
#include "findings/site.h"

/* Blocks of a variable that is given larger and larger values, at most. */
#define RENEWED_BLOCKS 2u

/* Blocks of a call site by which a first one may be apart, and how many times as large it is then. */
#define APART_BLOCKS 8u
#define APART_TIMES  4u

/* How many times as large as all others together one is that was made once. */
#define MADE_TIMES 16u

/* Memory that a framework makes once and holds, by the innermost function of Python. */
static bool is_held_by_maker(const struct judge *j, uint32_t stack)
{
	uint32_t count, i;
	const struct stack_line *lines = replay_stack_lines(j->replay, stack, &count);

	for (i = 0; i < count && !lines[i].script; i++)
		;
	return i < count && lines[i].origin == ORIGIN_FRAMEWORK &&
	       origin_is_holding(lines[i].file, lines[i].function);
}

/* Of a container whose limit is known: whether all blocks that it may hold have room on the device. */
static bool fits_when_full(const struct judge *j, const struct leaks_place *place,
			   const struct keeper *keeper)
{
	const struct driver_usage *driver = replay_driver_usage(j->replay, place->device);

	return driver == NULL || driver->total_bytes == 0 ||
	       (double)place->size_max * (double)keeper->most < (double)driver->total_bytes;
}

/*
 * What the program itself has found: a container of limited length that has reached it, as of a replay buffer, or that has not yet;
 * or one variable whose new values are not made from its old ones, as a batch of longer and longer sequences. Such a variable holds
 * one block, or two while it is given its next value. False: nothing of this changes the verdict.
 */
static bool take_keeper(const struct judge *j, struct leaks_place *place)
{
	const struct keeper *keeper = leaks_keeper(j->replay, place);
	bool suspect = place->verdict == GROWTH_SUSPECT;

	if (keeper == NULL || keeper->held != keeper->looked)
		return false;
	if (keeper->full && suspect) {
		place->verdict = GROWTH_KEPT;
		place->reason = GROWTH_BOUNDED;
	} else if (keeper->most > keeper->items && fits_when_full(j, place, keeper)) {
		place->verdict = GROWTH_SUSPECT;
		place->reason = GROWTH_FILLS;
	} else if (keeper->renewed && place->blocks <= RENEWED_BLOCKS &&
		   place->reason == (suspect ? GROWTH_TOO_SHORT : GROWTH_CLIMBS)) {
		place->verdict = GROWTH_SUSPECT;
		place->reason = GROWTH_RENEWED;
	} else {
		return false;
	}
	return true;
}

bool leaks_first_is_apart(const struct survivor *all, size_t count)
{
	uint64_t most = survivor_bytes(&all[0]) / APART_TIMES;
	size_t i;

	for (i = 1; i < count && survivor_bytes(&all[i]) <= most; i++)
		;
	return count > APART_BLOCKS && i == count;
}

/* One that nothing but C++ keeps, as a workspace of cuBLAS, beside which all else of the call site is little. */
static bool is_made_once(const struct judge *j, const struct leaks_place *place,
			 const struct survivor *all, size_t count)
{
	const struct keeper *keeper = leaks_keeper(j->replay, place);
	uint64_t rest = 0;
	size_t i;

	for (i = 1; i < count; i++)
		rest += survivor_bytes(&all[i]);
	return j->found->told.by_time && count > 0 && keeper != NULL &&
	       strcmp(keeper->texts[KEEPER_KIND], "cpp") == 0 && place->freed > 0 &&
	       rest <= survivor_bytes(&all[0]) / MADE_TIMES;
}

void leaks_take_known(const struct judge *j, struct leaks_place *place, const struct survivor *all,
		      size_t count, uint32_t rises)
{
	bool weights = leaks_describe(j, place, all, count);

	if (place->verdict == GROWTH_KEPT)
		return;
	if ((weights || is_held_by_maker(j, place->stack)) && rises <= 2) {
		place->verdict = GROWTH_KEPT;
		place->reason = GROWTH_OWNED;
	} else if (!take_keeper(j, place) && place->verdict == GROWTH_SUSPECT &&
		   is_made_once(j, place, all, count)) {
		place->verdict = GROWTH_KEPT;
		place->reason = GROWTH_OWNED;
	}
}
