/* SPDX-License-Identifier: Apache-2.0 */
/*
 * PyTorch's objects, read and never called: where a tensor has its memory, shape and type, and where the record of an operator has
 * its inputs and outputs.
 *
 * Layouts differ by version. They are searched for on objects of our own whose facts the Python code tells, with reads that cannot
 * fault; when anything is not found exactly once, operators are seen by a dispatch mode instead. Reading needs no lock: the caller of
 * an operator keeps its tensors alive.
 */
#ifndef MSCOPE_COLLECTOR_TORCH_OBJECTS_H
#define MSCOPE_COLLECTOR_TORCH_OBJECTS_H

#include <stdbool.h>

#include "base/compiler.h"

#define TORCH_DTYPES   64u /* numbers of types that are known at most */
#define TORCH_DIMS_MAX 64u /* of a tensor whose shape is told */

/* c10::IValue. */
struct torch_value {
	uint64_t payload;
	uint32_t tag;
	uint32_t unused;
};

#define TORCH_TAG_TENSOR 1u

struct torch_values {
	const struct torch_value *first;
	uint64_t count;
};

/* A tensor with memory. */
struct torch_tensor {
	uint64_t address;
	uint64_t size_bytes;  /* from its first element to the end of its last */
	const char *dtype;    /* "torch.float32" */
	const int64_t *sizes; /* `dims` of them, of the tensor */
	uint64_t dims;
};

/* Flags of a tensor, as it has them. */
enum torch_flag {
	TORCH_CONTIGUOUS = 1,
	TORCH_CHANNELS_LAST = 4,
	TORCH_CHANNELS_LAST_CONTIGUOUS = 8,
	TORCH_CHANNELS_LAST_3D = 16,
	TORCH_CHANNELS_LAST_3D_CONTIGUOUS = 32,
	TORCH_DENSE = 64,
	TORCH_NUMBER = 128, /* made of a number in the program: no tensor of its own */
};

/* Facts of a tensor, in the order in which Python code tells them; then sizes and strides of all dimensions. */
enum torch_fact {
	TORCH_FACT_TENSOR,  /* address of the object */
	TORCH_FACT_STORAGE, /* of its storage object; 0: only its keys are told */
	TORCH_FACT_DATA,    /* first byte of the storage's memory */
	TORCH_FACT_OFFSET,  /* of its first element, in elements */
	TORCH_FACT_NUMEL,
	TORCH_FACT_KEYS,       /* bits of its dispatch keys */
	TORCH_FACT_MASK,       /* those of the bits that are told */
	TORCH_FACT_DEVICE,     /* c10's number of its type */
	TORCH_FACT_ITEM,       /* bytes of an element */
	TORCH_FACT_FLAGS,      /* enum torch_flag */
	TORCH_FACT_FLAGS_TOLD, /* those that are told */
	TORCH_FACT_DIMS,
	TORCH_FACTS,
};

/* Forgets what is known. */
void torch_layout_reset(void);

/* Searches for what is told of a tensor. `dtype` is the name of its type. -EINVAL: it cannot be so. */
int torch_layout_tensor(const uint64_t *facts, uint32_t count, const char *dtype);

/*
 * Searches in the record of an operator for these two tensors: as its inputs 0 and 1, as its output 0, as what the list in its
 * input 0 has; and for no tensor and the second one in the list of its input 1. Each true when it was found, exactly once.
 */
bool torch_layout_inputs(const void *record, uint64_t first, uint64_t second);
bool torch_layout_outputs(const void *record, uint64_t first);
bool torch_layout_list(const void *record, uint64_t first, uint64_t second);
bool torch_layout_optional_list(const void *record, uint64_t second);
/* Input `place` is a device of this type, without a number or the first one. */
bool torch_layout_device(const void *record, uint32_t place, uint32_t type);

/* 0 when everything was found; else -ENOSYS, and what was not. */
int torch_layout_check(const char **out_missing);

/* ---- after the check ---- */

struct torch_values torch_record_inputs(const void *record);
struct torch_values torch_record_outputs(const void *record);

/* The values of a list; none when it is no list of tensors. */
struct torch_values torch_value_list(const struct torch_value *value);

/* True when the value is a device; c10's number of its type, and its own, -1: none. */
bool torch_value_device(const struct torch_value *value, int *out_type, int *out_index);

/* Device and dispatch keys of a tensor. */
void torch_tensor_device(const struct torch_value *value, int *out_type, int *out_index);
uint64_t torch_tensor_keys(const struct torch_value *value);

/* False when it has no memory, or none that one address and one shape describe. */
bool torch_tensor_read(const struct torch_value *value, struct torch_tensor *out);

#endif
