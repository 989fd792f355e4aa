/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Values: one function per kind of options.def turns text into a field, or says why it refuses and leaves the field alone.
 * Nothing here knows where on the command line the text stood.
 */
#include "options/options_table.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/nearest.h"

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

void option_allowed(const struct option_row *row, enum verb verb, struct strbuf *sb)
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
			if (option_word_is_alias(word) ||
			    (option_word_is_view(word) && verb != VERB_EXPORT) ||
			    (option_word_is_no_form(word) && verb == VERB_EXPORT))
				continue;
			strbuf_addf(sb, "%s%s", between, word->text);
			if (option_word_has_number(word) && word->max == UINT32_MAX)
				strbuf_add_str(sb, "[:N]");
			else if (option_word_has_number(word))
				strbuf_addf(sb, "[:%u..%u]", word->min, word->max);
			between = ", ";
		}
		break;
	case OPTION_KIND_path:
		strbuf_addf(
			sb,
			"a path in UTF-8 that does not start with = + - @, at most %d bytes, %d levels, %d bytes per name",
			OPTION_PATH_MAX, OPTION_PATH_DEPTH, OPTION_PATH_NAME_MAX);
		break;
	case OPTION_KIND_pair:
		strbuf_addf(
			sb,
			"two paths in UTF-8 separated by a comma, or one with --steps, none starting with = + - @, each of at most %d bytes, %d levels, %d bytes per name",
			OPTION_PATH_MAX, OPTION_PATH_DEPTH, OPTION_PATH_NAME_MAX);
		break;
	case OPTION_KIND_size:
		add_number(sb, row->min);
		strbuf_add_str(sb, " or more, in bytes or with K, M, G or T, or 1% to 100%");
		break;
	case OPTION_KIND_numbers:
		strbuf_addf(sb, "whole numbers from %llu to %llu, at most %d of them",
			    (unsigned long long)row->min, (unsigned long long)row->max,
			    OPTION_NUMBERS_MAX);
		break;
	case OPTION_KIND_number:
		strbuf_addf(sb, "a whole number from %llu to %llu", (unsigned long long)row->min,
			    (unsigned long long)row->max);
		break;
	case OPTION_KIND_conditions:
		strbuf_add_str(
			sb,
			"leak, suspect, oom, peak:SIZE, requested:SIZE, growth:SIZE/step, SIZE in bytes or with K, M, G or T");
		break;
	case OPTION_KIND_text:
		strbuf_addf(sb, "a text in UTF-8 of at most %d bytes that is not blank",
			    OPTION_TEXT_MAX);
		break;
	case OPTION_KIND_texts:
		strbuf_addf(sb, "a text in UTF-8 of at most %d bytes; may be given %d times",
			    OPTION_TEXT_MAX, OPTION_TEXTS_MAX);
		break;
	case OPTION_KIND_watch:
		strbuf_addf(
			sb,
			"[START[:OUTPUT],]END[,full-content], OUTPUT as 0 or out0, names of at most %d bytes, empty is off",
			OPTION_WATCH_NAME_MAX);
		break;
	}
}

/*
 * Length of the text before the first comma, or of all of it, and of that comma. The full-width comma is one character: its
 * bytes also occur in other characters, but never in this order across a boundary of valid UTF-8.
 */
static size_t item_length(const char *text, size_t *out_comma)
{
	static const char wide_comma[] = "\xef\xbc\x8c";
	const char *narrow = strchr(text, ','), *wide = strstr(text, wide_comma);

	if (narrow == NULL && wide == NULL) {
		*out_comma = 0;
		return strlen(text);
	}
	if (narrow == NULL || (wide != NULL && wide < narrow)) {
		*out_comma = sizeof(wide_comma) - 1;
		return (size_t)(wide - text);
	}
	*out_comma = 1;
	return (size_t)(narrow - text);
}

