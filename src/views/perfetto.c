/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A trace of Perfetto (perfetto/trace, track events), for ui.perfetto.dev and trace_processor:
 *
 *     counters   what each pool has handed out and holds, what the driver counts for the process and the device
 *     slices     operators on the thread that runs them; kernels on their device and stream; Python calls
 *     ranges     of the program, which may overlap; steps
 *     instants   marks, launches, snapshots, memory that ran out
 *
 * Slices of one track nest, and an end closes the newest one. What may overlap gets a lane: a track of the same name that nothing is
 * open on, and the viewer shows such tracks as one. Times are those of the wall clock, and all numbers of tracks contain the process,
 * so that files of several ranks may be joined by cat.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/array.h"
#include "base/hash.h"
#include "views/interned.h"
#include "views/protobuf.h"
#include "views/view.h"

/* Fields of perfetto_trace.proto. */
enum {
	TRACE_PACKET = 1,
	PACKET_TIMESTAMP = 8,
	PACKET_SEQUENCE = 10,
	PACKET_EVENT = 11,
	PACKET_INTERNED = 12,
	PACKET_FLAGS = 13,
	PACKET_TRACK = 60,
	TRACK_UUID = 1,
	TRACK_NAME = 2,
	TRACK_PROCESS = 3,
	TRACK_THREAD = 4,
	TRACK_PARENT = 5,
	TRACK_COUNTER = 8,
	PROCESS_PID = 1,
	PROCESS_NAME = 6,
	THREAD_PID = 1,
	THREAD_TID = 2,
	THREAD_NAME = 5,
	COUNTER_UNIT = 3,
	EVENT_TYPE = 9,
	EVENT_NAME_IID = 10,
	EVENT_TRACK = 11,
	EVENT_CATEGORY = 22,
	EVENT_NAME = 23,
	EVENT_COUNTER = 30,
	INTERNED_NAMES = 2,
	NAME_IID = 1,
	NAME_TEXT = 2,
};

enum { FLAG_CLEARED = 1, FLAG_NEEDS_STATE = 2 };
enum { UNIT_BYTES = 3 };
enum event_kind { KIND_BEGIN = 1, KIND_END = 2, KIND_INSTANT = 3, KIND_COUNTER = 4 };

/* Which track: these, and up to two numbers of their own. */
enum track_kind {
	TRACK_OF_PROCESS = 1,
	TRACK_OF_THREAD, /* tid */
	TRACK_OF_CALLS,	 /* tid: Python calls */
	TRACK_OF_KERNELS,
	TRACK_OF_RANGES,
	TRACK_OF_STEPS,
	TRACK_OF_USED, /* pool, device */
	TRACK_OF_RESERVED,
	TRACK_OF_PROCESS_BYTES, /* device */
	TRACK_OF_DEVICE_BYTES,
};

#define NAMES_MAX 65536u /* names that are kept; later ones stand in their events */
#define DEPTH_MAX 4096u	 /* slices that are open on a thread; deeper ones are left out */
#define LANES	  64u	 /* slices of one kind that overlap; more are left out */

/* Slices that are open on one track, outermost first, by what ends them. */
struct nest {
	uint64_t *open;
	size_t count, room;
};

struct perfetto {
	struct interned names;
	struct map tracks; /* uuid of those that are described */
	struct map nests;  /* track -> index */
	struct nest *all;
	size_t nest_count, nest_room;
	struct map lanes;    /* track of a group -> bits of its lanes that are busy */
	struct map open;     /* track of a group, what ends a slice -> lane + 1 */
	struct map counters; /* track -> last value */
	struct strbuf text;  /* scratch */
	uint32_t pid;
	bool begun; /* the first packet is written */
	int error;
};

static struct strbuf *out_of(struct view *view)
{
	return &view->files[0].text;
}

static void fail(struct perfetto *state, int error)
{
	if (state->error == 0)
		state->error = error;
}

/* ---- packets ---- */

static size_t begin_packet(struct view *view)
{
	struct perfetto *state = view->state;
	struct strbuf *out = out_of(view);
	size_t at = pb_begin(out, TRACE_PACKET);

	pb_u64(out, PACKET_SEQUENCE, state->pid);
	pb_u64(out, PACKET_FLAGS, state->begun ? FLAG_NEEDS_STATE : FLAG_CLEARED);
	state->begun = true;
	return at;
}

