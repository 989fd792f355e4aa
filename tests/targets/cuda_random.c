/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuda_random SEED THREADS OPERATIONS [keep]: threads that take and give back all kinds of memory of CUDA's driver, in random order, on
 * all devices, and tell what they did. About a tenth is never given back; with `keep` the program then waits to be killed.
 */
#include "cuda_driver.h"

#define BLOCKS_MAX 64

enum kind {
	DEVICE,
	PITCH,
	MANAGED,
	ASYNC,
	POOLED,
	PHYSICAL,
	ARRAY,
	ARRAY_3D,
	MIPMAPPED,
	PINNED,
	HOST_ALLOC,
	REGISTERED,
	KINDS
};

struct block {
	enum kind kind;
	uint64_t address; /* or handle */
	uint64_t mapped, bytes;
	int device;
	void *memory;
	bool released;
};

struct thread {
	pthread_t id;
	uint64_t random;
	int operations;
	cu_handle pools[CUDA_DEVICES_MAX];
	struct block blocks[BLOCKS_MAX];
	int count;
};

static uint64_t next(struct thread *t)
{
	t->random ^= t->random << 13;
	t->random ^= t->random >> 7;
	t->random ^= t->random << 17;
	return t->random;
}

static uint64_t size_of(struct thread *t)
{
	static const uint64_t scales[] = {200, 5000, 70000, 3000000};

	return next(t) % scales[next(t) % 4] + 1;
}

/* ---- taking ---- */

static struct cu_array_3d shape_of(struct thread *t)
{
	static const uint32_t formats[] = {1, 2, 3, 8, 9, 10, 16, 32};

	return (struct cu_array_3d){.width = next(t) % 60 + 8,
				    .height = next(t) % 60 + 1,
				    .depth = next(t) % 8 + 1,
				    .format = formats[next(t) % 8],
				    .channels = 1u << next(t) % 3};
}

static uint64_t shape_bytes(const struct cu_array_3d *s, unsigned int levels)
{
	uint64_t w = s->width, h = s->height, d = s->depth == 0 ? 1 : s->depth, sum = 0;
	uint64_t element = s->format == 1 || s->format == 8			  ? 1
			   : s->format == 3 || s->format == 10 || s->format == 32 ? 4
										  : 2;
	unsigned int i;

	for (i = 0; i < levels; i++) {
		sum += w * h * d * element * s->channels;
		w = w / 2 == 0 ? 1 : w / 2;
		h = h / 2 == 0 ? 1 : h / 2;
		d = d / 2 == 0 ? 1 : d / 2;
	}
	return sum;
}

static void take_array(struct thread *t, struct block *b)
{
	struct cu_array_3d shape = shape_of(t);
	cu_handle handle = NULL;
	unsigned int levels = (unsigned int)(next(t) % 3 + 1);

	if (b->kind == ARRAY) {
		struct cu_array_2d flat = {shape.width, shape.height, shape.format, shape.channels};

		shape.depth = 0;
		levels = 1;
		CUDA(cuArrayCreate(&handle, &flat));
	} else if (b->kind == ARRAY_3D) {
		levels = 1;
		CUDA(cuArray3DCreate(&handle, &shape));
	} else {
		CUDA(cuMipmappedArrayCreate(&handle, &shape, levels));
	}
	b->address = (uint64_t)(uintptr_t)handle;
	b->bytes = shape_bytes(&shape, levels);
	cuda_took(b->address, b->bytes, b->device, "HAL");
}

/* As PyTorch's expandable segments, or with the handle given back as soon as it is mapped. */
static void take_physical(struct thread *t, struct block *b)
{
	struct cu_properties properties = {.type = 1, .location = {1, b->device}};
	struct cu_access access = {{1, b->device}, 3};
	cu_address again;

	b->bytes = (next(t) % 4 + 1) * (2u << 20);
	CUDA(cuMemCreate(&b->address, b->bytes, &properties, 0));
	cuda_took(b->address, b->bytes, b->device, "HAL");
	if (next(t) % 4 == 0)
		return; /* never mapped */
	CUDA(cuMemAddressReserve(&b->mapped, b->bytes, 0, 0, 0));
	CUDA(cuMemMap(b->mapped, b->bytes, 0, b->address, 0));
	CUDA(cuMemSetAccess(b->mapped, b->bytes, &access, 1));
	if (next(t) % 3 == 0) {
		CUDA(cuMemRetainAllocationHandle(&again, (void *)(uintptr_t)b->mapped));
		CUDA(cuMemRelease(again));
	}
	if (next(t) % 2 == 0) {
		CUDA(cuMemRelease(b->address));
		b->released = true;
	}
}

static void take_host(struct block *b)
{
	if (b->kind == PINNED) {
		CUDA(cuMemAllocHost(&b->memory, b->bytes));
	} else if (b->kind == HOST_ALLOC) {
		CUDA(cuMemHostAlloc(&b->memory, b->bytes, 0));
	} else {
		b->bytes = (b->bytes + 4095) / 4096 * 4096;
		b->memory = aligned_alloc(4096, b->bytes);
		CUDA(cuMemHostRegister(b->memory, b->bytes, 0));
	}
	b->address = (uint64_t)(uintptr_t)b->memory;
	cuda_took(b->address, b->bytes, -1, "HOST_PINNED");
}

