/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Launches that run now, for readers beside their engines: `top`, and `view` of a run that goes on. An engine is found by the session
 * file that it holds open; nothing is locked, written or asked of it.
 */
#ifndef MSCOPE_ENGINE_RUNNING_H
#define MSCOPE_ENGINE_RUNNING_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

/* Session directories. */
struct running {
	char **all;
	size_t count, room;
};

/*
 * The launches that `word` means: a directory (of results, a project, a session) or the number of a process that belongs to one; NULL:
 * all that this user may look at. 0 with any number of them, or a negative code said in `err`; needs running_fini() in either case.
 */
int running_find(const char *word, struct running *out, struct mscope_error *err);

/* The launches of this user, of all that running_find() finds without a word: root sees those of others, too. */
void running_own(struct running *out);
void running_fini(struct running *running);

/*
 * The raw traces behind a word, if their processes are being recorded: a project directory, one of results or of a session, or a
 * raw trace itself. Empty: the word means something else. Needs running_fini().
 */
void running_traces(const char *word, struct running *out);

#endif
