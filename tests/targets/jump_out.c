/* SPDX-License-Identifier: Apache-2.0 */
/*
 * jump_out WHERE: in children, one after the other, a signal handler leaves an event by siglongjmp(): the N-th time that the
 * collector asks for the time, which it does while it attaches and while it records. Then the child takes memory as if nothing had
 * happened, from less deep code (WHERE is above), from deeper code (below), or the handler ran on a stack of its own (altstack); and
 * a second thread does. The truth has what came after the jump.
 *
 * The collector calls the functions that the program exports, so the moments are the same each time.
 */
#include <alloca.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>

#include "target.h"

#define PAIRS  50
#define POINTS 60

static volatile int armed;
static sigjmp_buf back;

int clock_gettime(clockid_t clock, struct timespec *out)
{
	int r = (int)syscall(SYS_clock_gettime, clock, out);

	if (armed > 0 && --armed == 0)
		raise(SIGUSR1);
	return r;
}

static void on_signal(int number)
{
	(void)number;
	siglongjmp(back, 1);
}

static void live(void)
{
	truth_live(truth_new(2 * PAIRS), PAIRS, 0);
}

static void *thread_main(void *argument)
{
	(void)argument;
	live();
	return NULL;
}

/* Calls `function` with so much more on the stack, all of it written. */
static void deeper(void (*function)(void), size_t bytes)
{
	volatile char *room = alloca(bytes);

	for (size_t i = 0; i < bytes; i++)
		room[i] = 1;
	function();
	room[0] = 2;
}

static void interrupted(void)
{
	static void *address; /* of the one block that is not in the truth */

	(void)sigsetjmp(back, 1);
	/* The jump may have come before the driver was called. */
	if (address == NULL)
		(void)halMemAlloc(&address, 5000011, FLAG_NORMAL);
	armed = 0;
}

_Noreturn static void child(int point, const char *where, bool recorded)
{
	pthread_t thread;

	truth_reset();
	if (recorded)
		live();
	armed = point;
	if (strcmp(where, "below") == 0)
		interrupted();
	else
		deeper(interrupted, 8192);
	if (strcmp(where, "below") == 0)
		deeper(live, 8192);
	else
		live();
	pthread_create(&thread, NULL, thread_main, NULL);
	pthread_join(thread, NULL);
	live();
	truth_write();
	_exit(0);
}

int main(int argc, char **argv)
{
	struct sigaction action = {.sa_handler = on_signal};
	const char *where = argc > 1 ? argv[1] : "above";
	stack_t stack = {.ss_sp = target_map(65536), .ss_size = 65536};

	if (strcmp(where, "altstack") == 0) {
		action.sa_flags = SA_ONSTACK;
		target_check(sigaltstack(&stack, NULL) == 0, "sigaltstack failed");
	}
	sigaction(SIGUSR1, &action, NULL);
	for (int point = 1; point <= POINTS; point++) {
		int status;
		/* The last ones come after the first event; there only one or two moments are left. */
		bool recorded = point > POINTS - 2;
		pid_t pid = fork();

		if (pid == 0)
			child(recorded ? POINTS + 1 - point : point, where, recorded);
		target_check(waitpid(pid, &status, 0) == pid && status == 0, "the child failed");
	}
	return 0;
}
