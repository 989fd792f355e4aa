/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sampling of images, of two or three dimensions, at places that a grid names: -1 and 1 are the edges. Along each dimension a place has
 * up to four taps, elements of the image with a weight each and with the slope of that weight; a sample is the sum over all combinations
 * of taps. Elements outside count as the padding says.
 *
 *     input  images, channels, [layers,] rows, columns      grid   images, [layers,] rows, columns, places as (x, y[, z])
 */
#include <stdlib.h>

#include "array.h"
#include "old_math.h"

enum {
	SPATIAL_MAX = 3,
	TAPS_MAX = 4,
	MODE_LINEAR = 0,
	MODE_NEAREST = 1,
	PADDING_ZEROS = 0,
	PADDING_BORDER = 1,
};

struct sampling {
	const struct op *op;
	const struct tensor *input;
	const struct tensor *grid;
	int64_t mode;
	int64_t padding;
	bool align;
	uint32_t spatial;
	int64_t sizes[SPATIAL_MAX]; /* of the input, in the order of its dimensions */
	int64_t channels;
	int64_t image;	/* elements of a channel of the input */
	int64_t places; /* of the grid, for each image */
};

struct tap {
	int64_t at; /* -1: outside, which counts as 0 */
	double weight;
	double slope; /* of the weight, by the grid's number */
};

/* Mirrored at both ends as often as it takes; `*sign` is its direction then. */
static double mirror(double x, double least, double most, double *sign)
{
	double span = most - least;
	double from = fabs(x - least);
	double turns;

	*sign = x < least ? -1 : 1;
	if (span == 0) {
		*sign = 0;
		return 0;
	}
	turns = floor(from / span);
	if (fmod(turns, 2) != 0) {
		*sign = -*sign;
		return span - fmod(from, span) + least;
	}
	return fmod(from, span) + least;
}

/* A place outside moved inside, and the slope of the move. */
static double inside(const struct sampling *s, double x, int64_t size, double *slope)
{
	double sign = 1;

	*slope = 1;
	if (s->padding == PADDING_ZEROS)
		return x;
	if (s->padding != PADDING_BORDER) {
		x = s->align ? mirror(x, 0, (double)(size - 1), &sign)
			     : mirror(x, -0.5, (double)size - 0.5, &sign);
		*slope = sign;
	}
	if (x <= 0 || x >= (double)(size - 1))
		*slope = 0;
	return x < 0 ? 0 : x > (double)(size - 1) ? (double)(size - 1) : x;
}

static int64_t checked(double x, int64_t size)
{
	return x >= 0 && x < (double)size ? (int64_t)x : -1;
}

static double cubic_weight(double x)
{
	const double a = -0.75;

	x = fabs(x);
	return x <= 1 ? ((a + 2) * x - (a + 3)) * x * x + 1 : ((x - 5) * x + 8) * x * a - 4 * a;
}

static double cubic_slope(double x)
{
	const double a = -0.75;
	double size = fabs(x);
	double slope = size <= 1 ? (3 * (a + 2) * size - 2 * (a + 3)) * size
				 : (3 * size - 10) * size * a + 8 * a;

	return x < 0 ? -slope : slope;
}

static unsigned cubic_taps(const struct sampling *s, double x, int64_t size, double unit,
			   struct tap taps[TAPS_MAX])
{
	double first = floor(x);
	double unused;
	int n;

	for (n = 0; n < 4; n++) {
		double distance = x - (first + n - 1);

		taps[n].at = checked(inside(s, first + n - 1, size, &unused), size);
		taps[n].weight = cubic_weight(distance);
		taps[n].slope = cubic_slope(distance) * unit;
	}
	return 4;
}

static unsigned taps_of(const struct sampling *s, double number, int64_t size,
			struct tap taps[TAPS_MAX])
{
	/* Elements for each 1 of the grid. */
	double unit = (double)(s->align ? size - 1 : size) / 2;
	double x = (number + 1) * unit - (s->align ? 0 : 0.5);
	double slope;
	double first;

	if (s->mode != MODE_LINEAR && s->mode != MODE_NEAREST)
		return cubic_taps(s, x, size, unit, taps);
	x = inside(s, x, size, &slope);
	if (s->mode == MODE_NEAREST) {
		taps[0] = (struct tap){checked(rint(x), size), 1, 0};
		return 1;
	}
	first = floor(x);
	taps[0] = (struct tap){checked(first, size), first + 1 - x, -slope * unit};
	taps[1] = (struct tap){checked(first + 1, size), x - first, slope * unit};
	return 2;
}

/* All combinations of taps: where each is, its weight, and the slope of the weight along each dimension. */
typedef void tap_fn(void *data, int64_t at, double weight, const double slopes[SPATIAL_MAX]);

static void each_tap(const struct sampling *s, const double *numbers, tap_fn *fn, void *data)
{
	struct tap taps[SPATIAL_MAX][TAPS_MAX];
	unsigned counts[SPATIAL_MAX] = {1, 1, 1};
	unsigned all = 1;
	unsigned n;
	uint32_t d;
	uint32_t e;

	/* The grid has the last dimension first. */
	for (d = 0; d < s->spatial; d++) {
		counts[d] = taps_of(s, numbers[s->spatial - 1 - d], s->sizes[d], taps[d]);
		all *= counts[d];
	}
	for (n = 0; n < all; n++) {
		double slopes[SPATIAL_MAX] = {1, 1, 1};
		double weight = 1;
		int64_t at = 0;
		unsigned rest = n;

		for (d = 0; d < s->spatial; d++) {
			const struct tap *tap = &taps[d][rest % counts[d]];

			rest /= counts[d];
			at = at < 0 || tap->at < 0 ? -1 : at * s->sizes[d] + tap->at;
			weight *= tap->weight;
			for (e = 0; e < s->spatial; e++)
				slopes[e] *= e == d ? tap->slope : tap->weight;
		}
		if (at >= 0)
			fn(data, at, weight, slopes);
	}
}

