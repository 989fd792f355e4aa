/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A profile of pprof (github.com/google/pprof, proto/profile.proto), not compressed, which its readers take as well. A sample is a
 * place, with eight values: blocks and bytes of each kind of profile; labels name pool and device.
 */
#include <errno.h>
#include <stdlib.h>

#include "views/interned.h"
#include "views/profile.h"
#include "views/protobuf.h"

/* Fields of profile.proto. */
enum {
	PROFILE_SAMPLE_TYPE = 1,
	PROFILE_SAMPLE = 2,
	PROFILE_MAPPING = 3,
	PROFILE_LOCATION = 4,
	PROFILE_FUNCTION = 5,
	PROFILE_STRING = 6,
	PROFILE_TIME_NANOS = 9,
	PROFILE_DURATION_NANOS = 10,
	PROFILE_PERIOD_TYPE = 11,
	PROFILE_PERIOD = 12,
	PROFILE_DEFAULT_TYPE = 14,
	VALUE_TYPE = 1,
	VALUE_UNIT = 2,
	SAMPLE_LOCATION = 1,
	SAMPLE_VALUE = 2,
	SAMPLE_LABEL = 3,
	LABEL_KEY = 1,
	LABEL_STRING = 2,
	MAPPING_ID = 1,
	MAPPING_FILE = 5,
	MAPPING_HAS_FUNCTIONS = 7,
	LOCATION_ID = 1,
	LOCATION_MAPPING = 2,
	LOCATION_ADDRESS = 3,
	LOCATION_LINE = 4,
	LINE_FUNCTION = 1,
	LINE_NUMBER = 2,
	FUNCTION_ID = 1,
	FUNCTION_NAME = 2,
	FUNCTION_SYSTEM_NAME = 3,
	FUNCTION_FILE = 4,
};

/* The tables keep what was written of them by what tells entries apart; numbers in the file count from 1. */
struct pprof {
	struct profile profile;
	struct interned strings, functions, mappings, locations;
	struct strbuf key; /* scratch, like the next one */
	struct strbuf name;
	int error;
};

static struct strbuf *out_of(struct view *view)
{
	return &view->files[0].text;
}

/* Number of a string, which is written when it is new. */
static uint32_t string(struct view *view, const char *text)
{
	struct pprof *state = view->state;
	uint32_t number = 0;
	bool new = false;
	int r = interned_number(&state->strings, text, strlen(text), &number, &new);

	if (r < 0)
		state->error = r;
	if (new)
		pb_text(out_of(view), PROFILE_STRING, text);
	return number;
}

/* Number of what `key` tells apart, from 1. */
static uint32_t entry(struct pprof *state, struct interned *table, bool *out_new)
{
	uint32_t number = 0;
	int r = strbuf_failed(&state->key) ? -ENOMEM
					   : interned_number(table, strbuf_str(&state->key),
							     state->key.length, &number, out_new);

	if (r < 0)
		state->error = r;
	return number + 1;
}

static uint32_t function(struct view *view, const struct stack_line *line)
{
	struct pprof *state = view->state;
	uint32_t name, file, number;
	bool new = false;
	size_t at;

	strbuf_reset(&state->name);
	if (line == NULL)
		strbuf_add_str(&state->name, PROFILE_NO_STACK);
	else
		view_frame_name(line, &state->name);
	name = string(view, strbuf_str(&state->name));
	file = string(view, line == NULL || line->file == NULL ? "" : line->file);
	strbuf_reset(&state->key);
	strbuf_addf(&state->key, "%u %u", name, file);
	number = entry(state, &state->functions, &new);
	if (!new)
		return number;
	at = pb_begin(out_of(view), PROFILE_FUNCTION);
	pb_u64(out_of(view), FUNCTION_ID, number);
	pb_u64(out_of(view), FUNCTION_NAME, name);
	pb_u64(out_of(view), FUNCTION_SYSTEM_NAME, name);
	pb_u64(out_of(view), FUNCTION_FILE, file);
	pb_end(out_of(view), at);
	return number;
}

static uint32_t mapping(struct view *view, const char *module)
{
	struct pprof *state = view->state;
	uint32_t file, number;
	bool new = false;
	size_t at;

	if (module == NULL)
		return 0;
	file = string(view, module);
	strbuf_reset(&state->key);
	strbuf_addf(&state->key, "%u", file);
	number = entry(state, &state->mappings, &new);
	if (!new)
		return number;
	at = pb_begin(out_of(view), PROFILE_MAPPING);
	pb_u64(out_of(view), MAPPING_ID, number);
	pb_u64(out_of(view), MAPPING_FILE, file);
	pb_u64(out_of(view), MAPPING_HAS_FUNCTIONS, 1);
	pb_end(out_of(view), at);
	return number;
}

