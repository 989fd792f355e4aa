/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Losses and their derivatives. A reduction is 0 for none, 1 for the mean, 2 for the sum.
 */
#include "map.h"
#include "old_math.h"

enum {
	REDUCE_NONE = 0,
	REDUCE_MEAN = 1,
	REDUCE_SUM = 2,
};

/* The weight of a class; 1 without weights, 0 for the class that does not count. */
static double class_weight(const struct tensor *weight, int64_t class, int64_t ignored)
{
	struct view view;

	if (class == ignored)
		return 0;
	if (!weight->present)
		return 1;
	view = view_of(weight);
	return view_at(&view, class);
}

/* Classes are the second dimension, or the only one. Rows of `self` are as many as there are targets. */
static int64_t place_of(const struct tensor *self, int64_t row, int64_t class)
{
	int64_t classes = self->dims[self->dim_count > 1 ? 1 : 0];
	int64_t inner = 1;
	uint32_t n;

	for (n = 2; n < self->dim_count; n++)
		inner *= self->dims[n];
	return (row / inner * classes + class) * inner + row % inner;
}

static void nll_loss(const struct tensor *self, const struct tensor *target,
		     const struct tensor *weight, int64_t reduction, int64_t ignored,
		     const struct tensor *out, const struct tensor *total_out)
{
	struct view in = view_of(self);
	struct view targets = view_of(target);
	struct view results = view_of(out);
	int64_t rows = tensor_count(target);
	double total = 0;
	double sum = 0;
	int64_t n;

	for (n = 0; n < rows; n++) {
		int64_t class = view_integer_at(&targets, n);
		double w = class_weight(weight, class, ignored);
		double loss = class == ignored ? 0 : -w * view_at(&in, place_of(self, n, class));

		total += w;
		sum += loss;
		if (reduction == REDUCE_NONE)
			view_put(&results, n, loss);
	}
	if (reduction != REDUCE_NONE)
		tensor_fill(out, reduction == REDUCE_MEAN ? sum / total : sum);
	if (total_out->present)
		tensor_fill(total_out, reduction == REDUCE_NONE ? 0 : total);
}

static void nll_loss_backward(const struct tensor *grad, const struct tensor *self,
			      const struct tensor *target, const struct tensor *weight,
			      int64_t reduction, int64_t ignored, const struct tensor *total,
			      const struct tensor *out)
{
	struct view targets = view_of(target);
	struct view grads = view_of(grad);
	struct view results = view_of(out);
	int64_t rows = tensor_count(target);
	double divisor = reduction == REDUCE_MEAN ? tensor_number(total) : 1;
	int64_t n;

	tensor_fill(out, 0);
	for (n = 0; n < rows; n++) {
		int64_t class = view_integer_at(&targets, n);
		double g = view_at(&grads, reduction == REDUCE_NONE ? n : 0);

		if (class != ignored)
			view_put(&results, place_of(self, n, class),
				 -g * class_weight(weight, class, ignored) / divisor);
	}
}

#define NLL_LOSS(NAME)                                                                             \
	OPERATOR(NAME, (tensor, self), (tensor, target), (tensor, weight), (int64, reduction),     \
		 (int64, ignored), (result, out), (result, total))                                 \
	{                                                                                          \
		nll_loss(&a->self, &a->target, &a->weight, a->reduction, a->ignored, &a->out,      \
			 &a->total);                                                               \
	}                                                                                          \
	OPERATOR(NAME##Backward, (tensor, grad), (tensor, self), (tensor, target),                 \
		 (tensor, weight), (int64, reduction), (int64, ignored), (tensor, total),          \
		 (result, out))                                                                    \
	{                                                                                          \
		nll_loss_backward(&a->grad, &a->self, &a->target, &a->weight, a->reduction,        \
				  a->ignored, &a->total, &a->out);                                 \
	}
NLL_LOSS(NLLLoss)
NLL_LOSS(NLLLoss2d)

static double square(double difference, double unused)
{
	(void)unused;
	return difference * difference;
}

static double square_slope(double difference, double unused)
{
	(void)unused;
	return 2 * difference;
}

static double size(double difference, double unused)
{
	(void)unused;
	return fabs(difference);
}

static double size_slope(double difference, double unused)
{
	(void)unused;
	return (difference > 0) - (difference < 0);
}

static double smooth(double difference, double beta)
{
	double s = fabs(difference);

	return s < beta ? s * s / (2 * beta) : s - beta / 2;
}

static double smooth_slope(double difference, double beta)
{
	return fabs(difference) < beta ? difference / beta : size_slope(difference, 0);
}

