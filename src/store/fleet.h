/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Questions to a store about runs of many ranks: fleet_load() takes what they need of one run into memory, once; the rest are
 * functions of it. A rank is a process: of several with the same number, such as workers that a rank forked, the one that held
 * most. Where no launcher numbered them, every process that used memory is one.
 */
#ifndef MSCOPE_STORE_FLEET_H
#define MSCOPE_STORE_FLEET_H

#include "base/json.h"
#include "store/store.h"

#define FLEET_POOLS   16u
#define FLEET_FEW     3u /* ranks below which no rank stands out */
#define FLEET_REASONS 5u /* places that say why a rank stands out */

/* What a rank holds in one pool, on all its devices. */
struct fleet_pool {
	uint64_t peak_bytes, end_bytes;
	uint64_t requested_bytes; /* the most that was asked for at once */
	double trend_bytes;	  /* per step */
	bool judged;
	bool grows; /* its trend was judged a leak */
};

struct fleet_rank {
	int64_t process;
	int64_t rank; /* its number, or its position where it has none */
	bool numbered;
	int64_t steps;
	double seconds;
	char *host, *device, *name, *trace, *outcome, *verdict;
	char *dry; /* the device of a dry run; "": a device was used */
	struct fleet_pool pools[FLEET_POOLS];
};

enum fleet_verdict { FLEET_KEPT, FLEET_SUSPECT, FLEET_LEAK };

/* A place in a rank. */
struct fleet_entry {
	int64_t stack;
	uint64_t peak_bytes, end_bytes;
	double rate_bytes;
	uint32_t rank; /* its index */
	uint8_t pool;
	uint8_t verdict;
};

/* A place in all ranks: entries [from, from + count), one for each rank that has it. */
struct fleet_place {
	int64_t stack;
	size_t from;
	uint32_t count;
	uint8_t pool;
	uint32_t leaks, suspects; /* ranks with that verdict */
	uint64_t median_bytes; /* at the peak, over all ranks; 0 if half of them do not have it */
	double spread_bytes;   /* of that: how far ranks usually are from the median */
	uint64_t most_bytes;   /* in any rank */
	double rate_bytes;     /* median of the ranks where it grows */
};

struct fleet {
	struct store *store; /* borrowed */
	int64_t run;
	char *name, *job, *code;
	int64_t start_ns;
	struct fleet_rank *ranks; /* by number */
	size_t rank_count, rank_room;
	uint32_t others; /* processes that are no rank: workers */
	char *pools[FLEET_POOLS];
	size_t pool_count;
	uint8_t main_pool; /* the one with the largest median peak, or in which ranks stand out */
	struct fleet_entry *entries;
	size_t entry_count, entry_room;
	struct fleet_place *places;
	size_t place_count;
};

/* Loads a run by its name; "" is the latest. MSCOPE_E_ABSENT with a sentence if there is none. */
int fleet_load(struct fleet *fleet, struct store *store, const char *name,
	       struct mscope_error *err);
void fleet_fini(struct fleet *fleet);

/* The label of a place; "?" where it is unknown. To be freed. */
char *fleet_label(struct fleet *fleet, int64_t stack);

/* Median and spread of `count` numbers, which are sorted in passing. Spread: 1.4826 times the median distance from the median. */
struct fleet_spread {
	double median, spread, least, most, low, high; /* low, high: 10th and 90th percentile */
};

struct fleet_spread fleet_spread(double *values, size_t count);

/* ---- ranks that stand out ---- */

enum fleet_why {
	FLEET_WHY_LEAK,	     /* a place leaks in few ranks alone */
	FLEET_WHY_GROWTH,    /* a pool grows there */
	FLEET_WHY_MORE,	     /* it holds more */
	FLEET_WHY_LESS,	     /* it holds less */
	FLEET_WHY_DIFFERENT, /* as much, but at other places */
	FLEET_WHYS
};

struct fleet_reason {
	int64_t stack;
	int64_t delta_bytes; /* against the median of all ranks; of leaks: bytes per step */
	uint32_t ranks;	     /* that have the place at all */
};

/* Ranks that stand out for the same reason. */
struct fleet_group {
	enum fleet_why why;
	uint8_t pool;
	uint32_t *ranks; /* indexes */
	size_t count, room;
	/* Of the rank that stands out most: difference, as a share of the median peak, and robust z-score. */
	int64_t delta_bytes;
	double share, z;
	struct fleet_reason reasons[FLEET_REASONS];
	size_t reason_count;
	size_t more; /* places that differ as well */
};

struct fleet_groups {
	struct fleet_group *all; /* worst first */
	size_t count, room;
	bool few; /* too few ranks to say */
};

int fleet_groups_find(const struct fleet *fleet, struct fleet_groups *out);
void fleet_groups_fini(struct fleet_groups *groups);
const char *fleet_why_word(enum fleet_why why);

/* ---- answers: each as text or, with `json`, as JSON ---- */

struct fleet_ask {
	const char *place;  /* part of a label; NULL: none */
	const char *tag;    /* NULL: of all runs */
	const char *pool;   /* NULL: the main one */
	const char *budget; /* path of a file */
	uint32_t top;	    /* lines of a list */
	bool json;
};

int fleet_show(struct fleet *fleet, const struct fleet_ask *ask, struct strbuf *out);
int fleet_compare(struct fleet *base, struct fleet *other, const struct fleet_ask *ask,
		  struct strbuf *out);
int fleet_history(struct store *store, const struct fleet_ask *ask, struct strbuf *out,
		  struct mscope_error *err);
/* `out_over` counts limits that were exceeded. */
int fleet_check(struct fleet *fleet, const struct fleet_ask *ask, struct strbuf *out,
		uint32_t *out_over, struct mscope_error *err);

/* What each rank held of a pool over time, on all its devices: the most in each of `width` equal spans of [from_ns, to_ns). */
struct fleet_timeline {
	int64_t from_ns, to_ns; /* wall clock */
	size_t width;
	uint64_t *values; /* `width` of each rank, in the order of fleet.ranks */
};

int fleet_timeline(const struct fleet *fleet, size_t pool, size_t width, struct fleet_timeline *out,
		   struct mscope_error *err);
void fleet_timeline_fini(struct fleet_timeline *line);

/* "0-3, 7, 9-12", shortened behind `most` parts. */
void fleet_add_ranks(const struct fleet *fleet, const uint32_t *ranks, size_t count, size_t most,
		     struct strbuf *out);

/* "+1.5 MiB". */
void fleet_add_delta(double bytes, struct strbuf *out);

#endif
