/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Order of birth, and why no signal is lost in it. The program is forked first, while signals still have their inherited
 * dispositions here: whatever arrives now acts on both processes as it would have acted on one. It sets its death signal and
 * waits for a word from us. Then we block all signals, release the descriptors that came from outside, fork the engine (so
 * that it never has them), and let the program go on to execve().
 *
 * Who got a signal. The sentinel stores the time of each signal it reads into a shared page. The supervisor holds a signal
 * for 50 ms, then asks the sentinel to empty its queue, and decides when it has answered: a loaded machine delays the
 * decision instead of spoiling it. The arrival of a signal at the supervisor is only known to lie between two readings of its
 * signalfd, which are far apart if it was stopped meanwhile; the group's copy may be as old as the earlier one.
 *
 * Stops. When the program stops, the supervisor stops itself by the same signal, so that a shell sees what it would have
 * seen ("mirroring"). SIGSTOP of the visible pid cannot be noticed by the stopped process, so the sentinel looks ten times
 * a second whether the supervisor is stopped, and stops the program on its behalf; the supervisor undoes that as soon as
 * it runs. The same look wakes a supervisor that was mirroring when the program was continued or killed by itself.
 */
#include "cli/supervisor.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/compiler.h"
#include "base/io.h"
#include "base/status.h"

#define MS INT64_C(1000000)

/* A signal to the group reaches all its members within this. */
#define WINDOW_NS (50 * MS)
/* A sentinel that does not answer within this is stopped or starved. */
#define ANSWER_NS (1000 * MS)
/* What follows the program's end as closely as this still belongs to what ended it. */
#define GRACE_NS (250 * MS)
/* An interrupted engine has this long to return before it is killed. */
#define RETURN_NS (2000 * MS)

/* How often the sentinel looks at a running supervisor, and at one that it has just seen stopped. */
#define LOOK_MS		100
#define LOOK_STOPPED_MS 20

#define ENGINE_NICE  10
#define ENGINE_TITLE "mscope-engine"

enum { HELD_MAX = 64 };

/* Whether the program is stopped because the sentinel did it. */
enum on_behalf {
	BEHALF_NONE,
	BEHALF_STOPPING, /* it is about to send SIGSTOP: the program's state means nothing now */
	BEHALF_STOPPED,	 /* it has sent it */
};

/* One page that supervisor and engine share. */
struct shared {
	/* Pid while it can be signalled, else 0. Written by the supervisor, before it reaps. */
	_Atomic int program;
	/* 1 while the supervisor is stopped because the program was. Written by the supervisor. */
	_Atomic int mirroring;
	/* enum on_behalf. Set by the sentinel, cleared by the supervisor. */
	_Atomic int on_behalf;
	/* When the sentinel last read the signal. Written by the sentinel. */
	_Atomic int64_t seen_ns[NSIG];
};

/* A signal that was sent to us by a process and may have to be passed on. */
struct held {
	struct signalfd_siginfo info;
	int64_t since_ns; /* it arrived later than this */
	int64_t due_ns; /* when to ask the sentinel; once asked, when to decide without an answer */
	uint32_t question; /* number of the question put to the sentinel, 0 before */
};

struct supervisor {
	struct supervisor_result *result;
	struct shared *shared;
	pid_t program; /* 0 once reaped */
	pid_t engine;  /* 0 once reaped */
	/* Go-ahead to the program; then its errno, or the end of file when execve() succeeds. */
	int start_fd;
	int control_fd;
	int sentinel_fd; /* questions and answers, -1 when nobody answers */
	int signal_fd;
	sigset_t ignored; /* dispositions that we were started with */
	bool session_leader;
	int64_t drained_ns; /* when the signalfd was last read until empty */
	int64_t recheck_ns; /* when to read it again although nothing happens, 0: never */
	int64_t ended_ns;   /* when the program's end was seen */
	int64_t interrupted_ns;
	int64_t kill_ns; /* when to kill an engine that was told to return, 0: never */
	uint32_t asked;
	uint32_t answered;
	struct held held[HELD_MAX];
	size_t held_count;
	/* What became of a SIGCONT that was settled in this turn: 0 there was none, 1 passed on, -1 dropped. */
	int sigcont;
};

