/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A run whose process may still live: chunks are mapped, new ones are found at each poll, and packed ones go back to the writers. The
 * engine's own records come in here as well.
 */
#include "trace/run_state.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/array.h"
#include "base/io.h"

struct chunk *chunk_map(struct run *run, uint32_t number)
{
	size_t room = run->chunk_room;
	void *p;

	if (array_reserve(&run->chunks, &run->chunk_room, (size_t)number + 1,
			  sizeof(*run->chunks)) < 0)
		return NULL;
	if (run->chunk_room > room)
		memset(run->chunks + room, 0, (run->chunk_room - room) * sizeof(*run->chunks));
	if (run->chunks[number] == NULL) {
		p = mmap(NULL, run->chunk_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, run->raw_fd,
			 (off_t)chunk_offset(run, number));
		if (p == MAP_FAILED)
			return NULL;
		run->chunks[number] = p;
	}
	return run->chunks[number];
}

static int piece_add(struct run *run, uint32_t writer, const struct piece *piece)
{
	struct stream *s = stream_get(run, writer);
	size_t at;

	if (s == NULL)
		return -ENOMEM;
	if (s->next > 0 && s->next == s->piece_count)
		s->next = s->piece_count = 0;
	if (array_reserve(&s->pieces, &s->piece_room, s->piece_count + 1, sizeof(*s->pieces)) < 0)
		return -ENOMEM;
	for (at = s->piece_count; at > s->next && s->pieces[at - 1].sequence > piece->sequence;
	     at--)
		s->pieces[at] = s->pieces[at - 1];
	s->pieces[at] = *piece;
	s->piece_count++;
	return 0;
}

/* Time of the last record in an open chunk that is in the middle of the next one. */
static uint64_t piece_last_time(const struct run *run, struct piece *piece,
				const struct chunk *chunk)
{
	uint32_t limit = chunk_committed(chunk, run->chunk_bytes) - CHUNK_HEADER_BYTES;
	const uint8_t *records = (const uint8_t *)(chunk + 1);

	if (!piece->scanned) {
		piece->scanned = true;
		piece->scan_base_ns = piece->scan_time_ns = piece->base_ns;
	}
	while (piece->scan_at < limit) {
		size_t bytes = layout_record_bytes(&run->layout, records + piece->scan_at,
						   limit - piece->scan_at);
		uint64_t words[2];

		if (bytes == 0)
			break;
		memcpy(words, records + piece->scan_at, sizeof(words));
		if (record_type(words[0]) == EVENT_time_base)
			piece->scan_base_ns = piece->scan_time_ns = words[1];
		else
			piece->scan_time_ns = piece->scan_base_ns + record_delta(words[0]);
		piece->scan_at += (uint32_t)bytes;
	}
	return piece->scan_time_ns;
}

/* Newest piece of a stream: the only one that its writer can be busy in. */
static struct piece *newest(struct stream *s)
{
	if (s->injected)
		return NULL;
	if (s->next < s->piece_count)
		return &s->pieces[s->piece_count - 1];
	return s->opened ? &s->current : NULL;
}

uint64_t writers_time_ns(struct run *run, uint64_t now_ns)
{
	size_t i;

	for (i = 0; i < run->stream_count; i++) {
		struct piece *piece = newest(&run->streams[i]);
		const struct chunk *chunk = piece == NULL ? NULL : chunk_map(run, piece->number);
		uint64_t last;

		if (chunk == NULL || atomic_load_explicit(&chunk->busy, memory_order_acquire) == 0)
			continue;
		last = piece_last_time(run, piece, chunk);
		if (last < now_ns)
			now_ns = last;
	}
	return now_ns;
}

static int scan_chunk(struct run *run, uint32_t number, bool *out_taken)
{
	const struct chunk *chunk = chunk_map(run, number);
	struct piece piece = {.number = number};

	*out_taken = false;
	if (chunk == NULL)
		return -ENOMEM;
	if (atomic_load_explicit(&chunk->magic, memory_order_acquire) != CHUNK_MAGIC)
		return 0;
	*out_taken = true;
	if (!chunk_is_ours(run, chunk)) {
		run->damage.bad_chunks++;
		return 0;
	}
	piece.sequence = chunk->sequence;
	piece.base_ns = chunk->base_ns;
	return piece_add(run, chunk->writer, &piece);
}

/*
 * How many chunks writers have taken, and the file has. The writers make space before they raise the number: a greater one is
 * damage, by a stray store of the program, and touching a page behind the end of the file would be fatal.
 */
static uint32_t chunks_taken(struct run *run)
{
	uint32_t next = atomic_load_explicit(&run->mapped->next_chunk, memory_order_acquire);
	uint64_t there;
	struct stat st;

	if (next <= run->scanned)
		return next;
	if (fstat(run->raw_fd, &st) < 0 || (uint64_t)st.st_size < run->chunks_at)
		return run->scanned;
	there = ((uint64_t)st.st_size - run->chunks_at) / run->chunk_bytes;
	if (there > run->chunks_max)
		there = run->chunks_max;
	if (next <= there)
		return next;
	run->damage.bad_chunks += !run->overrun;
	run->overrun = true;
	return (uint32_t)there;
}

