/* SPDX-License-Identifier: Apache-2.0 */
#include "map.h"

#include <string.h>

#define MAP_LOOP(name, type, read, write, function)                                                \
	static void name(const struct view *out, const struct view *in, unsigned input_count,      \
			 int64_t count, function *fn, const type *p)                               \
	{                                                                                          \
		type values[3][PIECE];                                                             \
		type results[PIECE];                                                               \
		type x[3] = {0};                                                                   \
		int64_t start;                                                                     \
		int64_t length;                                                                    \
		int64_t n;                                                                         \
		unsigned i;                                                                        \
                                                                                                   \
		for (start = 0; start < count; start += PIECE) {                                   \
			length = count - start < PIECE ? count - start : PIECE;                    \
			for (i = 0; i < input_count; i++)                                          \
				read(&in[i], start, length, values[i]);                            \
			for (n = 0; n < length; n++) {                                             \
				for (i = 0; i < input_count; i++)                                  \
					x[i] = values[i][n];                                       \
				results[n] = fn(x, p);                                             \
			}                                                                          \
			write(out, start, length, results);                                        \
		}                                                                                  \
	}
MAP_LOOP(map_reals, double, view_read, view_write, map_real)
MAP_LOOP(map_integers, int64_t, view_read_integers, view_write_integers, map_integer)
MAP_LOOP(map_complexes, double complex, view_read_complex, view_write_complex, map_complex)

void map(const struct tensor *out, const struct tensor *const inputs[], unsigned input_count,
	 struct map_functions functions, const struct parameters *parameters)
{
	static const struct parameters none;
	struct shape shape = shape_of(out);
	struct view target = view_as(out, &shape);
	bool integers = functions.integer;
	bool complexes = numbers_are_complex(out->type);
	struct view in[3];
	unsigned i;

	if (!parameters)
		parameters = &none;
	for (i = 0; i < input_count; i++) {
		in[i] = view_as(inputs[i], &shape);
		integers = integers && numbers_are_integers(inputs[i]->type);
		complexes = complexes || numbers_are_complex(inputs[i]->type);
	}
	if (complexes)
		map_complexes(&target, in, input_count, shape_count(&shape), functions.complex_form,
			      parameters->pc);
	else if (integers)
		map_integers(&target, in, input_count, shape_count(&shape), functions.integer,
			     parameters->pi);
	else
		map_reals(&target, in, input_count, shape_count(&shape), functions.real,
			  parameters->p);
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
		parameters.pc[0] = first->complex_value;
	}
	if (second) {
		parameters.p[1] = scalar_for(second, type);
		parameters.pi[1] = second->integer;
		parameters.pc[1] = second->complex_value;
	}
	return parameters;
}
