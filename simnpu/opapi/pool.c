/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pooling over the last two dimensions. A window is known by where it begins and ends in the image.
 */
#include <stdlib.h>

#include "array.h"
#include "old_math.h"

struct window {
	int64_t first[2];
	int64_t end[2];
	int64_t step[2]; /* the dilation */
	double divisor;	 /* of an average */
};

struct pooling {
	const struct tensor *image;
	const struct tensor *pooled;
	const struct ints *kernel; /* NULL: windows that cover the image evenly */
	const struct ints *stride;
	const struct ints *padding;
	const struct ints *dilation; /* NULL: 1 */
	bool counts_padding;
	int64_t divisor; /* 0: as many as there are */
};

static int64_t pick(const struct ints *ints, unsigned n, int64_t otherwise)
{
	return ints && ints->count ? ints->items[n < ints->count ? n : 0] : otherwise;
}

static int64_t dim_at(const struct tensor *tensor, unsigned n)
{
	return tensor->dims[tensor->dim_count - 2 + n];
}

static struct window adaptive_window(const struct pooling *p, const int64_t at[2])
{
	struct window window = {.step = {1, 1}};
	unsigned n;

	window.divisor = 1;
	for (n = 0; n < 2; n++) {
		int64_t in = dim_at(p->image, n);
		int64_t out = dim_at(p->pooled, n);

		window.first[n] = at[n] * in / out;
		window.end[n] = ((at[n] + 1) * in + out - 1) / out;
		window.divisor *= (double)(window.end[n] - window.first[n]);
	}
	return window;
}

static struct window window_at(const struct pooling *p, const int64_t at[2])
{
	struct window window = {.divisor = 1};
	double inside = 1;
	unsigned n;

	if (!p->kernel)
		return adaptive_window(p, at);
	for (n = 0; n < 2; n++) {
		int64_t size = dim_at(p->image, n);
		int64_t kernel = pick(p->kernel, n, 1);
		int64_t padding = pick(p->padding, n, 0);
		int64_t step = pick(p->dilation, n, 1);
		int64_t first = at[n] * pick(p->stride, n, kernel) - padding;
		int64_t end = first + kernel * step;

		/* What lies behind the padding does not count. */
		window.divisor *= (double)((end < size + padding ? end : size + padding) - first);
		while (first < 0)
			first += step;
		window.first[n] = first;
		window.end[n] = end < size ? end : size;
		window.step[n] = step;
		inside *= (double)(window.end[n] - first);
	}
	if (p->divisor)
		window.divisor = (double)p->divisor;
	else if (!p->counts_padding)
		window.divisor = inside;
	return window;
}

/* Called for each window: `image` and `pooled` are of one channel, `out` is the number of the window's result. */
typedef void window_fn(const struct window *window, double *image, int64_t width, double *pooled,
		       double *index);

static void each_window(const struct pooling *p, double *image, double *pooled, double *indices,
			window_fn *fn)
{
	int64_t image_size = dim_at(p->image, 0) * dim_at(p->image, 1);
	int64_t width = dim_at(p->pooled, 1);
	int64_t pooled_size = dim_at(p->pooled, 0) * width;
	int64_t n;

	for (n = 0; n < tensor_count(p->pooled); n++) {
		int64_t at[2] = {n % pooled_size / width, n % width};
		struct window window = window_at(p, at);

		fn(&window, image + n / pooled_size * image_size, dim_at(p->image, 1), &pooled[n],
		   indices ? &indices[n] : NULL);
	}
}

#define FOR_WINDOW(window)                                                                         \
	for (y = (window)->first[0]; y < (window)->end[0]; y += (window)->step[0])                 \
		for (x = (window)->first[1]; x < (window)->end[1]; x += (window)->step[1])

static void average(const struct window *window, double *image, int64_t width, double *pooled,
		    double *index)
{
	int64_t x;
	int64_t y;

	(void)index;
	*pooled = 0;
	FOR_WINDOW(window)
	*pooled += image[y * width + x] / window->divisor;
}

static void average_backward(const struct window *window, double *image, int64_t width,
			     double *pooled, double *index)
{
	int64_t x;
	int64_t y;

	(void)index;
	FOR_WINDOW(window)
	image[y * width + x] += *pooled / window->divisor;
}

/* The first of the largest, and its place in the image. */
static void largest(const struct window *window, double *image, int64_t width, double *pooled,
		    double *index)
{
	bool found = false;
	int64_t x;
	int64_t y;

	FOR_WINDOW(window)
	{
		double value = image[y * width + x];

		if (found && !(value > *pooled) && !isnan(value))
			continue;
		found = true;
		*pooled = value;
		if (index)
			*index = (double)(y * width + x);
	}
}

static void pool(const struct op *op, const struct pooling *p, const struct tensor *indices,
		 window_fn *fn)
{
	double *image = tensor_read(op, p->image);
	double *pooled = op_array(op, tensor_count(p->pooled), sizeof(*pooled));
	double *places = op_array(op, tensor_count(p->pooled), sizeof(*places));

	if (image && pooled && places) {
		each_window(p, image, pooled, places, fn);
		tensor_write(p->pooled, pooled);
		if (indices)
			tensor_write(indices, places);
	}
	free(image);
	free(pooled);
	free(places);
}

