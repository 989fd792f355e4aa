/* SPDX-License-Identifier: Apache-2.0 */
#include "advise/editor.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

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
	*editor = (struct editor){0};
}

void editor_reset(struct editor *editor)
{
	size_t bytes = editor->record->moment_count * sizeof(int64_t);

	memcpy(editor->change, editor->recorded, bytes);
	memset(editor->passing, 0, bytes);
	memset(editor->surge, 0, bytes);
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
}

void editor_resize(struct editor *editor, uint32_t block, uint64_t bytes)
{
	const struct advise_block *one = &editor->record->blocks[block];
	int64_t more = (int64_t)bytes - (int64_t)one->bytes;

	editor_add(editor, one->born, more);
	editor_add(editor, one->died, -more);
}

void editor_span(struct editor *editor, size_t from, size_t until, uint64_t bytes)
{
	editor_add(editor, from, (int64_t)bytes);
	editor_add(editor, until, -(int64_t)bytes);
}

void editor_pass(struct editor *editor, size_t at, int64_t bytes)
{
	editor->passing[at] += bytes;
	if (editor->passing[at] > editor->surge[at])
		editor->surge[at] = editor->passing[at];
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
