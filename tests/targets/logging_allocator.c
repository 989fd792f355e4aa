/* SPDX-License-Identifier: Apache-2.0 */
/*
 * logging_allocator: a program whose own malloc keeps its log in device memory. Whoever calls malloc in this process, also
 * a collector on a slow path, thereby calls the driver. malloc takes and gives back one block per call, so that a nested
 * pair is recorded or lost as a whole.
 */
#include <pthread.h>

#include "target.h"

#define ARENA_SIZE ((size_t)64 << 20)
#define MAX_EVENTS (1 << 16)

static char *arena;
static atomic_size_t arena_used;
static atomic_bool logging;
static __thread bool inside;
static __thread struct truth *own; /* NULL: a thread whose calls are not logged */

/* The size lies in front of the memory, for realloc. Nothing is ever given back. */
void *malloc(size_t size)
{
	size_t whole = (size + 16 + 15) & ~(size_t)15;
	size_t offset;

	if (arena == NULL) /* the first call comes before there are threads */
		arena = target_map(ARENA_SIZE);
	offset = atomic_fetch_add(&arena_used, whole);
	if (offset + whole > ARENA_SIZE)
		return NULL;
	*(size_t *)(void *)(arena + offset) = size;
	if (atomic_load(&logging) && !inside && own != NULL) {
		inside = true;
		truth_free(own, truth_alloc(own, 64, FLAG_NORMAL));
		inside = false;
	}
	return arena + offset + 16;
}

void free(void *pointer)
{
	(void)pointer;
}

void *calloc(size_t count, size_t size)
{
	return malloc(count * size); /* fresh pages are zero and nothing is used twice */
}

void *realloc(void *pointer, size_t size)
{
	char *bigger = malloc(size);

	if (bigger != NULL && pointer != NULL) {
		size_t old = *(size_t *)(void *)((char *)pointer - 16);

		memcpy(bigger, pointer, old < size ? old : size);
	}
	return bigger;
}

static void *work(void *argument)
{
	(void)argument;
	own = truth_new(MAX_EVENTS);
	for (unsigned i = 0; i < 500; i++) {
		struct block *block;

		block = truth_alloc(own, 1000 + i, FLAG_NORMAL);
		free(malloc(i));
		truth_free(own, block);
	}
	return NULL;
}

int main(void)
{
	pthread_t threads[2];

	atomic_store(&logging, true);
	for (unsigned i = 0; i < 2; i++)
		pthread_create(&threads[i], NULL, work, NULL);
	for (unsigned i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	own = NULL;
	truth_write();
	return 0;
}
