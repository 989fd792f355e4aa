/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Locks. An arena has one for its pool (free capacity and the buddy system) and one for each of its shards. A shard holds
 * a share of both: bytes of capacity that it may give out by itself, and free blocks on stacks. Order: shards by number,
 * then the pool. What moves between a shard and the pool moves with both locks held, so whoever holds all of them sees
 * every byte: a request is refused only after such a look (take_tight).
 */
#include "arena.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>

#include "buddy.h"
#include "config.h"
#include "handle.h"
#include "published.h"

enum {
	HOST_ARENA = CONFIG_DEVICES_MAX,
	ARENA_COUNT,
	SHARD_COUNT = 16,
	STEAL_PERIOD = 32,    /* every so many small allocations look into another shard first */
	STACK_ORDER_MAX = 9,  /* 2 MiB: the largest block that a stack keeps */
	STACK_DEPTH_MIN = 8,  /* blocks that a stack keeps whatever their size, */
	STACK_ORDER_SUM = 10, /* otherwise 4 MiB of them */
	BATCH_SHIFT_MAX = 4,  /* an empty stack fetches up to 16 blocks at once, */
	BATCH_ORDER_MAX = 8,  /* of 1 MiB together */
};

_Static_assert((int)HOST_ARENA <= (int)PUBLISHED_DEVICES, "every device has a place to publish");

#define CACHE_LINE 64

/* Where arenas are put when nothing else is there: addresses that a reader of a trace recognises. Their tables lie below. */
#define RANGE_HINT   0x120000000000ULL
#define TABLE_HINT   0x110000000000ULL
#define STRIDE_SHIFT 40

/*
 * A range starts small and doubles when addresses run out, up to several times the capacity: neither rounding to powers of
 * two nor scattered free blocks then make a request fail that the capacity allows. It is not reserved as a whole at once
 * because some hosts pay for each page of a mapping, used or not: qemu-user needs half a minute for 1 TiB.
 */
#define RANGE_FIRST (1ULL << 30)
#define RANGE_MIN   (1ULL << (OPEN_ORDER + PAGE_SHIFT))

/* The largest alignment that a flag word can ask for. */
#define ALIGN_MAX (1ULL << 31)

/* A shard fetches so much capacity at once, and keeps at most twice as much. */
#define CREDIT_STEP (16ULL << 20)

/* Free blocks of one order, last in, first out, linked by `next`. */
struct stack {
	uint32_t top; /* index + 1, 0 when empty */
	uint32_t depth;
};

struct shard {
	_Alignas(CACHE_LINE) pthread_mutex_t lock; /* guards the rest */
	uint64_t credit;			   /* bytes taken from the pool, not in use */
	struct stack stacks[STACK_ORDER_MAX + 1];
};

struct arena {
	_Atomic bool ready;   /* set last; `base`, `blocks` and `range_max` are fixed then */
	char *base;	      /* first byte of the range */
	struct block *blocks; /* one per page of the range */
	uint64_t range_max;   /* what the range may grow to */
	_Atomic uint64_t range_bytes; /* reserved, a power of two; grows with the pool's lock */

	struct shard shards[SHARD_COUNT];

	_Alignas(CACHE_LINE) pthread_mutex_t lock; /* guards the pool: */
	uint64_t pool;				   /* bytes neither in use nor credit of a shard */
	struct buddy buddy;
};

static struct arena arenas[ARENA_COUNT];

/* Guards the opening of arenas. Taken before any other lock. */
static pthread_mutex_t open_lock = PTHREAD_MUTEX_INITIALIZER;

/* A thread has one shard, given out in turn, so that few threads never meet and many are spread evenly. */
static __attribute__((tls_model("initial-exec"))) _Thread_local struct {
	uint32_t shard; /* + 1; 0: none yet */
	uint32_t tick;	/* small allocations so far */
} self;

static _Atomic uint32_t shards_given;

static uint32_t shard_number(void)
{
	if (__builtin_expect(self.shard == 0, 0))
		self.shard = 1 + atomic_fetch_add_explicit(&shards_given, 1, memory_order_relaxed) %
					 SHARD_COUNT;
	return self.shard - 1;
}

