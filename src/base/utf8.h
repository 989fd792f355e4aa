/* SPDX-License-Identifier: Apache-2.0 */
/*
 * UTF-8 in texts that come from elsewhere: paths, names of functions and threads, marks. Header-only, for the injected library too.
 */
#ifndef MSCOPE_BASE_UTF8_H
#define MSCOPE_BASE_UTF8_H

#include <stdbool.h>

#include "base/compiler.h"

/* Length of the UTF-8 sequence at `at`, 0 when it is none: too short, overlong, a surrogate or beyond Unicode. */
static inline size_t utf8_length(const unsigned char *at, size_t left)
{
	static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
	size_t length, i;
	uint32_t code;

	if (at[0] < 0x80)
		return 1;
	if (at[0] >= 0xc2 && at[0] <= 0xdf)
		length = 2, code = at[0] & 0x1f;
	else if ((at[0] & 0xf0) == 0xe0)
		length = 3, code = at[0] & 0x0f;
	else if (at[0] >= 0xf0 && at[0] <= 0xf4)
		length = 4, code = at[0] & 0x07;
	else
		return 0;
	if (length > left)
		return 0;
	for (i = 1; i < length; i++) {
		if ((at[i] & 0xc0) != 0x80)
			return 0;
		code = code << 6 | (at[i] & 0x3f);
	}
	if (code < least[length] || code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff))
		return 0;
	return length;
}

static inline bool utf8_is_valid(const void *text, size_t bytes)
{
	const unsigned char *at = text, *end = at + bytes;
	size_t length = 1;

	for (; at < end && length > 0; at += length)
		length = utf8_length(at, (size_t)(end - at));
	return length > 0;
}

/* The character of a sequence that utf8_length() found, if it is one of three bytes at most. */
static inline uint32_t utf8_code(const unsigned char *at, size_t length)
{
	return length == 1   ? at[0]
	       : length == 2 ? (at[0] & 0x1fu) << 6 | (at[1] & 0x3fu)
			     : (at[0] & 0x0fu) << 12 | (at[1] & 0x3fu) << 6 | (at[2] & 0x3fu);
}

/*
 * Whether a terminal or an editor would do something else with it than show it: control characters, line and paragraph separators,
 * and characters that change the direction of the text around them.
 */
static inline bool utf8_is_control(const unsigned char *at, size_t length)
{
	uint32_t code;

	if (length == 1)
		return at[0] < 0x20 || at[0] == 0x7f;
	if (length > 3)
		return false;
	code = utf8_code(at, length);
	return code < 0xa0 || code == 0x61c || code == 0x200e || code == 0x200f ||
	       (code >= 0x2028 && code <= 0x202e) || (code >= 0x2066 && code <= 0x2069);
}

#endif
