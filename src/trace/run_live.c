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
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/io.h"

struct chunk *chunk_map(struct run *run, uint32_t number)
{
	size_t room = run->chunk_room;
	void *p;

	if (ARRAY_RESERVE(run->chunks, run->chunk_room, (size_t)number + 1) < 0)
		return NULL;
	if (run->chunk_room > room)
		memset(run->chunks + room, 0, (run->chunk_room - room) * sizeof(*run->chunks));
	if (run->chunks[number] == NULL) {
		p = mmap(NULL, run->chunk_bytes, PROT_READ | (run->observed ? 0 : PROT_WRITE),
			 MAP_SHARED, raw_fd(run), (off_t)chunk_offset(run, number));
		if (p == MAP_FAILED)
			return NULL;
		run->chunks[number] = p;
	}
	return run->chunks[number];
}

int piece_add(struct run *run, uint32_t writer, const struct piece *piece)
{
	struct stream *s = stream_get(run, writer);
	size_t at;

	if (s == NULL)
		return -ENOMEM;
	if (s->next > 0 && s->next == s->piece_count)
		s->next = s->piece_count = 0;
	if (ARRAY_RESERVE(s->pieces, s->piece_room, s->piece_count + 1) < 0)
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
		uint64_t word0;

		if (bytes == 0)
			break;
		memcpy(&word0, records + piece->scan_at, sizeof(word0));
		if (record_type(word0) == EVENT_time_base) {
			memcpy(&piece->scan_base_ns, records + piece->scan_at + 8,
			       sizeof(piece->scan_base_ns));
			piece->scan_time_ns = piece->scan_base_ns;
		} else {
			piece->scan_time_ns = piece->scan_base_ns + record_delta(word0);
		}
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
		const struct chunk *chunk =
			piece == NULL || piece->packed ? NULL : chunk_map(run, piece->number);
		uint64_t last;

		if (chunk == NULL || atomic_load_explicit(&chunk->busy, memory_order_acquire) == 0)
			continue;
		last = piece_last_time(run, piece, chunk);
		/* A chunk that has gone on to another writer was whole. */
		if (run->observed && !observed_holds(run, run->streams[i].writer, piece, chunk))
			continue;
		if (last < now_ns)
			now_ns = last;
	}
	return now_ns;
}

static int scan_chunk(struct run *run, uint32_t number, bool final, bool *out_taken)
{
	const struct chunk *chunk = chunk_map(run, number);
	struct piece piece = {.number = number};
	uint32_t magic;

	*out_taken = false;
	if (chunk == NULL)
		return -ENOMEM;
	magic = atomic_load_explicit(&chunk->magic, memory_order_acquire);
	if (magic != CHUNK_MAGIC && !final)
		return 0;
	if (!chunk_is_ours(run, chunk)) {
		/* A writer that lives may be about to publish it. */
		if (!final)
			return 0;
		*out_taken = true;
		if (!chunk_was_ours(run, chunk)) {
			run->damage.bad_chunks += magic != 0;
			return 0;
		}
		run->damage.overwritten = true;
	}
	*out_taken = true;
	piece.sequence = chunk->sequence;
	piece.records_before = chunk->records_before;
	piece.base_ns = chunk->base_ns;
	if (!time_is_possible(run, piece.base_ns)) {
		run->damage.overwritten = true;
		piece.base_ns =
			run->returned_ns > 0 ? run->returned_ns : run_header(run)->monotonic_ns;
	}
	return piece_add(run, chunk->writer, &piece);
}

/* Chunks that the file has. */
static uint64_t file_chunks(struct run *run)
{
	uint64_t there;
	struct stat st;

	if (fstat(raw_fd(run), &st) < 0 || (uint64_t)st.st_size < run->chunks_at)
		return 0;
	there = ((uint64_t)st.st_size - run->chunks_at) / run->chunk_bytes;
	return there < run->chunks_max ? there : run->chunks_max;
}

/*
 * The writers make space before they raise the number: a greater one is damage, by a stray store of the program, and touching a page
 * behind the end of the file would be fatal.
 */
uint32_t chunks_taken(struct run *run)
{
	uint32_t next = atomic_load_explicit(&run->mapped->next_chunk, memory_order_acquire);
	uint64_t there;

	if (next < run->scanned)
		run->damage.overwritten = true;
	if (next <= run->scanned)
		return run->scanned;
	there = file_chunks(run);
	if (there < run->scanned)
		return run->scanned;
	if (next <= there)
		return next;
	run->damage.bad_chunks += !run->overrun;
	run->overrun = true;
	return (uint32_t)there;
}

