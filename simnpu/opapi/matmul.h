/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The product of matrices, for all operators that need one.
 */
#ifndef SIMNPU_OPAPI_MATMUL_H
#define SIMNPU_OPAPI_MATMUL_H

#include "op.h"

/* What is done with the product: alpha * product + beta * added. With a beta of 0 it does not matter what was there. */
struct matmul_sum {
	const struct tensor *added;
	double beta;
	double alpha;
};

/*
 * Products of the last two dimensions, over all that the others broadcast to; a tensor of one dimension is a row or a column. `sum`
 * may be NULL.
 */
void matmul(const struct op *op, const struct tensor *out, const struct tensor *left_tensor,
	    const struct tensor *right_tensor, const struct matmul_sum *sum);

#endif
