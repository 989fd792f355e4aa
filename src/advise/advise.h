/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What to change in a program so that it needs less memory. Each rule (rules.def) edits the record of one pool and looks at the peak that
 * comes out (editor.h): a change that does not lower it is never offered.
 *
 *     advise_record_*()  while a run is read   ->   advise_pool_init()  ->  offers, best first  ->  advise_pool_fini()
 */
#ifndef MSCOPE_ADVISE_ADVISE_H
#define MSCOPE_ADVISE_ADVISE_H

#include "advise/advise_record.h"
#include "advise/editor.h"
#include "advise/reserving.h"
#include "base/strbuf.h"

enum advise_rule {
#define RULE(name, word) ADVISE_RULE_##name,
#include "advise/rules.def"
#undef RULE
	ADVISE_RULES
};

/* The least that a change has to lower the peak by, to be worth a line: this part of it. */
#define ADVISE_LEAST 0.005

struct advise_offer {
	enum advise_rule rule;
	uint64_t peak;		       /* with the change */
	struct what_if_range reserved; /* of the pool then; `high` 0: not known */
	uint64_t *curve;	       /* over the span that was asked for; NULL: none was */
	char what[200];		       /* "checkpoint Block (12 of them)" */
	char kind[100];		       /* class of the modules; "" */
	/* "all", "first half", "last half", "every other", "first 3", "last 3"; "" */
	char which[40];
	uint32_t modules; /* how many */
	double seconds;	  /* that each step takes longer; below 0: not known */
	uint64_t moved;	  /* bytes to the host, and back, in each step */
	double share;	  /* of the time of a step; below 0: not known */
	const char *cost; /* in words, where it is not time */
	char line[400];	  /* "model.py:41" to change; "" */
	bool more_lines;  /* and others */
};

/* What the user says. */
struct advise_wish {
	uint64_t limit;	    /* 0: none */
	uint64_t bandwidth; /* between device and host, bytes a second; 0: not known */
	/* Of the pool; NULL: reserved bytes are not asked for. */
	const struct advise_history *history;
	/* Of curves; NULL: none are asked for. */
	const struct editor_span *span;
};

/* What advise has to say about a pool. */
struct advising {
	const struct advise_record *record;
	struct replay *replay; /* for lines of source */
	struct editor editor;
	struct reserving reserving;
	bool reserves;			/* what the pool reserves is known */
	const struct editor_span *span; /* of curves, or NULL */
	uint64_t *curve;		/* of the record */
	uint64_t limit;			/* 0: none */
	uint64_t bandwidth;		/* between device and host, bytes a second; 0: not known */
	uint64_t peak;
	uint32_t step;		     /* in which it is, 0: before the first */
	double step_seconds;	     /* 0: not known */
	uint32_t timed_steps;	     /* of these */
	size_t timed_from, timed_to; /* moments between which they are */
	struct advise_offer *offers; /* best first */
	size_t offer_count, offer_room;
	struct strbuf refused; /* a sentence and a newline each */
};

/* 0 or -ENOMEM. */
int advise_pool_init(struct advising *advising, const struct advise_record *record,
		     struct replay *replay, uint32_t pool, const struct advise_wish *wish);
void advise_pool_fini(struct advising *advising);

/* The cheapest offer under the limit; NULL: none is. */
const struct advise_offer *advise_under_limit(const struct advising *advising);

/* The best ones, one of each rule and class. Returns how many. */
#define ADVISE_SHOWN 5u
size_t advise_best(const struct advising *advising, const struct advise_offer *out[ADVISE_SHOWN]);

const char *advise_rule_word(enum advise_rule rule);

/* ---- for rules ---- */

/* Looks at the peak of what is edited, and takes the offer if it is lower than in the record. 0 or -ENOMEM. */
int advising_offer(struct advising *advising, struct advise_offer *offer);

/* Why something was not tried: a sentence, which is kept once. */
void advising_refuse(struct advising *advising, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

/* "file.py:12" of the innermost function of the user's in a stack; "" if there is none. */
void advising_line(struct advising *advising, uint32_t stack, char *out, size_t bytes);

#define RULE(name, word) int rule_##name(struct advising *advising);
#include "advise/rules.def"
#undef RULE

#endif
