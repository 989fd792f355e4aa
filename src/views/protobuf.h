/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writing protocol buffers into a strbuf: numbers, texts, and messages in messages. The length of a message stands before it, in one
 * byte, or in four, which the encoding allows also where fewer would do:
 *
 *     size_t at = pb_begin(&sb, 60);  pb_u64(&sb, 1, uuid);  pb_end(&sb, at);
 *
 * A message is at most 256 MiB. Header-only, no state; any thread.
 */
#ifndef MSCOPE_VIEWS_PROTOBUF_H
#define MSCOPE_VIEWS_PROTOBUF_H

#include "base/shown.h"
#include "base/strbuf.h"

#define PB_LENGTH_BYTES 4u

static inline void pb_varint(struct strbuf *out, uint64_t value)
{
	uint8_t bytes[10];
	size_t count = 0;

	for (; value >= 0x80; value >>= 7)
		bytes[count++] = (uint8_t)(value | 0x80);
	bytes[count++] = (uint8_t)value;
	strbuf_add(out, bytes, count);
}

/* A number; one below zero is passed as (uint64_t)value. */
static inline void pb_u64(struct strbuf *out, uint32_t field, uint64_t value)
{
	pb_varint(out, (uint64_t)field << 3);
	pb_varint(out, value);
}

static inline size_t pb_begin(struct strbuf *out, uint32_t field)
{
	static const char room[PB_LENGTH_BYTES];

	pb_varint(out, (uint64_t)field << 3 | 2);
	strbuf_add(out, room, sizeof(room));
	return out->length;
}

static inline void pb_end(struct strbuf *out, size_t begin)
{
	size_t length, i;

	if (strbuf_failed(out))
		return;
	length = out->length - begin;
	/* Most messages are short, and there are millions. */
	if (length < 0x80) {
		out->data[begin - PB_LENGTH_BYTES] = (char)length;
		memmove(out->data + begin - PB_LENGTH_BYTES + 1, out->data + begin, length + 1);
		out->length -= PB_LENGTH_BYTES - 1;
		return;
	}
	for (i = 0; i < PB_LENGTH_BYTES; i++)
		out->data[begin - PB_LENGTH_BYTES + i] =
			(char)(length >> 7 * i & 0x7f) | (char)(i + 1 < PB_LENGTH_BYTES ? 0x80 : 0);
}

/* A text, with U+FFFD for what is no UTF-8: decoders refuse that. */
static inline void pb_text(struct strbuf *out, uint32_t field, const char *text)
{
	size_t at = pb_begin(out, field);

	strbuf_add_valid(out, text, strlen(text));
	pb_end(out, at);
}

#endif
