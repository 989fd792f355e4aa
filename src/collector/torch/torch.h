/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the PyTorch adapters share.
 *
 *     c10.c    memory, as PyTorch's own allocators report it
 *     ops.c    operators and the tensors that they take and give, as our Python code reports them
 *     marks.c  the same, as the Python code of older tools reports it: in texts of mstx marks
 */
#ifndef MSCOPE_COLLECTOR_TORCH_H
#define MSCOPE_COLLECTOR_TORCH_H

#include "collector/loader/hook.h"
#include "collector/record/hot.h"
#include "collector/torch/marks.h"

/* One source for all contexts; the key is vendor:8 device:32, the device as the vendor's other adapters number it. */
#define SOURCE_TORCH 0x200u

MSCOPE_INLINE uint64_t torch_key(enum vendor vendor, uint32_t device)
{
	return (uint64_t)vendor << 32 | device;
}

/* Tensors of the host are in no pool, those of any device in PyTorch's. */
void torch_decode(uint64_t key, struct context *out);
void torch_reset(void);

/* c10::DeviceType. */
enum c10_device_type {
	C10_CPU = 0,
	C10_CUDA = 1,
	C10_PRIVATE = 20, /* torch_npu's tensors */
};

/* ops.c */

/* Key of a device as Python has it: c10's number of its type above bit 8, its own number below. */
uint64_t torch_key_of(uint32_t device);

/*
 * An operator of this thread begins or ended (enum operation_kind), and takes or gives a tensor, on the device of the key. Nothing
 * is written while recording is not on.
 */
void torch_operation(uint32_t kind, uint64_t key, struct text_span name, const void *caller);
void torch_tensor_access(uint64_t key, const struct torch_access *access, const void *caller);

/*
 * True when the message was one of these: then it is recorded as what it tells, and is no mark. NULL is none. `current_device`
 * is asked when the message does not say which device it is about.
 */
bool aten_mark_take(const char *message, uint32_t (*current_device)(void), const void *caller);

#endif
