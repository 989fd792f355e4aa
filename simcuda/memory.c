/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory of the card: addresses without memory behind them, counted in units of 2 MiB as the driver counts large blocks. A new block has the
 * lowest free address.
 *
 * Small copies and fills are kept (`pages`), so that a number that the program has copied to the card and reads back is right. Kernels do not
 * run: a byte is known if nothing ran since it was written. Reading another one is told.
 */
#include "sim.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define UNIT	    (UINT64_C(2) << 20)
#define SPACE_BYTES (UINT64_C(8) << 40)
#define PAGE	    4096u
#define PIECE	    512u /* what is known or not */
#define PIECES	    (PAGE / PIECE)
#define KEPT_MAX    (UINT64_C(64) << 10) /* larger copies to the card are not kept */
#define READ_MAX    (UINT64_C(1) << 20)	 /* larger copies to the host leave it as it was */
#define ONE_VALUE   64u			 /* a number, or a few */
#define RANGES_MAX  4096
#define GUESS	    (UINT64_C(1) << 63)
#define CARD_MIN                                                                                   \
	(UINT64_C(1) << 30) /* a smaller card is one of tests: nothing but tensors counts */

struct block {
	uint64_t start, bytes;
};

/* When a piece was written, counted in launches and from 1; 0: never. And the copy or fill that wrote it. */
struct written {
	uint64_t when, start, bytes;
};

struct page {
	uint64_t number; /* 0: none */
	uint8_t *data;
	struct written pieces[PIECES];
};

