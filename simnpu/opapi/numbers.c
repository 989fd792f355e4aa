/* SPDX-License-Identifier: Apache-2.0 */
#include "numbers.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

size_t numbers_size(aclDataType type)
{
	switch (type) {
	case ACL_INT8:
	case ACL_UINT8:
	case ACL_BOOL:
		return 1;
	case ACL_FLOAT16:
	case ACL_BF16:
	case ACL_INT16:
	case ACL_UINT16:
		return 2;
	case ACL_FLOAT:
	case ACL_INT32:
	case ACL_UINT32:
		return 4;
	case ACL_INT64:
	case ACL_UINT64:
	case ACL_DOUBLE:
	case ACL_COMPLEX64:
		return 8;
	case ACL_COMPLEX128:
		return 16;
	default:
		return 0;
	}
}

bool numbers_are_integers(aclDataType type)
{
	return type != ACL_FLOAT && type != ACL_FLOAT16 && type != ACL_BF16 && type != ACL_DOUBLE &&
	       !numbers_are_complex(type);
}

bool numbers_are_complex(aclDataType type)
{
	return type == ACL_COMPLEX64 || type == ACL_COMPLEX128;
}

const char *numbers_name(aclDataType type, char room[32])
{
	static const struct {
		int type;
		const char *name;
	} names[] = {
		{ACL_FLOAT, "float32"},
		{ACL_FLOAT16, "float16"},
		{ACL_BF16, "bfloat16"},
		{ACL_DOUBLE, "float64"},
		{ACL_INT8, "int8"},
		{ACL_UINT8, "uint8"},
		{ACL_INT16, "int16"},
		{ACL_UINT16, "uint16"},
		{ACL_INT32, "int32"},
		{ACL_UINT32, "uint32"},
		{ACL_INT64, "int64"},
		{ACL_UINT64, "uint64"},
		{ACL_BOOL, "bool"},
		{ACL_STRING, "string"},
		{ACL_COMPLEX64, "complex64"},
		{ACL_COMPLEX128, "complex128"},
		{29, "int4"},
		{33, "complex32"},
		{34, "hifloat8"},
		{35, "float8_e5m2"},
		{36, "float8_e4m3fn"},
		{37, "float8_e8m0"},
		{40, "float4_e2m1"},
	};
	size_t n;

	for (n = 0; n < sizeof(names) / sizeof(names[0]); n++) {
		if (names[n].type == (int)type)
			return names[n].name;
	}
	(void)snprintf(room, 32, "type %d", (int)type);
	return room;
}

static double half_to_real(uint16_t half)
{
	unsigned exponent = half >> 10 & 0x1f;
	unsigned fraction = half & 0x3ff;
	double value;

	if (exponent == 0x1f)
		value = fraction ? NAN : INFINITY;
	else if (exponent == 0)
		value = (double)fraction * 0x1p-24;
	else
		value = (double)(fraction | 0x400) *
			(exponent > 25 ? (double)(1u << (exponent - 25))
				       : 1.0 / (double)(1u << (25 - exponent)));
	return half & 0x8000 ? -value : value;
}

/* Adding and taking away a number of the right size leaves the nearest multiple of its last bit, even in the middle. */
static double round_to_multiple(double value, double unit)
{
	double shift = unit * 0x1.8p52;

	return value + shift - shift;
}

static uint16_t half_from_real(double value)
{
	uint16_t sign = signbit(value) ? 0x8000 : 0;
	double size = fabs(value);
	uint64_t bits;
	int exponent;

	if (isnan(value))
		return 0x7e00;
	if (size >= 65520)
		return sign | 0x7c00;
	if (size < 0x1p-14)
		return sign | (uint16_t)(round_to_multiple(size, 0x1p-24) * 0x1p24);
	memcpy(&bits, &size, sizeof(bits));
	exponent = (int)(bits >> 52) - 1023;
	/* A fraction that rounds up to 1 carries into the exponent, as it should. */
	bits = (bits & 0xfffffffffffff) + 0x1ffffffffff + (bits >> 42 & 1);
	return (uint16_t)(sign | (((unsigned)(exponent + 15) << 10) + (unsigned)(bits >> 42)));
}

