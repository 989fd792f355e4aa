/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writers: how a thread gets one, how it gets its next chunk, and what becomes of it when the thread ends.
 *
 * A thread that ends parks its writer with everything in it: the open chunk, the numbers of its contexts and stacks. The next new
 * thread takes it over and writes a thread record. So a program with ten thousand short threads needs only as many chunks as it
 * has threads at one time. The parked ones form a lock-free stack of numbers with a tag against reuse.
 *
 * A thread that is already torn down (WRITER_GONE) and still frees memory borrows a parked writer for that one event.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>

#include "base/hash.h"
#include "collector/record/hot.h"
#include "collector/vendor.h"

static void *map_private(size_t bytes)
{
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	return p == MAP_FAILED ? NULL : p;
}

void writer_stall_end(uint64_t start_ns)
{
	struct trace_header *header = collector.header;
	uint64_t held = clock_ns() - start_ns;
	uint64_t max = atomic_load_explicit(&header->stall_max_ns, memory_order_relaxed);

	while (held > max && !atomic_compare_exchange_weak(&header->stall_max_ns, &max, held))
		;
	atomic_fetch_add_explicit(&header->stall_total_ns, held, memory_order_relaxed);
	atomic_fetch_add_explicit(&header->stall_count, 1, memory_order_relaxed);
}

/* ---- all writers of the process ---- */

__thread struct writer *collector_writer __attribute__((tls_model("initial-exec")));

/* By number - 1. A forked child leaves its parent's table where it is. */
static struct writer **writers;

/* Number of the first parked writer, and a tag against reuse in the upper half. */
static _Atomic uint64_t parked;

static pthread_key_t thread_key;
static bool thread_key_made;

bool writers_were_unwinding(uint32_t count)
{
	static bool stuck; /* and so for every child of this child */
	uint32_t i;

	for (i = 0; i < count && i < WRITERS_MAX; i++)
		stuck = stuck || (writers[i] != NULL && writers[i]->unwinding != 0);
	return stuck;
}

static void park(struct writer *w)
{
	uint64_t head = atomic_load_explicit(&parked, memory_order_relaxed);
	uint64_t next;

	do {
		w->parked = (uint32_t)head;
		next = ((head >> 32) + 1) << 32 | w->number;
		/* The release hands on all that this thread wrote to the one that unparks it. */
	} while (!atomic_compare_exchange_weak_explicit(&parked, &head, next, memory_order_release,
							memory_order_relaxed));
}

/* Called by the thread library when a thread that has recorded ends. */
static void on_thread_exit(void *pointer)
{
	struct writer *w = pointer;

	/* A child that was forked by a recording thread inherits the value of the key; its writer is the parent's. */
	if (w->generation != atomic_load(&collector_switch.generation) || w != collector_writer)
		return;
	collector_writer = WRITER_GONE;
	atomic_signal_fence(memory_order_seq_cst);
	park(w);
}

