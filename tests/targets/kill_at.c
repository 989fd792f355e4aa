/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kill_at N PROGRAM ARGS...: runs PROGRAM and kills it when it is about to make its N-th system call of those that change files.
 * kill_at N -PID:            the same to a process that runs already, counted from now on; prints a line when it counts.
 * kill_at Nr ...:            files that are only opened for reading count, too. They leave all files as they are, and are most of the calls.
 *
 * Ends with status 0 when it was killed, 3 when it ended by itself before. Not itself traced by anything, so that the process
 * under test is undisturbed but for its pace. Children of PROGRAM are let go.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* Calls after which another process finds the file system, or a file, changed; of those that open files, by their flags. */
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

static bool only_reads(const struct __ptrace_syscall_info *info)
{
	long number = (long)info->entry.nr, flags;

	if (number == SYS_openat)
		flags = (long)info->entry.args[2];
#ifdef SYS_open
	else if (number == SYS_open)
		flags = (long)info->entry.args[1];
#endif
	else
		return false;
	return (flags & O_ACCMODE) == O_RDONLY && (flags & (O_CREAT | O_TRUNC)) == 0;
}

/* Whether the process, which has stopped at a system call, is about to make one that counts; not when it comes back from it. */
static bool counts(pid_t pid, bool reads_count)
{
	struct __ptrace_syscall_info info;

	if (ptrace(PTRACE_GET_SYSCALL_INFO, pid, sizeof(info), &info) <= 0)
		fail("PTRACE_GET_SYSCALL_INFO");
	if (info.op != PTRACE_SYSCALL_INFO_ENTRY)
		return false;
	for (size_t i = 0; i < sizeof(changing) / sizeof(changing[0]); i++) {
		if (changing[i] == (long)info.entry.nr)
			return reads_count || !only_reads(&info);
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
	char *after = NULL;
	long left = argc > 2 ? strtol(argv[1], &after, 10) : 0;
	bool reads_count = left > 0 && *after == 'r';
	int status, deliver = 0;
	pid_t pid;

	if (left <= 0) {
		fprintf(stderr, "usage: kill_at N[r] PROGRAM ARGS... | kill_at N[r] -PID\n");
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
			if (counts(pid, reads_count) && --left == 0) {
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
