/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operators that fill, copy, convert and put together.
 */
#include <stdlib.h>
#include <string.h>

#include "map.h"
#include "old_math.h"

COMPLEX_OPERATOR(InplaceZero, (result, self))
{
	tensor_fill(&a->self, 0);
}

COMPLEX_OPERATOR(InplaceOne, (result, self))
{
	tensor_fill(&a->self, 1);
}

COMPLEX_OPERATOR(InplaceFillScalar, (result, self), (scalar, value))
{
	struct tensor one = scalar_tensor(&a->value);

	tensor_copy(&a->self, &one);
}

COMPLEX_OPERATOR(InplaceFillTensor, (result, self), (tensor, value))
{
	tensor_copy(&a->self, &a->value);
}

COMPLEX_OPERATOR(InplaceCopy, (result, self), (tensor, source))
{
	tensor_copy(&a->self, &a->source);
}

COMPLEX_OPERATOR(Cast, (tensor, self), (type, type), (result, out))
{
	tensor_copy(&a->out, &a->self);
}

COMPLEX_OPERATOR(NpuFormatCast, (tensor, self), (result, out))
{
	tensor_copy(&a->out, &a->self);
}

static void count_up(const struct tensor *out, const struct scalar *start,
		     const struct scalar *step)
{
	int64_t count = tensor_count(out);
	struct view view = view_of(out);
	int64_t integer;
	int64_t n;

	for (n = 0; n < count; n++) {
		/* For integers the start and the step are cut first. */
		if (numbers_are_integers(out->type)) {
			integer = start->integer + n * step->integer;
			view_write_integers(&view, n, 1, &integer);
		} else {
			view_put(&view, n, start->real + (double)n * step->real);
		}
	}
}

OPERATOR(Arange, (scalar, start), (scalar, end), (scalar, step), (result, out))
{
	count_up(&a->out, &a->start, &a->step);
}

OPERATOR(Range, (scalar, start), (scalar, end), (scalar, step), (result, out))
{
	count_up(&a->out, &a->start, &a->step);
}

/* A limit of a range, cut to an integer for a range of integers. */
static double limit_of(const struct scalar *limit, const struct tensor *out)
{
	return numbers_are_integers(out->type) ? (double)limit->integer : limit->real;
}

/* Element `n` of `steps` from the first to the last, counted from the nearer end. */
static double point(double first, double last, int64_t steps, int64_t n)
{
	double step = steps > 1 ? (last - first) / (double)(steps - 1) : 0;

	return steps == 1 || n < steps / 2 ? first + (double)n * step
					   : last - (double)(steps - 1 - n) * step;
}

OPERATOR(Linspace, (scalar, start), (scalar, end), (int64, steps), (result, out))
{
	struct view view = view_of(&a->out);
	int64_t n;

	for (n = 0; n < a->steps; n++)
		view_put(&view, n,
			 point(limit_of(&a->start, &a->out), limit_of(&a->end, &a->out), a->steps,
			       n));
}

OPERATOR(LogSpace, (scalar, start), (scalar, end), (int64, steps), (real, base), (result, out))
{
	struct view view = view_of(&a->out);
	int64_t n;

	for (n = 0; n < a->steps; n++)
		view_put(&view, n,
			 pow(a->base, point(limit_of(&a->start, &a->out),
					    limit_of(&a->end, &a->out), a->steps, n)));
}

COMPLEX_OPERATOR(Eye, (int64, rows), (int64, columns), (result, out))
{
	struct view view = view_of(&a->out);
	int64_t n;

	tensor_fill(&a->out, 0);
	for (n = 0; n < a->rows && n < a->columns; n++)
		view_put(&view, n * a->columns + n, 1);
}

/* Keeps what is on one side of a diagonal of each matrix, and puts 0 elsewhere. */
static void keep_triangle(const struct tensor *out, const struct tensor *self, int64_t diagonal,
			  bool lower)
{
	int64_t columns = self->dims[self->dim_count - 1];
	int64_t rows = self->dims[self->dim_count - 2];
	int64_t count = tensor_count(self);
	struct view from = view_of(self);
	struct view to = view_of(out);
	int64_t n;

	for (n = 0; n < count; n++) {
		int64_t distance = n % columns - n / columns % rows;
		bool kept = lower ? distance <= diagonal : distance >= diagonal;

		if (kept)
			view_copy(&to, n, &from, n);
		else
			view_put(&to, n, 0);
	}
}

