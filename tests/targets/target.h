/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the programs to trace have in common: they take device memory through a log, and write that log at their end. The
 * tests compare the rows of a trace with it, so the log is the ground truth.
 *
 * A thread has a log of its own and appends to it what it did, in its order. A block may be freed through another thread's
 * log. One process writes one JSON line per log:
 *
 *   {"pid":7,"tid":8,"part":0,"events":[["malloc",id,address,size,device,"alloc","normal"],["free",id],...]}
 *
 * `id` names a block within its process and part, `device` is -1 for the host, `part` counts the exec's of a pid. Lines go
 * to the file that the variable TRUTH names, in one appending write so that processes do not mix, or to stdout.
 *
 * Nothing here allocates or locks: children of _Fork and raw clone must be able to use it, while a thread that does not
 * exist in them may have held the lock of malloc.
 */
#ifndef MSCOPE_TESTS_TARGET_H
#define MSCOPE_TESTS_TARGET_H

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "ascend_hal.h"

/* Flags as the CANN runtime passes them for memory of applications, without the device. */
#define FLAG_MODULE ((unsigned long long)33 << 56)
#define FLAG_NORMAL (FLAG_MODULE | 0x904400)
#define FLAG_HUGE   (FLAG_MODULE | 0x924400)
#define FLAG_HOST   (FLAG_MODULE | 0x900800)

/* halMemCreate takes whole huge pages. */
#define CREATE_UNIT ((uint64_t)2 << 20)

#define TRUTH_MAX_LOGS 16384

enum block_kind { BLOCK_ALLOC, BLOCK_CREATE, BLOCK_HOST };

struct block {
	uint64_t id;
	uint64_t address; /* for a created one the handle */
	uint64_t size;
	int device; /* -1: host */
	enum block_kind kind;
	bool is_huge;
	struct block *next; /* for lists of the target */
};

struct truth_event {
	struct block *block;
	bool is_free;
};

struct truth {
	pid_t tid;
	uint64_t first_id;
	size_t capacity; /* of both arrays */
	size_t events_count;
	size_t blocks_count;
	struct truth_event *events;
	struct block *blocks;
};

static struct truth *truth_logs[TRUTH_MAX_LOGS];
static atomic_size_t truth_logs_count;
static unsigned truth_part;

/* Ends the process with a status that no test expects. */
_Noreturn static inline void target_fail(const char *what)
{
	static const char prefix[] = "target: ";
	ssize_t ignored; /* there is nobody else to tell */

	ignored = write(STDERR_FILENO, prefix, sizeof(prefix) - 1);
	ignored = write(STDERR_FILENO, what, strlen(what));
	ignored = write(STDERR_FILENO, "\n", 1);
	(void)ignored;
	_exit(99);
}

static inline void target_check(bool holds, const char *what)
{
	if (!holds)
		target_fail(what);
}

static inline void *target_map(size_t size)
{
	void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	target_check(memory != MAP_FAILED, "mmap failed");
	return memory;
}

static inline pid_t target_tid(void)
{
	return (pid_t)syscall(SYS_gettid);
}

/* A small generator; `*state` must not be 0. */
static inline uint64_t target_random(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state * 0x2545f4914f6cdd1dull >> 16;
}

/* Many small sizes, few large ones, none of them round. */
static inline uint64_t target_random_size(uint64_t *state)
{
	uint64_t scale = (uint64_t)1 << target_random(state) % 18;

	return scale + target_random(state) % scale;
}

/* A log for the calling thread with room for `capacity` events. */
static inline struct truth *truth_new(size_t capacity)
{
	size_t events_size = (capacity * sizeof(struct truth_event) + 63) & ~(size_t)63;
	size_t slot = atomic_fetch_add(&truth_logs_count, 1);
	struct truth *truth;
	char *memory;

	target_check(slot < TRUTH_MAX_LOGS, "too many logs");
	memory = target_map(64 + events_size + capacity * sizeof(struct block));
	truth = (struct truth *)(void *)memory;
	truth->tid = target_tid();
	truth->first_id = (uint64_t)slot << 32;
	truth->capacity = capacity;
	truth->events = (struct truth_event *)(void *)(memory + 64);
	truth->blocks = (struct block *)(void *)(memory + 64 + events_size);
	truth_logs[slot] = truth;
	return truth;
}

static inline void truth_event(struct truth *truth, struct block *block, bool is_free)
{
	target_check(truth->events_count < truth->capacity, "log is full");
	truth->events[truth->events_count++] = (struct truth_event){block, is_free};
}

/* Says that `address` was allocated or created: for those who call the driver themselves. */
static inline struct block *truth_add(struct truth *truth, uint64_t address, uint64_t size,
				      int device, enum block_kind kind, bool is_huge)
{
	struct block *block = &truth->blocks[truth->blocks_count];

	*block = (struct block){.id = truth->first_id + truth->blocks_count,
				.address = address,
				.size = size,
				.device = device,
				.kind = kind,
				.is_huge = is_huge};
	truth_event(truth, block, false);
	truth->blocks_count++;
	return block;
}

/* The same, for memory that came from halMemAlloc with `flag`. */
static inline struct block *truth_add_flag(struct truth *truth, void *address, uint64_t size,
					   unsigned long long flag)
{
	bool is_host = (flag >> 10 & 15) == 2;

	return truth_add(truth, (uint64_t)(uintptr_t)address, size,
			 is_host ? -1 : (int)(flag & 0x3ff), is_host ? BLOCK_HOST : BLOCK_ALLOC,
			 flag >> 17 & 1);
}

