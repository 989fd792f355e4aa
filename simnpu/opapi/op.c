/* SPDX-License-Identifier: Apache-2.0 */
#include "op.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "acl/acl.h"
#include "acl/impl.h"
#include "array.h"
#include "mstx/ms_tools_ext.h"
#include "nnopbase/meta.h"
#include "numbers.h"
#include "runtime/rt.h"

enum {
	SAID_MAX = 1024,
};

_Static_assert((int)DIMS_MAX == (int)META_DIMS_MAX, "a tensor of the caller fits");

/* A block of memory that belongs to an operator; the rest follows. */
struct op_memory {
	struct op_memory *next;
	_Alignas(max_align_t) unsigned char bytes[];
};

/* A tensor of an operator. */
struct op_part {
	struct op_part *next;
	const struct tensor *tensor;
	bool is_result;
};

/* Something that only values show was wrong, where values are not to be trusted. */
static _Thread_local bool gave_up;

static void destroy(aclOpExecutor *executor)
{
	struct op *op = (struct op *)executor;
	struct op_memory *memory;

	while ((memory = op->memory)) {
		op->memory = memory->next;
		free(memory);
	}
	free(op);
}

void *op_new(size_t size, struct op_kind *kind)
{
	struct op *op = calloc(1, size);

	if (!op)
		return NULL;
	op->executor.destroy = destroy;
	op->kind = kind;
	return op;
}

void *op_allocate(struct op *op, size_t bytes)
{
	struct op_memory *memory = malloc(sizeof(*memory) + bytes);

	if (!memory) {
		op->short_of_memory = true;
		return NULL;
	}
	memory->next = op->memory;
	op->memory = memory;
	return memory->bytes;
}

/* Whether what cannot be computed is tolerated, as it is for those who want rows and not results. */
static bool is_lenient(void)
{
	static _Atomic int known; /* 1 and 2: no and yes */
	int state = atomic_load_explicit(&known, memory_order_relaxed);

	if (!state) {
		const char *text = getenv("SIMNPU_LENIENT");

		state = text && *text && strcmp(text, "0") != 0 ? 2 : 1;
		atomic_store_explicit(&known, state, memory_order_relaxed);
	}
	return state == 2;
}

/* One line for each name. */
static void say_once(const char *name, const char *what)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	static const char *said[SAID_MAX];
	static unsigned count;
	char mark[96];
	unsigned n;
	bool again;

	(void)pthread_mutex_lock(&lock);
	for (n = 0; n < count && said[n] != name; n++)
		;
	again = n < count || count == SAID_MAX;
	if (!again)
		said[count++] = name;
	(void)pthread_mutex_unlock(&lock);
	if (again)
		return;
	(void)fprintf(stderr, "simnpu: %s: %s, its result is not computed\n", name, what);
	/* For the report of a tool. */
	if (is_lenient()) {
		(void)snprintf(mark, sizeof(mark), "simnpu: not computed: %s", name);
		mstxMarkA(mark, NULL);
	}
}

/*
 * The error of a first phase, for aclGetRecentErrMsg(), or none when it is tolerated. The codes are those of real operators: of
 * ACL_ERROR_RT_FEATURE_NOT_SUPPORT torch_npu makes a warning, and goes on.
 */
static int refuse(int error, const char *name, const char *what)
{
	char text[128];

	if (is_lenient())
		return ACL_SUCCESS;
	(void)snprintf(text, sizeof(text), "%s: %s", name, what);
	return aclSimFailed(error, text);
}

int op_not_simulated(const char *name)
{
	return refuse(ACLNN_ERR_INNER_FIND_KERNEL_ERROR, name, "it is not simulated");
}

void op_refuse(struct op *op, const char *what)
{
	if (!op->refused[0])
		(void)snprintf(op->refused, sizeof(op->refused), "%s", what);
}

void op_cannot(const struct op *op, const char *what)
{
	char text[128];

	if (rtSimComputed() < RT_SIM_ALL) {
		gave_up = true;
		return;
	}
	say_once(op->kind->name, what);
	if (is_lenient())
		return;
	(void)snprintf(text, sizeof(text), "%s: %s", op->kind->name, what);
	rtSimTaskFailed(text);
}

