/* SPDX-License-Identifier: Apache-2.0 */
/*
 * client_atb [--threads=N] [--rounds=N] [--devices=N] [--no-device]: operations with a workspace that report as those of ATB,
 * which carries the mstx header itself and asks nobody whether a tool is there.
 *
 * An operation registers its workspace as a heap, each of its kernels some regions of it, which it unregisters by the handles
 * it got, and then the heap. Each thread has one workspace at a time, and a new one for the second half of its operations. A heap that gets no handle ends all reports of that thread. Operations of several threads on one
 * device overlap, so heaps and regions add up. --no-device is a thread without one: its heap has device 0xffffffff, and there
 * are no regions.
 */
#include "client.h"

#include "mstx/ms_tools_ext.h"

#define WORKSPACE_BYTES (8 * MIB)
#define DEVICES_MAX	8
#define REGIONS_MAX	6
#define KERNELS_MAX	5
#define NO_DEVICE	UINT32_MAX

/* What a tool knows of a device by the rules of this pool. Guarded by the lock. */
struct device {
	uint64_t used;
	uint64_t total;
};

/*
 * ATB has no lock here. The log needs one so that the sums after each call are known; it is held for one call only, never for
 * an operation.
 */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct device devices[DEVICES_MAX];
static unsigned devices_count;
static unsigned rounds_count;
static bool has_device;
static atomic_bool was_heard;

static mstxDomainHandle_t get_domain(void)
{
	static pthread_mutex_t once = PTHREAD_MUTEX_INITIALIZER;
	static mstxDomainHandle_t domain;
	static bool is_created;

	pthread_mutex_lock(&once);
	if (!is_created)
		domain = mstxDomainCreateA("atb");
	is_created = true;
	pthread_mutex_unlock(&once);
	return domain;
}

static mstxMemHeapHandle_t register_heap(unsigned device, const struct segment *workspace)
{
	mstxMemVirtualRangeDesc_t range = {has_device ? device : NO_DEVICE,
					   (void *)(uintptr_t)workspace->address, workspace->size};
	mstxMemHeapDesc_t desc = {MSTX_MEM_HEAP_USAGE_TYPE_SUB_ALLOCATOR,
				  MSTX_MEM_TYPE_VIRTUAL_ADDRESS, &range};
	mstxMemHeapHandle_t heap;

	pthread_mutex_lock(&lock);
	heap = mstxMemHeapRegister(get_domain(), &desc);
	if (heap != NULL) {
		devices[device].total += workspace->size;
		was_heard = true;
	}
	pthread_mutex_unlock(&lock);
	return heap;
}

static void unregister_heap(unsigned device, const struct segment *workspace,
			    mstxMemHeapHandle_t heap)
{
	pthread_mutex_lock(&lock);
	mstxMemHeapUnregister(get_domain(), heap);
	devices[device].total -= workspace->size;
	pthread_mutex_unlock(&lock);
}

struct regions {
	size_t count;
	mstxMemVirtualRangeDesc_t ranges[REGIONS_MAX];
	mstxMemRegionHandle_t handles[REGIONS_MAX];
	uint64_t ids[REGIONS_MAX];
};

static void register_regions(struct log *log, unsigned device, mstxMemHeapHandle_t heap,
			     struct regions *regions)
{
	mstxMemRegionsRegisterBatch_t batch = {heap, MSTX_MEM_TYPE_VIRTUAL_ADDRESS, regions->count,
					       regions->ranges, regions->handles};

	pthread_mutex_lock(&lock);
	mstxMemRegionsRegister(get_domain(), &batch);
	for (size_t i = 0; i < regions->count; i++) {
		regions->ids[i] = log->next_id++;
		devices[device].used += regions->ranges[i].size;
		log_register(log, regions->ids[i], "ATB",
			     (uint64_t)(uintptr_t)regions->ranges[i].ptr, regions->ranges[i].size,
			     device, devices[device].used, devices[device].total);
	}
	pthread_mutex_unlock(&lock);
}