/* `p->pooled` is the gradient of the result, and `p->image` gets that of the image. */
static void average_gradient(const struct op *op, const struct pooling *p)
{
	double *image = op_array(op, tensor_count(p->image), sizeof(*image));
	double *pooled = tensor_read(op, p->pooled);

	if (image && pooled) {
		each_window(p, image, pooled, NULL, average_backward);
		tensor_write(p->image, image);
	}
	free(image);
	free(pooled);
}

/* Finds the largest once more: they are the same as on the way forward. */
static void largest_gradient(const struct op *op, const struct pooling *p,
			     const struct tensor *grad, const struct tensor *out)
{
	int64_t count = tensor_count(p->pooled);
	int64_t pooled_size = dim_at(p->pooled, 0) * dim_at(p->pooled, 1);
	int64_t image_size = dim_at(p->image, 0) * dim_at(p->image, 1);
	double *image = tensor_read(op, p->image);
	double *grads = tensor_read(op, grad);
	double *values = op_array(op, 2 * count, sizeof(*values));
	double *sums = op_array(op, tensor_count(p->image), sizeof(*sums));
	int64_t n;

	if (image && grads && values && sums) {
		each_window(p, image, values, values + count, largest);
		for (n = 0; n < count; n++)
			sums[n / pooled_size * image_size + (int64_t)values[count + n]] += grads[n];
		tensor_write(out, sums);
	}
	free(image);
	free(grads);
	free(values);
	free(sums);
}

OPERATOR(AvgPool2d, (tensor, self), (ints, kernel), (ints, stride), (ints, padding),
	 (boolean, ceil), (boolean, counts_padding), (int64, divisor), (int8, math), (tensor, out))
{
	struct pooling p = {
		.image = &a->self,
		.pooled = &a->out,
		.kernel = &a->kernel,
		.stride = &a->stride,
		.padding = &a->padding,
		.counts_padding = a->counts_padding,
		.divisor = a->divisor,
	};

	pool(&a->op, &p, NULL, average);
}

OPERATOR(AvgPool2dBackward, (tensor, grad), (tensor, self), (ints, kernel), (ints, stride),
	 (ints, padding), (boolean, ceil), (boolean, counts_padding), (int64, divisor),
	 (int8, math), (tensor, out))
{
	struct pooling p = {
		.image = &a->out,
		.pooled = &a->grad,
		.kernel = &a->kernel,
		.stride = &a->stride,
		.padding = &a->padding,
		.counts_padding = a->counts_padding,
		.divisor = a->divisor,
	};

	average_gradient(&a->op, &p);
}

OPERATOR(AdaptiveAvgPool2d, (tensor, self), (ints, size), (tensor, out))
{
	struct pooling p = {.image = &a->self, .pooled = &a->out};

	pool(&a->op, &p, NULL, average);
}

OPERATOR(AdaptiveAvgPool2dBackward, (tensor, grad), (tensor, self), (tensor, out))
{
	struct pooling p = {.image = &a->out, .pooled = &a->grad};

	average_gradient(&a->op, &p);
}

#define MAX_POOL(NAME, with_indices)                                                               \
	OPERATOR(NAME, (tensor, self), (ints, kernel), (ints, stride), (ints, padding),            \
		 (ints, dilation), (boolean, ceil), (tensor, out), (tensor, indices))              \
	{                                                                                          \
		struct pooling p = {                                                               \
			.image = &a->self,                                                         \
			.pooled = &a->out,                                                         \
			.kernel = &a->kernel,                                                      \
			.stride = &a->stride,                                                      \
			.padding = &a->padding,                                                    \
			.dilation = &a->dilation,                                                  \
		};                                                                                 \
                                                                                                   \
		pool(&a->op, &p, with_indices ? &a->indices : NULL, largest);                      \
	}                                                                                          \
	OPERATOR(NAME##Backward, (tensor, grad), (tensor, self), (tensor, indices),                \
		 (ints, kernel), (ints, stride), (ints, padding), (ints, dilation),                \
		 (boolean, ceil), (tensor, out))                                                   \
	{                                                                                          \
		struct pooling p = {                                                               \
			.image = &a->self,                                                         \
			.pooled = &a->grad,                                                        \
			.kernel = &a->kernel,                                                      \
			.stride = &a->stride,                                                      \
			.padding = &a->padding,                                                    \
			.dilation = &a->dilation,                                                  \
		};                                                                                 \
                                                                                                   \
		largest_gradient(&a->op, &p, &a->grad, &a->out);                                   \
	}
MAX_POOL(MaxPool2dWithIndices, true)
/* The mask is a code of the real device. Nothing reads it here, so nothing is written. */
MAX_POOL(MaxPool2dWithMask, false)
