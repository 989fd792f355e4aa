/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/python_attach.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/io.h"
#include "base/json.h"
#include "base/strbuf.h"
#include "cli/remote.h"
#include "cli/tree.h"
#include "options/options_table.h"
#include "sink/project.h"

#define GDB_MS	  20000u
#define ANSWER_MS 10000u
#define CODE_MAX  65536u
#define SECOND_NS UINT64_C(1000000000)

struct attaching {
	uint32_t pid;
	uint64_t pending, run, mmap; /* addresses of functions in the process */
	char directory[64];	     /* ours, for the two files */
	char code[96], answer[96];
};

/* ---- the line of Python ---- */

/* A text as a literal of Python: JSON's is one. */
static void add_literal(struct strbuf *code, const char *text)
{
	json_quote(code, text);
}

/* Whether the next word of the command line is the value of this one. */
static bool takes_next(const char *word)
{
	const struct option_row *row = NULL;
	const char *name;

	while ((row = option_next(row)) != NULL)
		for (size_t k = 0; (name = option_name(row, k)) != NULL; k++)
			if (strcmp(name, word + 2) == 0 && option_applies(row, VERB_ATTACH))
				return row->kind != OPTION_KIND_flag;
	return false;
}

/* The options of this command line as "--name=value"; -o and --output are said by the caller, --duration is this command's own. */
static void add_words(struct strbuf *code, const struct options *options)
{
	char text[CODE_MAX / 2];
	int fd = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
	ssize_t got = fd < 0 ? 0 : read(fd, text, sizeof(text) - 1);
	struct strbuf word = {0};
	const char *at = text;

	if (fd >= 0)
		(void)close(fd);
	text[got > 0 ? got : 0] = '\0';
	strbuf_add_str(code, "[");
	for (; at < text + got; at += strlen(at) + 1) {
		strbuf_reset(&word);
		strbuf_add_str(&word, at);
		if (strncmp(at, "--", 2) == 0 && strchr(at, '=') == NULL && takes_next(at)) {
			at += strlen(at) + 1;
			strbuf_addf(&word, "=%s", at < text + got ? at : "");
		}
		if (strncmp(strbuf_str(&word), "--", 2) != 0 ||
		    strchr(strbuf_str(&word), '=') == NULL ||
		    strncmp(strbuf_str(&word), "--output", 8) == 0 ||
		    strncmp(strbuf_str(&word), "--duration=", 11) == 0)
			continue;
		add_literal(code, strbuf_str(&word));
		strbuf_add_str(code, ",");
	}
	strbuf_fini(&word);
	strbuf_add_str(code, "\"--output=\"+");
	add_literal(code, options->output_path);
	strbuf_add_str(code, "]");
}

static int write_code(const struct attaching *attaching, const struct options *options,
		      struct mscope_error *err)
{
	char prefix[PATH_MAX], package[PATH_MAX + 16];
	struct strbuf code = {0};
	int r = tree_prefix(prefix, sizeof(prefix), err);

	if (r < 0)
		return r;
	(void)snprintf(package, sizeof(package), "%s/python", prefix);
	/* The program's own modules come first; nothing of ours stays in its namespace. */
	strbuf_add_str(&code, "def _msmemscope_attached():\n import sys\n sys.path.append(");
	add_literal(&code, package);
	strbuf_add_str(&code,
		       ")\n try:\n  from msmemscope import _attached\n finally:\n  sys.path.pop()\n"
		       " _attached.start(");
	add_words(&code, options);
	strbuf_add_str(&code, ", ");
	add_literal(&code, attaching->answer);
	strbuf_add_str(&code, ")\n_msmemscope_attached()\ndel _msmemscope_attached\n");
	strbuf_add(&code, "", 1);
	r = strbuf_failed(&code) || code.length > CODE_MAX ? -E2BIG
							   : io_replace(attaching->code, &code);
	strbuf_fini(&code);
	return r < 0 ? error_set(err, r, "cannot write %s: %s", attaching->code,
				 mscope_status_str(r))
		     : 0;
}

/* ---- gdb ---- */

static bool find_gdb(char *out, size_t bytes)
{
	const char *path = getenv("PATH"), *end;

	for (; path != NULL && *path != '\0'; path = *end == ':' ? end + 1 : end) {
		end = strchrnul(path, ':');
		(void)snprintf(out, bytes, "%.*s/gdb", (int)(end - path), path);
		if (end > path && access(out, X_OK) == 0)
			return true;
	}
	return false;
}

static _Noreturn void become_gdb(const char *gdb, const struct attaching *attaching, int said)
{
	char pid[16], take[192], put[192], ask[192];
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);

	(void)snprintf(pid, sizeof(pid), "%u", attaching->pid);
	(void)snprintf(
		take, sizeof(take),
		"set $room = ((unsigned long(*)(unsigned long, unsigned long, int, int, int, long))0x%llx)(0, %u, 3, 0x22, -1, 0)",
		(unsigned long long)attaching->mmap, CODE_MAX);
	(void)snprintf(put, sizeof(put), "restore %s binary $room", attaching->code);
	(void)snprintf(
		ask, sizeof(ask),
		"printf \"asked %%d\\n\", ((int(*)(unsigned long, unsigned long))0x%llx)(0x%llx, $room)",
		(unsigned long long)attaching->pending, (unsigned long long)attaching->run);
	(void)dup2(null, STDIN_FILENO);
	(void)dup2(said, STDOUT_FILENO);
	(void)dup2(said, STDERR_FILENO);
	(void)unsetenv("LD_PRELOAD");
	(void)execl(gdb, gdb, "-nx", "-q", "-batch", "-iex", "set auto-solib-add off", "-iex",
		    "set auto-load off", "-iex", "set debuginfod enabled off", "-p", pid, "-ex",
		    take, "-ex", put, "-ex", ask, "-ex", "detach", (char *)NULL);
	_exit(127);
}

