/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the user is told about the options before anything starts: an analysis that other options switch off, an output directory
 * that others can change, a word that is no program.
 */
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/text.h"
#include "cli/cli.h"
#include "trace/settings.h"

bool cli_tell_root(const char *what)
{
	if (geteuid() != 0)
		return false;
	cli_say("running as root: owner and permissions of %s are not checked", what);
	return true;
}

void cli_tell_owner(const char *what, const char *path, const char *effect)
{
	struct stat st;

	if (stat(path, &st) < 0)
		return; /* the launch makes it, or fails and says so */
	if (st.st_uid != geteuid())
		cli_say("the %s %s belongs to another user (uid %u), who can change %s", what, path,
			st.st_uid, effect);
	if (st.st_mode & (S_IWGRP | S_IWOTH))
		cli_say("others may write to the %s %s (mode %04o) and change %s", what, path,
			st.st_mode & 07777, effect);
}

void launch_advise(const struct options *options)
{
	struct event_settings choices = launch_choices(options);

	if (options->log_level > OPT_LOG_WARN)
		return;
	if (option_set_has(&options->analysis, OPT_ANALYSIS_LEAKS) &&
	    !(choices.analysis & SESSION_LEAKS))
		cli_say("leak analysis is off: --events names neither alloc nor free");
	/* Root reads at the end that this is not checked. */
	if (geteuid() != 0)
		cli_tell_owner("output directory", options->output_path, "the results");
}

/* A directory, or a file that by its name holds a run: neither is a program. */
static bool is_run(const char *word)
{
	static const char *const suffixes[] = {".msc", ".raw", ".csv", ".db"};
	struct stat st;
	size_t i;

	if (stat(word, &st) < 0)
		return false;
	if (S_ISDIR(st.st_mode))
		return true;
	for (i = 0; i < MSCOPE_COUNT(suffixes); i++) {
		if (S_ISREG(st.st_mode) && text_ends_with(word, suffixes[i]))
			return true;
	}
	return false;
}

void launch_refuse(const struct options *options, const char *why)
{
	const char *word = options->argv[0];
	struct strbuf meant = {0};

	if (options->after_dashes) {
		cli_say("%s", why);
	} else if (is_run(word)) {
		cli_say("%s is not a program; to see its contents: msmemscope info %s", word, word);
	} else {
		if (strchr(word, '/') == NULL)
			options_suggest(&meant, word);
		cli_say("%s%s%s", why, meant.length > 0 ? "; " : "", strbuf_str(&meant));
	}
	strbuf_fini(&meant);
}
