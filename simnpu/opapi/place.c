/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operators that put, take and repeat: slices along a dimension, elements by their number in the whole tensor, elements by a mask.
 */
#include <stdlib.h>

#include "array.h"
#include "old_math.h"

/* Index `at` of a dimension, counted from the end when negative. */
static bool in_range(const struct op *op, int64_t *at, int64_t length)
{
	if (*at < 0)
		*at += length;
	if (*at >= 0 && *at < length)
		return true;
	op_cannot(op, "an index is out of range");
	return false;
}

/* What is at `at` of a dimension, as a tensor in which that dimension is 1 long. A number has one such slice. */
static struct tensor slice_at(const struct tensor *tensor, uint32_t dim, int64_t at)
{
	struct tensor slice = *tensor;

	if (!tensor->dim_count)
		return slice;
	slice.data += at * tensor->strides[dim] * (int64_t)numbers_size(tensor->type);
	slice.dims[dim] = 1;
	return slice;
}

static int64_t length_of(const struct tensor *tensor, uint32_t dim)
{
	return tensor->dim_count ? tensor->dims[dim] : 1;
}

/* Slice `index[n]` becomes slice `n` of the source, or all of the source when that is a number. */
static void put_slices(const struct op *op, const struct tensor *to, int64_t wanted_dim,
		       const struct tensor *index, const struct tensor *source, bool is_number)
{
	uint32_t dim = dim_of(to, wanted_dim);
	struct view indices = view_of(index);
	int64_t n;

	for (n = 0; n < tensor_count(index); n++) {
		int64_t at = view_integer_at(&indices, n);
		struct tensor target;
		struct tensor from;

		if (!in_range(op, &at, length_of(to, dim)))
			continue;
		target = slice_at(to, dim, at);
		from = is_number ? *source : slice_at(source, dim, n);
		tensor_copy(&target, &from);
	}
}

static void fill_slices(const struct op *op, const struct tensor *to, int64_t dim,
			const struct tensor *index, const struct scalar *value)
{
	struct tensor number = scalar_tensor(value);

	put_slices(op, to, dim, index, &number, true);
}

static void fill_listed(const struct op *op, const struct tensor *to, int64_t dim,
			const struct ints *index, const struct scalar *value)
{
	struct shape shape = {.dim_count = 1, .dims = {(int64_t)index->count}};
	struct tensor indices = tensor_dense(ACL_INT64, index->items, &shape);

	fill_slices(op, to, dim, &indices, value);
}

COMPLEX_OPERATOR(IndexFill, (tensor, self), (int64, dim), (tensor, index), (scalar, value),
		 (result, out))
{
	tensor_copy(&a->out, &a->self);
	fill_slices(&a->op, &a->out, a->dim, &a->index, &a->value);
}

COMPLEX_OPERATOR(InplaceIndexFill, (tensor, self), (int64, dim), (tensor, index), (scalar, value))
{
	fill_slices(&a->op, &a->self, a->dim, &a->index, &a->value);
}

COMPLEX_OPERATOR(IndexFillTensor, (tensor, self), (int64, dim), (ints, index), (scalar, value),
		 (result, out))
{
	tensor_copy(&a->out, &a->self);
	fill_listed(&a->op, &a->out, a->dim, &a->index, &a->value);
}

COMPLEX_OPERATOR(InplaceIndexFillTensor, (tensor, self), (int64, dim), (ints, index),
		 (scalar, value))
{
	fill_listed(&a->op, &a->self, a->dim, &a->index, &a->value);
}

COMPLEX_OPERATOR(IndexCopy, (tensor, self), (int64, dim), (tensor, index), (tensor, source),
		 (result, out))
{
	tensor_copy(&a->out, &a->self);
	put_slices(&a->op, &a->out, a->dim, &a->index, &a->source, false);
}

COMPLEX_OPERATOR(InplaceIndexCopy, (tensor, self), (int64, dim), (tensor, index), (tensor, source))
{
	put_slices(&a->op, &a->self, a->dim, &a->index, &a->source, false);
}