static uint64_t uuid_of(const struct perfetto *state, enum track_kind kind, uint64_t a, uint64_t b,
			uint64_t lane)
{
	const uint64_t key[] = {state->pid, (uint64_t)kind, a, b, lane};

	return hash_add(HASH_BEGIN, key, sizeof(key)) | 1;
}

/* Whether a track must still be described; it is from here on. */
static bool is_new(struct perfetto *state, uint64_t uuid)
{
	if (map_get(&state->tracks, (struct map_key){uuid, 0}) != NULL)
		return false;
	if (map_put(&state->tracks, (struct map_key){uuid, 0}, 1) < 0)
		fail(state, -ENOMEM);
	return true;
}

/* The packet that describes a track, below `parent` if that is not 0. */
struct track_packet {
	size_t packet, track;
};

static struct track_packet begin_track(struct view *view, uint64_t uuid, uint64_t parent)
{
	struct strbuf *out = out_of(view);
	struct track_packet begun = {.packet = begin_packet(view)};

	begun.track = pb_begin(out, PACKET_TRACK);
	pb_u64(out, TRACK_UUID, uuid);
	if (parent != 0)
		pb_u64(out, TRACK_PARENT, parent);
	return begun;
}

static void end_track(struct view *view, struct track_packet begun)
{
	pb_end(out_of(view), begun.track);
	pb_end(out_of(view), begun.packet);
}

static uint64_t process_track(struct view *view)
{
	struct perfetto *state = view->state;
	uint64_t uuid = uuid_of(state, TRACK_OF_PROCESS, 0, 0, 0);
	struct strbuf *out = out_of(view);
	struct track_packet track;
	size_t process;

	if (!is_new(state, uuid))
		return uuid;
	track = begin_track(view, uuid, 0);
	process = pb_begin(out, TRACK_PROCESS);
	pb_u64(out, PROCESS_PID, state->pid);
	pb_text(out, PROCESS_NAME, view_program(view));
	pb_end(out, process);
	end_track(view, track);
	return uuid;
}

static uint64_t thread_track(struct view *view, uint32_t tid, const char *name)
{
	struct perfetto *state = view->state;
	uint64_t uuid, process = process_track(view);
	struct strbuf *out = out_of(view);
	struct track_packet track;
	size_t thread;

	if (tid == 0)
		return process; /* number 0 is the idle thread of each core */
	uuid = uuid_of(state, TRACK_OF_THREAD, tid, 0, 0);
	if (!is_new(state, uuid))
		return uuid;
	track = begin_track(view, uuid, process);
	thread = pb_begin(out, TRACK_THREAD);
	pb_u64(out, THREAD_PID, state->pid);
	pb_u64(out, THREAD_TID, tid);
	if (name[0] != '\0')
		pb_text(out, THREAD_NAME, name);
	pb_end(out, thread);
	end_track(view, track);
	return uuid;
}

/* A track with a name, below another one. */
static uint64_t named_track(struct view *view, uint64_t uuid, uint64_t parent, const char *name,
			    bool counter)
{
	struct perfetto *state = view->state;
	struct strbuf *out = out_of(view);
	struct track_packet track;
	size_t inner;

	if (!is_new(state, uuid))
		return uuid;
	track = begin_track(view, uuid, parent);
	pb_text(out, TRACK_NAME, name);
	if (counter) {
		inner = pb_begin(out, TRACK_COUNTER);
		pb_u64(out, COUNTER_UNIT, UNIT_BYTES);
		pb_end(out, inner);
	}
	end_track(view, track);
	return uuid;
}

/* The number of a name, 0 if it is not kept; a new one is written into the packet that is open. */
static uint32_t intern(struct view *view, const char *name)
{
	struct perfetto *state = view->state;
	struct strbuf *out = out_of(view);
	uint32_t number = 0;
	bool new = false;
	size_t at, inner;
	int r;

	if (state->names.count >= NAMES_MAX)
		return 0;
	r = interned_number(&state->names, name, strlen(name), &number, &new);
	if (r < 0)
		fail(state, r);
	if (new) {
		at = pb_begin(out, PACKET_INTERNED);
		inner = pb_begin(out, INTERNED_NAMES);
		pb_u64(out, NAME_IID, number + 1);
		pb_text(out, NAME_TEXT, name);
		pb_end(out, inner);
		pb_end(out, at);
	}
	return number + 1;
}

