/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Normalisations with their derivatives: softmax along a dimension, layers over the last dimensions, batches over all but the
 * second.
 */
#include <stdlib.h>

#include "array.h"
#include "old_math.h"

/* Works on each row along a dimension: `row` is the input, and becomes the result; `other` is a second input. */
typedef void row_fn(double *row, const double *other, int64_t length);

static void on_rows(const struct op *op, const struct tensor *out, const struct tensor *self,
		    const struct tensor *other, int64_t dim, row_fn *fn)
{
	uint32_t last = dim_of(self, dim);
	int64_t length = self->dim_count ? self->dims[last] : 1;
	struct tensor from = self->dim_count ? tensor_with_last(self, last) : *self;
	struct tensor to = out->dim_count ? tensor_with_last(out, last) : *out;
	struct tensor second = !other		  ? *self
			       : other->dim_count ? tensor_with_last(other, last)
						  : *other;
	struct view in = view_of(&from);
	struct view out_view = view_of(&to);
	struct view second_view = view_of(&second);
	double *row = op_array(op, 2 * length, sizeof(*row));
	int64_t n;

	if (!row)
		return;
	for (n = 0; n < tensor_count(self); n += length) {
		view_read(&in, n, length, row);
		if (other)
			view_read(&second_view, n, length, row + length);
		fn(row, row + length, length);
		view_write(&out_view, n, length, row);
	}
	free(row);
}

static double row_max(const double *row, int64_t length)
{
	double most = -INFINITY;
	int64_t n;

	for (n = 0; n < length; n++)
		most = row[n] > most ? row[n] : most;
	return most;
}

static double row_exp_sum(const double *row, int64_t length, double most)
{
	double sum = 0;
	int64_t n;

	for (n = 0; n < length; n++)
		sum += exp(row[n] - most);
	return sum;
}

static void softmax(double *row, const double *other, int64_t length)
{
	double most = row_max(row, length);
	double sum = row_exp_sum(row, length, most);
	int64_t n;

	(void)other;
	for (n = 0; n < length; n++)
		row[n] = exp(row[n] - most) / sum;
}

static void log_softmax(double *row, const double *other, int64_t length)
{
	double most = row_max(row, length);
	double shift = most + log(row_exp_sum(row, length, most));
	int64_t n;

	(void)other;
	for (n = 0; n < length; n++)
		row[n] -= shift;
}

/* The row is the gradient, the other the result of the way forward. */
static void softmax_backward(double *row, const double *other, int64_t length)
{
	double sum = 0;
	int64_t n;

	for (n = 0; n < length; n++)
		sum += row[n] * other[n];
	for (n = 0; n < length; n++)
		row[n] = other[n] * (row[n] - sum);
}

static void log_softmax_backward(double *row, const double *other, int64_t length)
{
	double sum = 0;
	int64_t n;

	for (n = 0; n < length; n++)
		sum += row[n];
	for (n = 0; n < length; n++)
		row[n] -= exp(other[n]) * sum;
}

OPERATOR(Softmax, (tensor, self), (int64, dim), (result, out))
{
	on_rows(&a->op, &a->out, &a->self, NULL, a->dim, softmax);
}

OPERATOR(LogSoftmax, (tensor, self), (int64, dim), (result, out))
{
	on_rows(&a->op, &a->out, &a->self, NULL, a->dim, log_softmax);
}

OPERATOR(SoftmaxBackward, (tensor, grad), (result, output), (int64, dim), (result, out))
{
	on_rows(&a->op, &a->out, &a->grad, &a->output, a->dim, softmax_backward);
}

OPERATOR(LogSoftmaxBackward, (tensor, grad), (result, output), (int64, dim), (result, out))
{
	on_rows(&a->op, &a->out, &a->grad, &a->output, a->dim, log_softmax_backward);
}

static int64_t product_of(const struct ints *ints)
{
	int64_t product = 1;
	size_t n;

	for (n = 0; n < ints->count; n++)
		product *= ints->items[n];
	return product;
}

static double mean_of(const double *row, int64_t length)
{
	double sum = 0;
	int64_t n;

	for (n = 0; n < length; n++)
		sum += row[n];
	return sum / (double)length;
}

static double variance_of(const double *row, int64_t length, double mean)
{
	double sum = 0;
	int64_t n;

	for (n = 0; n < length; n++)
		sum += (row[n] - mean) * (row[n] - mean);
	return sum / (double)length;
}

/* All elements, or `value` as often when the tensor is not there. */
static double *read_or(const struct op *op, const struct tensor *tensor, int64_t count,
		       double value)
{
	double *values;
	int64_t n;

	if (tensor->present)
		return tensor_read(op, tensor);
	values = op_array(op, count, sizeof(*values));
	for (n = 0; values && n < count; n++)
		values[n] = value;
	return values;
}