/* SIMNPU_WORKSPACE=none: operators ask for none, for programs whose own memory is looked at. */
static bool without_workspaces(void)
{
	static _Atomic int known; /* 1 and 2: no and yes */
	int state = atomic_load_explicit(&known, memory_order_relaxed);

	if (!state) {
		const char *text = getenv("SIMNPU_WORKSPACE");

		state = text && strcmp(text, "none") == 0 ? 2 : 1;
		atomic_store_explicit(&known, state, memory_order_relaxed);
	}
	return state == 2;
}

int op_ready(struct op *op, uint64_t bytes, uint64_t *workspace_size, aclOpExecutor **executor)
{
	/* The unit in which real operators ask. */
	const uint64_t unit = 512;
	int error;

	if (!op)
		return ACL_ERROR_BAD_ALLOC;
	if (op->short_of_memory || !workspace_size || !executor) {
		error = op->short_of_memory ? ACL_ERROR_BAD_ALLOC : ACL_ERROR_INVALID_PARAM;
		destroy(&op->executor);
		return error;
	}
	if (op->refused[0]) {
		error = refuse(ACLNN_ERR_PARAM_INVALID, op->kind->name, op->refused);
		if (error) {
			destroy(&op->executor);
			return error;
		}
		bytes = 0;
	}
	if (without_workspaces())
		bytes = 0;
	op->workspace_bytes = (bytes + unit - 1) / unit * unit;
	*workspace_size = op->workspace_bytes;
	*executor = &op->executor;
	return ACL_SUCCESS;
}

static bool is_input(const struct op *op, const unsigned char *data)
{
	const struct op_part *part;

	for (part = op->parts; part; part = part->next) {
		if (!part->is_result && part->tensor->data == data)
			return true;
	}
	return false;
}

/* ---- what is known of values ---- */

/* Calls `each` for every run of elements that lie side by side. False: one of the calls was false. */
static bool each_run(const struct tensor *tensor, unsigned char *data, uint32_t dim,
		     bool (*each)(const void *data, uint64_t bytes))
{
	uint64_t size = numbers_size(tensor->type);
	bool all = true;
	int64_t n;

	if (dim == tensor->dim_count)
		return each(data, size);
	if (dim + 1 == tensor->dim_count && tensor->strides[dim] == 1)
		return each(data, (uint64_t)tensor->dims[dim] * size);
	for (n = 0; n < tensor->dims[dim]; n++)
		all &= each_run(tensor, data + n * tensor->strides[dim] * (int64_t)size, dim + 1,
				each);
	return all;
}

static bool know(const void *data, uint64_t bytes)
{
	rtSimKnow(data, bytes, true);
	return true;
}

static bool forget(const void *data, uint64_t bytes)
{
	rtSimKnow(data, bytes, false);
	return true;
}

/* From the first element to the last, whatever lies between. */
static void forget_all(const struct tensor *tensor)
{
	uint64_t elements = 1;
	uint32_t n;

	for (n = 0; n < tensor->dim_count; n++)
		elements += (uint64_t)((tensor->dims[n] - 1) * tensor->strides[n]);
	rtSimKnow(tensor->data, elements * numbers_size(tensor->type), false);
}

static bool is_small(const struct tensor *tensor)
{
	return tensor_count(tensor) <= rtSimComputed();
}

static bool is_known(const struct tensor *tensor)
{
	if (tensor_count(tensor) == 0)
		return true;
	return is_small(tensor) && each_run(tensor, tensor->data, 0, rtSimIsKnown);
}

/* An operator without results changes its tensors in place. */
static bool has_results(const struct op *op)
{
	const struct op_part *part;

	for (part = op->parts; part && !part->is_result; part = part->next)
		;
	return part != NULL;
}

static bool knows_inputs(const struct op *op)
{
	const struct op_part *part;

	for (part = op->parts; part; part = part->next) {
		if (!part->is_result && !is_known(part->tensor))
			return false;
	}
	return true;
}

