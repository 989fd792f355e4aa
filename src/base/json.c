/* SPDX-License-Identifier: Apache-2.0 */
#include "base/json.h"

#include <assert.h>
#include <stdio.h>

#include "base/utf8.h"

static char *put_code(char *to, uint32_t code)
{
	static const char digits[] = "0123456789abcdef";

	memcpy(to, "\\u", 2);
	to[2] = digits[code >> 12 & 15];
	to[3] = digits[code >> 8 & 15];
	to[4] = digits[code >> 4 & 15];
	to[5] = digits[code & 15];
	return to + JSON_ESCAPED_MAX;
}

char *json_put_quoted(char *to, const char *text)
{
	const unsigned char *at = (const unsigned char *)text;
	size_t left = strlen(text);

	*to++ = '"';
	while (left > 0) {
		size_t length = utf8_length(at, left);

		if (length == 0) {
			to = put_code(to, 0xfffd);
			length = 1;
		} else if (*at == '"' || *at == '\\') {
			*to++ = '\\';
			*to++ = (char)*at;
		} else if (utf8_is_control(at, length)) {
			to = put_code(to, utf8_code(at, length));
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
