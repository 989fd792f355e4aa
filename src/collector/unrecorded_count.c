/* SPDX-License-Identifier: Apache-2.0 */
#include "collector/unrecorded_count.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/prctl.h>
#include <sys/shm.h>

#include "collector/lock.h"
#include "collector/sys.h"

static int32_t segment_number = -1;
static uint64_t segment_cookie;
static struct unrecorded *segment; /* a forked child inherits the mapping */
static struct lock lock;	   /* guards the entering */
/* Where this process counts, NULL until its first event. */
static _Atomic(_Atomic uint64_t *) counter;
static struct unrecorded_process reason;

void unrecorded_know(int32_t number, uint64_t cookie)
{
	segment_number = number;
	segment_cookie = cookie;
}

static void know_environment(void)
{
	const char *value = getenv(UNRECORDED_ENV);
	char *end;
	long number;

	if (value == NULL || segment_number >= 0)
		return;
	number = strtol(value, &end, 10);
	if (*end == ':' && number >= 0 && number <= INT32_MAX)
		unrecorded_know((int32_t)number, strtoull(end + 1, NULL, 16));
}

/* In another IPC namespace the number may mean somebody else's segment. */
static struct unrecorded *segment_open(void)
{
	struct shmid_ds state;
	struct unrecorded *p;

	know_environment();
	if (segment_number < 0 || syscall(SYS_shmctl, segment_number, IPC_STAT, &state) < 0 ||
	    state.shm_segsz < sizeof(*p))
		return NULL;
	p = (struct unrecorded *)syscall(SYS_shmat, segment_number, NULL, 0);
	if ((intptr_t)p == -1)
		return NULL;
	if (p->cookie == segment_cookie)
		return p;
	(void)syscall(SYS_shmdt, p);
	return NULL;
}

bool unrecorded_begin(enum unrecorded_cause cause, int error)
{
	int saved_errno = errno;

	atomic_store(&counter, NULL);
	reason = (struct unrecorded_process){
		.cause = cause, .error = (uint32_t)error, .user = (uint32_t)geteuid()};
	(void)syscall(SYS_prctl, PR_GET_NAME, reason.command, 0, 0, 0);
	if (segment == NULL)
		segment = segment_open();
	errno = saved_errno;
	return segment != NULL;
}

static MSCOPE_COLD void enter(void)
{
	struct unrecorded_process *own;
	uint32_t number;

	if (!lock_take(&lock))
		return;
	if (atomic_load(&counter) == NULL) {
		number = atomic_fetch_add(&segment->count, 1);
		if (number < UNRECORDED_MAX) {
			own = &segment->processes[number];
			own->cause = reason.cause;
			own->error = reason.error;
			own->user = reason.user;
			memcpy(own->command, reason.command, sizeof(own->command));
			atomic_store(&own->pid, (uint32_t)getpid());
			atomic_store(&counter, &own->events);
		} else {
			atomic_store(&counter, &segment->more_events);
		}
	}
	lock_release(&lock);
}

void unrecorded_count(void)
{
	_Atomic uint64_t *events = atomic_load(&counter);

	if (MSCOPE_UNLIKELY(events == NULL)) {
		enter();
		events = atomic_load(&counter);
	}
	if (events != NULL)
		atomic_fetch_add_explicit(events, 1, memory_order_relaxed);
}