int chunks_scan(struct run *run, bool final)
{
	uint32_t next = chunks_taken(run);
	size_t from, to = 0;
	bool taken;
	int r;

	for (from = 0; from < run->waiting_count; from++) {
		r = scan_chunk(run, run->waiting[from], final, &taken);
		if (r < 0)
			return r;
		if (!taken)
			run->waiting[to++] = run->waiting[from];
	}
	run->waiting_count = to;
	for (; run->scanned < next; run->scanned++) {
		r = scan_chunk(run, run->scanned, final, &taken);
		if (r == 0 && !taken) {
			r = ARRAY_RESERVE(run->waiting, run->waiting_room, run->waiting_count + 1);
			if (r == 0)
				run->waiting[run->waiting_count++] = run->scanned;
		}
		if (r < 0)
			return r;
	}
	return 0;
}

/* A value that only grows, by at most so much. */
static bool take_grown(_Atomic uint64_t *own, uint64_t value, uint64_t most)
{
	uint64_t before = atomic_load(own);

	if (value < before || value - before > most)
		return false;
	atomic_store(own, value);
	return true;
}

/*
 * A count that grows by less than one a nanosecond: a lost event takes longer. The clock is read after the count, since this thread may
 * be held up between the two; `since_ns` was read before the count was taken the last time.
 */
static bool take_count(_Atomic uint64_t *own, const _Atomic uint64_t *word, uint64_t since_ns)
{
	uint64_t value = atomic_load_explicit(word, memory_order_relaxed);
	uint64_t now_ns = clock_monotonic_ns();

	return take_grown(own, value, now_ns > since_ns ? now_ns - since_ns : TRACE_LOSS_MAX);
}

static bool take_word(_Atomic uint32_t *own, const _Atomic uint32_t *word, uint32_t least,
		      uint32_t most)
{
	uint32_t value = atomic_load_explicit(word, memory_order_relaxed);

	if (value < least || value > most)
		return false;
	atomic_store(own, value);
	return true;
}

/* Whether the file has lost chunks that it had. */
static bool is_cut(struct run *run)
{
	struct stat st;

	if (fstat(raw_fd(run), &st) == 0 && (uint64_t)st.st_size < chunk_offset(run, run->scanned))
		run->damage.truncated = true;
	return run->damage.truncated;
}

/* Losses that a kill may have left in one count and not in the other: one for each thread. */
#define LOSSES_APART 64u

/* Whether the counts of losses are those of the process. Amid a loss they are not, for a moment. */
static bool losses_hold(const struct run *run)
{
	struct trace_header *h = run->mapped;
	uint64_t sum = atomic_load_explicit(&h->loss_sum, memory_order_relaxed), all = 0;
	uint32_t i;

	if ((run_header(run)->compatible & TRACE_FEATURE_LOSS_SUM) == 0)
		return true;
	for (i = 0; i < TRACE_LOSSES_MAX; i++)
		all += atomic_load_explicit(&h->loss[i], memory_order_relaxed);
	return (all > sum ? all - sum : sum - all) <= LOSSES_APART;
}

void header_refresh(struct run *run, bool final)
{
	struct trace_header *own = (struct trace_header *)(void *)run->preamble;
	struct trace_header *h = run->mapped;
	uint64_t now_ns = clock_monotonic_ns(),
		 since_ns = run->refreshed_ns == 0 ? own->monotonic_ns : run->refreshed_ns;
	bool good = take_word(&own->state, &h->state, TRACE_RECORDING, TRACE_CLOSED);
	uint32_t i;

	run->refreshed_ns = now_ns;
	good &= take_word(&own->stop, &h->stop, 0, TRACE_STOP_LIMIT);
	good &= take_word(&own->stop_errno, &h->stop_errno, 0, 4095);
	good &= !final || losses_hold(run);
	for (i = 0; i < TRACE_LOSSES_MAX && losses_hold(run); i++)
		good &= take_count(&own->loss[i], &h->loss[i], since_ns);
	good &= take_grown(&own->stall_max_ns,
			   atomic_load_explicit(&h->stall_max_ns, memory_order_relaxed), now_ns);
	good &= take_count(&own->stall_count, &h->stall_count, since_ns);
	good &= take_grown(&own->stall_total_ns,
			   atomic_load_explicit(&h->stall_total_ns, memory_order_relaxed),
			   UINT64_MAX);
	atomic_store(&own->next_chunk, run->scanned);
	atomic_store(&own->request, atomic_load_explicit(&h->request, memory_order_relaxed));
	if (final)
		(void)is_cut(run);
	/* What is gone reads as zeros. */
	if (!good && !run->damage.truncated)
		run->damage.overwritten = true;
}

