/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuDNN: version, handles and descriptors of the old interface, and the descriptors of the new one ("backend"), through which PyTorch asks for
 * convolutions and attention. A backend descriptor is kept as the attributes that were set; what is asked for beside them is what a library with
 * one engine for each graph says.
 *
 * Workspaces: cuDNN chooses among algorithms by rules that are not public. conv_workspace() has the largest that was seen on an H200, and each
 * one is told to the listener, so that the figures become a range.
 */
#include "sim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NOT_SUPPORTED 3000
#define BAD_PARAM     2000

enum descriptor {
	CONVOLUTION = 1,
	ENGINE = 2,
	ENGINECFG = 3,
	ENGINEHEUR = 4,
	PLAN = 5,
	FORWARD = 10,
	FILTER_GRADIENT = 11,
	DATA_GRADIENT = 12,
	GRAPH = 15,
	TENSOR = 17,
};

enum attribute {
	HEUR_GRAPH = 201,
	HEUR_RESULTS = 202,
	CONFIG_ENGINE = 300,
	CONFIG_INTERMEDIATES = 301,
	CONFIG_KNOBS = 302,
	CONFIG_WORKSPACE = 303,
	CONFIG_SHARED = 304,
	PLAN_CONFIG = 401,
	PLAN_WORKSPACE = 402,
	PLAN_JSON = 405,
	FORWARD_W = 703,
	FORWARD_X = 704,
	FORWARD_Y = 705,
	DATA_W = 709,
	DATA_DX = 710,
	DATA_DY = 711,
	FILTER_DW = 715,
	FILTER_X = 716,
	FILTER_DY = 717,
	GRAPH_OPERATIONS = 801,
	GRAPH_ENGINES = 802,
	TENSOR_TYPE = 901,
	TENSOR_DIMENSIONS = 902,
	TENSOR_STRIDES = 903,
	ENGINE_GRAPH = 1300,
	ENGINE_INDEX = 1301,
	ENGINE_KNOBS = 1302,
	ENGINE_NUMERICS = 1303,
	ENGINE_BEHAVIOR = 1305,
};

/* Types of attributes that have a size of their own. */
enum {
	TYPE_HANDLE = 0,
	TYPE_DATA_TYPE = 1,
	TYPE_BOOL = 2,
	TYPE_INT64 = 3,
	TYPE_FLOAT = 4,
	TYPE_DOUBLE = 5,
	TYPE_POINTER = 6,
	TYPE_DESCRIPTOR = 15,
	TYPE_CHAR = 19,
	TYPE_FRACTION = 28,
};

struct value {
	int name, type;
	int64_t count;
	void *data;
	struct value *next;
};

struct backend {
	int type;
	unsigned int users; /* the caller, and the descriptors that have it as an attribute */
	struct value *values;
};

SIM_API size_t cudnnGetVersion(void);
SIM_API size_t cudnnGetCudartVersion(void);
SIM_API int cudnnGetProperty(int property, int *out);
SIM_API const char *cudnnGetErrorString(int code);
SIM_API void cudnnGetLastErrorString(char *out, size_t bytes);
SIM_API int cudnnGetStream(void *handle, void **out);
SIM_API int cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize(void *handle, int mode,
								     int operations, void *x,
								     void *z, void *y, void *scale,
								     void *activation, size_t *out);
SIM_API int cudnnGetBatchNormalizationBackwardExWorkspaceSize(void *handle, int mode,
							      int operations, void *x, void *y,
							      void *dy, void *dz, void *dx,
							      void *scale, void *activation,
							      size_t *out);
SIM_API int cudnnGetBatchNormalizationTrainingExReserveSpaceSize(void *handle, int mode,
								 int operations, void *activation,
								 void *x, size_t *out);
SIM_API int cudnnBackendCreateDescriptor(int type, void **out);
SIM_API int cudnnBackendDestroyDescriptor(void *it);
SIM_API int cudnnBackendSetAttribute(void *it, int name, int type, int64_t count, const void *data);
SIM_API int cudnnBackendGetAttribute(void *it, int name, int type, int64_t wanted,
				     int64_t *out_count, void *out);
SIM_API int cudnnBackendFinalize(void *it);
SIM_API int cudnnBackendExecute(void *handle, void *plan, void *variables);

size_t cudnnGetVersion(void)
{
	return (size_t)sim_cudnn_version();
}

size_t cudnnGetCudartVersion(void)
{
	return (size_t)sim_version();
}

