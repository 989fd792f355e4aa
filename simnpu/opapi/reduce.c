/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operators that make one number of many: along some dimensions, of which the others keep their order.
 */
#include <stdlib.h>

#include "array.h"
#include "old_math.h"
#include "workspace.h"

/* Makes a number of a row. Integers stay exact, whatever their size. */
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

typedef int64_t reduce_integer(const int64_t *row, int64_t length);
typedef double complex reduce_complex(const double complex *row, int64_t length, double parameter);

/* The forms that a reduction has. Integers without one of their own are computed as reals. */
struct reduction {
	reduce_real *real;
	reduce_integer *integer;
	reduce_complex *complex_form;
	double parameter;
};

#define REDUCE_LOOP(type, read, write, call)                                                       \
	{                                                                                          \
		type *row = op_array(op, length, sizeof(*row));                                    \
		type value;                                                                        \
                                                                                                   \
		for (n = 0; n < count && row; n++) {                                               \
			read(&from, n *length, length, row);                                       \
			value = call;                                                              \
			write(&to, n, 1, &value);                                                  \
		}                                                                                  \
		free(row);                                                                         \
	}

static void reduce(const struct op *op, const struct tensor *out, const struct tensor *self,
		   const struct ints *dims, struct reduction fn)
{
	int64_t count = tensor_count(out);
	bool marked[DIMS_MAX];
	struct tensor moved;
	struct view from;
	struct view to;
	int64_t length;
	int64_t n;

	mark_dims(self, dims, marked);
	moved = tensor_with_marked_last(self, marked, &length);
	from = view_of(&moved);
	to = view_of(out);
	if (numbers_are_complex(self->type))
		REDUCE_LOOP(double complex, view_read_complex, view_write_complex,
			    fn.complex_form(row, length, fn.parameter))
	else if (fn.integer && numbers_are_integers(self->type) && numbers_are_integers(out->type))
		REDUCE_LOOP(int64_t, view_read_integers, view_write_integers,
			    fn.integer(row, length))
	else
		REDUCE_LOOP(double, view_read, view_write, fn.real(row, length, fn.parameter))
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

#define INTEGER_FORM(name, start, step)                                                            \
	static int64_t integer_##name(const int64_t *row, int64_t length)                          \
	{                                                                                          \
		int64_t total = start;                                                             \
		int64_t n;                                                                         \
                                                                                                   \
		for (n = 0; n < length; n++)                                                       \
			total = step;                                                              \
		return total;                                                                      \
	}
INTEGER_FORM(sum, 0, total + row[n])
INTEGER_FORM(product, 1, total *row[n])
INTEGER_FORM(largest, INT64_MIN, row[n] > total ? row[n] : total)
INTEGER_FORM(smallest, INT64_MAX, row[n] < total ? row[n] : total)

#define COMPLEX_FORM(name, start, step, end)                                                       \
	static double complex complex_##name(const double complex *row, int64_t length,            \
					     double parameter)                                     \
	{                                                                                          \
		double complex total = start;                                                      \
		int64_t n;                                                                         \
                                                                                                   \
		(void)parameter;                                                                   \
		for (n = 0; n < length; n++)                                                       \
			total = step;                                                              \
		return end;                                                                        \
	}
COMPLEX_FORM(sum, 0, total + row[n], total)
COMPLEX_FORM(mean, 0, total + row[n], total / (double)length)
COMPLEX_FORM(product, 1, total *row[n], total)
COMPLEX_FORM(all, 1, total != 0 && row[n] != 0, total)
COMPLEX_FORM(any, 0, total != 0 || row[n] != 0, total)

/* Of the sizes of its elements. */
static double complex complex_norm(const double complex *row, int64_t length, double order)
{
	double *sizes = malloc((size_t)(length ? length : 1) * sizeof(*sizes));
	double result = NAN;
	int64_t n;

	if (sizes) {
		for (n = 0; n < length; n++)
			sizes[n] = cabs(row[n]);
		result = norm(sizes, length, order);
	}
	free(sizes);
	return result;
}

#define reduce_workspace(a) workspace_of_reduction(&(a)->out)

OPERATOR_IN_FULL(ReduceSum, reduce_workspace, OP_COMPLEX, (tensor, self), (ints, dims),
		 (boolean, keep_dims), (type, type), (result, out))
{
	reduce(&a->op, &a->out, &a->self, &a->dims,
	       (struct reduction){sum, integer_sum, complex_sum, 0});
}

OPERATOR_IN_FULL(Mean, reduce_workspace, OP_COMPLEX, (tensor, self), (ints, dims),
		 (boolean, keep_dims), (type, type), (result, out))
{
	reduce(&a->op, &a->out, &a->self, &a->dims,
	       (struct reduction){mean, NULL, complex_mean, 0});
}

COMPLEX_OPERATOR(Prod, (tensor, self), (type, type), (result, out))
{
	reduce(&a->op, &a->out, &a->self, NULL,
	       (struct reduction){product, integer_product, complex_product, 0});
}

