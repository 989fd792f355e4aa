/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The command line of msmemscope: from argv to typed values, and from the same tables (options.def, verbs.def) to the help,
 * the manual page and the shell completions. Only the command uses this; the collector and the
 * engine know what was asked for from the session (trace/session.h).
 *
 *     msmemscope [OPTION...] PROGRAM [ARGUMENT...]        options end at the first word, which is the program or a verb
 *     msmemscope [OPTION...] -- PROGRAM [ARGUMENT...]     all that follows `--` is the program's, unread
 *     msmemscope VERB [OPTION...] [ARGUMENT...]           options may stand anywhere; `--` ends them
 *     msmemscope --compare --input=BASE,OTHER [OPTION...]  runs nothing
 *
 * Before the program, and with a verb, an option is --name=value, --name value, an abbreviation that fits only one option,
 * or a letter with its value attached or following (-oDIR, -o DIR; -qo DIR). Given twice, the last one counts. Reading stops
 * at help, at version and at the first mistake.
 *
 * After a program without `--` two forms are ours, because manuals print them (`msmemscope ./app --call-stack=c`): an option
 * with a value, its name in full, joined by `=`; and in full a flag that only a launch has (--no-keep-trace). It is taken out of
 * the program's arguments and a notice says so. Everything else there belongs to the program: flags that every command has
 * (--help, --verbose), options that take any text (--run), such an option when we would refuse its value
 * (`train.py --format=png`), and all that follows a `--` of the program's own.
 *
 * Nothing here prints, exits or touches the disk. Not thread-safe on one struct options; no global state.
 */
#ifndef MSCOPE_OPTIONS_OPTIONS_H
#define MSCOPE_OPTIONS_OPTIONS_H

#include <limits.h>
#include <stdbool.h>

#include "base/compiler.h"
#include "base/status.h"
#include "base/strbuf.h"
#include "options/words.h"

enum verb {
	VERB_NONE, /* a launch */
#define VERB(symbol, name, arguments, fewest, most, hidden, help) VERB_##symbol,
#include "options/verbs.def"
#undef VERB
	VERB_COUNT,
};

enum option_id {
#define OPTION(kind, field, ...) OPTION_ID_##field,
#include "options/options.def"
	OPTION_ID_COUNT,
};

/* A bit for each option. */
struct option_bits {
	uint64_t words[(OPTION_ID_COUNT + 63) / 64];
};

#define OPTION_SET_BITS 8

/*
 * Words of a list: bit OPT_x of `mask` for each that was named, its number or the default of that in number[OPT_x]. Of a word
 * that stands for several, number[OPT_x] has a bit for each that was named, or all bits.
 */
struct option_set {
	uint32_t mask;
	uint32_t number[OPTION_SET_BITS];
};

struct option_size {
	uint64_t bytes;	  /* 0 when `percent` holds */
	uint32_t percent; /* of the space that is free, 0 when `bytes` holds */
};

#define OPTION_NUMBERS_MAX 1024

struct option_numbers {
	uint32_t count;
	uint32_t value[OPTION_NUMBERS_MAX]; /* as they were typed, each once */
};

/* --fail-on: what makes a run fail. */
struct option_conditions {
	bool leak, suspect, oom;
	uint64_t leak_bytes;	  /* per step, of one leak at least; 0: no condition */
	uint64_t peak_bytes;	  /* 0: no condition */
	uint64_t requested_bytes; /* asked for at once, 0: no condition */
	uint64_t growth_bytes;	  /* per step, 0: no condition */
	uint64_t full_steps;	  /* until a device is full, 0: no condition */
};

#define OPTION_WATCH_NAME_MAX 254 /* bytes */
#define OPTION_WATCH_ALL      UINT32_MAX

struct option_watch {
	char start[OPTION_WATCH_NAME_MAX + 1]; /* "": none */
	char end[OPTION_WATCH_NAME_MAX + 1];   /* "" when nothing is watched */
	uint32_t output;		       /* of `start`, or OPTION_WATCH_ALL */
	bool full_content;
};