/* Finds the next item of a list; empty ones do not count. */
static bool next_item(const char **cursor, const char **out_item, size_t *out_length)
{
	size_t comma;

	do {
		if (**cursor == '\0')
			return false;
		*out_item = *cursor;
		*out_length = item_length(*cursor, &comma);
		*cursor += *out_length + comma;
	} while (*out_length == 0);
	return true;
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

/* A word that the option does not have, and the one that was meant if it is near to one. */
static int refuse_word(const struct option_row *row, const char *text, size_t length,
		       size_t name_length, struct strbuf *why)
{
	struct nearest nearest = nearest_to(text, name_length);
	const struct option_word *word = NULL;
	int r = refuse(why, text, length, "is not allowed");

	while ((word = option_next_word(row, word)) != NULL)
		nearest_offer(&nearest, word->text);
	if (nearest.best != NULL)
		strbuf_addf(why, ", did you mean %s?", nearest.best);
	return r;
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
	return refuse_word(row, value, length, length, why);
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
		return refuse_word(row, item, length, name_length, why);
	number = word->initial;
	if (colon != NULL) {
		if (!option_word_has_number(word))
			return refuse(why, item, length, "has a number but takes none");
		if (!read_number(colon + 1, length - name_length - 1, word->max, &number) ||
		    number < word->min)
			return refuse(why, item, length, "has a bad number");
	}
	if (word->kind == OPTION_WORD_NONE) {
		*none = true;
		return 0;
	}
	set->mask |= 1u << word->value;
	if (word->kind == OPTION_WORD_EACH || word->kind == OPTION_WORD_EACH_ALSO)
		set->number[word->value] |= colon == NULL ? UINT32_MAX : 1u << number;
	else
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
		strbuf_addf(notices, "--%s: none switches off everything else in the list\n",
			    row->name);
		set = (struct option_set){0};
	}
	*field = set;
	return 0;
}

static int parse_numbers(const struct option_row *row, const char *value,
			 struct option_numbers *field, struct strbuf *why)
{
	const char *cursor = value, *item;
	uint32_t count = 0, i;
	size_t length;
	uint64_t number;

	/* Checked to its end before the field changes. */
	while (next_item(&cursor, &item, &length)) {
		if (!read_number(item, length, row->max, &number) || number < row->min)
			return refuse(why, item, length, "is not such a number");
		if (++count > OPTION_NUMBERS_MAX)
			return refuse(why, item, length, "exceeds the limit");
	}
	if (count == 0)
		return refuse(why, value, 0, "");
	field->count = 0;
	cursor = value;
	while (next_item(&cursor, &item, &length)) {
		(void)read_number(item, length, row->max, &number);
		for (i = 0; i < field->count && field->value[i] != number; i++)
			;
		field->value[i] = (uint32_t)number;
		field->count += i == field->count;
	}
	return 0;
}

/* Text that can be shown and stored: UTF-8 without control characters. Blanks of all kinds are allowed with `blanks`. */
static const char *text_fault(const char *text, size_t length, bool blanks)
{
	uint32_t code;
	size_t at, step;

	for (at = 0; at < length; at += step) {
		step = utf8_length(text + at, &code);
		if (step == 0)
			return "is not UTF-8";
		if (is_control(code) && !(blanks && code < 0x80 && is_blank(text[at])))
			return "contains a control character";
	}
	return NULL;
}

#define WATCH_ITEMS_MAX 4

struct watch_item {
	const char *text;
	size_t length;
};

/* Splits at every comma, empty items included; one more than fits is enough to know. */
static size_t split_watch(const char *value, struct watch_item items[WATCH_ITEMS_MAX])
{
	size_t count = 0, comma;

	do {
		items[count].text = value;
		items[count].length = item_length(value, &comma);
		value += items[count++].length + comma;
	} while (comma > 0 && count < WATCH_ITEMS_MAX);
	return count;
}

static bool item_is(const struct watch_item *item, const char *word)
{
	return item->length == strlen(word) && memcmp(item->text, word, item->length) == 0;
}

/* Where the number of an output may stand: after the last colon. Length of what is before it; all when there is no colon. */
static size_t before_output(const struct watch_item *item)
{
	const char *colon = memrchr(item->text, ':', item->length);

	return colon == NULL ? item->length : (size_t)(colon - item->text);
}

/* Whether an item ends in :0 or :out0; a colon before anything else is part of a name, as in aten::mul. */
static bool has_output(const struct watch_item *item, struct watch_item *out_digits)
{
	size_t name = before_output(item), i;

	if (name == item->length)
		return false;
	out_digits->text = item->text + name + 1;
	out_digits->length = item->length - name - 1;
	if (out_digits->length > 3 && memcmp(out_digits->text, "out", 3) == 0) {
		out_digits->text += 3;
		out_digits->length -= 3;
	}
	for (i = 0; i < out_digits->length; i++) {
		if (out_digits->text[i] < '0' || out_digits->text[i] > '9')
			return false;
	}
	return out_digits->length > 0;
}

