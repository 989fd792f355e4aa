/* SPDX-License-Identifier: Apache-2.0 */
#include "array.h"

#include <stdlib.h>
#include <string.h>

int64_t shape_count(const struct shape *shape)
{
	int64_t count = 1;
	uint32_t n;

	for (n = 0; n < shape->dim_count; n++)
		count *= shape->dims[n];
	return count;
}

struct shape shape_of(const struct tensor *tensor)
{
	struct shape shape = {.dim_count = tensor->dim_count};

	memcpy(shape.dims, tensor->dims, sizeof(shape.dims));
	return shape;
}

int64_t tensor_count(const struct tensor *tensor)
{
	struct shape shape = shape_of(tensor);

	return shape_count(&shape);
}

struct shape shape_of_both(const struct tensor *left, const struct tensor *right)
{
	const struct tensor *longer = left->dim_count >= right->dim_count ? left : right;
	const struct tensor *other = longer == left ? right : left;
	struct shape shape = shape_of(longer);
	uint32_t n;

	for (n = 0; n < other->dim_count; n++) {
		int64_t *dim = &shape.dims[shape.dim_count - 1 - n];

		if (*dim == 1)
			*dim = other->dims[other->dim_count - 1 - n];
	}
	return shape;
}

uint32_t dim_of(const struct tensor *tensor, int64_t dim)
{
	return (uint32_t)(dim < 0 ? dim + (tensor->dim_count ? tensor->dim_count : 1) : dim);
}

/* Adds a dimension inside of those that are there, or makes the last of them longer. */
static void append_dim(struct view *view, int64_t dim, int64_t stride)
{
	uint32_t last = view->dim_count - 1;

	if (dim == 1)
		return;
	if (view->dim_count && view->strides[last] == stride * dim) {
		view->dims[last] *= dim;
		view->strides[last] = stride;
		return;
	}
	view->dims[view->dim_count] = dim;
	view->strides[view->dim_count++] = stride;
}

struct view view_as(const struct tensor *tensor, const struct shape *shape)
{
	struct view view = {
		.type = tensor->type,
		.data = tensor->data,
		.size = numbers_size(tensor->type),
	};
	uint32_t skipped = shape->dim_count - tensor->dim_count;
	uint32_t n;

	for (n = 0; n < shape->dim_count; n++) {
		bool repeats = n < skipped || tensor->dims[n - skipped] == 1;

		append_dim(&view, shape->dims[n], repeats ? 0 : tensor->strides[n - skipped]);
	}
	return view;
}

struct view view_of(const struct tensor *tensor)
{
	struct shape shape = shape_of(tensor);

	return view_as(tensor, &shape);
}

/* Where a run of elements that follow each other with one stride begins, and how long it is. */
struct run {
	int64_t at; /* in elements from the view's data */
	int64_t stride;
	int64_t count;
};

static struct run run_at(const struct view *view, int64_t start, int64_t count)
{
	struct run run = {.stride = 1, .count = count};
	uint32_t n = view->dim_count;

	if (!n)
		return run;
	n--;
	run.stride = view->strides[n];
	run.at = start % view->dims[n] * run.stride;
	if (run.count > view->dims[n] - start % view->dims[n])
		run.count = view->dims[n] - start % view->dims[n];
	for (start /= view->dims[n]; n-- > 0; start /= view->dims[n])
		run.at += start % view->dims[n] * view->strides[n];
	return run;
}

#define FOR_RUNS(call)                                                                             \
	while (count > 0) {                                                                        \
		struct run run = run_at(view, start, count);                                       \
		void *data = view->data + run.at * (int64_t)view->size;                            \
                                                                                                   \
		call;                                                                              \
		start += run.count;                                                                \
		count -= run.count;                                                                \
		values += run.count;                                                               \
	}

void view_read(const struct view *view, int64_t start, int64_t count, double *values)
{
	FOR_RUNS(numbers_to_real(view->type, data, run.stride, (size_t)run.count, values))
}

