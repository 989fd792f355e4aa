/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the peak of a pool would be if some of its blocks had lived shorter. Known as it goes, in memory that grows with live
 * blocks and not with events.
 *
 * Time is counted in moments. A tide is what a pool holds, moment by moment; a ledger cuts time into segments and keeps the most
 * that the pool held in each, less what is known to be wasted there:
 *
 *     moments     0 ............ a ......... b .............. c ........ now
 *     segments    [  first      )[          )[               )[  last  )
 *
 * That a block was wasted from `a` until `b` is known at `b` or later, when the block is used or freed. So the moments from which
 * a block may turn out to have been wasted must be cuts: one for each live block, when it was allocated or last used. All moments
 * of a segment have the same future, so its highest one is enough. A cut that no block needs any more goes, and its two segments
 * become one. Segments hold differences (`add`) to the one before, so that all of this takes constant time:
 *
 *     most of segment i  =  raw[i] + add[0] + ... + add[i],        the sum of all `add` is 0
 *
 * A ledger that has not been looked at for a while learns by ledger_cut() what the pool held meanwhile, from the tide.
 */
#ifndef MSCOPE_ANALYSIS_LEDGER_H
#define MSCOPE_ANALYSIS_LEDGER_H

#include <stdbool.h>

#include "base/compiler.h"

#define NO_SEGMENT UINT32_MAX
#define NO_VALUE   INT64_MIN

/* The most that a pool held from any moment on: values that were not reached again since. */
struct crest {
	uint64_t until; /* the moment when another value took its place; UINT64_MAX: none has */
	uint64_t bytes;
};

struct tide {
	struct crest *crests; /* `until` rises, `bytes` fall */
	size_t count, room;
	uint64_t highest; /* of all values */
};

/* The pool holds `bytes` from `moment` on, which is later than any before. 0 or -ENOMEM. */
int tide_set(struct tide *tide, uint64_t moment, uint64_t bytes);

/* The most that it held at `since` or later; 0 if it never held anything. */
uint64_t tide_most(const struct tide *tide, uint64_t since);

/* Drops values that none of `since`, which rise, asks for. */
void tide_trim(struct tide *tide, const uint64_t *since, size_t count);

struct segment {
	int64_t raw;
	int64_t add;
	uint32_t prev, next;
	uint32_t refs;	/* who needs its begin */
	uint32_t group; /* of steps, as ledger.group */
};

/* Segments of all ledgers. */
struct segments {
	struct segment *at;
	size_t count, room;
	uint32_t unused; /* first of the free ones, by `next` */
};

struct ledger {
	const struct tide *tide;
	struct segments *segments;
	uint32_t first, last;
	/* Moment when `last` begins. What the pool held from there on is in the tide. */
	uint64_t since;
	uint32_t group; /* of steps that is in progress */
};

/* All time is one segment. 0 or -ENOMEM. */
int ledger_init(struct ledger *ledger, const struct tide *tide, struct segments *segments);

/*
 * The segment that begins at `moment`: now, or earlier if nothing was cut since; else the one that begins now, `latest`. Before the
 * tide is set for `latest`. NO_SEGMENT: no memory. It stays while it is referenced; the last one stays anyway.
 */
uint32_t ledger_cut(struct ledger *ledger, uint64_t moment, uint64_t latest);

/* The begin of a segment is needed, or no more by one. */
static inline void ledger_ref(struct ledger *ledger, uint32_t segment)
{
	ledger->segments->at[segment].refs++;
}

/* Makes a segment a part of the one before. Neither the first nor the last. */
void ledger_join(struct ledger *ledger, uint32_t segment);

static inline void ledger_unref(struct ledger *ledger, uint32_t segment)
{
	struct segment *at = &ledger->segments->at[segment];

	at->refs -= at->refs > 0;
	if (at->refs == 0 && segment != ledger->first && segment != ledger->last)
		ledger_join(ledger, segment);
}

/* So many bytes need not have been there from the begin of one segment to that of another. */
void ledger_waste(struct ledger *ledger, uint32_t from, uint32_t to, uint64_t bytes);

/* From `moment` on, which is as in ledger_cut(), another group of steps is in progress: its segments are kept apart. 0 or -ENOMEM. */
int ledger_group(struct ledger *ledger, uint32_t group, uint64_t moment, uint64_t latest);

/* The most that the pool would have held; of one group of steps, or of all time (NO_GROUP). UINT64_MAX: nothing is known of it. */
#define NO_GROUP UINT32_MAX
uint64_t ledger_most(const struct ledger *ledger, uint32_t group);

/* Joins groups of steps by twos: number n becomes n / 2. */
void ledger_halve(struct ledger *ledger);

/* For a checkpoint: appends a segment at the end of a ledger that is loaded. NO_SEGMENT: no memory. */
uint32_t ledger_append(struct ledger *ledger);

#endif