typedef double pair_fn(double difference, double parameter);

static void pair_loss(const struct tensor *self, const struct tensor *target, int64_t reduction,
		      const struct tensor *out, pair_fn *fn, double parameter)
{
	struct shape shape = shape_of_both(self, target);
	struct view in = view_as(self, &shape);
	struct view targets = view_as(target, &shape);
	struct view results = view_of(out);
	int64_t count = shape_count(&shape);
	double sum = 0;
	int64_t n;

	for (n = 0; n < count; n++) {
		double loss = fn(view_at(&in, n) - view_at(&targets, n), parameter);

		sum += loss;
		if (reduction == REDUCE_NONE)
			view_put(&results, n, loss);
	}
	if (reduction != REDUCE_NONE)
		tensor_fill(out, reduction == REDUCE_MEAN ? sum / (double)count : sum);
}

static void pair_loss_backward(const struct tensor *grad, const struct tensor *self,
			       const struct tensor *target, int64_t reduction,
			       const struct tensor *out, pair_fn *slope, double parameter)
{
	struct shape shape = shape_of(out);
	struct view in = view_as(self, &shape);
	struct view targets = view_as(target, &shape);
	struct view grads = view_as(grad, &shape);
	struct view results = view_of(out);
	int64_t count = shape_count(&shape);
	double divisor = reduction == REDUCE_MEAN ? (double)count : 1;
	int64_t n;

	for (n = 0; n < count; n++)
		view_put(&results, n,
			 view_at(&grads, n) *
				 slope(view_at(&in, n) - view_at(&targets, n), parameter) /
				 divisor);
}

#define PAIR_LOSS(NAME, fn, slope)                                                                 \
	OPERATOR(NAME, (tensor, self), (tensor, target), (int64, reduction), (result, out))        \
	{                                                                                          \
		pair_loss(&a->self, &a->target, a->reduction, &a->out, fn, 0);                     \
	}                                                                                          \
	OPERATOR(NAME##Backward, (tensor, grad), (tensor, self), (tensor, target),                 \
		 (int64, reduction), (result, out))                                                \
	{                                                                                          \
		pair_loss_backward(&a->grad, &a->self, &a->target, a->reduction, &a->out, slope,   \
				   0);                                                             \
	}
PAIR_LOSS(MseLoss, square, square_slope)
PAIR_LOSS(L1Loss, size, size_slope)

OPERATOR(SmoothL1Loss, (tensor, self), (tensor, target), (int64, reduction), (real32, beta),
	 (result, out))
{
	pair_loss(&a->self, &a->target, a->reduction, &a->out, smooth, (double)a->beta);
}

OPERATOR(SmoothL1LossBackward, (tensor, grad), (tensor, self), (tensor, target), (int64, reduction),
	 (real32, beta), (result, out))
{
	pair_loss_backward(&a->grad, &a->self, &a->target, a->reduction, &a->out, smooth_slope,
			   (double)a->beta);
}

/* From the logits: max(x, 0) - x y + log(1 + exp(-|x|)), with a weight for what is positive. */
OPERATOR(BinaryCrossEntropyWithLogits, (tensor, self), (tensor, target), (tensor, weight),
	 (tensor, positive), (int64, reduction), (result, out))
{
	struct shape shape = shape_of(&a->self);
	struct view in = view_as(&a->self, &shape);
	struct view targets = view_as(&a->target, &shape);
	struct view results = view_of(&a->out);
	int64_t count = shape_count(&shape);
	double sum = 0;
	int64_t n;

	for (n = 0; n < count; n++) {
		double x = view_at(&in, n);
		double y = view_at(&targets, n);
		double factor = 1;
		double loss;

		if (a->positive.present) {
			struct view view = view_as(&a->positive, &shape);

			factor = 1 + (view_at(&view, n) - 1) * y;
		}
		loss = (1 - y) * x + factor * (log1p(exp(-fabs(x))) + fmax(-x, 0));
		if (a->weight.present) {
			struct view view = view_as(&a->weight, &shape);

			loss *= view_at(&view, n);
		}
		sum += loss;
		if (a->reduction == REDUCE_NONE)
			view_put(&results, n, loss);
	}
	if (a->reduction != REDUCE_NONE)
		tensor_fill(&a->out, a->reduction == REDUCE_MEAN ? sum / (double)count : sum);
}

