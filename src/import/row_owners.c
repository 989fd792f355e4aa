/* SPDX-License-Identifier: Apache-2.0 */
#include "import/row_owners.h"

#include <string.h>

#include "base/compiler.h"
#include "trace/context.h"

/* Classes that are followed by a name: replay/classes.def lists all classes. */
static const char *const named[] = {"model@buffer", "model@attribute", "model@kv_cache",
				    "model@temporary"};

/* What the original writes in place of a class, of blocks of pools: in memory of the driver it is a label of the user. */
static const struct {
	const char *text, *class;
} short_forms[] = {{"ops", "ops@aten"},
		   {"weight", "model@weight"},
		   {"gradient", "model@gradient"},
		   {"optimizer_state", "model@optimizer_state"}};

static const char *const modules[] = {
#define CANN_MODULE(number, text) [number] = text,
#include "trace/cann_modules.def"
#undef CANN_MODULE
};

/* Length of the first `count` parts, or of all. */
static size_t parts_length(const char *text, unsigned count)
{
	const char *at = text;

	for (; count > 0 && *at != '\0'; count--) {
		at += at > text;
		at += strcspn(at, "@");
	}
	return (size_t)(at - text);
}

static const char *skip(const char *text, size_t length)
{
	return text[length] == '@' ? text + length + 1 : text + length;
}

static bool is_word(const char *text, size_t length, const char *word)
{
	return length == strlen(word) && memcmp(text, word, length) == 0;
}

static bool has_name(const char *class, size_t length)
{
	size_t i;

	for (i = 0; i < MSCOPE_COUNT(named); i++) {
		if (is_word(class, length, named[i]))
			return true;
	}
	return false;
}

static uint32_t module_of(const char *text, size_t length)
{
	size_t i;

	for (i = 0; i < MSCOPE_COUNT(modules); i++) {
		if (modules[i] != NULL && is_word(text, length, modules[i]))
			return (uint32_t)i;
	}
	return MODULE_UNKNOWN;
}

struct row_owner row_owner_of(const char *text, bool is_driver)
{
	struct row_owner owner = {.module = MODULE_UNKNOWN};
	size_t length = parts_length(text, 1), i;
	bool is_cann = is_driver && is_word(text, length, "CANN");

	text = skip(text, length);
	length = parts_length(text, 1);
	if (is_cann) {
		owner.module = module_of(text, length);
		text = skip(text, length);
		length = parts_length(text, 1);
	}
	for (i = 0; i < MSCOPE_COUNT(short_forms) && !is_cann && text[length] == '\0'; i++) {
		if (strcmp(short_forms[i].text, text) == 0) {
			owner.class = short_forms[i].class;
			owner.class_length = strlen(owner.class);
			return owner;
		}
	}
	if (is_word(text, length, "model") || is_word(text, length, "ops")) {
		owner.class = text;
		owner.class_length = parts_length(text, 2);
		if (has_name(text, owner.class_length))
			owner.class_length = parts_length(text, 3);
		text = skip(text, owner.class_length);
	}
	owner.label = text;
	owner.label_length = strlen(text);
	return owner;
}
