/* SPDX-License-Identifier: Apache-2.0 */
#include "replay/frame_lines.h"

#include <errno.h>
#include <stdlib.h>

#include "base/array.h"
#include "base/hash.h"

/* One line in a packed trace. Texts are offsets in the trace's own texts. */
struct saved_line {
	uint32_t function;
	uint32_t file;
	uint32_t line;
};

void frame_lines_fini(struct frame_lines *lines)
{
	free(lines->all);
	strbuf_fini(&lines->texts);
	index_fini(&lines->by_text);
	*lines = (struct frame_lines){0};
}

/* Offset of a text, new or known; 0 for none, and when there is no memory. */
static uint32_t intern(struct frame_lines *lines, const char *text)
{
	struct index_search search;
	uint64_t hash;
	uint32_t known;
	size_t at;

	if (text == NULL || text[0] == '\0')
		return 0;
	hash = hash_text(text);
	search = index_search(hash);
	while (index_next(&lines->by_text, &search, &known)) {
		if (strcmp(lines->texts.data + known, text) == 0)
			return known;
	}
	if (lines->texts.length == 0)
		strbuf_add_char(&lines->texts, '\0');
	at = lines->texts.length;
	if (at + strlen(text) + 1 > LINES_TEXT_BYTES_MAX)
		return 0;
	strbuf_add(&lines->texts, text, strlen(text) + 1);
	if (strbuf_failed(&lines->texts) || index_add(&lines->by_text, hash, at) < 0)
		return 0;
	return (uint32_t)at;
}

_Static_assert(LINES_FRAMES_MAX <= UINT8_MAX, "a frame counts its lines in a byte");

int frame_lines_add(struct frame_lines *lines, struct frame_range *range,
		    const struct lines_frame *frames, size_t count, bool cut)
{
	size_t i, first = lines->count;

	if (count > LINES_FRAMES_MAX)
		count = LINES_FRAMES_MAX;
	if (first + count >= UINT32_MAX ||
	    ARRAY_RESERVE(lines->all, lines->room, first + count) < 0)
		return -ENOMEM;
	for (i = 0; i < count; i++)
		lines->all[first + i] =
			(struct frame_line){.function = intern(lines, frames[i].function),
					    .file = intern(lines, frames[i].file),
					    .line = frames[i].line};
	*range = (struct frame_range){
		.first = (uint32_t)first, .count = (uint8_t)count, .known = true, .cut = cut};
	lines->count += count;
	return 0;
}

struct frame_line *frame_lines_get(const struct frame_lines *lines, const struct frame_range *range,
				   size_t *out_count)
{
	*out_count = range->count;
	return *out_count == 0 ? NULL : &lines->all[range->first];
}

const char *frame_lines_text(const struct frame_lines *lines, uint32_t offset)
{
	return offset == 0 ? NULL : lines->texts.data + offset;
}

void frame_lines_save(const struct frame_lines *lines, const struct frame_range *range,
		      struct strbuf *out)
{
	size_t count, i;
	const struct frame_line *line = frame_lines_get(lines, range, &count);

	for (i = 0; i < count; i++) {
		struct saved_line saved = {
			.function = line[i].function, .file = line[i].file, .line = line[i].line};

		strbuf_add(out, &saved, sizeof(saved));
	}
}

void frame_lines_load(struct frame_lines *lines, struct frame_range *range, const char *data,
		      size_t bytes)
{
	size_t i, count = bytes / sizeof(struct saved_line), first = lines->count;

	if (bytes % sizeof(struct saved_line) != 0 || count > LINES_FRAMES_MAX || range->known ||
	    first + count >= UINT32_MAX ||
	    ARRAY_RESERVE(lines->all, lines->room, first + count) < 0)
		return;
	for (i = 0; i < count; i++) {
		struct saved_line saved;

		memcpy(&saved, data + i * sizeof(saved), sizeof(saved));
		lines->all[first + i] = (struct frame_line){
			.function = saved.function < lines->texts.length ? saved.function : 0,
			.file = saved.file < lines->texts.length ? saved.file : 0,
			.line = saved.line};
	}
	*range = (struct frame_range){
		.first = (uint32_t)first, .count = (uint8_t)count, .known = true};
	lines->count += count;
}

void frame_lines_load_texts(struct frame_lines *lines, const char *data, size_t bytes)
{
	size_t at, next;

	/* They come once; offsets in them begin behind an empty text. */
	if (lines->texts.length > 0 || bytes < 2 || bytes > LINES_TEXT_BYTES_MAX ||
	    data[0] != '\0' || data[bytes - 1] != '\0')
		return;
	strbuf_add(&lines->texts, data, bytes);
	if (strbuf_failed(&lines->texts))
		return;
	for (at = 0; at < bytes; at++) {
		unsigned char c = (unsigned char)lines->texts.data[at];

		/* A terminal would take them as commands. */
		if ((c < 0x20 && c != '\0') || c == 0x7f)
			lines->texts.data[at] = '?';
	}
	for (at = 1; at < bytes; at = next) {
		const char *text = lines->texts.data + at;

		next = at + strlen(text) + 1;
		(void)index_add(&lines->by_text, hash_text(text), at);
	}
}
