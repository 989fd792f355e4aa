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
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>

#include "base/hash.h"
#include "collector/memory.h"
#include "collector/record/chunk_supply.h"
#include "collector/record/hot.h"
#include "collector/vendor.h"

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
	if (w->generation != collector_generation() || w != collector_writer)
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
	chunk_supply_setup();
	if ((void *)table == MAP_FAILED)
		return -ENOMEM;
	writers = table;
	/* Once per process image. */
	if (!thread_key_made && pthread_key_create != NULL && pthread_setspecific != NULL)
		thread_key_made = pthread_key_create(&thread_key, on_thread_exit) == 0;
	return 0;
}

MSCOPE_COLD void writers_drain(void)
{
	uint32_t count = atomic_load(&collector.writers), i;
	uint64_t start = clock_ns();

	for (i = 0; i < count && i < WRITERS_MAX; i++) {
		const volatile struct writer *w = writers[i];

		while (w != NULL && w->entered != 0 && clock_ns() - start < UINT64_C(100000000))
			sys_yield();
	}
}

uint64_t writers_made(void)
{
	uint32_t count = atomic_load(&collector.writers), i;
	uint64_t made = 0;

	for (i = 0; i < count && i < WRITERS_MAX; i++) {
		const volatile struct writer *w = writers[i];

		made += w == NULL ? 0 : w->made_before + w->made;
	}
	return made;
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
	uint32_t number =
		atomic_fetch_add_explicit(&collector.writers, 1, memory_order_relaxed) + 1;
	struct writer *w;

	if (number > WRITERS_MAX)
		return NULL;
	atomic_store_explicit(&header->writers, number, memory_order_relaxed);
	w = quiet_map(sizeof(*w));
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

	if (!quiet_is_on())
		(void)syscall(SYS_prctl, PR_GET_NAME, name, 0, 0, 0);
	memcpy(&event.name_low, name, 8);
	memcpy(&event.name_high, name + 8, 8);
	event_thread_encode(words, &event);
	if (writer_put(w, EVENT_thread, 0, words, MSCOPE_COUNT(words), NULL, NULL, 0))
		w->tid = (uint32_t)event.tid;
}

_Static_assert(sizeof(collector.notes) <= sizeof(((struct writer *)0)->python_frames),
	       "notes have room");

