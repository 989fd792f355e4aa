/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is written about the options: help, manual page, completions for bash and zsh. All of it walks the tables; only the
 * sentences around them are in this file. The tables are plain ASCII, so a byte is a column.
 */
#include "options/options.h"

#include <string.h>

#include "options/options_table.h"

#define HELP_COLUMNS 80
#define HELP_INDENT  28 /* where the descriptions start */

static const char summary[] =
	"Records the memory of PROGRAM: NPUs, GPUs and CPU tensors of PyTorch.";

/* Whether the option is the first of its group. */
static bool opens_group(const struct option_row *row)
{
	return row == option_rows || strcmp(row->group, row[-1].group) != 0;
}

static bool has_words(const struct option_row *row)
{
	return row->kind == OPTION_KIND_word || row->kind == OPTION_KIND_set;
}

/*
 * Help and manual page describe an option alike: purpose, words, default. For a verb, the options of the recorded launch are the
 * default, so none is shown.
 */
static void add_description(struct strbuf *sb, const struct option_row *row, enum verb verb)
{
	strbuf_add_str(sb, row->help);
	if (has_words(row)) {
		strbuf_add_str(sb, ": ");
		option_allowed(row, verb, sb);
	}
	if (row->initial != NULL &&
	    (verb == VERB_NONE || row->scope == ON_ALL || !option_applies(row, VERB_NONE)))
		strbuf_addf(sb, " (default: %s)", row->initial);
}

static size_t new_line(struct strbuf *sb)
{
	strbuf_addf(sb, "\n%*s", HELP_INDENT, "");
	return HELP_INDENT;
}

/* Appends words up to the right margin, all of them indented; `column` is the current column of the output. */
static void add_wrapped(struct strbuf *sb, const char *text, size_t column)
{
	if (column >= HELP_INDENT)
		(void)new_line(sb);
	else
		strbuf_addf(sb, "%*s", (int)(HELP_INDENT - column), "");
	column = HELP_INDENT;
	while (*text != '\0') {
		size_t length = strcspn(text, " ");

		if (column > HELP_INDENT && column + 1 + length > HELP_COLUMNS) {
			column = new_line(sb);
		} else if (column > HELP_INDENT) {
			strbuf_add_char(sb, ' ');
			column++;
		}
		strbuf_add(sb, text, length);
		column += length;
		text += length;
		text += *text == ' ';
	}
	strbuf_add_char(sb, '\n');
}

static void add_help_option(struct strbuf *sb, const struct option_row *row, enum verb verb)
{
	size_t start = sb->length;
	struct strbuf description = {0};

	if (row->letters != NULL)
		strbuf_addf(sb, "  -%c, --%s", row->letters[0], row->name);
	else
		strbuf_addf(sb, "      --%s", row->name);
	if (row->value != NULL)
		strbuf_addf(sb, "=%s", row->value);
	add_description(&description, row, verb);
	add_wrapped(sb, strbuf_str(&description), sb->length - start);
	strbuf_fini(&description);
}

/* The common options of a launch. */
static void add_common_options(struct strbuf *sb)
{
	const struct option_row *row = NULL;

	strbuf_add_str(sb, "\nCommon options (all options: msmemscope --help=all):\n");
	while ((row = option_next(row)) != NULL) {
		if (row->common)
			add_help_option(sb, row, VERB_NONE);
	}
}

/* The options that a verb takes, or a launch, under the headings of their groups. */
static void add_help_options(struct strbuf *sb, enum verb verb)
{
	const struct option_row *row = NULL;
	const char *group = "";

	while ((row = option_next(row)) != NULL) {
		if (verb == VERB_NONE ? !option_stands_alone(row) : !option_applies(row, verb))
			continue;
		if (strcmp(row->group, group) != 0)
			strbuf_addf(sb, "\n%s:\n", row->group);
		group = row->group;
		add_help_option(sb, row, verb);
	}
}

