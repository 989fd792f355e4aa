/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the CUDA adapters share.
 *
 *     cuda.c           devices, and CUDA as a vendor: the table of operations
 *     cupti.c          CUPTI: finding it, subscribing, stepping aside for others
 *     activity.c       CUPTI's records of when kernels ran
 *     driver_calls.c   calls of the driver, as CUPTI reports them: memory and launches
 *     physical.c       physical memory, which lives until its last handle and its last mapping are gone
 *     driver_pools.c   what the driver's pools keep
 *     nvtx.c           marks and ranges
 *     device_reading.c watched memory: copies and checksums, on a stream of our own
 *     launch_watch.c   watched memory around launches
 *
 * All declarations are our own; numbers and layouts are facts of NVIDIA's public headers.
 */
#ifndef MSCOPE_COLLECTOR_CUDA_H
#define MSCOPE_COLLECTOR_CUDA_H

#include "collector/loader/hook.h"
#include "collector/loader/lookup.h"
#include "collector/record/hot.h"
#include "collector/vendor.h"

/* What CUPTI calls, on the thread of the driver's call, before and behind it. */
typedef void cupti_callback(void *userdata, uint32_t domain, uint32_t number, const void *data);

/* What CUPTI calls for a buffer, and with one that is full or flushed. */
typedef void activity_request(uint8_t **buffer, size_t *bytes, size_t *records);
typedef void activity_complete(void *context, uint32_t stream, uint8_t *buffer, size_t bytes,
			       size_t valid_bytes);

/* What an NVTX client hands over: gives a table by its number. */
typedef const void *nvtx_get_export_table(uint32_t number);

#define HOOK HOOK_DECLARE
#include "collector/cuda/hooks.def"
#undef HOOK

enum cuda_source {
	SOURCE_CUDA_BLOCK = SOURCE_OF_VENDOR(VENDOR_CUDA), /* keys of cuda_key() */
};

#define CUPTI_SUCCESS 0

/* CUpti_CallbackData. */
struct cupti_data {
	uint32_t site; /* 0 before the call, 1 behind it */
	const char *function;
	const void *parameters;
	const int *result; /* behind the call */
	const char *symbol;
	void *context;
	uint32_t context_number; /* never used again in a process */
	uint64_t *kept;		 /* a word for us, from before the call to behind it */
	uint32_t correlation;
};

/* One call of the driver, before or behind it. */
struct driver_call {
	const struct cupti_data *data;
	bool before;
	int result; /* behind the call; 0: it succeeded */
};

/* Key of a context: enum cuda_memory:8, device:16 and ones for none, 8 bits free, number of the CUDA context that ends it:32, 0: none. */
MSCOPE_INLINE uint64_t cuda_key(enum cuda_memory memory, uint32_t device, uint32_t context)
{
	return (uint64_t)memory << 56 | (uint64_t)(device & 0xffff) << 40 | context;
}

void cuda_decode(uint64_t key, struct context *out);

/* cuda.c */

/* The number by which the machine knows a device that the program calls `logical` (CUDA_VISIBLE_DEVICES). */
uint32_t cuda_physical_device(uint32_t logical);
/* The device that the calling thread has set, as the program numbers it; DEVICE_UNKNOWN: none. */
uint32_t cuda_device_here(void);

/* cupti.c */

/*
 * Begins to record calls of the driver, unless another tool has CUPTI or there is none; then a note in the trace says so. Again: takes
 * up what the settings say now. `late`: the program may already have used CUDA.
 */
void cupti_begin(bool late);
/* The device of a CUDA context, as the machine numbers it; DEVICE_UNKNOWN: none. */
uint32_t cupti_device(void *context, uint32_t context_number);
/* Whether this process is recorded, and others can take CUPTI from us. Attaches. */
bool cuda_is_wanted(void);
void cupti_reset(void);
/* A function of the CUPTI that was opened; NULL: of what is loaded. */
void *cupti_function(void *library, const char *name);

/* Whether launches are rows: every one costs two callbacks, and the user asked for that. */
bool cupti_wants_launches(void);

/* activity.c. Those that begin and end it are called with the subscription's lock held. */

void activity_find(void *library);
void activity_begin(void);
/* `for_another`: another tool uses activity records from now on, and we never do. Returns whether it was on. */
bool activity_end(bool for_another);
/* A launch begins or ended: a kernel of it may be told of. */
void activity_launched(uint32_t correlation);
/* Takes what devices have finished until now; at the end also buffers with kernels that have not. */
void activity_flush(bool at_end);
void activity_reset(void);

/* driver_calls.c */

typedef void driver_call_handler(const struct driver_call *call);

struct driver_call_row {
	uint32_t number;
	const char *name;
	driver_call_handler *handler;
	bool launch;
};

extern MSCOPE_HIDDEN const struct driver_call_row driver_call_rows[];
extern MSCOPE_HIDDEN const uint32_t driver_call_count;

/* physical.c: before or behind the call, as the handlers are called. */
void physical_created(uint64_t handle, uint64_t bytes, uint64_t key);
void physical_retained(uint64_t handle);
void physical_released(const struct driver_call *call, uint64_t handle);
void physical_mapped(uint64_t address, uint64_t bytes, uint64_t handle);
void physical_unmapped(const struct driver_call *call, uint64_t address, uint64_t bytes);
/* An address that the program frees as device memory, and which is other memory, or 0: no block of ours at all. Until it is a block again. */
void physical_add_other(uint64_t address, enum cuda_memory memory);
/* What it is; `otherwise` for those that nobody added. */
enum cuda_memory physical_other(uint64_t address, enum cuda_memory otherwise);
void physical_drop_other(uint64_t address);
void physical_reset(void);

/* launch_watch.c: before and behind each launch, at kernel level. */
void launch_watch_slow(const struct driver_call *call, const char *name);

/* device_reading.c */

/* copy() and sums() of struct vendor_ops; copy() gives -ENOSYS where the driver is too old. */
int64_t reading_copy(uint8_t *out, uint64_t address, size_t bytes);
int reading_sums(uint64_t address, uint64_t bytes, uint64_t *out);
/* Whether this thread is in a call of ours to the driver: it is nothing that the program did. */
bool reading_is_own(void);
/* Whether a kernel of this name is ours. */
bool reading_is_own_kernel(const char *name);
void reading_reset(void);

/* driver_pools.c: behind calls that may have changed what the driver keeps, but for pool_ends(). Devices as the machine numbers them. */
void pool_is_on(void *handle, uint32_t device);
/* DEVICE_HOST: it has host memory. False: not known. */
bool pool_device(void *handle, uint32_t *out);
void pool_touched(void *handle);
void pool_of_device_set(uint32_t device, void *handle);
/* The same for the pool of cuMemAllocAsync() on the device of this thread. */
void pool_of_device_touched(uint32_t device);
void pool_ends(void *handle);
void pools_waited(void);
/* Whether an allocation on this stream became a node of a graph. */
bool pool_is_captured(const struct driver_call *call, void *stream);
/* A node takes memory on a device, as the program numbers it. */
void graph_has_memory(uint32_t device, uint64_t address);
void graphs_changed(void);
void pools_reset(void);

#endif
