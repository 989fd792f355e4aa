/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sizes of images changed: all kinds of upsampling, in one to three dimensions.
 *
 * Every kind works on one dimension after the other. An element of the result is a sum over some elements of the row, its taps; the
 * gradient goes back along the same taps. So a kind is no more than a function that names the taps.
 */
#include <stdlib.h>
#include <string.h>

#include "array.h"
#include "old_math.h"

enum {
	SPATIAL_MAX = 3,
};

struct tap {
	int64_t from;
	double weight;
};

/* A dimension on its way from `in` to `out` elements. */
struct stretch {
	int64_t in;
	int64_t out;
	bool align;   /* the outer elements stay where they are */
	double scale; /* out / in as the caller has it, 0: from the sizes */
};

/* Writes the taps of element `at` of the result and returns how many there are, at most `in` and 4. */
typedef int64_t taps_fn(const struct stretch *s, int64_t at, struct tap *taps);

static int64_t clip(int64_t index, int64_t length)
{
	return index < 0 ? 0 : index < length ? index : length - 1;
}

static double step_of(const struct stretch *s)
{
	if (s->align)
		return s->out > 1 ? (double)(s->in - 1) / (double)(s->out - 1) : 0;
	return s->scale > 0 ? 1 / s->scale : (double)s->in / (double)s->out;
}

/* In single precision, as PyTorch does it: where the product is next to an integer, that decides. */
static int64_t nearest(const struct stretch *s, int64_t at, struct tap *taps)
{
	float step = s->scale > 0 ? (float)(1 / s->scale) : (float)s->in / (float)s->out;

	taps[0] = (struct tap){clip((int64_t)((float)at * step), s->in), 1};
	return 1;
}

static int64_t nearest_exact(const struct stretch *s, int64_t at, struct tap *taps)
{
	float step = s->scale > 0 ? (float)(1 / s->scale) : (float)s->in / (float)s->out;

	taps[0] = (struct tap){clip((int64_t)(((float)at + 0.5f) * step), s->in), 1};
	return 1;
}

static double place_of(const struct stretch *s, int64_t at)
{
	return s->align ? (double)at * step_of(s) : ((double)at + 0.5) * step_of(s) - 0.5;
}

static int64_t linear(const struct stretch *s, int64_t at, struct tap *taps)
{
	double place = fmax(place_of(s, at), 0);
	int64_t first = clip((int64_t)place, s->in);
	double part = fmin(place - (double)first, 1);

	taps[0] = (struct tap){first, 1 - part};
	taps[1] = (struct tap){clip(first + 1, s->in), part};
	return 2;
}

static double cubic_weight(double distance, double a)
{
	double x = fabs(distance);

	if (x <= 1)
		return ((a + 2) * x - (a + 3)) * x * x + 1;
	return x < 2 ? ((x - 5) * x + 8) * x * a - 4 * a : 0;
}

static int64_t cubic(const struct stretch *s, int64_t at, struct tap *taps)
{
	double place = place_of(s, at);
	double first = floor(place);
	int n;

	for (n = 0; n < 4; n++)
		taps[n] = (struct tap){clip((int64_t)first + n - 1, s->in),
				       cubic_weight(place - first + 1 - n, -0.75)};
	return 4;
}

/* Over as many elements as one of the result stands for. */
static int64_t smooth(const struct stretch *s, int64_t at, struct tap *taps, double reach,
		      bool is_cubic)
{
	double step = step_of(s);
	double wide = step >= 1 ? step : 1;
	double middle = step * ((double)at + 0.5);
	int64_t first = (int64_t)fmax(middle - reach * wide + 0.5, 0);
	int64_t end = (int64_t)fmin(middle + reach * wide + 0.5, (double)s->in);
	double total = 0;
	int64_t n;

	for (n = first; n < end; n++) {
		double x = ((double)n - middle + 0.5) / wide;
		double weight = is_cubic ? cubic_weight(x, -0.5) : fmax(1 - fabs(x), 0);

		taps[n - first] = (struct tap){n, weight};
		total += weight;
	}
	for (n = 0; n < end - first && total != 0; n++)
		taps[n].weight /= total;
	return end - first;
}

