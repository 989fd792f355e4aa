/* SPDX-License-Identifier: Apache-2.0 */
#include "replay/kernels.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/strbuf.h"
#include "replay/state.h"
#include "symbols/demangle.h"

/* Without execution records nothing takes launches out again; memory must not grow with events. */
#define LAUNCHES_MAX 262144u
#define OLDER_MAX    4096u

/* How far a device's clock and ours may be apart. */
#define CLOCK_SLACK_NS 1000000u

#define STREAM_ANY UINT32_MAX /* of the key by which a launch is found without its stream */

void kernels_fini(struct replay *replay)
{
	map_fini(&replay->kernels.launches);
	map_fini(&replay->kernels.steps);
	free(replay->kernels.older);
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
	size_t cursor = 0, i;

	for (i = 0; i < kernels->older_count; i++) {
		uint64_t *value = &kernels->older[i].value;

		*value =
			launch_value(texts_keep(sweep, launch_name(*value)), launch_stream(*value));
	}
	while ((slot = map_next(&kernels->launches, &cursor)) != NULL)
		*map_get(&kernels->launches, slot->key) = launch_value(
			texts_keep(sweep, launch_name(slot->value)), launch_stream(slot->value));
}

static struct map_key launch_key(uint32_t device, uint64_t stream, uint64_t task)
{
	return (struct map_key){(uint64_t)device << 32 | (uint32_t)stream, task};
}

/* ---- launches ---- */

static int older_add(struct kernels *kernels, const struct older_launch *launch)
{
	const size_t half = OLDER_MAX / 2;

	if (kernels->older_count == OLDER_MAX) {
		memmove(kernels->older, kernels->older + half, half * sizeof(*kernels->older));
		kernels->older_count = half;
	}
	if (ARRAY_RESERVE(kernels->older, kernels->older_room, kernels->older_count + 1) < 0)
		return -ENOMEM;
	kernels->older[kernels->older_count++] = *launch;
	return 0;
}

static void older_drop(struct kernels *kernels, const struct older_launch *launch)
{
	size_t i = (size_t)(launch - kernels->older);

	kernels->older_count--;
	memmove(&kernels->older[i], &kernels->older[i + 1],
		(kernels->older_count - i) * sizeof(*kernels->older));
}

/*
 * The launch that a kernel which ran at `when_ns` (0: not known) is of, if there is a later one of the same numbers. What was
 * launched before that, and has not been heard of, will not be.
 */
static struct older_launch *older_find(struct kernels *kernels, struct map_key key,
				       uint64_t when_ns)
{
	size_t i = 0;

	while (i < kernels->older_count) {
		struct older_launch *launch = &kernels->older[i];

		if (launch->key.a != key.a || launch->key.b != key.b)
			i++;
		else if (when_ns != 0 && launch->replaced_ns + CLOCK_SLACK_NS <= when_ns)
			older_drop(kernels, launch);
		else
			return launch;
	}
	return NULL;
}