static void add_verb_help(struct strbuf *sb, const struct verb_row *verb)
{
	struct strbuf sentence = {0};

	strbuf_addf(sb, "Usage: msmemscope %s [OPTION...]%s%s\n", verb->name,
		    verb->arguments[0] != '\0' ? " " : "", verb->arguments);
	strbuf_add_char(&sentence, (char)(verb->help[0] >= 'a' && verb->help[0] <= 'z'
						  ? verb->help[0] - 'a' + 'A'
						  : verb->help[0]));
	strbuf_addf(&sentence, "%s.\n", verb->help + 1);
	strbuf_add_str(sb, strbuf_str(&sentence));
	strbuf_fini(&sentence);
	add_help_options(sb, (enum verb)(verb - verb_rows));
	strbuf_add_str(sb, "\nManual: man msmemscope. Other verbs: msmemscope --help.\n");
}

static const char examples[] =
	"\nExamples:\n"
	"  msmemscope -- python train.py                     find leaks on an NPU or GPU\n"
	"  msmemscope --device=cpu -- python train.py        find leaks of CPU tensors\n"
	"  msmemscope info memscopeDumpResults/msmemscope_*  show all findings\n";

void options_help(struct strbuf *sb, enum verb about, bool all)
{
	const struct verb_row *verb = NULL;
	size_t start;

	if (about != VERB_NONE) {
		add_verb_help(sb, &verb_rows[about]);
		return;
	}
	strbuf_addf(sb,
		    "Usage: msmemscope [run] [OPTION...] PROGRAM [ARGUMENT...]\n"
		    "       msmemscope [OPTION...] -- PROGRAM [ARGUMENT...]\n"
		    "       msmemscope --compare -i BASE,OTHER [OPTION...]\n"
		    "       msmemscope VERB [OPTION...] [ARGUMENT...]\n"
		    "%s\n",
		    summary);
	if (all)
		add_help_options(sb, VERB_NONE);
	else
		add_common_options(sb);
	strbuf_add_str(sb, "\nVerbs (options of a verb: msmemscope VERB --help):\n");
	while ((verb = verb_next(verb)) != NULL) {
		start = sb->length;
		strbuf_addf(sb, "  %s %s", verb->name, verb->arguments);
		add_wrapped(sb, verb->help, sb->length - start);
	}
	strbuf_add_str(
		sb,
		"\nExit status: the program's own; 1 failed, 2 usage, 3 damaged input, 4 --fail-on.\n"
		"Manual: man msmemscope.\n");
	strbuf_add_str(sb, examples);
}

/* Text for roff: hyphens that are typed, backslashes, and no line that looks like a request. */
static void add_roff(struct strbuf *sb, const char *text)
{
	if (*text == '.' || *text == '\'')
		strbuf_add_str(sb, "\\&");
	for (; *text != '\0'; text++) {
		if (*text == '-')
			strbuf_add_str(sb, "\\-");
		else if (*text == '\\')
			strbuf_add_str(sb, "\\e");
		else
			strbuf_add_char(sb, *text);
	}
}

/* A line of the help as a sentence of the manual page. */
static void add_sentence(struct strbuf *sb, const char *text)
{
	strbuf_add_char(sb, (char)(*text >= 'a' && *text <= 'z' ? *text - 'a' + 'A' : *text));
	add_roff(sb, text + 1);
	strbuf_add_str(sb, ".\n");
}

static void add_roff_option(struct strbuf *sb, const struct option_row *row)
{
	struct strbuf text = {0};
	const char *letter, *name;
	size_t k;

	strbuf_add_str(sb, ".TP\n");
	for (letter = row->letters; letter != NULL && *letter != '\0'; letter++) {
		strbuf_addf(sb, "\\fB\\-%c\\fR", *letter);
		if (row->value != NULL)
			strbuf_addf(sb, " \\fI%s\\fR", row->value);
		strbuf_add_str(sb, ", ");
	}
	for (k = 0; (name = option_name(row, k)) != NULL; k++) {
		strbuf_add_str(sb, k == 0 ? "\\fB" : ", \\fB");
		add_roff(sb, "--");
		add_roff(sb, name);
		strbuf_add_str(sb, "\\fR");
		if (row->value != NULL)
			strbuf_addf(sb, "=\\fI%s\\fR", row->value);
	}
	strbuf_add_char(sb, '\n');
	add_description(&text, row, VERB_NONE);
	add_sentence(sb, strbuf_str(&text));
	if (row->kind != OPTION_KIND_flag && !has_words(row)) {
		strbuf_reset(&text);
		option_allowed(row, VERB_NONE, &text);
		strbuf_add_str(sb, "Allowed: ");
		add_roff(sb, strbuf_str(&text));
		strbuf_add_str(sb, ".\n");
	}
	if (row->more != NULL) {
		add_roff(sb, row->more);
		strbuf_add_char(sb, '\n');
	}
	strbuf_fini(&text);
}