/* Takes disk space. -errno; -EOPNOTSUPP where only writing takes it. A file that was cut is not made longer again. */
static int take_space(struct run *run, uint64_t at, uint64_t bytes)
{
	if (is_cut(run))
		return -EIO;
	return fallocate(raw_fd(run), 0, (off_t)at, (off_t)bytes) == 0 ? 0 : -errno;
}

/* Entries of the ring whose disk space is taken at a time: 64 KiB of it. */
#define RING_STEP 16384u

/* Puts a chunk with pages into the ring of free ones. False: the ring has no space on the disk. */
static bool ring_put(struct run *run, uint32_t number)
{
	struct trace_header *h = run->mapped;
	uint64_t head = run->ring_head;

	if (head < run->chunks_max && head % RING_STEP == 0) {
		uint64_t entries =
			run->chunks_max - head < RING_STEP ? run->chunks_max - head : RING_STEP;
		int r = take_space(run, TRACE_HEADER_BYTES + head * sizeof(uint32_t),
				   entries * sizeof(uint32_t));

		if (r < 0 && r != -EOPNOTSUPP)
			return false;
	}
	atomic_store_explicit((_Atomic uint32_t *)(void *)((char *)h + TRACE_HEADER_BYTES) +
				      head % run->chunks_max,
			      number, memory_order_relaxed);
	/* Pairs with the acquire in ring_take() of the collector. */
	atomic_store_explicit(&h->ring_head, ++run->ring_head, memory_order_release);
	return true;
}

/* Chunks that wait in the ring. A head or tail that cannot be was written over by the program, and is mended. */
static uint64_t ring_free(struct run *run)
{
	uint64_t tail = atomic_load_explicit(&run->mapped->ring_tail, memory_order_relaxed);
	uint64_t head = atomic_load_explicit(&run->mapped->ring_head, memory_order_relaxed);

	if (head == run->ring_head && tail <= head && head - tail <= run->chunks_max)
		return head - tail;
	run->damage.overwritten = true;
	/* Chunks that waited in it are not offered again; writers take new ones. */
	atomic_store_explicit(&run->mapped->ring_head, run->ring_head, memory_order_release);
	if (tail > run->ring_head || run->ring_head - tail > run->chunks_max)
		(void)atomic_compare_exchange_strong(&run->mapped->ring_tail, &tail,
						     run->ring_head);
	return 0;
}

void run_release(struct run *run, uint32_t number)
{
	struct trace_header *h = run->mapped;
	struct chunk *chunk = chunk_map(run, number);

	if (h == NULL || chunk == NULL)
		return;
	/* The length goes first: a reader of the chunk finds nothing in it from here on. */
	atomic_store_explicit(&chunk->committed, 0, memory_order_relaxed);
	atomic_store_explicit(&chunk->busy, 0, memory_order_relaxed);
	atomic_store_explicit(&chunk->state, CHUNK_FREE, memory_order_relaxed);
	atomic_store_explicit(&chunk->magic, 0, memory_order_release);
	if (ring_free(run) < (run->free_max > RUN_FREE_MIN ? run->free_max : RUN_FREE_MIN) &&
	    ARRAY_RESERVE(run->waiting, run->waiting_room, run->waiting_count + 1) == 0 &&
	    ring_put(run, number)) {
		run->waiting[run->waiting_count++] = number;
		return;
	}
	/* Enough chunks wait for writers: release the disk space of this one, which is never used again. */
	if (fallocate(raw_fd(run), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
		      (off_t)chunk_offset(run, number), run->chunk_bytes) == 0)
		atomic_fetch_add_explicit(&h->punched_chunks, 1, memory_order_relaxed);
	(void)munmap(run->chunks[number], run->chunk_bytes);
	run->chunks[number] = NULL;
}

