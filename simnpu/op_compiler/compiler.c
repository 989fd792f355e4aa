/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libacl_op_compiler.so: options of a compiler of operators that is not there, and operators called by name, which would need
 * it.
 */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "acl/acl_op_compiler.h"
#include "acl/impl.h"

enum {
	OPTION_COUNT = ACL_OP_DEBUG_OPTION + 1,
	VALUE_MAX = 256,
};

/* Guards the options. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char options[OPTION_COUNT][VALUE_MAX] = {
	[ACL_PRECISION_MODE] = "allow_fp32_to_fp16",
	[ACL_OP_JIT_COMPILE] = "disable",
	[ACL_OP_DETERMINISTIC] = "0",
};

aclError aclSetCompileopt(aclCompileOpt opt, const char *value)
{
	if ((unsigned)opt >= OPTION_COUNT || !value || strlen(value) >= VALUE_MAX)
		return ACL_ERROR_INVALID_PARAM;
	(void)pthread_mutex_lock(&lock);
	(void)strcpy(options[opt], value);
	(void)pthread_mutex_unlock(&lock);
	return ACL_SUCCESS;
}

size_t aclGetCompileoptSize(aclCompileOpt opt)
{
	size_t size;

	if ((unsigned)opt >= OPTION_COUNT)
		return 0;
	(void)pthread_mutex_lock(&lock);
	size = strlen(options[opt]) + 1;
	(void)pthread_mutex_unlock(&lock);
	return size;
}

aclError aclGetCompileopt(aclCompileOpt opt, char *value, size_t length)
{
	aclError error = ACL_ERROR_INVALID_PARAM;

	if ((unsigned)opt >= OPTION_COUNT || !value)
		return error;
	(void)pthread_mutex_lock(&lock);
	if (strlen(options[opt]) < length) {
		(void)strcpy(value, options[opt]);
		error = ACL_SUCCESS;
	}
	(void)pthread_mutex_unlock(&lock);
	return error;
}

/* Its name stays readable for aclGetRecentErrMsg() on this thread. */
static aclError refuse(const char *function, const char *op)
{
	static _Thread_local char text[128];

	(void)snprintf(text, sizeof(text), "%s of %s", function, op ? op : "?");
	return aclSimNotSimulated(text);
}

aclError aclopCompileAndExecute(const char *opType, int numInputs,
				const aclTensorDesc *const inputDesc[],
				const aclDataBuffer *const inputs[], int numOutputs,
				const aclTensorDesc *const outputDesc[],
				aclDataBuffer *const outputs[], const aclopAttr *attr,
				aclopEngineType engineType, aclopCompileType compileFlag,
				const char *opPath, aclrtStream stream)
{
	(void)numInputs;
	(void)inputDesc;
	(void)inputs;
	(void)numOutputs;
	(void)outputDesc;
	(void)outputs;
	(void)attr;
	(void)engineType;
	(void)compileFlag;
	(void)opPath;
	(void)stream;
	return refuse("aclopCompileAndExecute", opType);
}

aclError aclopCompileAndExecuteV2(const char *opType, int numInputs, aclTensorDesc *inputDesc[],
				  aclDataBuffer *inputs[], int numOutputs,
				  aclTensorDesc *outputDesc[], aclDataBuffer *outputs[],
				  aclopAttr *attr, aclopEngineType engineType,
				  aclopCompileType compileFlag, const char *opPath,
				  aclrtStream stream)
{
	(void)numInputs;
	(void)inputDesc;
	(void)inputs;
	(void)numOutputs;
	(void)outputDesc;
	(void)outputs;
	(void)attr;
	(void)engineType;
	(void)compileFlag;
	(void)opPath;
	(void)stream;
	return refuse("aclopCompileAndExecuteV2", opType);
}
