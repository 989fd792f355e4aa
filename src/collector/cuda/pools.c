/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the driver keeps for itself in pools: those of stream-ordered memory keep what the program frees, up to a threshold and until it
 * waits for the device, and each device has one for the memory nodes of graphs, which keeps all until it is trimmed. No call tells
 * how much that is, so the driver is asked behind calls that can change it: an allocation of a pool, waiting, trimming, a launch of a
 * graph in a process that has made memory nodes. When it has changed, a record driver_kept says so.
 *
 * The driver is asked on the thread that made the call, with no lock of ours held. Threads that come at the same time may tell an older
 * sum; whoever did tells again.
 *
 * Memory of nodes is no block: a capture turns cuMemAllocAsync() into a node, and its address has memory while the graph runs.
 */
#include "collector/cuda/cuda.h"

#include <string.h>

#define POOLS	512u
#define DEVICES 64u

#define POOL_RESERVED  5
#define POOL_USED      7
#define GRAPH_RESERVED 2

#define STREAM_PER_THREAD ((void *)2)

/* Entries are only added; a pool that gets an old one's address gets its entry. */
static struct driver_pool {
	_Atomic(void *) handle;
	_Atomic uint32_t
		device; /* as the machine numbers it, or DEVICE_HOST, and 1 more; 0: not known */
	_Atomic uint64_t reserved;
} pools[POOLS];

/* By the machine's numbers. */
static struct pool_device {
	_Atomic(void *) current; /* the pool of cuMemAllocAsync(); NULL: to be asked for */
	_Atomic uint32_t
		nodes; /* the program's number and 1 more, where graphs have memory; 0: none */
	_Atomic uint64_t graphs;
	_Atomic uint64_t told_pools, told_graphs;
} devices[DEVICES];

static _Atomic uint32_t any_pool, any_node;

static struct lookup_function pool_attribute = {.name = "cuMemPoolGetAttribute"};
static struct lookup_function graph_attribute = {.name = "cuDeviceGetGraphMemAttribute"};
static struct lookup_function current_pool = {.name = "cuDeviceGetMemPool"};
static struct lookup_function is_capturing = {.name = "cuStreamIsCapturing"};

static struct driver_pool *entry_of(void *handle, bool add)
{
	uint32_t home = (uint32_t)((uintptr_t)handle >> 4) * UINT32_C(2654435761) % POOLS, i;

	for (i = 0; handle != NULL && i < POOLS; i++) {
		struct driver_pool *entry = &pools[(home + i) % POOLS];
		void *there = atomic_load_explicit(&entry->handle, memory_order_acquire);

		if (there == NULL && add &&
		    atomic_compare_exchange_strong(&entry->handle, &there, handle))
			return entry;
		if (there == handle)
			return entry;
		if (there == NULL)
			return NULL;
	}
	return NULL;
}

/* ---- what is told ---- */

static uint64_t reserved_on(uint32_t device)
{
	uint64_t sum = 0;
	uint32_t i;

	for (i = 0; i < POOLS; i++) {
		if (atomic_load(&pools[i].device) == device + 1)
			sum += atomic_load(&pools[i].reserved);
	}
	return sum;
}

static void event_kept(uint32_t device, uint64_t in_pools, uint64_t in_graphs)
{
	struct event_driver_kept event = {
		.device = device, .pools_bytes = in_pools, .graphs_bytes = in_graphs};
	struct writer *w = writer_enter();

	if (w == NULL)
		return;
	WRITER_PUT(w, driver_kept, writer_device(w, device_key(VENDOR_CUDA, device)), &event);
	writer_leave(w);
}

static void tell(uint32_t device)
{
	struct pool_device *of = &devices[device];
	uint64_t in_pools, in_graphs;

	for (;;) {
		in_pools = reserved_on(device);
		in_graphs = atomic_load(&of->graphs);
		if (atomic_exchange(&of->told_pools, in_pools) == in_pools &&
		    atomic_exchange(&of->told_graphs, in_graphs) == in_graphs)
			return;
		atomic_store(&of->told_graphs, in_graphs);
		event_kept(device, in_pools, in_graphs);
	}
}

/* ---- pools ---- */

static bool ask_pool(struct driver_pool *entry, int attribute, uint64_t *out)
{
	int (*ask)(void *, int, void *) =
		(int (*)(void *, int, void *))lookup_function(&pool_attribute);

	return ask != NULL && ask(atomic_load(&entry->handle), attribute, out) == 0;
}