static int64_t smooth_linear(const struct stretch *s, int64_t at, struct tap *taps)
{
	return smooth(s, at, taps, 1, false);
}

static int64_t smooth_cubic(const struct stretch *s, int64_t at, struct tap *taps)
{
	return smooth(s, at, taps, 2, true);
}

/* One dimension of a dense array, forwards or back. `outer` and `inner` are the elements before and after it. */
static double *resize(const struct op *op, const double *from, int64_t outer, int64_t inner,
		      const struct stretch *s, taps_fn *taps_of, bool back)
{
	int64_t given = back ? s->out : s->in;
	int64_t made = back ? s->in : s->out;
	double *to = op_array(op, outer * made * inner, sizeof(*to));
	struct tap *taps = op_array(op, s->in + 4, sizeof(*taps));
	int64_t at;
	int64_t o;
	int64_t i;
	int64_t t;

	for (at = 0; at < s->out && to && taps; at++) {
		int64_t count = taps_of(s, at, taps);

		for (t = 0; t < count; t++) {
			int64_t read = back ? at : taps[t].from;
			int64_t write = back ? taps[t].from : at;

			for (o = 0; o < outer; o++) {
				const double *source = from + (o * given + read) * inner;
				double *target = to + (o * made + write) * inner;

				for (i = 0; i < inner; i++)
					target[i] += taps[t].weight * source[i];
			}
		}
	}
	free(taps);
	return to;
}

/* `image` and `result` have the spatial dimensions last; with `back` the result is given and the image computed. */
static void resample(const struct op *op, const struct tensor *image, const struct tensor *result,
		     taps_fn *taps_of, uint32_t spatial, bool align, const double *scales,
		     bool back)
{
	uint32_t lead = image->dim_count - spatial;
	struct shape shape = shape_of(back ? result : image);
	double *values = tensor_read(op, back ? result : image);
	uint32_t n;
	uint32_t d;

	for (n = 0; n < spatial && values; n++) {
		struct stretch s = {image->dims[lead + n], result->dims[lead + n], align,
				    scales[n]};
		int64_t outer = 1;
		int64_t inner = 1;
		double *next;

		for (d = 0; d < lead + n; d++)
			outer *= shape.dims[d];
		for (d = lead + n + 1; d < shape.dim_count; d++)
			inner *= shape.dims[d];
		next = resize(op, values, outer, inner, &s, taps_of, back);
		free(values);
		values = next;
		shape.dims[lead + n] = back ? s.in : s.out;
	}
	if (values)
		tensor_write(back ? image : result, values);
	free(values);
}

/* Forwards: the image, its new size, parameters, the result. Back: the gradient, both sizes, parameters, the gradient of the image. */
#define RESAMPLE_1(NAME, BACK, taps, kind, aligns, ...)                                            \
	OPERATOR(NAME, (tensor, self), (ints, size), __VA_ARGS__(kind, scale), (result, out))      \
	{                                                                                          \
		const double scales[SPATIAL_MAX] = {(double)a->scale};                             \
                                                                                                   \
		resample(&a->op, &a->self, &a->out, taps, 1, aligns, scales, false);               \
	}                                                                                          \
	OPERATOR(BACK, (tensor, grad), (ints, size), (ints, input_size), __VA_ARGS__(real, scale), \
		 (result, out))                                                                    \
	{                                                                                          \
		const double scales[SPATIAL_MAX] = {a->scale};                                     \
                                                                                                   \
		resample(&a->op, &a->out, &a->grad, taps, 1, aligns, scales, true);                \
	}
#define RESAMPLE_2(NAME, BACK, taps, kind, aligns, ...)                                            \
	OPERATOR(NAME, (tensor, self), (ints, size), __VA_ARGS__(kind, scale_h), (kind, scale_w),  \
		 (result, out))                                                                    \
	{                                                                                          \
		const double scales[SPATIAL_MAX] = {(double)a->scale_h, (double)a->scale_w};       \
                                                                                                   \
		resample(&a->op, &a->self, &a->out, taps, 2, aligns, scales, false);               \
	}                                                                                          \
	RESAMPLE_2_BACK(BACK, taps, aligns, __VA_ARGS__)
