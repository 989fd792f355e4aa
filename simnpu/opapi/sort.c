/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sorting along a dimension. Equal elements keep their order; what is no number counts as the largest.
 */
#include <stdlib.h>

#include "array.h"
#include "old_math.h"

/* The integer is 0 for reals; where a double does not have the whole of an integer, it decides. */
struct entry {
	double value;
	int64_t integer;
	int64_t index;
};

static bool is_same(const struct entry *left, const struct entry *right)
{
	return left->value == right->value && left->integer == right->integer;
}

static int compare_values(const struct entry *l, const struct entry *r)
{
	if (isnan(l->value) || isnan(r->value))
		return !!isnan(l->value) - !!isnan(r->value);
	if (l->value != r->value)
		return l->value < r->value ? -1 : 1;
	return l->integer < r->integer ? -1 : l->integer > r->integer;
}

static int compare_up(const void *left, const void *right)
{
	const struct entry *l = left;
	const struct entry *r = right;
	int order = compare_values(l, r);

	return order ? order : l->index < r->index ? -1 : l->index > r->index;
}

static int compare_down(const void *left, const void *right)
{
	const struct entry *l = left;
	const struct entry *r = right;
	int order = compare_values(r, l);

	return order ? order : l->index < r->index ? -1 : l->index > r->index;
}

static struct entry entry_at(const struct view *view, int64_t n, int64_t index)
{
	struct entry entry = {.value = view_at(view, n), .index = index};

	if (numbers_are_integers(view->type))
		entry.integer = view_integer_at(view, n);
	return entry;
}

static void put_entry(const struct view *view, int64_t n, const struct entry *entry)
{
	if (numbers_are_integers(view->type))
		view_write_integers(view, n, 1, &entry->integer);
	else
		view_put(view, n, entry->value);
}

/* Rows along a dimension, and what a function makes of each. `values` and `indices` may be missing. */
struct rows {
	const struct op *op;
	const struct tensor *self;
	int64_t dim;
	const struct tensor *values;
	const struct tensor *indices;
	int64_t kept; /* results of each row */
};

/* Leaves `kept` entries at the beginning of the row. */
typedef void row_fn(struct entry *row, int64_t length, int64_t parameter);

static struct view along(const struct tensor *tensor, uint32_t dim, bool has_dim)
{
	struct tensor moved = *tensor;

	if (tensor->dim_count && has_dim)
		moved = tensor_with_last(tensor, dim);
	return view_of(&moved);
}

static void each_row(const struct rows *r, row_fn *fn, int64_t parameter)
{
	uint32_t last = dim_of(r->self, r->dim);
	int64_t length = r->self->dim_count ? r->self->dims[last] : 1;
	/* A result without the dimension has its elements in the same order. */
	bool has_dim = r->values->dim_count == r->self->dim_count;
	struct view in = along(r->self, last, true);
	struct view out = along(r->values, last, has_dim);
	struct view places;
	struct entry *row = op_array(r->op, length, sizeof(*row));
	int64_t n;
	int64_t i;

	if (r->indices)
		places = along(r->indices, last, has_dim);
	for (n = 0; length && n < tensor_count(r->self) / length && row; n++) {
		for (i = 0; i < length; i++)
			row[i] = entry_at(&in, n * length + i, i);
		fn(row, length, parameter);
		for (i = 0; i < r->kept; i++) {
			put_entry(&out, n * r->kept + i, &row[i]);
			if (r->indices)
				view_write_integers(&places, n * r->kept + i, 1, &row[i].index);
		}
	}
	free(row);
}

static void sort_row(struct entry *row, int64_t length, int64_t down)
{
	qsort(row, (size_t)length, sizeof(*row), down ? compare_down : compare_up);
}

/* The first `kept` of each row, and where they were. */
static void sort(const struct op *op, const struct tensor *self, int64_t dim, bool down,
		 int64_t kept, const struct tensor *values, const struct tensor *indices)
{
	struct rows rows = {op, self, dim, values, indices, kept};

	each_row(&rows, sort_row, down);
}

OPERATOR(Sort, (tensor, self), (boolean, stable), (int64, dim), (boolean, descending),
	 (result, values), (result, indices))
{
	int64_t length = a->self.dim_count ? a->self.dims[dim_of(&a->self, a->dim)] : 1;

	sort(&a->op, &a->self, a->dim, a->descending, length, &a->values, &a->indices);
}

