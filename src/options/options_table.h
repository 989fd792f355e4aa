/* SPDX-License-Identifier: Apache-2.0 */
/*
 * options.def and verbs.def as arrays, shared by the parser (options.c), the kinds of values
 * (options_value.c) and what is written about options (options_text.c). Private to these three.
 */
#ifndef MSCOPE_OPTIONS_OPTIONS_TABLE_H
#define MSCOPE_OPTIONS_OPTIONS_TABLE_H

#include "options/options.h"

/* Bits of option_row.scope. */
#define ON(verb) (1u << VERB_##verb)
/* An engine of the API is a launch without a program. */
#define ON_LAUNCH (ON(NONE) | ON(API_ENGINE) | ON(ATTACH))
#define ON_COMPARE                                                                                 \
	(1u << VERB_COUNT) /* --compare is not a verb, but like a verb it runs no program */
#define ON_ALL	 ((1u << (VERB_COUNT + 1)) - 1)
#define ON_VERBS (ON_ALL & ~ON_LAUNCH)

#define OPTION_TEXT_MAX	     4096 /* bytes */
#define OPTION_PATH_MAX	     4096 /* bytes */
#define OPTION_PATH_NAME_MAX 255  /* bytes between two slashes */
#define OPTION_PATH_DEPTH    32	  /* slashes once absolute */

enum option_kind {
	OPTION_KIND_flag,
	OPTION_KIND_word,
	OPTION_KIND_set,
	OPTION_KIND_path,
	OPTION_KIND_size,
	OPTION_KIND_number,
	OPTION_KIND_numbers,
	OPTION_KIND_conditions,
	OPTION_KIND_watch,
	OPTION_KIND_pair,
	OPTION_KIND_text,
	OPTION_KIND_texts,
};

/* One entry of options.def, whose opening comment explains the fields. */
struct option_row {
	const char *name;
	const char *aliases[3];
	const char *letters;
	const char *group;
	const char *value;
	const char *initial;
	const char *as_msleaks;
	const char *help;
	const char *more;
	uint64_t min, max;
	uint32_t scope;
	uint8_t config;
	bool may_be_empty;
	bool common;
	enum option_kind kind;
	size_t offset; /* of the field in struct options */
};

enum option_word_kind {
	OPTION_WORD_PLAIN,
	OPTION_WORD_NUMBERED,
	OPTION_WORD_EACH,
	OPTION_WORD_ALSO,
	OPTION_WORD_EACH_ALSO,
	OPTION_WORD_NONE,
};

/* One word that an option accepts. */
struct option_word {
	enum option_id owner;
	enum option_word_kind kind;
	int value;
	const char *text;
	uint32_t min, max, initial; /* of the number it carries */
};

struct verb_row {
	const char *name;
	const char *arguments;
	int fewest, most;
	bool hidden;
	const char *help;
};

extern const struct option_row option_rows[OPTION_ID_COUNT];
extern const struct verb_row verb_rows[VERB_COUNT]; /* the first, VERB_NONE, is empty */

/* Each steps through a table: start with NULL; NULL at the end. Hidden verbs are left out. */
const struct option_row *option_next(const struct option_row *row);
const struct option_word *option_next_word(const struct option_row *row,
					   const struct option_word *word);
const struct verb_row *verb_next(const struct verb_row *verb);

static inline enum option_id option_id(const struct option_row *row)
{
	return (enum option_id)(row - option_rows);
}

/* Whether a colon and a number may follow the word. */
static inline bool option_word_has_number(const struct option_word *word)
{
	return word->kind == OPTION_WORD_NUMBERED || word->kind == OPTION_WORD_EACH ||
	       word->kind == OPTION_WORD_EACH_ALSO;
}

/* Another spelling; help and messages do not show it. */
static inline bool option_word_is_alias(const struct option_word *word)
{
	return word->kind == OPTION_WORD_ALSO || word->kind == OPTION_WORD_EACH_ALSO;
}

static inline bool option_applies(const struct option_row *row, enum verb verb)
{
	return (row->scope >> verb & 1) != 0;
}

/* Words of --format that only the verb export takes; its manual names them. */
static inline bool option_word_is_view(const struct option_word *word)
{
	return word->owner == OPTION_ID_format && word->value >= VIEW_FIRST;
}

/* The word of --format that export does not take. */
static inline bool option_word_is_no_form(const struct option_word *word)
{
	return word->owner == OPTION_ID_format && word->value == OPT_FORMAT_NONE;
}

/* Whether the help without a verb lists it: it is for a launch, or for --compare alone. */
static inline bool option_stands_alone(const struct option_row *row)
{
	return (row->scope & ON_LAUNCH) != 0 || row->scope == ON_COMPARE;
}

/* Its k-th long name, the canonical one first; NULL past the last. */
const char *option_name(const struct option_row *row, size_t k);

/*
 * Sets the option's field from text. On failure nothing has changed: MSCOPE_E_USAGE with the part of the value that is wrong
 * and the fault appended to `why`, or -errno.
 */
int option_parse_value(struct options *o, const struct option_row *row, const char *value,
		       struct strbuf *why);

/* Appends what the option of this verb takes, such as "immediate, deferred", as messages, help and manual page say it. */
void option_allowed(const struct option_row *row, enum verb verb, struct strbuf *sb);

#endif