int writers_setup(void)
{
	struct writer **table = mmap(NULL, WRITERS_MAX * sizeof(*table), PROT_READ | PROT_WRITE,
				     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	atomic_store(&parked, 0);
	if ((void *)table == MAP_FAILED)
		return -ENOMEM;
	writers = table;
	/* Once per process image. */
	if (!thread_key_made && pthread_key_create != NULL && pthread_setspecific != NULL)
		thread_key_made = pthread_key_create(&thread_key, on_thread_exit) == 0;
	return 0;
}

static struct writer *unpark(void)
{
	uint64_t head = atomic_load_explicit(&parked, memory_order_acquire);

	for (;;) {
		uint32_t number = (uint32_t)head;
		struct writer *w;
		uint64_t next;

		if (number == 0)
			return NULL;
		w = writers[number - 1];
		next = (head >> 32) + 1;
		next = next << 32 | w->parked;
		if (atomic_compare_exchange_weak_explicit(
			    &parked, &head, next, memory_order_acquire, memory_order_acquire))
			return w;
	}
}

static struct writer *build(void)
{
	struct trace_header *header = collector.header;
	uint32_t number = atomic_fetch_add_explicit(&header->writers, 1, memory_order_relaxed) + 1;
	struct writer *w;

	if (number > WRITERS_MAX)
		return NULL;
	w = map_private(sizeof(*w));
	if (w == NULL)
		return NULL;
	w->generation = collector.generation;
	w->number = number;
	w->next_context = 1;
	w->next_stack = 1;
	w->next_text = 1;
	w->next_code = 1;
	writers[number - 1] = w;
	return w;
}

static void put_thread(struct writer *w)
{
	struct event_thread event = {.tid = sys_gettid()};
	uint64_t words[EVENT_BYTES_thread / 8];
	char name[17] = "";

	(void)prctl(PR_GET_NAME, name, 0, 0, 0);
	memcpy(&event.name_low, name, 8);
	memcpy(&event.name_high, name + 8, 8);
	event_thread_encode(words, &event);
	if (writer_put(w, EVENT_thread, 0, words, MSCOPE_COUNT(words), NULL, NULL, 0))
		w->tid = (uint32_t)event.tid;
}

void writer_put_notes(struct writer *w)
{
	char notes[COLLECTOR_NOTES_MAX][sizeof(collector.notes[0])];
	uint32_t count, i;

	/* Copied first, since writing a note may add another one. */
	if (!lock_take(&collector.notes_lock))
		return;
	count = atomic_exchange_explicit(&collector.note_count, 0, memory_order_relaxed);
	memcpy(notes, collector.notes, sizeof(notes));
	lock_release(&collector.notes_lock);
	for (i = 0; i < count; i++) {
		uint32_t length = (uint32_t)strlen(notes[i]);
		struct event_note event = {.text_bytes = length};
		uint64_t words[EVENT_BYTES_note / 8];
		const void *part = notes[i];

		event_note_encode(words, &event);
		(void)writer_put(w, EVENT_note, 0, words, MSCOPE_COUNT(words), &part, &length, 1);
	}
}

void collector_write_notes(void)
{
	struct writer *w;

	if (atomic_load_explicit(&collector.note_count, memory_order_relaxed) == 0)
		return;
	w = writer_enter();
	if (w == NULL)
		return;
	writer_put_notes(w);
	writer_leave(w);
}

void writer_put_settings(struct writer *w)
{
	(void)writer_put(w, EVENT_settings, 0, collector.settings, COLLECTOR_SETTINGS_WORDS, NULL,
			 NULL, 0);
}

/* For the first writer of a forked child: what the parent had chosen. */
static MSCOPE_COLD void put_pending_settings(struct writer *w)
{
	if (atomic_exchange(&collector.settings_pending, 0) != 0)
		writer_put_settings(w);
}

/* A writer for this thread, parked or new, with its thread record written. Entered. */
static struct writer *acquire(void)
{
	struct writer *w = unpark();

	if (w == NULL)
		w = build();
	if (w == NULL)
		return NULL;
	w->entered = 1;
	w->calls_generation = 0; /* the thread before may have ended inside traced functions */
	/* Also when the thread id is the same: it may belong to another thread by now. */
	put_thread(w);
	if (MSCOPE_UNLIKELY(atomic_load_explicit(&collector.note_count, memory_order_relaxed) != 0))
		writer_put_notes(w);
	if (MSCOPE_UNLIKELY(
		    atomic_load_explicit(&collector.settings_pending, memory_order_relaxed) != 0))
		put_pending_settings(w);
	stack_check_interpreter();
	return w;
}

MSCOPE_COLD struct writer *writer_enter_slow(void)
{
	struct writer *w = collector_writer;
	/* A thread without a writer reads here what another has set up. Pairs with the store in collector_attach_slow(). */
	uint32_t recording =
		atomic_load_explicit(&collector_switch.recording, memory_order_acquire);
	int saved_errno = errno;
	uint64_t start;

	if (w == WRITER_BUILDING) {
		collector_count_loss(LOSS_nested);
		return NULL;
	}
	if (recording == RECORDING_DETACHED || recording == RECORDING_ATTACHING) {
		recording = collector_attach_slow();
		w = collector_writer;
	}
	/* The thread that forked still holds its parent's writer, also when another thread of the child has attached. */
	if (w > WRITER_GONE && w->generation != atomic_load(&collector_switch.generation))
		w = WRITER_NONE;
	if (recording == RECORDING_BROKEN) {
		collector_count_loss(atomic_load_explicit(&collector.header->stop,
							  memory_order_relaxed) == TRACE_STOP_FULL
					     ? LOSS_trace_full
					     : LOSS_no_space);
		w = NULL;
	} else if (recording != RECORDING_ON && recording != RECORDING_SHADOW) {
		w = NULL;
	} else if (w > WRITER_GONE) {
		if (w->entered) {
			collector_count_loss(LOSS_nested);
			w = NULL;
		} else {
			w->entered = 1;
		}
	} else {
		struct writer *before = w;

		start = clock_ns();
		collector_writer = WRITER_BUILDING;
		atomic_signal_fence(memory_order_seq_cst);
		w = acquire();
		if (w == NULL)
			collector_count_loss(LOSS_no_memory);
		else
			writer_stall_end(start);
		atomic_signal_fence(memory_order_seq_cst);
		collector_writer = before == WRITER_GONE || w == NULL ? before : w;
		if (collector_writer == w && w != NULL && thread_key_made)
			(void)pthread_setspecific(thread_key, w);
	}
	errno = saved_errno;
	return w;
}

MSCOPE_COLD void writer_leave_slow(struct writer *w)
{
	/* Lent to a thread in teardown, which never parks it. */
	if (collector_writer == WRITER_GONE)
		park(w);
}

/* ---- chunks ---- */

/* Takes a chunk number that the engine has put back; false when there is none. */
static bool ring_take(uint32_t *out_number)
{
	struct trace_header *header = collector.header;
	const _Atomic uint32_t *ring =
		(const _Atomic uint32_t *)(const void *)((const char *)header + TRACE_HEADER_BYTES);
	uint64_t tail = atomic_load_explicit(&header->ring_tail, memory_order_relaxed);

	for (;;) {
		uint32_t number;

		/* Pairs with the release store in the engine's release of a chunk. */
		if (tail >= atomic_load_explicit(&header->ring_head, memory_order_acquire))
			return false;
		number = atomic_load_explicit(&ring[tail % header->chunks_max],
					      memory_order_relaxed);
		if (atomic_compare_exchange_weak_explicit(&header->ring_tail, &tail, tail + 1,
							  memory_order_acquire,
							  memory_order_relaxed)) {
			*out_number = number;
			return number < collector.chunks_mapped;
		}
	}
}

int writer_file_fits(uint64_t end)
{
	struct rlimit limit;

	/* Beyond the program's own limit on file sizes the kernel would send it SIGXFSZ. */
	if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
	    end > limit.rlim_cur)
		return -EFBIG;
	return 0;
}

