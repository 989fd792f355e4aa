/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The parser: which argument is an option, whose it is, and what the whole line asks for. A refused value leaves its field
 * alone, so trying whether an argument after the program is ours and taking it are the same call. Defaults are
 * values like any other, set once the line is read.
 */
#include "options/options.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/nearest.h"
#include "base/text.h"
#include "options/options_table.h"

const struct option_row option_rows[OPTION_ID_COUNT] = {
#define OPTION(kind_name, field, ...)                                                              \
	[OPTION_ID_##field] = {.kind = OPTION_KIND_##kind_name,                                    \
			       .offset = offsetof(struct options, field),                          \
			       __VA_ARGS__},
#include "options/options.def"
};

static const struct option_word words[] = {
#define WORD(field, symbol, number, text)                                                          \
	{OPTION_ID_##field, OPTION_WORD_PLAIN, OPT_##symbol, text, 0, 0, 0},
#define NUMBERED(field, symbol, number, text, min, max, initial)                                   \
	{OPTION_ID_##field, OPTION_WORD_NUMBERED, OPT_##symbol, text, min, max, initial},
#define EACH(field, symbol, number, text, min, max)                                                \
	{OPTION_ID_##field, OPTION_WORD_EACH, OPT_##symbol, text, min, max, 0},
#define ALSO(field, symbol, text)                                                                  \
	{OPTION_ID_##field, OPTION_WORD_ALSO, OPT_##symbol, text, 0, 0, 0},
#define EACH_ALSO(field, symbol, text, min, max)                                                   \
	{OPTION_ID_##field, OPTION_WORD_EACH_ALSO, OPT_##symbol, text, min, max, 0},
#define NONE(field, text) {OPTION_ID_##field, OPTION_WORD_NONE, 0, text, 0, 0, 0},
#include "options/options.def"
};

const struct verb_row verb_rows[VERB_COUNT] = {
#define VERB(symbol, name, arguments, fewest, most, hidden, help)                                  \
	[VERB_##symbol] = {name, arguments, fewest, most, hidden, help},
#include "options/verbs.def"
#undef VERB
};

const struct option_row *option_next(const struct option_row *row)
{
	row = row == NULL ? option_rows : row + 1;
	return row < option_rows + OPTION_ID_COUNT ? row : NULL;
}

const struct verb_row *verb_next(const struct verb_row *verb)
{
	for (verb = verb == NULL ? verb_rows + 1 : verb + 1; verb < verb_rows + VERB_COUNT;
	     verb++) {
		if (!verb->hidden)
			return verb;
	}
	return NULL;
}

const struct option_word *option_next_word(const struct option_row *row,
					   const struct option_word *word)
{
	for (word = word == NULL ? words : word + 1; word < words + MSCOPE_COUNT(words); word++) {
		if (word->owner == option_id(row))
			return word;
	}
	return NULL;
}

const char *option_name(const struct option_row *row, size_t k)
{
	if (k == 0)
		return row->name;
	return k <= MSCOPE_COUNT(row->aliases) ? row->aliases[k - 1] : NULL;
}

const char *options_name(enum option_id id)
{
	return option_rows[id].name;
}

/* The line asks about the tool itself: nothing else on it is looked at. */
static bool answered(const struct options *o)
{
	return o->help || o->version || o->print_prefix;
}

/* Sets an option to a value; `spelled` is how the message names the option. */
static int assign(struct options *o, const struct option_row *row, const char *spelled,
		  const char *value, struct mscope_error *err)
{
	struct strbuf why = {0};
	int r = option_parse_value(o, row, value, &why);

	if (r == 0) {
		o->given.words[option_id(row) / 64] |= UINT64_C(1) << option_id(row) % 64;
		return 0;
	}
	if (r == MSCOPE_E_USAGE) {
		strbuf_add_str(&why, "; allowed: ");
		option_allowed(row, o->verb, &why);
	}
	(void)error_set(err, r, "%s: %s", spelled, strbuf_str(&why));
	strbuf_fini(&why);
	return r;
}

/* The option that has exactly this long name: of two, the one that applies to the verb, else the first. */
static const struct option_row *find_name(const char *name, size_t length, enum verb verb)
{
	const struct option_row *row = NULL, *first = NULL;
	const char *known;
	size_t k;

	while ((row = option_next(row)) != NULL) {
		for (k = 0; (known = option_name(row, k)) != NULL; k++) {
			if (strncmp(known, name, length) != 0 || known[length] != '\0')
				continue;
			if (option_applies(row, verb))
				return row;
			first = first == NULL ? row : first;
		}
	}
	return first;
}

/* The nearest long name of options that apply to the verb, at VERB_NONE of all. */
static const char *nearest_option(const char *name, size_t length, enum verb verb)
{
	struct nearest nearest = nearest_to(name, length);
	const struct option_row *row = NULL;
	const char *known;
	size_t k;

	while ((row = option_next(row)) != NULL) {
		for (k = 0; (known = option_name(row, k)) != NULL; k++) {
			if (verb == VERB_NONE || option_applies(row, verb))
				nearest_offer(&nearest, known);
		}
	}
	return nearest.best;
}

/* An option that has this word: who types --leaks or --kernel means --analysis=leaks, --level=kernel. */
static const struct option_word *find_word(const char *text, size_t length)
{
	size_t i;

	for (i = 0; i < MSCOPE_COUNT(words); i++) {
		if (strlen(words[i].text) == length && length > 1 &&
		    words[i].kind != OPTION_WORD_NONE && strncmp(words[i].text, text, length) == 0)
			return &words[i];
	}
	return NULL;
}

static int unknown(const struct options *o, const char *argument, struct mscope_error *err)
{
	bool is_long = strncmp(argument, "--", 2) == 0;
	const char *name = argument + 2, *near = NULL;
	size_t length = is_long ? strcspn(name, "=") : 0;
	const struct option_word *word = is_long ? find_word(name, length) : NULL;
	struct strbuf text = {0};

	strbuf_add_str(&text, "unknown option ");
	options_quote(&text, argument);
	if (is_long && word == NULL)
		near = nearest_option(name, length, o->verb);
	if (word != NULL)
		strbuf_addf(&text, "; did you mean --%s=%s?", option_rows[word->owner].name,
			    word->text);
	else if (near != NULL)
		strbuf_addf(&text, "; did you mean --%s?", near);
	(void)error_set(err, MSCOPE_E_USAGE, "%s",
			strbuf_failed(&text) ? "unknown option" : strbuf_str(&text));
	strbuf_fini(&text);
	return MSCOPE_E_USAGE;
}

/* The one option with a long name that starts as `argument` does. Several names of one option, and one name of two, are no ambiguity. */
static int find_abbreviation(const struct options *o, const char *argument, size_t length,
			     const struct option_row **out_row, struct mscope_error *err)
{
	const struct option_row *row = NULL, *found = NULL;
	struct strbuf fitting = {0};
	bool ambiguous = false;
	const char *known;
	size_t k;

	if (length == 0)
		return unknown(o, argument, err);
	while ((row = option_next(row)) != NULL) {
		for (k = 0; (known = option_name(row, k)) != NULL; k++) {
			if (strncmp(known, argument + 2, length) != 0 ||
			    find_name(known, strlen(known), o->verb) != row)
				continue;
			ambiguous = ambiguous || (found != NULL && found != row);
			found = row;
			strbuf_addf(&fitting, " --%s", known);
		}
	}
	if (ambiguous)
		(void)error_set(err, MSCOPE_E_USAGE,
				"%.*s is ambiguous:%s; write one of them in full", (int)length + 2,
				argument, strbuf_str(&fitting));
	strbuf_fini(&fitting);
	if (ambiguous)
		return MSCOPE_E_USAGE;
	if (found == NULL)
		return unknown(o, argument, err);
	*out_row = found;
	return 0;
}

static int take_long(struct options *o, int argc, char **argv, int *at, struct mscope_error *err)
{
	const char *name = argv[*at] + 2;
	size_t length = strcspn(name, "=");
	const char *value = name[length] == '=' ? name + length + 1 : NULL;
	const struct option_row *row = find_name(name, length, o->verb);
	char spelled[40];
	int r;

	if (row == NULL) {
		r = find_abbreviation(o, argv[*at], length, &row, err);
		if (r != 0)
			return r;
		length = strlen(row->name);
		name = row->name;
	}
	(void)snprintf(spelled, sizeof(spelled), "--%.*s", (int)length, name);
	if (row->kind == OPTION_KIND_flag) {
		o->help_all = option_id(row) == OPTION_ID_help && value != NULL &&
			      strcmp(value, "all") == 0;
		if (value != NULL && !o->help_all)
			return error_set(err, MSCOPE_E_USAGE, "%s takes no value", spelled);
		return assign(o, row, spelled, "", err);
	}
	if (value == NULL) {
		if (*at + 1 >= argc)
			return error_set(err, MSCOPE_E_USAGE, "%s needs a value (%s)", spelled,
					 row->value);
		value = argv[++*at];
	}
	return assign(o, row, spelled, value, err);
}

static const struct option_row *find_letter(char letter)
{
	const struct option_row *row = NULL;

	while ((row = option_next(row)) != NULL) {
		if (row->letters != NULL && strchr(row->letters, letter) != NULL)
			return row;
	}
	return NULL;
}

/* One argument of letters: any number of flags, then at most one option with a value, which is the rest or the next word. */
static int take_letters(struct options *o, int argc, char **argv, int *at, struct mscope_error *err)
{
	const char *letter = argv[*at] + 1;
	int r;

	for (; *letter != '\0'; letter++) {
		const struct option_row *row = find_letter(*letter);
		const char spelled[] = {'-', *letter, '\0'};

		if (row == NULL)
			return unknown(o, argv[*at], err);
		if (row->kind != OPTION_KIND_flag) {
			if (letter[1] != '\0')
				return assign(o, row, spelled, letter + 1, err);
			if (*at + 1 >= argc)
				return error_set(err, MSCOPE_E_USAGE, "%s needs a value (%s)",
						 spelled, row->value);
			return assign(o, row, spelled, argv[++*at], err);
		}
		r = assign(o, row, spelled, "", err);
		if (r != 0 || answered(o))
			return r;
	}
	return 0;
}

/* Scripts have `--device=cuda` too, more often than they mean us. */
static bool names_alias(const struct option_row *row, const char *value)
{
	const struct option_word *word = NULL;

	while ((word = option_next_word(row, word)) != NULL) {
		if (word->kind == OPTION_WORD_EACH_ALSO && strstr(value, word->text) != NULL)
			return true;
	}
	return false;
}

/*
 * Whether an argument that follows the program is ours; if so its value is set. Returns 1, 0, or what went wrong. A value that we
 * do not know is the program's own, `train.py --device=tpu`, or a slip in one of ours: only the user can tell. Programs have no
 * --watch of this form; there a wrong value is an error.
 */
static int take_after_program(struct options *o, const char *argument, struct mscope_error *err)
{
	struct mscope_error why = {0};
	const struct option_row *row;
	char spelled[64];
	size_t length;
	int r;

	if (strncmp(argument, "--", 2) != 0)
		return 0;
	length = strcspn(argument + 2, "=");
	row = find_name(argument + 2, length, VERB_NONE);
	if (row == NULL || !option_applies(row, VERB_NONE))
		return 0;
	if (row->kind == OPTION_KIND_text || row->kind == OPTION_KIND_texts)
		return 0; /* --run, --tag: names that programs have too, and any value would fit */
	(void)snprintf(spelled, sizeof(spelled), "%.*s", (int)length + 2, argument);
	if (row->kind == OPTION_KIND_flag) {
		if (argument[2 + length] == '=' || row->scope == ON_ALL)
			return 0; /* a flag of every command is one that programs have too */
		return assign(o, row, spelled, "", &why) == 0;
	}
	if (argument[2 + length] != '=')
		return 0;
	if (names_alias(row, argument + 2 + length + 1)) {
		strbuf_add_str(&o->notices, "passed to the program: ");
		options_quote(&o->notices, argument);
		strbuf_add_str(&o->notices,
			       "; put it before the program to give it to msmemscope\n");
		return 0;
	}
	r = assign(o, row, spelled, argument + 2 + length + 1, &why);
	if (r == 0)
		return 1;
	if (r == -ENOMEM)
		return r;
	if (row->kind == OPTION_KIND_watch)
		return error_set(err, r, "%s", why.message);
	strbuf_addf(&o->notices, "passed to the program: %s\n", why.message);
	return 0;
}

/* Hands the program what is its own; `ended` when a `--` stood before the program and nothing after it is ours. */
static int take_program(struct options *o, int argc, char **argv, bool ended,
			struct mscope_error *err)
{
	struct strbuf ours = {0};
	int r = 0, i, count = 0;

	o->argv[o->argc++] = argv[o->word];
	for (i = o->word + 1; i < argc; i++) {
		ended = ended || strcmp(argv[i], "--") == 0;
		r = ended ? 0 : take_after_program(o, argv[i], err);
		if (r < 0)
			break;
		if (r == 0) {
			o->argv[o->argc++] = argv[i];
		} else {
			strbuf_add_char(&ours, ' ');
			options_quote(&ours, argv[i]);
			count++;
		}
	}
	if (count > 0)
		strbuf_addf(
			&o->notices,
			"taken by msmemscope:%s; to give %s to the program, put -- before the program\n",
			strbuf_str(&ours), count == 1 ? "it" : "them");
	if (r >= 0)
		r = strbuf_failed(&ours) ? -ENOMEM : 0;
	strbuf_fini(&ours);
	return r;
}

static enum verb find_verb(const char *word)
{
	int verb;

	for (verb = VERB_NONE + 1; verb < VERB_COUNT; verb++) {
		if (strcmp(verb_rows[verb].name, word) == 0)
			return (enum verb)verb;
	}
	return VERB_NONE;
}

enum verb options_verb(const char *word)
{
	enum verb verb = find_verb(word);

	return verb_rows[verb].hidden ? VERB_NONE : verb;
}

void options_suggest(struct strbuf *sb, const char *word)
{
	size_t length = strlen(word);
	struct nearest nearest = nearest_to(word, length);
	const struct option_row *row = NULL;
	const struct verb_row *verb = NULL;
	const struct option_word *known = find_word(word, length);

	while ((verb = verb_next(verb)) != NULL)
		nearest_offer(&nearest, verb->name);
	if (nearest.best != NULL) {
		strbuf_addf(sb, "did you mean the verb %s?", nearest.best);
		return;
	}
	if (known != NULL) {
		strbuf_addf(sb, "did you mean --%s=%s?", option_rows[known->owner].name, word);
		return;
	}
	/* Only those that do something by themselves. */
	while ((row = option_next(row)) != NULL) {
		if (row->kind == OPTION_KIND_flag)
			nearest_offer(&nearest, row->name);
	}
	if (nearest.best != NULL)
		strbuf_addf(sb, "did you mean --%s?", nearest.best);
}

/* --help before the verb asks about the verb too. */
static void name_helped(struct options *o, const char *next)
{
	if (o->help && o->verb == VERB_NONE && next != NULL)
		o->verb = options_verb(next);
}

/* `msmemscope run PROGRAM` is `msmemscope PROGRAM`, also for a program with the name of a verb. */
static int scan(struct options *o, int argc, char **argv, struct mscope_error *err)
{
	bool ended = false, run = false;
	int r, i;

	for (i = 1; i < argc; i++) {
		if (!ended && strcmp(argv[i], "--") == 0) {
			ended = true;
		} else if (!ended && argv[i][0] == '-' && argv[i][1] != '\0') {
			if (argv[i][1] == '-')
				r = take_long(o, argc, argv, &i, err);
			else
				r = take_letters(o, argc, argv, &i, err);
			if (r == 0 && answered(o))
				name_helped(o, i + 1 < argc ? argv[i + 1] : NULL);
			if (r != 0 || answered(o))
				return r;
		} else if (o->verb != VERB_NONE) {
			o->argv[o->argc++] = argv[i];
			/* What follows a program is its own. */
			ended = ended || o->verb == VERB_DRYRUN;
		} else if (!ended && !run && strcmp(argv[i], "run") == 0) {
			run = true;
		} else {
			o->word = i;
			o->after_dashes = ended;
			o->verb = ended || run ? VERB_NONE : find_verb(argv[i]);
			if (o->verb == VERB_NONE)
				return take_program(o, argc, argv, ended, err);
			o->argv[o->argc++] = argv[i];
		}
	}
	return 0;
}

/* --compare: two inputs, no verb, and nothing that only means something to a program that runs. */
static int check_compare(const struct options *o, struct mscope_error *err)
{
	const struct option_row *row = NULL;
	struct strbuf path = {0};

	if (o->verb != VERB_NONE)
		return error_set(err, MSCOPE_E_USAGE, "--compare does not apply to the verb %s",
				 verb_rows[o->verb].name);
	if (!options_given(o, OPTION_ID_input_path))
		return error_set(err, MSCOPE_E_USAGE,
				 "--compare needs the two runs to compare: --input=BASE,OTHER");
	if (o->input_path.path[1] == NULL && !options_given(o, OPTION_ID_steps)) {
		options_quote(&path, o->input_path.path[0]);
		(void)error_set(
			err, MSCOPE_E_USAGE,
			"--input-path: %s is not two paths: --input=BASE,OTHER, or two steps of one run: --input=RUN --steps=3,7",
			strbuf_str(&path));
		strbuf_fini(&path);
		return MSCOPE_E_USAGE;
	}
	if (options_given(o, OPTION_ID_steps) &&
	    (o->input_path.path[1] != NULL || o->steps.count != 2))
		return error_set(err, MSCOPE_E_USAGE,
				 "--steps compares two steps of one run: --input=RUN --steps=3,7");
	while ((row = option_next(row)) != NULL) {
		if (options_given(o, option_id(row)) && !(row->scope & ON_COMPARE))
			return error_set(err, MSCOPE_E_USAGE, "--%s does not apply to --compare",
					 row->name);
	}
	return 0;
}

/* A view of another viewer: of a recorded run, and of all of it. */
static int check_view(const struct options *o, struct mscope_error *err)
{
	const struct option_row *row = NULL;
	const struct option_word *word = NULL;

	while ((word = option_next_word(&option_rows[OPTION_ID_format], word)) != NULL &&
	       word->value != o->format)
		;
	if (word == NULL)
		return 0;
	if (o->verb != VERB_EXPORT)
		return error_set(
			err, MSCOPE_E_USAGE,
			"--format=%s is for recorded runs: msmemscope export --format=%s RUN; a launch writes csv, db or parquet",
			word->text, word->text);
	while ((row = option_next(row)) != NULL) {
		if (options_given(o, option_id(row)) && row != &option_rows[OPTION_ID_format] &&
		    (row->scope & ON_LAUNCH) != 0 && (row->scope & ON_VERBS) != ON_VERBS &&
		    option_id(row) != OPTION_ID_output_path)
			return error_set(
				err, MSCOPE_E_USAGE,
				"--%s does not apply to --format=%s, which shows all of a run",
				row->name, word->text);
	}
	return 0;
}

/* The rules that need the whole line: is there something to do, and does each option belong to it. */
static int check(const struct options *o, struct mscope_error *err)
{
	const struct verb_row *verb = &verb_rows[o->verb];
	const struct option_row *row = NULL;

	if (o->compare)
		return check_compare(o, err);
	if (options_given(o, OPTION_ID_input_path))
		return error_set(err, MSCOPE_E_USAGE, "--input needs --compare");
	if (o->word == 0)
		return error_set(err, MSCOPE_E_USAGE, "no program to run; see msmemscope --help");
	while ((row = option_next(row)) != NULL) {
		if (!options_given(o, option_id(row)) || option_applies(row, o->verb))
			continue;
		if (o->verb == VERB_NONE)
			return error_set(err, MSCOPE_E_USAGE,
					 "--%s is for verbs, not for launching a program",
					 row->name);
		return error_set(
			err, MSCOPE_E_USAGE,
			"--%s does not apply to the verb %s; to run a program of that name, put -- before it",
			row->name, verb->name);
	}
	if (o->verb == VERB_EXPORT && options_given(o, OPTION_ID_format) &&
	    o->format == OPT_FORMAT_NONE)
		return error_set(err, MSCOPE_E_USAGE,
				 "--format=none is for launches; export writes files");
	if (options_given(o, OPTION_ID_format) && o->format >= VIEW_FIRST &&
	    check_view(o, err) != 0)
		return MSCOPE_E_USAGE;
	if (o->verb != VERB_NONE && o->argc - 1 < verb->fewest)
		return error_set(err, MSCOPE_E_USAGE, "the verb %s needs %s", verb->name,
				 verb->arguments);
	if (o->verb != VERB_NONE && o->argc - 1 > verb->most)
		return error_set(err, MSCOPE_E_USAGE, "the verb %s has too many arguments",
				 verb->name);
	return 0;
}

/* Whether the command was called by the name it had before. */
static bool is_msleaks(const char *command)
{
	return strcmp(text_base_name(command), "msleaks") == 0;
}

static int apply_defaults(struct options *o, bool as_msleaks, struct mscope_error *err)
{
	const struct option_row *row = NULL;
	struct option_bits given = o->given;
	const char *value;
	char spelled[40];
	int r;

	while ((row = option_next(row)) != NULL) {
		if (options_given(o, option_id(row)) || row->initial == NULL ||
		    !(o->compare ? (row->scope & ON_COMPARE) != 0 : option_applies(row, o->verb)))
			continue;
		(void)snprintf(spelled, sizeof(spelled), "--%s", row->name);
		value = as_msleaks && row->as_msleaks != NULL ? row->as_msleaks : row->initial;
		r = assign(o, row, spelled, value, err);
		if (r != 0)
			return r;
	}
	o->given = given;
	if (!options_given(o, OPTION_ID_log_level)) {
		if (o->verbose)
			o->log_level = OPT_LOG_DEBUG;
		else if (o->quiet)
			o->log_level = OPT_LOG_ERROR;
	}
	return 0;
}

int options_parse(int argc, char **argv, struct options *out, struct mscope_error *err)
{
	struct options o = {0};
	int r;

	o.argv = calloc((size_t)argc + 1, sizeof(*o.argv));
	r = o.argv == NULL ? -ENOMEM : scan(&o, argc, argv, err);
	if (r == 0 && !answered(&o)) {
		r = check(&o, err);
		if (r == 0)
			r = apply_defaults(&o, is_msleaks(argv[0]), err);
	}
	if (r == 0 && strbuf_failed(&o.notices))
		r = -ENOMEM;
	if (r == -ENOMEM)
		(void)error_set(err, r, "%s", mscope_status_str(r));
	if (r == 0)
		*out = o;
	else
		options_fini(&o);
	return r;
}

void options_fini(struct options *options)
{
	const struct option_row *row = NULL;
	struct option_pair *pair;

	while ((row = option_next(row)) != NULL) {
		if (row->kind == OPTION_KIND_path || row->kind == OPTION_KIND_text)
			free(*(char **)(void *)((char *)options + row->offset));
		if (row->kind == OPTION_KIND_pair) {
			pair = (void *)((char *)options + row->offset);
			free(pair->path[0]);
			free(pair->path[1]);
		}
		if (row->kind == OPTION_KIND_texts) {
			struct option_texts *texts = (void *)((char *)options + row->offset);

			while (texts->count > 0)
				free(texts->value[--texts->count]);
		}
	}
	free(options->argv);
	strbuf_fini(&options->notices);
	*options = (struct options){0};
}