static bool plan(struct sampling *s)
{
	uint32_t d;

	s->spatial = s->input->dim_count - 2;
	if (s->spatial > SPATIAL_MAX)
		return false;
	s->channels = s->input->dims[1];
	s->image = 1;
	s->places = 1;
	for (d = 0; d < s->spatial; d++) {
		s->sizes[d] = s->input->dims[2 + d];
		s->image *= s->sizes[d];
		s->places *= s->grid->dims[1 + d];
	}
	return true;
}

/* One place of one image: what a tap reads and writes, for all channels. */
struct place {
	const struct sampling *s;
	const double *input; /* the image */
	double *out;	     /* forwards: results, `places` apart */
	const double *grads; /* back: of the results, `places` apart */
	double *input_grads; /* back: the image's */
	double grid_grads[SPATIAL_MAX];
};

static void add_sample(void *data, int64_t at, double weight, const double slopes[SPATIAL_MAX])
{
	struct place *place = data;
	int64_t c;

	(void)slopes;
	for (c = 0; c < place->s->channels; c++)
		place->out[c * place->s->places] += weight * place->input[c * place->s->image + at];
}

static void add_gradients(void *data, int64_t at, double weight, const double slopes[SPATIAL_MAX])
{
	struct place *place = data;
	int64_t c;
	uint32_t d;

	for (c = 0; c < place->s->channels; c++) {
		double grad = place->grads[c * place->s->places];

		place->input_grads[c * place->s->image + at] += weight * grad;
		for (d = 0; d < place->s->spatial; d++)
			place->grid_grads[d] +=
				slopes[d] * grad * place->input[c * place->s->image + at];
	}
}

static void sample(struct sampling *s, const struct tensor *out)
{
	double *input = tensor_read(s->op, s->input);
	double *grid = tensor_read(s->op, s->grid);
	double *results = op_array(s->op, tensor_count(out), sizeof(*results));
	int64_t n;

	if (input && grid && results && plan(s)) {
		for (n = 0; n < s->input->dims[0] * s->places; n++) {
			int64_t image = n / s->places;
			struct place place = {
				.s = s,
				.input = input + image * s->channels * s->image,
				.out = results + image * s->channels * s->places + n % s->places,
			};

			each_tap(s, grid + n * s->spatial, add_sample, &place);
		}
		tensor_write(out, results);
	}
	free(input);
	free(grid);
	free(results);
}

static void sample_back(struct sampling *s, const struct tensor *grad,
			const struct tensor *input_grad, const struct tensor *grid_grad)
{
	double *input = tensor_read(s->op, s->input);
	double *grid = tensor_read(s->op, s->grid);
	double *grads = tensor_read(s->op, grad);
	double *input_grads = op_array(s->op, tensor_count(s->input), sizeof(*input_grads));
	double *grid_grads = op_array(s->op, tensor_count(s->grid), sizeof(*grid_grads));
	int64_t n;
	uint32_t d;

	if (input && grid && grads && input_grads && grid_grads && plan(s)) {
		for (n = 0; n < s->input->dims[0] * s->places; n++) {
			int64_t image = n / s->places;
			struct place place = {
				.s = s,
				.input = input + image * s->channels * s->image,
				.grads = grads + image * s->channels * s->places + n % s->places,
				.input_grads = input_grads + image * s->channels * s->image,
			};

			each_tap(s, grid + n * s->spatial, add_gradients, &place);
			for (d = 0; d < s->spatial; d++)
				grid_grads[n * s->spatial + s->spatial - 1 - d] =
					place.grid_grads[d];
		}
		if (input_grad->present)
			tensor_write(input_grad, input_grads);
		if (grid_grad->present)
			tensor_write(grid_grad, grid_grads);
	}
	free(input);
	free(grid);
	free(grads);
	free(input_grads);
	free(grid_grads);
}

#define GRID_SAMPLER(NAME)                                                                         \
	OPERATOR(NAME, (tensor, input), (tensor, grid), (int64, mode), (int64, padding),           \
		 (boolean, align), (result, out))                                                  \
	{                                                                                          \
		struct sampling s = {.op = &a->op,                                                 \
				     .input = &a->input,                                           \
				     .grid = &a->grid,                                             \
				     .mode = a->mode,                                              \
				     .padding = a->padding,                                        \
				     .align = a->align};                                           \
                                                                                                   \
		sample(&s, &a->out);                                                               \
	}                                                                                          \
	OPERATOR(NAME##Backward, (tensor, grad), (tensor, input), (tensor, grid), (int64, mode),   \
		 (int64, padding), (boolean, align), (bools, wanted), (result, input_grad),        \
		 (result, grid_grad))                                                              \
	{                                                                                          \
		struct sampling s = {.op = &a->op,                                                 \
				     .input = &a->input,                                           \
				     .grid = &a->grid,                                             \
				     .mode = a->mode,                                              \
				     .padding = a->padding,                                        \
				     .align = a->align};                                           \
                                                                                                   \
		sample_back(&s, &a->grad, &a->input_grad, &a->grid_grad);                          \
	}
GRID_SAMPLER(GridSampler2D)
GRID_SAMPLER(GridSampler3D)