static void take_device(struct thread *t, struct block *b)
{
	size_t pitch = 0, height = next(t) % 30 + 1;

	if (b->kind == DEVICE) {
		CUDA(cuMemAlloc(&b->address, b->bytes));
	} else if (b->kind == PITCH) {
		CUDA(cuMemAllocPitch(&b->address, &pitch, next(t) % 3000 + 1, height, 4));
		b->bytes = pitch * height;
	} else if (b->kind == MANAGED) {
		CUDA(cuMemAllocManaged(&b->address, b->bytes, 1));
	} else if (b->kind == ASYNC) {
		CUDA(cuMemAllocAsync(&b->address, b->bytes, NULL));
	} else {
		/* A pool of any device, whatever device is current. */
		b->device = (int)(next(t) % (uint64_t)cuda_devices);
		CUDA(cuMemAllocFromPoolAsync(&b->address, b->bytes, t->pools[b->device], NULL));
	}
	cuda_took(b->address, b->bytes, b->device, "HAL");
}

static void take(struct thread *t)
{
	struct block *b = &t->blocks[t->count++];

	*b = (struct block){.kind = (enum kind)(next(t) % KINDS),
			    .bytes = size_of(t),
			    .device = (int)(next(t) % (uint64_t)cuda_devices)};
	CUDA(cuCtxSetCurrent(cuda_contexts[b->device]));
	if (b->kind == PHYSICAL)
		take_physical(t, b);
	else if (b->kind >= ARRAY && b->kind <= MIPMAPPED)
		take_array(t, b);
	else if (b->kind >= PINNED)
		take_host(b);
	else
		take_device(t, b);
}

/* ---- giving back ---- */

static void give_physical(struct thread *t, struct block *b)
{
	bool release_first = !b->released && next(t) % 2 == 0;

	if (b->mapped == 0 || !release_first || b->released) {
		if (b->mapped != 0) {
			if (b->released)
				cuda_gives(b->address);
			CUDA(cuMemUnmap(b->mapped, b->bytes));
		}
		if (!b->released) {
			cuda_gives(b->address);
			CUDA(cuMemRelease(b->address));
		}
	} else {
		CUDA(cuMemRelease(b->address));
		cuda_gives(b->address);
		CUDA(cuMemUnmap(b->mapped, b->bytes));
	}
	if (b->mapped != 0)
		CUDA(cuMemAddressFree(b->mapped, b->bytes));
}

static void give(struct thread *t, int at)
{
	struct block block = t->blocks[at], *b = &block;

	t->blocks[at] = t->blocks[--t->count];
	CUDA(cuCtxSetCurrent(cuda_contexts[b->device]));
	if (b->kind == PHYSICAL) {
		give_physical(t, b);
		return;
	}
	/* A free that fails: the block lives on. */
	if (next(t) % 16 == 0 && b->kind <= POOLED && cuda.cuMemFree(b->address + 1) == 0)
		cuda_fail("a free in the middle of a block", 0);
	cuda_gives(b->address);
	if (b->kind <= MANAGED)
		CUDA(cuMemFree(b->address));
	else if (b->kind <= POOLED)
		CUDA(cuMemFreeAsync(b->address, NULL));
	else if (b->kind == MIPMAPPED)
		CUDA(cuMipmappedArrayDestroy((cu_handle)(uintptr_t)b->address));
	else if (b->kind <= ARRAY_3D)
		CUDA(cuArrayDestroy((cu_handle)(uintptr_t)b->address));
	else if (b->kind <= HOST_ALLOC)
		CUDA(cuMemFreeHost(b->memory));
	else
		CUDA(cuMemHostUnregister(b->memory));
	if (b->kind == REGISTERED)
		free(b->memory);
}

static void *work(void *arg)
{
	struct thread *t = arg;
	int i;

	for (i = 0; i < cuda_devices; i++) {
		struct cu_pool_properties properties = {.type = 1, .location = {1, i}};

		CUDA(cuMemPoolCreate(&t->pools[i], &properties));
	}
	for (i = 0; i < t->operations; i++) {
		if (t->count == 0 || (t->count < BLOCKS_MAX && next(t) % 5 < 3))
			take(t);
		else
			give(t, (int)(next(t) % (uint64_t)t->count));
	}
	while (t->count > 6)
		give(t, (int)(next(t) % (uint64_t)t->count));
	return NULL;
}

int main(int argc, char **argv)
{
	static struct thread threads[32];
	uint64_t seed = strtoull(argv[1], NULL, 10);
	int count = atoi(argv[2]), i;

	cuda_begin();
	for (i = 0; i < count; i++) {
		threads[i].random = (seed * 977 + (uint64_t)i + 1) * UINT64_C(0x9e3779b97f4a7c15);
		threads[i].operations = atoi(argv[3]);
		(void)pthread_create(&threads[i].id, NULL, work, &threads[i]);
	}
	for (i = 0; i < count; i++)
		(void)pthread_join(threads[i].id, NULL);
	cuda_tell();
	if (argc > 4) {
		(void)printf("ready\n");
		(void)fflush(stdout);
		for (;;)
			(void)pause();
	}
	return 0;
}
