/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The record path: everything that runs for each event, and nothing else.
 *
 * Budget per event over the bare call (make bench): off one load and a branch, <= 5 ns; on without a stack <= 100 ns, of which
 * the clock is 20-25 ns; the rest is a dozen stores into one chunk and one thread-private line.
 * Not here: allocation, locks, system calls, formatting, calls through the PLT, read-modify-write atomics.
 *
 * What a live reader relies on: `busy` is 1 before the clock is read and 0 after the commit. It is a plain store; the reader
 * issues the barrier (membarrier) for us. The room for a record is made before `busy`, so that a slow path never holds back
 * the reader, and a new chunk is published before its first clock read.
 */
#ifndef MSCOPE_COLLECTOR_RECORD_HOT_H
#define MSCOPE_COLLECTOR_RECORD_HOT_H

#include "collector/record/capture.h"
#include "collector/record/early.h"
#include "collector/record/writer.h"
#include "collector/sys.h"
#include "collector/testpoint.h"

/* A record of the hot path with a time base before it. */
#define RECORD_ROOM (EVENT_BYTES_block_alloc_wide + EVENT_BYTES_time_base)

MSCOPE_INLINE struct chunk *writer_chunk(struct writer *w)
{
	return (struct chunk *)(void *)w->chunk;
}

/* Stores the stack pointer as `entered`: one instruction, as storing a 1 would be. */
MSCOPE_INLINE void writer_mark_entered(struct writer *w)
{
#if defined(__x86_64__)
	__asm__ volatile("movq %%rsp, %0" : "=m"(w->entered));
#else
	uint64_t sp;

	__asm__ volatile("mov %0, sp" : "=r"(sp));
	w->entered = sp;
#endif
}

/*
 * Begins an event on this thread. Events of signal handlers that interrupt us find `entered` set and are only counted; the fences
 * keep the compiler from moving our stores out of the guarded span.
 */
MSCOPE_INLINE struct writer *writer_enter_or(struct writer *(*slow)(void))
{
	struct writer *w = collector_writer;
	uint32_t recording = recording_now();

	if (MSCOPE_UNLIKELY(w <= WRITER_GONE || w->entered ||
			    w->generation != atomic_load_explicit(&collector_switch.generation,
								  memory_order_relaxed) ||
			    (recording != RECORDING_ON && recording != RECORDING_SHADOW)))
		return slow();
	writer_mark_entered(w);
	atomic_signal_fence(memory_order_seq_cst);
	return w;
}

MSCOPE_INLINE struct writer *writer_enter(void)
{
	return writer_enter_or(writer_enter_slow);
}

/* For allocations and frees: WRITER_EARLY before there is a session. */
MSCOPE_INLINE struct writer *writer_enter_memory(void)
{
	return writer_enter_or(writer_enter_memory_slow);
}

MSCOPE_INLINE void writer_leave(struct writer *w)
{
	atomic_signal_fence(memory_order_seq_cst);
	w->entered = 0;
	if (MSCOPE_UNLIKELY(collector_writer != w))
		writer_leave_slow(w);
}

/* The same for events that are recorded only in windows: NULL in shadow, too. */
MSCOPE_INLINE struct writer *writer_enter_on(void)
{
	struct writer *w = writer_enter();

	if (w != NULL && recording_now() != RECORDING_ON) {
		writer_leave(w);
		w = NULL;
	}
	return w;
}

