/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An engine for a process that no command launched. The process starts it by itself, and the program does not notice.
 *
 *     this thread --clone(no exit signal)--> go-between --clone--> engine: setsid, execve
 *
 * The go-between ends at once, so the engine is no child of this process: waitpid(-1) does not see it and no SIGCHLD comes. Both
 * share our memory until the exec, as after vfork(), so no fork handler runs and nothing is copied. Bare system calls are used
 * because glibc's clone() up to 2.24 overwrites the thread id that the thread library keeps for the calling thread.
 *
 * The engine's standard output is a pipe to us. One line on it is the directory of the session that it made.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "collector/api.h"
#include "collector/loader/lookup.h"
#include "collector/process/process.h"
#include "collector/record/chunk_supply.h"
#include "collector/record/writer.h"
#include "collector/sys.h"

#define READY_WAIT_MS  60000
#define KERNEL_SIGNALS 64
#define CLONE_SHARED   (0x00000100ul | 0x00004000ul) /* CLONE_VM | CLONE_VFORK */

extern char **environ;

struct spawn {
	const char *path;
	const char *const *argv;
	int answer_fd; /* becomes standard output */
	int null_fd;
	volatile int error; /* errno of what failed in the new process */
};

/*
 * Returns in parent and child, on the same stack. In the child the caller only calls a function that never returns, so the frame
 * that the parent returns to stays as it was.
 */
static inline long clone_shared(unsigned long flags)
{
#if defined(__x86_64__)
	register long r10 __asm__("r10") = 0;
	register long r8 __asm__("r8") = 0;
	long r;

	__asm__ volatile("syscall"
			 : "=a"(r)
			 : "a"((long)SYS_clone), "D"(flags), "S"(0L), "d"(0L), "r"(r10), "r"(r8)
			 : "rcx", "r11", "memory");
	return r;
#else
	register long x8 __asm__("x8") = SYS_clone;
	register unsigned long x0 __asm__("x0") = flags;
	register long x1 __asm__("x1") = 0;
	register long x2 __asm__("x2") = 0;
	register long x3 __asm__("x3") = 0;
	register long x4 __asm__("x4") = 0;

	__asm__ volatile("svc 0"
			 : "+r"(x0)
			 : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4)
			 : "memory");
	return (long)x0;
#endif
}

static _Noreturn void leave(int status)
{
	for (;;)
		(void)syscall(SYS_exit_group, status);
}

/* Makes `fd`, which is above 2, the descriptor `number` of the new process. */
static void put_descriptor(int fd, int number)
{
	(void)syscall(SYS_dup3, fd, number, 0);
}

static _Noreturn MSCOPE_COLD void become_engine(struct spawn *spawn)
{
	uint64_t none = 0;

	(void)syscall(SYS_setsid);
	put_descriptor(spawn->null_fd, STDIN_FILENO);
	put_descriptor(spawn->answer_fd, STDOUT_FILENO);
	if (syscall(SYS_fcntl, STDERR_FILENO, F_GETFD) < 0)
		put_descriptor(spawn->null_fd, STDERR_FILENO);
	(void)syscall(SYS_rt_sigprocmask, SIG_SETMASK, &none, NULL, KERNEL_SIGNALS / 8);
	(void)syscall(SYS_execve, spawn->path, spawn->argv, environ);
	spawn->error = errno;
	leave(127);
}

static _Noreturn MSCOPE_COLD void go_between(struct spawn *spawn)
{
	long pid = clone_shared(CLONE_SHARED | SIGCHLD);

	if (pid == 0)
		become_engine(spawn);
	if (pid < 0)
		spawn->error = (int)-pid;
	leave(0);
}

static MSCOPE_COLD int spawn_engine(struct spawn *spawn)
{
	uint64_t all = UINT64_MAX, before = 0;
	long pid;

	/* A handler of the program must not run on our memory in another process. */
	(void)syscall(SYS_rt_sigprocmask, SIG_SETMASK, &all, &before, KERNEL_SIGNALS / 8);
	pid = clone_shared(CLONE_SHARED);
	if (pid == 0)
		go_between(spawn);
	if (pid > 0)
		(void)syscall(SYS_wait4, pid, NULL, __WALL, NULL);
	(void)syscall(SYS_rt_sigprocmask, SIG_SETMASK, &before, NULL, KERNEL_SIGNALS / 8);
	return pid < 0 ? (int)pid : -spawn->error;
}

/* A number above those of the standard descriptors, which the program may have closed. */
static int above_standard(int fd)
{
	int high = (int)syscall(SYS_fcntl, fd, F_DUPFD_CLOEXEC, 3);

	sys_close(fd);
	return high;
}