/* Remembers a launch until its kernel ends, with the step that asked for it: the kernel may run when the step is over. */
static int remember(struct replay *replay, uint64_t now_ns, uint32_t device, uint32_t name,
		    const struct event_kernel_launch *launch)
{
	struct map_key key = launch_key(device, launch->stream, launch->task);
	struct kernels *kernels = &replay->kernels;
	uint64_t value = launch_value(name, (uint32_t)launch->stream);
	uint32_t step = steps_current(&replay->steps);
	const uint64_t *before, *before_step;
	int r = 0;

	if (kernels->launches.count > LAUNCHES_MAX || kernels->steps.count > LAUNCHES_MAX) {
		map_fini(&kernels->launches);
		map_fini(&kernels->steps);
		kernels->older_count = 0;
	}
	before = map_get(&kernels->launches, key);
	before_step = map_get(&kernels->steps, key);
	/* The stream was destroyed, and its number and tasks start over: the log comes later than the launches. */
	if (MSCOPE_UNLIKELY(before != NULL))
		r = older_add(kernels,
			      &(struct older_launch){
				      .key = key,
				      .value = *before,
				      .replaced_ns = now_ns,
				      .step = before_step == NULL ? 0 : (uint32_t)*before_step});
	if (r == 0)
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

/* Names of CUDA's kernels come as the compiler made them. 0: no memory. */
static uint32_t readable_name(struct replay *replay, uint32_t name)
{
	struct strbuf text = {0};
	uint32_t offset = 0;
	int r;

	demangle_qualified(texts_at(&replay->texts, name), &text);
	r = strbuf_failed(&text) ? -ENOMEM
				 : texts_intern(&replay->texts, text.data, text.length, &offset);
	strbuf_fini(&text);
	return r < 0 ? 0 : offset + 1;
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
	if (context->vendor == VENDOR_CUDA && (name = readable_name(replay, name)) == 0)
		return -ENOMEM;
	r = remember(replay, event->time_ns, context->device, name, &launch);
	if (r < 0 || !replay_wants_row(replay, ROW_KERNEL_LAUNCH))
		return r;
	row = (struct row){.kind = ROW_KERNEL_LAUNCH,
			   .context = context,
			   .name = texts_at(&replay->texts, name),
			   .stream = (uint32_t)launch.stream,
			   .task = (uint32_t)launch.task};
	return replay_publish(replay, event, &row);
}

/* No span of a run is longer; sums below stay within 128 bits. */
#define SPAN_MAX (INT64_C(1) << 62)

/* Pairs closer than this are one that was tried again: the last counts. */
#define PAIR_AGAIN_NS UINT64_C(100000000)

/* Whether two pairs tell the rate of the clock: far enough apart, and within a hundredth of what the device says. */
static bool pairs_tell(const struct device_clock *clock, const struct clock_pair *from,
		       const struct clock_pair *to)
{
	__int128 time = (__int128)to->time_ns - from->time_ns, said, found;

	if (from->time_ns == 0 || time < (__int128)PAIR_AGAIN_NS || time > SPAN_MAX ||
	    to->counter <= from->counter || to->counter - from->counter > SPAN_MAX ||
	    clock->frequency_hz > SPAN_MAX)
		return false;
	said = time * (__int128)clock->frequency_hz;
	found = (__int128)(to->counter - from->counter) * 1000000000;
	return (found > said ? found - said : said - found) <= said / 100;
}

/* Time of `counter` by the line through two pairs. */
static uint64_t on_line(const struct clock_pair *from, const struct clock_pair *to,
			uint64_t counter)
{
	__int128 ticks = (__int128)counter - to->counter;
	__int128 time = (__int128)to->time_ns - from->time_ns;

	return to->time_ns + (uint64_t)(ticks * time / (__int128)(to->counter - from->counter));
}

/*
 * A device's counter in our time; the record's own time while the device's clock is unknown. Between the two latest pairs it is on the
 * line through them; after them it goes on at the mean rate since the first, which is more exact the longer the run is.
 */
static uint64_t device_time(const struct kernels *kernels, uint32_t device, uint64_t counter,
			    uint64_t otherwise_ns)
{
	const struct device_clock *clock = kernels->clocks;
	size_t i;
	__int128 ticks;

	for (i = 0; i < kernels->clock_count && clock->device != device; i++)
		clock++;
	if (i == kernels->clock_count)
		return otherwise_ns;
	ticks = (__int128)counter - clock->latest.counter;
	if (ticks < 0 && counter >= clock->before.counter &&
	    pairs_tell(clock, &clock->before, &clock->latest))
		return on_line(&clock->before, &clock->latest, counter);
	if (ticks < SPAN_MAX && ticks > -SPAN_MAX &&
	    pairs_tell(clock, &clock->first, &clock->latest))
		return on_line(&clock->first, &clock->latest, counter);
	return clock->latest.time_ns +
	       (uint64_t)(ticks * 1000000000 / (__int128)clock->frequency_hz);
}

/* The row of an execution; `launch` is as the map has it. */
static int publish_execution(struct replay *replay, const struct trace_event *event,
			     const struct context *context,
			     const struct event_kernel_execute *execute, uint64_t launch,
			     const struct older_launch *older, uint64_t when_ns)
{
	const struct kernels *kernels = &replay->kernels;
	const uint64_t *step = map_get(
		&kernels->steps, launch_key(context->device, launch_stream(launch), execute->task));
	struct row row = {
		.kind = execute->kind == 1 ? ROW_KERNEL_BEGIN : ROW_KERNEL_END,
		.late = true,
		.step = older != NULL  ? older->step
			: step == NULL ? 0
				       : (uint32_t)*step,
		.time_ns = run_wall_ns(replay->setup.run, when_ns == 0 ? event->time_ns : when_ns),
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
	struct kernels *kernels = &replay->kernels;
	struct older_launch *older;
	const uint64_t *known;
	uint64_t launch, when_ns;
	struct map_key key;
	int r = 0;

	event_kernel_execute_decode(event->words, &execute);
	key = launch_key(context->device, execute.stream, execute.task);
	when_ns = device_time(kernels, context->device, execute.counter, 0);
	older = older_find(kernels, key, when_ns);
	known = older != NULL ? &older->value : map_get(&kernels->launches, key);
	if (known == NULL || execute.kind < 1 || execute.kind > 2) {
		replay->totals.oddities.kernels_unknown++;
		return 0;
	}
	launch = *known;
	if (replay_wants_row(replay, execute.kind == 1 ? ROW_KERNEL_BEGIN : ROW_KERNEL_END))
		r = publish_execution(replay, event, context, &execute, launch, older, when_ns);
	if (execute.kind == 2 && older != NULL)
		older_drop(kernels, older);
	else if (execute.kind == 2)
		forget(kernels, context->device, launch_stream(launch), execute.task);
	return r;
}

/*
 * The record has all that its rows need; the launch tells the step. Of a graph's launch all kernels have its number, and the kernel may
 * be told of before its launch.
 */
int kernels_take_kernel_ran(struct replay *replay, const struct trace_event *event)
{
	const struct context *context = replay_context(replay, definitions_context(replay, event));
	struct kernels *kernels = &replay->kernels;
	struct event_kernel_ran ran;
	struct map_key key;
	const uint64_t *step;
	struct row row;
	uint32_t name;
	int r = 0;

	event_kernel_ran_decode(event->words, &ran);
	name = texts_offset(replay, event, ran.name);
	if (name == 0)
		return 0;
	if ((name = readable_name(replay, name)) == 0)
		return -ENOMEM;
	key = launch_key(context->device, STREAM_ANY, ran.task);
	step = map_get(&kernels->steps, key);
	row = (struct row){.kind = ROW_KERNEL_BEGIN,
			   .late = true,
			   .step = step == NULL ? 0 : (uint32_t)*step,
			   .time_ns = run_wall_ns(replay->setup.run, ran.start_ns),
			   .context = context,
			   .name = texts_at(&replay->texts, name),
			   .stream = (uint32_t)ran.stream,
			   .task = (uint32_t)ran.task};
	(void)map_remove(&kernels->launches, key, NULL);
	if (replay_wants_row(replay, ROW_KERNEL_BEGIN))
		r = replay_publish(replay, event, &row);
	row.kind = ROW_KERNEL_END;
	row.time_ns = run_wall_ns(replay->setup.run, ran.end_ns);
	if (r == 0 && replay_wants_row(replay, ROW_KERNEL_END))
		r = replay_publish(replay, event, &row);
	return r;
}

uint64_t replay_kernels_untimed(const struct replay *replay)
{
	return replay_vendor(replay) == VENDOR_CUDA && !replay->kernels.untold
		       ? replay->kernels.launches.count
		       : 0;
}

/* The clock of a device, made if it has none; NULL: no memory. */
static struct device_clock *clock_get(struct kernels *kernels, uint32_t device)
{
	size_t i;

	for (i = 0; i < kernels->clock_count && kernels->clocks[i].device != device; i++)
		;
	if (ARRAY_RESERVE(kernels->clocks, kernels->clock_room, i + 1) < 0)
		return NULL;
	if (i == kernels->clock_count)
		kernels->clocks[kernels->clock_count++] = (struct device_clock){.device = device};
	return &kernels->clocks[i];
}

int kernels_take_device_clock(struct replay *replay, const struct trace_event *event)
{
	const struct context *context = replay_context(replay, definitions_context(replay, event));
	struct event_device_clock record;
	struct device_clock *clock;
	struct clock_pair pair;

	event_device_clock_decode(event->words, &record);
	if (record.frequency_hz == 0)
		return 0;
	clock = clock_get(&replay->kernels, context->device);
	if (clock == NULL)
		return -ENOMEM;
	pair = (struct clock_pair){.time_ns = event->time_ns, .counter = record.counter};
	if (clock->latest.time_ns == 0 || record.counter < clock->latest.counter) {
		/* The first, or the device was reset. */
		*clock = (struct device_clock){.device = clock->device, .first = pair};
	} else if (pair.time_ns - clock->latest.time_ns >= PAIR_AGAIN_NS) {
		clock->before = clock->latest;
	} else if (clock->before.time_ns == 0) {
		clock->first = pair;
	}
	clock->latest = pair;
	clock->frequency_hz = record.frequency_hz;
	return 0;
}

/* ---- in a checkpoint ---- */

/* A launch that waits. The latest one of its numbers has not been replaced. */
static int keep_launch(struct replay *replay, struct keeping *k, struct older_launch launch)
{
	struct kernels *kernels = &replay->kernels;
	uint32_t name = keeping_text(replay, k, launch_name(launch.value));
	uint32_t stream = launch_stream(launch.value);
	int r;

	KEEP(&k->words, launch.key.a);
	KEEP(&k->words, launch.key.b);
	KEEP(&k->words, stream);
	KEEP(&k->words, launch.step);
	KEEP(&k->words, launch.replaced_ns);
	if (!words_load(&k->words))
		return 0;
	if (name == 0 || kernels->launches.count > LAUNCHES_MAX) {
		replay->totals.oddities.bad_definitions++;
		return 0;
	}
	launch.value = launch_value(name, stream);
	if (launch.replaced_ns != 0)
		return older_add(kernels, &launch);
	r = map_put(&kernels->launches, launch.key, launch.value);
	return r < 0 || launch.step == 0 ? r : map_put(&kernels->steps, launch.key, launch.step);
}

int kernels_keep(struct replay *replay, struct keeping *k)
{
	struct kernels *kernels = &replay->kernels;
	size_t older = words_load(&k->words) ? 0 : kernels->older_count, cursor = 0, count, i;
	int r = 0;

	count = words_count(&k->words, older + kernels->launches.count);
	for (i = 0; i < count && r == 0; i++) {
		struct older_launch launch = {0};

		if (i < older) {
			launch = kernels->older[i];
		} else if (!words_load(&k->words)) {
			const struct map_slot *slot = map_next(&kernels->launches, &cursor);
			const uint64_t *step = map_get(&kernels->steps, slot->key);

			launch = (struct older_launch){.key = slot->key,
						       .value = slot->value,
						       .step = step == NULL ? 0 : (uint32_t)*step};
		}
		r = keep_launch(replay, k, launch);
	}
	if (r < 0 || words_array(&k->words, &kernels->clocks, &kernels->clock_count,
				 &kernels->clock_room, sizeof(*kernels->clocks)) < 0)
		return -ENOMEM;
	for (i = 0; i < kernels->clock_count; i++) {
		struct device_clock *clock = &kernels->clocks[i];

		KEEP(&k->words, clock->device);
		KEEP(&k->words, clock->frequency_hz);
		words_memory(&k->words, &clock->first, sizeof(clock->first));
		words_memory(&k->words, &clock->before, sizeof(clock->before));
		words_memory(&k->words, &clock->latest, sizeof(clock->latest));
		k->words.failed |= clock->frequency_hz == 0;
	}
	if (k->words.failed)
		kernels->clock_count = 0;
	return 0;
}
