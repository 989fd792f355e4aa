/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table: levels, each twice as large as the one before, made when they are needed and never moved.
 *
 *     level     buckets of 16 slots; of all slots first the tags, then the words, then the blocks
 *     tag       a byte: 0 where there is no block, else some bits of the word's hash; says where to look
 *     word      name of the block : 57, space : 5, state : 2      0: nothing was ever here
 *
 * A block has one bucket in each level, and lies in any of their slots. Whoever makes a word FILLING owns the slot, and alone writes
 * its tag and its block: EMPTY or FREED -> FILLING -> LIVE -> FILLING -> FREED. So nothing is ever waited for, and a thread that is
 * interrupted or killed anywhere leaves at most a slot that is FILLING for good. A freed block stays in its slot until the slot is
 * needed, so that a free that failed can be undone.
 *
 * When the session comes, the state of recording changes before early_write() looks at the words, and an allocation looks at the state
 * after its word is LIVE: one of the two sees the other. If both do, the change of the word decides. All other threads wait
 * until the attaching one is done, so that the free of a block is recorded behind the block.
 */
#include "collector/record/early.h"

#include <errno.h>
#include <sys/mman.h>

#include "collector/record/hot.h"
#include "collector/vendor.h"

#define BUCKET_SLOTS 16u
#define FIRST_BITS   6u /* buckets of the first level, as a power of two */
#define LEVELS_MAX   20u
#define NAME_BITS    57u
#define SPACE_BITS   5u
#define EACH_BYTE    UINT64_C(0x0101010101010101)

enum word_state {
	STATE_EMPTY = 0,
	STATE_FILLING = 1,
	STATE_LIVE = 2,
	STATE_FREED = 3,
	STATE_MASK = 3,
};

struct block {
	uint64_t address;
	uint64_t size_bytes;
	uint64_t key;
	context_decode *decode;
	uint64_t time_ns; /* orders them */
	uint32_t source;
	uint32_t tid;
};

#define SLOT_BYTES (1 + sizeof(uint64_t) + sizeof(struct block))

/* Where a block is, or may go. */
struct slot {
	_Atomic uint64_t *word; /* NULL: nowhere */
	uint8_t *tag;
	struct block *block;
	uint64_t found; /* what the word was */
};

static _Atomic(char *) levels[LEVELS_MAX];
static _Atomic uint32_t level_count;
static _Atomic uint32_t used;
static _Atomic uint32_t progress; /* of early_write() */

_Static_assert(POOL_END <= 8 && BLOCK_HANDLE <= 3, "a space needs more bits");

static size_t slot_count(uint32_t level)
{
	return (size_t)BUCKET_SLOTS << (FIRST_BITS + level);
}

static struct slot slot_at(uint32_t level, size_t index)
{
	char *base = atomic_load_explicit(&levels[level], memory_order_acquire);
	size_t count = slot_count(level);
	_Atomic uint64_t *words = (_Atomic uint64_t *)(void *)(base + count);
	struct block *blocks = (struct block *)(void *)(base + count * (1 + sizeof(uint64_t)));

	return (struct slot){words + index, (uint8_t *)base + index, blocks + index, 0};
}

static uint64_t mix(uint64_t word)
{
	uint64_t mixed = (word >> 2) * UINT64_C(0x9e3779b97f4a7c15);

	mixed ^= mixed >> 29;
	return mixed * UINT64_C(0xbf58476d1ce4e5b9);
}

/* The first slot of a block's bucket. Levels take different bits, so that those who meet in one do not meet in the next. */
static size_t bucket_of(uint32_t level, uint64_t mixed)
{
	mixed = (mixed ^ mixed >> 32) * (2 * level + UINT64_C(0x94d049bb133111eb));
	return (size_t)(mixed >> (64 - FIRST_BITS - level)) * BUCKET_SLOTS;
}

static uint8_t tag_of(uint64_t mixed)
{
	return (uint8_t)(mixed | 0x80);
}

/*
 * Bit 8 * i + 7 for slot i of the eight from `first` on that has that tag; behind such a one also for some that have not, so the caller
 * looks at the words. A little-endian load, as all of ours.
 */
