/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the user reads when files are finished, by a launch or by `recover`: a report per process, where its files are, and what
 * went wrong. Collected while it comes and printed at once, so that it does not mix with the program's own output.
 */
#ifndef MSCOPE_CLI_OUTCOME_H
#define MSCOPE_CLI_OUTCOME_H

#include "engine/pipeline.h"

/* One screen: processes with a report of their own, further ones as a line each; what of live blocks the first one shows. */
#define OUTCOME_FULL   3
#define OUTCOME_GROUPS 3
#define OUTCOME_FRAMES 2

struct outcome {
	int log_level;
	uint32_t reports;
	bool progress_shown;
	struct strbuf text;
	char next[PROJECT_PATH_MAX]; /* what `info` may be asked about, "" for nothing */
	uint32_t steps_seen;	     /* by the process that saw most of them */
	uint32_t *steps_missing; /* those asked for that no process has seen so far; NULL: none */
	size_t missing_count;
};

void outcome_init(struct outcome *outcome, int log_level);
void outcome_add(struct outcome *outcome, struct pipeline *pipeline);
/* Steps count from 1 in each process; one that came in any of them was not asked for in vain. Part of outcome_add(). */
void outcome_steps(struct outcome *outcome, const struct session *session, uint32_t seen);
/* Memory ran out in a process that still runs. Told at once, to stderr. */
void outcome_out_of_memory(struct outcome *outcome, const struct pipeline *pipeline,
			   const char *text);
void outcome_unreadable(struct outcome *outcome, const char *path, const struct mscope_error *err);
/* A line of its own, with our name before it. */
void outcome_say(struct outcome *outcome, const char *format, ...) MSCOPE_PRINTF(2, 3);
/* On a terminal: how far the present work is. */
void outcome_progress(struct outcome *outcome, uint64_t events);
/* Everything collected, to stderr; empty afterwards. */
void outcome_print(struct outcome *outcome);
void outcome_discard(struct outcome *outcome);

#endif
