/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Comparisons, logic, bits, limits and choices, element by element.
 */
#include "map.h"
#include "old_math.h"

/* The scalar as an element of the tensor would be: 0.1 equals an element that was made from 0.1. */
static struct parameters as_element(aclDataType type, const struct scalar *scalar)
{
	struct parameters parameters = {
		.p = {scalar->real},
		.pi = {scalar->integer},
		.pc = {scalar->complex_value},
	};
	double value;

	if (!numbers_are_integers(type) && !numbers_are_complex(type)) {
		numbers_from_real(type, &value, 1, 1, &scalar->real);
		numbers_to_real(type, &value, 1, 1, &parameters.p[0]);
	}
	return parameters;
}

MAP_COMPLEX(EqTensor, x[0] == x[1])
MAP_COMPLEX(EqScalar, x[0] == p[0])
MAP_COMPLEX(NeTensor, x[0] != x[1])
MAP_COMPLEX(NeScalar, x[0] != p[0])

#define COMPARE(NAME, sign, KIND, complex_tensor, complex_scalar)                                  \
	MAP_REAL(NAME##Tensor, x[0] sign x[1])                                                     \
	MAP_INTEGER(NAME##Tensor, x[0] sign x[1])                                                  \
	MAP_REAL(NAME##Scalar, x[0] sign p[0])                                                     \
	MAP_INTEGER(NAME##Scalar, x[0] sign p[0])                                                  \
	KIND(NAME##Tensor, (tensor, self), (tensor, other), (result, out))                         \
	{                                                                                          \
		MAP_ANY_2(&a->out, &a->self, &a->other, real_##NAME##Tensor,                       \
			  integer_##NAME##Tensor, complex_tensor, NULL);                           \
	}                                                                                          \
	KIND(Inplace##NAME##Tensor, (tensor, self), (tensor, other))                               \
	{                                                                                          \
		MAP_ANY_2(&a->self, &a->self, &a->other, real_##NAME##Tensor,                      \
			  integer_##NAME##Tensor, complex_tensor, NULL);                           \
	}                                                                                          \
	static void compare_##NAME(const struct tensor *out, const struct tensor *self,            \
				   const struct scalar *other)                                     \
	{                                                                                          \
		struct parameters p = as_element(self->type, other);                               \
                                                                                                   \
		MAP_ANY_1(out, self, real_##NAME##Scalar,                                          \
			  numbers_are_integers(other->type) ? integer_##NAME##Scalar : NULL,       \
			  complex_scalar, &p);                                                     \
	}                                                                                          \
	KIND(NAME##Scalar, (tensor, self), (scalar, other), (result, out))                         \
	{                                                                                          \
		compare_##NAME(&a->out, &a->self, &a->other);                                      \
	}                                                                                          \
	KIND(Inplace##NAME##Scalar, (tensor, self), (scalar, other))                               \
	{                                                                                          \
		compare_##NAME(&a->self, &a->self, &a->other);                                     \
	}
COMPARE(Eq, ==, COMPLEX_OPERATOR, complex_EqTensor, complex_EqScalar)
COMPARE(Ne, !=, COMPLEX_OPERATOR, complex_NeTensor, complex_NeScalar)
COMPARE(Gt, >, OPERATOR, NULL, NULL)
COMPARE(Ge, >=, OPERATOR, NULL, NULL)
COMPARE(Lt, <, OPERATOR, NULL, NULL)
COMPARE(Le, <=, OPERATOR, NULL, NULL)

OPERATOR(LessScalar, (tensor, self), (scalar, other), (result, out))
{
	compare_Lt(&a->out, &a->self, &a->other);
}

/* Whether two tensors are the same, in one truth value. */
COMPLEX_OPERATOR(Equal, (tensor, self), (tensor, other), (result, out))
{
	int64_t count = tensor_count(&a->self);
	struct view self = view_of(&a->self);
	struct view other = view_of(&a->other);
	bool same = count == tensor_count(&a->other);
	int64_t n;

	for (n = 0; n < count && same; n++)
		same = view_equals(&self, n, &other, n);
	tensor_fill(&a->out, same);
}

#define LOGIC(NAME, real, integer)                                                                 \
	MAP_REAL(NAME, real)                                                                       \
	MAP_INTEGER(NAME, integer)                                                                 \
	OPERATOR(NAME, (tensor, self), (tensor, other), (result, out))                             \
	{                                                                                          \
		MAP_2(&a->out, &a->self, &a->other, real_##NAME, integer_##NAME, NULL);            \
	}
#define LOGIC_IN_PLACE(NAME)                                                                       \
	OPERATOR(Inplace##NAME, (tensor, self), (tensor, other))                                   \
	{                                                                                          \
		MAP_2(&a->self, &a->self, &a->other, real_##NAME, integer_##NAME, NULL);           \
	}

/* What is not 0 is true. */
#define LOGICAL(NAME, value)                                                                       \
	MAP_REAL(NAME, value)                                                                      \
	MAP_INTEGER(NAME, value)                                                                   \
	MAP_COMPLEX(NAME, value)                                                                   \
	COMPLEX_OPERATOR(NAME, (tensor, self), (tensor, other), (result, out))                     \
	{                                                                                          \
		MAP_ANY_2(&a->out, &a->self, &a->other, real_##NAME, integer_##NAME,               \
			  complex_##NAME, NULL);                                                   \
	}
LOGICAL(LogicalAnd, x[0] != 0 && x[1] != 0)
LOGIC_IN_PLACE(LogicalAnd)
LOGICAL(LogicalOr, x[0] != 0 || x[1] != 0)
LOGIC_IN_PLACE(LogicalOr)
LOGICAL(LogicalXor, (x[0] != 0) != (x[1] != 0))
LOGIC(BitwiseAndTensor, 0, x[0] & x[1])
LOGIC_IN_PLACE(BitwiseAndTensor)
LOGIC(BitwiseOrTensor, 0, x[0] | x[1])
LOGIC_IN_PLACE(BitwiseOrTensor)
LOGIC(BitwiseXorTensor, 0, x[0] ^ x[1])
LOGIC_IN_PLACE(BitwiseXorTensor)

#define BITS(NAME, sign)                                                                           \
	MAP_INTEGER(NAME, x[0] sign p[0])                                                          \
	OPERATOR(NAME, (tensor, self), (scalar, other), (result, out))                             \
	{                                                                                          \
		struct parameters p = parameters_of(a->self.type, &a->other, NULL);                \
                                                                                                   \
		MAP_1(&a->out, &a->self, NULL, integer_##NAME, &p);                                \
	}                                                                                          \
	OPERATOR(Inplace##NAME, (tensor, self), (scalar, other))                                   \
	{                                                                                          \
		struct parameters p = parameters_of(a->self.type, &a->other, NULL);                \
                                                                                                   \
		MAP_1(&a->self, &a->self, NULL, integer_##NAME, &p);                               \
	}
BITS(BitwiseAndScalar, &)
BITS(BitwiseOrScalar, |)
BITS(BitwiseXorScalar, ^)

/* p[0] is relative, p[1] absolute, p[2] whether two that are no numbers are close. */
static double is_close(double x, double y, const double *p)
{
	if (x == y || (isnan(x) && isnan(y) && p[2] != 0))
		return 1;
	return isfinite(y) && isfinite(x) && fabs(x - y) <= p[1] + p[0] * fabs(y);
}

MAP_REAL(IsClose, is_close(x[0], x[1], p))
OPERATOR(IsClose, (tensor, self), (tensor, other), (real, rtol), (real, atol), (boolean, equal_nan),
	 (result, out))
{
	struct parameters p = {.p = {a->rtol, a->atol, a->equal_nan}};

	MAP_2(&a->out, &a->self, &a->other, real_IsClose, NULL, &p);
}

/* Limits: p[0] is the least, p[1] the most. A value that is no number stays one. */
MAP_REAL(Clamp, x[0]<p[0] ? p[0] : x[0]> p[1] ? p[1] : x[0])
MAP_INTEGER(Clamp, x[0]<p[0] ? p[0] : x[0]> p[1] ? p[1] : x[0])
MAP_REAL(AtLeast, x[0] < x[1] ? x[1] : x[0])
MAP_INTEGER(AtLeast, x[0] < x[1] ? x[1] : x[0])
MAP_REAL(AtMost, x[0] > x[1] ? x[1] : x[0])
MAP_INTEGER(AtMost, x[0] > x[1] ? x[1] : x[0])

static void clamp(const struct tensor *out, const struct tensor *self, const struct scalar *least,
		  const struct scalar *most)
{
	struct parameters p = {
		.p = {-INFINITY, INFINITY},
		.pi = {INT64_MIN, INT64_MAX},
	};
	bool integers = true;

	if (least && least->present) {
		p.p[0] = scalar_for(least, self->type);
		p.pi[0] = least->integer;
		integers = integers && numbers_are_integers(least->type);
	}
	if (most && most->present) {
		p.p[1] = scalar_for(most, self->type);
		p.pi[1] = most->integer;
		integers = integers && numbers_are_integers(most->type);
	}
	MAP_1(out, self, real_Clamp, integers ? integer_Clamp : NULL, &p);
}

OPERATOR(Clamp, (tensor, self), (scalar, least), (scalar, most), (result, out))
{
	clamp(&a->out, &a->self, &a->least, &a->most);
}

OPERATOR(ClampMin, (tensor, self), (scalar, least), (result, out))
{
	clamp(&a->out, &a->self, &a->least, NULL);
}

OPERATOR(ClampMax, (tensor, self), (scalar, most), (result, out))
{
	clamp(&a->out, &a->self, NULL, &a->most);
}

OPERATOR(InplaceClampMax, (tensor, self), (scalar, most))
{
	clamp(&a->self, &a->self, NULL, &a->most);
}

OPERATOR(Hardtanh, (tensor, self), (scalar, least), (scalar, most), (result, out))
{
	clamp(&a->out, &a->self, &a->least, &a->most);
}

OPERATOR(InplaceHardtanh, (tensor, self), (scalar, least), (scalar, most))
{
	clamp(&a->self, &a->self, &a->least, &a->most);
}

OPERATOR(ClampMinTensor, (tensor, self), (tensor, least), (result, out))
{
	MAP_2(&a->out, &a->self, &a->least, real_AtLeast, integer_AtLeast, NULL);
}

OPERATOR(InplaceClampMinTensor, (tensor, self), (tensor, least))
{
	MAP_2(&a->self, &a->self, &a->least, real_AtLeast, integer_AtLeast, NULL);
}

OPERATOR(ClampMaxTensor, (tensor, self), (tensor, most), (result, out))
{
	MAP_2(&a->out, &a->self, &a->most, real_AtMost, integer_AtMost, NULL);
}

OPERATOR(InplaceClampMaxTensor, (tensor, self), (tensor, most))
{
	MAP_2(&a->self, &a->self, &a->most, real_AtMost, integer_AtMost, NULL);
}

OPERATOR(ClampTensor, (tensor, self), (tensor, least), (tensor, most), (result, out))
{
	const struct tensor *from = &a->self;

	if (a->least.present) {
		MAP_2(&a->out, from, &a->least, real_AtLeast, integer_AtLeast, NULL);
		from = &a->out;
	}
	if (a->most.present)
		MAP_2(&a->out, from, &a->most, real_AtMost, integer_AtMost, NULL);
}

/* Choices. */
MAP_COMPLEX(SWhere, x[0] != 0 ? x[1] : x[2])
MAP_REAL(SWhere, x[0] != 0 ? x[1] : x[2])
MAP_INTEGER(SWhere, x[0] ? x[1] : x[2])

COMPLEX_OPERATOR(SWhere, (tensor, condition), (tensor, self), (tensor, other), (result, out))
{
	MAP_ANY_3(&a->out, &a->condition, &a->self, &a->other, real_SWhere, integer_SWhere,
		  complex_SWhere, NULL);
}

MAP_COMPLEX(MaskedFill, x[1] != 0 ? p[0] : x[0])
MAP_REAL(MaskedFill, x[1] != 0 ? p[0] : x[0])
MAP_INTEGER(MaskedFill, x[1] ? p[0] : x[0])

COMPLEX_OPERATOR(InplaceMaskedFillScalar, (tensor, self), (tensor, mask), (scalar, value))
{
	struct parameters p = as_element(a->self.type, &a->value);

	MAP_ANY_2(&a->self, &a->self, &a->mask, real_MaskedFill, integer_MaskedFill,
		  complex_MaskedFill, &p);
}

COMPLEX_OPERATOR(InplaceMaskedFillTensor, (tensor, self), (tensor, mask), (tensor, value))
{
	MAP_ANY_3(&a->self, &a->mask, &a->value, &a->self, real_SWhere, integer_SWhere,
		  complex_SWhere, NULL);
}
