/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random numbers. Each is a hash of seed, offset and its place, so the same call gives the same numbers in any order. They are not
 * those of a real device, which are not documented.
 */
#include <stdlib.h>

#include "map.h"
#include "old_math.h"

static uint64_t hash(uint64_t seed, uint64_t offset, uint64_t n)
{
	uint64_t x = seed * 0x9e3779b97f4a7c15 + offset * 0xd1342543de82ef95 + n;

	/* The finish of splitmix64, twice. */
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
	x = (x ^ x >> 27) * 0x94d049bb133111eb;
	x ^= x >> 31;
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
	x = (x ^ x >> 27) * 0x94d049bb133111eb;
	return x ^ x >> 31;
}

struct generator {
	uint64_t seed;
	uint64_t offset;
};

static struct generator generator_of(int64_t seed, int64_t offset)
{
	return (struct generator){.seed = (uint64_t)seed, .offset = (uint64_t)offset};
}

/* Of graphs: what was in the tensors when the operator ran. */
static struct generator generator_of_tensors(const struct tensor *seed, const struct tensor *offset,
					     int64_t more)
{
	struct view seeds = view_of(seed);
	struct view offsets = view_of(offset);

	return generator_of(view_integer_at(&seeds, 0), view_integer_at(&offsets, 0) + more);
}

/* From 0 on, below 1. */
static double uniform(const struct generator *g, int64_t n)
{
	return (double)(hash(g->seed, g->offset, (uint64_t)n) >> 11) * 0x1p-53;
}

static double normal(const struct generator *g, int64_t n)
{
	double radius = sqrt(-2 * log(1 - uniform(g, 2 * n)));

	return radius * cos(2 * M_PI * uniform(g, 2 * n + 1));
}

static void fill_uniform(const struct tensor *self, const struct generator *g, double from,
			 double to)
{
	int64_t count = tensor_count(self);
	struct view view = view_of(self);
	int64_t n;

	for (n = 0; n < count; n++) {
		double value = from + uniform(g, n) * (to - from);

		/* Rounding to a short type must not reach the end. */
		view_put(&view, n, value);
		if (view_at(&view, n) >= to && to > from)
			view_put(&view, n, from);
	}
}

static void fill_normal(const struct tensor *self, const struct generator *g, double mean,
			double std)
{
	int64_t count = tensor_count(self);
	struct view view = view_of(self);
	int64_t n;

	for (n = 0; n < count; n++)
		view_put(&view, n, mean + std * normal(g, n));
}

static void fill_integers(const struct tensor *self, const struct generator *g, int64_t from,
			  int64_t to)
{
	int64_t count = tensor_count(self);
	struct view view = view_of(self);
	uint64_t range = (uint64_t)to - (uint64_t)from;
	int64_t n;

	for (n = 0; n < count; n++) {
		uint64_t bits = hash(g->seed, g->offset, (uint64_t)n);
		int64_t value = from + (int64_t)(range ? bits % range : bits);

		view_write_integers(&view, n, 1, &value);
	}
}

/* As far as the type goes: all integers, or those that a real holds without a gap. */
static int64_t end_of(aclDataType type)
{
	switch (type) {
	case ACL_BOOL:
		return 2;
	case ACL_INT8:
		return 1 << 7;
	case ACL_UINT8:
	case ACL_BF16:
		return 1 << 8;
	case ACL_FLOAT16:
		return 1 << 11;
	case ACL_INT16:
		return 1 << 15;
	case ACL_FLOAT:
		return 1 << 24;
	case ACL_INT32:
		return 1LL << 31;
	case ACL_DOUBLE:
		return 1LL << 53;
	default:
		return INT64_MAX;
	}
}

static void fill_bernoulli(const struct tensor *self, const struct generator *g, double p)
{
	int64_t count = tensor_count(self);
	struct view view = view_of(self);
	int64_t n;

	for (n = 0; n < count; n++)
		view_put(&view, n, uniform(g, n) < p);
}

OPERATOR(InplaceUniform, (result, self), (real, from), (real, to), (int64, seed), (int64, offset))
{
	struct generator g = generator_of(a->seed, a->offset);

	fill_uniform(&a->self, &g, a->from, a->to);
}

