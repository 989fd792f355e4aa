/* SPDX-License-Identifier: Apache-2.0 */
/*
 * confine WORD...: does in turn what the words say. `live` takes and gives back memory, `many` a lot of it; setuid, chroot,
 * nofile=N, fsize=N and raw_setuid give up rights; fork, _Fork and clone go on in a child and wait for it; vfork does `live` in the
 * child and goes on in the parent; exec starts the rest anew. The truth of each process goes to stdout, since files may not open any more.
 */
#include <dlfcn.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "target.h"

#define PAIRS 100
#define MANY  800000
#define OTHER 65534

static void set_limit(int resource, const char *value)
{
	struct rlimit limit = {strtoull(value, NULL, 10), strtoull(value, NULL, 10)};

	target_check(setrlimit(resource, &limit) == 0, "setrlimit failed");
}

/* True in the child; the parent has waited for it. */
static bool in_child(const char *kind)
{
	pid_t (*_fork)(void) = NULL;
	int status;
	pid_t pid;

	if (strcmp(kind, "_Fork") == 0)
		*(void **)&_fork = dlsym(RTLD_DEFAULT, "_Fork"); /* glibc 2.34 */
	if (strcmp(kind, "fork") == 0)
		pid = fork();
	else
		pid = _fork != NULL ? _fork() : (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
	if (pid == 0) {
		truth_reset();
		return true;
	}
	target_check(waitpid(pid, &status, 0) == pid && status == 0, "the child failed");
	return false;
}

/* The child shares our memory: it must only call what it undoes. */
static void live_in_vfork(void)
{
	pid_t pid = vfork();
	int status;

	if (pid == 0) {
		void *address = NULL;

		_exit(halMemAlloc(&address, 4096, FLAG_NORMAL) != 0 || halMemFree(address) != 0);
	}
	target_check(waitpid(pid, &status, 0) == pid && status == 0, "the child failed");
}

/* Without a log: more than is reserved for a process that confines itself. */
static void live_long(void)
{
	for (unsigned i = 0; i < MANY; i++) {
		void *address = NULL;

		target_check(halMemAlloc(&address, 4096, FLAG_NORMAL) == 0 &&
				     halMemFree(address) == 0,
			     "the driver failed");
	}
}

int main(int argc, char **argv)
{
	for (int i = 1; i < argc; i++) {
		const char *word = argv[i];

		if (strcmp(word, "live") == 0)
			truth_live(truth_new(2 * PAIRS), PAIRS, 0);
		else if (strcmp(word, "many") == 0)
			live_long();
		else if (strcmp(word, "setuid") == 0)
			target_check(setuid(OTHER) == 0, "setuid failed");
		else if (strcmp(word, "raw_setuid") == 0)
			target_check(syscall(SYS_setuid, OTHER) == 0, "setuid failed");
		else if (strcmp(word, "chroot") == 0)
			target_check(chroot("/proc/self/fdinfo") == 0 && chdir("/") == 0,
				     "chroot failed");
		else if (strncmp(word, "nofile=", 7) == 0)
			set_limit(RLIMIT_NOFILE, word + 7);
		else if (strncmp(word, "fsize=", 6) == 0)
			set_limit(RLIMIT_FSIZE, word + 6);
		else if (strcmp(word, "vfork") == 0)
			live_in_vfork();
		else if (strcmp(word, "exec") == 0) {
			argv[i] = argv[0];
			execv(argv[0], argv + i);
			target_fail("exec failed");
		} else if (!in_child(word))
			break;
	}
	truth_write_to(NULL);
	return 0;
}
