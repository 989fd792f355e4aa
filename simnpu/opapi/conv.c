/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Convolutions of one, two and three dimensions, forwards and backwards, transposed or not.
 *
 * All of it is one walk over what meets: an element of the input, one of the weight and one of the output. A transposed convolution
 * is the same walk with input and output exchanged.
 */
#include <stdlib.h>

#include "array.h"
#include "workspace.h"

enum {
	SPACE_MAX = 3,
};

/* Dense copies of what takes part, and how their places meet. `big` is the input, or the output when transposed. */
struct walk {
	double *big;
	double *small;
	double *weight; /* small channels, big channels of a group, kernel */
	int64_t batch;
	int64_t groups;
	int64_t big_channels;
	int64_t small_channels;
	unsigned space; /* dimensions that the kernel moves in */
	int64_t big_dims[SPACE_MAX];
	int64_t small_dims[SPACE_MAX];
	int64_t kernel[SPACE_MAX];
	int64_t stride[SPACE_MAX];
	int64_t padding[SPACE_MAX];
	int64_t dilation[SPACE_MAX];
};

enum goal {
	TO_SMALL, /* small += big * weight */
	TO_BIG,	  /* big += small * weight */
	TO_WEIGHT /* weight += big * small */
};

static int64_t product(const int64_t *dims, unsigned count)
{
	int64_t result = 1;

	while (count-- > 0)
		result *= dims[count];
	return result;
}

/* Splits a number into indices, the last dimension first. */
static void split(int64_t n, const int64_t *dims, unsigned count, int64_t *out)
{
	while (count-- > 0) {
		out[count] = n % dims[count];
		n /= dims[count];
	}
}

/* Where in the big image the kernel element lands; -1 when that is in the padding. */
static int64_t big_place(const struct walk *w, const int64_t *small, const int64_t *kernel)
{
	int64_t place = 0;
	unsigned d;

	for (d = 0; d < w->space; d++) {
		int64_t at = small[d] * w->stride[d] - w->padding[d] + kernel[d] * w->dilation[d];

		if (at < 0 || at >= w->big_dims[d])
			return -1;
		place = place * w->big_dims[d] + at;
	}
	return place;
}

/* All channels of one place in the small image and one of the kernel. */
static void meet(const struct walk *w, enum goal goal, int64_t n, int64_t small_at, int64_t big_at,
		 int64_t kernel_at)
{
	int64_t small_size = product(w->small_dims, w->space);
	int64_t big_size = product(w->big_dims, w->space);
	int64_t kernel_size = product(w->kernel, w->space);
	int64_t small_group = w->small_channels / w->groups;
	int64_t big_group = w->big_channels / w->groups;
	int64_t s;
	int64_t b;

	for (s = 0; s < w->small_channels; s++) {
		double *small = &w->small[(n * w->small_channels + s) * small_size + small_at];
		double *weight = &w->weight[s * big_group * kernel_size + kernel_at];
		double *big =
			&w->big[(n * w->big_channels + s / small_group * big_group) * big_size +
				big_at];

		for (b = 0; b < big_group; b++) {
			if (goal == TO_SMALL)
				*small += *big * *weight;
			else if (goal == TO_BIG)
				*big += *small * *weight;
			else
				*weight += *big * *small;
			big += big_size;
			weight += kernel_size;
		}
	}
}

static void walk(const struct walk *w, enum goal goal)
{
	int64_t places = product(w->small_dims, w->space);
	int64_t kernel_size = product(w->kernel, w->space);
	int64_t small[SPACE_MAX];
	int64_t kernel[SPACE_MAX];
	int64_t n;
	int64_t p;
	int64_t k;

	for (p = 0; p < places; p++) {
		split(p, w->small_dims, w->space, small);
		for (k = 0; k < kernel_size; k++) {
			int64_t big_at;

			split(k, w->kernel, w->space, kernel);
			big_at = big_place(w, small, kernel);
			for (n = 0; n < w->batch && big_at >= 0; n++)
				meet(w, goal, n, p, big_at, k);
		}
	}
}

struct convolution {
	const struct tensor *input;
	const struct tensor *weight;
	const struct tensor *output; /* or the gradient of it */
	const struct ints *stride;
	const struct ints *padding;
	const struct ints *dilation;
	bool transposed;
	int64_t groups;
};

static int64_t at_or_first(const struct ints *ints, unsigned n)
{
	return ints->items[n < ints->count ? n : 0];
}

/* Without the data. */
static bool plan(const struct op *op, struct walk *w, const struct convolution *c)
{
	const struct tensor *big = c->transposed ? c->output : c->input;
	const struct tensor *small = c->transposed ? c->input : c->output;
	unsigned d;

	if (c->input->dim_count < 3 || c->input->dim_count > 2 + SPACE_MAX || !c->stride->count ||
	    !c->padding->count || !c->dilation->count) {
		op_cannot(op, "a convolution of this shape is not simulated");
		return false;
	}
	*w = (struct walk){
		.batch = c->input->dims[0],
		.groups = c->groups,
		.big_channels = big->dims[1],
		.small_channels = small->dims[1],
		.space = c->input->dim_count - 2,
	};
	for (d = 0; d < w->space; d++) {
		w->big_dims[d] = big->dims[2 + d];
		w->small_dims[d] = small->dims[2 + d];
		w->kernel[d] = c->weight->dims[2 + d];
		w->stride[d] = at_or_first(c->stride, d);
		w->padding[d] = at_or_first(c->padding, d);
		w->dilation[d] = at_or_first(c->dilation, d);
	}
	return true;
}