/* Runs it. True: the interpreter was asked; `said` has what gdb said. */
static bool run_gdb(const char *gdb, const struct attaching *attaching, char *said, size_t bytes)
{
	uint64_t until = clock_monotonic_ns() + GDB_MS * (SECOND_NS / 1000);
	size_t have = 0;
	int ends[2], status;
	ssize_t got;
	pid_t pid;

	said[0] = '\0';
	if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) < 0)
		return false;
	pid = fork();
	if (pid == 0)
		become_gdb(gdb, attaching, ends[1]);
	(void)close(ends[1]);
	while (pid > 0 && clock_monotonic_ns() < until) {
		got = read(ends[0], said + have, bytes - 1 - have);
		if (got == 0 || (got > 0 && have + (size_t)got == bytes - 1))
			break;
		if (got > 0)
			have += (size_t)got;
		else
			(void)nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
	}
	said[have] = '\0';
	(void)close(ends[0]);
	if (pid > 0) {
		if (clock_monotonic_ns() >= until)
			(void)kill(pid, SIGKILL); /* the kernel lets the program go */
		(void)waitpid(pid, &status, 0);
	}
	return strstr(said, "asked 0\n") != NULL;
}

/* The last line that a person may need: why gdb could not. */
static void tell_gdb(char *said, struct mscope_error *err, uint32_t pid)
{
	char *line = strstr(said, "ptrace:");

	if (line == NULL)
		line = strstr(said, "Could not attach");
	if (line == NULL)
		line = said;
	line[strcspn(line, "\n")] = '\0';
	(void)error_set(err, -EPERM, "gdb cannot attach to process %u: %s", pid,
			line[0] == '\0' ? "no message from gdb" : line);
}

/* ---- the answer ---- */

/* What _attached.py wrote: "ok", or what went wrong. */
static int wait_for_answer(const struct attaching *attaching, struct mscope_error *err)
{
	uint64_t until = clock_monotonic_ns() + ANSWER_MS * (SECOND_NS / 1000);
	char text[1024];

	while (clock_monotonic_ns() < until) {
		if (io_read_text(attaching->answer, text, sizeof(text)) && text[0] != '\0') {
			text[strcspn(text, "\n")] = '\0';
			return strcmp(text, "ok") == 0
				       ? 0
				       : error_set(err, -ENOENT,
						   "process %u cannot be recorded: %s",
						   attaching->pid, text);
		}
		if (kill((pid_t)attaching->pid, 0) < 0 && errno == ESRCH)
			return error_set(err, -ESRCH, "process %u has ended", attaching->pid);
		(void)nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
	}
	return error_set(err, -ETIMEDOUT,
			 "process %u will be recorded once its main thread runs Python code again",
			 attaching->pid);
}

int python_attach(uint32_t pid, const struct options *options, struct mscope_error *err)
{
	struct attaching attaching = {.pid = pid, .directory = "/tmp/msmemscope-attach-XXXXXX"};
	char gdb[PATH_MAX], said[4096];
	int r;

	attaching.pending = remote_symbol(pid, "Py_AddPendingCall");
	attaching.run = remote_symbol(pid, "PyRun_SimpleString");
	attaching.mmap = remote_symbol(pid, "mmap");
	if (attaching.pending == 0 || attaching.run == 0 || attaching.mmap == 0)
		return -ENOENT;
	if (!find_gdb(gdb, sizeof(gdb)))
		return -ENOEXEC;
	if (mkdtemp(attaching.directory) == NULL)
		return error_set(err, -errno, "cannot write to /tmp: %s", strerror(errno));
	(void)snprintf(attaching.code, sizeof(attaching.code), "%s/code", attaching.directory);
	(void)snprintf(attaching.answer, sizeof(attaching.answer), "%s/answer",
		       attaching.directory);
	r = write_code(&attaching, options, err);
	if (r == 0 && !run_gdb(gdb, &attaching, said, sizeof(said))) {
		tell_gdb(said, err, pid);
		r = err->code;
	}
	if (r == 0)
		r = wait_for_answer(&attaching, err);
	(void)unlink(attaching.code);
	/* A program that answers later finds no directory, and says nothing. */
	(void)unlink(attaching.answer);
	(void)rmdir(attaching.directory);
	return r;
}

int attach_open_log(const char *output, uint32_t pid, char *out_path, size_t bytes)
{
	int r = project_mkdirs(output), fd;

	if (r < 0)
		return r;
	if (snprintf(out_path, bytes, "%s/attach_%u.log", output, pid) >= (int)bytes)
		return -ENAMETOOLONG;
	fd = open(out_path, O_RDWR | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0600);
	return fd < 0 ? -errno : fd;
}