int cudnnGetProperty(int property, int *out)
{
	int version = sim_cudnn_version();

	*out = property == 0   ? version / 10000
	       : property == 1 ? version / 100 % 100
			       : version % 100;
	return SIM_OK;
}

const char *cudnnGetErrorString(int code)
{
	return code == SIM_OK ? "CUDNN_STATUS_SUCCESS" : cudaGetErrorString(SIM_NOT_SUPPORTED);
}

void cudnnGetLastErrorString(char *out, size_t bytes)
{
	(void)snprintf(out, bytes, "%s", cudaGetErrorString(SIM_NOT_SUPPORTED));
}

int cudnnGetStream(void *handle, void **out)
{
	(void)handle;
	*out = NULL;
	return SIM_OK;
}

/* ---- batch normalisation without an activation: it takes nothing beside its tensors ---- */

int cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize(void *handle, int mode, int operations,
							     void *x, void *z, void *y, void *scale,
							     void *activation, size_t *out)
{
	(void)handle, (void)mode, (void)operations, (void)x, (void)z, (void)y, (void)scale;
	(void)activation;
	*out = 0;
	return SIM_OK;
}

int cudnnGetBatchNormalizationBackwardExWorkspaceSize(void *handle, int mode, int operations,
						      void *x, void *y, void *dy, void *dz,
						      void *dx, void *scale, void *activation,
						      size_t *out)
{
	(void)handle, (void)mode, (void)operations, (void)x, (void)y, (void)dy, (void)dz, (void)dx;
	(void)scale, (void)activation;
	*out = 0;
	return SIM_OK;
}

int cudnnGetBatchNormalizationTrainingExReserveSpaceSize(void *handle, int mode, int operations,
							 void *activation, void *x, size_t *out)
{
	(void)handle, (void)mode, (void)operations, (void)activation, (void)x;
	*out = 0;
	return SIM_OK;
}

/* ---- backend descriptors ---- */

static size_t bytes_of(int type)
{
	switch (type) {
	case TYPE_BOOL:
	case TYPE_CHAR:
		return 1;
	case TYPE_HANDLE:
	case TYPE_INT64:
	case TYPE_DOUBLE:
	case TYPE_POINTER:
	case TYPE_DESCRIPTOR:
	case TYPE_FRACTION:
		return 8;
	default: /* enumerations, float and int32 */
		return 4;
	}
}

static struct value *find(const struct backend *it, int name)
{
	struct value *value;

	for (value = it->values; value != NULL && value->name != name; value = value->next)
		;
	return value;
}

/* The first of the descriptors that an attribute has; NULL if it is not set. */
static const struct backend *child(const struct backend *it, int name)
{
	const struct value *value = it == NULL ? NULL : find(it, name);
	const struct backend *found = NULL;

	if (value != NULL && value->type == TYPE_DESCRIPTOR && value->count > 0)
		memcpy(&found, value->data, sizeof(found));
	return found;
}

int cudnnBackendCreateDescriptor(int type, void **out)
{
	struct backend *it = calloc(1, sizeof(*it));

	if (it == NULL)
		return NOT_SUPPORTED;
	it->type = type;
	it->users = 1;
	*out = it;
	return SIM_OK;
}

/* The descriptors of an attribute get or lose a user. */
static void count_users(const struct value *value, bool more)
{
	int64_t i;

	for (i = 0; value->type == TYPE_DESCRIPTOR && i < value->count; i++) {
		struct backend *used = ((struct backend **)value->data)[i];

		if (used != NULL && more)
			(void)__atomic_add_fetch(&used->users, 1, __ATOMIC_RELAXED);
		else if (used != NULL)
			(void)cudnnBackendDestroyDescriptor(used);
	}
}

int cudnnBackendDestroyDescriptor(void *it)
{
	struct backend *backend = it;
	struct value *value, *next;

	if (backend == NULL || __atomic_sub_fetch(&backend->users, 1, __ATOMIC_ACQ_REL) > 0)
		return SIM_OK;
	for (value = backend->values; value != NULL; value = next) {
		next = value->next;
		count_users(value, false);
		free(value->data);
		free(value);
	}
	free(backend);
	return SIM_OK;
}