static void put_event(struct view *view, uint64_t wall_ns, enum event_kind kind, uint64_t track,
		      const char *category, const char *name)
{
	struct strbuf *out = out_of(view);
	size_t at = begin_packet(view), event;
	uint32_t number = name == NULL ? 0 : intern(view, name);

	pb_u64(out, PACKET_TIMESTAMP, wall_ns);
	event = pb_begin(out, PACKET_EVENT);
	pb_u64(out, EVENT_TYPE, kind);
	pb_u64(out, EVENT_TRACK, track);
	if (category != NULL)
		pb_text(out, EVENT_CATEGORY, category);
	if (number != 0)
		pb_u64(out, EVENT_NAME_IID, number);
	else if (name != NULL)
		pb_text(out, EVENT_NAME, name);
	pb_end(out, event);
	pb_end(out, at);
}

/* ---- counters ---- */

/* Writes a counter where it has changed. */
static void put_counter(struct view *view, uint64_t wall_ns, enum track_kind kind, uint8_t pool,
			uint32_t device, uint64_t value)
{
	static const char *const names[] = {
		[TRACK_OF_USED] = "used",
		[TRACK_OF_RESERVED] = "reserved",
		[TRACK_OF_PROCESS_BYTES] = "driver: this process",
		[TRACK_OF_DEVICE_BYTES] = "driver: all processes",
	};
	struct perfetto *state = view->state;
	struct map_key key = {uuid_of(state, kind, pool, device, 0), 0};
	uint64_t *last = map_get(&state->counters, key);
	struct strbuf *out = out_of(view);
	char text[16];
	size_t at, event;

	if (last != NULL && *last == value)
		return;
	if (last != NULL)
		*last = value;
	else if (map_put(&state->counters, key, value) < 0)
		fail(state, -ENOMEM);
	if (last == NULL) {
		strbuf_reset(&state->text);
		device_text(device, text);
		if (pool != POOL_UNKNOWN)
			view_pool_name(pool, device, &state->text);
		else
			strbuf_addf(&state->text, "device %s", text);
		strbuf_addf(&state->text, " %s", names[kind]);
		(void)named_track(view, key.a, process_track(view), strbuf_str(&state->text), true);
	}
	at = begin_packet(view);
	pb_u64(out, PACKET_TIMESTAMP, wall_ns);
	event = pb_begin(out, PACKET_EVENT);
	pb_u64(out, EVENT_TYPE, KIND_COUNTER);
	pb_u64(out, EVENT_TRACK, key.a);
	pb_u64(out, EVENT_COUNTER, value);
	pb_end(out, event);
	pb_end(out, at);
}

static void put_counters(struct view *view, const struct row *row)
{
	uint8_t pool = row->context->pool;
	uint32_t device = row->context->device;

	put_counter(view, row->time_ns, TRACK_OF_USED, pool, device, row->used_bytes);
	if (row->reserved_bytes != UINT64_MAX && !pool_is_driver(pool))
		put_counter(view, row->time_ns, TRACK_OF_RESERVED, pool, device,
			    row->reserved_bytes);
	if (row->process_bytes != UINT64_MAX)
		put_counter(view, row->time_ns, TRACK_OF_PROCESS_BYTES, POOL_UNKNOWN, device,
			    row->process_bytes);
	if (row->device_bytes != UINT64_MAX)
		put_counter(view, row->time_ns, TRACK_OF_DEVICE_BYTES, POOL_UNKNOWN, device,
			    row->device_bytes);
}

/* ---- slices that nest ---- */

static struct nest *nest_of(struct perfetto *state, uint64_t track)
{
	uint64_t *known = map_get(&state->nests, (struct map_key){track, 0});

