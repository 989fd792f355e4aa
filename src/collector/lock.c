/* SPDX-License-Identifier: Apache-2.0 */
#include "collector/lock.h"

#include <errno.h>
#include <sched.h>

#include "collector/sys.h"

bool lock_holder_is_gone(uint32_t thread)
{
	int saved_errno = errno;
	bool gone = syscall(SYS_tgkill, getpid(), thread, 0) < 0 && errno == ESRCH;

	errno = saved_errno;
	return gone;
}

/* The acquire pairs with the release in lock_release(). */
static bool exchange(struct lock *lock, uint32_t *from, uint32_t to)
{
	return atomic_compare_exchange_strong_explicit(&lock->holder, from, to,
						       memory_order_acquire, memory_order_relaxed);
}

bool lock_take_within(struct lock *lock, uint64_t wait_ns)
{
	uint32_t self = sys_gettid(), holder = 0;
	uint64_t start;

	if (MSCOPE_LIKELY(exchange(lock, &holder, self)))
		return true;
	start = clock_ns();
	for (;;) {
		if (holder == self)
			return false;
		if (lock_holder_is_gone(holder) && exchange(lock, &holder, self))
			return true;
		if (clock_ns() - start >= wait_ns)
			return false;
		(void)sched_yield();
		holder = 0;
		if (exchange(lock, &holder, self))
			return true;
	}
}

bool lock_take(struct lock *lock)
{
	return lock_take_within(lock, LOCK_WAIT_NS);
}

void lock_release(struct lock *lock)
{
	atomic_store_explicit(&lock->holder, 0, memory_order_release);
}
