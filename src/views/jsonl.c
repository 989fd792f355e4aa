/* SPDX-License-Identifier: Apache-2.0 */
/*
 * JSON lines: one object a line, for scripts. The first line describes the run, then come the rows of the trace in their order, each
 * stack before the first row that refers to it, and last a line that says how many there were:
 *
 *     {"kind":"run","version":1,"pid":4242,"program":"..."}
 *     {"kind":"stack","stack":3,"frames":[{"function":"grow","file":"leaky.c","line":41,"user":true}]}
 *     {"kind":"row","id":1,"event":"MALLOC","type":"HAL","name":null,"time_ns":...,"pid":...,"tid":...,"device":"0","address":...,
 *      "size":...,"allocation_id":...,"step":...,"stack":3,"attr":{...}}
 *     {"kind":"call","what":"enter","c":false,"text":"train.py(12): step","time_ns":...,"tid":...}        of the Python trace
 *     {"kind":"end","rows":12,"stacks":2}
 *
 * Keys are only added. `attr` is the column Attr of a database. Frames are innermost first.
 */
#include <errno.h>
#include <stdlib.h>

#include "findings/site.h"
#include "base/array.h"
#include "base/json.h"
#include "sink/attr_writer.h"
#include "views/view.h"

struct jsonl {
	uint8_t *told; /* a bit for each stack whose line is written */
	size_t told_room;
	size_t told_count; /* bytes that are set */
	struct strbuf attr;
	struct json json;
	uint64_t rows, stacks;
};

static int end_line(struct view *view)
{
	struct jsonl *state = view->state;

	json_end(&state->json);
	strbuf_add_char(&view->files[0].text, '\n');
	return view_flush(&view->files[0]);
}

static void begin_line(struct view *view, const char *kind)
{
	struct jsonl *state = view->state;

	json_begin(&state->json, &view->files[0].text);
	json_object(&state->json, NULL);
	json_string(&state->json, "kind", kind);
}

static int jsonl_begin(struct view *view)
{
	struct jsonl *state = view->state;
	const struct run *run = replay_run(view->first);

	begin_line(view, "run");
	json_u64(&state->json, "version", 1);
	json_u64(&state->json, "pid", run_header(run)->pid);
	json_string(&state->json, "program", view_program(view));
	if (run_dry(run) != NULL)
		json_string(&state->json, "dry", run_dry(run));
	json_u64(&state->json, "first_ns", run_wall_ns(run, replay_totals(view->first)->first_ns));
	json_u64(&state->json, "last_ns", run_wall_ns(run, replay_totals(view->first)->last_ns));
	return end_line(view);
}

static int tell_stack(struct view *view, uint32_t stack)
{
	struct jsonl *state = view->state;
	size_t byte = stack / 8;

	if (byte >= state->told_count) {
		if (array_reserve(&state->told, &state->told_room, byte + 1, 1) < 0)
			return -ENOMEM;
		memset(state->told + state->told_count, 0, byte + 1 - state->told_count);
		state->told_count = byte + 1;
	}
	if ((state->told[byte] >> stack % 8 & 1) != 0)
		return 0;
	state->told[byte] |= (uint8_t)(1u << stack % 8);
	state->stacks++;
	begin_line(view, "stack");
	json_u64(&state->json, "stack", stack);
	site_json(view->first, stack, "frames", &state->json);
	return end_line(view);
}

static void put_block(struct json *json, const struct row *row)
{
	if (row_has_address(row->kind))
		json_u64(json, "address", row->address);
	if (row->kind != ROW_MALLOC && row->kind != ROW_FREE)
		return;
	json_u64(json, "size", row->block->size_bytes);
	json_u64(json, "allocation_id", row->block->allocation_id);
	json_u64(json, "used", row->used_bytes);
	if (row->reserved_bytes != UINT64_MAX)
		json_u64(json, "reserved", row->reserved_bytes);
}

static int jsonl_row(struct view *view, const struct row *row)
{
	struct jsonl *state = view->state;
	struct json *json = &state->json;
	char device[16];
	int r = row->stack == 0 ? 0 : tell_stack(view, row->stack);

	if (r < 0)
		return r;
	device_text(row->context->device, device);
	begin_line(view, "row");
	json_u64(json, "id", row->id);
	json_string(json, "event", row_event(row->kind));
	json_string(json, "type", row_event_type(row->kind, row->context->pool));
	if (row->name == NULL)
		json_null(json, "name");
	else
		json_string(json, "name", row->name);
	json_u64(json, "time_ns", row->time_ns);
	json_u64(json, "pid", row->pid);
	json_u64(json, "tid", row->tid);
	json_string(json, "device", device);
	put_block(json, row);
	if (row->step != 0)
		json_u64(json, "step", row->step);
	if (row->stack != 0)
		json_u64(json, "stack", row->stack);
	strbuf_reset(&state->attr);
	attr_add(&state->attr, ATTR_JSON, row);
	if (strbuf_failed(&state->attr))
		return -ENOMEM;
	json_raw(json, "attr", state->attr.length == 0 ? "{}" : strbuf_str(&state->attr));
	state->rows++;
	return end_line(view);
}

/* What the Python trace is made of: functions are entered and left. */
static int jsonl_event(struct view *view, const struct trace_event *event)
{
	static const char *const words[] = {
		[CALL_ENTER] = "enter",
		[CALL_LEAVE] = "leave",
		[CALL_C_ENTER] = "enter",
		[CALL_C_LEAVE] = "leave",
		[CALL_RANGE_BEGIN] = "range_begin",
		[CALL_RANGE_END] = "range_end",
		[CALL_OPEN_AT_START] = "open_at_start",
		[CALL_STOP] = "stop",
		[CALL_MODULE_ENTER] = "enter",
	};
	struct jsonl *state = view->state;
	struct event_call call;
	const char *text;

	if (event->type != EVENT_call)
		return 0;
	event_call_decode(event->words, &call);
	if (call.kind >= MSCOPE_COUNT(words) || words[call.kind] == NULL)
		return 0;
	text = replay_event_call(view->replay, event);
	begin_line(view, "call");
	json_string(&state->json, "what", words[call.kind]);
	json_bool(&state->json, "c", call.kind == CALL_C_ENTER || call.kind == CALL_C_LEAVE);
	if (text != NULL)
		json_string(&state->json, "text", text);
	json_u64(&state->json, "time_ns", run_wall_ns(replay_run(view->replay), event->time_ns));
	json_u64(&state->json, "tid", event->tid);
	return end_line(view);
}

static int jsonl_end(struct view *view)
{
	struct jsonl *state = view->state;

	begin_line(view, "end");
	json_u64(&state->json, "rows", state->rows);
	json_u64(&state->json, "stacks", state->stacks);
	return end_line(view);
}

static void jsonl_fini(struct view *view)
{
	struct jsonl *state = view->state;

	free(state->told);
	strbuf_fini(&state->attr);
}

const struct view_form view_jsonl = {
	.suffixes = {".jsonl"},
	.state_bytes = sizeof(struct jsonl),
	.begin = jsonl_begin,
	.row = jsonl_row,
	.event = jsonl_event,
	.end = jsonl_end,
	.fini = jsonl_fini,
};