uint32_t arena_device(const struct arena *a)
{
	return (uint32_t)(a - arenas);
}

/* Tells other processes that this one uses `bytes` more of a device, or less when they wrap. */
static void publish(const struct arena *a, uint64_t bytes)
{
	uint32_t number = arena_device(a);

	if (number != HOST_ARENA)
		published_add(number, shard_number(), bytes);
}

static bool is_ready(struct arena *a)
{
	/* Pairs with the release in open_slow(). */
	return atomic_load_explicit(&a->ready, memory_order_acquire);
}

static void lock_all(struct arena *a)
{
	unsigned n;

	for (n = 0; n < SHARD_COUNT; n++)
		(void)pthread_mutex_lock(&a->shards[n].lock);
	(void)pthread_mutex_lock(&a->lock);
}

static void unlock_all(struct arena *a)
{
	unsigned n;

	(void)pthread_mutex_unlock(&a->lock);
	for (n = SHARD_COUNT; n-- > 0;)
		(void)pthread_mutex_unlock(&a->shards[n].lock);
}

static uint64_t range_bytes(struct arena *a)
{
	return atomic_load_explicit(&a->range_bytes, memory_order_relaxed);
}

static size_t table_bytes(uint64_t range)
{
	return (range >> PAGE_SHIFT) * sizeof(struct block);
}

/*
 * Maps memory anywhere, or at `address` or not at all. The address is a wish that the kernel grants when nothing is there,
 * not MAP_FIXED_NOREPLACE: old kernels do not know that one, and sanitizers move such a mapping to the null page.
 */