OPERATOR(TopkV2, (tensor, self), (int64, k), (int64, dim), (boolean, largest), (boolean, sorted),
	 (int64, policy), (result, values), (result, indices))
{
	sort(&a->op, &a->self, a->dim, a->largest, a->k, &a->values, &a->indices);
}

OPERATOR(Topk, (tensor, self), (int64, k), (int64, dim), (boolean, largest), (boolean, sorted),
	 (result, values), (result, indices))
{
	sort(&a->op, &a->self, a->dim, a->largest, a->k, &a->values, &a->indices);
}

static void pick_kth(struct entry *row, int64_t length, int64_t k)
{
	sort_row(row, length, false);
	row[0] = row[k - 1];
}

/* The middle one, of two the lower; what is no number wins. */
static void pick_median(struct entry *row, int64_t length, int64_t skips_nan)
{
	int64_t numbers = length;

	sort_row(row, length, false);
	while (numbers && isnan(row[numbers - 1].value))
		numbers--;
	if (numbers == length || (skips_nan && numbers))
		row[0] = row[(numbers - 1) / 2];
	else
		row[0] = row[numbers];
}

/* The best so far at each place; of the same ones the last. */
static void run_best(struct entry *row, int64_t length, int64_t wants_least)
{
	int64_t n;

	for (n = 1; n < length; n++) {
		const struct entry *best = &row[n - 1];
		bool stays = isnan(best->value)
				     ? !isnan(row[n].value)
				     : !isnan(row[n].value) &&
					       (wants_least ? compare_values(&row[n], best) > 0
							    : compare_values(&row[n], best) < 0);

		if (stays)
			row[n] = *best;
	}
}

#define ALONG(NAME, fn, parameter, kept, ...)                                                      \
	OPERATOR(NAME, (tensor, self), __VA_ARGS__, (result, values), (result, indices))           \
	{                                                                                          \
		struct rows rows = {&a->op, &a->self, a->dim, &a->values, &a->indices, kept};      \
                                                                                                   \
		each_row(&rows, fn, parameter);                                                    \
	}
#define row_length(a) ((a)->self.dim_count ? (a)->self.dims[dim_of(&(a)->self, (a)->dim)] : 1)
ALONG(Kthvalue, pick_kth, a->k, 1, (int64, k), (int64, dim), (boolean, keep))
ALONG(MedianDim, pick_median, false, 1, (int64, dim), (boolean, keep))
ALONG(NanMedianDim, pick_median, true, 1, (int64, dim), (boolean, keep))
ALONG(Cummax, run_best, false, row_length(a), (int64, dim))
ALONG(Cummin, run_best, true, row_length(a), (int64, dim))

static void median_of_all(const struct op *op, const struct tensor *self, const struct tensor *out,
			  bool skips_nan)
{
	int64_t count = tensor_count(self);
	struct view from = view_of(self);
	struct view to = view_of(out);
	struct entry *all = op_array(op, count, sizeof(*all));
	int64_t n;

	for (n = 0; n < count && all; n++)
		all[n] = entry_at(&from, n, n);
	if (all && count) {
		pick_median(all, count, skips_nan);
		put_entry(&to, 0, &all[0]);
	} else {
		tensor_fill(out, NAN);
	}
	free(all);
}

OPERATOR(Median, (tensor, self), (result, out))
{
	median_of_all(&a->op, &a->self, &a->out, false);
}

OPERATOR(NanMedian, (tensor, self), (result, out))
{
	median_of_all(&a->op, &a->self, &a->out, true);
}

/* Each value once; for each element the number of its value; how often each value is there. Results that are not wanted are NULL. */
struct distinct {
	const struct op *op;
	const struct tensor *self;
	bool sorted; /* else only neighbours are compared */
	struct tensor *values;
	struct tensor *inverse;
	struct tensor *counts;
};

static void find_distinct(const struct distinct *d)
{
	int64_t count = tensor_count(d->self);
	struct view self = view_of(d->self);
	struct entry *all = op_array(d->op, count, sizeof(*all));
	int64_t *counts = op_array(d->op, count, sizeof(*counts));
	int64_t *inverse = op_array(d->op, count, sizeof(*inverse));
	struct entry *values = op_array(d->op, count, sizeof(*values));
	int64_t found = 0;
	struct view out;
	int64_t n;

	if (all && counts && inverse && values) {
		for (n = 0; n < count; n++)
			all[n] = entry_at(&self, n, n);
		if (d->sorted)
			sort_row(all, count, false);
		for (n = 0; n < count; n++) {
			if (n == 0 || !is_same(&all[n], &all[n - 1]))
				values[found++] = all[n];
			counts[found - 1]++;
			inverse[all[n].index] = found - 1;
		}
		op_set_dims(d->values, &found, 1);
		out = view_of(d->values);
		for (n = 0; n < found; n++)
			put_entry(&out, n, &values[n]);
		if (d->inverse)
			tensor_write_integers(d->inverse, inverse);
		if (d->counts) {
			op_set_dims(d->counts, &found, 1);
			tensor_write_integers(d->counts, counts);
		}
	}
	free(all);
	free(counts);
	free(inverse);
	free(values);
}

