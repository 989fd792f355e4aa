/* SPDX-License-Identifier: Apache-2.0 */
/*
 * storm [MILLISECONDS]: two threads take and give back memory while timer signals and signals from a third thread interrupt
 * them; the handlers take and give back memory too, and interrupt each other. A handler's pair of calls sees one and the same
 * interrupted state, so it is recorded or lost as a whole.
 *
 * Needs a driver that is safe in signal handlers: the bare one. Logs of handlers carry the tid of the thread that they
 * interrupted, so the events of one tid are spread over several lines of the truth, without an order between them.
 */
#include <pthread.h>
#include <signal.h>
#include <sys/time.h>
#include <time.h>

#include "target.h"

#define MAX_EVENTS (1 << 16)

struct logs {
	struct truth *plain;
	struct truth *alarm;
	struct truth *user;
};

static __thread struct logs *own;
static struct logs logs[2];
static pthread_t threads[2];
static atomic_int ready;
static atomic_bool stopping;

static bool has_room(const struct truth *truth)
{
	return truth->events_count + 2 <= truth->capacity;
}

static void on_signal(int number)
{
	int saved = errno;

	if (own != NULL) {
		struct truth *truth = number == SIGALRM ? own->alarm : own->user;

		errno = 4711;
		if (has_room(truth))
			truth_free(truth, truth_alloc(truth, 64 + (unsigned)number, FLAG_NORMAL));
		target_check(errno == 4711, "errno was touched in a handler");
	}
	errno = saved;
}

static void *work(void *argument)
{
	own = argument;
	own->plain = truth_new(MAX_EVENTS);
	own->alarm = truth_new(MAX_EVENTS);
	own->user = truth_new(MAX_EVENTS);
	atomic_fetch_add(&ready, 1);
	while (!atomic_load(&stopping) && has_room(own->plain))
		truth_free(own->plain, truth_alloc(own->plain, 4096, FLAG_NORMAL));
	while (!atomic_load(&stopping))
		usleep(1000);
	return NULL;
}

int main(int argc, char **argv)
{
	long milliseconds = argc > 1 ? atol(argv[1]) : 500;
	struct itimerval timer = {{0, 53}, {0, 53}};
	struct sigaction action = {.sa_handler = on_signal};
	struct timespec start;
	struct timespec now;
	sigset_t both;

	action.sa_flags = SA_RESTART;
	sigaction(SIGALRM, &action, NULL);
	sigaction(SIGUSR1, &action, NULL);
	for (unsigned i = 0; i < 2; i++)
		pthread_create(&threads[i], NULL, work, &logs[i]);
	while (atomic_load(&ready) < 2)
		usleep(1000);
	/* The timer's signals are for the two; this thread sends the others. */
	sigemptyset(&both);
	sigaddset(&both, SIGALRM);
	sigaddset(&both, SIGUSR1);
	pthread_sigmask(SIG_BLOCK, &both, NULL);
	setitimer(ITIMER_REAL, &timer, NULL);
	clock_gettime(CLOCK_MONOTONIC, &start);
	do {
		for (unsigned i = 0; i < 200; i++)
			pthread_kill(threads[i % 2], SIGUSR1);
		clock_gettime(CLOCK_MONOTONIC, &now);
	} while ((now.tv_sec - start.tv_sec) * 1000 + (now.tv_nsec - start.tv_nsec) / 1000000 <
		 milliseconds);
	timer = (struct itimerval){{0, 0}, {0, 0}};
	setitimer(ITIMER_REAL, &timer, NULL);
	atomic_store(&stopping, true);
	for (unsigned i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	truth_write();
	return 0;
}