OPERATOR(InplaceUniformTensor, (result, self), (real, from), (real, to), (tensor, seed),
	 (tensor, offset), (int64, more))
{
	struct generator g = generator_of_tensors(&a->seed, &a->offset, a->more);

	fill_uniform(&a->self, &g, a->from, a->to);
}

OPERATOR(InplaceNormal, (result, self), (real32, mean), (real32, std), (int64, seed),
	 (int64, offset))
{
	struct generator g = generator_of(a->seed, a->offset);

	fill_normal(&a->self, &g, (double)a->mean, (double)a->std);
}

OPERATOR(InplaceNormalTensor, (result, self), (real32, mean), (real32, std), (tensor, seed),
	 (tensor, offset), (int64, more))
{
	struct generator g = generator_of_tensors(&a->seed, &a->offset, a->more);

	fill_normal(&a->self, &g, (double)a->mean, (double)a->std);
}

/* Means and deviations that are tensors broadcast to the result. */
MAP_REAL(Normal, x[0] + x[1] * x[2])

static void fill_normals(const struct tensor *out, const struct tensor *mean,
			 const struct tensor *std, const struct generator *g)
{
	fill_normal(out, g, 0, 1);
	MAP_3(out, mean, std, out, real_Normal, NULL, NULL);
}

static struct tensor number_of(float *value)
{
	static const struct shape none;

	return tensor_dense(ACL_FLOAT, value, &none);
}

OPERATOR(NormalFloatFloat, (real32, mean), (real32, std), (int64, seed), (int64, offset),
	 (result, out))
{
	struct generator g = generator_of(a->seed, a->offset);

	fill_normal(&a->out, &g, (double)a->mean, (double)a->std);
}

OPERATOR(NormalFloatTensor, (real32, mean), (tensor, std), (int64, seed), (int64, offset),
	 (result, out))
{
	struct generator g = generator_of(a->seed, a->offset);
	struct tensor mean = number_of(&a->mean);

	fill_normals(&a->out, &mean, &a->std, &g);
}

OPERATOR(NormalTensorFloat, (tensor, mean), (real32, std), (int64, seed), (int64, offset),
	 (result, out))
{
	struct generator g = generator_of(a->seed, a->offset);
	struct tensor std = number_of(&a->std);

	fill_normals(&a->out, &a->mean, &std, &g);
}

OPERATOR(NormalTensorTensor, (tensor, mean), (tensor, std), (int64, seed), (int64, offset),
	 (result, out))
{
	struct generator g = generator_of(a->seed, a->offset);

	fill_normals(&a->out, &a->mean, &a->std, &g);
}

OPERATOR(InplaceRandom, (result, self), (int64, from), (int64, to), (int64, seed), (int64, offset))
{
	struct generator g = generator_of(a->seed, a->offset);

	fill_integers(&a->self, &g, a->from, a->to);
}

OPERATOR(InplaceRandomTensor, (result, self), (int64, from), (int64, to), (tensor, seed),
	 (tensor, offset), (int64, more))
{
	struct generator g = generator_of_tensors(&a->seed, &a->offset, a->more);

	fill_integers(&a->self, &g, a->from, a->to);
}

OPERATOR(InplaceRandomWithoutFromTo, (result, self), (int64, seed), (int64, offset))
{
	struct generator g = generator_of(a->seed, a->offset);

	fill_integers(&a->self, &g, 0, end_of(a->self.type));
}

OPERATOR(InplaceBernoulli, (result, self), (scalar, p), (int64, seed), (int64, offset))
{
	struct generator g = generator_of(a->seed, a->offset);

	fill_bernoulli(&a->self, &g, a->p.real);
}

OPERATOR(InplaceBernoulliTensor, (result, self), (tensor, p), (int64, seed), (int64, offset))
{
	struct generator g = generator_of(a->seed, a->offset);
	struct shape shape = shape_of(&a->self);
	struct view p = view_as(&a->p, &shape);
	struct view self = view_of(&a->self);
	int64_t n;

	for (n = 0; n < shape_count(&shape); n++)
		view_put(&self, n, uniform(&g, n) < view_at(&p, n));
}