int run_is_mapped(struct run *run)
{
	int fd;

	if ((run_header(run)->compatible & TRACE_FEATURE_LOCKED) == 0 || (fd = raw_fd(run)) < 0)
		return -ENOENT;
	if (flock(fd, LOCK_EX | LOCK_NB) < 0)
		return errno == EWOULDBLOCK ? 1 : -errno;
	(void)flock(fd, LOCK_UN);
	return 0;
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

bool run_inject_flush(struct run *run)
{
	const uint64_t *known = map_get(&run->by_writer, (struct map_key){ENGINE_WRITER, 0});
	struct stream *s = known == NULL ? NULL : &run->streams[*known];

	run_advance(run);
	if (s == NULL || !s->injected || !s->opened || s->limit == 0 || s->at < s->limit)
		return false;
	piece_done(run, s);
	return true;
}

int run_reserve(struct run *run, uint32_t ahead)
{
	struct trace_header *h = run->mapped;
	uint32_t reserved = atomic_load_explicit(&h->reserved_chunks, memory_order_acquire);
	uint64_t there = file_chunks(run);

	/* Writers take space before they say so. */
	if (reserved > there) {
		run->damage.overwritten = true;
		if (atomic_compare_exchange_strong(&h->reserved_chunks, &reserved, (uint32_t)there))
			reserved = (uint32_t)there;
	}
	for (;;) {
		uint32_t next = chunks_taken(run);
		uint64_t end = (uint64_t)next + ahead;
		struct statfs disk;
		int r;

		if (end > run->chunks_max)
			end = run->chunks_max;
		if (run->overrun || reserved >= end)
			return 0;
		if (fstatfs(raw_fd(run), &disk) == 0 &&
		    disk.f_bavail < ((end - reserved) * run->chunk_bytes + TRACE_SPARE_BYTES) /
					    (uint64_t)disk.f_bsize)
			return -ENOSPC;
		r = take_space(run, chunk_offset(run, reserved),
			       (end - reserved) * run->chunk_bytes);
		if (r < 0)
			return r;
		/* Pairs with the acquire in ensure_reserved() of the collector, which may have been faster. */
		if (atomic_compare_exchange_strong(&h->reserved_chunks, &reserved, (uint32_t)end))
			return 0;
	}
}

uint32_t run_taken(struct run *run)
{
	return (uint32_t)atomic_load_explicit(&run->mapped->ring_tail, memory_order_relaxed) +
	       atomic_load_explicit(&run->mapped->next_chunk, memory_order_relaxed) -
	       run->made_ready;
}

/* Takes chunks that no writer has, like a writer, and returns the first; their space is reserved. */
static uint32_t claim(struct run *run, uint32_t count, uint32_t *out_first)
{
	struct trace_header *h = run->mapped;
	uint32_t next = atomic_load_explicit(&h->next_chunk, memory_order_relaxed);

	for (;;) {
		uint32_t end = atomic_load_explicit(&h->reserved_chunks, memory_order_acquire);

		if (end > run_header(run)->chunks_mapped)
			end = run_header(run)->chunks_mapped;
		if (end > run->chunks_max)
			end = run->chunks_max;
		/* Below `scanned` every chunk has been taken. */
		if (next >= end || next < run->scanned)
			return 0;
		if (count > end - next)
			count = end - next;
		if (atomic_compare_exchange_weak(&h->next_chunk, &next, next + count)) {
			*out_first = next;
			return count;
		}
	}
}

int run_make_ready(struct run *run, uint32_t free_wanted, uint32_t most)
{
	static const uint8_t zeros[TRACE_CHUNK_BYTES];
	uint64_t free_now = ring_free(run);
	uint32_t number, end, first = 0;
	int r;

	/* Punching a hole stops every fault of the process, so it is left for quieter times. */
	run->free_max = free_wanted * 4;
	if (free_now >= free_wanted || run->chunk_bytes != sizeof(zeros))
		return 0;
	if (most > free_wanted - free_now)
		most = free_wanted - (uint32_t)free_now;
	r = run_reserve(run, most + 1);
	if (r < 0)
		return r;
	end = claim(run, most, &first);
	run->made_ready += end;
	for (number = first, end += first; number < end; number++) {
		if (is_cut(run))
			return -EIO;
		/* Nobody has this chunk, so writing to it harms nobody. Without its pages it is lost, which only costs its space. */
		if (pwrite(raw_fd(run), zeros, sizeof(zeros), (off_t)chunk_offset(run, number)) !=
		    (ssize_t)sizeof(zeros))
			return -EIO;
		if (!ring_put(run, number))
			return -ENOSPC;
	}
	return 0;
}
