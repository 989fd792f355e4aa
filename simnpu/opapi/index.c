/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operators that take elements by number, or put them there. A negative number counts from the end; one that is out of range is
 * said and left out.
 */
#include <stdlib.h>
#include <string.h>

#include "array.h"

static bool in_range(const struct op *op, int64_t *index, int64_t length)
{
	if (*index < 0)
		*index += length;
	if (*index >= 0 && *index < length)
		return true;
	op_cannot(op, "an index is out of range");
	return false;
}

/* Row `n` of a tensor, rows being what its first dimension counts; and elements of one. */
static int64_t row_length(const struct tensor *tensor)
{
	int64_t length = 1;
	uint32_t n;

	for (n = 1; n < tensor->dim_count; n++)
		length *= tensor->dims[n];
	return length;
}

OPERATOR(Embedding, (tensor, weight), (tensor, indices), (result, out))
{
	int64_t length = row_length(&a->weight);
	int64_t count = tensor_count(&a->indices);
	struct view weight = view_of(&a->weight);
	struct view indices = view_of(&a->indices);
	struct view out = view_of(&a->out);
	double *row = op_array(&a->op, length, sizeof(*row));
	int64_t n;

	for (n = 0; n < count && row; n++) {
		int64_t index = view_integer_at(&indices, n);

		if (!in_range(&a->op, &index, a->weight.dims[0]))
			continue;
		view_read(&weight, index * length, length, row);
		view_write(&out, n * length, length, row);
	}
	free(row);
}

OPERATOR(EmbeddingDenseBackward, (tensor, grad), (tensor, indices), (int64, weights),
	 (int64, padding), (boolean, by_frequency), (result, out))
{
	int64_t length = row_length(&a->out);
	int64_t count = tensor_count(&a->indices);
	struct view grads = view_of(&a->grad);
	struct view indices = view_of(&a->indices);
	double *sums = op_array(&a->op, (a->weights + 1) * length, sizeof(*sums));
	int64_t *uses = op_array(&a->op, a->weights, sizeof(*uses));
	double *row = sums + a->weights * length;
	int64_t n;
	int64_t i;

	for (n = 0; n < count && sums && uses; n++) {
		int64_t index = view_integer_at(&indices, n);

		if (index == a->padding || !in_range(&a->op, &index, a->weights))
			continue;
		uses[index]++;
		view_read(&grads, n * length, length, row);
		for (i = 0; i < length; i++)
			sums[index * length + i] += row[i];
	}
	for (n = 0; n < a->weights * length && sums && uses && a->by_frequency; n++)
		sums[n] /= (double)(uses[n / length] ? uses[n / length] : 1);
	if (sums)
		tensor_write(&a->out, sums);
	free(sums);
	free(uses);
}

/* A number is a tensor of one dimension with one element, for all who count along a dimension. */
static void give_dim(struct tensor *tensor)
{
	if (tensor->dim_count)
		return;
	tensor->dim_count = 1;
	tensor->dims[0] = 1;
	tensor->strides[0] = 1;
}

/* How a bag of rows becomes one. */
enum {
	BAG_SUM = 0,
	BAG_MEAN = 1,
	BAG_MAX = 2,
};

/* One bag: rows `start` to `end` of the indices. */
static int64_t fill_bag(const struct op *op, const struct tensor *weight,
			const struct view *indices, int64_t start, int64_t end, int64_t mode,
			int64_t padding, const struct tensor *scales, double *bag, double *row,
			int64_t *best)
{
	int64_t length = row_length(weight);
	struct view weights = view_of(weight);
	int64_t used = 0;
	int64_t n;
	int64_t i;

	memset(best, 0, (size_t)length * sizeof(*best));
	memset(bag, 0, (size_t)length * sizeof(*bag));
	for (n = start; n < end; n++) {
		int64_t index = view_integer_at(indices, n);
		double scale = 1;

		if (index == padding || !in_range(op, &index, weight->dims[0]))
			continue;
		if (scales->present) {
			struct view view = view_of(scales);

			scale = view_at(&view, n);
		}
		view_read(&weights, index * length, length, row);
		for (i = 0; i < length; i++) {
			if (mode != BAG_MAX)
				bag[i] += scale * row[i];
			else if (!used || row[i] > bag[i]) {
				bag[i] = row[i];
				best[i] = index;
			}
		}
		used++;
	}
	for (i = 0; i < length && mode == BAG_MEAN && used; i++)
		bag[i] /= (double)used;
	return used;
}