static int watch_name(const struct watch_item *item, char *out, struct strbuf *why)
{
	if (item->length > OPTION_WATCH_NAME_MAX)
		return refuse(why, item->text, item->length, "is too long");
	memcpy(out, item->text, item->length);
	out[item->length] = '\0';
	return 0;
}

static int watch_start(const struct watch_item *item, struct option_watch *watch,
		       struct strbuf *why)
{
	struct watch_item name = *item, digits, tail;
	size_t before = before_output(item);
	uint64_t output;

	if (has_output(item, &digits)) {
		if (!read_number(digits.text, digits.length, UINT32_MAX, &output))
			return refuse(why, item->text, item->length, "has a bad output number");
		watch->output = (uint32_t)output;
		name.length = before;
	} else if (before < item->length) {
		tail = (struct watch_item){item->text + before + 1, item->length - before - 1};
		if (tail.length == 0 || item_is(&tail, "out") || item_is(&tail, "outid"))
			return refuse(why, item->text, item->length,
				      "has no output number, which is written as :0 or :out0");
	}
	if (name.length == 0 || before == 0)
		return refuse(why, item->text, item->length, "has no operator before the colon");
	return watch_name(&name, watch->start, why);
}

static int parse_watch(const char *value, struct option_watch *field, struct strbuf *why)
{
	struct option_watch watch = {.output = OPTION_WATCH_ALL};
	struct watch_item items[WATCH_ITEMS_MAX], digits;
	size_t length = strlen(value), count;
	const char *fault = text_fault(value, length, false);
	int r = 0;

	if (fault != NULL)
		return refuse(why, value, length, fault);
	if (length == 0) {
		*field = watch; /* off */
		return 0;
	}
	count = split_watch(value, items);
	if (item_is(&items[count - 1], "full-content")) {
		watch.full_content = true;
		count--;
	} else if (count == 3 && items[2].length == 0) {
		count--; /* a comma after the end, where full-content might have followed */
	}
	if (count > 2)
		return refuse(why, value, length, "has too many parts");
	if (count == 0 || items[count - 1].length == 0)
		return refuse(why, value, length, "has no END");
	if (count == 2 && items[0].length > 0)
		r = watch_start(&items[0], &watch, why);
	else if (has_output(&items[count - 1], &digits))
		return refuse(why, value, length, "has the number of an output but no START");
	if (r == 0)
		r = watch_name(&items[count - 1], watch.end, why);
	if (r == 0)
		*field = watch;
	return r;
}

/* Bytes, with or without one of K, M, G and T. */
static bool read_size(const char *text, size_t length, uint64_t max, uint64_t *out)
{
	static const char units[] = "KkMmGgTt";
	const char *unit = length > 0 ? strchr(units, text[length - 1]) : NULL;
	unsigned int shift = unit == NULL ? 0 : 10 * (1 + (unsigned int)(unit - units) / 2);
	uint64_t number;

	if (!read_number(text, length - (unit != NULL), max >> shift, &number))
		return false;
	*out = number << shift;
	return true;
}

static int parse_size(const struct option_row *row, const char *value, struct option_size *field,
		      struct strbuf *why)
{
	size_t length = strlen(value);
	uint64_t number;

	if (length > 0 && value[length - 1] == '%') {
		if (!read_number(value, length - 1, 100, &number) || number == 0)
			return refuse(why, value, length, "is not a percentage from 1 to 100");
		*field = (struct option_size){.percent = (uint32_t)number};
		return 0;
	}
	if (!read_size(value, length, row->max, &number) || number < row->min)
		return refuse(why, value, length, "is not a size, or is out of range");
	*field = (struct option_size){.bytes = number};
	return 0;
}

static int parse_one_number(const struct option_row *row, const char *value, uint32_t *field,
			    struct strbuf *why)
{
	uint64_t number;

	if (!read_number(value, strlen(value), row->max, &number) || number < row->min)
		return refuse(why, value, strlen(value), "is not such a number");
	*field = (uint32_t)number;
	return 0;
}

/* The size behind `prefix`, with what must follow it; false if the item is not that. */
static bool condition_size(const char *item, size_t length, const char *prefix, const char *suffix,
			   uint64_t max, uint64_t *out)
{
	size_t before = strlen(prefix), after = strlen(suffix);

	return length > before + after && memcmp(item, prefix, before) == 0 &&
	       memcmp(item + length - after, suffix, after) == 0 &&
	       read_size(item + before, length - before - after, max, out) && *out > 0;
}

