/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Values: one function per kind of options.def turns text into a field, or says why it refuses and leaves the field alone.
 * Nothing here knows where on the command line the text stood.
 */
#include "base/options_table.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Length of the UTF-8 character at `text` (not at its end), or 0 when the bytes there are none. */
static size_t utf8_length(const char *text, uint32_t *out_code)
{
	static const uint32_t smallest[] = {0, 0, 0x80, 0x800, 0x10000};
	const unsigned char *byte = (const unsigned char *)text;
	size_t length = byte[0] < 0x80 ? 1 : byte[0] < 0xe0 ? 2 : byte[0] < 0xf0 ? 3 : 4;
	uint32_t code = length == 1 ? byte[0] : byte[0] & (0x7fu >> length);
	size_t i;

	if ((byte[0] >= 0x80 && byte[0] < 0xc2) || byte[0] > 0xf4)
		return 0;
	for (i = 1; i < length; i++) {
		if ((byte[i] & 0xc0) != 0x80)
			return 0;
		code = code << 6 | (byte[i] & 0x3f);
	}
	if (code < smallest[length] || code > 0x10ffff || (code >= 0xd800 && code < 0xe000))
		return 0;
	*out_code = code;
	return length;
}

static bool is_control(uint32_t code)
{
	return code < 0x20 || (code >= 0x7f && code < 0xa0);
}

static bool is_blank(char c)
{
	return c == ' ' || (c >= '\t' && c <= '\r');
}

static void add_quoted(struct strbuf *sb, const char *text, size_t length)
{
	const size_t shown = 64;
	size_t at = 0, step, i;
	uint32_t code;

	strbuf_add_char(sb, '\'');
	while (at < length && at < shown) {
		step = utf8_length(text + at, &code);
		if (step > 0 && step <= length - at && !is_control(code) && code != '\\') {
			strbuf_add(sb, text + at, step);
			at += step;
			continue;
		}
		/* A two-byte control character is escaped byte by byte, like what is not UTF-8 at all. */
		if (step == 0 || step > length - at)
			step = 1;
		for (i = 0; i < step; i++, at++) {
			if (text[at] == '\\')
				strbuf_add_str(sb, "\\\\");
			else if (text[at] == '\n')
				strbuf_add_str(sb, "\\n");
			else if (text[at] == '\t')
				strbuf_add_str(sb, "\\t");
			else
				strbuf_addf(sb, "\\x%02x", (unsigned char)text[at]);
		}
	}
	if (at < length)
		strbuf_addf(sb, "...' (%zu bytes)", length);
	else
		strbuf_add_char(sb, '\'');
}

void options_quote(struct strbuf *sb, const char *text)
{
	add_quoted(sb, text, strlen(text));
}

static void add_number(struct strbuf *sb, uint64_t value)
{
	static const char units[] = "KMGT";
	size_t unit = 0;

	while (unit < sizeof(units) - 1 && value != 0 && value % 1024 == 0) {
		value /= 1024;
		unit++;
	}
	strbuf_add_u64(sb, value);
	if (unit > 0)
		strbuf_add_char(sb, units[unit - 1]);
}

void option_allowed(const struct option_row *row, struct strbuf *sb)
{
	const struct option_word *word = NULL;
	const char *between = "";

	switch (row->kind) {
	case OPTION_KIND_flag:
		strbuf_add_str(sb, "no value");
		break;
	case OPTION_KIND_word:
	case OPTION_KIND_set:
		while ((word = option_next_word(row, word)) != NULL) {
			if (word->kind == OPTION_WORD_ALSO)
				continue;
			strbuf_addf(sb, "%s%s", between, word->text);
			if (word->kind == OPTION_WORD_NUMBERED)
				strbuf_addf(sb, "[:%u..%u]", word->min, word->max);
			between = ", ";
		}
		break;
	case OPTION_KIND_path:
		strbuf_addf(sb,
			    "a path in UTF-8 that does not start with = + - @, at most %d bytes, "
			    "%d levels, %d bytes per name",
			    OPTION_PATH_MAX, OPTION_PATH_DEPTH, OPTION_PATH_NAME_MAX);
		break;
	case OPTION_KIND_size:
		add_number(sb, row->min);
		strbuf_add_str(sb, " or more, in bytes or with K, M, G or T, or 1% to 100%");
		break;
	}
}

/*
 * Finds the next item of a list. The full-width comma is one character: its bytes also occur in other characters, but never
 * in this order across a boundary of valid UTF-8.
 */
