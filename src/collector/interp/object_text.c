/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Texts of the interpreter, which keeps them in characters of one, two or four bytes.
 */
#include "collector/interp/interpreter.h"

#include <errno.h>
#include <string.h>

#include "collector/memory.h"

static uint32_t put_character(char *out, uint32_t c)
{
	/* Half a pair: Python's way to keep a byte of a file name that is not UTF-8. */
	if (c >= 0xdc80 && c <= 0xdcff) {
		out[0] = (char)(c - 0xdc00);
		return 1;
	}
	if ((c >= 0xd800 && c <= 0xdfff) || c > 0x10ffff || c == 0)
		c = '?';
	if (c < 0x80) {
		out[0] = (char)c;
		return 1;
	}
	if (c < 0x800) {
		out[0] = (char)(0xc0 | c >> 6);
		out[1] = (char)(0x80 | (c & 0x3f));
		return 2;
	}
	if (c < 0x10000) {
		out[0] = (char)(0xe0 | c >> 12);
		out[1] = (char)(0x80 | (c >> 6 & 0x3f));
		out[2] = (char)(0x80 | (c & 0x3f));
		return 3;
	}
	out[0] = (char)(0xf0 | c >> 18);
	out[1] = (char)(0x80 | (c >> 12 & 0x3f));
	out[2] = (char)(0x80 | (c >> 6 & 0x3f));
	out[3] = (char)(0x80 | (c & 0x3f));
	return 4;
}

int interp_text(const void *text, char *out, uint32_t room)
{
	const struct interp_layout *at = &interp.at;
	uint32_t state, kind, used = 0;
	uint64_t length, i;
	const char *data;

	if (!memory_readable(text, at->text_compact) ||
	    interp_pointer(text, at->object_type) != interp.text_type)
		return -EINVAL;
	state = interp_text_state(text);
	kind = state & 7;
	length = interp_u64(text, at->text_length);
	if ((state & INTERP_TEXT_COMPACT) == 0 || (kind != 1 && kind != 2 && kind != 4))
		return -EINVAL;
	if (length > room)
		length = room; /* each character takes a byte at least */
	data = (const char *)text +
	       ((state & INTERP_TEXT_ASCII) != 0 ? at->text_ascii : at->text_compact);
	if (!memory_readable(data, length * kind))
		return -EINVAL;
	for (i = 0; i < length; i++) {
		uint32_t c, bytes;
		char utf8[4];

		if (kind == 1) {
			c = (uint8_t)data[i];
		} else if (kind == 2) {
			uint16_t wide;

			memcpy(&wide, data + i * 2, sizeof(wide));
			c = wide;
		} else {
			memcpy(&c, data + i * 4, sizeof(c));
		}
		bytes = put_character(utf8, c);
		if (used + bytes > room)
			break;
		memcpy(out + used, utf8, bytes);
		used += bytes;
	}
	return (int)used;
}