/*
 * Makes sure that chunk `number` has disk space behind it. The engine reserves ahead; this thread does it only when the engine
 * lags. The program may have closed our descriptor or changed its directory, so the file is opened anew by its absolute path.
 */
static bool ensure_reserved(uint32_t number)
{
	struct trace_header *header = collector.header;
	uint32_t reserved = atomic_load_explicit(&header->reserved_chunks, memory_order_acquire);
	int fd, r = 0;

	if (number < reserved)
		return true;
	fd = sys_open(collector.raw_path, O_RDWR | O_CLOEXEC, 0);
	if (fd < 0) {
		collector_break(TRACE_STOP_NO_SPACE, errno);
		return false;
	}
	while (r == 0 && number >= reserved) {
		uint64_t at = chunk_at(header, reserved);

		r = writer_file_fits(at + TRACE_RESERVE_BYTES);
		if (r == 0 && sys_fallocate(fd, at, TRACE_RESERVE_BYTES) < 0)
			r = -errno;
		if (r == -EOPNOTSUPP) {
			/* A file system without fallocate: writing zeros takes the space as well. */
			static const char zeros[4096];
			uint32_t done;

			for (done = 0, r = 0; r == 0 && done < TRACE_RESERVE_BYTES;
			     done += sizeof(zeros)) {
				if (sys_pwrite(fd, zeros, sizeof(zeros), at + done) !=
				    (ssize_t)sizeof(zeros))
					r = errno != 0 ? -errno : -ENOSPC;
			}
		}
		if (r == -EINTR)
			r = 0;
		else if (r == 0)
			/*
			 * If the exchange fails, another thread or the engine reserved the same span, and `reserved` is reloaded.
			 */
			(void)(atomic_compare_exchange_strong(
				       &header->reserved_chunks, &reserved,
				       reserved + TRACE_RESERVE_BYTES / header->chunk_bytes) &&
			       (reserved += TRACE_RESERVE_BYTES / header->chunk_bytes));
	}
	sys_close(fd);
	if (r < 0)
		collector_break(TRACE_STOP_NO_SPACE, -r);
	return r == 0;
}

