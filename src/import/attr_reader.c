/* SPDX-License-Identifier: Apache-2.0 */
#include "import/attr_reader.h"

/* No key is longer; looking further for its colon would make a long list of commas expensive. */
#define KEY_MAX 24

/* Values are added to a buffer that moves; their offsets stand in for pointers until all are there. */
struct offsets {
	size_t at[ATTR_KEY_COUNT];
	bool there[ATTR_KEY_COUNT];
};

static int find_key(const char *name, size_t length)
{
	int key;

	for (key = 0; key < ATTR_KEY_COUNT; key++) {
		if (attr_keys[key][0] == *name && strncmp(attr_keys[key], name, length) == 0 &&
		    attr_keys[key][length] == '\0')
			return key;
	}
	return -1;
}

/* Begins the value of a key; one that stands twice keeps its last value. */
static void put_key(struct attr_values *attr, struct offsets *offsets, int key)
{
	if (key < 0)
		return;
	offsets->at[key] = attr->text.length;
	offsets->there[key] = true;
}

/* ---- {key:value,...} ---- */

/* Whether one of our keys and a colon stand here; its length. */
static int key_at(const char *text, const char *end, size_t *out_length)
{
	size_t left = (size_t)(end - text);
	const char *colon = memchr(text, ':', left < KEY_MAX ? left : KEY_MAX);

	if (colon == NULL)
		return -1;
	*out_length = (size_t)(colon - text);
	return find_key(text, *out_length);
}

static bool parse_plain(struct attr_values *attr, struct offsets *offsets, const char *at,
			const char *end)
{
	size_t length = 0;

	if (at == end)
		return true;
	/* The first key need not be one that we know: it can only begin here. */
	if (memchr(at, ':', (size_t)(end - at)) == NULL)
		return false;
	while (at < end) {
		int key = key_at(at, end, &length);
		const char *value = key < 0 ? at : at + length + 1;
		const char *comma = value - 1;
		size_t next;

		/* A comma ends the value only before another key. */
		do {
			comma = memchr(comma + 1, ',', (size_t)(end - comma - 1));
		} while (comma != NULL && key_at(comma + 1, end, &next) < 0);
		if (comma == NULL)
			comma = end;
		put_key(attr, offsets, key);
		strbuf_add(&attr->text, value, (size_t)(comma - value));
		strbuf_add_char(&attr->text, '\0');
		at = comma + 1;
	}
	return true;
}

/* ---- JSON ---- */

static const char *skip_blanks(const char *at, const char *end)
{
	while (at < end && (*at == ' ' || *at == '\t' || *at == '\n' || *at == '\r'))
		at++;
	return at;
}

static void add_utf8(struct strbuf *sb, uint32_t code)
{
	if (code < 0x80) {
		strbuf_add_char(sb, (char)code);
	} else if (code < 0x800) {
		strbuf_add_char(sb, (char)(0xc0 | code >> 6));
		strbuf_add_char(sb, (char)(0x80 | (code & 0x3f)));
	} else {
		strbuf_add_char(sb, (char)(0xe0 | code >> 12));
		strbuf_add_char(sb, (char)(0x80 | (code >> 6 & 0x3f)));
		strbuf_add_char(sb, (char)(0x80 | (code & 0x3f)));
	}
}

/* The character behind \u; halves of a pair are kept apart, since nothing here depends on them. NULL when it is none. */
static const char *add_escaped(struct strbuf *sb, const char *at, const char *end)
{
	uint32_t code = 0;
	int i;

	for (i = 0; i < 4; i++, at++) {
		char c = at < end ? *at : '\0';
		uint32_t digit = c >= '0' && c <= '9'	? (uint32_t)(c - '0')
				 : c >= 'a' && c <= 'f' ? (uint32_t)(c - 'a') + 10
				 : c >= 'A' && c <= 'F' ? (uint32_t)(c - 'A') + 10
							: 16;

		if (digit == 16)
			return NULL;
		code = code << 4 | digit;
	}
	if (code != 0)
		add_utf8(sb, code);
	return at;
}

/* A string, from behind its first quote to behind its last; its text goes to `sb`. NULL when it is malformed. */
static const char *parse_string(struct strbuf *sb, const char *at, const char *end)
{
	static const char escapes[] = "\"\\/bfnrt", meant[] = "\"\\/\b\f\n\r\t";

	while (at < end && *at != '"') {
		const char *found;

		if (*at != '\\') {
			strbuf_add_char(sb, *at++);
			continue;
		}
		if (++at == end)
			return NULL;
		if (*at == 'u') {
			at = add_escaped(sb, at + 1, end);
			if (at == NULL)
				return NULL;
			continue;
		}
		found = memchr(escapes, *at, sizeof(escapes) - 1);
		if (found == NULL)
			return NULL;
		strbuf_add_char(sb, meant[found - escapes]);
		at++;
	}
	return at < end ? at + 1 : NULL;
}

/* A number, true, false or null, as it stands. */
static const char *parse_bare(struct strbuf *sb, const char *at, const char *end)
{
	const char *from = at;

	while (at < end && ((*at >= '0' && *at <= '9') || (*at >= 'a' && *at <= 'z') ||
			    (*at != '\0' && strchr("+-.E", *at) != NULL)))
		at++;
	strbuf_add(sb, from, (size_t)(at - from));
	return at > from ? at : NULL;
}

static bool parse_json(struct attr_values *attr, struct offsets *offsets, const char *at,
		       const char *end)
{
	for (;;) {
		size_t name = attr->text.length;
		int key;

		at = skip_blanks(at, end);
		if (at == end || *at != '"')
			return false;
		at = parse_string(&attr->text, at + 1, end);
		if (at == NULL || strbuf_failed(&attr->text))
			return false;
		key = find_key(strbuf_str(&attr->text) + name, attr->text.length - name);
		attr->text.length = name;
		at = skip_blanks(at, end);
		if (at == end || *at != ':')
			return false;
		at = skip_blanks(at + 1, end);
		put_key(attr, offsets, key);
		if (at < end && *at == '"')
			at = parse_string(&attr->text, at + 1, end);
		else
			at = parse_bare(&attr->text, at, end);
		if (at == NULL)
			return false;
		strbuf_add_char(&attr->text, '\0');
		at = skip_blanks(at, end);
		if (at == end)
			return true;
		if (*at++ != ',')
			return false;
	}
}

bool attr_parse(struct attr_values *attr, const char *text, size_t length)
{
	const char *at = skip_blanks(text, text + length), *end = text + length;
	struct offsets offsets = {0};
	bool good;
	int key;

	strbuf_reset(&attr->text);
	memset(attr->value, 0, sizeof(attr->value));
	while (end > at && (end[-1] == ' ' || end[-1] == '\n' || end[-1] == '\r'))
		end--;
	if (at == end)
		return true;
	if (end - at < 2 || *at != '{' || end[-1] != '}')
		return false;
	at = skip_blanks(at + 1, end - 1);
	end--;
	if (at == end)
		return true;
	good = *at == '"' ? parse_json(attr, &offsets, at, end)
			  : parse_plain(attr, &offsets, at, end);
	if (!good || strbuf_failed(&attr->text))
		return false;
	for (key = 0; key < ATTR_KEY_COUNT; key++) {
		if (offsets.there[key])
			attr->value[key] = attr->text.data + offsets.at[key];
	}
	return true;
}

void attr_fini(struct attr_values *attr)
{
	strbuf_fini(&attr->text);
	*attr = (struct attr_values){0};
}
