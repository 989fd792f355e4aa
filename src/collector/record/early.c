/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table: levels, each twice as large as the one before, made when they are needed and never moved.
 *
 *     level     buckets of 16 words, then one struct block for each word
 *     word      name of the block : 57, space : 5, state : 2      0: nothing was ever here
 *
 * A block has one bucket in each level, and lies in any of their slots. Whoever changes a word from one state to the next owns the
 * slot or the block: EMPTY or FREED -> FILLING -> LIVE -> FREED. So nothing is ever waited for, and a thread that is interrupted or
 * killed anywhere leaves at most a slot that is FILLING for good. A freed block stays in its slot until the slot is needed, so that
 * a free that failed can be undone.
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

#define BUCKET_WORDS 16u
#define FIRST_BITS   6u /* buckets of the first level, as a power of two */
#define LEVELS_MAX   20u
#define NAME_BITS    57u
#define SPACE_BITS   5u

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

static _Atomic(char *) levels[LEVELS_MAX];
static _Atomic uint32_t level_count;
static _Atomic uint32_t used;

_Static_assert(POOL_END <= 8 && BLOCK_HANDLE <= 3, "a space needs more bits");

static uint32_t bucket_count(uint32_t level)
{
	return 1u << (FIRST_BITS + level);
}

static size_t level_bytes(uint32_t level)
{
	return (size_t)bucket_count(level) * BUCKET_WORDS *
	       (sizeof(uint64_t) + sizeof(struct block));
}

static _Atomic uint64_t *level_words(uint32_t level)
{
	return (_Atomic uint64_t *)(void *)atomic_load_explicit(&levels[level],
								memory_order_acquire);
}

static struct block *block_of(uint32_t level, const _Atomic uint64_t *word)
{
	_Atomic uint64_t *words = level_words(level);
	uint64_t *behind = (uint64_t *)(words + (size_t)bucket_count(level) * BUCKET_WORDS);

	return (struct block *)(void *)behind + (word - words);
}

