/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operators called by name, and the options of the compiler that real software has for them: link with -lacl_op_compiler. The
 * options are kept for who asks; the calls are refused with the operator's name.
 */
#ifndef ACL_OP_COMPILER_H
#define ACL_OP_COMPILER_H

#include "acl_op.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum {
	ACL_PRECISION_MODE,
	ACL_AICORE_NUM,
	ACL_AUTO_TUNE_MODE,
	ACL_OP_SELECT_IMPL_MODE,
	ACL_OPTYPELIST_FOR_IMPLMODE,
	ACL_OP_DEBUG_LEVEL,
	ACL_DEBUG_DIR,
	ACL_OP_COMPILER_CACHE_MODE,
	ACL_OP_COMPILER_CACHE_DIR,
	ACL_OP_PERFORMANCE_MODE,
	ACL_OP_JIT_COMPILE,
	ACL_OP_DETERMINISTIC,
	ACL_CUSTOMIZE_DTYPES,
	ACL_OP_PRECISION_MODE,
	ACL_ALLOW_HF32,
	ACL_PRECISION_MODE_V2,
	ACL_OP_DEBUG_OPTION,
} aclCompileOpt;

typedef enum aclEngineType {
	ACL_ENGINE_SYS,
	ACL_ENGINE_AICORE,
	ACL_ENGINE_VECTOR,
} aclopEngineType;

typedef enum aclCompileType {
	ACL_COMPILE_SYS,
	ACL_COMPILE_UNREGISTERED,
} aclopCompileType;

#pragma GCC visibility push(default)

/* Values have at most 255 bytes; the size counts the zero at the end, and `length` must not be less. */
aclError aclSetCompileopt(aclCompileOpt opt, const char *value);
aclError aclGetCompileopt(aclCompileOpt opt, char *value, size_t length);
size_t aclGetCompileoptSize(aclCompileOpt opt);

/* Always ACL_ERROR_RT_FEATURE_NOT_SUPPORT. */
aclError aclopCompileAndExecute(const char *opType, int numInputs,
				const aclTensorDesc *const inputDesc[],
				const aclDataBuffer *const inputs[], int numOutputs,
				const aclTensorDesc *const outputDesc[],
				aclDataBuffer *const outputs[], const aclopAttr *attr,
				aclopEngineType engineType, aclopCompileType compileFlag,
				const char *opPath, aclrtStream stream);
aclError aclopCompileAndExecuteV2(const char *opType, int numInputs, aclTensorDesc *inputDesc[],
				  aclDataBuffer *inputs[], int numOutputs,
				  aclTensorDesc *outputDesc[], aclDataBuffer *outputs[],
				  aclopAttr *attr, aclopEngineType engineType,
				  aclopCompileType compileFlag, const char *opPath,
				  aclrtStream stream);

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif

#endif