int cudnnBackendSetAttribute(void *it, int name, int type, int64_t count, const void *data)
{
	struct backend *backend = it;
	struct value *value = find(backend, name);
	size_t bytes = bytes_of(type) * (size_t)count;
	struct value before;
	void *copy = malloc(bytes + 1);

	if (copy == NULL)
		return NOT_SUPPORTED;
	if (value == NULL) {
		value = calloc(1, sizeof(*value));
		if (value == NULL) {
			free(copy);
			return NOT_SUPPORTED;
		}
		value->name = name;
		value->next = backend->values;
		backend->values = value;
	}
	if (bytes > 0)
		memcpy(copy, data, bytes);
	before = *value;
	value->data = copy;
	value->type = type;
	value->count = count;
	count_users(value, true);
	count_users(&before, false);
	free(before.data);
	return SIM_OK;
}

int cudnnBackendFinalize(void *it)
{
	(void)it;
	return SIM_OK;
}

int cudnnBackendExecute(void *handle, void *plan, void *variables)
{
	(void)handle;
	(void)plan;
	(void)variables;
	sim_launched();
	return SIM_OK;
}

/* ---- workspaces ---- */

static unsigned int type_bytes(int type)
{
	switch (type) {
	case 1:	 /* double */
	case 10: /* int64 */
		return 8;
	case 2: /* half */
	case 9: /* bfloat16 */
		return 2;
	case 3: /* int8 */
		return 1;
	default:
		return 4;
	}
}

struct shape {
	int64_t sizes[8], strides[8];
	int64_t count;
	unsigned int item;
};

static bool take_shape(const struct backend *tensor, struct shape *out)
{
	const struct value *type, *sizes, *strides;
	int code;

	if (tensor == NULL)
		return false;
	type = find(tensor, TENSOR_TYPE);
	sizes = find(tensor, TENSOR_DIMENSIONS);
	strides = find(tensor, TENSOR_STRIDES);
	if (type == NULL || sizes == NULL || strides == NULL || sizes->count > 8 ||
	    sizes->count != strides->count || sizes->count < 3)
		return false;
	memcpy(&code, type->data, sizeof(code));
	out->item = type_bytes(code);
	out->count = sizes->count;
	memcpy(out->sizes, sizes->data, (size_t)sizes->count * 8);
	memcpy(out->strides, strides->data, (size_t)strides->count * 8);
	return true;
}

/* Bytes of a tensor, its channels as what kernels for matrices take; those of weights lie in two dimensions. */
static uint64_t padded(const struct shape *shape, bool weights)
{
	uint64_t bytes = shape->item, unit = shape->item == 2 ? 8 : 4;
	int64_t i;

	for (i = 0; i < shape->count; i++) {
		uint64_t size = (uint64_t)shape->sizes[i];

		if (i == 1 || (i == 0 && weights))
			size = (size + unit - 1) & ~(unit - 1);
		bytes *= size;
	}
	return bytes;
}

/* Each channel has a filter of its own, in at most two dimensions. */
static bool is_depthwise(const struct shape *x, const struct shape *weights)
{
	return weights->sizes[1] == 1 && x->sizes[1] > 1 && x->count <= 4;
}

/*
 * What 98 % of 11,568 convolutions on an H200 took at most (cuDNN 9.19): x, w and y once more, converted, and partial sums. The others are mostly
 * those with a transform, which may take hundreds of MiB.
 */
static uint64_t conv_workspace(const struct backend *operation)
{
	static const int names[][3] = {{FORWARD_X, FORWARD_W, FORWARD_Y},
				       {FILTER_X, FILTER_DW, FILTER_DY},
				       {DATA_DX, DATA_W, DATA_DY}};
	const int *which = names[operation->type - FORWARD];
	bool filter = operation->type == FILTER_GRADIENT;
	struct shape x, w, y;

	if (!take_shape(child(operation, which[0]), &x) ||
	    !take_shape(child(operation, which[1]), &w) ||
	    !take_shape(child(operation, which[2]), &y) || (is_depthwise(&x, &w) && !filter))
		return 0;
	return padded(&x, false) + padded(&w, true) + padded(&y, false) +
	       (UINT64_C(1) << 19) * (filter ? 25 : 4);
}

uint64_t sim_range(uint64_t least, uint64_t most)
{
	const char *wanted = getenv("SIMCUDA_WORKSPACE");
	char text[32];

	if (most == 0 || (wanted != NULL && strcmp(wanted, "none") == 0))
		return least;
	(void)snprintf(text, sizeof(text), "%llu", (unsigned long long)most);
	sim_tell(SIM_RANGE, text);
	return most;
}