	if (known != NULL)
		return &state->all[*known];
	if (ARRAY_RESERVE(state->all, state->nest_room, state->nest_count + 1) < 0 ||
	    map_put(&state->nests, (struct map_key){track, 0}, state->nest_count) < 0) {
		fail(state, -ENOMEM);
		return NULL;
	}
	state->all[state->nest_count] = (struct nest){0};
	return &state->all[state->nest_count++];
}

static void nest_begin(struct view *view, uint64_t wall_ns, uint64_t track, uint64_t key,
		       const char *category, const char *name)
{
	struct perfetto *state = view->state;
	struct nest *nest = nest_of(state, track);

	if (nest == NULL || nest->count == DEPTH_MAX)
		return;
	if (ARRAY_RESERVE(nest->open, nest->room, nest->count + 1) < 0) {
		fail(state, -ENOMEM);
		return;
	}
	nest->open[nest->count++] = key;
	put_event(view, wall_ns, KIND_BEGIN, track, category, name);
}

#define KEY_ANY UINT64_MAX /* all that is open */

/* Ends the newest slice with this key, and what is open inside of it; nothing if there is none. */
static void nest_end(struct view *view, uint64_t wall_ns, uint64_t track, uint64_t key)
{
	struct nest *nest = nest_of(view->state, track);
	size_t i, from = 0;

	if (nest == NULL)
		return;
	for (i = nest->count; i > 0 && key != KEY_ANY && from == 0; i--) {
		if (nest->open[i - 1] == key)
			from = i;
	}
	if (key != KEY_ANY && from == 0)
		return;
	for (from = from == 0 ? 0 : from - 1; nest->count > from; nest->count--)
		put_event(view, wall_ns, KIND_END, track, NULL, NULL);
}

/* ---- slices that may overlap ---- */

/* A group of lanes: their kind, numbers and name. */
struct group {
	enum track_kind kind;
	uint64_t a, b;
	const char *name;
	const char *category;
};

static void lane_begin(struct view *view, uint64_t wall_ns, const struct group *group, uint64_t key,
		       const char *name)
{
	struct perfetto *state = view->state;
	uint64_t first = uuid_of(state, group->kind, group->a, group->b, 0), track;
	uint64_t *busy = map_get(&state->lanes, (struct map_key){first, 0});
	uint64_t bits = busy == NULL ? 0 : *busy;
	unsigned int lane = bits == UINT64_MAX ? LANES : (unsigned int)__builtin_ctzll(~bits);

	/* A second begin of what is open has lost its end. */
	if (lane == LANES || map_get(&state->open, (struct map_key){first, key}) != NULL)
		return;
	if (map_put(&state->lanes, (struct map_key){first, 0}, bits | UINT64_C(1) << lane) < 0 ||
	    map_put(&state->open, (struct map_key){first, key}, lane) < 0) {
		fail(state, -ENOMEM);
		return;
	}
	track = named_track(view, uuid_of(state, group->kind, group->a, group->b, lane),
			    process_track(view), group->name, false);
	put_event(view, wall_ns, KIND_BEGIN, track, group->category, name);
}

static void lane_end(struct view *view, uint64_t wall_ns, const struct group *group, uint64_t key)
{
	struct perfetto *state = view->state;
	uint64_t first = uuid_of(state, group->kind, group->a, group->b, 0), lane;
	uint64_t *busy = map_get(&state->lanes, (struct map_key){first, 0});

	if (busy == NULL || !map_remove(&state->open, (struct map_key){first, key}, &lane))
		return;
	*busy &= ~(UINT64_C(1) << lane);
	put_event(view, wall_ns, KIND_END, uuid_of(state, group->kind, group->a, group->b, lane),
		  NULL, NULL);
}

static void put_kernel(struct view *view, const struct row *row)
{
	struct group group = {.kind = TRACK_OF_KERNELS,
			      .a = row->context->device,
			      .b = row->stream,
			      .category = "kernel"};
	char name[64], device[16];

	device_text(row->context->device, device);
	if (row->stream == UINT32_MAX)
		(void)snprintf(name, sizeof(name), "kernels of device %s", device);
	else
		(void)snprintf(name, sizeof(name), "kernels of device %s stream %u", device,
			       row->stream);
	group.name = name;
	if (row->kind == ROW_KERNEL_BEGIN)
		lane_begin(view, row->time_ns, &group, row->task,
			   row->name == NULL ? "unknown" : row->name);
	else
		lane_end(view, row->time_ns, &group, row->task);
}

