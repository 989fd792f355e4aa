/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the user is told about the options before anything starts: an analysis that other options switch off, an output directory
 * that others can change.
 */
#include <sys/stat.h>
#include <unistd.h>

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
	if (!cli_tell_root("the output directory"))
		cli_tell_owner("output directory", options->output_path, "the results");
}
