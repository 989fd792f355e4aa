/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Raw traces made by hand, for tests of what reads them: small chunks, any writer, any time, and every byte within reach to be
 * spoilt. The builder makes the records; the file is mapped, so a trace can be read while it grows: maker_put() follows the same
 * order of stores as the collector does.
 *
 * Only for tests: what cannot be had ends the process.
 */
#ifndef MSCOPE_TESTS_TRACE_MAKER_H
#define MSCOPE_TESTS_TRACE_MAKER_H

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/compiler.h"
#include "trace/builder.h"

#define MAKER_CHUNK_BYTES 4096u
#define MAKER_CHUNKS	  64u
#define MAKER_IDENTITY	  "program=made by hand\0host=none"

struct maker {
	struct trace_header *header; /* the whole file, mapped */
	uint64_t bytes;
	char path[256];
};

/* One writer of the trace. Zeroed but for the first two members it is a new one. */
struct maker_writer {
	struct maker *maker;
	uint32_t number; /* from 1 */
	uint32_t sequence;
	uint32_t used;
	struct chunk *chunk;
	uint64_t base_ns;
};

_Noreturn static inline void maker_fail(const char *what)
{
	perror(what);
	abort();
}

static inline void maker_make(struct maker *m, const char *path, uint32_t chunk_bytes,
			      uint32_t chunks)
{
	struct trace_header *h;
	int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	*m = (struct maker){.bytes = 2 * TRACE_HEADER_BYTES + (uint64_t)chunk_bytes * chunks};
	(void)snprintf(m->path, sizeof(m->path), "%s", path);
	if (fd < 0 || ftruncate(fd, (off_t)m->bytes) < 0)
		maker_fail(path);
	h = mmap(NULL, m->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (h == MAP_FAILED)
		maker_fail(path);
	(void)close(fd);
	preamble_init(h, MAKER_IDENTITY, sizeof(MAKER_IDENTITY));
	h->chunk_bytes = chunk_bytes;
	h->chunks_max = chunks;
	h->chunks_at = 2 * TRACE_HEADER_BYTES;
	h->pid = 4711;
	memcpy(h->run_id, "\x11\x22\x33\x44 run by hand", sizeof(h->run_id));
	memcpy(&h->salt, h->run_id, sizeof(h->salt));
	h->monotonic_ns = 0;
	h->realtime_ns = UINT64_C(1700000000) * 1000000000u;
	atomic_store(&h->state, TRACE_RECORDING);
	atomic_store(&h->reserved_chunks, chunks);
	m->header = h;
}

static inline void maker_fini(struct maker *m)
{
	(void)munmap(m->header, m->bytes);
	(void)unlink(m->path);
}

static inline struct chunk *maker_chunk(const struct maker *m, uint32_t number)
{
	return (struct chunk *)(void *)((char *)m->header + chunk_at(m->header, number));
}

/* A chunk that the reader gave back, else one that was never used. */
static inline uint32_t maker_take_chunk(struct maker *m)
{
	struct trace_header *h = m->header;
	const _Atomic uint32_t *ring = (void *)((char *)h + TRACE_HEADER_BYTES);
	uint64_t tail = atomic_load(&h->ring_tail);
	uint32_t number;

	while (tail < atomic_load(&h->ring_head)) {
		number = atomic_load(&ring[tail % h->chunks_max]);
		if (atomic_compare_exchange_weak(&h->ring_tail, &tail, tail + 1))
			return number;
	}
	number = atomic_load(&h->next_chunk);
	do {
		if (number >= h->chunks_max)
			maker_fail("no chunk is left");
	} while (!atomic_compare_exchange_weak(&h->next_chunk, &number, number + 1));
	return number;
}

static inline void maker_seal(struct maker_writer *w)
{
	if (w->chunk != NULL)
		atomic_store_explicit(&w->chunk->state, CHUNK_SEALED, memory_order_release);
	w->chunk = NULL;
}

/* Seals the writer's chunk and opens the next. */
static inline struct chunk *maker_next_chunk(struct maker_writer *w, uint64_t base_ns)
{
	uint32_t number = maker_take_chunk(w->maker);
	struct chunk *chunk = maker_chunk(w->maker, number);

	maker_seal(w);
	chunk->salt = w->maker->header->salt;
	chunk->writer = w->number;
	chunk->sequence = w->sequence++;
	atomic_store(&chunk->committed, CHUNK_HEADER_BYTES);
	atomic_store(&chunk->busy, 1);
	w->base_ns = chunk->base_ns = base_ns;
	atomic_store(&chunk->state, CHUNK_OPEN);
	atomic_store_explicit(&chunk->magic, CHUNK_MAGIC, memory_order_release);
	w->chunk = chunk;
	w->used = CHUNK_HEADER_BYTES;
	return chunk;
}

/* Makes room as the hot path does, before the clock is read; a new chunk counts its time from `base_ns`. */
static inline void maker_room(struct maker_writer *w, uint32_t bytes, uint64_t base_ns)
{
	if (w->chunk == NULL ||
	    w->used + bytes + EVENT_BYTES_time_base > w->maker->header->chunk_bytes)
		(void)maker_next_chunk(w, base_ns);
}

static inline void maker_busy(struct maker_writer *w)
{
	atomic_store_explicit(&w->chunk->busy, 1, memory_order_relaxed);
	atomic_signal_fence(memory_order_seq_cst);
}

static inline void maker_idle(struct maker_writer *w)
{
	atomic_store_explicit(&w->chunk->busy, 0, memory_order_release);
}

/* A builder that goes on where the writer's chunk is, at `time_ns`. */
static inline struct builder maker_builder(const struct maker_writer *w, uint64_t time_ns)
{
	struct builder b = {.writer = w->number, .time_ns = time_ns};

	builder_begin_chunk(&b, w->base_ns);
	return b;
}

/* Appends what was built to the chunk, which has room for it. Stays busy. */
static inline void maker_append(struct maker_writer *w, struct builder *b)
{
	if (b->error != 0)
		maker_fail("no memory");
	memcpy((char *)w->chunk + w->used, b->records.data, b->records.length);
	w->used += (uint32_t)b->records.length;
	w->base_ns = b->base_ns;
	builder_fini(b);
	/* Pairs with the acquire in chunk_committed(). */
	atomic_store_explicit(&w->chunk->committed, w->used, memory_order_release);
}

/* Appends a record; `words[0]` is made here. Stays busy: for tests of that state. */
static inline void maker_put_busy(struct maker_writer *w, uint64_t time_ns, uint32_t type,
				  uint32_t context, uint64_t *words, uint32_t bytes)
{
	struct builder b = maker_builder(w, time_ns);

	builder_put(&b, (enum event_type)type, context, words, bytes / 8);
	maker_append(w, &b);
}

static inline void maker_put(struct maker_writer *w, uint64_t time_ns, uint32_t type,
			     uint32_t context, uint64_t *words, uint32_t bytes)
{
	maker_room(w, bytes, time_ns);
	maker_busy(w);
	maker_put_busy(w, time_ns, type, context, words, bytes);
	maker_idle(w);
}

#define MAKER_EVENT(w, time_ns, context, event, ...)                                               \
	do {                                                                                       \
		struct event_##event in_ = {__VA_ARGS__};                                          \
		uint64_t words_[EVENT_BYTES_##event / 8];                                          \
                                                                                                   \
		event_##event##_encode(words_, &in_);                                              \
		maker_put(w, time_ns, EVENT_##event, context, words_, sizeof(words_));             \
	} while (0)

/* A record with a payload: `words` has the fixed part, its length is filled in. */
static inline void maker_variable(struct maker_writer *w, uint64_t time_ns, uint32_t type,
				  uint64_t *words, uint32_t fixed_bytes, const void *payload,
				  uint32_t payload_bytes)
{
	struct builder b;

	maker_room(w, (uint32_t)round_up_u64(fixed_bytes + payload_bytes, 8), time_ns);
	maker_busy(w);
	b = maker_builder(w, time_ns);
	builder_begin(&b, (enum event_type)type, 0, words, fixed_bytes / 8);
	builder_payload(&b, payload, payload_bytes);
	builder_end(&b);
	maker_append(w, &b);
	maker_idle(w);
}

/* MAKER_VARIABLE(w, time_ns, payload, payload_bytes, event, .field = value, ...) */
#define MAKER_VARIABLE(w, time_ns, payload, payload_bytes, event, ...)                             \
	do {                                                                                       \
		struct event_##event in_ = {__VA_ARGS__};                                          \
		uint64_t words_[EVENT_BYTES_##event / 8];                                          \
                                                                                                   \
		event_##event##_encode(words_, &in_);                                              \
		maker_variable(w, time_ns, EVENT_##event, words_, sizeof(words_), payload,         \
			       (uint32_t)(payload_bytes));                                         \
	} while (0)

static inline void maker_thread(struct maker_writer *w, uint64_t time_ns, uint32_t tid)
{
	MAKER_EVENT(w, time_ns, 0, thread, .tid = tid);
}

static inline void maker_context(struct maker_writer *w, uint64_t time_ns, uint32_t id,
				 uint32_t pool, uint32_t kind, uint32_t device)
{
	MAKER_EVENT(w, time_ns, 0, context_def, .id = id, .pool = pool, .kind = kind,
		    .page = PAGE_NORMAL, .vendor = VENDOR_ASCEND, .device = device, .module = 33);
}

static inline void maker_alloc(struct maker_writer *w, uint64_t time_ns, uint32_t context,
			       uint64_t address, uint64_t size_bytes, uint32_t stack)
{
	MAKER_EVENT(w, time_ns, context, block_alloc, .address = address, .size_bytes = size_bytes,
		    .stack = stack);
}

static inline void maker_free(struct maker_writer *w, uint64_t time_ns, uint32_t context,
			      uint64_t address)
{
	MAKER_EVENT(w, time_ns, context, block_free, .address = address);
}

static inline void maker_undo(struct maker_writer *w, uint64_t time_ns, uint32_t context,
			      uint64_t address)
{
	MAKER_EVENT(w, time_ns, context, block_free_undo, .address = address);
}

static inline void maker_stack(struct maker_writer *w, uint64_t time_ns, uint32_t id,
			       const uint64_t *frames, uint32_t count)
{
	MAKER_VARIABLE(w, time_ns, frames, count * 8, stack_def, .id = id, .c_frames = count);
}

/* A stack of one C frame and Python frames, whose words are code | offset << 32. */
static inline void maker_python_stack(struct maker_writer *w, uint64_t time_ns, uint32_t id,
				      const uint64_t *frames, uint32_t python_frames)
{
	MAKER_VARIABLE(w, time_ns, frames, (1 + python_frames) * 8, stack_def, .id = id,
		       .c_frames = 1, .python_frames = python_frames);
}

/* `text` is a file name of `file_bytes` bytes and the name of a function behind it. */
static inline void maker_code(struct maker_writer *w, uint64_t time_ns, uint32_t id,
			      const char *text, uint32_t file_bytes, uint32_t first_line)
{
	MAKER_VARIABLE(w, time_ns, text, strlen(text), code_def, .id = id, .first_line = first_line,
		       .minor = 12, .file_bytes = file_bytes,
		       .name_bytes = strlen(text) - file_bytes);
}

static inline void maker_module(struct maker_writer *w, uint64_t time_ns, uint32_t id,
				uint64_t start, uint64_t end, const char *path)
{
	MAKER_VARIABLE(w, time_ns, path, strlen(path), module_load, .id = id, .bias = start,
		       .start = start, .end = end, .path_bytes = strlen(path));
}

static inline void maker_text(struct maker_writer *w, uint64_t time_ns, uint32_t id,
			      const char *text)
{
	MAKER_VARIABLE(w, time_ns, text, strlen(text), text_def, .id = id,
		       .text_bytes = strlen(text));
}

static inline void maker_note(struct maker_writer *w, uint64_t time_ns, const char *text)
{
	MAKER_VARIABLE(w, time_ns, text, strlen(text), note, .text_bytes = strlen(text));
}

#endif