OPERATOR(LayerNorm, (tensor, input), (ints, shape), (tensor, weight), (tensor, bias), (real, eps),
	 (result, out), (result, mean), (result, rstd))
{
	int64_t length = product_of(&a->shape);
	int64_t rows = length ? tensor_count(&a->input) / length : 0;
	double *row = op_array(&a->op, length, sizeof(*row));
	double *weight = read_or(&a->op, &a->weight, length, 1);
	double *bias = read_or(&a->op, &a->bias, length, 0);
	struct view in = view_of(&a->input);
	struct view out = view_of(&a->out);
	int64_t n;
	int64_t i;

	for (n = 0; n < rows && row && weight && bias; n++) {
		double mean;
		double rstd;

		view_read(&in, n * length, length, row);
		mean = mean_of(row, length);
		rstd = 1 / sqrt(variance_of(row, length, mean) + a->eps);
		for (i = 0; i < length; i++)
			row[i] = (row[i] - mean) * rstd * weight[i] + bias[i];
		view_write(&out, n * length, length, row);
		if (a->mean.present) {
			struct view means = view_of(&a->mean);

			view_put(&means, n, mean);
		}
		if (a->rstd.present) {
			struct view rstds = view_of(&a->rstd);

			view_put(&rstds, n, rstd);
		}
	}
	free(row);
	free(weight);
	free(bias);
}

/*
 * With x' = (x - mean) * rstd and g' = g * weight, both of one row: dx = rstd * (g' - mean(g') - x' * mean(g' x')). `x` becomes x',
 * and `g` becomes dx.
 */
static void row_backward(double *g, double *x, const double *weight, int64_t length, double mean,
			 double rstd)
{
	double sum = 0;
	double product = 0;
	int64_t n;

	for (n = 0; n < length; n++) {
		x[n] = (x[n] - mean) * rstd;
		g[n] *= weight[n];
		sum += g[n];
		product += g[n] * x[n];
	}
	sum /= (double)length;
	product /= (double)length;
	for (n = 0; n < length; n++)
		g[n] = rstd * (g[n] - sum - x[n] * product);
}

OPERATOR(LayerNormBackward, (tensor, grad), (tensor, input), (ints, shape), (tensor, mean),
	 (tensor, rstd), (tensor, weight), (tensor, bias), (bools, mask), (result, grad_input),
	 (result, grad_weight), (result, grad_bias))
{
	int64_t length = product_of(&a->shape);
	int64_t rows = length ? tensor_count(&a->input) / length : 0;
	double *g = op_array(&a->op, 4 * length, sizeof(*g));
	double *weight = read_or(&a->op, &a->weight, length, 1);
	double *x = g + length;
	double *for_weight = g + 2 * length;
	double *for_bias = g + 3 * length;
	struct view means = view_of(&a->mean);
	struct view rstds = view_of(&a->rstd);
	struct view grads = view_of(&a->grad);
	struct view in = view_of(&a->input);
	int64_t n;
	int64_t i;

	for (n = 0; n < rows && g && weight; n++) {
		double mean = view_at(&means, n);
		double rstd = view_at(&rstds, n);

		view_read(&grads, n * length, length, g);
		view_read(&in, n * length, length, x);
		for (i = 0; i < length; i++) {
			for_weight[i] += g[i] * (x[i] - mean) * rstd;
			for_bias[i] += g[i];
		}
		row_backward(g, x, weight, length, mean, rstd);
		if (a->grad_input.present) {
			struct view out = view_of(&a->grad_input);

			view_write(&out, n * length, length, g);
		}
	}
	if (g && a->grad_weight.present)
		tensor_write(&a->grad_weight, for_weight);
	if (g && a->grad_bias.present)
		tensor_write(&a->grad_bias, for_bias);
	free(g);
	free(weight);
}

OPERATOR(RmsNorm, (tensor, input), (tensor, weight), (real, eps), (result, out), (result, rstd))
{
	int64_t length = tensor_count(&a->weight);
	int64_t rows = length ? tensor_count(&a->input) / length : 0;
	double *row = op_array(&a->op, length, sizeof(*row));
	double *weight = tensor_read(&a->op, &a->weight);
	struct view rstds = view_of(&a->rstd);
	struct view in = view_of(&a->input);
	struct view out = view_of(&a->out);
	int64_t n;
	int64_t i;

	for (n = 0; n < rows && row && weight; n++) {
		double rstd;

		view_read(&in, n * length, length, row);
		rstd = 1 / sqrt(variance_of(row, length, 0) + a->eps);
		for (i = 0; i < length; i++)
			row[i] *= rstd * weight[i];
		view_write(&out, n * length, length, row);
		view_put(&rstds, n, rstd);
	}
	free(row);
	free(weight);
}

