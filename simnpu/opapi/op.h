/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How an operator is written. One function is all there is to do:
 *
 *     OPERATOR(Rsub, (tensor, self), (tensor, other), (scalar, alpha), (tensor, out))
 *     {
 *             binary(&a->out, &a->other, &a->self, scale_and_subtract, scalar_real(&a->alpha));
 *     }
 *
 * The pairs are kinds and names of the parameters of aclnnRsubGetWorkspaceSize(), without the two at its end. The function gets
 * them as members of `a`, on the thread of the stream, when all that was put there before has run. Tensors can be read and
 * written then; the caller's own descriptions of them are gone. What is missing (a NULL pointer) has `present` false.
 *
 * What an operator cannot do fails by name. A tensor or scalar of a type that it does not compute with is refused in the first phase, so
 * that the caller of the operator gets the error: types that numbers.h does not have always, complex numbers where it is not a
 * COMPLEX_OPERATOR(). What only the values show (an index out of range) is said with op_cannot() and fails the stream: whoever waits for
 * it gets the error. With SIMNPU_LENIENT=1 neither is an error: one line on stderr, and results stay as they were.
 *
 * OPERATOR_WITH_WORKSPACE(name, bytes, ...) is for those that ask for memory of the device to work in: `bytes(a)` is how much. What they
 * compute with is memory of the host; the workspace is asked for because real ones ask (workspace.h).
 *
 * With SIMNPU_SHAPES=1 an operator with a large tensor does not run, and its small results are 0: those of the kind result, unless they
 * are inputs as well. What a function changes in place is a tensor.
 *
 * kind      parameter               member
 * tensor    const aclTensor *       struct tensor
 * tensors   const aclTensorList *   struct tensors
 * result    const aclTensor *       struct tensor, which the function fills
 * results   const aclTensorList *   struct tensors, likewise
 * scalar    const aclScalar *       struct scalar
 * scalars   const aclScalarList *   struct scalars
 * ints      const aclIntArray *     struct ints
 * bools     const aclBoolArray *    struct bools
 * int64, int32, int8, boolean, real (double), real32 (float), type (aclDataType), text (char *): themselves
 */
#ifndef SIMNPU_OPAPI_OP_H
#define SIMNPU_OPAPI_OP_H

#include <complex.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "nnopbase/meta.h"
#include "for_each.h"

enum {
	DIMS_MAX = 8,
};

struct tensor {
	bool present;
	aclDataType type;
	uint32_t dim_count;
	int64_t dims[DIMS_MAX];
	int64_t strides[DIMS_MAX]; /* in elements */
	unsigned char *data;	   /* the first element */
	aclTensor *origin;	   /* the caller's, for operators that wait: gone for all others */
};

struct scalar {
	bool present;
	aclDataType type;
	double real;
	int64_t integer; /* the same value, exact for integers */
	double complex complex_value;
};

struct tensors {
	size_t count;
	struct tensor *items;
};

struct scalars {
	size_t count;
	struct scalar *items;
};

struct ints {
	bool present;
	size_t count;
	int64_t *items;
};

struct bools {
	size_t count;
	bool *items;
};

struct op;

enum {
	OP_PLAIN = 0,
	OP_WAITS =
		1, /* the second phase returns when it has run, while the caller's tensors are there */
	OP_COMPLEX = 2, /* it computes with complex numbers, too */
};

/* What is fixed of an operator. */
struct op_kind {
	const char *name; /* of the kernel */
	void (*compute)(struct op *op);
	unsigned traits;
	void *_Atomic kernel; /* its handle, from the first launch on */
};

/* First member of the arguments of every operator. */
struct op {
	aclOpExecutor executor;
	struct op_kind *kind;
	void *workspace;
	uint64_t workspace_bytes;
	struct op_memory *memory; /* what the arguments own */
	struct op_part *parts;	  /* its tensors, where large ones are not computed with */
	bool is_skipped;	  /* one is large */
	bool short_of_memory;
	char refused[64]; /* what it does not compute with, empty when it computes */
};

