/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Events in the order of time: the heap of streams, and the piece that each of them is in.
 */
#include "trace/run_state.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/io.h"
#include "trace/context.h"
#include "trace/session.h"
#include "trace/table.h"

const struct trace_header *run_header(const struct run *run)
{
	return (const struct trace_header *)(const void *)run->preamble;
}

struct trace_header *run_header_live(struct run *run)
{
	return run->mapped;
}

bool run_has_barrier(const struct run *run)
{
	return ((struct trace_header *)(void *)run->preamble)->membarrier != 0;
}

const struct run_damage *run_damage(const struct run *run)
{
	return &run->damage;
}

bool run_is_checkpointed(const struct run *run)
{
	return run->checkpointed;
}

void run_on_consumed(struct run *run, run_consumed *consumed, void *arg)
{
	run->consumed = consumed;
	run->consumed_arg = arg;
}

bool run_adopt_layout(struct run *run)
{
	struct trace_header *h = (struct trace_header *)(void *)run->preamble;
	const struct layout_table *own = layout_own_table();
	uint32_t type;

	if (memcmp(&run->layout, own, sizeof(run->layout)) == 0)
		return true;
	for (type = 0; type < MSCOPE_COUNT(own->types); type++) {
		if (run->layout.types[type].words != 0 &&
		    run->layout.types[type].words != own->types[type].words &&
		    type != EVENT_checkpoint && type != EVENT_live_block)
			return false;
	}
	/* The header of a process that lives is its own. */
	if (run->mapped != NULL)
		return false;
	h->table_bytes = (uint32_t)trace_table_bytes();
	memcpy((char *)h + TRACE_TABLE_AT, trace_table_text(), h->table_bytes);
	return true;
}

uint64_t run_wall_ns(const struct run *run, uint64_t time_ns)
{
	const struct trace_header *h = run_header(run);

	return h->realtime_ns + (time_ns - h->monotonic_ns);
}

#define EVENT_BYTES_USUAL 20 /* measured on a mix of allocations, frees and launches */

uint64_t run_left_events(const struct run *run)
{
	uint64_t bytes = 0;
	size_t i;

	for (i = 0; i < run->stream_count; i++) {
		const struct stream *s = &run->streams[i];

		bytes += (uint64_t)(s->piece_count - s->next) * run->chunk_bytes;
		if (s->opened && s->limit > s->at)
			bytes += s->limit - s->at;
	}
	return bytes / EVENT_BYTES_USUAL;
}

void run_killed_by(struct run *run, uint32_t signal)
{
	((struct trace_header *)(void *)run->preamble)->signal = signal;
}

const void *run_preamble(const struct run *run, uint32_t *out_bytes)
{
	struct trace_header *h = (struct trace_header *)(void *)run->preamble;
	const struct run_damage *damage = &run->damage;

	/* A reader of the packed trace cannot see it any more. */
	h->lost_chunks = (uint32_t)damage->bad_chunks;
	h->cut_chunks = (uint32_t)damage->bad_records;
	h->skipped_bytes = damage->skipped_bytes;
	h->lost_records = damage->lost_records;
	h->damage = (damage->overwritten ? TRACE_DAMAGE_HEADER : 0) |
		    (damage->truncated ? TRACE_DAMAGE_CUT : 0);
	*out_bytes = run->preamble_bytes;
	return run->preamble;
}

const char *run_identity(const struct run *run, const char *key)
{
	const struct trace_header *h = run_header(run);
	uint32_t bytes =
		h->identity_bytes < TRACE_IDENTITY_MAX ? h->identity_bytes : TRACE_IDENTITY_MAX;
	const char *at = (const char *)h + TRACE_IDENTITY_AT, *end = at + bytes;
	size_t length = strlen(key);

	while (at < end) {
		const char *stop = memchr(at, '\0', (size_t)(end - at));

		if (stop == NULL)
			return NULL;
		if ((size_t)(stop - at) > length && memcmp(at, key, length) == 0 &&
		    at[length] == '=')
			return at + length + 1;
		at = stop + 1;
	}
	return NULL;
}

