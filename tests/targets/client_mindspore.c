/* SPDX-License-Identifier: Apache-2.0 */
/*
 * client_mindspore [--threads=N] [--rounds=N] [--devices=N]: a pool that reports as MindSpore's: the region first and the
 * heap after it, so the total that belongs to a region is the one from the step before. It takes its blocks of 1 GiB from the
 * driver and hands out pieces of 512 bytes upwards, the first place that fits.
 *
 * It asks for the functions by the full path of the library and reports only when all of them are there and its domain is not
 * NULL; that handle it keeps.
 */
#include "client.h"

#define MSTX_NO_IMPL
#include "mstx/ms_tools_ext.h"

#define BLOCK_BYTES ((uint64_t)1 << 30)
#define PIECE_MIN   512
#define DEVICES_MAX 8
#define LIVE_MAX    32

/* What is handed out of the block, by address. */
struct piece {
	uint64_t id;
	uint64_t address;
	uint64_t size;
	struct piece *next;
};

struct device {
	unsigned number;
	struct segment block;
	uint64_t used;
	uint64_t heap_told; /* what was last said of the heap */
	struct piece *pieces;
};

static struct {
	mstxDomainHandle_t (*domain_create)(const char *);
	mstxMemHeapHandle_t (*heap_register)(mstxDomainHandle_t, const mstxMemHeapDesc_t *);
	void (*regions_register)(mstxDomainHandle_t, const mstxMemRegionsRegisterBatch_t *);
	void (*regions_unregister)(mstxDomainHandle_t, const mstxMemRegionsUnregisterBatch_t *);
} mstx;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* the pool's */
static struct device devices[DEVICES_MAX];
static unsigned devices_count;
static unsigned rounds_count;
static mstxDomainHandle_t domain;
static bool is_open;

static bool find_mstx(void)
{
	static const char *const needed[] = {
		"mstxMarkA",
		"mstxRangeStartA",
		"mstxRangeEnd",
		"mstxDomainCreateA",
		"mstxDomainDestroy",
		"mstxDomainMarkA",
		"mstxDomainRangeStartA",
		"mstxDomainRangeEnd",
		"mstxMemHeapRegister",
		"mstxMemRegionsRegister",
		"mstxMemRegionsUnregister",
	};
	char path[PATH_MAX];
	void *library;

	if (!gate_is_open() || !mstx_path(path))
		return false;
	library = dlopen(path, RTLD_LAZY);
	if (library == NULL)
		return false;
	for (size_t i = 0; i < sizeof(needed) / sizeof(needed[0]); i++) {
		if (dlsym(library, needed[i]) == NULL)
			return false;
	}
	*(void **)&mstx.domain_create = dlsym(library, "mstxDomainCreateA");
	*(void **)&mstx.heap_register = dlsym(library, "mstxMemHeapRegister");
	*(void **)&mstx.regions_register = dlsym(library, "mstxMemRegionsRegister");
	*(void **)&mstx.regions_unregister = dlsym(library, "mstxMemRegionsUnregister");
	return true;
}

/* Whether there is a domain to report to; a NULL one is asked for again. */
static bool has_domain(void)
{
	if (is_open && domain == NULL)
		domain = mstx.domain_create("mindsporeMemPool");
	return domain != NULL;
}

static void tell_heap(struct device *device, uint64_t address)
{
	mstxMemVirtualRangeDesc_t range = {device->number, (void *)(uintptr_t)address,
					   device->block.size};
	mstxMemHeapDesc_t heap;

	fill_with_garbage(&heap, sizeof(heap));
	heap.typeSpecificDesc = &range;
	(void)mstx.heap_register(domain, &heap);
	device->heap_told = device->block.size;
}

