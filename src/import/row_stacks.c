/* SPDX-License-Identifier: Apache-2.0 */
#include "import/row_stacks.h"

#include <ctype.h>
#include <errno.h>
#include <string.h>

#include "base/hash.h"

#define FRAMES_MAX 1000u /* of a stack; a record has room for them */
#define NAME_BYTES 4000u /* bytes of a file's or a function's name */

struct frame {
	const char *file, *name;
	size_t file_bytes, name_bytes;
	uint32_t line;
};

/* Bytes of a name that is at most so long, whole characters. */
static size_t cut(const char *text, size_t length)
{
	if (length <= NAME_BYTES)
		return length;
	for (length = NAME_BYTES; length > 0 && ((uint8_t)text[length] & 0xc0) == 0x80; length--)
		;
	return length;
}

/* Reads "(LINE): " that ends at `end`; returns where it begins, or NULL. */
static const char *line_before(const char *start, const char *end, uint32_t *out_line)
{
	uint64_t line = 0, place = 1;
	const char *at = end - 3;

	while (at > start && isdigit((unsigned char)at[-1]) && place <= 1000000000u) {
		at--;
		line += place * (uint64_t)(*at - '0');
		place *= 10;
	}
	if (place == 1 || at == start || at[-1] != '(' || line > UINT32_MAX)
		return NULL;
	*out_line = (uint32_t)line;
	return at - 1;
}

/* What is not in the form of a frame is the name of a function. */
static struct frame frame_parse(const char *text, size_t length)
{
	struct frame frame = {.file = text, .name = text, .name_bytes = length};
	const char *at, *file_end;
	uint32_t line;

	for (at = text + length; at > text + 3; at--) {
		if (memcmp(at - 3, "): ", 3) != 0)
			continue;
		file_end = line_before(text, at, &line);
		if (file_end == NULL)
			continue;
		frame.file_bytes = (size_t)(file_end - text);
		frame.line = line;
		frame.name = at;
		frame.name_bytes = length - (size_t)(at - text);
		break;
	}
	frame.file_bytes = cut(frame.file, frame.file_bytes);
	frame.name_bytes = cut(frame.name, frame.name_bytes);
	return frame;
}

/* The number of a frame, as a function that has this line alone. */
static int put_code(struct row_stacks *stacks, struct builder *builder, const char *text,
		    size_t length, uint64_t *out_id)
{
	struct map_key key = {
		hash_add(HASH_BEGIN, text, length),
		hash_add(hash_add(HASH_BEGIN, &length, sizeof(length)), text, length)};
	const uint64_t *known = map_get(&stacks->codes, key);
	struct frame frame;

	if (known != NULL) {
		*out_id = *known;
		return 0;
	}
	*out_id = stacks->codes.count + 1;
	if (map_put(&stacks->codes, key, *out_id) < 0)
		return -ENOMEM;
	frame = frame_parse(text, length);
	BUILDER_BEGIN(builder, code_def, 0, .id = (uint32_t)*out_id, .first_line = frame.line,
		      .minor = 11, .file_bytes = frame.file_bytes, .name_bytes = frame.name_bytes);
	builder_payload(builder, frame.file, frame.file_bytes);
	builder_payload(builder, frame.name, frame.name_bytes);
	builder_end(builder);
	return 0;
}

int row_stacks_put(struct row_stacks *stacks, struct builder *builder, uint32_t offset,
		   const char *text, uint32_t *out_id)
{
	const uint64_t *known = map_get(&stacks->stacks, (struct map_key){offset, 0});
	uint64_t words[FRAMES_MAX];
	uint32_t count = 0;
	int r = 0;

	if (known != NULL) {
		*out_id = (uint32_t)*known;
		return 0;
	}
	while (*text != '\0' && count < FRAMES_MAX && r == 0) {
		size_t length = strcspn(text, "\n");

		if (length > 0)
			r = put_code(stacks, builder, text, length, &words[count++]);
		text += length + (text[length] == '\n');
	}
	if (r < 0)
		return r;
	*out_id = (uint32_t)stacks->stacks.count + 1;
	if (map_put(&stacks->stacks, (struct map_key){offset, 0}, *out_id) < 0)
		return -ENOMEM;
	BUILDER_BEGIN(builder, stack_def, 0, .id = *out_id, .python_frames = count);
	builder_payload(builder, words, count * sizeof(*words));
	builder_end(builder);
	return 0;
}

void row_stacks_fini(struct row_stacks *stacks)
{
	map_fini(&stacks->codes);
	map_fini(&stacks->stacks);
}
