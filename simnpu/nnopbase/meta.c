/* SPDX-License-Identifier: Apache-2.0 */
#include "meta.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "acl/acl.h"

/* Pointers to const are what the interface destroys. */
static void release(const void *pointer)
{
	free((void *)(uintptr_t)pointer);
}

static void set_strides(aclTensor *tensor, const int64_t *strides)
{
	int64_t stride = 1;
	uint64_t n;

	for (n = tensor->dim_count; n-- > 0;) {
		tensor->strides[n] = strides ? strides[n] : stride;
		stride *= tensor->dims[n];
	}
}

aclTensor *aclCreateTensor(const int64_t *viewDims, uint64_t viewDimsNum, aclDataType dataType,
			   const int64_t *stride, int64_t offset, aclFormat format,
			   const int64_t *storageDims, uint64_t storageDimsNum, void *tensorData)
{
	aclTensor *tensor;

	(void)storageDims;
	(void)storageDimsNum;
	if (viewDimsNum > META_DIMS_MAX || (viewDimsNum && !viewDims))
		return NULL;
	tensor = calloc(1, sizeof(*tensor));
	if (!tensor)
		return NULL;
	tensor->type = dataType;
	tensor->format = format;
	tensor->dim_count = viewDimsNum;
	if (viewDimsNum)
		memcpy(tensor->dims, viewDims, viewDimsNum * sizeof(*viewDims));
	set_strides(tensor, stride);
	if (tensorData)
		tensor->data = (char *)tensorData + offset * (int64_t)aclDataTypeSize(dataType);
	return tensor;
}

aclScalar *aclCreateScalar(void *value, aclDataType dataType)
{
	size_t size = aclDataTypeSize(dataType);
	aclScalar *scalar;

	/* One of a type that is not known has no value: operators refuse it by its type. */
	if (!value || size > sizeof(scalar->value))
		return NULL;
	scalar = calloc(1, sizeof(*scalar));
	if (!scalar)
		return NULL;
	scalar->type = dataType;
	memcpy(scalar->value, value, size);
	return scalar;
}

#define CREATE_ARRAY(result, function, element)                                                    \
	result *function(element value, uint64_t size)                                             \
	{                                                                                          \
		result *array;                                                                     \
                                                                                                   \
		if (size && !value)                                                                \
			return NULL;                                                               \
		array = malloc(sizeof(*array) + size * sizeof(array->values[0]));                  \
		if (!array)                                                                        \
			return NULL;                                                               \
		array->count = size;                                                               \
		if (size)                                                                          \
			memcpy(array->values, value, size * sizeof(array->values[0]));             \
		return array;                                                                      \
	}
CREATE_ARRAY(aclIntArray, aclCreateIntArray, const int64_t *)
CREATE_ARRAY(aclFloatArray, aclCreateFloatArray, const float *)
CREATE_ARRAY(aclBoolArray, aclCreateBoolArray, const bool *)
CREATE_ARRAY(aclTensorList, aclCreateTensorList, const aclTensor *const *)
CREATE_ARRAY(aclScalarList, aclCreateScalarList, const aclScalar *const *)

#define DESTROY(type, function)                                                                    \
	aclnnStatus function(const type *object)                                                   \
	{                                                                                          \
		release(object);                                                                   \
		return ACL_SUCCESS;                                                                \
	}
DESTROY(aclTensor, aclDestroyTensor)
DESTROY(aclScalar, aclDestroyScalar)
DESTROY(aclIntArray, aclDestroyIntArray)
DESTROY(aclFloatArray, aclDestroyFloatArray)
DESTROY(aclBoolArray, aclDestroyBoolArray)

#define DESTROY_LIST(type, function)                                                               \
	aclnnStatus function(const type *object)                                                   \
	{                                                                                          \
		uint64_t n;                                                                        \
                                                                                                   \
		for (n = 0; object && n < object->count; n++)                                      \
			release(object->values[n]);                                                \
		release(object);                                                                   \
		return ACL_SUCCESS;                                                                \
	}
DESTROY_LIST(aclTensorList, aclDestroyTensorList)
DESTROY_LIST(aclScalarList, aclDestroyScalarList)

static void *new_array(size_t size)
{
	void *(*operator_new)(size_t);

	*(void **)&operator_new = dlsym(RTLD_DEFAULT, "_Znam");
	return operator_new ? operator_new(size) : malloc(size);
}

aclnnStatus aclGetViewShape(const aclTensor *tensor, int64_t **viewDims, uint64_t *viewDimsNum)
{
	if (!tensor || !viewDims || !viewDimsNum)
		return ACL_ERROR_INVALID_PARAM;
	*viewDims = new_array(sizeof(tensor->dims));
	if (!*viewDims)
		return ACL_ERROR_BAD_ALLOC;
	memcpy(*viewDims, tensor->dims, sizeof(tensor->dims));
	*viewDimsNum = tensor->dim_count;
	return ACL_SUCCESS;
}

aclnnStatus aclGetDataType(const aclTensor *tensor, aclDataType *dataType)
{
	if (!tensor || !dataType)
		return ACL_ERROR_INVALID_PARAM;
	*dataType = tensor->type;
	return ACL_SUCCESS;
}

aclnnStatus aclGetFormat(const aclTensor *tensor, aclFormat *format)
{
	if (!tensor || !format)
		return ACL_ERROR_INVALID_PARAM;
	*format = tensor->format;
	return ACL_SUCCESS;
}

aclnnStatus aclGetIntArraySize(const aclIntArray *array, uint64_t *size)
{
	if (!array || !size)
		return ACL_ERROR_INVALID_PARAM;
	*size = array->count;
	return ACL_SUCCESS;
}

aclnnStatus aclGetTensorListSize(const aclTensorList *tensorList, uint64_t *size)
{
	if (!tensorList || !size)
		return ACL_ERROR_INVALID_PARAM;
	*size = tensorList->count;
	return ACL_SUCCESS;
}

aclnnStatus aclDestroyAclOpExecutor(aclOpExecutor *executor)
{
	if (!executor)
		return ACL_ERROR_INVALID_PARAM;
	executor->destroy(executor);
	return ACL_SUCCESS;
}

aclnnStatus aclnnInit(const char *configPath)
{
	(void)configPath;
	return ACL_SUCCESS;
}

aclnnStatus aclnnFinalize(void)
{
	return ACL_SUCCESS;
}

int InitHugeMemThreadLocal(void *arg, bool sync)
{
	(void)arg;
	(void)sync;
	return ACL_SUCCESS;
}

void UnInitHugeMemThreadLocal(void *arg, bool sync)
{
	(void)arg;
	(void)sync;
}

void ReleaseHugeMem(void *arg, bool sync)
{
	(void)arg;
	(void)sync;
}
