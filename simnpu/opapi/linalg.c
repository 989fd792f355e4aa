/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Linear algebra and distances. Matrices are the last two dimensions; each one is read as dense rows of double.
 *
 * The textbook's algorithms: Cholesky's factors, Householder's QR, forward and backward substitution. Signs follow LAPACK's, which
 * PyTorch uses on the CPU.
 */
#include <stdlib.h>
#include <string.h>

#include "array.h"
#include "old_math.h"

/* Matrix `n` of a tensor, dense. */
static void read_matrix(const struct view *view, int64_t n, int64_t size, double *out)
{
	view_read(view, n * size, size, out);
}

static int64_t rows_of(const struct tensor *tensor)
{
	return tensor->dims[tensor->dim_count - 2];
}

static int64_t columns_of(const struct tensor *tensor)
{
	return tensor->dims[tensor->dim_count - 1];
}

/* How many matrices the dimensions before the last two have. */
static int64_t batch_of(const struct tensor *tensor)
{
	int64_t count = 1;
	uint32_t d;

	for (d = 0; d + 2 < tensor->dim_count; d++)
		count *= tensor->dims[d];
	return count;
}

/* The lower factor, of which only the lower half of the matrix is read. False when there is none. */
static bool factor(double *m, int64_t size)
{
	int64_t i;
	int64_t j;
	int64_t k;

	for (j = 0; j < size; j++) {
		for (i = j; i < size; i++) {
			double sum = m[i * size + j];

			for (k = 0; k < j; k++)
				sum -= m[i * size + k] * m[j * size + k];
			if (i == j && !(sum > 0))
				return false;
			m[i * size + j] = i == j ? sqrt(sum) : sum / m[j * size + j];
		}
		for (i = 0; i < j; i++)
			m[i * size + j] = 0;
	}
	return true;
}

OPERATOR(LinalgCholesky, (tensor, self), (boolean, upper), (result, out))
{
	int64_t size = rows_of(&a->self);
	struct view from = view_of(&a->self);
	struct view to = view_of(&a->out);
	double *m = op_array(&a->op, size * size, sizeof(*m));
	int64_t n;
	int64_t i;

	for (n = 0; n < batch_of(&a->self) && m; n++) {
		read_matrix(&from, n, size * size, m);
		if (a->upper) {
			for (i = 0; i < size * size; i++) {
				if (i % size < i / size)
					m[i] = m[i % size * size + i / size];
			}
		}
		if (!factor(m, size)) {
			op_cannot(&a->op, "a matrix is not positive-definite");
			break;
		}
		for (i = 0; i < size * size; i++)
			view_put(&to, n * size * size + i,
				 a->upper ? m[i % size * size + i / size] : m[i]);
	}
	free(m);
}

/* x of m * x = b, m being of one triangle. Unknowns come in the order that the triangle gives. */
static void substitute(const double *m, int64_t size, double *x, int64_t columns, bool upper,
		       bool transposed, bool unit)
{
	bool backwards = upper != transposed;
	int64_t step;
	int64_t c;
	int64_t k;

	for (step = 0; step < size; step++) {
		int64_t i = backwards ? size - 1 - step : step;

		for (c = 0; c < columns; c++) {
			double sum = x[i * columns + c];

			for (k = backwards ? i + 1 : 0; k < (backwards ? size : i); k++)
				sum -= (transposed ? m[k * size + i] : m[i * size + k]) *
				       x[k * columns + c];
			x[i * columns + c] = unit ? sum : sum / m[i * size + i];
		}
	}
}

OPERATOR(TriangularSolve, (tensor, self), (tensor, matrix), (boolean, upper), (boolean, transposed),
	 (boolean, unit), (result, out), (result, clone))
{
	int64_t size = rows_of(&a->out);
	int64_t columns = columns_of(&a->out);
	struct shape right = shape_of(&a->out);
	struct shape left = right;
	struct view values;
	struct view matrices;
	struct view to = view_of(&a->out);
	double *m = op_array(&a->op, size * size, sizeof(*m));
	double *x = op_array(&a->op, size * columns, sizeof(*x));
	int64_t n;

	left.dims[left.dim_count - 1] = size;
	values = view_as(&a->self, &right);
	matrices = view_as(&a->matrix, &left);
	for (n = 0; n < batch_of(&a->out) && m && x; n++) {
		read_matrix(&matrices, n, size * size, m);
		read_matrix(&values, n, size * columns, x);
		substitute(m, size, x, columns, a->upper, a->transposed, a->unit);
		view_write(&to, n * size * columns, size * columns, x);
	}
	if (a->clone.present && tensor_count(&a->clone) == tensor_count(&a->matrix))
		tensor_copy(&a->clone, &a->matrix);
	free(m);
	free(x);
}

/* Householder: r becomes the upper triangle, q (rows * rows) what it was multiplied with. */
static void triangulate(double *r, double *q, double *v, int64_t rows, int64_t columns)
{
	int64_t i;
	int64_t j;
	int64_t k;

	memset(q, 0, (size_t)(rows * rows) * sizeof(*q));
	for (i = 0; i < rows; i++)
		q[i * rows + i] = 1;
	for (k = 0; k < columns && k < rows - 1; k++) {
		double size = 0;
		double square = 0;

		for (i = k; i < rows; i++)
			size += r[i * columns + k] * r[i * columns + k];
		size = sqrt(size);
		for (i = k + 1; i < rows; i++)
			square += r[i * columns + k] * r[i * columns + k];
		if (square == 0)
			continue;
		for (i = k; i < rows; i++)
			v[i] = r[i * columns + k];
		v[k] += v[k] < 0 ? -size : size;
		square += v[k] * v[k];
		for (j = 0; j < columns; j++) {
			double sum = 0;

			for (i = k; i < rows; i++)
				sum += v[i] * r[i * columns + j];
			for (i = k; i < rows; i++)
				r[i * columns + j] -= 2 * sum / square * v[i];
		}
		for (j = 0; j < rows; j++) {
			double sum = 0;

			for (i = k; i < rows; i++)
				sum += q[j * rows + i] * v[i];
			for (i = k; i < rows; i++)
				q[j * rows + i] -= 2 * sum / square * v[i];
		}
	}
}

