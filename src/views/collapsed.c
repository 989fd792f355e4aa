/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Collapsed stacks, as flamegraph.pl, inferno and speedscope read them: a line for each place, its frames from the outermost on with
 * semicolons between, a blank, and its bytes. A file for each kind of profile. The first frame is the pool, because memory of a
 * framework's pool lies in memory of the driver: the two are not to be added.
 */
#include "base/shown.h"
#include "views/profile.h"

/* A semicolon would end the frame, a line break the stack. */
static void add_frame(struct strbuf *out, const char *text, size_t bytes)
{
	size_t from = out->length, i;

	strbuf_add_shown(out, text, bytes);
	for (i = from; i < out->length && !strbuf_failed(out); i++) {
		if (out->data[i] == ';')
			out->data[i] = ',';
	}
}

static void add_line_frame(struct strbuf *out, struct strbuf *scratch,
			   const struct stack_line *line)
{
	strbuf_reset(scratch);
	view_frame_name(line, scratch);
	if (line->file != NULL && line->line != 0)
		strbuf_addf(scratch, " (%s:%u)", line->file, line->line);
	else if (line->module != NULL && line->function != NULL)
		strbuf_addf(scratch, " (%s)", line->module);
	strbuf_add_char(out, ';');
	add_frame(out, strbuf_str(scratch), scratch->length);
	if (strbuf_failed(scratch))
		out->failed = true;
}

static int collapsed_row(struct view *view, const struct row *row)
{
	return profile_row(view->state, row);
}

static int collapsed_end(struct view *view)
{
	struct profile *profile = view->state;
	struct strbuf stack = {0}, scratch = {0};
	int r = profile_end(profile, view);
	size_t i, kind;

	for (i = 0; i < profile->count && r == 0; i++) {
		const struct profile_place *place = &profile->places[i];
		uint32_t count, k;
		const struct stack_line *lines = view_lines(view, place->site, &count);

		strbuf_reset(&stack);
		view_pool_name(place->pool, place->device, &stack);
		if (count == 0)
			strbuf_add_str(&stack, ";" PROFILE_NO_STACK);
		for (k = count; k > 0; k--)
			add_line_frame(&stack, &scratch, &lines[k - 1]);
		if (strbuf_failed(&stack))
			view->files[0].text.failed = true;
		for (kind = 0; kind < PROFILE_KINDS && r == 0; kind++) {
			struct view_file *file = &view->files[kind];

			if (place->bytes[kind] == 0)
				continue;
			strbuf_add(&file->text, strbuf_str(&stack), stack.length);
			strbuf_add_char(&file->text, ' ');
			strbuf_add_u64(&file->text, place->bytes[kind]);
			strbuf_add_char(&file->text, '\n');
			r = view_flush(file);
		}
	}
	strbuf_fini(&stack);
	strbuf_fini(&scratch);
	return r;
}

static void collapsed_fini(struct view *view)
{
	profile_fini(view->state);
}

_Static_assert(PROFILE_KINDS <= VIEW_FILES_MAX, "each kind has a file");

const struct view_form view_collapsed = {
#define PROFILE(symbol, word, meaning) [PROFILE_##symbol] = "." word ".folded",
	.suffixes = {PROFILES(PROFILE)},
#undef PROFILE
	.state_bytes = sizeof(struct profile),
	.row = collapsed_row,
	.end = collapsed_end,
	.fini = collapsed_fini,
};
