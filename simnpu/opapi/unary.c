/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operators of one input, element by element.
 */
#include "map.h"
#include "old_math.h"

#define UNARY_COMPLEX(NAME, real, integer)                                                         \
	COMPLEX_OPERATOR(NAME, (tensor, self), (tensor, out))                                      \
	{                                                                                          \
		MAP_ANY_1(&a->out, &a->self, real, integer, complex_##NAME, NULL);                 \
	}
#define UNARY(NAME, real, integer)                                                                 \
	OPERATOR(NAME, (tensor, self), (tensor, out))                                              \
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
OPERATOR(BitwiseNot, (tensor, self), (tensor, out))
{
	bool truth = a->self.type == ACL_BOOL;

	MAP_1(&a->out, &a->self, NULL, truth ? integer_LogicalNot : integer_BitwiseNot, NULL);
}

OPERATOR(NanToNum, (tensor, self), (real32, nan), (real32, posinf), (real32, neginf), (tensor, out))
{
	int64_t count = tensor_count(&a->self);
	struct view out = view_of(&a->out);
	struct view self = view_of(&a->self);
	int64_t n;

	for (n = 0; n < count; n++) {
		double x = view_at(&self, n);

		if (isnan(x))
			x = (double)a->nan;
		else if (isinf(x))
			x = (double)(x > 0 ? a->posinf : a->neginf);
		view_put(&out, n, x);
	}
}

/* Complex numbers and their parts. */
MAP_COMPLEX(Complex, complex_of(creal(x[0]), creal(x[1])))
COMPLEX_OPERATOR(Complex, (tensor, real), (tensor, imaginary), (tensor, out))
{
	MAP_ANY_2(&a->out, &a->real, &a->imaginary, NULL, NULL, complex_Complex, NULL);
}

MAP_COMPLEX(Polar, complex_of(creal(x[0]) * cos(creal(x[1])), creal(x[0]) * sin(creal(x[1]))))
COMPLEX_OPERATOR(Polar, (tensor, size), (tensor, angle), (tensor, out))
{
	MAP_ANY_2(&a->out, &a->size, &a->angle, NULL, NULL, complex_Polar, NULL);
}

MAP_REAL(AngleV2, isnan(x[0]) ? x[0] : x[0] < 0 ? acos(-1.0) : 0)
MAP_COMPLEX(AngleV2, carg(x[0]))
UNARY_COMPLEX(AngleV2, real_AngleV2, NULL)
