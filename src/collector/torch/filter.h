/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which operators PyTorch makes a record of, and whether with inputs and outputs. See filter.c.
 */
#ifndef MSCOPE_COLLECTOR_TORCH_FILTER_H
#define MSCOPE_COLLECTOR_TORCH_FILTER_H

#include <stdbool.h>

#include "base/compiler.h"

struct torch_operator;
struct writer;

/* Dispatch keys, in the order in which Python code tells them: bits as a tensor has them, but for the first. */
enum torch_key {
	TORCH_KEY_COMPOSITE,   /* c10's number of CompositeImplicitAutograd */
	TORCH_KEY_WRAPPERS,    /* of tensors that stand for others */
	TORCH_KEY_UNREADABLE,  /* of tensors that have no one shape */
	TORCH_KEY_PYTHON,      /* of tensors with a class of their own */
	TORCH_KEY_LAYER_FRONT, /* of threads in torch.func, not of tensors */
	TORCH_KEY_LAYER_BACK,
	/* Kinds of devices. 0: unknown, and so are the others. */
	TORCH_KEY_BACKENDS, /* all of them */
	TORCH_KEY_HOST,
	TORCH_KEY_CUDA,
	TORCH_KEY_ASCEND,
	TORCH_KEYS,
};

/* A function of PyTorch that calls one operator. */
struct torch_call;

/*
 * Searches the answer of PyTorch's function for what is changed in it. The callback {start, end} is registered with inputs and outputs;
 * `again` registers it anew, with what it is told. Then the next operator on this thread tells whether keys come instead of inputs.
 * Nothing is changed in answers if anything is not found. `keys`: TORCH_KEYS of them.
 */
void torch_filter_open(const uint64_t *keys, void *start, void *end,
		       void (*again)(bool inputs, bool outputs));

/* What is wanted of operators from now on, and whether the process sees one device of each kind. `on` false: no answer is changed. */
void torch_filter_set(bool on, bool accesses, bool one_device);

/* Operators are looked up again. */
void torch_filter_forget(void);

/* A record of this operator has come, on the thread of the writer. */
void torch_filter_learn(struct writer *w, const struct torch_operator *op);

/* The dispatch keys of the operator that this record is of, when it has no inputs because of us. */
bool torch_filter_keys(const struct writer *w, const void *record, uint64_t *out_keys);

#endif
