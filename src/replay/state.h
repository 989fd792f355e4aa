/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The state of a replay: its parts, each with a file of its own that has its handlers and knows how to save it. Only src/replay and
 * its tests include this.
 *
 * replay_event() finds the handler of an event in handlers.def. A handler gets the whole replay, because most events concern
 * several parts, but changes other parts through their functions alone. Rows leave through replay_publish().
 */
#ifndef MSCOPE_REPLAY_STATE_H
#define MSCOPE_REPLAY_STATE_H

#include "replay/blocks.h"
#include "replay/checkpoint.h"
#include "replay/definitions.h"
#include "replay/ending.h"
#include "replay/keepers.h"
#include "replay/kernels.h"
#include "replay/labels.h"
#include "replay/ooms.h"
#include "replay/pool_details.h"
#include "replay/pool_facts.h"
#include "replay/python_calls.h"
#include "replay/replay.h"
#include "replay/steps.h"
#include "replay/texts.h"
#include "replay/totals.h"
#include "replay/holdings.h"
#include "replay/usages.h"
#include "replay/watches.h"
#include "replay/windows.h"
#include "replay/writers.h"

struct replay {
	struct replay_setup setup;
	const struct replay_observer *observer; /* never NULL; borrowed */
	void *observer_arg;
	uint64_t wall_ns; /* what to add to a record's time to get the wall clock */
	uint32_t pid;
	bool running;	      /* an event came that is no checkpoint's */
	struct position at;   /* behind the last event */
	struct loaded loaded; /* the checkpoint that it began with */

	struct replay_totals totals;
	struct notes notes;
	struct windows windows;
	struct writers writers;
	struct definitions definitions;
	struct texts texts;
	struct usages usages;
	struct holdings holdings;
	struct pool_details pool_details;
	struct pool_facts pool_facts;
	struct labels labels;
	struct blocks blocks;
	struct contests contests;
	struct ending ending;
	struct steps steps;
	struct kernels kernels;
	struct python_calls calls;
	struct watches watches;
	struct ooms ooms;
	struct keepers keepers;
};

/* What handlers.def lists. Each returns 0, -ENOMEM, or the code of the consumer of its rows. */
typedef int replay_handler(struct replay *replay, const struct trace_event *event);

#define HANDLER(event, take, load, flags) replay_handler take, load;
#include "replay/handlers.def"
#undef HANDLER

/* What parts.def lists: saves a part into a checkpoint, or loads it. 0 or -ENOMEM; k->words.failed where it cannot be. */
#define PART(init, fini, save)
#define KEPT(part, version) int part##_keep(struct replay *replay, struct keeping *k);
#include "replay/parts.def"
#undef PART
#undef KEPT

/* The usage of a context's pool and device; NULL: no memory. Valid until the next call. */
static inline struct usage *usages_of(struct replay *replay, uint32_t context)
{
	uint32_t usage = replay->definitions.uses[context].usage;

	return MSCOPE_LIKELY(usage != 0) ? &replay->usages.all[usage - 1]
					 : usages_at(replay, context);
}

/* False when nothing takes rows of this kind: the row is counted, and need not be made. */
static inline bool replay_wants_row(struct replay *replay, enum row_kind kind)
{
	bool wanted = replay->setup.row != NULL || (replay->observer->rows >> kind & 1);

	replay->totals.rows += !wanted;
	return wanted;
}

/*
 * Publishes a row that is filled but for what all rows have: to the observer, then to the consumer. `event` is when and where it
 * happened. 0, or the code of the consumer.
 */
int replay_publish(struct replay *replay, const struct trace_event *event, struct row *row);

/* Tell the observer. */
void replay_notify_step(struct replay *replay, uint32_t step, bool begins);

static inline void replay_notify_block(struct replay *replay, enum block_change change,
				       const struct block *block, const struct usage *usage,
				       uint32_t owner)
{
	if ((replay->observer->blocks >> change & 1) && (usage == NULL || !usage->hidden))
		replay->observer->block(replay->observer_arg, replay, change, block, usage, owner);
}

#endif