static uint64_t workspace(const struct backend *config)
{
	const struct backend *graph = child(child(config, CONFIG_ENGINE), ENGINE_GRAPH);
	const struct backend *operation = child(graph, GRAPH_OPERATIONS);

	return operation == NULL || operation->type < FORWARD || operation->type > DATA_GRADIENT
		       ? 0
		       : sim_range(0, conv_workspace(operation));
}

/* ---- what is asked ---- */

/* A heuristic answers with one configuration, of one engine for its graph. */
static int answer_heuristic(struct backend *it, int64_t wanted, int64_t *out_count, void **out)
{
	const struct backend *graph = child(it, HEUR_GRAPH);
	void *engine = NULL;
	int64_t index = 0;

	if (out_count != NULL)
		*out_count = 1;
	if (wanted < 1 || out == NULL || out[0] == NULL)
		return SIM_OK;
	if (cudnnBackendCreateDescriptor(ENGINE, &engine) != SIM_OK)
		return NOT_SUPPORTED;
	(void)cudnnBackendSetAttribute(engine, ENGINE_INDEX, TYPE_INT64, 1, &index);
	(void)cudnnBackendSetAttribute(engine, ENGINE_GRAPH, TYPE_DESCRIPTOR, 1, &graph);
	(void)cudnnBackendSetAttribute(out[0], CONFIG_ENGINE, TYPE_DESCRIPTOR, 1, &engine);
	return cudnnBackendDestroyDescriptor(engine);
}

static int answer_number(int64_t number, int64_t *out_count, void *out)
{
	if (out_count != NULL)
		*out_count = 1;
	if (out != NULL)
		memcpy(out, &number, sizeof(number));
	return SIM_OK;
}

/* Descriptors are copied into those that the caller made. */
static int answer_stored(const struct value *value, int64_t wanted, int64_t *out_count, void *out)
{
	int64_t count = value->count < wanted ? value->count : wanted, i;

	if (out_count != NULL)
		*out_count = value->count;
	if (out == NULL || count <= 0)
		return SIM_OK;
	if (value->type != TYPE_DESCRIPTOR) {
		memcpy(out, value->data, bytes_of(value->type) * (size_t)count);
		return SIM_OK;
	}
	for (i = 0; i < count; i++) {
		struct backend *from = ((struct backend **)value->data)[i];
		struct backend *to = ((struct backend **)out)[i];
		const struct value *part;

		if (to == NULL) {
			((struct backend **)out)[i] = from;
			continue;
		}
		for (part = from->values; part != NULL; part = part->next)
			(void)cudnnBackendSetAttribute(to, part->name, part->type, part->count,
						       part->data);
	}
	return SIM_OK;
}

int cudnnBackendGetAttribute(void *it, int name, int type, int64_t wanted, int64_t *out_count,
			     void *out)
{
	struct backend *backend = it;
	const struct value *value = find(backend, name);
	char what[96];

	(void)type;
	if (value != NULL)
		return answer_stored(value, wanted, out_count, out);
	switch (name) {
	case HEUR_RESULTS:
		return answer_heuristic(backend, wanted, out_count, out);
	case GRAPH_ENGINES:
		return answer_number(1, out_count, out);
	case PLAN_WORKSPACE:
		return answer_number((int64_t)workspace(child(backend, PLAN_CONFIG)), out_count,
				     out);
	case CONFIG_WORKSPACE:
		return answer_number((int64_t)workspace(backend), out_count, out);
	case CONFIG_INTERMEDIATES:
	case CONFIG_KNOBS:
	case ENGINE_KNOBS:
	case ENGINE_NUMERICS:
	case ENGINE_BEHAVIOR:
		if (out_count != NULL)
			*out_count = 0;
		return SIM_OK;
	case CONFIG_SHARED: {
		const int32_t none = 0;

		if (out_count != NULL)
			*out_count = 1;
		if (out != NULL)
			memcpy(out, &none, sizeof(none));
		return SIM_OK;
	}
	case PLAN_JSON:
		if (out_count != NULL)
			*out_count = 1;
		if (out != NULL)
			*(char *)out = '\0';
		return SIM_OK;
	default:
		(void)snprintf(what, sizeof(what),
			       "attribute %d of cuDNN's descriptor %d is not simulated", name,
			       backend->type);
		(void)sim_fail(what);
		return NOT_SUPPORTED;
	}
}