const char *run_dry(const struct run *run)
{
	return run_identity(run, SESSION_DRY_KEY);
}

const char *run_torch_settings(const struct run *run, bool npu)
{
	/* In the order in which PyTorch looks for them. */
	const char *keys[] = {npu ? "PYTORCH_NPU_ALLOC_CONF" : "PYTORCH_CUDA_ALLOC_CONF",
			      "PYTORCH_ALLOC_CONF"};
	const char *found = NULL;

	for (size_t i = 0; i < MSCOPE_COUNT(keys) && found == NULL; i++)
		found = run_identity(run, keys[i]);
	return found == NULL ? "" : found;
}

uint64_t run_rounds(const struct run *run)
{
	const char *rounds = run_identity(run, RUN_ROUNDS_KEY);

	return rounds == NULL ? 0 : strtoull(rounds, NULL, 10);
}

bool run_is_snapshot(const struct run *run)
{
	const char *source = run_identity(run, RUN_SOURCE_KEY);

	return source != NULL && strcmp(source, RUN_SNAPSHOT) == 0;
}

/* ---- heap of streams ---- */

static uint64_t stream_key(const struct stream *s)
{
	return s->opened ? s->time_ns : s->pieces[s->next].base_ns;
}

static bool before(const struct run *run, size_t a, size_t b)
{
	const struct stream *x = &run->streams[a], *y = &run->streams[b];
	uint64_t kx = stream_key(x), ky = stream_key(y);

	return kx != ky ? kx < ky : x->writer < y->writer;
}

static void heap_up(struct run *run, size_t at)
{
	while (at > 0 && before(run, run->heap[at], run->heap[(at - 1) / 2])) {
		size_t other = run->heap[at];

		run->heap[at] = run->heap[(at - 1) / 2];
		run->heap[(at - 1) / 2] = other;
		at = (at - 1) / 2;
	}
}

static void heap_down(struct run *run, size_t at)
{
	for (;;) {
		size_t child = at * 2 + 1, other;

		if (child >= run->heap_count)
			return;
		if (child + 1 < run->heap_count &&
		    before(run, run->heap[child + 1], run->heap[child]))
			child++;
		if (!before(run, run->heap[child], run->heap[at]))
			return;
		other = run->heap[at];
		run->heap[at] = run->heap[child];
		run->heap[child] = other;
		at = child;
	}
}

static void heap_push(struct run *run, size_t index)
{
	run->streams[index].in_heap = true;
	run->heap[run->heap_count] = index;
	heap_up(run, run->heap_count++);
}

/* Finds the earliest time of all streams but the first. */
static void find_rival(struct run *run)
{
	size_t i;

	run->rival_ns = UINT64_MAX;
	for (i = 1; i < run->heap_count && i <= 2; i++) {
		uint64_t key = stream_key(&run->streams[run->heap[i]]);

		run->rival_ns = key < run->rival_ns ? key : run->rival_ns;
	}
}

static void heap_pop(struct run *run)
{
	run->streams[run->heap[0]].in_heap = false;
	run->heap[0] = run->heap[--run->heap_count];
	heap_down(run, 0);
	find_rival(run);
}

/* The first stream stands on another record. Mostly it stays the first: one thread does most of the work. */
static void heap_settle(struct run *run)
{
	if (stream_key(&run->streams[run->heap[0]]) < run->rival_ns)
		return;
	heap_down(run, 0);
	find_rival(run);
}

/* ---- reading a stream ---- */

uint8_t *stream_buffer(struct stream *s, uint32_t bytes)
{
	uint8_t *grown = bytes <= s->buffer_room ? s->buffer : realloc(s->buffer, bytes);

	if (grown != NULL && bytes > s->buffer_room) {
		s->buffer = grown;
		s->buffer_room = bytes;
	}
	return grown;
}

