/* SPDX-License-Identifier: Apache-2.0 */
#include "collector/quiet.h"

#include <pthread.h>
#include <string.h>
#include <sys/mman.h>

#include "collector/sys.h"

/* Address space only: enough for the writers and tables of some two hundred new threads. */
#define POOL_BYTES (UINT64_C(64) << 20)

/* Where glibc and others keep the number, between the first fields of the descriptor and the end of the smallest one. */
#define TID_FIRST 64u
#define TID_END	  1024u

MSCOPE_AT_START struct quiet quiet;

static char *pool;
static _Atomic uint64_t pool_used;

void quiet_learn_tid(void)
{
	const char *descriptor = (const char *)(uintptr_t)pthread_self();
	uint32_t tid = sys_gettid(), at, found;

	for (at = TID_FIRST; at < TID_END && quiet.tid_at == 0; at += sizeof(found)) {
		memcpy(&found, descriptor + at, sizeof(found));
		if (found == tid)
			quiet.tid_at = at;
	}
}

void quiet_prepare(void)
{
	void *p;

	quiet.pid = (uint32_t)getpid();
	quiet_learn_tid();
	if (pool != NULL)
		return;
	p = mmap(NULL, POOL_BYTES, PROT_READ | PROT_WRITE,
		 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (p != MAP_FAILED)
		pool = p;
}

void quiet_begin(void)
{
	atomic_store(&quiet.on, 1);
}

void quiet_end(void)
{
	atomic_store(&quiet.on, 0);
}

uint32_t quiet_tid(void)
{
	uintptr_t descriptor = (uintptr_t)pthread_self();
	uint32_t tid;

	if (quiet.tid_at == 0)
		return (uint32_t)(descriptor >> 6) | 1;
	memcpy(&tid, (const char *)descriptor + quiet.tid_at, sizeof(tid));
	return tid;
}

void *quiet_map(size_t bytes)
{
	uint64_t at;
	void *p;

	if (!quiet_is_on()) {
		p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		return p == MAP_FAILED ? NULL : p;
	}
	bytes = (size_t)round_up_u64(bytes, 4096);
	at = atomic_fetch_add(&pool_used, bytes);
	return pool == NULL || at > POOL_BYTES || bytes > POOL_BYTES - at ? NULL : pool + at;
}