int chunks_scan(struct run *run)
{
	uint32_t next = chunks_taken(run);
	size_t from, to = 0;
	bool taken;
	int r;

	for (from = 0; from < run->waiting_count; from++) {
		r = scan_chunk(run, run->waiting[from], &taken);
		if (r < 0)
			return r;
		if (!taken)
			run->waiting[to++] = run->waiting[from];
	}
	run->waiting_count = to;
	for (; run->scanned < next; run->scanned++) {
		r = scan_chunk(run, run->scanned, &taken);
		if (r == 0 && !taken) {
			r = array_reserve(&run->waiting, &run->waiting_room, run->waiting_count + 1,
					  sizeof(*run->waiting));
			if (r == 0)
				run->waiting[run->waiting_count++] = run->scanned;
		}
		if (r < 0)
			return r;
	}
	return 0;
}

void run_release(struct run *run, uint32_t number)
{
	struct trace_header *h = run->mapped;
	struct chunk *chunk = chunk_map(run, number);
	uint64_t head;

	if (h == NULL || chunk == NULL)
		return;
	/* The length goes first: a reader of the chunk finds nothing in it from here on. */
	atomic_store_explicit(&chunk->committed, 0, memory_order_relaxed);
	atomic_store_explicit(&chunk->busy, 0, memory_order_relaxed);
	atomic_store_explicit(&chunk->state, CHUNK_FREE, memory_order_relaxed);
	atomic_store_explicit(&chunk->magic, 0, memory_order_release);
	head = atomic_load_explicit(&h->ring_head, memory_order_relaxed);
	if (head - atomic_load_explicit(&h->ring_tail, memory_order_relaxed) >= 64 ||
	    array_reserve(&run->waiting, &run->waiting_room, run->waiting_count + 1,
			  sizeof(*run->waiting)) < 0) {
		/* Enough chunks wait for writers: release the disk space of this one, which is never used again. */
		(void)fallocate(run->raw_fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
				(off_t)chunk_offset(run, number), run->chunk_bytes);
		(void)munmap(run->chunks[number], run->chunk_bytes);
		run->chunks[number] = NULL;
		return;
	}
	run->waiting[run->waiting_count++] = number;
	atomic_store_explicit((_Atomic uint32_t *)(void *)((char *)h + TRACE_HEADER_BYTES) +
				      head % run->chunks_max,
			      number, memory_order_relaxed);
	/* Pairs with the acquire in ring_take() of the collector. */
	atomic_store_explicit(&h->ring_head, head + 1, memory_order_release);
}

#define INJECTED_BYTES 65536u

int run_inject(struct run *run, uint32_t type, uint64_t time_ns, uint64_t *words, uint32_t count)
{
	struct builder *b = &run->injected;
	struct stream *s;

	run_advance(run); /* streams may move when one is added */
	s = stream_get(run, ENGINE_WRITER);
	if (s == NULL)
		return -ENOMEM;
	/* A full piece goes the way of all chunks, once it has been read. */
	if (s->opened && s->limit + count * 8 > INJECTED_BYTES && s->at >= s->limit)
		piece_done(run, s);
	if (time_ns < run->watermark_ns)
		time_ns = run->watermark_ns;
	if (time_ns > b->time_ns)
		b->time_ns = time_ns;
	builder_put(b, (enum event_type)type, 0, words, count);
	if (b->error < 0)
		return b->error;
	if (!s->opened) {
		s->current = (struct piece){
			.sequence = b->sequence, .number = RUN_CHUNK_NONE, .base_ns = b->chunk_ns};
		s->base_ns = b->chunk_ns;
		s->started = s->opened = s->injected = true;
		s->at = 0;
	}
	s->data = (const uint8_t *)b->records.data;
	s->limit = (uint32_t)b->records.length;
	return 0;
}

int run_reserve(struct run *run, uint32_t ahead)
{
	struct trace_header *h = run->mapped;
	uint32_t next = chunks_taken(run);
	uint32_t reserved = atomic_load_explicit(&h->reserved_chunks, memory_order_acquire);
	uint32_t step = TRACE_RESERVE_BYTES / run->chunk_bytes;

	while (!run->overrun && reserved < (uint64_t)next + ahead &&
	       reserved + (uint64_t)step <= run->chunks_max) {
		if (fallocate(run->raw_fd, 0, (off_t)chunk_offset(run, reserved),
			      TRACE_RESERVE_BYTES) < 0)
			return -errno;
		/* Pairs with the acquire in ensure_reserved() of the collector, which may have been faster. */
		if (atomic_compare_exchange_strong(&h->reserved_chunks, &reserved, reserved + step))
			reserved += step;
	}
	return 0;
}