OPERATOR(EmbeddingBag, (tensor, weight), (tensor, indices), (tensor, offsets),
	 (boolean, by_frequency), (int64, mode), (boolean, sparse), (tensor, scales),
	 (boolean, has_last), (int64, padding), (result, out), (result, bag_of),
	 (result, bag_sizes), (result, best))
{
	int64_t length = row_length(&a->weight);
	int64_t count = tensor_count(&a->indices);
	int64_t bags = a->out.dims[0];
	struct view indices = view_of(&a->indices);
	struct view offsets = view_of(&a->offsets);
	struct view out = view_of(&a->out);
	struct view places = view_of(&a->best);
	struct view sizes = view_of(&a->bag_sizes);
	struct view bag_of = view_of(&a->bag_of);
	double *values = op_array(&a->op, 2 * length, sizeof(*values));
	int64_t *best = op_array(&a->op, length, sizeof(*best));
	int64_t n;
	int64_t i;

	for (n = 0; n < bags && values && best; n++) {
		int64_t start = view_integer_at(&offsets, n);
		int64_t end = n + 1 < tensor_count(&a->offsets) ? view_integer_at(&offsets, n + 1)
								: count;
		int64_t used = fill_bag(&a->op, &a->weight, &indices, start, end, a->mode,
					a->padding, &a->scales, values, values + length, best);

		view_write(&out, n * length, length, values);
		if (n < tensor_count(&a->bag_sizes))
			view_write_integers(&sizes, n, 1, &used);
		for (i = start; i < end && i < tensor_count(&a->bag_of); i++)
			view_write_integers(&bag_of, i, 1, &n);
		if (a->mode == BAG_MAX && tensor_count(&a->best) >= (n + 1) * length)
			view_write_integers(&places, n * length, length, best);
	}
	free(values);
	free(best);
}

COMPLEX_OPERATOR(IndexSelect, (tensor, self), (int64, dim), (tensor, index), (result, out))
{
	uint32_t dim = dim_of(&a->self, a->dim);
	struct view indices = view_of(&a->index);
	int64_t n;

	give_dim(&a->self);
	give_dim(&a->out);
	for (n = 0; n < tensor_count(&a->index); n++) {
		int64_t index = view_integer_at(&indices, n);
		struct tensor from = a->self;
		struct tensor to = a->out;

		if (!in_range(&a->op, &index, a->self.dims[dim]))
			continue;
		from.data += index * from.strides[dim] * (int64_t)numbers_size(from.type);
		to.data += n * to.strides[dim] * (int64_t)numbers_size(to.type);
		from.dims[dim] = 1;
		to.dims[dim] = 1;
		tensor_copy(&to, &from);
	}
}

/* The place in `tensor` of element `n` of `index`, when `at` stands for its index in `dim`: in elements from the first. */
static int64_t place_along(const struct tensor *tensor, const struct tensor *index, int64_t n,
			   uint32_t dim, int64_t at)
{
	int64_t place = 0;
	uint32_t d;

	for (d = index->dim_count; d-- > 0; n /= index->dims[d])
		place += (d == dim ? at : n % index->dims[d]) * tensor->strides[d];
	return place;
}

static struct view one_at(const struct tensor *tensor, int64_t place)
{
	struct tensor one = *tensor;

	one.data += place * (int64_t)numbers_size(tensor->type);
	one.dim_count = 0;
	return view_of(&one);
}

COMPLEX_OPERATOR(Gather, (tensor, self), (int64, dim), (tensor, index), (result, out))
{
	uint32_t dim = dim_of(&a->self, a->dim);
	struct view indices = view_of(&a->index);
	struct view out = view_of(&a->out);
	int64_t n;

	for (n = 0; n < tensor_count(&a->index); n++) {
		int64_t index = view_integer_at(&indices, n);
		struct view from;

		if (!in_range(&a->op, &index, a->self.dim_count ? a->self.dims[dim] : 1))
			continue;
		from = one_at(&a->self, place_along(&a->self, &a->index, n, dim, index));
		view_copy(&out, n, &from, 0);
	}
}

/* What a scatter does with the value that is there. */
enum {
	PUT = 0,
	SUM = 1,
	PRODUCT = 2,
};

