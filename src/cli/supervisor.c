/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Order of birth, and why no signal is lost in it. The program is forked first, while signals still have their inherited
 * dispositions here: whatever arrives now acts on both processes as it would have acted on one. It sets its death signal and
 * waits for a word from us. Then we block all signals, release the descriptors that came from outside, fork the engine (so
 * that it never has them), and let the program go on to execve(). What follows is in cli/supervise.c and cli/sentinel.c.
 */
#include "cli/supervisor.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/io.h"
#include "base/status.h"
#include "cli/startup.h"
#include "cli/supervise.h"

#define ENGINE_NICE  10
#define ENGINE_TITLE "mscope-engine"

/* What is needed until program and engine run. Of each pair of sockets the first end is the supervisor's. */
struct birth {
	const struct supervisor_launch *launch;
	struct supervisor s;
	pid_t supervisor;
	char **shell_argv; /* the program's argument vector behind "/bin/sh path" */
	int start[2], control[2], ask[2];
	struct sigaction child_action; /* of SIGCHLD, as this process was started with it */
	struct itimerval alarm;	       /* the same */
	sigset_t mask;		       /* the same */
};

int supervisor_receive(int control_fd, struct supervisor_message *out_message)
{
	struct supervisor_message message;
	ssize_t n;

	do
		n = recv(control_fd, &message, sizeof(message), MSG_DONTWAIT);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return errno == EAGAIN ? -EAGAIN : -EPIPE;
	if (n != (ssize_t)sizeof(message))
		return -EPIPE;
	*out_message = message;
	return 0;
}

/* ---- in the engine's process ---- */

static _Noreturn void engine_main(const struct birth *birth)
{
	/* Not on the stack: the thread may be running while this function ends the process. */
	static struct sentinel sentinel;
	const struct supervisor_launch *launch = birth->launch;
	int code;

	startup_retitle(ENGINE_TITLE, launch->argv);
	/* In a process namespace of our own the supervisor has no number that we could use. */
	sentinel = (struct sentinel){.page = birth->s.page,
				     .supervisor =
					     getppid() == birth->supervisor ? birth->supervisor : 0,
				     .ask_fd = birth->ask[1]};
	sentinel_start(&sentinel);
	/* Nice belongs to a thread: the sentinel, started before, stays prompt. */
	(void)setpriority(PRIO_PROCESS, 0, getpriority(PRIO_PROCESS, 0) + ENGINE_NICE);
	code = launch->engine(launch->engine_arg, birth->control[1]);
	(void)fflush(NULL);
	_exit(code);
}

/* ---- in the program's process, before it is the program ---- */

static bool is_elf(const char *path)
{
	unsigned char magic[4] = {0};
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, magic, sizeof(magic));

	io_close(&fd);
	return n == (ssize_t)sizeof(magic) && memcmp(magic, "\177ELF", 4) == 0;
}

static _Noreturn void program_main(const struct birth *birth)
{
	const struct supervisor_launch *launch = birth->launch;
	const int start_fd = birth->start[1];
	pid_t parent;
	ssize_t n;
	char go;
	int e;

	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	/* If it died before that, nothing will kill us. 0: a parent outside of our process namespace. */
	parent = getppid();
	if (parent != birth->supervisor && parent != 0)
		_exit(MSCOPE_EXIT_FAILED);
	(void)sigaction(SIGCHLD, &birth->child_action, NULL);
	startup_restore_signals();
	do
		n = recv(start_fd, &go, sizeof(go), 0);
	while (n < 0 && errno == EINTR);
	if (n != (ssize_t)sizeof(go))
		_exit(MSCOPE_EXIT_FAILED);
	if (timerisset(&birth->alarm.it_value))
		(void)setitimer(ITIMER_REAL, &birth->alarm, NULL);

	(void)execve(launch->path, launch->argv, launch->envp);
	e = errno;
	/* As execvp() does, but without handing programs for other machines to the shell. */
	if (e == ENOEXEC && !is_elf(launch->path)) {
		(void)execve(birth->shell_argv[0], birth->shell_argv, launch->envp);
		e = errno;
	}
	(void)send(start_fd, &e, sizeof(e), MSG_NOSIGNAL);
	_exit(e == ENOENT ? MSCOPE_EXIT_NOT_FOUND : MSCOPE_EXIT_NOT_EXECUTABLE);
}

