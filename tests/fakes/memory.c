/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory of the stand-in driver: host memory from mmap, counted as a real driver counts it.
 *
 *     small device blocks      up to 1 MiB, share chunks of 2 MiB and cross none
 *     large ones               whole chunks of 2 MiB
 *     stream-ordered           of pools, which grow by chunks and keep what is freed until they are trimmed, or above their threshold
 *                              until the program waits for the device
 *     of graphs                a pool of each device, which keeps all until it is trimmed
 *     physical                 lives until no handle and no mapping is left
 *     managed                  counted on the device of its context
 *     pinned, registered       takes nothing of a device
 */
#include "driver.h"

#define CHUNK	   (2 * FAKE_MIB)
#define SMALL_MAX  FAKE_MIB
#define CHUNKS_MAX 4096u
#define UNIT	   UINT64_C(512)
#define HOST	   UINT32_MAX
#define POOLS_MAX  64u
#define ARRAY_UNIT UINT64_C(512)

enum kind { DEVICE, POOLED, IN_GRAPH, HOST_PINNED, REGISTERED, ARRAY, MAPPING, RESERVED };

struct block {
	struct block *next;
	uint64_t address;
	uint64_t bytes;
	uint64_t charged;    /* whole chunks, 0: small or of a pool */
	struct chunk *chunk; /* that a small one lies in */
	uint32_t device;
	uint32_t context; /* that ends it */
	enum kind kind;
	struct pool *pool;
	struct physical *physical;
};

struct pool {
	bool alive;
	uint32_t device;
	uint64_t used, reserved, threshold;
};

struct physical {
	uint64_t bytes;
	uint32_t device; /* HOST: none */
	uint32_t handles, mappings;
};

static struct block *blocks;
static struct chunk {
	unsigned char *memory; /* NULL: none */
	uint32_t device, used;
	bool taken[CHUNK / UNIT];
} * chunks[CHUNKS_MAX];
static struct pool pools[POOLS_MAX];
static struct pool *default_pools[FAKE_DEVICES_MAX];
static struct pool *current_pools[FAKE_DEVICES_MAX];
static struct pool graph_pools[FAKE_DEVICES_MAX];

static uint64_t up(uint64_t bytes, uint64_t unit)
{
	return (bytes + unit - 1) / unit * unit;
}

/* ---- blocks, with the lock held ---- */

static struct block *block_find(uint64_t address, enum kind first, enum kind last)
{
	struct block *b;

	for (b = blocks; b != NULL; b = b->next) {
		if (b->address == address && b->kind >= first && b->kind <= last)
			return b;
	}
	return NULL;
}

static struct block *block_add(struct block with)
{
	struct block *b = malloc(sizeof(*b));

	*b = with;
	b->next = blocks;
	blocks = b;
	return b;
}

static void block_remove(struct block *block)
{
	struct block **at = &blocks;

	while (*at != block)
		at = &(*at)->next;
	*at = block->next;
	free(block);
}