/* Number of a location; `line` NULL: of no stack. */
static uint32_t location(struct view *view, const struct stack_line *line)
{
	struct pprof *state = view->state;
	uint32_t in_function = function(view, line);
	uint32_t in_mapping = mapping(view, line == NULL ? NULL : line->module), number;
	uint32_t line_number = line == NULL ? 0 : line->line;
	bool new = false;
	size_t at, inner;

	strbuf_reset(&state->key);
	strbuf_addf(&state->key, "%u %u %u", in_function, in_mapping, line_number);
	number = entry(state, &state->locations, &new);
	if (!new)
		return number;
	at = pb_begin(out_of(view), PROFILE_LOCATION);
	pb_u64(out_of(view), LOCATION_ID, number);
	if (in_mapping != 0)
		pb_u64(out_of(view), LOCATION_MAPPING, in_mapping);
	inner = pb_begin(out_of(view), LOCATION_LINE);
	pb_u64(out_of(view), LINE_FUNCTION, in_function);
	pb_u64(out_of(view), LINE_NUMBER, line_number);
	pb_end(out_of(view), inner);
	pb_end(out_of(view), at);
	return number;
}

static void put_label(struct strbuf *out, uint32_t key, uint32_t value)
{
	size_t at = pb_begin(out, SAMPLE_LABEL);

	pb_u64(out, LABEL_KEY, key);
	pb_u64(out, LABEL_STRING, value);
	pb_end(out, at);
}

/* A sample; what it refers to is written before it. */
static int put_sample(struct view *view, const struct profile_place *place)
{
	struct pprof *state = view->state;
	uint32_t count, k, pool, device, pool_key, device_key;
	const struct stack_line *lines = view_lines(view, place->site, &count);
	struct strbuf locations = {0}, *out = out_of(view);
	char text[16];
	size_t at, inner, kind;

	for (k = 0; k < count; k++)
		pb_varint(&locations, location(view, &lines[k]));
	if (count == 0)
		pb_varint(&locations, location(view, NULL));
	device_text(place->device, text);
	pool_key = string(view, "pool");
	device_key = string(view, "device");
	pool = string(view, pool_event_type(place->pool));
	device = string(view, text);
	at = pb_begin(out, PROFILE_SAMPLE);
	inner = pb_begin(out, SAMPLE_LOCATION);
	strbuf_add(out, strbuf_str(&locations), locations.length);
	pb_end(out, inner);
	inner = pb_begin(out, SAMPLE_VALUE);
	for (kind = 0; kind < PROFILE_KINDS; kind++) {
		pb_varint(out, place->blocks[kind]);
		pb_varint(out, place->bytes[kind]);
	}
	pb_end(out, inner);
	put_label(out, pool_key, pool);
	put_label(out, device_key, device);
	pb_end(out, at);
	if (strbuf_failed(&locations))
		state->error = -ENOMEM;
	strbuf_fini(&locations);
	return state->error != 0 ? state->error : view_flush(&view->files[0]);
}

static void put_type(struct view *view, uint32_t field, const char *type, const char *unit)
{
	uint32_t type_string = string(view, type), unit_string = string(view, unit);
	size_t at = pb_begin(out_of(view), field);

	pb_u64(out_of(view), VALUE_TYPE, type_string);
	pb_u64(out_of(view), VALUE_UNIT, unit_string);
	pb_end(out_of(view), at);
}

/* Names as people know them from profiles of a heap. */
static const char *const type_names[PROFILE_KINDS][2] = {
	[PROFILE_PEAK] = {"peak_objects", "peak_space"},
	[PROFILE_END] = {"inuse_objects", "inuse_space"},
	[PROFILE_LEAKED] = {"leaked_objects", "leaked_space"},
	[PROFILE_TOTAL] = {"alloc_objects", "alloc_space"},
};

static int pprof_begin(struct view *view)
{
	size_t kind;

	(void)string(view, ""); /* number 0 is the empty one */
	for (kind = 0; kind < PROFILE_KINDS; kind++) {
		put_type(view, PROFILE_SAMPLE_TYPE, type_names[kind][0], "count");
		put_type(view, PROFILE_SAMPLE_TYPE, type_names[kind][1], "bytes");
	}
	put_type(view, PROFILE_PERIOD_TYPE, "space", "bytes");
	pb_u64(out_of(view), PROFILE_PERIOD, 1);
	pb_u64(out_of(view), PROFILE_DEFAULT_TYPE, string(view, type_names[PROFILE_PEAK][1]));
	return 0;
}

static int pprof_row(struct view *view, const struct row *row)
{
	struct pprof *state = view->state;

	return profile_row(&state->profile, row);
}

static int pprof_end(struct view *view)
{
	struct pprof *state = view->state;
	const struct replay_totals *totals = replay_totals(view->first);
	int r = profile_end(&state->profile, view);
	size_t i;

	pb_u64(out_of(view), PROFILE_TIME_NANOS,
	       run_wall_ns(replay_run(view->first), totals->first_ns));
	pb_u64(out_of(view), PROFILE_DURATION_NANOS, totals->last_ns - totals->first_ns);
	for (i = 0; i < state->profile.count && r == 0; i++)
		r = put_sample(view, &state->profile.places[i]);
	return r;
}

static void pprof_fini(struct view *view)
{
	struct pprof *state = view->state;

	profile_fini(&state->profile);
	interned_fini(&state->strings);
	interned_fini(&state->functions);
	interned_fini(&state->mappings);
	interned_fini(&state->locations);
	strbuf_fini(&state->key);
	strbuf_fini(&state->name);
}

const struct view_form view_pprof = {
	.suffixes = {".pb"},
	.state_bytes = sizeof(struct pprof),
	.begin = pprof_begin,
	.row = pprof_row,
	.end = pprof_end,
	.fini = pprof_fini,
};