/* The manual page before and after the sentence that `summary` is. */
static const char man_synopsis[] =
	".TH MSMEMSCOPE 1 \"\" \"msmemscope\" \"User Commands\"\n"
	".SH NAME\n"
	"msmemscope \\- record and analyse the memory of AI accelerators\n"
	".SH SYNOPSIS\n"
	".B msmemscope\n"
	"[\\fIOPTION\\fR...] \\fIPROGRAM\\fR [\\fIARGUMENT\\fR...]\n"
	".br\n"
	".B msmemscope\n"
	"[\\fIOPTION\\fR...] \\fB\\-\\-\\fR \\fIPROGRAM\\fR [\\fIARGUMENT\\fR...]\n"
	".br\n"
	".B msmemscope\n"
	"\\fB\\-\\-compare\\fR \\fB\\-\\-input=\\fIBASE\\fR,\\fIOTHER\\fR [\\fIOPTION\\fR...]\n"
	".br\n"
	".B msmemscope\n"
	"\\fIVERB\\fR [\\fIOPTION\\fR...] [\\fIARGUMENT\\fR...]\n"
	".SH DESCRIPTION\n";
static const char man_description[] =
	"Processes that the program starts are recorded too.\n"
	"The standard output is the program's own; msmemscope writes its messages and its report to the standard error.\n"
	".PP\n"
	"Options come before the program. A long name may be shortened as long as it is unambiguous, and a value may follow as the next word.\n"
	"If an option is given twice, the last one counts.\n"
	"Half\\-width or full\\-width commas separate the items of a list.\n"
	".PP\n"
	"Without \\fB\\-\\-\\fR, msmemscope also takes options after the program, if they are written in full with a value and an equals sign, and says so.\n"
	"All other words after the program belong to the program, also such an option with a value that msmemscope does not allow; only a wrong value of \\fB\\-\\-watch\\fR is an error.\n"
	"With \\fB\\-\\-\\fR before the program, all words after it belong to the program.\n"
	".PP\n"
	"Only the first word can be a verb. To run a program that has the name of a verb, write a path or put \\fB\\-\\-\\fR before it.\n"
	".SH OPTIONS\n";

static void add_man_end(struct strbuf *sb)
{
	strbuf_addf(
		sb,
		".SH EXIT STATUS\n"
		"The exit status of the program. If a signal killed the program, msmemscope dies by the same signal.\n"
		"msmemscope itself uses:\n"
		".TP\n%d\nmsmemscope failed.\n"
		".TP\n%d\nThe command line is wrong; nothing was started.\n"
		".TP\n%d\nA verb or \\-\\-compare answered from a damaged or incomplete input.\n"
		".TP\n%d\nA condition of \\-\\-fail\\-on holds, or a limit of \\-\\-budget was exceeded.\n"
		".TP\n%d\nThe program cannot be executed.\n"
		".TP\n%d\nThe program was not found.\n"
		".SH ENVIRONMENT\n"
		".TP\n.B MSMEMSCOPE_DISABLE\nIf 1, nothing is recorded.\n"
		".SH EXAMPLES\n"
		".nf\n"
		"msmemscope bash train.sh\n"
		"msmemscope \\-o results \\-\\-call\\-stack=c:20,python:10 \\-\\- python train.py \\-\\-format=png\n"
		"msmemscope recover results\n"
		"msmemscope \\-\\-compare \\-\\-input=monday,tuesday \\-\\-level=kernel\n"
		".fi\n",
		MSCOPE_EXIT_FAILED, MSCOPE_EXIT_USAGE, MSCOPE_EXIT_DAMAGED, MSCOPE_EXIT_CONDITION,
		MSCOPE_EXIT_NOT_EXECUTABLE, MSCOPE_EXIT_NOT_FOUND);
}