/* Modes: 0 as many columns as needed, 1 all of them, 2 without q. */
OPERATOR(LinalgQr, (tensor, self), (int64, mode), (result, q), (result, r))
{
	int64_t rows = rows_of(&a->self);
	int64_t columns = columns_of(&a->self);
	int64_t kept = a->mode != 1 && columns < rows ? columns : rows;
	struct view from = view_of(&a->self);
	struct view to_q = view_of(&a->q);
	struct view to_r = view_of(&a->r);
	double *r = op_array(&a->op, rows * columns, sizeof(*r));
	double *q = op_array(&a->op, rows * rows + rows, sizeof(*q));
	int64_t n;
	int64_t i;

	for (n = 0; n < batch_of(&a->self) && r && q; n++) {
		read_matrix(&from, n, rows * columns, r);
		triangulate(r, q, q + rows * rows, rows, columns);
		for (i = 0; i < rows * kept && a->mode != 2; i++)
			view_put(&to_q, n * rows * kept + i, q[i / kept * rows + i % kept]);
		for (i = 0; i < kept * columns; i++)
			view_put(&to_r, n * kept * columns + i,
				 i % columns < i / columns ? 0 : r[i]);
	}
	free(r);
	free(q);
}

COMPLEX_OPERATOR(LinalgCross, (tensor, self), (tensor, other), (int64, dim), (result, out))
{
	struct shape shape = shape_of(&a->out);
	uint32_t dim = dim_of(&a->out, a->dim);
	int64_t inner = 1;
	struct view left = view_as(&a->self, &shape);
	struct view right = view_as(&a->other, &shape);
	struct view out = view_of(&a->out);
	uint32_t d;
	int64_t n;

	for (d = dim + 1; d < shape.dim_count; d++)
		inner *= shape.dims[d];
	for (n = 0; n < shape_count(&shape); n++) {
		int64_t at = n / inner % 3;
		int64_t base = n - at * inner;
		int64_t next = base + (at + 1) % 3 * inner;
		int64_t last = base + (at + 2) % 3 * inner;
		double complex values[4];
		double complex value;

		view_read_complex(&left, next, 1, &values[0]);
		view_read_complex(&right, last, 1, &values[1]);
		view_read_complex(&left, last, 1, &values[2]);
		view_read_complex(&right, next, 1, &values[3]);
		value = values[0] * values[1] - values[2] * values[3];
		view_write_complex(&out, n, 1, &value);
	}
}

static double distance(const double *left, const double *right, int64_t length, double order)
{
	double total = 0;
	int64_t n;

	for (n = 0; n < length; n++) {
		double size = fabs(left[n] - right[n]);

		if (order == 0)
			total += size != 0;
		else if (isinf(order))
			total = size > total || isnan(size) ? size : total;
		else
			total += order == 1 ? size : order == 2 ? size * size : pow(size, order);
	}
	if (order == 0 || order == 1 || isinf(order))
		return total;
	return order == 2 ? sqrt(total) : pow(total, 1 / order);
}

/* Of each row of the left matrix to each of the right one; all other dimensions broadcast. */
OPERATOR(Cdist, (tensor, left), (tensor, right), (real32, order), (int64, mode), (result, out))
{
	int64_t rows = rows_of(&a->out);
	int64_t columns = columns_of(&a->out);
	int64_t length = columns_of(&a->left);
	struct shape shape = shape_of(&a->out);
	struct shape other = shape;
	struct view lefts;
	struct view rights;
	struct view out = view_of(&a->out);
	double *l = op_array(&a->op, rows * length, sizeof(*l));
	double *r = op_array(&a->op, columns * length, sizeof(*r));
	int64_t n;
	int64_t i;

	shape.dims[shape.dim_count - 1] = length;
	other.dims[other.dim_count - 1] = length;
	other.dims[other.dim_count - 2] = columns;
	lefts = view_as(&a->left, &shape);
	rights = view_as(&a->right, &other);
	for (n = 0; n < batch_of(&a->out) && l && r; n++) {
		read_matrix(&lefts, n, rows * length, l);
		read_matrix(&rights, n, columns * length, r);
		for (i = 0; i < rows * columns; i++)
			view_put(&out, n * rows * columns + i,
				 distance(l + i / columns * length, r + i % columns * length,
					  length, (double)a->order));
	}
	free(l);
	free(r);
}

/* Of each pair of rows. */
OPERATOR(Pdist, (tensor, self), (real32, order), (result, out))
{
	int64_t rows = rows_of(&a->self);
	int64_t length = columns_of(&a->self);
	double *m = tensor_read(&a->op, &a->self);
	struct view out = view_of(&a->out);
	int64_t at = 0;
	int64_t i;
	int64_t j;

	for (i = 0; i < rows && m; i++) {
		for (j = i + 1; j < rows; j++)
			view_put(
				&out, at++,
				distance(m + i * length, m + j * length, length, (double)a->order));
	}
	free(m);
}
