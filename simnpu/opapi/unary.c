/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operators of one input, element by element.
 */
#include <stdlib.h>

#include "map.h"
#include "old_math.h"

#define UNARY_COMPLEX(NAME, real, integer)                                                         \
	COMPLEX_OPERATOR(NAME, (tensor, self), (result, out))                                      \
	{                                                                                          \
		MAP_ANY_1(&a->out, &a->self, real, integer, complex_##NAME, NULL);                 \
	}
#define UNARY(NAME, real, integer)                                                                 \
	OPERATOR(NAME, (tensor, self), (result, out))                                              \
	{                                                                                          \
		MAP_1(&a->out, &a->self, real, integer, NULL);                                     \
	}
#define UNARY_IN_PLACE(NAME, real, integer)                                                        \
	OPERATOR(NAME, (tensor, self))                                                             \
	{                                                                                          \
		MAP_1(&a->self, &a->self, real, integer, NULL);                                    \
	}

/* Not of integers, with a result in place too. */
#define UNARY_REAL(NAME, expression)                                                               \
	MAP_REAL(NAME, expression)                                                                 \
	UNARY(NAME, real_##NAME, NULL)                                                             \
	UNARY_IN_PLACE(Inplace##NAME, real_##NAME, NULL)
#define UNARY_ANY(NAME, expression, complex_expression)                                            \
	MAP_REAL(NAME, expression)                                                                 \
	MAP_COMPLEX(NAME, complex_expression)                                                      \
	UNARY_COMPLEX(NAME, real_##NAME, NULL)                                                     \
	COMPLEX_OPERATOR(Inplace##NAME, (tensor, self))                                            \
	{                                                                                          \
		MAP_ANY_1(&a->self, &a->self, real_##NAME, NULL, complex_##NAME, NULL);            \
	}
UNARY_ANY(Acos, acos(x[0]), cacos(x[0]))
UNARY_ANY(Acosh, acosh(x[0]), cacosh(x[0]))
UNARY_ANY(Asin, asin(x[0]), casin(x[0]))
UNARY_ANY(Asinh, asinh(x[0]), casinh(x[0]))
UNARY_ANY(Atan, atan(x[0]), catan(x[0]))
UNARY_ANY(Atanh, atanh(x[0]), catanh(x[0]))
UNARY_REAL(Ceil, ceil(x[0]))
UNARY_ANY(Cos, cos(x[0]), ccos(x[0]))
UNARY_ANY(Cosh, cosh(x[0]), ccosh(x[0]))
UNARY_REAL(Erf, erf(x[0]))
UNARY_REAL(Erfc, erfc(x[0]))
UNARY_ANY(Exp, exp(x[0]), cexp(x[0]))
UNARY_ANY(Exp2, exp2(x[0]), cexp(x[0] * log(2)))
UNARY_ANY(Expm1, expm1(x[0]), cexp(x[0]) - 1)
UNARY_REAL(Floor, floor(x[0]))
UNARY_REAL(Frac, x[0] - trunc(x[0]))
UNARY_ANY(Log, log(x[0]), clog(x[0]))
UNARY_ANY(Log10, log10(x[0]), clog(x[0]) / log(10))
UNARY_ANY(Log1p, log1p(x[0]), clog(1 + x[0]))
UNARY_ANY(Log2, log2(x[0]), clog(x[0]) / log(2))
UNARY_ANY(Reciprocal, 1 / x[0], 1 / x[0])
UNARY_ANY(Rsqrt, 1 / sqrt(x[0]), 1 / csqrt(x[0]))
UNARY_ANY(Sin, sin(x[0]), csin(x[0]))
UNARY_ANY(Sinh, sinh(x[0]), csinh(x[0]))
UNARY_ANY(Sqrt, sqrt(x[0]), csqrt(x[0]))
UNARY_ANY(Tan, tan(x[0]), ctan(x[0]))
UNARY_ANY(Tanh, tanh(x[0]), ctanh(x[0]))

/* A start that is right to three digits, made exact by Newton's method. */
static double erf_inverse(double y)
{
	double w;
	double x;
	int n;

	if (y <= -1 || y >= 1 || isnan(y))
		return y == 1 ? INFINITY : y == -1 ? -INFINITY : NAN;
	w = log(1 - y * y);
	x = 2 / (acos(-1.0) * 0.147) + w / 2;
	x = copysign(sqrt(sqrt(x * x - w / 0.147) - x), y);
	/* Near 1 the difference is that of what is left to 1. */
	for (n = 0; n < 4; n++)
		x -= (fabs(y) < 0.5 ? erf(x) - y : copysign(1, y) * (1 - fabs(y) - erfc(fabs(x)))) *
		     exp(x * x) / M_2_SQRTPI;
	return x;
}

static double sinc(double x)
{
	double angle = acos(-1.0) * x;

	return x == 0 ? 1 : sin(angle) / angle;
}

UNARY_REAL(Erfinv, erf_inverse(x[0]))
UNARY_ANY(Sinc, sinc(x[0]), x[0] == 0 ? 1 : csin(acos(-1.0) * x[0]) / (acos(-1.0) * x[0]))

/* p[0] is a power of ten, by which is multiplied or, with p[1] set, divided. */
MAP_REAL(RoundDecimals, p[1] != 0 ? rint(x[0] / p[0]) * p[0] : rint(x[0] * p[0]) / p[0])
static void round_decimals(const struct tensor *out, const struct tensor *self, int64_t decimals)
{
	struct parameters p = {.p = {pow(10, (double)llabs(decimals)), decimals < 0}};

	MAP_1(out, self, real_RoundDecimals, NULL, &p);
}

OPERATOR(RoundDecimals, (tensor, self), (int64, decimals), (result, out))
{
	round_decimals(&a->out, &a->self, a->decimals);
}

OPERATOR(InplaceRoundDecimals, (tensor, self), (int64, decimals))
{
	round_decimals(&a->self, &a->self, a->decimals);
}

MAP_REAL(Round, rint(x[0]))
UNARY(Round, real_Round, NULL)
UNARY_IN_PLACE(InplaceRound, real_Round, NULL)
MAP_REAL(Trunc, trunc(x[0]))
UNARY(Trunc, real_Trunc, NULL)
UNARY_IN_PLACE(InplaceTrunc, real_Trunc, NULL)

MAP_REAL(Abs, fabs(x[0]))
MAP_INTEGER(Abs, x[0] < 0 ? -x[0] : x[0])
MAP_COMPLEX(Abs, cabs(x[0]))
UNARY_COMPLEX(Abs, real_Abs, integer_Abs)
MAP_REAL(Neg, -x[0])
MAP_INTEGER(Neg, -x[0])
MAP_COMPLEX(Neg, -x[0])
UNARY_COMPLEX(Neg, real_Neg, integer_Neg)
MAP_REAL(Sign, (x[0] > 0) - (x[0] < 0))
MAP_COMPLEX(Sign, x[0] == 0 ? 0 : x[0] / cabs(x[0]))
UNARY_COMPLEX(Sign, real_Sign, NULL)
MAP_REAL(Signbit, signbit(x[0]) != 0)
UNARY(Signbit, real_Signbit, NULL)

MAP_REAL(IsFinite, isfinite(x[0]) != 0)
MAP_COMPLEX(IsFinite, isfinite(creal(x[0])) && isfinite(cimag(x[0])))
UNARY_COMPLEX(IsFinite, real_IsFinite, NULL)
MAP_REAL(IsPosInf, x[0] == INFINITY)
UNARY(IsPosInf, real_IsPosInf, NULL)
MAP_REAL(IsNegInf, x[0] == -INFINITY)
UNARY(IsNegInf, real_IsNegInf, NULL)

MAP_REAL(LogicalNot, x[0] == 0)
MAP_INTEGER(LogicalNot, x[0] == 0)
MAP_COMPLEX(LogicalNot, x[0] == 0)
UNARY_COMPLEX(LogicalNot, real_LogicalNot, integer_LogicalNot)
UNARY_IN_PLACE(InplaceLogicalNot, real_LogicalNot, integer_LogicalNot)

/* Of truth values it is the logical one. */
MAP_INTEGER(BitwiseNot, ~x[0])
OPERATOR(BitwiseNot, (tensor, self), (result, out))
{
	bool truth = a->self.type == ACL_BOOL;

	MAP_1(&a->out, &a->self, NULL, truth ? integer_LogicalNot : integer_BitwiseNot, NULL);
}

/* In place of what is no number, of infinity and of its negative. */
MAP_REAL(NanToNum, isnan(x[0]) ? p[0] : x[0] == INFINITY ? p[1] : x[0] == -INFINITY ? p[2] : x[0])
MAP_INTEGER(NanToNum, x[0])

OPERATOR(NanToNum, (tensor, self), (real32, nan), (real32, posinf), (real32, neginf), (result, out))
{
	struct parameters p = {.p = {(double)a->nan, (double)a->posinf, (double)a->neginf}};

	MAP_1(&a->out, &a->self, real_NanToNum, integer_NanToNum, &p);
}

OPERATOR(InplaceNanToNum, (tensor, self), (real32, nan), (real32, posinf), (real32, neginf))
{
	struct parameters p = {.p = {(double)a->nan, (double)a->posinf, (double)a->neginf}};

	MAP_1(&a->self, &a->self, real_NanToNum, integer_NanToNum, &p);
}

/* Complex numbers and their parts. */
MAP_COMPLEX(Complex, complex_of(creal(x[0]), creal(x[1])))
COMPLEX_OPERATOR(Complex, (tensor, real), (tensor, imaginary), (result, out))
{
	MAP_ANY_2(&a->out, &a->real, &a->imaginary, NULL, NULL, complex_Complex, NULL);
}

MAP_COMPLEX(Polar, complex_of(creal(x[0]) * cos(creal(x[1])), creal(x[0]) * sin(creal(x[1]))))
COMPLEX_OPERATOR(Polar, (tensor, size), (tensor, angle), (result, out))
{
	MAP_ANY_2(&a->out, &a->size, &a->angle, NULL, NULL, complex_Polar, NULL);
}

MAP_REAL(AngleV2, isnan(x[0]) ? x[0] : x[0] < 0 ? acos(-1.0) : 0)
MAP_COMPLEX(AngleV2, carg(x[0]))
UNARY_COMPLEX(AngleV2, real_AngleV2, NULL)
