/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operators that work element by element. Inputs broadcast to the shape of the output. When every input has an integer type and
 * there is a function for integers, that is used, so that large ones stay exact; when an input or the output is complex, the function
 * for complex numbers; otherwise the function for reals.
 *
 * `p` are up to four parameters of the operator, the same for all elements; in `pi` they are integers, in `pc` complex.
 */
#ifndef SIMNPU_OPAPI_MAP_H
#define SIMNPU_OPAPI_MAP_H

#include "array.h"

enum {
	PARAMETERS = 4,
};

struct parameters {
	double p[PARAMETERS];
	int64_t pi[PARAMETERS];
	double complex pc[PARAMETERS];
};

typedef double map_real(const double x[3], const double *p);
typedef int64_t map_integer(const int64_t x[3], const int64_t *p);
typedef double complex map_complex(const double complex x[3], const double complex *p);

/* A function in up to three forms. Without one for complex numbers there are none: the operator is not a COMPLEX_OPERATOR(). */
struct map_functions {
	map_real *real;
	map_integer *integer;
	map_complex *complex_form;
};

/* One, two or three inputs; `parameters` may be NULL. */
void map(const struct tensor *out, const struct tensor *const inputs[], unsigned input_count,
	 struct map_functions functions, const struct parameters *parameters);

/* The parameter as it is when it meets elements of this type: reals of four bytes and less are computed as float. */
double scalar_for(const struct scalar *scalar, aclDataType type);

/* Parameters from up to four scalars; NULL is 0. */
struct parameters parameters_of(aclDataType type, const struct scalar *first,
				const struct scalar *second);

/*
 * A function and its two forms of operator. In `real` the inputs are x[0], x[1], x[2] and the parameters p[0] to p[3].
 */
#define MAP_REAL(NAME, real)                                                                       \
	static double real_##NAME(const double x[3], const double *p)                              \
	{                                                                                          \
		(void)x;                                                                           \
		(void)p;                                                                           \
		return (double)(real);                                                             \
	}
#define MAP_INTEGER(NAME, integer)                                                                 \
	static int64_t integer_##NAME(const int64_t x[3], const int64_t *p)                        \
	{                                                                                          \
		(void)x;                                                                           \
		(void)p;                                                                           \
		return (int64_t)(integer);                                                         \
	}

#define MAP_COMPLEX(NAME, value)                                                                   \
	static double complex complex_##NAME(const double complex x[3], const double complex *p)   \
	{                                                                                          \
		(void)x;                                                                           \
		(void)p;                                                                           \
		return (double complex)(value);                                                    \
	}

#define MAP_1(out, a0, real, integer, parameters)                                                  \
	MAP_ANY_1(out, a0, real, integer, NULL, parameters)
#define MAP_2(out, a0, a1, real, integer, parameters)                                              \
	MAP_ANY_2(out, a0, a1, real, integer, NULL, parameters)
#define MAP_3(out, a0, a1, a2, real, integer, parameters)                                          \
	MAP_ANY_3(out, a0, a1, a2, real, integer, NULL, parameters)

/* The same, with complex numbers. */
#define MAP_ANY_1(out, a0, real, integer, complex_form, parameters)                                \
	map(out, (const struct tensor *const[]){a0}, 1,                                            \
	    (struct map_functions){real, integer, complex_form}, parameters)
#define MAP_ANY_2(out, a0, a1, real, integer, complex_form, parameters)                            \
	map(out, (const struct tensor *const[]){a0, a1}, 2,                                        \
	    (struct map_functions){real, integer, complex_form}, parameters)
#define MAP_ANY_3(out, a0, a1, a2, real, integer, complex_form, parameters)                        \
	map(out, (const struct tensor *const[]){a0, a1, a2}, 3,                                    \
	    (struct map_functions){real, integer, complex_form}, parameters)

#endif