void options_man(struct strbuf *sb)
{
	const struct option_row *row = NULL;
	const struct verb_row *verb = NULL;

	strbuf_addf(sb, "%s%s\n%s", man_synopsis, summary, man_description);
	while ((row = option_next(row)) != NULL) {
		if (opens_group(row))
			strbuf_addf(sb, ".SS %s\n", row->group);
		add_roff_option(sb, row);
	}
	strbuf_add_str(sb, ".SH VERBS\n");
	while ((verb = verb_next(verb)) != NULL) {
		strbuf_addf(sb, ".TP\n\\fB%s\\fR \\fI%s\\fR\n", verb->name, verb->arguments);
		add_sentence(sb, verb->help);
	}
	add_man_end(sb);
}

/* Appends every spelling of an option, with a mark at the end if a value belongs to it. */
static void add_spellings(struct strbuf *sb, const struct option_row *row, const char *between,
			  const char *letter_mark, const char *name_mark)
{
	const char *letter, *name, *before = "";
	size_t k;

	for (letter = row->letters; letter != NULL && *letter != '\0'; letter++) {
		strbuf_addf(sb, "%s-%c%s", before, *letter, row->value == NULL ? "" : letter_mark);
		before = between;
	}
	for (k = 0; (name = option_name(row, k)) != NULL; k++) {
		strbuf_addf(sb, "%s--%s%s", before, name, row->value == NULL ? "" : name_mark);
		before = between;
	}
}

static void add_words(struct strbuf *sb, const struct option_row *row)
{
	const struct option_word *word = NULL;
	const char *between = "";

	while ((word = option_next_word(row, word)) != NULL) {
		if (option_word_is_alias(word))
			continue;
		strbuf_addf(sb, "%s%s", between, word->text);
		between = " ";
	}
}

static bool takes_directories(const struct verb_row *verb)
{
	return strncmp(verb->arguments, "DIR", 3) == 0;
}

/* Canonical names only; old names would be noise. */
static void add_bash_options(struct strbuf *sb, const char *label, enum verb verb)
{
	const struct option_row *row = NULL;
	const char *between = "";

	strbuf_addf(sb, "\t%s) options=\"", label);
	while ((row = option_next(row)) != NULL) {
		if (!(verb == VERB_NONE ? option_stands_alone(row) : option_applies(row, verb)))
			continue;
		strbuf_addf(sb, "%s--%s%s", between, row->name, row->value == NULL ? "" : "=");
		between = " ";
	}
	strbuf_add_str(sb, "\" ;;\n");
}

/* Whether an earlier option has its name too. */
static bool shares_name(const struct option_row *row)
{
	const struct option_row *other = NULL;

	while ((other = option_next(other)) != row) {
		if (strcmp(other->name, row->name) == 0)
			return true;
	}
	return false;
}

/* What completes a value, as a command of bash. */
static void add_bash_command(struct strbuf *sb, const struct option_row *row)
{
	if (has_words(row)) {
		strbuf_add_str(sb, row->kind == OPTION_KIND_set ? "_msmemscope_list \""
								: "_msmemscope_words \"");
		add_words(sb, row);
		strbuf_add_str(sb, "\" \"$2\"");
	} else if (row->kind == OPTION_KIND_path) {
		strbuf_add_str(sb, "_msmemscope_directories \"$2\"");
	} else if (row->kind == OPTION_KIND_pair) {
		strbuf_add_str(sb, "_msmemscope_pair \"$2\"");
	} else {
		strbuf_add_char(sb, ':');
	}
}