static void unregister_regions(struct log *log, unsigned device, const struct regions *regions)
{
	mstxMemRegionRef_t references[REGIONS_MAX] = {{0}};
	mstxMemRegionsUnregisterBatch_t batch = {regions->count, references};

	for (size_t i = 0; i < regions->count; i++) {
		target_check(regions->handles[i] != NULL, "a region got no handle");
		references[i].refType = MSTX_MEM_REGION_REF_TYPE_HANDLE;
		references[i].handle = regions->handles[i];
	}
	pthread_mutex_lock(&lock);
	mstxMemRegionsUnregister(get_domain(), &batch);
	for (size_t i = 0; i < regions->count; i++) {
		devices[device].used -= regions->ranges[i].size;
		log_unregister(log, regions->ids[i], devices[device].used, devices[device].total);
	}
	pthread_mutex_unlock(&lock);
}

/* The buffer of the workspace that a kernel uses, and tensors behind it, each aligned up. */
static void choose_regions(uint64_t *seed, unsigned device, const struct segment *workspace,
			   struct regions *regions)
{
	uint64_t address = workspace->address;

	*regions = (struct regions){.count = 1 + target_random(seed) % REGIONS_MAX};
	for (size_t i = 0; i < regions->count; i++) {
		uint64_t size = (1 + target_random(seed) % MIB + 511) & ~(uint64_t)511;

		regions->ranges[i] =
			(mstxMemVirtualRangeDesc_t){device, (void *)(uintptr_t)address, size};
		address += size;
	}
}

static void execute(struct log *log, uint64_t *seed, unsigned device,
		    const struct segment *workspace)
{
	static _Thread_local bool is_disabled;
	uint64_t kernels = 1 + target_random(seed) % KERNELS_MAX;
	mstxMemHeapHandle_t heap;
	struct regions regions;

	if (is_disabled)
		return;
	heap = register_heap(device, workspace);
	is_disabled = heap == NULL;
	if (is_disabled)
		return;
	for (uint64_t i = 0; i < kernels && has_device; i++) {
		choose_regions(seed, device, workspace, &regions);
		register_regions(log, device, heap, &regions);
		unregister_regions(log, device, &regions);
	}
	unregister_heap(device, workspace, heap);
}

static void *work(void *argument)
{
	unsigned number = (unsigned)(uintptr_t)argument;
	unsigned device = number % devices_count;
	uint64_t seed = 88172645463325252ull + number;
	struct log *log = log_new();
	struct segment workspace = segment_alloc(log, WORKSPACE_BYTES, device);

	for (unsigned round = 0; round < rounds_count; round++) {
		if (round > 0 && round == rounds_count / 2) {
			segment_free(log, &workspace);
			workspace = segment_alloc(log, WORKSPACE_BYTES, device);
		}
		execute(log, &seed, device, &workspace);
	}
	segment_free(log, &workspace);
	return NULL;
}

int main(int argc, char **argv)
{
	unsigned threads_count = option_number(argc, argv, "--threads", 1);
	pthread_t *threads = calloc(threads_count, sizeof(*threads));

	rounds_count = option_number(argc, argv, "--rounds", 100);
	devices_count = option_number(argc, argv, "--devices", 1);
	has_device = !option_set(argc, argv, "--no-device");
	target_check(devices_count >= 1 && devices_count <= DEVICES_MAX, "--devices is 1 to 8");
	target_check(threads != NULL, "no memory");
	for (unsigned i = 0; i < threads_count; i++)
		target_check(pthread_create(&threads[i], NULL, work, (void *)(uintptr_t)i) == 0,
			     "pthread_create failed");
	for (unsigned i = 0; i < threads_count; i++)
		pthread_join(threads[i], NULL);
	log_write("atb", was_heard);
	return 0;
}
