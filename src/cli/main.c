/* SPDX-License-Identifier: Apache-2.0 */
/*
 * msmemscope: reads the command line and hands on to the verb. A launch is the case without a verb.
 */
#include <errno.h>
#include <limits.h>
#include <malloc.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/shown.h"
#include "cli/cli.h"
#include "cli/preflight.h"
#include "cli/startup.h"
#include "cli/tree.h"

/* What the first write to stdout that failed said; 0: every byte went out. */
static int stdout_errno;

void cli_write(int fd, const char *text, size_t length)
{
	if (length > 0 && fd == STDOUT_FILENO && startup_stdout_is_closed()) {
		stdout_errno = EBADF;
		return;
	}
	while (length > 0) {
		ssize_t wrote = write(fd, text, length);

		if (wrote < 0 && errno == EINTR)
			continue;
		if (wrote <= 0) {
			if (fd == STDOUT_FILENO && stdout_errno == 0)
				stdout_errno = wrote < 0 ? errno : EIO;
			return;
		}
		text += wrote;
		length -= (size_t)wrote;
	}
}

void cli_show(int fd, const struct strbuf *text)
{
	struct strbuf lines = {0};

	strbuf_add_lines(&lines, strbuf_str(text), text->length);
	cli_write(fd, strbuf_str(&lines), lines.length);
	strbuf_fini(&lines);
}

void cli_say(const char *format, ...)
{
	struct strbuf said = {0};
	char line[2048];
	va_list args;

	va_start(args, format);
	(void)vsnprintf(line, sizeof(line), format, args);
	va_end(args);
	strbuf_add_str(&said, "msmemscope: ");
	strbuf_add_shown(&said, line, strlen(line));
	strbuf_add_char(&said, '\n');
	cli_write(STDERR_FILENO, strbuf_str(&said), said.length);
	strbuf_fini(&said);
}

static int print(struct strbuf *text)
{
	int r = strbuf_failed(text) ? MSCOPE_EXIT_FAILED : MSCOPE_EXIT_OK;

	cli_write(STDOUT_FILENO, strbuf_str(text), text->length);
	strbuf_fini(text);
	return r;
}

static int print_version(void)
{
	struct strbuf text = {0};

	strbuf_add_str(&text, "msmemscope: memory analysis for AI accelerators\n\n");
	strbuf_add_str(&text, "msmemscope version " MSCOPE_VERSION "-" MSCOPE_COMMIT "\n");
	return print(&text);
}

static int print_python(const char *part)
{
	struct strbuf text = {0};

	if (part != NULL) {
		options_python_config(&text);
		return print(&text);
	}
	options_python(&text);
	settings_python(&text);
	strbuf_add_str(&text, "\n__version__ = \"" MSCOPE_VERSION "\"\n");
	return print(&text);
}

static int print_prefix(void)
{
	struct mscope_error err = {0};
	struct strbuf text = {0};
	char prefix[PATH_MAX];

	if (tree_prefix(prefix, sizeof(prefix), &err) < 0) {
		cli_say("%s", err.message);
		return MSCOPE_EXIT_FAILED;
	}
	strbuf_addf(&text, "%s\n", prefix);
	return print(&text);
}

static int print_completion(const char *shell)
{
	struct strbuf text = {0};

	if (strcmp(shell, "bash") == 0)
		options_bash(&text);
	else if (strcmp(shell, "zsh") == 0)
		options_zsh(&text);
	else {
		cli_say("no completion for '%s'; there is one for bash and one for zsh", shell);
		return MSCOPE_EXIT_USAGE;
	}
	return print(&text);
}

/* What the reading of the line has to say, and which of two things a word means. */
static void print_notices(const struct options *options)
{
	char path[PATH_MAX], *line, *rest = NULL;

	if (options->log_level > OPT_LOG_WARN)
		return;
	line = options->notices.length > 0 ? strtok_r(options->notices.data, "\n", &rest) : NULL;
	for (; line != NULL; line = strtok_r(NULL, "\n", &rest))
		cli_say("%s", line);
	if (options->verb != VERB_NONE && options->verb != VERB_VIEW && options->verb != VERB_TOP &&
	    preflight_resolve(options->argv[0], path, sizeof(path), NULL) == 0)
		cli_say("%s is taken as a verb; to run %s, put -- before it", options->argv[0],
			path);
}

/* Options that are a question of their own. */
static bool asks_about_us(const struct options *options)
{
	return options->help || options->version || options->print_prefix;
}

