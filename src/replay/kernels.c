/* SPDX-License-Identifier: Apache-2.0 */
#include "replay/kernels.h"

#include <errno.h>
#include <stdlib.h>

#include "base/array.h"
#include "replay/state.h"

/* Without execution records nothing takes launches out again; memory must not grow with events. */
#define LAUNCHES_MAX 262144u

#define STREAM_ANY UINT32_MAX /* of the key by which a launch is found without its stream */

void kernels_fini(struct replay *replay)
{
	map_fini(&replay->kernels.launches);
	map_fini(&replay->kernels.steps);
	free(replay->kernels.clocks);
}

/* A launch as the map has it. */
static uint64_t launch_value(uint32_t name, uint32_t stream)
{
	return (uint64_t)name << 32 | stream;
}

static uint32_t launch_name(uint64_t value)
{
	return (uint32_t)(value >> 32);
}

static uint32_t launch_stream(uint64_t value)
{
	return (uint32_t)value;
}

void kernels_keep_texts(struct kernels *kernels, struct texts_sweep *sweep)
{
	const struct map_slot *slot;
	size_t cursor = 0;

	while ((slot = map_next(&kernels->launches, &cursor)) != NULL)
		*map_get(&kernels->launches, slot->key) = launch_value(
			texts_keep(sweep, launch_name(slot->value)), launch_stream(slot->value));
}

static struct map_key launch_key(uint32_t device, uint64_t stream, uint64_t task)
{
	return (struct map_key){(uint64_t)device << 32 | (uint32_t)stream, task};
}

/* Remembers a launch until its kernel ends, with the step that asked for it: the kernel may run when the step is over. */
static int remember(struct replay *replay, uint32_t device, uint32_t name,
		    const struct event_kernel_launch *launch)
{
	struct map_key key = launch_key(device, launch->stream, launch->task);
	struct kernels *kernels = &replay->kernels;
	uint64_t value = launch_value(name, (uint32_t)launch->stream);
	uint32_t step = steps_current(&replay->steps);
	int r;

	if (kernels->launches.count > LAUNCHES_MAX) {
		map_fini(&kernels->launches);
		map_fini(&kernels->steps);
	}
	r = map_put(&kernels->launches, key, value);
	if (r == 0)
		r = map_put(&kernels->launches, launch_key(device, STREAM_ANY, launch->task),
			    value);
	if (r == 0 && step != 0)
		r = map_put(&kernels->steps, key, step);
	else
		(void)map_remove(&kernels->steps, key, NULL);
	return r;
}

static void forget(struct kernels *kernels, uint32_t device, uint32_t stream, uint64_t task)
{
	(void)map_remove(&kernels->launches, launch_key(device, stream, task), NULL);
	(void)map_remove(&kernels->launches, launch_key(device, STREAM_ANY, task), NULL);
	(void)map_remove(&kernels->steps, launch_key(device, stream, task), NULL);
}

int kernels_take_kernel_launch(struct replay *replay, const struct trace_event *event)
{
	const struct context *context = replay_context(replay, definitions_context(replay, event));
	struct event_kernel_launch launch;
	struct row row;
	uint32_t name;
	int r;

	event_kernel_launch_decode(event->words, &launch);
	replay->totals.launches++;
	name = texts_offset(replay, event, launch.name);
	if (name == 0)
		return 0; /* counted; names are recorded when rows of kernels are asked for */
	r = remember(replay, context->device, name, &launch);
	if (r < 0 || !replay_wants_row(replay, ROW_KERNEL_LAUNCH))
		return r;
	row = (struct row){.kind = ROW_KERNEL_LAUNCH,
			   .context = context,
			   .name = texts_at(&replay->texts, name),
			   .stream = (uint32_t)launch.stream,
			   .task = (uint32_t)launch.task};
	return replay_publish(replay, event, &row);
}

/* A device's counter in our time; the record's own time while the device's clock is unknown. */
static uint64_t device_time(const struct kernels *kernels, uint32_t device, uint64_t counter,
			    uint64_t otherwise_ns)
{
	size_t i;

	for (i = 0; i < kernels->clock_count; i++) {
		const struct device_clock *clock = &kernels->clocks[i];
		__int128 ticks;

		if (clock->device != device)
			continue;
		ticks = (__int128)counter - clock->counter;
		return clock->time_ns +
		       (uint64_t)(ticks * 1000000000 / (__int128)clock->frequency_hz);
	}
	return otherwise_ns;
}