static bool parse_condition(const struct option_row *row, const char *item, size_t length,
			    struct option_conditions *out)
{
	if (length == 4 && memcmp(item, "leak", 4) == 0)
		out->leak = true;
	else if (length == 7 && memcmp(item, "suspect", 7) == 0)
		out->suspect = true;
	else if (length == 3 && memcmp(item, "oom", 3) == 0)
		out->oom = true;
	else
		return condition_size(item, length, "leak:", "/step", row->max, &out->leak_bytes) ||
		       condition_size(item, length, "oom-in:", "steps", row->max,
				      &out->full_steps) ||
		       condition_size(item, length, "oom-in:", "step", row->max,
				      &out->full_steps) ||
		       condition_size(item, length, "peak:", "", row->max, &out->peak_bytes) ||
		       condition_size(item, length, "requested:", "", row->max,
				      &out->requested_bytes) ||
		       condition_size(item, length, "growth:", "/step", row->max,
				      &out->growth_bytes);
	return true;
}

static int parse_conditions(const struct option_row *row, const char *value,
			    struct option_conditions *field, struct strbuf *why)
{
	struct option_conditions conditions = {0};
	const char *cursor = value, *item;
	bool any = false;
	size_t length;

	while (next_item(&cursor, &item, &length)) {
		if (!parse_condition(row, item, length, &conditions))
			return refuse(why, item, length, "is not a condition");
		any = true;
	}
	if (!any)
		return refuse(why, value, 0, "");
	*field = conditions;
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
	size_t length = strlen(value);
	struct strbuf path = {0};
	char *trimmed = NULL;
	const char *fault;
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
	fault = text_fault(value, length, true);
	if (fault != NULL)
		return refuse(why, value, length, fault);
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

static int parse_pair(const char *value, struct option_pair *field, struct strbuf *why)
{
	const char *cursor = value, *item;
	struct option_pair pair = {0};
	size_t length, count = 0;
	char *text;
	int r = 0;

	while (r == 0 && next_item(&cursor, &item, &length)) {
		if (count == MSCOPE_COUNT(pair.path)) {
			r = refuse(why, value, strlen(value), "has more than two paths");
			break;
		}
		text = strndup(item, length);
		r = text == NULL ? -ENOMEM : parse_path(text, &pair.path[count++], why);
		free(text);
	}
	if (r == 0 && count == 0)
		r = refuse(why, value, strlen(value), "is not two paths");
	if (r == 0) {
		struct option_pair old = *field;

		*field = pair;
		pair = old;
	}
	free(pair.path[0]);
	free(pair.path[1]);
	return r;
}

static int parse_text(const char *value, char **field, struct strbuf *why)
{
	size_t length = strlen(value), at = 0;
	const char *fault = text_fault(value, length, true);
	char *text;

	while (at < length && is_blank(value[at]))
		at++;
	if (fault != NULL || at == length)
		return refuse(why, value, length, fault != NULL ? fault : "is blank");
	if (length > OPTION_TEXT_MAX)
		return refuse(why, value, length, "is too long");
	text = strdup(value);
	if (text == NULL)
		return -ENOMEM;
	free(*field);
	*field = text;
	return 0;
}

static int parse_texts(const char *value, struct option_texts *field, struct strbuf *why)
{
	size_t length = strlen(value);
	const char *fault = text_fault(value, length, true);

	if (fault != NULL || length > OPTION_TEXT_MAX)
		return refuse(why, value, length, fault != NULL ? fault : "is too long");
	if (field->count == OPTION_TEXTS_MAX)
		return refuse(why, value, length, "exceeds the limit");
	field->value[field->count] = strdup(value);
	if (field->value[field->count] == NULL)
		return -ENOMEM;
	field->count++;
	return 0;
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
	case OPTION_KIND_numbers:
		return parse_numbers(row, value, field, why);
	case OPTION_KIND_number:
		return parse_one_number(row, value, field, why);
	case OPTION_KIND_conditions:
		return parse_conditions(row, value, field, why);
	case OPTION_KIND_watch:
		return parse_watch(value, field, why);
	case OPTION_KIND_pair:
		return parse_pair(value, field, why);
	case OPTION_KIND_text:
		return parse_text(value, field, why);
	case OPTION_KIND_texts:
		return parse_texts(value, field, why);
	}
	return MSCOPE_E_STATE;
}
