/* SPDX-License-Identifier: Apache-2.0 */
/*
 * small_stack: threads with the smallest stack that the system grants, and a signal handler on the smallest alternate stack,
 * take memory. A collector that puts large things on the stack of its caller ends here.
 */
#include <limits.h>
#include <pthread.h>
#include <signal.h>

#include "target.h"

#define PAIRS 200

static struct truth *handler_truth;

static void *work(void *argument)
{
	struct truth *truth = argument; /* made by main, which has the room for it */

	truth->tid = target_tid();
	truth_live(truth, PAIRS, 0);
	return NULL;
}

static void on_signal(int number)
{
	(void)number;
	truth_live(handler_truth, PAIRS, 1);
}

int main(void)
{
	size_t small = (size_t)sysconf(_SC_THREAD_STACK_MIN);
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	size_t alternate = (size_t)sysconf(_SC_SIGSTKSZ);
	char *memory = target_map(alternate + page);
	stack_t stack = {.ss_sp = memory + page, .ss_size = alternate};
	struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_ONSTACK};
	pthread_attr_t attributes;

	target_check(mprotect(memory, page, PROT_NONE) == 0, "mprotect failed");
	pthread_attr_init(&attributes);
	target_check(pthread_attr_setstacksize(&attributes, small) == 0, "no such stack size");
	for (unsigned i = 0; i < 4; i++) {
		struct truth *truth = truth_new(2 * PAIRS);
		pthread_t thread;

		pthread_create(&thread, &attributes, work, truth);
		pthread_join(thread, NULL);
	}
	handler_truth = truth_new(2 * PAIRS);
	target_check(sigaltstack(&stack, NULL) == 0, "sigaltstack failed");
	sigaction(SIGUSR1, &action, NULL);
	raise(SIGUSR1);
	truth_write();
	return 0;
}
