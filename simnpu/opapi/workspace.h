/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How much memory of the device operators ask for to work in, in the first phase. All other operators ask for none.
 *
 * Known from the sources of CANN's operators, which are public (repositories ops-nn and ops-transformer, the functions
 * GetWorkspaceSize() of op_host):
 *   - sizes are multiples of 512 bytes (op.c rounds up);
 *   - a product of matrices (MatMulV3, BatchMatMulV3) asks for 20 MiB whatever its shapes, unless it is split along the inner dimension;
 *   - attention asks for 16 MiB that the system reserves, and for intermediate results of its blocks.
 * Our own, because no figure is known here: how much that is for attention, all of convolutions and of reductions, and products that are
 * split, which ask for as much as the others. On a real device small reductions ask for less.
 */
#ifndef SIMNPU_OPAPI_WORKSPACE_H
#define SIMNPU_OPAPI_WORKSPACE_H

#include "array.h"

#define WORKSPACE_PRODUCT  (UINT64_C(20) << 20)
#define WORKSPACE_RESERVED (UINT64_C(16) << 20)
#define WORKSPACE_CORES	   48 /* cores for vectors of an Ascend910B */

#define workspace_of_product(a) WORKSPACE_PRODUCT

static inline uint64_t workspace_of_attention(const struct tensor *key, const struct tensor *value)
{
	return WORKSPACE_RESERVED + (uint64_t)(tensor_count(key) + tensor_count(value)) * 8;
}

/* Patches of the input that a kernel sees. */
static inline uint64_t workspace_of_convolution(const struct tensor *input)
{
	return WORKSPACE_RESERVED + (uint64_t)tensor_count(input) * 4;
}

/* A sum for each core. */
static inline uint64_t workspace_of_reduction(const struct tensor *out)
{
	return (uint64_t)tensor_count(out) * 8 * WORKSPACE_CORES;
}

#endif
