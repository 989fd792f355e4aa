/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Arguments of operators, as their callers make them: link with -lnnopbase. Each function that creates copies what it is given,
 * except the data of a tensor, and returns NULL when an argument is not valid or memory is short. A list owns its elements.
 */
#ifndef ACLNN_ACL_META_H
#define ACLNN_ACL_META_H

#include <stdbool.h>
#include <stdint.h>

#include "acl/acl_base.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct aclOpExecutor aclOpExecutor;
typedef struct aclTensor aclTensor;
typedef struct aclScalar aclScalar;
typedef struct aclIntArray aclIntArray;
typedef struct aclFloatArray aclFloatArray;
typedef struct aclBoolArray aclBoolArray;
typedef struct aclTensorList aclTensorList;
typedef struct aclScalarList aclScalarList;

typedef int32_t aclnnStatus;

/* Errors of operators beside those of acl_base.h. */
enum {
	ACLNN_ERR_PARAM_INVALID = 161002,
	ACLNN_ERR_INNER_FIND_KERNEL_ERROR = 561003,
};

#pragma GCC visibility push(default)

/*
 * A tensor of at most 8 dimensions. `stride` (NULL: dense) and `offset` count elements from `tensorData`; the format and the
 * dimensions of the storage are kept for who asks.
 */
aclTensor *aclCreateTensor(const int64_t *viewDims, uint64_t viewDimsNum, aclDataType dataType,
			   const int64_t *stride, int64_t offset, aclFormat format,
			   const int64_t *storageDims, uint64_t storageDimsNum, void *tensorData);
aclScalar *aclCreateScalar(void *value, aclDataType dataType);
aclIntArray *aclCreateIntArray(const int64_t *value, uint64_t size);
aclFloatArray *aclCreateFloatArray(const float *value, uint64_t size);
aclBoolArray *aclCreateBoolArray(const bool *value, uint64_t size);
aclTensorList *aclCreateTensorList(const aclTensor *const *value, uint64_t size);
aclScalarList *aclCreateScalarList(const aclScalar *const *value, uint64_t size);

/* Neither is needed before or after operators. `configPath` may be NULL; nothing of it is read. */
aclnnStatus aclnnInit(const char *configPath);
aclnnStatus aclnnFinalize(void);

/* Frameworks call these around each operator. A real library keeps the memory of executors in one piece meanwhile; ours are freed one by one. */
int InitHugeMemThreadLocal(void *arg, bool sync);
void UnInitHugeMemThreadLocal(void *arg, bool sync);
void ReleaseHugeMem(void *arg, bool sync);

aclnnStatus aclDestroyTensor(const aclTensor *tensor);
aclnnStatus aclDestroyScalar(const aclScalar *scalar);
aclnnStatus aclDestroyIntArray(const aclIntArray *array);
aclnnStatus aclDestroyFloatArray(const aclFloatArray *array);
aclnnStatus aclDestroyBoolArray(const aclBoolArray *array);
aclnnStatus aclDestroyTensorList(const aclTensorList *array);
aclnnStatus aclDestroyScalarList(const aclScalarList *array);

/* The caller frees `*viewDims` with delete[], so it comes from operator new[] where the process has one, else from malloc(). */
aclnnStatus aclGetViewShape(const aclTensor *tensor, int64_t **viewDims, uint64_t *viewDimsNum);
aclnnStatus aclGetDataType(const aclTensor *tensor, aclDataType *dataType);
aclnnStatus aclGetFormat(const aclTensor *tensor, aclFormat *format);
aclnnStatus aclGetIntArraySize(const aclIntArray *array, uint64_t *size);
aclnnStatus aclGetTensorListSize(const aclTensorList *tensorList, uint64_t *size);

/* Of one that was never executed. */
aclnnStatus aclDestroyAclOpExecutor(aclOpExecutor *executor);

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif

#endif
