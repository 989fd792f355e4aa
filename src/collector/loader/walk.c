/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Walks of the loader's list, and forks. dl_iterate_phdr() holds a lock of the loader. If a process forks while another thread
 * has that lock, no thread of the child will ever release it, and any thread that wants it waits for ever: in a walk of ours, but
 * also in the program's own dlopen(). Two things are done about it.
 *
 * The gate: fork() waits until no thread is inside a walk of ours, and walks wait while a fork is under way. So no child is stuck
 * because of us. Both wait for 0.1 s at most, since the thread that is waited for may itself be waiting for the one that waits (for
 * the loader's lock, for a lock that another at-fork handler has taken), or be the same one, in a signal handler. A wait that
 * ended too early does no harm, thanks to the second thing.
 *
 * The check of the lock: the first walk in a process sees whether the lock is held, and whether its holder is a thread of this
 * process. This also serves children that no at-fork handler runs for (_Fork, raw clone), and locks that threads of the program
 * held, in dlopen() or in an unwinder. If the holder does not exist here, the list cannot change any more, since every change takes
 * the lock: it is then walked without the lock, through the links that debuggers use.
 *
 * The place of the lock differs between versions of glibc. It is found among the loader's data as the recursive mutex that this
 * thread owns inside a walk and not after it. If it is not found, the gate's own count decides: was a walk of ours under way?
 */
#include "collector/loader/walk.h"

#include <elf.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <sys/auxv.h>

#include "collector/loader/lookup.h"
#include "collector/lock.h"
#include "collector/memory.h"
#include "collector/sys.h"

#define CANDIDATES_MAX 8u

/* The upper half is the process, so that what a child inherits means nothing to it. In the lower half, of that process: */
static MSCOPE_AT_START _Atomic uint64_t walks; /* threads inside a walk */
static MSCOPE_AT_START _Atomic uint64_t forks; /* thread that forks now, 0: none */

/* The last process that checked the lock, and what it found: LOADER_FREE or LOADER_STUCK in the lower half. */
enum { LOADER_FREE = 1, LOADER_STUCK = 2 };
static MSCOPE_AT_START _Atomic uint64_t checked;

/* Learned once per process image; NULL: not found. */
static MSCOPE_AT_START _Atomic bool learned;
static MSCOPE_AT_START struct lock learning;
static MSCOPE_AT_START _Atomic(pthread_mutex_t *) loader_lock;
static MSCOPE_AT_START _Atomic(struct r_debug *) loader_list;

static uint64_t of_process(uint32_t pid, uint32_t value)
{
	return (uint64_t)pid << 32 | value;
}

/* ---- where the loader has its lock ---- */

struct candidates {
	pthread_mutex_t *at[CANDIDATES_MAX];
	uint32_t count;
	int tid; /* of the owner; 0: any that is no thread of this process */
	char *data;
	size_t bytes;
};

/* A thread cannot end inside the loader. So an owner that does not exist was never a thread of this process. */
static bool owner_is_gone(const pthread_mutex_t *m)
{
	int owner = *(const volatile int *)&m->__data.__owner;

	return owner > 0 && lock_holder_is_gone((uint32_t)owner) &&
	       *(const volatile int *)&m->__data.__owner == owner;
}

static void find_held(struct candidates *c)
{
	size_t at;

	for (at = 0; at + sizeof(pthread_mutex_t) <= c->bytes; at += _Alignof(pthread_mutex_t)) {
		pthread_mutex_t *m = (pthread_mutex_t *)(void *)(c->data + at);

		if ((m->__data.__lock == 1 || m->__data.__lock == 2) && m->__data.__count == 1 &&
		    m->__data.__nusers <= 1 && m->__data.__kind == PTHREAD_MUTEX_RECURSIVE_NP &&
		    m->__data.__list.__prev == NULL && m->__data.__list.__next == NULL &&
		    c->count < CANDIDATES_MAX &&
		    (c->tid != 0 ? m->__data.__owner == c->tid : owner_is_gone(m)))
			c->at[c->count++] = m;
	}
}

/* Inside a walk. */
static int find_owned(struct dl_phdr_info *info, size_t size, void *arg)
{
	(void)info;
	(void)size;
	find_held(arg);
	return 1;
}

/* What the loader itself exports, found without its list: the kernel says where it has put the loader. */
static void *loader_symbol(const char *name, size_t *out_bytes)
{
	const ElfW(Ehdr) *header = (const ElfW(Ehdr) *)getauxval(AT_BASE);
	struct dl_phdr_info info = {.dlpi_addr = (ElfW(Addr))header};

	if (header == NULL || !memory_readable(header, sizeof(*header)) ||
	    memcmp(header->e_ident, ELFMAG, SELFMAG) != 0)
		return NULL;
	info.dlpi_phdr = (const ElfW(Phdr) *)((const char *)header + header->e_phoff);
	info.dlpi_phnum = header->e_phnum;
	return lookup_in_object(&info, name, out_bytes);
}

static void learn(uint32_t pid)
{
	struct candidates gone = {0}, c = {.tid = (int)sys_gettid()};
	pthread_mutex_t *found = NULL;
	uint32_t i, released = 0;
	size_t bytes;

	atomic_store(&loader_list, (struct r_debug *)loader_symbol("_r_debug", &bytes));
	c.data = loader_symbol("_rtld_global", &c.bytes);
	if (c.data == NULL)
		return;
	/* Forked before anything was learned, while another thread was in dlopen(): the walk below would not return. */
	gone.data = c.data;
	gone.bytes = c.bytes;
	find_held(&gone);
	if (gone.count != 0 && atomic_load(&loader_list) != NULL) {
		atomic_store(&checked, of_process(pid, LOADER_STUCK));
		return;
	}
	(void)dl_iterate_phdr(find_owned, &c);
	/* A lock that is still owned is not the walk's: this thread came here from a constructor, inside dlopen(). */
	for (i = 0; i < c.count; i++) {
		if (*(volatile int *)&c.at[i]->__data.__owner != c.tid) {
			found = c.at[i];
			released++;
		}
	}
	if (released == 1)
		atomic_store(&loader_lock, found);
}

/* ---- whether the lock will be released ---- */

/* The owner's number is stored some instructions after the lock is taken, and cleared some before it is released. */
static bool holder_is_gone(const pthread_mutex_t *m)
{
	uint64_t start = clock_ns();

	while (*(const volatile int *)&m->__data.__lock != 0) {
		if (owner_is_gone(m))
			return true;
		if (*(const volatile int *)&m->__data.__owner != 0)
			return false;
		if (clock_ns() - start > LOADER_WAIT_NS)
			return true;
		sys_yield();
	}
	return false;
}

/* The first walk of a process. A vfork child that comes here checks for itself; its parent then checks again. */
static MSCOPE_COLD bool check_lock(uint32_t pid)
{
	uint64_t before = atomic_load(&checked), inside = atomic_load(&walks);
	const pthread_mutex_t *m = atomic_load(&loader_lock);
	bool stuck;

	if (m != NULL)
		stuck = holder_is_gone(m);
	else
		stuck = before != 0 && ((uint32_t)before == LOADER_STUCK ||
					(inside >> 32 == before >> 32 && (uint32_t)inside != 0));
	/* Without the list there is no other way to walk. */
	stuck = stuck && atomic_load(&loader_list) != NULL;
	atomic_store(&checked, of_process(pid, stuck ? LOADER_STUCK : LOADER_FREE));
	return stuck;
}

static bool is_stuck(uint32_t pid)
{
	uint64_t seen;

	if (MSCOPE_UNLIKELY(!atomic_load(&learned)) && lock_take_within(&learning, 0)) {
		learn(pid);
		atomic_store(&learned, true);
		lock_release(&learning);
	}
	seen = atomic_load(&checked);
	return seen >> 32 == pid ? (uint32_t)seen == LOADER_STUCK : check_lock(pid);
}

/* ---- the list without its lock ---- */

/* Program headers of an object as the loader has mapped it. False when they are not there: it may be half unloaded. */
static bool headers_find(const struct link_map *map, bool program, struct dl_phdr_info *out)
{
	const ElfW(Ehdr) *header = (const ElfW(Ehdr) *)map->l_addr;

	*out = (struct dl_phdr_info){.dlpi_addr = map->l_addr, .dlpi_name = map->l_name};
	if (program) {
		out->dlpi_phdr = (const ElfW(Phdr) *)getauxval(AT_PHDR);
		out->dlpi_phnum = (ElfW(Half))getauxval(AT_PHNUM);
		return out->dlpi_phdr != NULL;
	}
	if (!memory_readable(header, sizeof(*header)) ||
	    memcmp(header->e_ident, ELFMAG, SELFMAG) != 0)
		return false;
	out->dlpi_phdr = (const ElfW(Phdr) *)(map->l_addr + header->e_phoff);
	out->dlpi_phnum = header->e_phnum;
	return memory_readable(out->dlpi_phdr, header->e_phnum * sizeof(*out->dlpi_phdr)) &&
	       memory_readable(map->l_ld, sizeof(*map->l_ld));
}

/* The counts of loads and unloads stay 0: nothing is loaded or unloaded in such a process. */
static int walk_stuck(loader_visit *visit, void *arg)
{
	const struct link_map *first = atomic_load(&loader_list)->r_map, *map;
	int r = 0;

	for (map = first; map != NULL && r == 0; map = map->l_next) {
		struct dl_phdr_info info;

		if (headers_find(map, map == first, &info))
			r = visit(&info, sizeof(info), arg);
	}
	return r;
}

/* ---- the gate ---- */

/* Waits until `word` has nothing of this process. False: it still had after LOADER_WAIT_NS. */
static bool wait_for(_Atomic uint64_t *word, uint32_t pid)
{
	uint64_t start = clock_ns(), now;

	while (now = atomic_load(word), now >> 32 == pid && (uint32_t)now != 0) {
		if (clock_ns() - start > LOADER_WAIT_NS)
			return false;
		sys_yield();
	}
	return true;
}

static void walks_add(uint32_t pid)
{
	uint64_t old = atomic_load(&walks), new;

	do {
		new = old >> 32 == pid ? old + 1 : of_process(pid, 1);
	} while (!atomic_compare_exchange_weak(&walks, &old, new));
}

static void walks_remove(uint32_t pid)
{
	uint64_t old = atomic_load(&walks);

	/* A signal handler may have forked inside the walk: this process then has not counted itself. */
	while (old >> 32 == pid && (uint32_t)old != 0 &&
	       !atomic_compare_exchange_weak(&walks, &old, old - 1))
		;
}

/* Counts itself first, then reads `forks`; loader_before_fork() does it the other way round. So one of the two sees the other. */
static void gate_enter(uint32_t pid)
{
	for (;;) {
		uint64_t now;

		walks_add(pid);
		now = atomic_load(&forks);
		if (now >> 32 != pid || (uint32_t)now == 0 || (uint32_t)now == sys_gettid())
			return;
		walks_remove(pid);
		/* This fork takes too long: no walk waits for it any more. */
		if (!wait_for(&forks, pid))
			(void)atomic_compare_exchange_strong(&forks, &now, 0);
	}
}

void loader_before_fork(void)
{
	uint32_t pid = sys_getpid();
	int saved_errno = errno;

	atomic_store(&forks, of_process(pid, sys_gettid()));
	(void)wait_for(&walks, pid);
	errno = saved_errno;
}

void loader_after_fork(void)
{
	uint64_t own = of_process(sys_getpid(), sys_gettid());

	/* If two threads fork at the same time, the second has the word; the first one's fork is then less well guarded. */
	(void)atomic_compare_exchange_strong(&forks, &own, 0);
}

int loader_walk(loader_visit *visit, void *arg)
{
	uint32_t pid = sys_getpid();
	int saved_errno = errno, r;

	if (is_stuck(pid)) {
		r = walk_stuck(visit, arg);
	} else {
		/* A handler that ends by siglongjmp() would leave the loader locked for all other threads. */
		uint64_t signals = sys_signals_block();

		gate_enter(pid);
		r = dl_iterate_phdr(visit, arg);
		walks_remove(pid);
		sys_signals_restore(signals);
	}
	errno = saved_errno;
	return r;
}
