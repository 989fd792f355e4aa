/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The operators of PyTorch, as its own records name them: which operator a record is of, and what is known of it for long.
 */
#ifndef MSCOPE_COLLECTOR_TORCH_OPERATORS_H
#define MSCOPE_COLLECTOR_TORCH_OPERATORS_H

#include <stdbool.h>

#include "base/compiler.h"
#include "collector/torch/schema.h"

struct torch_operator {
	const char *key;  /* where PyTorch keeps its name: one place per overload */
	const char *name; /* as PyTorch names it, without overload: aten::mul */
	const char *full; /* torch._ops.aten.mul.Tensor */
	uint32_t full_bytes;
	/* It is made of other operators, which are the ones that count; or it is a mark of PyTorch's profiler. */
	bool transparent;
	struct torch_schema schema;
};

/* Finds PyTorch's functions. `composite`: c10's number of that dispatch key. 0 or -ENOSYS. */
int torch_operators_open(uint32_t composite);

/* Reads schemas, a line each; a line that begins with '-' is of an operator that touches no data. 0 or -ENOMEM. */
int torch_operators_schemas(const char *text);

/* The operator of a record; NULL: it is of none, or there is no room. Any thread. */
const struct torch_operator *torch_operator_of(const void *record);

/*
 * What C++ returns in memory of the caller: calls a method with one argument, and gives it the place of the result as the machine's
 * convention has it.
 */
void torch_call_into(void *function, void *result, const void *object, const void *argument);

#endif