COMPLEX_OPERATOR(ProdDim, (tensor, self), (int64, dim), (boolean, keep_dim), (type, type),
		 (result, out))
{
	struct ints dims = {.present = true, .count = 1, .items = &a->dim};

	reduce(&a->op, &a->out, &a->self, &dims,
	       (struct reduction){product, integer_product, complex_product, 0});
}

OPERATOR(Max, (tensor, self), (result, out))
{
	reduce(&a->op, &a->out, &a->self, NULL,
	       (struct reduction){largest, integer_largest, NULL, 0});
}

OPERATOR(Min, (tensor, self), (result, out))
{
	reduce(&a->op, &a->out, &a->self, NULL,
	       (struct reduction){smallest, integer_smallest, NULL, 0});
}

OPERATOR(Amax, (tensor, self), (ints, dims), (boolean, keep_dim), (result, out))
{
	reduce(&a->op, &a->out, &a->self, &a->dims,
	       (struct reduction){largest, integer_largest, NULL, 0});
}

OPERATOR(Amin, (tensor, self), (ints, dims), (boolean, keep_dim), (result, out))
{
	reduce(&a->op, &a->out, &a->self, &a->dims,
	       (struct reduction){smallest, integer_smallest, NULL, 0});
}

COMPLEX_OPERATOR(All, (tensor, self), (ints, dims), (boolean, keep_dim), (result, out))
{
	reduce(&a->op, &a->out, &a->self, &a->dims, (struct reduction){all, NULL, complex_all, 0});
}

COMPLEX_OPERATOR(Any, (tensor, self), (ints, dims), (boolean, keep_dim), (result, out))
{
	reduce(&a->op, &a->out, &a->self, &a->dims, (struct reduction){any, NULL, complex_any, 0});
}

COMPLEX_OPERATOR(LinalgVectorNorm, (tensor, self), (scalar, order), (ints, dims),
		 (boolean, keep_dims), (type, type), (result, out))
{
	reduce(&a->op, &a->out, &a->self, &a->dims,
	       (struct reduction){norm, NULL, complex_norm, a->order.real});
}

COMPLEX_OPERATOR(Norm, (tensor, self), (scalar, order), (ints, dims), (boolean, keep_dim),
		 (result, out))
{
	reduce(&a->op, &a->out, &a->self, &a->dims,
	       (struct reduction){norm, NULL, complex_norm, a->order.present ? a->order.real : 2});
}

static double sum_of_numbers(const double *row, int64_t length, double parameter)
{
	double total = 0;
	int64_t n;

	(void)parameter;
	for (n = 0; n < length; n++)
		total += isnan(row[n]) ? 0 : row[n];
	return total;
}

OPERATOR(ReduceNansum, (tensor, self), (ints, dims), (boolean, keep_dims), (type, type),
	 (result, out))
{
	reduce(&a->op, &a->out, &a->self, &a->dims,
	       (struct reduction){sum_of_numbers, integer_sum, NULL, 0});
}

static void find_limits(const struct op *op, const struct tensor *self, const struct ints *dims,
			const struct tensor *least, const struct tensor *most)
{
	reduce(op, least, self, dims, (struct reduction){smallest, integer_smallest, NULL, 0});
	reduce(op, most, self, dims, (struct reduction){largest, integer_largest, NULL, 0});
}

OPERATOR(Aminmax, (tensor, self), (ints, dims), (boolean, keep_dim), (result, least),
	 (result, most))
{
	find_limits(&a->op, &a->self, &a->dims, &a->least, &a->most);
}

OPERATOR(AminmaxDim, (tensor, self), (int64, dim), (boolean, keep_dim), (result, least),
	 (result, most))
{
	struct ints dims = {.present = true, .count = 1, .items = &a->dim};

	find_limits(&a->op, &a->self, &dims, &a->least, &a->most);
}

OPERATOR(AminmaxAll, (tensor, self), (result, least), (result, most))
{
	find_limits(&a->op, &a->self, NULL, &a->least, &a->most);
}

/* Slices of a dimension whose norm is too large are made smaller. */
static void renormalise(const struct op *op, const struct tensor *out, const struct tensor *self,
			double order, int64_t wanted_dim, double most)
{
	uint32_t dim = dim_of(self, wanted_dim);
	bool marked[DIMS_MAX] = {false};
	struct tensor from;
	struct tensor to;
	struct view in;
	struct view target;
	int64_t length;
	double *row;
	int64_t n;
	int64_t i;
	uint32_t d;

	for (d = 0; d < self->dim_count; d++)
		marked[d] = d != dim;
	from = tensor_with_marked_last(self, marked, &length);
	to = tensor_with_marked_last(out, marked, &length);
	in = view_of(&from);
	target = view_of(&to);
	row = op_array(op, length, sizeof(*row));
	for (n = 0; n < self->dims[dim] && row; n++) {
		double size;

		view_read(&in, n * length, length, row);
		size = norm(row, length, order);
		for (i = 0; i < length; i++)
			row[i] *= size > most ? most / (size + 1e-7) : 1;
		view_write(&target, n * length, length, row);
	}
	free(row);
}