COMPLEX_OPERATOR(Tril, (tensor, self), (int64, diagonal), (result, out))
{
	keep_triangle(&a->out, &a->self, a->diagonal, true);
}

COMPLEX_OPERATOR(Triu, (tensor, self), (int64, diagonal), (result, out))
{
	keep_triangle(&a->out, &a->self, a->diagonal, false);
}

COMPLEX_OPERATOR(InplaceTril, (tensor, self), (int64, diagonal))
{
	keep_triangle(&a->self, &a->self, a->diagonal, true);
}

COMPLEX_OPERATOR(InplaceTriu, (tensor, self), (int64, diagonal))
{
	keep_triangle(&a->self, &a->self, a->diagonal, false);
}

/* The part of a tensor that is `length` long from `start` on in one dimension. */
static struct tensor part_of(const struct tensor *tensor, uint32_t dim, int64_t start,
			     int64_t length)
{
	struct tensor part = *tensor;

	part.dims[dim] = length;
	part.data += start * tensor->strides[dim] * (int64_t)numbers_size(tensor->type);
	return part;
}

COMPLEX_OPERATOR(Cat, (tensors, tensors), (int64, dim), (result, out))
{
	uint32_t dim = dim_of(&a->out, a->dim);
	int64_t start = 0;
	size_t n;

	for (n = 0; n < a->tensors.count; n++) {
		const struct tensor *from = &a->tensors.items[n];
		struct tensor part;

		/* An empty one of one dimension fits everywhere. */
		if (tensor_count(from) == 0)
			continue;
		part = part_of(&a->out, dim, start, from->dims[dim]);
		tensor_copy(&part, from);
		start += from->dims[dim];
	}
}

COMPLEX_OPERATOR(Stack, (tensors, tensors), (int64, dim), (result, out))
{
	uint32_t dim = dim_of(&a->out, a->dim);
	size_t n;

	for (n = 0; n < a->tensors.count; n++) {
		struct tensor part = part_of(&a->out, dim, (int64_t)n, 1);

		/* Without the dimension, which is 1 long, it has the shape of what is stacked. */
		memmove(&part.dims[dim], &part.dims[dim + 1],
			(part.dim_count - 1 - dim) * sizeof(part.dims[0]));
		memmove(&part.strides[dim], &part.strides[dim + 1],
			(part.dim_count - 1 - dim) * sizeof(part.strides[0]));
		part.dim_count--;
		tensor_copy(&part, &a->tensors.items[n]);
	}
}

/*
 * Each tensor is cut along a dimension into as many chunks, the last ones filled up with 0; the first chunks of all tensors follow
 * each other, then the second ones, and so on.
 */
COMPLEX_OPERATOR(ChunkCat, (tensors, tensors), (int64, dim), (int64, chunks), (result, out))
{
	int64_t width = a->out.dims[a->out.dim_count - 1];
	struct view out = view_of(&a->out);
	int64_t start = 0;
	size_t n;
	int64_t i;

	tensor_fill(&a->out, 0);
	for (n = 0; n < a->tensors.count; n++) {
		const struct tensor *from = &a->tensors.items[n];
		uint32_t dim = dim_of(from, a->dim);
		int64_t length = (from->dims[dim] + a->chunks - 1) / a->chunks;
		struct view in = view_of(from);
		int64_t inner = 1;
		uint32_t d;

		for (d = dim + 1; d < from->dim_count; d++)
			inner *= from->dims[d];
		for (i = 0; i < tensor_count(from); i++) {
			int64_t at = i / inner % from->dims[dim];
			int64_t lead = i / inner / from->dims[dim];
			int64_t row = lead * a->chunks + at / length;
			int64_t column = start + at % length * inner + i % inner;

			view_copy(&out, row * width + column, &in, i);
		}
		start += length * inner;
	}
}

COMPLEX_OPERATOR(SplitWithSize, (tensor, self), (ints, sizes), (int64, dim), (results, out))
{
	uint32_t dim = dim_of(&a->self, a->dim);
	int64_t start = 0;
	size_t n;

	for (n = 0; n < a->out.count; n++) {
		struct tensor part = part_of(&a->self, dim, start, a->sizes.items[n]);

		tensor_copy(&a->out.items[n], &part);
		start += a->sizes.items[n];
	}
}