static double bfloat_to_real(uint16_t bfloat)
{
	uint32_t bits = (uint32_t)bfloat << 16;
	float value;

	memcpy(&value, &bits, sizeof(value));
	return (double)value;
}

/* By way of float: rounding twice is a last bit off in one of many thousand cases, as on real hardware. */
static uint16_t bfloat_from_real(double value)
{
	float single = (float)value;
	uint32_t bits;

	memcpy(&bits, &single, sizeof(bits));
	if (isnan(single))
		return 0x7fc0;
	return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* What has no integer becomes the smallest one, as the processors of hosts do it. */
static int64_t integer_from_real(double value)
{
	return value >= -0x1p63 && value < 0x1p63 ? (int64_t)value : INT64_MIN;
}

/* READ(type, expression in x) for all types: a loop with the fixed stride 1 is a loop the compiler makes fast. */
#define FOR_TYPES(LOOP)                                                                            \
	case ACL_FLOAT:                                                                            \
		LOOP(float, REAL, REAL_OF)                                                         \
		break;                                                                             \
	case ACL_DOUBLE:                                                                           \
		LOOP(double, REAL, REAL_OF)                                                        \
		break;                                                                             \
	case ACL_FLOAT16:                                                                          \
		LOOP(uint16_t, HALF, HALF_OF)                                                      \
		break;                                                                             \
	case ACL_BF16:                                                                             \
		LOOP(uint16_t, BFLOAT, BFLOAT_OF)                                                  \
		break;                                                                             \
	case ACL_INT8:                                                                             \
		LOOP(int8_t, INTEGER, INTEGER_OF)                                                  \
		break;                                                                             \
	case ACL_UINT8:                                                                            \
		LOOP(uint8_t, INTEGER, INTEGER_OF)                                                 \
		break;                                                                             \
	case ACL_INT16:                                                                            \
		LOOP(int16_t, INTEGER, INTEGER_OF)                                                 \
		break;                                                                             \
	case ACL_UINT16:                                                                           \
		LOOP(uint16_t, INTEGER, INTEGER_OF)                                                \
		break;                                                                             \
	case ACL_INT32:                                                                            \
		LOOP(int32_t, INTEGER, INTEGER_OF)                                                 \
		break;                                                                             \
	case ACL_UINT32:                                                                           \
		LOOP(uint32_t, INTEGER, INTEGER_OF)                                                \
		break;                                                                             \
	case ACL_INT64:                                                                            \
		LOOP(int64_t, INTEGER, INTEGER_OF)                                                 \
		break;                                                                             \
	case ACL_UINT64:                                                                           \
		LOOP(uint64_t, INTEGER, INTEGER_OF)                                                \
		break;                                                                             \
	case ACL_BOOL:                                                                             \
		LOOP(uint8_t, TRUTH, TRUTH_OF)                                                     \
		break;                                                                             \
	case ACL_COMPLEX64:                                                                        \
		LOOP(float complex, COMPLEX, COMPLEX_OF)                                           \
		break;                                                                             \
	case ACL_COMPLEX128:                                                                       \
		LOOP(double complex, COMPLEX, COMPLEX_OF)                                          \
		break;                                                                             \
	default:                                                                                   \
		break;

#define READ_LOOP(type, from, to)                                                                  \
	{                                                                                          \
		const type *source = data;                                                         \
                                                                                                   \
		if (stride == 1) {                                                                 \
			for (n = 0; n < count; n++)                                                \
				out[n] = from(source[n]);                                          \
		} else {                                                                           \
			for (n = 0; n < count; n++)                                                \
				out[n] = from(source[(int64_t)n * stride]);                        \
		}                                                                                  \
	}
#define WRITE_LOOP(type, from, to)                                                                 \
	{                                                                                          \
		type *target = data;                                                               \
                                                                                                   \
		if (stride == 1) {                                                                 \
			for (n = 0; n < count; n++)                                                \
				target[n] = (type)to(in[n]);                                       \
		} else {                                                                           \
			for (n = 0; n < count; n++)                                                \
				target[(int64_t)n * stride] = (type)to(in[n]);                     \
		}                                                                                  \
	}

/* As double. */
#define REAL(x)	      ((double)(x))
#define HALF(x)	      half_to_real(x)
#define BFLOAT(x)     bfloat_to_real(x)
#define INTEGER(x)    ((double)(x))
#define TRUTH(x)      ((double)!!(x))
#define REAL_OF(x)    (x)
#define HALF_OF(x)    half_from_real(x)
#define BFLOAT_OF(x)  bfloat_from_real(x)
#define INTEGER_OF(x) integer_from_real(x)
#define TRUTH_OF(x)   ((x) != 0)
#define COMPLEX(x)    creal((double complex)(x))
#define COMPLEX_OF(x) (x)

void numbers_to_real(aclDataType type, const void *data, int64_t stride, size_t count, double *out)
{
	size_t n;

	switch (type) {
		FOR_TYPES(READ_LOOP)
	}
}

void numbers_from_real(aclDataType type, void *data, int64_t stride, size_t count, const double *in)
{
	size_t n;

	switch (type) {
		FOR_TYPES(WRITE_LOOP)
	}
}

/* As int64_t. */
#undef REAL
#undef HALF
#undef BFLOAT
#undef INTEGER
#undef TRUTH
#undef REAL_OF
#undef HALF_OF
#undef BFLOAT_OF
#undef INTEGER_OF
#undef TRUTH_OF
#undef COMPLEX
#undef COMPLEX_OF
#define REAL(x)	      integer_from_real((double)(x))
#define HALF(x)	      integer_from_real(half_to_real(x))
#define BFLOAT(x)     integer_from_real(bfloat_to_real(x))
#define INTEGER(x)    ((int64_t)(x))
#define TRUTH(x)      ((int64_t) !!(x))
#define REAL_OF(x)    (x)
#define HALF_OF(x)    half_from_real((double)(x))
#define BFLOAT_OF(x)  bfloat_from_real((double)(x))
#define INTEGER_OF(x) (x)
#define TRUTH_OF(x)   ((x) != 0)
#define COMPLEX(x)    integer_from_real(creal((double complex)(x)))
#define COMPLEX_OF(x) ((double)(x))

void numbers_to_integer(aclDataType type, const void *data, int64_t stride, size_t count,
			int64_t *out)
{
	size_t n;

	switch (type) {
		FOR_TYPES(READ_LOOP)
	}
}

void numbers_from_integer(aclDataType type, void *data, int64_t stride, size_t count,
			  const int64_t *in)
{
	size_t n;

	switch (type) {
		FOR_TYPES(WRITE_LOOP)
	}
}

/* As complex. */
#undef REAL
#undef HALF
#undef BFLOAT
#undef INTEGER
#undef TRUTH
#undef REAL_OF
#undef HALF_OF
#undef BFLOAT_OF
#undef INTEGER_OF
#undef TRUTH_OF
#undef COMPLEX
#undef COMPLEX_OF
#define REAL(x)	      ((double)(x))
#define HALF(x)	      half_to_real(x)
#define BFLOAT(x)     bfloat_to_real(x)
#define INTEGER(x)    ((double)(x))
#define TRUTH(x)      ((double)!!(x))
#define COMPLEX(x)    ((double complex)(x))
#define REAL_OF(x)    creal(x)
#define HALF_OF(x)    half_from_real(creal(x))
#define BFLOAT_OF(x)  bfloat_from_real(creal(x))
#define INTEGER_OF(x) integer_from_real(creal(x))
#define TRUTH_OF(x)   ((x) != 0)
#define COMPLEX_OF(x) (x)

void numbers_to_complex(aclDataType type, const void *data, int64_t stride, size_t count,
			double complex *out)
{
	size_t n;

	switch (type) {
		FOR_TYPES(READ_LOOP)
	}
}

void numbers_from_complex(aclDataType type, void *data, int64_t stride, size_t count,
			  const double complex *in)
{
	size_t n;

	switch (type) {
		FOR_TYPES(WRITE_LOOP)
	}
}
