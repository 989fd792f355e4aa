/* SPDX-License-Identifier: Apache-2.0 */
/*
 * --load-api-env and --unload-api-env: what a shell must set so that programs started from it have the library preloaded. A command
 * cannot change the shell that runs it, so it prints the words for it: eval "$(msmemscope --load-api-env)". set_env.sh does the
 * same for who sources it. Both may be said twice.
 */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/tree.h"

#define LOAD   "--load-api-env"
#define UNLOAD "--unload-api-env"

bool api_env_is_asked(const char *word)
{
	return strcmp(word, LOAD) == 0 || strcmp(word, UNLOAD) == 0;
}

/* Whether a part of a list is the directory or lies in it. */
static bool lies_in(const char *part, size_t length, const char *directory)
{
	size_t bytes = strlen(directory);

	return length >= bytes && memcmp(part, directory, bytes) == 0 &&
	       (length == bytes || part[bytes] == '/');
}

/* Appends the list of a variable without what lies in a directory; the loader splits at colons and blanks, paths at colons. */
static void add_without(struct strbuf *sb, const char *variable, const char *separators,
			const char *directory)
{
	const char *list = getenv(variable);
	size_t length;

	for (; list != NULL && *list != '\0'; list += length + (list[length] != '\0')) {
		length = strcspn(list, separators);
		if (length == 0 || lies_in(list, length, directory))
			continue;
		if (sb->length > 0)
			strbuf_add_char(sb, ':');
		strbuf_add(sb, list, length);
	}
}

/* Any text as one word of a POSIX shell. */
static void add_quoted(struct strbuf *sb, const char *text)
{
	strbuf_add_char(sb, '\'');
	for (; *text != '\0'; text++) {
		if (*text == '\'')
			strbuf_add_str(sb, "'\\''");
		else
			strbuf_add_char(sb, *text);
	}
	strbuf_add_char(sb, '\'');
}

/* The variable with `first` before what it has; without `first`, what is left when ours is taken out. */
static void add_variable(struct strbuf *out, const char *name, const char *separators,
			 const char *first, const char *directory)
{
	struct strbuf list = {0};

	strbuf_add_str(&list, first);
	add_without(&list, name, separators, directory);
	if (list.length == 0) {
		strbuf_addf(out, "unset %s\n", name);
	} else {
		strbuf_addf(out, "export %s=", name);
		add_quoted(out, strbuf_str(&list));
		strbuf_add_char(out, '\n');
	}
	strbuf_fini(&list);
}

static int add_commands(struct strbuf *out, bool load, struct mscope_error *err)
{
	char prefix[PATH_MAX], lib[PATH_MAX + 8], python[PATH_MAX + 8], library[PATH_MAX + 48];
	int r = tree_prefix(prefix, sizeof(prefix), err);

	if (r < 0)
		return r;
	(void)snprintf(lib, sizeof(lib), "%s/lib64", prefix);
	(void)snprintf(python, sizeof(python), "%s/python", prefix);
	(void)snprintf(library, sizeof(library), "%s/libascend_kernel_hook.so", lib);
	if (access(library, R_OK) < 0)
		return error_set(err, MSCOPE_E_ABSENT, "no library to preload in %s", lib);
	if (strpbrk(lib, " :") != NULL)
		return error_set(err, MSCOPE_E_LIMIT,
				 "the loader cannot preload from a path with a blank or colon: %s",
				 lib);
	add_variable(out, "LD_PRELOAD", " :", load ? library : "", lib);
	add_variable(out, "LD_LIBRARY_PATH", ":", load ? lib : "", lib);
	if (!load) {
		strbuf_add_str(out, "unset MSMEMSCOPE_LIB_PATH\n");
		return 0;
	}
	strbuf_add_str(out, "export MSMEMSCOPE_LIB_PATH=");
	add_quoted(out, lib);
	strbuf_add_char(out, '\n');
	/* An installation by pip has no such folder. The collector tells interpreters where the package lies. */
	if (access(python, F_OK) == 0)
		add_variable(out, "PYTHONPATH", ":", python, python);
	return 0;
}

int api_env_print(const char *word)
{
	struct mscope_error err = {0};
	struct strbuf text = {0};
	int r;

	if (isatty(STDOUT_FILENO)) {
		cli_say("%s must be sourced, because a command cannot change its shell; type: eval \"$(msmemscope %s)\"",
			word, word);
		return MSCOPE_EXIT_USAGE;
	}
	r = add_commands(&text, strcmp(word, LOAD) == 0, &err);
	if (r == 0 && strbuf_failed(&text))
		r = error_set(&err, -ENOMEM, "no memory");
	if (r < 0)
		cli_say("%s", err.message);
	else
		cli_write(STDOUT_FILENO, strbuf_str(&text), text.length);
	strbuf_fini(&text);
	return r < 0 ? MSCOPE_EXIT_FAILED : MSCOPE_EXIT_OK;
}