/* Each place of the result takes the element that `source()` names, by the indices of the place. */
static void take_from(const struct tensor *out, const struct tensor *self,
		      int64_t (*source)(uint32_t dim, int64_t index, const void *data),
		      const void *data)
{
	int64_t count = tensor_count(out);
	struct view to = view_of(out);
	int64_t n;

	for (n = 0; n < count; n++) {
		struct tensor element = *self;
		uint32_t skipped = out->dim_count - self->dim_count;
		int64_t rest = n;
		struct view from;
		uint32_t d;

		for (d = out->dim_count; d-- > 0; rest /= out->dims[d]) {
			int64_t at;

			if (d < skipped)
				continue;
			at = source(d - skipped, rest % out->dims[d], data);
			element.data +=
				at * self->strides[d - skipped] * (int64_t)numbers_size(self->type);
		}
		element.dim_count = 0;
		from = view_of(&element);
		view_copy(&to, n, &from, 0);
	}
}

static int64_t from_repeated(uint32_t dim, int64_t index, const void *data)
{
	const struct tensor *self = data;

	return index % self->dims[dim];
}

COMPLEX_OPERATOR(Repeat, (tensor, self), (ints, repeats), (result, out))
{
	take_from(&a->out, &a->self, from_repeated, &a->self);
}

struct turned {
	const struct tensor *self;
	const struct ints *dims;
	const struct ints *shifts; /* NULL: the order is turned round */
};

static int64_t from_turned(uint32_t dim, int64_t index, const void *data)
{
	const struct turned *turned = data;
	int64_t length = turned->self->dims[dim];
	size_t n;

	for (n = 0; n < turned->dims->count; n++) {
		if (dim_of(turned->self, turned->dims->items[n]) != dim)
			continue;
		if (!turned->shifts)
			return length - 1 - index;
		return ((index - turned->shifts->items[n]) % length + length) % length;
	}
	return index;
}

COMPLEX_OPERATOR(Flip, (tensor, self), (ints, dims), (result, out))
{
	struct turned turned = {.self = &a->self, .dims = &a->dims};

	take_from(&a->out, &a->self, from_turned, &turned);
}

/* Without dimensions all elements are one row. */
static void roll_flat(const struct op *op, const struct tensor *out, const struct tensor *self,
		      const struct ints *shifts)
{
	struct shape row = {.dim_count = 1, .dims = {tensor_count(self)}};
	struct shape shape = shape_of(self);
	double complex *values = op_array(op, row.dims[0], sizeof(*values));
	struct tensor copy = tensor_dense(self->type, values, &shape);
	struct tensor flat = tensor_dense(self->type, values, &row);
	struct view from = view_of(&flat);
	struct view to = view_of(out);
	int64_t n;

	if (!values)
		return;
	tensor_copy(&copy, self);
	for (n = 0; n < row.dims[0]; n++)
		view_copy(&to, ((n + shifts->items[0]) % row.dims[0] + row.dims[0]) % row.dims[0],
			  &from, n);
	free(values);
}

COMPLEX_OPERATOR(Roll, (tensor, self), (ints, shifts), (ints, dims), (result, out))
{
	struct turned turned = {.self = &a->self, .dims = &a->dims, .shifts = &a->shifts};

	if (a->dims.count)
		take_from(&a->out, &a->self, from_turned, &turned);
	else
		roll_flat(&a->op, &a->out, &a->self, &a->shifts);
}

/* The padding is in pairs, of the last dimension first; a negative one cuts off. */
COMPLEX_OPERATOR(ConstantPadNd, (tensor, self), (ints, padding), (scalar, value), (result, out))
{
	struct tensor from = a->self;
	struct tensor to = a->out;
	struct tensor value = scalar_tensor(&a->value);
	size_t n;

	tensor_copy(&a->out, &value);
	for (n = 0; n < a->padding.count / 2; n++) {
		uint32_t dim = a->out.dim_count - 1 - (uint32_t)n;
		int64_t before = a->padding.items[2 * n];
		int64_t start = before < 0 ? -before : 0;
		int64_t end = a->self.dims[dim] +
			      (a->padding.items[2 * n + 1] < 0 ? a->padding.items[2 * n + 1] : 0);

		if (end <= start)
			return;
		from = part_of(&from, dim, start, end - start);
		to = part_of(&to, dim, before < 0 ? 0 : before, end - start);
	}
	tensor_copy(&to, &from);
}
