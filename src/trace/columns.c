/* SPDX-License-Identifier: Apache-2.0 */
#include "trace/columns.h"

#include <stdlib.h>
#include <string.h>

#include "trace/layout.h"
#include "trace/record.h"

enum { COUNT, SHAPES, TYPES, CONTEXTS, TIMES, WORD1, WORD2, LENGTHS };

#define SHAPE_VARIABLE 0x80u
#define SHAPES_MAX     512u

size_t columns_room(size_t raw_bytes)
{
	/* Word 0 grows from 8 to at most 1 + 4 + 5 bytes, in records of at least 8. */
	return raw_bytes + raw_bytes / 4 + LENGTHS * sizeof(uint32_t) + SHAPES_MAX + 64;
}

static uint8_t *put_varint(uint8_t *to, uint64_t value)
{
	while (value >= 0x80) {
		*to++ = (uint8_t)(value | 0x80);
		value >>= 7;
	}
	*to++ = (uint8_t)value;
	return to;
}

/* Reads a varint of at most five bytes; NULL at the end of the column. */
static const uint8_t *get_varint(const uint8_t *from, const uint8_t *end, uint64_t *out)
{
	uint64_t value = 0;
	unsigned int shift;

	if (MSCOPE_LIKELY(from < end && !(*from & 0x80))) {
		*out = *from;
		return from + 1;
	}
	for (shift = 0; shift < 35 && from < end; shift += 7) {
		uint8_t byte = *from++;

		value |= (uint64_t)(byte & 0x7f) << shift;
		if (!(byte & 0x80)) {
			*out = value;
			return from;
		}
	}
	return NULL;
}

/* Which columns the words behind word 0 go to: none, 2 or 3, or 0 for the last one. */
static uint32_t plain_words(const struct layout *layout)
{
	return !layout->variable && layout->words <= 3 ? layout->words : 0;
}

size_t columns_split(const void *records, size_t raw_bytes, uint8_t *out)
{
	const uint8_t *from = records;
	uint32_t lengths[LENGTHS] = {0}, previous = 0;
	uint8_t *column[LENGTHS + 1], *buffer, *to = out + sizeof(lengths);
	size_t at, bytes, result = 0, room = raw_bytes + SHAPES_MAX;
	bool seen[256] = {false};
	int i;

	/* Each column has its own scratch; contexts and times together are never longer than the records. */
	buffer = malloc(room * (LENGTHS + 1));
	if (buffer == NULL)
		return 0;
	for (i = 0; i <= LENGTHS; i++)
		column[i] = buffer + room * (size_t)i;
	for (at = 0; at < raw_bytes; at += bytes) {
		const struct layout *layout;
		uint64_t word0;
		uint32_t words;
		int64_t step;

		bytes = layout_record_bytes(layout_own_table(), from + at, raw_bytes - at);
		if (bytes == 0)
			goto out;
		memcpy(&word0, from + at, 8);
		layout = layout_own(record_type(word0));
		if (!seen[record_type(word0)]) {
			seen[record_type(word0)] = true;
			*column[SHAPES]++ = (uint8_t)record_type(word0);
			*column[SHAPES]++ =
				(uint8_t)(layout->words | (layout->variable ? SHAPE_VARIABLE : 0));
		}
		words = plain_words(layout);
		*column[TYPES]++ = (uint8_t)record_type(word0);
		column[CONTEXTS] = put_varint(column[CONTEXTS], record_context(word0));
		step = (int64_t)record_delta(word0) - (int64_t)previous;
		previous = record_delta(word0);
		column[TIMES] =
			put_varint(column[TIMES], (uint64_t)step << 1 ^ (uint64_t)(step >> 63));
		if (words >= 2) {
			memcpy(column[WORD1], from + at + 8, 8);
			column[WORD1] += 8;
			if (words == 3) {
				memcpy(column[WORD2], from + at + 16, 8);
				column[WORD2] += 8;
			}
		} else {
			memcpy(column[LENGTHS], from + at + 8, bytes - 8);
			column[LENGTHS] += bytes - 8;
		}
		lengths[COUNT]++;
	}
	for (i = SHAPES; i <= LENGTHS; i++) {
		size_t length = (size_t)(column[i] - (buffer + room * (size_t)i));

		memcpy(to, buffer + room * (size_t)i, length);
		to += length;
		if (i < LENGTHS)
			lengths[i] = (uint32_t)length;
	}
	memcpy(out, lengths, sizeof(lengths));
	result = (size_t)(to - out);
out:
	free(buffer);
	return result;
}

static bool read_shapes(const uint8_t *at, const uint8_t *end, struct layout shapes[256])
{
	if ((end - at) % 2 != 0)
		return false;
	for (; at < end; at += 2) {
		uint8_t words = at[1] & (SHAPE_VARIABLE - 1);
		bool variable = (at[1] & SHAPE_VARIABLE) != 0;

		if (words < (variable ? 2 : 1))
			return false;
		shapes[at[0]] = (struct layout){.words = words, .variable = variable};
	}
	return true;
}

bool columns_join(const uint8_t *columns, size_t bytes, void *out, size_t raw_bytes)
{
	const uint8_t *column[LENGTHS + 1], *end[LENGTHS + 1];
	struct layout shapes[256] = {{0}};
	uint32_t lengths[LENGTHS], previous = 0, n;
	uint8_t *to = out;
	size_t at = sizeof(lengths), left = raw_bytes;
	int i;

	if (bytes < sizeof(lengths))
		return false;
	memcpy(lengths, columns, sizeof(lengths));
	for (i = SHAPES; i <= LENGTHS; i++) {
		size_t length = i < LENGTHS ? lengths[i] : bytes - at;

		if (length > bytes - at)
			return false;
		column[i] = columns + at;
		at += length;
		end[i] = columns + at;
	}
	if (!read_shapes(column[SHAPES], end[SHAPES], shapes))
		return false;
	for (n = 0; n < lengths[COUNT]; n++) {
		const struct layout *shape;
		uint64_t context, step, word0;
		uint32_t words, take;

		if (column[TYPES] == end[TYPES] || left < 8)
			return false;
		column[CONTEXTS] = get_varint(column[CONTEXTS], end[CONTEXTS], &context);
		if (column[CONTEXTS] == NULL || context > CONTEXT_MAX)
			return false;
		column[TIMES] = get_varint(column[TIMES], end[TIMES], &step);
		if (column[TIMES] == NULL)
			return false;
		previous += (uint32_t)(step >> 1 ^ -(step & 1));
		word0 = record_word0(*column[TYPES]++, (uint32_t)context, previous);
		memcpy(to, &word0, 8);
		shape = &shapes[record_type(word0)];
		words = plain_words(shape);
		for (take = 1; take < words; take++) {
			int from = take == 1 ? WORD1 : WORD2;

			if (end[from] - column[from] < 8 || left < (take + 1) * 8)
				return false;
			memcpy(to + take * 8, column[from], 8);
			column[from] += 8;
		}
		take = words * 8;
		if (words == 0) {
			size_t rest;

			take = shape->words * 8u;
			if (shape->variable && end[LENGTHS] - column[LENGTHS] >= 4)
				memcpy(&take, column[LENGTHS], 4);
			rest = (size_t)(end[LENGTHS] - column[LENGTHS]);
			if (take < 16 || take % 8 != 0 || take > left || take - 8 > rest)
				return false;
			memcpy(to + 8, column[LENGTHS], take - 8);
			column[LENGTHS] += take - 8;
		}
		to += take;
		left -= take;
	}
	return left == 0;
}