static uint64_t tags_equal(const uint8_t *first, uint8_t tag)
{
	uint64_t tags = __atomic_load_n((const uint64_t *)(const void *)first, __ATOMIC_ACQUIRE);

	tags ^= EACH_BYTE * tag;
	return (tags - EACH_BYTE) & ~tags & EACH_BYTE << 7;
}

static void tag_set(const struct slot *slot, uint8_t tag)
{
	__atomic_store_n(slot->tag, tag, __ATOMIC_RELEASE);
}

/* The word of a block, without a state; 0: it cannot be kept. What gives it back is meant in the same space as in the reader. */
static uint64_t word_of(uint64_t key, context_decode *decode, uint64_t name)
{
	struct context context = {0};
	uint64_t pool;

	if (name >> NAME_BITS != 0)
		return 0;
	decode(key, &context);
	pool = context.pool == POOL_host_pinned ? POOL_hal : context.pool;
	return (name << SPACE_BITS | pool << 2 | context.kind) << 2;
}

static bool word_change(_Atomic uint64_t *word, uint64_t from, uint64_t to)
{
	return atomic_compare_exchange_strong(word, &from, to);
}

/* Adds a level behind `count` of them. False: no memory. */
static MSCOPE_COLD bool grow(uint32_t count)
{
	int saved_errno = errno;
	char *none = NULL, *made;
	size_t bytes;

	if (count >= LEVELS_MAX || quiet_is_on())
		return false;
	bytes = slot_count(count) * SLOT_BYTES;
	made = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
		    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	errno = saved_errno;
	if (made == MAP_FAILED)
		return false;
	/* Pairs with the acquire in slot_at(). */
	if (!atomic_compare_exchange_strong(&levels[count], &none, made))
		(void)munmap(made, bytes);
	(void)atomic_compare_exchange_strong(&level_count, &count, count + 1);
	return true;
}

uint32_t early_begin(void)
{
	if (!early_is_used())
		quiet_learn_tid();
	atomic_store(&used, 1);
	return RECORDING_EARLY;
}

bool early_is_used(void)
{
	return atomic_load_explicit(&used, memory_order_relaxed) != 0;
}

/* Address space for 64 times the blocks that were there so far. */
#define QUIET_LEVELS 6u

MSCOPE_COLD void early_become_quiet(void)
{
	uint32_t i;

	for (i = 0; i < QUIET_LEVELS; i++)
		(void)grow(atomic_load(&level_count));
}

/* ---- one block ---- */

/* Takes the block of that word out of the table. False: it is not in it. */
static bool take_out(const struct slot *slot, uint64_t word)
{
	if (!word_change(slot->word, word | STATE_LIVE, word | STATE_FILLING))
		return false;
	tag_set(slot, 0);
	atomic_store_explicit(slot->word, word | STATE_FREED, memory_order_release);
	return true;
}

/* The same, wherever it is. */
static bool remove_block(uint64_t word, uint64_t mixed)
{
	uint32_t level, half;

	for (level = atomic_load_explicit(&level_count, memory_order_acquire); level-- > 0;) {
		size_t bucket = bucket_of(level, mixed);

		for (half = 0; half < BUCKET_SLOTS; half += 8) {
			struct slot first = slot_at(level, bucket + half);
			uint64_t found = tags_equal(first.tag, tag_of(mixed));

			for (; found != 0; found &= found - 1) {
				uint32_t i = (uint32_t)__builtin_ctzll(found) / 8;
				struct slot slot = {first.word + i, first.tag + i, first.block + i,
						    0};

				if (atomic_load_explicit(slot.word, memory_order_relaxed) ==
					    (word | STATE_LIVE) &&
				    take_out(&slot, word))
					return true;
			}
		}
	}
	return false;
}

/* A slot for a block: in the newest level that has one. */
static struct slot find_room(uint64_t mixed, uint32_t count)
{
	uint32_t level, i;

	for (level = count; level-- > 0;) {
		size_t bucket = bucket_of(level, mixed);

		for (i = 0; i < BUCKET_SLOTS; i++) {
			struct slot slot = slot_at(level, bucket + i);

			if (i % 8 == 0 && tags_equal(slot.tag, 0) == 0) {
				i += 7;
				continue;
			}
			slot.found = atomic_load_explicit(slot.word, memory_order_relaxed);
			if (slot.found == STATE_EMPTY || (slot.found & STATE_MASK) == STATE_FREED)
				return slot;
		}
	}
	return (struct slot){NULL, NULL, NULL, 0};
}