void view_read_integers(const struct view *view, int64_t start, int64_t count, int64_t *values)
{
	FOR_RUNS(numbers_to_integer(view->type, data, run.stride, (size_t)run.count, values))
}

void view_write(const struct view *view, int64_t start, int64_t count, const double *values)
{
	FOR_RUNS(numbers_from_real(view->type, data, run.stride, (size_t)run.count, values))
}

void view_write_integers(const struct view *view, int64_t start, int64_t count,
			 const int64_t *values)
{
	FOR_RUNS(numbers_from_integer(view->type, data, run.stride, (size_t)run.count, values))
}

void view_read_complex(const struct view *view, int64_t start, int64_t count,
		       double complex *values)
{
	FOR_RUNS(numbers_to_complex(view->type, data, run.stride, (size_t)run.count, values))
}

void view_write_complex(const struct view *view, int64_t start, int64_t count,
			const double complex *values)
{
	FOR_RUNS(numbers_from_complex(view->type, data, run.stride, (size_t)run.count, values))
}

double view_at(const struct view *view, int64_t n)
{
	double value = 0;

	view_read(view, n, 1, &value);
	return value;
}

int64_t view_integer_at(const struct view *view, int64_t n)
{
	int64_t value = 0;

	view_read_integers(view, n, 1, &value);
	return value;
}

void view_put(const struct view *view, int64_t n, double value)
{
	view_write(view, n, 1, &value);
}

void view_copy(const struct view *to, int64_t at, const struct view *from, int64_t n)
{
	if (numbers_are_complex(from->type)) {
		double complex value = 0;

		view_read_complex(from, n, 1, &value);
		view_write_complex(to, at, 1, &value);
	} else if (numbers_are_integers(from->type)) {
		int64_t value = view_integer_at(from, n);

		view_write_integers(to, at, 1, &value);
	} else {
		view_put(to, at, view_at(from, n));
	}
}

static double complex complex_at(const struct view *view, int64_t n)
{
	double complex value = 0;

	view_read_complex(view, n, 1, &value);
	return value;
}

/* to[at] + from[n] * factor, or the product of both. Sums of truth values are true when one is. */
static void combine(const struct view *to, int64_t at, const struct view *from, int64_t n,
		    double complex factor, bool multiplies)
{
	if (numbers_are_integers(to->type) && numbers_are_integers(from->type)) {
		int64_t left = view_integer_at(to, at);
		int64_t right = view_integer_at(from, n);
		int64_t value = multiplies ? left * right : left + (int64_t)creal(factor) * right;

		view_write_integers(to, at, 1, &value);
	} else {
		double complex left = complex_at(to, at);
		double complex right = complex_at(from, n);
		double complex value = multiplies ? left * right : left + factor * right;

		view_write_complex(to, at, 1, &value);
	}
}

void view_add(const struct view *to, int64_t at, const struct view *from, int64_t n,
	      double complex factor)
{
	combine(to, at, from, n, factor, false);
}

void view_multiply(const struct view *to, int64_t at, const struct view *from, int64_t n)
{
	combine(to, at, from, n, 1, true);
}

bool view_equals(const struct view *left, int64_t at, const struct view *right, int64_t n)
{
	if (numbers_are_integers(left->type) && numbers_are_integers(right->type))
		return view_integer_at(left, at) == view_integer_at(right, n);
	return complex_at(left, at) == complex_at(right, n);
}

bool view_is_true(const struct view *view, int64_t n)
{
	return complex_at(view, n) != 0;
}

void *op_array(const struct op *op, int64_t count, size_t size)
{
	void *array = calloc(count > 0 ? (size_t)count : 1, size);

	if (!array)
		op_cannot(op, "the host has no memory");
	return array;
}

double *tensor_read(const struct op *op, const struct tensor *tensor)
{
	int64_t count = tensor_count(tensor);
	double *values = op_array(op, count, sizeof(*values));
	struct view view = view_of(tensor);

	if (values)
		view_read(&view, 0, count, values);
	return values;
}

