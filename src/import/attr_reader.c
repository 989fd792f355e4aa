/* SPDX-License-Identifier: Apache-2.0 */
#include "import/attr_reader.h"

/* No key is longer; looking further for its colon would make a long list of commas expensive. */
#define KEY_MAX 24

/* Values are added to a buffer that moves; their offsets stand in for pointers until all are there. */
struct offsets {
	size_t at[ATTR_KEY_COUNT];
	bool there[ATTR_KEY_COUNT];
};

/* The lengths of attr_keys. */
static const uint8_t key_lengths[ATTR_KEY_COUNT] = {
#define KEY(name) [ATTR_##name] = sizeof(#name) - 1,
#include "dump/rows.def"
#undef KEY
};

/* The key with a name, or -1. The search begins at `first`: keys of a row come in the order of the list. */
static int find_key(const char *name, size_t length, int first)
{
	int count, key = first;

	for (count = 0; count < ATTR_KEY_COUNT; count++) {
		if (key_lengths[key] == length && attr_keys[key][0] == *name &&
		    memcmp(attr_keys[key], name, length) == 0)
			return key;
		key = key + 1 == ATTR_KEY_COUNT ? 0 : key + 1;
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

/* Whether one of our keys and a colon stand here; its length. `before` is the key that came before. */
static int key_at(const char *text, const char *end, int before, size_t *out_length)
{
	size_t left = (size_t)(end - text), i;

	left = left < KEY_MAX ? left : KEY_MAX;
	for (i = 0; i < left && text[i] != ':' && text[i] != ','; i++)
		;
	if (i == left || text[i] == ',')
		return -1;
	*out_length = i;
	return find_key(text, i, before + 1 == ATTR_KEY_COUNT ? 0 : before + 1);
}

/* The values stay where the text is, which is copied as a whole and cut at their ends. */
static bool parse_plain(struct attr_values *attr, const char *text, size_t length)
{
	char *at, *end;
	int key = -1, next;
	size_t key_length = 0;

	if (memchr(text, ':', length) == NULL)
		return false;
	at = strbuf_room(&attr->text, length);
	if (at == NULL)
		return false;
	memcpy(at, text, length);
	end = at + length;
	*end = '\0';
	/* The first key need not be one that we know: it can only begin here. */
	for (key = key_at(at, end, key, &key_length); at < end; key = next) {
		char *value = key < 0 ? at : at + key_length + 1, *comma = value - 1;

		/* A comma ends the value only before another key. */
		do {
			comma = memchr(comma + 1, ',', (size_t)(end - comma - 1));
			next = comma == NULL ? -1 : key_at(comma + 1, end, key, &key_length);
		} while (comma != NULL && next < 0);
		if (comma == NULL)
			comma = end;
		*comma = '\0';
		if (key >= 0)
			attr->value[key] = value;
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
		key = find_key(strbuf_str(&attr->text) + name, attr->text.length - name, 0);
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
	struct offsets offsets;
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
	if (*at != '"')
		return parse_plain(attr, at, (size_t)(end - at));
	offsets = (struct offsets){0};
	if (!parse_json(attr, &offsets, at, end) || strbuf_failed(&attr->text))
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
