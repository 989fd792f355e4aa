/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fork_unwinding [locked]: forks while another thread records a new stack, at the moment when it reads the loader's list; with `locked`,
 * when it holds the loader's lock. The child takes memory, and forks once more.
 *
 * The collector calls the dl_iterate_phdr() that the program exports, so the moment is the same each time.
 */
#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <sched.h>
#include <sys/wait.h>

#include "target.h"

#define PAIRS 20

typedef int visit(struct dl_phdr_info *info, size_t size, void *arg);

static int (*iterate)(visit *function, void *arg);
static __thread bool waits; /* in the next walk of this thread */
static bool locked;
static atomic_bool held, released;

static int hold(void)
{
	if (waits) {
		waits = false;
		atomic_store(&held, true);
		while (!atomic_load(&released))
			sched_yield();
	}
	return 1;
}

static int hold_inside(struct dl_phdr_info *info, size_t size, void *arg)
{
	(void)info;
	(void)size;
	(void)arg;
	return hold();
}

int dl_iterate_phdr(visit *function, void *arg)
{
	/* The collector comes here before main() does. */
	if (iterate == NULL)
		*(void **)&iterate = dlsym(RTLD_NEXT, "dl_iterate_phdr");
	if (waits && locked)
		(void)iterate(hold_inside, NULL);
	else if (waits)
		(void)hold();
	return iterate(function, arg);
}

static void *thread_main(void *argument)
{
	struct truth *truth = truth_new(8);
	(void)argument;

	truth_free(truth, truth_alloc(truth, 4096, FLAG_NORMAL));
	waits = true;
	truth_alloc(truth, 8192, FLAG_NORMAL);
	return NULL;
}

static void fork_and_live(int more)
{
	pid_t pid = fork();
	int status;

	if (pid == 0) {
		truth_reset();
		truth_live(truth_new(2 * PAIRS), PAIRS, 1);
		truth_write();
		if (more > 0)
			fork_and_live(more - 1);
		_exit(0);
	}
	target_check(waitpid(pid, &status, 0) == pid && status == 0, "the child failed");
}

int main(int argc, char **argv)
{
	pthread_t thread;

	locked = argc > 1 && strcmp(argv[1], "locked") == 0;
	truth_live(truth_new(2 * PAIRS), PAIRS, 0);
	pthread_create(&thread, NULL, thread_main, NULL);
	while (!atomic_load(&held))
		sched_yield();
	fork_and_live(1);
	atomic_store(&released, true);
	pthread_join(thread, NULL);
	truth_write();
	return 0;
}