void writer_put_notes(struct writer *w)
{
	/* Where no Python stack is captured now; the thread's own stack may be small. */
	char(*notes)[sizeof(collector.notes[0])] = (void *)w->python_frames;
	uint32_t count, i;

	/* Copied first, since writing a note may add another one. */
	if (!lock_take(&collector.notes_lock))
		return;
	count = atomic_exchange_explicit(&collector.note_count, 0, memory_order_relaxed);
	memcpy(notes, collector.notes, sizeof(collector.notes));
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
	w->stack = (struct own_stack){0};
	w->operator_record = NULL;
	w->keys_record = NULL;
	w->asked = NULL;
	w->asked_alone = false;
	w->range_count = 0;
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

/* ---- frames that are gone ---- */

#define TRACED_FRAMES                                                                              \
	24u /* of event_alloc_traced_slow(): through a driver, its runtime and a library */
#define STACK_BYTES_MAX (UINT64_C(8) << 20)
#define ADDRESS_BITS	((UINT64_C(1) << 48) - 1) /* above it there may be a signature */

extern const char __ehdr_start[] MSCOPE_HIDDEN;
extern const char etext[] MSCOPE_HIDDEN;

/*
 * Whether our code that was entered at stack pointer `entered` will never go on, because a signal handler left it by siglongjmp().
 * `now` is the stack pointer of the hook that asks. When in doubt, such as on another stack: no.
 *
 * If that code is alive, everything since lies below it on the stack; and there, an address in our own code: where it was
 * interrupted, or where a call of ours returns to.
 */
static bool frame_is_gone(uint64_t entered, uint64_t now)
{
	uint64_t first = (uint64_t)(uintptr_t)__ehdr_start, end = (uint64_t)(uintptr_t)etext, at;
	uint64_t low = now < entered ? now : entered, high = now < entered ? entered : now;
	stack_t stack;

	if (high - low > STACK_BYTES_MAX || syscall(SYS_sigaltstack, NULL, &stack) < 0 ||
	    (stack.ss_flags & SS_ONSTACK) != 0 ||
	    !memory_readable((const void *)(uintptr_t)low, high - low))
		return false;
	for (at = now & ~UINT64_C(7); at < entered; at += 8) {
		uint64_t word = *(const volatile uint64_t *)(uintptr_t)at & ADDRESS_BITS;

		if (word >= first && word < end)
			return false;
	}
	return true;
}

/* Gives up a writer whose event was left. What it committed stays; it is not used again, should that event go on after all. */
static void abandon(struct writer *w)
{
	if (w->chunk != NULL) {
		atomic_store_explicit(&writer_chunk(w)->busy, 0, memory_order_release);
		atomic_store_explicit(&writer_chunk(w)->state, CHUNK_SEALED, memory_order_release);
	}
	collector_count_loss(LOSS_nested);
}

/* A writer for a thread that has none. No handler runs meanwhile: it might not return. */
static struct writer *enter_new(struct writer *before)
{
	uint64_t start = clock_ns();
	struct writer *w;

	collector_writer = WRITER_BUILDING;
	atomic_signal_fence(memory_order_seq_cst);
	w = acquire();
	if (w == NULL)
		collector_count_loss(LOSS_no_memory);
	else
		writer_stall_end(start);
	atomic_signal_fence(memory_order_seq_cst);
	/* A child of vfork() has the thread's memory but is another thread: it borrows the writer. */
	collector_writer =
		before == WRITER_GONE || w == NULL || collector.pid != sys_getpid() ? before : w;
	if (collector_writer == w && w != NULL && thread_key_made)
		(void)pthread_setspecific(thread_key, w);
	return w;
}

/* Not by a thread that our code interrupted: it may hold what the command needs. */
static void serve_if_asked(const struct writer *w)
{
	if (MSCOPE_UNLIKELY(
		    (atomic_load_explicit(&collector_switch.generation, memory_order_relaxed) &
		     CONTROL_ASKED) != 0) &&
	    w != WRITER_BUILDING && (w <= WRITER_GONE || w->entered == 0))
		collector_serve_slow();
}

/* `now` is the caller's stack pointer. */
static struct writer *enter(uint64_t now)
{
	struct writer *w = (serve_if_asked(collector_writer), collector_writer);
	uint64_t signals = 0;
	bool blocked;
	/* A thread without a writer reads here what another has set up. Pairs with the store in collector_attach_slow(). */
	uint32_t recording =
		atomic_load_explicit(&collector_switch.recording, memory_order_acquire);
	int saved_errno = errno;

	if (recording == RECORDING_EARLY)
		return WRITER_EARLY;
	if (w == WRITER_BUILDING) {
		collector_count_loss(LOSS_nested);
		return NULL;
	}
	/* From here until the writer is entered, unless another thread is waited for. */
	blocked = recording == RECORDING_DETACHED || recording == RECORDING_ON ||
		  recording == RECORDING_SHADOW;
	if (blocked)
		signals = sys_signals_block();
	if (recording == RECORDING_DETACHED || recording == RECORDING_ATTACHING) {
		recording = collector_attach_slow();
		w = collector_writer;
	}
	/* The thread that forked still holds its parent's writer, also when another thread of the child has attached. */
	if (w > WRITER_GONE && w->generation != collector_generation())
		w = WRITER_NONE;
	if (recording == RECORDING_BROKEN) {
		collector_count_stopped();
		w = NULL;
	} else if (recording != RECORDING_ON && recording != RECORDING_SHADOW) {
		w = recording == RECORDING_EARLY ? WRITER_EARLY : NULL;
	} else if (w > WRITER_GONE && w->entered != 0 && !frame_is_gone(w->entered, now)) {
		collector_count_loss(LOSS_nested);
		w = NULL;
	} else if (w <= WRITER_GONE || w->entered != 0) {
		if (w > WRITER_GONE) {
			abandon(w);
			w = WRITER_NONE;
		}
		w = enter_new(w);
	}
	if (w > WRITER_EARLY)
		w->entered = now;
	if (blocked)
		sys_signals_restore(signals);
	errno = saved_errno;
	return w;
}

struct writer *writer_enter_memory_slow(void)
{
	return enter((uint64_t)(uintptr_t)__builtin_dwarf_cfa());
}

MSCOPE_COLD struct writer *writer_enter_slow(void)
{
	struct writer *w = enter((uint64_t)(uintptr_t)__builtin_dwarf_cfa());

	return w == WRITER_EARLY ? NULL : w;
}

struct writer *writer_borrow(void)
{
	return acquire();
}

void writer_give_back(struct writer *w)
{
	w->entered = 0;
	park(w);
}

MSCOPE_COLD void writer_leave_slow(struct writer *w)
{
	/* Lent to a thread in teardown, which never parks it, or to a child of vfork(). */
	if (collector_writer <= WRITER_GONE)
		park(w);
}

/* ---- chunks ---- */

/* What a chunk says about itself while it is the writer's. */
static void name_chunk(const struct writer *w, struct chunk *chunk)
{
	chunk->salt = collector.salt;
	chunk->writer = w->number;
	chunk->sequence = w->sequence - 1;
	chunk->base_ns = w->opened_ns;
	chunk->records_before = w->made_before;
	chunk->check = chunk_check(chunk, collector.salt);
}

/* Seals the writer's chunk. A stray store may have changed what the reader needs, and the reader may not have seen it before. */
static void seal(const struct writer *w)
{
	struct chunk *chunk = (struct chunk *)(void *)w->chunk;

	/* A state that was written over can make the reader give the chunk away. */
	if (atomic_load_explicit(&chunk->state, memory_order_relaxed) == CHUNK_FREE)
		return;
	name_chunk(w, chunk);
	atomic_store_explicit(&chunk->records, w->made, memory_order_relaxed);
	atomic_store_explicit(&chunk->committed, w->used, memory_order_relaxed);
	atomic_store_explicit(&chunk->magic, CHUNK_MAGIC, memory_order_release);
	/* Everything in it is committed; the reader may finish with it. Pairs with the acquire in the reader's scan. */
	atomic_store_explicit(&chunk->state, CHUNK_SEALED, memory_order_release);
}

MSCOPE_COLD bool writer_next_chunk_slow(struct writer *w, uint32_t bytes)
{
	uint64_t start = clock_ns();
	int saved_errno = errno;
	struct chunk *chunk;
	uint32_t number;

	if (bytes > TRACE_CHUNK_BYTES - CHUNK_HEADER_BYTES) {
		collector_count_loss(LOSS_trace_full);
		return false;
	}
	if (!chunk_supply_take(&number)) {
		collector_count_loss(collector_stop_cause());
		errno = saved_errno;
		return false;
	}
	if (w->chunk != NULL) {
		seal(w);
		TESTPOINT(sealed);
	}
	chunk = (struct chunk *)(void *)((char *)collector.header + chunk_at_own(number));
	/* The chunk is the writer's from here on: if this event is left, the chunk is known to be given up. */
	w->used = CHUNK_HEADER_BYTES;
	w->limit = TRACE_CHUNK_BYTES;
	w->chunk = (uint8_t *)chunk;
	w->made_before += w->made;
	w->made = 0;
	w->base_ns = w->opened_ns = start;
	w->sequence++;
	name_chunk(w, chunk);
	atomic_store_explicit(&chunk->records, 0, memory_order_relaxed);
	atomic_store_explicit(&chunk->committed, CHUNK_HEADER_BYTES, memory_order_relaxed);
	atomic_store_explicit(&chunk->busy, 1, memory_order_relaxed);
	TESTPOINT(opened);
	/* Publishes the chunk, busy, before the clock is read for its first record. Pairs with the reader's scan. */
	atomic_store_explicit(&chunk->magic, CHUNK_MAGIC, memory_order_release);
	TESTPOINT(published);
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

/* The slot of a text, which has its number then; NULL: there is no room. */
static struct text_slot *text_slot_of(struct writer *w, const char *text, size_t bytes)
{
	uint64_t hash = HASH_BEGIN;
	struct text_slot *slot = NULL;
	uint32_t length, id, i;

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
			return next;
		}
		/* The one that was used longest ago is evicted. */
		if (slot == NULL || w->records - next->record > w->records - slot->record)
			slot = next;
	}
	/* A text that evicts another one gets its number too: there are never more numbers than slots. */
	id = slot->id != 0 ? slot->id : w->next_text;
	if (!define_text(w, id, text, length))
		return NULL;
	w->next_text += slot->id == 0;
	*slot = (struct text_slot){.hash = hash, .id = id, .record = w->records};
	return slot;
}

