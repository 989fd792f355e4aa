/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Claims about collector/lock.c: one thread at a time, and nobody waits for a holder that is the thread itself, that takes too
 * long, or that is not in this process.
 */
#include "unit.h"

#include <errno.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "collector/lock.h"
#include "collector/sys.h"

#define ROUNDS 20000u

static struct lock lock;
static uint32_t guarded; /* by the lock */
static _Atomic uint32_t held, done;

static void *count(void *arg)
{
	uint32_t i;

	(void)arg;
	for (i = 0; i < ROUNDS; i++) {
		while (!lock_take(&lock))
			;
		guarded++;
		lock_release(&lock);
	}
	return NULL;
}

static void one_thread_holds_it_at_a_time(void **state)
{
	pthread_t threads[4];
	size_t i;

	(void)state;
	for (i = 0; i < MSCOPE_COUNT(threads); i++)
		assert_int_equal(pthread_create(&threads[i], NULL, count, NULL), 0);
	for (i = 0; i < MSCOPE_COUNT(threads); i++)
		assert_int_equal(pthread_join(threads[i], NULL), 0);
	assert_int_equal(guarded, ROUNDS * MSCOPE_COUNT(threads));
}

static void holder_that_comes_again_is_refused_at_once(void **state)
{
	uint64_t start;

	(void)state;
	errno = E2BIG;
	assert_true(lock_take(&lock));
	start = clock_ns();
	assert_false(lock_take_within(&lock, UINT64_C(60000000000)));
	assert_true(clock_ns() - start < UINT64_C(30000000000));
	lock_release(&lock);
	assert_true(lock_take_within(&lock, 0));
	lock_release(&lock);
	assert_int_equal(errno, E2BIG);
}

static void *hold(void *arg)
{
	(void)arg;
	assert_true(lock_take(&lock));
	atomic_store(&held, 1);
	while (atomic_load(&done) == 0)
		sys_sleep_ms(1);
	lock_release(&lock);
	return NULL;
}

static pthread_t start_holder(void)
{
	pthread_t thread;

	atomic_store(&held, 0);
	atomic_store(&done, 0);
	assert_int_equal(pthread_create(&thread, NULL, hold, NULL), 0);
	while (atomic_load(&held) == 0)
		sys_sleep_ms(1);
	return thread;
}

static void stop_holder(pthread_t thread)
{
	atomic_store(&done, 1);
	assert_int_equal(pthread_join(thread, NULL), 0);
}

static void nobody_waits_for_ever(void **state)
{
	pthread_t holder = start_holder();
	uint64_t start = clock_ns();

	(void)state;
	assert_false(lock_take_within(&lock, 0));
	assert_false(lock_take_within(&lock, UINT64_C(100000000)));
	assert_true(clock_ns() - start >= UINT64_C(100000000));
	assert_true(clock_ns() - start < LOCK_WAIT_NS);
	stop_holder(holder);
	assert_true(lock_take(&lock));
	lock_release(&lock);
}

static void forked_child_finds_it_free(void **state)
{
	pthread_t holder = start_holder();
	pid_t child;
	int status;

	(void)state;
	child = fork();
	assert_true(child >= 0);
	if (child == 0)
		_exit(lock_take_within(&lock, 0) && !lock_take_within(&lock, 0) ? 0 : 1);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
	assert_false(lock_take_within(&lock, 0));
	stop_holder(holder);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(one_thread_holds_it_at_a_time),
		cmocka_unit_test(holder_that_comes_again_is_refused_at_once),
		cmocka_unit_test(nobody_waits_for_ever),
		cmocka_unit_test(forked_child_finds_it_free),
	};

	return cmocka_run_group_tests_name("lock", tests, NULL, NULL);
}