static bool take_chunk(uint32_t *out_number, bool *out_fresh)
{
	struct trace_header *header = collector.header;
	uint32_t number;

	*out_fresh = false;
	if (ring_take(out_number))
		return true;
	number = atomic_load_explicit(&header->next_chunk, memory_order_relaxed);
	do {
		if (number >= collector.chunks_mapped) {
			collector_break(TRACE_STOP_FULL, 0);
			return false;
		}
		/* Space first, number second: a number below next_chunk always has space, so a reader never meets a hole. */
		if (!ensure_reserved(number))
			return false;
	} while (!atomic_compare_exchange_weak(&header->next_chunk, &number, number + 1));
	*out_number = number;
	*out_fresh = true;
	return true;
}

/*
 * Pages of a fresh chunk are faulted in by steps of this size: all at once would hold the thread for over a hundred microseconds,
 * one by one would hold it every two hundred events. The writer's limit is the end of the step.
 */
#define POPULATE_BYTES 65536u

/*
 * Faults in the pages of a chunk from offset `from` until `to` is covered; returns the new limit. Old kernels refuse, which is
 * fine.
 */
static uint32_t populate(struct chunk *chunk, uint32_t from, uint32_t to)
{
	uint32_t chunk_bytes = collector.header->chunk_bytes;
	uint32_t end = (uint32_t)round_up_u64(to, POPULATE_BYTES);

	if (end > chunk_bytes)
		end = chunk_bytes;
	(void)madvise((char *)chunk + from, end - from, SYS_MADV_POPULATE_WRITE);
	return end;
}

