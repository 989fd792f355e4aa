/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Products of matrices. Both are copied into the workspace as dense rows of double, which is
 * also what real operators use one for.
 *
 * Complex matrices are refused, as real operators do: torch_npu passes views that stand for the conjugate without saying so, and the
 * gradients of products would be silently wrong.
 */
#include <stdlib.h>
#include <string.h>

#include "array.h"
#include "blas.h"
#include "matmul.h"
#include "workspace.h"

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

/* What a product asks for, if there is one: the columns of the left matrix are the rows of the right one. */
static uint64_t workspace_of_pair(struct op *op, const struct tensor *left_tensor,
				  const struct tensor *right_tensor)
{
	struct tensor left = as_matrix(left_tensor, false);
	struct tensor right = as_matrix(right_tensor, true);

	if (left.dim_count < 2 || right.dim_count < 2 ||
	    left.dims[left.dim_count - 1] != right.dims[right.dim_count - 2])
		op_refuse(op, "the shapes of the matrices do not fit together");
	return WORKSPACE_PRODUCT;
}

#define workspace_of_two(a) workspace_of_pair(&(a)->op, &(a)->self, &(a)->other)
#define workspace_of_sum(a) workspace_of_pair(&(a)->op, &(a)->left, &(a)->right)

/* The last two dimensions of a tensor, and how many such matrices there are in a shape of `batch`. */
static struct shape batch_of(const struct tensor *left, const struct tensor *right)
{
	struct tensor l = *left;
	struct tensor r = *right;