/* On a border of chunks. */
static void *map_chunks(uint64_t bytes)
{
	unsigned char *at = mmap(NULL, up(bytes, CHUNK) + CHUNK, PROT_READ | PROT_WRITE,
				 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	unsigned char *first;

	if (at == MAP_FAILED)
		return NULL;
	first = (unsigned char *)(uintptr_t)up((uintptr_t)at, CHUNK);
	if (first != at)
		(void)munmap(at, (size_t)(first - at));
	if (at + CHUNK != first)
		(void)munmap(first + up(bytes, CHUNK), (size_t)(at + CHUNK - first));
	return first;
}

/* The first room in a chunk; CHUNK / UNIT: none. */
static uint64_t chunk_room(const struct chunk *chunk, uint64_t units)
{
	uint64_t at, free = 0;

	for (at = 0; at < CHUNK / UNIT; at++) {
		free = chunk->taken[at] ? 0 : free + 1;
		if (free == units)
			return at + 1 - units;
	}
	return CHUNK / UNIT;
}

static struct chunk *chunk_new(uint32_t device)
{
	uint32_t i;

	for (i = 0; i < CHUNKS_MAX; i++) {
		if (chunks[i] == NULL)
			chunks[i] = calloc(1, sizeof(*chunks[i]));
		if (chunks[i]->memory != NULL)
			continue;
		if (!device_charge(device, CHUNK))
			return NULL;
		chunks[i]->memory = map_chunks(CHUNK);
		chunks[i]->device = device;
		return chunks[i];
	}
	return NULL;
}

/* 0: no memory. */
static uint64_t take_small(uint32_t device, uint64_t bytes, struct chunk **out)
{
	uint64_t units = up(bytes, UNIT) / UNIT, at = CHUNK / UNIT, i;
	struct chunk *chunk = NULL;

	for (i = 0; i < CHUNKS_MAX && chunks[i] != NULL && at == CHUNK / UNIT; i++) {
		if (chunks[i]->memory == NULL || chunks[i]->device != device)
			continue;
		chunk = chunks[i];
		at = chunk_room(chunk, units);
	}
	if (at == CHUNK / UNIT) {
		chunk = chunk_new(device);
		at = 0;
	}
	if (chunk == NULL)
		return 0;
	memset(chunk->taken + at, 1, units);
	chunk->used += (uint32_t)units;
	*out = chunk;
	return (uint64_t)(uintptr_t)(chunk->memory + at * UNIT);
}

static void give_small(struct chunk *chunk, uint64_t address, uint64_t bytes)
{
	uint64_t units = up(bytes, UNIT) / UNIT;

	memset(chunk->taken + (address - (uint64_t)(uintptr_t)chunk->memory) / UNIT, 0, units);
	chunk->used -= (uint32_t)units;
	if (chunk->used != 0)
		return;
	device_release(chunk->device, CHUNK);
	(void)munmap(chunk->memory, CHUNK);
	chunk->memory = NULL;
}

static void *map_bytes(uint64_t bytes)
{
	void *at = mmap(NULL, up(bytes, 4096), PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	return at == MAP_FAILED ? NULL : at;
}

static int add_device_block(uint64_t *out, uint64_t bytes, enum kind kind, uint32_t context)
{
	uint32_t device = context_now()->device;
	struct block with = {.bytes = bytes, .device = device, .kind = kind, .context = context};

	if (bytes <= SMALL_MAX) {
		with.address = take_small(device, bytes, &with.chunk);
		if (with.address == 0)
			return CUDA_ERROR_OUT_OF_MEMORY;
	} else {
		with.charged = up(bytes, CHUNK);
		if (!device_charge(device, with.charged))
			return CUDA_ERROR_OUT_OF_MEMORY;
		with.address = (uint64_t)(uintptr_t)map_chunks(bytes);
	}
	(void)block_add(with);
	*out = with.address;
	return CUDA_SUCCESS;
}

static void end_block(struct block *b)
{
	if (b->charged != 0)
		device_release(b->device, b->charged);
	if (b->pool != NULL)
		b->pool->used -= up(b->bytes, UNIT);
	if (b->chunk != NULL)
		give_small(b->chunk, b->address, b->bytes);
	else if (b->kind != REGISTERED && b->kind != MAPPING && b->kind != RESERVED &&
		 b->kind != IN_GRAPH)
		(void)munmap((void *)(uintptr_t)b->address, up(b->bytes, 4096));
	block_remove(b);
}

void memory_drop(uint32_t context_uid)
{
	struct block *b, *next;

	(void)pthread_mutex_lock(&driver_lock);
	for (b = blocks; b != NULL; b = next) {
		next = b->next;
		if (b->context == context_uid)
			end_block(b);
	}
	(void)pthread_mutex_unlock(&driver_lock);
}

/* ---- device memory ---- */

static int alloc(uint64_t *out, uint64_t bytes, enum kind kind)
{
	struct context *context = context_now();
	int r = CUDA_ERROR_INVALID_VALUE;

	if (context == NULL)
		return CUDA_ERROR_INVALID_CONTEXT;
	(void)pthread_mutex_lock(&driver_lock);
	if (bytes != 0)
		r = add_device_block(out, bytes, kind, context->uid);
	(void)pthread_mutex_unlock(&driver_lock);
	return r;
}

static int end_at(uint64_t address, enum kind first, enum kind last)
{
	struct block *b;

	(void)pthread_mutex_lock(&driver_lock);
	b = block_find(address, first, last);
	if (b != NULL)
		end_block(b);
	(void)pthread_mutex_unlock(&driver_lock);
	return b == NULL ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

struct alloc {
	uint64_t *out;
	size_t bytes;
};

REPORTED(243, cuMemAlloc_v2, (uint64_t * out, size_t bytes), alloc(out, bytes, DEVICE), alloc, out,
	 bytes)

struct alloc_pitch {
	uint64_t *out;
	size_t *pitch, width, height;
	unsigned int element;
};

static int alloc_pitch(uint64_t *out, size_t *pitch, size_t width, size_t height)
{
	*pitch = up(width, UNIT);
	return alloc(out, *pitch * height, DEVICE);
}

REPORTED(244, cuMemAllocPitch_v2,
	 (uint64_t * out, size_t *pitch, size_t width, size_t height, unsigned int element),
	 alloc_pitch(out, pitch, width, height), alloc_pitch, out, pitch, width, height, element)

struct alloc_managed {
	uint64_t *out;
	size_t bytes;
	unsigned int flags;
};

REPORTED(371, cuMemAllocManaged, (uint64_t * out, size_t bytes, unsigned int flags),
	 alloc(out, bytes, DEVICE), alloc_managed, out, bytes, flags)

struct one_address {
	uint64_t address;
};

REPORTED(245, cuMemFree_v2, (uint64_t address),
	 address == 0 ? CUDA_SUCCESS : end_at(address, DEVICE, IN_GRAPH), one_address, address)

PLAIN(cuMemGetInfo_v2, (size_t * out_free, size_t *out_total))
{
	if (context_now() == NULL)
		return CUDA_ERROR_INVALID_CONTEXT;
	*out_free = device_free(context_now()->device);
	*out_total = device_total(context_now()->device);
	return CUDA_SUCCESS;
}

/* ---- pools ---- */

static struct pool *pool_new(uint32_t device)
{
	uint32_t i;

	for (i = 0; i < POOLS_MAX && pools[i].alive; i++)
		;
	if (i == POOLS_MAX)
		return NULL;
	pools[i] = (struct pool){.alive = true, .device = device};
	return &pools[i];
}

static struct pool *pool_default(uint32_t device)
{
	if (default_pools[device] == NULL)
		default_pools[device] = current_pools[device] = pool_new(device);
	return default_pools[device];
}

static int alloc_pooled(uint64_t *out, uint64_t bytes, struct pool *pool, void *stream)
{
	struct context *context = context_now();
	int r = CUDA_ERROR_OUT_OF_MEMORY;
	uint64_t need;

	if (context == NULL || bytes == 0)
		return context == NULL ? CUDA_ERROR_INVALID_CONTEXT : CUDA_ERROR_INVALID_VALUE;
	if (capture_memory(stream, out, bytes))
		return CUDA_SUCCESS;
	(void)pthread_mutex_lock(&driver_lock);
	if (pool == NULL) {
		(void)pool_default(context->device);
		pool = current_pools[context->device];
	}
	need = up(pool->used + up(bytes, UNIT), CHUNK);
	if (need <= pool->reserved || pool->device == HOST ||
	    device_charge(pool->device, need - pool->reserved)) {
		struct block with = {.bytes = bytes,
				     .device = pool->device,
				     .kind = POOLED,
				     .pool = pool,
				     .address = (uint64_t)(uintptr_t)map_bytes(bytes)};

		pool->reserved = need > pool->reserved ? need : pool->reserved;
		pool->used += up(bytes, UNIT);
		(void)block_add(with);
		*out = with.address;
		r = CUDA_SUCCESS;
	}
	(void)pthread_mutex_unlock(&driver_lock);
	return r;
}

struct alloc_async {
	uint64_t *out;
	size_t bytes;
	void *stream;
};

#define ALLOC_ASYNC(cbid, name)                                                                    \
	REPORTED(cbid, name, (uint64_t * out, size_t bytes, void *stream),                         \
		 alloc_pooled(out, bytes, NULL, stream), alloc_async, out, bytes, stream)
ALLOC_ASYNC(598, cuMemAllocAsync)
ALLOC_ASYNC(599, cuMemAllocAsync_ptsz)

struct alloc_from_pool {
	uint64_t *out;
	size_t bytes;
	void *pool, *stream;
};

#define ALLOC_FROM_POOL(cbid, name)                                                                \
	REPORTED(cbid, name, (uint64_t * out, size_t bytes, void *pool, void *stream),             \
		 alloc_pooled(out, bytes, pool, stream), alloc_from_pool, out, bytes, pool,        \
		 stream)
ALLOC_FROM_POOL(611, cuMemAllocFromPoolAsync)
ALLOC_FROM_POOL(612, cuMemAllocFromPoolAsync_ptsz)

struct free_async {
	uint64_t address;
	void *stream;
};

static int give_async(uint64_t address, void *stream)
{
	return capture_memory(stream, &address, 0) ? CUDA_SUCCESS
						   : end_at(address, DEVICE, IN_GRAPH);
}

#define FREE_ASYNC(cbid, name)                                                                     \
	REPORTED(cbid, name, (uint64_t address, void *stream), give_async(address, stream),        \
		 free_async, address, stream)
FREE_ASYNC(600, cuMemFreeAsync)
FREE_ASYNC(601, cuMemFreeAsync_ptsz)

struct pool_create {
	void **out;
	const void *properties;
};

struct pool_properties {
	uint32_t type, handles;
	struct location location;
};

static int pool_create(void **out, const struct pool_properties *properties)
{
	bool on_host = properties->location.type > 1;

	if (!on_host && (uint32_t)properties->location.id >= device_count())
		return CUDA_ERROR_INVALID_VALUE;
	(void)pthread_mutex_lock(&driver_lock);
	*out = pool_new(on_host ? HOST : (uint32_t)properties->location.id);
	(void)pthread_mutex_unlock(&driver_lock);
	return *out == NULL ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

REPORTED(607, cuMemPoolCreate, (void **out, const void *properties), pool_create(out, properties),
	 pool_create, out, properties)

struct pool_trim {
	void *pool;
	size_t keep;
};

/* With the lock held. */
static void pool_shrink(struct pool *pool, uint64_t keep)
{
	uint64_t least = up(pool->used, CHUNK);

	least = keep > least ? up(keep, CHUNK) : least;
	if (keep < pool->reserved && least < pool->reserved) {
		if (pool->device != HOST)
			device_release(pool->device, pool->reserved - least);
		pool->reserved = least;
	}
}

static int pool_trim(struct pool *pool, uint64_t keep)
{
	(void)pthread_mutex_lock(&driver_lock);
	pool_shrink(pool, keep);
	(void)pthread_mutex_unlock(&driver_lock);
	return CUDA_SUCCESS;
}

void memory_waited(void)
{
	uint32_t i;

	(void)pthread_mutex_lock(&driver_lock);
	for (i = 0; i < POOLS_MAX; i++) {
		if (pools[i].alive)
			pool_shrink(&pools[i], pools[i].threshold);
	}
	(void)pthread_mutex_unlock(&driver_lock);
}

REPORTED(602, cuMemPoolTrimTo, (void *pool, size_t keep), pool_trim(pool, keep), pool_trim, pool,
	 keep)

struct one_pool {
	void *pool;
};

static int pool_destroy(struct pool *pool)
{
	(void)pool_trim(pool, 0);
	(void)pthread_mutex_lock(&driver_lock);
	pool->alive = pool->used != 0;
	(void)pthread_mutex_unlock(&driver_lock);
	return CUDA_SUCCESS;
}

REPORTED(608, cuMemPoolDestroy, (void *pool), pool_destroy(pool), one_pool, pool)

struct get_pool {
	void **out;
	int device;
};

static int get_pool(void **out, int device, bool standard)
{
	if (device < 0 || (uint32_t)device >= device_count())
		return CUDA_ERROR_INVALID_DEVICE;
	(void)pthread_mutex_lock(&driver_lock);
	*out = pool_default((uint32_t)device);
	if (!standard)
		*out = current_pools[device];
	(void)pthread_mutex_unlock(&driver_lock);
	return CUDA_SUCCESS;
}

REPORTED(606, cuDeviceGetDefaultMemPool, (void **out, int device), get_pool(out, device, true),
	 get_pool, out, device)
REPORTED(610, cuDeviceGetMemPool, (void **out, int device), get_pool(out, device, false), get_pool,
	 out, device)

struct set_pool {
	int device;
	void *pool;
};

static int set_pool(int device, void *pool)
{
	(void)pool_default((uint32_t)device);
	current_pools[device] = pool;
	return CUDA_SUCCESS;
}

REPORTED(609, cuDeviceSetMemPool, (int device, void *pool), set_pool(device, pool), set_pool,
	 device, pool)

PLAIN(cuMemPoolGetAttribute, (void *pool, int attribute, void *out))
{
	const struct pool *p = pool;
	uint64_t value = 0;

	if (attribute == 4)
		value = p->threshold;
	else if (attribute == 5 || attribute == 6)
		value = p->reserved;
	else if (attribute == 7 || attribute == 8)
		value = p->used;
	memcpy(out, &value, sizeof(value));
	return CUDA_SUCCESS;
}

PLAIN(cuMemPoolSetAttribute, (void *pool, int attribute, void *value))
{
	if (attribute == 4)
		memcpy(&((struct pool *)pool)->threshold, value, sizeof(uint64_t));
	return CUDA_SUCCESS;
}

/* ---- memory of graphs ---- */

uint64_t graph_address(uint64_t bytes)
{
	return (uint64_t)(uintptr_t)map_bytes(bytes);
}

int graph_back(uint32_t device, uint64_t address, uint64_t bytes, bool on)
{
	struct pool *pool = &graph_pools[device];
	int r = CUDA_ERROR_OUT_OF_MEMORY;
	uint64_t need;

	if (!on)
		return end_at(address, IN_GRAPH, IN_GRAPH);
	(void)pthread_mutex_lock(&driver_lock);
	pool->device = device;
	need = up(pool->used + up(bytes, UNIT), CHUNK);
	if (block_find(address, IN_GRAPH, IN_GRAPH) != NULL) {
		r = CUDA_ERROR_INVALID_VALUE;
	} else if (need <= pool->reserved || device_charge(device, need - pool->reserved)) {
		pool->reserved = need > pool->reserved ? need : pool->reserved;
		pool->used += up(bytes, UNIT);
		(void)block_add((struct block){.address = address,
					       .bytes = bytes,
					       .device = device,
					       .kind = IN_GRAPH,
					       .pool = pool});
		r = CUDA_SUCCESS;
	}
	(void)pthread_mutex_unlock(&driver_lock);
	return r;
}

struct one_device {
	int device;
};

REPORTED(640, cuDeviceGraphMemTrim, (int device), pool_trim(&graph_pools[device], 0), one_device,
	 device)

PLAIN(cuDeviceGetGraphMemAttribute, (int device, int attribute, void *out))
{
	const struct pool *pool = &graph_pools[device];
	uint64_t value = attribute < 2 ? pool->used : pool->reserved;

	memcpy(out, &value, sizeof(value));
	return CUDA_SUCCESS;
}

/* ---- physical memory and its addresses ---- */

struct create {
	uint64_t *out;
	size_t bytes;
	const void *properties;
	unsigned long long flags;
};

static int create(uint64_t *out, size_t bytes, const struct pool_properties *properties)
{
	struct physical *physical;
	uint32_t device = properties->location.type == 1 ? (uint32_t)properties->location.id : HOST;
	bool room = true;

	if (bytes == 0 || bytes % CHUNK != 0 || (device != HOST && device >= device_count()))
		return CUDA_ERROR_INVALID_VALUE;
	(void)pthread_mutex_lock(&driver_lock);
	if (device != HOST)
		room = device_charge(device, bytes);
	(void)pthread_mutex_unlock(&driver_lock);
	if (!room)
		return CUDA_ERROR_OUT_OF_MEMORY;
	physical = malloc(sizeof(*physical));
	*physical = (struct physical){.bytes = bytes, .device = device, .handles = 1};
	*out = (uint64_t)(uintptr_t)physical;
	return CUDA_SUCCESS;
}

REPORTED(549, cuMemCreate,
	 (uint64_t * out, size_t bytes, const void *properties, unsigned long long flags),
	 create(out, bytes, properties), create, out, bytes, properties, flags)

/* With the lock held. */
static void physical_look(struct physical *physical)
{
	if (physical->handles != 0 || physical->mappings != 0)
		return;
	if (physical->device != HOST)
		device_release(physical->device, physical->bytes);
	free(physical);
}

static int release(uint64_t handle)
{
	struct physical *physical = (struct physical *)(uintptr_t)handle;

	if (physical == NULL || physical->handles == 0)
		return CUDA_ERROR_INVALID_VALUE;
	(void)pthread_mutex_lock(&driver_lock);
	physical->handles--;
	physical_look(physical);
	(void)pthread_mutex_unlock(&driver_lock);
	return CUDA_SUCCESS;
}

REPORTED(550, cuMemRelease, (uint64_t handle), release(handle), one_address, handle)

struct map {
	uint64_t address;
	size_t bytes, offset;
	uint64_t handle;
	unsigned long long flags;
};

static int map(uint64_t address, size_t bytes, uint64_t handle)
{
	struct physical *physical = (struct physical *)(uintptr_t)handle;

	if (bytes != physical->bytes ||
	    mprotect((void *)(uintptr_t)address, bytes, PROT_READ | PROT_WRITE) != 0)
		return CUDA_ERROR_INVALID_VALUE;
	(void)pthread_mutex_lock(&driver_lock);
	physical->mappings++;
	(void)block_add((struct block){
		.address = address, .bytes = bytes, .kind = MAPPING, .physical = physical});
	(void)pthread_mutex_unlock(&driver_lock);
	return CUDA_SUCCESS;
}

REPORTED(551, cuMemMap,
	 (uint64_t address, size_t bytes, size_t offset, uint64_t handle, unsigned long long flags),
	 map(address, bytes, handle), map, address, bytes, offset, handle, flags)

struct unmap {
	uint64_t address;
	size_t bytes;
};

/* Whole mappings only, one or several side by side. */
static int unmap(uint64_t address, size_t bytes)
{
	struct block *b, *next;
	uint64_t found = 0;

	(void)pthread_mutex_lock(&driver_lock);
	for (b = blocks; b != NULL; b = b->next) {
		if (b->kind == MAPPING && b->address >= address && b->address < address + bytes)
			found += b->bytes;
	}
	for (b = found == bytes ? blocks : NULL; b != NULL; b = next) {
		next = b->next;
		if (b->kind != MAPPING || b->address < address || b->address >= address + bytes)
			continue;
		(void)mmap((void *)(uintptr_t)b->address, b->bytes, PROT_NONE,
			   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
		b->physical->mappings--;
		physical_look(b->physical);
		block_remove(b);
	}
	(void)pthread_mutex_unlock(&driver_lock);
	return found == bytes ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

REPORTED(552, cuMemUnmap, (uint64_t address, size_t bytes), unmap(address, bytes), unmap, address,
	 bytes)

struct retain {
	uint64_t *out;
	void *address;
};

static int retain(uint64_t *out, void *address)
{
	uint64_t at = (uint64_t)(uintptr_t)address;
	struct block *b;

	(void)pthread_mutex_lock(&driver_lock);
	for (b = blocks; b != NULL; b = b->next) {
		if (b->kind == MAPPING && at >= b->address && at < b->address + b->bytes)
			break;
	}
	if (b != NULL) {
		b->physical->handles++;
		*out = (uint64_t)(uintptr_t)b->physical;
	}
	(void)pthread_mutex_unlock(&driver_lock);
	return b == NULL ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

REPORTED(565, cuMemRetainAllocationHandle, (uint64_t * out, void *address), retain(out, address),
	 retain, out, address)

PLAIN(cuMemGetAllocationGranularity, (size_t * out, const void *properties, int option))
{
	(void)properties;
	(void)option;
	*out = CHUNK;
	return CUDA_SUCCESS;
}

PLAIN(cuMemAddressReserve,
      (uint64_t * out, size_t bytes, size_t alignment, uint64_t wanted, unsigned long long flags))
{
	void *at = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	(void)alignment;
	(void)wanted;
	(void)flags;
	*out = (uint64_t)(uintptr_t)at;
	return at == MAP_FAILED ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

PLAIN(cuMemAddressFree, (uint64_t address, size_t bytes))
{
	return munmap((void *)(uintptr_t)address, bytes) == 0 ? CUDA_SUCCESS
							      : CUDA_ERROR_INVALID_VALUE;
}

PLAIN(cuMemSetAccess, (uint64_t address, size_t bytes, const void *access, size_t count))
{
	(void)address;
	(void)bytes;
	(void)access;
	(void)count;
	return CUDA_SUCCESS;
}

/* ---- arrays ---- */

struct array_2d {
	size_t width, height;
	uint32_t format, channels;
};

struct array_3d {
	size_t width, height, depth;
	uint32_t format, channels, flags;
};

struct array_create {
	void **out;
	const void *descriptor;
};

static uint64_t element_bytes(uint32_t format, uint32_t channels)
{
	uint32_t bytes = format == 1 || format == 8		      ? 1
			 : format == 2 || format == 9 || format == 16 ? 2
								      : 4;

	return (uint64_t)bytes * channels;
}

static uint64_t extent(size_t length)
{
	return length == 0 ? 1 : length;
}

static int array_create(void **out, uint64_t bytes)
{
	uint64_t address = 0;
	int r = alloc(&address, bytes, ARRAY);

	*out = (void *)(uintptr_t)address;
	return r;
}

static int array_2d(void **out, const struct array_2d *d)
{
	return array_create(out, extent(d->width) * extent(d->height) *
					 element_bytes(d->format, d->channels));
}

static int array_3d(void **out, const struct array_3d *d)
{
	if (d->flags & 0xc0) /* memory is mapped into it later */
		return array_create(out, 1);
	return array_create(out, extent(d->width) * extent(d->height) * extent(d->depth) *
					 element_bytes(d->format, d->channels));
}

REPORTED(272, cuArrayCreate_v2, (void **out, const void *descriptor), array_2d(out, descriptor),
	 array_create, out, descriptor)
REPORTED(274, cuArray3DCreate_v2, (void **out, const void *descriptor), array_3d(out, descriptor),
	 array_create, out, descriptor)

struct mipmapped {
	void **out;
	const void *descriptor;
	unsigned int levels;
};

static int mipmapped(void **out, const struct array_3d *d, unsigned int levels)
{
	uint64_t w = extent(d->width), h = extent(d->height), z = extent(d->depth), bytes = 0;
	unsigned int i;

	for (i = 0; i < levels; i++) {
		bytes += w * h * z * element_bytes(d->format, d->channels);
		w = extent(w / 2);
		h = extent(h / 2);
		z = extent(z / 2);
	}
	return array_create(out, bytes);
}

REPORTED(347, cuMipmappedArrayCreate, (void **out, const void *descriptor, unsigned int levels),
	 mipmapped(out, descriptor, levels), mipmapped, out, descriptor, levels)

struct one_handle {
	void *handle;
};

REPORTED(89, cuArrayDestroy, (void *handle), end_at((uint64_t)(uintptr_t)handle, ARRAY, ARRAY),
	 one_handle, handle)
REPORTED(349, cuMipmappedArrayDestroy, (void *handle),
	 end_at((uint64_t)(uintptr_t)handle, ARRAY, ARRAY), one_handle, handle)

/* ---- host memory ---- */

static int host(void **out, size_t bytes)
{
	struct context *context = context_now();
	int error;

	if (capture_breaks(&error))
		return error;
	if (context == NULL)
		return CUDA_ERROR_INVALID_CONTEXT;
	*out = map_bytes(bytes);
	(void)pthread_mutex_lock(&driver_lock);
	(void)block_add((struct block){.address = (uint64_t)(uintptr_t)*out,
				       .bytes = bytes,
				       .kind = HOST_PINNED,
				       .context = context->uid});
	(void)pthread_mutex_unlock(&driver_lock);
	return CUDA_SUCCESS;
}

struct host_alloc {
	void **out;
	size_t bytes;
	unsigned int flags;
};

struct alloc_host {
	void **out;
	size_t bytes;
};

REPORTED(294, cuMemAllocHost_v2, (void **out, size_t bytes), host(out, bytes), alloc_host, out,
	 bytes)
REPORTED(39, cuMemHostAlloc, (void **out, size_t bytes, unsigned int flags), host(out, bytes),
	 host_alloc, out, bytes, flags)
REPORTED(38, cuMemFreeHost, (void *at), end_at((uint64_t)(uintptr_t)at, HOST_PINNED, HOST_PINNED),
	 one_handle, at)

struct host_register {
	void *at;
	size_t bytes;
	unsigned int flags;
};

static int host_register(void *at, size_t bytes)
{
	int r = CUDA_ERROR_INVALID_VALUE;

	(void)pthread_mutex_lock(&driver_lock);
	if (at != NULL && block_find((uint64_t)(uintptr_t)at, REGISTERED, REGISTERED) == NULL) {
		(void)block_add((struct block){.address = (uint64_t)(uintptr_t)at,
					       .bytes = bytes,
					       .kind = REGISTERED,
					       .context = context_now()->uid});
		r = CUDA_SUCCESS;
	}
	(void)pthread_mutex_unlock(&driver_lock);
	return r;
}

REPORTED(379, cuMemHostRegister_v2, (void *at, size_t bytes, unsigned int flags),
	 host_register(at, bytes), host_register, at, bytes, flags)
REPORTED(302, cuMemHostUnregister, (void *at),
	 end_at((uint64_t)(uintptr_t)at, REGISTERED, REGISTERED), one_handle, at)

/* ---- copies and questions ---- */

/* Whether blocks have all of it. */
static bool is_there(uint64_t address, size_t bytes)
{
	uint64_t end = address + bytes;
	struct block *b;

	(void)pthread_mutex_lock(&driver_lock);
	for (b = blocks; b != NULL && address < end;) {
		if (b->kind != RESERVED && address >= b->address &&
		    address - b->address < b->bytes) {
			address = b->address + b->bytes;
			b = blocks;
		} else {
			b = b->next;
		}
	}
	(void)pthread_mutex_unlock(&driver_lock);
	return address >= end;
}

/* Waits for all streams: not while one is captured. */
PLAIN(cuMemcpyDtoH_v2, (void *out, uint64_t from, size_t bytes))
{
	int error;

	if (capture_breaks(&error))
		return error;
	if (!is_there(from, bytes))
		return CUDA_ERROR_INVALID_VALUE;
	memcpy(out, (const void *)(uintptr_t)from, bytes);
	return CUDA_SUCCESS;
}

PLAIN(cuMemcpyDtoHAsync_v2, (void *out, uint64_t from, size_t bytes, void *stream))
{
	if (stream == NULL)
		return cuMemcpyDtoH_v2(out, from, bytes);
	if (!is_there(from, bytes))
		return CUDA_ERROR_INVALID_VALUE;
	memcpy(out, (const void *)(uintptr_t)from, bytes);
	return CUDA_SUCCESS;
}

PLAIN(cuMemcpyHtoD_v2, (uint64_t to, const void *from, size_t bytes))
{
	memcpy((void *)(uintptr_t)to, from, bytes);
	return CUDA_SUCCESS;
}

PLAIN(cuMemsetD8_v2, (uint64_t to, unsigned char value, size_t bytes))
{
	memset((void *)(uintptr_t)to, value, bytes);
	return CUDA_SUCCESS;
}

static uint64_t attribute_of(const struct block *b, int attribute)
{
	switch (attribute) {
	case 1:
		return b->kind == DEVICE ? (uint64_t)(uintptr_t)context_of(b->context) : 0;
	case 2:
		return b->kind == HOST_PINNED || b->kind == REGISTERED ? 1 : 2;
	case 9:
		return b->physical != NULL ? b->physical->device : b->device;
	case 10:
		return b->kind == DEVICE;
	case 11:
		return b->address;
	case 12:
		return b->bytes;
	case 13:
		return b->kind != RESERVED;
	default:
		return 0;
	}
}

PLAIN(cuPointerGetAttribute, (void *out, int attribute, uint64_t address))
{
	static const size_t widths[] = {
		[1] = 8, [2] = 4, [8] = 4, [9] = 4, [10] = 4, [11] = 8, [12] = 8, [13] = 4};
	struct block *b;
	uint64_t value = 0;

	if (attribute < 0 || (size_t)attribute >= sizeof(widths) / sizeof(widths[0]))
		return CUDA_ERROR_INVALID_VALUE;
	(void)pthread_mutex_lock(&driver_lock);
	for (b = blocks; b != NULL; b = b->next) {
		if (address >= b->address && address - b->address < b->bytes)
			break;
	}
	if (b != NULL)
		value = attribute_of(b, attribute);
	(void)pthread_mutex_unlock(&driver_lock);
	if (b != NULL)
		memcpy(out, &value, widths[attribute]);
	return b == NULL ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}
