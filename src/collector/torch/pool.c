/* SPDX-License-Identifier: Apache-2.0 */
/*
 * PyTorch's pool on CUDA in detail. Its allocator tells a tracker of every block and segment, with the requested size, the stream and
 * the private pool, whether or not it keeps a history. A tracker is attached by a virtual function, whose place differs between
 * versions. The class of pluggable allocators overrides it too, and libtorch_cuda.so exports that class's table and its function: the
 * function's place in that table is the place in every allocator's.
 *
 * Nothing is believed before it was tried. The object is the native allocator by its type's name, and its table, its type and the
 * functions that are called are of one library. An entry about a block comes on the same thread, under the same lock of the pool, just before the
 * pool's report of that block to c10: one that has another address, or a size that cannot be, is not used. Until the first entry of a
 * device has proven itself, those about segments are kept; after many that did not, none is looked at any more.
 *
 * The tracker is called with the pool's lock of that device held: it writes records and does nothing else. It can never be detached;
 * without a recording it returns.
 */
#include "collector/torch/pool.h"

#include <string.h>

#include "collector/api.h"
#include "collector/loader/lookup.h"
#include "collector/process/process.h"
#include "collector/torch/torch.h"

#define DEVICES 64u

/* Reports without an entry before them until the layout counts as unknown; threads that were inside the pool have one each. */
#define STRANGE_MAX 64u

/* Segments of a device that are kept until an entry has proven itself. */
#define PENDING_MAX 8u

/* How the pool rounds sizes, and from where on it may leave more than that at the end of a block. */
#define ROUNDING 512u
#define LARGE	 (UINT64_C(1) << 20)

/* Times and clocks are beyond it, numbers of private pools are not. */
#define COUNTER_END (UINT64_C(1) << 32)

/* c10's TraceEntry. Behind the size: two numbers of the private pool and the time; before PyTorch 2.6 the time alone. */
struct trace_entry {
	int32_t action;
	int8_t device;
	uint64_t address;
	void *context[2];
	uint64_t stream;
	uint64_t size;
	uint64_t rest[3];
};

enum action {
	ACTION_ALLOC = 0,
	ACTION_FREE_REQUESTED = 1,
	ACTION_FREE_COMPLETED = 2,
	ACTION_SEGMENT_ALLOC = 3,
	ACTION_SEGMENT_FREE = 4,
	ACTION_SEGMENT_MAP = 5,
	ACTION_SEGMENT_UNMAP = 6,
};

/* std::function of libstdc++, as a caller hands it over: by reference, because it is no trivial type. */
struct std_function {
	uint64_t data[2];
	bool (*manage)(void *to, const void *from, uint32_t operation);
	void (*invoke)(const void *data, const struct trace_entry *entry);
};

enum latest {
	LATEST_NONE = 0,
	LATEST_ALLOC,
	LATEST_FREE,  /* asked for */
	LATEST_FREED, /* and done */
};

/* What is known of a device's pool. Guarded by the pool's own lock of that device. */
struct device_pool {
	struct pool_entry entry; /* the latest about a block, until its report */
	const void *thread;	 /* whose it is */
	enum latest latest;
	bool proven;
	bool lost;     /* more segments than could be kept */
	uint32_t told; /* generation + 1 of the trace that knows of it */
	uint32_t pending_count;
	struct pending {
		struct pool_entry entry;
		uint32_t kind;
	} pending[PENDING_MAX];
};

enum tracking {
	TRACKING_NONE = 0,
	TRACKING_ATTACHING,
	TRACKING_ON,
	TRACKING_STRANGE, /* nothing that it tells is looked at */
};

static struct device_pool pools[DEVICES];
static _Atomic uint32_t tracking;
static _Atomic uint32_t unproven; /* reports that had no entry, while none had */
static bool attached_first;	  /* before there was a block */

static struct device_pool *pool_of(int8_t device)
{
	return atomic_load_explicit(&tracking, memory_order_relaxed) != TRACKING_ON || device < 0 ||
			       (uint8_t)device >= DEVICES
		       ? NULL
		       : &pools[device];
}

static uint64_t key_of(const struct device_pool *pool)
{
	return vendor_device(VENDOR_CUDA, (uint32_t)(pool - pools));
}

/* ---- records ---- */

static struct writer *enter(uint64_t key, uint32_t *out_context)
{
	uint32_t recording = recording_now();
	struct writer *w =
		recording == RECORDING_ON || recording == RECORDING_SHADOW ? writer_enter() : NULL;

	if (w != NULL)
		*out_context = writer_context(w, SOURCE_TORCH, key, torch_decode);
	return w;
}

