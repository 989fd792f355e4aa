/* SPDX-License-Identifier: Apache-2.0 */
#include "collector/torch/schema.h"

#include <string.h>

#define BITS	 64u
#define SETS_MAX 32u /* letters of memory that arguments share with results */

struct part {
	const char *text;
	size_t bytes;
};

/* Position of `wanted` outside of brackets and quotes, `bytes` if there is none. */
static size_t find_outside(struct part part, char wanted)
{
	size_t i, depth = 0;
	bool quoted = false;

	for (i = 0; i < part.bytes; i++) {
		char c = part.text[i];

		if (c == '"')
			quoted = !quoted;
		if (quoted)
			continue;
		if (depth == 0 && c == wanted)
			return i;
		if (c == '(' || c == '[')
			depth++;
		else if ((c == ')' || c == ']') && depth > 0)
			depth--;
	}
	return part.bytes;
}

/* Takes the next one of a list that commas divide; false: there is none. */
static bool next_item(struct part *list, struct part *out)
{
	size_t end;

	while (list->bytes > 0 && *list->text == ' ') {
		list->text++;
		list->bytes--;
	}
	if (list->bytes == 0)
		return false;
	end = find_outside(*list, ',');
	*out = (struct part){list->text, end};
	end += end < list->bytes;
	list->text += end;
	list->bytes -= end;
	return true;
}

static bool has(struct part part, const char *word)
{
	return memmem(part.text, part.bytes, word, strlen(word)) != NULL;
}

static bool begins(struct part part, const char *word)
{
	return part.bytes >= strlen(word) && memcmp(part.text, word, strlen(word)) == 0;
}

static bool ends(struct part part, const char *word)
{
	size_t length = strlen(word);

	return part.bytes >= length && memcmp(part.text + part.bytes - length, word, length) == 0;
}

/* The text in the brackets behind "Tensor", as in Tensor(a!)[]; nothing when it shares no memory. */
static struct part alias_of(struct part type)
{
	const char *tensor = memmem(type.text, type.bytes, "Tensor(", 7);
	struct part alias = {NULL, 0};

	if (tensor != NULL) {
		alias.text = tensor + 7;
		alias.bytes = (size_t)(type.text + type.bytes - alias.text);
		alias.bytes = find_outside(alias, ')');
	}
	return alias;
}

/* What is at `text` up to the bracket that closes it; `text` stands behind the opening one. */
static struct part bracketed(const char *text, const char *end)
{
	struct part part = {text, (size_t)(end - text)};

	part.bytes = find_outside(part, ')');
	return part;
}

struct shared {
	struct part sets[SETS_MAX]; /* names of what results share with arguments and write */
	uint32_t count;
};

static void parse_results(struct part list, bool fresh_is_written, struct torch_schema *out,
			  struct shared *shared)
{
	struct part item;

	if (list.bytes > 0 && *list.text == '(')
		list = bracketed(list.text + 1, list.text + list.bytes);
	while (next_item(&list, &item)) {
		struct part alias = alias_of(item);
		uint64_t bit = out->results < BITS ? UINT64_C(1) << out->results : 0;

		out->results++;
		if (!has(item, "Tensor"))
			continue;
		if (alias.text == NULL) {
			out->writes |= fresh_is_written ? bit : 0;
		} else if (has(alias, "!")) {
			out->writes |= bit;
			if (shared->count < SETS_MAX)
				shared->sets[shared->count++] = alias;
		}
	}
}

static void parse_arguments(struct part list, bool data_is_read, struct torch_schema *out,
			    const struct shared *shared)
{
	struct part item;
	uint32_t i;

	while (next_item(&list, &item)) {
		uint64_t bit = out->arguments < BITS ? UINT64_C(1) << out->arguments : 0;
		struct part type = {item.text, find_outside(item, '=')}, alias;

		if (type.bytes == 1 && *type.text == '*')
			continue; /* what follows is named */
		out->arguments++;
		while (type.bytes > 0 && type.text[type.bytes - 1] != ' ')
			type.bytes--;
		out->takes_device |= has(type, "Device");
		if (!has(type, "Tensor"))
			continue;
		alias = alias_of(type);
		if (alias.text == NULL) {
			out->reads |= data_is_read ? bit : 0;
			continue;
		}
		if (!has(alias, "!"))
			continue; /* a result is a view of it: the data is not touched */
		for (i = 0; i < shared->count; i++) {
			if (shared->sets[i].bytes == alias.bytes &&
			    memcmp(shared->sets[i].text, alias.text, alias.bytes) == 0)
				break;
		}
		if (i == shared->count)
			out->changes |= bit;
	}
}

/* The operator's own name: behind the namespace, before the overload. */
static struct part base_of(struct part name)
{
	const char *colons = memmem(name.text, name.bytes, "::", 2), *dot;
	struct part base = name;

	if (colons != NULL) {
		base.text = colons + 2;
		base.bytes -= (size_t)(base.text - name.text);
	}
	dot = memchr(base.text, '.', base.bytes);
	if (dot != NULL)
		base.bytes = (size_t)(dot - base.text);
	return base;
}

/* A factory looks at the shape of what it is given, not at the data. */
static bool is_factory(struct part base)
{
	return begins(base, "new_") || ends(base, "_like");
}

/* Memory that is handed out as it is has not been written. */
static bool gives_raw_memory(struct part base)
{
	return begins(base, "empty") || begins(base, "new_empty") || begins(base, "_empty");
}

size_t torch_schema_parse(const char *line, size_t bytes, struct torch_schema *out)
{
	const char *end = line + bytes, *open = memchr(line, '(', bytes);
	struct shared shared = {.count = 0};
	struct part arguments, results, base;
	size_t name;

	*out = (struct torch_schema){0};
	if (open == NULL || open == line)
		return 0;
	name = (size_t)(open - line);
	arguments = bracketed(open + 1, end);
	results = (struct part){arguments.text + arguments.bytes, 0};
	results.bytes = (size_t)(end - results.text);
	if (!begins(results, ") -> "))
		return 0;
	results.text += 5;
	results.bytes -= 5;
	base = base_of((struct part){line, name});
	parse_results(results, !gives_raw_memory(base), out, &shared);
	parse_arguments(arguments, !is_factory(base), out, &shared);
	return name;
}

void torch_schema_guess(const char *name, struct torch_schema *out)
{
	struct part base = base_of((struct part){name, strlen(name)});
	bool changes = base.bytes > 1 && ends(base, "_");

	*out = (struct torch_schema){.reads = is_factory(base) ? 0 : UINT64_MAX,
				     .writes = gives_raw_memory(base) ? 0 : UINT64_MAX,
				     .takes_device = true};
	if (changes) {
		out->reads &= ~UINT64_C(1);
		out->changes = 1;
		out->writes = 0;
	}
}