static void report_malloc(struct log *log, struct device *device, const struct piece *piece)
{
	mstxMemVirtualRangeDesc_t range = {device->number, (void *)(uintptr_t)piece->address,
					   piece->size};
	mstxMemRegionsRegisterBatch_t batch;

	if (!has_domain())
		return;
	fill_with_garbage(&batch, sizeof(batch));
	batch.regionCount = 1;
	batch.regionDescArray = &range;
	mstx.regions_register(domain, &batch);
	/* What it has reserved is told behind the region, and was so before. */
	log_register(log, piece->id, "MINDSPORE", piece->address, piece->size, device->number,
		     device->used, device->block.size);
	tell_heap(device, piece->address);
}

static void report_free(struct log *log, struct device *device, const struct piece *piece)
{
	mstxMemRegionRef_t reference = {MSTX_MEM_REGION_REF_TYPE_POINTER,
					{(void *)(uintptr_t)piece->address}};
	mstxMemRegionsUnregisterBatch_t batch = {1, &reference};

	if (!has_domain())
		return;
	mstx.regions_unregister(domain, &batch);
	log_unregister(log, piece->id, device->used, device->heap_told);
	tell_heap(device, piece->address);
}

static struct piece *allocate(struct log *log, struct device *device, uint64_t request)
{
	uint64_t size = (request + PIECE_MIN - 1) & ~(uint64_t)(PIECE_MIN - 1);
	struct piece **link = &device->pieces;
	struct piece *piece = calloc(1, sizeof(*piece));
	uint64_t address;

	target_check(piece != NULL, "no memory");
	pthread_mutex_lock(&lock);
	if (device->block.size == 0)
		device->block = segment_alloc(log, BLOCK_BYTES, device->number);
	address = device->block.address;
	while (*link != NULL && (*link)->address - address < size) {
		address = (*link)->address + (*link)->size;
		link = &(*link)->next;
	}
	target_check(address + size <= device->block.address + BLOCK_BYTES, "the block is full");
	*piece = (struct piece){log->next_id++, address, size, *link};
	*link = piece;
	device->used += size;
	report_malloc(log, device, piece);
	pthread_mutex_unlock(&lock);
	return piece;
}

static void give_back(struct log *log, struct device *device, struct piece *piece)
{
	struct piece **link = &device->pieces;

	pthread_mutex_lock(&lock);
	while (*link != piece)
		link = &(*link)->next;
	*link = piece->next;
	device->used -= piece->size;
	report_free(log, device, piece);
	pthread_mutex_unlock(&lock);
	free(piece);
}

static void *work(void *argument)
{
	uint64_t seed = 88172645463325252ull + (uint64_t)(uintptr_t)argument;
	struct piece *live[LIVE_MAX] = {NULL};
	struct device *places[LIVE_MAX] = {NULL};
	struct log *log = log_new();

	for (unsigned round = 0; round < rounds_count; round++) {
		unsigned slot = (unsigned)(target_random(&seed) % LIVE_MAX);

		if (live[slot] != NULL) {
			give_back(log, places[slot], live[slot]);
			live[slot] = NULL;
		} else {
			places[slot] = &devices[target_random(&seed) % devices_count];
			live[slot] = allocate(log, places[slot], target_random_size(&seed));
		}
	}
	return NULL;
}

int main(int argc, char **argv)
{
	unsigned threads_count = option_number(argc, argv, "--threads", 1);
	pthread_t *threads = calloc(threads_count, sizeof(*threads));

	rounds_count = option_number(argc, argv, "--rounds", 500);
	devices_count = option_number(argc, argv, "--devices", 1);
	target_check(devices_count >= 1 && devices_count <= DEVICES_MAX, "--devices is 1 to 8");
	target_check(threads != NULL, "no memory");
	is_open = find_mstx();
	for (unsigned i = 0; i < devices_count; i++)
		devices[i].number = i;
	for (unsigned i = 0; i < threads_count; i++)
		target_check(pthread_create(&threads[i], NULL, work, (void *)(uintptr_t)i) == 0,
			     "pthread_create failed");
	for (unsigned i = 0; i < threads_count; i++)
		pthread_join(threads[i], NULL);
	log_write("mindspore", domain != NULL);
	return 0;
}
