/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls of CUDA's driver. An allocation is recorded behind the call, a free before it, with an undo when it fails: so in the trace no
 * address is allocated again before it was freed. Handlers run inside a callback of CUPTI, on the thread of the call.
 *
 * The parameters are laid out as the call's own, one behind the other; see driver_calls.def.
 */
#include "collector/cuda/cuda.h"

#include <string.h>

#include "collector/record/refused.h"
#include "collector/watch/watch_dump.h"

#define CUDA_ERROR_OUT_OF_MEMORY 2
#define LOCATION_DEVICE		 1u
#define STREAM_UNKNOWN		 UINT32_MAX

void cuda_decode(uint64_t key, struct context *out)
{
	uint32_t device = (uint32_t)(key >> 40 & 0xffff);

	out->vendor = VENDOR_CUDA;
	out->pool = POOL_hal;
	out->kind = BLOCK_ALLOC;
	out->device = device == 0xffff ? DEVICE_UNKNOWN : device;
	out->module = MODULE_UNKNOWN;
	out->flags = key;
	switch (CUDA_FLAGS_MEMORY(key)) {
	case CUDA_MEMORY_PHYSICAL:
	case CUDA_MEMORY_ARRAY:
		out->kind = BLOCK_CREATE;
		break;
	case CUDA_MEMORY_REGISTERED:
		out->kind = BLOCK_REGISTER;
		out->pool = POOL_host_pinned;
		out->device = DEVICE_HOST;
		break;
	case CUDA_MEMORY_PHYSICAL_HOST:
		out->kind = BLOCK_CREATE;
		out->pool = POOL_host_pinned;
		out->device = DEVICE_HOST;
		break;
	case CUDA_MEMORY_PINNED:
		out->pool = POOL_host_pinned;
		out->device = DEVICE_HOST;
		break;
	default:
		break;
	}
}

/* ---- what all have in common ---- */

static uint32_t device_of(const struct driver_call *call)
{
	return cupti_device(call->data->context, call->data->context_number);
}

/* The word that lasts from before the call to behind it: what was recorded before it must be undone when it fails. */
#define KEPT_FREED 1u

static void take(const struct driver_call *call, enum cuda_memory memory, uint32_t device,
		 uint64_t address, uint64_t bytes, bool ends_with_context)
{
	uint64_t key = cuda_key(memory, device, ends_with_context ? call->data->context_number : 0);

	if (call->result == 0) {
		event_alloc_traced_slow(SOURCE_CUDA_BLOCK, key, cuda_decode, address, bytes,
					STACK_PAST_DRIVER);
		if (memory <= CUDA_MEMORY_MANAGED)
			watch_allocated(POOL_hal, address, bytes);
	} else if (call->result == CUDA_ERROR_OUT_OF_MEMORY) {
		event_oom_slow(SOURCE_CUDA_BLOCK, key, cuda_decode,
			       &(struct refusal){OOM_CUDA_DRIVER, bytes, 0, UINT64_MAX, UINT64_MAX},
			       STACK_PAST_DRIVER);
	}
}

/* Where the call stores its result. A call that failed has not stored anything. */
static uint64_t stored(const struct driver_call *call, const uint64_t *out)
{
	return call->result == 0 && out != NULL ? *out : 0;
}

static void give(const struct driver_call *call, enum cuda_memory memory, uint64_t address)
{
	uint64_t key = cuda_key(memory, DEVICE_UNKNOWN, 0);

	if (call->before) {
		if (address == 0)
			return;
		if (memory <= CUDA_MEMORY_MANAGED)
			watch_freed(POOL_hal, address, 0);
		event_free(SOURCE_CUDA_BLOCK, key, cuda_decode, address, STACK_PAST_DRIVER);
		*call->data->kept = KEPT_FREED;
	} else if (call->result != 0 && *call->data->kept == KEPT_FREED) {
		event_free_undo_slow(SOURCE_CUDA_BLOCK, key, cuda_decode, address);
	}
}

