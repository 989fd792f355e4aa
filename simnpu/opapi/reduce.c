/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operators that make one number of many: along some dimensions, of which the others keep their order.
 */
#include <stdlib.h>

#include "array.h"
#include "old_math.h"

/* Makes a number of a row. */
typedef double reduce_real(const double *row, int64_t length, double parameter);

/* No dimensions at all means every dimension. */
static void mark_dims(const struct tensor *self, const struct ints *dims, bool marked[DIMS_MAX])
{
	uint32_t n;
	size_t i;

	for (n = 0; n < DIMS_MAX; n++)
		marked[n] = !dims || dims->count == 0;
	for (i = 0; dims && i < dims->count; i++)
		marked[dim_of(self, dims->items[i])] = true;
}

static void reduce(const struct op *op, const struct tensor *out, const struct tensor *self,
		   const struct ints *dims, reduce_real *fn, double parameter)
{
	bool marked[DIMS_MAX];
	struct tensor moved;
	struct view from;
	struct view to;
	int64_t length;
	double *row;
	int64_t n;

	mark_dims(self, dims, marked);
	moved = tensor_with_marked_last(self, marked, &length);
	from = view_of(&moved);
	to = view_of(out);
	row = op_array(op, length, sizeof(*row));
	if (!row)
		return;
	for (n = 0; n < tensor_count(out); n++) {
		view_read(&from, n * length, length, row);
		view_put(&to, n, fn(row, length, parameter));
	}
	free(row);
}

static double sum(const double *row, int64_t length, double parameter)
{
	double total = 0;
	int64_t n;

	(void)parameter;
	for (n = 0; n < length; n++)
		total += row[n];
	return total;
}

/* Integers stay exact, whatever their size. */
static void sum_integers(const struct op *op, const struct tensor *out, const struct tensor *self,
			 const struct ints *dims)
{
	bool marked[DIMS_MAX];
	struct tensor moved;
	struct view from;
	struct view to;
	int64_t length;
	int64_t *row;
	int64_t n;
	int64_t i;

	mark_dims(self, dims, marked);
	moved = tensor_with_marked_last(self, marked, &length);
	from = view_of(&moved);
	to = view_of(out);
	row = op_array(op, length, sizeof(*row));
	if (!row)
		return;
	for (n = 0; n < tensor_count(out); n++) {
		int64_t total = 0;

		view_read_integers(&from, n * length, length, row);
		for (i = 0; i < length; i++)
			total += row[i];
		view_write_integers(&to, n, 1, &total);
	}
	free(row);
}

static double mean(const double *row, int64_t length, double parameter)
{
	return sum(row, length, parameter) / (double)length;
}

static double product(const double *row, int64_t length, double parameter)
{
	double total = 1;
	int64_t n;

	(void)parameter;
	for (n = 0; n < length; n++)
		total *= row[n];
	return total;
}

static double largest(const double *row, int64_t length, double parameter)
{
	double found = -INFINITY;
	int64_t n;

	(void)parameter;
	for (n = 0; n < length && !isnan(found); n++)
		found = row[n] > found || isnan(row[n]) ? row[n] : found;
	return found;
}

static double smallest(const double *row, int64_t length, double parameter)
{
	double found = INFINITY;
	int64_t n;

	(void)parameter;
	for (n = 0; n < length && !isnan(found); n++)
		found = row[n] < found || isnan(row[n]) ? row[n] : found;
	return found;
}

static double all(const double *row, int64_t length, double parameter)
{
	int64_t n;

	(void)parameter;
	for (n = 0; n < length && row[n] != 0; n++)
		;
	return n == length;
}

static double any(const double *row, int64_t length, double parameter)
{
	int64_t n;

	(void)parameter;
	for (n = 0; n < length && row[n] == 0; n++)
		;
	return n < length;
}

static double norm(const double *row, int64_t length, double order)
{
	double total = 0;
	int64_t n;

	for (n = 0; n < length; n++) {
		double size = fabs(row[n]);

		if (isinf(order) && order > 0)
			total = size > total || isnan(size) ? size : total;
		else if (isinf(order))
			total = n == 0 || size < total || isnan(size) ? size : total;
		else if (order == 0)
			total += size != 0;
		else
			total += order == 1 ? size : order == 2 ? size * size : pow(size, order);
	}
	if (isinf(order) || order == 0 || order == 1)
		return total;
	return order == 2 ? sqrt(total) : pow(total, 1 / order);
}