/* ---- in the supervisor ---- */

static void read_ignored(sigset_t *out)
{
	sigemptyset(out);
	for (int signo = 1; signo < NSIG; signo++) {
		struct sigaction action;

		if (sigaction(signo, NULL, &action) == 0 && action.sa_handler == SIG_IGN &&
		    !startup_ignores(signo))
			(void)sigaddset(out, signo);
	}
}

/* The program's argument vector behind "/bin/sh path", for text files without a #! line. */
static char **shell_vector(const struct supervisor_launch *launch)
{
	static char shell[] = "/bin/sh";
	size_t count = 0;
	char **argv;

	while (launch->argv[count] != NULL)
		count++;
	argv = calloc(count + 3, sizeof(*argv));
	if (argv == NULL)
		return NULL;
	argv[0] = shell;
	argv[1] = (char *)(uintptr_t)launch->path;
	for (size_t i = 1; i < count; i++)
		argv[i + 1] = launch->argv[i];
	return argv;
}

static int make_pair(int pair[2])
{
	return socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == 0 ? 0 : -errno;
}

/* Forks the program, which waits for the word to go on. On failure all is as it was. */
static int fork_program(struct birth *birth)
{
	struct sigaction child_default = {.sa_handler = SIG_DFL};
	struct itimerval no_alarm = {0};
	int r = make_pair(birth->start);

	if (r < 0)
		return r;
	/* What waits in our buffers must not be written twice. */
	(void)fflush(NULL);
	/* Where SIGCHLD is ignored, waiting fails; the program gets it back as it was. */
	(void)sigaction(SIGCHLD, &child_default, &birth->child_action);
	/* An alarm outlives execve() but not fork(): it is the program's. */
	(void)setitimer(ITIMER_REAL, &no_alarm, &birth->alarm);
	birth->s.program = fork();
	if (birth->s.program == 0) {
		(void)close(birth->start[0]);
		program_main(birth);
	}
	if (birth->s.program > 0) {
		io_close(&birth->start[1]);
		return 0;
	}
	r = -errno;
	(void)setitimer(ITIMER_REAL, &birth->alarm, NULL);
	(void)sigaction(SIGCHLD, &birth->child_action, NULL);
	return r;
}

/* Blocks all signals, releases what came from outside and forks the engine. */
static int fork_engine(struct birth *birth)
{
	struct supervisor *s = &birth->s;
	sigset_t all;
	int r;

	sigfillset(&all);
	(void)sigprocmask(SIG_BLOCK, &all, &birth->mask);
	s->drained_ns = (int64_t)clock_monotonic_ns();
	s->signal_fd = signalfd(-1, &all, SFD_CLOEXEC | SFD_NONBLOCK);
	r = s->signal_fd < 0 ? -errno : make_pair(birth->control);
	if (r == 0)
		r = make_pair(birth->ask);
	if (r < 0)
		return r;
	atomic_store(&s->page->program, s->program);
	startup_release_inherited();
	s->engine = fork();
	if (s->engine < 0)
		return -errno;
	if (s->engine == 0) {
		(void)close(birth->start[0]);
		(void)close(s->signal_fd);
		(void)close(birth->control[0]);
		(void)close(birth->ask[0]);
		engine_main(birth);
	}
	io_close(&birth->control[1]);
	io_close(&birth->ask[1]);
	if (birth->launch->engine_fd > 0)
		(void)close(birth->launch->engine_fd);
	return 0;
}