/* ---- device memory ---- */

static void take_device(const struct driver_call *call)
{
	const struct {
		uint64_t *out;
		size_t bytes;
	} *p = call->data->parameters;

	if (!call->before)
		take(call, CUDA_MEMORY_DEVICE, device_of(call), stored(call, p->out), p->bytes,
		     true);
}

static void take_pitch(const struct driver_call *call)
{
	const struct {
		uint64_t *out;
		size_t *pitch;
		size_t width;
		size_t height;
	} *p = call->data->parameters;

	if (!call->before)
		take(call, CUDA_MEMORY_PITCH, device_of(call), stored(call, p->out),
		     (call->result == 0 && p->pitch != NULL ? *p->pitch : p->width) * p->height,
		     true);
}

static void take_managed(const struct driver_call *call)
{
	const struct {
		uint64_t *out;
		size_t bytes;
	} *p = call->data->parameters;

	if (!call->before)
		take(call, CUDA_MEMORY_MANAGED, device_of(call), stored(call, p->out), p->bytes,
		     true);
}

static void give_device(const struct driver_call *call)
{
	const struct {
		uint64_t address;
	} *p = call->data->parameters;

	give(call, CUDA_MEMORY_DEVICE, p->address);
}

/* ---- stream-ordered memory ---- */

#define POOLS 256u

/* On which device the memory of a pool lies. Entries are only added; a pool that gets an old one's address gets its entry. */
static struct pool_device {
	_Atomic(void *) pool;
	_Atomic uint32_t device;
} pool_devices[POOLS];

static struct pool_device *pool_entry(void *pool, bool add)
{
	uint32_t home = (uint32_t)((uintptr_t)pool >> 4) * UINT32_C(2654435761) % POOLS, i;

	for (i = 0; i < POOLS; i++) {
		struct pool_device *entry = &pool_devices[(home + i) % POOLS];
		void *there = atomic_load_explicit(&entry->pool, memory_order_acquire);

		if (there == NULL && add &&
		    atomic_compare_exchange_strong(&entry->pool, &there, pool))
			return entry;
		if (there == pool)
			return entry;
		if (there == NULL)
			return NULL;
	}
	return NULL;
}

static void pool_is_on(void *pool, uint32_t device)
{
	struct pool_device *entry = pool == NULL ? NULL : pool_entry(pool, true);

	if (entry != NULL)
		atomic_store(&entry->device, device + 1);
}

void driver_calls_reset(void)
{
	memset(pool_devices, 0, sizeof(pool_devices));
}

static void take_pool_of_device(const struct driver_call *call)
{
	const struct {
		void **out;
		int device;
	} *p = call->data->parameters;

	if (!call->before && call->result == 0 && p->out != NULL && p->device >= 0)
		pool_is_on(*p->out, cuda_physical_device((uint32_t)p->device));
}

/* CUmemAllocationProp and CUmemPoolProps begin alike. */
struct memory_properties {
	uint32_t type;
	uint32_t handle_types;
	uint32_t location;
	int32_t location_id;
};

static void take_pool(const struct driver_call *call)
{
	const struct {
		void **out;
		const struct memory_properties *properties;
	} *p = call->data->parameters;

	if (!call->before && call->result == 0 && p->out != NULL && p->properties != NULL &&
	    p->properties->location == LOCATION_DEVICE && p->properties->location_id >= 0)
		pool_is_on(*p->out, cuda_physical_device((uint32_t)p->properties->location_id));
}

static void take_async(const struct driver_call *call)
{
	const struct {
		uint64_t *out;
		size_t bytes;
	} *p = call->data->parameters;

	if (!call->before)
		take(call, CUDA_MEMORY_ASYNC, device_of(call), stored(call, p->out), p->bytes,
		     false);
}

