/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Taking a slot: compare-and-swap of the owner's word from nobody or a dead process to ourselves with the READY bit clear,
 * then the figures, then READY. A reader looks only at slots that are ready, and takes what it read only if the word is still
 * the same.
 *
 * The file is sparse. A page of it is touched only after fallocate() promised it, so a full tmpfs is an answer and no SIGBUS;
 * the owners' words are promised before the file gets its full size, by which others see that it can be used.
 */
#include "published.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

/* Who has a slot: pid in the upper half, the low bits of the start time, and READY as the lowest. 0 for nobody. */
#define OWNER_READY	 1ULL
#define OWNER_START_MASK 0xfffffffeULL

struct table {
	_Atomic uint64_t owners[PUBLISHED_SLOTS];
	struct published_slot slots[PUBLISHED_SLOTS];
};

struct published_slot *_Atomic published_own;

/* Guards what follows, and the taking of a slot. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct published_use start; /* what the next slot begins with */
static struct table *table;	   /* mapped once, also for forked children */

/* Where a process counts that cannot publish. */
static struct published_slot unpublished;

/*
 * The owner word of a living process, 0 if there is none with this pid. Read by way of the first thread, because emulators
 * invent a process's own stat but not this one. A process whose first thread ended lives on as long as another one does.
 */
