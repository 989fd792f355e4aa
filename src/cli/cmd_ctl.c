/* SPDX-License-Identifier: Apache-2.0 */
/*
 * msmemscope ctl PID start|stop|step|snapshot|flush: windows of a process that has the collector, from outside.
 * msmemscope ctl PID who: what keeps its memory, asked now (ctl_who.c).
 * msmemscope attach PID [options]: the same for one that nothing records yet: an engine for it, and a window. A Python program that
 * does not have the collector makes both itself (python_attach.c).
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/strbuf.h"
#include "cli/cli.h"
#include "cli/ctl_who.h"
#include "cli/python_attach.h"
#include "cli/remote.h"
#include "engine/traced_process.h"

#define ANSWER_MS 5000u

struct command {
	const char *word;
	enum control_kind kind; /* CONTROL_NOTHING: only the engine is asked */
	bool flushes;		/* the files have it when the command returns */
};

static const struct command commands[] = {
	{"start", CONTROL_START, false},  {"stop", CONTROL_STOP, true},
	{"step", CONTROL_STEP, false},	  {"snapshot", CONTROL_SNAPSHOT, true},
	{"flush", CONTROL_NOTHING, true}, {"who", CONTROL_WHO, false},
};

static bool read_pid(const char *text, uint32_t *out)
{
	char *end;
	unsigned long pid = strtoul(text, &end, 10);

	if (*end != '\0' || pid == 0 || pid > INT_MAX) {
		cli_say("'%s' is not a process id", text);
		return false;
	}
	*out = (uint32_t)pid;
	return true;
}

static int failed(const struct mscope_error *err)
{
	cli_say("%s", err->message);
	return err->code == MSCOPE_E_USAGE ? MSCOPE_EXIT_USAGE : MSCOPE_EXIT_FAILED;
}

/* What the process answered, in words. True: it did what was asked for. */
static bool tell(const struct command *command, uint32_t pid, int32_t result)
{
	switch (command->kind) {
	case CONTROL_START:
	case CONTROL_SNAPSHOT:
		if (result == 0)
			return true;
		if (result == -ENOENT)
			cli_say("process %u is not recorded; to record it: msmemscope attach %u",
				pid, pid);
		else
			cli_say("process %u: %s", pid, strerror(-result));
		return false;
	case CONTROL_STOP:
		if (result != 1)
			cli_say("process %u has no open window", pid);
		return result == 1;
	case CONTROL_STEP:
		if (result <= 0)
			cli_say("process %u is not recording now", pid);
		return result > 0;
	case CONTROL_WHO:
		if (result == -ENOENT)
			cli_say("process %u is not recording now", pid);
		else if (result < 0)
			cli_say("process %u has no Python interpreter that can answer", pid);
		return result == 0;
	default:
		return true;
	}
}

int cmd_ctl(const struct options *options)
{
	const struct command *command = NULL;
	struct mscope_error err = {0};
	struct remote remote;
	int32_t result = 0;
	uint32_t pid;
	size_t i;

	for (i = 0; i < MSCOPE_COUNT(commands); i++) {
		if (strcmp(commands[i].word, options->argv[2]) == 0)
			command = &commands[i];
	}
	if (command == NULL) {
		cli_say("ctl does not know '%s'; it knows start, stop, step, snapshot, flush and who",
			options->argv[2]);
		return MSCOPE_EXIT_USAGE;
	}
	if (!read_pid(options->argv[1], &pid))
		return MSCOPE_EXIT_USAGE;
	if (remote_find(pid, &remote, &err) < 0)
		return failed(&err);
	if (command->kind != CONTROL_NOTHING) {
		if (remote_ask(&remote, command->kind, NULL, ANSWER_MS, &result, &err) < 0)
			return failed(&err);
		if (!tell(command, pid, result))
			return MSCOPE_EXIT_FAILED;
	}
	if (command->kind == CONTROL_WHO)
		return ctl_who(&remote, options);
	if (command->flushes && (command->kind == CONTROL_STOP ? remote_complete(&remote, &err)
							       : remote_flush(&remote, &err)) < 0)
		return failed(&err);
	return MSCOPE_EXIT_OK;
}

/* ---- attach ---- */

/* The words of this command, with the verb of the engine, which point into `text`. NULL: no memory. */
static char **engine_words(const struct options *options, struct strbuf *text)
{
	static char verb[] = "api-engine";
	FILE *file = fopen("/proc/self/cmdline", "re");
	char part[4096], **words;
	size_t count = 0, at, got;
	bool replaced = false;

	while (file != NULL && (got = fread(part, 1, sizeof(part), file)) > 0)
		strbuf_add(text, part, got);
	if (file != NULL)
		(void)fclose(file);
	if (strbuf_failed(text))
		return NULL;
	words = calloc(text->length + 1, sizeof(*words));
	for (at = 0; words != NULL && at < text->length; at += strlen(text->data + at) + 1) {
		words[count] = text->data + at;
		if (count > 0 && !replaced && strcmp(words[count], options->argv[0]) == 0) {
			words[count] = verb;
			replaced = true;
		}
		count++;
	}
	return words;
}

/* What the engine has said up to now, from this offset of its log on. */
static void forward_log(int log_fd, off_t from)
{
	char part[4096];
	ssize_t got;

	while ((got = pread(log_fd, part, sizeof(part), from)) > 0) {
		cli_write(STDERR_FILENO, part, (size_t)got);
		from += got;
	}
}

