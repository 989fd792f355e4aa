/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Arithmetic with two or three inputs, element by element. A name with an s at its end has a scalar for its second input.
 */
#include "map.h"
#include "old_math.h"

/* x[0] + alpha * x[1]; for scalars p[0] is the second input and p[1] is alpha. */
MAP_REAL(Add, x[0] + p[0] * x[1])
MAP_COMPLEX(Add, x[0] + p[0] * x[1])
MAP_INTEGER(Add, x[0] + p[0] * x[1])
MAP_REAL(Sub, x[0] - p[0] * x[1])
MAP_COMPLEX(Sub, x[0] - p[0] * x[1])
MAP_INTEGER(Sub, x[0] - p[0] * x[1])
MAP_REAL(Rsub, x[1] - p[0] * x[0])
MAP_COMPLEX(Rsub, x[1] - p[0] * x[0])
MAP_INTEGER(Rsub, x[1] - p[0] * x[0])
MAP_REAL(Adds, x[0] + p[1] * p[0])
MAP_COMPLEX(Adds, x[0] + p[1] * p[0])
MAP_INTEGER(Adds, x[0] + p[1] * p[0])
MAP_REAL(Subs, x[0] - p[1] * p[0])
MAP_COMPLEX(Subs, x[0] - p[1] * p[0])
MAP_INTEGER(Subs, x[0] - p[1] * p[0])
MAP_REAL(Rsubs, p[0] - p[1] * x[0])
MAP_COMPLEX(Rsubs, p[0] - p[1] * x[0])
MAP_INTEGER(Rsubs, p[0] - p[1] * x[0])