/* ---- rows ---- */

static void put_operation(struct view *view, const struct row *row, bool begins)
{
	uint64_t track = thread_track(view, row->tid, "");
	const char *name = row->name == NULL ? "unknown" : row->name;
	uint64_t key = hash_text(name) ^ (uint64_t)row->layer;

	if (begins)
		nest_begin(view, row->time_ns, track, key, "operator", name);
	else
		nest_end(view, row->time_ns, track, key);
}

static void put_instant(struct view *view, const struct row *row, const char *category,
			const char *before)
{
	struct perfetto *state = view->state;
	uint64_t track = thread_track(view, row->tid, "");

	strbuf_reset(&state->text);
	strbuf_addf(&state->text, "%s%s", before, row->name == NULL ? "" : row->name);
	put_event(view, row->time_ns, KIND_INSTANT, track, category, strbuf_str(&state->text));
}

/* A range, by its number; a step of its own kind. */
static void put_range(struct view *view, const struct row *row)
{
	struct group ranges = {TRACK_OF_RANGES, 0, 0, "ranges", "range"},
		     steps = {TRACK_OF_STEPS, 0, 0, "steps", "step"};
	char name[32];

	if (row->kind == ROW_RANGE_END) {
		lane_end(view, row->time_ns, &ranges, row->range);
		lane_end(view, row->time_ns, &steps, row->range);
	} else if (row->name != NULL && strcmp(row->name, STEP_MESSAGE) == 0) {
		(void)snprintf(name, sizeof(name), "step %u", row->step);
		lane_begin(view, row->time_ns, &steps, row->range,
			   row->step != 0 ? name : row->name);
	} else {
		lane_begin(view, row->time_ns, &ranges, row->range,
			   row->name == NULL ? "" : row->name);
	}
}

static int perfetto_row(struct view *view, const struct row *row)
{
	struct perfetto *state = view->state;
	char text[32];

	switch (row->kind) {
	case ROW_MALLOC:
	case ROW_FREE:
		put_counters(view, row);
		break;
	case ROW_ATEN_START:
	case ROW_ATB_START:
	case ROW_ATB_KERNEL_START:
		put_operation(view, row, true);
		break;
	case ROW_ATEN_END:
	case ROW_ATB_END:
	case ROW_ATB_KERNEL_END:
		put_operation(view, row, false);
		break;
	case ROW_KERNEL_LAUNCH:
		put_instant(view, row, "launch", "launch ");
		break;
	case ROW_KERNEL_BEGIN:
	case ROW_KERNEL_END:
		put_kernel(view, row);
		break;
	case ROW_MARK:
		put_instant(view, row, "mark", "");
		break;
	case ROW_RANGE_START:
	case ROW_RANGE_END:
		put_range(view, row);
		break;
	case ROW_STEP:
		(void)snprintf(text, sizeof(text), "step %u ended", row->step);
		put_event(view, row->time_ns, KIND_INSTANT, process_track(view), "step", text);
		break;
	case ROW_SNAPSHOT:
		put_instant(view, row, row->oom != NULL ? "oom" : "snapshot", "");
		break;
	case ROW_ACL_INIT:
	case ROW_ACL_FINI:
	case ROW_START_TRACE:
	case ROW_STOP_TRACE:
		put_instant(view, row, "system", row_event_type(row->kind, POOL_UNKNOWN));
		break;
	default:
		break;
	}
	return state->error != 0 ? state->error : view_flush(&view->files[0]);
}

/* ---- events: what rows do not tell ---- */

/* What ends a range of the Python package: its text, and which of those of one text that are open on this thread. */
static uint64_t call_range_key(const struct trace_event *event, const char *text, uint32_t ordinal)
{
	const uint64_t numbers[] = {event->writer, ordinal};

	return hash_add(hash_text(text), numbers, sizeof(numbers)) | UINT64_C(1) << 63;
}

