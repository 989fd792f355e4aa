/* SPDX-License-Identifier: Apache-2.0 */
#include "replay/windows.h"

#include <errno.h>
#include <stdlib.h>

#include "replay/state.h"
#include "trace/session.h"

int windows_init(struct replay *replay)
{
	uint32_t first = run_header(replay->setup.run)->first_state;

	replay->windows.state = first == 0 ? RECORDING_ON : first;
	return 0;
}

/* Blocks that were allocated outside of windows and live when one begins: rows show them from there on. */
static int show_hidden(struct replay *replay, const struct trace_event *event)
{
	size_t count, i;
	struct block **blocks = blocks_sorted(&replay->blocks, &count);
	int r = 0;

	if (blocks == NULL)
		return -ENOMEM;
	for (i = 0; i < count && r == 0; i++) {
		struct trace_event now = {.time_ns = event->time_ns, .tid = blocks[i]->tid};
		const struct usage *usage = usages_of(replay, blocks[i]->context);

		if (!blocks[i]->hidden)
			continue;
		if (usage == NULL) {
			r = -ENOMEM;
			break;
		}
		blocks[i]->hidden = false;
		replay_notify_block(replay, BLOCK_SHOWN, blocks[i], usage, blocks[i]->owner);
		r = blocks_publish(replay, ROW_MALLOC, &now, blocks[i], usage, 0, true);
	}
	free(blocks);
	return r;
}

/* The driver's figures when a window begins: of the device of the thread that began it, or of the only one there is. */
static void device_figures(struct replay *replay, const struct trace_event *event, struct row *row)
{
	const struct usages *usages = &replay->usages;
	const struct driver_usage *found = NULL;
	uint32_t device = DEVICE_UNKNOWN;
	size_t i;

	if (event->context != 0)
		device = replay_context(replay, definitions_context(replay, event))->device;
	for (i = 0; i < usages->driver_count; i++) {
		const struct driver_usage *driver = &usages->drivers[i];

		if (driver->total_bytes == 0 || driver->device_bytes > driver->total_bytes ||
		    (device != DEVICE_UNKNOWN && driver->device != device))
			continue;
		if (found != NULL)
			return;
		found = driver;
	}
	if (found == NULL)
		return;
	row->device_bytes = found->device_bytes;
	row->total_bytes = found->total_bytes;
}

static int begin_window(struct replay *replay, const struct trace_event *event)
{
	struct row row = {.kind = ROW_START_TRACE, .context = replay_context(replay, UINT32_MAX)};
	int r = ending_resume(replay, event);

	replay->windows.state = RECORDING_ON;
	replay->totals.windows++;
	if (r == 0)
		r = steps_begin_window(replay);
	device_figures(replay, event, &row);
	if (r == 0)
		r = replay_publish(replay, event, &row);
	return r < 0 ? r : show_hidden(replay, event);
}

static int end_window(struct replay *replay, const struct trace_event *event, uint32_t state)
{
	struct row row = {.kind = ROW_STOP_TRACE, .context = replay_context(replay, UINT32_MAX)};
	int r = 0;

	if (replay->windows.state == RECORDING_ON)
		r = replay_publish(replay, event, &row);
	replay->windows.state = state;
	/* Ends of steps and operators outside of windows are not recorded. */
	steps_end_window(replay);
	operations_end_window(replay);
	ending_take_stop(replay, event);
	return r;
}

int windows_take_state(struct replay *replay, const struct trace_event *event)
{
	struct event_state state;

	event_state_decode(event->words, &state);
	/* A stray store of the program that makes a record one of this type would end the window, and all that follows. */
	if (event->words[1] >> 9 != 0 || state.state < RECORDING_OFF ||
	    state.state > RECORDING_ON) {
		replay->totals.oddities.bad_definitions++;
		return 0;
	}
	if (state.quiet) {
		replay->windows.state = (uint32_t)state.state;
		return state.state == RECORDING_ON ? ending_resume(replay, event) : 0;
	}
	return state.state == RECORDING_ON ? begin_window(replay, event)
					   : end_window(replay, event, (uint32_t)state.state);
}

int windows_load_state(struct replay *replay, const struct trace_event *event)
{
	struct event_state state;

	event_state_decode(event->words, &state);
	replay->windows.state = (uint32_t)state.state;
	return 0;
}

int windows_take_settings(struct replay *replay, const struct trace_event *event)
{
	struct event_settings *settings = &replay->windows.settings;

	event_settings_decode(event->words, settings);
	replay->windows.settings_count++;
	if (replay->setup.follow_choice)
		usages_choose(replay, settings);
	if (replay->observer->settings != NULL)
		replay->observer->settings(replay->observer_arg, replay);
	return 0;
}

/* ---- queries ---- */

uint32_t replay_state(const struct replay *replay)
{
	return replay->windows.state;
}

const struct event_settings *replay_settings(const struct replay *replay)
{
	return &replay->windows.settings;
}

uint32_t replay_settings_count(const struct replay *replay)
{
	return replay->windows.settings_count;
}

/* ---- in a checkpoint ---- */

void windows_save(const struct replay *replay, struct checkpoint *cp)
{
	BUILDER_PUT(&cp->builder, state, 0, .state = replay->windows.state);
	if (replay->windows.settings_count > 0)
		BUILDER_PUT_EVENT(&cp->builder, settings, 0, &replay->windows.settings);
}
