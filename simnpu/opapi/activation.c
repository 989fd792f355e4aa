/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Activations and their derivatives.
 */
#include <string.h>

#include "map.h"
#include "old_math.h"

static double sigmoid(double x)
{
	return 1 / (1 + exp(-x));
}

static double normal_cdf(double x)
{
	return erfc(-x * M_SQRT1_2) / 2;
}

static double normal_pdf(double x)
{
	return exp(-x * x / 2) * M_2_SQRTPI * M_SQRT1_2 / 2;
}

static double tanh_inner(double x)
{
	return tanh(M_2_SQRTPI * M_SQRT1_2 * (x + 0.044715 * x * x * x));
}

static double tanh_gelu_slope(double x)
{
	double t = tanh_inner(x);

	return (1 + t) / 2 +
	       x / 2 * (1 - t * t) * M_2_SQRTPI * M_SQRT1_2 * (1 + 3 * 0.044715 * x * x);
}

static double silu_slope(double x)
{
	double s = sigmoid(x);

	return s * (1 + x * (1 - s));
}

static double softplus(double x)
{
	return x > 0 ? x + log1p(exp(-x)) : log1p(exp(x));
}

static double mish_slope(double x)
{
	double t = tanh(softplus(x));

	return t + x * (1 - t * t) * sigmoid(x);
}

