/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the Ascend adapters share: the present device, the sources of their contexts, and who asks whom.
 *
 *     hal.c     driver memory            acl.c    init, finalise, registered host memory
 *     mstx.c    marks, ranges, domains   pools.c  memory pools of the frameworks, through mstx
 *     launch.c  kernel launches          names.c  their names     stars.c  when they ran
 *     atb.c     operators of ATB         device.c which device is meant, and the table of operations
 *     device_memory.c   copies of device memory
 */
#ifndef MSCOPE_COLLECTOR_ASCEND_H
#define MSCOPE_COLLECTOR_ASCEND_H

#include "collector/loader/hook.h"
#include "collector/loader/lookup.h"
#include "collector/record/hot.h"
#include "collector/vendor.h"

struct drv_mem_handle;
struct drv_mem_prop;

/* What an mstx client hands to InitInjectionMstx(): gives the table of function slots of a module. */
typedef int mstx_get_table(int module, void (****out_table)(void), unsigned int *out_size);

#define HOOK HOOK_DECLARE
#include "collector/ascend/hooks.def"
#undef HOOK

/* Which decoder a context key belongs to. */
enum ascend_source {
	SOURCE_HAL_ALLOC = SOURCE_OF_VENDOR(VENDOR_ASCEND),
	SOURCE_HAL_CREATE,
	SOURCE_HAL_FREE,
	SOURCE_POOL,
	SOURCE_REGISTER,
};

/* The x_reset() functions run in a forked child: what was the parent's is forgotten. */

/* device.c */

/* Physical number of the device that this thread has set; DEVICE_UNKNOWN when it has none. Asks the runtime. */
uint32_t ascend_current_device(void);

/* Physical number of a device that the program calls `logical` (ASCEND_RT_VISIBLE_DEVICES). */
uint32_t ascend_physical_device(uint32_t logical);

/* Context of something that happens on a device and is no memory. */
uint32_t ascend_context(struct writer *w, uint32_t device);

/* device_memory.c: as in struct vendor_ops. */
int device_memory_wait(void *stream, bool has_stream);
uint32_t device_memory_owner(uint64_t address);
int64_t device_memory_copy(void *out, uint64_t address, size_t bytes);
bool device_memory_left(uint32_t device, uint64_t *out_free, uint64_t *out_total);
void device_memory_reset(void);

/* pools.c */

/* Pool that a domain's name stands for, POOL_UNKNOWN for any other. */
uint8_t pool_of_domain(const char *name);

struct mstx_heap_desc;
struct mstx_register_batch;
struct mstx_unregister_batch;
void *pool_heap_register(uint8_t pool, const struct mstx_heap_desc *desc);
void pool_heap_unregister(uint8_t pool, void *heap);
void pool_regions_register(uint8_t pool, const struct mstx_register_batch *batch,
			   const void *caller);
void pool_regions_unregister(uint8_t pool, const struct mstx_unregister_batch *batch,
			     const void *caller);
void pool_reset(void);
/* Writes what pools hold that told it before there was a session. */
void pools_begin(struct writer *w);

/* names.c */

/* Kernel names by the numbers that we gave the runtime for them. NULL when there is none. */
uint64_t name_put(const char *text, size_t bytes);
const char *name_get(uint64_t number);

/* stars.c */

/* Begins to read when kernels run on this device. One thread at a time, and once per device until stars_stop(). */
void stars_start(uint32_t device);
/* Reads what the devices have logged until now, and ends. */
void stars_stop(void);
/* Waits until all that the devices have finished by now is recorded, for 0.2 s at most. */
void stars_collect(void);
/* A task number of the runtime, as the device has room for it. */
uint32_t stars_task(uint32_t task);
/* The runtime told that stream numbers are encoded the long way. */
void stars_set_expanded(bool expanded);
void stars_reset(void);

/* launch.c */
/* The runtime is finalised, or the process ends. Launches that follow begin anew. */
void launch_stop(void);
void launch_reset(void);

#endif