static void look_at(struct driver_pool *entry)
{
	uint32_t device = atomic_load(&entry->device);
	uint64_t reserved = 0;

	if (device == 0 || device > DEVICES || !ask_pool(entry, POOL_RESERVED, &reserved))
		return;
	atomic_store(&any_pool, 1);
	if (atomic_exchange(&entry->reserved, reserved) != reserved)
		tell(device - 1);
}

void pool_is_on(void *handle, uint32_t device)
{
	struct driver_pool *entry = entry_of(handle, true);

	if (entry != NULL)
		atomic_store(&entry->device, device + 1);
}

bool pool_device(void *handle, uint32_t *out)
{
	const struct driver_pool *entry = entry_of(handle, false);
	uint32_t device = entry == NULL ? 0 : atomic_load(&entry->device);

	*out = device - 1;
	return device != 0;
}

void pool_touched(void *handle)
{
	struct driver_pool *entry = entry_of(handle, false);

	if (entry != NULL)
		look_at(entry);
}

void pool_of_device_set(uint32_t device, void *handle)
{
	if (device < DEVICES)
		atomic_store(&devices[device].current, handle);
	pool_is_on(handle, device);
}

void pool_of_device_touched(uint32_t device)
{
	int (*ask)(void **, int) = (int (*)(void **, int))lookup_function(&current_pool);
	void *handle;
	uint32_t here;

	if (device >= DEVICES)
		return;
	handle = atomic_load(&devices[device].current);
	if (handle == NULL) {
		here = cuda_device_here();
		if (ask == NULL || here == DEVICE_UNKNOWN || ask(&handle, (int)here) != 0)
			return;
		pool_of_device_set(cuda_physical_device(here), handle);
	}
	pool_touched(handle);
}

/* What lives in it keeps its memory, and nobody can be asked any more. */
void pool_ends(void *handle)
{
	struct driver_pool *entry = entry_of(handle, false);
	uint64_t used = 0;
	uint32_t device, i;

	if (entry == NULL || !ask_pool(entry, POOL_USED, &used))
		return;
	device = atomic_load(&entry->device);
	for (i = 0; i < DEVICES; i++) {
		if (atomic_load(&devices[i].current) == handle)
			atomic_store(&devices[i].current, NULL);
	}
	if (device != 0 && device <= DEVICES && atomic_exchange(&entry->reserved, used) != used)
		tell(device - 1);
}

void pools_waited(void)
{
	uint32_t i;

	if (MSCOPE_LIKELY(atomic_load_explicit(&any_pool, memory_order_relaxed) == 0))
		return;
	for (i = 0; i < POOLS; i++) {
		if (atomic_load(&pools[i].reserved) != 0)
			look_at(&pools[i]);
	}
}

/* ---- graphs ---- */

bool pool_is_captured(const struct driver_call *call, void *stream)
{
	int (*ask)(void *, int *) = (int (*)(void *, int *))lookup_function(&is_capturing);
	const char *function = call->data->function;
	int status = 0;

	if (stream == NULL && function != NULL && strstr(function, "_ptsz") != NULL)
		stream = STREAM_PER_THREAD;
	return stream != NULL && ask != NULL && ask(stream, &status) == 0 && status != 0;
}

void graph_has_memory(uint32_t device, uint64_t address)
{
	uint32_t number = cuda_physical_device(device);

	physical_add_other(address, 0);
	if (number >= DEVICES)
		return;
	atomic_store(&devices[number].nodes, device + 1);
	atomic_store(&any_node, 1);
}

void graphs_changed(void)
{
	int (*ask)(int, int, void *) = (int (*)(int, int, void *))lookup_function(&graph_attribute);
	uint32_t i;

	if (MSCOPE_LIKELY(atomic_load_explicit(&any_node, memory_order_relaxed) == 0) ||
	    ask == NULL)
		return;
	for (i = 0; i < DEVICES; i++) {
		uint32_t device = atomic_load(&devices[i].nodes);
		uint64_t reserved = 0;

		if (device != 0 && ask((int)device - 1, GRAPH_RESERVED, &reserved) == 0 &&
		    atomic_exchange(&devices[i].graphs, reserved) != reserved)
			tell(i);
	}
}

void pools_reset(void)
{
	memset(pools, 0, sizeof(pools));
	memset(devices, 0, sizeof(devices));
	atomic_store(&any_pool, 0);
	atomic_store(&any_node, 0);
	lookup_forget(&pool_attribute);
	lookup_forget(&graph_attribute);
	lookup_forget(&current_pool);
	lookup_forget(&is_capturing);
}
