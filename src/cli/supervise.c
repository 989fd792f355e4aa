/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/supervise.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/compiler.h"
#include "base/io.h"
#include "engine/traced_process.h"

#define MS INT64_C(1000000)

/* A signal to the group reaches all its members within this. */
#define WINDOW_NS (50 * MS)
/* A sentinel that does not answer within this is stopped or starved. */
#define ANSWER_NS (1000 * MS)
/* What follows the program's end as closely as this still belongs to what ended it. */
#define GRACE_NS (250 * MS)
/* An interrupted engine has this long to return before it is killed. */
#define RETURN_NS (2000 * MS)

static int64_t now_ns(void)
{
	return (int64_t)clock_monotonic_ns();
}

static void notify_engine(struct supervisor *s, enum supervisor_event event)
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
static bool decide(struct supervisor *s, struct held *h, int64_t now)
{
	if (!sentinel_counts(s)) {
		forward(s, &h->info);
		return true;
	}
	/* An engine that is still stopped has not got it. */
	if (h->question == 0 && now >= h->due_ns && h->info.ssi_signo == SIGCONT &&
	    process_state((uint32_t)s->engine) == 'T') {
		(void)kill(s->engine, SIGCONT);
		forward(s, &h->info);
		return true;
	}
	if (h->question == 0 && now >= h->due_ns) {
		uint32_t question = ++s->asked;

		if (send(s->sentinel_fd, &question, sizeof(question),
			 MSG_DONTWAIT | MSG_NOSIGNAL) != (ssize_t)sizeof(question))
			io_close(&s->sentinel_fd);
		h->question = question;
		h->due_ns = now + ANSWER_NS;
		return s->sentinel_fd < 0 ? decide(s, h, now) : false;
	}
	if (h->question == 0 || (s->answered < h->question && now < h->due_ns))
		return false;
	if (atomic_load(&s->page->seen_ns[h->info.ssi_signo]) < h->since_ns - WINDOW_NS)
		forward(s, &h->info);
	else if (h->info.ssi_signo == SIGCONT)
		s->sigcont = -1;
	return true;
}

static void decide_all(struct supervisor *s, int64_t now)
{
	size_t kept = 0;

	if (s->program == 0)
		s->held_count = 0;
	for (size_t i = 0; i < s->held_count; i++) {
		if (!decide(s, &s->held[i], now))
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
	if (s->held_count == SUPERVISE_HELD_MAX) {
		forward(s, &s->held[0].info);
		memmove(&s->held[0], &s->held[1], (SUPERVISE_HELD_MAX - 1) * sizeof(s->held[0]));
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
	atomic_store(&s->page->mirroring, 1);
	(void)kill(getpid(), signo);
	(void)sigprocmask(SIG_UNBLOCK, &one, NULL);
	(void)sigprocmask(SIG_BLOCK, &one, NULL);
	atomic_store(&s->page->mirroring, 0);
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
			notify_engine(s, SUPERVISOR_INTERRUPTED);
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
	/* A terminal that hangs up tells its session leader alone. Without us that would be the program. */
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

/* The signal by which the program is stopped, 0 when it runs. With WNOWAIT in `flags` the next call returns it again. */
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
	switch (atomic_load(&s->page->on_behalf)) {
	case BEHALF_STOPPING:
		s->recheck_ns = now + MS;
		break;
	case BEHALF_STOPPED:
		/* What continued us may have come since this turn began. */
		read_signals(s);
		if (holds(s, SIGCONT))
			break;
		atomic_store(&s->page->on_behalf, BEHALF_NONE);
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
	if (atomic_load(&s->page->on_behalf) != BEHALF_NONE)
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
			io_close(&s->sentinel_fd);
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
		notify_engine(s, SUPERVISOR_STARTED);
	io_close(&s->start_fd);
}

/* Every dead child, also orphans that were given to us as pid 1 and children from before this process was msmemscope. */
static void reap(struct supervisor *s)
{
	for (;;) {
		siginfo_t si = {0};
		int status = 0;

		if (waitid(P_ALL, 0, &si, WEXITED | WNOHANG | WNOWAIT) != 0 || si.si_pid == 0)
			return;
		/* Once reaped, the number may belong to another process. */
		if (si.si_pid == s->program)
			atomic_store(&s->page->program, 0);
		(void)waitpid(si.si_pid, &status, 0);
		if (si.si_pid == s->program) {
			read_start(s);
			s->result->status = status;
			s->ended_ns = now_ns();
			notify_engine(s, SUPERVISOR_ENDED);
			s->program = 0;
			/* It may have been stopped; now it has to work. */
			if (s->engine != 0)
				(void)kill(s->engine, SIGCONT);
		} else if (si.si_pid == s->engine) {
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

void supervise(struct supervisor *s)
{
	while (s->program != 0 || s->engine != 0) {
		struct pollfd fds[] = {{.fd = s->signal_fd, .events = POLLIN},
				       {.fd = s->start_fd, .events = POLLIN},
				       {.fd = s->sentinel_fd, .events = POLLIN}};
		int64_t now;

		(void)poll(fds, MSCOPE_COUNT(fds), patience_ms(s, now_ns()));
		read_answers(s);
		now = now_ns();
		read_signals(s);
		read_start(s);
		reap(s);
		if (now >= s->recheck_ns)
			s->recheck_ns = 0;
		s->sigcont = 0;
		decide_all(s, now);
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
