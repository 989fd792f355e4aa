/* SPDX-License-Identifier: Apache-2.0 */
/*
 * speedscope's own format (https://www.speedscope.app/file-format-schema.json): a sampled profile for each pool, device and kind, its
 * weights in bytes; the frames of all of them once, at the end of the file.
 */
#include <errno.h>

#include "base/json.h"
#include "views/interned.h"
#include "views/profile.h"

struct speedscope {
	struct profile profile;
	struct interned frames; /* by their JSON text, which is in `texts` */
	struct strbuf frame;	/* scratch */
	struct strbuf list;	/* of frames, joined by commas */
	struct json json;
};

static int frame_number(struct speedscope *state, const struct stack_line *line, uint32_t *out)
{
	struct strbuf name = {0};
	struct json json;
	bool new;
	int r;

	strbuf_reset(&state->frame);
	json_begin(&json, &state->frame);
	json_object(&json, NULL);
	if (line == NULL) {
		json_string(&json, "name", PROFILE_NO_STACK);
	} else {
		view_frame_name(line, &name);
		json_string(&json, "name", strbuf_str(&name));
		if (line->file != NULL || line->module != NULL)
			json_string(&json, "file", line->file != NULL ? line->file : line->module);
		if (line->line != 0)
			json_u64(&json, "line", line->line);
	}
	json_end(&json);
	strbuf_fini(&name);
	r = interned_number(&state->frames, strbuf_str(&state->frame), state->frame.length, out,
			    &new);
	if (r == 0 && new)
		strbuf_addf(&state->list, "%s%s", *out == 0 ? "" : ",", strbuf_str(&state->frame));
	return r;
}

/* The stack of a place as a sample, outermost first. */
static int put_sample(struct view *view, const struct profile_place *place)
{
	struct speedscope *state = view->state;
	uint32_t count, k, number;
	const struct stack_line *lines = view_lines(view, place->site, &count);
	int r = 0;

	json_array(&state->json, NULL);
	for (k = count; k > 0 && r == 0; k--) {
		r = frame_number(state, &lines[k - 1], &number);
		json_u64(&state->json, NULL, number);
	}
	if (count == 0) {
		r = frame_number(state, NULL, &number);
		json_u64(&state->json, NULL, number);
	}
	json_end(&state->json);
	return r == 0 ? view_flush(&view->files[0]) : r;
}

/* The places from `from` on that are of one pool and device. */
static size_t next_pool(const struct profile *profile, size_t from)
{
	size_t i = from;

	while (i < profile->count && profile->places[i].pool == profile->places[from].pool &&
	       profile->places[i].device == profile->places[from].device)
		i++;
	return i;
}

static int put_profile(struct view *view, enum profile_kind kind, size_t from, size_t to)
{
	struct speedscope *state = view->state;
	const struct profile_place *places = state->profile.places;
	struct json *json = &state->json;
	struct strbuf name = {0};
	uint64_t sum = 0;
	size_t i;
	int r = 0;

	for (i = from; i < to; i++)
		sum += places[i].bytes[kind];
	if (sum == 0)
		return 0;
	view_pool_name(places[from].pool, places[from].device, &name);
	strbuf_addf(&name, ": %s", profile_meanings[kind]);
	json_object(json, NULL);
	json_string(json, "type", "sampled");
	json_string(json, "name", strbuf_str(&name));
	json_string(json, "unit", "bytes");
	json_u64(json, "startValue", 0);
	json_u64(json, "endValue", sum);
	json_array(json, "samples");
	for (i = from; i < to && r == 0; i++) {
		if (places[i].bytes[kind] > 0)
			r = put_sample(view, &places[i]);
	}
	json_end(json);
	json_array(json, "weights");
	for (i = from; i < to; i++) {
		if (places[i].bytes[kind] > 0)
			json_u64(json, NULL, places[i].bytes[kind]);
	}
	json_end(json);
	json_end(json);
	strbuf_fini(&name);
	return r;
}

static int speedscope_row(struct view *view, const struct row *row)
{
	struct speedscope *state = view->state;

	return profile_row(&state->profile, row);
}

static int speedscope_end(struct view *view)
{
	struct speedscope *state = view->state;
	struct json *json = &state->json;
	struct strbuf frames = {0};
	size_t kind, from, to;
	int r = profile_end(&state->profile, view);

	json_begin(json, &view->files[0].text);
	json_object(json, NULL);
	json_string(json, "$schema", "https://www.speedscope.app/file-format-schema.json");
	json_string(json, "exporter", "msmemscope");
	json_string(json, "name", view_program(view));
	json_u64(json, "activeProfileIndex", 0);
	json_array(json, "profiles");
	for (kind = 0; kind < PROFILE_KINDS; kind++) {
		for (from = 0; from < state->profile.count && r == 0; from = to) {
			to = next_pool(&state->profile, from);
			r = put_profile(view, (enum profile_kind)kind, from, to);
		}
	}
	json_end(json);
	json_object(json, "shared");
	strbuf_addf(&frames, "[%s]", strbuf_str(&state->list));
	json_raw(json, "frames", strbuf_str(&frames));
	json_end(json);
	json_end(json);
	strbuf_add_char(&view->files[0].text, '\n');
	if (strbuf_failed(&frames) || strbuf_failed(&state->list))
		r = -ENOMEM;
	strbuf_fini(&frames);
	return r;
}

static void speedscope_fini(struct view *view)
{
	struct speedscope *state = view->state;

	profile_fini(&state->profile);
	interned_fini(&state->frames);
	strbuf_fini(&state->frame);
	strbuf_fini(&state->list);
}

const struct view_form view_speedscope = {
	.suffixes = {".speedscope.json"},
	.state_bytes = sizeof(struct speedscope),
	.row = speedscope_row,
	.end = speedscope_end,
	.fini = speedscope_fini,
};
