/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Descriptions of tensors, buffers and attributes: see acl/acl_op.h.
 */
#include <stdlib.h>
#include <string.h>

#include "impl.h"

enum {
	DIMS_MAX = 25,
};

struct aclTensorDesc {
	aclDataType type;
	aclFormat format;
	size_t dim_count;
	int64_t dims[DIMS_MAX];
};

struct aclDataBuffer {
	void *data;
	size_t size;
};

struct aclopAttr {
	size_t count; /* attributes that were set */
};

size_t aclDataTypeSizeImpl(aclDataType dataType)
{
	switch (dataType) {
	case ACL_INT8:
	case ACL_UINT8:
	case ACL_BOOL:
		return 1;
	case ACL_FLOAT16:
	case ACL_BF16:
	case ACL_INT16:
	case ACL_UINT16:
		return 2;
	case ACL_FLOAT:
	case ACL_INT32:
	case ACL_UINT32:
		return 4;
	case ACL_INT64:
	case ACL_UINT64:
	case ACL_DOUBLE:
	case ACL_COMPLEX64:
		return 8;
	case ACL_COMPLEX128:
		return 16;
	default:
		return 0;
	}
}

aclTensorDesc *aclCreateTensorDescImpl(aclDataType dataType, int numDims, const int64_t *dims,
				       aclFormat format)
{
	aclTensorDesc *desc;

	if (numDims < 0 || numDims > DIMS_MAX || (numDims && !dims))
		return NULL;
	desc = calloc(1, sizeof(*desc));
	if (!desc)
		return NULL;
	desc->type = dataType;
	desc->format = format;
	desc->dim_count = (size_t)numDims;
	if (numDims)
		memcpy(desc->dims, dims, (size_t)numDims * sizeof(*dims));
	return desc;
}

void aclDestroyTensorDescImpl(const aclTensorDesc *desc)
{
	free((void *)(uintptr_t)desc);
}

aclDataType aclGetTensorDescTypeImpl(const aclTensorDesc *desc)
{
	return desc ? desc->type : ACL_DT_UNDEFINED;
}

aclFormat aclGetTensorDescFormatImpl(const aclTensorDesc *desc)
{
	return desc ? desc->format : ACL_FORMAT_UNDEFINED;
}

size_t aclGetTensorDescElementCountImpl(const aclTensorDesc *desc)
{
	size_t count = 1;
	size_t n;

	if (!desc)
		return 0;
	for (n = 0; n < desc->dim_count; n++)
		count *= desc->dims[n] > 0 ? (size_t)desc->dims[n] : 0;
	return count;
}

size_t aclGetTensorDescSizeImpl(const aclTensorDesc *desc)
{
	return desc ? aclGetTensorDescElementCountImpl(desc) * aclDataTypeSizeImpl(desc->type) : 0;
}

size_t aclGetTensorDescNumDimsImpl(const aclTensorDesc *desc)
{
	return desc ? desc->dim_count : 0;
}

aclError aclGetTensorDescDimV2Impl(const aclTensorDesc *desc, size_t index, int64_t *dimSize)
{
	if (!desc || !dimSize || index >= desc->dim_count)
		return acl_result(ACL_ERROR_INVALID_PARAM);
	*dimSize = desc->dims[index];
	return ACL_SUCCESS;
}

void aclSetTensorDescNameImpl(aclTensorDesc *desc, const char *name)
{
	(void)desc;
	(void)name;
}

aclError aclSetTensorFormatImpl(aclTensorDesc *desc, aclFormat format)
{
	(void)format;
	return acl_result(desc ? ACL_SUCCESS : ACL_ERROR_INVALID_PARAM);
}

aclError aclSetTensorShapeImpl(aclTensorDesc *desc, int numDims, const int64_t *dims)
{
	return acl_result(desc && numDims >= 0 && (dims || !numDims) ? ACL_SUCCESS
								     : ACL_ERROR_INVALID_PARAM);
}

aclError aclSetTensorPlaceMentImpl(aclTensorDesc *desc, aclMemType memType)
{
	(void)memType;
	return acl_result(desc ? ACL_SUCCESS : ACL_ERROR_INVALID_PARAM);
}

aclDataBuffer *aclCreateDataBufferImpl(void *data, size_t size)
{
	aclDataBuffer *buffer = malloc(sizeof(*buffer));

	if (buffer)
		*buffer = (aclDataBuffer){.data = data, .size = size};
	return buffer;
}

aclError aclDestroyDataBufferImpl(const aclDataBuffer *dataBuffer)
{
	if (!dataBuffer)
		return acl_result(ACL_ERROR_INVALID_PARAM);
	free((void *)(uintptr_t)dataBuffer);
	return ACL_SUCCESS;
}

void *aclGetDataBufferAddrImpl(const aclDataBuffer *dataBuffer)
{
	return dataBuffer ? dataBuffer->data : NULL;
}

size_t aclGetDataBufferSizeV2Impl(const aclDataBuffer *dataBuffer)
{
	return dataBuffer ? dataBuffer->size : 0;
}

aclopAttr *aclopCreateAttrImpl(void)
{
	return calloc(1, sizeof(aclopAttr));
}

void aclopDestroyAttrImpl(const aclopAttr *attr)
{
	free((void *)(uintptr_t)attr);
}

/* Every kind of value comes to this. */
static aclError set_attribute(aclopAttr *attr, const char *name)
{
	if (!attr || !name)
		return acl_result(ACL_ERROR_INVALID_PARAM);
	attr->count++;
	return ACL_SUCCESS;
}

#define SET_VALUE(kind, type)                                                                      \
	aclError aclopSetAttr##kind##Impl(aclopAttr *attr, const char *attrName, type attrValue)   \
	{                                                                                          \
		(void)attrValue;                                                                   \
		return set_attribute(attr, attrName);                                              \
	}
SET_VALUE(Bool, uint8_t)
SET_VALUE(Int, int64_t)
SET_VALUE(Float, float)
SET_VALUE(String, const char *)
SET_VALUE(DataType, aclDataType)

#define SET_LIST(kind, type)                                                                       \
	aclError aclopSetAttrList##kind##Impl(aclopAttr *attr, const char *attrName,               \
					      int numValues, const type *values)                   \
	{                                                                                          \
		(void)numValues;                                                                   \
		(void)values;                                                                      \
		return set_attribute(attr, attrName);                                              \
	}
SET_LIST(Bool, uint8_t)
SET_LIST(Int, int64_t)
SET_LIST(Float, float)

aclError aclopSetAttrListListIntImpl(aclopAttr *attr, const char *attrName, int numLists,
				     const int *numValues, const int64_t *const values[])
{
	(void)numLists;
	(void)numValues;
	(void)values;
	return set_attribute(attr, attrName);
}