/* Sorts by chance: each swap is with one of those that are left. */
OPERATOR(Randperm, (int64, count), (int64, seed), (int64, offset), (result, out))
{
	struct generator g = generator_of(a->seed, a->offset);
	int64_t *numbers = op_array(&a->op, a->count, sizeof(*numbers));
	int64_t n;

	if (!numbers)
		return;
	for (n = 0; n < a->count; n++)
		numbers[n] = n;
	for (n = a->count - 1; n > 0; n--) {
		int64_t other = (int64_t)(hash(g.seed, g.offset, (uint64_t)n) % (uint64_t)(n + 1));
		int64_t kept = numbers[n];

		numbers[n] = numbers[other];
		numbers[other] = kept;
	}
	tensor_write_integers(&a->out, numbers);
	free(numbers);
}

/* One bit for each element, the lowest first: 1 for what stays. `p` is the chance of a 0. */
static void fill_mask(const struct tensor *mask, const struct ints *shape, double p,
		      const struct generator *g)
{
	int64_t count = 1;
	size_t i;
	int64_t n;

	for (i = 0; i < shape->count; i++)
		count *= shape->items[i];
	for (n = 0; n < tensor_count(mask); n++)
		mask->data[n] = 0;
	for (n = 0; n < count; n++) {
		if (uniform(g, n) >= p)
			mask->data[n / 8] |= (unsigned char)(1 << n % 8);
	}
}

OPERATOR(DropoutGenMask, (ints, shape), (real, p), (int64, seed), (int64, offset), (result, out))
{
	struct generator g = generator_of(a->seed, a->offset);

	fill_mask(&a->out, &a->shape, a->p, &g);
}

OPERATOR(DropoutGenMaskV2, (ints, shape), (real, p), (int64, seed), (int64, offset), (type, type),
	 (result, out))
{
	struct generator g = generator_of(a->seed, a->offset);

	fill_mask(&a->out, &a->shape, a->p, &g);
}

OPERATOR(DropoutGenMaskV2Tensor, (ints, shape), (real, p), (tensor, seed), (tensor, offset),
	 (int64, more), (type, type), (result, out))
{
	struct generator g = generator_of_tensors(&a->seed, &a->offset, a->more);

	fill_mask(&a->out, &a->shape, a->p, &g);
}

OPERATOR(DropoutDoMask, (tensor, self), (tensor, mask), (real, p), (result, out))
{
	double factor = a->p < 1 ? 1 / (1 - a->p) : 0;
	int64_t count = tensor_count(&a->self);
	struct view self = view_of(&a->self);
	struct view out = view_of(&a->out);
	int64_t n;

	for (n = 0; n < count; n++) {
		bool stays = a->mask.data[n / 8] >> n % 8 & 1;

		view_put(&out, n, stays ? view_at(&self, n) * factor : 0);
	}
}

OPERATOR(Multinomial, (tensor, self), (int64, samples), (boolean, replacement), (int64, seed),
	 (int64, offset), (result, out))
{
	struct generator g = generator_of(a->seed, a->offset);
	int64_t length = a->self.dims[a->self.dim_count - 1];
	int64_t rows = length ? tensor_count(&a->self) / length : 0;
	double *chances = tensor_read(&a->op, &a->self);
	struct view out = view_of(&a->out);
	int64_t n;
	int64_t i;
	int64_t s;

	for (n = 0; n < rows && chances; n++) {
		double *row = chances + n * length;

		for (s = 0; s < a->samples; s++) {
			double sum = 0;
			double point;

			for (i = 0; i < length; i++)
				sum += row[i];
			point = uniform(&g, n * a->samples + s) * sum;
			for (i = 0; i < length - 1 && (point >= row[i] || row[i] == 0); i++)
				point -= row[i];
			view_write_integers(&out, n * a->samples + s, 1, &i);
			if (!a->replacement)
				row[i] = 0;
		}
	}
	free(chances);
}
