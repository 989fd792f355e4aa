/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the user reads when files are finished, by a launch or by `recover`: one screen for all processes (sink/screen.h), where
 * the files are, what went wrong, what to type next. Collected while it comes and printed at once, so that it does not mix with
 * the program's own output. The document of --summary-json and the conditions of --fail-on come from the same digests.
 */
#ifndef MSCOPE_CLI_OUTCOME_H
#define MSCOPE_CLI_OUTCOME_H

#include "engine/pipeline.h"
#include "options/options.h"
#include "sink/digest.h"

struct outcome {
	int log_level;
	const char *summary_json;		    /* file of the document, NULL: none */
	const struct option_conditions *conditions; /* NULL: none */
	const char *on_forecast;		    /* command, NULL: none */
	const char *chose; /* a line about what was recorded and why; NULL: it was asked for */
	bool tells_root;   /* say last that root's permissions are not checked */
	bool progress_shown;
	unsigned int above; /* lines that were printed while the program ran */
	struct digest *digests;
	size_t digest_count, digest_room;
	struct strbuf text;	       /* what went wrong, whole lines */
	char next[PROJECT_PATH_MAX];   /* what `info` may be asked about, "" for nothing */
	char report[PROJECT_PATH_MAX]; /* the report as the user reads of it, "" for none */
	uint32_t steps_seen;	       /* by the process that saw most of them */
	uint32_t optimizer_steps;      /* the same, where the program marks none */
	uint32_t *steps_missing; /* those asked for that no process has seen so far; NULL: none */
	size_t missing_count;
};

/* `options` is borrowed. */
void outcome_init(struct outcome *outcome, const struct options *options);
void outcome_add(struct outcome *outcome, struct pipeline *pipeline);
/* Steps count from 1 in each process; one that came in any of them was not asked for in vain. Part of outcome_add(). */
void outcome_steps(struct outcome *outcome, const struct session *session,
		   const struct replay *replay);
/* Memory ran out in a process that still runs. Told at once, to stderr. */
void outcome_out_of_memory(struct outcome *outcome, const struct pipeline *pipeline,
			   const char *text);
/* A device will be full. Said at once, to stderr; then --on-forecast runs its command. */
void outcome_forecast(const struct outcome *outcome, const struct pipeline *pipeline,
		      const struct finding_forecast *forecast, const char *text);
/* As in struct pipeline_teller: a file that stop() could not complete. Told at once, to stderr; `arg` is not used. */
void outcome_incomplete(void *arg, const struct pipeline *pipeline, const struct mscope_error *err);
void outcome_unreadable(struct outcome *outcome, const char *path, const struct mscope_error *err);
/* A line of its own, with our name before it. */
void outcome_say(struct outcome *outcome, const char *format, ...) MSCOPE_PRINTF(2, 3);
/* The file that shows what was found in a browser. */
void outcome_made(struct outcome *outcome, const char *report);
/* On a terminal: how far the present work is. */
void outcome_progress(struct outcome *outcome, const char *what, uint64_t events);
/*
 * Everything collected, to stderr, and the document; empty afterwards. Returns MSCOPE_EXIT_CONDITION when a condition was met,
 * MSCOPE_EXIT_FAILED when the document could not be written, else 0.
 */
int outcome_print(struct outcome *outcome);
/* What went wrong and nothing else, of a launch whose findings another one shows; empty afterwards. Returns 0. */
int outcome_print_problems(struct outcome *outcome);
/* Of the run that was added last, one line. */
void outcome_line(struct outcome *outcome);
void outcome_discard(struct outcome *outcome);

#endif
