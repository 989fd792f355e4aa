/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Descriptions of tensors and attributes for operators that are called by name. Such operators are not simulated: calling one
 * says so. The descriptions can be made and asked all the same.
 */
#ifndef ACL_OP_H
#define ACL_OP_H

#include "acl_base.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct aclTensorDesc aclTensorDesc;
typedef struct aclDataBuffer aclDataBuffer;
typedef struct aclopAttr aclopAttr;

#pragma GCC visibility push(default)

/* Bytes of an element, 0 for a type without a fixed size. */
size_t aclDataTypeSize(aclDataType dataType);

/* NULL when an argument is not valid. Sizes count elements of `dims`, 1 without dimensions. */
aclTensorDesc *aclCreateTensorDesc(aclDataType dataType, int numDims, const int64_t *dims,
				   aclFormat format);
void aclDestroyTensorDesc(const aclTensorDesc *desc);
aclDataType aclGetTensorDescType(const aclTensorDesc *desc);
aclFormat aclGetTensorDescFormat(const aclTensorDesc *desc);
size_t aclGetTensorDescSize(const aclTensorDesc *desc);
size_t aclGetTensorDescElementCount(const aclTensorDesc *desc);
size_t aclGetTensorDescNumDims(const aclTensorDesc *desc);
aclError aclGetTensorDescDimV2(const aclTensorDesc *desc, size_t index, int64_t *dimSize);

/* Accepted and not interpreted. */
void aclSetTensorDescName(aclTensorDesc *desc, const char *name);
aclError aclSetTensorFormat(aclTensorDesc *desc, aclFormat format);
aclError aclSetTensorShape(aclTensorDesc *desc, int numDims, const int64_t *dims);
aclError aclSetTensorPlaceMent(aclTensorDesc *desc, aclMemType memType);

aclDataBuffer *aclCreateDataBuffer(void *data, size_t size);
aclError aclDestroyDataBuffer(const aclDataBuffer *dataBuffer);
void *aclGetDataBufferAddr(const aclDataBuffer *dataBuffer);
size_t aclGetDataBufferSizeV2(const aclDataBuffer *dataBuffer);

/* Attributes are accepted and not kept, as no operator reads them. */
aclopAttr *aclopCreateAttr(void);
void aclopDestroyAttr(const aclopAttr *attr);
aclError aclopSetAttrBool(aclopAttr *attr, const char *attrName, uint8_t attrValue);
aclError aclopSetAttrInt(aclopAttr *attr, const char *attrName, int64_t attrValue);
aclError aclopSetAttrFloat(aclopAttr *attr, const char *attrName, float attrValue);
aclError aclopSetAttrString(aclopAttr *attr, const char *attrName, const char *attrValue);
aclError aclopSetAttrDataType(aclopAttr *attr, const char *attrName, aclDataType attrValue);
aclError aclopSetAttrListBool(aclopAttr *attr, const char *attrName, int numValues,
			      const uint8_t *values);
aclError aclopSetAttrListInt(aclopAttr *attr, const char *attrName, int numValues,
			     const int64_t *values);
aclError aclopSetAttrListFloat(aclopAttr *attr, const char *attrName, int numValues,
			       const float *values);
aclError aclopSetAttrListListInt(aclopAttr *attr, const char *attrName, int numLists,
				 const int *numValues, const int64_t *const values[]);

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif

#endif