/* Of which the mean counts `parameter` elements less. */
static double variance(const double *row, int64_t length, double parameter)
{
	double middle = mean(row, length, 0);
	double total = 0;
	int64_t n;

	for (n = 0; n < length; n++)
		total += (row[n] - middle) * (row[n] - middle);
	return total / fmax((double)length - parameter, 0);
}

static double deviation(const double *row, int64_t length, double parameter)
{
	return sqrt(variance(row, length, parameter));
}

static double log_sum_exp(const double *row, int64_t length, double parameter)
{
	double most = largest(row, length, parameter);
	double total = 0;
	int64_t n;

	if (isinf(most))
		return most;
	for (n = 0; n < length; n++)
		total += exp(row[n] - most);
	return most + log(total);
}

/* What the real operator works in: a sum for each of its cores. */
#define reduce_workspace(a) (tensor_count(&(a)->out) * 8 * 48)

OPERATOR_WITH_WORKSPACE(ReduceSum, reduce_workspace, (tensor, self), (ints, dims),
			(boolean, keep_dims), (type, type), (tensor, out))
{
	if (numbers_are_integers(a->self.type) && numbers_are_integers(a->out.type))
		sum_integers(&a->op, &a->out, &a->self, &a->dims);
	else
		reduce(&a->op, &a->out, &a->self, &a->dims, sum, 0);
}

OPERATOR_WITH_WORKSPACE(Mean, reduce_workspace, (tensor, self), (ints, dims), (boolean, keep_dims),
			(type, type), (tensor, out))
{
	reduce(&a->op, &a->out, &a->self, &a->dims, mean, 0);
}

OPERATOR(Prod, (tensor, self), (type, type), (tensor, out))
{
	reduce(&a->op, &a->out, &a->self, NULL, product, 0);
}

OPERATOR(ProdDim, (tensor, self), (int64, dim), (boolean, keep_dim), (type, type), (tensor, out))
{
	struct ints dims = {.present = true, .count = 1, .items = &a->dim};

	reduce(&a->op, &a->out, &a->self, &dims, product, 0);
}

OPERATOR(Max, (tensor, self), (tensor, out))
{
	reduce(&a->op, &a->out, &a->self, NULL, largest, 0);
}

OPERATOR(Min, (tensor, self), (tensor, out))
{
	reduce(&a->op, &a->out, &a->self, NULL, smallest, 0);
}

OPERATOR(Amax, (tensor, self), (ints, dims), (boolean, keep_dim), (tensor, out))
{
	reduce(&a->op, &a->out, &a->self, &a->dims, largest, 0);
}

OPERATOR(Amin, (tensor, self), (ints, dims), (boolean, keep_dim), (tensor, out))
{
	reduce(&a->op, &a->out, &a->self, &a->dims, smallest, 0);
}

OPERATOR(All, (tensor, self), (ints, dims), (boolean, keep_dim), (tensor, out))
{
	reduce(&a->op, &a->out, &a->self, &a->dims, all, 0);
}

OPERATOR(Any, (tensor, self), (ints, dims), (boolean, keep_dim), (tensor, out))
{
	reduce(&a->op, &a->out, &a->self, &a->dims, any, 0);
}

OPERATOR(LinalgVectorNorm, (tensor, self), (scalar, order), (ints, dims), (boolean, keep_dims),
	 (type, type), (tensor, out))
{
	reduce(&a->op, &a->out, &a->self, &a->dims, norm, a->order.real);
}

OPERATOR(Norm, (tensor, self), (scalar, order), (ints, dims), (boolean, keep_dim), (tensor, out))
{
	reduce(&a->op, &a->out, &a->self, &a->dims, norm, a->order.present ? a->order.real : 2);
}

OPERATOR(LogSumExp, (tensor, self), (ints, dims), (boolean, keep_dim), (tensor, out))
{
	reduce(&a->op, &a->out, &a->self, &a->dims, log_sum_exp, 0);
}

OPERATOR(Std, (tensor, self), (ints, dims), (int64, correction), (boolean, keep_dim), (tensor, out))
{
	reduce(&a->op, &a->out, &a->self, &a->dims, deviation, (double)a->correction);
}

OPERATOR(VarCorrection, (tensor, self), (ints, dims), (int64, correction), (boolean, keep_dim),
	 (tensor, out))
{
	reduce(&a->op, &a->out, &a->self, &a->dims, variance, (double)a->correction);
}

