/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Host memory that a program made known to a device. The device sees the whole process anyway, so all there is to do is to
 * keep account.
 */
#include "host.h"

#include <pthread.h>
#include <search.h>
#include <stdlib.h>

#include "ascend_hal.h"
#include "config.h"

struct registration {
	uintptr_t start;
	uintptr_t end;
};

/* Guards the tree of registrations. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static void *registrations;

/* What overlaps counts as equal. */
static int compare(const void *left, const void *right)
{
	const struct registration *a = left;
	const struct registration *b = right;

	if (a->end <= b->start)
		return -1;
	return a->start >= b->end;
}

drvError_t halHostRegister(void *srcPtr, uint64_t size, uint32_t flag, uint32_t devid,
			   void **dstPtr)
{
	struct registration *wanted, *kept = NULL;
	struct registration **found;

	(void)flag;
	if (!srcPtr || !dstPtr || size == 0 || size > UINTPTR_MAX - (uintptr_t)srcPtr)
		return DRV_ERROR_INVALID_VALUE;
	if (devid >= config_get()->device_count)
		return DRV_ERROR_INVALID_DEVICE;
	wanted = malloc(sizeof(*wanted));
	if (!wanted)
		return DRV_ERROR_OUT_OF_MEMORY;
	*wanted = (struct registration){(uintptr_t)srcPtr, (uintptr_t)srcPtr + size};
	(void)pthread_mutex_lock(&lock);
	found = tsearch(wanted, &registrations, compare);
	/* Other threads may change the node behind the lock. */
	if (found)
		kept = *found;
	(void)pthread_mutex_unlock(&lock);
	if (kept != wanted) {
		free(wanted);
		return kept ? DRV_ERROR_INVALID_VALUE : DRV_ERROR_OUT_OF_MEMORY;
	}
	*dstPtr = srcPtr;
	return DRV_ERROR_NONE;
}

bool host_is_registered(const void *address)
{
	struct registration byte = {(uintptr_t)address, (uintptr_t)address + 1};
	bool found;

	(void)pthread_mutex_lock(&lock);
	found = tfind(&byte, &registrations, compare);
	(void)pthread_mutex_unlock(&lock);
	return found;
}

drvError_t halHostUnregister(void *srcPtr, uint32_t devid)
{
	struct registration byte = {(uintptr_t)srcPtr, (uintptr_t)srcPtr + 1};
	struct registration *found = NULL;
	struct registration **node;

	(void)devid;
	(void)pthread_mutex_lock(&lock);
	node = tfind(&byte, &registrations, compare);
	if (node && (*node)->start == byte.start) {
		found = *node;
		(void)tdelete(found, &registrations, compare);
	}
	(void)pthread_mutex_unlock(&lock);
	if (!found)
		return DRV_ERROR_INVALID_VALUE;
	free(found);
	return DRV_ERROR_NONE;
}

static void before_fork(void)
{
	(void)pthread_mutex_lock(&lock);
}

static void after_fork(void)
{
	(void)pthread_mutex_unlock(&lock);
}

__attribute__((constructor)) static void watch_forks(void)
{
	(void)pthread_atfork(before_fork, after_fork, after_fork);
}