#define SUM(NAME)                                                                                  \
	COMPLEX_OPERATOR(NAME, (tensor, self), (tensor, other), (scalar, alpha), (result, out))    \
	{                                                                                          \
		struct parameters p = parameters_of(a->self.type, &a->alpha, NULL);                \
                                                                                                   \
		MAP_ANY_2(&a->out, &a->self, &a->other, real_##NAME, integer_##NAME,               \
			  complex_##NAME, &p);                                                     \
	}
SUM(Add)
SUM(Sub)
SUM(Rsub)

#define SUM_IN_PLACE(NAME)                                                                         \
	COMPLEX_OPERATOR(Inplace##NAME, (tensor, self), (tensor, other), (scalar, alpha))          \
	{                                                                                          \
		struct parameters p = parameters_of(a->self.type, &a->alpha, NULL);                \
                                                                                                   \
		MAP_ANY_2(&a->self, &a->self, &a->other, real_##NAME, integer_##NAME,              \
			  complex_##NAME, &p);                                                     \
	}
SUM_IN_PLACE(Add)
SUM_IN_PLACE(Sub)

/* A scalar that is no integer makes reals of integers. */
static map_integer *if_exact(map_integer *integer, const struct scalar *scalar)
{
	return numbers_are_integers(scalar->type) ? integer : NULL;
}

#define SUM_SCALAR(NAME)                                                                           \
	COMPLEX_OPERATOR(NAME, (tensor, self), (scalar, other), (scalar, alpha), (result, out))    \
	{                                                                                          \
		struct parameters p = parameters_of(a->self.type, &a->other, &a->alpha);           \
                                                                                                   \
		MAP_ANY_1(&a->out, &a->self, real_##NAME, if_exact(integer_##NAME, &a->other),     \
			  complex_##NAME, &p);                                                     \
	}
SUM_SCALAR(Adds)
SUM_SCALAR(Subs)
SUM_SCALAR(Rsubs)

#define SUM_SCALAR_IN_PLACE(NAME)                                                                  \
	COMPLEX_OPERATOR(Inplace##NAME, (tensor, self), (scalar, other), (scalar, alpha))          \
	{                                                                                          \
		struct parameters p = parameters_of(a->self.type, &a->other, &a->alpha);           \
                                                                                                   \
		MAP_ANY_1(&a->self, &a->self, real_##NAME, if_exact(integer_##NAME, &a->other),    \
			  complex_##NAME, &p);                                                     \
	}
SUM_SCALAR_IN_PLACE(Adds)
SUM_SCALAR_IN_PLACE(Subs)

/* Quotients rounded down, and what then is left, of which the sign is that of the divisor. */
static int64_t divide_down(int64_t dividend, int64_t divisor)
{
	int64_t quotient;

	if (divisor == 0)
		return 0;
	if (divisor == -1)
		return -dividend;
	quotient = dividend / divisor;
	return dividend % divisor != 0 && (dividend < 0) != (divisor < 0) ? quotient - 1 : quotient;
}

static int64_t cut_quotient(int64_t dividend, int64_t divisor)
{
	if (divisor == 0)
		return 0;
	return divisor == -1 ? -dividend : dividend / divisor;
}

static int64_t rest_of(int64_t dividend, int64_t divisor)
{
	return divisor == 0 || divisor == -1 ? 0 : dividend % divisor;
}

static double real_rest(double dividend, double divisor)
{
	double rest = fmod(dividend, divisor);

	return rest != 0 && (rest < 0) != (divisor < 0) ? rest + divisor : rest;
}

static double square_or_pow(double base, double exponent)
{
	return exponent == 2 ? base * base : pow(base, exponent);
}

static int64_t integer_pow(int64_t base, int64_t exponent)
{
	uint64_t result = 1;
	uint64_t factor = (uint64_t)base;

	if (exponent < 0)
		return base == 1 ? 1 : base == -1 ? (exponent & 1 ? -1 : 1) : 0;
	for (; exponent; exponent >>= 1) {
		if (exponent & 1)
			result *= factor;
		factor *= factor;
	}
	return (int64_t)result;
}

/* Powers of 0 have no logarithm to take. */
static double complex complex_pow(double complex base, double complex exponent)
{
	if (exponent == 0)
		return 1;
	if (base == 0)
		return creal(exponent) > 0 && cimag(exponent) == 0 ? 0 : (double complex)NAN;
	return exponent == 2 ? base * base : cpow(base, exponent);
}

static double larger(double left, double right)
{
	return isnan(left) || left > right ? left : right;
}

static double smaller(double left, double right)
{
	return isnan(left) || left < right ? left : right;
}

static double log_add_exp(double left, double right)
{
	double most = larger(left, right);

	if (isinf(most) && left == right)
		return most;
	return most + log1p(exp(-fabs(left - right)));
}

static double log_add_exp2(double left, double right)
{
	double most = larger(left, right);

	if (isinf(most) && left == right)
		return most;
	return most + log1p(exp2(-fabs(left - right))) / M_LN2;
}

static double x_log_y(double left, double right)
{
	return isnan(right) ? NAN : left == 0 ? 0 : left * log(right);
}

static int64_t common_divisor(int64_t left, int64_t right)
{
	while (right) {
		int64_t rest = rest_of(left, right);

		left = right;
		right = rest;
	}
	return left < 0 ? -left : left;
}

/* Shifts by the width of the type and more leave nothing but the sign, negative ones too. */
static int64_t shift_left(int64_t value, int64_t by)
{
	return by < 0 || by > 63 ? 0 : (int64_t)((uint64_t)value << by);
}

static int64_t shift_right(int64_t value, int64_t by)
{
	return by < 0 || by > 63 ? (value < 0 ? -1 : 0) : value >> by;
}

/* The second input is Y: x[1] of a tensor, p[0] of a scalar. */
#define TWO(NAME, real, integer)                                                                   \
	MAP_REAL(NAME, real)                                                                       \
	MAP_INTEGER(NAME, integer)
#define Y x[1]
TWO(Mul, x[0] * Y, x[0] * Y)
MAP_REAL(Div, x[0] / Y)
TWO(DivCut, trunc(x[0] / Y), cut_quotient(x[0], Y))
TWO(FloorDivide, floor(x[0] / Y), divide_down(x[0], Y))
TWO(RemainderTensorTensor, real_rest(x[0], Y), x[0] - Y * divide_down(x[0], Y))
TWO(FmodTensor, fmod(x[0], Y), rest_of(x[0], Y))
TWO(PowTensorTensor, square_or_pow(x[0], Y), integer_pow(x[0], Y))
TWO(Maximum, larger(x[0], Y), x[0] > Y ? x[0] : Y)
TWO(Minimum, smaller(x[0], Y), x[0] < Y ? x[0] : Y)
MAP_REAL(Atan2, atan2(x[0], Y))
MAP_REAL(LogAddExp, log_add_exp(x[0], Y))
MAP_REAL(LogAddExp2, log_add_exp2(x[0], Y))
MAP_REAL(XLogYTensor, x_log_y(x[0], Y))
TWO(Gcd, 0, common_divisor(x[0], Y))
TWO(LeftShift, x[0] * exp2(Y), shift_left(x[0], Y))
TWO(RightShift, x[0] / exp2(Y), shift_right(x[0], Y))
MAP_COMPLEX(Mul, x[0] * Y)
MAP_COMPLEX(Div, x[0] / Y)
MAP_COMPLEX(PowTensorTensor, complex_pow(x[0], Y))
#undef Y
#define Y p[0]
TWO(Muls, x[0] * Y, x[0] * Y)
MAP_REAL(Divs, x[0] / Y)
MAP_REAL(XLogYScalarOther, x_log_y(x[0], Y))
TWO(LeftShifts, x[0] * exp2(Y), shift_left(x[0], Y))
TWO(DivCuts, trunc(x[0] / Y), cut_quotient(x[0], Y))
TWO(FloorDivides, floor(x[0] / Y), divide_down(x[0], Y))
TWO(RemainderTensorScalar, real_rest(x[0], Y), x[0] - Y * divide_down(x[0], Y))
TWO(FmodScalar, fmod(x[0], Y), rest_of(x[0], Y))
TWO(PowTensorScalar, square_or_pow(x[0], Y), integer_pow(x[0], Y))
MAP_COMPLEX(Muls, x[0] * Y)
MAP_COMPLEX(Divs, x[0] / Y)
MAP_COMPLEX(PowTensorScalar, complex_pow(x[0], Y))
#undef Y
MAP_COMPLEX(PowScalarTensor, complex_pow(p[0], x[0]))
MAP_REAL(XLogYScalarSelf, x_log_y(p[0], x[0]))
MAP_REAL(PowScalarTensor, pow(p[0], x[0]))
MAP_INTEGER(PowScalarTensor, integer_pow(p[0], x[0]))
MAP_REAL(RemainderScalarTensor, real_rest(p[0], x[0]))
MAP_INTEGER(RemainderScalarTensor, p[0] - x[0] * divide_down(p[0], x[0]))

#define TENSORS(NAME, integer)                                                                     \
	OPERATOR(NAME, (tensor, self), (tensor, other), (result, out))                             \
	{                                                                                          \
		MAP_2(&a->out, &a->self, &a->other, real_##NAME, integer, NULL);                   \
	}
#define TENSORS_COMPLEX(NAME, integer)                                                             \
	COMPLEX_OPERATOR(NAME, (tensor, self), (tensor, other), (result, out))                     \
	{                                                                                          \
		MAP_ANY_2(&a->out, &a->self, &a->other, real_##NAME, integer, complex_##NAME,      \
			  NULL);                                                                   \
	}
#define TENSORS_IN_PLACE(NAME, integer)                                                            \
	OPERATOR(Inplace##NAME, (tensor, self), (tensor, other))                                   \
	{                                                                                          \
		MAP_2(&a->self, &a->self, &a->other, real_##NAME, integer, NULL);                  \
	}
#define TENSORS_IN_PLACE_COMPLEX(NAME, integer)                                                    \
	COMPLEX_OPERATOR(Inplace##NAME, (tensor, self), (tensor, other))                           \
	{                                                                                          \
		MAP_ANY_2(&a->self, &a->self, &a->other, real_##NAME, integer, complex_##NAME,     \
			  NULL);                                                                   \
	}
TENSORS_COMPLEX(Mul, integer_Mul)
TENSORS_IN_PLACE_COMPLEX(Mul, integer_Mul)
TENSORS(FloorDivide, integer_FloorDivide)
TENSORS_IN_PLACE(FloorDivide, integer_FloorDivide)
TENSORS(RemainderTensorTensor, integer_RemainderTensorTensor)
TENSORS_IN_PLACE(RemainderTensorTensor, integer_RemainderTensorTensor)
TENSORS(FmodTensor, integer_FmodTensor)
TENSORS_IN_PLACE(FmodTensor, integer_FmodTensor)
TENSORS_COMPLEX(PowTensorTensor, integer_PowTensorTensor)
TENSORS_IN_PLACE_COMPLEX(PowTensorTensor, integer_PowTensorTensor)
TENSORS(Maximum, integer_Maximum)
TENSORS(Minimum, integer_Minimum)
TENSORS(Atan2, NULL)
TENSORS_IN_PLACE(Atan2, NULL)
TENSORS(LogAddExp, NULL)
TENSORS(LogAddExp2, NULL)
TENSORS(XLogYTensor, NULL)
TENSORS(Gcd, integer_Gcd)
TENSORS(LeftShift, integer_LeftShift)
TENSORS(RightShift, integer_RightShift)

/* True division: the result is real, whatever the inputs are. */
TENSORS_COMPLEX(Div, NULL)
TENSORS_IN_PLACE_COMPLEX(Div, NULL)

#define SCALAR(NAME, integer)                                                                      \
	OPERATOR(NAME, (tensor, self), (scalar, other), (result, out))                             \
	{                                                                                          \
		struct parameters p = parameters_of(a->self.type, &a->other, NULL);                \
                                                                                                   \
		MAP_1(&a->out, &a->self, real_##NAME, if_exact(integer, &a->other), &p);           \
	}
#define SCALAR_COMPLEX(NAME, integer)                                                              \
	COMPLEX_OPERATOR(NAME, (tensor, self), (scalar, other), (result, out))                     \
	{                                                                                          \
		struct parameters p = parameters_of(a->self.type, &a->other, NULL);                \
                                                                                                   \
		MAP_ANY_1(&a->out, &a->self, real_##NAME, if_exact(integer, &a->other),            \
			  complex_##NAME, &p);                                                     \
	}
#define SCALAR_IN_PLACE(NAME, integer)                                                             \
	OPERATOR(Inplace##NAME, (tensor, self), (scalar, other))                                   \
	{                                                                                          \
		struct parameters p = parameters_of(a->self.type, &a->other, NULL);                \
                                                                                                   \
		MAP_1(&a->self, &a->self, real_##NAME, if_exact(integer, &a->other), &p);          \
	}
#define SCALAR_IN_PLACE_COMPLEX(NAME, integer)                                                     \
	COMPLEX_OPERATOR(Inplace##NAME, (tensor, self), (scalar, other))                           \
	{                                                                                          \
		struct parameters p = parameters_of(a->self.type, &a->other, NULL);                \
                                                                                                   \
		MAP_ANY_1(&a->self, &a->self, real_##NAME, if_exact(integer, &a->other),           \
			  complex_##NAME, &p);                                                     \
	}
SCALAR_COMPLEX(Muls, integer_Muls)
SCALAR_IN_PLACE_COMPLEX(Muls, integer_Muls)
SCALAR(FloorDivides, integer_FloorDivides)
SCALAR_IN_PLACE(FloorDivides, integer_FloorDivides)
SCALAR(RemainderTensorScalar, integer_RemainderTensorScalar)
SCALAR_IN_PLACE(RemainderTensorScalar, integer_RemainderTensorScalar)
SCALAR(FmodScalar, integer_FmodScalar)
SCALAR_IN_PLACE(FmodScalar, integer_FmodScalar)
SCALAR_COMPLEX(PowTensorScalar, integer_PowTensorScalar)
SCALAR_IN_PLACE_COMPLEX(PowTensorScalar, integer_PowTensorScalar)
SCALAR(XLogYScalarOther, NULL)
SCALAR_IN_PLACE(XLogYScalarOther, NULL)
SCALAR(LeftShifts, integer_LeftShifts)
SCALAR_COMPLEX(Divs, NULL)
SCALAR_IN_PLACE_COMPLEX(Divs, NULL)

COMPLEX_OPERATOR(PowScalarTensor, (scalar, self), (tensor, exponent), (result, out))
{
	struct parameters p = parameters_of(a->exponent.type, &a->self, NULL);

	MAP_ANY_1(&a->out, &a->exponent, real_PowScalarTensor,
		  if_exact(integer_PowScalarTensor, &a->self), complex_PowScalarTensor, &p);
}

OPERATOR(XLogYScalarSelf, (scalar, self), (tensor, other), (result, out))
{
	struct parameters p = parameters_of(a->other.type, &a->self, NULL);

	MAP_1(&a->out, &a->other, real_XLogYScalarSelf, NULL, &p);
}

OPERATOR(RemainderScalarTensor, (scalar, self), (tensor, other), (result, out))
{
	struct parameters p = parameters_of(a->other.type, &a->self, NULL);

	MAP_1(&a->out, &a->other, real_RemainderScalarTensor,
	      if_exact(integer_RemainderScalarTensor, &a->self), &p);
}

/* How a quotient is rounded. */
enum {
	MODE_TRUE = 0,
	MODE_CUT = 1,
	MODE_DOWN = 2,
};

static void divide(const struct tensor *out, const struct tensor *self, const struct tensor *other,
		   int32_t mode)
{
	if (mode == MODE_CUT)
		MAP_2(out, self, other, real_DivCut, integer_DivCut, NULL);
	else if (mode == MODE_DOWN)
		MAP_2(out, self, other, real_FloorDivide, integer_FloorDivide, NULL);
	else
		MAP_ANY_2(out, self, other, real_Div, NULL, complex_Div, NULL);
}

static void divide_by(const struct tensor *out, const struct tensor *self,
		      const struct scalar *other, int32_t mode)
{
	struct parameters p = parameters_of(self->type, other, NULL);

	if (mode == MODE_CUT)
		MAP_1(out, self, real_DivCuts, if_exact(integer_DivCuts, other), &p);
	else if (mode == MODE_DOWN)
		MAP_1(out, self, real_FloorDivides, if_exact(integer_FloorDivides, other), &p);
	else
		MAP_1(out, self, real_Divs, NULL, &p);
}

OPERATOR(DivMod, (tensor, self), (tensor, other), (int32, mode), (result, out))
{
	divide(&a->out, &a->self, &a->other, a->mode);
}

OPERATOR(InplaceDivMod, (tensor, self), (tensor, other), (int32, mode))
{
	divide(&a->self, &a->self, &a->other, a->mode);
}

OPERATOR(DivMods, (tensor, self), (scalar, other), (int32, mode), (result, out))
{
	divide_by(&a->out, &a->self, &a->other, a->mode);
}

OPERATOR(InplaceDivMods, (tensor, self), (scalar, other), (int32, mode))
{
	divide_by(&a->self, &a->self, &a->other, a->mode);
}

MAP_REAL(Addcmul, x[0] + p[0] * x[1] * x[2])
MAP_INTEGER(Addcmul, x[0] + p[0] * x[1] * x[2])
MAP_COMPLEX(Addcmul, x[0] + p[0] * x[1] * x[2])
MAP_REAL(Addcdiv, x[0] + p[0] * x[1] / x[2])
MAP_COMPLEX(Addcdiv, x[0] + p[0] * x[1] / x[2])

#define THREE(NAME, integer)                                                                       \
	COMPLEX_OPERATOR(NAME, (tensor, self), (tensor, tensor1), (tensor, tensor2),               \
			 (scalar, value), (result, out))                                           \
	{                                                                                          \
		struct parameters p = parameters_of(a->self.type, &a->value, NULL);                \
                                                                                                   \
		MAP_ANY_3(&a->out, &a->self, &a->tensor1, &a->tensor2, real_##NAME, integer,       \
			  complex_##NAME, &p);                                                     \
	}                                                                                          \
	COMPLEX_OPERATOR(Inplace##NAME, (tensor, self), (tensor, tensor1), (tensor, tensor2),      \
			 (scalar, value))                                                          \
	{                                                                                          \
		struct parameters p = parameters_of(a->self.type, &a->value, NULL);                \
                                                                                                   \
		MAP_ANY_3(&a->self, &a->self, &a->tensor1, &a->tensor2, real_##NAME, integer,      \
			  complex_##NAME, &p);                                                     \
	}
THREE(Addcmul, integer_Addcmul)
THREE(Addcdiv, NULL)

MAP_REAL(Lerp, x[0] + x[2] * (x[1] - x[0]))
MAP_COMPLEX(Lerp, x[0] + x[2] * (x[1] - x[0]))
MAP_REAL(Lerps, x[0] + p[0] * (x[1] - x[0]))
MAP_COMPLEX(Lerps, x[0] + p[0] * (x[1] - x[0]))

COMPLEX_OPERATOR(Lerp, (tensor, self), (tensor, end), (tensor, weight), (result, out))
{
	MAP_ANY_3(&a->out, &a->self, &a->end, &a->weight, real_Lerp, NULL, complex_Lerp, NULL);
}

COMPLEX_OPERATOR(InplaceLerp, (tensor, self), (tensor, end), (tensor, weight))
{
	MAP_ANY_3(&a->self, &a->self, &a->end, &a->weight, real_Lerp, NULL, complex_Lerp, NULL);
}

COMPLEX_OPERATOR(Lerps, (tensor, self), (tensor, end), (scalar, weight), (result, out))
{
	struct parameters p = parameters_of(a->self.type, &a->weight, NULL);

	MAP_ANY_2(&a->out, &a->self, &a->end, real_Lerps, NULL, complex_Lerps, &p);
}

COMPLEX_OPERATOR(InplaceLerps, (tensor, self), (tensor, end), (scalar, weight))
{
	struct parameters p = parameters_of(a->self.type, &a->weight, NULL);

	MAP_ANY_2(&a->self, &a->self, &a->end, real_Lerps, NULL, complex_Lerps, &p);
}