/* The row of an execution; `launch` is as the map has it. */
static int publish_execution(struct replay *replay, const struct trace_event *event,
			     const struct context *context,
			     const struct event_kernel_execute *execute, uint64_t launch)
{
	const struct kernels *kernels = &replay->kernels;
	const uint64_t *step = map_get(
		&kernels->steps, launch_key(context->device, launch_stream(launch), execute->task));
	uint64_t time_ns = device_time(kernels, context->device, execute->counter, event->time_ns);
	struct row row = {
		.kind = execute->kind == 1 ? ROW_KERNEL_BEGIN : ROW_KERNEL_END,
		.late = true,
		.step = step == NULL ? 0 : (uint32_t)*step,
		.time_ns = run_wall_ns(replay->setup.run, time_ns),
		.context = context,
		.name = texts_at(&replay->texts, launch_name(launch)),
		.stream = launch_stream(launch),
		.task = (uint32_t)execute->task,
	};

	return replay_publish(replay, event, &row);
}

int kernels_take_kernel_execute(struct replay *replay, const struct trace_event *event)
{
	const struct context *context = replay_context(replay, definitions_context(replay, event));
	struct event_kernel_execute execute;
	const uint64_t *known;
	uint64_t launch;
	int r = 0;

	event_kernel_execute_decode(event->words, &execute);
	known = map_get(&replay->kernels.launches,
			launch_key(context->device, execute.stream, execute.task));
	if (known == NULL || execute.kind < 1 || execute.kind > 2) {
		replay->totals.oddities.kernels_unknown++;
		return 0;
	}
	launch = *known;
	if (replay_wants_row(replay, execute.kind == 1 ? ROW_KERNEL_BEGIN : ROW_KERNEL_END))
		r = publish_execution(replay, event, context, &execute, launch);
	if (execute.kind == 2)
		forget(&replay->kernels, context->device, launch_stream(launch), execute.task);
	return r;
}

static int set_clock(struct kernels *kernels, const struct device_clock *clock)
{
	size_t i;

	for (i = 0; i < kernels->clock_count && kernels->clocks[i].device != clock->device; i++)
		;
	if (array_reserve(&kernels->clocks, &kernels->clock_room, i + 1, sizeof(*kernels->clocks)) <
	    0)
		return -ENOMEM;
	kernels->clock_count += i == kernels->clock_count;
	kernels->clocks[i] = *clock;
	return 0;
}

int kernels_take_device_clock(struct replay *replay, const struct trace_event *event)
{
	const struct context *context = replay_context(replay, definitions_context(replay, event));
	struct event_device_clock clock;

	event_device_clock_decode(event->words, &clock);
	if (clock.frequency_hz == 0)
		return 0;
	return set_clock(&replay->kernels,
			 &(struct device_clock){.device = context->device,
						.time_ns = event->time_ns,
						.counter = clock.counter,
						.frequency_hz = clock.frequency_hz});
}

/* ---- in a checkpoint ---- */

void kernels_save(const struct replay *replay, struct checkpoint *cp)
{
	const struct kernels *kernels = &replay->kernels;
	const struct map_slot *slot;
	size_t cursor = 0, i;

	while ((slot = map_next(&kernels->launches, &cursor)) != NULL) {
		const uint64_t *step = map_get(&kernels->steps, slot->key);
		uint32_t name = checkpoint_text_at(cp, replay, launch_name(slot->value));
		bool any = (uint32_t)slot->key.a == STREAM_ANY;

		BUILDER_PUT(&cp->builder, kept_launch, 0, .device = slot->key.a >> 32,
			    .any_stream = any, .task = slot->key.b,
			    .stream = launch_stream(slot->value), .name = name,
			    .step = step == NULL ? 0 : *step);
	}
	for (i = 0; i < kernels->clock_count; i++) {
		const struct device_clock *clock = &kernels->clocks[i];

		BUILDER_PUT(&cp->builder, kept_clock, 0, .device = clock->device,
			    .time_ns = clock->time_ns, .counter = clock->counter,
			    .frequency_hz = clock->frequency_hz);
	}
}

int kernels_load_kept_launch(struct replay *replay, const struct trace_event *event)
{
	struct kernels *kernels = &replay->kernels;
	struct event_kept_launch kept;
	struct map_key key;
	uint32_t name;
	int r;

	event_kept_launch_decode(event->words, &kept);
	name = texts_offset(replay, event, kept.name);
	if (name == 0 || kernels->launches.count > LAUNCHES_MAX) {
		replay->totals.oddities.bad_definitions++;
		return 0;
	}
	key = launch_key((uint32_t)kept.device, kept.any_stream ? STREAM_ANY : kept.stream,
			 kept.task);
	r = map_put(&kernels->launches, key, launch_value(name, (uint32_t)kept.stream));
	return r < 0 || kept.step == 0 ? r : map_put(&kernels->steps, key, kept.step);
}

int kernels_load_kept_clock(struct replay *replay, const struct trace_event *event)
{
	struct event_kept_clock kept;

	event_kept_clock_decode(event->words, &kept);
	if (kept.frequency_hz == 0)
		return 0;
	return set_clock(&replay->kernels,
			 &(struct device_clock){.device = (uint32_t)kept.device,
						.time_ns = kept.time_ns,
						.counter = kept.counter,
						.frequency_hz = kept.frequency_hz});
}