static void add_bash_value(struct strbuf *sb, const struct option_row *row)
{
	strbuf_add_char(sb, '\t');
	add_spellings(sb, row, "|", "", "");
	strbuf_add_str(sb, ") ");
	add_bash_command(sb, row);
	strbuf_add_str(sb, " ;;\n");
}

/* Of a name that an earlier option has: what it means to its verbs. */
static void add_bash_shared_value(struct strbuf *sb, const struct option_row *row)
{
	const struct verb_row *verb = NULL;

	while ((verb = verb_next(verb)) != NULL) {
		if (!option_applies(row, (enum verb)(verb - verb_rows)))
			continue;
		strbuf_addf(sb, "\t%s--%s) ", verb->name, row->name);
		add_bash_command(sb, row);
		strbuf_add_str(sb, "; return ;;\n");
	}
}

/* The bash script around what comes from the tables, piece by piece. First: functions for one value; a case for each option follows. */
static const char bash_values[] =
	"# SPDX-License-Identifier: Apache-2.0\n"
	"# bash completion of msmemscope; written by msmemscope print-completion bash\n"
	"\n"
	"_msmemscope_words()\n"
	"{\n"
	"\tCOMPREPLY=($(compgen -W \"$1\" -- \"$2\"))\n"
	"}\n"
	"\n"
	"_msmemscope_list()\n"
	"{\n"
	"\tlocal head=\n"
	"\t[[ $2 == *,* ]] && head=${2%,*},\n"
	"\tCOMPREPLY=($(compgen -P \"$head\" -W \"$1\" -- \"${2##*,}\"))\n"
	"\tcompopt -o nospace\n"
	"}\n"
	"\n"
	"_msmemscope_directories()\n"
	"{\n"
	"\tcompopt -o filenames\n"
	"\tmapfile -t COMPREPLY < <(compgen -d -- \"$1\")\n"
	"}\n"
	"\n"
	"_msmemscope_files()\n"
	"{\n"
	"\tcompopt -o filenames\n"
	"\tmapfile -t COMPREPLY < <(compgen -f -- \"$1\")\n"
	"}\n"
	"\n"
	"# Two files or directories with a comma between; a space would end the option.\n"
	"_msmemscope_pair()\n"
	"{\n"
	"\tlocal head=\n"
	"\t[[ $1 == *,* ]] && head=${1%,*},\n"
	"\tmapfile -t COMPREPLY < <(compgen -P \"$head\" -f -- \"${1##*,}\")\n"
	"\tcompopt -o filenames -o nospace\n"
	"}\n"
	"\n"
	"# The value $2 of option $1, where verb $3, or no word yet, was read.\n"
	"_msmemscope_value()\n"
	"{\n"
	"\tcase $3$1 in\n";

/* Names of options; a case for each verb follows. */
static const char bash_options[] = "\tesac\n"
				   "}\n"
				   "\n"
				   "# The names of the options of verb $1, or of a launch.\n"
				   "_msmemscope_options()\n"
				   "{\n"
				   "\tlocal options\n"
				   "\tcase $1 in\n";

/* The completion itself: it walks the words before the current one. A pattern of options with a value follows. */
static const char bash_words[] =
	"\tesac\n"
	"\t_msmemscope_words \"$options\" \"$2\"\n"
	"\t[[ ${COMPREPLY[0]} == *= ]] && compopt -o nospace\n"
	"}\n"
	"\n"
	"# Readline splits --name=value at the equals sign into three words.\n"
	"_msmemscope()\n"
	"{\n"
	"\tlocal current=${COMP_WORDS[COMP_CWORD]} verb= ended= i word\n"
	"\tCOMPREPLY=()\n"
	"\tfor ((i = 1; i < COMP_CWORD; i++)); do\n"
	"\t\tword=${COMP_WORDS[i]}\n"
	"\t\tcase $ended$word in\n"
	"\t\t--) ended=/ ;;\n"
	"\t\t";