struct option_pair {
	char *path[2]; /* both absolute, or both NULL */
};

#define OPTION_TEXTS_MAX 64

/* An option that may be given many times; each text may be empty. */
struct option_texts {
	uint32_t count;
	char *value[OPTION_TEXTS_MAX];
};

#define OPTION_TYPE_flag       bool
#define OPTION_TYPE_word       int
#define OPTION_TYPE_set	       struct option_set
#define OPTION_TYPE_path       char *
#define OPTION_TYPE_size       struct option_size
#define OPTION_TYPE_number     uint32_t
#define OPTION_TYPE_numbers    struct option_numbers
#define OPTION_TYPE_conditions struct option_conditions
#define OPTION_TYPE_watch      struct option_watch
#define OPTION_TYPE_pair       struct option_pair
#define OPTION_TYPE_text       char *
#define OPTION_TYPE_texts      struct option_texts

/*
 * What the user asked for. Each field of the table holds the given value or the default; an option that does not apply to
 * the verb is zero. `log_level` already accounts for --verbose and --quiet. After --help, --version or --print-prefix only that
 * flag, `verb` and `given` mean something.
 */
struct options {
#define OPTION(kind, field, ...) OPTION_TYPE_##kind field;
#include "options/options.def"
	/* Bit OPTION_ID_x for what the user set; see options_given(). */
	struct option_bits given;
	/* VERB_NONE for a launch. */
	enum verb verb;
	/* --help=all. */
	bool help_all;
	/* Index of the program or verb in the argv that was parsed; 0 if there is none. */
	int word;
	/* A `--` precedes the program. */
	bool after_dashes;
	/* The program, or the verb's name, and its arguments. The array ends with NULL; the strings are borrowed. */
	int argc;
	char **argv;
	/* Lines to show to the user, each with its newline; mostly empty. */
	struct strbuf notices;
};

static inline bool options_given(const struct options *options, enum option_id id)
{
	return (options->given.words[id / 64] >> id % 64 & 1) != 0;
}

static inline bool option_set_has(const struct option_set *set, int bit)
{
	return (set->mask >> bit & 1) != 0;
}

/*
 * Reads a command line. `out` is written only on success and then needs options_fini(); `argv` must outlive it.
 * MSCOPE_E_USAGE: a mistake of the user, described in `err` with the option, the value and what is allowed.
 * -errno: out of memory, or no current directory to make a path absolute.
 */
int options_parse(int argc, char **argv, struct options *out, struct mscope_error *err);

void options_fini(struct options *options);

/*
 * Appends `text` in single quotes as a message shows it: control characters, backslashes and bytes that are not UTF-8 as
 * escapes, long text cut with its length.
 */
void options_quote(struct strbuf *sb, const char *text);

/*
 * The text of `msmemscope --help`, in 80 columns: the common options and the verbs; with `all` every option of a launch. With a
 * verb: all options of that verb.
 */
void options_help(struct strbuf *sb, enum verb verb, bool all);

/* The verb that users can name by this word, VERB_NONE: none. */
enum verb options_verb(const char *word);

/*
 * Appends a guess for a word that is not a program: "did you mean the verb info?", "did you mean --help?". Nothing if no name is
 * similar.
 */
void options_suggest(struct strbuf *sb, const char *word);

/* The manual page msmemscope(1), in roff. */
void options_man(struct strbuf *sb);

/* Completion for bash, needing nothing but bash; uses bash-completion for the program's own arguments when it is there. */
void options_bash(struct strbuf *sb);

/* Its long name, without the dashes. */
const char *options_name(enum option_id id);

/* The table as data of a Python module, for config() of the package. */
void options_python(struct strbuf *sb);

/* The function config() of that package, with a parameter for each option that it takes. */
void options_python_config(struct strbuf *sb);

/* Completion for zsh, to be found as _msmemscope in fpath. */
void options_zsh(struct strbuf *sb);

#endif
