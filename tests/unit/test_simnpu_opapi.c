/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operators of the simulated NPU, called as a framework calls them: arguments made with libnnopbase.so, two phases, a stream.
 * Expected numbers were computed by hand or are exact.
 */
#include "unit.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <acl/acl.h>
#include <aclnn/acl_meta.h>

#define assert_ok(call) assert_int_equal(call, ACL_SUCCESS)

/* Prototypes of the operators here, as their documentation has them. */
#define OPERATOR(name, ...)                                                                        \
	int aclnn##name##GetWorkspaceSize(__VA_ARGS__, uint64_t *, aclOpExecutor **);              \
	int aclnn##name(void *, uint64_t, aclOpExecutor *, aclrtStream);
OPERATOR(Add, const aclTensor *, const aclTensor *, const aclScalar *, aclTensor *)
OPERATOR(Muls, const aclTensor *, const aclScalar *, aclTensor *)
OPERATOR(EqScalar, const aclTensor *, const aclScalar *, aclTensor *)
OPERATOR(Cast, const aclTensor *, aclDataType, aclTensor *)
OPERATOR(InplaceCopy, aclTensor *, const aclTensor *)
OPERATOR(Matmul, const aclTensor *, const aclTensor *, aclTensor *, int8_t)
OPERATOR(ReduceSum, const aclTensor *, const aclIntArray *, bool, aclDataType, aclTensor *)
OPERATOR(Amax, const aclTensor *, const aclIntArray *, bool, aclTensor *)
OPERATOR(Softmax, const aclTensor *, int64_t, aclTensor *)
OPERATOR(Cat, const aclTensorList *, int64_t, aclTensor *)
OPERATOR(Index, const aclTensor *, const aclTensorList *, aclTensor *)
OPERATOR(Nonzero, const aclTensor *, aclTensor *)
OPERATOR(InplaceNormal, aclTensor *, float, float, int64_t, int64_t)
OPERATOR(IndexPutImpl, aclTensor *, const aclTensorList *, const aclTensor *, bool, bool)
OPERATOR(TransQuantParamV3, const aclTensor *)
OPERATOR(Gelu, const aclTensor *, aclTensor *)
OPERATOR(Convolution, const aclTensor *, const aclTensor *, const aclTensor *, const aclIntArray *,
	 const aclIntArray *, const aclIntArray *, bool, const aclIntArray *, int64_t, aclTensor *,
	 int8_t)