int64_t *tensor_read_integers(const struct op *op, const struct tensor *tensor)
{
	int64_t count = tensor_count(tensor);
	int64_t *values = op_array(op, count, sizeof(*values));
	struct view view = view_of(tensor);

	if (values)
		view_read_integers(&view, 0, count, values);
	return values;
}

void tensor_write(const struct tensor *tensor, const double *values)
{
	struct view view = view_of(tensor);

	view_write(&view, 0, tensor_count(tensor), values);
}

void tensor_write_integers(const struct tensor *tensor, const int64_t *values)
{
	struct view view = view_of(tensor);

	view_write_integers(&view, 0, tensor_count(tensor), values);
}

void tensor_fill(const struct tensor *tensor, double value)
{
	int64_t count = tensor_count(tensor);
	struct view view = view_of(tensor);
	double piece[PIECE];
	int64_t n;

	for (n = 0; n < PIECE; n++)
		piece[n] = value;
	for (n = 0; n < count; n += PIECE)
		view_write(&view, n, count - n < PIECE ? count - n : PIECE, piece);
}

void tensor_copy(const struct tensor *to, const struct tensor *from)
{
	struct shape shape = shape_of(to);
	struct view target = view_as(to, &shape);
	struct view source = view_as(from, &shape);
	int64_t count = shape_count(&shape);
	int64_t n;

	for (n = 0; n < count; n += PIECE) {
		int64_t length = count - n < PIECE ? count - n : PIECE;

		if (numbers_are_complex(from->type)) {
			double complex piece[PIECE];

			view_read_complex(&source, n, length, piece);
			view_write_complex(&target, n, length, piece);
		} else if (numbers_are_integers(from->type)) {
			int64_t piece[PIECE];

			view_read_integers(&source, n, length, piece);
			view_write_integers(&target, n, length, piece);
		} else {
			double piece[PIECE];

			view_read(&source, n, length, piece);
			view_write(&target, n, length, piece);
		}
	}
}

struct tensor tensor_with_marked_last(const struct tensor *tensor, const bool marked[DIMS_MAX],
				      int64_t *marked_count)
{
	struct tensor moved = *tensor;
	uint32_t at = 0;
	int pass;
	uint32_t n;

	*marked_count = 1;
	for (pass = 0; pass < 2; pass++) {
		for (n = 0; n < tensor->dim_count; n++) {
			if (marked[n] != (pass == 1))
				continue;
			moved.dims[at] = tensor->dims[n];
			moved.strides[at++] = tensor->strides[n];
			if (pass == 1)
				*marked_count *= tensor->dims[n];
		}
	}
	return moved;
}

struct tensor tensor_with_last(const struct tensor *tensor, uint32_t dim)
{
	bool marked[DIMS_MAX] = {false};
	int64_t count;

	marked[dim] = true;
	return tensor_with_marked_last(tensor, marked, &count);
}

struct tensor tensor_dense(aclDataType type, void *data, const struct shape *shape)
{
	struct tensor tensor = {
		.present = true,
		.type = type,
		.dim_count = shape->dim_count,
		.data = data,
	};
	int64_t stride = 1;
	uint32_t n;

	for (n = shape->dim_count; n-- > 0;) {
		tensor.dims[n] = shape->dims[n];
		tensor.strides[n] = stride;
		stride *= shape->dims[n];
	}
	return tensor;
}

struct tensor scalar_tensor(const struct scalar *scalar)
{
	static const struct shape none;
	const void *value = &scalar->real;
	aclDataType type = ACL_DOUBLE;

	if (numbers_are_complex(scalar->type)) {
		value = &scalar->complex_value;
		type = ACL_COMPLEX128;
	} else if (numbers_are_integers(scalar->type)) {
		value = &scalar->integer;
		type = ACL_INT64;
	}
	return tensor_dense(type, (void *)(uintptr_t)value, &none);
}

double tensor_number(const struct tensor *tensor)
{
	struct view view;

	if (!tensor->present)
		return 0;
	view = view_of(tensor);
	return view_at(&view, 0);
}