OPERATOR(BinaryCrossEntropyWithLogitsBackward, (tensor, grad), (tensor, self), (tensor, target),
	 (tensor, weight), (tensor, positive), (int64, reduction), (result, out))
{
	struct shape shape = shape_of(&a->self);
	struct view in = view_as(&a->self, &shape);
	struct view targets = view_as(&a->target, &shape);
	struct view grads = view_as(&a->grad, &shape);
	struct view results = view_of(&a->out);
	int64_t count = shape_count(&shape);
	double divisor = a->reduction == REDUCE_MEAN ? (double)count : 1;
	int64_t n;

	for (n = 0; n < count; n++) {
		double y = view_at(&targets, n);
		double s = 1 / (1 + exp(-view_at(&in, n)));
		double slope = s - y;

		if (a->positive.present) {
			struct view view = view_as(&a->positive, &shape);
			double p = view_at(&view, n) * y;

			slope = (p + 1 - y) * s - p;
		}
		if (a->weight.present) {
			struct view view = view_as(&a->weight, &shape);

			slope *= view_at(&view, n);
		}
		view_put(&results, n, view_at(&grads, n) * slope / divisor);
	}
}

/* From probabilities; a logarithm is never less than -100. */
OPERATOR(BinaryCrossEntropy, (tensor, self), (tensor, target), (tensor, weight), (int64, reduction),
	 (result, out))
{
	struct shape shape = shape_of(&a->self);
	struct view in = view_as(&a->self, &shape);
	struct view targets = view_as(&a->target, &shape);
	struct view results = view_of(&a->out);
	int64_t count = shape_count(&shape);
	double sum = 0;
	int64_t n;

	for (n = 0; n < count; n++) {
		double x = view_at(&in, n);
		double y = view_at(&targets, n);
		double loss = -y * fmax(log(x), -100) - (1 - y) * fmax(log1p(-x), -100);

		if (a->weight.present) {
			struct view weights = view_as(&a->weight, &shape);

			loss *= view_at(&weights, n);
		}
		sum += loss;
		if (a->reduction == REDUCE_NONE)
			view_put(&results, n, loss);
	}
	if (a->reduction != REDUCE_NONE)
		tensor_fill(&a->out, a->reduction == REDUCE_MEAN ? sum / (double)count : sum);
}

OPERATOR(BinaryCrossEntropyBackward, (tensor, grad), (tensor, self), (tensor, target),
	 (tensor, weight), (int64, reduction), (result, out))
{
	struct shape shape = shape_of(&a->self);
	struct view in = view_as(&a->self, &shape);
	struct view targets = view_as(&a->target, &shape);
	struct view grads = view_as(&a->grad, &shape);
	struct view results = view_of(&a->out);
	int64_t count = shape_count(&shape);
	int64_t n;

	for (n = 0; n < count; n++) {
		double x = view_at(&in, n);
		double slope = (x - view_at(&targets, n)) / fmax((1 - x) * x, 1e-12);

		if (a->weight.present) {
			struct view weights = view_as(&a->weight, &shape);

			slope *= view_at(&weights, n);
		}
		if (a->reduction == REDUCE_MEAN)
			slope /= (double)count;
		view_put(&results, n, view_at(&grads, n) * slope);
	}
}

static double kl(double input, double target, bool is_log)
{
	if (is_log)
		return exp(target) * (target - input);
	return target > 0 ? target * (log(target) - input) : 0;
}

OPERATOR(KlDiv, (tensor, self), (tensor, target), (int64, reduction), (boolean, is_log),
	 (result, out))
{
	struct shape shape = shape_of_both(&a->self, &a->target);
	struct view in = view_as(&a->self, &shape);
	struct view targets = view_as(&a->target, &shape);
	struct view results = view_of(&a->out);
	int64_t count = shape_count(&shape);
	double sum = 0;
	int64_t n;

	for (n = 0; n < count; n++) {
		double loss = kl(view_at(&in, n), view_at(&targets, n), a->is_log);

		sum += loss;
		if (a->reduction == REDUCE_NONE)
			view_put(&results, n, loss);
	}
	if (a->reduction == REDUCE_NONE)
		return;
	/* 3 is the mean over the batch, which is the first dimension. */
	if (a->reduction == REDUCE_MEAN)
		sum /= (double)count;
	else if (a->reduction == 3)
		sum /= (double)shape.dims[0];
	tensor_fill(&a->out, sum);
}

OPERATOR(KlDivBackward, (tensor, grad), (tensor, self), (tensor, target), (int64, reduction),
	 (boolean, is_log), (result, out))
{
	struct shape shape = shape_of(&a->out);
	struct view targets = view_as(&a->target, &shape);
	struct view grads = view_as(&a->grad, &shape);
	struct view results = view_of(&a->out);
	int64_t count = shape_count(&shape);
	double divisor = 1;
	int64_t n;

	if (a->reduction == REDUCE_MEAN)
		divisor = (double)count;
	else if (a->reduction == 3)
		divisor = (double)shape.dims[0];
	for (n = 0; n < count; n++) {
		double target = view_at(&targets, n);

		target = a->is_log ? exp(target) : fmax(target, 0);
		view_put(&results, n, -view_at(&grads, n) * target / divisor);
	}
}

