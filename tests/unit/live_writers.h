/* SPDX-License-Identifier: Apache-2.0 */
/* Threads that write into a raw trace while somebody reads it, and the barrier that readers of living traces need. */
#ifndef MSCOPE_TESTS_LIVE_WRITERS_H
#define MSCOPE_TESTS_LIVE_WRITERS_H

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "trace_maker.h"
#include "unit.h"

struct live_writer {
	struct maker_writer w;
	uint64_t events; /* that it writes: number of the writer and ordinal, in the first word */
	pthread_t thread;
};

static atomic_uint live_running; /* threads that have not written all of theirs */
static atomic_uint live_polls;	 /* turns that the reader had */

static inline void *write_live(void *arg)
{
	struct live_writer *live = arg;
	uint64_t words[3], i;

	for (i = 0; i < live->events; i++) {
		if (i % (live->events / 8) == live->events / 16) {
			/* However busy the machine is, the reader gets its turns in between. */
			uint32_t before = atomic_load(&live_polls);

			while (atomic_load(&live_polls) == before)
				(void)sched_yield();
		}
		words[1] = (uint64_t)live->w.number << 32 | i;
		words[2] = 1;
		maker_room(&live->w, sizeof(words), unit_now_ns());
		maker_busy(&live->w);
		maker_put_busy(&live->w, unit_now_ns(), EVENT_block_alloc, 0, words, sizeof(words));
		maker_idle(&live->w);
	}
	atomic_fetch_sub(&live_running, 1);
	return NULL;
}

/* False: this kernel has none. */
static inline bool barrier_setup(void)
{
	return syscall(SYS_membarrier, 4 /* MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED */, 0) == 0;
}

static inline bool barrier(void)
{
	return syscall(SYS_membarrier, 2 /* MEMBARRIER_CMD_GLOBAL_EXPEDITED */, 0) == 0;
}

#endif
