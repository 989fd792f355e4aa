/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Padding with elements of the tensor, and images cut into columns: an element of the result is an element of the input, so gradients
 * add up there.
 */
#include <stdlib.h>

#include "array.h"

/* The element of a row of `length` that stands at `at`, which may lie outside. */
typedef int64_t outside_fn(int64_t at, int64_t length);

static int64_t reflect(int64_t at, int64_t length)
{
	if (at < 0)
		at = -at;
	return at < length ? at : 2 * (length - 1) - at;
}

static int64_t replicate(int64_t at, int64_t length)
{
	return at < 0 ? 0 : at < length ? at : length - 1;
}

/* Pairs of paddings, of the last dimension first; negative ones cut off. */
static void pad(const struct tensor *padded, const struct tensor *inner, const struct ints *padding,
		outside_fn *outside, bool back)
{
	struct view outer_view = view_of(padded);
	struct view inner_view = view_of(inner);
	int64_t n;

	if (back)
		tensor_fill(inner, 0);
	for (n = 0; n < tensor_count(padded); n++) {
		int64_t rest = n;
		int64_t place = 0;
		int64_t step = 1;
		uint32_t d;

		for (d = 0; d < padded->dim_count; d++) {
			uint32_t dim = padded->dim_count - 1 - d;
			int64_t at = rest % padded->dims[dim];

			rest /= padded->dims[dim];
			if (2 * d < padding->count)
				at = outside(at - padding->items[2 * d], inner->dims[dim]);
			place += at * step;
			step *= inner->dims[dim];
		}
		if (back)
			view_add(&inner_view, place, &outer_view, n, 1);
		else
			view_copy(&outer_view, n, &inner_view, place);
	}
}

#define PAD(NAME, outside)                                                                         \
	COMPLEX_OPERATOR(NAME, (tensor, self), (ints, padding), (result, out))                     \
	{                                                                                          \
		pad(&a->out, &a->self, &a->padding, outside, false);                               \
	}                                                                                          \
	COMPLEX_OPERATOR(NAME##Backward, (tensor, grad), (tensor, self), (ints, padding),          \
			 (result, out))                                                            \
	{                                                                                          \
		pad(&a->grad, &a->out, &a->padding, outside, true);                                \
	}
PAD(ReflectionPad1d, reflect)
PAD(ReflectionPad2d, reflect)
PAD(ReflectionPad3d, reflect)
PAD(ReplicationPad1d, replicate)
PAD(ReplicationPad2d, replicate)
PAD(ReplicationPad3d, replicate)

/* Windows of an image, one column for each: the image has channels, rows and columns last, the result channels * window and windows. */
struct columns {
	const struct tensor *image;
	const struct tensor *columns;
	const struct ints *kernel;
	const struct ints *dilation;
	const struct ints *padding;
	const struct ints *stride;
};

static int64_t windows_along(const struct columns *c, unsigned n)
{
	int64_t size = c->image->dims[c->image->dim_count - 2 + n];

	return (size + 2 * c->padding->items[n] -
		c->dilation->items[n] * (c->kernel->items[n] - 1) - 1) /
		       c->stride->items[n] +
	       1;
}

/* Calls view_copy() or view_add() for each element that lies in the image. */
static void move_columns(const struct columns *c, bool back)
{
	int64_t height = c->image->dims[c->image->dim_count - 2];
	int64_t width = c->image->dims[c->image->dim_count - 1];
	int64_t across = windows_along(c, 1);
	int64_t windows = windows_along(c, 0) * across;
	int64_t in_window = c->kernel->items[0] * c->kernel->items[1];
	struct view image = view_of(c->image);
	struct view columns = view_of(c->columns);
	int64_t n;

	tensor_fill(back ? c->image : c->columns, 0);
	for (n = 0; n < tensor_count(c->columns); n++) {
		int64_t window = n % windows;
		int64_t inside = n / windows % in_window;
		int64_t channel = n / windows / in_window; /* and image */
		int64_t y = window / across * c->stride->items[0] - c->padding->items[0] +
			    inside / c->kernel->items[1] * c->dilation->items[0];
		int64_t x = window % across * c->stride->items[1] - c->padding->items[1] +
			    inside % c->kernel->items[1] * c->dilation->items[1];
		int64_t place = (channel * height + y) * width + x;

		if (y < 0 || y >= height || x < 0 || x >= width)
			continue;
		if (back)
			view_add(&image, place, &columns, n, 1);
		else
			view_copy(&columns, n, &image, place);
	}
}

COMPLEX_OPERATOR(Im2col, (tensor, self), (ints, kernel), (ints, dilation), (ints, padding),
		 (ints, stride), (result, out))
{
	struct columns c = {&a->self, &a->out, &a->kernel, &a->dilation, &a->padding, &a->stride};

	move_columns(&c, false);
}

COMPLEX_OPERATOR(Im2colBackward, (tensor, grad), (ints, size), (ints, kernel), (ints, dilation),
		 (ints, padding), (ints, stride), (result, out))
{
	struct columns c = {&a->out, &a->grad, &a->kernel, &a->dilation, &a->padding, &a->stride};

	move_columns(&c, true);
}
