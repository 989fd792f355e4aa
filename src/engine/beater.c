/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/beater.h"

#include <limits.h>
#include <linux/futex.h>
#include <signal.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define BEAT_NS 500000000L
/* An engine that hangs for ever must not hold the program for ever: half an hour of beats. */
#define BEATS_MAX 3600u

static void *beat(void *arg)
{
	const struct timespec pause = {.tv_nsec = BEAT_NS};
	struct beater *beater = arg;
	uint32_t i;

	for (i = 0; i < BEATS_MAX && atomic_load(&beater->ends) == 0; i++) {
		atomic_fetch_add_explicit(beater->heartbeat, 1, memory_order_relaxed);
		(void)syscall(SYS_futex, &beater->ends, FUTEX_WAIT_PRIVATE, 0, &pause, NULL, 0);
	}
	return NULL;
}

void beater_begin(struct beater *beater, _Atomic uint32_t *heartbeat)
{
	sigset_t all, before;

	*beater = (struct beater){.heartbeat = heartbeat};
	if (heartbeat == NULL)
		return;
	/* Signals are for the main thread, but for a trace that the program has cut (base/bus.h). */
	sigfillset(&all);
	sigdelset(&all, SIGBUS);
	(void)pthread_sigmask(SIG_SETMASK, &all, &before);
	beater->runs = pthread_create(&beater->thread, NULL, beat, beater) == 0;
	(void)pthread_sigmask(SIG_SETMASK, &before, NULL);
}

void beater_end(struct beater *beater)
{
	if (!beater->runs)
		return;
	atomic_store(&beater->ends, 1);
	(void)syscall(SYS_futex, &beater->ends, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
	(void)pthread_join(beater->thread, NULL);
	beater->runs = false;
}