/* Without an engine the program must not start. */
static void kill_program(struct birth *birth)
{
	(void)kill(birth->s.program, SIGKILL);
	(void)waitpid(birth->s.program, NULL, 0);
	(void)sigprocmask(SIG_SETMASK, &birth->mask, NULL);
	(void)setitimer(ITIMER_REAL, &birth->alarm, NULL);
	(void)sigaction(SIGCHLD, &birth->child_action, NULL);
}

static void birth_fini(struct birth *birth)
{
	int *const pairs[] = {birth->start, birth->control, birth->ask};

	for (size_t i = 0; i < MSCOPE_COUNT(pairs); i++) {
		io_close(&pairs[i][0]);
		io_close(&pairs[i][1]);
	}
	io_close(&birth->s.signal_fd);
	if (birth->s.page != MAP_FAILED)
		(void)munmap(birth->s.page, sizeof(*birth->s.page));
	free(birth->shell_argv);
}

/* Until the engine is ready, is gone, or has taken too long. */
static void wait_for_engine(int control_fd, int ready_ms)
{
	struct pollfd news = {.fd = control_fd, .events = POLLIN};

	if (ready_ms > 0)
		(void)poll(&news, 1, ready_ms);
}

void supervisor_ready(int control_fd)
{
	(void)send(control_fd, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
}

int supervisor_run(const struct supervisor_launch *launch, struct supervisor_result *out_result)
{
	struct supervisor_result result = {0};
	struct birth birth = {.launch = launch,
			      .s = {.result = &result, .signal_fd = -1},
			      .supervisor = getpid(),
			      .shell_argv = shell_vector(launch),
			      .start = {-1, -1},
			      .control = {-1, -1},
			      .ask = {-1, -1}};
	struct supervisor *s = &birth.s;
	const char go = 1;
	int r = -ENOMEM;

	s->page = mmap(NULL, sizeof(*s->page), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
		       -1, 0);
	s->session_leader = getsid(0) == birth.supervisor;
	read_ignored(&s->ignored);
	if (birth.shell_argv != NULL && s->page != MAP_FAILED)
		r = fork_program(&birth);
	if (r == 0) {
		r = fork_engine(&birth);
		if (r < 0)
			kill_program(&birth);
	}
	if (r == 0) {
		s->start_fd = birth.start[0];
		s->control_fd = birth.control[0];
		s->sentinel_fd = birth.ask[0];
		wait_for_engine(s->control_fd, launch->ready_ms);
		(void)send(s->start_fd, &go, sizeof(go), MSG_NOSIGNAL);
		supervise(s);
		*out_result = result;
		/* It has closed some of them. */
		birth.start[0] = s->start_fd;
		birth.control[0] = s->control_fd;
		birth.ask[0] = s->sentinel_fd;
	}
	birth_fini(&birth);
	return r;
}

_Noreturn void supervisor_exit_like(const struct supervisor_result *result)
{
	const struct rlimit no_core = {0};
	struct sigaction action = {.sa_handler = SIG_DFL};
	int signo = WIFSIGNALED(result->status) ? WTERMSIG(result->status) : 0;
	sigset_t one;

	(void)fflush(NULL);
	if (result->exec_errno != 0)
		_exit(result->exec_errno == ENOENT ? MSCOPE_EXIT_NOT_FOUND
						   : MSCOPE_EXIT_NOT_EXECUTABLE);
	if (signo == 0)
		_exit(WEXITSTATUS(result->status));
	if (getpid() != 1) {
		/* A core of ours would be of no use. The limit does not keep it from a core_pattern that is a pipe. */
		(void)setrlimit(RLIMIT_CORE, &no_core);
		(void)prctl(PR_SET_DUMPABLE, 0);
		(void)sigaction(signo, &action, NULL);
		(void)kill(getpid(), signo);
		sigemptyset(&one);
		sigaddset(&one, signo);
		(void)sigprocmask(SIG_UNBLOCK, &one, NULL);
	}
	_exit(128 + signo);
}
