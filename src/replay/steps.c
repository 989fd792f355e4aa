/* SPDX-License-Identifier: Apache-2.0 */
#include "replay/steps.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/word_list.h"
#include "replay/facts.h"
#include "replay/state.h"
#include "trace/session.h"

/* Marks of the program are late when the optimizer has ended more steps before. */
#define EARLY_STEPS 8u

void steps_fini(struct replay *replay)
{
	free(replay->steps.open);
}

/* A step begins. 0 or -ENOMEM. */
static int steps_open(struct replay *replay, uint64_t range, uint32_t step)
{
	struct steps *steps = &replay->steps;
	int r = ARRAY_RESERVE(steps->open, steps->open_room, steps->open_count + 1);

	if (r < 0)
		return r;
	steps->open[steps->open_count++] = (struct open_step){.range = range, .step = step};
	if (!steps->automatic)
		replay_notify_step(replay, step, true);
	return 0;
}

/* The step that this range was, 0: it was none. Only its own end ends a step, whatever ranges lie inside. */
static uint32_t end_step(struct replay *replay, uint64_t range)
{
	struct steps *steps = &replay->steps;
	size_t i;

	for (i = 0; i < steps->open_count; i++) {
		uint32_t step = steps->open[i].step;

		if (steps->open[i].range != range)
			continue;
		memmove(steps->open + i, steps->open + i + 1,
			(steps->open_count - i - 1) * sizeof(*steps->open));
		steps->open_count--;
		if (!steps->automatic)
			replay_notify_step(replay, step, false);
		return step;
	}
	return 0;
}

/* The steps that the program marks count from here on: what optimizers told has never been. */
static void drop_automatic(struct replay *replay)
{
	struct steps *steps = &replay->steps;
	size_t i;

	steps->automatic = false;
	steps->automatic_begun = steps->automatic_open = 0;
	/* Of steps that the program marked a block knows only the one in progress, which may be a guess. */
	for (i = 0; i < replay->blocks.count; i++)
		replay->blocks.all[i].latest_step = replay->blocks.all[i].alloc_step;
	if (replay->observer->restart != NULL)
		replay->observer->restart(replay->observer_arg, replay);
	for (i = 0; i < steps->open_count; i++)
		replay_notify_step(replay, steps->open[i].step, true);
}

/* The first step is named: rows and blocks that a wrong guess put into a step are in none. */
static void set_source(struct replay *replay, enum step_source source)
{
	struct steps *steps = &replay->steps;
	struct facts *facts = replay->setup.facts;
	bool guessed_api = steps->open_count > 0;
	size_t i;

	steps->source = (uint8_t)source;
	if (source == STEPS_RANGES) {
		steps->open_count = 0;
		for (i = 0; i < replay->blocks.count; i++) {
			struct block *block = &replay->blocks.all[i];

			block->alloc_step = 0;
			if (!steps->automatic)
				block->latest_step = 0;
		}
	}
	if (facts == NULL)
		return;
	facts->step_source = (uint8_t)source;
	/* Rows that were published by the wrong guess have to be written again. */
	if (replay->setup.steps_matter && replay->totals.rows > 0 &&
	    guessed_api != (source == STEPS_API))
		facts->changed = true;
}

/* Whether `source` is the one that steps come from; the first that asks is. The other is ignored, with a note. */
static bool is_source(struct replay *replay, enum step_source source)
{
	static const char *const names[] = {
		[STEPS_RANGES] = "ranges named '" STEP_MESSAGE "'", [STEPS_API] = "step()"};
	struct steps *steps = &replay->steps;

	if (steps->source == STEPS_UNKNOWN)
		set_source(replay, source);
	if (steps->source == source) {
		if (steps->automatic && steps->begun == 0 && steps->automatic_begun <= EARLY_STEPS)
			drop_automatic(replay);
		return true;
	}
	if (!steps->other_noted && steps->source < MSCOPE_COUNT(names)) {
		steps->other_noted = true;
		(void)notes_add(replay, "using steps from %s, ignoring those from %s",
				names[steps->source], names[source]);
	}
	return false;
}

/* One late mark, or two, is a person's or an accident; a program that marks its steps goes on. */
static void count_late(struct replay *replay, uint32_t marks)
{
	if (replay->steps.automatic && marks >= STEP_LATE_MARKS)
		drop_automatic(replay);
}

/* A step that an optimizer will end begins. */
static void open_automatic(struct replay *replay)
{
	struct steps *steps = &replay->steps;

	steps->automatic_open = steps->automatic_begun + 1;
	replay_notify_step(replay, steps->automatic_open, true);
}

int steps_begin_window(struct replay *replay)
{
	struct steps *steps = &replay->steps;

	if (steps->automatic && steps->automatic_open == 0)
		open_automatic(replay);
	if (steps->source == STEPS_RANGES || steps->open_count > 0)
		return 0;
	return steps_open(replay, STEP_NO_RANGE, steps->begun + 1);
}

int steps_begin_run(struct replay *replay)
{
	struct steps *steps = &replay->steps;

	if (replay->setup.known != NULL)
		steps->source = replay->setup.known->step_source;
	/* With step(), the first step begins with the run. */
	if (steps->source != STEPS_API || replay->windows.state != RECORDING_ON)
		return 0;
	return steps_begin_window(replay);
}

void steps_end_window(struct replay *replay)
{
	replay->steps.open_count = 0;
	replay->steps.automatic_open = 0;
}