/* Reads the raw chunk of a piece that no writer changes any more. False: it cannot be read. */
static bool chunk_read(struct run *run, struct stream *s)
{
	uint8_t *grown = stream_buffer(s, run->chunk_bytes);

	if (grown == NULL)
		return false;
	if (io_read_at(raw_fd(run), grown, run->chunk_bytes, chunk_offset(run, s->current.number)) <
	    0)
		return false;
	s->data = grown + CHUNK_HEADER_BYTES;
	s->limit = chunk_committed((const struct chunk *)(const void *)grown, run->chunk_bytes) -
		   CHUNK_HEADER_BYTES;
	return true;
}

static bool entry_read(struct run *run, struct stream *s)
{
	const struct pack_entry *entry = &run->index.entries[s->current.number];
	uint8_t *grown = stream_buffer(s, entry->block.raw_bytes + 1);

	if (grown == NULL)
		return false;
	if (pack_entry_read(run->pack_fd, entry, grown) < 0)
		return false;
	s->data = grown;
	s->limit = entry->block.raw_bytes;
	return true;
}

#define BUFFER_MIN 4096u

/*
 * Copies what the writer of a live chunk has committed since the last time. What is read is a copy, because the program can write
 * over the chunk, and cut its file, between a check and a use.
 */
static void chunk_refresh(struct run *run, struct stream *s)
{
	uint32_t limit = chunk_committed(s->chunk, run->chunk_bytes) - CHUNK_HEADER_BYTES;
	uint32_t room = s->buffer_room < BUFFER_MIN ? BUFFER_MIN : s->buffer_room;

	if (run->observed && !observed_holds(run, s->writer, &s->current, s->chunk)) {
		observed_unpack(run, s);
		return;
	}
	if (limit <= s->limit)
		return;
	while (room < limit)
		room *= 2;
	if (stream_buffer(s, room) == NULL) {
		run->damage.bad_records++;
		return;
	}
	s->data = s->buffer;
	memcpy(s->buffer + s->limit, (const uint8_t *)(s->chunk + 1) + s->limit, limit - s->limit);
	if (run->observed && !observed_holds(run, s->writer, &s->current, s->chunk)) {
		observed_unpack(run, s);
		return;
	}
	s->limit = limit;
}

/* ---- what was made, and what was read ---- */

/* The smallest records have one word. */
#define RECORDS_MAX(run) (((run)->chunk_bytes - CHUNK_HEADER_BYTES) / 8)

/* Header of the raw chunk that a stream has open; NULL: it is packed, injected or another engine's. */
static const struct chunk *raw_chunk(const struct run *run, const struct stream *s)
{
	if (s->current.packed || s->injected || run->observed)
		return NULL;
	return run->live ? s->chunk : (const struct chunk *)(const void *)s->buffer;
}

/* A raw chunk is opened, `gap` chunks after the last one: what its writer made in between is lost. */
static void count_before(struct run *run, struct stream *s, uint64_t gap)
{
	uint64_t before = s->current.records_before;

	if (raw_chunk(run, s) == NULL) {
		s->counts = false;
		return;
	}
	if (s->counts && before > s->made && before - s->made <= (gap + 1) * RECORDS_MAX(run))
		run->damage.lost_records += before - s->made;
	if (!s->counts || before > s->made)
		s->made = before;
	s->counts = true;
}

/* A raw chunk has been read to its end. */
static void count_read(struct run *run, struct stream *s)
{
	const struct chunk *chunk = raw_chunk(run, s);
	uint32_t records;

	if (chunk == NULL)
		return;
	records = atomic_load_explicit(&chunk->records, memory_order_relaxed);
	/* A word that was written over; a kill amid a commit leaves one less; an older process does not count. */
	if (records < s->read || records > RECORDS_MAX(run))
		records = s->read;
	run->damage.lost_records += records - s->read;
	s->made += records;
}

/* The run is read to its end, by the engine that followed it from its beginning. */
static void settle_count(struct run *run)
{
	uint64_t seen = 0, made, most = (uint64_t)(run->scanned + 1) * RECORDS_MAX(run);
	size_t i;

	if (run->settled || !run->live || run->observed || run->index.count > 0)
		return;
	run->settled = true;
	if (atomic_load(&run_header_live(run)->state) != TRACE_CLOSED)
		return;
	for (i = 0; i < run->stream_count; i++)
		seen += run->streams[i].counts ? run->streams[i].made : 0;
	made = atomic_load(&run_header_live(run)->made_records);
	if (made > seen && made - seen <= most)
		run->damage.lost_records += made - seen;
}

