/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tls_dtor: threads whose thread-local destructors take and give back memory, in every round of destructors that the C
 * library grants, hence also after the destructors of everybody else have run. One of them is a destructor as C++ registers
 * them. What a thread leaves is freed by a destructor of the next one.
 */
#include <limits.h>
#include <pthread.h>

#include "target.h"

#define THREADS 16
#define PAIRS	20

/* The way of C++ thread_local; part of glibc's ABI since 2.18, in no header. */
extern int __cxa_thread_atexit_impl(void (*destructor)(void *), void *object, void *dso);
extern void *__dso_handle;

struct own {
	struct truth *truth;
	unsigned rounds;
};

static pthread_key_t key;
static struct own owns[THREADS];
static struct block *left; /* threads run one after the other */

static void some_life(struct own *own)
{
	for (unsigned i = 0; i < PAIRS; i++)
		truth_free(own->truth, truth_alloc(own->truth, 512 + i, FLAG_NORMAL));
	if (left != NULL)
		truth_free(own->truth, left);
	left = truth_alloc(own->truth, 100 + own->rounds, FLAG_NORMAL | 1);
}

static void at_key(void *argument)
{
	struct own *own = argument;

	some_life(own);
	if (++own->rounds < PTHREAD_DESTRUCTOR_ITERATIONS)
		pthread_setspecific(key, own);
}

static void at_object(void *argument)
{
	some_life(argument);
}

static void *work(void *argument)
{
	struct own *own = argument;

	own->truth = truth_new((2 * PAIRS + 2) * (PTHREAD_DESTRUCTOR_ITERATIONS + 2));
	pthread_setspecific(key, own);
	__cxa_thread_atexit_impl(at_object, own, &__dso_handle);
	some_life(own);
	return NULL;
}

int main(void)
{
	pthread_key_create(&key, at_key);
	for (unsigned i = 0; i < THREADS; i++) {
		pthread_t thread;

		pthread_create(&thread, NULL, work, &owns[i]);
		pthread_join(thread, NULL);
		target_check(owns[i].rounds == PTHREAD_DESTRUCTOR_ITERATIONS, "rounds are missing");
	}
	truth_write();
	return 0;
}