/* What it has written is known, or not. */
static void note_results(const struct op *op, bool known)
{
	bool in_place = !has_results(op);
	const struct op_part *part;

	for (part = op->parts; part; part = part->next) {
		const struct tensor *tensor = part->tensor;

		if ((!part->is_result && !in_place) || tensor_count(tensor) == 0)
			continue;
		if (!is_small(tensor))
			forget_all(tensor);
		else
			(void)each_run(tensor, tensor->data, 0, known ? know : forget);
	}
}

/*
 * For results that were not computed: whoever reads them gets zeros, not what another tensor left there. Only "are all of them so" is
 * answered with yes: programs ask it of what should hold (isfinite(x).all()).
 */
static void fill_small_results(const struct op *op)
{
	double value = strcmp(op->kind->name, "aclnnAll") == 0 ? 1 : 0;
	const struct op_part *part;

	for (part = op->parts; part; part = part->next) {
		if (part->is_result && is_small(part->tensor) && !is_input(op, part->tensor->data))
			tensor_fill(part->tensor, value);
	}
}

/* Computes what is small. A shape that would follow from values that nobody knows stays as large as it can be. */
static void compute(struct op *op)
{
	bool known = rtSimComputed() == RT_SIM_ALL || (!op->is_skipped && knows_inputs(op));

	gave_up = op->is_skipped || (!known && op->kind->traits & OP_WAITS);
	if (gave_up && op->kind->traits & OP_WAITS)
		rtSimUnknown(RT_SIM_FULL, op->kind->name);
	if (!gave_up)
		op->kind->compute(op);
	if (gave_up)
		fill_small_results(op);
	if (rtSimComputed() < RT_SIM_ALL)
		note_results(op, known && !gave_up);
}

static void run(void *args, size_t args_size, uint32_t block_dim)
{
	struct op *op;

	(void)block_dim;
	memcpy(&op, args, args_size);
	if (op->refused[0])
		say_once(op->kind->name, op->refused);
	else
		compute(op);
}

static void release(void *args, size_t args_size)
{
	struct op *op;

	memcpy(&op, args, args_size);
	destroy(&op->executor);
}

/* Twice is once: the same name and functions give the same handle. */
static int find_kernel(struct op_kind *kind, void **out)
{
	int error = ACL_SUCCESS;

	*out = atomic_load_explicit(&kind->kernel, memory_order_relaxed);
	if (!*out) {
		error = rtSimRegisterKernel(kind->name, run, release, out);
		if (!error)
			atomic_store_explicit(&kind->kernel, *out, memory_order_relaxed);
	}
	return error;
}

int op_launch(void *workspace, uint64_t workspace_size, aclOpExecutor *executor, void *stream)
{
	struct op *op = (struct op *)executor;
	rtArgsEx_t args = {.args = &op, .argsSize = sizeof(op)};
	bool waits;
	void *kernel;
	int error;

	if (!op)
		return ACL_ERROR_INVALID_PARAM;
	waits = op->kind->traits & OP_WAITS;
	if (workspace_size < op->workspace_bytes || (op->workspace_bytes && !workspace)) {
		destroy(executor);
		return ACL_ERROR_INVALID_PARAM;
	}
	op->workspace = workspace;
	error = find_kernel(op->kind, &kernel);
	/* As the real library does, and where tools hook. */
	if (!error)
		error = rtKernelLaunchWithHandleV2(kernel, 0, 1, &args, NULL, stream, NULL);
	if (error)
		destroy(executor);
	else if (waits)
		error = rtStreamSynchronize(stream);
	return error == ACL_ERROR_RT_AICORE_EXCEPTION ? aclSimFailed(error, rtSimFailure()) : error;
}

static void check_type(struct op *op, aclDataType type)
{
	char room[32];
	char what[64];

	if (numbers_size(type) && (!numbers_are_complex(type) || op->kind->traits & OP_COMPLEX))
		return;
	(void)snprintf(what, sizeof(what), "%s is not simulated", numbers_name(type, room));
	op_refuse(op, what);
}

