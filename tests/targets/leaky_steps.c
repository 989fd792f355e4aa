/* SPDX-License-Identifier: Apache-2.0 */
/*
 * leaky_steps [--steps=N] [--leaks=N] [--no-steps] [--no-leaks] [--killed]: a training that leaks known blocks in known steps.
 *
 * Devices 0 and 1 have a pool of PyTorch, device 0 also one of MindSpore and of ATB; device 2 has none and is used as C
 * programs use it. Every step has ranges and marks inside, launches as many kernels as its number, takes blocks and frees them,
 * frees what the step before the last one left, and leaves a block to the step after the next. It leaks:
 *
 *     every step       --leaks blocks (1) of PyTorch on device 0
 *     step 3           one of ATB, one of MindSpore on device 0, one of PyTorch on device 1
 *     step 4           one of the driver on device 2
 *     the last         one more of PyTorch on device 1
 *
 * Weights are taken before the first step, one on each device, and stay; so do what steps 1 takes. Blocks are also taken and
 * left behind between steps 2 and 3 and after the last one. --killed ends by SIGKILL inside a step that has just begun.
 *
 * The truth is that of client.h, of one thread, with ["launch",0,device,stream,name]: who counts ranges named "step start" and
 * launches from its beginning knows the step and the kernel of each block.
 */
#include "client.h"

#include <signal.h>

#include "acl/acl.h"
#include "mstx/ms_tools_ext.h"
#include "runtime/rt.h"
#include "simnpu.h"

#define KIB	      1024
#define DEVICES	      3
#define POOL_BYTES    (256 * MIB)
#define CARRIED_STEPS 2

#define DO(call) target_check((call) == 0, #call " failed")

struct pool {
	const char *name; /* in the truth */
	const char *domain;
	bool by_handle;
	unsigned device;
	mstxDomainHandle_t handle;
	mstxMemHeapHandle_t heap;
	struct segment memory;
	uint64_t taken; /* from the start of its memory; nothing is used again */
	uint64_t used;
};

struct piece {
	struct pool *pool;
	uint64_t id;
	uint64_t address;
	uint64_t size;
	mstxMemRegionHandle_t handle;
};

enum { PTA_0, PTA_1, MINDSPORE_0, ATB_0, POOLS };

static struct pool pools[POOLS] = {
	{.name = "PTA", .domain = "ptaCaching", .device = 0},
	{.name = "PTA", .domain = "ptaCaching", .device = 1},
	{.name = "MINDSPORE", .domain = "mindsporeMemPool", .device = 0},
	{.name = "ATB", .domain = "atb", .by_handle = true, .device = 0},
};

static struct log *truth;
static void *kernel;
static aclrtStream stream;
static uint64_t stream_number;

static void pool_open(struct pool *pool)
{
	mstxMemVirtualRangeDesc_t range;
	mstxMemHeapDesc_t heap;

	pool->memory = segment_alloc(truth, POOL_BYTES, pool->device);
	pool->handle = mstxDomainCreateA(pool->domain);
	range = (mstxMemVirtualRangeDesc_t){pool->device, (void *)(uintptr_t)pool->memory.address,
					    pool->memory.size};
	fill_with_garbage(&heap, sizeof(heap));
	heap.usage = MSTX_MEM_HEAP_USAGE_TYPE_SUB_ALLOCATOR;
	heap.type = MSTX_MEM_TYPE_VIRTUAL_ADDRESS;
	heap.typeSpecificDesc = &range;
	pool->heap = mstxMemHeapRegister(pool->handle, &heap);
}

static struct piece take(struct pool *pool, uint64_t size)
{
	struct piece piece = {.pool = pool, .id = truth->next_id++, .size = size};
	mstxMemVirtualRangeDesc_t range;
	mstxMemRegionsRegisterBatch_t batch;

	piece.address = pool->memory.address + pool->taken;
	pool->taken += (size + 511) & ~(uint64_t)511;
	target_check(pool->taken <= POOL_BYTES, "the pool is used up");
	range = (mstxMemVirtualRangeDesc_t){pool->device, (void *)(uintptr_t)piece.address, size};
	batch = (mstxMemRegionsRegisterBatch_t){pool->heap, MSTX_MEM_TYPE_VIRTUAL_ADDRESS, 1,
						&range, &piece.handle};
	mstxMemRegionsRegister(pool->handle, &batch);
	pool->used += size;
	log_register(truth, piece.id, pool->name, piece.address, size, pool->device, pool->used,
		     POOL_BYTES);
	return piece;
}

