/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The state of a replay. Only src/replay and its tests include this.
 */
#ifndef MSCOPE_REPLAY_STATE_H
#define MSCOPE_REPLAY_STATE_H

#include "base/map.h"
#include "replay/calls.h"
#include "replay/operations.h"
#include "replay/owners.h"
#include "replay/python.h"
#include "replay/ranges.h"
#include "replay/replay.h"
#include "replay/stacks.h"
#include "replay/texts.h"

/* The source of steps: the first that names one, for the whole run. */
enum step_source {
	STEPS_UNKNOWN,
	STEPS_RANGES, /* ranges named STEP_MESSAGE */
	STEPS_API,    /* step() of the API: each call ends a step, and the next one begins */
};

#define STEP_NO_RANGE UINT64_MAX /* the range of a step that step() ends */

struct open_step {
	uint64_t range;
	uint32_t step;
};

/* How a device's counter becomes our time. */
struct device_clock {
	uint32_t device;
	uint64_t time_ns;
	uint64_t counter;
	uint64_t frequency_hz;
};

struct replay_writer;

struct replay {
	struct replay_setup setup;
	const struct replay_observer *observer; /* NULL if there is none; borrowed */
	void *observer_arg;
	bool decompose;			/* owners are asked for, replay_decompose() */
	bool show_owners;		/* and rows have them */
	uint32_t state;			/* enum recording as the trace tells it */
	struct event_settings settings; /* chosen through the API, when `settings_count` is not 0 */
	uint32_t settings_count;	/* how often they changed */

	struct context *contexts; /* distinct ones; [0] is the unknown one */
	size_t context_count, context_room;
	struct map context_ids; /* writer, id -> index */
	struct modules modules;
	struct stacks stacks;
	struct map stack_ids; /* writer, id -> index */
	struct codes codes;
	struct map code_ids;	     /* writer, id -> index */
	struct python_place *places; /* room to define a stack */
	size_t place_room;
	struct block *blocks; /* slots; those in `live` count */
	size_t block_count, block_room;
	uint32_t *free_slots;
	size_t free_count, free_room;
	struct map live;      /* space, address -> slot */
	struct ranges ranges; /* the same blocks by address; kept once somebody asked */
	bool ranged;
	struct usage *usages;
	size_t usage_count, usage_room;
	struct driver_usage *drivers;
	size_t driver_count, driver_room;
	struct device_clock *clocks;
	size_t clock_count, clock_room;
	struct texts texts;  /* names and messages */
	struct map text_ids; /* writer, id -> offset */
	struct map
		launches; /* device, stream and task -> name and stream, of kernels that have not ended */
	struct map launch_steps; /* the same key -> step of the launch, of those inside one */
	struct owners owners;
	struct open_step *open_steps; /* ranges that are steps and have not ended, oldest first */
	size_t open_step_count, open_step_room;
	uint32_t steps;		       /* seen so far */
	uint8_t step_source;	       /* enum step_source */
	bool step_other;	       /* the other source was told about */
	struct replay_writer *writers; /* by writer number */
	size_t writer_room;
	struct watches watches;
	struct calls calls; /* whoever wants its rows sets its row function */
	char **notes;
	size_t note_count, note_room;

	struct replay_totals totals;
	uint64_t checkpoint_ns; /* block events before it are in the checkpoint already */
	uint32_t
		as_writer; /* inside a checkpoint: whose definitions come, 0: the checkpoint's own */
};

#endif