COMPLEX_OPERATOR(Take, (tensor, self), (tensor, index), (result, out))
{
	struct view self = view_of(&a->self);
	struct view indices = view_of(&a->index);
	struct view out = view_of(&a->out);
	int64_t n;

	for (n = 0; n < tensor_count(&a->index); n++) {
		int64_t at = view_integer_at(&indices, n);

		if (in_range(&a->op, &at, tensor_count(&a->self)))
			view_copy(&out, n, &self, at);
	}
}

COMPLEX_OPERATOR(InplacePut, (tensor, self), (tensor, index), (tensor, source),
		 (boolean, accumulate))
{
	struct view self = view_of(&a->self);
	struct view indices = view_of(&a->index);
	struct view source = view_of(&a->source);
	int64_t n;

	for (n = 0; n < tensor_count(&a->index); n++) {
		int64_t at = view_integer_at(&indices, n);

		if (!in_range(&a->op, &at, tensor_count(&a->self)))
			continue;
		if (a->accumulate)
			view_add(&self, at, &source, n, 1);
		else
			view_copy(&self, at, &source, n);
	}
}

/* The elements of the source, one after the other, where the mask is true. */
COMPLEX_OPERATOR(InplaceMaskedScatter, (tensor, self), (tensor, mask), (tensor, source))
{
	struct shape shape = shape_of(&a->self);
	struct view self = view_of(&a->self);
	struct view mask = view_as(&a->mask, &shape);
	struct view source = view_of(&a->source);
	int64_t used = 0;
	int64_t n;

	for (n = 0; n < shape_count(&shape); n++) {
		if (!view_integer_at(&mask, n))
			continue;
		if (used == tensor_count(&a->source)) {
			op_cannot(&a->op, "the mask has more places than the source has elements");
			return;
		}
		view_copy(&self, n, &source, used++);
	}
}

/* Slice n of `self`, repeats[n] times; one number of repeats is for all. */
static void repeat_slices(const struct op *op, const struct tensor *out, const struct tensor *self,
			  uint32_t dim, const struct tensor *repeats)
{
	struct view counts = view_of(repeats);
	bool is_one = tensor_count(repeats) == 1;
	int64_t end = length_of(out, dim);
	int64_t at = 0;
	int64_t n;

	for (n = 0; n < length_of(self, dim); n++) {
		int64_t left = view_integer_at(&counts, is_one ? 0 : n);

		for (; left > 0; left--, at++) {
			struct tensor from = slice_at(self, dim, n);
			struct tensor to;

			if (at >= end) {
				op_cannot(op, "the repeats are more than the result has room for");
				return;
			}
			to = slice_at(out, dim, at);
			tensor_copy(&to, &from);
		}
	}
}

/* All elements are one row. */
static void repeat_elements(const struct op *op, const struct tensor *out,
			    const struct tensor *self, const struct tensor *repeats)
{
	struct view counts = view_of(repeats);
	struct view from = view_of(self);
	struct view to = view_of(out);
	bool is_one = tensor_count(repeats) == 1;
	int64_t at = 0;
	int64_t n;

	for (n = 0; n < tensor_count(self); n++) {
		int64_t left = view_integer_at(&counts, is_one ? 0 : n);

		for (; left > 0 && at < tensor_count(out); left--)
			view_copy(&to, at++, &from, n);
		if (left > 0)
			op_cannot(op, "the repeats are more than the result has room for");
	}
}

static struct tensor number_of(int64_t *value)
{
	static const struct shape none;

	return tensor_dense(ACL_INT64, value, &none);
}

COMPLEX_OPERATOR(RepeatInterleaveInt, (tensor, self), (int64, repeats), (int64, size),
		 (result, out))
{
	struct tensor repeats = number_of(&a->repeats);

	repeat_elements(&a->op, &a->out, &a->self, &repeats);
}