static void give_back(const struct piece *piece)
{
	mstxMemRegionRef_t reference = {MSTX_MEM_REGION_REF_TYPE_POINTER,
					{(void *)(uintptr_t)piece->address}};
	mstxMemRegionsUnregisterBatch_t batch = {1, &reference};

	if (piece->pool->by_handle) {
		reference.refType = MSTX_MEM_REGION_REF_TYPE_HANDLE;
		reference.handle = piece->handle;
	}
	mstxMemRegionsUnregister(piece->pool->handle, &batch);
	piece->pool->used -= piece->size;
	log_unregister(truth, piece->id, piece->pool->used, POOL_BYTES);
}

static void add_nothing(void *arguments, size_t size, uint32_t blocks)
{
	(void)arguments;
	(void)size;
	(void)blocks;
}

static void launch(void)
{
	uint64_t argument = 0;

	DO(aclrtLaunchKernel(kernel, 1, &argument, sizeof(argument), stream));
	log_begin(truth, "launch", 0);
	log_number(truth, 0);
	log_number(truth, stream_number);
	log_string(truth, "Nothing_k1");
	log_end(truth);
}

static uint64_t range_begin(const char *message)
{
	uint64_t range = mstxRangeStartA(message, NULL);

	log_begin(truth, "range_start", range);
	log_string(truth, NULL);
	log_string(truth, message);
	log_end(truth);
	return range;
}

static void range_end(uint64_t range)
{
	mstxRangeEnd(range);
	log_begin(truth, "range_end", range);
	log_string(truth, NULL);
	log_end(truth);
}

/* Each leak comes from a function of its own: that is what a report has to name. */
void forget_each_step(uint64_t size);
void forget_once(struct pool *pool);
void forget_driver_memory(void);

void forget_each_step(uint64_t size)
{
	(void)take(&pools[PTA_0], size);
}

void forget_once(struct pool *pool)
{
	(void)take(pool, 96 * KIB + 1);
}

void forget_driver_memory(void)
{
	(void)segment_alloc(truth, 3 * MIB, 2);
}

static void forward(unsigned step)
{
	uint64_t range = range_begin("forward");
	struct piece activation = take(&pools[PTA_0], (step % 3 + 1) * MIB);
	struct piece other = take(&pools[PTA_1], 256 * KIB * (step % 2 + 1));
	struct segment scratch = segment_alloc(truth, 2 * MIB, 2);

	for (unsigned i = 0; i < step; i++)
		launch();
	range_end(range);
	segment_free(truth, &scratch);
	give_back(&other);
	give_back(&activation);
}

int main(int argc, char **argv)
{
	unsigned steps = option_number(argc, argv, "--steps", 6);
	unsigned leaks = option_number(argc, argv, "--leaks", 1);
	bool has_steps = !option_set(argc, argv, "--no-steps");
	bool has_leaks = !option_set(argc, argv, "--no-leaks");
	bool is_killed = option_set(argc, argv, "--killed");
	struct piece carried[CARRIED_STEPS] = {{0}};
	int32_t number;

	truth = log_new();
	DO(aclInit(NULL));
	log_begin(truth, "acl", 0);
	log_string(truth, "init");
	log_end(truth);
	DO(aclrtSetDevice(0));
	DO(aclrtCreateStream(&stream));
	DO(aclrtStreamGetId(stream, &number));
	stream_number = (uint64_t)number;
	DO(simnpuRegisterKernel("Nothing_k1", add_nothing, &kernel));
	for (unsigned i = 0; i < POOLS; i++)
		pool_open(&pools[i]);
	(void)take(&pools[PTA_0], 8 * MIB);
	(void)take(&pools[PTA_1], 4 * MIB);
	(void)segment_alloc(truth, 5 * MIB, 2);
	for (unsigned step = 1; step <= steps; step++) {
		struct piece *slot = &carried[step % CARRIED_STEPS];
		uint64_t range = has_steps ? range_begin("step start") : 0;

		if (slot->id != 0)
			give_back(slot);
		*slot = take(&pools[PTA_0], 64 * KIB);
		forward(step);
		for (unsigned i = 0; has_leaks && i < leaks; i++)
			forget_each_step(16 * KIB + 512);
		if (has_leaks && step == 3) {
			forget_once(&pools[ATB_0]);
			forget_once(&pools[MINDSPORE_0]);
			forget_once(&pools[PTA_1]);
		}
		if (has_leaks && step == 4)
			forget_driver_memory();
		if (has_leaks && step == steps)
			forget_once(&pools[PTA_1]);
		if (has_steps)
			range_end(range);
		if (has_leaks && step == 2)
			(void)take(&pools[PTA_1], 2000);
	}
	if (is_killed) {
		(void)range_begin("step start");
		forget_each_step(1234);
		log_write("leaky", true);
		(void)raise(SIGKILL);
	}
	for (unsigned i = 0; i < CARRIED_STEPS; i++) {
		if (carried[i].id != 0)
			give_back(&carried[i]);
	}
	log_write("leaky", true);
	return 0;
}