static void put_source(uint64_t key, enum pool_source state)
{
	struct event_pool_source event = {.state = state};
	uint32_t context = 0;
	struct writer *w = enter(key, &context);

	if (w == NULL)
		return;
	WRITER_PUT(w, pool_source, context, &event);
	writer_leave(w);
}

/* The trace's own word on what it knows, before the first record of details; a new trace knows nothing of before. */
static void tell_source(struct device_pool *pool, uint64_t key)
{
	uint32_t told = collector_generation() + 1;

	if (MSCOPE_LIKELY(pool->told == told))
		return;
	put_source(key, attached_first && !pool->lost && pool->told == 0 ? POOL_SOURCE_BEGINS
									 : POOL_SOURCE_LATE);
	pool->told = told;
}

static void put_segment(uint64_t key, const struct pool_entry *entry, uint32_t kind)
{
	struct event_pool_segment event = {.address = entry->address,
					   .size_bytes = entry->size,
					   .stream = entry->stream,
					   .private_first = entry->private_first,
					   .private_second = entry->private_second,
					   .kind = kind};
	uint32_t context = 0;
	struct writer *w = enter(key, &context);

	if (w == NULL)
		return;
	WRITER_PUT(w, pool_segment, context, &event);
	writer_leave(w);
}

static void put_block(uint64_t key, const struct pool_entry *entry, uint64_t bytes, uint32_t kind)
{
	struct event_pool_block event = {.address = entry->address,
					 .size_bytes = bytes,
					 .requested_bytes = entry->size,
					 .stream = entry->stream,
					 .private_first = entry->private_first,
					 .private_second = entry->private_second,
					 .kind = kind};
	uint32_t context = 0;
	struct writer *w = enter(key, &context);

	if (w == NULL)
		return;
	WRITER_PUT(w, pool_block, context, &event);
	writer_leave(w);
}

/* ---- what the pool tells ---- */

static void read_entry(const struct trace_entry *from, struct pool_entry *out)
{
	*out = (struct pool_entry){.address = from->address,
				   .size = from->size,
				   .stream = from->stream,
				   .private_first = POOL_PRIVATE_UNKNOWN,
				   .private_second = POOL_PRIVATE_UNKNOWN};
	/* A time in the first place: this PyTorch does not tell private pools, and its entry ends there. */
	if (from->rest[0] < COUNTER_END - 1 && from->rest[1] < COUNTER_END - 1 &&
	    from->rest[2] >= COUNTER_END) {
		out->private_first = (uint32_t)from->rest[0];
		out->private_second = (uint32_t)from->rest[1];
	}
}

static void take_segment(struct device_pool *pool, const struct pool_entry *entry, uint32_t kind)
{
	uint64_t key;

	if (!pool->proven) {
		if (pool->pending_count < PENDING_MAX)
			pool->pending[pool->pending_count++] =
				(struct pending){.entry = *entry, .kind = kind};
		else
			pool->lost = true;
		return;
	}
	key = key_of(pool);
	tell_source(pool, key);
	put_segment(key, entry, kind);
}

static void on_entry(const void *data, const struct trace_entry *from)
{
	struct device_pool *pool = pool_of(from->device);
	struct pool_entry entry;

	(void)data;
	if (pool == NULL)
		return;
	read_entry(from, &entry);
	switch (from->action) {
	case ACTION_ALLOC:
	case ACTION_FREE_REQUESTED:
		pool->entry = entry;
		pool->thread = &collector_writer;
		pool->latest = from->action == ACTION_ALLOC ? LATEST_ALLOC : LATEST_FREE;
		break;
	case ACTION_FREE_COMPLETED:
		if (pool->latest == LATEST_FREE && pool->entry.address == entry.address &&
		    pool->thread == &collector_writer)
			pool->latest = LATEST_FREED;
		else if (pool->proven)
			put_block(key_of(pool), &entry, 0, POOL_BLOCK_DONE);
		break;
	case ACTION_SEGMENT_ALLOC:
		take_segment(pool, &entry, SEGMENT_ALLOC);
		break;
	case ACTION_SEGMENT_FREE:
		take_segment(pool, &entry, SEGMENT_FREE);
		break;
	case ACTION_SEGMENT_MAP:
		take_segment(pool, &entry, SEGMENT_MAP);
		break;
	case ACTION_SEGMENT_UNMAP:
		take_segment(pool, &entry, SEGMENT_UNMAP);
		break;
	default:
		break;
	}
}

/* The first entry of this device that fits its report: what was kept is true as well. */
static MSCOPE_COLD void prove(struct device_pool *pool, uint64_t key)
{
	uint32_t i;

	pool->proven = true;
	tell_source(pool, key);
	for (i = 0; i < pool->pending_count; i++)
		put_segment(key, &pool->pending[i].entry, pool->pending[i].kind);
	pool->pending_count = 0;
}