COMPLEX_OPERATOR(RepeatInterleaveIntWithDim, (tensor, self), (int64, repeats), (int64, dim),
		 (int64, size), (result, out))
{
	struct tensor repeats = number_of(&a->repeats);

	repeat_slices(&a->op, &a->out, &a->self, dim_of(&a->self, a->dim), &repeats);
}

COMPLEX_OPERATOR(RepeatInterleave, (tensor, self), (tensor, repeats), (int64, size), (result, out))
{
	repeat_elements(&a->op, &a->out, &a->self, &a->repeats);
}

COMPLEX_OPERATOR(RepeatInterleaveWithDim, (tensor, self), (tensor, repeats), (int64, dim),
		 (int64, size), (result, out))
{
	repeat_slices(&a->op, &a->out, &a->self, dim_of(&a->self, a->dim), &a->repeats);
}

/* The gradients of all repetitions of a slice, added up. */
COMPLEX_OPERATOR(RepeatInterleaveGrad, (tensor, grad), (tensor, repeats), (int64, dim),
		 (result, out))
{
	uint32_t dim = dim_of(&a->out, a->dim);
	struct view counts = view_of(&a->repeats);
	bool is_one = tensor_count(&a->repeats) == 1;
	int64_t at = 0;
	int64_t n;
	int64_t i;

	tensor_fill(&a->out, 0);
	for (n = 0; n < length_of(&a->out, dim); n++) {
		int64_t left = view_integer_at(&counts, is_one ? 0 : n);

		for (; left > 0 && at < length_of(&a->grad, dim); left--, at++) {
			struct tensor from = slice_at(&a->grad, dim, at);
			struct tensor to = slice_at(&a->out, dim, n);
			struct view source = view_of(&from);
			struct view target = view_of(&to);

			for (i = 0; i < tensor_count(&to); i++)
				view_add(&target, i, &source, i, 1);
		}
	}
}

OPERATOR(RepeatInterleaveTensor, (tensor, repeats), (int64, size), (result, out))
{
	struct view counts = view_of(&a->repeats);
	struct view out = view_of(&a->out);
	int64_t at = 0;
	int64_t n;

	for (n = 0; n < tensor_count(&a->repeats); n++) {
		int64_t left = view_integer_at(&counts, n);

		for (; left > 0 && at < tensor_count(&a->out); left--)
			view_write_integers(&out, at++, 1, &n);
	}
}

/* Windows of `size`, `step` apart, were taken along a dimension and became the last one: their gradients add up. */
COMPLEX_OPERATOR(UnfoldGrad, (tensor, grad), (ints, sizes), (int64, dim), (int64, size),
		 (int64, step), (result, out))
{
	uint32_t dim = dim_of(&a->out, a->dim);
	uint32_t last = a->grad.dim_count - 1;
	int64_t n;
	int64_t i;
	int64_t element;

	tensor_fill(&a->out, 0);
	if (!a->out.dim_count) {
		tensor_copy(&a->out, &a->grad);
		return;
	}
	for (n = 0; n < a->grad.dims[dim]; n++) {
		for (i = 0; i < a->size; i++) {
			struct tensor from = slice_at(&a->grad, dim, n);
			struct tensor to = slice_at(&a->out, dim, n * a->step + i);
			struct view source;
			struct view target = view_of(&to);

			from = slice_at(&from, last, i);
			from.dim_count--;
			source = view_of(&from);
			for (element = 0; element < tensor_count(&to); element++)
				view_add(&target, element, &source, element, 1);
		}
	}
}

/* Channels are dealt out to as many hands. */
COMPLEX_OPERATOR(ChannelShuffle, (tensor, self), (int64, groups), (result, out))
{
	int64_t channels = a->self.dims[1];
	int64_t each = channels / a->groups;
	int64_t n;

	for (n = 0; n < channels; n++) {
		struct tensor from = slice_at(&a->self, 1, n % a->groups * each + n / a->groups);
		struct tensor to = slice_at(&a->out, 1, n);

		tensor_copy(&to, &from);
	}
}