static bool next_item(const char **cursor, const char **out_item, size_t *out_length)
{
	static const char wide_comma[] = "\xef\xbc\x8c";
	const char *at = *cursor, *narrow, *wide;
	size_t separator;

	for (;;) {
		if (*at == '\0')
			return false;
		narrow = strchr(at, ',');
		wide = strstr(at, wide_comma);
		if (narrow == NULL && wide == NULL) {
			*out_item = at;
			*out_length = strlen(at);
			*cursor = at + *out_length;
			return true;
		}
		separator = 1;
		if (narrow == NULL || (wide != NULL && wide < narrow)) {
			narrow = wide;
			separator = sizeof(wide_comma) - 1;
		}
		*out_item = at;
		*out_length = (size_t)(narrow - at);
		at = narrow + separator;
		if (*out_length > 0) {
			*cursor = at;
			return true;
		}
	}
}

/* Digits only, no sign, blank or leading zero, at most `max`. */
static bool read_number(const char *text, size_t length, uint64_t max, uint64_t *out)
{
	uint64_t value = 0;
	size_t i;

	if (length == 0 || (length > 1 && text[0] == '0'))
		return false;
	for (i = 0; i < length; i++) {
		uint64_t digit;

		if (text[i] < '0' || text[i] > '9')
			return false;
		digit = (uint64_t)(text[i] - '0');
		if (digit > max || value > (max - digit) / 10)
			return false;
		value = value * 10 + digit;
	}
	*out = value;
	return true;
}

/* Why a value is refused: the value or the part of it that is wrong, and what is wrong with it. */
static int refuse(struct strbuf *why, const char *text, size_t length, const char *fault)
{
	if (length == 0) {
		strbuf_add_str(why, "the value is empty");
	} else {
		add_quoted(why, text, length);
		strbuf_addf(why, " %s", fault);
	}
	return MSCOPE_E_USAGE;
}

static bool word_is(const struct option_word *word, const char *text, size_t length)
{
	return strlen(word->text) == length && memcmp(word->text, text, length) == 0;
}

static int parse_word(const struct option_row *row, const char *value, int *field,
		      struct strbuf *why)
{
	const struct option_word *word = NULL;
	size_t length = strlen(value);

	while ((word = option_next_word(row, word)) != NULL) {
		if (word_is(word, value, length)) {
			*field = word->value;
			return 0;
		}
	}
	return refuse(why, value, length, "is not allowed");
}

static int parse_item(const struct option_row *row, const char *item, size_t length,
		      struct option_set *set, bool *none, struct strbuf *why)
{
	const char *colon = memchr(item, ':', length);
	size_t name_length = colon == NULL ? length : (size_t)(colon - item);
	const struct option_word *word = NULL;
	uint64_t number;

	while ((word = option_next_word(row, word)) != NULL) {
		if (word_is(word, item, name_length))
			break;
	}
	if (word == NULL)
		return refuse(why, item, length, "is not allowed");
	number = word->initial;
	if (colon != NULL) {
		if (word->kind != OPTION_WORD_NUMBERED)
			return refuse(why, item, length, "carries a number but takes none");
		if (!read_number(colon + 1, length - name_length - 1, word->max, &number) ||
		    number < word->min)
			return refuse(why, item, length, "has a bad number");
	}
	if (word->kind == OPTION_WORD_NONE) {
		*none = true;
		return 0;
	}
	set->mask |= 1u << word->value;
	set->number[word->value] = (uint32_t)number;
	return 0;
}

static int parse_set(const struct option_row *row, const char *value, struct option_set *field,
		     struct strbuf *notices, struct strbuf *why)
{
	struct option_set set = {0};
	const char *cursor = value, *item;
	bool none = false, any = false;
	size_t length;
	int r;

	while (next_item(&cursor, &item, &length)) {
		r = parse_item(row, item, length, &set, &none, why);
		if (r != 0)
			return r;
		any = true;
	}
	if (!any && !row->may_be_empty)
		return refuse(why, value, 0, "");
	if (none && set.mask != 0) {
		strbuf_addf(notices, "--%s: none switches off all that is named beside it\n",
			    row->name);
		set = (struct option_set){0};
	}
	*field = set;
	return 0;
}

static int parse_size(const struct option_row *row, const char *value, struct option_size *field,
		      struct strbuf *why)
{
	static const char units[] = "KkMmGgTt";
	size_t length = strlen(value);
	const char *unit = NULL;
	unsigned int shift = 0;
	uint64_t number;

