/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fork_walks KIND ROUNDS [loads]: children that call functions which their parent never called, so that the originals are yet to be
 * looked up, while other threads of the parent keep the loader's lock busy: two by lookups of ours, for a function of which there
 * is no original, and with `loads` one by loading and unloading. A child whose parent's threads are gone with the lock must not
 * wait for them; one that does not end is told and killed. KIND is who makes the child, or where:
 *
 *     fork, _Fork, clone
 *     constructor  fork() in the constructor of a library that is being loaded
 *     handler      fork() that waits, in an at-fork handler, for a lock that another thread has while it looks up
 *     signal       fork() in a signal handler amid the lookups
 *
 * On the bare driver and without stdio in the children, as in fork_kinds.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>

#include "target.h"

#define WALKERS 2
#define LIMIT_S 15

void fork_here(void);

static atomic_bool stopping;
static atomic_int made; /* pid of the child that fork_here() made */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static bool with_mutex;

static void *walk(void *argument)
{
	bool (*asked)(void) = NULL;
	(void)argument;

	/* Exported by the collector alone, and looked for among all objects at every call. Absent when nobody traces. */
	*(void **)&asked = dlsym(RTLD_DEFAULT, "_ZN3c1022memoryProfilingEnabledEv");
	while (!atomic_load(&stopping)) {
		if (with_mutex)
			pthread_mutex_lock(&mutex);
		if (asked != NULL)
			(void)asked();
		if (with_mutex)
			pthread_mutex_unlock(&mutex);
	}
	return NULL;
}

static void take_mutex(void)
{
	pthread_mutex_lock(&mutex);
}

static void give_mutex(void)
{
	pthread_mutex_unlock(&mutex);
}

static void *load(void *argument)
{
	while (!atomic_load(&stopping)) {
		void *handle = dlopen(argument, RTLD_NOW | RTLD_LOCAL);

		target_check(handle != NULL, "dlopen failed");
		dlclose(handle);
	}
	return NULL;
}

_Noreturn static void child(void)
{
	struct truth *truth;
	struct block *block;

	truth_reset();
	truth = truth_new(16);
	block = truth_alloc(truth, 4096, FLAG_NORMAL);
	truth_free(truth, block);
	block = truth_create(truth, 1, 0);
	truth_free(truth, block);
	truth_write();
	_exit(0);
}

/* Also called by the constructor of fork_plugin.c. */
void fork_here(void)
{
	pid_t pid = fork();

	if (pid == 0)
		child();
	atomic_store(&made, pid);
}

static void on_signal(int number)
{
	(void)number;
	fork_here();
}

static pid_t start(const char *kind, const char *plugin, pthread_t walker)
{
	pid_t (*_fork)(void) = NULL;
	pid_t pid = -1;

	atomic_store(&made, 0);
	if (strcmp(kind, "fork") == 0 || strcmp(kind, "handler") == 0) {
		pid = fork();
	} else if (strcmp(kind, "_Fork") == 0) {
		*(void **)&_fork = dlsym(RTLD_DEFAULT, "_Fork"); /* glibc 2.34 */
		pid = _fork != NULL ? _fork() : fork();
	} else if (strcmp(kind, "clone") == 0) {
		pid = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
	} else if (strcmp(kind, "constructor") == 0) {
		void *handle = dlopen(plugin, RTLD_NOW | RTLD_LOCAL);

		target_check(handle != NULL, "dlopen failed");
		dlclose(handle);
		return atomic_load(&made);
	} else if (strcmp(kind, "signal") == 0) {
		target_check(pthread_kill(walker, SIGUSR1) == 0, "pthread_kill failed");
		while (atomic_load(&made) == 0)
			usleep(100);
		return atomic_load(&made);
	} else {
		target_fail("unknown kind");
	}
	if (pid == 0)
		child();
	return pid;
}

/* True when the child has ended well; one that does not end is killed. */
static bool wait_for(pid_t pid)
{
	int status = -1;

	for (unsigned i = 0; i < LIMIT_S * 1000; i++) {
		if (waitpid(pid, &status, WNOHANG) == pid)
			return status == 0;
		usleep(1000);
	}
	kill(pid, SIGKILL);
	waitpid(pid, &status, 0);
	return false;
}

int main(int argc, char **argv)
{
	pthread_t threads[WALKERS + 1];
	char plugins[2][4096];
	char *slash;
	bool loads = argc == 4 && strcmp(argv[3], "loads") == 0;

	target_check(argc == 3 || loads, "usage: fork_walks KIND ROUNDS [loads]");
	slash = strrchr(argv[0], '/');
	target_check(slash != NULL, "to be started by its path");
	(void)snprintf(plugins[0], sizeof(plugins[0]), "%.*s/libfork_plugin.so",
		       (int)(slash - argv[0]), argv[0]);
	(void)snprintf(plugins[1], sizeof(plugins[1]), "%.*s/libplugin_a.so",
		       (int)(slash - argv[0]), argv[0]);
	/* Before the collector has its own: handlers of a later comer run before these. */
	with_mutex = strcmp(argv[1], "handler") == 0;
	if (with_mutex)
		pthread_atfork(take_mutex, give_mutex, give_mutex);
	signal(SIGUSR1, on_signal);
	truth_alloc(truth_new(1), 4096, FLAG_NORMAL);
	for (unsigned i = 0; i < WALKERS; i++)
		pthread_create(&threads[i], NULL, walk, NULL);
	if (loads)
		pthread_create(&threads[WALKERS], NULL, load, plugins[1]);
	for (int i = 0; i < atoi(argv[2]); i++) {
		pid_t pid = start(argv[1], plugins[0], threads[0]);

		target_check(pid > 0, "no child");
		target_check(wait_for(pid), "a child hangs or has failed");
	}
	atomic_store(&stopping, true);
	for (unsigned i = 0; i < WALKERS + (loads ? 1 : 0); i++)
		pthread_join(threads[i], NULL);
	truth_write();
	return 0;
}
