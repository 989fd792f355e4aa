/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The answer to "what if": a record is played under its own settings first; where that agrees, under others, with and without a
 * limit. Figures are exact where the order of the driver's addresses does not matter, else a band.
 */
#ifndef MSCOPE_TWIN_WHAT_IF_H
#define MSCOPE_TWIN_WHAT_IF_H

#include "base/status.h"
#include "twin/program.h"

#define WHAT_IF_ORDERS 32u /* at most */

struct what_if_choice {
	const char *const *settings; /* texts; NULL: the usual ones */
	size_t setting_count;
	uint64_t limit_bytes; /* what the pool may reserve; 0: no limit is asked about */
	uint64_t card_bytes;  /* memory of another card; 0: not asked about */
	const char *torch;    /* release to play; NULL: the record's own */
};

struct what_if_setting {
	const char *text;
	char refused[300]; /* why the release refuses it; "": it does not */
	uint64_t reserved_peak;
	uint64_t low, high;
	uint64_t retries;
	bool own;	 /* the run had these */
	bool at_refusal; /* its figures are what the pool had when its first request was refused */
	bool fits;	 /* no request is refused; these come first */
	size_t oom_at;	 /* event of the record, from 1; 0: older than it; SIZE_MAX: none */
	uint32_t oom_step;
};

struct what_if {
	const struct pool_history *history;
	struct program program;
	struct twin_release release;
	bool release_found; /* the record has none; this is the newest one that agrees */
	bool other_release; /* the answer is for a release with other rules than the record's */
	struct program_agreement agreement;
	struct what_if_setting *settings; /* best first */
	size_t setting_count;
	uint64_t reserved_peak, in_use_peak, requested_peak; /* of the record */
	/* What settings are compared with: the recorded peak; with another release, what the run's own settings reserve there. */
	uint64_t base_peak;
	uint64_t workspace_bytes; /* the largest request that looks like a workspace of cuDNN */
	bool waits;		  /* frees waited for other streams: figures are ranges */
	bool limited; /* by the choice, the run's own memory fraction, or what it had when a request was refused */
	uint64_t own_limit_bytes; /* what the memory fraction allows; UINT64_MAX: there is none */
	/* The record ends with a refused request and no limit is asked about: what the pool had at most is the limit. Else 0. */
	uint64_t had_bytes;
	uint64_t available_bytes; /* with a card: what is left for the pool there */
	char refusal[400];	  /* why there is no answer; "": there is one */
};

/*
 * Answers for one pool. 0, -ENOMEM, or MSCOPE_E_USAGE with a sentence for a release or settings that cannot be read. An answer that is
 * refused is 0 with `refusal`. Needs what_if_fini() in any case.
 */
int what_if_answer(struct what_if *out, const struct pool_history *history,
		   const struct what_if_choice *choice, struct mscope_error *err);
/* The run's own release, device and limit, with settings to be filled in; and the same with one of what_if_orders() orders of addresses. */
struct twin_conditions what_if_conditions(const struct what_if *w);
void what_if_order(struct twin_conditions *conditions, uint32_t number);
/* How many orders may be tried of a program that is played in `plays` ways: the more, the shorter it is. */
uint32_t what_if_orders(size_t events, size_t plays);
void what_if_fini(struct what_if *out);

/* What a pool reserves at its peak: with one order of the driver's addresses or another, and with requests of one size or another. */
struct what_if_range {
	uint64_t low, high;
};

/*
 * Plays an edited copy of the history of an answer that is not refused, under the run's own settings. `like`: of each event of the copy
 * the number of the event that it is or is a copy of, from 1; 0: it is new; NULL: other sizes are not tried. At most `orders` orders of
 * addresses are. `out` grows by what comes out. 0 or -ENOMEM.
 */
int what_if_play_changed(const struct what_if *w, const struct pool_history *changed,
			 const uint32_t *like, uint32_t orders, struct what_if_range *out);

/* The settings that are tried unless others are named. */
extern const char *const WHAT_IF_USUAL[];
extern const size_t WHAT_IF_USUAL_COUNT;

#endif