/* What it does with such an option. A pattern of verbs follows. */
static const char bash_word_option[] =
	")\n"
	"\t\t\t[[ ${COMP_WORDS[i + 1]} == = ]] && ((i++))\n"
	"\t\t\tif ((++i >= COMP_CWORD)); then\n"
	"\t\t\t\t_msmemscope_value \"$word\" \"${current#=}\" \"$verb\"\n"
	"\t\t\t\treturn\n"
	"\t\t\tfi ;;\n"
	"\t\t-?*) ;;\n"
	"\t\t";

/* What it does with a verb, and with the program, whose words have a completion of their own. A list of verbs follows. */
static const char bash_word_program[] =
	") verb=${verb:-$word} ;;\n"
	"\t\t*)\n"
	"\t\t\t[[ $verb ]] && continue\n"
	"\t\t\tif declare -F _command_offset >/dev/null; then\n"
	"\t\t\t\t_command_offset \"$i\"\n"
	"\t\t\telse\n"
	"\t\t\t\t_msmemscope_files \"$current\"\n"
	"\t\t\tfi\n"
	"\t\t\treturn ;;\n"
	"\t\tesac\n"
	"\tdone\n"
	"\tif [[ $current == -* && ! $ended ]]; then\n"
	"\t\t_msmemscope_options \"$verb\" \"$current\"\n"
	"\t\treturn\n"
	"\tfi\n"
	"\tcase $verb in\n"
	"\t'')\n"
	"\t\tcompopt -o filenames\n"
	"\t\tmapfile -t COMPREPLY < <(compgen -c -- \"$current\"; compgen -f -- \"$current\")\n"
	"\t\t[[ $ended ]] || COMPREPLY+=($(compgen -W \"";

static void add_verb_names(struct strbuf *sb, const char *between)
{
	const struct verb_row *verb = NULL;
	const char *before = "";

	while ((verb = verb_next(verb)) != NULL) {
		strbuf_addf(sb, "%s%s", before, verb->name);
		before = between;
	}
}

static void add_bash_values(struct strbuf *sb)
{
	const struct option_row *row = NULL;

	strbuf_add_str(sb, bash_values);
	while ((row = option_next(row)) != NULL) {
		if (row->value != NULL && shares_name(row))
			add_bash_shared_value(sb, row);
	}
	strbuf_add_str(sb, "\tesac\n"
			   "\tcase $1 in\n");
	while ((row = option_next(row)) != NULL) {
		if (row->value != NULL && !shares_name(row))
			add_bash_value(sb, row);
	}
}

/* Options with a value, as a pattern of bash. */
static void add_bash_takers(struct strbuf *sb)
{
	const struct option_row *row = NULL;
	const char *between = "";

	while ((row = option_next(row)) != NULL) {
		if (row->value == NULL || shares_name(row))
			continue;
		strbuf_add_str(sb, between);
		add_spellings(sb, row, "|", "", "");
		between = "|";
	}
}

void options_bash(struct strbuf *sb)
{
	const struct verb_row *verb = NULL;

	add_bash_values(sb);
	strbuf_add_str(sb, bash_options);
	while ((verb = verb_next(verb)) != NULL)
		add_bash_options(sb, verb->name, (enum verb)(verb - verb_rows));
	add_bash_options(sb, "*", VERB_NONE);
	strbuf_add_str(sb, bash_words);
	add_bash_takers(sb);
	strbuf_add_str(sb, bash_word_option);
	add_verb_names(sb, "|");
	strbuf_add_str(sb, bash_word_program);
	add_verb_names(sb, " ");
	strbuf_add_str(sb, "\" -- \"$current\"))\n"
			   "\t\t;;\n");
	while ((verb = verb_next(verb)) != NULL)
		strbuf_addf(sb, "\t%s) _msmemscope_%s \"$current\" ;;\n", verb->name,
			    takes_directories(verb) ? "directories" : "files");
	strbuf_add_str(sb, "\tesac\n"
			   "}\n"
			   "\n"
			   "complete -F _msmemscope msmemscope msleaks\n");
}

/* Text inside single quotes of zsh, where brackets and colons have a meaning. */
static void add_zsh(struct strbuf *sb, const char *text)
{
	for (; *text != '\0'; text++) {
		if (*text == '\'')
			strbuf_add_str(sb, "'\\''");
		else if (strchr("[]:\\", *text) != NULL)
			strbuf_addf(sb, "\\%c", *text);
		else
			strbuf_add_char(sb, *text);
	}
}