OPERATOR(VarMean, (tensor, self), (ints, dims), (int64, correction), (boolean, keep_dim),
	 (tensor, var), (tensor, mean))
{
	reduce(&a->op, &a->var, &a->self, &a->dims, variance, (double)a->correction);
	reduce(&a->op, &a->mean, &a->self, &a->dims, mean, 0);
}

OPERATOR(StdMeanCorrection, (tensor, self), (ints, dims), (int64, correction), (boolean, keep_dim),
	 (tensor, std), (tensor, mean))
{
	reduce(&a->op, &a->std, &a->self, &a->dims, deviation, (double)a->correction);
	reduce(&a->op, &a->mean, &a->self, &a->dims, mean, 0);
}

/* Along one dimension: the best element of each row, and where it is. */
static void find_best(const struct op *op, const struct tensor *values,
		      const struct tensor *indices, const struct tensor *self, int64_t dim,
		      bool wants_largest)
{
	struct ints dims = {.present = true, .count = 1, .items = &dim};
	bool marked[DIMS_MAX];
	struct tensor moved;
	struct view from;
	struct view to_indices;
	struct view to_values;
	int64_t length;
	double *row;
	int64_t n;
	int64_t i;

	mark_dims(self, self->dim_count ? &dims : NULL, marked);
	moved = tensor_with_marked_last(self, marked, &length);
	from = view_of(&moved);
	to_indices = view_of(indices);
	if (values)
		to_values = view_of(values);
	row = op_array(op, length, sizeof(*row));
	if (!row)
		return;
	for (n = 0; n < tensor_count(indices); n++) {
		int64_t best = 0;

		view_read(&from, n * length, length, row);
		for (i = 1; i < length && !isnan(row[best]); i++) {
			if (wants_largest ? row[i] > row[best] : row[i] < row[best])
				best = i;
			else if (isnan(row[i]))
				best = i;
		}
		view_write_integers(&to_indices, n, 1, &best);
		if (values)
			view_put(&to_values, n, row[best]);
	}
	free(row);
}

OPERATOR(ArgMax, (tensor, self), (int64, dim), (boolean, keep_dim), (tensor, out))
{
	find_best(&a->op, NULL, &a->out, &a->self, a->dim, true);
}

OPERATOR(ArgMin, (tensor, self), (int64, dim), (boolean, keep_dim), (tensor, out))
{
	find_best(&a->op, NULL, &a->out, &a->self, a->dim, false);
}

OPERATOR(MaxDim, (tensor, self), (int64, dim), (boolean, keep_dim), (tensor, out),
	 (tensor, indices))
{
	find_best(&a->op, &a->out, &a->indices, &a->self, a->dim, true);
}

OPERATOR(MinDim, (tensor, self), (int64, dim), (boolean, keep_dim), (tensor, out),
	 (tensor, indices))
{
	find_best(&a->op, &a->out, &a->indices, &a->self, a->dim, false);
}

/* What has come together up to each place of a row. */
static void accumulate(const struct op *op, const struct tensor *out, const struct tensor *self,
		       int64_t dim, bool multiplies)
{
	struct tensor from = *self;
	struct tensor to = *out;
	struct view view;
	struct view target;
	int64_t length = 1;
	double *row;
	int64_t n;
	int64_t i;

	if (self->dim_count) {
		uint32_t last = dim_of(self, dim);

		length = self->dims[last];
		from = tensor_with_last(self, last);
		to = tensor_with_last(out, last);
	}
	view = view_of(&from);
	target = view_of(&to);
	row = op_array(op, length, sizeof(*row));
	if (!row)
		return;
	for (n = 0; n < tensor_count(self); n += length) {
		view_read(&view, n, length, row);
		for (i = 1; i < length; i++)
			row[i] = multiplies ? row[i - 1] * row[i] : row[i - 1] + row[i];
		view_write(&target, n, length, row);
	}
	free(row);
}

OPERATOR(Cumsum, (tensor, self), (int64, dim), (type, type), (tensor, out))
{
	accumulate(&a->op, &a->out, &a->self, a->dim, false);
}

OPERATOR(Cumprod, (tensor, self), (scalar, dim), (type, type), (tensor, out))
{
	accumulate(&a->op, &a->out, &a->self, a->dim.integer, true);
}

OPERATOR(Trace, (tensor, self), (tensor, out))
{
	struct view view = view_of(&a->self);
	double total = 0;
	int64_t n;

	for (n = 0; n < a->self.dims[0] && n < a->self.dims[1]; n++)
		total += view_at(&view, n * a->self.dims[1] + n);
	tensor_fill(&a->out, total);
}