OPERATOR_THAT_WAITS(Unique2, (tensor, self), (boolean, sorted), (boolean, wants_inverse),
		    (boolean, wants_counts), (result, values), (result, inverse), (result, counts))
{
	struct distinct d = {
		.op = &a->op,
		.self = &a->self,
		.sorted = true,
		.values = &a->values,
		.inverse = a->wants_inverse ? &a->inverse : NULL,
		.counts = a->wants_counts ? &a->counts : NULL,
	};

	find_distinct(&d);
}

OPERATOR_THAT_WAITS(Unique, (tensor, self), (boolean, sorted), (boolean, wants_inverse),
		    (result, values), (result, inverse))
{
	struct distinct d = {
		.op = &a->op,
		.self = &a->self,
		.sorted = true,
		.values = &a->values,
		.inverse = a->wants_inverse ? &a->inverse : NULL,
	};

	find_distinct(&d);
}

/* Slices along a dimension, dense: slice n is `length` elements from n * length on. */
struct slices {
	struct view view;
	int64_t length;
};

static int compare_slices(const struct slices *s, int64_t left, int64_t right)
{
	int order = 0;
	int64_t n;

	for (n = 0; n < s->length && !order; n++) {
		struct entry l = entry_at(&s->view, left * s->length + n, 0);
		struct entry r = entry_at(&s->view, right * s->length + n, 0);

		order = compare_values(&l, &r);
	}
	return order;
}

static int compare_numbers(const void *left, const void *right, void *data)
{
	int64_t l = *(const int64_t *)left;
	int64_t r = *(const int64_t *)right;
	int order = compare_slices(data, l, r);

	return order ? order : l < r ? -1 : l > r;
}

/* As find_distinct(), for slices. */
static void find_distinct_slices(const struct distinct *d, int64_t wanted_dim)
{
	uint32_t dim = dim_of(d->self, wanted_dim);
	int64_t count = d->self->dims[dim];
	bool marked[DIMS_MAX];
	struct slices s;
	struct tensor moved;
	int64_t *order = op_array(d->op, count, sizeof(*order));
	int64_t *counts = op_array(d->op, count, sizeof(*counts));
	int64_t *inverse = op_array(d->op, count, sizeof(*inverse));
	int64_t found = 0;
	int64_t dims[DIMS_MAX];
	struct view out;
	int64_t n;
	int64_t i;

	for (n = 0; n < DIMS_MAX; n++) {
		marked[n] = n != dim;
		dims[n] = d->self->dims[n];
	}
	moved = tensor_with_marked_last(d->self, marked, &s.length);
	s.view = view_of(&moved);
	if (order && counts && inverse) {
		for (n = 0; n < count; n++)
			order[n] = n;
		if (d->sorted)
			qsort_r(order, (size_t)count, sizeof(*order), compare_numbers, &s);
		for (n = 0; n < count; n++) {
			int64_t number = order[n];

			if (n == 0 || compare_slices(&s, order[found - 1], number) != 0)
				order[found++] = number;
			counts[found - 1]++;
			inverse[number] = found - 1;
		}
		dims[dim] = found;
		op_set_dims(d->values, dims, d->self->dim_count);
		moved = tensor_with_marked_last(d->values, marked, &s.length);
		out = view_of(&moved);
		for (n = 0; n < found; n++) {
			for (i = 0; i < s.length; i++)
				view_copy(&out, n * s.length + i, &s.view, order[n] * s.length + i);
		}
		if (d->inverse)
			tensor_write_integers(d->inverse, inverse);
		if (d->counts) {
			op_set_dims(d->counts, &found, 1);
			tensor_write_integers(d->counts, counts);
		}
	}
	free(order);
	free(counts);
	free(inverse);
}

/* In place of a dimension: all elements are one row. */
#define NO_DIM 1000