/* halMemAlloc that must succeed. */
static inline struct block *truth_alloc(struct truth *truth, uint64_t size, unsigned long long flag)
{
	void *address = NULL;

	target_check(halMemAlloc(&address, size, flag) == 0, "halMemAlloc failed");
	return truth_add_flag(truth, address, size, flag);
}

/* halMemCreate of `units` huge pages that must succeed. */
static inline struct block *truth_create(struct truth *truth, uint64_t units, int device)
{
	struct drv_mem_prop prop = {
		.side = 1, .devid = (uint32_t)device, .module_id = 33, .pg_type = 1};
	struct drv_mem_handle *handle = NULL;

	target_check(halMemCreate(&handle, units * CREATE_UNIT, &prop, 0) == 0,
		     "halMemCreate failed");
	return truth_add(truth, (uint64_t)(uintptr_t)handle, units * CREATE_UNIT, device,
			 BLOCK_CREATE, true);
}

/* Frees or releases a block of any thread; must succeed. */
static inline void truth_free(struct truth *truth, struct block *block)
{
	drvError_t code;

	truth_event(truth, block, true);
	if (block->kind == BLOCK_CREATE)
		code = halMemRelease((struct drv_mem_handle *)(uintptr_t)block->address);
	else
		code = halMemFree((void *)(uintptr_t)block->address);
	target_check(code == 0, "free failed");
}

/* A plain life of `pairs` blocks on `device`, every eighth of which stays alive. Takes at most 2 * `pairs` events. */
static inline void truth_live(struct truth *truth, unsigned pairs, int device)
{
	uint64_t seed = (uint64_t)truth->tid * 2654435761u + 1;

	for (unsigned i = 0; i < pairs; i++) {
		struct block *block = truth_alloc(truth, target_random_size(&seed),
						  FLAG_NORMAL | (unsigned)device);

		if (i % 8 != 7)
			truth_free(truth, block);
	}
}

/* A child forgets what its parent did; `truth_part` is kept. */
static inline void truth_reset(void)
{
	atomic_store(&truth_logs_count, 0);
}

struct truth_text {
	char *at;
};

static inline void truth_put(struct truth_text *text, const char *string)
{
	size_t length = strlen(string);

	memcpy(text->at, string, length);
	text->at += length;
}

static inline void truth_put_number(struct truth_text *text, int64_t number)
{
	char digits[24];
	char *end = digits + sizeof(digits) - 1;
	char *at = end;
	uint64_t rest = number < 0 ? -(uint64_t)number : (uint64_t)number;

	*at = 0;
	do {
		*--at = (char)('0' + rest % 10);
		rest /= 10;
	} while (rest > 0);
	if (number < 0)
		*--at = '-';
	truth_put(text, at);
}

static inline const char *truth_kind(enum block_kind kind)
{
	return kind == BLOCK_ALLOC ? "alloc" : kind == BLOCK_CREATE ? "create" : "host";
}

static inline void truth_put_log(struct truth_text *text, const struct truth *truth)
{
	truth_put(text, "{\"pid\":");
	truth_put_number(text, getpid());
	truth_put(text, ",\"tid\":");
	truth_put_number(text, truth->tid);
	truth_put(text, ",\"part\":");
	truth_put_number(text, truth_part);
	truth_put(text, ",\"events\":[");
	for (size_t i = 0; i < truth->events_count; i++) {
		const struct truth_event *event = &truth->events[i];
		const struct block *block = event->block;

		truth_put(text, i == 0 ? "" : ",");
		truth_put(text, event->is_free ? "[\"free\"," : "[\"malloc\",");
		truth_put_number(text, (int64_t)block->id);
		if (!event->is_free) {
			truth_put(text, ",");
			truth_put_number(text, (int64_t)block->address);
			truth_put(text, ",");
			truth_put_number(text, (int64_t)block->size);
			truth_put(text, ",");
			truth_put_number(text, block->device);
			truth_put(text, ",\"");
			truth_put(text, truth_kind(block->kind));
			truth_put(text, "\",\"");
			truth_put(text, block->is_huge ? "huge" : "normal");
			truth_put(text, "\"");
		}
		truth_put(text, "]");
	}
	truth_put(text, "]}\n");
}

/* Writes all logs of this process to the file `path`, to stdout when it is NULL. */
static inline void truth_write_to(const char *path)
{
	size_t logs = atomic_load(&truth_logs_count);
	size_t size = 4096;
	struct truth_text text;
	char *start;
	int fd = STDOUT_FILENO;

	for (size_t i = 0; i < logs; i++)
		size += 128 + 128 * truth_logs[i]->events_count;
	start = target_map(size);
	text.at = start;
	for (size_t i = 0; i < logs; i++)
		truth_put_log(&text, truth_logs[i]);
	if (path != NULL)
		fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
	target_check(fd >= 0, "cannot open the file for the truth");
	for (const char *at = start; at < text.at;) {
		ssize_t written = write(fd, at, (size_t)(text.at - at));

		if (written < 0 && errno == EINTR)
			continue;
		target_check(written > 0, "cannot write the truth");
		at += written;
	}
	if (path != NULL)
		close(fd);
	munmap(start, size);
}

static inline void truth_write(void)
{
	truth_write_to(getenv("TRUTH"));
}

#endif
