/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The same operation on every tensor of a list, and the steps of optimizers.
 */
#include "map.h"
#include "old_math.h"

#define FOREACH(count) for (n = 0; n < (count); n++)

#define FOREACH_1(NAME, real)                                                                      \
	MAP_REAL(NAME, real)                                                                       \
	OPERATOR(Foreach##NAME, (tensors, x), (results, out))                                      \
	{                                                                                          \
		size_t n;                                                                          \
                                                                                                   \
		FOREACH(a->x.count)                                                                \
		MAP_1(&a->out.items[n], &a->x.items[n], real_##NAME, NULL, NULL);                  \
	}
FOREACH_1(Abs, fabs(x[0]))
FOREACH_1(Exp, exp(x[0]))
FOREACH_1(Log, log(x[0]))
FOREACH_1(Neg, -x[0])
FOREACH_1(Reciprocal, 1 / x[0])
FOREACH_1(Sigmoid, 1 / (1 + exp(-x[0])))
FOREACH_1(Sign, (x[0] > 0) - (x[0] < 0))
FOREACH_1(Sqrt, sqrt(x[0]))
FOREACH_1(Tanh, tanh(x[0]))
FOREACH_1(Cos, cos(x[0]))
FOREACH_1(Sin, sin(x[0]))
FOREACH_1(Erf, erf(x[0]))

OPERATOR(ForeachCopy, (tensors, x), (results, out))
{
	size_t n;

	FOREACH(a->x.count)
	tensor_copy(&a->out.items[n], &a->x.items[n]);
}

OPERATOR(ForeachZeroInplace, (tensors, x))
{
	size_t n;

	FOREACH(a->x.count)
	tensor_fill(&a->x.items[n], 0);
}

/*
 * With one scalar for all tensors (a tensor of one element in the first version of an operator, a scalar in the second), with one
 * for each, and with another list. The scalar is p[0].
 */
#define FOREACH_SCALAR(NAME, real)                                                                 \
	MAP_REAL(NAME##Scalar, real)                                                               \
	OPERATOR(Foreach##NAME##Scalar, (tensors, x), (tensor, scalar), (results, out))            \
	{                                                                                          \
		struct parameters p = {.p = {tensor_number(&a->scalar)}};                          \
		size_t n;                                                                          \
                                                                                                   \
		FOREACH(a->x.count)                                                                \
		MAP_1(&a->out.items[n], &a->x.items[n], real_##NAME##Scalar, NULL, &p);            \
	}                                                                                          \
	OPERATOR(Foreach##NAME##ScalarV2, (tensors, x), (scalar, scalar), (results, out))          \
	{                                                                                          \
		size_t n;                                                                          \
                                                                                                   \
		FOREACH(a->x.count)                                                                \
		{                                                                                  \
			struct parameters p = parameters_of(a->x.items[n].type, &a->scalar, NULL); \
                                                                                                   \
			MAP_1(&a->out.items[n], &a->x.items[n], real_##NAME##Scalar, NULL, &p);    \
		}                                                                                  \
	}
#define FOREACH_SCALAR_LIST(NAME)                                                                  \
	OPERATOR(Foreach##NAME##ScalarList, (tensors, x), (scalars, scalars), (results, out))      \
	{                                                                                          \
		size_t n;                                                                          \
                                                                                                   \
		FOREACH(a->x.count)                                                                \
		{                                                                                  \
			struct parameters p =                                                      \
				parameters_of(a->x.items[n].type, &a->scalars.items[n], NULL);     \
                                                                                                   \
			MAP_1(&a->out.items[n], &a->x.items[n], real_##NAME##Scalar, NULL, &p);    \
		}                                                                                  \
	}
FOREACH_SCALAR(Add, x[0] + p[0])
FOREACH_SCALAR_LIST(Add)
FOREACH_SCALAR(Sub, x[0] - p[0])
FOREACH_SCALAR_LIST(Sub)
FOREACH_SCALAR(Mul, x[0] * p[0])
FOREACH_SCALAR_LIST(Mul)
FOREACH_SCALAR(Div, x[0] / p[0])
FOREACH_SCALAR_LIST(Div)
FOREACH_SCALAR(Pow, pow(x[0], p[0]))
FOREACH_SCALAR_LIST(Pow)
FOREACH_SCALAR(Maximum, x[0] > p[0] ? x[0] : p[0])
FOREACH_SCALAR_LIST(Maximum)
FOREACH_SCALAR(Minimum, x[0] < p[0] ? x[0] : p[0])
FOREACH_SCALAR_LIST(Minimum)

OPERATOR(ForeachPowScalarAndTensor, (scalar, scalar), (tensors, x), (results, out))
{
	size_t n;
	int64_t i;

	FOREACH(a->x.count)
	{
		struct view in = view_of(&a->x.items[n]);
		struct view out = view_of(&a->out.items[n]);

		for (i = 0; i < tensor_count(&a->x.items[n]); i++)
			view_put(&out, i, pow(a->scalar.real, view_at(&in, i)));
	}
}

#define FOREACH_LIST(NAME, real)                                                                   \
	MAP_REAL(NAME##List, real)                                                                 \
	OPERATOR(Foreach##NAME##List, (tensors, x1), (tensors, x2), (results, out))                \
	{                                                                                          \
		size_t n;                                                                          \
                                                                                                   \
		FOREACH(a->x1.count)                                                               \
		MAP_2(&a->out.items[n], &a->x1.items[n], &a->x2.items[n], real_##NAME##List, NULL, \
		      NULL);                                                                       \
	}
FOREACH_LIST(Mul, x[0] * x[1])
FOREACH_LIST(Div, x[0] / x[1])
FOREACH_LIST(Pow, pow(x[0], x[1]))
FOREACH_LIST(Maximum, x[0] > x[1] ? x[0] : x[1])
FOREACH_LIST(Minimum, x[0] < x[1] ? x[0] : x[1])

/* With a factor for the second list. */
#define FOREACH_LIST_ALPHA(NAME, real)                                                             \
	MAP_REAL(NAME##List, real)                                                                 \
	OPERATOR(Foreach##NAME##List, (tensors, x1), (tensors, x2), (tensor, alpha),               \
		 (results, out))                                                                   \
	{                                                                                          \
		struct parameters p = {.p = {tensor_number(&a->alpha)}};                           \
		size_t n;                                                                          \
                                                                                                   \
		FOREACH(a->x1.count)                                                               \
		MAP_2(&a->out.items[n], &a->x1.items[n], &a->x2.items[n], real_##NAME##List, NULL, \
		      &p);                                                                         \
	}                                                                                          \
	OPERATOR(Foreach##NAME##ListV2, (tensors, x1), (tensors, x2), (scalar, alpha),             \
		 (results, out))                                                                   \
	{                                                                                          \
		size_t n;                                                                          \
                                                                                                   \
		FOREACH(a->x1.count)                                                               \
		{                                                                                  \
			struct parameters p = parameters_of(a->x1.items[n].type, &a->alpha, NULL); \
                                                                                                   \
			MAP_2(&a->out.items[n], &a->x1.items[n], &a->x2.items[n],                  \
			      real_##NAME##List, NULL, &p);                                        \
		}                                                                                  \
	}
FOREACH_LIST_ALPHA(Add, x[0] + p[0] * x[1])
FOREACH_LIST_ALPHA(Sub, x[0] - p[0] * x[1])

/* Three lists and a scalar for all, or one for each. */
#define FOREACH_3(NAME, real)                                                                      \
	MAP_REAL(NAME, real)                                                                       \
	OPERATOR(Foreach##NAME##Scalar, (tensors, x1), (tensors, x2), (tensors, x3),               \
		 (tensor, scalar), (results, out))                                                 \
	{                                                                                          \
		struct parameters p = {.p = {tensor_number(&a->scalar)}};                          \
		size_t n;                                                                          \
                                                                                                   \
		FOREACH(a->x1.count)                                                               \
		MAP_3(&a->out.items[n], &a->x1.items[n], &a->x2.items[n], &a->x3.items[n],         \
		      real_##NAME, NULL, &p);                                                      \
	}                                                                                          \
	OPERATOR(Foreach##NAME##ScalarV2, (tensors, x1), (tensors, x2), (tensors, x3),             \
		 (scalar, scalar), (results, out))                                                 \
	{                                                                                          \
		size_t n;                                                                          \
                                                                                                   \
		FOREACH(a->x1.count)                                                               \
		{                                                                                  \
			struct parameters p =                                                      \
				parameters_of(a->x1.items[n].type, &a->scalar, NULL);              \
                                                                                                   \
			MAP_3(&a->out.items[n], &a->x1.items[n], &a->x2.items[n], &a->x3.items[n], \
			      real_##NAME, NULL, &p);                                              \
		}                                                                                  \
	}                                                                                          \
	OPERATOR(Foreach##NAME##ScalarList, (tensors, x1), (tensors, x2), (tensors, x3),           \
		 (scalars, scalars), (results, out))                                               \
	{                                                                                          \
		size_t n;                                                                          \
                                                                                                   \
		FOREACH(a->x1.count)                                                               \
		{                                                                                  \
			struct parameters p =                                                      \
				parameters_of(a->x1.items[n].type, &a->scalars.items[n], NULL);    \
                                                                                                   \
			MAP_3(&a->out.items[n], &a->x1.items[n], &a->x2.items[n], &a->x3.items[n], \
			      real_##NAME, NULL, &p);                                              \
		}                                                                                  \
	}
FOREACH_3(Addcmul, x[0] + p[0] * x[1] * x[2])
FOREACH_3(Addcdiv, x[0] + p[0] * x[1] / x[2])

MAP_REAL(LerpScalar, x[0] + p[0] * (x[1] - x[0]))
MAP_REAL(LerpList, x[0] + x[2] * (x[1] - x[0]))
OPERATOR(ForeachLerpScalar, (tensors, x1), (tensors, x2), (scalar, weight), (results, out))
{
	size_t n;

	FOREACH(a->x1.count)
	{
		struct parameters p = parameters_of(a->x1.items[n].type, &a->weight, NULL);

		MAP_2(&a->out.items[n], &a->x1.items[n], &a->x2.items[n], real_LerpScalar, NULL,
		      &p);
	}
}

OPERATOR(ForeachLerpList, (tensors, x1), (tensors, x2), (tensors, weights), (results, out))
{
	size_t n;

	FOREACH(a->x1.count)
	MAP_3(&a->out.items[n], &a->x1.items[n], &a->x2.items[n], &a->weights.items[n],
	      real_LerpList, NULL, NULL);
}

static double norm(const struct tensor *x, double order)
{
	struct view view = view_of(x);
	int64_t count = tensor_count(x);
	double sum = 0;
	int64_t n;

	for (n = 0; n < count; n++) {
		double size = fabs(view_at(&view, n));

		if (isinf(order))
			sum = size > sum || isnan(size) ? size : sum;
		else
			sum += order == 2 ? size * size : pow(size, order);
	}
	return isinf(order) ? sum : order == 2 ? sqrt(sum) : pow(sum, 1 / order);
}

OPERATOR(ForeachNorm, (tensors, x), (scalar, order), (results, out))
{
	size_t n;

	FOREACH(a->x.count)
	tensor_fill(&a->out.items[n], norm(&a->x.items[n], a->order.real));
}

/* Divides by the scale and says in `found` whether anything was no finite number. */
MAP_REAL(Unscale, x[0] * p[0])
OPERATOR(ForeachNonFiniteCheckAndUnscale, (tensors, grads), (tensor, found), (tensor, inverse))
{
	struct parameters p = {.p = {tensor_number(&a->inverse)}};
	size_t n;
	int64_t i;

	FOREACH(a->grads.count)
	{
		struct view view = view_of(&a->grads.items[n]);

		for (i = 0; i < tensor_count(&a->grads.items[n]); i++) {
			if (!isfinite(view_at(&view, i)))
				tensor_fill(&a->found, 1);
		}
		MAP_1(&a->grads.items[n], &a->grads.items[n], real_Unscale, NULL, &p);
	}
}

/* The scale of a GradScaler after a step: smaller when a gradient was no finite number, larger after `interval` steps without one. */
OPERATOR(AmpUpdateScale, (tensor, scale), (tensor, tracker), (tensor, found), (real, growth),
	 (real, backoff), (int64, interval), (result, scale_out), (result, tracker_out))
{
	double scale = tensor_number(&a->scale);
	double clean = tensor_number(&a->found) != 0 ? 0 : tensor_number(&a->tracker) + 1;

	if (clean == 0) {
		scale *= a->backoff;
	} else if (clean >= (double)a->interval) {
		if (isfinite((float)(scale * a->growth)))
			scale *= a->growth;
		clean = 0;
	}
	tensor_fill(&a->scale_out, scale);
	tensor_fill(&a->tracker_out, clean);
}

/* What AdamW does to one parameter, in the order that PyTorch does it. */
struct adamw {
	double lr;
	double beta1;
	double beta2;
	double weight_decay;
	double eps;
	double step;
	bool maximize;
};

static void adamw_step(const struct adamw *w, const struct tensor *parameter,
		       const struct tensor *m, const struct tensor *v, const struct tensor *v_max,
		       const struct tensor *grad)
{
	double correction1 = 1 - pow(w->beta1, w->step);
	double correction2 = 1 - pow(w->beta2, w->step);
	struct view views[5] = {view_of(parameter), view_of(m), view_of(v), view_of(grad),
				v_max ? view_of(v_max) : view_of(v)};
	int64_t count = tensor_count(parameter);
	int64_t n;

	for (n = 0; n < count; n++) {
		double p = view_at(&views[0], n) * (1 - w->lr * w->weight_decay);
		double g = view_at(&views[3], n) * (w->maximize ? -1 : 1);
		double mean = view_at(&views[1], n) + (1 - w->beta1) * (g - view_at(&views[1], n));
		double square = view_at(&views[2], n) * w->beta2 + (1 - w->beta2) * g * g;
		double largest = square;

		view_put(&views[1], n, mean);
		view_put(&views[2], n, square);
		if (v_max) {
			largest = fmax(view_at(&views[4], n), square);
			view_put(&views[4], n, largest);
		}
		p -= w->lr / correction1 * mean / (sqrt(largest / correction2) + w->eps);
		view_put(&views[0], n, p);
	}
}

OPERATOR(ApplyAdamWV2, (tensor, parameter), (tensor, m), (tensor, v), (tensor, v_max),
	 (tensor, grad), (tensor, step), (real32, lr), (real32, beta1), (real32, beta2),
	 (real32, weight_decay), (real32, eps), (boolean, amsgrad), (boolean, maximize))
{
	/* The step that was counted before this one. */
	struct adamw w = {
		.lr = (double)a->lr,
		.beta1 = (double)a->beta1,
		.beta2 = (double)a->beta2,
		.weight_decay = (double)a->weight_decay,
		.eps = (double)a->eps,
		.step = tensor_number(&a->step) + 1,
		.maximize = a->maximize,
	};

	adamw_step(&w, &a->parameter, &a->m, &a->v, a->amsgrad ? &a->v_max : NULL, &a->grad);
}
