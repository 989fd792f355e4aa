/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pooling over the last two or three dimensions; images of two have one layer. A window is known by where it begins and ends in the
 * image.
 */
#include <stdlib.h>

#include "array.h"
#include "old_math.h"

enum {
	SPATIAL = 3, /* layers, rows, columns */
};

struct window {
	int64_t first[SPATIAL];
	int64_t end[SPATIAL];
	int64_t step[SPATIAL]; /* the dilation */
	int64_t size[SPATIAL]; /* of the image */
	double divisor;	       /* of an average */
};

struct pooling {
	const struct tensor *image;
	const struct tensor *pooled;
	unsigned spatial;	   /* 2 or 3 */
	const struct ints *kernel; /* NULL: windows that cover the image evenly */
	const struct ints *stride;
	const struct ints *padding;
	const struct ints *dilation; /* NULL: 1 */
	bool counts_padding;
	int64_t divisor; /* 0: as many as there are */
};

/* Of layers, rows and columns; an image without layers has `otherwise` there. */
static int64_t pick(const struct pooling *p, const struct ints *ints, unsigned n, int64_t otherwise)
{
	unsigned skipped = SPATIAL - p->spatial;

	if (n < skipped || !ints || !ints->count)
		return n < skipped ? (ints == p->padding ? 0 : 1) : otherwise;
	return ints->items[n - skipped < ints->count ? n - skipped : 0];
}

static int64_t dim_at(const struct pooling *p, const struct tensor *tensor, unsigned n)
{
	return n < SPATIAL - p->spatial ? 1 : tensor->dims[tensor->dim_count - SPATIAL + n];
}

static int64_t image_size(const struct pooling *p, const struct tensor *tensor)
{
	return dim_at(p, tensor, 0) * dim_at(p, tensor, 1) * dim_at(p, tensor, 2);
}

static struct window adaptive_window(const struct pooling *p, const int64_t at[SPATIAL])
{
	struct window window = {.step = {1, 1, 1}};
	unsigned n;

	window.divisor = 1;
	for (n = 0; n < SPATIAL; n++) {
		int64_t in = dim_at(p, p->image, n);
		int64_t out = dim_at(p, p->pooled, n);

		window.size[n] = in;
		window.first[n] = at[n] * in / out;
		window.end[n] = ((at[n] + 1) * in + out - 1) / out;
		window.divisor *= (double)(window.end[n] - window.first[n]);
	}
	return window;
}

static struct window window_at(const struct pooling *p, const int64_t at[SPATIAL])
{
	struct window window = {.divisor = 1};
	double inside = 1;
	unsigned n;