/* Zeroed arguments of `size` bytes, NULL when memory is short. */
void *op_new(size_t size, struct op_kind *kind);

/* Memory that lives as long as the arguments, NULL when there is none. */
void *op_allocate(struct op *op, size_t bytes);

/* The end of the first phase: stores what it gives, or destroys the operator and returns why. */
int op_ready(struct op *op, uint64_t bytes, uint64_t *workspace_size, aclOpExecutor **executor);

/* The second phase. */
int op_launch(void *workspace, uint64_t workspace_size, aclOpExecutor *executor, void *stream);

/* Copies of arguments. */
void op_take_tensor(struct op *op, struct tensor *out, const aclTensor *in);
void op_take_tensors(struct op *op, struct tensors *out, const aclTensorList *in);
void op_take_result(struct op *op, struct tensor *out, const aclTensor *in);
void op_take_results(struct op *op, struct tensors *out, const aclTensorList *in);
void op_take_scalar(struct op *op, struct scalar *out, const aclScalar *in);
void op_take_scalars(struct op *op, struct scalars *out, const aclScalarList *in);
void op_take_ints(struct op *op, struct ints *out, const aclIntArray *in);
void op_take_bools(struct op *op, struct bools *out, const aclBoolArray *in);

/* In an operator: it cannot do this, which fails the stream; says so once for each name. */
void op_cannot(const struct op *op, const char *what);

/* In the first phase: it does not compute with this. The first reason holds. */
void op_refuse(struct op *op, const char *what);

/* For operators that are not simulated: the error of their first phase, or ACL_SUCCESS when these are tolerated. */
int op_not_simulated(const char *name);

#define PARAMETER_tensor(name)	const aclTensor *name,
#define PARAMETER_tensors(name) const aclTensorList *name,
#define PARAMETER_result(name)	const aclTensor *name,
#define PARAMETER_results(name) const aclTensorList *name,
#define PARAMETER_scalar(name)	const aclScalar *name,
#define PARAMETER_scalars(name) const aclScalarList *name,
#define PARAMETER_ints(name)	const aclIntArray *name,
#define PARAMETER_bools(name)	const aclBoolArray *name,
#define PARAMETER_int64(name)	int64_t name,
#define PARAMETER_int32(name)	int32_t name,
#define PARAMETER_int8(name)	int8_t name,
#define PARAMETER_boolean(name) bool name,
#define PARAMETER_real(name)	double name,
#define PARAMETER_real32(name)	float name,
#define PARAMETER_type(name)	aclDataType name,
#define PARAMETER_text(name)	const char *name,

#define MEMBER_tensor(name)  struct tensor name;
#define MEMBER_tensors(name) struct tensors name;
#define MEMBER_result(name)  struct tensor name;
#define MEMBER_results(name) struct tensors name;
#define MEMBER_scalar(name)  struct scalar name;
#define MEMBER_scalars(name) struct scalars name;
#define MEMBER_ints(name)    struct ints name;
#define MEMBER_bools(name)   struct bools name;
#define MEMBER_int64(name)   int64_t name;
#define MEMBER_int32(name)   int32_t name;
#define MEMBER_int8(name)    int8_t name;
#define MEMBER_boolean(name) bool name;
#define MEMBER_real(name)    double name;
#define MEMBER_real32(name)  float name;
#define MEMBER_type(name)    aclDataType name;
#define MEMBER_text(name)    char name[32];