static _Noreturn void become_engine(char **words, int answer_fd, int log_fd)
{
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);

	(void)setsid();
	(void)dup2(null, STDIN_FILENO);
	(void)dup2(answer_fd, STDOUT_FILENO);
	(void)dup2(log_fd, STDERR_FILENO);
	(void)execv("/proc/self/exe", words);
	_exit(127);
}

/* Starts the engine, which says where its session is. It lives on when this command has ended. */
static int start_engine(const struct options *options, int log_fd, char *out_session, size_t bytes,
			pid_t *out)
{
	struct strbuf text = {0};
	char **words = engine_words(options, &text);
	size_t have = 0;
	int ends[2];
	pid_t pid;

	if (words == NULL || pipe2(ends, O_CLOEXEC) < 0) {
		free(words);
		strbuf_fini(&text);
		return -ENOMEM;
	}
	pid = fork();
	if (pid == 0)
		become_engine(words, ends[1], log_fd);
	(void)close(ends[1]);
	while (pid > 0 && have < bytes - 1) {
		ssize_t got = read(ends[0], out_session + have, bytes - 1 - have);

		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			break;
		have += (size_t)got;
		if (out_session[have - 1] == '\n')
			break;
	}
	(void)close(ends[0]);
	free(words);
	strbuf_fini(&text);
	*out = pid;
	if (have == 0 || out_session[have - 1] != '\n')
		return -ECHILD;
	out_session[have - 1] = '\0';
	return 0;
}

/* A process of its own, which waits and stops the window as `ctl PID stop` does, unless the recorded one ends before. */
static _Noreturn void stop_later(uint32_t pid, uint64_t seconds)
{
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	struct process target = {0};
	struct mscope_error err;
	struct remote remote;
	int32_t result;

	(void)setsid();
	(void)dup2(null, STDIN_FILENO);
	(void)dup2(null, STDOUT_FILENO);
	(void)dup2(null, STDERR_FILENO);
	(void)!chdir("/");
	if (!process_watch_pid(&target, pid))
		_exit(0);
	while (seconds > 0 && process_life(&target) != PROCESS_GONE) {
		(void)sleep(1);
		seconds--;
	}
	/* A number that another process has by now is not asked. */
	if (process_life(&target) != PROCESS_GONE && remote_find(pid, &remote, &err) == 0 &&
	    remote_ask(&remote, CONTROL_STOP, NULL, ANSWER_MS, &result, &err) == 0)
		(void)remote_complete(&remote, &err);
	_exit(0);
}

/* What ends the recording. */
static void say_end(const struct options *options, uint32_t pid)
{
	pid_t child = options->duration == 0 ? 0 : fork();

	if (options->duration != 0 && child == 0)
		stop_later(pid, options->duration);
	if (child > 0)
		cli_say("process %u is now recorded for %llu s; to stop before: msmemscope ctl %u stop",
			pid, (unsigned long long)options->duration, pid);
	else
		cli_say("process %u is now recorded until it ends; to stop: msmemscope ctl %u stop",
			pid, pid);
}

/* A Python program without the collector loads it itself, where gdb is there to ask it. */
static int attach_python(uint32_t pid, const struct options *options,
			 const struct mscope_error *why)
{
	struct mscope_error err = {0};
	int r = python_attach(pid, options, &err);

	if (r == -ENOENT && err.code == 0)
		return failed(why);
	if (r == -ENOEXEC)
		(void)error_set(
			&err, r,
			"process %u is a Python program that is not recorded: install gdb and attach again, or call start() in its code",
			pid);
	if (r < 0)
		return failed(&err);
	say_end(options, pid);
	cli_say("Memory that it allocated before, and its frees, are not recorded.");
	return MSCOPE_EXIT_OK;
}

int cmd_attach(const struct options *options)
{
	char session[SESSION_PATH_MAX], log[SESSION_PATH_MAX];
	struct mscope_error err = {0};
	struct remote remote;
	int32_t result = 0;
	uint32_t pid;
	off_t said;
	pid_t engine;
	int log_fd, r;

	if (!read_pid(options->argv[1], &pid))
		return MSCOPE_EXIT_USAGE;
	if (remote_find(pid, &remote, &err) < 0)
		return err.code == -ENOENT ? attach_python(pid, options, &err) : failed(&err);
	if (remote_ask(&remote, CONTROL_NOTHING, NULL, ANSWER_MS, &result, &err) < 0)
		return failed(&err);
	if (result != 0) {
		cli_say("process %u is recorded already; to start a window: msmemscope ctl %u start",
			pid, pid);
		return MSCOPE_EXIT_FAILED;
	}
	log_fd = attach_open_log(options->output_path, pid, log, sizeof(log));
	if (log_fd < 0) {
		cli_say("cannot write to %s: %s", options->output_path, strerror(-log_fd));
		return MSCOPE_EXIT_FAILED;
	}
	said = lseek(log_fd, 0, SEEK_END);
	r = start_engine(options, log_fd, session, sizeof(session), &engine);
	forward_log(log_fd, said);
	(void)close(log_fd);
	if (r < 0)
		return MSCOPE_EXIT_FAILED;
	if (remote_ask(&remote, CONTROL_OPEN, session, ANSWER_MS, &result, &err) < 0)
		return failed(&err);
	if (result < 0) {
		(void)kill(engine, SIGTERM);
		cli_say("process %u cannot be recorded: %s", pid, strerror(-result));
		return MSCOPE_EXIT_FAILED;
	}
	if (remote_ask(&remote, CONTROL_START, NULL, ANSWER_MS, &result, &err) < 0)
		return failed(&err);
	say_end(options, pid);
	cli_say("results will be in %s", log);
	return MSCOPE_EXIT_OK;
}