static void take_from_pool(const struct driver_call *call)
{
	const struct {
		uint64_t *out;
		size_t bytes;
		void *pool;
	} *p = call->data->parameters;
	const struct pool_device *entry;
	uint32_t device;

	if (call->before)
		return;
	entry = p->pool == NULL ? NULL : pool_entry(p->pool, false);
	device = entry == NULL ? 0 : atomic_load(&entry->device);
	take(call, CUDA_MEMORY_ASYNC, device == 0 ? device_of(call) : device - 1,
	     stored(call, p->out), p->bytes, false);
}

/* ---- arrays ---- */

struct array_2d {
	size_t width;
	size_t height;
	uint32_t format;
	uint32_t channels;
};

struct array_3d {
	size_t width;
	size_t height;
	size_t depth;
	uint32_t format;
	uint32_t channels;
	uint32_t flags;
};

/* Of the formats that are a number for each channel; others are counted as one byte: the driver alone knows. */
static uint64_t element_bytes(uint32_t format, uint32_t channels)
{
	switch (format) {
	case 0x02: /* uint16 */
	case 0x09: /* int16 */
	case 0x10: /* half */
		return 2 * (uint64_t)channels;
	case 0x03: /* uint32 */
	case 0x0a: /* int32 */
	case 0x20: /* float */
		return 4 * (uint64_t)channels;
	default:
		return channels == 0 ? 1 : channels;
	}
}

static size_t extent(size_t length)
{
	return length == 0 ? 1 : length;
}

static uint64_t array_bytes(const struct array_3d *d, uint32_t levels)
{
	size_t width, height, depth;
	uint64_t bytes = 0;
	uint32_t i;

	if (d == NULL)
		return 0;
	width = extent(d->width);
	height = extent(d->height);
	depth = extent(d->depth);
	for (i = 0; i < levels && i < 32; i++) {
		bytes += (uint64_t)width * height * depth * element_bytes(d->format, d->channels);
		width = extent(width / 2);
		height = extent(height / 2);
		depth = extent(depth / 2);
	}
	return bytes;
}

static void take_array(const struct driver_call *call)
{
	const struct {
		uint64_t *out;
		const struct array_2d *descriptor;
	} *p = call->data->parameters;
	struct array_3d whole = {0};

	if (call->before || p->descriptor == NULL)
		return;
	whole.width = p->descriptor->width;
	whole.height = p->descriptor->height;
	whole.format = p->descriptor->format;
	whole.channels = p->descriptor->channels;
	take(call, CUDA_MEMORY_ARRAY, device_of(call), stored(call, p->out), array_bytes(&whole, 1),
	     true);
}

static void take_array_3d(const struct driver_call *call)
{
	const struct {
		uint64_t *out;
		const struct array_3d *descriptor;
	} *p = call->data->parameters;

	if (!call->before)
		take(call, CUDA_MEMORY_ARRAY, device_of(call), stored(call, p->out),
		     array_bytes(p->descriptor, 1), true);
}

static void take_mipmapped(const struct driver_call *call)
{
	const struct {
		uint64_t *out;
		const struct array_3d *descriptor;
		uint32_t levels;
	} *p = call->data->parameters;

	if (!call->before)
		take(call, CUDA_MEMORY_ARRAY, device_of(call), stored(call, p->out),
		     array_bytes(p->descriptor, p->levels), true);
}

static void give_array(const struct driver_call *call)
{
	const struct {
		uint64_t handle;
	} *p = call->data->parameters;

	give(call, CUDA_MEMORY_ARRAY, p->handle);
}

/* ---- host memory ---- */

static void take_host(const struct driver_call *call)
{
	const struct {
		uint64_t *out;
		size_t bytes;
	} *p = call->data->parameters;

	if (!call->before)
		take(call, CUDA_MEMORY_PINNED, DEVICE_UNKNOWN, stored(call, p->out), p->bytes,
		     true);
}

