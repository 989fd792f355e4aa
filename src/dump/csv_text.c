/* SPDX-License-Identifier: Apache-2.0 */
#include "dump/csv_text.h"

#include <string.h>

char *csv_put_doubled(char *to, const char *text, size_t length)
{
	const char *end = text + length;

	while (text < end) {
		const char *quote = memchr(text, '"', (size_t)(end - text));
		size_t plain = (size_t)((quote == NULL ? end : quote + 1) - text);

		memcpy(to, text, plain);
		to += plain;
		if (quote != NULL)
			*to++ = '"';
		text += plain;
	}
	return to;
}

char *csv_put_quoted(char *to, const char *text, size_t length)
{
	*to++ = '"';
	to = csv_put_doubled(to, text, length);
	*to++ = '"';
	return to;
}

static bool must_be_quoted(const char *text, size_t length)
{
	static const bool special[256] = {[','] = true, ['"'] = true, ['\r'] = true, ['\n'] = true};
	size_t i;

	for (i = 0; i < length; i++) {
		if (special[(unsigned char)text[i]])
			return true;
	}
	return false;
}

char *csv_put_text(char *to, const char *text, size_t length)
{
	if (must_be_quoted(text, length))
		return csv_put_quoted(to, text, length);
	memcpy(to, text, length);
	return to + length;
}

void csv_add_text(struct strbuf *sb, const char *text, size_t length)
{
	char *to = strbuf_room(sb, 2 * length + 2);

	if (to != NULL)
		strbuf_end(sb, csv_put_text(to, text, length));
}