#define RESAMPLE_2_BACK(BACK, taps, aligns, ...)                                                   \
	OPERATOR(BACK, (tensor, grad), (ints, size), (ints, input_size),                           \
		 __VA_ARGS__(real, scale_h), (real, scale_w), (result, out))                       \
	{                                                                                          \
		const double scales[SPATIAL_MAX] = {a->scale_h, a->scale_w};                       \
                                                                                                   \
		resample(&a->op, &a->out, &a->grad, taps, 2, aligns, scales, true);                \
	}
#define RESAMPLE_3(NAME, BACK, taps, aligns, ...)                                                  \
	OPERATOR(NAME, (tensor, self), (ints, size), __VA_ARGS__(real, scale_d), (real, scale_h),  \
		 (real, scale_w), (result, out))                                                   \
	{                                                                                          \
		const double scales[SPATIAL_MAX] = {a->scale_d, a->scale_h, a->scale_w};           \
                                                                                                   \
		resample(&a->op, &a->self, &a->out, taps, 3, aligns, scales, false);               \
	}                                                                                          \
	OPERATOR(BACK, (tensor, grad), (ints, size), (ints, input_size),                           \
		 __VA_ARGS__(real, scale_d), (real, scale_h), (real, scale_w), (result, out))      \
	{                                                                                          \
		const double scales[SPATIAL_MAX] = {a->scale_d, a->scale_h, a->scale_w};           \
                                                                                                   \
		resample(&a->op, &a->out, &a->grad, taps, 3, aligns, scales, true);                \
	}
#define NOTHING
#define ALIGN (boolean, align),

RESAMPLE_1(UpsampleNearest1dV2, UpsampleNearest1dBackward, nearest, real32, false, NOTHING)
RESAMPLE_1(UpsampleNearestExact1d, UpsampleNearestExact1dBackward, nearest_exact, real, false,
	   NOTHING)
RESAMPLE_1(UpsampleLinear1d, UpsampleLinear1dBackward, linear, real, a->align, ALIGN)
RESAMPLE_2(UpsampleNearest2dV2, UpsampleNearest2dBackward, nearest, real32, false, NOTHING)
RESAMPLE_2(UpsampleNearestExact2d, UpsampleNearestExact2dBackward, nearest_exact, real, false,
	   NOTHING)
RESAMPLE_2(UpsampleBilinear2d, UpsampleBilinear2dBackward, linear, real, a->align, ALIGN)
RESAMPLE_2(UpsampleBicubic2d, UpsampleBicubic2dBackward, cubic, real, a->align, ALIGN)
RESAMPLE_2(UpsampleBilinear2dAA, UpsampleBilinear2dAABackward, smooth_linear, real, a->align, ALIGN)
RESAMPLE_2(UpsampleBicubic2dAA, UpsampleBicubic2dAAGrad, smooth_cubic, real, a->align, ALIGN)
RESAMPLE_2_BACK(UpsampleBilinear2dBackwardV2, linear, a->align, ALIGN)
RESAMPLE_3(UpsampleNearest3d, UpsampleNearest3dBackward, nearest, false, NOTHING)
RESAMPLE_3(UpsampleNearestExact3d, UpsampleNearestExact3dBackward, nearest_exact, false, NOTHING)
RESAMPLE_3(UpsampleTrilinear3d, UpsampleTrilinear3dBackward, linear, a->align, ALIGN)

/* Without scales. */
OPERATOR(UpsampleNearest1d, (tensor, self), (ints, size), (result, out))
{
	const double scales[SPATIAL_MAX] = {0};

	resample(&a->op, &a->self, &a->out, nearest, 1, false, scales, false);
}

OPERATOR(UpsampleNearest2d, (tensor, self), (ints, size), (result, out))
{
	const double scales[SPATIAL_MAX] = {0};

	resample(&a->op, &a->self, &a->out, nearest, 2, false, scales, false);
}