/* Calls the first phase with these arguments, then the second with as much workspace as it wants, and waits. */
#define RUN(name, ...)                                                                             \
	do {                                                                                       \
		uint64_t run_bytes = 0;                                                            \
		aclOpExecutor *run_executor = NULL;                                                \
		void *run_workspace;                                                               \
                                                                                                   \
		assert_ok(aclnn##name##GetWorkspaceSize(__VA_ARGS__, &run_bytes, &run_executor));  \
		run_workspace = malloc(run_bytes + 1);                                             \
		assert_ok(aclnn##name(run_workspace, run_bytes, run_executor, NULL));              \
		assert_ok(aclrtSynchronizeStream(NULL));                                           \
		free(run_workspace);                                                               \
	} while (0)

static int set_device(void **state)
{
	(void)state;
	return aclInit(NULL) || aclrtSetDevice(0);
}

static int reset_device(void **state)
{
	(void)state;
	return aclrtResetDevice(0) || aclFinalize();
}

/* The device reaches all memory of the process, so arrays of the test are tensors. */
static aclTensor *tensor_with(aclDataType type, void *data, const int64_t *strides, unsigned count,
			      const int64_t *dims)
{
	return aclCreateTensor(dims, count, type, strides, 0, ACL_FORMAT_ND, dims, count, data);
}

#define DIMS(...)                                                                                  \
	(unsigned)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (int64_t[])                \
	{                                                                                          \
		__VA_ARGS__                                                                        \
	}

static aclTensor *floats(float *data, unsigned count, const int64_t *dims)
{
	return tensor_with(ACL_FLOAT, data, NULL, count, dims);
}

static aclScalar *scalar(float value)
{
	return aclCreateScalar(&value, ACL_FLOAT);
}

static void assert_floats(const float *got, const float *want, size_t count)
{
	size_t n;

	for (n = 0; n < count; n++) {
		if (!(fabsf(got[n] - want[n]) <= 1e-6f * (1 + fabsf(want[n]))) &&
		    !(isnan(got[n]) && isnan(want[n])) && got[n] != want[n])
			fail_msg("element %zu is %g, not %g", n, (double)got[n], (double)want[n]);
	}
}

static void rows_broadcast_and_strides_count(void **state)
{
	/* A matrix that lies column by column: {{1, 2, 3}, {4, 5, 6}}. */
	float left[] = {1, 4, 2, 5, 3, 6};
	float row[] = {10, 20, 30};
	float out[6];
	const float want[] = {21, 42, 63, 24, 45, 66};
	aclTensor *a = tensor_with(ACL_FLOAT, left, (int64_t[]){1, 2}, DIMS(2, 3));
	aclTensor *b = floats(row, DIMS(3));
	aclTensor *c = floats(out, DIMS(2, 3));
	aclScalar *alpha = scalar(2);

	(void)state;
	RUN(Add, a, b, alpha, c);
	assert_floats(out, want, 6);
	aclDestroyTensor(a);
	aclDestroyTensor(b);
	aclDestroyTensor(c);
	aclDestroyScalar(alpha);
}

static void large_integers_stay_exact(void **state)
{
	int64_t data[] = {(1LL << 60) + 1, -(1LL << 60) - 3};
	int64_t sum;
	int64_t seven = 7;
	aclTensor *a = tensor_with(ACL_INT64, data, NULL, DIMS(2));
	aclTensor *total = tensor_with(ACL_INT64, &sum, NULL, 0, NULL);
	aclScalar *factor = aclCreateScalar(&seven, ACL_INT64);
	aclIntArray *dims = aclCreateIntArray(NULL, 0);

	(void)state;
	RUN(ReduceSum, a, dims, false, ACL_INT64, total);
	assert_true(sum == -2);
	data[0] = (1LL << 60) / 7 + 1;
	RUN(Muls, a, factor, a);
	assert_true(data[0] == ((1LL << 60) / 7 + 1) * 7);
	aclDestroyTensor(a);
	aclDestroyTensor(total);
	aclDestroyScalar(factor);
	aclDestroyIntArray(dims);
}

/* To the nearest, to even in between; too large is infinite, too small is a number of few bits or 0. */
static void short_reals_are_rounded(void **state)
{
	float in[] = {65504,	65519.996f, 65520,	-65520,	      1 + 0x1p-11f, 1 + 0x1.8p-10f,
		      0x1p-24f, 0x1p-25f,   0x1.8p-25f, 0x1.ffep-15f, NAN,	    -0.0f};
	const uint16_t halves[] = {0x7bff, 0x7bff, 0x7c00, 0xfc00, 0x3c00, 0x3c02,
				   0x0001, 0x0000, 0x0001, 0x0400, 0x7e00, 0x8000};
	const uint16_t bfloats[] = {0x4780, 0x4780, 0x4780, 0xc780, 0x3f80, 0x3f80,
				    0x3380, 0x3300, 0x3340, 0x3880, 0x7fc0, 0x8000};
	uint16_t out[12];
	float back[12];
	aclTensor *a = floats(in, DIMS(12));
	aclTensor *b = tensor_with(ACL_FLOAT16, out, NULL, DIMS(12));
	aclTensor *c = tensor_with(ACL_BF16, out, NULL, DIMS(12));
	aclTensor *d = floats(back, DIMS(12));

	(void)state;
	RUN(Cast, a, ACL_FLOAT16, b);
	assert_memory_equal(out, halves, sizeof(out));
	RUN(Cast, b, ACL_FLOAT, d);
	assert_true(back[0] == 65504 && isinf(back[2]) && back[6] == 0x1p-24f && isnan(back[10]));
	RUN(Cast, a, ACL_BF16, c);
	assert_memory_equal(out, bfloats, sizeof(out));
	aclDestroyTensor(a);
	aclDestroyTensor(b);
	aclDestroyTensor(c);
	aclDestroyTensor(d);
}

static void a_scalar_equals_what_was_made_of_it(void **state)
{
	float data[] = {0.1f, 0.2f};
	double tenth = 0.1;
	bool out[2] = {false, true};
	aclTensor *a = floats(data, DIMS(2));
	aclTensor *b = tensor_with(ACL_BOOL, out, NULL, DIMS(2));
	aclScalar *value = aclCreateScalar(&tenth, ACL_DOUBLE);

	(void)state;
	RUN(EqScalar, a, value, b);
	assert_true(out[0] && !out[1]);
	aclDestroyTensor(a);
	aclDestroyTensor(b);
	aclDestroyScalar(value);
}

static void products_ask_for_the_workspace_of_real_ones(void **state)
{
	/* Two matrices of 2x3, times the turned {{1, 0, 2}, {0, 1, 1}}. */
	float left[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
	float right[] = {1, 0, 2, 0, 1, 1};
	const float want[] = {7, 5, 16, 11, 25, 17, 34, 23};
	float out[8];
	aclTensor *a = floats(left, DIMS(2, 2, 3));
	aclTensor *b = tensor_with(ACL_FLOAT, right, (int64_t[]){1, 3}, DIMS(3, 2));
	aclTensor *c = floats(out, DIMS(2, 2, 2));
	aclOpExecutor *executor;
	uint64_t bytes;

	(void)state;
	RUN(Matmul, a, b, c, 0);
	assert_floats(out, want, 8);
	assert_ok(aclnnMatmulGetWorkspaceSize(a, b, c, 0, &bytes, &executor));
	assert_int_equal(bytes, 20 << 20);
	assert_int_equal(aclnnMatmul(NULL, 0, executor, NULL), ACL_ERROR_INVALID_PARAM);
	/* One that is never executed can be destroyed. */
	assert_ok(aclnnMatmulGetWorkspaceSize(a, b, c, 0, &bytes, &executor));
	assert_ok(aclDestroyAclOpExecutor(executor));
	aclDestroyTensor(a);
	aclDestroyTensor(b);
	aclDestroyTensor(c);
}

static void matrices_of_other_shapes_have_no_product(void **state)
{
	float data[12] = {0};
	aclTensor *a = floats(data, DIMS(2, 3));
	aclTensor *b = floats(data, DIMS(2, 2));
	aclTensor *c = floats(data, DIMS(2, 2));
	aclOpExecutor *executor;
	uint64_t bytes;

	(void)state;
	assert_int_equal(aclnnMatmulGetWorkspaceSize(a, b, c, 0, &bytes, &executor),
			 ACLNN_ERR_PARAM_INVALID);
	assert_string_equal(
		aclGetRecentErrMsg(),
		"error 161002: simnpu: aclnnMatmul: the shapes of the matrices do not fit together");
	aclDestroyTensor(a);
	aclDestroyTensor(b);
	aclDestroyTensor(c);
}

static void sums_and_maxima_run_along_dimensions(void **state)
{
	float in[] = {1, 2, 3, 4, 5, NAN, 7, 8, 9, 10, 11, 12};
	const float most[] = {3, 4, 7, NAN, 11, 12};
	float out[6];
	int64_t middle = 1;
	int64_t outer[] = {0, 2};
	aclTensor *a = floats(in, DIMS(3, 2, 2));
	aclTensor *b = floats(out, DIMS(2));
	aclTensor *c = floats(out, DIMS(3, 2));
	aclIntArray *along = aclCreateIntArray(&middle, 1);
	aclIntArray *over = aclCreateIntArray(outer, 2);

	(void)state;
	RUN(Amax, a, along, false, c);
	assert_floats(out, most, 6);
	in[5] = 6;
	RUN(ReduceSum, a, over, false, ACL_FLOAT, b);
	assert_floats(out, (float[]){1 + 2 + 5 + 6 + 9 + 10, 3 + 4 + 7 + 8 + 11 + 12}, 2);
	aclDestroyTensor(a);
	aclDestroyTensor(b);
	aclDestroyTensor(c);
	aclDestroyIntArray(along);
	aclDestroyIntArray(over);
}

static void softmax_survives_large_numbers(void **state)
{
	float in[] = {1000, 1000, -INFINITY, 0, logf(3), -INFINITY};
	const float want[] = {0.5f, 0.5f, 0, 0.25f, 0.75f, 0};
	float out[6];
	aclTensor *a = floats(in, DIMS(2, 3));
	aclTensor *b = floats(out, DIMS(2, 3));

	(void)state;
	RUN(Softmax, a, -1, b);
	assert_floats(out, want, 6);
	aclDestroyTensor(a);
	aclDestroyTensor(b);
}

static void lists_are_put_together(void **state)
{
	float first[] = {1, 2};
	float second[] = {3, 4, 5, 6};
	const float want[] = {1, 3, 4, 2, 5, 6};
	float out[6];
	const aclTensor *parts[] = {floats(first, DIMS(2, 1)), floats(second, DIMS(2, 2))};
	aclTensorList *list = aclCreateTensorList(parts, 2);
	aclTensor *c = floats(out, DIMS(2, 3));

	(void)state;
	RUN(Cat, list, 1, c);
	assert_floats(out, want, 6);
	aclDestroyTensorList(list);
	aclDestroyTensor(c);
}

static void indices_count_from_the_end_when_negative(void **state)
{
	float data[] = {1, 2, 3, 4, 5, 6};
	int64_t rows[] = {-1, 0};
	int64_t columns[] = {1, 1};
	const float want[] = {6, 2};
	float out[2];
	const aclTensor *parts[] = {tensor_with(ACL_INT64, rows, NULL, DIMS(2)),
				    tensor_with(ACL_INT64, columns, NULL, DIMS(2))};
	aclTensorList *indices = aclCreateTensorList(parts, 2);
	aclTensor *a = floats(data, DIMS(3, 2));
	aclTensor *b = floats(out, DIMS(2));

	(void)state;
	RUN(Index, a, indices, b);
	assert_floats(out, want, 2);
	aclDestroyTensorList(indices);
	aclDestroyTensor(a);
	aclDestroyTensor(b);
}

static void a_result_can_have_a_shape_of_its_own(void **state)
{
	float data[] = {0, 1, 0, 2, 3, 0};
	int64_t out[12] = {0};
	const int64_t want[] = {0, 1, 1, 0, 1, 1};
	aclTensor *a = floats(data, DIMS(2, 3));
	aclTensor *b = tensor_with(ACL_INT64, out, NULL, DIMS(6, 2));
	uint64_t count;
	int64_t *dims;

	(void)state;
	RUN(Nonzero, a, b);
	assert_ok(aclGetViewShape(b, &dims, &count));
	assert_int_equal(count, 2);
	assert_true(dims[0] == 3 && dims[1] == 2);
	assert_memory_equal(out, want, sizeof(want));
	free(dims);
	aclDestroyTensor(a);
	aclDestroyTensor(b);
}

static void chance_repeats_with_its_seed(void **state)
{
	float first[1000];
	float again[1000];
	float other[1000];
	double sum = 0;
	double squares = 0;
	aclTensor *a = floats(first, DIMS(1000));
	aclTensor *b = floats(again, DIMS(1000));
	aclTensor *c = floats(other, DIMS(1000));
	size_t n;

	(void)state;
	RUN(InplaceNormal, a, 3, 2, 7, 10);
	RUN(InplaceNormal, b, 3, 2, 7, 10);
	RUN(InplaceNormal, c, 3, 2, 7, 11);
	assert_memory_equal(first, again, sizeof(first));
	assert_memory_not_equal(first, other, sizeof(first));
	for (n = 0; n < 1000; n++) {
		sum += (double)first[n];
		squares += (double)first[n] * (double)first[n];
	}
	sum /= 1000;
	assert_true(fabs(sum - 3) < 0.3 && fabs(sqrt(squares / 1000 - sum * sum) - 2) < 0.2);
	aclDestroyTensor(a);
	aclDestroyTensor(b);
	aclDestroyTensor(c);
}

/* Forwards and transposed are each other's derivative, so y * conv(x) = x * transposed(y) for all x and y. */
static void a_convolution_and_its_transposed_belong_together(void **state)
{
	float x[2 * 25];
	float y[3 * 9];
	float weight[3 * 2 * 9];
	float forward[3 * 9];
	float backward[2 * 25];
	int64_t two = 2;
	int64_t one = 1;
	int64_t none = 0;
	aclTensor *t_x = floats(x, DIMS(1, 2, 5, 5));
	aclTensor *t_y = floats(y, DIMS(1, 3, 3, 3));
	aclTensor *t_weight = floats(weight, DIMS(3, 2, 3, 3));
	aclTensor *t_forward = floats(forward, DIMS(1, 3, 3, 3));
	aclTensor *t_backward = floats(backward, DIMS(1, 2, 5, 5));
	aclIntArray *stride = aclCreateIntArray(&two, 1);
	aclIntArray *padding = aclCreateIntArray(&one, 1);
	aclIntArray *dilation = aclCreateIntArray(&one, 1);
	aclIntArray *extra = aclCreateIntArray(&none, 1);
	double left = 0;
	double right = 0;
	size_t n;

	(void)state;
	for (n = 0; n < 50; n++)
		x[n] = (float)(n % 7) - 3;
	for (n = 0; n < 27; n++)
		y[n] = (float)(n % 5) - 2;
	for (n = 0; n < 54; n++)
		weight[n] = (float)(n % 11) - 5;
	RUN(Convolution, t_x, t_weight, NULL, stride, padding, dilation, false, extra, 1, t_forward,
	    0);
	RUN(Convolution, t_y, t_weight, NULL, stride, padding, dilation, true, extra, 1, t_backward,
	    0);
	for (n = 0; n < 27; n++)
		left += (double)(y[n] * forward[n]);
	for (n = 0; n < 50; n++)
		right += (double)(x[n] * backward[n]);
	assert_true(left != 0 && left == right);
	/* The middle of the first channel by hand: windows of both input channels around the centre. */
	left = 0;
	for (n = 0; n < 18; n++)
		left += (double)(weight[n] * x[n / 9 * 25 + (1 + n % 9 / 3) * 5 + 1 + n % 3]);
	assert_true((double)forward[4] == left);
	aclDestroyTensor(t_x);
	aclDestroyTensor(t_y);
	aclDestroyTensor(t_weight);
	aclDestroyTensor(t_forward);
	aclDestroyTensor(t_backward);
	aclDestroyIntArray(stride);
	aclDestroyIntArray(padding);
	aclDestroyIntArray(dilation);
	aclDestroyIntArray(extra);
}

/* The stream keeps the failure, so that nobody takes for a result what is none; others do not have it. */
static void an_index_out_of_range_fails_the_stream(void **state)
{
	float data[] = {1, 2, 3};
	int64_t rows[] = {7, 0};
	float out[] = {-5, -5};
	const aclTensor *part = tensor_with(ACL_INT64, rows, NULL, DIMS(2));
	aclTensorList *indices = aclCreateTensorList(&part, 1);
	aclTensor *a = floats(data, DIMS(3));
	aclTensor *b = floats(out, DIMS(2));
	aclOpExecutor *executor = NULL;
	aclrtStream stream;
	uint64_t bytes = 0;

	(void)state;
	assert_ok(aclrtCreateStream(&stream));
	assert_ok(aclnnIndexGetWorkspaceSize(a, indices, b, &bytes, &executor));
	assert_ok(aclnnIndex(NULL, bytes, executor, stream));
	assert_int_equal(aclrtSynchronizeStream(stream), ACL_ERROR_RT_AICORE_EXCEPTION);
	assert_string_equal(aclGetRecentErrMsg(),
			    "error 507015: simnpu: aclnnIndex: an index is out of range");
	assert_int_equal(aclrtSynchronizeDevice(), ACL_ERROR_RT_AICORE_EXCEPTION);
	assert_true(out[0] == -5 && out[1] == 1);
	assert_ok(aclrtSynchronizeStream(NULL));
	assert_ok(aclrtDestroyStream(stream));
	assert_ok(aclrtSynchronizeDevice());
	aclDestroyTensorList(indices);
	aclDestroyTensor(a);
	aclDestroyTensor(b);
}

/* torch_npu has an empty tensor of the type of the other one where there is no index. */
static void an_empty_index_names_nothing(void **state)
{
	float data[] = {1, 2, 3, 4};
	float seven = 7;
	int64_t column = 1;
	const float want[] = {1, 7, 3, 7};
	const aclTensor *empty[] = {tensor_with(ACL_INT64, NULL, NULL, DIMS(0))};
	const aclTensor *columns[] = {floats(NULL, DIMS(0)),
				      tensor_with(ACL_INT64, &column, NULL, DIMS(1))};
	aclTensorList *nothing = aclCreateTensorList(empty, 1);
	aclTensorList *second = aclCreateTensorList(columns, 2);
	aclTensor *a = floats(data, DIMS(2, 2));
	aclTensor *b = floats(&seven, 0, NULL);

	(void)state;
	RUN(IndexPutImpl, a, nothing, b, false, false);
	assert_true(data[0] == 1 && data[1] == 2 && data[2] == 3 && data[3] == 4);
	RUN(IndexPutImpl, a, second, b, false, false);
	assert_floats(data, want, 4);
	aclDestroyTensorList(nothing);
	aclDestroyTensorList(second);
	aclDestroyTensor(a);
	aclDestroyTensor(b);
}

static void complex_numbers_are_computed(void **state)
{
	float left[] = {1, 2, -3, 0.5f};
	float right[] = {0, 1, 2, -4};
	float out[4];
	float i[] = {0, 1};
	aclScalar *alpha = aclCreateScalar(i, ACL_COMPLEX64);
	aclTensor *a = tensor_with(ACL_COMPLEX64, left, NULL, DIMS(2));
	aclTensor *b = tensor_with(ACL_COMPLEX64, right, NULL, DIMS(2));
	aclTensor *c = tensor_with(ACL_COMPLEX64, out, NULL, DIMS(2));
	aclTensor *d = floats(out, DIMS(2));

	(void)state;
	/* (1+2i) + i*i = 2i; (-3+0.5i) + i*(2-4i) = 1+2.5i */
	RUN(Add, a, b, alpha, c);
	assert_true(out[0] == 0 && out[1] == 2 && out[2] == 1 && out[3] == 2.5f);
	/* The imaginary part is cut off. */
	RUN(Cast, a, ACL_FLOAT, d);
	assert_true(out[0] == 1 && out[1] == -3);
	aclDestroyScalar(alpha);
	aclDestroyTensor(a);
	aclDestroyTensor(b);
	aclDestroyTensor(c);
	aclDestroyTensor(d);
}

static void what_is_not_computed_fails_by_name(void **state)
{
	float data[] = {1, 2};
	aclTensor *a = floats(data, DIMS(2));
	aclTensor *b = tensor_with(ACL_COMPLEX64, data, NULL, DIMS(1));
	aclTensor *c = tensor_with((aclDataType)36, data, NULL, DIMS(1));
	aclOpExecutor *executor = NULL;
	uint64_t bytes = 0;

	(void)state;
	assert_int_equal(aclnnTransQuantParamV3GetWorkspaceSize(a, &bytes, &executor),
			 ACLNN_ERR_INNER_FIND_KERNEL_ERROR);
	assert_string_equal(aclGetRecentErrMsg(),
			    "error 561003: simnpu: aclnnTransQuantParamV3: it is not simulated");
	assert_int_equal(aclnnGeluGetWorkspaceSize(b, b, &bytes, &executor),
			 ACLNN_ERR_PARAM_INVALID);
	assert_string_equal(aclGetRecentErrMsg(),
			    "error 161002: simnpu: aclnnGelu: complex64 is not simulated");
	assert_int_equal(aclnnInplaceCopyGetWorkspaceSize(a, c, &bytes, &executor),
			 ACLNN_ERR_PARAM_INVALID);
	assert_string_equal(aclGetRecentErrMsg(), "error 161002: simnpu: aclnnInplaceCopy: "
						  "float8_e4m3fn is not simulated");
	assert_null(executor);
	aclDestroyTensor(a);
	aclDestroyTensor(b);
	aclDestroyTensor(c);
}

/* Frameworks refuse to run operators of a library without these, or call them around each one. */
static void what_frameworks_call_around_operators_is_there(void **state)
{
	(void)state;
	assert_ok(aclnnInit(NULL));
	assert_ok(InitHugeMemThreadLocal(NULL, false));
	ReleaseHugeMem(NULL, false);
	UnInitHugeMemThreadLocal(NULL, false);
	assert_ok(aclnnFinalize());
}

static void wrong_arguments_get_no_object(void **state)
{
	int64_t dims[9] = {1, 1, 1, 1, 1, 1, 1, 1, 1};

	(void)state;
	assert_null(aclCreateTensor(dims, 9, ACL_FLOAT, NULL, 0, ACL_FORMAT_ND, dims, 9, dims));
	assert_null(aclCreateTensor(NULL, 1, ACL_FLOAT, NULL, 0, ACL_FORMAT_ND, dims, 1, dims));
	assert_null(aclCreateScalar(NULL, ACL_INT64));
	assert_null(aclCreateIntArray(NULL, 2));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(rows_broadcast_and_strides_count),
		cmocka_unit_test(large_integers_stay_exact),
		cmocka_unit_test(short_reals_are_rounded),
		cmocka_unit_test(a_scalar_equals_what_was_made_of_it),
		cmocka_unit_test(products_ask_for_the_workspace_of_real_ones),
		cmocka_unit_test(matrices_of_other_shapes_have_no_product),
		cmocka_unit_test(sums_and_maxima_run_along_dimensions),
		cmocka_unit_test(softmax_survives_large_numbers),
		cmocka_unit_test(lists_are_put_together),
		cmocka_unit_test(indices_count_from_the_end_when_negative),
		cmocka_unit_test(a_result_can_have_a_shape_of_its_own),
		cmocka_unit_test(chance_repeats_with_its_seed),
		cmocka_unit_test(a_convolution_and_its_transposed_belong_together),
		cmocka_unit_test(an_index_out_of_range_fails_the_stream),
		cmocka_unit_test(an_empty_index_names_nothing),
		cmocka_unit_test(complex_numbers_are_computed),
		cmocka_unit_test(what_is_not_computed_fails_by_name),
		cmocka_unit_test(what_frameworks_call_around_operators_is_there),
		cmocka_unit_test(wrong_arguments_get_no_object),
	};

	return cmocka_run_group_tests(tests, set_device, reset_device);
}
