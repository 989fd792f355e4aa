/* SPDX-License-Identifier: Apache-2.0 */
/*
 * client_workspace [--threads=N] [--rounds=N] [--streams=N] [--nested] [--old-loader]: scratch memory for operators as
 * torch_npu's workspace allocator keeps it. Each stream has one block, which only grows, in steps of 2 MiB: a larger one
 * replaces it. Each thread has a device of its own, as torch_npu has one thread per device that runs operators.
 *
 * The heap is set to all it has reserved when a block comes or goes. The region that it registers for each operator has the
 * address of the block and the size of everything handed out at that moment; the same address comes again and again. --nested
 * asks a second time before the first is given back: the second unregistration is then of an address that is known no more.
 */
#include "client_torch.h"

#define BLOCK_ROUND (2 * MIB)
#define PADDING	    32
#define STREAMS_MAX 16
#define DEVICES_MAX 8

/* One device, of one thread. */
struct device {
	pthread_t thread;
	unsigned number;
	struct log *log;
	uint64_t reserved;
	uint64_t allocated;
	uint64_t allocated_last;	     /* what the next free takes from `allocated` */
	struct segment *last;		     /* the block that the next free is of */
	struct segment streams[STREAMS_MAX]; /* size 0: none yet */
	/* What a tool knows by the rules of this pool: the region last registered, 0 for none, and the bytes in use. */
	uint64_t region_id;
	uint64_t region_size;
	uint64_t used;
};

static unsigned rounds_count;
static unsigned streams_count;
static bool is_nested;

static void release(struct device *device, struct segment *block)
{
	segment_free(device->log, block);
	device->reserved -= block->size;
	torch_set_heap(device->number, block->address, device->reserved);
}

static void allocate(struct device *device, unsigned stream, uint64_t size)
{
	struct segment *block = &device->streams[stream];
	uint64_t needed = size + PADDING;

	if (block->size < needed) {
		if (block->size > 0)
			release(device, block);
		*block = segment_alloc(device->log,
				       (needed + BLOCK_ROUND - 1) / BLOCK_ROUND * BLOCK_ROUND,
				       device->number);
		device->reserved += block->size;
		torch_set_heap(device->number, block->address, device->reserved);
	}
	device->last = block;
	device->allocated_last = block->size;
	device->allocated += block->size;
	if (!torch.is_open)
		return;
	torch_register(device->number, block->address, device->allocated);
	device->region_id = device->log->next_id++;
	device->region_size = device->allocated;
	device->used = device->allocated;
	log_register(device->log, device->region_id, "PTA_WORKSPACE", block->address,
		     device->allocated, device->number, device->used, device->reserved);
}

static void give_back(struct device *device)
{
	device->allocated -= device->allocated_last;
	if (!torch.is_open)
		return;
	torch_unregister(device->last->address);
	device->used -= device->region_size;
	device->region_size = 0;
	log_unregister(device->log, device->region_id, device->used, device->reserved);
}

/* The driver gets every block back. */
static void empty_cache(struct device *device)
{
	for (unsigned i = 0; i < streams_count; i++) {
		if (device->streams[i].size > 0)
			release(device, &device->streams[i]);
		device->streams[i].size = 0;
	}
}

static void *work(void *argument)
{
	struct device *device = argument;
	uint64_t seed = 88172645463325252ull + device->number;

	device->log = log_new();
	for (unsigned round = 0; round < rounds_count; round++) {
		unsigned stream = (unsigned)(target_random(&seed) % streams_count);
		uint64_t size = target_random(&seed) % ((round / 8 + 1) * MIB);

		allocate(device, stream, size);
		if (is_nested) {
			allocate(device, stream, size);
			give_back(device);
		}
		give_back(device);
		if (round % 50 == 49)
			empty_cache(device);
	}
	/* An operator that never comes back. */
	allocate(device, 0, 1);
	return NULL;
}

int main(int argc, char **argv)
{
	unsigned threads_count = option_number(argc, argv, "--threads", 1);
	struct device *devices = calloc(DEVICES_MAX, sizeof(*devices));

	rounds_count = option_number(argc, argv, "--rounds", 200);
	streams_count = option_number(argc, argv, "--streams", 2);
	is_nested = option_set(argc, argv, "--nested");
	target_check(threads_count >= 1 && threads_count <= DEVICES_MAX, "--threads is 1 to 8");
	target_check(streams_count >= 1 && streams_count <= STREAMS_MAX, "--streams is 1 to 16");
	target_check(devices != NULL, "no memory");
	torch_open("ptaWorkspace", option_set(argc, argv, "--old-loader"));
	for (unsigned i = 0; i < threads_count; i++) {
		devices[i].number = i;
		target_check(pthread_create(&devices[i].thread, NULL, work, &devices[i]) == 0,
			     "pthread_create failed");
	}
	for (unsigned i = 0; i < threads_count; i++)
		pthread_join(devices[i].thread, NULL);
	log_write("workspace", torch.is_open);
	return 0;
}
