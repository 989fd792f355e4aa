/* SPDX-License-Identifier: Apache-2.0 */
#include "advise/editor.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"

int editor_init(struct editor *editor, const struct advise_record *record, uint32_t pool)
{
	size_t count = record->moment_count;

	*editor = (struct editor){.record = record,
				  .pool = pool,
				  .recorded = calloc(count, sizeof(int64_t)),
				  .change = calloc(count, sizeof(int64_t)),
				  .passing = calloc(count, sizeof(int64_t)),
				  .surge = calloc(count, sizeof(int64_t))};
	if (editor->recorded == NULL || editor->change == NULL || editor->passing == NULL ||
	    editor->surge == NULL) {
		editor_fini(editor);
		return -ENOMEM;
	}
	for (size_t i = 0; i < count; i++) {
		const struct advise_moment *moment = &record->moments[i];
		const struct advise_block *block =
			moment->block == ADVISE_NONE ? NULL : &record->blocks[moment->block];

		if (block != NULL && block->pool == pool)
			editor->recorded[i] =
				moment->comes ? (int64_t)block->bytes : -(int64_t)block->bytes;
	}
	editor_reset(editor);
	return 0;
}

void editor_fini(struct editor *editor)
{
	free(editor->recorded);
	free(editor->change);
	free(editor->passing);
	free(editor->surge);
	free(editor->edits);
	*editor = (struct editor){0};
}

void editor_reset(struct editor *editor)
{
	size_t bytes = editor->record->moment_count * sizeof(int64_t);

	memcpy(editor->change, editor->recorded, bytes);
	memset(editor->passing, 0, bytes);
	memset(editor->surge, 0, bytes);
	editor->edit_count = 0;
	editor->copies = 0;
	editor->unlisted = false;
}

static void list(struct editor *editor, struct edit edit)
{
	if (!editor->lists)
		return;
	if (ARRAY_RESERVE(editor->edits, editor->edit_room, editor->edit_count + 1) != 0)
		editor->unlisted = true;
	else
		editor->edits[editor->edit_count++] = edit;
}

void editor_add(struct editor *editor, size_t at, int64_t bytes)
{
	if (at < editor->record->moment_count)
		editor->change[at] += bytes;
}

void editor_free_at(struct editor *editor, uint32_t block, size_t at)
{
	const struct advise_block *one = &editor->record->blocks[block];

	editor_add(editor, one->died, (int64_t)one->bytes);
	editor_add(editor, at, -(int64_t)one->bytes);
	list(editor, (struct edit){.at = at, .block = block, .kind = EDIT_MOVED});
}

void editor_resize(struct editor *editor, uint32_t block, uint64_t bytes)
{
	const struct advise_block *one = &editor->record->blocks[block];
	int64_t more = (int64_t)bytes - (int64_t)one->bytes;

	editor_add(editor, one->born, more);
	editor_add(editor, one->died, -more);
	list(editor,
	     (struct edit){.at = one->born, .bytes = bytes, .block = block, .kind = EDIT_RESIZED});
}

void editor_absent(struct editor *editor, uint32_t block, size_t from, size_t until)
{
	const struct advise_block *one = &editor->record->blocks[block];

	editor_add(editor, from, -(int64_t)one->bytes);
	editor_add(editor, until, (int64_t)one->bytes);
	list(editor, (struct edit){.at = from, .block = block, .kind = EDIT_GOES});
	if (until != one->died)
		list(editor,
		     (struct edit){
			     .at = until, .bytes = one->bytes, .block = block, .kind = EDIT_COMES});
}

void editor_span(struct editor *editor, uint32_t like, size_t from, size_t until, uint64_t bytes)
{
	struct edit edit = {.at = from,
			    .bytes = bytes,
			    .copy = ++editor->copies,
			    .block = like,
			    .kind = EDIT_COMES};

	editor_add(editor, from, (int64_t)bytes);
	editor_add(editor, until, -(int64_t)bytes);
	list(editor, edit);
	edit.at = until;
	edit.kind = EDIT_GOES;
	list(editor, edit);
}

void editor_passes(struct editor *editor, size_t at, int64_t bytes)
{
	editor->passing[at] += bytes;
	if (editor->passing[at] > editor->surge[at])
		editor->surge[at] = editor->passing[at];
}

void editor_comes_again(struct editor *editor, uint32_t block, uint64_t copy, size_t at)
{
	uint64_t bytes = editor->record->blocks[block].bytes;

	editor_passes(editor, at, (int64_t)bytes);
	list(editor, (struct edit){.at = at,
				   .bytes = bytes,
				   .copy = copy,
				   .block = block,
				   .kind = EDIT_COMES,
				   .after = true});
}

void editor_goes_again(struct editor *editor, uint32_t block, uint64_t copy, size_t at)
{
	editor_passes(editor, at, -(int64_t)editor->record->blocks[block].bytes);
	list(editor,
	     (struct edit){
		     .at = at, .copy = copy, .block = block, .kind = EDIT_GOES, .after = true});
}

void editor_ends_again(struct editor *editor, uint32_t block, uint64_t copy, size_t at)
{
	editor_add(editor, at, -(int64_t)editor->record->blocks[block].bytes);
	list(editor, (struct edit){.at = at, .copy = copy, .block = block, .kind = EDIT_GOES});
}

uint64_t editor_peak(const struct editor *editor, size_t *out_at)
{
	int64_t live = 0, peak = 0;

	*out_at = 0;
	for (size_t i = 0; i < editor->record->moment_count; i++) {
		live += editor->change[i];
		if (live + editor->surge[i] > peak) {
			peak = live + editor->surge[i];
			*out_at = i;
		}
		live += editor->passing[i];
	}
	return (uint64_t)peak;
}

void editor_curve(const struct editor *editor, const struct editor_span *span, uint64_t *out)
{
	const struct advise_record *record = editor->record;
	uint64_t length = span->to_ns - span->from_ns;
	int64_t live = 0;
	size_t next = 0;

	for (uint32_t i = 0; i < span->width; i++) {
		uint64_t end =
			span->from_ns + (uint64_t)((__uint128_t)length * (i + 1) / span->width);
		int64_t most = live;

		for (; next < record->moment_count &&
		       (record->moments[next].time_ns < end || i + 1 == span->width);
		     next++) {
			live += editor->change[next];
			if (live + editor->surge[next] > most)
				most = live + editor->surge[next];
			live += editor->passing[next];
		}
		out[i] = most < 0 ? 0 : (uint64_t)most;
	}
}
