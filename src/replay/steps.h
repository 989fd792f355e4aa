/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Steps of a training or inference loop, counted from 1. They have one source for the whole run, the first that names a step:
 * ranges with the message STEP_MESSAGE, or step() of the API. Ranges may overlap; then several steps are in progress.
 *
 * While neither has named one, the optimizers of the framework tell steps (optimizer_step), for the analyses alone: rows, and what
 * is chosen by steps, know only steps that the program marked. When the program marks one after all, steps of optimizers have never
 * been, and analyses begin again. Where that comes late, after more than eight steps of the optimizer, it takes three marks: before,
 * analyses keep the optimizer's, so that one mark does not undo what a long run has shown.
 *
 * With the API a step begins with the run or with a window, before the program has said anything about steps. So one is opened as
 * a guess, and dropped if steps turn out to be ranges.
 */
#ifndef MSCOPE_REPLAY_STEPS_H
#define MSCOPE_REPLAY_STEPS_H

#include "replay/replay.h"

enum step_source {
	STEPS_UNKNOWN,
	STEPS_RANGES,
	STEPS_API, /* each call of step() ends a step, and the next one begins */
};

#define STEP_NO_RANGE UINT64_MAX /* the range of a step that step() ends */

struct open_step {
	uint64_t range;
	uint32_t step;
};

struct steps {
	struct open_step *open; /* in progress, oldest first */
	size_t open_count, open_room;
	uint32_t begun;
	uint8_t source;	  /* enum step_source */
	bool other_noted; /* a note tells that the other source is ignored */
	/* Optimizers tell the steps that analyses see; the program has marked none, or a few late ones. */
	bool automatic;
	uint32_t automatic_begun; /* as `begun` with the API: steps that optimizers ended */
	uint32_t automatic_open;  /* the step in progress; 0 if none */
};

void steps_fini(struct replay *replay);

/* The step in progress that the program marked; 0 if none. */
static inline uint32_t steps_current(const struct steps *steps)
{
	return steps->open_count == 0 ? 0 : steps->open[steps->open_count - 1].step;
}

/* The step in progress as analyses see it; 0 if none. */
static inline uint32_t steps_in_progress(const struct steps *steps)
{
	return steps->automatic ? steps->automatic_open : steps_current(steps);
}

/* The latest step that began, announced or not, as analyses see it; 0 if none. */
static inline uint32_t steps_latest(const struct steps *steps)
{
	uint32_t current = steps_current(steps);

	if (MSCOPE_UNLIKELY(steps->automatic))
		return steps->automatic_open != 0 ? steps->automatic_open : steps->automatic_begun;
	return current > steps->begun ? current : steps->begun;
}

/* The first event of the run is about to be taken. */
int steps_begin_run(struct replay *replay);

/* A window of the API, or the run, begins: so does a step, unless steps are ranges. */
int steps_begin_window(struct replay *replay);

/* A window ends: ends of steps outside of windows are not recorded. */
void steps_end_window(struct replay *replay);

#endif