/* How sure bytes are, the least first. */
enum sureness {
	UNKNOWN, /* 0 */
	COPIED,	 /* as this very memory was copied to the card, before something ran */
	GUESSED, /* nobody wrote it: an answer that programs expect */
	KNOWN,
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t space;	     /* where the addresses begin; 0: not yet */
static struct block *blocks; /* by address */
static size_t block_count, block_room;
static struct block ranges[RANGES_MAX]; /* addresses without blocks, of sim_reserve() */
static size_t range_count;
static uint64_t used;	   /* without the context */
static uint64_t beside;	   /* of it what libraries take, which no program asked for */
static struct page *pages; /* open addressing */
static size_t page_count, page_room;

/* ---- blocks ---- */

static uint64_t context_bytes(void)
{
	return sim_card_bytes() < CARD_MIN ? 0 : (uint64_t)sim_card()->context << 20;
}

uint64_t sim_free_bytes(void)
{
	uint64_t taken;

	(void)pthread_mutex_lock(&lock);
	taken = used + context_bytes();
	(void)pthread_mutex_unlock(&lock);
	return taken < sim_card_bytes() ? sim_card_bytes() - taken : 0;
}

SIM_API uint64_t simcuda_outside(void);
uint64_t simcuda_outside(void)
{
	uint64_t bytes;

	(void)pthread_mutex_lock(&lock);
	bytes = context_bytes() + beside;
	(void)pthread_mutex_unlock(&lock);
	return bytes;
}

void sim_beside(uint64_t bytes)
{
	if (sim_card_bytes() < CARD_MIN)
		return;
	(void)pthread_mutex_lock(&lock);
	used += bytes;
	beside += bytes;
	(void)pthread_mutex_unlock(&lock);
}

int sim_count(int64_t bytes)
{
	int code = SIM_OK;

	(void)pthread_mutex_lock(&lock);
	if (bytes > 0 && used + context_bytes() + (uint64_t)bytes > sim_card_bytes())
		code = SIM_OUT_OF_MEMORY;
	else
		used += (uint64_t)bytes;
	(void)pthread_mutex_unlock(&lock);
	return code;
}

static bool has_space(void)
{
	void *found;

	if (space != 0)
		return true;
	found = mmap(NULL, SPACE_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1,
		     0);
	if (found == MAP_FAILED)
		return false;
	space = ((uint64_t)(uintptr_t)found + UNIT - 1) & ~(UNIT - 1);
	return true;
}

/* With the lock. */
static int take(uint64_t bytes, uint64_t *out)
{
	uint64_t at;
	size_t i;

	if (used + context_bytes() + bytes > sim_card_bytes() || !has_space())
		return SIM_OUT_OF_MEMORY;
	if (block_count == block_room) {
		size_t room = block_room == 0 ? 256 : block_room * 2;
		struct block *more = realloc(blocks, room * sizeof(*more));

		if (more == NULL)
			return SIM_OUT_OF_MEMORY;
		blocks = more;
		block_room = room;
	}
	at = space;
	for (i = 0; i < block_count && blocks[i].start - at < bytes; i++)
		at = blocks[i].start + blocks[i].bytes;
	if (at + bytes > space + SPACE_BYTES - UNIT)
		return SIM_OUT_OF_MEMORY;
	memmove(&blocks[i + 1], &blocks[i], (block_count - i) * sizeof(*blocks));
	blocks[i] = (struct block){at, bytes};
	block_count++;
	used += bytes;
	*out = at;
	return SIM_OK;
}

int sim_take(uint64_t bytes, void **out)
{
	uint64_t at = 0;
	int code;

	if (bytes > sim_card_bytes())
		return SIM_OUT_OF_MEMORY;
	bytes = (bytes + UNIT - 1) & ~(UNIT - 1);
	(void)pthread_mutex_lock(&lock);
	code = take(bytes, &at);
	(void)pthread_mutex_unlock(&lock);
	if (code == SIM_OK)
		*out = (void *)(uintptr_t)at;
	return code;
}

static size_t find_block(uint64_t address)
{
	size_t low = 0, high = block_count;

	while (low < high) {
		size_t middle = (low + high) / 2;

		if (blocks[middle].start + blocks[middle].bytes <= address)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static void forget(uint64_t start, uint64_t bytes);

int sim_give(void *address)
{
	uint64_t start = (uint64_t)(uintptr_t)address;
	int code = SIM_INVALID_VALUE;
	size_t i;

	(void)pthread_mutex_lock(&lock);
	i = find_block(start);
	if (i < block_count && blocks[i].start == start) {
		forget(start, blocks[i].bytes);
		used -= blocks[i].bytes;
		block_count--;
		memmove(&blocks[i], &blocks[i + 1], (block_count - i) * sizeof(*blocks));
		code = SIM_OK;
	}
	(void)pthread_mutex_unlock(&lock);
	return code;
}

void *sim_reserve(uint64_t bytes)
{
	void *found = mmap(NULL, bytes + UNIT, PROT_NONE,
			   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	uint64_t start = ((uint64_t)(uintptr_t)found + UNIT - 1) & ~(UNIT - 1);

	if (found == MAP_FAILED)
		return NULL;
	(void)pthread_mutex_lock(&lock);
	if (range_count < RANGES_MAX)
		ranges[range_count++] = (struct block){start, bytes};
	else
		start = 0;
	(void)pthread_mutex_unlock(&lock);
	return (void *)(uintptr_t)start;
}

bool sim_is_device(const void *address)
{
	uint64_t at = (uint64_t)(uintptr_t)address;
	bool found = space != 0 && at - space < SPACE_BYTES;
	size_t i, count = __atomic_load_n(&range_count, __ATOMIC_ACQUIRE);

	for (i = 0; i < count && !found; i++)
		found = at - ranges[i].start < ranges[i].bytes;
	return found;
}

/* ---- what is kept of copies ---- */

static struct page *find_page(uint64_t number)
{
	size_t i;

	for (i = (size_t)(number * UINT64_C(0x9e3779b97f4a7c15) >> 40) & (page_room - 1);
	     pages[i].number != 0 && pages[i].number != number; i = (i + 1) & (page_room - 1))
		;
	return &pages[i];
}

static struct page *get_page(uint64_t number)
{
	return page_room == 0 ? NULL : find_page(number);
}

static struct page *make_page(uint64_t number)
{
	struct page *page;

	if (page_count * 2 >= page_room) {
		size_t old_room = page_room, i;
		struct page *old = pages, *more;

		more = calloc(old_room == 0 ? 1024 : old_room * 2, sizeof(*more));
		if (more == NULL)
			return NULL;
		pages = more;
		page_room = old_room == 0 ? 1024 : old_room * 2;
		for (i = 0; i < old_room; i++) {
			if (old[i].number != 0)
				*find_page(old[i].number) = old[i];
		}
		free(old);
	}
	page = find_page(number);
	if (page->number == 0) {
		page->data = calloc(1, PAGE);
		if (page->data == NULL)
			return NULL;
		page->number = number;
		page_count++;
	}
	return page;
}

/* What is in this memory is not known any more; its pages stay, for the next copies. */
static void forget(uint64_t start, uint64_t bytes)
{
	uint64_t first = start / PAGE, last = (start + bytes + PAGE - 1) / PAGE, number;
	size_t i;

	if (last - first > page_room) {
		for (i = 0; i < page_room; i++) {
			if (pages[i].number >= first && pages[i].number < last)
				memset(pages[i].pieces, 0, sizeof(pages[i].pieces));
		}
		return;
	}
	for (number = first; number < last && page_room > 0; number++) {
		struct page *page = find_page(number);

		if (page->number != 0)
			memset(page->pieces, 0, sizeof(page->pieces));
	}
}

/* One piece of memory at a time: `from` NULL fills with `value`. With the lock. */
static void keep(uint64_t to, const uint8_t *from, int value, uint64_t bytes, uint64_t when)
{
	const struct written written = {when, to, bytes};

	while (bytes > 0) {
		uint64_t in_piece = to % PIECE;
		uint64_t now = PIECE - in_piece < bytes ? PIECE - in_piece : bytes;
		struct page *page = make_page(to / PAGE);

		if (page == NULL)
			return;
		if (from != NULL)
			memcpy(page->data + to % PAGE, from, now);
		else
			memset(page->data + to % PAGE, value, now);
		page->pieces[to % PAGE / PIECE] = written;
		to += now;
		from = from == NULL ? NULL : from + now;
		bytes -= now;
	}
}

/*
 * Something ran since: the memory may have been changed, or belong to another tensor. What one copy wrote is then taken only whole, so that no
 * part of one tensor is read as another one's number.
 */
static enum sureness sure_of(const struct written *written, uint64_t from, uint64_t bytes)
{
	const uint64_t now = sim_launches() + 1;

	if (written->when == now)
		return KNOWN;
	if (written->when == (now | GUESS))
		return GUESSED;
	if (written->when == 0 || (written->when & GUESS) != 0)
		return UNKNOWN;
	return written->start == from && written->bytes == bytes ? COPIED : UNKNOWN;
}

/* What is not known is 0. With the lock. */
static enum sureness fetch(uint8_t *to, uint64_t from, uint64_t bytes)
{
	const uint64_t start = from, whole = bytes;
	enum sureness least = KNOWN;

	while (bytes > 0) {
		uint64_t in_piece = from % PIECE;
		uint64_t now = PIECE - in_piece < bytes ? PIECE - in_piece : bytes;
		struct page *page = get_page(from / PAGE);
		enum sureness sure =
			page == NULL || page->number == 0
				? UNKNOWN
				: sure_of(&page->pieces[from % PAGE / PIECE], start, whole);

		if (sure == UNKNOWN)
			memset(to, 0, now);
		else
			memcpy(to, page->data + from % PAGE, now);
		least = sure < least ? sure : least;
		to += now;
		from += now;
		bytes -= now;
	}
	return least;
}

/* What the running operator of this thread would read at most; -1: it is not one of these. */
static __thread int64_t largest = -1;

int64_t sim_largest(int64_t count)
{
	int64_t before = largest;

	largest = count;
	return before;
}

/* What the host has computed beside, so that it knows the number that the running operator of this thread reads; -1: it does not. */
static __thread int64_t answer = -1;
static __thread bool quiet; /* it knows the values: nothing is told */

SIM_API void simcuda_answer(int64_t number);
void simcuda_answer(int64_t number)
{
	answer = number;
}

int64_t sim_answer(int64_t number)
{
	int64_t before = answer;

	answer = number;
	return before;
}

SIM_API void simcuda_quiet(int wanted);
void simcuda_quiet(int wanted)
{
	quiet = wanted != 0;
}

/* Why a number that is read now makes a size that nobody can say; NULL: it does not. */
static __thread const char *unbounded;

const char *sim_unbounded(const char *why)
{
	const char *before = unbounded;

	unbounded = why;
	return before;
}

void sim_guess_true(void *address)
{
	const uint8_t yes = 1;

	(void)pthread_mutex_lock(&lock);
	keep((uint64_t)(uintptr_t)address, &yes, 0, sizeof(yes), (sim_launches() + 1) | GUESS);
	(void)pthread_mutex_unlock(&lock);
}

/* A size of a result: as large as it can be. */
static bool read_number(uint8_t *to, uint64_t bytes, int64_t number)
{
	const int32_t small = (int32_t)number;

	if (number < 0 || (bytes != sizeof(number) && bytes != sizeof(small)))
		return false;
	if (bytes == sizeof(number))
		memcpy(to, &number, sizeof(number));
	else
		memcpy(to, &small, sizeof(small));
	return true;
}

static void read_host(uint8_t *to, uint64_t from, uint64_t bytes)
{
	enum sureness sure;

	if (bytes > READ_MAX) {
		sim_tell(SIM_READ_MANY, "left as it was");
		return;
	}
	(void)pthread_mutex_lock(&lock);
	sure = fetch(to, from, bytes);
	(void)pthread_mutex_unlock(&lock);
	if (sure == KNOWN || quiet || read_number(to, bytes, answer))
		return;
	if (read_number(to, bytes, largest)) {
		sim_tell(SIM_FULL, "taken as full");
		return;
	}
	if (unbounded != NULL)
		sim_tell(SIM_MISSING, unbounded);
	sim_tell(bytes <= ONE_VALUE ? SIM_READ : SIM_READ_MANY,
		 sure == UNKNOWN   ? "0"
		 : sure == GUESSED ? "true"
				   : "it was when it was copied to the card");
}

void sim_copy(void *to, const void *from, size_t bytes)
{
	bool to_device = sim_is_device(to), from_device = sim_is_device(from);

	if (bytes == 0)
		return;
	if (!to_device && !from_device) {
		memmove(to, from, bytes);
	} else if (!to_device) {
		read_host(to, (uint64_t)(uintptr_t)from, bytes);
	} else if (bytes > KEPT_MAX) {
		(void)pthread_mutex_lock(&lock);
		forget((uint64_t)(uintptr_t)to, bytes);
		(void)pthread_mutex_unlock(&lock);
	} else {
		uint64_t when = sim_launches() + 1;
		uint8_t *copy = from_device ? malloc(bytes) : NULL;

		(void)pthread_mutex_lock(&lock);
		if (copy != NULL && fetch(copy, (uint64_t)(uintptr_t)from, bytes) != KNOWN)
			forget((uint64_t)(uintptr_t)to, bytes);
		else if (copy != NULL || !from_device)
			keep((uint64_t)(uintptr_t)to, from_device ? copy : from, 0, bytes, when);
		(void)pthread_mutex_unlock(&lock);
		free(copy);
	}
}

void sim_fill(void *to, int value, size_t bytes)
{
	if (!sim_is_device(to)) {
		memset(to, value, bytes);
		return;
	}
	(void)pthread_mutex_lock(&lock);
	if (bytes > KEPT_MAX)
		forget((uint64_t)(uintptr_t)to, bytes);
	else
		keep((uint64_t)(uintptr_t)to, NULL, value, bytes, sim_launches() + 1);
	(void)pthread_mutex_unlock(&lock);
}

/* ---- the runtime's functions ---- */

SIM_API int cudaMalloc(void **out, size_t bytes);
SIM_API int cudaFree(void *address);
SIM_API int cudaHostAlloc(void **out, size_t bytes, unsigned int flags);
SIM_API int cudaMallocHost(void **out, size_t bytes);
SIM_API int cudaFreeHost(void *address);
SIM_API int cudaHostRegister(void *address, size_t bytes, unsigned int flags);
SIM_API int cudaHostUnregister(void *address);
SIM_API int cudaHostGetDevicePointer(void **out, void *address, unsigned int flags);
SIM_API int cudaPointerGetAttributes(void *out, const void *address);
SIM_API int cudaMemcpy(void *to, const void *from, size_t bytes, int kind);
SIM_API int cudaMemcpyAsync(void *to, const void *from, size_t bytes, int kind, void *stream);
SIM_API int cudaMemcpyPeerAsync(void *to, int to_device, const void *from, int from_device,
				size_t bytes, void *stream);
SIM_API int cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch,
			      size_t width, size_t height, int kind, void *stream);
SIM_API int cudaMemset(void *to, int value, size_t bytes);
SIM_API int cudaMemsetAsync(void *to, int value, size_t bytes, void *stream);

int cudaMalloc(void **out, size_t bytes)
{
	int code = bytes == 0 ? SIM_OK : sim_take(bytes, out);

	if (bytes == 0)
		*out = NULL;
	return code == SIM_OK ? SIM_OK : sim_error(code);
}

int cudaFree(void *address)
{
	int code = address == NULL ? SIM_OK : sim_give(address);

	return code == SIM_OK ? SIM_OK : sim_error(code);
}

/* Pinned host memory: plain, and remembered. */
struct pinned {
	uint64_t start, bytes;
	struct pinned *next;
	bool ours;
};

static struct pinned *pinned;
static pthread_mutex_t pinned_lock = PTHREAD_MUTEX_INITIALIZER;

static int pin(void *address, size_t bytes, bool ours)
{
	struct pinned *new = malloc(sizeof(*new));

	if (new == NULL)
		return sim_error(SIM_OUT_OF_MEMORY);
	*new = (struct pinned){(uint64_t)(uintptr_t)address, bytes, NULL, ours};
	(void)pthread_mutex_lock(&pinned_lock);
	new->next = pinned;
	pinned = new;
	(void)pthread_mutex_unlock(&pinned_lock);
	return SIM_OK;
}

static int unpin(void *address, bool ours)
{
	struct pinned **at, *found = NULL;

	(void)pthread_mutex_lock(&pinned_lock);
	for (at = &pinned; *at != NULL && found == NULL;) {
		if ((*at)->start == (uint64_t)(uintptr_t)address && (*at)->ours == ours) {
			found = *at;
			*at = found->next;
		} else {
			at = &(*at)->next;
		}
	}
	(void)pthread_mutex_unlock(&pinned_lock);
	if (found == NULL)
		return sim_error(SIM_INVALID_VALUE);
	if (ours)
		(void)munmap(address, found->bytes);
	free(found);
	return SIM_OK;
}

static bool is_pinned(const void *address)
{
	const struct pinned *at;
	bool found = false;

	(void)pthread_mutex_lock(&pinned_lock);
	for (at = pinned; at != NULL && !found; at = at->next)
		found = (uint64_t)(uintptr_t)address - at->start < at->bytes;
	(void)pthread_mutex_unlock(&pinned_lock);
	return found;
}

int cudaHostAlloc(void **out, size_t bytes, unsigned int flags)
{
	void *found = mmap(NULL, bytes == 0 ? 1 : bytes, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	(void)flags;
	if (found == MAP_FAILED)
		return sim_error(SIM_OUT_OF_MEMORY);
	*out = found;
	return pin(found, bytes == 0 ? 1 : bytes, true);
}

int cudaMallocHost(void **out, size_t bytes)
{
	return cudaHostAlloc(out, bytes, 0);
}

int cudaFreeHost(void *address)
{
	return address == NULL ? SIM_OK : unpin(address, true);
}

int cudaHostRegister(void *address, size_t bytes, unsigned int flags)
{
	(void)flags;
	return pin(address, bytes, false);
}

int cudaHostUnregister(void *address)
{
	return unpin(address, false);
}

int cudaHostGetDevicePointer(void **out, void *address, unsigned int flags)
{
	(void)flags;
	*out = address;
	return SIM_OK;
}

int cudaPointerGetAttributes(void *out, const void *address)
{
	struct {
		int type, device;
		const void *on_device, *on_host;
	} attributes = {0, -2, NULL, NULL};

	if (sim_is_device(address)) {
		attributes.type = 2;
		attributes.device = 0;
		attributes.on_device = address;
	} else if (is_pinned(address)) {
		attributes.type = 1;
		attributes.device = 0;
		attributes.on_device = attributes.on_host = address;
	}
	memcpy(out, &attributes, sizeof(attributes));
	return SIM_OK;
}

int cudaMemcpy(void *to, const void *from, size_t bytes, int kind)
{
	(void)kind;
	sim_copy(to, from, bytes);
	return SIM_OK;
}

int cudaMemcpyAsync(void *to, const void *from, size_t bytes, int kind, void *stream)
{
	(void)stream;
	return cudaMemcpy(to, from, bytes, kind);
}

int cudaMemcpyPeerAsync(void *to, int to_device, const void *from, int from_device, size_t bytes,
			void *stream)
{
	(void)to_device;
	(void)from_device;
	(void)stream;
	return cudaMemcpy(to, from, bytes, 3);
}

int cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width,
		      size_t height, int kind, void *stream)
{
	size_t i;

	(void)kind;
	(void)stream;
	for (i = 0; i < height; i++)
		sim_copy((char *)to + i * to_pitch, (const char *)from + i * from_pitch, width);
	return SIM_OK;
}

int cudaMemset(void *to, int value, size_t bytes)
{
	sim_fill(to, value, bytes);
	return SIM_OK;
}

int cudaMemsetAsync(void *to, int value, size_t bytes, void *stream)
{
	(void)stream;
	return cudaMemset(to, value, bytes);
}