OPERATOR(Renorm, (tensor, self), (scalar, order), (int64, dim), (scalar, most), (result, out))
{
	renormalise(&a->op, &a->out, &a->self, a->order.real, a->dim, a->most.real);
}

OPERATOR(InplaceRenorm, (tensor, self), (scalar, order), (int64, dim), (scalar, most))
{
	renormalise(&a->op, &a->self, &a->self, a->order.real, a->dim, a->most.real);
}

OPERATOR(LogSumExp, (tensor, self), (ints, dims), (boolean, keep_dim), (result, out))
{
	reduce(&a->op, &a->out, &a->self, &a->dims, (struct reduction){log_sum_exp, NULL, NULL, 0});
}

OPERATOR(Std, (tensor, self), (ints, dims), (int64, correction), (boolean, keep_dim), (result, out))
{
	reduce(&a->op, &a->out, &a->self, &a->dims,
	       (struct reduction){deviation, NULL, NULL, (double)a->correction});
}

OPERATOR(VarCorrection, (tensor, self), (ints, dims), (int64, correction), (boolean, keep_dim),
	 (result, out))
{
	reduce(&a->op, &a->out, &a->self, &a->dims,
	       (struct reduction){variance, NULL, NULL, (double)a->correction});
}

OPERATOR(VarMean, (tensor, self), (ints, dims), (int64, correction), (boolean, keep_dim),
	 (result, var), (result, mean))
{
	reduce(&a->op, &a->var, &a->self, &a->dims,
	       (struct reduction){variance, NULL, NULL, (double)a->correction});
	reduce(&a->op, &a->mean, &a->self, &a->dims,
	       (struct reduction){mean, NULL, complex_mean, 0});
}

OPERATOR(StdMeanCorrection, (tensor, self), (ints, dims), (int64, correction), (boolean, keep_dim),
	 (result, std), (result, mean))
{
	reduce(&a->op, &a->std, &a->self, &a->dims,
	       (struct reduction){deviation, NULL, NULL, (double)a->correction});
	reduce(&a->op, &a->mean, &a->self, &a->dims,
	       (struct reduction){mean, NULL, complex_mean, 0});
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

OPERATOR(ArgMax, (tensor, self), (int64, dim), (boolean, keep_dim), (result, out))
{
	find_best(&a->op, NULL, &a->out, &a->self, a->dim, true);
}

OPERATOR(ArgMin, (tensor, self), (int64, dim), (boolean, keep_dim), (result, out))
{
	find_best(&a->op, NULL, &a->out, &a->self, a->dim, false);
}

OPERATOR(MaxDim, (tensor, self), (int64, dim), (boolean, keep_dim), (result, out),
	 (result, indices))
{
	find_best(&a->op, &a->out, &a->indices, &a->self, a->dim, true);
}

OPERATOR(MinDim, (tensor, self), (int64, dim), (boolean, keep_dim), (result, out),
	 (result, indices))
{
	find_best(&a->op, &a->out, &a->indices, &a->self, a->dim, false);
}

#define SCAN_LOOP(type, read, write)                                                               \
	{                                                                                          \
		type *row = op_array(op, length, sizeof(*row));                                    \
                                                                                                   \
		for (n = 0; n < count && row; n += length) {                                       \
			read(&view, n, length, row);                                               \
			for (i = 1; i < length; i++)                                               \
				row[i] = multiplies ? row[i - 1] * row[i] : row[i - 1] + row[i];   \
			write(&target, n, length, row);                                            \
		}                                                                                  \
		free(row);                                                                         \
	}

/* What has come together up to each place of a row. */
static void accumulate(const struct op *op, const struct tensor *out, const struct tensor *self,
		       int64_t dim, bool multiplies)
{
	int64_t count = tensor_count(self);
	struct tensor from = *self;
	struct tensor to = *out;
	struct view view;
	struct view target;
	int64_t length = 1;
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
	if (numbers_are_complex(self->type))
		SCAN_LOOP(double complex, view_read_complex, view_write_complex)
	else if (numbers_are_integers(self->type) && numbers_are_integers(out->type))
		SCAN_LOOP(int64_t, view_read_integers, view_write_integers)
	else
		SCAN_LOOP(double, view_read, view_write)
}

COMPLEX_OPERATOR(Cumsum, (tensor, self), (int64, dim), (type, type), (result, out))
{
	accumulate(&a->op, &a->out, &a->self, a->dim, false);
}

COMPLEX_OPERATOR(Cumprod, (tensor, self), (scalar, dim), (type, type), (result, out))
{
	accumulate(&a->op, &a->out, &a->self, a->dim.integer, true);
}

COMPLEX_OPERATOR(Trace, (tensor, self), (result, out))
{
	struct view view = view_of(&a->self);
	struct view out = view_of(&a->out);
	int64_t n;

	tensor_fill(&a->out, 0);
	for (n = 0; n < a->self.dims[0] && n < a->self.dims[1]; n++)
		view_add(&out, 0, &view, n * a->self.dims[1] + n, 1);
}