/* Reads the line with the session's directory. -ECHILD: the engine ended without one, and has told the user why. */
static int read_answer(int fd, char *out, size_t bytes)
{
	struct pollfd wait = {.fd = fd, .events = POLLIN};
	uint64_t start = clock_ns();
	size_t have = 0;

	while (have < bytes) {
		struct timespec slice = {.tv_sec = 1};
		ssize_t got;

		if (clock_ns() - start > READY_WAIT_MS * UINT64_C(1000000))
			return -ETIMEDOUT;
		if (syscall(SYS_ppoll, &wait, 1, &slice, NULL, 0) <= 0)
			continue;
		got = sys_read(fd, out + have, bytes - have);
		if (got < 0 && (errno == EINTR || errno == EAGAIN))
			continue;
		if (got <= 0)
			return -ECHILD;
		have += (size_t)got;
		if (out[have - 1] == '\n') {
			out[have - 1] = '\0';
			return out[0] == '/' ? 0 : -EPROTO;
		}
	}
	return -ENAMETOOLONG;
}

MSCOPE_EXPORT int32_t mscope_engine(char *out, uint32_t bytes)
{
	static const char beside[] = "../bin/msmemscope";

	if (bytes <= sizeof(beside))
		return -ENAMETOOLONG;
	lookup_own_directory(out, bytes - sizeof(beside));
	if (out[0] == '\0')
		return -ENOENT;
	strcat(out, beside);
	return 0;
}

static int start_engine(const char *engine, const char *const *argv)
{
	struct spawn spawn = {.path = engine, .argv = argv, .answer_fd = -1, .null_fd = -1};
	int ends[2], r;

	if (syscall(SYS_pipe2, ends, O_CLOEXEC) < 0)
		return -errno;
	ends[0] = above_standard(ends[0]);
	spawn.answer_fd = above_standard(ends[1]);
	spawn.null_fd = above_standard(sys_open("/dev/null", O_RDWR | O_CLOEXEC, 0));
	r = ends[0] < 0 || spawn.answer_fd < 0 || spawn.null_fd < 0 ? -EMFILE
								    : spawn_engine(&spawn);
	sys_close(spawn.answer_fd);
	sys_close(spawn.null_fd);
	if (r == 0)
		r = read_answer(ends[0], collector.text_scratch, sizeof(collector.text_scratch));
	sys_close(ends[0]);
	return r;
}

/* The engine of a session that this process could not record in ends, and a later start() may try again. */
static void session_give_up(void)
{
	uint32_t broken = RECORDING_BROKEN;
	struct session *session = session_map(collector.path_scratch,
					      sizeof(collector.path_scratch), collector.session);

	if (session != NULL) {
		control_leave(session);
		(void)munmap(session, sizeof(*session));
	}
	collector.session[0] = '\0';
	collector.own_session = false;
	if (collector.header == NULL)
		(void)atomic_compare_exchange_strong(&collector_switch.recording, &broken,
						     RECORDING_OFF);
}

int session_join(const char *directory, uint32_t wait_ms)
{
	uint32_t recording, before = RECORDING_EARLY;
	uint64_t start = clock_ns();

	(void)snprintf(collector.session, sizeof(collector.session), "%s", directory);
	collector.own_session = true;
	/* As in a fresh process: the next hook attaches, and finds the session. */
	if (!atomic_compare_exchange_strong(&collector_switch.recording, &before,
					    RECORDING_DETACHED) &&
	    before == RECORDING_OFF)
		(void)atomic_compare_exchange_strong(&collector_switch.recording, &before,
						     RECORDING_DETACHED);
	(void)collector_attach_slow();
	/* Another thread of the program attaches. An event does not wait long for it; the program's own call may. */
	while ((recording = recording_now()) == RECORDING_ATTACHING &&
	       clock_ns() - start < wait_ms * UINT64_C(1000000))
		sys_yield();
	if (recording == RECORDING_ON || recording == RECORDING_SHADOW)
		return 0;
	if (recording != RECORDING_ATTACHING)
		session_give_up();
	return -EIO;
}

MSCOPE_EXPORT int32_t mscope_open(const char *engine, const char *const *argv)
{
	uint32_t recording = mscope_recording();
	bool was_quiet = quiet_is_on();
	int saved_errno = errno, r;

	if (recording == RECORDING_ON || recording == RECORDING_SHADOW)
		return 0;
	if (recording != RECORDING_OFF || lookup_is_passive_quiet() || session_is_disabled())
		return -EPERM;
	/* Whether the filter allows it, the program knows. */
	quiet_end();
	r = start_engine(engine, argv);
	if (r == 0)
		r = session_join(collector.text_scratch, READY_WAIT_MS);
	if (was_quiet) {
		if (r == 0)
			writers_become_quiet();
		quiet_begin();
	}
	errno = saved_errno;
	return r;
}
