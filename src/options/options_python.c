/* SPDX-License-Identifier: Apache-2.0 */
/*
 * options.def once more, for the Python package: config() takes the same values as the command, so it reads the same table.
 * What comes out is a module of plain data; the texts in it are ours and need no quoting.
 */
#include "options/options_table.h"

static const char *const kinds[] = {
	[OPTION_KIND_flag] = "flag",	 [OPTION_KIND_word] = "word",
	[OPTION_KIND_set] = "set",	 [OPTION_KIND_path] = "path",
	[OPTION_KIND_size] = "size",	 [OPTION_KIND_numbers] = "numbers",
	[OPTION_KIND_number] = "number", [OPTION_KIND_conditions] = "conditions",
	[OPTION_KIND_watch] = "watch",	 [OPTION_KIND_pair] = "pair",
	[OPTION_KIND_text] = "text",	 [OPTION_KIND_texts] = "texts",
};

static const char *const word_kinds[] = {
	[OPTION_WORD_PLAIN] = "plain", [OPTION_WORD_NUMBERED] = "numbered",
	[OPTION_WORD_EACH] = "each",   [OPTION_WORD_ALSO] = "plain",
	[OPTION_WORD_NONE] = "none",   [OPTION_WORD_EACH_ALSO] = "each",
};

static void add_row(struct strbuf *sb, const struct option_row *row)
{
	const struct option_word *word = NULL;
	struct strbuf allowed = {0};

	option_allowed(row, VERB_NONE, &allowed);
	strbuf_addf(sb, "    \"%s\": Option(\"%s\", \"%s\", %s, \"%s\", {", row->name, row->name,
		    kinds[row->kind], row->may_be_empty ? "True" : "False", strbuf_str(&allowed));
	while ((word = option_next_word(row, word)) != NULL && !option_word_is_view(word))
		strbuf_addf(sb, "\n        b\"%s\": Word(\"%s\", %d, %u, %u, %u),", word->text,
			    word_kinds[word->kind], word->value, word->min, word->max,
			    word->initial);
	strbuf_addf(sb, "}, %s%s%s, %llu, %llu),\n", row->initial != NULL ? "\"" : "",
		    row->initial != NULL ? row->initial : "None", row->initial != NULL ? "\"" : "",
		    (unsigned long long)row->min, (unsigned long long)row->max);
	strbuf_fini(&allowed);
}

/* The k-th argument of config(), from 1; NULL past the last. */
static const struct option_row *of_config(size_t k)
{
	const struct option_row *row = NULL;

	while ((row = option_next(row)) != NULL && row->config != k)
		;
	return row;
}

void options_python(struct strbuf *sb)
{
	const struct option_row *row = NULL;
	size_t k;

	strbuf_add_str(
		sb,
		"# SPDX-License-Identifier: Apache-2.0\n"
		"\"\"\"What the options of the command take; written by msmemscope print-python.\"\"\"\n"
		"from collections import namedtuple\n\n"
		"Option = namedtuple(\"Option\", \"name kind may_be_empty allowed words initial min max\")\n"
		"Word = namedtuple(\"Word\", \"kind value min max initial\")\n\n");
	strbuf_addf(
		sb,
		"PATH_MAX, PATH_NAME_MAX, PATH_DEPTH = %d, %d, %d\nWATCH_NAME_MAX = %d\nTEXT_MAX = %d\n\n"
		"OPTIONS = {\n",
		OPTION_PATH_MAX, OPTION_PATH_NAME_MAX, OPTION_PATH_DEPTH, OPTION_WATCH_NAME_MAX,
		OPTION_TEXT_MAX);
	while ((row = option_next(row)) != NULL) {
		if (option_applies(row, VERB_NONE) && row->kind != OPTION_KIND_flag)
			add_row(sb, row);
	}
	strbuf_add_str(sb, "}\n\nALIASES = {\n");
	while ((row = option_next(row)) != NULL) {
		for (k = 1; option_applies(row, VERB_NONE) && row->kind != OPTION_KIND_flag &&
			    option_name(row, k) != NULL;
		     k++)
			strbuf_addf(sb, "    \"%s\": \"%s\",\n", option_name(row, k), row->name);
	}
	strbuf_add_str(sb,
		       "}\n\n# What config() takes, in the order in which it says so.\nCONFIG = (");
	for (k = 1; (row = of_config(k)) != NULL; k++)
		strbuf_addf(sb, "%s\"%s\"", k == 1 ? "" : ", ", row->name);
	strbuf_add_str(sb, ")\n");
}

