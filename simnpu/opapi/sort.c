/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sorting along a dimension. Equal elements keep their order; what is no number counts as the largest.
 */
#include <stdlib.h>

#include "array.h"
#include "old_math.h"

struct entry {
	double value;
	int64_t index;
};

static int compare_up(const void *left, const void *right)
{
	const struct entry *l = left;
	const struct entry *r = right;

	if (l->value < r->value || (!isnan(l->value) && isnan(r->value)))
		return -1;
	if (l->value > r->value || (isnan(l->value) && !isnan(r->value)))
		return 1;
	return l->index < r->index ? -1 : l->index > r->index;
}

static int compare_down(const void *left, const void *right)
{
	const struct entry *l = left;
	const struct entry *r = right;

	if (l->value > r->value || (isnan(l->value) && !isnan(r->value)))
		return -1;
	if (l->value < r->value || (!isnan(l->value) && isnan(r->value)))
		return 1;
	return l->index < r->index ? -1 : l->index > r->index;
}

/* The first `kept` of each row, and where they were. */
static void sort(const struct op *op, const struct tensor *self, int64_t dim, bool down,
		 int64_t kept, const struct tensor *values, const struct tensor *indices)
{
	uint32_t last = dim_of(self, dim);
	int64_t length = self->dim_count ? self->dims[last] : 1;
	struct tensor from = self->dim_count ? tensor_with_last(self, last) : *self;
	struct tensor to = values->dim_count ? tensor_with_last(values, last) : *values;
	struct tensor places = indices->dim_count ? tensor_with_last(indices, last) : *indices;
	struct view in = view_of(&from);
	struct view out = view_of(&to);
	struct view places_view = view_of(&places);
	struct entry *row = op_array(op, length, sizeof(*row));
	int64_t n;
	int64_t i;

	for (n = 0; length && n < tensor_count(self) / length && row; n++) {
		for (i = 0; i < length; i++)
			row[i] = (struct entry){view_at(&in, n * length + i), i};
		qsort(row, (size_t)length, sizeof(*row), down ? compare_down : compare_up);
		for (i = 0; i < kept; i++) {
			view_put(&out, n * kept + i, row[i].value);
			view_write_integers(&places_view, n * kept + i, 1, &row[i].index);
		}
	}
	free(row);
}

OPERATOR(Sort, (tensor, self), (boolean, stable), (int64, dim), (boolean, descending),
	 (tensor, values), (tensor, indices))
{
	int64_t length = a->self.dim_count ? a->self.dims[dim_of(&a->self, a->dim)] : 1;

	sort(&a->op, &a->self, a->dim, a->descending, length, &a->values, &a->indices);
}

OPERATOR(TopkV2, (tensor, self), (int64, k), (int64, dim), (boolean, largest), (boolean, sorted),
	 (int64, policy), (tensor, values), (tensor, indices))
{
	sort(&a->op, &a->self, a->dim, a->largest, a->k, &a->values, &a->indices);
}

OPERATOR(Topk, (tensor, self), (int64, k), (int64, dim), (boolean, largest), (boolean, sorted),
	 (tensor, values), (tensor, indices))
{
	sort(&a->op, &a->self, a->dim, a->largest, a->k, &a->values, &a->indices);
}

/* The middle one, of two the lower. */
OPERATOR(Median, (tensor, self), (tensor, out))
{
	int64_t count = tensor_count(&a->self);
	struct view self = view_of(&a->self);
	struct entry *all = op_array(&a->op, count, sizeof(*all));
	int64_t n;

	if (!all || !count)
		return;
	for (n = 0; n < count; n++)
		all[n] = (struct entry){view_at(&self, n), n};
	qsort(all, (size_t)count, sizeof(*all), compare_up);
	tensor_fill(&a->out, isnan(all[count - 1].value) ? NAN : all[(count - 1) / 2].value);
	free(all);
}

/* Each value once, sorted; for each element the number of its value; how often each value is there. */
OPERATOR_THAT_WAITS(Unique2, (tensor, self), (boolean, sorted), (boolean, wants_inverse),
		    (boolean, wants_counts), (tensor, values), (tensor, inverse), (tensor, counts))
{
	int64_t count = tensor_count(&a->self);
	struct view self = view_of(&a->self);
	struct entry *all = op_array(&a->op, count, sizeof(*all));
	int64_t *counts = op_array(&a->op, count, sizeof(*counts));
	int64_t *inverse = op_array(&a->op, count, sizeof(*inverse));
	double *values = op_array(&a->op, count, sizeof(*values));
	int64_t found = 0;
	int64_t n;

	if (all && counts && inverse && values) {
		for (n = 0; n < count; n++)
			all[n] = (struct entry){view_at(&self, n), n};
		qsort(all, (size_t)count, sizeof(*all), compare_up);
		for (n = 0; n < count; n++) {
			if (n == 0 || all[n].value != all[n - 1].value)
				values[found++] = all[n].value;
			counts[found - 1]++;
			inverse[all[n].index] = found - 1;
		}
		op_set_dims(&a->values, &found, 1);
		tensor_write(&a->values, values);
		if (a->wants_inverse)
			tensor_write_integers(&a->inverse, inverse);
		if (a->wants_counts) {
			op_set_dims(&a->counts, &found, 1);
			tensor_write_integers(&a->counts, counts);
		}
	}
	free(all);
	free(counts);
	free(inverse);
	free(values);
}
