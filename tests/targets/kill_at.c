/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kill_at N PROGRAM ARGS...: runs PROGRAM and kills it when it is about to make its N-th system call of those that change files.
 * kill_at N -PID:            the same to a process that runs already, counted from now on; prints a line when it counts.
 *
 * Ends with status 0 when it was killed, 3 when it ended by itself before. Not itself traced by anything, so that the process
 * under test is undisturbed but for its pace. Children of PROGRAM are let go.
 */
#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* Calls after which another process finds the file system, or a file, changed. */
static const long changing[] = {
	SYS_write,     SYS_pwrite64, SYS_writev,    SYS_pwritev, SYS_openat,   SYS_ftruncate,
	SYS_fallocate, SYS_unlinkat, SYS_renameat2, SYS_mkdirat, SYS_sendfile, SYS_linkat,
	SYS_symlinkat,
#ifdef SYS_open /* the older ones are not on every machine */
	SYS_open,      SYS_unlink,   SYS_rename,    SYS_mkdir,	 SYS_rmdir,    SYS_creat,
#endif
	SYS_renameat,
};

static void fail(const char *what)
{
	perror(what);
	exit(1);
}

/* The system call that the process is about to make, -1 when it comes back from one. */
static long about_to(pid_t pid)
{
	struct __ptrace_syscall_info info;

	if (ptrace(PTRACE_GET_SYSCALL_INFO, pid, sizeof(info), &info) <= 0)
		fail("PTRACE_GET_SYSCALL_INFO");
	return info.op == PTRACE_SYSCALL_INFO_ENTRY ? (long)info.entry.nr : -1;
}

static bool changes_files(long number)
{
	for (size_t i = 0; i < sizeof(changing) / sizeof(changing[0]); i++) {
		if (changing[i] == number)
			return true;
	}
	return false;
}

static pid_t begin(char **argv)
{
	pid_t pid;
	int status;

	if (argv[0][0] == '-' && argv[1] == NULL) {
		pid = -atoi(argv[0]);
		if (ptrace(PTRACE_SEIZE, pid, 0, PTRACE_O_TRACESYSGOOD) < 0 ||
		    ptrace(PTRACE_INTERRUPT, pid, 0, 0) < 0)
			fail("ptrace");
		(void)waitpid(pid, &status, __WALL);
		printf("counting\n");
		(void)fflush(stdout);
		return pid;
	}
	pid = fork();
	if (pid == 0) {
		(void)raise(SIGSTOP);
		execv(argv[0], argv);
		fail(argv[0]);
	}
	if (pid < 0 || waitpid(pid, &status, WUNTRACED) != pid ||
	    ptrace(PTRACE_SEIZE, pid, 0, PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL) < 0)
		fail("ptrace");
	(void)kill(pid, SIGCONT);
	if (ptrace(PTRACE_INTERRUPT, pid, 0, 0) < 0)
		fail("ptrace");
	(void)waitpid(pid, &status, __WALL);
	return pid;
}

int main(int argc, char **argv)
{
	long left = argc > 2 ? atol(argv[1]) : 0;
	int status, deliver = 0;
	pid_t pid;

	if (left <= 0) {
		fprintf(stderr, "usage: kill_at N PROGRAM ARGS... | kill_at N -PID\n");
		return 2;
	}
	pid = begin(argv + 2);
	for (;;) {
		if (ptrace(PTRACE_SYSCALL, pid, 0, deliver) < 0 && errno != ESRCH)
			fail("ptrace");
		if (waitpid(pid, &status, __WALL) != pid)
			return 3;
		if (WIFEXITED(status) || WIFSIGNALED(status))
			return 3;
		deliver = 0;
		if (WSTOPSIG(status) == (SIGTRAP | 0x80)) {
			if (changes_files(about_to(pid)) && --left == 0) {
				(void)kill(pid, SIGKILL);
				(void)waitpid(pid, &status, __WALL);
				return 0;
			}
		} else if (status >> 16 == 0 && WSTOPSIG(status) != SIGTRAP) {
			deliver = WSTOPSIG(
				status); /* a signal of its own; stops of the tracing itself are not delivered */
		}
	}
}