static MSCOPE_COLD void give_up(uint64_t key)
{
	uint32_t on = TRACKING_ON;

	if (!atomic_compare_exchange_strong(&tracking, &on, TRACKING_STRANGE))
		return;
	put_source(key, POOL_SOURCE_STRANGE);
	collector_note(
		"requested sizes, streams and private pools of PyTorch's pool are not recorded: this PyTorch reports them in an unknown form");
	collector_write_notes();
}

/* A block is never smaller than what was asked for. Most are rounded a little; those of no splitting may be much larger. */
static bool proves(uint64_t requested, uint64_t bytes)
{
	return bytes - requested < ROUNDING || (bytes >= LARGE && requested >= bytes / 2);
}

/* Whether the latest entry is about the block that is reported, and can be true. */
static bool fits(struct device_pool *pool, uint64_t key, bool alloc, uint64_t address,
		 uint64_t bytes)
{
	bool about_it = pool->latest != LATEST_NONE && (pool->latest == LATEST_ALLOC) == alloc &&
			pool->thread == &collector_writer && pool->entry.address == address;
	bool possible = pool->entry.size != 0 && pool->entry.size <= bytes;

	if (MSCOPE_LIKELY(about_it && possible && pool->proven)) {
		tell_source(pool, key);
		return true;
	}
	if (about_it && possible && proves(pool->entry.size, bytes)) {
		prove(pool, key);
		return true;
	}
	/* Its first words are what we think, and the others are not; or none are. */
	if ((about_it && !possible) ||
	    (!pool->proven && atomic_fetch_add(&unproven, 1) + 1 >= STRANGE_MAX))
		give_up(key);
	return false;
}

bool pool_take_alloc(int8_t device, uint64_t key, uint64_t address, uint64_t bytes,
		     struct pool_entry *out)
{
	struct device_pool *pool = pool_of(device);
	bool known = pool != NULL && fits(pool, key, true, address, bytes);

	if (pool != NULL)
		pool->latest = LATEST_NONE;
	if (known)
		*out = pool->entry;
	return known;
}

void pool_take_free(int8_t device, uint64_t key, uint64_t address, uint64_t bytes)
{
	struct device_pool *pool = pool_of(device);

	if (pool == NULL)
		return;
	if (fits(pool, key, false, address, bytes) && pool->latest == LATEST_FREE)
		put_block(key, &pool->entry, bytes, POOL_BLOCK_WAITS);
	pool->latest = LATEST_NONE;
}

/* ---- attaching ---- */

#define PLUGGABLE "5torch4cuda22CUDAPluggableAllocator22CUDAPluggableAllocator"

static const char *const attach_names[] = {
	"_ZN" PLUGGABLE
	"27attachAllocatorTraceTrackerESt8functionIFvRKN3c1022CachingDeviceAllocator10TraceEntryEEE",
	/* until PyTorch 2.9 */
	"_ZN" PLUGGABLE
	"27attachAllocatorTraceTrackerESt8functionIFvRKN3c104cuda20CUDACachingAllocator10TraceEntryEEE",
};

#define NATIVE_TYPE "N3c104cuda20CUDACachingAllocator6Native22NativeCachingAllocatorE"

static bool manage(void *to, const void *from, uint32_t operation)
{
	enum { GET_TYPE = 0, GET_FUNCTION = 1, CLONE = 2 };

	if (operation == GET_TYPE)
		*(const void **)to = NULL;
	else if (operation == GET_FUNCTION)
		*(const void **)to = from;
	else if (operation == CLONE)
		memcpy(to, from, sizeof(((struct std_function *)0)->data));
	return false;
}

/* The place of a function among the virtual ones; 0: it has none, since that is a destructor's. */
static size_t place_of(const char *name)
{
	size_t bytes = 0, i;
	void *const *table = lookup_symbol_sized("_ZTVN" PLUGGABLE "E", &bytes);
	void *function = lookup_symbol(name);

	/* Behind what is no function: the offset of the object and its type. */
	for (i = 2; table != NULL && function != NULL && i < bytes / sizeof(*table); i++) {
		if (table[i] == function)
			return i - 2;
	}
	return 0;
}

/* The table of virtual functions of PyTorch's own allocator; NULL: another is in use. */
static void *const *native_table(const void *object)
{
	void *const *table = object == NULL ? NULL : *(void *const *const *)object;
	const char *const *type;

	if (table == NULL || !lookup_is_same_object(table - 1, table))
		return NULL;
	type = table[-1];
	/* The variable may lie in the program, the rest is all of one library. */
	if (!lookup_is_same_object(type, table) || !lookup_is_same_object(type[1], table))
		return NULL;
	return strcmp(type[1] + (type[1][0] == '*'), NATIVE_TYPE) == 0 ? table : NULL;
}