/* Records an event without a payload: WRITER_PUT(w, mark, context, &event). One that finds no room is counted already. */
#define WRITER_PUT(w, name, context, ...)                                                          \
	do {                                                                                       \
		uint64_t put_words[EVENT_BYTES_##name / 8];                                        \
                                                                                                   \
		event_##name##_encode(put_words, __VA_ARGS__);                                     \
		(void)writer_put(w, EVENT_##name, context, put_words, MSCOPE_COUNT(put_words),     \
				 NULL, NULL, 0);                                                   \
	} while (0)

MSCOPE_INLINE bool record_room(struct writer *w, uint32_t bytes)
{
	return MSCOPE_LIKELY(w->used + bytes <= w->limit) || writer_next_chunk_slow(w, bytes);
}

/* From here to record_commit() a live reader waits for this record. The caller has made room. */
MSCOPE_INLINE void record_busy(struct writer *w)
{
	atomic_store_explicit(&writer_chunk(w)->busy, 1, memory_order_relaxed);
	atomic_signal_fence(memory_order_seq_cst);
	TESTPOINT(busy);
}

/* The delta of a time that was read while the writer was busy; writes a time base when it would not fit. */
MSCOPE_INLINE uint32_t record_since(struct writer *w, uint64_t now)
{
	uint64_t delta = now - w->base_ns;

	if (MSCOPE_UNLIKELY(delta > UINT32_MAX)) {
		uint64_t *words = (uint64_t *)(void *)(w->chunk + w->used);

		words[0] = record_word0(EVENT_time_base, 0, 0);
		words[1] = now;
		w->used += EVENT_BYTES_time_base;
		w->base_ns = now;
		delta = 0;
	}
	return (uint32_t)delta;
}

MSCOPE_INLINE uint32_t record_begin(struct writer *w)
{
	record_busy(w);
	return record_since(w, clock_ns());
}

/* Makes what was filled part of the trace. The release pairs with the acquire in chunk_committed() of the reader. */
MSCOPE_INLINE void record_commit(struct writer *w, uint32_t bytes)
{
	struct chunk *chunk = writer_chunk(w);

	TESTPOINT(filled);
	w->used += bytes;
	w->made++;
	atomic_store_explicit(&chunk->committed, w->used, memory_order_release);
	atomic_store_explicit(&chunk->records, w->made, memory_order_relaxed);
	TESTPOINT(committed);
	atomic_store_explicit(&chunk->busy, 0, memory_order_release);
	TESTPOINT(idle);
}

/* The slot of the context table that is tried first. */
MSCOPE_INLINE uint32_t context_home(uint32_t source, uint64_t key)
{
	uint64_t mixed = (key ^ source) * UINT64_C(0x9e3779b97f4a7c15);

	return (uint32_t)(mixed >> 58) & (WRITER_CONTEXTS - 1);
}

MSCOPE_INLINE uint32_t writer_context(struct writer *w, uint32_t source, uint64_t key,
				      context_decode *decode)
{
	struct context_slot *slot = &w->contexts[context_home(source, key)];

	if (MSCOPE_LIKELY(slot->key == key && slot->source == source && slot->id != 0))
		return slot->id;
	return writer_context_slow(w, source, key, decode);
}

/* The stack of an allocation: what was asked for, and in Python code at least a short Python site. 0: none. */
MSCOPE_INLINE uint32_t stack_of_alloc(struct writer *w, const void *caller)
{
	uint32_t c = atomic_load_explicit(&collector_switch.c_depth, memory_order_relaxed);
	uint32_t frames =
		atomic_load_explicit(&collector_switch.python_depth, memory_order_relaxed);

	return (c | frames) != 0 ? stack_capture(w, caller, c, frames) : 0;
}

/* The stack of any other event: what was asked for. */
MSCOPE_INLINE uint32_t stack_of_event(struct writer *w, const void *caller)
{
	uint32_t c = atomic_load_explicit(&collector_switch.c_depth, memory_order_relaxed);
	uint32_t frames =
		atomic_load_explicit(&collector_switch.python_shown, memory_order_relaxed);

	return (c | frames) != 0 ? stack_capture(w, caller, c, frames) : 0;
}

/* A block was handed out. `caller` is the hook's own return address: stacks begin there. */
MSCOPE_INLINE void event_alloc(uint32_t source, uint64_t key, context_decode *decode,
			       uint64_t address, uint64_t size_bytes, const void *caller)
{
	struct writer *w = writer_enter_memory();
	uint32_t context, stack, delta;
	uint64_t *words;

	if (MSCOPE_UNLIKELY(w <= WRITER_EARLY)) {
		if (w == WRITER_EARLY)
			early_alloc(source, key, decode, address, address, size_bytes);
		return;
	}
	context = writer_context(w, source, key, decode);
	stack = stack_of_alloc(w, caller);
	if (MSCOPE_LIKELY(record_room(w, RECORD_ROOM))) {
		delta = record_begin(w);
		words = (uint64_t *)(void *)(w->chunk + w->used);
		words[1] = address;
		if (MSCOPE_LIKELY(size_bytes <= SIZE_NARROW_MAX && stack <= STACK_MAX)) {
			words[0] = record_word0(EVENT_block_alloc, context, delta);
			words[2] = size_bytes | (uint64_t)stack << 40;
			record_commit(w, EVENT_BYTES_block_alloc);
		} else {
			words[0] = record_word0(EVENT_block_alloc_wide, context, delta);
			words[2] = size_bytes;
			words[3] = stack;
			record_commit(w, EVENT_BYTES_block_alloc_wide);
		}
	}
	writer_leave(w);
}

/* A block is about to be freed. */
MSCOPE_INLINE void event_free(uint32_t source, uint64_t key, context_decode *decode,
			      uint64_t address, const void *caller)
{
	struct writer *w = writer_enter_memory();
	uint32_t context, stack, delta;
	uint64_t *words;

	if (MSCOPE_UNLIKELY(w <= WRITER_EARLY)) {
		if (w == WRITER_EARLY)
			early_free(source, key, decode, address);
		return;
	}
	context = writer_context(w, source, key, decode);
	stack = stack_of_event(w, caller);
	if (MSCOPE_LIKELY(record_room(w, RECORD_ROOM))) {
		delta = record_begin(w);
		words = (uint64_t *)(void *)(w->chunk + w->used);
		words[1] = address;
		if (stack == 0) {
			words[0] = record_word0(EVENT_block_free, context, delta);
			record_commit(w, EVENT_BYTES_block_free);
		} else {
			words[0] = record_word0(EVENT_block_free_traced, context, delta);
			words[2] = stack;
			record_commit(w, EVENT_BYTES_block_free_traced);
		}
	}
	writer_leave(w);
}

/*
 * The same with a C stack whether stacks are asked for or not, for calls that are rare and slow: memory of a driver beside pools is named
 * by the library that called. Out of line.
 */
void event_alloc_traced_slow(uint32_t source, uint64_t key, context_decode *decode,
			     uint64_t address, uint64_t size_bytes, const void *caller);

/* The same of a pool that told more about the block; `event` lacks the stack. Out of line. */
void event_alloc_pool(uint32_t source, uint64_t key, context_decode *decode,
		      struct event_block_alloc_pool *event, const void *caller);

/* The same for a block with a handle of its own. Out of line. */
void event_region_slow(uint32_t source, uint64_t key, context_decode *decode, uint64_t handle,
		       uint64_t address, uint64_t size_bytes, const void *caller);

/* The free that was just recorded failed: the block lives on. Rare, so out of line. */
void event_free_undo_slow(uint32_t source, uint64_t key, context_decode *decode, uint64_t address);

#endif