	l.dim_count -= 2;
	r.dim_count -= 2;
	return shape_of_both(&l, &r);
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

/* A second form of the function for processors with 256-bit registers, which the loader chooses. */
#if defined(__x86_64__)
#define FOR_WIDE_REGISTERS __attribute__((target_clones("avx2", "default")))
#else
#define FOR_WIDE_REGISTERS
#endif

enum {
	BATCH = 256, /* rows of a result that are kept before they are rounded */
	ROWS = 4, /* computed at a time: each element of the right matrix is read once for them */
	COLUMNS = 512, /* likewise, so that results stay in the cache */
};

/* ROWS rows, or fewer, of the product of dense matrices. */
FOR_WIDE_REGISTERS static void multiply_rows(const double *left, int64_t rows, const double *right,
					     int64_t inner, int64_t columns, double *out)
{
	int64_t start;
	int64_t i;
	int64_t j;
	int64_t r;

	memset(out, 0, (size_t)(rows * columns) * sizeof(*out));
	for (start = 0; start < columns; start += COLUMNS) {
		int64_t end = columns - start < COLUMNS ? columns : start + COLUMNS;

		for (i = 0; i < inner; i++) {
			const double *from = right + i * columns;

			if (rows == ROWS) {
				double f0 = left[i];
				double f1 = left[inner + i];
				double f2 = left[2 * inner + i];
				double f3 = left[3 * inner + i];

				for (j = start; j < end; j++) {
					double x = from[j];

					out[j] += f0 * x;
					out[columns + j] += f1 * x;
					out[2 * columns + j] += f2 * x;
					out[3 * columns + j] += f3 * x;
				}
				continue;
			}
			for (r = 0; r < rows; r++) {
				for (j = start; j < end; j++)
					out[r * columns + j] += left[r * inner + i] * from[j];
			}
		}
	}
}

/* Up to BATCH rows of the product. */
static void multiply(const double *left, int64_t rows, const double *right, int64_t inner,
		     int64_t columns, double *out)
{
	int64_t i;

	if (blas_multiply(left, rows, right, inner, columns, out))
		return;
	for (i = 0; i < rows; i += ROWS)
		multiply_rows(left + i * inner, rows - i < ROWS ? rows - i : ROWS, right, inner,
			      columns, out + i * columns);
}

/* A row of the result: alpha * row + beta * what is added. */
static void add(const struct matmul_sum *sum, const struct view *added, int64_t at, int64_t columns,
		double *other, double *row)
{
	int64_t j;

	view_read(added, at, columns, other);
	for (j = 0; j < columns; j++)
		row[j] = sum->alpha * row[j] + (sum->beta == 0 ? 0 : sum->beta * other[j]);
}

void matmul(const struct op *op, const struct tensor *out, const struct tensor *left_tensor,
	    const struct tensor *right_tensor, const struct matmul_sum *sum)
{
	struct tensor left = as_matrix(left_tensor, false);
	struct tensor right = as_matrix(right_tensor, true);
	struct shape batch = batch_of(&left, &right);
	int64_t rows = left.dims[left.dim_count - 2];
	int64_t inner = left.dims[left.dim_count - 1];
	int64_t columns = right.dims[right.dim_count - 1];
	double *packed = op_array(op, tensor_count(&left) + tensor_count(&right), sizeof(*packed));
	double *packed_right = packed + tensor_count(&left);
	struct shape shape = shape_of(out);
	struct view target = view_of(out);
	struct view added;
	int64_t kept = rows < BATCH ? rows : BATCH;
	double *results = op_array(op, (kept + 1) * columns, sizeof(*results));
	double *other = results + kept * columns;
	int64_t n;
	int64_t i;
	int64_t row;

	if (!packed || !results) {
		free(packed);
		free(results);
		return;
	}
	pack(packed, &left);
	pack(packed_right, &right);
	if (sum)
		added = view_as(sum->added, &shape);
	for (n = 0; n < shape_count(&batch); n++) {
		const double *l = packed + matrix_at(&left, &batch, n) * rows * inner;
		const double *r = packed_right + matrix_at(&right, &batch, n) * inner * columns;

		for (i = 0; i < rows; i += BATCH) {
			int64_t count = rows - i < BATCH ? rows - i : BATCH;
			int64_t at = (n * rows + i) * columns;

			multiply(l + i * inner, count, r, inner, columns, results);
			for (row = 0; row < count && sum; row++)
				add(sum, &added, at + row * columns, columns, other,
				    results + row * columns);
			view_write(&target, at, count * columns, results);
		}
	}
	free(packed);
	free(results);
}

#define PRODUCT(NAME)                                                                              \
	OPERATOR_WITH_WORKSPACE(NAME, workspace_of_two, (tensor, self), (tensor, other),           \
				(result, out), (int8, math))                                       \
	{                                                                                          \
		matmul(&a->op, &a->out, &a->self, &a->other, NULL);                                \
	}
PRODUCT(Mm)
PRODUCT(Matmul)
PRODUCT(BatchMatMul)
PRODUCT(Mv)

OPERATOR_WITH_WORKSPACE(Dot, workspace_of_two, (tensor, self), (tensor, other), (result, out))
{
	matmul(&a->op, &a->out, &a->self, &a->other, NULL);
}

static struct matmul_sum sum_of(const struct tensor *added, const struct scalar *beta,
				const struct scalar *alpha)
{
	/* Factors are of the type of the elements. */
	bool integers = numbers_are_integers(added->type);

	return (struct matmul_sum){
		.added = added,
		.beta = integers ? (double)beta->integer : beta->real,
		.alpha = integers ? (double)alpha->integer : alpha->real,
	};
}

#define SUM_OF_PRODUCT(NAME)                                                                       \
	OPERATOR_WITH_WORKSPACE(NAME, workspace_of_sum, (tensor, self), (tensor, left),            \
				(tensor, right), (scalar, beta), (scalar, alpha), (result, out),   \
				(int8, math))                                                      \
	{                                                                                          \
		struct matmul_sum sum = sum_of(&a->self, &a->beta, &a->alpha);                     \
                                                                                                   \
		matmul(&a->op, &a->out, &a->left, &a->right, &sum);                                \
	}
SUM_OF_PRODUCT(Addmm)
SUM_OF_PRODUCT(Baddbmm)

OPERATOR_WITH_WORKSPACE(InplaceAddmm, workspace_of_sum, (tensor, self), (tensor, left),
			(tensor, right), (scalar, beta), (scalar, alpha), (int8, math))
{
	struct matmul_sum sum = sum_of(&a->self, &a->beta, &a->alpha);

	matmul(&a->op, &a->self, &a->left, &a->right, &sum);
}

OPERATOR_WITH_WORKSPACE(Addmv, workspace_of_sum, (tensor, self), (tensor, left), (tensor, right),
			(scalar, alpha), (scalar, beta), (result, out), (int8, math))
{
	struct matmul_sum sum = sum_of(&a->self, &a->beta, &a->alpha);

	matmul(&a->op, &a->out, &a->left, &a->right, &sum);
}

/* The products of a batch, added up. */
static void add_batch(const struct op *op, const struct tensor *out, const struct tensor *left,
		      const struct tensor *right, const struct matmul_sum *sum)
{
	struct tensor first = *left;
	struct tensor second = *right;
	struct matmul_sum again = {.added = out, .beta = 1, .alpha = sum->alpha};
	int64_t n;

	first.dim_count = 2;
	second.dim_count = 2;
	memmove(first.dims, &left->dims[1], 2 * sizeof(first.dims[0]));
	memmove(first.strides, &left->strides[1], 2 * sizeof(first.strides[0]));
	memmove(second.dims, &right->dims[1], 2 * sizeof(second.dims[0]));
	memmove(second.strides, &right->strides[1], 2 * sizeof(second.strides[0]));
	for (n = 0; n < left->dims[0]; n++) {
		matmul(op, out, &first, &second, n ? &again : sum);
		first.data += left->strides[0] * (int64_t)numbers_size(left->type);
		second.data += right->strides[0] * (int64_t)numbers_size(right->type);
	}
}

OPERATOR_WITH_WORKSPACE(Addbmm, workspace_of_sum, (tensor, self), (tensor, left), (tensor, right),
			(scalar, beta), (scalar, alpha), (result, out), (int8, math))
{
	struct matmul_sum sum = sum_of(&a->self, &a->beta, &a->alpha);

	add_batch(&a->op, &a->out, &a->left, &a->right, &sum);
}

/* A column times a row. */
static void add_outer(const struct op *op, const struct tensor *out, const struct tensor *left,
		      const struct tensor *right, const struct matmul_sum *sum)
{
	struct tensor column = as_matrix(left, true);
	struct tensor row = as_matrix(right, false);

	matmul(op, out, &column, &row, sum);
}

OPERATOR_WITH_WORKSPACE(Addr, workspace_of_product, (tensor, self), (tensor, left), (tensor, right),
			(scalar, beta), (scalar, alpha), (result, out))
{
	struct matmul_sum sum = sum_of(&a->self, &a->beta, &a->alpha);

	add_outer(&a->op, &a->out, &a->left, &a->right, &sum);
}

OPERATOR_WITH_WORKSPACE(InplaceAddr, workspace_of_product, (tensor, self), (tensor, left),
			(tensor, right), (scalar, beta), (scalar, alpha))
{
	struct matmul_sum sum = sum_of(&a->self, &a->beta, &a->alpha);

	add_outer(&a->op, &a->self, &a->left, &a->right, &sum);
}