static void scatter(const struct op *op, const struct tensor *to, int64_t wanted_dim,
		    const struct tensor *index, const struct tensor *source, int how)
{
	uint32_t dim = dim_of(to, wanted_dim);
	struct view indices = view_of(index);
	int64_t n;

	for (n = 0; n < tensor_count(index); n++) {
		int64_t at = view_integer_at(&indices, n);
		struct view target;
		struct view from;
		int64_t own = to->dim_count ? n : 0;
		uint32_t d;

		if (!in_range(op, &at, to->dim_count ? to->dims[dim] : 1))
			continue;
		/* Its own index in that dimension. One element is for all. */
		for (d = index->dim_count; d-- > dim + 1;)
			own /= index->dims[d];
		own = index->dim_count ? own % index->dims[dim] : 0;
		from = source->dim_count ? one_at(source, place_along(source, index, n, dim, own))
					 : view_of(source);
		target = one_at(to, place_along(to, index, n, dim, at));
		if (how == SUM)
			view_add(&target, 0, &from, 0, 1);
		else if (how == PRODUCT)
			view_multiply(&target, 0, &from, 0);
		else
			view_copy(&target, 0, &from, 0);
	}
}

COMPLEX_OPERATOR(Scatter, (tensor, self), (int64, dim), (tensor, index), (tensor, source),
		 (int64, reduce), (result, out))
{
	tensor_copy(&a->out, &a->self);
	scatter(&a->op, &a->out, a->dim, &a->index, &a->source, (int)a->reduce);
}

COMPLEX_OPERATOR(InplaceScatter, (tensor, self), (int64, dim), (tensor, index), (tensor, source),
		 (int64, reduce))
{
	scatter(&a->op, &a->self, a->dim, &a->index, &a->source, (int)a->reduce);
}

COMPLEX_OPERATOR(ScatterValue, (tensor, self), (int64, dim), (tensor, index), (scalar, value),
		 (int64, reduce), (result, out))
{
	struct tensor value = scalar_tensor(&a->value);

	tensor_copy(&a->out, &a->self);
	scatter(&a->op, &a->out, a->dim, &a->index, &value, (int)a->reduce);
}

COMPLEX_OPERATOR(InplaceScatterValue, (tensor, self), (int64, dim), (tensor, index),
		 (scalar, value), (int64, reduce))
{
	struct tensor value = scalar_tensor(&a->value);

	scatter(&a->op, &a->self, a->dim, &a->index, &value, (int)a->reduce);
}

COMPLEX_OPERATOR(ScatterAdd, (tensor, self), (int64, dim), (tensor, index), (tensor, source),
		 (result, out))
{
	tensor_copy(&a->out, &a->self);
	scatter(&a->op, &a->out, a->dim, &a->index, &a->source, SUM);
}

COMPLEX_OPERATOR(IndexAdd, (tensor, self), (int64, dim), (tensor, index), (tensor, source),
		 (scalar, alpha), (result, out))
{
	uint32_t dim = dim_of(&a->self, a->dim);
	struct view indices = view_of(&a->index);
	int64_t n;
	int64_t i;

	give_dim(&a->self);
	give_dim(&a->source);
	give_dim(&a->out);
	tensor_copy(&a->out, &a->self);
	for (n = 0; n < tensor_count(&a->index); n++) {
		int64_t index = view_integer_at(&indices, n);
		struct tensor from = a->source;
		struct tensor to = a->out;
		struct view source;
		struct view target;

		if (!in_range(&a->op, &index, a->self.dims[dim]))
			continue;
		from.data += n * from.strides[dim] * (int64_t)numbers_size(from.type);
		to.data += index * to.strides[dim] * (int64_t)numbers_size(to.type);
		from.dims[dim] = 1;
		to.dims[dim] = 1;
		source = view_of(&from);
		target = view_of(&to);
		for (i = 0; i < tensor_count(&from); i++)
			view_add(&target, i, &source, i, a->alpha.complex_value);
	}
}

/*
 * Indexing with several tensors at once, as x[:, i, j]: those that are there broadcast to one shape, which takes the place of their
 * dimensions when these are neighbours, and the front otherwise.
 *
 *     dimensions of the result     those before, the shape of the indices, all others that have no index
 */
struct indexing {
	const struct op *op;
	const struct tensor *self;
	struct view indices[DIMS_MAX];
	bool indexed[DIMS_MAX];
	struct shape shape; /* of the indices */
	uint32_t before;    /* dimensions before it */
	struct shape whole; /* of the result */
};

