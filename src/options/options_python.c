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
	[OPTION_KIND_text] = "text",
};

static const char *const word_kinds[] = {
	[OPTION_WORD_PLAIN] = "plain", [OPTION_WORD_NUMBERED] = "numbered",
	[OPTION_WORD_EACH] = "each",   [OPTION_WORD_ALSO] = "plain",
	[OPTION_WORD_NONE] = "none",
};

static void add_row(struct strbuf *sb, const struct option_row *row)
{
	const struct option_word *word = NULL;
	struct strbuf allowed = {0};

	option_allowed(row, &allowed);
	strbuf_addf(sb, "    \"%s\": Option(\"%s\", \"%s\", %s, \"%s\", {", row->name, row->name,
		    kinds[row->kind], row->may_be_empty ? "True" : "False", strbuf_str(&allowed));
	while ((word = option_next_word(row, word)) != NULL)
		strbuf_addf(sb, "\n        b\"%s\": Word(\"%s\", %d, %u, %u, %u),", word->text,
			    word_kinds[word->kind], word->value, word->min, word->max,
			    word->initial);
	strbuf_addf(sb, "}, %s%s%s),\n", row->initial != NULL ? "\"" : "",
		    row->initial != NULL ? row->initial : "None", row->initial != NULL ? "\"" : "");
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

	strbuf_add_str(sb, "# SPDX-License-Identifier: Apache-2.0\n"
			   "\"\"\"What the options of the command take; written by msmemscope "
			   "print-python.\"\"\"\n"
			   "from collections import namedtuple\n\n"
			   "Option = namedtuple(\"Option\", \"name kind may_be_empty allowed words "
			   "initial\")\n"
			   "Word = namedtuple(\"Word\", \"kind value min max initial\")\n\n");
	strbuf_addf(sb,
		    "PATH_MAX, PATH_NAME_MAX, PATH_DEPTH = %d, %d, %d\nWATCH_NAME_MAX = %d\n\n"
		    "OPTIONS = {\n",
		    OPTION_PATH_MAX, OPTION_PATH_NAME_MAX, OPTION_PATH_DEPTH,
		    OPTION_WATCH_NAME_MAX);
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