static void give_host(const struct driver_call *call)
{
	const struct {
		uint64_t address;
	} *p = call->data->parameters;

	give(call, CUDA_MEMORY_PINNED, p->address);
}

static void take_registered(const struct driver_call *call)
{
	const struct {
		uint64_t address;
		size_t bytes;
	} *p = call->data->parameters;

	if (!call->before && call->result == 0)
		take(call, CUDA_MEMORY_REGISTERED, DEVICE_UNKNOWN, p->address, p->bytes, true);
}

static void give_registered(const struct driver_call *call)
{
	const struct {
		uint64_t address;
	} *p = call->data->parameters;

	give(call, CUDA_MEMORY_REGISTERED, p->address);
}

/* ---- physical memory ---- */

static void take_physical(const struct driver_call *call)
{
	const struct {
		uint64_t *out;
		size_t bytes;
		const struct memory_properties *properties;
	} *p = call->data->parameters;
	enum cuda_memory memory = CUDA_MEMORY_PHYSICAL;
	uint32_t device = DEVICE_UNKNOWN;

	if (call->before || p->properties == NULL)
		return;
	if (p->properties->location != LOCATION_DEVICE)
		memory = CUDA_MEMORY_PHYSICAL_HOST;
	else if (p->properties->location_id >= 0)
		device = cuda_physical_device((uint32_t)p->properties->location_id);
	if (call->result != 0)
		take(call, memory, device, 0, p->bytes, false);
	else
		physical_created(stored(call, p->out), p->bytes, cuda_key(memory, device, 0));
}

static void take_retained(const struct driver_call *call)
{
	const struct {
		uint64_t *out;
	} *p = call->data->parameters;

	if (!call->before && call->result == 0)
		physical_retained(stored(call, p->out));
}

static void give_physical(const struct driver_call *call)
{
	const struct {
		uint64_t handle;
	} *p = call->data->parameters;

	physical_released(call, p->handle);
}

static void take_mapping(const struct driver_call *call)
{
	const struct {
		uint64_t address;
		size_t bytes;
		size_t offset;
		uint64_t handle;
	} *p = call->data->parameters;

	if (!call->before && call->result == 0)
		physical_mapped(p->address, p->bytes, p->handle);
}

static void give_mapping(const struct driver_call *call)
{
	const struct {
		uint64_t address;
		size_t bytes;
	} *p = call->data->parameters;

	physical_unmapped(call, p->address, p->bytes);
}

/* ---- launches ---- */

/* CUDA numbers neither streams nor launches by small numbers; what CUPTI counts tells launches apart. */
static void event_launch(const struct driver_call *call, const char *name)
{
	struct event_kernel_launch event = {.stream = STREAM_UNKNOWN,
					    .task = call->data->correlation};
	struct writer *w;
	uint32_t context, device;

	activity_launched(call->data->correlation);
	if (call->before || call->result != 0)
		return;
	device = device_of(call);
	w = writer_enter_on();
	if (w == NULL)
		return;
	context = writer_device(w, device_key(VENDOR_CUDA, device));
	event.name = writer_text(w, name);
	WRITER_PUT(w, kernel_launch, context, &event);
	writer_leave(w);
}

static void take_launch(const struct driver_call *call)
{
	event_launch(call, call->data->symbol != NULL ? call->data->symbol : "kernel");
}

static void take_graph_launch(const struct driver_call *call)
{
	event_launch(call, "cuGraphLaunch");
}

/* ---- the table ---- */

const struct driver_call_row driver_call_rows[] = {
#define CALL(number_, name_, handler_) {.number = number_, .name = #name_, .handler = handler_},
#define LAUNCH(number_, name_, handler_)                                                           \
	{.number = number_, .name = #name_, .handler = handler_, .launch = true},
#include "collector/cuda/driver_calls.def"
#undef CALL
#undef LAUNCH
};

const uint32_t driver_call_count = MSCOPE_COUNT(driver_call_rows);