	if (!p->kernel)
		return adaptive_window(p, at);
	for (n = 0; n < SPATIAL; n++) {
		int64_t size = dim_at(p, p->image, n);
		int64_t kernel = pick(p, p->kernel, n, 1);
		int64_t padding = pick(p, p->padding, n, 0);
		int64_t step = pick(p, p->dilation, n, 1);
		int64_t first = at[n] * pick(p, p->stride, n, kernel) - padding;
		int64_t end = first + kernel * step;

		/* What lies behind the padding does not count. */
		window.divisor *= (double)((end < size + padding ? end : size + padding) - first);
		while (first < 0)
			first += step;
		window.size[n] = size;
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

/* Called for each window: `image` is of one channel, `pooled` and `index` are the window's. */
typedef void window_fn(const struct window *window, double *image, double *pooled, double *index);

static void each_window(const struct pooling *p, double *image, double *pooled, double *indices,
			window_fn *fn)
{
	int64_t in = image_size(p, p->image);
	int64_t out = image_size(p, p->pooled);
	int64_t width = dim_at(p, p->pooled, 2);
	int64_t height = dim_at(p, p->pooled, 1);
	int64_t n;

	for (n = 0; n < tensor_count(p->pooled); n++) {
		int64_t at[SPATIAL] = {n % out / width / height, n % out / width % height,
				       n % width};
		struct window window = window_at(p, at);

		fn(&window, image + n / out * in, &pooled[n], indices ? &indices[n] : NULL);
	}
}

#define FOR_WINDOW(w)                                                                              \
	for (z = (w)->first[0]; z < (w)->end[0]; z += (w)->step[0])                                \
		for (y = (w)->first[1]; y < (w)->end[1]; y += (w)->step[1])                        \
			for (x = (w)->first[2]; x < (w)->end[2]; x += (w)->step[2])
#define IN_IMAGE(w) (((z) * (w)->size[1] + (y)) * (w)->size[2] + (x))

static void average(const struct window *window, double *image, double *pooled, double *index)
{
	int64_t x;
	int64_t y;
	int64_t z;

	(void)index;
	*pooled = 0;
	FOR_WINDOW(window)
	*pooled += image[IN_IMAGE(window)];
	*pooled /= window->divisor;
}

static void average_backward(const struct window *window, double *image, double *pooled,
			     double *index)
{
	int64_t x;
	int64_t y;
	int64_t z;

	(void)index;
	FOR_WINDOW(window)
	image[IN_IMAGE(window)] += *pooled / window->divisor;
}

/* The first of the largest, and its place in the image. */
static void largest(const struct window *window, double *image, double *pooled, double *index)
{
	bool found = false;
	int64_t x;
	int64_t y;
	int64_t z;

	FOR_WINDOW(window)
	{
		double value = image[IN_IMAGE(window)];

		if (found && !(value > *pooled) && !isnan(value))
			continue;
		found = true;
		*pooled = value;
		if (index)
			*index = (double)IN_IMAGE(window);
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
	int64_t out_size = image_size(p, p->pooled);
	int64_t in_size = image_size(p, p->image);
	double *image = tensor_read(op, p->image);
	double *grads = tensor_read(op, grad);
	double *values = op_array(op, 2 * count, sizeof(*values));
	double *sums = op_array(op, tensor_count(p->image), sizeof(*sums));
	int64_t n;

	if (image && grads && values && sums) {
		each_window(p, image, values, values + count, largest);
		for (n = 0; n < count; n++)
			sums[n / out_size * in_size + (int64_t)values[count + n]] += grads[n];
		tensor_write(out, sums);
	}
	free(image);
	free(grads);
	free(values);
	free(sums);
}

#define AVG_POOL(NAME, spatial, ...)                                                               \
	OPERATOR(NAME, (tensor, self), (ints, kernel), (ints, stride), (ints, padding),            \
		 (boolean, ceil), (boolean, counts_padding), (int64, divisor)__VA_ARGS__,          \
		 (result, out))                                                                    \
	{                                                                                          \
		struct pooling p = {                                                               \
			&a->self,    &a->out, spatial,		 &a->kernel, &a->stride,           \
			&a->padding, NULL,    a->counts_padding, a->divisor};                      \
                                                                                                   \
		pool(&a->op, &p, NULL, average);                                                   \
	}                                                                                          \
	OPERATOR(NAME##Backward, (tensor, grad), (tensor, self), (ints, kernel), (ints, stride),   \
		 (ints, padding), (boolean, ceil), (boolean, counts_padding),                      \
		 (int64, divisor)__VA_ARGS__, (result, out))                                       \
	{                                                                                          \
		struct pooling p = {&a->out,	&a->grad,	   spatial,                        \
				    &a->kernel, &a->stride,	   &a->padding,                    \
				    NULL,	a->counts_padding, a->divisor};                    \
                                                                                                   \
		average_gradient(&a->op, &p);                                                      \
	}
#define MATH , (int8, math)
#define NO_MATH
AVG_POOL(AvgPool2d, 2, MATH)
AVG_POOL(AvgPool3d, 3, NO_MATH)

#define ADAPTIVE_POOLS(D, dims)                                                                    \
	OPERATOR(AdaptiveAvgPool##D, (tensor, self), (ints, size), (result, out))                  \
	{                                                                                          \
		struct pooling p = {.image = &a->self, .pooled = &a->out, .spatial = dims};        \
                                                                                                   \
		pool(&a->op, &p, NULL, average);                                                   \
	}                                                                                          \
	OPERATOR(AdaptiveAvgPool##D##Backward, (tensor, grad), (tensor, self), (result, out))      \
	{                                                                                          \
		struct pooling p = {.image = &a->out, .pooled = &a->grad, .spatial = dims};        \
                                                                                                   \
		average_gradient(&a->op, &p);                                                      \
	}                                                                                          \
	OPERATOR(AdaptiveMaxPool##D, (tensor, self), (ints, size), (result, out),                  \
		 (result, indices))                                                                \
	{                                                                                          \
		struct pooling p = {.image = &a->self, .pooled = &a->out, .spatial = dims};        \
                                                                                                   \
		pool(&a->op, &p, &a->indices, largest);                                            \
	}                                                                                          \
	OPERATOR(AdaptiveMaxPool##D##Backward, (tensor, grad), (tensor, self), (tensor, indices),  \
		 (result, out))                                                                    \
	{                                                                                          \
		struct pooling p = {.image = &a->self, .pooled = &a->grad, .spatial = dims};       \
                                                                                                   \
		largest_gradient(&a->op, &p, &a->grad, &a->out);                                   \
	}
ADAPTIVE_POOLS(2d, 2)
ADAPTIVE_POOLS(3d, 3)

#define MAX_POOL(NAME, dims, with_indices)                                                         \
	OPERATOR(NAME, (tensor, self), (ints, kernel), (ints, stride), (ints, padding),            \
		 (ints, dilation), (boolean, ceil), (result, out), (result, indices))              \
	{                                                                                          \
		struct pooling p = {&a->self,	 &a->out,      dims,  &a->kernel, &a->stride,      \
				    &a->padding, &a->dilation, false, 0};                          \
                                                                                                   \
		pool(&a->op, &p, with_indices ? &a->indices : NULL, largest);                      \
	}                                                                                          \
	OPERATOR(NAME##Backward, (tensor, grad), (tensor, self), (tensor, indices),                \
		 (ints, kernel), (ints, stride), (ints, padding), (ints, dilation),                \
		 (boolean, ceil), (result, out))                                                   \
	{                                                                                          \
		struct pooling p = {&a->self,	 &a->grad,     dims,  &a->kernel, &a->stride,      \
				    &a->padding, &a->dilation, false, 0};                          \
                                                                                                   \
		largest_gradient(&a->op, &p, &a->grad, &a->out);                                   \
	}
MAX_POOL(MaxPool2dWithIndices, 2, true)
/* The mask is a code of the real device. Nothing reads it here, so nothing is written. */
MAX_POOL(MaxPool2dWithMask, 2, false)
MAX_POOL(MaxPool3dWithArgmax, 3, true)

/* The largest go back to where they were found; all else is 0. */
static void unpool(const struct op *op, const struct tensor *out, const struct tensor *self,
		   const struct tensor *indices, unsigned spatial)
{
	struct pooling p = {.image = out, .pooled = self, .spatial = spatial};
	int64_t in = image_size(&p, self);
	int64_t room = image_size(&p, out);
	struct view from = view_of(self);
	struct view places = view_of(indices);
	struct view to = view_of(out);
	int64_t n;

	tensor_fill(out, 0);
	for (n = 0; n < tensor_count(self); n++) {
		int64_t place = view_integer_at(&places, n);

		if (place < 0 || place >= room) {
			op_cannot(op, "an index is out of range");
			return;
		}
		view_copy(&to, n / in * room + place, &from, n);
	}
}

OPERATOR(MaxUnpool2d, (tensor, self), (tensor, indices), (ints, size), (result, out))
{
	unpool(&a->op, &a->out, &a->self, &a->indices, 2);
}

OPERATOR(MaxUnpool3d, (tensor, self), (tensor, indices), (ints, size), (ints, stride),
	 (ints, padding), (result, out))
{
	unpool(&a->op, &a->out, &a->self, &a->indices, 3);
}
