/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the peak of a pool would be if some of its blocks had lived shorter. Known as it goes, in memory that grows with live
 * blocks and not with events.
 *
 * Time is counted in moments. A tide is what a pool holds, moment by moment; an account cuts time into segments and keeps the most
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
 * An account that has not been looked at for a while learns by account_cut() what the pool held meanwhile, from the tide.
 */
#ifndef MSCOPE_ANALYSIS_ACCOUNT_H
#define MSCOPE_ANALYSIS_ACCOUNT_H

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
	uint32_t group; /* of steps, as account.group */
};

/* Segments of all accounts. */
struct segments {
	struct segment *at;
	size_t count, room;
	uint32_t unused; /* first of the free ones, by `next` */
};

struct account {
	const struct tide *tide;
	struct segments *segments;
	uint32_t first, last;
	/* Moment when `last` begins. What the pool held from there on is in the tide. */
	uint64_t since;
	uint32_t group; /* of steps that is in progress */
};

/* All time is one segment. 0 or -ENOMEM. */
int account_init(struct account *account, const struct tide *tide, struct segments *segments);

/*
 * The segment that begins at `moment`: now, or earlier if nothing was cut since; else the one that begins now, `latest`. Before the
 * tide is set for `latest`. NO_SEGMENT: no memory. It stays while it is referenced; the last one stays anyway.
 */
uint32_t account_cut(struct account *account, uint64_t moment, uint64_t latest);

/* The begin of a segment is needed, or no more by one. */
static inline void account_ref(struct account *account, uint32_t segment)
{
	account->segments->at[segment].refs++;
}

/* Makes a segment a part of the one before. Neither the first nor the last. */
void account_join(struct account *account, uint32_t segment);

static inline void account_unref(struct account *account, uint32_t segment)
{
	struct segment *at = &account->segments->at[segment];

	at->refs -= at->refs > 0;
	if (at->refs == 0 && segment != account->first && segment != account->last)
		account_join(account, segment);
}

/* So many bytes need not have been there from the begin of one segment to that of another. */
void account_waste(struct account *account, uint32_t from, uint32_t to, uint64_t bytes);

/* From `moment` on, which is as in account_cut(), another group of steps is in progress: its segments are kept apart. 0 or -ENOMEM. */
int account_group(struct account *account, uint32_t group, uint64_t moment, uint64_t latest);

/* The most that the pool would have held; of one group of steps, or of all time (NO_GROUP). UINT64_MAX: nothing is known of it. */
#define NO_GROUP UINT32_MAX
uint64_t account_most(const struct account *account, uint32_t group);

/* Joins groups of steps by twos: number n becomes n / 2. */
void account_halve(struct account *account);

/* For a checkpoint: appends a segment at the end of an account that is loaded. NO_SEGMENT: no memory. */
uint32_t account_append(struct account *account);

#endif