/* Where ps looks for our command line; empty unless supervisor_prepare() was called. */
static struct {
	char *start;
	size_t bytes;
} title;

static int64_t now_ns(void)
{
	struct timespec ts;

	(void)clock_gettime(CLOCK_MONOTONIC, &ts);
	return (int64_t)ts.tv_sec * 1000 * MS + ts.tv_nsec;
}

static void close_fd(int *fd)
{
	if (*fd >= 0)
		(void)close(*fd);
	*fd = -1;
}

/* The state letter of /proc/PID/stat, 0 when it cannot be read. */
static char process_state(pid_t pid)
{
	char path[32], text[512];
	const char *end;

	(void)snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	if (!io_read_text(path, text, sizeof(text)))
		return 0;
	/* The name before it stands in parentheses and may hold any character. */
	end = strrchr(text, ')');
	return end != NULL && end[1] == ' ' ? end[2] : 0;
}

/* Something to read nothing from and write nothing to, also where there is no /dev. */
static int open_null(void)
{
	int fd = open("/dev/null", O_RDWR | O_CLOEXEC);

	return fd >= 0 ? fd : open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

/* The words and the vector that points to them, in one allocation. */
static char **copy_words(int argc, char *const *argv)
{
	size_t vector = ((size_t)argc + 1) * sizeof(char *), bytes = vector;
	char **copy, *text;

	for (int i = 0; i < argc; i++)
		bytes += strlen(argv[i]) + 1;
	copy = calloc(1, bytes);
	if (copy == NULL)
		return NULL;
	text = (char *)copy + vector;
	for (int i = 0; i < argc; i++) {
		size_t length = strlen(argv[i]) + 1;

		copy[i] = memcpy(text, argv[i], length);
		text += length;
	}
	return copy;
}

char **supervisor_prepare(int argc, char **argv)
{
	char **copy = copy_words(argc, argv);
	char *end = argc > 0 ? argv[0] : NULL;

	for (int fd = 0; fd <= 2; fd++) {
		/* The lowest free number is the one that is missing. */
		if (fcntl(fd, F_GETFD) < 0)
			(void)open_null();
	}
	if (copy == NULL)
		return NULL;
	for (int i = 0; i < argc && argv[i] == end; i++)
		end += strlen(end) + 1;
	if (argc > 0) {
		title.start = argv[0];
		title.bytes = (size_t)(end - argv[0]);
	}
	return copy;
}

/* "mscope-engine: prog args": found by what finds the program, and not by what finds only the supervisor. */
static void retitle(char *const *argv)
{
	size_t at = 0;

	(void)prctl(PR_SET_NAME, ENGINE_TITLE);
	if (title.bytes == 0)
		return;
	memset(title.start, 0, title.bytes);
	for (int i = -1; (i < 0 || argv[i] != NULL) && at < title.bytes; i++) {
		int n = snprintf(title.start + at, title.bytes - at, "%s%s", i < 0 ? "" : " ",
				 i < 0 ? ENGINE_TITLE ":" : argv[i]);

		if (n < 0)
			break;
		at += (size_t)n;
	}
}

/*
 * Lets go of everything that came from outside, so that a pipe ends when the program has closed it. What came through
 * execve() into this process lacks close-on-exec, what is our own has it: that tells them apart. Standard error stays.
 */
static void release_inherited(void)
{
	DIR *dir = opendir("/proc/self/fd");
	int null = open_null();
	long limit = dir == NULL ? sysconf(_SC_OPEN_MAX) : 0;
	int fd = 0;

	for (;;) {
		if (dir != NULL) {
			struct dirent *entry = readdir(dir);

			if (entry == NULL)
				break;
			fd = atoi(entry->d_name);
			if (entry->d_name[0] < '0' || entry->d_name[0] > '9')
				continue;
		} else if (fd++ >= limit || fd > 65536) {
			break;
		}
		if (fd > STDERR_FILENO) {
			int flags = fcntl(fd, F_GETFD);

			if (flags >= 0 && (flags & FD_CLOEXEC) == 0)
				(void)close(fd);
		}
	}
	for (fd = STDIN_FILENO; fd <= STDOUT_FILENO && null >= 0; fd++) {
		int flags = fcntl(fd, F_GETFD);

		if (flags >= 0 && (flags & FD_CLOEXEC) == 0)
			(void)dup3(null, fd, O_CLOEXEC);
	}
	close_fd(&null);
	if (dir != NULL)
		(void)closedir(dir);
}

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

void supervisor_note(int control_fd, const char *text)
{
	size_t bytes = strnlen(text, SUPERVISOR_NOTE_BYTES - 1);

	/* Nothing would look like the end of the connection. What does not get through is dropped: nothing depends on it. */
	if (bytes > 0)
		(void)send(control_fd, text, bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
}

/* What follows runs in the engine's process. */

struct sentinel {
	struct shared *shared;
	pid_t supervisor; /* 0: not visible from here */
	int signal_fd;
	int ask_fd;
	bool stopped; /* the last look found the supervisor stopped */
};

static void sentinel_wake(struct sentinel *t)
{
	const uint32_t no_answer = 0;

	(void)send(t->ask_fd, &no_answer, sizeof(no_answer), MSG_DONTWAIT | MSG_NOSIGNAL);
}

/*
 * Each time something was read, a word wakes the supervisor. It reads its own signals now and once more when the window has
 * passed, and so knows that what comes later has nothing to do with this one. The word may be lost while the supervisor is
 * stopped and the socket full, when it would say nothing new.
 */
static void sentinel_read_signals(struct sentinel *t)
{
	struct signalfd_siginfo info;
	bool any = false;

	while (read(t->signal_fd, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
		if (info.ssi_signo < NSIG)
			atomic_store(&t->shared->seen_ns[info.ssi_signo], now_ns());
		any = true;
	}
	if (any)
		sentinel_wake(t);
}

/* Acts only on what two looks have shown: between one `kill` and the next, states differ for a moment. */
static void sentinel_look(struct sentinel *t)
{
	bool was_stopped = t->stopped, mirroring;
	pid_t program;
	char state;

	t->stopped = t->supervisor != 0 && process_state(t->supervisor) == 'T';
	program = atomic_load(&t->shared->program);
	if (!t->stopped || !was_stopped || program == 0)
		return;
	mirroring = atomic_load(&t->shared->mirroring);
	state = process_state(program);
	if (state == 'T' || state == 't' || state == 0 || process_state(t->supervisor) != 'T')
		return;
	if (mirroring) {
		(void)kill(t->supervisor, SIGCONT);
	} else if (state != 'Z' && state != 'X') {
		/* If the supervisor runs again by now, it sees this before it sees the program stopped. */
		atomic_store(&t->shared->on_behalf, BEHALF_STOPPING);
		(void)kill(program, SIGSTOP);
		atomic_store(&t->shared->on_behalf, BEHALF_STOPPED);
		sentinel_wake(t);
	}
}

static void *sentinel_main(void *arg)
{
	struct sentinel *t = arg;
	struct pollfd fds[] = {{.fd = t->signal_fd, .events = POLLIN},
			       {.fd = t->ask_fd, .events = POLLIN}};

	for (;;) {
		uint32_t question;
		ssize_t n;

		(void)poll(fds, MSCOPE_COUNT(fds), t->stopped ? LOOK_STOPPED_MS : LOOK_MS);
		n = recv(t->ask_fd, &question, sizeof(question), MSG_DONTWAIT);
		if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
			break;
		sentinel_read_signals(t);
		/* Whatever was sent to this process before the question is stored by now. */
		if (n == (ssize_t)sizeof(question))
			(void)send(t->ask_fd, &question, sizeof(question), MSG_NOSIGNAL);
		sentinel_look(t);
	}
	/* The supervisor is dead: nobody asks any more, and signals stay blocked. */
	return NULL;
}

/* Without a sentinel its end of the socket closes, and the supervisor passes on every signal. */
static void sentinel_start(struct sentinel *t)
{
	pthread_attr_t attr;
	pthread_t thread;
	sigset_t all;
	int r;

	sigfillset(&all);
	t->signal_fd = signalfd(-1, &all, SFD_CLOEXEC | SFD_NONBLOCK);
	r = t->signal_fd < 0 ? errno : pthread_attr_init(&attr);
	if (r == 0) {
		(void)pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
		r = pthread_create(&thread, &attr, sentinel_main, t);
		(void)pthread_attr_destroy(&attr);
	}
	if (r != 0)
		close_fd(&t->ask_fd);
}

static _Noreturn void engine_main(const struct supervisor_launch *launch, struct shared *shared,
				  pid_t supervisor, int control_fd, int ask_fd)
{
	/* Not on the stack: the thread may be running while this function ends the process. */
	static struct sentinel sentinel;
	int code;

	retitle(launch->argv);
	/* In a process namespace of our own the supervisor has no number that we could use. */
	sentinel = (struct sentinel){.shared = shared,
				     .supervisor = getppid() == supervisor ? supervisor : 0,
				     .ask_fd = ask_fd};
	sentinel_start(&sentinel);
	/* Nice belongs to a thread: the sentinel, started before, stays prompt. */
	(void)setpriority(PRIO_PROCESS, 0, getpriority(PRIO_PROCESS, 0) + ENGINE_NICE);
	code = launch->engine(launch->engine_arg, control_fd);
	(void)fflush(NULL);
	_exit(code);
}

/* What follows runs in the program's process, before it is the program. */

static bool is_elf(const char *path)
{
	unsigned char magic[4] = {0};
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, magic, sizeof(magic));

	close_fd(&fd);
	return n == (ssize_t)sizeof(magic) && memcmp(magic, "\177ELF", 4) == 0;
}

static _Noreturn void program_main(const struct supervisor_launch *launch, pid_t supervisor,
				   int start_fd, char **shell_argv,
				   const struct sigaction *child_action,
				   const struct itimerval *alarm_timer)
{
	pid_t parent;
	ssize_t n;
	char go;
	int e;

	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	/* If it died before that, nothing will kill us. 0: a parent outside of our process namespace. */
	parent = getppid();
	if (parent != supervisor && parent != 0)
		_exit(MSCOPE_EXIT_FAILED);
	(void)sigaction(SIGCHLD, child_action, NULL);
	do
		n = recv(start_fd, &go, sizeof(go), 0);
	while (n < 0 && errno == EINTR);
	if (n != (ssize_t)sizeof(go))
		_exit(MSCOPE_EXIT_FAILED);
	if (timerisset(&alarm_timer->it_value))
		(void)setitimer(ITIMER_REAL, alarm_timer, NULL);

	(void)execve(launch->path, launch->argv, launch->envp);
	e = errno;
	/* As execvp() does, but without handing programs for other machines to the shell. */
	if (e == ENOEXEC && !is_elf(launch->path)) {
		(void)execve(shell_argv[0], shell_argv, launch->envp);
		e = errno;
	}
	(void)send(start_fd, &e, sizeof(e), MSG_NOSIGNAL);
	_exit(e == ENOENT ? MSCOPE_EXIT_NOT_FOUND : MSCOPE_EXIT_NOT_EXECUTABLE);
}

/* What follows runs in the supervisor. */

static void tell_engine(struct supervisor *s, enum supervisor_event event)
{
	struct supervisor_message message = {.event = (int32_t)event,
					     .pid = s->program,
					     .status = s->result->status,
					     .exec_errno = s->result->exec_errno};

	(void)send(s->control_fd, &message, sizeof(message), MSG_DONTWAIT | MSG_NOSIGNAL);
}

static void forward(struct supervisor *s, const struct signalfd_siginfo *info)
{
	int signo = (int)info->ssi_signo;

	if (signo == SIGCONT)
		s->sigcont = 1;
	if (info->ssi_code == SI_QUEUE) {
		siginfo_t si = {.si_signo = signo, .si_code = SI_QUEUE};

		si.si_pid = (pid_t)info->ssi_pid;
		si.si_uid = info->ssi_uid;
		si.si_value.sival_ptr = (void *)(uintptr_t)info->ssi_ptr;
		(void)syscall(SYS_rt_sigqueueinfo, s->program, signo, &si);
	} else {
		(void)kill(s->program, signo);
	}
}

/* False when its answer could say nothing about the program. */
static bool sentinel_counts(const struct supervisor *s)
{
	return s->sentinel_fd >= 0 && getpgid(s->program) == getpgrp();
}

/* Decides about one held signal; false: not yet. */
static bool settle(struct supervisor *s, struct held *h, int64_t now)
{
	if (!sentinel_counts(s)) {
		forward(s, &h->info);
		return true;
	}
	/* An engine that is still stopped has not got it. */
	if (h->question == 0 && now >= h->due_ns && h->info.ssi_signo == SIGCONT &&
	    process_state(s->engine) == 'T') {
		(void)kill(s->engine, SIGCONT);
		forward(s, &h->info);
		return true;
	}
	if (h->question == 0 && now >= h->due_ns) {
		uint32_t question = ++s->asked;

		if (send(s->sentinel_fd, &question, sizeof(question),
			 MSG_DONTWAIT | MSG_NOSIGNAL) != (ssize_t)sizeof(question))
			close_fd(&s->sentinel_fd);
		h->question = question;
		h->due_ns = now + ANSWER_NS;
		return s->sentinel_fd < 0 ? settle(s, h, now) : false;
	}
	if (h->question == 0 || (s->answered < h->question && now < h->due_ns))
		return false;
	if (atomic_load(&s->shared->seen_ns[h->info.ssi_signo]) < h->since_ns - WINDOW_NS)
		forward(s, &h->info);
	else if (h->info.ssi_signo == SIGCONT)
		s->sigcont = -1;
	return true;
}

static void settle_all(struct supervisor *s, int64_t now)
{
	size_t kept = 0;

	if (s->program == 0)
		s->held_count = 0;
	for (size_t i = 0; i < s->held_count; i++) {
		if (!settle(s, &s->held[i], now))
			s->held[kept++] = s->held[i];
	}
	s->held_count = kept;
}

static void hold(struct supervisor *s, const struct signalfd_siginfo *info, int64_t since_ns,
		 int64_t now)
{
	for (size_t i = 0; i < s->held_count; i++) {
		/* Pending standard signals are one signal, here as in the kernel. */
		if (s->held[i].info.ssi_signo == info->ssi_signo && s->held[i].question == 0 &&
		    (int)info->ssi_signo < SIGRTMIN)
			return;
	}
	if (s->held_count == HELD_MAX) {
		forward(s, &s->held[0].info);
		memmove(&s->held[0], &s->held[1], (HELD_MAX - 1) * sizeof(s->held[0]));
		s->held_count--;
	}
	s->held[s->held_count++] =
		(struct held){.info = *info, .since_ns = since_ns, .due_ns = now + WINDOW_NS};
}

static bool holds(const struct supervisor *s, int signo)
{
	for (size_t i = 0; i < s->held_count; i++) {
		if ((int)s->held[i].info.ssi_signo == signo)
			return true;
	}
	return false;
}

/* Stops this process by the default action of `signo` and returns when it is continued. */
static void stop_self(struct supervisor *s, int signo)
{
	struct sigaction action = {.sa_handler = SIG_DFL};
	sigset_t one;

	sigemptyset(&one);
	sigaddset(&one, signo);
	(void)sigaction(signo, &action, NULL);
	atomic_store(&s->shared->mirroring, 1);
	(void)kill(getpid(), signo);
	(void)sigprocmask(SIG_UNBLOCK, &one, NULL);
	(void)sigprocmask(SIG_BLOCK, &one, NULL);
	atomic_store(&s->shared->mirroring, 0);
}

/* The program is gone and the engine finishes files: signals are for us now. */
static void on_late_signal(struct supervisor *s, int signo, int64_t now)
{
	if (sigismember(&s->ignored, signo))
		return;
	switch (signo) {
	case SIGINT:
	case SIGTERM:
	case SIGQUIT:
		if (s->engine == 0 || now - s->ended_ns < GRACE_NS)
			break;
		if (!s->result->interrupted) {
			s->result->interrupted = true;
			s->interrupted_ns = now;
			s->kill_ns = now + RETURN_NS;
			tell_engine(s, SUPERVISOR_INTERRUPTED);
		} else if (now - s->interrupted_ns >= GRACE_NS) {
			s->kill_ns = now;
		}
		break;
	case SIGTSTP:
	case SIGTTIN:
	case SIGTTOU:
		stop_self(s, signo);
		break;
	default:
		break;
	}
}

static void on_signal(struct supervisor *s, const struct signalfd_siginfo *info, int64_t since_ns,
		      int64_t now)
{
	int signo = (int)info->ssi_signo;
	bool from_kernel = info->ssi_code > 0;

	/* The sentinel has woken us because the program runs. */
	if (signo == SIGCONT && !from_kernel && s->engine != 0 && (pid_t)info->ssi_pid == s->engine)
		return;
	if (s->program == 0) {
		on_late_signal(s, signo, now);
		return;
	}
	/* A terminal that hangs up tells its session leader alone. Without us that were the program. */
	if (from_kernel && !(s->session_leader && (signo == SIGHUP || signo == SIGCONT)))
		return;
	hold(s, info, since_ns, now);
}

static void read_signals(struct supervisor *s)
{
	struct signalfd_siginfo info;
	int64_t since_ns = s->drained_ns;

	s->drained_ns = now_ns();
	while (read(s->signal_fd, &info, sizeof(info)) == (ssize_t)sizeof(info))
		on_signal(s, &info, since_ns, now_ns());
}

/* The signal by which the program is stopped, 0 when it runs. With WNOWAIT in `flags` it is told again. */
static int program_stop(const struct supervisor *s, int flags)
{
	siginfo_t si = {0};

	if (waitid(P_PID, (id_t)s->program, &si, WSTOPPED | WNOHANG | flags) != 0)
		return 0;
	return si.si_pid == 0 ? 0 : si.si_status;
}

/*
 * We run, so the program has to run. A SIGCONT that was passed on has done it; one that went to the group has done it, unless it
 * came before the stop.
 */
static void undo_stop(struct supervisor *s, int64_t now)
{
	switch (atomic_load(&s->shared->on_behalf)) {
	case BEHALF_STOPPING:
		s->recheck_ns = now + MS;
		break;
	case BEHALF_STOPPED:
		/* What continued us may have come since this turn began. */
		read_signals(s);
		if (holds(s, SIGCONT))
			break;
		atomic_store(&s->shared->on_behalf, BEHALF_NONE);
		if (s->sigcont == 0 || (s->sigcont < 0 && program_stop(s, WNOWAIT) != 0))
			(void)kill(s->program, SIGCONT);
		break;
	default:
		break;
	}
}

static void mirror_stop(struct supervisor *s)
{
	int signo;

	if (program_stop(s, WNOWAIT) == 0)
		return;
	/* A SIGCONT on its way to the program may not have ended its stop yet. */
	read_signals(s);
	if (holds(s, SIGCONT))
		return;
	/* Asked after the state: the sentinel says so before it stops the program. */
	if (atomic_load(&s->shared->on_behalf) != BEHALF_NONE)
		return;
	signo = program_stop(s, 0);
	if (signo != 0)
		stop_self(s, signo);
}

static void read_answers(struct supervisor *s)
{
	uint32_t answer;
	ssize_t n;

	while (s->sentinel_fd >= 0) {
		n = recv(s->sentinel_fd, &answer, sizeof(answer), MSG_DONTWAIT);
		if (n == (ssize_t)sizeof(answer) && answer != 0)
			s->answered = answer;
		else if (n == (ssize_t)sizeof(answer))
			s->recheck_ns = now_ns() + WINDOW_NS;
		else if (n < 0 && errno == EAGAIN)
			break;
		else
			close_fd(&s->sentinel_fd);
	}
}

static void read_notes(struct supervisor *s)
{
	char note[SUPERVISOR_NOTE_BYTES];
	ssize_t n;

	while (s->control_fd >= 0) {
		n = recv(s->control_fd, note, sizeof(note) - 1, MSG_DONTWAIT);
		if (n > 0) {
			note[n] = '\0';
			memcpy(s->result->note, note, (size_t)n + 1);
		} else if (n < 0 && errno == EAGAIN) {
			break;
		} else {
			close_fd(&s->control_fd);
		}
	}
}

static void read_start(struct supervisor *s)
{
	ssize_t n;
	int e = 0;

	if (s->start_fd < 0)
		return;
	n = recv(s->start_fd, &e, sizeof(e), MSG_DONTWAIT);
	if (n < 0 && errno == EAGAIN)
		return;
	if (n == (ssize_t)sizeof(e))
		s->result->exec_errno = e;
	else
		tell_engine(s, SUPERVISOR_STARTED);
	close_fd(&s->start_fd);
}

/* Every dead child, also orphans that were given to us as pid 1 and children from before this process was msmemscope. */
static void reap(struct supervisor *s)
{
	for (;;) {
		siginfo_t si = {0};
		int status = 0;

		if (waitid(P_ALL, 0, &si, WEXITED | WNOHANG | WNOWAIT) != 0 || si.si_pid == 0)
			return;
		/* The number may belong to somebody else as soon as it is reaped. */
		if (si.si_pid == s->program)
			atomic_store(&s->shared->program, 0);
		(void)waitpid(si.si_pid, &status, 0);
		if (si.si_pid == s->program) {
			read_start(s);
			s->result->status = status;
			s->ended_ns = now_ns();
			tell_engine(s, SUPERVISOR_ENDED);
			s->program = 0;
			/* Whoever stopped it, now it has to work. */
			if (s->engine != 0)
				(void)kill(s->engine, SIGCONT);
		} else if (si.si_pid == s->engine) {
			read_notes(s);
			s->result->engine_status = status;
			s->result->engine_lost = s->program != 0 || !WIFEXITED(status);
			s->engine = 0;
			s->kill_ns = 0;
		}
	}
}

/* Milliseconds until something falls due, -1 for never. */
static int patience_ms(const struct supervisor *s, int64_t now)
{
	int64_t due = s->kill_ns == 0 ? INT64_MAX : s->kill_ns;

	if (s->recheck_ns != 0 && s->recheck_ns < due)
		due = s->recheck_ns;
	for (size_t i = 0; i < s->held_count; i++) {
		if (s->held[i].due_ns < due)
			due = s->held[i].due_ns;
	}
	if (due == INT64_MAX)
		return -1;
	return due <= now ? 0 : (int)((due - now + MS - 1) / MS);
}

static void supervise(struct supervisor *s)
{
	while (s->program != 0 || s->engine != 0) {
		struct pollfd fds[] = {{.fd = s->signal_fd, .events = POLLIN},
				       {.fd = s->start_fd, .events = POLLIN},
				       {.fd = s->sentinel_fd, .events = POLLIN},
				       {.fd = s->control_fd, .events = POLLIN}};
		int64_t now;

		(void)poll(fds, MSCOPE_COUNT(fds), patience_ms(s, now_ns()));
		read_answers(s);
		now = now_ns();
		read_signals(s);
		read_start(s);
		read_notes(s);
		reap(s);
		if (now >= s->recheck_ns)
			s->recheck_ns = 0;
		s->sigcont = 0;
		settle_all(s, now);
		if (s->program != 0) {
			undo_stop(s, now);
			mirror_stop(s);
		}
		if (s->kill_ns != 0 && now >= s->kill_ns) {
			(void)kill(s->engine, SIGKILL);
			s->kill_ns = 0;
		}
	}
}

static void read_ignored(sigset_t *out)
{
	sigemptyset(out);
	for (int signo = 1; signo < NSIG; signo++) {
		struct sigaction action;

		if (sigaction(signo, NULL, &action) == 0 && action.sa_handler == SIG_IGN)
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

int supervisor_run(const struct supervisor_launch *launch, struct supervisor_result *out_result)
{
	struct supervisor_result result = {0};
	struct supervisor s = {.result = &result,
			       .start_fd = -1,
			       .control_fd = -1,
			       .sentinel_fd = -1,
			       .signal_fd = -1};
	struct sigaction child_action, child_default = {.sa_handler = SIG_DFL};
	int start[2] = {-1, -1}, control[2] = {-1, -1}, ask[2] = {-1, -1};
	struct itimerval alarm_timer = {0}, no_timer = {0};
	char **shell_argv = shell_vector(launch);
	const pid_t self = getpid();
	sigset_t all, mask;
	const char go = 1;
	int r = 0;

	s.shared = mmap(NULL, sizeof(*s.shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
			-1, 0);
	if (shell_argv == NULL || s.shared == MAP_FAILED) {
		r = -ENOMEM;
		goto out;
	}
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, start) != 0) {
		r = -errno;
		goto out;
	}
	s.session_leader = getsid(0) == self;
	read_ignored(&s.ignored);
	/* What waits in our buffers must not be written twice. */
	(void)fflush(NULL);
	/* Where SIGCHLD is ignored nobody can wait; the program gets it back as it was. */
	(void)sigaction(SIGCHLD, &child_default, &child_action);
	/* An alarm outlives execve() but not fork(): it is the program's. */
	(void)setitimer(ITIMER_REAL, &no_timer, &alarm_timer);

	s.program = fork();
	if (s.program < 0) {
		r = -errno;
		goto restore;
	}
	if (s.program == 0) {
		(void)close(start[0]);
		program_main(launch, self, start[1], shell_argv, &child_action, &alarm_timer);
	}
	close_fd(&start[1]);
	sigfillset(&all);
	(void)sigprocmask(SIG_BLOCK, &all, &mask);
	s.drained_ns = now_ns();
	s.signal_fd = signalfd(-1, &all, SFD_CLOEXEC | SFD_NONBLOCK);
	if (s.signal_fd < 0 ||
	    socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, control) != 0 ||
	    socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ask) != 0) {
		r = -errno;
		goto unstart;
	}
	atomic_store(&s.shared->program, s.program);
	release_inherited();

	s.engine = fork();
	if (s.engine < 0) {
		r = -errno;
		goto unstart;
	}
	if (s.engine == 0) {
		(void)close(start[0]);
		(void)close(s.signal_fd);
		(void)close(control[0]);
		(void)close(ask[0]);
		engine_main(launch, s.shared, self, control[1], ask[1]);
	}
	close_fd(&control[1]);
	close_fd(&ask[1]);
	if (launch->engine_fd > 0)
		(void)close(launch->engine_fd);
	s.start_fd = start[0];
	s.control_fd = control[0];
	s.sentinel_fd = ask[0];
	(void)send(s.start_fd, &go, sizeof(go), MSG_NOSIGNAL);

	supervise(&s);
	*out_result = result;
	start[0] = s.start_fd;
	control[0] = s.control_fd;
	ask[0] = s.sentinel_fd;
	goto out;

unstart:
	(void)kill(s.program, SIGKILL);
	(void)waitpid(s.program, NULL, 0);
	(void)sigprocmask(SIG_SETMASK, &mask, NULL);
restore:
	(void)setitimer(ITIMER_REAL, &alarm_timer, NULL);
	(void)sigaction(SIGCHLD, &child_action, NULL);
out:
	close_fd(&start[0]);
	close_fd(&start[1]);
	close_fd(&control[0]);
	close_fd(&control[1]);
	close_fd(&ask[0]);
	close_fd(&ask[1]);
	close_fd(&s.signal_fd);
	if (s.shared != MAP_FAILED)
		(void)munmap(s.shared, sizeof(*s.shared));
	free(shell_argv);
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
		/* A core of ours tells nothing. The limit does not keep it from a core_pattern that is a pipe. */
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