static void put_call_range(struct view *view, const struct trace_event *event, uint64_t wall_ns,
			   const char *text, bool begins)
{
	struct perfetto *state = view->state;
	struct group ranges = {TRACK_OF_RANGES, 0, 0, "ranges", "range"};
	uint64_t first = uuid_of(state, TRACK_OF_RANGES, 0, 0, 0);
	uint32_t open = 0;

	while (open < LANES &&
	       map_get(&state->open, (struct map_key){first, call_range_key(event, text, open)}) !=
		       NULL)
		open++;
	if (begins)
		lane_begin(view, wall_ns, &ranges, call_range_key(event, text, open), text);
	else if (open > 0)
		lane_end(view, wall_ns, &ranges, call_range_key(event, text, open - 1));
}

#define KEY_C (UINT64_MAX - 1) /* a C function that Python called */

static uint64_t calls_track(struct view *view, uint32_t tid)
{
	uint64_t thread = thread_track(view, tid, "");

	return named_track(view, uuid_of(view->state, TRACK_OF_CALLS, tid, 0, 0), thread,
			   "Python calls", false);
}

static void put_call(struct view *view, const struct trace_event *event, uint64_t wall_ns)
{
	const char *text = replay_event_call(view->replay, event);
	struct event_call call;
	uint64_t track;

	event_call_decode(event->words, &call);
	if (call.kind == CALL_RANGE_BEGIN || call.kind == CALL_RANGE_END) {
		put_call_range(view, event, wall_ns, text, call.kind == CALL_RANGE_BEGIN);
		return;
	}
	track = calls_track(view, event->tid);
	switch (call.kind) {
	case CALL_ENTER:
	case CALL_OPEN_AT_START:
		nest_begin(view, wall_ns, track, call.what, "python", text);
		break;
	case CALL_MODULE_ENTER:
		nest_begin(view, wall_ns, track, call.at, "python", text);
		break;
	case CALL_C_ENTER:
		nest_begin(view, wall_ns, track, KEY_C, "c", text);
		break;
	case CALL_LEAVE:
		nest_end(view, wall_ns, track, call.what);
		break;
	case CALL_C_LEAVE:
		nest_end(view, wall_ns, track, KEY_C);
		break;
	case CALL_STOP:
		nest_end(view, wall_ns, track, KEY_ANY);
		break;
	default:
		break;
	}
}

static void put_thread(struct view *view, const struct trace_event *event)
{
	struct event_thread thread;
	char name[17] = "";

	event_thread_decode(event->words, &thread);
	memcpy(name, &thread.name_low, 8);
	memcpy(name + 8, &thread.name_high, 8);
	(void)thread_track(view, (uint32_t)thread.tid, name);
}

static int perfetto_event(struct view *view, const struct trace_event *event)
{
	struct perfetto *state = view->state;
	uint64_t wall_ns = run_wall_ns(replay_run(view->replay), event->time_ns);

	switch (event->type) {
	case EVENT_call:
		put_call(view, event, wall_ns);
		break;
	case EVENT_thread:
		put_thread(view, event);
		break;
	case EVENT_optimizer_step:
		put_event(view, wall_ns, KIND_INSTANT, process_track(view), "step",
			  "optimizer step");
		break;
	default:
		return 0;
	}
	return state->error != 0 ? state->error : view_flush(&view->files[0]);
}

static int perfetto_begin(struct view *view)
{
	struct perfetto *state = view->state;
	uint32_t pid = run_header(replay_run(view->first))->pid;

	state->pid = pid == 0 ? 1 : pid;
	(void)process_track(view);
	return state->error;
}

static void perfetto_fini(struct view *view)
{
	struct perfetto *state = view->state;
	size_t i;

	for (i = 0; i < state->nest_count; i++)
		free(state->all[i].open);
	free(state->all);
	interned_fini(&state->names);
	map_fini(&state->tracks);
	map_fini(&state->nests);
	map_fini(&state->lanes);
	map_fini(&state->open);
	map_fini(&state->counters);
	strbuf_fini(&state->text);
}

const struct view_form view_perfetto = {
	.suffixes = {".perfetto-trace"},
	.state_bytes = sizeof(struct perfetto),
	.begin = perfetto_begin,
	.row = perfetto_row,
	.event = perfetto_event,
	.fini = perfetto_fini,
};