/* ---- config() ---- */

static void add_parameter_name(struct strbuf *sb, const char *name)
{
	for (; *name != '\0'; name++)
		strbuf_add_char(sb, *name == '-' ? '_' : *name);
}

/* By all names, the documented one first: `add` writes each. */
static void each_parameter(struct strbuf *sb,
			   void (*add)(struct strbuf *, const struct option_row *, size_t))
{
	const struct option_row *row;
	size_t k, name;

	for (name = 0; name <= MSCOPE_COUNT(row->aliases); name++) {
		for (k = 1; (row = of_config(k)) != NULL; k++) {
			if (name == 0 || option_name(row, name) != NULL)
				add(sb, row, name);
		}
	}
}

static void add_parameter(struct strbuf *sb, const struct option_row *row, size_t name)
{
	strbuf_add_str(sb, "        ");
	add_parameter_name(sb, option_name(row, name));
	strbuf_add_str(sb, ": str = UNSET,\n");
}

static void add_described(struct strbuf *sb, const struct option_row *row, size_t name)
{
	struct strbuf allowed = {0};

	strbuf_add_str(sb, "        ");
	add_parameter_name(sb, option_name(row, name));
	if (name > 0) {
		strbuf_add_str(sb, ": another name of ");
		add_parameter_name(sb, row->name);
	} else {
		option_allowed(row, VERB_NONE, &allowed);
		strbuf_addf(sb, ": %s. %s", row->help, strbuf_str(&allowed));
		if (row->initial != NULL)
			strbuf_addf(sb, "; \"%s\" by default", row->initial);
		strbuf_fini(&allowed);
	}
	strbuf_add_str(sb, "\n");
}

static void add_passed(struct strbuf *sb, const struct option_row *row, size_t name)
{
	strbuf_add_str(sb, "        \"");
	add_parameter_name(sb, option_name(row, name));
	strbuf_add_str(sb, "\": ");
	add_parameter_name(sb, option_name(row, name));
	strbuf_add_str(sb, ",\n");
}

void options_python_config(struct strbuf *sb)
{
	strbuf_add_str(
		sb,
		"# SPDX-License-Identifier: Apache-2.0\n"
		"\"\"\"config(), with a parameter for each option that it takes; written by msmemscope print-python config.\"\"\"\n"
		"from __future__ import annotations\n\n"
		"from typing import NoReturn\n\n"
		"from ._control import UNSET, choose\n\n\n"
		"def config(\n        *,\n");
	each_parameter(sb, add_parameter);
	strbuf_add_str(
		sb,
		"        **unknown: NoReturn) -> None:\n"
		"    \"\"\"Sets the options of the next start().\n\n"
		"    Each argument is a string with the value that the option of this name has on the command line; \"\" switches off. An\n"
		"    option that is not named returns to the value of the command, or to its default; without arguments nothing changes. The\n"
		"    directory and format of the results and the watched memory can be set only before the first start(), and only if no\n"
		"    command has set them.\n\n"
		"    A wrong value or an unknown argument raises ValueError; an argument that is not a string raises TypeError.\n\n");
	each_parameter(sb, add_described);
	strbuf_add_str(sb, "    \"\"\"\n    choose({\n");
	each_parameter(sb, add_passed);
	strbuf_add_str(sb, "        **unknown,\n    })\n");
}