OPERATOR(RmsNormGrad, (tensor, grad), (tensor, input), (tensor, rstd), (tensor, weight),
	 (result, grad_input), (result, grad_weight))
{
	int64_t length = tensor_count(&a->weight);
	int64_t rows = length ? tensor_count(&a->input) / length : 0;
	double *g = op_array(&a->op, 3 * length, sizeof(*g));
	double *weight = tensor_read(&a->op, &a->weight);
	double *x = g + length;
	double *for_weight = g + 2 * length;
	struct view rstds = view_of(&a->rstd);
	struct view grads = view_of(&a->grad);
	struct view in = view_of(&a->input);
	struct view out = view_of(&a->grad_input);
	int64_t n;
	int64_t i;

	for (n = 0; n < rows && g && weight; n++) {
		double rstd = view_at(&rstds, n);
		double product = 0;

		view_read(&grads, n * length, length, g);
		view_read(&in, n * length, length, x);
		for (i = 0; i < length; i++) {
			x[i] *= rstd;
			for_weight[i] += g[i] * x[i];
			g[i] *= weight[i];
			product += g[i] * x[i];
		}
		for (i = 0; i < length; i++)
			g[i] = rstd * (g[i] - x[i] * product / (double)length);
		view_write(&out, n * length, length, g);
	}
	if (g)
		tensor_write(&a->grad_weight, for_weight);
	free(g);
	free(weight);
}

/* A tensor with its channels, the second dimension, first: rows are what one channel has. */
static struct tensor by_channel(const struct tensor *tensor, int64_t *length)
{
	bool marked[DIMS_MAX];
	uint32_t n;

	for (n = 0; n < DIMS_MAX; n++)
		marked[n] = n != 1;
	return tensor_with_marked_last(tensor, marked, length);
}

static double at_or(const struct tensor *tensor, int64_t n, double value)
{
	struct view view;

	if (!tensor->present || !tensor->data || tensor_count(tensor) == 0)
		return value;
	view = view_of(tensor);
	return view_at(&view, n);
}

static void put_if(const struct tensor *tensor, int64_t n, double value)
{
	struct view view;

	if (!tensor->present || !tensor->data || tensor_count(tensor) == 0)
		return;
	view = view_of(tensor);
	view_put(&view, n, value);
}

/* The new one of a running value. */
static void move_towards(const struct tensor *running, int64_t n, double value, double momentum)
{
	put_if(running, n, at_or(running, n, 0) * (1 - momentum) + value * momentum);
}

OPERATOR(BatchNorm, (tensor, input), (tensor, weight), (tensor, bias), (tensor, running_mean),
	 (tensor, running_var), (boolean, training), (real, momentum), (real, eps), (result, out),
	 (result, save_mean), (result, save_invstd))
{
	int64_t length;
	struct tensor from = by_channel(&a->input, &length);
	struct tensor to = by_channel(&a->out, &length);
	struct view in = view_of(&from);
	struct view out = view_of(&to);
	double *row = op_array(&a->op, length, sizeof(*row));
	int64_t n;
	int64_t i;

	for (n = 0; n < a->input.dims[1] && row; n++) {
		double mean = at_or(&a->running_mean, n, 0);
		double variance = at_or(&a->running_var, n, 1);
		double factor;

		view_read(&in, n * length, length, row);
		if (a->training) {
			mean = mean_of(row, length);
			variance = variance_of(row, length, mean);
			move_towards(&a->running_mean, n, mean, a->momentum);
			move_towards(&a->running_var, n,
				     variance * (double)length / (double)(length - 1), a->momentum);
		}
		factor = 1 / sqrt(variance + a->eps);
		put_if(&a->save_mean, n, mean);
		put_if(&a->save_invstd, n, factor);
		for (i = 0; i < length; i++)
			row[i] = (row[i] - mean) * factor * at_or(&a->weight, n, 1) +
				 at_or(&a->bias, n, 0);
		view_write(&out, n * length, length, row);
	}
	free(row);
}

