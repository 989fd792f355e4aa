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
	map_fini(&lines->index);
	map_fini(&lines->by_hash);
	*lines = (struct frame_lines){0};
}

static struct map_key text_key(const char *text)
{
	return (struct map_key){hash_text(text), strlen(text)};
}

/* Offset of a text, new or known; 0 for none, and when there is no memory. */
static uint32_t intern(struct frame_lines *lines, const char *text)
{
	const uint64_t *known;
	size_t at;

	if (text == NULL || text[0] == '\0')
		return 0;
	known = map_get(&lines->by_hash, text_key(text));
	if (known != NULL && strcmp(lines->texts.data + *known, text) == 0)
		return (uint32_t)*known;
	if (lines->texts.length == 0)
		strbuf_add_char(&lines->texts, '\0');
	at = lines->texts.length;
	if (at + strlen(text) + 1 > LINES_TEXT_BYTES_MAX)
		return 0;
	strbuf_add(&lines->texts, text, strlen(text) + 1);
	if (strbuf_failed(&lines->texts) || map_put(&lines->by_hash, text_key(text), at) < 0)
		return 0;
	return (uint32_t)at;
}

#define CUT 0x80u /* in lines->index */

_Static_assert(LINES_FRAMES_MAX < CUT, "a count and the bit share a byte");

static int put(struct frame_lines *lines, struct map_key frame, size_t first, size_t count)
{
	return map_put(&lines->index, frame, (uint64_t)first << 8 | count);
}

int frame_lines_add(struct frame_lines *lines, struct map_key frame,
		    const struct lines_frame *frames, size_t count, bool cut)
{
	size_t i, first = lines->count;

	if (count > LINES_FRAMES_MAX)
		count = LINES_FRAMES_MAX;
	if (array_reserve(&lines->all, &lines->room, first + count, sizeof(*lines->all)) < 0)
		return -ENOMEM;
	for (i = 0; i < count; i++)
		lines->all[first + i] =
			(struct frame_line){.function = intern(lines, frames[i].function),
					    .file = intern(lines, frames[i].file),
					    .line = frames[i].line};
	if (put(lines, frame, first, count | (cut ? CUT : 0)) < 0)
		return -ENOMEM;
	lines->count += count;
	return 0;
}

struct frame_line *frame_lines_get(const struct frame_lines *lines, struct map_key frame,
				   size_t *out_count)
{
	const uint64_t *known = map_get(&lines->index, frame);

	*out_count = known == NULL ? 0 : *known & (CUT - 1);
	return *out_count == 0 ? NULL : &lines->all[*known >> 8];
}

bool frame_lines_has(const struct frame_lines *lines, struct map_key frame)
{
	return map_get(&lines->index, frame) != NULL;
}

bool frame_lines_is_whole(const struct frame_lines *lines, struct map_key frame)
{
	const uint64_t *known = map_get(&lines->index, frame);

	return known != NULL && !(*known & CUT);
}

const char *frame_lines_text(const struct frame_lines *lines, uint32_t offset)
{
	return offset == 0 ? NULL : lines->texts.data + offset;
}

void frame_lines_save(const struct frame_lines *lines, struct map_key frame, struct strbuf *out)
{
	size_t count, i;
	const struct frame_line *line = frame_lines_get(lines, frame, &count);

	for (i = 0; i < count; i++) {
		struct saved_line saved = {
			.function = line[i].function, .file = line[i].file, .line = line[i].line};

		strbuf_add(out, &saved, sizeof(saved));
	}
}

void frame_lines_load(struct frame_lines *lines, struct map_key frame, const char *data,
		      size_t bytes)
{
	size_t i, count = bytes / sizeof(struct saved_line), first = lines->count;

	if (bytes % sizeof(struct saved_line) != 0 || count > LINES_FRAMES_MAX ||
	    frame_lines_has(lines, frame) ||
	    array_reserve(&lines->all, &lines->room, first + count, sizeof(*lines->all)) < 0)
		return;
	for (i = 0; i < count; i++) {
		struct saved_line saved;

		memcpy(&saved, data + i * sizeof(saved), sizeof(saved));
		lines->all[first + i] = (struct frame_line){
			.function = saved.function < lines->texts.length ? saved.function : 0,
			.file = saved.file < lines->texts.length ? saved.file : 0,
			.line = saved.line};
	}
	if (put(lines, frame, first, count) == 0)
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
		(void)map_put(&lines->by_hash, text_key(text), at);
	}
}
