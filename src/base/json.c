/* SPDX-License-Identifier: Apache-2.0 */
#include "base/json.h"

#include <assert.h>
#include <stdio.h>

/* Length of the UTF-8 sequence at `at`, 0 when it is none: too short, overlong, a surrogate or beyond Unicode. */
static size_t utf8_length(const unsigned char *at, size_t left)
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

char *json_put_quoted(char *to, const char *text)
{
	const unsigned char *at = (const unsigned char *)text;
	size_t left = strlen(text);

	*to++ = '"';
	while (left > 0) {
		size_t length = utf8_length(at, left);

		if (length == 0) {
			memcpy(to, "\\ufffd", JSON_ESCAPED_MAX);
			to += JSON_ESCAPED_MAX;
			length = 1;
		} else if (*at == '"' || *at == '\\') {
			*to++ = '\\';
			*to++ = (char)*at;
		} else if (*at < 0x20 || *at == 0x7f) {
			memcpy(to, "\\u00", 4);
			to[4] = "0123456789abcdef"[*at >> 4];
			to[5] = "0123456789abcdef"[*at & 15];
			to += JSON_ESCAPED_MAX;
		} else {
			memcpy(to, at, length);
			to += length;
		}
		at += length;
		left -= length;
	}
	*to++ = '"';
	return to;
}

void json_quote(struct strbuf *out, const char *text)
{
	char *to = strbuf_room(out, JSON_ESCAPED_MAX * strlen(text) + 2);

	if (to != NULL)
		strbuf_end(out, json_put_quoted(to, text));
}

void json_begin(struct json *json, struct strbuf *out)
{
	*json = (struct json){.out = out};
}

static void new_line(struct json *json)
{
	if (json->indent > 0)
		strbuf_addf(json->out, "\n%*s", (int)(json->indent * json->depth), "");
}

static void prefix(struct json *json, const char *key)
{
	if (json->some[json->depth])
		strbuf_add_char(json->out, ',');
	json->some[json->depth] = true;
	if (json->depth > 0)
		new_line(json);
	if (key != NULL) {
		json_quote(json->out, key);
		strbuf_add_str(json->out, json->indent > 0 ? ": " : ":");
	}
}

static void open_level(struct json *json, const char *key, char opener, char closer)
{
	assert(json->depth + 1 < JSON_DEPTH_MAX);
	prefix(json, key);
	strbuf_add_char(json->out, opener);
	json->closer[json->depth++] = closer;
	json->some[json->depth] = false;
}

void json_object(struct json *json, const char *key)
{
	open_level(json, key, '{', '}');
}

void json_array(struct json *json, const char *key)
{
	open_level(json, key, '[', ']');
}

void json_end(struct json *json)
{
	bool some = json->some[json->depth];

	assert(json->depth > 0);
	json->depth--;
	if (some)
		new_line(json);
	strbuf_add_char(json->out, json->closer[json->depth]);
}

void json_u64(struct json *json, const char *key, uint64_t value)
{
	prefix(json, key);
	strbuf_add_u64(json->out, value);
}

void json_i64(struct json *json, const char *key, int64_t value)
{
	prefix(json, key);
	strbuf_add_i64(json->out, value);
}

void json_bool(struct json *json, const char *key, bool value)
{
	prefix(json, key);
	strbuf_add_str(json->out, value ? "true" : "false");
}

void json_string(struct json *json, const char *key, const char *text)
{
	prefix(json, key);
	json_quote(json->out, text);
}

void json_raw(struct json *json, const char *key, const char *value)
{
	prefix(json, key);
	strbuf_add_str(json->out, value);
}

void json_null(struct json *json, const char *key)
{
	json_raw(json, key, "null");
}

void json_f64(struct json *json, const char *key, double value, int decimals)
{
	char text[64];
	size_t length;

	if (!(value > -1e30 && value < 1e30)) {
		json_null(json, key);
		return;
	}
	length = (size_t)snprintf(text, sizeof(text), "%.*f", decimals, value);
	while (decimals > 0 && length > 1 && text[length - 1] == '0')
		length--;
	if (decimals > 0 && length > 1 && text[length - 1] == '.')
		length--;
	text[length] = '\0';
	json_raw(json, key, strcmp(text, "-0") == 0 ? "0" : text);
}
