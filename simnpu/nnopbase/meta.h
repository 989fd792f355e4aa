/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is behind the pointers of aclnn/acl_meta.h. The layout is ours; libopapi.so reads it.
 */
#ifndef SIMNPU_NNOPBASE_META_H
#define SIMNPU_NNOPBASE_META_H

#include "aclnn/acl_meta.h"

enum {
	META_DIMS_MAX = 8,
};

struct aclTensor {
	aclDataType type;
	aclFormat format;
	uint64_t dim_count;
	int64_t dims[META_DIMS_MAX];
	int64_t strides[META_DIMS_MAX]; /* in elements */
	void *data;			/* the first element of the view */
};

struct aclScalar {
	aclDataType type;
	unsigned char value[16]; /* as many bytes as the type has */
};

struct aclIntArray {
	uint64_t count;
	int64_t values[];
};

struct aclFloatArray {
	uint64_t count;
	float values[];
};

struct aclBoolArray {
	uint64_t count;
	bool values[];
};

struct aclTensorList {
	uint64_t count;
	const aclTensor *values[];
};

struct aclScalarList {
	uint64_t count;
	const aclScalar *values[];
};

/* First member of every executor. */
struct aclOpExecutor {
	void (*destroy)(aclOpExecutor *executor);
};

#endif