/*
 * A dimension without an index has NULL, or what torch_npu puts there: an empty tensor of one dimension and of the type of `self`. An index
 * that is empty looks the same when `self` has the type of indices. The last of the list is always an index; one before it is then
 * taken for none, which is wrong only of an empty index beside others of one element, in an int64 tensor.
 */
static bool is_index(const struct tensor *self, const struct tensors *indices, uint32_t dim)
{
	const struct tensor *index = dim < indices->count ? &indices->items[dim] : NULL;

	if (!index || !index->present)
		return false;
	if (index->dim_count != 1 || index->dims[0] != 0 || index->type != self->type)
		return true;
	return numbers_are_integers(index->type) && dim == indices->count - 1;
}

/* Whether the indexed dimensions are neighbours; the first of them in `*first`. */
static bool are_neighbours(const struct indexing *x, uint32_t *first)
{
	uint32_t blocks = 0;
	uint32_t d;

	*first = 0;
	for (d = 0; d < x->self->dim_count; d++) {
		if (!x->indexed[d] || (d && x->indexed[d - 1]))
			continue;
		if (!blocks++)
			*first = d;
	}
	return blocks <= 1;
}

static void append_shape(struct indexing *x, const int64_t *dims, uint32_t count)
{
	memcpy(&x->whole.dims[x->whole.dim_count], dims, count * sizeof(*dims));
	x->whole.dim_count += count;
}

static bool plan(struct indexing *x, const struct op *op, const struct tensor *self,
		 const struct tensors *indices)
{
	struct tensor all = {.dim_count = 0};
	uint32_t first;
	uint32_t d;

	memset(x, 0, sizeof(*x));
	x->op = op;
	x->self = self;
	for (d = 0; d < self->dim_count; d++) {
		struct shape both;

		x->indexed[d] = is_index(self, indices, d);
		if (!x->indexed[d])
			continue;
		if (indices->items[d].type == ACL_BOOL) {
			op_cannot(op, "an index of truth values is not simulated");
			return false;
		}
		both = shape_of_both(&all, &indices->items[d]);
		all.dim_count = both.dim_count;
		memcpy(all.dims, both.dims, sizeof(all.dims));
	}
	x->shape = shape_of(&all);
	x->before = are_neighbours(x, &first) ? first : 0;
	append_shape(x, self->dims, x->before);
	append_shape(x, x->shape.dims, x->shape.dim_count);
	for (d = x->before; d < self->dim_count; d++) {
		if (!x->indexed[d])
			append_shape(x, &self->dims[d], 1);
	}
	for (d = 0; d < self->dim_count; d++) {
		if (x->indexed[d])
			x->indices[d] = view_as(&indices->items[d], &x->shape);
	}
	return true;
}

/* The element of `self` that element `n` of the result stands for. False when an index is out of range. */
static bool find_element(const struct indexing *x, int64_t n, struct view *out)
{
	int64_t at[DIMS_MAX + DIMS_MAX];
	uint32_t behind = x->before + x->shape.dim_count;
	uint32_t plain = 0; /* dimensions of the result without an index so far */
	int64_t place = 0;
	int64_t number = 0;
	uint32_t d;

	for (d = x->whole.dim_count; d-- > 0; n /= x->whole.dims[d])
		at[d] = n % x->whole.dims[d];
	for (d = x->before; d < behind; d++)
		number = number * x->whole.dims[d] + at[d];
	for (d = 0; d < x->self->dim_count; d++) {
		int64_t index;

		if (x->indexed[d]) {
			index = view_integer_at(&x->indices[d], number);
			if (!in_range(x->op, &index, x->self->dims[d]))
				return false;
		} else {
			index = at[plain < x->before ? plain : plain + x->shape.dim_count];
			plain++;
		}
		place += index * x->self->strides[d];
	}
	*out = one_at(x->self, place);
	return true;
}

COMPLEX_OPERATOR(Index, (tensor, self), (tensors, indices), (result, out))
{
	int64_t count = tensor_count(&a->out);
	struct view out = view_of(&a->out);
	struct indexing x;
	int64_t n;

	if (!count || !plan(&x, &a->op, &a->self, &a->indices))
		return;
	for (n = 0; n < count; n++) {
		struct view from;

		if (find_element(&x, n, &from))
			view_copy(&out, n, &from, 0);
	}
}

