/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The runs that a page is about, and its questions as they come: a word and "name=value" pairs. Runs are read when they are first asked
 * about; of many, those that were asked about longest ago are closed again.
 */
#ifndef MSCOPE_VIEWER_QUESTIONS_H
#define MSCOPE_VIEWER_QUESTIONS_H

#include "viewer/answers.h"

struct viewed_run {
	char *word;
	char *name;
	uint32_t pid;	     /* of rows of several processes in dump files; 0: the first */
	uint32_t input;	     /* which word of the command line it came from, from 0 */
	struct model *model; /* NULL: not read */
	char *rank;	     /* what ranks.h keeps of it; NULL: not read yet */
	bool goes_on;	     /* when that was kept */
	uint64_t used;	     /* when it was asked about: a count */
};

struct viewed {
	struct viewed_run *runs;
	size_t count, room;
	uint32_t inputs;       /* words that were added */
	const char *directory; /* where files without names may lie; borrowed */
	bool last_window;      /* only what came after the last start() of a program is shown */
	bool ends_now;	       /* what has come of a run that goes on is judged as all of it */
	uint64_t questions;
	size_t damaged; /* of the runs that a report was made of */
};

/* Adds what `word` names: one run, or the processes of a directory of results. 0, or a negative code said in `err`. */
int viewed_add(struct viewed *viewed, const char *word, struct mscope_error *err);
/* Adds one run under a name of its own. 0 or -ENOMEM. */
int viewed_add_run(struct viewed *viewed, const char *word, const char *name);
/* Of dump files with rows of several processes each is a run; called with what was found when the first was opened. */
void viewed_split(struct viewed *viewed, size_t index, const struct import *import);
void viewed_fini(struct viewed *viewed);

/* The model of a run, opened if need be, with at least so many events read. NULL: it cannot be, said in `err`. */
struct model *viewed_model(struct viewed *viewed, size_t index, uint64_t least,
			   struct mscope_error *err);

/* Closes a run; it is read again when it is asked about. */
void viewed_close(struct viewed *viewed, size_t index);

/* Reads on for some milliseconds in a run that is open and not read to its end. False: there is none. */
bool viewed_work(struct viewed *viewed);

/*
 * Appends the answer to `what` with the pairs of `query` ("pool=1&from=0"), as one JSON object: about the whole run, or with "now=1"
 * about what has been read. Changes `query`. False: there is no such question.
 */
bool viewed_answer(struct viewed *viewed, const char *what, char *query, struct strbuf *out);

#endif