MSCOPE_COLD bool writer_next_chunk_slow(struct writer *w, uint32_t bytes)
{
	struct trace_header *header = collector.header;
	uint64_t start = clock_ns();
	int saved_errno = errno;
	struct chunk *chunk;
	uint32_t number, limit;
	bool fresh;

	if (w->limit < header->chunk_bytes && w->chunk != NULL &&
	    bytes <= header->chunk_bytes - w->used) {
		w->limit = populate(writer_chunk(w), w->limit, w->used + bytes);
		writer_stall_end(start);
		errno = saved_errno;
		return true;
	}
	if (bytes > header->chunk_bytes - CHUNK_HEADER_BYTES) {
		collector_count_loss(LOSS_trace_full);
		return false;
	}
	if (!take_chunk(&number, &fresh)) {
		collector_count_loss(atomic_load(&header->stop) == TRACE_STOP_FULL ? LOSS_trace_full
										   : LOSS_no_space);
		errno = saved_errno;
		return false;
	}
	if (w->chunk != NULL) {
		/* Everything in it is committed; the reader may finish with it. Pairs with the acquire in the reader's scan. */
		atomic_store_explicit(&writer_chunk(w)->state, CHUNK_SEALED, memory_order_release);
		TESTPOINT(sealed);
	}
	chunk = (struct chunk *)(void *)((char *)header + chunk_at(header, number));
	/* A chunk that comes back has its pages already. */
	limit = fresh ? populate(chunk, 0, CHUNK_HEADER_BYTES + bytes) : header->chunk_bytes;
	chunk->salt = header->salt;
	chunk->writer = w->number;
	chunk->sequence = w->sequence++;
	atomic_store_explicit(&chunk->committed, CHUNK_HEADER_BYTES, memory_order_relaxed);
	atomic_store_explicit(&chunk->busy, 1, memory_order_relaxed);
	w->base_ns = chunk->base_ns = start;
	atomic_store_explicit(&chunk->state, CHUNK_OPEN, memory_order_relaxed);
	TESTPOINT(opened);
	/* Publishes the chunk, busy, before the clock is read for its first record. Pairs with the reader's scan. */
	atomic_store_explicit(&chunk->magic, CHUNK_MAGIC, memory_order_release);
	TESTPOINT(published);
	w->chunk = (uint8_t *)chunk;
	w->used = CHUNK_HEADER_BYTES;
	w->limit = limit;
	stack_check_interpreter();
	writer_stall_end(start);
	errno = saved_errno;
	return true;
}

/* ---- records of the slow paths ---- */

bool writer_put(struct writer *w, uint32_t type, uint32_t context, const uint64_t *fixed,
		uint32_t fixed_words, const void *const *parts, const uint32_t *part_bytes,
		uint32_t part_count)
{
	uint32_t bytes = fixed_words * 8, total = bytes, delta, i;
	uint8_t *at;

	for (i = 0; i < part_count; i++)
		total += part_bytes[i];
	total = (uint32_t)round_up_u64(total, 8);
	if (!record_room(w, total + EVENT_BYTES_time_base))
		return false;
	delta = record_begin(w);
	at = w->chunk + w->used;
	memcpy(at, fixed, bytes);
	memcpy(at, &(uint64_t){record_word0(type, context, delta)}, 8);
	if (part_count > 0) {
		memcpy(at + 8, &total,
		       sizeof(total)); /* the low half of word 1 of a variable record */
		memset(at + total - 8, 0, 8);
	}
	at += bytes;
	for (i = 0; i < part_count; i++) {
		memcpy(at, parts[i], part_bytes[i]);
		at += part_bytes[i];
	}
	record_commit(w, total);
	w->records += type != EVENT_text_def;
	return true;
}

MSCOPE_COLD uint32_t writer_context_slow(struct writer *w, uint32_t source, uint64_t key,
					 context_decode *decode)
{
	uint32_t first = context_home(source, key), i;
	struct context_slot *slot = &w->contexts[first];
	struct context context = {0};
	struct event_context_def event;
	uint64_t words[EVENT_BYTES_context_def / 8];

	/* Contexts with the same slot move on to the next free one, or they would evict each other at every event. */
	for (i = 0; i < WRITER_CONTEXT_PROBES; i++) {
		struct context_slot *next = &w->contexts[(first + i) & (WRITER_CONTEXTS - 1)];

		if (next->id == 0) {
			slot = next;
			break;
		}
		if (next->key == key && next->source == source)
			return next->id;
	}
	if (w->next_context > CONTEXT_MAX)
		return 0;
	decode(key, &context);
	event = (struct event_context_def){
		.id = w->next_context,
		.pool = context.pool,
		.kind = context.kind,
		.page = context.page,
		.vendor = context.vendor,
		.device = context.device,
		.module = context.module,
		.flags = context.flags,
	};
	event_context_def_encode(words, &event);
	if (!writer_put(w, EVENT_context_def, 0, words, MSCOPE_COUNT(words), NULL, NULL, 0))
		return 0;
	*slot = (struct context_slot){.key = key, .source = source, .id = w->next_context++};
	return slot->id;
}