OPERATOR(BatchNormBackward, (tensor, grad), (tensor, input), (tensor, weight),
	 (tensor, running_mean), (tensor, running_var), (tensor, save_mean), (tensor, save_invstd),
	 (boolean, training), (real, eps), (bools, mask), (result, grad_input),
	 (result, grad_weight), (result, grad_bias))
{
	int64_t length;
	struct tensor from = by_channel(&a->input, &length);
	struct tensor grad = by_channel(&a->grad, &length);
	struct tensor to = a->grad_input.present ? by_channel(&a->grad_input, &length) : from;
	struct view in = view_of(&from);
	struct view grads = view_of(&grad);
	struct view out = view_of(&to);
	double *g = op_array(&a->op, 3 * length, sizeof(*g));
	double *x = g + length;
	double *weight = g + 2 * length;
	int64_t n;
	int64_t i;

	for (n = 0; n < a->input.dims[1] && g; n++) {
		double mean =
			a->training ? at_or(&a->save_mean, n, 0) : at_or(&a->running_mean, n, 0);
		double factor = a->training ? at_or(&a->save_invstd, n, 1)
					    : 1 / sqrt(at_or(&a->running_var, n, 1) + a->eps);
		double for_weight = 0;
		double for_bias = 0;

		view_read(&grads, n * length, length, g);
		view_read(&in, n * length, length, x);
		for (i = 0; i < length; i++) {
			for_weight += g[i] * (x[i] - mean) * factor;
			for_bias += g[i];
			weight[i] = at_or(&a->weight, n, 1);
		}
		if (a->training)
			row_backward(g, x, weight, length, mean, factor);
		for (i = 0; i < length && !a->training; i++)
			g[i] *= weight[i] * factor;
		if (a->grad_input.present)
			view_write(&out, n * length, length, g);
		put_if(&a->grad_weight, n, for_weight);
		put_if(&a->grad_bias, n, for_bias);
	}
	free(g);
}

/* Rows are the channels of one group of one image; weight and bias are those of a channel. */
OPERATOR(GroupNorm, (tensor, input), (tensor, weight), (tensor, bias), (int64, images),
	 (int64, channels), (int64, space), (int64, groups), (real, eps), (result, out),
	 (result, mean), (result, rstd))
{
	int64_t length = a->channels / a->groups * a->space;
	double *row = op_array(&a->op, length, sizeof(*row));
	double *weight = read_or(&a->op, &a->weight, a->channels, 1);
	double *bias = read_or(&a->op, &a->bias, a->channels, 0);
	struct view in = view_of(&a->input);
	struct view out = view_of(&a->out);
	int64_t n;
	int64_t i;

	for (n = 0; n < a->images * a->groups && row && weight && bias; n++) {
		int64_t first = n % a->groups * (a->channels / a->groups);
		double mean;
		double rstd;

		view_read(&in, n * length, length, row);
		mean = mean_of(row, length);
		rstd = 1 / sqrt(variance_of(row, length, mean) + a->eps);
		for (i = 0; i < length; i++) {
			int64_t channel = first + i / a->space;

			row[i] = (row[i] - mean) * rstd * weight[channel] + bias[channel];
		}
		view_write(&out, n * length, length, row);
		put_if(&a->mean, n, mean);
		put_if(&a->rstd, n, rstd);
	}
	free(row);
	free(weight);
	free(bias);
}

OPERATOR(GroupNormBackward, (tensor, grad), (tensor, input), (tensor, mean), (tensor, rstd),
	 (tensor, weight), (int64, images), (int64, channels), (int64, space), (int64, groups),
	 (bools, mask), (result, grad_input), (result, grad_weight), (result, grad_bias))
{
	int64_t length = a->channels / a->groups * a->space;
	double *g = op_array(&a->op, 3 * length + 2 * a->channels, sizeof(*g));
	double *x = g + length;
	double *factors = x + length;
	double *for_weight = factors + length;
	double *for_bias = for_weight + a->channels;
	double *weight = read_or(&a->op, &a->weight, a->channels, 1);
	struct view grads = view_of(&a->grad);
	struct view in = view_of(&a->input);
	int64_t n;
	int64_t i;

	for (n = 0; n < a->images * a->groups && g && weight; n++) {
		int64_t first = n % a->groups * (a->channels / a->groups);
		double mean = at_or(&a->mean, n, 0);
		double rstd = at_or(&a->rstd, n, 1);

		view_read(&grads, n * length, length, g);
		view_read(&in, n * length, length, x);
		for (i = 0; i < length; i++) {
			int64_t channel = first + i / a->space;

			factors[i] = weight[channel];
			for_weight[channel] += g[i] * (x[i] - mean) * rstd;
			for_bias[channel] += g[i];
		}
		row_backward(g, x, factors, length, mean, rstd);
		if (a->grad_input.present) {
			struct view out = view_of(&a->grad_input);

			view_write(&out, n * length, length, g);
		}
	}
	if (g && weight && a->grad_weight.present)
		tensor_write(&a->grad_weight, for_weight);
	if (g && weight && a->grad_bias.present)
		tensor_write(&a->grad_bias, for_bias);
	free(g);
	free(weight);
}
