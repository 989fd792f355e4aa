/* SPDX-License-Identifier: Apache-2.0 */
#include "symbols/origin.h"

#include <string.h>

#include "base/compiler.h"
#include "base/text.h"

enum what { BY_LIBRARY, BY_DIRECTORY, BY_SOURCE, BY_PREFIX, BY_FUNCTION, BY_SCRIPT };

static const struct rule {
	enum what what;
	enum origin origin;
	const char *text;
} rules[] = {
#define RULE(what_, origin_, text_) {.what = what_, .origin = ORIGIN_##origin_, .text = text_},
#define LIBRARY(origin, text)	    RULE(BY_LIBRARY, origin, text)
#define DIRECTORY(origin, text)	    RULE(BY_DIRECTORY, origin, text)
#define SOURCE(origin, text)	    RULE(BY_SOURCE, origin, text)
#define PREFIX(origin, text)	    RULE(BY_PREFIX, origin, text)
#define FUNCTION(origin, text)	    RULE(BY_FUNCTION, origin, text)
#define SCRIPT(origin, text)	    RULE(BY_SCRIPT, origin, text)
#include "base/scripts.def"
#include "symbols/origins.def"
#undef RULE
};

static const char *const passing[] = {
#define PASSING_SCRIPT(file, text) text,
#define PASSING(text)		   text,
#include "base/scripts.def"
#include "symbols/origins.def"
};

static const struct {
	const char *file, *function;
} holding[] = {
#define HOLDING(file_, text) {file_, text},
#include "symbols/origins.def"
};

/* `<` at the begin of a part ties it to the begin of the path. */
static bool has_part(const char *path, const char *part)
{
	return part[0] == '<' ? strncmp(path, part + 1, strlen(part + 1)) == 0
			      : strstr(path, part) != NULL;
}

/* libc10 is that of libc10.so, libc10_npu.so and libc10-1.so, but not of libc10mine.so. */
static bool is_library(const char *path, const char *text)
{
	const char *name = text_base_name(path);
	size_t length = strlen(text);

	return strncmp(name, text, length) == 0 &&
	       !(name[length] >= 'a' && name[length] <= 'z' && text[length - 1] >= 'a' &&
		 text[length - 1] <= 'z');
}

static bool fits(const struct rule *rule, const char *text)
{
	switch (rule->what) {
	case BY_LIBRARY:
		return is_library(text, rule->text);
	case BY_PREFIX:
		return strncmp(text, rule->text, strlen(rule->text)) == 0;
	case BY_FUNCTION:
		return strcmp(text, rule->text) == 0;
	default:
		return has_part(text, rule->text);
	}
}

/* The first rule of one of two kinds that fits its text; texts may be NULL. */
static enum origin find(enum what a, const char *a_text, enum what b, const char *b_text)
{
	size_t i;

	for (i = 0; i < MSCOPE_COUNT(rules); i++) {
		const char *text = rules[i].what == a ? a_text : rules[i].what == b ? b_text : NULL;

		if (text != NULL && fits(&rules[i], text))
			return rules[i].origin;
	}
	return ORIGIN_USER;
}

enum origin origin_of_module(const char *path)
{
	return find(BY_LIBRARY, path, BY_DIRECTORY, path);
}

bool origin_is_system(const char *path)
{
	enum origin origin = find(BY_LIBRARY, path, BY_LIBRARY, path);

	return origin == ORIGIN_STANDARD || origin == ORIGIN_INTERPRETER || origin == ORIGIN_TOOL;
}

enum origin origin_of_function(const char *module, const char *function, const char *file)
{
	enum origin origin = module == NULL ? ORIGIN_USER : origin_of_module(module);

	if (origin == ORIGIN_USER)
		origin = find(BY_PREFIX, function, BY_FUNCTION, function);
	return origin == ORIGIN_USER && file != NULL ? find(BY_SOURCE, file, BY_SOURCE, file)
						     : origin;
}

enum origin origin_of_script(const char *file)
{
	return find(BY_SCRIPT, file, BY_SCRIPT, file);
}

bool origin_is_native(const char *function, const char *file)
{
	static const char *const endings[] = {".c", ".cc",  ".cpp", ".cxx", ".cu", ".cuh",
					      ".h", ".hpp", ".inl", ".S",   ".so"};
	size_t length = strlen(file), i;

	if (function[0] == '\0')
		return false;
	if (strstr(function, "::") != NULL)
		return true;
	/* Parentheses are no name in Python, but the file says what it is. */
	if (length > 3 && strcmp(file + length - 3, ".py") == 0)
		return false;
	if (strchr(function, '(') != NULL || length == 0 || strcmp(file, "??") == 0 ||
	    strstr(file, ".so.") != NULL)
		return true;
	for (i = 0; i < MSCOPE_COUNT(endings); i++) {
		size_t end = strlen(endings[i]);

		if (length > end && strcmp(file + length - end, endings[i]) == 0)
			return true;
	}
	return false;
}

bool origin_is_passing(const char *function)
{
	const char *dot = strrchr(function, '.');
	size_t i;

	/* Python 3.11 and later tell where it is defined; inside another function it is a decorator's. */
	if (strstr(function, ".<locals>.") != NULL)
		return true;
	for (i = 0; i < MSCOPE_COUNT(passing); i++) {
		if (strcmp(dot == NULL ? function : dot + 1, passing[i]) == 0)
			return true;
	}
	return false;
}

bool origin_is_holding(const char *file, const char *function)
{
	const char *dot = strrchr(function, '.');
	size_t i, length = strlen(file);

	for (i = 0; i < MSCOPE_COUNT(holding); i++) {
		size_t end = strlen(holding[i].file);

		if (length > end && strcmp(file + length - end, holding[i].file) == 0 &&
		    strcmp(dot == NULL ? function : dot + 1, holding[i].function) == 0)
			return true;
	}
	return false;
}