/* Opens the next piece of a stream. One that cannot be read is counted and passed over. */
static void piece_open(struct run *run, struct stream *s)
{
	struct piece *piece = &s->pieces[s->next++];
	uint32_t expected = s->started ? s->current.sequence + 1 : 0;
	uint64_t gap = piece->sequence > expected ? piece->sequence - expected : 0;

	/* Behind a checkpoint the first chunks of a writer are gone on purpose. */
	if (piece->sequence > expected && (s->started || !run->checkpointed)) {
		/* A file never has that many. */
		if (piece->sequence - expected > run->chunks_max)
			run->damage.overwritten = true;
		else
			run->damage.missing_chunks += piece->sequence - expected;
	}
	s->started = true;
	s->current = *piece;
	s->base_ns = piece->base_ns;
	s->at = s->limit = s->read = 0;
	if (piece->packed) {
		s->opened = entry_read(run, s);
	} else if (!run->live) {
		s->opened = chunk_read(run, s);
	} else {
		s->chunk = chunk_map(run, piece->number);
		s->opened = s->chunk != NULL;
		if (s->opened)
			chunk_refresh(run, s);
	}
	if (s->opened) {
		count_before(run, s, gap);
	} else {
		run->damage.bad_chunks++;
		run->damage.skipped_bytes += run->chunk_bytes;
	}
}

static bool piece_sealed(const struct run *run, const struct stream *s)
{
	return run->final || !run->live ||
	       atomic_load_explicit(&s->chunk->state, memory_order_acquire) == CHUNK_SEALED;
}

/* True when the stream has a piece that may be opened now; while live, the next in sequence must be the one. */
static bool piece_ready(const struct run *run, const struct stream *s)
{
	if (s->next >= s->piece_count)
		return false;
	/* Behind a checkpoint the first that is known is the first there is. */
	return !run->live || run->final || (!s->started && run->checkpointed) ||
	       s->pieces[s->next].sequence == (s->started ? s->current.sequence + 1 : 0);
}

/* The first bytes of the chunk that the stream has open. */
static struct run_chunk open_chunk(const struct stream *s, uint32_t bytes)
{
	return (struct run_chunk){
		.number = s->current.number,
		.writer = s->writer,
		.sequence = s->current.sequence,
		.base_ns = s->current.base_ns,
		.records = s->data,
		.bytes = bytes,
	};
}

void piece_done(struct run *run, struct stream *s)
{
	struct run_chunk chunk = open_chunk(s, s->limit);

	count_read(run, s);
	s->opened = false;
	if (run->consumed != NULL && !s->current.packed)
		run->consumed(run->consumed_arg, &chunk);
	s->data = NULL;
	if (s->injected)
		builder_flush(&run->injected);
	if (s->next == s->piece_count) {
		free(s->buffer);
		s->buffer = NULL;
		s->buffer_room = 0;
	}
}

bool time_is_possible(struct run *run, uint64_t time_ns)
{
	/* Writers go on while we read. */
	if (run->live && time_ns > run->latest_ns)
		run->latest_ns = clock_monotonic_ns();
	return time_ns <= run->latest_ns &&
	       (!run->live || time_ns >= run_header(run)->monotonic_ns);
}

/*
 * The program wrote over the record that the stream stands on, and its time cannot be: the time of the record before takes its place, in
 * what is packed too. `value` is the word at this offset of the record then. Returns it.
 */
static uint64_t mend_time(struct run *run, struct stream *s, uint32_t offset, uint64_t value)
{
	run->damage.overwritten = true;
	if (s->data == s->buffer)
		memcpy(s->buffer + s->at + offset, &value, sizeof(value));
	return value;
}

