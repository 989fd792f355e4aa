/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Elements of every type, read and written as double or as int64_t. Reals are rounded to the nearest, to even in between, and
 * become infinite when they are too large; a real becomes an integer by cutting off its fraction; anything but 0 is true.
 * A complex number that is read as a real one loses its imaginary part, as everywhere in PyTorch.
 *
 * `stride` counts elements from one to the next, `count` is how many there are.
 */
#ifndef SIMNPU_OPAPI_NUMBERS_H
#define SIMNPU_OPAPI_NUMBERS_H

#include <complex.h>
#include <stdbool.h>
#include <stdint.h>

#include "acl/acl_base.h"

/* Its two parts as they are: `re + im * I` would make NaN of infinite ones. Not every compiler has CMPLX() of C11. */
static inline double complex complex_of(double re, double im)
{
	const union {
		double parts[2];
		double complex number;
	} both = {.parts = {re, im}};

	return both.number;
}

/* Bytes of an element; 0 for types that are not here: nothing is computed with them. */
size_t numbers_size(aclDataType type);

/* Whether values of the type are integers or truth values: these are best computed as int64_t. */
bool numbers_are_integers(aclDataType type);

bool numbers_are_complex(aclDataType type);

/* What people call the type; "type 29" for one without a name, in `room`. */
const char *numbers_name(aclDataType type, char room[32]);

void numbers_to_real(aclDataType type, const void *data, int64_t stride, size_t count, double *out);
void numbers_to_integer(aclDataType type, const void *data, int64_t stride, size_t count,
			int64_t *out);
void numbers_from_real(aclDataType type, void *data, int64_t stride, size_t count,
		       const double *in);
void numbers_from_integer(aclDataType type, void *data, int64_t stride, size_t count,
			  const int64_t *in);

/* Of every type: a number that is not complex has no imaginary part. */
void numbers_to_complex(aclDataType type, const void *data, int64_t stride, size_t count,
			double complex *out);
void numbers_from_complex(aclDataType type, void *data, int64_t stride, size_t count,
			  const double complex *in);

#endif
