/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/sentinel.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/io.h"
#include "engine/traced_process.h"

/* Pause between two checks of a running supervisor, and of one that was just seen stopped. */
#define CHECK_MS	 100
#define CHECK_STOPPED_MS 20

static void wake_supervisor(struct sentinel *sentinel)
{
	const uint32_t no_answer = 0;

	(void)send(sentinel->ask_fd, &no_answer, sizeof(no_answer), MSG_DONTWAIT | MSG_NOSIGNAL);
}

/*
 * Each time something was read, a word wakes the supervisor. It reads its own signals now and once more when the window has
 * passed, and so knows that what comes later has nothing to do with this one. The word may be lost while the supervisor is
 * stopped and the socket full, when it would say nothing new.
 */
static void read_signals(struct sentinel *sentinel)
{
	struct signalfd_siginfo info;
	bool any = false;

	while (read(sentinel->signal_fd, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
		if (info.ssi_signo < NSIG)
			atomic_store(&sentinel->page->seen_ns[info.ssi_signo],
				     (int64_t)clock_monotonic_ns());
		any = true;
	}
	if (any)
		wake_supervisor(sentinel);
}

/* Acts only on what two checks have shown: between one `kill` and the next, states differ for a moment. */
static void check_supervisor(struct sentinel *sentinel)
{
	bool was_stopped = sentinel->stopped, mirroring;
	pid_t program;
	char state;

	sentinel->stopped =
		sentinel->supervisor != 0 && process_state((uint32_t)sentinel->supervisor) == 'T';
	program = atomic_load(&sentinel->page->program);
	if (!sentinel->stopped || !was_stopped || program == 0)
		return;
	mirroring = atomic_load(&sentinel->page->mirroring);
	state = process_state((uint32_t)program);
	if (state == 'T' || state == 't' || state == 0 ||
	    process_state((uint32_t)sentinel->supervisor) != 'T')
		return;
	if (mirroring) {
		(void)kill(sentinel->supervisor, SIGCONT);
	} else if (state != 'Z' && state != 'X') {
		/* If the supervisor runs again by now, it sees this before it sees the program stopped. */
		atomic_store(&sentinel->page->on_behalf, BEHALF_STOPPING);
		(void)kill(program, SIGSTOP);
		atomic_store(&sentinel->page->on_behalf, BEHALF_STOPPED);
		wake_supervisor(sentinel);
	}
}

static void *thread_main(void *arg)
{
	struct sentinel *sentinel = arg;
	struct pollfd fds[] = {{.fd = sentinel->signal_fd, .events = POLLIN},
			       {.fd = sentinel->ask_fd, .events = POLLIN}};

	for (;;) {
		uint32_t question;
		ssize_t n;

		(void)poll(fds, MSCOPE_COUNT(fds), sentinel->stopped ? CHECK_STOPPED_MS : CHECK_MS);
		n = recv(sentinel->ask_fd, &question, sizeof(question), MSG_DONTWAIT);
		if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
			break;
		read_signals(sentinel);
		/* Whatever was sent to this process before the question is stored by now. */
		if (n == (ssize_t)sizeof(question))
			(void)send(sentinel->ask_fd, &question, sizeof(question), MSG_NOSIGNAL);
		check_supervisor(sentinel);
	}
	/* The supervisor is dead: no question will come, and signals stay blocked. */
	return NULL;
}

void sentinel_start(struct sentinel *sentinel)
{
	pthread_attr_t attr;
	pthread_t thread;
	sigset_t all;
	int r;

	sigfillset(&all);
	sentinel->signal_fd = signalfd(-1, &all, SFD_CLOEXEC | SFD_NONBLOCK);
	r = sentinel->signal_fd < 0 ? errno : pthread_attr_init(&attr);
	if (r == 0) {
		(void)pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
		r = pthread_create(&thread, &attr, thread_main, sentinel);
		(void)pthread_attr_destroy(&attr);
	}
	if (r != 0)
		io_close(&sentinel->ask_fd);
}
