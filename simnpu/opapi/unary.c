/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operators of one input, element by element.
 */
#include "map.h"
#include "old_math.h"

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

/* Only on reals, with a result in place too. */
#define UNARY_REAL(NAME, expression)                                                               \
	MAP_REAL(NAME, expression)                                                                 \
	UNARY(NAME, real_##NAME, NULL)                                                             \
	UNARY_IN_PLACE(Inplace##NAME, real_##NAME, NULL)
UNARY_REAL(Acos, acos(x[0]))
UNARY_REAL(Acosh, acosh(x[0]))
UNARY_REAL(Asin, asin(x[0]))
UNARY_REAL(Asinh, asinh(x[0]))
UNARY_REAL(Atan, atan(x[0]))
UNARY_REAL(Atanh, atanh(x[0]))
UNARY_REAL(Ceil, ceil(x[0]))
UNARY_REAL(Cos, cos(x[0]))
UNARY_REAL(Cosh, cosh(x[0]))
UNARY_REAL(Erf, erf(x[0]))
UNARY_REAL(Erfc, erfc(x[0]))
UNARY_REAL(Exp, exp(x[0]))
UNARY_REAL(Exp2, exp2(x[0]))
UNARY_REAL(Expm1, expm1(x[0]))
UNARY_REAL(Floor, floor(x[0]))
UNARY_REAL(Frac, x[0] - trunc(x[0]))
UNARY_REAL(Log, log(x[0]))
UNARY_REAL(Log10, log10(x[0]))
UNARY_REAL(Log1p, log1p(x[0]))
UNARY_REAL(Log2, log2(x[0]))
UNARY_REAL(Reciprocal, 1 / x[0])
UNARY_REAL(Rsqrt, 1 / sqrt(x[0]))
UNARY_REAL(Sin, sin(x[0]))
UNARY_REAL(Sinh, sinh(x[0]))
UNARY_REAL(Sqrt, sqrt(x[0]))
UNARY_REAL(Tan, tan(x[0]))
UNARY_REAL(Tanh, tanh(x[0]))

MAP_REAL(Round, rint(x[0]))
UNARY(Round, real_Round, NULL)
UNARY_IN_PLACE(InplaceRound, real_Round, NULL)
MAP_REAL(Trunc, trunc(x[0]))
UNARY(Trunc, real_Trunc, NULL)
UNARY_IN_PLACE(InplaceTrunc, real_Trunc, NULL)

MAP_REAL(Abs, fabs(x[0]))
MAP_INTEGER(Abs, x[0] < 0 ? -x[0] : x[0])
UNARY(Abs, real_Abs, integer_Abs)
MAP_REAL(Neg, -x[0])
MAP_INTEGER(Neg, -x[0])
UNARY(Neg, real_Neg, integer_Neg)
MAP_REAL(Sign, (x[0] > 0) - (x[0] < 0))
UNARY(Sign, real_Sign, NULL)
MAP_REAL(Signbit, signbit(x[0]) != 0)
UNARY(Signbit, real_Signbit, NULL)

MAP_REAL(IsFinite, isfinite(x[0]) != 0)
UNARY(IsFinite, real_IsFinite, NULL)
MAP_REAL(IsPosInf, x[0] == INFINITY)
UNARY(IsPosInf, real_IsPosInf, NULL)
MAP_REAL(IsNegInf, x[0] == -INFINITY)
UNARY(IsNegInf, real_IsNegInf, NULL)

MAP_REAL(LogicalNot, x[0] == 0)
MAP_INTEGER(LogicalNot, x[0] == 0)
UNARY(LogicalNot, real_LogicalNot, integer_LogicalNot)
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