static void decode_device(uint64_t key, struct context *out)
{
	out->vendor = device_key_vendor(key);
	out->device = (uint32_t)key;
	out->module = MODULE_UNKNOWN;
}

uint32_t writer_device(struct writer *w, uint64_t key)
{
	return writer_context(w, SOURCE_DEVICE, key, decode_device);
}

/* ---- texts ---- */

static bool define_text(struct writer *w, uint32_t id, const char *text, uint32_t bytes)
{
	struct event_text_def event = {.id = id, .text_bytes = bytes};
	uint64_t words[EVENT_BYTES_text_def / 8];
	const void *part = text;

	event_text_def_encode(words, &event);
	return writer_put(w, EVENT_text_def, 0, words, MSCOPE_COUNT(words), &part, &bytes, 1);
}

uint32_t writer_text_part(struct writer *w, const char *text, size_t bytes)
{
	uint64_t hash = HASH_BEGIN;
	struct text_slot *slot = NULL;
	uint32_t length, id, i;

	if (text == NULL)
		return 0;
	for (length = 0; length < WRITER_TEXT_MAX && length < bytes && text[length] != '\0';
	     length++)
		hash = hash_add_byte(hash, (uint8_t)text[length]);
	for (i = 0; i < WRITER_TEXT_PROBES; i++) {
		struct text_slot *next = &w->texts[((hash >> 32) + i) & (WRITER_TEXTS - 1)];

		if (next->id == 0) {
			slot = next;
			break;
		}
		if (next->hash == hash) {
			next->record = w->records;
			return next->id;
		}
		/* The one that was used longest ago is evicted. */
		if (slot == NULL || w->records - next->record > w->records - slot->record)
			slot = next;
	}
	/* A text that evicts another one gets its number too: there are never more numbers than slots. */
	id = slot->id != 0 ? slot->id : w->next_text;
	if (!define_text(w, id, text, length))
		return 0;
	w->next_text += slot->id == 0;
	*slot = (struct text_slot){.hash = hash, .id = id, .record = w->records};
	return id;
}

uint32_t writer_text(struct writer *w, const char *text)
{
	return writer_text_part(w, text, WRITER_TEXT_MAX);
}

uint32_t writer_text_owned(struct writer *w, uint32_t slot, const char *text)
{
	uint32_t bytes = (uint32_t)strnlen(text, WRITER_TEXT_MAX);

	return define_text(w, TEXT_OWNED | slot, text, bytes) ? TEXT_OWNED | slot : 0;
}

uint32_t writer_text_once(struct writer *w, uint32_t slot, const char *text)
{
	if (text == NULL ||
	    !define_text(w, TEXT_ONCE | slot, text, (uint32_t)strnlen(text, WRITER_TEXT_MAX)))
		return 0;
	return TEXT_ONCE | slot;
}

MSCOPE_COLD void event_free_undo_slow(uint32_t source, uint64_t key, context_decode *decode,
				      uint64_t address)
{
	struct writer *w = writer_enter();
	uint32_t context, delta;
	uint64_t *words;

	if (w == NULL)
		return;
	context = writer_context(w, source, key, decode);
	if (record_room(w, RECORD_ROOM)) {
		delta = record_begin(w);
		words = (uint64_t *)(void *)(w->chunk + w->used);
		words[0] = record_word0(EVENT_block_free_undo, context, delta);
		words[1] = address;
		record_commit(w, EVENT_BYTES_block_free_undo);
	}
	writer_leave(w);
}