OPERATOR_THAT_WAITS(UniqueConsecutive, (tensor, self), (boolean, wants_inverse),
		    (boolean, wants_counts), (int64, dim), (result, values), (result, inverse),
		    (result, counts))
{
	struct distinct d = {
		.op = &a->op,
		.self = &a->self,
		.values = &a->values,
		.inverse = a->wants_inverse ? &a->inverse : NULL,
		.counts = a->wants_counts ? &a->counts : NULL,
	};

	if (a->dim == NO_DIM || !a->self.dim_count)
		find_distinct(&d);
	else
		find_distinct_slices(&d, a->dim);
}

OPERATOR_THAT_WAITS(UniqueDim, (tensor, self), (boolean, sorted), (boolean, wants_inverse),
		    (int64, dim), (result, values), (result, inverse), (result, counts))
{
	struct distinct d = {
		.op = &a->op,
		.self = &a->self,
		.sorted = true,
		.values = &a->values,
		.inverse = &a->inverse,
		.counts = &a->counts,
	};

	find_distinct_slices(&d, a->dim);
}

/* Where each value would have to be put into a sorted row: before those that are the same, or after them. */
static int64_t place_in(const struct view *row, int64_t start, int64_t length,
			const struct entry *value, bool right, const struct view *sorter)
{
	int64_t least = 0;
	int64_t most = length;

	while (least < most) {
		int64_t middle = (least + most) / 2;
		int64_t at = sorter ? view_integer_at(sorter, start + middle) : middle;
		struct entry other = entry_at(row, start + at, 0);
		int order;

		/* A value of another kind is compared as a real. */
		if (!value->integer || !other.integer)
			other.integer = value->integer;
		order = compare_values(&other, value);
		if (right ? order <= 0 : order < 0)
			least = middle + 1;
		else
			most = middle;
	}
	return least;
}

OPERATOR(SearchSorted, (tensor, sequence), (tensor, self), (boolean, is_int32), (boolean, right),
	 (tensor, sorter), (result, out))
{
	int64_t length = a->sequence.dim_count ? a->sequence.dims[a->sequence.dim_count - 1] : 1;
	int64_t width = a->self.dim_count ? a->self.dims[a->self.dim_count - 1] : 1;
	bool one_row = a->sequence.dim_count <= 1;
	struct view row = view_of(&a->sequence);
	struct view self = view_of(&a->self);
	struct view out = view_of(&a->out);
	struct view sorter;
	int64_t n;

	if (a->sorter.present)
		sorter = view_of(&a->sorter);
	for (n = 0; n < tensor_count(&a->self); n++) {
		struct entry value = entry_at(&self, n, 0);
		int64_t place = place_in(&row, one_row ? 0 : n / width * length, length, &value,
					 a->right, a->sorter.present ? &sorter : NULL);

		view_write_integers(&out, n, 1, &place);
	}
}

OPERATOR(SearchSorteds, (tensor, sequence), (scalar, self), (boolean, is_int32), (boolean, right),
	 (tensor, sorter), (result, out))
{
	struct entry value = {.value = a->self.real};
	struct view row = view_of(&a->sequence);
	struct view out = view_of(&a->out);
	struct view sorter;
	int64_t place;

	if (a->sorter.present)
		sorter = view_of(&a->sorter);
	place = place_in(&row, 0, tensor_count(&a->sequence), &value, a->right,
			 a->sorter.present ? &sorter : NULL);
	view_write_integers(&out, 0, 1, &place);
}

/* How many elements lie in each of the equal parts of a range; without one, that of the elements. */
OPERATOR(Histc, (tensor, self), (int64, bins), (scalar, least), (scalar, most), (result, out))
{
	int64_t count = tensor_count(&a->self);
	struct view self = view_of(&a->self);
	double least = a->least.real;
	double most = a->most.real;
	double *sums = op_array(&a->op, a->bins, sizeof(*sums));
	int64_t n;

	if (!sums)
		return;
	for (n = 0; n < count && a->least.real == a->most.real; n++) {
		double x = view_at(&self, n);

		least = n == 0 || x < least ? x : least;
		most = n == 0 || x > most ? x : most;
	}
	if (least == most) {
		least -= 1;
		most += 1;
	}
	for (n = 0; n < count; n++) {
		double x = view_at(&self, n);
		int64_t bin;

		if (!(x >= least && x <= most))
			continue;
		bin = (int64_t)((x - least) * (double)a->bins / (most - least));
		sums[bin < a->bins ? bin : a->bins - 1]++;
	}
	tensor_write(&a->out, sums);
	free(sums);
}