OPERATOR(KlDivTargetBackward, (tensor, grad), (tensor, self), (tensor, target), (int64, reduction),
	 (boolean, is_log), (result, out))
{
	struct shape shape = shape_of(&a->out);
	struct view in = view_as(&a->self, &shape);
	struct view targets = view_as(&a->target, &shape);
	struct view grads = view_as(&a->grad, &shape);
	struct view results = view_of(&a->out);
	int64_t count = shape_count(&shape);
	double divisor = a->reduction == REDUCE_MEAN ? (double)count : 1;
	int64_t n;

	for (n = 0; n < count; n++) {
		double x = view_at(&in, n);
		double t = view_at(&targets, n);
		double slope = a->is_log ? exp(t) * (t + 1 - x) : t > 0 ? log(t) + 1 - x : 0;

		view_put(&results, n, view_at(&grads, n) * slope / divisor);
	}
}

OPERATOR(SoftMarginLoss, (tensor, self), (tensor, target), (int64, reduction), (result, out))
{
	struct shape shape = shape_of_both(&a->self, &a->target);
	struct view in = view_as(&a->self, &shape);
	struct view targets = view_as(&a->target, &shape);
	struct view results = view_of(&a->out);
	int64_t count = shape_count(&shape);
	double sum = 0;
	int64_t n;

	for (n = 0; n < count; n++) {
		double loss = log1p(exp(-view_at(&targets, n) * view_at(&in, n)));

		sum += loss;
		if (a->reduction == REDUCE_NONE)
			view_put(&results, n, loss);
	}
	if (a->reduction != REDUCE_NONE)
		tensor_fill(&a->out, a->reduction == REDUCE_MEAN ? sum / (double)count : sum);
}

OPERATOR(SoftMarginLossBackward, (tensor, grad), (tensor, self), (tensor, target),
	 (int64, reduction), (result, out))
{
	struct shape shape = shape_of(&a->out);
	struct view in = view_as(&a->self, &shape);
	struct view targets = view_as(&a->target, &shape);
	struct view grads = view_as(&a->grad, &shape);
	struct view results = view_of(&a->out);
	int64_t count = shape_count(&shape);
	double divisor = a->reduction == REDUCE_MEAN ? (double)count : 1;
	int64_t n;

	for (n = 0; n < count; n++) {
		double t = view_at(&targets, n);
		double z = exp(-t * view_at(&in, n));

		view_put(&results, n, view_at(&grads, n) * -t * z / (1 + z) / divisor);
	}
}

/* Rows of scores; the targets of a row end at the first that is negative. */
OPERATOR(MultilabelMarginLoss, (tensor, self), (tensor, target), (int64, reduction), (result, out),
	 (result, is_target))
{
	int64_t classes = a->self.dim_count ? a->self.dims[a->self.dim_count - 1] : 1;
	int64_t rows = classes ? tensor_count(&a->self) / classes : 0;
	struct view in = view_of(&a->self);
	struct view targets = view_of(&a->target);
	struct view marks = view_of(&a->is_target);
	struct view results = view_of(&a->out);
	double sum = 0;
	int64_t n;
	int64_t t;
	int64_t j;

	tensor_fill(&a->is_target, 0);
	for (n = 0; n < rows; n++) {
		double loss = 0;

		for (t = 0; t < classes && view_integer_at(&targets, n * classes + t) >= 0; t++)
			view_put(&marks, n * classes + view_integer_at(&targets, n * classes + t),
				 1);
		for (t = 0; t < classes && view_integer_at(&targets, n * classes + t) >= 0; t++) {
			int64_t class = view_integer_at(&targets, n * classes + t);
			double x = view_at(&in, n * classes + class);

			for (j = 0; j < classes; j++) {
				if (view_at(&marks, n * classes + j) == 0)
					loss += fmax(0, 1 - x + view_at(&in, n * classes + j));
			}
		}
		loss /= (double)classes;
		sum += loss;
		if (a->reduction == REDUCE_NONE)
			view_put(&results, n, loss);
	}
	if (a->reduction != REDUCE_NONE)
		tensor_fill(&a->out, a->reduction == REDUCE_MEAN ? sum / (double)rows : sum);
}
