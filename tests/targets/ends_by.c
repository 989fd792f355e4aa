/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ends_by HOW: takes memory in two threads, writes the truth, and ends by HOW: return, exit, quick_exit, _exit, abort, kill,
 * segv, thread (the other thread calls _exit), atexit (takes memory in a handler of exit) or pthread_exit (main ends first
 * and the other thread works on). But for the last, the other thread never comes to an end of its own.
 */
#include <pthread.h>
#include <signal.h>

#include "target.h"

#define PAIRS 500

static const char *how;
static struct truth *main_truth;
static pthread_t main_thread;
static atomic_int stage; /* 1: the other thread has taken its memory. 2: the truth is written */

static bool ends_by(const char *name)
{
	return strcmp(how, name) == 0;
}

static void wait_for(int wanted)
{
	while (atomic_load(&stage) < wanted)
		usleep(1000);
}

static void *work(void *argument)
{
	struct truth *truth = truth_new(4 * PAIRS);
	(void)argument;

	truth_live(truth, PAIRS, 1);
	atomic_store(&stage, 1);
	if (ends_by("pthread_exit")) {
		pthread_join(main_thread, NULL);
		truth_live(truth, PAIRS, 0);
		truth_write();
		return NULL;
	}
	if (ends_by("thread")) {
		wait_for(2);
		_exit(7);
	}
	for (;;)
		pause();
}

static void at_exit(void)
{
	truth_live(main_truth, PAIRS, 1);
	truth_write();
}

int main(int argc, char **argv)
{
	pthread_t thread;

	target_check(argc == 2, "usage: ends_by HOW");
	how = argv[1];
	main_thread = pthread_self();
	main_truth = truth_new(4 * PAIRS);
	pthread_create(&thread, NULL, work, NULL);
	truth_live(main_truth, PAIRS, 0);
	wait_for(1);
	if (ends_by("pthread_exit"))
		pthread_exit(NULL);
	if (ends_by("atexit")) {
		atexit(at_exit);
		exit(7);
	}
	truth_write();
	atomic_store(&stage, 2);
	if (ends_by("return"))
		return 7;
	if (ends_by("exit"))
		exit(7);
	if (ends_by("quick_exit"))
		quick_exit(7);
	if (ends_by("_exit"))
		_exit(7);
	if (ends_by("abort"))
		abort();
	if (ends_by("kill"))
		kill(getpid(), SIGKILL);
	if (ends_by("segv"))
		raise(SIGSEGV);
	for (;;)
		pause();
}
