/* SPDX-License-Identifier: Apache-2.0 */
#include "map.h"

#include <string.h>

static void map_reals(const struct view *out, const struct view *in, unsigned input_count,
		      int64_t count, map_real *fn, const double *p)
{
	double values[3][PIECE];
	double results[PIECE];
	double x[3] = {0};
	int64_t start;
	int64_t length;
	int64_t n;
	unsigned i;

	for (start = 0; start < count; start += PIECE) {
		length = count - start < PIECE ? count - start : PIECE;
		for (i = 0; i < input_count; i++)
			view_read(&in[i], start, length, values[i]);
		for (n = 0; n < length; n++) {
			for (i = 0; i < input_count; i++)
				x[i] = values[i][n];
			results[n] = fn(x, p);
		}
		view_write(out, start, length, results);
	}
}

static void map_integers(const struct view *out, const struct view *in, unsigned input_count,
			 int64_t count, map_integer *fn, const int64_t *p)
{
	int64_t values[3][PIECE];
	int64_t results[PIECE];
	int64_t x[3] = {0};
	int64_t start;
	int64_t length;
	int64_t n;
	unsigned i;

	for (start = 0; start < count; start += PIECE) {
		length = count - start < PIECE ? count - start : PIECE;
		for (i = 0; i < input_count; i++)
			view_read_integers(&in[i], start, length, values[i]);
		for (n = 0; n < length; n++) {
			for (i = 0; i < input_count; i++)
				x[i] = values[i][n];
			results[n] = fn(x, p);
		}
		view_write_integers(out, start, length, results);
	}
}

void map(const struct tensor *out, const struct tensor *const inputs[], unsigned input_count,
	 map_real *real, map_integer *integer, const struct parameters *parameters)
{
	static const struct parameters none;
	struct shape shape = shape_of(out);
	struct view target = view_as(out, &shape);
	bool integers = integer;
	struct view in[3];
	unsigned i;

	if (!parameters)
		parameters = &none;
	for (i = 0; i < input_count; i++) {
		in[i] = view_as(inputs[i], &shape);
		integers = integers && numbers_are_integers(inputs[i]->type);
	}
	if (integers)
		map_integers(&target, in, input_count, shape_count(&shape), integer,
			     parameters->pi);
	else
		map_reals(&target, in, input_count, shape_count(&shape), real, parameters->p);
}

double scalar_for(const struct scalar *scalar, aclDataType type)
{
	return type == ACL_DOUBLE || numbers_are_integers(type) ? scalar->real
								: (double)(float)scalar->real;
}

struct parameters parameters_of(aclDataType type, const struct scalar *first,
				const struct scalar *second)
{
	struct parameters parameters = {0};

	if (first) {
		parameters.p[0] = scalar_for(first, type);
		parameters.pi[0] = first->integer;
	}
	if (second) {
		parameters.p[1] = scalar_for(second, type);
		parameters.pi[1] = second->integer;
	}
	return parameters;
}
