/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fused attention: softmax(scale * q k' + shift, masked) with some of it dropped, times v; row by row of the queries, so that the
 * matrix of scores is never there as a whole.
 */
#include <stdlib.h>
#include <string.h>

#include "array.h"
#include "old_math.h"
#include "workspace.h"

/* What both directions share. Every tensor is seen as batch, head, row, width, whatever its layout. */
struct attention {
	const struct op *op;
	struct tensor query;
	struct tensor key;
	struct tensor value;
	const struct tensor *shift;
	const struct tensor *drop_mask;
	const struct tensor *mask;
	double scale;
	double keep;
	int64_t before; /* keys that a query sees before its own place, */
	int64_t after;	/* and after it: in modes 0 and 4 */
	int64_t sparse_mode;
	int64_t heads_to_one; /* heads of queries for each head of keys */
};

static struct tensor as_heads(const struct tensor *tensor, const char *layout, int64_t heads)
{
	struct tensor out = *tensor;
	unsigned b = strcmp(layout, "SBH") == 0 ? 1 : 0;
	unsigned s = strcmp(layout, "SBH") == 0 ? 0 : 1;

	out.dim_count = 4;
	if (strcmp(layout, "BNSD") == 0)
		return out;
	out.dims[0] = tensor->dims[b];
	out.strides[0] = tensor->strides[b];
	out.dims[2] = tensor->dims[s];
	out.strides[2] = tensor->strides[s];
	if (strcmp(layout, "BSND") == 0) {
		out.dims[1] = tensor->dims[2];
		out.strides[1] = tensor->strides[2];
		return out;
	}
	/* BSH and SBH: the heads lie in the last dimension. */
	out.dims[1] = heads;
	out.dims[3] = tensor->dims[2] / heads;
	out.strides[1] = out.dims[3] * tensor->strides[2];
	out.strides[3] = tensor->strides[2];
	return out;
}

static bool is_there(const struct tensor *tensor)
{
	return tensor->present && tensor->data && tensor_count(tensor) > 0;
}

/* Whether query row `i` does not see key `j`. */
static bool is_hidden(const struct attention *t, const struct view *mask, int64_t at, int64_t i,
		      int64_t j)
{
	int64_t later = t->key.dims[2] - t->query.dims[2];

	switch (t->sparse_mode) {
	case 2:
		return j > i;
	case 3:
		return j > i + later;
	case 4:
		return j > i + later + t->after || j < i + later - t->before;
	default:
		return mask && view_integer_at(mask, at);
	}
}

/* The probabilities of one row of one head, before anything is dropped; and its maximum and sum for who keeps them. */
static void probabilities(const struct attention *t, int64_t row, double *p, const double *query,
			  const double *keys, double *most, double *sum)
{
	int64_t keys_count = t->key.dims[2];
	int64_t width = t->query.dims[3];
	struct shape scores = {4,
			       {t->query.dims[0], t->query.dims[1], t->query.dims[2], keys_count}};
	struct view mask;
	struct view shift;
	int64_t j;
	int64_t d;

	if (is_there(t->mask) && t->sparse_mode < 2)
		mask = view_as(t->mask, &scores);
	if (is_there(t->shift))
		shift = view_as(t->shift, &scores);
	*most = -INFINITY;
	*sum = 0;
	for (j = 0; j < keys_count; j++) {
		int64_t at = row * keys_count + j;

		p[j] = 0;
		for (d = 0; d < width; d++)
			p[j] += query[d] * keys[j * width + d];
		p[j] *= t->scale;
		if (is_there(t->shift))
			p[j] += view_at(&shift, at);
		if (is_hidden(t, is_there(t->mask) && t->sparse_mode < 2 ? &mask : NULL, at,
			      row % t->query.dims[2], j))
			p[j] = -INFINITY;
		*most = fmax(*most, p[j]);
	}
	for (j = 0; j < keys_count; j++) {
		p[j] = isinf(*most) ? 0 : exp(p[j] - *most);
		*sum += p[j];
	}
	for (j = 0; j<keys_count && * sum> 0; j++)
		p[j] /= *sum;
}

/* What dropping makes of a probability: 0, or more. */
static double kept(const struct attention *t, int64_t row, int64_t j)
{
	int64_t at = row * t->key.dims[2] + j;

	if (!is_there(t->drop_mask) || t->keep >= 1)
		return 1;
	return t->drop_mask->data[at / 8] >> at % 8 & 1 ? 1 / t->keep : 0;
}

/* All keys or values that a head of queries uses. */
static void read_head(const struct attention *t, const struct tensor *tensor, int64_t head,
		      double *out)
{
	int64_t size = tensor->dims[2] * tensor->dims[3];
	int64_t heads = t->query.dims[1];
	int64_t own = head / heads * tensor->dims[1] + head % heads / t->heads_to_one;
	struct view view = view_of(tensor);

	view_read(&view, own * size, size, out);
}

static bool set_up(struct attention *t, const struct tensor *query, const struct tensor *key,
		   const struct tensor *value, const char *layout, int64_t heads)
{
	static const char *const known[] = {"BNSD", "BSND", "BSH", "SBH"};
	int64_t kv_heads;
	size_t n;

	for (n = 0; n < 4 && strcmp(known[n], layout) != 0; n++)
		;
	if (n == 4 || t->sparse_mode > 4) {
		op_cannot(t->op, "this layout or mode of attention is not simulated");
		return false;
	}
	t->query = as_heads(query, layout, heads);
	kv_heads = query->dim_count == 3 ? key->dims[2] / t->query.dims[3] : 0;
	t->key = as_heads(key, layout, kv_heads);
	t->value = as_heads(value, layout, kv_heads);
	t->heads_to_one = t->query.dims[1] / t->key.dims[1];
	return true;
}

/* Kept eight times next to each other, as the real operator does. */
static void keep_row(const struct tensor *tensor, int64_t row, double value)
{
	struct view view;
	int64_t n;

	if (!is_there(tensor))
		return;
	view = view_of(tensor);
	for (n = 0; n < 8; n++)
		view_put(&view, row * 8 + n, value);
}

#define attention_workspace(a) workspace_of_attention(&(a)->key, &(a)->value)

OPERATOR_WITH_WORKSPACE(FlashAttentionScore, attention_workspace, (tensor, query), (tensor, key),
			(tensor, value), (tensor, shift), (tensor, drop_mask), (tensor, padding),
			(tensor, mask), (ints, prefix), (real, scale), (real, keep),
			(int64, before), (int64, after), (int64, heads), (text, layout),
			(int64, precise), (int64, sparse_mode), (result, softmax_max),
			(result, softmax_sum), (result, softmax_out), (result, out))
{
	struct attention t = {
		.op = &a->op,
		.shift = &a->shift,
		.drop_mask = &a->drop_mask,
		.mask = &a->mask,
		.scale = a->scale,
		.keep = a->keep,
		.before = a->before,
		.after = a->after,
		.sparse_mode = a->sparse_mode,
	};
	struct tensor out_tensor = as_heads(&a->out, a->layout, a->heads);
	struct view query;
	struct view out;
	double *memory;
	int64_t rows;
	int64_t head;
	int64_t i;
	int64_t j;
	int64_t d;

	if (!set_up(&t, &a->query, &a->key, &a->value, a->layout, a->heads))
		return;
	memory = op_array(&a->op,
			  t.key.dims[2] * (t.key.dims[3] + t.value.dims[3] + 1) + t.query.dims[3] +
				  t.value.dims[3],
			  sizeof(*memory));
	if (!memory)
		return;
	query = view_of(&t.query);
	out = view_of(&out_tensor);
	rows = t.query.dims[2];
	for (head = 0; head < t.query.dims[0] * t.query.dims[1]; head++) {
		double *keys = memory;
		double *values = keys + t.key.dims[2] * t.key.dims[3];
		double *p = values + t.key.dims[2] * t.value.dims[3];
		double *q = p + t.key.dims[2];
		double *result = q + t.query.dims[3];

		read_head(&t, &t.key, head, keys);
		read_head(&t, &t.value, head, values);
		for (i = head * rows; i < (head + 1) * rows; i++) {
			double most;
			double sum;

			view_read(&query, i * t.query.dims[3], t.query.dims[3], q);
			probabilities(&t, i, p, q, keys, &most, &sum);
			memset(result, 0, (size_t)t.value.dims[3] * sizeof(*result));
			for (j = 0; j < t.key.dims[2]; j++) {
				double factor = p[j] * kept(&t, i, j);

				for (d = 0; d < t.value.dims[3]; d++)
					result[d] += factor * values[j * t.value.dims[3] + d];
			}
			view_write(&out, i * t.value.dims[3], t.value.dims[3], result);
			keep_row(&a->softmax_max, i, most);
			keep_row(&a->softmax_sum, i, sum);
		}
	}
	free(memory);
}

/* Gradients of one head. */
struct head {
	double *keys;
	double *values;
	double *for_keys;
	double *for_values;
	double *p;
	double *dp;
	double *q;
	double *dy;
};

/* dv += p' dy; ds = p (dp - sum(p dp)); dq = scale ds k; dk += scale ds q. */
static void row_backward(const struct attention *t, const struct head *h, int64_t row, double *dq)
{
	int64_t width = t->query.dims[3];
	int64_t value_width = t->value.dims[3];
	double sum = 0;
	int64_t j;
	int64_t d;

	for (j = 0; j < t->key.dims[2]; j++) {
		double factor = kept(t, row, j);
		double product = 0;

		for (d = 0; d < value_width; d++) {
			product += h->dy[d] * h->values[j * value_width + d];
			h->for_values[j * value_width + d] += h->p[j] * factor * h->dy[d];
		}
		h->dp[j] = product * factor;
		sum += h->p[j] * h->dp[j];
	}
	memset(dq, 0, (size_t)width * sizeof(*dq));
	for (j = 0; j < t->key.dims[2]; j++) {
		double ds = h->p[j] * (h->dp[j] - sum) * t->scale;

		for (d = 0; d < width; d++) {
			dq[d] += ds * h->keys[j * width + d];
			h->for_keys[j * width + d] += ds * h->q[d];
		}
	}
}

/* Adds what a head found to the gradient of the keys or values that it shares with others. */
static void add_head(const struct attention *t, const struct tensor *grad, int64_t head,
		     const double *values)
{
	int64_t size = grad->dims[2] * grad->dims[3];
	int64_t heads = t->query.dims[1];
	int64_t own = head / heads * grad->dims[1] + head % heads / t->heads_to_one;
	struct view view = view_of(grad);
	int64_t n;

	for (n = 0; n < size; n++)
		view_put(&view, own * size + n, view_at(&view, own * size + n) + values[n]);
}

OPERATOR_WITH_WORKSPACE(FlashAttentionScoreGrad, attention_workspace, (tensor, query),
			(tensor, key), (tensor, value), (tensor, grad), (tensor, shift),
			(tensor, drop_mask), (tensor, padding), (tensor, mask),
			(tensor, softmax_max), (tensor, softmax_sum), (tensor, softmax_in),
			(tensor, attention_in), (ints, prefix), (real, scale), (real, keep),
			(int64, before), (int64, after), (int64, heads), (text, layout),
			(int64, precise), (int64, sparse_mode), (result, dq), (result, dk),
			(result, dv), (result, dshift))
{
	struct attention t = {
		.op = &a->op,
		.shift = &a->shift,
		.drop_mask = &a->drop_mask,
		.mask = &a->mask,
		.scale = a->scale,
		.keep = a->keep,
		.before = a->before,
		.after = a->after,
		.sparse_mode = a->sparse_mode,
	};
	struct tensor grad = as_heads(&a->grad, a->layout, a->heads);
	struct tensor dq = as_heads(&a->dq, a->layout, a->heads);
	struct tensor dk;
	struct tensor dv;
	struct view views[3];
	int64_t keys_size;
	int64_t values_size;
	double *memory;
	int64_t head;
	int64_t i;

	if (!set_up(&t, &a->query, &a->key, &a->value, a->layout, a->heads))
		return;
	dk = as_heads(&a->dk, a->layout, t.key.dims[1]);
	dv = as_heads(&a->dv, a->layout, t.value.dims[1]);
	keys_size = t.key.dims[2] * t.key.dims[3];
	values_size = t.key.dims[2] * t.value.dims[3];
	memory = op_array(&a->op,
			  2 * (keys_size + values_size + t.key.dims[2] + t.query.dims[3]) +
				  t.value.dims[3],
			  sizeof(*memory));
	if (!memory)
		return;
	tensor_fill(&a->dk, 0);
	tensor_fill(&a->dv, 0);
	views[0] = view_of(&t.query);
	views[1] = view_of(&grad);
	views[2] = view_of(&dq);
	for (head = 0; head < t.query.dims[0] * t.query.dims[1]; head++) {
		struct head h = {
			.keys = memory,
			.for_keys = memory + keys_size,
			.values = memory + 2 * keys_size,
			.for_values = memory + 2 * keys_size + values_size,
			.p = memory + 2 * (keys_size + values_size),
		};
		double *dq_row;

		h.dp = h.p + t.key.dims[2];
		h.q = h.dp + t.key.dims[2];
		dq_row = h.q + t.query.dims[3];
		h.dy = dq_row + t.query.dims[3];
		memset(h.for_keys, 0, (size_t)keys_size * sizeof(double));
		memset(h.for_values, 0, (size_t)values_size * sizeof(double));
		read_head(&t, &t.key, head, h.keys);
		read_head(&t, &t.value, head, h.values);
		for (i = head * t.query.dims[2]; i < (head + 1) * t.query.dims[2]; i++) {
			double most;
			double sum;

			view_read(&views[0], i * t.query.dims[3], t.query.dims[3], h.q);
			view_read(&views[1], i * t.value.dims[3], t.value.dims[3], h.dy);
			probabilities(&t, i, h.p, h.q, h.keys, &most, &sum);
			row_backward(&t, &h, i, dq_row);
			view_write(&views[2], i * t.query.dims[3], t.query.dims[3], dq_row);
		}
		add_head(&t, &dk, head, h.for_keys);
		add_head(&t, &dv, head, h.for_values);
	}
	free(memory);
}