#define FORWARD(NAME, real)                                                                        \
	MAP_REAL(NAME, real)                                                                       \
	OPERATOR(NAME, (tensor, self), (result, out))                                              \
	{                                                                                          \
		MAP_1(&a->out, &a->self, real_##NAME, NULL, NULL);                                 \
	}
#define FORWARD_IN_PLACE(NAME)                                                                     \
	OPERATOR(Inplace##NAME, (tensor, self))                                                    \
	{                                                                                          \
		MAP_1(&a->self, &a->self, real_##NAME, NULL, NULL);                                \
	}
MAP_REAL(Sigmoid, sigmoid(x[0]))
MAP_COMPLEX(Sigmoid, 1 / (1 + cexp(-x[0])))
COMPLEX_OPERATOR(Sigmoid, (tensor, self), (result, out))
{
	MAP_ANY_1(&a->out, &a->self, real_Sigmoid, NULL, complex_Sigmoid, NULL);
}
COMPLEX_OPERATOR(InplaceSigmoid, (tensor, self))
{
	MAP_ANY_1(&a->self, &a->self, real_Sigmoid, NULL, complex_Sigmoid, NULL);
}
FORWARD(Silu, x[0] * sigmoid(x[0]))
FORWARD(Gelu, x[0] * normal_cdf(x[0]))
FORWARD(Mish, x[0] * tanh(softplus(x[0])))
FORWARD_IN_PLACE(Mish)
FORWARD(LogSigmoid, -softplus(-x[0]))
FORWARD(Hardsigmoid, fmin(fmax(x[0] + 3, 0), 6) / 6)
FORWARD_IN_PLACE(Hardsigmoid)
FORWARD(Hardswish, x[0] * fmin(fmax(x[0] + 3, 0), 6) / 6)
FORWARD_IN_PLACE(Hardswish)

OPERATOR(LogSigmoidForward, (tensor, self), (result, out), (result, buffer))
{
	MAP_1(&a->out, &a->self, real_LogSigmoid, NULL, NULL);
}

MAP_REAL(LogSigmoidBackward, x[0] * sigmoid(-x[1]))
OPERATOR(LogSigmoidBackward, (tensor, grad), (tensor, self), (tensor, buffer), (result, out))
{
	MAP_2(&a->out, &a->grad, &a->self, real_LogSigmoidBackward, NULL, NULL);
}

/* p[0] is beta, p[1] the threshold above which it is the input itself. */
MAP_REAL(Softplus, x[0] * p[0] > p[1] ? x[0] : softplus(x[0] * p[0]) / p[0])
OPERATOR(Softplus, (tensor, self), (scalar, beta), (scalar, threshold), (result, out))
{
	struct parameters p = parameters_of(a->self.type, &a->beta, &a->threshold);

	MAP_1(&a->out, &a->self, real_Softplus, NULL, &p);
}

MAP_REAL(SoftplusBackward, x[1] * p[0] > p[1] ? x[0] : x[0] * sigmoid(x[1] * p[0]))
OPERATOR(SoftplusBackward, (tensor, grad), (tensor, self), (scalar, beta), (scalar, threshold),
	 (result, out))
{
	struct parameters p = parameters_of(a->self.type, &a->beta, &a->threshold);

	MAP_2(&a->out, &a->grad, &a->self, real_SoftplusBackward, NULL, &p);
}

/* p[0] is alpha, p[1] the scale, p[2] the scale of the input. */
static struct parameters elu_parameters(const struct scalar *alpha, const struct scalar *scale,
					const struct scalar *input_scale)
{
	return (struct parameters){.p = {alpha->real, scale->real, input_scale->real}};
}

MAP_REAL(Elu, x[0] > 0 ? x[0] * p[1] : expm1(x[0] * p[2]) * p[0] * p[1])
OPERATOR(Elu, (tensor, self), (scalar, alpha), (scalar, scale), (scalar, input_scale),
	 (result, out))
{
	struct parameters p = elu_parameters(&a->alpha, &a->scale, &a->input_scale);

	MAP_1(&a->out, &a->self, real_Elu, NULL, &p);
}

OPERATOR(InplaceElu, (tensor, self), (scalar, alpha), (scalar, scale), (scalar, input_scale))
{
	struct parameters p = elu_parameters(&a->alpha, &a->scale, &a->input_scale);

	MAP_1(&a->self, &a->self, real_Elu, NULL, &p);
}

MAP_REAL(EluBackward, x[0] * (x[1] > 0 ? p[1] : p[2] * p[0] * p[1] * exp(x[1] * p[2])))
MAP_REAL(EluBackwardOfResult, x[0] * (x[1] > 0 ? p[1] : p[2] * (x[1] + p[0] * p[1])))
OPERATOR(EluBackward, (tensor, grad), (scalar, alpha), (scalar, scale), (scalar, input_scale),
	 (boolean, is_result), (tensor, self), (result, out))
{
	struct parameters p = elu_parameters(&a->alpha, &a->scale, &a->input_scale);

	MAP_2(&a->out, &a->grad, &a->self,
	      a->is_result ? real_EluBackwardOfResult : real_EluBackward, NULL, &p);
}

MAP_REAL(Relu, x[0] < 0 ? 0 : x[0])
MAP_INTEGER(Relu, x[0] < 0 ? 0 : x[0])
OPERATOR(Relu, (tensor, self), (result, out))
{
	MAP_1(&a->out, &a->self, real_Relu, integer_Relu, NULL);
}
OPERATOR(InplaceRelu, (tensor, self))
{
	MAP_1(&a->self, &a->self, real_Relu, integer_Relu, NULL);
}

/* x[0] is the gradient of the output, x[1] the input or the output, as the operator says. */
#define BACKWARD(NAME, slope)                                                                      \
	MAP_REAL(NAME, x[0] * (slope))                                                             \
	OPERATOR(NAME, (tensor, grad), (tensor, other), (result, out))                             \
	{                                                                                          \
		MAP_2(&a->out, &a->grad, &a->other, real_##NAME, NULL, NULL);                      \
	}
#define BACKWARD_ANY(NAME, slope)                                                                  \
	MAP_REAL(NAME, x[0] * (slope))                                                             \
	MAP_COMPLEX(NAME, x[0] * conj(slope))                                                      \
	COMPLEX_OPERATOR(NAME, (tensor, grad), (tensor, other), (result, out))                     \
	{                                                                                          \
		MAP_ANY_2(&a->out, &a->grad, &a->other, real_##NAME, NULL, complex_##NAME, NULL);  \
	}
BACKWARD_ANY(SigmoidBackward, x[1] * (1 - x[1]))
BACKWARD_ANY(TanhBackward, 1 - x[1] * x[1])
BACKWARD(SiluBackward, silu_slope(x[1]))
BACKWARD(MishBackward, mish_slope(x[1]))
BACKWARD(HardsigmoidBackward, x[1] > -3 && x[1] < 3 ? 1.0 / 6 : 0)
BACKWARD(HardswishBackwardV2, x[1] <= -3 ? 0 : x[1] >= 3 ? 1 : x[1] / 3 + 0.5)
BACKWARD(HardswishBackward, x[1] <= -3 ? 0 : x[1] >= 3 ? 1 : x[1] / 3 + 0.5)
BACKWARD(GeluBackward, normal_cdf(x[1]) + x[1] * normal_pdf(x[1]))

MAP_REAL(ThresholdBackward, x[1] > p[0] ? x[0] : 0)
OPERATOR(ThresholdBackward, (tensor, grad), (tensor, self), (scalar, threshold), (result, out))
{
	struct parameters p = parameters_of(a->self.type, &a->threshold, NULL);

	MAP_2(&a->out, &a->grad, &a->self, real_ThresholdBackward, NULL, &p);
}

MAP_REAL(Threshold, x[0] > p[0] ? x[0] : p[1])
OPERATOR(Threshold, (tensor, self), (scalar, threshold), (scalar, value), (result, out))
{
	struct parameters p = parameters_of(a->self.type, &a->threshold, &a->value);

	MAP_1(&a->out, &a->self, real_Threshold, NULL, &p);
}

/* The approximation is a number forwards and a word backwards. */
MAP_REAL(TanhGelu, x[0] / 2 * (1 + tanh_inner(x[0])))
OPERATOR(GeluV2, (tensor, self), (int64, approximate), (result, out))
{
	MAP_1(&a->out, &a->self, a->approximate ? real_TanhGelu : real_Gelu, NULL, NULL);
}

MAP_REAL(TanhGeluBackward, x[0] * tanh_gelu_slope(x[1]))
OPERATOR(GeluBackwardV2, (tensor, grad), (tensor, self), (text, approximate), (result, out))
{
	bool tanh_form = strcmp(a->approximate, "tanh") == 0;

	MAP_2(&a->out, &a->grad, &a->self, tanh_form ? real_TanhGeluBackward : real_GeluBackward,
	      NULL, NULL);
}

MAP_REAL(LeakyRelu, x[0] > 0 ? x[0] : x[0] * p[0])
OPERATOR(LeakyRelu, (tensor, self), (scalar, slope), (result, out))
{
	struct parameters p = parameters_of(a->self.type, &a->slope, NULL);

	MAP_1(&a->out, &a->self, real_LeakyRelu, NULL, &p);
}

OPERATOR(InplaceLeakyRelu, (tensor, self), (scalar, slope))
{
	struct parameters p = parameters_of(a->self.type, &a->slope, NULL);

	MAP_1(&a->self, &a->self, real_LeakyRelu, NULL, &p);
}

MAP_REAL(LeakyReluBackward, x[1] > 0 ? x[0] : x[0] * p[0])
OPERATOR(LeakyReluBackward, (tensor, grad), (tensor, self), (scalar, slope), (boolean, is_result),
	 (result, out))
{
	struct parameters p = parameters_of(a->self.type, &a->slope, NULL);

	MAP_2(&a->out, &a->grad, &a->self, real_LeakyReluBackward, NULL, &p);
}

/* One slope for all, or one for each channel. */
static struct tensor slope_for(const struct tensor *weight, const struct tensor *self)
{
	struct tensor wide = *weight;
	uint32_t n;

	if (weight->dim_count == self->dim_count || tensor_count(weight) == 1 ||
	    self->dim_count < 2)
		return wide;
	wide.dim_count = self->dim_count;
	for (n = 0; n < self->dim_count; n++) {
		wide.dims[n] = n == 1 ? weight->dims[0] : 1;
		wide.strides[n] = n == 1 ? weight->strides[0] : 0;
	}
	return wide;
}

MAP_REAL(Prelu, x[0] > 0 ? x[0] : x[0] * x[1])
OPERATOR(Prelu, (tensor, self), (tensor, weight), (result, out))
{
	struct tensor slope = slope_for(&a->weight, &a->self);

	MAP_2(&a->out, &a->self, &slope, real_Prelu, NULL, NULL);
}

/* The first half of a dimension times the sigmoid of the second. */
OPERATOR(Glu, (tensor, self), (int64, dim), (result, out))
{
	uint32_t dim = dim_of(&a->self, a->dim);
	struct tensor first = a->self;
	struct tensor second;
	struct view gate;
	struct view in;
	struct view out = view_of(&a->out);
	int64_t n;

	first.dims[dim] /= 2;
	second = first;
	second.data += first.dims[dim] * first.strides[dim] * (int64_t)numbers_size(first.type);
	in = view_of(&first);
	gate = view_of(&second);
	for (n = 0; n < tensor_count(&a->out); n++)
		view_put(&out, n, view_at(&in, n) * sigmoid(view_at(&gate, n)));
}

/* Activations with a parameter: the gradient passes where the input did. */
#define SHRINK(NAME, value, slope)                                                                 \
	MAP_REAL(NAME, value)                                                                      \
	MAP_REAL(NAME##Backward, x[0] * (slope))                                                   \
	OPERATOR(NAME, (tensor, self), (scalar, limit), (result, out))                             \
	{                                                                                          \
		struct parameters p = parameters_of(a->self.type, &a->limit, NULL);                \
                                                                                                   \
		MAP_1(&a->out, &a->self, real_##NAME, NULL, &p);                                   \
	}                                                                                          \
	OPERATOR(NAME##Backward, (tensor, grad), (tensor, self), (scalar, limit), (result, out))   \
	{                                                                                          \
		struct parameters p = parameters_of(a->self.type, &a->limit, NULL);                \
                                                                                                   \
		MAP_2(&a->out, &a->grad, &a->self, real_##NAME##Backward, NULL, &p);               \
	}
SHRINK(Hardshrink, x[0] >= -p[0] && x[0] <= p[0] ? 0 : x[0], x[1] >= -p[0] && x[1] <= p[0] ? 0 : 1)
SHRINK(Softshrink,
       x[0] > p[0]    ? x[0] - p[0]
       : x[0] < -p[0] ? x[0] + p[0]
		      : x[0] * 0,
       x[1] >= -p[0] && x[1] <= p[0] ? 0 : 1)

MAP_REAL(Celu, x[0] > 0 ? x[0] : p[0] * expm1(x[0] / p[0]))
OPERATOR(Celu, (tensor, self), (scalar, alpha), (result, out))
{
	struct parameters p = parameters_of(a->self.type, &a->alpha, NULL);

	MAP_1(&a->out, &a->self, real_Celu, NULL, &p);
}

OPERATOR(InplaceCelu, (tensor, self), (scalar, alpha))
{
	struct parameters p = parameters_of(a->self.type, &a->alpha, NULL);

	MAP_1(&a->self, &a->self, real_Celu, NULL, &p);
}

MAP_REAL(HardtanhBackward, x[1] > p[0] && x[1] < p[1] ? x[0] : 0)
OPERATOR(HardtanhBackward, (tensor, grad), (tensor, self), (scalar, least), (scalar, most),
	 (result, out))
{
	struct parameters p = parameters_of(a->self.type, &a->least, &a->most);

	MAP_2(&a->out, &a->grad, &a->self, real_HardtanhBackward, NULL, &p);
}

OPERATOR(InplaceThreshold, (tensor, self), (scalar, threshold), (scalar, value))
{
	struct parameters p = parameters_of(a->self.type, &a->threshold, &a->value);

	MAP_1(&a->self, &a->self, real_Threshold, NULL, &p);
}

/* A negative eps stands for none. */
static double limited(double x, double eps)
{
	return eps < 0 ? x : x < eps ? eps : x > 1 - eps ? 1 - eps : x;
}

static double logit_slope(double x, double eps)
{
	if (eps < 0)
		return x < 0 || x > 1 ? NAN : x == 0 || x == 1 ? INFINITY : 1 / (x * (1 - x));
	return x < eps || x > 1 - eps ? 0 : 1 / (x * (1 - x));
}

MAP_REAL(Logit, log(limited(x[0], p[0]) / (1 - limited(x[0], p[0]))))
OPERATOR(Logit, (tensor, self), (real, eps), (result, out))
{
	struct parameters p = {.p = {a->eps}};

	MAP_1(&a->out, &a->self, real_Logit, NULL, &p);
}

MAP_REAL(LogitGrad, x[1] * logit_slope(x[0], p[0]))
OPERATOR(LogitGrad, (tensor, self), (tensor, grad), (real, eps), (result, out))
{
	struct parameters p = {.p = {a->eps}};

	MAP_2(&a->out, &a->self, &a->grad, real_LogitGrad, NULL, &p);
}

/* Both halves of the gradient, of the value and of the gate. */
OPERATOR(GluBackward, (tensor, grad), (tensor, self), (int64, dim), (result, out))
{
	uint32_t dim = dim_of(&a->self, a->dim);
	struct tensor value = a->self;
	struct tensor gate;
	struct tensor to_value = a->out;
	struct tensor to_gate;
	struct view grads = view_of(&a->grad);
	int64_t count;
	int64_t n;

	value.dims[dim] /= 2;
	to_value.dims[dim] /= 2;
	gate = value;
	to_gate = to_value;
	gate.data += value.dims[dim] * value.strides[dim] * (int64_t)numbers_size(value.type);
	to_gate.data +=
		to_value.dims[dim] * to_value.strides[dim] * (int64_t)numbers_size(to_value.type);
	count = tensor_count(&value);
	for (n = 0; n < count; n++) {
		struct view views[4] = {view_of(&value), view_of(&gate), view_of(&to_value),
					view_of(&to_gate)};
		double s = sigmoid(view_at(&views[1], n));
		double g = view_at(&grads, n);

		view_put(&views[2], n, g * s);
		view_put(&views[3], n, g * view_at(&views[0], n) * s * (1 - s));
	}
}

/* The gradient of a slope is the sum over all elements that it multiplies; with the shape of `self`, nothing is added up. */
OPERATOR(PreluBackward, (tensor, grad), (tensor, self), (tensor, weight), (result, grad_self),
	 (result, grad_weight))
{
	struct tensor slope = slope_for(&a->weight, &a->self);
	struct tensor to = slope_for(&a->grad_weight, &a->self);
	struct shape shape = shape_of(&a->self);
	struct view slopes = view_as(&slope, &shape);
	struct view self = view_of(&a->self);
	struct view grads = view_of(&a->grad);
	struct view out = view_of(&a->grad_self);
	struct view sums = view_as(&to, &shape);
	int64_t n;

	tensor_fill(&a->grad_weight, 0);
	for (n = 0; n < shape_count(&shape); n++) {
		double x = view_at(&self, n);
		double g = view_at(&grads, n);

		view_put(&out, n, x > 0 ? g : g * view_at(&slopes, n));
		if (!(x > 0))
			view_put(&sums, n, view_at(&sums, n) + g * x);
	}
}