static void note_part(struct op *op, const struct tensor *tensor, bool is_result)
{
	struct op_part *part;

	if (rtSimComputed() == RT_SIM_ALL)
		return;
	part = op_allocate(op, sizeof(*part));
	if (!part)
		return;
	*part = (struct op_part){op->parts, tensor, is_result};
	op->parts = part;
	op->is_skipped |= tensor_count(tensor) > rtSimComputed();
}

static void take(struct op *op, struct tensor *out, const aclTensor *in, bool is_result)
{
	if (!in)
		return;
	check_type(op, in->type);
	out->present = true;
	out->type = in->type;
	out->dim_count = (uint32_t)in->dim_count;
	memcpy(out->dims, in->dims, sizeof(out->dims));
	memcpy(out->strides, in->strides, sizeof(out->strides));
	out->data = in->data;
	out->origin = (aclTensor *)(uintptr_t)in;
	note_part(op, out, is_result);
}

static void take_list(struct op *op, struct tensors *out, const aclTensorList *in, bool is_result)
{
	size_t n;

	if (!in || !in->count)
		return;
	out->items = op_allocate(op, in->count * sizeof(*out->items));
	if (!out->items)
		return;
	memset(out->items, 0, in->count * sizeof(*out->items));
	out->count = in->count;
	for (n = 0; n < in->count; n++)
		take(op, &out->items[n], in->values[n], is_result);
}

void op_take_tensor(struct op *op, struct tensor *out, const aclTensor *in)
{
	take(op, out, in, false);
}

void op_take_tensors(struct op *op, struct tensors *out, const aclTensorList *in)
{
	take_list(op, out, in, false);
}

void op_take_result(struct op *op, struct tensor *out, const aclTensor *in)
{
	take(op, out, in, true);
}

void op_take_results(struct op *op, struct tensors *out, const aclTensorList *in)
{
	take_list(op, out, in, true);
}

void op_take_scalar(struct op *op, struct scalar *out, const aclScalar *in)
{
	if (!in)
		return;
	check_type(op, in->type);
	out->present = true;
	out->type = in->type;
	numbers_to_real(in->type, in->value, 1, 1, &out->real);
	numbers_to_integer(in->type, in->value, 1, 1, &out->integer);
	numbers_to_complex(in->type, in->value, 1, 1, &out->complex_value);
}

void op_take_scalars(struct op *op, struct scalars *out, const aclScalarList *in)
{
	size_t n;

	if (!in || !in->count)
		return;
	out->items = op_allocate(op, in->count * sizeof(*out->items));
	if (!out->items)
		return;
	memset(out->items, 0, in->count * sizeof(*out->items));
	out->count = in->count;
	for (n = 0; n < in->count; n++)
		op_take_scalar(op, &out->items[n], in->values[n]);
}

void op_take_ints(struct op *op, struct ints *out, const aclIntArray *in)
{
	if (!in)
		return;
	out->present = true;
	out->items = op_allocate(op, in->count * sizeof(*out->items));
	if (!out->items)
		return;
	out->count = in->count;
	memcpy(out->items, in->values, in->count * sizeof(*out->items));
}

void op_take_bools(struct op *op, struct bools *out, const aclBoolArray *in)
{
	if (!in)
		return;
	out->items = op_allocate(op, in->count * sizeof(*out->items));
	if (!out->items)
		return;
	out->count = in->count;
	memcpy(out->items, in->values, in->count * sizeof(*out->items));
}

void op_set_dims(struct tensor *result, const int64_t *dims, uint32_t dim_count)
{
	int64_t stride = 1;
	uint32_t n;

	result->dim_count = dim_count;
	for (n = dim_count; n-- > 0;) {
		result->dims[n] = dims[n];
		result->strides[n] = stride;
		stride *= dims[n];
	}
	result->origin->dim_count = dim_count;
	memcpy(result->origin->dims, result->dims, sizeof(result->dims));
	memcpy(result->origin->strides, result->strides, sizeof(result->strides));
}
