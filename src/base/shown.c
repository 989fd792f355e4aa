/* SPDX-License-Identifier: Apache-2.0 */
#include "base/shown.h"

#include <stdbool.h>

#include "base/utf8.h"

enum what {
	VALID, /* only bytes that are no UTF-8 are replaced */
	SHOWN, /* and control characters are spelled */
	LINES, /* but line feeds and tabs */
};

static bool is_spelled(enum what what, const unsigned char *at, size_t length)
{
	if (what == VALID || !utf8_is_control(at, length))
		return false;
	return what == SHOWN || (*at != '\n' && *at != '\t');
}

static void add(struct strbuf *sb, const char *text, size_t bytes, enum what what)
{
	const unsigned char *at = (const unsigned char *)text, *end = at + bytes, *plain = at;

	while (at < end) {
		size_t length = utf8_length(at, (size_t)(end - at));
		bool spelled = length > 0 && is_spelled(what, at, length);

		if (length > 0 && !spelled) {
			at += length;
			continue;
		}
		strbuf_add(sb, plain, (size_t)(at - plain));
		if (length == 0)
			strbuf_add_str(sb, "\xef\xbf\xbd");
		else
			strbuf_addf(sb, length == 1 ? "\\x%02x" : "\\u%04x", utf8_code(at, length));
		at += length == 0 ? 1 : length;
		plain = at;
	}
	if (at > plain)
		strbuf_add(sb, plain, (size_t)(at - plain));
}

void strbuf_add_valid(struct strbuf *sb, const char *text, size_t bytes)
{
	add(sb, text, bytes, VALID);
}

void strbuf_add_shown(struct strbuf *sb, const char *text, size_t bytes)
{
	add(sb, text, bytes, SHOWN);
}

void strbuf_add_lines(struct strbuf *sb, const char *text, size_t bytes)
{
	add(sb, text, bytes, LINES);
}