/* One of three, from what the others are. */
static void convolve(const struct op *op, const struct convolution *c, const struct tensor *result)
{
	bool of_output = result == c->output;
	bool of_input = result == c->input;
	struct walk w;
	double *input;
	double *weight;
	double *output;

	if (!plan(op, &w, c))
		return;
	input = of_input ? op_array(op, tensor_count(c->input), sizeof(double))
			 : tensor_read(op, c->input);
	output = of_output ? op_array(op, tensor_count(c->output), sizeof(double))
			   : tensor_read(op, c->output);
	weight = of_input || of_output ? tensor_read(op, c->weight)
				       : op_array(op, tensor_count(c->weight), sizeof(double));
	if (input && weight && output) {
		w.big = c->transposed ? output : input;
		w.small = c->transposed ? input : output;
		w.weight = weight;
		if (!of_input && !of_output)
			walk(&w, TO_WEIGHT);
		else
			walk(&w, of_output == c->transposed ? TO_BIG : TO_SMALL);
		tensor_write(result, of_input ? input : of_output ? output : weight);
	}
	free(input);
	free(weight);
	free(output);
}

/* Channel by channel. */
static void add_bias(const struct tensor *output, const struct tensor *bias)
{
	struct tensor wide = *bias;
	struct shape shape = shape_of(output);
	struct view view;
	struct view out = view_of(output);
	int64_t n;

	wide.dim_count = output->dim_count;
	for (n = 0; n < output->dim_count; n++) {
		wide.dims[n] = n == 1 ? output->dims[1] : 1;
		wide.strides[n] = n == 1 ? bias->strides[0] : 0;
	}
	view = view_as(&wide, &shape);
	for (n = 0; n < shape_count(&shape); n++)
		view_put(&out, n, view_at(&out, n) + view_at(&view, n));
}

#define convolution_workspace(a) workspace_of_convolution(&(a)->input)

OPERATOR_WITH_WORKSPACE(Convolution, convolution_workspace, (tensor, input), (tensor, weight),
			(tensor, bias), (ints, stride), (ints, padding), (ints, dilation),
			(boolean, transposed), (ints, output_padding), (int64, groups),
			(result, output), (int8, math))
{
	struct convolution c = {
		.input = &a->input,
		.weight = &a->weight,
		.output = &a->output,
		.stride = &a->stride,
		.padding = &a->padding,
		.dilation = &a->dilation,
		.transposed = a->transposed,
		.groups = a->groups,
	};

	convolve(&a->op, &c, &a->output);
	if (a->bias.present && tensor_count(&a->bias))
		add_bias(&a->output, &a->bias);
}

/* The sum of a gradient over all but its channels. */
static void sum_by_channel(const struct op *op, const struct tensor *out, const struct tensor *grad)
{
	double *sums = op_array(op, grad->dims[1], sizeof(*sums));
	double *values = tensor_read(op, grad);
	int64_t inner = product(&grad->dims[2], grad->dim_count - 2);
	int64_t n;

	for (n = 0; n < tensor_count(grad) && sums && values; n++)
		sums[n / inner % grad->dims[1]] += values[n];
	if (sums && values)
		tensor_write(out, sums);
	free(sums);
	free(values);
}

OPERATOR_WITH_WORKSPACE(ConvolutionBackward, convolution_workspace, (tensor, grad), (tensor, input),
			(tensor, weight), (ints, bias_sizes), (ints, stride), (ints, padding),
			(ints, dilation), (boolean, transposed), (ints, output_padding),
			(int64, groups), (bools, mask), (int8, math), (result, grad_input),
			(result, grad_weight), (result, grad_bias))
{
	struct convolution c = {
		.input = &a->input,
		.weight = &a->weight,
		.output = &a->grad,
		.stride = &a->stride,
		.padding = &a->padding,
		.dilation = &a->dilation,
		.transposed = a->transposed,
		.groups = a->groups,
	};

	if (a->mask.count > 0 && a->mask.items[0] && a->grad_input.present) {
		struct convolution of_input = c;

		of_input.input = &a->grad_input;
		convolve(&a->op, &of_input, of_input.input);
	}
	if (a->mask.count > 1 && a->mask.items[1] && a->grad_weight.present) {
		struct convolution of_weight = c;

		of_weight.weight = &a->grad_weight;
		convolve(&a->op, &of_weight, of_weight.weight);
	}
	if (a->mask.count > 2 && a->mask.items[2] && a->grad_bias.present)
		sum_by_channel(&a->op, &a->grad_bias, &a->grad);
}