COMPLEX_OPERATOR(IndexPutImpl, (tensor, self), (tensors, indices), (tensor, values),
		 (boolean, accumulate), (boolean, unsafe))
{
	struct indexing x;
	struct view values;
	int64_t n;

	if (!tensor_count(&a->values) || !plan(&x, &a->op, &a->self, &a->indices) ||
	    !shape_count(&x.whole))
		return;
	values = view_as(&a->values, &x.whole);
	for (n = 0; n < shape_count(&x.whole); n++) {
		struct view to;

		if (!find_element(&x, n, &to))
			continue;
		if (a->accumulate)
			view_add(&to, 0, &values, n, 1);
		else
			view_copy(&to, 0, &values, n);
	}
}

/* Results whose size depends on the data: the caller asks for it afterwards. */

/* A row for each element, of its indices; the other way round with `by_dim`. */
static void find_nonzero(const struct tensor *self, struct tensor *out, bool by_dim)
{
	int64_t count = tensor_count(self);
	int64_t dim_count = self->dim_count;
	struct view from = view_of(self);
	int64_t found = 0;
	int64_t row = 0;
	struct view to;
	int64_t n;

	for (n = 0; n < count; n++)
		found += view_is_true(&from, n);
	if (by_dim)
		op_set_dims(out, (const int64_t[]){dim_count, found}, 2);
	else
		op_set_dims(out, (const int64_t[]){found, dim_count}, 2);
	to = view_of(out);
	for (n = 0; n < count; n++) {
		int64_t rest = n;
		uint32_t d;

		if (!view_is_true(&from, n))
			continue;
		for (d = self->dim_count; d-- > 0; rest /= self->dims[d]) {
			int64_t index = rest % self->dims[d];

			view_write_integers(&to, by_dim ? d * found + row : row * dim_count + d, 1,
					    &index);
		}
		row++;
	}
}

OPERATOR_IN_FULL(Nonzero, op_no_workspace, OP_WAITS | OP_COMPLEX, (tensor, self), (result, out))
{
	find_nonzero(&a->self, &a->out, false);
}

OPERATOR_IN_FULL(NonzeroV2, op_no_workspace, OP_WAITS | OP_COMPLEX, (tensor, self), (result, out))
{
	find_nonzero(&a->self, &a->out, true);
}

OPERATOR(Bincount, (tensor, self), (tensor, weights), (int64, least), (result, out))
{
	struct view self = view_of(&a->self);
	struct view out = view_of(&a->out);
	int64_t n;

	tensor_fill(&a->out, 0);
	for (n = 0; n < tensor_count(&a->self); n++) {
		int64_t value = view_integer_at(&self, n);
		double weight = 1;

		if (!in_range(&a->op, &value, a->out.dims[0]))
			continue;
		if (a->weights.present && tensor_count(&a->weights)) {
			struct view weights = view_of(&a->weights);

			weight = view_at(&weights, n);
		}
		view_put(&out, value, view_at(&out, value) + weight);
	}
}

OPERATOR_IN_FULL(MaskedSelect, op_no_workspace, OP_WAITS | OP_COMPLEX, (tensor, self),
		 (tensor, mask), (result, out))
{
	struct shape shape = shape_of_both(&a->self, &a->mask);
	struct view self = view_as(&a->self, &shape);
	struct view mask = view_as(&a->mask, &shape);
	int64_t count = shape_count(&shape);
	int64_t chosen = 0;
	struct view out;
	int64_t n;

	for (n = 0; n < count; n++)
		chosen += view_integer_at(&mask, n) != 0;
	op_set_dims(&a->out, &chosen, 1);
	out = view_of(&a->out);
	chosen = 0;
	for (n = 0; n < count; n++) {
		if (view_integer_at(&mask, n))
			view_copy(&out, chosen++, &self, n);
	}
}

OPERATOR(OneHot, (tensor, self), (int64, classes), (tensor, on), (tensor, off), (int64, axis),
	 (result, out))
{
	struct tensor last = tensor_with_last(&a->out, dim_of(&a->out, a->axis));
	int64_t length = last.dims[last.dim_count - 1];
	struct view self = view_of(&a->self);
	struct view out = view_of(&last);
	int64_t n;

	tensor_copy(&a->out, &a->off);
	for (n = 0; n < tensor_count(&a->self); n++) {
		int64_t class = view_integer_at(&self, n);

		if (in_range(&a->op, &class, length))
			view_put(&out, n * length + class, tensor_number(&a->on));
	}
}