void early_alloc(uint32_t source, uint64_t key, context_decode *decode, uint64_t name,
		 uint64_t address, uint64_t size_bytes)
{
	uint64_t word = word_of(key, decode, name), mixed = mix(word);
	struct slot slot;

	if (MSCOPE_UNLIKELY(word == 0)) {
		collector_count_loss(LOSS_starting);
		return;
	}
	/* A block of the same name was given back unseen. */
	(void)remove_block(word, mixed);
	for (;;) {
		uint32_t count = atomic_load_explicit(&level_count, memory_order_acquire);

		slot = find_room(mixed, count);
		if (slot.word == NULL && !grow(count)) {
			collector_count_loss(LOSS_starting);
			return;
		}
		if (slot.word != NULL && word_change(slot.word, slot.found, word | STATE_FILLING))
			break;
	}
	*slot.block = (struct block){
		.address = address,
		.size_bytes = size_bytes,
		.key = key,
		.decode = decode,
		.time_ns = clock_ns(),
		.source = source,
		.tid = quiet.tid_at != 0 ? quiet_tid() : sys_gettid(),
	};
	tag_set(&slot, tag_of(mixed));
	/* Before the state is read. Pairs with early_write(), which comes after a change of the state. */
	atomic_store(slot.word, word | STATE_LIVE);
	if (MSCOPE_LIKELY(atomic_load(&collector_switch.recording) == RECORDING_EARLY) ||
	    !take_out(&slot, word))
		return;
	if (name == address)
		event_alloc(source, key, decode, address, size_bytes, NULL);
	else
		event_region_slow(source, key, decode, name, address, size_bytes, NULL);
}

void early_free(uint32_t source, uint64_t key, context_decode *decode, uint64_t name)
{
	uint64_t word = word_of(key, decode, name);

	/* Unknown, or early_write() has it: then the free is an event. */
	if (!remove_block(word, mix(word)) &&
	    atomic_load(&collector_switch.recording) != RECORDING_EARLY)
		event_free(source, key, decode, name, NULL);
}

/* The latest block of that name that was freed. */
static struct slot find_freed(uint64_t word, uint64_t mixed)
{
	struct slot latest = {NULL, NULL, NULL, 0};
	uint32_t level, i;

	for (level = atomic_load_explicit(&level_count, memory_order_acquire); level-- > 0;) {
		for (i = 0; i < BUCKET_SLOTS; i++) {
			struct slot slot = slot_at(level, bucket_of(level, mixed) + i);

			if (atomic_load(slot.word) == (word | STATE_FREED) &&
			    (latest.word == NULL || slot.block->time_ns > latest.block->time_ns))
				latest = slot;
		}
	}
	return latest;
}

MSCOPE_COLD void early_free_undo(uint64_t key, context_decode *decode, uint64_t name)
{
	uint64_t word = word_of(key, decode, name), mixed = mix(word);
	struct slot slot = find_freed(word, mixed);
	struct block block;

	if (slot.word == NULL || !word_change(slot.word, word | STATE_FREED, word | STATE_FILLING))
		return;
	block = *slot.block;
	tag_set(&slot, tag_of(mixed));
	atomic_store(slot.word, word | STATE_LIVE);
	if (atomic_load(&collector_switch.recording) == RECORDING_EARLY || !take_out(&slot, word))
		return;
	if (name == block.address)
		event_alloc(block.source, block.key, block.decode, name, block.size_bytes, NULL);
	else
		event_region_slow(block.source, block.key, block.decode, name, block.address,
				  block.size_bytes, NULL);
}

/* ---- all of them ---- */

/* A block that is to be written. Its slot is FILLING, so that nobody else touches it. */
struct taken {
	uint64_t time_ns;
	uint32_t level;
	uint32_t index;
};

