/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the PyTorch adapters share.
 *
 *     c10.c        memory, as PyTorch's own allocators report it
 *     callback.c   operators and the tensors that they take and give, as PyTorch tells its observers
 *     operators.c, schema.c, objects.c   what it needs for that: which operator, what it reads and writes, where objects have it
 *     ops.c        the same, as our Python code reports it where the callback cannot be used
 *     marks.c      the same, as the Python code of older tools reports it: in texts of mstx marks
 */
#ifndef MSCOPE_COLLECTOR_TORCH_H
#define MSCOPE_COLLECTOR_TORCH_H

#include "collector/loader/hook.h"
#include "collector/record/hot.h"
#include "collector/torch/marks.h"
#include "collector/vendor.h"

struct c10_device;

#define HOOK HOOK_DECLARE
#include "collector/torch/hooks.def"
#undef HOOK
#define SLOT SLOT_DECLARE
#include "collector/torch/slots.def"
#undef SLOT

/* For SOURCE_TORCH; the key is a device_key(). Tensors of the host are in no pool, those of any device in PyTorch's. */
void torch_decode(uint64_t key, struct context *out);

/*
 * An operator of this thread begins or ended (enum operation_kind), and takes or gives a tensor, on the device of the key. Nothing
 * is written while recording is not on.
 */
void torch_operation(uint32_t kind, uint64_t key, struct text_span name, const void *caller);
void torch_tensor_access(uint64_t key, const struct torch_access *access, const void *caller);

/*
 * True when the message was one of these: then it is recorded as what it says, and is no mark. NULL is none. The devices that it
 * is about are the vendor's; one that names none is about the device that this thread has set.
 */
bool aten_mark_take(const char *message, enum vendor vendor, const void *caller);

#endif