/* The simulated NPU marks what it does not compute where that is tolerated (SIMNPU_LENIENT). */
static void take_not_computed(struct replay *replay, const char *mark)
{
	static const char prefix[] = "simnpu: not computed: ";

	if (mark != NULL && strncmp(mark, prefix, sizeof(prefix) - 1) == 0)
		(void)notes_add_item(replay,
				     "values are not reliable: the simulated NPU did not compute ",
				     mark + sizeof(prefix) - 1);
}

int steps_take_mark(struct replay *replay, const struct trace_event *event)
{
	static const enum row_kind kinds[] = {ROW_MARK, ROW_RANGE_START, ROW_RANGE_END};
	struct row row = {.context = replay_context(replay, definitions_context(replay, event))};
	struct steps *steps = &replay->steps;
	struct event_mark mark;
	char end[64];

	event_mark_decode(event->words, &mark);
	if (mark.kind < 1 || mark.kind > 3)
		return 0;
	row.kind = kinds[mark.kind - 1];
	row.name = texts_find(replay, event, mark.text);
	row.range = mark.range;
	take_not_computed(replay, row.name);
	if (row.kind == ROW_RANGE_START && row.name != NULL &&
	    strcmp(row.name, STEP_MESSAGE) == 0 && is_source(replay, STEPS_RANGES)) {
		count_late(replay, steps->begun + 1);
		if (steps_open(replay, mark.range, steps->begun + 1) < 0)
			return -ENOMEM;
		steps->begun++;
	}
	if (row.kind == ROW_RANGE_END) {
		/* No range has this number; it is that of a step of the API. */
		if (mark.range != STEP_NO_RANGE)
			row.step = end_step(replay, mark.range);
		(void)snprintf(end, sizeof(end), RANGE_ENDS "%llu", (unsigned long long)mark.range);
		row.name = end;
	}
	return replay_publish(replay, event, &row);
}

/* step(): the step in progress ends, the next one begins. */
int steps_take_step(struct replay *replay, const struct trace_event *event)
{
	struct row row = {.kind = ROW_STEP,
			  .context = replay_context(replay, definitions_context(replay, event))};
	char number[16];
	int r;

	if (!is_source(replay, STEPS_API))
		return 0;
	row.step = ++replay->steps.begun;
	(void)snprintf(number, sizeof(number), "%u", row.step);
	row.name = number;
	r = replay_publish(replay, event, &row);
	/* There is one or none: a window opens one, and ranges are ignored. */
	(void)end_step(replay, STEP_NO_RANGE);
	count_late(replay, replay->steps.begun);
	return r < 0 ? r : steps_begin_window(replay);
}

/* An optimizer took a step: so did the program, unless the steps that it marks count. No row tells of it. */
int steps_take_optimizer_step(struct replay *replay, const struct trace_event *event)
{
	struct steps *steps = &replay->steps;
	uint32_t ended;

	(void)event;
	if (!steps->automatic && steps->begun > 0)
		return 0;
	if (!steps->automatic) {
		steps->automatic = true;
		/* A window has begun the first step already; else it began with the run. */
		steps->automatic_open = steps_current(steps);
		if (steps->automatic_open == 0)
			open_automatic(replay);
	}
	ended = steps->automatic_open;
	steps->automatic_begun++;
	steps->automatic_open = 0;
	if (ended != 0)
		replay_notify_step(replay, ended, false);
	open_automatic(replay);
	return 0;
}

/* ---- queries ---- */

uint32_t replay_marked_steps(const struct replay *replay)
{
	return replay->steps.begun;
}

uint32_t replay_marked_step(const struct replay *replay, size_t index)
{
	return index < replay->steps.open_count ? replay->steps.open[index].step : 0;
}

bool replay_steps_are_automatic(const struct replay *replay)
{
	return replay->steps.automatic;
}

uint32_t replay_steps(const struct replay *replay)
{
	return replay->steps.automatic ? replay->steps.automatic_begun : replay->steps.begun;
}

uint32_t replay_open_step(const struct replay *replay, size_t index)
{
	if (replay->steps.automatic)
		return index == 0 ? replay->steps.automatic_open : 0;
	return replay_marked_step(replay, index);
}

bool replay_step_is_open(const struct replay *replay, uint32_t step)
{
	size_t i;

	if (replay->steps.automatic)
		return step == replay->steps.automatic_open;

	for (i = 0; i < replay->steps.open_count; i++) {
		if (replay->steps.open[i].step == step)
			return true;
	}
	return false;
}

/* ---- in a checkpoint ---- */

int steps_keep(struct replay *replay, struct keeping *k)
{
	struct steps *steps = &replay->steps;
	size_t count, i;
	int r = 0;

	/* Before the others, which are not told to analyses then. */
	KEEP(&k->words, steps->automatic);
	KEEP(&k->words, steps->automatic_begun);
	KEEP(&k->words, steps->automatic_open);
	if (words_load(&k->words) && steps->automatic && steps->automatic_open != 0)
		replay_notify_step(replay, steps->automatic_open, true);
	count = words_count(&k->words, steps->open_count);
	for (i = 0; i < count && r == 0; i++) {
		struct open_step open = {0};

		if (!words_load(&k->words))
			open = steps->open[i];
		KEEP(&k->words, open.range);
		KEEP(&k->words, open.step);
		if (words_load(&k->words))
			r = steps_open(replay, open.range, open.step);
	}
	return r;
}