static void write_block(struct writer *w, const struct taken *taken)
{
	struct slot slot = slot_at(taken->level, taken->index);
	uint64_t word = atomic_load_explicit(slot.word, memory_order_relaxed);
	const struct block *block = slot.block;
	struct event_block_before event = {
		.key = word >> (SPACE_BITS + 2),
		.address = block->address,
		.size_bytes = block->size_bytes,
		.tid = block->tid,
	};

	if (block->source != SOURCE_TORCH || device_key_vendor(block->key) != VENDOR_CPU ||
	    collector.chosen.host != 0)
		WRITER_PUT(w, block_before,
			   writer_context(w, block->source, block->key, block->decode), &event);
	tag_set(&slot, 0);
	atomic_store_explicit(slot.word, STATE_EMPTY, memory_order_release);
}

/* Visits the blocks that live. With `out`, takes them, at most `room`. Returns how many there are, or were taken. */
static size_t take_blocks(struct taken *out, size_t room)
{
	uint32_t count = atomic_load_explicit(&level_count, memory_order_acquire), level;
	size_t live = 0;

	for (level = 0; level < count; level++) {
		size_t slots = slot_count(level), i;

		for (i = 0; i < slots; i++) {
			struct slot slot = slot_at(level, i);

			slot.found = atomic_load(slot.word);
			if ((slot.found & STATE_MASK) != STATE_LIVE)
				continue;
			if (out != NULL) {
				if (live == room)
					return live;
				if (!word_change(slot.word, slot.found,
						 slot.found - STATE_LIVE + STATE_FILLING))
					continue;
				out[live] = (struct taken){slot.block->time_ns, level, (uint32_t)i};
			}
			live++;
		}
	}
	return live;
}

/* By time, a byte at a time from the lowest; bytes in which all agree are left out. Returns where the result is. */
static struct taken *sort_taken(struct taken *blocks, struct taken *other, size_t count)
{
	uint32_t shift;
	size_t i;

	for (shift = 0; shift < 64; shift += 8) {
		size_t starts[257] = {0};
		struct taken *swap = blocks;

		for (i = 0; i < count; i++)
			starts[(blocks[i].time_ns >> shift & 0xff) + 1]++;
		if (count == 0 || starts[(blocks[0].time_ns >> shift & 0xff) + 1] == count)
			continue;
		for (i = 0; i < 256; i++)
			starts[i + 1] += starts[i];
		for (i = 0; i < count; i++)
			other[starts[blocks[i].time_ns >> shift & 0xff]++] = blocks[i];
		blocks = other;
		other = swap;
	}
	return blocks;
}

/* Room to sort in. Where there is none, the blocks come a few at a time, and in the order of these. */
#define TAKEN_FEW 64u

MSCOPE_COLD void early_write(void)
{
	/* Not on the stack, which may be small; one thread attaches. */
	static struct taken few[2 * TAKEN_FEW];
	struct taken *blocks = few, *sorted;
	/* Threads that are on their way add some while we count. */
	size_t room = take_blocks(NULL, 0) + TAKEN_FEW, bytes = 2 * room * sizeof(few[0]);
	void *memory =
		mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct writer *w = writer_borrow();
	size_t count, i;

	if (memory == MAP_FAILED)
		room = TAKEN_FEW;
	else
		blocks = memory;
	if (w != NULL) {
		vendors_begin(w);
		do {
			count = take_blocks(blocks, room);
			sorted = sort_taken(blocks, blocks + room, count);
			for (i = 0; i < count; i++) {
				write_block(w, &sorted[i]);
				if (i % 4096 == 0)
					atomic_fetch_add(&progress, 1);
			}
		} while (count == room);
		writer_give_back(w);
	}
	if (memory != MAP_FAILED)
		(void)munmap(memory, bytes);
}

uint32_t early_progress(void)
{
	return atomic_load_explicit(&progress, memory_order_relaxed);
}

MSCOPE_COLD void early_forget(void)
{
	uint32_t level;

	if (MSCOPE_LIKELY(!early_is_used()) || quiet_is_on() || atomic_exchange(&used, 0) == 0)
		return;
	for (level = 0; level < atomic_load(&level_count); level++)
		(void)madvise(atomic_load(&levels[level]), slot_count(level) * SLOT_BYTES,
			      MADV_DONTNEED);
}