static uint64_t owner_of(int pid)
{
	char path[64];
	char text[1024];
	unsigned long long started;
	const char *fields;
	ssize_t length;
	long threads;
	char state;
	int fd;

	/* Most owners are long dead: that is cheaper to ask than to fail to open a file. */
	if (kill(pid, 0) < 0 && errno == ESRCH)
		return 0;
	(void)snprintf(path, sizeof(path), "/proc/%d/task/%d/stat", pid, pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return 0;
	length = read(fd, text, sizeof(text) - 1);
	(void)close(fd);
	if (length <= 0)
		return 0;
	text[length] = 0;
	/* The name of the program stands in parentheses and may hold any character. */
	fields = strrchr(text, ')');
	if (!fields || sscanf(fields,
			      ") %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d "
			      "%*d %ld %*d %llu",
			      &state, &threads, &started) != 3)
		return 0;
	if ((state == 'Z' || state == 'X') && threads <= 1)
		return 0;
	return (uint64_t)pid << 32 | (started << 1 & OWNER_START_MASK);
}

static bool is_alive(uint64_t owner)
{
	return owner_of((int)(owner >> 32)) == (owner & ~OWNER_READY);
}

/* Opens the file if it is ours. -1 otherwise. */
static int open_file(int flags)
{
	const char *directory = getenv("SIMNPU_SHARE");
	struct stat space;
	struct stat file;
	char path[4096];
	int length;
	int fd;

	if (!directory || !*directory)
		directory = "/dev/shm";
	if (floor_stat("/proc/self/ns/pid", &space))
		return -1;
	length = snprintf(path, sizeof(path), "%s/simnpu-%u-%llu", directory, (unsigned)geteuid(),
			  (unsigned long long)space.st_ino);
	if (length < 0 || (size_t)length >= sizeof(path))
		return -1;
	fd = open(path, flags | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
	if (fd < 0)
		return -1;
	/* The default directory is everybody's. */
	if (floor_fstat(fd, &file) || !S_ISREG(file.st_mode) || file.st_uid != geteuid()) {
		(void)close(fd);
		return -1;
	}
	return fd;
}

static bool has_full_size(int fd)
{
	struct stat file;

	return floor_fstat(fd, &file) == 0 && (uint64_t)file.st_size >= sizeof(struct table);
}

static struct table *map_table(int fd, int protection)
{
	void *map = mmap(NULL, sizeof(struct table), protection, MAP_SHARED, fd, 0);

	return map == MAP_FAILED ? NULL : map;
}

static bool promise(int fd, uint64_t offset, uint64_t size)
{
	return fallocate(fd, 0, (off_t)offset, (off_t)size) == 0;
}

/* Number of the slot that an earlier image of this process had, else of one that nobody living has; -1 if there is none. */
static int find_slot(struct table *t, uint64_t self)
{
	int found = -1;
	int n;

	for (n = 0; n < PUBLISHED_SLOTS; n++) {
		uint64_t owner = atomic_load_explicit(&t->owners[n], memory_order_relaxed);

		if ((owner & ~OWNER_READY) == self)
			return n;
		if (found < 0 && (owner == 0 || !is_alive(owner)))
			found = n;
	}
	return found;
}

static void fill_slot(struct published_slot *slot)
{
	uint32_t device;
	uint32_t lane;

	atomic_store_explicit(&slot->devices, start.devices, memory_order_relaxed);
	for (lane = 0; lane < PUBLISHED_LANES; lane++) {
		for (device = 0; device < PUBLISHED_DEVICES; device++)
			atomic_store_explicit(&slot->bytes[lane][device],
					      lane == 0 ? start.bytes[device] : 0,
					      memory_order_relaxed);
	}
}

static struct published_slot *take_slot(struct table *t, int fd, uint64_t self)
{
	for (;;) {
		int n = find_slot(t, self);
		uint64_t owner;

		if (n < 0 ||
		    !promise(fd, (uint64_t)((char *)&t->slots[n] - (char *)t), sizeof(t->slots[n])))
			return NULL;
		owner = atomic_load_explicit(&t->owners[n], memory_order_relaxed);
		if ((owner & ~OWNER_READY) != self && owner != 0 && is_alive(owner))
			continue;
		if (!atomic_compare_exchange_strong_explicit(&t->owners[n], &owner, self,
							     memory_order_relaxed,
							     memory_order_relaxed))
			continue;
		/* Pairs with the acquire fence in read_slot(): who reads what comes now finds the owner changed. */
		atomic_thread_fence(memory_order_release);
		fill_slot(&t->slots[n]);
		/* Pairs with the acquire load in read_slot(). */
		atomic_store_explicit(&t->owners[n], self | OWNER_READY, memory_order_release);
		return &t->slots[n];
	}
}

/* Whether a file may be as large as ours; if not, the attempt would be a signal. */
static bool is_allowed(void)
{
	struct rlimit limit;

	return getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur >= sizeof(struct table);
}

/* With the lock. */
static struct published_slot *open_slot(void)
{
	uint64_t self = owner_of((int)getpid());
	struct published_slot *slot = NULL;
	int fd;

	if (!self || !is_allowed())
		return NULL;
	fd = open_file(O_RDWR | O_CREAT);
	if (fd < 0)
		return NULL;
	if (has_full_size(fd) || (promise(fd, 0, sizeof(table->owners)) &&
				  ftruncate(fd, (off_t)sizeof(struct table)) == 0)) {
		if (table)
			(void)munmap(table, sizeof(*table));
		table = map_table(fd, PROT_READ | PROT_WRITE);
		if (table)
			slot = take_slot(table, fd, self);
	}
	(void)close(fd);
	return slot;
}

struct published_slot *published_take_slow(void)
{
	struct published_slot *slot;
	int saved = errno;

	published_lock();
	slot = atomic_load_explicit(&published_own, memory_order_relaxed);
	if (!slot) {
		slot = open_slot();
		if (!slot)
			slot = &unpublished;
		/* Pairs with the acquire in published_add(). */
		atomic_store_explicit(&published_own, slot, memory_order_release);
	}
	published_unlock();
	errno = saved;
	return slot;
}

void published_restart(const struct published_use *use)
{
	start = *use;
	atomic_store_explicit(&published_own, NULL, memory_order_relaxed);
}

void published_lock(void)
{
	(void)pthread_mutex_lock(&lock);
}

void published_unlock(void)
{
	(void)pthread_mutex_unlock(&lock);
}

/* The sums of a slot, if it was one living process's all the time. */
static bool read_slot(struct table *t, uint32_t n, struct published_use *use, int *out_pid)
{
	/* Pairs with the release store in take_slot(). */
	uint64_t owner = atomic_load_explicit(&t->owners[n], memory_order_acquire);
	struct published_slot *slot = &t->slots[n];
	uint32_t device;
	uint32_t lane;

	if (!(owner & OWNER_READY) || !is_alive(owner))
		return false;
	*use = (struct published_use){
		.devices = atomic_load_explicit(&slot->devices, memory_order_relaxed)};
	for (lane = 0; lane < PUBLISHED_LANES; lane++) {
		for (device = 0; device < PUBLISHED_DEVICES; device++)
			use->bytes[device] += atomic_load_explicit(&slot->bytes[lane][device],
								   memory_order_relaxed);
	}
	/* The lanes were not read in one moment: a block may have come on one already read and gone on another. */
	for (device = 0; device < PUBLISHED_DEVICES; device++) {
		if (use->bytes[device] > INT64_MAX)
			use->bytes[device] = 0;
	}
	/* Pairs with the release fence in take_slot(). */
	atomic_thread_fence(memory_order_acquire);
	*out_pid = (int)(owner >> 32);
	return atomic_load_explicit(&t->owners[n], memory_order_relaxed) == owner;
}

void published_visit(int (*visit)(int pid, const struct published_use *use, void *context),
		     void *context)
{
	struct published_use use;
	struct table *t = NULL;
	uint32_t n;
	int pid;
	int fd;

	/* Opened each time: whoever removes the file starts a new one. */
	fd = open_file(O_RDONLY);
	if (fd < 0)
		return;
	if (has_full_size(fd))
		t = map_table(fd, PROT_READ);
	(void)close(fd);
	if (!t)
		return;
	for (n = 0; n < PUBLISHED_SLOTS; n++) {
		if (read_slot(t, n, &use, &pid) && visit(pid, &use, context))
			break;
	}
	(void)munmap(t, sizeof(*t));
}
