/* SPDX-License-Identifier: Apache-2.0 */
#include "shared.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum {
	LOOK_MS = 100, /* how often a rank that waits looks whether the others live */
	CONNECT_TIMEOUT_S = 120,
	EXEC_TIMEOUT_S = 1836,
};

_Static_assert(sizeof(_Atomic uint32_t) == 4, "a futex");

static uint64_t seconds_of(const char *variable, uint64_t standard)
{
	const char *text = getenv(variable);
	unsigned long value = text ? strtoul(text, NULL, 10) : 0;

	return value ? value : standard;
}

uint64_t shared_now(void)
{
	struct timespec now;

	(void)clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

HcclResult shared_join(struct membership *m, const char *name, uint32_t rank, uint32_t ranks)
{
	const char *directory = getenv("SIMNPU_SHARE");
	size_t slots_at = (sizeof(struct shared) + 4095) / 4096 * 4096;
	size_t channels_at = slots_at + (size_t)ranks * SLOT_BYTES;
	void *map = MAP_FAILED;
	int file;

	memset(m, 0, sizeof(*m));
	m->rank = rank;
	m->ranks = ranks;
	m->bytes = channels_at + (size_t)ranks * ranks * sizeof(struct channel);
	if ((size_t)snprintf(m->path, sizeof(m->path), "%s/%s",
			     directory && *directory ? directory : "/dev/shm",
			     name) >= sizeof(m->path))
		return HCCL_E_PARA;
	file = open(m->path, O_RDWR | O_CREAT | O_CLOEXEC, S_IRUSR | S_IWUSR);
	if (file < 0)
		return HCCL_E_OPEN_FILE_FAILURE;
	/* All ranks want the same length, so that they all set it does no harm. */
	if (ftruncate(file, (off_t)m->bytes) == 0)
		map = mmap(NULL, m->bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file,
			   0);
	(void)close(file);
	if (map == MAP_FAILED)
		return HCCL_E_MEMORY;
	m->shared = map;
	m->slots = (unsigned char *)map + slots_at;
	m->channels = (struct channel *)(void *)((unsigned char *)map + channels_at);
	atomic_store(&m->shared->owners[rank], (uint64_t)getpid());
	return HCCL_SUCCESS;
}

static void unlink_once(struct membership *m)
{
	if (m->path[0])
		(void)unlink(m->path);
	m->path[0] = '\0';
}

void shared_leave(struct membership *m)
{
	if (!m->shared)
		return;
	unlink_once(m);
	(void)munmap(m->shared, m->bytes);
	m->shared = NULL;
}

unsigned char *shared_slot(const struct membership *m, uint32_t rank)
{
	return m->slots + (size_t)rank * SLOT_BYTES;
}

struct channel *shared_channel(const struct membership *m, uint32_t from, uint32_t to)
{
	return &m->channels[(size_t)from * m->ranks + to];
}

void shared_wait(_Atomic uint32_t *word, uint32_t value)
{
	const struct timespec look = {.tv_nsec = LOOK_MS * 1000000L};

	(void)syscall(SYS_futex, word, FUTEX_WAIT, value, &look, NULL, 0);
}

void shared_wake(_Atomic uint32_t *word)
{
	(void)syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

/* Nobody shall wait any more. */
static HcclResult give_up(struct membership *m, HcclResult why)
{
	uint32_t none = HCCL_SUCCESS;

	(void)atomic_compare_exchange_strong(&m->shared->failed, &none, (uint32_t)why);
	return why;
}

HcclResult shared_check(struct membership *m, uint64_t waited_ms)
{
	uint32_t failed = atomic_load(&m->shared->failed);
	bool all_joined = true;
	uint64_t limit_s;
	uint32_t n;

	if (failed)
		return HCCL_E_REMOTE;
	for (n = 0; n < m->ranks; n++) {
		pid_t pid = (pid_t)atomic_load(&m->shared->owners[n]);

		if (!pid)
			all_joined = false;
		else if (kill(pid, 0) != 0 && errno == ESRCH)
			return give_up(m, HCCL_E_REMOTE);
	}
	limit_s = all_joined ? seconds_of("HCCL_EXEC_TIMEOUT", EXEC_TIMEOUT_S)
			     : seconds_of("HCCL_CONNECT_TIMEOUT", CONNECT_TIMEOUT_S);
	return waited_ms > limit_s * 1000 ? give_up(m, HCCL_E_TIMEOUT) : HCCL_SUCCESS;
}

HcclResult shared_barrier(struct membership *m)
{
	struct shared *shared = m->shared;
	uint32_t generation = atomic_load(&shared->generation);
	uint64_t began = shared_now();
	HcclResult result;

	if (atomic_fetch_add(&shared->arrived, 1) + 1 == m->ranks) {
		/* The last one: all are here, so nobody needs the name any more. */
		unlink_once(m);
		atomic_store(&shared->arrived, 0);
		/* Sequentially consistent, as the loads of those who wait: who sees it sees what was written before. */
		(void)atomic_fetch_add(&shared->generation, 1);
		shared_wake(&shared->generation);
		return HCCL_SUCCESS;
	}
	while (atomic_load(&shared->generation) == generation) {
		shared_wait(&shared->generation, generation);
		if (atomic_load(&shared->generation) != generation)
			break;
		result = shared_check(m, shared_now() - began);
		if (result)
			return result;
	}
	m->path[0] = '\0';
	return HCCL_SUCCESS;
}