static void *map(void *address, uint64_t size, int protection)
{
	void *found =
		mmap(address, size, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (found == MAP_FAILED)
		return NULL;
	if (address && found != address) {
		(void)munmap(found, size);
		return NULL;
	}
	return found;
}

/* Adds `bytes` to the end of the range and what belongs to them to the end of the table. */
static bool extend(struct arena *a, uint64_t bytes)
{
	uint64_t old_bytes = range_bytes(a);
	char *range = a->base + old_bytes;

	if (!map(range, bytes, PROT_NONE))
		return false;
	if (!map((char *)a->blocks + table_bytes(old_bytes), table_bytes(bytes),
		 PROT_READ | PROT_WRITE)) {
		(void)munmap(range, bytes);
		return false;
	}
	/* Memory of a device is in no core file; where the kernel refuses the advice, it is. */
	(void)madvise(range, bytes, MADV_DONTDUMP);
	atomic_store_explicit(&a->range_bytes, old_bytes + bytes, memory_order_relaxed);
	return true;
}

/* The wish for an address was not granted: a range that does not grow, as large as it can be had, anywhere. */
static bool open_anywhere(struct arena *a)
{
	uint64_t size;

	for (size = a->range_max; size >= RANGE_MIN; size /= 2) {
		/* Addresses more than needed, for a base on which aligned offsets are aligned addresses. */
		uint64_t align = size < ALIGN_MAX ? size : ALIGN_MAX;
		char *start = map(NULL, size + align, PROT_NONE);
		void *table = map(NULL, table_bytes(size), PROT_READ | PROT_WRITE);

		if (start && table) {
			a->base = start + (align - (uintptr_t)start % align) % align;
			a->blocks = table;
			a->range_max = size;
			(void)madvise(a->base, size, MADV_DONTDUMP);
			atomic_store_explicit(&a->range_bytes, size, memory_order_relaxed);
			return true;
		}
		if (start)
			(void)munmap(start, size + align);
		if (table)
			(void)munmap(table, table_bytes(size));
	}
	return false;
}

static bool open_range(struct arena *a, uint32_t number, uint64_t hbm_bytes)
{
	a->range_max = 1ULL << STRIDE_SHIFT;
	while (a->range_max < 4 * hbm_bytes)
		a->range_max *= 2;
	a->base = (char *)(uintptr_t)(RANGE_HINT + number * a->range_max);
	a->blocks = (void *)(uintptr_t)(TABLE_HINT + number * table_bytes(a->range_max));
	if (!extend(a, RANGE_FIRST) && !open_anywhere(a))
		return false;
	buddy_init(&a->buddy, a->base, a->blocks,
		   (unsigned)__builtin_ctzll(range_bytes(a)) - PAGE_SHIFT);
	return true;
}

__attribute__((cold, noinline)) static drvError_t open_slow(uint32_t number)
{
	const struct config *config = config_get();
	struct arena *a = &arenas[number];
	drvError_t error = DRV_ERROR_NONE;
	unsigned n;

	if (number != HOST_ARENA && number >= config->device_count)
		return DRV_ERROR_INVALID_DEVICE;
	(void)pthread_mutex_lock(&open_lock);
	if (is_ready(a)) {
		/* Somebody else was faster. */
	} else if (open_range(a, number, config->hbm_bytes)) {
		a->pool =
			number == HOST_ARENA ? UINT64_MAX : config->hbm_bytes - config->taken_bytes;
		(void)pthread_mutex_init(&a->lock, NULL);
		for (n = 0; n < SHARD_COUNT; n++)
			(void)pthread_mutex_init(&a->shards[n].lock, NULL);
		/* Pairs with the acquire in is_ready(). */
		atomic_store_explicit(&a->ready, true, memory_order_release);
		if (number != HOST_ARENA)
			published_open(number);
	} else {
		error = DRV_ERROR_OUT_OF_MEMORY;
	}
	(void)pthread_mutex_unlock(&open_lock);
	return error;
}

static drvError_t open_arena(uint32_t number, struct arena **out)
{
	drvError_t error;

	if (__builtin_expect(!is_ready(&arenas[number]), 0)) {
		error = open_slow(number);
		if (error)
			return error;
	}
	*out = &arenas[number];
	return DRV_ERROR_NONE;
}

drvError_t arena_of_device(uint32_t id, struct arena **out)
{
	return id < CONFIG_DEVICES_MAX ? open_arena(id, out) : DRV_ERROR_INVALID_DEVICE;
}

drvError_t arena_of_host(struct arena **out)
{
	return open_arena(HOST_ARENA, out);
}

static uint32_t depth_max(unsigned order)
{
	uint32_t depth = 1u << (STACK_ORDER_SUM - order);

	return depth > STACK_DEPTH_MIN ? depth : STACK_DEPTH_MIN;
}

static void push(struct arena *a, struct shard *s, unsigned order, uint32_t index)
{
	struct stack *stack = &s->stacks[order];

	a->blocks[index].next = stack->top;
	stack->top = index + 1;
	stack->depth++;
}

static uint32_t pop(struct arena *a, struct shard *s, unsigned order)
{
	struct stack *stack = &s->stacks[order];
	uint32_t top = stack->top;

	if (!top)
		return BLOCK_INDEX_NONE;
	stack->top = a->blocks[top - 1].next;
	stack->depth--;
	return top - 1;
}

/* With the locks of the shard and the pool. */
static void drain(struct arena *a, struct shard *s, unsigned order)
{
	uint32_t index;

	while ((index = pop(a, s, order)) != BLOCK_INDEX_NONE)
		buddy_give(&a->buddy, index, order);
}

/*
 * Takes a block that another thread's shard holds, if it can be had at once. It costs a little time and keeps the promise
 * that an address freed here may appear over there in the same moment.
 */
static uint32_t steal(struct arena *a, unsigned order, uint32_t own)
{
	uint32_t active = atomic_load_explicit(&shards_given, memory_order_relaxed);
	uint32_t index = BLOCK_INDEX_NONE;
	struct shard *s;

	if (active > SHARD_COUNT)
		active = SHARD_COUNT;
	s = &a->shards[(own + self.tick / STEAL_PERIOD) % active];
	if (s != &a->shards[own] && pthread_mutex_trylock(&s->lock) == 0) {
		index = pop(a, s, order);
		(void)pthread_mutex_unlock(&s->lock);
	}
	return index;
}

/* A block from the buddy system, for which the range may have to grow. With the pool's lock. */
static uint32_t take_from_pool(struct arena *a, unsigned order)
{
	uint32_t index;

	while ((index = buddy_take(&a->buddy, order)) == BLOCK_INDEX_NONE) {
		uint64_t bytes = range_bytes(a);

		if (bytes >= a->range_max || !extend(a, bytes))
			break;
		buddy_double(&a->buddy);
	}
	return index;
}

/* A block from the buddy system, cut from a larger one of which the rest goes to the stack. With the shard's lock. */
static uint32_t fetch_blocks(struct arena *a, struct shard *s, unsigned order)
{
	unsigned shift = order < BATCH_ORDER_MAX ? BATCH_ORDER_MAX - order : 0;
	uint32_t index;
	uint32_t extra;

	if (shift > BATCH_SHIFT_MAX)
		shift = BATCH_SHIFT_MAX;
	(void)pthread_mutex_lock(&a->lock);
	index = take_from_pool(a, order + shift);
	(void)pthread_mutex_unlock(&a->lock);
	if (index == BLOCK_INDEX_NONE)
		return index;
	for (extra = (1u << shift) - 1; extra; extra--) {
		uint32_t part = index + (extra << order);

		atomic_store_explicit(&a->blocks[part].state, block_state(BLOCK_IDLE, order),
				      memory_order_relaxed);
		push(a, s, order, part);
	}
	return index;
}

/* Moves capacity from the pool to the shard, more than needed if there is more. With the shard's lock. */
static bool fetch_credit(struct arena *a, struct shard *s, uint64_t needed)
{
	uint64_t bytes = 0;

	(void)pthread_mutex_lock(&a->lock);
	if (a->pool >= needed + CREDIT_STEP)
		bytes = needed + CREDIT_STEP;
	else if (a->pool >= needed)
		bytes = needed;
	a->pool -= bytes;
	(void)pthread_mutex_unlock(&a->lock);
	s->credit += bytes;
	return bytes > 0;
}

/* The take_ functions charge `bytes` and return an IDLE block, or do neither. */
static uint32_t take_small(struct arena *a, unsigned order, uint64_t bytes)
{
	uint32_t number = shard_number();
	struct shard *s = &a->shards[number];
	uint32_t index = BLOCK_INDEX_NONE;

	(void)pthread_mutex_lock(&s->lock);
	if (s->credit >= bytes || fetch_credit(a, s, bytes - s->credit)) {
		if (++self.tick % STEAL_PERIOD == 0)
			index = steal(a, order, number);
		if (index == BLOCK_INDEX_NONE)
			index = pop(a, s, order);
		if (index == BLOCK_INDEX_NONE)
			index = fetch_blocks(a, s, order);
		if (index != BLOCK_INDEX_NONE)
			s->credit -= bytes;
	}
	(void)pthread_mutex_unlock(&s->lock);
	return index;
}

static uint32_t take_large(struct arena *a, unsigned order, uint64_t bytes)
{
	uint32_t index = BLOCK_INDEX_NONE;

	(void)pthread_mutex_lock(&a->lock);
	if (a->pool >= bytes)
		index = take_from_pool(a, order);
	if (index != BLOCK_INDEX_NONE)
		a->pool -= bytes;
	(void)pthread_mutex_unlock(&a->lock);
	return index;
}

/* With all locks: brings all free capacity into the pool. */
static void collect_credit(struct arena *a)
{
	unsigned n;

	for (n = 0; n < SHARD_COUNT; n++) {
		a->pool += a->shards[n].credit;
		a->shards[n].credit = 0;
	}
}

/* With all locks: makes everything free whole again. */
static void collect_blocks(struct arena *a)
{
	unsigned order;
	unsigned n;

	for (n = 0; n < SHARD_COUNT; n++) {
		for (order = 0; order <= STACK_ORDER_MAX; order++)
			drain(a, &a->shards[n], order);
	}
	buddy_purge(&a->buddy, 0);
}

/* When the quick ways found too little capacity or no address: says no only after having seen everything. */
__attribute__((cold, noinline)) static uint32_t take_tight(struct arena *a, unsigned order,
							   uint64_t bytes)
{
	uint32_t index = BLOCK_INDEX_NONE;

	lock_all(a);
	collect_credit(a);
	if (a->pool >= bytes) {
		index = take_from_pool(a, order);
		if (index == BLOCK_INDEX_NONE) {
			collect_blocks(a);
			index = take_from_pool(a, order);
		}
		if (index != BLOCK_INDEX_NONE)
			a->pool -= bytes;
	}
	unlock_all(a);
	return index;
}

drvError_t arena_alloc(struct arena *a, uint64_t size, enum page_shift page, unsigned align_shift,
		       void **out)
{
	uint64_t bytes;
	uint64_t pages;
	uint32_t index;
	unsigned order;

	/* Also keeps the rounding from overflowing. */
	if (size > a->range_max)
		return DRV_ERROR_OUT_OF_MEMORY;
	bytes = (((size - 1) >> page) + 1) << page;
	pages = bytes >> PAGE_SHIFT;
	order = pages == 1 ? 0 : 64 - (unsigned)__builtin_clzll(pages - 1);
	if (order + PAGE_SHIFT < align_shift)
		order = align_shift - PAGE_SHIFT;

	if (order <= STACK_ORDER_MAX)
		index = take_small(a, order, bytes);
	else
		index = take_large(a, order, bytes);
	if (index == BLOCK_INDEX_NONE)
		index = take_tight(a, order, bytes);
	if (index == BLOCK_INDEX_NONE)
		return DRV_ERROR_OUT_OF_MEMORY;

	a->blocks[index].pages = (uint32_t)pages;
	/* Pairs with the acquire in arena_free(). */
	atomic_store_explicit(&a->blocks[index].state, block_state(BLOCK_LIVE, order),
			      memory_order_release);
	*out = a->base + ((uint64_t)index << PAGE_SHIFT);
	publish(a, bytes);
	return DRV_ERROR_NONE;
}

static void give_small(struct arena *a, unsigned order, uint32_t index, uint64_t bytes)
{
	struct shard *s = &a->shards[shard_number()];
	bool rich;
	bool deep;

	(void)pthread_mutex_lock(&s->lock);
	push(a, s, order, index);
	s->credit += bytes;
	rich = s->credit > 2 * CREDIT_STEP;
	deep = s->stacks[order].depth > depth_max(order);
	if (__builtin_expect(rich || deep, 0)) {
		(void)pthread_mutex_lock(&a->lock);
		if (rich) {
			a->pool += s->credit - CREDIT_STEP;
			s->credit = CREDIT_STEP;
		}
		if (deep)
			drain(a, s, order);
		(void)pthread_mutex_unlock(&a->lock);
	}
	(void)pthread_mutex_unlock(&s->lock);
}

static void give_large(struct arena *a, unsigned order, uint32_t index, uint64_t bytes)
{
	(void)pthread_mutex_lock(&a->lock);
	a->pool += bytes;
	buddy_give(&a->buddy, index, order);
	(void)pthread_mutex_unlock(&a->lock);
}

static bool contains(struct arena *a, uintptr_t address)
{
	return is_ready(a) && address - (uintptr_t)a->base < range_bytes(a);
}

static struct arena *find_arena(uintptr_t address)
{
	uint64_t guess = (address - RANGE_HINT) >> STRIDE_SHIFT;
	uint32_t number;

	if (guess < ARENA_COUNT && contains(&arenas[guess], address))
		return &arenas[guess];
	for (number = 0; number < ARENA_COUNT; number++) {
		if (contains(&arenas[number], address))
			return &arenas[number];
	}
	return NULL;
}

bool arena_locate(const void *address, bool *of_host, uint32_t *device)
{
	const struct arena *a = find_arena((uintptr_t)address);

	if (!a)
		return false;
	*of_host = arena_device(a) == HOST_ARENA;
	*device = *of_host ? 0 : arena_device(a);
	return true;
}

drvError_t arena_free(const void *address)
{
	struct arena *a = find_arena((uintptr_t)address);
	struct block *block;
	uint64_t offset;
	uint64_t bytes;
	uint32_t state;
	unsigned order;
	uint32_t index;

	if (!a)
		return DRV_ERROR_INVALID_VALUE;
	offset = (uintptr_t)address - (uintptr_t)a->base;
	if (offset & ((1u << PAGE_SHIFT) - 1))
		return DRV_ERROR_INVALID_VALUE;
	index = (uint32_t)(offset >> PAGE_SHIFT);
	block = &a->blocks[index];
	state = atomic_load_explicit(&block->state, memory_order_relaxed);
	order = block_order(state);
	/* Acquire pairs with the release in arena_alloc(), for `pages`. */
	if (block_kind(state) != BLOCK_LIVE ||
	    !atomic_compare_exchange_strong_explicit(&block->state, &state,
						     block_state(BLOCK_IDLE, order),
						     memory_order_acquire, memory_order_relaxed))
		return DRV_ERROR_INVALID_VALUE;

	bytes = (uint64_t)block->pages << PAGE_SHIFT;
	if (order <= STACK_ORDER_MAX)
		give_small(a, order, index, bytes);
	else
		give_large(a, order, index, bytes);
	publish(a, -bytes);
	return DRV_ERROR_NONE;
}

bool arena_charge(struct arena *a, uint64_t bytes)
{
	bool fits;

	(void)pthread_mutex_lock(&a->lock);
	fits = a->pool >= bytes;
	if (fits)
		a->pool -= bytes;
	(void)pthread_mutex_unlock(&a->lock);
	if (!fits) {
		lock_all(a);
		collect_credit(a);
		fits = a->pool >= bytes;
		if (fits)
			a->pool -= bytes;
		unlock_all(a);
	}
	if (fits)
		publish(a, bytes);
	return fits;
}

void arena_uncharge(struct arena *a, uint64_t bytes)
{
	(void)pthread_mutex_lock(&a->lock);
	a->pool += bytes;
	(void)pthread_mutex_unlock(&a->lock);
	publish(a, -bytes);
}

uint64_t arena_free_bytes(struct arena *a)
{
	uint64_t bytes;
	unsigned n;

	lock_all(a);
	bytes = a->pool;
	for (n = 0; n < SHARD_COUNT; n++)
		bytes += a->shards[n].credit;
	unlock_all(a);
	return bytes;
}

/* With all locks: what this process uses of each device. */
static void count_use(struct published_use *use)
{
	uint32_t number;
	unsigned n;

	*use = (struct published_use){0};
	for (number = 0; number < HOST_ARENA; number++) {
		struct arena *a = &arenas[number];

		if (!is_ready(a))
			continue;
		use->devices |= 1ULL << number;
		use->bytes[number] = config_get()->hbm_bytes - config_get()->taken_bytes - a->pool;
		for (n = 0; n < SHARD_COUNT; n++)
			use->bytes[number] -= a->shards[n].credit;
	}
}

/* Nothing is half moved while a process forks, so the child's copy is whole and its locks are free. */
static void before_fork(void)
{
	uint32_t number;

	(void)pthread_mutex_lock(&open_lock);
	handle_lock();
	for (number = 0; number < ARENA_COUNT; number++) {
		if (is_ready(&arenas[number]))
			lock_all(&arenas[number]);
	}
	published_lock();
}

static void after_fork(void)
{
	uint32_t number;

	published_unlock();
	for (number = ARENA_COUNT; number-- > 0;) {
		if (is_ready(&arenas[number]))
			unlock_all(&arenas[number]);
	}
	handle_unlock();
	(void)pthread_mutex_unlock(&open_lock);
}

static void after_fork_in_child(void)
{
	struct published_use use;

	count_use(&use);
	published_restart(&use);
	after_fork();
}

/*
 * At load, before anybody can allocate: what is registered first locks last and unlocks first, so handlers of the program
 * may still call us.
 */
__attribute__((constructor)) static void watch_forks(void)
{
	(void)pthread_atfork(before_fork, after_fork, after_fork_in_child);
}
