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
		physical_drop_other(address);
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

/* Of calls with these two parameters. */
static void take_bytes(const struct driver_call *call, enum cuda_memory memory, uint32_t device)
{
	const struct {
		uint64_t *out;
		size_t bytes;
	} *p = call->data->parameters;

	take(call, memory, device, stored(call, p->out), p->bytes, true);
}

/* The first parameter: an address or a handle, or where the result goes. */
static uint64_t first_of(const struct driver_call *call)
{
	return *(const uint64_t *)call->data->parameters;
}

static const uint64_t *first_out(const struct driver_call *call)
{
	return *(const uint64_t *const *)call->data->parameters;
}

static void give(const struct driver_call *call, enum cuda_memory memory, uint64_t address)
{
	uint64_t key;

	memory = physical_other(address, memory);
	key = cuda_key(memory, DEVICE_UNKNOWN, 0);
	if (call->before) {
		if (address == 0 || memory == 0)
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
	if (!call->before)
		take_bytes(call, CUDA_MEMORY_DEVICE, device_of(call));
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
	if (!call->before)
		take_bytes(call, CUDA_MEMORY_MANAGED, device_of(call));
}

static void give_device(const struct driver_call *call)
{
	give(call, CUDA_MEMORY_DEVICE, first_of(call));
}

/* ---- stream-ordered memory ---- */

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

/* Where memory lies; DEVICE_UNKNOWN: it moves. */
static uint32_t place_device(uint32_t type, int32_t number)
{
	if (type == LOCATION_DEVICE && number >= 0)
		return cuda_physical_device((uint32_t)number);
	return type > LOCATION_DEVICE ? DEVICE_HOST : DEVICE_UNKNOWN;
}

static void take_pool(const struct driver_call *call)
{
	const struct {
		void **out;
		const struct memory_properties *properties;
	} *p = call->data->parameters;

	if (!call->before && call->result == 0 && p->out != NULL && p->properties != NULL)
		pool_is_on(*p->out,
			   place_device(p->properties->location, p->properties->location_id));
}

static void take_pool_of_place(const struct driver_call *call)
{
	const struct {
		void **out;
		const struct {
			uint32_t type;
			int32_t number;
		} * place;
	} *p = call->data->parameters;

	if (!call->before && call->result == 0 && p->out != NULL && p->place != NULL)
		pool_is_on(*p->out, place_device(p->place->type, p->place->number));
}

static void take_pool_set(const struct driver_call *call)
{
	const struct {
		int device;
		void *pool;
	} *p = call->data->parameters;

	if (!call->before && call->result == 0 && p->device >= 0)
		pool_of_device_set(cuda_physical_device((uint32_t)p->device), p->pool);
}

static void take_trimmed(const struct driver_call *call)
{
	if (!call->before)
		pool_touched((void *)(uintptr_t)first_of(call));
}

static void give_pool(const struct driver_call *call)
{
	if (call->before)
		pool_ends((void *)(uintptr_t)first_of(call));
}

static void take_waited(const struct driver_call *call)
{
	if (!call->before)
		pools_waited();
}

/* A block of a pool, or a node of the graph that is being captured. */
static bool take_pooled(const struct driver_call *call, uint32_t device, const uint64_t *out,
			size_t bytes, void *stream)
{
	if (call->result == 0 && pool_is_captured(call, stream)) {
		graph_has_memory(cuda_device_here(), stored(call, out));
		return false;
	}
	if (device == DEVICE_HOST) {
		take(call, CUDA_MEMORY_PINNED, DEVICE_UNKNOWN, stored(call, out), bytes, false);
		physical_add_other(stored(call, out), CUDA_MEMORY_PINNED);
		return false;
	}
	take(call, CUDA_MEMORY_ASYNC, device, stored(call, out), bytes, false);
	return true;
}

static void take_async(const struct driver_call *call)
{
	const struct {
		uint64_t *out;
		size_t bytes;
		void *stream;
	} *p = call->data->parameters;
	uint32_t device;

	if (call->before)
		return;
	device = device_of(call);
	if (take_pooled(call, device, p->out, p->bytes, p->stream))
		pool_of_device_touched(device);
}

static void take_from_pool(const struct driver_call *call)
{
	const struct {
		uint64_t *out;
		size_t bytes;
		void *pool;
		void *stream;
	} *p = call->data->parameters;
	uint32_t device;

	if (call->before)
		return;
	if (!pool_device(p->pool, &device))
		device = device_of(call);
	if (take_pooled(call, device, p->out, p->bytes, p->stream))
		pool_touched(p->pool);
}

/* Memory of another process, which counts it. */
static void take_imported(const struct driver_call *call)
{
	if (!call->before)
		physical_add_other(stored(call, first_out(call)), 0);
}

/* ---- memory of graphs ---- */

/* Of calls that add a node to a graph; what `node` is differs. */
struct add_node {
	void **out;
	void *graph;
	const void *dependencies;
	size_t count;
	const void *node;
};

/* CUDA_MEM_ALLOC_NODE_PARAMS. */
struct alloc_node {
	struct memory_properties properties;
	uint64_t more[9];
	const void *access;
	size_t access_count;
	size_t bytes;
	uint64_t address;
};

_Static_assert(offsetof(struct alloc_node, address) == 112, "the driver's layout");

static void take_alloc_node(const struct driver_call *call)
{
	const struct add_node *p = call->data->parameters;
	const struct alloc_node *node = p->node;

	if (!call->before && call->result == 0 && node != NULL)
		graph_has_memory((uint32_t)node->properties.location_id, node->address);
}

/* CUgraphNodeParams. */
struct any_node {
	uint32_t type;
	uint32_t reserved[3];
	struct alloc_node alloc;
};

#define NODE_ALLOC 10u

static void take_any_node(const struct driver_call *call, const struct any_node *node)
{
	if (!call->before && call->result == 0 && node != NULL && node->type == NODE_ALLOC)
		graph_has_memory((uint32_t)node->alloc.properties.location_id, node->alloc.address);
}

static void take_node(const struct driver_call *call)
{
	const struct add_node *p = call->data->parameters;

	take_any_node(call, p->node);
}

static void take_node_v2(const struct driver_call *call)
{
	const struct {
		void **out;
		void *graph;
		const void *dependencies;
		const void *edges;
		size_t count;
		const struct any_node *node;
	} *p = call->data->parameters;

	take_any_node(call, p->node);
}

static void take_graph_change(const struct driver_call *call)
{
	if (!call->before)
		graphs_changed();
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

#define ARRAY_SPARSE   0x40u
#define ARRAY_DEFERRED 0x80u

/* Memory that was made by cuMemCreate() is mapped into it later. */
static bool has_memory(const struct driver_call *call, const uint64_t *out,
		       const struct array_3d *descriptor)
{
	if (descriptor == NULL || (descriptor->flags & (ARRAY_SPARSE | ARRAY_DEFERRED)) == 0)
		return true;
	physical_add_other(stored(call, out), 0);
	return false;
}

static void take_array_3d(const struct driver_call *call)
{
	const struct {
		uint64_t *out;
		const struct array_3d *descriptor;
	} *p = call->data->parameters;

	if (!call->before && has_memory(call, p->out, p->descriptor))
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

	if (!call->before && has_memory(call, p->out, p->descriptor))
		take(call, CUDA_MEMORY_ARRAY, device_of(call), stored(call, p->out),
		     array_bytes(p->descriptor, p->levels), true);
}

static void give_array(const struct driver_call *call)
{
	give(call, CUDA_MEMORY_ARRAY, first_of(call));
}

/* ---- host memory ---- */

static void take_host(const struct driver_call *call)
{
	if (!call->before)
		take_bytes(call, CUDA_MEMORY_PINNED, DEVICE_UNKNOWN);
}

static void give_host(const struct driver_call *call)
{
	give(call, CUDA_MEMORY_PINNED, first_of(call));
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
	give(call, CUDA_MEMORY_REGISTERED, first_of(call));
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
	if (!call->before && call->result == 0)
		physical_retained(stored(call, first_out(call)));
}

static void give_physical(const struct driver_call *call)
{
	physical_released(call, first_of(call));
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

	if (MSCOPE_UNLIKELY(watch_is_active() || *call->data->kept != 0))
		launch_watch_slow(call, name);
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
	if (cupti_wants_launches())
		event_launch(call, "cuGraphLaunch");
	take_graph_change(call);
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