/* Takes the time of the record that the stream stands on. False: it is a time base, and no event. */
static bool take_time(struct run *run, struct stream *s)
{
	uint64_t word0, time_ns;

	memcpy(&word0, s->data + s->at, sizeof(word0));
	if (record_type(word0) == EVENT_time_base) {
		memcpy(&time_ns, s->data + s->at + 8, sizeof(time_ns));
		if (!time_is_possible(run, time_ns))
			time_ns = mend_time(run, s, 8, s->time_ns);
		s->base_ns = time_ns;
		return false;
	}
	time_ns = s->base_ns + record_delta(word0);
	if (MSCOPE_UNLIKELY(time_ns > run->latest_ns) && !time_is_possible(run, time_ns)) {
		uint64_t delta = s->time_ns > s->base_ns ? s->time_ns - s->base_ns : 0;

		word0 = (uint32_t)word0 | (delta > UINT32_MAX ? 0 : delta) << 32;
		time_ns = s->base_ns + record_delta(mend_time(run, s, 0, word0));
	}
	s->time_ns = time_ns;
	return true;
}

/*
 * Brings the stream to its next record. True when it has one: `at` stands on it, `time_ns` is its time. Otherwise the stream is
 * at its end for now.
 */
static bool stream_seek(struct run *run, struct stream *s)
{
	for (;;) {
		size_t bytes;

		if (!s->opened) {
			if (!piece_ready(run, s))
				return false;
			piece_open(run, s);
			continue;
		}
		if (s->at >= s->limit && s->injected) {
			if (!run->final)
				return false;
			piece_done(run, s);
			continue;
		}
		if (s->at >= s->limit && run->live && !s->current.packed) {
			/* Sealed first, length second: a sealed chunk's length is final. */
			bool sealed = piece_sealed(run, s);

			chunk_refresh(run, s);
			if (s->at >= s->limit) {
				if (!sealed && !s->current.packed)
					return false;
				piece_done(run, s);
				continue;
			}
		} else if (s->at >= s->limit) {
			piece_done(run, s);
			continue;
		}
		bytes = layout_record_bytes(&run->layout, s->data + s->at, s->limit - s->at);
		if (bytes == 0 && run->live && !s->current.packed && !s->injected) {
			/* A stray store may have made the length wrong, until the writer's next commit. */
			bool sealed = piece_sealed(run, s);

			s->limit = s->at;
			chunk_refresh(run, s);
			bytes = layout_record_bytes(&run->layout, s->data + s->at,
						    s->limit - s->at);
			if (bytes == 0 && !sealed && !s->current.packed) {
				s->limit = s->at;
				return false;
			}
		}
		if (bytes == 0) {
			run->damage.bad_records++;
			run->damage.skipped_bytes += s->limit - s->at;
			s->limit = s->at; /* what was good is kept, and packed */
			piece_done(run, s);
			continue;
		}
		if (!take_time(run, s)) {
			s->at += (uint32_t)bytes;
			continue;
		}
		s->bytes = (uint32_t)bytes;
		return true;
	}
}

void run_advance(struct run *run)
{
	struct stream *s = run->last;

	if (s == NULL)
		return;
	run->last = NULL;
	s->at += s->bytes;
	s->read++;
	if (stream_seek(run, s))
		heap_settle(run);
	else
		heap_pop(run);
}

void run_each_open(struct run *run, run_consumed *each, void *arg)
{
	size_t i;

	run_advance(run);
	for (i = 0; i < run->stream_count; i++) {
		const struct stream *s = &run->streams[i];
		struct run_chunk chunk = open_chunk(s, s->at);

		if (s->opened && !s->current.packed && s->at > 0)
			each(arg, &chunk);
	}
}

static void refill(struct run *run)
{
	size_t i;

	/* Streams come, and what waits may have got earlier pieces. */
	run->rival_ns = 0;
	for (i = 0; i < run->stream_count; i++) {
		struct stream *s = &run->streams[i];

		if (s->in_heap)
			continue;
		/* An unopened first piece waits in the heap by its base time; what is open is brought to its next record. */
		if (s->opened ? stream_seek(run, s) : piece_ready(run, s))
			heap_push(run, i);
	}
}

