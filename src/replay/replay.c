/* SPDX-License-Identifier: Apache-2.0 */
#include "replay/replay.h"

#include <errno.h>
#include <stdlib.h>

#include "replay/checkpoint.h"
#include "replay/facts.h"
#include "replay/state.h"
#include "trace/session.h"

/* ---- a replay and its parts ---- */

static const struct replay_observer no_observer;

static const struct {
	int (*init)(struct replay *replay);
	void (*fini)(struct replay *replay);
} parts[] = {
#define PART(init_, fini_, save_) {.init = init_, .fini = fini_},
#define KEPT(part, version)
#include "replay/parts.def"
#undef PART
#undef KEPT
};

int replay_new(const struct replay_setup *setup, struct replay **out)
{
	struct replay *replay = calloc(1, sizeof(*replay));
	size_t i;
	int r = 0;

	if (replay == NULL)
		return -ENOMEM;
	replay->setup = *setup;
	replay->observer = &no_observer;
	replay->wall_ns = run_wall_ns(setup->run, 0);
	replay->pid = run_header(setup->run)->pid;
	for (i = 0; i < MSCOPE_COUNT(parts) && r == 0; i++)
		r = parts[i].init == NULL ? 0 : parts[i].init(replay);
	if (r < 0) {
		replay_free(replay);
		return r;
	}
	*out = replay;
	return 0;
}

void replay_free(struct replay *replay)
{
	size_t i;

	for (i = 0; i < MSCOPE_COUNT(parts) && replay != NULL; i++) {
		if (parts[i].fini != NULL)
			parts[i].fini(replay);
	}
	if (replay != NULL)
		strbuf_fini(&replay->loaded.kept);
	free(replay);
}

const struct run *replay_run(const struct replay *replay)
{
	return replay->setup.run;
}

void replay_learn_inefficient(struct replay *replay, const struct block *block, uint16_t bits)
{
	struct facts *facts = replay->setup.facts;
	struct fact *fact = facts == NULL ? NULL : facts_at(facts, block->allocation_id);

	if (fact == NULL)
		return;
	fact->inefficient = bits;
	facts->changed = true;
}

/* ---- what comes out ---- */

void replay_observe(struct replay *replay, const struct replay_observer *observer, void *arg)
{
	replay->observer = observer == NULL ? &no_observer : observer;
	replay->observer_arg = arg;
}

void replay_notify_step(struct replay *replay, uint32_t step, bool begins)
{
	if (replay->observer->step != NULL)
		replay->observer->step(replay->observer_arg, replay, step, begins);
}

int replay_publish(struct replay *replay, const struct trace_event *event, struct row *row)
{
	row->id = replay->totals.rows++;
	if (row->time_ns == 0)
		row->time_ns = event->time_ns + replay->wall_ns;
	row->pid = replay->pid;
	row->tid = event->tid;
	row->writer = event->writer;
	if (row->step == 0 && !row->late)
		row->step = steps_current(&replay->steps);
	if ((replay->observer->rows >> row->kind & 1) && !usages_hide_row(replay, row))
		replay->observer->row(replay->observer_arg, replay, row);
	return replay->setup.row == NULL ? 0 : replay->setup.row(replay->setup.arg, replay, row);
}

/* ---- what goes in ---- */

enum handler_flags {
	HANDLER_WINDOWED = 1,
};

struct handler {
	replay_handler *take, *load;
	uint32_t flags; /* enum handler_flags */
};

int replay_ignore(struct replay *replay, const struct trace_event *event)
{
	(void)replay;
	(void)event;
	return 0;
}

static const struct handler handlers[256] = {
#define HANDLER(event, take_, load_, flags_)                                                       \
	[EVENT_##event] = {.take = take_, .load = load_, .flags = flags_},
#include "replay/handlers.def"
#undef HANDLER
};

/* The first event that is no checkpoint's, nor a figure that the process began with. */
static MSCOPE_COLD int begin_run(struct replay *replay, const struct trace_event *event)
{
	writers_end_checkpoint(&replay->writers);
	replay->running = true;
	if (replay->totals.first_ns == 0)
		replay->totals.first_ns = event->time_ns;
	return steps_begin_run(replay);
}

/* Figures that the engine asks for, of a process that may have recorded nothing yet. */
static bool is_sample(uint32_t type)
{
	return type == EVENT_usage_sample || type == EVENT_usage_others ||
	       type == EVENT_host_process || type == EVENT_host_limit || type == EVENT_device_name;
}

uint64_t replay_samples(const struct replay_totals *totals)
{
	uint64_t samples = 0;
	uint32_t type;

	for (type = 0; type < MSCOPE_COUNT(totals->events_by_type); type++)
		samples += is_sample(type) ? totals->events_by_type[type] : 0;
	return samples;
}

/* What a program asks for counts in windows and outside of them. */
static bool is_asked_for(uint32_t type)
{
	return type == EVENT_state || type == EVENT_settings || type == EVENT_call ||
	       type == EVENT_snapshot || type == EVENT_oom;
}

int replay_event(struct replay *replay, const struct trace_event *event)
{
	const struct handler *handler = &handlers[event->type & 0xff];

	if (MSCOPE_UNLIKELY(event->writer == CHECKPOINT_WRITER))
		return handler->load == NULL ? 0 : handler->load(replay, event);
	if (MSCOPE_UNLIKELY(event->time_ns < replay->loaded.time_ns) &&
	    checkpoint_includes(&replay->loaded, event))
		return 0;
	position_advance(&replay->at, event);
	if (MSCOPE_LIKELY(replay->ending.kind != END_STOP) || is_asked_for(event->type)) {
		replay->totals.events++;
		replay->totals.events_by_type[event->type & 0xff]++;
		if (event->time_ns > replay->totals.last_ns)
			replay->totals.last_ns = event->time_ns;
	}
	if (MSCOPE_UNLIKELY(!replay->running) && !is_sample(event->type) &&
	    begin_run(replay, event) < 0)
		return -ENOMEM;
	if (MSCOPE_UNLIKELY(replay->ooms.count != 0)) {
		int r = ooms_before_event(replay, event);

		if (r < 0)
			return r;
	}
	if (handler->take == NULL ||
	    ((handler->flags & HANDLER_WINDOWED) && replay->windows.state != RECORDING_ON))
		return 0;
	return handler->take(replay, event);
}

int replay_end(struct replay *replay)
{
	int r = ooms_end(replay);

	stacks_end(&replay->definitions.stacks);
	return r < 0 ? r : python_calls_end(&replay->calls);
}