static void add_zsh_option(struct strbuf *sb, const struct option_row *row)
{
	bool several = row->letters != NULL || row->aliases[0] != NULL;

	strbuf_add_str(sb, "'(");
	add_spellings(sb, row, " ", "", "");
	strbuf_add_str(sb, several ? ")'{" : ")'");
	add_spellings(sb, row, ",", "+", "=");
	strbuf_add_str(sb, several ? "}'[" : "'[");
	add_zsh(sb, row->help);
	strbuf_add_char(sb, ']');
	if (row->value != NULL) {
		strbuf_addf(sb, ":%s:", row->value);
		if (row->kind == OPTION_KIND_word) {
			strbuf_add_char(sb, '(');
			add_words(sb, row);
			strbuf_add_char(sb, ')');
		} else if (row->kind == OPTION_KIND_set) {
			strbuf_add_str(sb, "_sequence compadd - ");
			add_words(sb, row);
		} else if (row->kind == OPTION_KIND_path) {
			strbuf_add_str(sb, "_files -/");
		} else if (row->kind == OPTION_KIND_pair) {
			strbuf_add_str(sb, "_sequence _files");
		} else {
			strbuf_add_char(sb, ' ');
		}
	}
	strbuf_add_str(sb, "' \\\n");
}

static void add_zsh_options(struct strbuf *sb, const char *indent, enum verb verb)
{
	const struct option_row *row = NULL;

	while ((row = option_next(row)) != NULL) {
		if (verb == VERB_NONE ? option_stands_alone(row) : option_applies(row, verb)) {
			strbuf_add_str(sb, indent);
			add_zsh_option(sb, row);
		}
	}
}

void options_zsh(struct strbuf *sb)
{
	const struct verb_row *verb = NULL;

	strbuf_add_str(
		sb, "#compdef msmemscope msleaks\n"
		    "# SPDX-License-Identifier: Apache-2.0\n"
		    "# zsh completion of msmemscope; written by msmemscope print-completion zsh\n"
		    "\n"
		    "_msmemscope() {\n"
		    "\tlocal curcontext=$curcontext state line\n"
		    "\ttypeset -A opt_args\n"
		    "\t_arguments -s -S -C -A '-*' \\\n");
	add_zsh_options(sb, "\t\t", VERB_NONE);
	strbuf_add_str(sb, "\t\t'1: :->first' \\\n"
			   "\t\t'*:: :->rest' && return\n"
			   "\tcase $state in\n"
			   "\tfirst)\n"
			   "\t\tlocal -a verbs=(\n");
	while ((verb = verb_next(verb)) != NULL) {
		strbuf_addf(sb, "\t\t\t'%s:", verb->name);
		add_zsh(sb, verb->help);
		strbuf_add_str(sb, "'\n");
	}
	strbuf_add_str(sb, "\t\t)\n"
			   "\t\t_alternative 'verbs:verb:{_describe verb verbs}' \\\n"
			   "\t\t\t'programs:program:_command_names -e' 'files:program:_files'\n"
			   "\t\t;;\n"
			   "\trest)\n"
			   "\t\tcase $words[1] in\n");
	while ((verb = verb_next(verb)) != NULL) {
		strbuf_addf(sb, "\t\t%s)\n\t\t\t_arguments -s -S \\\n", verb->name);
		add_zsh_options(sb, "\t\t\t\t", (enum verb)(verb - verb_rows));
		strbuf_addf(sb, "\t\t\t\t'*:%s:_files%s'\n\t\t\t;;\n", verb->arguments,
			    takes_directories(verb) ? " -/" : "");
	}
	strbuf_add_str(sb, "\t\t*) _normal ;;\n"
			   "\t\tesac\n"
			   "\t\t;;\n"
			   "\tesac\n"
			   "}\n"
			   "\n"
			   "_msmemscope \"$@\"\n");
}