uint32_t writer_text_part(struct writer *w, const char *text, size_t bytes)
{
	const struct text_slot *slot = text == NULL ? NULL : text_slot_of(w, text, bytes);

	return slot == NULL ? 0 : slot->id;
}

MSCOPE_COLD uint32_t writer_text_learn(struct writer *w, uint64_t key, const char *text,
				       size_t bytes)
{
	const struct text_slot *slot = text_slot_of(w, text, bytes);

	if (slot == NULL)
		return 0;
	w->known_texts[key * UINT64_C(0x9e3779b97f4a7c15) >> 54 & (WRITER_KNOWN_TEXTS - 1)] =
		(struct known_text){key, slot->hash, (uint32_t)(slot - w->texts)};
	return slot->id;
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
	struct writer *w = writer_enter_memory();
	uint32_t context, delta;
	uint64_t *words;

	if (w == WRITER_EARLY)
		early_free_undo(key, decode, address);
	if (w <= WRITER_EARLY)
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

MSCOPE_COLD void event_region_slow(uint32_t source, uint64_t key, context_decode *decode,
				   uint64_t handle, uint64_t address, uint64_t size_bytes,
				   const void *caller)
{
	struct event_region_alloc event = {
		.handle = handle, .address = address, .size_bytes = size_bytes};
	struct writer *w = writer_enter_memory();
	uint32_t context;

	if (w == WRITER_EARLY)
		early_alloc(source, key, decode, handle, address, size_bytes);
	if (w <= WRITER_EARLY)
		return;
	context = writer_context(w, source, key, decode);
	event.stack = stack_of_alloc(w, caller);
	WRITER_PUT(w, region_alloc, context, &event);
	writer_leave(w);
}

MSCOPE_COLD void event_alloc_traced_slow(uint32_t source, uint64_t key, context_decode *decode,
					 uint64_t address, uint64_t size_bytes, const void *caller)
{
	uint32_t depth = atomic_load(&collector_switch.c_depth);
	struct event_block_alloc_wide event = {.address = address, .size_bytes = size_bytes};
	struct writer *w = writer_enter_memory();
	uint32_t context;

	if (w == WRITER_EARLY)
		early_alloc(source, key, decode, address, address, size_bytes);
	if (w <= WRITER_EARLY)
		return;
	/* In shadow, too: who asked is a question about the whole device, whenever it was. */
	if (depth < TRACED_FRAMES)
		depth = TRACED_FRAMES;
	context = writer_context(w, source, key, decode);
	event.stack = stack_capture(w, caller, depth, atomic_load(&collector_switch.python_depth));
	WRITER_PUT(w, block_alloc_wide, context, &event);
	writer_leave(w);
}

void event_alloc_pool(uint32_t source, uint64_t key, context_decode *decode,
		      struct event_block_alloc_pool *event, const void *caller)
{
	struct writer *w = writer_enter_memory();
	uint32_t context;

	if (w == WRITER_EARLY)
		early_alloc(source, key, decode, event->address, event->address, event->size_bytes);
	if (w <= WRITER_EARLY)
		return;
	context = writer_context(w, source, key, decode);
	event->stack = stack_of_alloc(w, caller);
	WRITER_PUT(w, block_alloc_pool, context, event);
	writer_leave(w);
}