/* The pool is there, and hands its tracker to every device. False: not yet, or not one that has trackers. */
static bool attach(void)
{
	void **variable = lookup_symbol("_ZN3c104cuda20CUDACachingAllocator9allocatorE");
	void *object = variable == NULL ? NULL : *(void *volatile *)variable;
	void *const *table = native_table(object);
	size_t ready = place_of("_ZN" PLUGGABLE "11initializedEv");
	size_t place = place_of(attach_names[0]);
	struct std_function tracker = {.manage = manage, .invoke = on_entry};

	if (place == 0)
		place = place_of(attach_names[1]);
	if (table == NULL || ready == 0 || place == 0 ||
	    !lookup_is_same_object(table[ready], table) ||
	    !lookup_is_same_object(table[place], table))
		return false;
	/* Before that it has no devices to attach to. */
	if (!((bool (*)(void *))table[ready])(object))
		return false;
	atomic_store(&tracking, TRACKING_ON);
	((void (*)(void *, struct std_function *))table[place])(object, &tracker);
	return true;
}

/* Not inside of the pool. True: it is attached now. */
static MSCOPE_COLD bool begin(void)
{
	uint32_t none = TRACKING_NONE, recording = recording_now();

	if (recording == RECORDING_DETACHED || recording == RECORDING_ATTACHING)
		recording = collector_attach_slow();
	if (recording == RECORDING_OFF || recording == RECORDING_BROKEN ||
	    !atomic_compare_exchange_strong(&tracking, &none, TRACKING_ATTACHING))
		return false;
	if (attach())
		return true;
	atomic_store(&tracking, TRACKING_NONE);
	return false;
}

/* Hooks stand before the pool's first block, unless it has reported some. */
static MSCOPE_COLD void begin_in_hook(void)
{
	bool first = !torch_pool_has_reported();

	if (begin())
		attached_first = first;
}

/* PyTorch has made its pools and goes on to make CUDA ready, from 2.10 on. */
MSCOPE_EXPORT void _ZN3c104cuda6detail21init_p2p_access_cacheEl(int64_t devices)
{
	hook__ZN3c104cuda6detail21init_p2p_access_cacheEl *original =
		HOOK_ORIGINAL(_ZN3c104cuda6detail21init_p2p_access_cacheEl);

	if (original != NULL)
		original(devices);
	begin_in_hook();
}

/* The same in Python programs of all versions. */
MSCOPE_EXPORT const void *_ZN2at4cuda6detail23getDefaultCUDAGeneratorEa(int8_t device)
{
	hook__ZN2at4cuda6detail23getDefaultCUDAGeneratorEa *original =
		HOOK_ORIGINAL(_ZN2at4cuda6detail23getDefaultCUDAGeneratorEa);
	const void *generator = original == NULL ? NULL : original(device);

	if (MSCOPE_UNLIKELY(atomic_load_explicit(&tracking, memory_order_relaxed) == TRACKING_NONE))
		begin_in_hook();
	return generator;
}

/* ---- for the Python package ---- */

MSCOPE_EXPORT int32_t mscope_pool(void)
{
	uint32_t told = collector_generation() + 1, i;
	bool older = begin();

	for (i = 0; i < DEVICES && !older; i++)
		older = pools[i].proven && pools[i].told != told;
	return older && atomic_load(&tracking) == TRACKING_ON;
}

MSCOPE_EXPORT void mscope_pool_fact(uint32_t device, uint32_t kind, uint64_t value,
				    uint64_t device_bytes, const char *text)
{
	struct event_pool_fact event = {.kind = kind, .value = value, .device_bytes = device_bytes};
	uint32_t recording = recording_now(), context = 0;
	struct writer *w;

	if (recording == RECORDING_DETACHED || recording == RECORDING_ATTACHING)
		(void)collector_attach_slow();
	w = enter(vendor_torch_device(device), &context);
	if (w == NULL)
		return;
	event.text = text == NULL || text[0] == '\0' ? 0 : writer_text(w, text);
	WRITER_PUT(w, pool_fact, context, &event);
	writer_leave(w);
}

MSCOPE_EXPORT void mscope_pool_part(uint32_t device, uint32_t kind, uint64_t address,
				    uint64_t bytes, uint64_t requested, uint64_t stream,
				    uint64_t private_pool)
{
	struct pool_entry entry = {.address = address,
				   .size = kind == SEGMENT_EXISTS ? bytes : requested,
				   .stream = stream,
				   .private_first = (uint32_t)(private_pool >> 32),
				   .private_second = (uint32_t)private_pool};
	uint64_t key = vendor_device(VENDOR_CUDA, device);

	if (kind == SEGMENT_EXISTS)
		put_segment(key, &entry, kind);
	else
		put_block(key, &entry, bytes, kind);
}
