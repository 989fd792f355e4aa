/* SPDX-License-Identifier: Apache-2.0 */
#include "analysis/account.h"

#include <errno.h>

#include "base/array.h"

/* ---- what the pool holds ---- */

int tide_set(struct tide *tide, uint64_t moment, uint64_t bytes)
{
	if (MSCOPE_UNLIKELY(tide->count == tide->room) &&
	    ARRAY_RESERVE(tide->crests, tide->room, tide->count + 1) < 0)
		return -ENOMEM;
	if (tide->count > 0)
		tide->crests[tide->count - 1].until = moment;
	while (tide->count > 0 && tide->crests[tide->count - 1].bytes <= bytes)
		tide->count--;
	tide->crests[tide->count++] = (struct crest){.until = UINT64_MAX, .bytes = bytes};
	if (bytes > tide->highest)
		tide->highest = bytes;
	return 0;
}

uint64_t tide_most(const struct tide *tide, uint64_t since)
{
	size_t count = tide->count, low;

	/* Most questions are about the latest values. */
	if (count > 0 && (count == 1 || tide->crests[count - 2].until <= since))
		return tide->crests[count - 1].bytes;
	low = COUNT_FRONT(at, count, tide->crests[at].until <= since);
	return low < count ? tide->crests[low].bytes : 0;
}

void tide_trim(struct tide *tide, const uint64_t *since, size_t count)
{
	size_t i, kept = 0, at = 0;

	for (i = 0; i < tide->count; i++) {
		bool asked = i + 1 == tide->count;

		while (at < count && since[at] < tide->crests[i].until) {
			asked = true;
			at++;
		}
		if (asked)
			tide->crests[kept++] = tide->crests[i];
	}
	tide->count = kept;
}

/* ---- segments ---- */

/* Sizes in a damaged trace may be anything. */
static int64_t plus(int64_t a, int64_t b)
{
	return (int64_t)((uint64_t)a + (uint64_t)b);
}

static uint32_t segment_new(struct segments *segments)
{
	uint32_t found;

	if (segments->unused != 0) {
		found = segments->unused - 1;
		segments->unused = segments->at[found].next;
		return found;
	}
	if (segments->count >= UINT32_MAX - 1 ||
	    ARRAY_RESERVE(segments->at, segments->room, segments->count + 1) < 0)
		return NO_SEGMENT;
	return (uint32_t)segments->count++;
}

uint32_t account_append(struct account *account)
{
	uint32_t added = segment_new(account->segments), last = account->last;
	struct segment *at = account->segments->at;

	if (added == NO_SEGMENT)
		return NO_SEGMENT;
	at[added] = (struct segment){
		.raw = NO_VALUE, .prev = last, .next = NO_SEGMENT, .group = account->group};
	if (last != NO_SEGMENT)
		at[last].next = added;
	else
		account->first = added;
	account->last = added;
	return added;
}

/* What was most in a segment counts for the one before. */
static void pass_on(struct segment *at, const struct segment *gone)
{
	struct segment *prev = &at[gone->prev];

	if (gone->raw != NO_VALUE &&
	    (prev->raw == NO_VALUE || plus(gone->raw, gone->add) > prev->raw))
		prev->raw = plus(gone->raw, gone->add);
}

void account_join(struct account *account, uint32_t segment)
{
	struct segment *at = account->segments->at, *gone = &at[segment];

	pass_on(at, gone);
	at[gone->next].add = plus(at[gone->next].add, gone->add);
	at[gone->prev].next = gone->next;
	at[gone->next].prev = gone->prev;
	gone->next = account->segments->unused;
	account->segments->unused = segment + 1;
}

static void learn(struct account *account, uint64_t bytes)
{
	struct segment *last = &account->segments->at[account->last];

	if (last->raw == NO_VALUE || (int64_t)bytes > last->raw)
		last->raw = (int64_t)bytes;
}

/* ---- an account ---- */

int account_init(struct account *account, const struct tide *tide, struct segments *segments)
{
	*account = (struct account){
		.tide = tide, .segments = segments, .first = NO_SEGMENT, .last = NO_SEGMENT};
	return account_append(account) == NO_SEGMENT ? -ENOMEM : 0;
}

uint32_t account_cut(struct account *account, uint64_t moment, uint64_t latest)
{
	struct segment *last = &account->segments->at[account->last];

	/*
	 * With a moment in the past, the segment before it may be given more than the pool held there, but never more than it held
	 * in the segment behind it, from which no block that lives now can be told apart.
	 */
	if (moment < account->since)
		moment = latest;
	if (moment == account->since)
		return account->last;
	learn(account, tide_most(account->tide, account->since));
	if (last->refs == 0 && account->last != account->first) {
		/* Nobody needs its begin: it is moved. */
		pass_on(account->segments->at, last);
		last->raw = NO_VALUE;
		last->group = account->group;
	} else if (account_append(account) == NO_SEGMENT) {
		return NO_SEGMENT;
	}
	account->since = moment;
	return account->last;
}

void account_waste(struct account *account, uint32_t from, uint32_t to, uint64_t bytes)
{
	struct segment *at = account->segments->at;

	at[from].add = plus(at[from].add, -(int64_t)(bytes & INT64_MAX));
	at[to].add = plus(at[to].add, (int64_t)(bytes & INT64_MAX));
}

/* ---- steps ---- */

int account_group(struct account *account, uint32_t group, uint64_t moment, uint64_t latest)
{
	uint32_t segment;

	if (account->group == group)
		return 0;
	account->group = group;
	segment = account_cut(account, moment, latest);
	if (segment == NO_SEGMENT)
		return -ENOMEM;
	account->segments->at[segment].group = group;
	account_ref(account, segment);
	return 0;
}

uint64_t account_most(const struct account *account, uint32_t group)
{
	const struct segment *at = account->segments->at;
	uint64_t held = tide_most(account->tide, account->since);
	int64_t sum = 0, most = 0;
	bool any = false;
	uint32_t i;

	for (i = account->first; i != NO_SEGMENT; i = at[i].next) {
		int64_t raw = at[i].raw;

		sum = plus(sum, at[i].add);
		if (i == account->last && (raw == NO_VALUE || raw < (int64_t)held))
			raw = (int64_t)held;
		if (raw == NO_VALUE || (group != NO_GROUP && at[i].group != group))
			continue;
		any = true;
		if (plus(raw, sum) > most)
			most = plus(raw, sum);
	}
	return any ? (uint64_t)most : UINT64_MAX;
}

void account_halve(struct account *account)
{
	struct segment *at = account->segments->at;
	uint32_t i, next, prev = NO_GROUP;

	account->group /= 2;
	for (i = account->first; i != NO_SEGMENT; i = next) {
		bool began = prev != NO_GROUP && at[i].group != prev;

		next = at[i].next;
		prev = at[i].group;
		at[i].group /= 2;
		/* The begin of a group that is now in the middle of one. */
		if (began && at[i].group == at[at[i].prev].group)
			account_unref(account, i);
	}
}
