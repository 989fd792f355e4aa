/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Products of matrices. Both are copied into the workspace as dense rows of double, which is
 * also what real operators use one for.
 */
#include <stdlib.h>
#include <string.h>

#include "array.h"
#include "matmul.h"

/* One dimension counts as a row on the left and as a column on the right. */
static struct tensor as_matrix(const struct tensor *tensor, bool right)
{
	struct tensor matrix = *tensor;

	if (tensor->dim_count != 1)
		return matrix;
	matrix.dim_count = 2;
	matrix.dims[right ? 0 : 1] = tensor->dims[0];
	matrix.dims[right ? 1 : 0] = 1;
	matrix.strides[right ? 0 : 1] = tensor->strides[0];
	matrix.strides[right ? 1 : 0] = 0;
	return matrix;
}

/* The last two dimensions of a tensor, and how many such matrices there are in a shape of `batch`. */
static struct shape batch_of(const struct tensor *left, const struct tensor *right)
{
	struct tensor l = *left;
	struct tensor r = *right;

	l.dim_count -= 2;
	r.dim_count -= 2;
	return shape_of_both(&l, &r);
}

uint64_t matmul_workspace(const struct tensor *left, const struct tensor *right)
{
	return (uint64_t)(tensor_count(left) + tensor_count(right)) * sizeof(double);
}

/* Dense copies of a tensor that repeats over `batch`. */
static void pack(double *to, const struct tensor *matrix)
{
	struct view view = view_of(matrix);

	view_read(&view, 0, tensor_count(matrix), to);
}

/* The number of the matrix that element `n` of the batch uses. */
static int64_t matrix_at(const struct tensor *matrix, const struct shape *batch, int64_t n)
{
	uint32_t dims = matrix->dim_count - 2;
	int64_t number = 0;
	int64_t step = 1;
	uint32_t d;

	for (d = 0; d < batch->dim_count; d++) {
		int64_t length = batch->dims[batch->dim_count - 1 - d];
		int64_t index = n % length;

		n /= length;
		if (d >= dims)
			continue;
		if (matrix->dims[dims - 1 - d] != 1)
			number += index * step;
		step *= matrix->dims[dims - 1 - d];
	}
	return number;
}

static void multiply_row(const double *row, const double *right, int64_t inner, int64_t columns,
			 double *out)
{
	int64_t i;
	int64_t j;

	memset(out, 0, (size_t)columns * sizeof(*out));
	for (i = 0; i < inner; i++) {
		const double *from = right + i * columns;
		double factor = row[i];

		for (j = 0; j < columns; j++)
			out[j] += factor * from[j];
	}
}

void matmul(const struct op *op, double *workspace, const struct tensor *out,
	    const struct tensor *left_tensor, const struct tensor *right_tensor,
	    const struct matmul_sum *sum)
{
	struct tensor left = as_matrix(left_tensor, false);
	struct tensor right = as_matrix(right_tensor, true);
	struct shape batch = batch_of(&left, &right);
	int64_t rows = left.dims[left.dim_count - 2];
	int64_t inner = left.dims[left.dim_count - 1];
	int64_t columns = right.dims[right.dim_count - 1];
	double *packed_right = workspace + tensor_count(&left);
	struct shape shape = shape_of(out);
	struct view target = view_of(out);
	struct view added;
	double *results = op_array(op, 2 * columns, sizeof(*results));
	int64_t n;
	int64_t i;
	int64_t j;

	if (!results)
		return;
	pack(workspace, &left);
	pack(packed_right, &right);
	if (sum)
		added = view_as(sum->added, &shape);
	for (n = 0; n < shape_count(&batch); n++) {
		const double *l = workspace + matrix_at(&left, &batch, n) * rows * inner;
		const double *r = packed_right + matrix_at(&right, &batch, n) * inner * columns;

		for (i = 0; i < rows; i++) {
			int64_t at = (n * rows + i) * columns;

			multiply_row(l + i * inner, r, inner, columns, results);
			if (sum) {
				double *other = results + columns;

				view_read(&added, at, columns, other);
				for (j = 0; j < columns; j++)
					results[j] = sum->alpha * results[j] +
						     (sum->beta == 0 ? 0 : sum->beta * other[j]);
			}
			view_write(&target, at, columns, results);
		}
	}
	free(results);
}

#define both_workspace(a) matmul_workspace(&(a)->self, &(a)->other)

#define PRODUCT(NAME)                                                                              \
	OPERATOR_WITH_WORKSPACE(NAME, both_workspace, (tensor, self), (tensor, other),             \
				(tensor, out), (int8, math))                                       \
	{                                                                                          \
		matmul(&a->op, op_workspace(a), &a->out, &a->self, &a->other, NULL);               \
	}
PRODUCT(Mm)
PRODUCT(Matmul)
PRODUCT(BatchMatMul)
PRODUCT(Mv)

OPERATOR_WITH_WORKSPACE(Dot, both_workspace, (tensor, self), (tensor, other), (tensor, out))
{
	matmul(&a->op, op_workspace(a), &a->out, &a->self, &a->other, NULL);
}

#define sum_workspace(a) matmul_workspace(&(a)->left, &(a)->right)

static struct matmul_sum sum_of(const struct tensor *added, const struct scalar *beta,
				const struct scalar *alpha)
{
	return (struct matmul_sum){
		.added = added,
		.beta = beta->real,
		.alpha = alpha->real,
	};
}

#define SUM_OF_PRODUCT(NAME)                                                                       \
	OPERATOR_WITH_WORKSPACE(NAME, sum_workspace, (tensor, self), (tensor, left),               \
				(tensor, right), (scalar, beta), (scalar, alpha), (tensor, out),   \
				(int8, math))                                                      \
	{                                                                                          \
		struct matmul_sum sum = sum_of(&a->self, &a->beta, &a->alpha);                     \
                                                                                                   \
		matmul(&a->op, op_workspace(a), &a->out, &a->left, &a->right, &sum);               \
	}
SUM_OF_PRODUCT(Addmm)
SUM_OF_PRODUCT(Baddbmm)

OPERATOR_WITH_WORKSPACE(InplaceAddmm, sum_workspace, (tensor, self), (tensor, left),
			(tensor, right), (scalar, beta), (scalar, alpha), (int8, math))
{
	struct matmul_sum sum = sum_of(&a->self, &a->beta, &a->alpha);

	matmul(&a->op, op_workspace(a), &a->self, &a->left, &a->right, &sum);
}

OPERATOR_WITH_WORKSPACE(Addmv, sum_workspace, (tensor, self), (tensor, left), (tensor, right),
			(scalar, alpha), (scalar, beta), (tensor, out), (int8, math))
{
	struct matmul_sum sum = sum_of(&a->self, &a->beta, &a->alpha);

	matmul(&a->op, op_workspace(a), &a->out, &a->left, &a->right, &sum);
}