int run_poll(struct run *run, uint64_t now_ns, bool final)
{
	uint64_t watermark = UINT64_MAX;
	int r;

	run_advance(run);
	if (!run->live) {
		run->watermark_ns = watermark;
		run->final = true;
		refill(run);
		return 0;
	}
	run->latest_ns = clock_monotonic_ns();
	r = run->observed ? observed_scan(run) : chunks_scan(run, final);
	if (r < 0)
		return r;
	header_refresh(run, final);
	run->final = final;
	if (!final)
		watermark = writers_time_ns(run, now_ns);
	if (watermark > run->watermark_ns)
		run->watermark_ns = watermark;
	refill(run);
	return 0;
}

uint64_t run_watermark_ns(const struct run *run)
{
	return run->watermark_ns;
}

/* The thread of the records that follow. A checkpoint has it for writers whose own thread record was dropped. */
static void take_thread(struct run *run, struct stream *s, const uint64_t *words)
{
	struct event_thread thread;
	uint64_t *other = NULL;

	if (s->writer == CHECKPOINT_WRITER)
		other = map_get(&run->by_writer, (struct map_key){run->as_writer, 0});
	event_thread_decode(words, &thread);
	(other != NULL ? &run->streams[*other] : s)->tid = (uint32_t)thread.tid;
}

/* The short forms of a `call` become one: nobody else knows them. */
static void widen_call(struct run *run, struct trace_event *event)
{
	struct event_call call = {.at = UINT32_MAX};

	if (event->type == EVENT_call_short) {
		struct event_call_short is;

		event_call_short_decode(event->words, &is);
		call.kind = is.kind;
		call.what = is.code;
	} else {
		struct event_call_c is;

		event_call_c_decode(event->words, &is);
		call.kind = CALL_C_ENTER;
		call.what = is.text;
		call.at = is.at;
	}
	run->padded[0] = record_word0(EVENT_call, 0, record_delta(event->words[0]));
	event_call_encode(run->padded, &call);
	event->type = EVENT_call;
	event->context = 0;
	event->words = run->padded;
}

bool run_next(struct run *run, struct trace_event *out)
{
	struct stream *s;
	uint64_t word0;

	run_advance(run);
	for (;;) {
		if (run->heap_count == 0) {
			if (run->final)
				settle_count(run);
			return false;
		}
		s = &run->streams[run->heap[0]];
		if (stream_key(s) >= run->watermark_ns)
			return false;
		if (s->opened)
			break;
		if (stream_seek(run, s))
			heap_settle(run);
		else
			heap_pop(run);
	}
	memcpy(&word0, s->data + s->at, sizeof(word0));
	run->last = s;
	out->type = record_type(word0);
	out->context = record_context(word0);
	out->writer = s->writer;
	out->time_ns = s->time_ns;
	out->words = (const uint64_t *)(const void *)(s->data + s->at);
	if (MSCOPE_UNLIKELY(run->layout.types[out->type].words < layout_own(out->type)->words)) {
		memset(run->padded, 0, sizeof(run->padded));
		memcpy(run->padded, s->data + s->at, run->layout.types[out->type].words * 8u);
		out->words = run->padded;
	}
	out->bytes = s->bytes;
	out->sequence = s->current.sequence;
	out->payload = s->data + s->at + run->layout.types[out->type].words * 8u;
	out->payload_bytes = s->bytes - run->layout.types[out->type].words * 8u;
	if (out->type == EVENT_thread)
		take_thread(run, s, out->words);
	else if (out->type == EVENT_as_writer && s->writer == CHECKPOINT_WRITER)
		run->as_writer = (uint32_t)out->words[1];
	else if (out->type == EVENT_call_short || out->type == EVENT_call_c)
		widen_call(run, out);
	out->tid = s->tid;
	if (s->time_ns < run->returned_ns)
		run->damage.late_events += !run->observed || s->writer != ENGINE_WRITER;
	else
		run->returned_ns = s->time_ns;
	return true;
}