static int answer_about_us(const struct options *options)
{
	struct strbuf text = {0};

	if (options->help) {
		options_help(&text, options->verb, options->help_all);
		return print(&text);
	}
	return options->version ? print_version() : print_prefix();
}

static int print_man(const struct options *options)
{
	struct strbuf text = {0};

	(void)options;
	options_man(&text);
	return print(&text);
}

static int print_of_python(const struct options *options)
{
	return print_python(options->argv[1]);
}

static int print_of_shell(const struct options *options)
{
	return print_completion(options->argv[1]);
}

static int launch_or_compare(const struct options *options)
{
	return options->compare ? cmd_compare(options) : cmd_launch(options);
}

static int dispatch(const struct options *options)
{
	static int (*const commands[VERB_COUNT])(const struct options *) = {
		[VERB_NONE] = launch_or_compare,
		[VERB_INFO] = cmd_info,
		[VERB_ANALYZE] = cmd_analyze,
		[VERB_WHATIF] = cmd_whatif,
		[VERB_DRYRUN] = cmd_dryrun,
		[VERB_ADVISE] = cmd_advise,
		[VERB_VIEW] = cmd_view,
		[VERB_TOP] = cmd_top,
		[VERB_REPORT] = cmd_report,
		[VERB_RECOVER] = cmd_recover,
		[VERB_EXPORT] = cmd_export,
		[VERB_BUNDLE] = cmd_bundle,
		[VERB_DOCTOR] = cmd_doctor,
		[VERB_STORE] = cmd_store,
		[VERB_FLEET] = cmd_fleet,
		[VERB_SELFTEST] = cmd_selftest,
		[VERB_ATTACH] = cmd_attach,
		[VERB_CTL] = cmd_ctl,
		[VERB_API_ENGINE] = cmd_engine,
		[VERB_PRINT_MAN] = print_man,
		[VERB_PRINT_PYTHON] = print_of_python,
		[VERB_PRINT_COMPLETION] = print_of_shell,
	};

	if (asks_about_us(options))
		return answer_about_us(options);
	print_notices(options);
	return commands[options->verb](options);
}

/*
 * The exit code of a command whose verb returned `code`. Data that did not reach its reader is a failure; some file systems say so
 * only when the file is closed.
 */
static int finish(int code)
{
	if (close(STDOUT_FILENO) < 0 && stdout_errno == 0)
		stdout_errno = errno;
	if (stdout_errno == 0)
		return code;
	if (stdout_errno != EPIPE) /* the reader wanted no more */
		cli_say("cannot write to stdout: %s", strerror(stdout_errno));
	return MSCOPE_EXIT_FAILED;
}

/* The first word that is no option says whose help is meant. */
static void say_help(int argc, char **words)
{
	int i;

	for (i = 1; i < argc && words[i][0] == '-'; i++)
		;
	if (i < argc && options_verb(words[i]) != VERB_NONE)
		cli_say("try 'msmemscope %s --help'", words[i]);
	else
		cli_say("try 'msmemscope --help'");
}

static int run(int argc, char **argv)
{
	struct mscope_error err = {0};
	struct options options;
	char **words = startup_prepare(argc, argv);
	int r;

	if (words == NULL) {
		cli_say("no memory");
		return MSCOPE_EXIT_FAILED;
	}
	if (argc > 1 && api_env_is_asked(words[1])) {
		r = api_env_print(words[1]);
		free(words);
		return finish(r);
	}
	r = options_parse(argc, words, &options, &err);
	if (r < 0) {
		cli_say("%s", err.message);
		if (r == MSCOPE_E_USAGE)
			say_help(argc, words);
		free(words);
		return r == MSCOPE_E_USAGE ? MSCOPE_EXIT_USAGE : MSCOPE_EXIT_FAILED;
	}
	r = dispatch(&options);
	options_fini(&options);
	free(words);
	return finish(r);
}

/*
 * Large arrays are mappings of their own, which go when they are freed. By default malloc() takes ever larger ones from its heap once a large
 * one was freed, where they leave holes: 70 MiB of 650 in a run with a million call sites.
 */
#define LARGE_BYTES (1 << 20)

int main(int argc, char **argv)
{
	(void)mallopt(M_MMAP_THRESHOLD, LARGE_BYTES);
	(void)mallopt(M_TRIM_THRESHOLD, LARGE_BYTES);
	return startup_run(run, argc, argv);
}