#define TAKE_tensor(name)  op_take_tensor(&a->op, &a->name, name);
#define TAKE_tensors(name) op_take_tensors(&a->op, &a->name, name);
#define TAKE_result(name)  op_take_result(&a->op, &a->name, name);
#define TAKE_results(name) op_take_results(&a->op, &a->name, name);
#define TAKE_scalar(name)  op_take_scalar(&a->op, &a->name, name);
#define TAKE_scalars(name) op_take_scalars(&a->op, &a->name, name);
#define TAKE_ints(name)	   op_take_ints(&a->op, &a->name, name);
#define TAKE_bools(name)   op_take_bools(&a->op, &a->name, name);
#define TAKE_int64(name)   a->name = name;
#define TAKE_int32(name)   a->name = name;
#define TAKE_int8(name)	   a->name = name;
#define TAKE_boolean(name) a->name = name;
#define TAKE_real(name)	   a->name = name;
#define TAKE_real32(name)  a->name = name;
#define TAKE_type(name)	   a->name = name;
#define TAKE_text(name)	   strncat(a->name, name ? name : "", sizeof(a->name) - 1);

#define OPERATOR(NAME, ...) OPERATOR_IN_FULL(NAME, op_no_workspace, OP_PLAIN, __VA_ARGS__)
#define OPERATOR_WITH_WORKSPACE(NAME, bytes, ...)                                                  \
	OPERATOR_IN_FULL(NAME, bytes, OP_PLAIN, __VA_ARGS__)
/* For operators that decide the shape of a result: they call op_set_dims() on it. */
#define OPERATOR_THAT_WAITS(NAME, ...)                                                             \
	OPERATOR_IN_FULL(NAME, op_no_workspace, OP_WAITS, __VA_ARGS__)
/* For operators that compute with complex numbers, too. */
#define COMPLEX_OPERATOR(NAME, ...) OPERATOR_IN_FULL(NAME, op_no_workspace, OP_COMPLEX, __VA_ARGS__)

#define op_no_workspace(a) 0

#define OPERATOR_IN_FULL(NAME, bytes, traits, ...)                                                 \
	struct NAME##_arguments {                                                                  \
		struct op op;                                                                      \
		FOR_EACH(MEMBER, __VA_ARGS__)                                                      \
	};                                                                                         \
	static void compute_##NAME(struct NAME##_arguments *a);                                    \
	static void compute_any_##NAME(struct op *op)                                              \
	{                                                                                          \
		compute_##NAME((struct NAME##_arguments *)op);                                     \
	}                                                                                          \
	static struct op_kind kind_##NAME = {"aclnn" #NAME, compute_any_##NAME, traits, NULL};     \
	__attribute__((visibility("default"))) int aclnn##NAME##GetWorkspaceSize(                  \
		FOR_EACH(PARAMETER, __VA_ARGS__) uint64_t *workspaceSize,                          \
		aclOpExecutor **executor);                                                         \
	int aclnn##NAME##GetWorkspaceSize(FOR_EACH(PARAMETER, __VA_ARGS__)                         \
						  uint64_t *workspaceSize,                         \
					  aclOpExecutor **executor)                                \
	{                                                                                          \
		struct NAME##_arguments *a = op_new(sizeof(*a), &kind_##NAME);                     \
                                                                                                   \
		if (!a)                                                                            \
			return op_ready(NULL, 0, workspaceSize, executor);                         \
		FOR_EACH(TAKE, __VA_ARGS__)                                                        \
		return op_ready(&a->op, (uint64_t)bytes(a), workspaceSize, executor);              \
	}                                                                                          \
	__attribute__((visibility("default"))) int aclnn##NAME(                                    \
		void *workspace, uint64_t workspaceSize, aclOpExecutor *executor, void *stream);   \
	int aclnn##NAME(void *workspace, uint64_t workspaceSize, aclOpExecutor *executor,          \
			void *stream)                                                              \
	{                                                                                          \
		return op_launch(workspace, workspaceSize, executor, stream);                      \
	}                                                                                          \
	static void compute_##NAME(struct NAME##_arguments *a)

/* The result has these dimensions, which the caller will ask for. */
void op_set_dims(struct tensor *result, const int64_t *dims, uint32_t dim_count);

#endif