	if (length > 0 && value[length - 1] == '%') {
		if (!read_number(value, length - 1, 100, &number) || number == 0)
			return refuse(why, value, length, "is no percentage from 1 to 100");
		*field = (struct option_size){.percent = (uint32_t)number};
		return 0;
	}
	if (length > 0)
		unit = strchr(units, value[length - 1]);
	if (unit != NULL)
		shift = 10 * (1 + (unsigned int)(unit - units) / 2);
	if (!read_number(value, length - (unit != NULL), row->max >> shift, &number) ||
	    number << shift < row->min)
		return refuse(why, value, length, "is no size or out of range");
	*field = (struct option_size){.bytes = number << shift};
	return 0;
}

/* Appends "/name" for each name of `path`, dropping empty ones and ".", and taking one away again for "..". */
static void add_names(struct strbuf *sb, const char *path)
{
	while (*path != '\0') {
		size_t length = strcspn(path, "/");

		if (length == 2 && memcmp(path, "..", 2) == 0) {
			while (sb->length > 0 && sb->data[--sb->length] != '/')
				;
			if (sb->data != NULL)
				sb->data[sb->length] = '\0';
		} else if (length > 0 && !(length == 1 && *path == '.')) {
			strbuf_add_char(sb, '/');
			strbuf_add(sb, path, length);
		}
		path += length;
		path += *path == '/';
	}
}

/* What is wrong with a path that is absolute and without "." and ".."; NULL when nothing is. */
static const char *path_fault(const struct strbuf *path)
{
	const char *at = strbuf_str(path);
	size_t depth = 0;

	if (path->length > OPTION_PATH_MAX)
		return "is too long";
	while (*at == '/') {
		size_t length = strcspn(++at, "/");

		if (length > OPTION_PATH_NAME_MAX)
			return "contains a name that is too long";
		if (++depth > OPTION_PATH_DEPTH)
			return "has too many levels";
		at += length;
	}
	return NULL;
}

static int make_absolute(const char *path, struct strbuf *out)
{
	if (path[0] != '/') {
		char *here = getcwd(NULL, 0);

		if (here == NULL)
			return -errno;
		add_names(out, here);
		free(here);
	}
	add_names(out, path);
	if (out->length == 0)
		strbuf_add_char(out, '/');
	return strbuf_failed(out) ? -ENOMEM : 0;
}

static int parse_path(const char *value, char **field, struct strbuf *why)
{
	size_t length = strlen(value), at, step;
	struct strbuf path = {0};
	char *trimmed = NULL;
	const char *fault;
	uint32_t code;
	int r;

	while (length > 0 && is_blank(value[length - 1]))
		length--;
	while (length > 0 && is_blank(*value)) {
		value++;
		length--;
	}
	if (length == 0)
		return refuse(why, value, 0, "");
	if (strchr("=+-@", *value) != NULL)
		return refuse(why, value, length, "starts with one of = + - @");
	if (length > OPTION_PATH_MAX)
		return refuse(why, value, length, "is too long");
	for (at = 0; at < length; at += step) {
		step = utf8_length(value + at, &code);
		if (step == 0)
			return refuse(why, value, length, "is not UTF-8");
		if (is_control(code) && !(code < 0x80 && is_blank(value[at])))
			return refuse(why, value, length, "contains a control character");
	}
	trimmed = strndup(value, length);
	if (trimmed == NULL)
		return -ENOMEM;
	r = make_absolute(trimmed, &path);
	if (r != 0) {
		if (r != -ENOMEM) {
			add_quoted(why, value, length);
			strbuf_addf(why, " cannot be made absolute: %s", mscope_status_str(r));
		}
		goto out;
	}
	fault = path_fault(&path);
	if (fault != NULL) {
		r = refuse(why, value, length, fault);
		goto out;
	}
	free(*field);
	*field = path.data;
	path = (struct strbuf){0};
out:
	strbuf_fini(&path);
	free(trimmed);
	return r;
}

int option_parse_value(struct options *o, const struct option_row *row, const char *value,
		       struct strbuf *why)
{
	void *field = (char *)o + row->offset;

	switch (row->kind) {
	case OPTION_KIND_flag:
		*(bool *)field = true;
		return 0;
	case OPTION_KIND_word:
		return parse_word(row, value, field, why);
	case OPTION_KIND_set:
		return parse_set(row, value, field, &o->notices, why);
	case OPTION_KIND_path:
		return parse_path(value, field, why);
	case OPTION_KIND_size:
		return parse_size(row, value, field, why);
	}
	return MSCOPE_E_STATE;
}
