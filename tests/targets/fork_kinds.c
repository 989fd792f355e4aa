/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fork_kinds [unlogged] KIND...: one child per KIND (fork, _Fork, clone, vfork, spawn, nested, idle, thread) while other
 * threads take and give back memory. Each child takes memory of its own; its log says so under its own pid. `nested` forks
 * again in the child, `thread` starts a thread in the child, `idle` never calls the driver. With `unlogged` the other threads
 * are short-lived, never pause and say nothing: many forks come amid their calls, and only the children's logs are whole.
 *
 * After _Fork and clone a lock that another thread held stays locked in the child, so those two need a driver without
 * locks; the test runs them on the bare one. Children say nothing through stdio for the same reason.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>

#include "target.h"

#define LOGGED_THREADS	 2
#define UNLOGGED_THREADS 6
#define BURST		 1500
#define PAIRS		 200

extern char **environ;

static atomic_uint forks;
static atomic_bool stopping;
static char *program;

/* Works only around a fork, which then finds threads amid their calls while the logs stay short. */
static void *background(void *argument)
{
	struct truth *truth = truth_new(1 << 17);
	unsigned seen = 0;
	(void)argument;

	while (!atomic_load(&stopping)) {
		if (atomic_load(&forks) == seen) {
			sched_yield();
			continue;
		}
		seen = atomic_load(&forks);
		for (unsigned i = 0; i < BURST && truth->events_count < truth->capacity - 2; i++)
			truth_free(truth, truth_alloc(truth, 4096 + i, FLAG_NORMAL));
	}
	truth_alloc(truth, 777, FLAG_NORMAL); /* the thread is alive after the last fork */
	return NULL;
}

/* One call of the driver for each number, at a place in the code of its own. */
#define SITE(n)                                                                                    \
	case (n):                                                                                  \
		code = halMemAlloc(&address, 4096, FLAG_NORMAL);                                   \
		break;
#define SITE4(n)  SITE(n) SITE((n) + 1) SITE((n) + 2) SITE((n) + 3)
#define SITE16(n) SITE4(n) SITE4((n) + 4) SITE4((n) + 8) SITE4((n) + 12)

static void *many_sites(void *argument)
{
	(void)argument;
	for (unsigned i = 0; i < 64; i++) {
		drvError_t code = DRV_ERROR_NONE;
		void *address = NULL;

		switch (i) {
			SITE16(0)
			SITE16(16)
			SITE16(32)
			SITE16(48)
		}
		target_check(code == 0 && halMemFree(address) == 0, "the driver failed");
	}
	return NULL;
}

/* Short-lived threads: the first call from a place takes ways, and locks, that later ones of the same thread do not. */
static void *background_unlogged(void *argument)
{
	pthread_t thread;
	(void)argument;

	while (!atomic_load(&stopping)) {
		pthread_create(&thread, NULL, many_sites, NULL);
		pthread_join(thread, NULL);
	}
	return NULL;
}

static void *live_in_thread(void *argument)
{
	(void)argument;
	truth_live(truth_new(2 * PAIRS), PAIRS, 0);
	return NULL;
}

_Noreturn static void child(void)
{
	truth_reset();
	truth_live(truth_new(2 * PAIRS), PAIRS, 1);
	truth_write();
	_exit(0);
}

static pid_t start_raw_clone(void)
{
	/* The order of the last two arguments differs between architectures; both are 0. */
	return (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
}

static pid_t start(const char *kind)
{
	char *const child_argv[] = {program, (char *)(uintptr_t) "exec-child", NULL};
	pid_t (*_fork)(void) = NULL;
	pid_t pid = -1;

	if (strcmp(kind, "fork") == 0) {
		pid = fork();
		if (pid == 0)
			child();
	} else if (strcmp(kind, "_Fork") == 0) {
		*(void **)&_fork = dlsym(RTLD_DEFAULT, "_Fork"); /* glibc 2.34 */
		pid = _fork != NULL ? _fork() : start_raw_clone();
		if (pid == 0)
			child();
	} else if (strcmp(kind, "clone") == 0) {
		pid = start_raw_clone();
		if (pid == 0)
			child();
	} else if (strcmp(kind, "vfork") == 0) {
		pid = vfork();
		if (pid == 0) {
			execve(program, child_argv, environ);
			_exit(98);
		}
	} else if (strcmp(kind, "spawn") == 0) {
		target_check(posix_spawn(&pid, program, NULL, NULL, child_argv, environ) == 0,
			     "posix_spawn failed");
	} else if (strcmp(kind, "nested") == 0) {
		pid = fork();
		if (pid == 0) {
			int status;

			truth_reset();
			truth_live(truth_new(2 * PAIRS), PAIRS, 0);
			truth_write();
			pid = fork();
			if (pid == 0)
				child();
			target_check(waitpid(pid, &status, 0) == pid && status == 0,
				     "grandchild failed");
			_exit(0);
		}
	} else if (strcmp(kind, "thread") == 0) {
		pid = fork();
		if (pid == 0) {
			pthread_t thread;

			truth_reset();
			pthread_create(&thread, NULL, live_in_thread, NULL);
			pthread_join(thread, NULL);
			truth_live(truth_new(2 * PAIRS), PAIRS, 1);
			truth_write();
			_exit(0);
		}
	} else if (strcmp(kind, "idle") == 0) {
		pid = fork();
		if (pid == 0)
			_exit(0);
	} else {
		target_fail("unknown kind");
	}
	return pid;
}

int main(int argc, char **argv)
{
	pthread_t threads[UNLOGGED_THREADS];
	bool unlogged = argc > 1 && strcmp(argv[1], "unlogged") == 0;
	unsigned threads_count = unlogged ? UNLOGGED_THREADS : LOGGED_THREADS;
	struct truth *truth = truth_new((size_t)argc * 4);

	program = argv[0];
	if (argc == 2 && strcmp(argv[1], "exec-child") == 0)
		child();
	for (unsigned i = 0; i < threads_count; i++)
		pthread_create(&threads[i], NULL, unlogged ? background_unlogged : background,
			       NULL);
	for (int i = unlogged ? 2 : 1; i < argc; i++) {
		struct block *block = truth_alloc(truth, (uint64_t)i, FLAG_NORMAL);
		pid_t pid;
		int status;

		atomic_fetch_add(&forks, 1);
		usleep(50);
		pid = start(argv[i]);
		target_check(pid > 0, "no child");
		truth_free(truth, block);
		target_check(waitpid(pid, &status, 0) == pid && status == 0, argv[i]);
	}
	atomic_store(&stopping, true);
	for (unsigned i = 0; i < threads_count; i++)
		pthread_join(threads[i], NULL);
	truth_write();
	return 0;
}