/* The bucket of a block. Levels take different bits, so that those who meet in one do not meet in the next. */
static _Atomic uint64_t *bucket_of(uint32_t level, uint64_t word)
{
	uint64_t mixed = (word >> 2) * UINT64_C(0x9e3779b97f4a7c15);
	uint32_t bits = FIRST_BITS + level;

	mixed ^= mixed >> 29;
	mixed *= UINT64_C(0xbf58476d1ce4e5b9) + 2 * level;
	return level_words(level) + (mixed >> (64 - bits)) * BUCKET_WORDS;
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

	if (count >= LEVELS_MAX)
		return false;
	made = mmap(NULL, level_bytes(count), PROT_READ | PROT_WRITE,
		    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (made == MAP_FAILED) {
		errno = saved_errno;
		return false;
	}
	/* Pairs with the acquire in level_words(). */
	if (!atomic_compare_exchange_strong(&levels[count], &none, made))
		(void)munmap(made, level_bytes(count));
	(void)atomic_compare_exchange_strong(&level_count, &count, count + 1);
	errno = saved_errno;
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

/* ---- one block ---- */

struct place {
	_Atomic uint64_t *word;
	uint64_t found; /* what was there */
	uint32_t level;
	uint32_t rank; /* the lower the better */
};

#define RANK_SAME  1u /* the slot where a block of that name was freed */
#define RANK_EMPTY 2u
#define RANK_FREED 3u
#define RANK_NONE  4u

/* The best slot for a block among those of its buckets. Ends a block of the same name: it was given back unseen. */
static struct place find_place(uint64_t word, uint32_t count)
{
	struct place best = {.rank = RANK_NONE};
	uint32_t level, i;

	for (level = count; level-- > 0;) {
		_Atomic uint64_t *bucket = bucket_of(level, word);

		for (i = 0; i < BUCKET_WORDS; i++) {
			uint64_t found = atomic_load_explicit(&bucket[i], memory_order_relaxed);
			uint32_t rank;

			if (found == (word | STATE_LIVE) &&
			    word_change(&bucket[i], found, word | STATE_FREED))
				found = word | STATE_FREED;
			if (found == (word | STATE_FREED))
				rank = RANK_SAME;
			else if (found == STATE_EMPTY)
				rank = RANK_EMPTY;
			else if ((found & STATE_MASK) == STATE_FREED)
				rank = RANK_FREED;
			else
				continue;
			if (rank < best.rank)
				best = (struct place){&bucket[i], found, level, rank};
		}
	}
	return best;
}

void early_alloc(uint32_t source, uint64_t key, context_decode *decode, uint64_t name,
		 uint64_t address, uint64_t size_bytes)
{
	uint64_t word = word_of(key, decode, name);
	struct place place;

	if (MSCOPE_UNLIKELY(word == 0)) {
		collector_count_loss(LOSS_starting);
		return;
	}
	for (;;) {
		uint32_t count = atomic_load_explicit(&level_count, memory_order_acquire);

		place = find_place(word, count);
		if (place.rank != RANK_NONE) {
			if (word_change(place.word, place.found, word | STATE_FILLING))
				break;
		} else if (!grow(count)) {
			collector_count_loss(LOSS_starting);
			return;
		}
	}
	*block_of(place.level, place.word) = (struct block){
		.address = address,
		.size_bytes = size_bytes,
		.key = key,
		.decode = decode,
		.time_ns = clock_ns(),
		.source = source,
		.tid = quiet.tid_at != 0 ? quiet_tid() : sys_gettid(),
	};
	/* Not before the state is read. Pairs with early_write(), which comes after a change of the state. */
	atomic_store(place.word, word | STATE_LIVE);
	if (MSCOPE_LIKELY(atomic_load(&collector_switch.recording) == RECORDING_EARLY) ||
	    !word_change(place.word, word | STATE_LIVE, word | STATE_FREED))
		return;
	if (name == address)
		event_alloc(source, key, decode, address, size_bytes, NULL);
	else
		event_region_slow(source, key, decode, name, address, size_bytes, NULL);
}

void early_free(uint32_t source, uint64_t key, context_decode *decode, uint64_t name)
{
	uint64_t word = word_of(key, decode, name);
	uint32_t level, i;

	for (level = atomic_load_explicit(&level_count, memory_order_acquire); level-- > 0;) {
		_Atomic uint64_t *bucket = bucket_of(level, word);

		for (i = 0; i < BUCKET_WORDS; i++) {
			if (atomic_load_explicit(&bucket[i], memory_order_relaxed) ==
				    (word | STATE_LIVE) &&
			    word_change(&bucket[i], word | STATE_LIVE, word | STATE_FREED))
				return;
		}
	}
	/* Unknown, or early_write() has it: then the free is an event. */
	if (MSCOPE_UNLIKELY(atomic_load(&collector_switch.recording) != RECORDING_EARLY))
		event_free(source, key, decode, name, NULL);
}

/* The latest block of that name that was freed. */
static struct place find_freed(uint64_t word)
{
	struct place latest = {.rank = RANK_NONE};
	uint64_t latest_ns = 0;
	uint32_t level, i;

	for (level = atomic_load_explicit(&level_count, memory_order_acquire); level-- > 0;) {
		_Atomic uint64_t *bucket = bucket_of(level, word);

		for (i = 0; i < BUCKET_WORDS; i++) {
			const struct block *block = block_of(level, &bucket[i]);

			if (atomic_load(&bucket[i]) != (word | STATE_FREED) ||
			    block->time_ns < latest_ns)
				continue;
			latest_ns = block->time_ns;
			latest = (struct place){&bucket[i], word | STATE_FREED, level, RANK_SAME};
		}
	}
	return latest;
}

MSCOPE_COLD void early_free_undo(uint64_t key, context_decode *decode, uint64_t name)
{
	uint64_t word = word_of(key, decode, name);
	struct place place = find_freed(word);
	struct block block;

	if (place.rank == RANK_NONE)
		return;
	block = *block_of(place.level, place.word);
	if (!word_change(place.word, place.found, word | STATE_LIVE) ||
	    atomic_load(&collector_switch.recording) == RECORDING_EARLY ||
	    !word_change(place.word, word | STATE_LIVE, word | STATE_FREED))
		return;
	if (name == block.address)
		event_alloc(block.source, block.key, block.decode, name, block.size_bytes, NULL);
	else
		event_region_slow(block.source, block.key, block.decode, name, block.address,
				  block.size_bytes, NULL);
}

/* ---- all of them ---- */

/* A block that is to be written. It is FILLING, so that nobody else touches it. */
struct taken {
	uint64_t time_ns;
	_Atomic uint64_t *word;
	const struct block *block;
};

static void write_block(struct writer *w, const struct taken *taken)
{
	uint64_t word = atomic_load_explicit(taken->word, memory_order_relaxed);
	const struct block *block = taken->block;
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
	atomic_store_explicit(taken->word, STATE_EMPTY, memory_order_relaxed);
}

/* Visits the blocks that live. With `out`, takes them, at most `room`. Returns how many there are, or were taken. */
static size_t take_blocks(struct taken *out, size_t room)
{
	uint32_t count = atomic_load_explicit(&level_count, memory_order_acquire), level;
	size_t live = 0;

	for (level = 0; level < count; level++) {
		_Atomic uint64_t *word = level_words(level);
		const _Atomic uint64_t *end = word + (size_t)bucket_count(level) * BUCKET_WORDS;

		for (; word < end; word++) {
			uint64_t found = atomic_load(word);

			if ((found & STATE_MASK) != STATE_LIVE)
				continue;
			if (out != NULL && live == room)
				return live;
			if (out != NULL) {
				if (!word_change(word, found,
						 (found & ~(uint64_t)STATE_MASK) | STATE_FILLING))
					continue;
				out[live] = (struct taken){
					.word = word,
					.block = block_of(level, word),
				};
				out[live].time_ns = out[live].block->time_ns;
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
	static struct taken
		few[2 * TAKEN_FEW]; /* not on the stack, which may be small; one thread attaches */
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
			for (i = 0; i < count; i++)
				write_block(w, &sorted[i]);
		} while (count == room);
		writer_give_back(w);
	}
	if (memory != MAP_FAILED)
		(void)munmap(memory, bytes);
}

MSCOPE_COLD void early_forget(void)
{
	uint32_t level;

	if (MSCOPE_LIKELY(!early_is_used()) || quiet_is_on() || atomic_exchange(&used, 0) == 0)
		return;
	for (level = 0; level < atomic_load(&level_count); level++)
		(void)madvise(level_words(level), level_bytes(level), MADV_DONTNEED);
}
