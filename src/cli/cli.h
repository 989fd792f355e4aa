/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The command's own parts: one function per verb, and how they talk. Stdout is data, stderr is talk; one problem, one line.
 */
#ifndef MSCOPE_CLI_CLI_H
#define MSCOPE_CLI_CLI_H

#include "base/status.h"
#include "base/strbuf.h"
#include "options/options.h"

/* Each returns the exit code. */
int cmd_launch(const struct options *options);
int cmd_info(const struct options *options);
int cmd_analyze(const struct options *options);
int cmd_whatif(const struct options *options);
int cmd_dryrun(const struct options *options);
int cmd_advise(const struct options *options);
int cmd_view(const struct options *options);
int cmd_top(const struct options *options);
int cmd_report(const struct options *options);
int cmd_recover(const struct options *options);
int cmd_export(const struct options *options);
int cmd_bundle(const struct options *options);
int cmd_doctor(const struct options *options);
int cmd_selftest(const struct options *options);
int cmd_engine(const struct options *options);
int cmd_attach(const struct options *options);
int cmd_ctl(const struct options *options);
int cmd_compare(const struct options *options);
int cmd_store(const struct options *options);
int cmd_fleet(const struct options *options);

/* A launch that is a dry run. */
struct launch_dry {
	const char *device; /* as the trace has it: npu:64G */
	const char *list;   /* file that gets the project directory of each process, a line each */
};

/* As cmd_launch(), which passes NULL. May end the process. */
int launch_program(const struct options *options, const struct launch_dry *dry);

/* What the options ask for, as the processes and the engine of a launch read it. Time and pid are those of now and us. */
struct session;
void launch_settings(const struct options *options, struct session *out);

/* The part of it that a window may change, complete: with the events that a named analysis brings. */
struct event_settings;
struct event_settings launch_choices(const struct options *options);

/*
 * For readers of a run: what the options ask for, and where they name nothing, what its launch was asked for, by the text that its
 * trace carries (trace/launch.h; NULL: an older trace, which is written whole).
 */
void launch_settings_again(const struct options *options, const char *launch, struct session *out);

/* The same as data of a Python module, to follow what options_python() writes: how config() gets it from its arguments. */
void settings_python(struct strbuf *sb);

/* Says what there is to say about the options of a launch. */
void launch_advise(const struct options *options);

/* Says why the program of a launch cannot be run, and what was meant if it is a verb or a run. */
void launch_refuse(const struct options *options, const char *why);

/* --load-api-env and --unload-api-env: prints what a shell must set to have programs preloaded. Returns the exit code. */
bool api_env_is_asked(const char *word);
int api_env_print(const char *word);

/* Says which earlier launches into this directory were killed before their files were finished. */
void launch_tell_unfinished(const char *output);

/* Bytes that --max-disk allows a trace in this directory, 0: no limit. */
void launch_disk_limits(const struct options *options, const char *directory,
			struct session *session);

/*
 * A common user is told who else can change what results depend on. Root can read and write everything: for root the first says
 * that nothing is checked, and returns true.
 */
bool cli_tell_root(const char *what);
void cli_tell_owner(const char *what, const char *path, const char *effect);

/* "msmemscope: ..." and a newline on stderr, in one write so that lines of several processes do not mix. */
void cli_say(const char *format, ...) MSCOPE_PRINTF(1, 2);

/* Whole lines that may hold names of others, to stderr or stdout; see base/shown.h. */
void cli_show(int fd, const struct strbuf *text);

/*
 * Text that is already whole lines, to stderr or stdout, in one write where that is possible. If stdout does not take all of it, the
 * command says so and fails when it ends.
 */
void cli_write(int fd, const char *text, size_t length);

#endif
